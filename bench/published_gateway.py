"""Two people on one gateway with a published provider: `python bench/published_gateway.py [NAME ...] [--turns 200]`.

In the package's own environment one process takes their turns in any order and builds an agent for each, as a gateway
does. A person tells their word, lets the model note it with our `memory` tool or with the provider's writing tools, asks
for it, or lets the model search with the provider's reading tools. All that the model is sent in a turn, also by the
review behind it, is searched for the other's word. The table counts the turns in which a person's own word came back
through the fence or a tool of the provider, and those in which the other's did: 0, where the provider goes by the person that it is given
(`user_id`). One that stores by home alone can't tell people apart. It needs the network (pip) and no key.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from published_chat import MOST_TOOLS, offered
from published_corpus import CORPUS, Package, arguments, at_home, prepare, quiet_run, writes

WORDS = {"ann": "Zebra", "bob": "Walrus"}
OTHER = {"ann": "bob", "bob": "ann"}
ACTIONS = ("tell", "keep", "note", "ask", "search", "end")
SETTINGS = {"yantrikdb": "YANTRIKDB_OWNER_SCOPING=true\n"}
"""What a package wants to be told before it goes by the person."""

DEFAULT = ("yantrikdb",)


def main() -> int:
    """Run the packages named on the command line and print the table; 1 when somebody was shown what is another's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", default=DEFAULT, help="names of the corpus of published_corpus.py"
    )
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="keep environments here, to run again quickly")
    parser.add_argument("--child", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print("\n" + json.dumps(talk(options.child, options.turns)))
        return 0
    results = [run_package(p, options.turns, options.keep) for p in CORPUS if p.name in options.names]
    print(f"{'package':12} {'turns':>5} {'instances':>9} {'own word':>8} {'other':>5}  what happened")
    for found in results:
        numbers = f"{found.get('turns', 0):5} {found.get('instances', 0):9} {found.get('own', 0):8} {found.get('other', 0):5}"
        print(f"{found['name']:12} {numbers}  {found.get('said') or 'ok'}")
    return int(any(found.get("said") or found["other"] for found in results))


def run_package(package: Package, turns: int, keep: Path | None) -> dict[str, Any]:
    """Install one package and let the two people speak in a process of its own."""
    print(f"{package.name} ...", file=sys.stderr, flush=True)
    with at_home(package, keep) as (environment, home, env):
        try:
            python = prepare(package, environment, home, env)
            with (home / ".env").open("a") as secrets:
                secrets.write(SETTINGS.get(package.name, ""))
            (home / ".env").chmod(0o600)
            quiet_run([str(python.parent / "hermes-memory"), "memory", "use", package.name], env)
            command = [
                str(python),
                str(Path(__file__).resolve()),
                "--child",
                package.name,
                "--turns",
                str(turns),
            ]
            done = subprocess.run(
                command, env=env, cwd=env["HOME"], capture_output=True, text=True, timeout=1800
            )
        except subprocess.CalledProcessError as exc:
            return {"name": package.name, "said": f"install: {(exc.stderr or '').strip()[-200:]}"}
    if done.returncode:
        return {"name": package.name, "said": done.stderr.strip()[-300:]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


# ------------------------------------------------------------------------------------------------- inside the child


def talk(name: str, turns: int) -> dict[str, Any]:
    """Hold the conversations with one memory and a model that does what it is told."""
    from hermes_core.home import HermesHome
    from hermes_core.memory import open_memory
    from hermes_memory_agent import Agent, ModelSettings, OpenAIModel
    from hermes_memory_testing.model_server import ModelServer

    home = HermesHome.resolve()
    settings = home.path / "config.yaml"
    settings.write_text(settings.read_text().replace("memory:\n", "memory:\n  per_user: true\n", 1))
    dice, counts = random.Random(2026), Counter[str]()
    sessions = {user: f"first-of-{user}" for user in WORDS}
    with ModelServer([answer]) as server, open_memory(home) as memory:
        model = OpenAIModel(ModelSettings(server.base_url, "scripted"))
        for number in range(turns):
            user, action = dice.choice(list(WORDS)), dice.choice(ACTIONS)
            seen = len(server.requests)
            who = {"platform": "telegram", "user_id": user, "chat_id": user}
            agent = Agent(memory, model, session_id=sessions[user], **who)
            said = "What is my word?" if action in ("ask", "search") else f"My word is {WORDS[user]}{number}."
            agent.run_turn(f"{action.capitalize()}: {said}")
            agent.wait_for_review(10)
            if action == "end":
                agent.new()
            sessions[user] = agent.session.id
            memory.flush(20)
            count(server.requests[seen:], user, counts)
        problems = "; ".join(memory.problems())
        instances = sum(len(held.instances()) for held in memory.manager._roster.external)
    return {"name": name, "turns": turns, "instances": instances, "said": problems, **counts}


def count(requests: list[dict[str, Any]], user: str, counts: Counter[str]) -> None:
    """Whether what was sent to the model in a turn holds the other's word, and whether one's own came back."""
    counts["other"] += any(WORDS[OTHER[user]] in json.dumps(request) for request in requests)
    counts["own"] += any(WORDS[user] in text for request in requests for text in brought(request))


def brought(request: dict[str, Any]) -> list[str]:
    """What memory brought into a request: fences and what reading tools answered, without what the person said."""
    last = request["messages"][-1]
    text = str(last["content"])
    return [text.partition("<memory-context>")[2] if last["role"] == "user" else text]


def answer(request: dict[str, Any]) -> Any:
    """A model that does what the first word of the person's message names."""
    from hermes_memory_testing.model_server import Reply

    last = request["messages"][-1]
    said = str(last["content"])
    if last["role"] != "user" or "not from the person" in said:
        return Reply("Done.")
    said = said.partition("<memory-context>")[0].strip()
    action, _, text = said.partition(": ")
    tools = offered(request)
    if action == "Note":
        return Reply(calls=[("memory", {"action": "add", "target": "user", "content": text})])
    if action in ("Keep", "Search"):
        chosen = [tool for tool in tools if writes(tool["name"]) == (action == "Keep")][:MOST_TOOLS]
        sought = text if action == "Keep" else "word"
        calls = [(tool["name"], arguments(tool, sought)) for tool in chosen]
        return Reply(calls=calls) if calls else Reply("Yes.")
    return Reply("Yes.")


if __name__ == "__main__":
    sys.exit(main())
