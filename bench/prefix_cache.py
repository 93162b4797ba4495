"""What share of each request's prompt repeats the request before, from its first byte on: what a prefix cache saves.

    python bench/prefix_cache.py [--json] [--plot FILE]

A session of 50 turns with three requests each, run by the real agent on a model that answers by script: prompt of 5,000
tokens, 1,500 new tokens a turn, recall of 500 and of 1,500 tokens a turn, a memory write every fifth turn. Beside it the
same session in two naive designs: the prompt rebuilt on each memory write, and recall put into the system prompt.
A token is four characters; the first request of the session has nothing to repeat and is left out.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from plots import draw
from rich.console import Console
from rich.table import Table

from hermes_core import MemoryProvider, Recall, open_memory
from hermes_core.contract.values import Session
from hermes_memory_agent import Agent, Answer, Tool, ToolRequest
from hermes_memory_agent.cancel import Cancel

TURNS, REQUESTS, PROMPT, TURN, WRITE_EVERY = 50, 3, 5000, 1500, 5
RECALLS = (500, 1500)
DESIGNS = ("ours", "prompt rebuilt on each write", "recall in the system prompt")
_CHARS = 4


@dataclass
class Sent:
    """One request as it was sent, and what the naive designs would have put elsewhere."""

    system: str
    rest: list[str]
    recall: str
    plain: list[str]
    writes: int

    def text(self, design: str) -> str:
        """The whole prompt as one text, as this design sends it."""
        if design == DESIGNS[1]:
            notes = "".join(f"\n- note {number}" for number in range(self.writes))
            return self.system + notes + "".join(self.rest)
        if design == DESIGNS[2]:
            return self.system + self.recall + "".join(self.plain)
        return self.system + "".join(self.rest)


class Recaller(MemoryProvider):
    """Recalls so many tokens, different ones each turn."""

    name = "recaller"

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._turn = 0
        self.last = ""

    def prefetch(self) -> Recall:
        self._turn += 1
        self.last = filler(self._tokens, self._turn)
        return Recall(text=self.last)


@dataclass
class Scripted:
    """A model that calls a tool twice and then answers, and keeps what it is sent."""

    provider: Recaller
    sent: list[Sent] = field(default_factory=list)
    name: str = "scripted"
    context_length: int = 10_000_000
    writes: int = 0

    def complete(self, messages: Any, tools: Any, *, on_text: Any, cancel: Cancel) -> Answer:
        del tools, cancel
        rest = [json.dumps(message) for message in messages[1:]]
        plain = [json.dumps(_without_fence(message)) for message in messages[1:]]
        system = messages[0]["content"]
        self.sent.append(Sent(system, rest, self.provider.last, plain, self.writes))
        step = (len(self.sent) - 1) % REQUESTS
        turn = (len(self.sent) - 1) // REQUESTS
        if step == 1 and turn % WRITE_EVERY == 0:
            self.writes += 1
        if step < REQUESTS - 1:
            return Answer(calls=(ToolRequest(f"c{len(self.sent)}", "look", "{}"),))
        text = filler(TURN // 6, turn, "answer")
        on_text(text)
        return Answer(text)


def _without_fence(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": str(message.get("content", "")).partition("\n\n<memory-context>")[0]}


def filler(tokens: int, seed: int, kind: str = "text") -> str:
    """So many tokens of words, the same for the same seed."""
    dice = random.Random(f"{kind}{seed}")
    words = " ".join(dice.choice(_WORDS) for _ in range(tokens))
    return words[: tokens * _CHARS].ljust(tokens * _CHARS, ".")


_WORDS = (
    "river",
    "stone",
    "lamp",
    "garden",
    "winter",
    "copper",
    "sailor",
    "bridge",
    "violet",
    "candle",
    "harvest",
    "thunder",
    "marble",
    "orchard",
)


def session(recall: int) -> list[Sent]:
    """Run the session and return its requests."""
    provider = Recaller(recall)
    model = Scripted(provider)

    def result(arguments: Mapping[str, Any], session: Session) -> str:
        del arguments, session
        return filler(TURN // 3, len(model.sent), "result")

    look = Tool("look", "Look.", {}, result, quick=True)
    with tempfile.TemporaryDirectory() as home:
        Path(home, "config.yaml").write_text(
            "memory: {nudge_interval: 0, flush_min_turns: 0}\nrecall: {budget: 4000}\n"
        )
        with open_memory(home, provider=provider) as memory:
            instructions = filler(PROMPT, 0)
            with Agent(
                memory, model, tools=[look], toolsets=["memory", "host"], instructions=instructions
            ) as agent:
                spare = len(agent.prompt) - len(instructions)
            instructions = instructions[: PROMPT * _CHARS - spare]
            model.sent.clear()
            with Agent(
                memory, model, tools=[look], toolsets=["memory", "host"], instructions=instructions
            ) as agent:
                for turn in range(TURNS):
                    agent.run_turn(filler(TURN // 12, turn, "question"))
    return model.sent


def shares(sent: Sequence[Sent], design: str) -> list[float]:
    """For each request but the first, the share of it that repeats the one before."""
    return [again / whole for again, whole in compared(sent, design)]


def read_anew(sent: Sequence[Sent], design: str) -> list[float]:
    """Tokens, up to each request, that did not repeat the one before: what a server reads and bills in full."""
    return list(accumulate((whole - again) / _CHARS for again, whole in compared(sent, design)))


def compared(sent: Sequence[Sent], design: str) -> list[tuple[int, int]]:
    """For each request but the first, the characters that repeat the one before, and all of its characters."""
    texts = [one.text(design) for one in sent]
    return [(repeated(before, now), len(now)) for before, now in pairwise(texts)]


def repeated(before: str, now: str) -> int:
    """How many characters of `now` are those of `before`, from the first on."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(before), len(now)))


