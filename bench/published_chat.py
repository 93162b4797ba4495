"""Providers published for Hermes Agent through the command line: `python bench/published_chat.py [NAME ...]`.

For each package that runs a whole life, in its own environment and home: `hermes-memory memory use NAME`, then two processes
of `hermes-memory chat -m` with a scripted model. The first is told the word; its model notes it with our `memory` tool, which is
mirrored, and with the provider's writing tools. The second asks for it. The table says where the word came back: P in the
fence of the second question, V in the answer of a reading tool of the provider. It needs the network (pip) and no key.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from published_corpus import ANSWER, CORPUS, USER, WORD, Package, arguments, at_home, prepare, writes

from hermes_memory_testing.model_server import ModelServer, Reply

QUESTION = "What is the name of my dog?"
MOST_TOOLS = 4
AVOIDED = ("forget", "delete", "reset", "clear", "purge")
OURS = ("memory", "session_search", "delegate_task", "skill_view", "skill_manage", "todo")
NOTE = ("memory", {"action": "add", "target": "user", "content": f"The user's dog is called {WORD}."})
SEARCHED = "dog"
"""What tools are asked for: not the word, which an answer might only repeat."""


def main() -> int:
    """Run the packages named on the command line, or all that run a whole life, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="names of the corpus, or none for all")
    parser.add_argument("--keep", type=Path, help="keep environments here, to run again quickly")
    options = parser.parse_args()
    whole = [p for p in CORPUS if p.expect.strip("STERrV") == ""]
    results = [
        run_package(package, options.keep)
        for package in whole
        if not options.names or package.name in options.names
    ]
    print(f"{'package':12} {'use':4} {'tell':5} {'ask':4} {'seen':5} what happened")
    for result in results:
        print(result.line(), flush=True)
    return 0 if all(result.seen for result in results) else 1


@dataclass
class Result:
    """What one package did: exit codes of the three commands, where the word came back, what was said."""

    name: str
    codes: list[int] = field(default_factory=list)
    seen: str = ""
    said: str = ""

    def line(self) -> str:
        """A row of the table."""
        use, tell, ask = [*map(str, self.codes), "-", "-", "-"][:3]
        return f"{self.name:12} {use:4} {tell:5} {ask:4} {self.seen or '-':5} {self.said or 'ok'}"


def run_package(package: Package, keep: Path | None) -> Result:
    """Install one package and hold the two conversations."""
    print(f"{package.name} ...", file=sys.stderr, flush=True)
    result = Result(package.name)
    with at_home(package, keep) as (environment, home, env):
        try:
            python = prepare(package, environment, home, env)
        except subprocess.CalledProcessError as exc:
            result.said = f"install: {(exc.stderr or '').strip().splitlines()[-1:]}"
            return result
        talk(package, python.parent, home, env, result)
    return result


def talk(package: Package, programs: Path, home: Path, env: dict[str, str], result: Result) -> None:
    """Choose the provider, tell the word in one process, ask for it in another."""
    work = Path(env["HOME"], "work")
    work.mkdir()
    subprocess.run(["git", "init", "--quiet", str(work)], check=True)
    if package.setup:
        program, *words = package.setup
        subprocess.run([programs / program, *words], env=env, cwd=work, check=True, capture_output=True)

    def hermes(*words: str) -> bool:
        done = subprocess.run(
            [programs / "hermes-memory", *words],
            env=env,
            cwd=work,
            capture_output=True,
            text=True,
            timeout=300,
        )
        result.codes.append(done.returncode)
        if done.returncode and not result.said:
            result.said = (done.stderr or done.stdout).strip()[-200:]
        return not done.returncode

    script = Script(result)
    with ModelServer([script.tell]) as server:
        hermes("memory", "use", package.name)
        with (home / "config.yaml").open("a") as config:
            config.write(f"\nmodel:\n  base_url: {server.base_url}\n  name: scripted\n")
        hermes("chat", "-m", USER)
    with ModelServer([script.ask]) as server:
        text = (home / "config.yaml").read_text()
        (home / "config.yaml").write_text(
            "\n".join(
                f"  base_url: {server.base_url}" if line.strip().startswith("base_url:") else line
                for line in text.splitlines()
            )
        )
        hermes("chat", "-m", QUESTION)


class Script:
    """What the model does: in the first process it writes, in the second it reads."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def tell(self, request: dict[str, Any]) -> Reply:
        """Note it with our tool and with those that write, then answer."""
        tools = [schema for schema in offered(request) if writes(schema["name"])]
        if request["messages"][-1]["role"] != "user":
            return Reply(ANSWER)
        return Reply(
            calls=[NOTE, *((schema["name"], arguments(schema, USER)) for schema in tools[:MOST_TOOLS])]
        )

    def ask(self, request: dict[str, Any]) -> Reply:
        """Look into the fence, call tools that read, look at what they say."""
        last = request["messages"][-1]
        if not any(str(message["content"]).startswith(QUESTION) for message in request["messages"]):
            return Reply("Nothing to note.")
        tools = [schema for schema in offered(request) if not writes(schema["name"])]
        if last["role"] == "user":
            self._note("P", str(last["content"]))
            calls = [(schema["name"], arguments(schema, SEARCHED)) for schema in tools[:MOST_TOOLS]]
            return Reply(calls=calls) if calls else Reply("I can't tell.")
        for message in request["messages"]:
            if message["role"] == "tool":
                self._note("V", str(message["content"]))
        return Reply("I looked.")

    def _note(self, mark: str, text: str) -> None:
        if WORD in text and mark not in self._result.seen:
            self._result.seen += mark


def offered(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The provider's tools that may be called here, searches first."""
    functions = [tool["function"] for tool in request.get("tools", [])]
    kept = [f for f in functions if f["name"] not in OURS and not any(word in f["name"] for word in AVOIDED)]
    reading = ("search", "recall", "query", "find", "read", "list")
    return sorted(kept, key=lambda f: not any(word in f["name"] for word in reading))


if __name__ == "__main__":
    sys.exit(main())