def main() -> int:
    """Run both sessions and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--plot", type=Path, help="draw what is read anew over the session (needs matplotlib)"
    )
    options = parser.parse_args()
    sessions = {recall: session(recall) for recall in RECALLS}
    if options.json:
        print_json(sessions)
    else:
        show(sessions)
    if options.plot:
        draw(plot, sessions, options.plot)
    return 0


def print_json(sessions: Mapping[int, Sequence[Sent]]) -> None:
    """The results for programs."""
    found = {
        str(recall): {
            design: {
                "mean": round(fmean(shares(sent, design)), 4),
                "lowest": round(min(shares(sent, design)), 4),
                "tokens_read_anew": round(read_anew(sent, design)[-1]),
            }
            for design in DESIGNS
        }
        for recall, sent in sessions.items()
    }
    given = {"turns": TURNS, "requests": REQUESTS, "prompt": PROMPT, "turn": TURN}
    print(json.dumps({**given, "recall": found}, indent=2))


def show(sessions: Mapping[int, Sequence[Sent]]) -> None:
    """The results for people."""
    console = Console()
    console.print(
        f"{TURNS} turns of {REQUESTS} requests, prompt {PROMPT} tokens, {TURN} new tokens a turn,"
        f" a memory write every {WRITE_EVERY} turns; share of each request that repeats the one before"
    )
    for recall, sent in sessions.items():
        table = Table(f"recall of {recall} tokens a turn", "mean share", "lowest", "tokens read anew")
        for design in DESIGNS:
            found = shares(sent, design)
            table.add_row(
                design, f"{fmean(found):.3f}", f"{min(found):.3f}", f"{read_anew(sent, design)[-1]:,.0f}"
            )
        console.print(table)


def plot(sessions: Mapping[int, Sequence[Sent]], path: Path) -> None:
    """Tokens read anew over the session, a picture for each amount of recall."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(sessions), sharey=True, figsize=(10, 3.6))
    for axis, (recall, sent) in zip(axes, sessions.items(), strict=True):
        for design in DESIGNS:
            thousands = [tokens / 1000 for tokens in read_anew(sent, design)]
            axis.plot(range(1, len(thousands) + 1), thousands, label=design)
        axis.set_title(f"recall of {recall} tokens a turn")
        axis.set_xlabel("request")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("thousands of tokens read anew")
    axes[0].legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    raise SystemExit(main())
