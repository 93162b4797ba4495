"""`hermes-memory demo`."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from pathlib import Path

import click
from rich.panel import Panel
from rich.text import Text

from hermes_core.cli import Failure
from hermes_core.cli.output import build_with_progress, console, moment, print_table, warn
from hermes_core.cli.sample import SampleQuestion, sample_path, sample_questions
from hermes_core.config import set_value
from hermes_core.contract.values import Message
from hermes_core.home import HermesHome
from hermes_core.memory import Memory, open_memory
from hermes_core.safety.terminal import counted
from hermes_core.storage.files import ensure_folder
from hermes_core.turn_recall import RecallHit

REMEMBERED = "Nadia can't eat cashews or pistachios."
QUESTION = "Which nuts is Nadia allergic to?"

MARK = ".hermes-demo"
"""A file in a home that a demo made: a later one may go on in it, and in no other."""

_ROLES = ("user", "assistant")

SHOWN = 3
"""Results of each question that are looked at for its evidence."""


@click.command()
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Leave the demo's home in this folder, to look around."
)
def demo(keep: Path | None) -> None:
    """Import a sample conversation and recall facts from it. Uses a home of its own, never yours."""
    with own_home(keep) as home:
        if importlib.util.find_spec("hermes_holographic") is not None:
            set_value(home, "memory.provider", "holographic")
        with open_memory(home) as memory:
            _bring_in(memory)
            found = [_ask(memory, asked) for asked in sample_questions() if asked.demo]
            _show_turn(memory)
            problems = memory.problems()
    warn(problems)
    _whats_next(keep)
    if not all(found):
        raise Failure("the evidence of a question was not found; please report this")


@contextmanager
def own_home(keep: Path | None) -> Iterator[HermesHome]:
    """The home of a demo: thrown away afterwards, or kept in a folder that is no person's."""
    if keep is not None:
        marked = keep.absolute() / MARK
        if not marked.exists() and keep.is_dir() and any(keep.iterdir()):
            raise Failure(f"{str(keep)!r} is not empty and no demo's; name a folder that is not there yet")
        ensure_folder(marked.parent)
        marked.touch()
        yield HermesHome(marked.parent)
        return
    with tempfile.TemporaryDirectory(prefix="hermes-demo-") as folder:
        yield HermesHome(Path(folder))


def _bring_in(memory: Memory) -> None:
    lines = [json.loads(line) for line in sample_path().read_text(encoding="utf-8").splitlines()]
    sessions = [(name, list(_turns(held))) for name, held in groupby(lines, lambda line: line["session"])]
    known = messages = 0
    with memory.sessions.vectors_later():
        for name, turns in sessions:
            session = memory.start_session(
                name,
                source="demo",
                platform="import",
                title=turns[0][0]["title"],
                started_at=_time(turns[0][0]),
            )
            for number, turn in enumerate(turns):
                turn_id = f"{name}-{number}"
                known += (is_known := memory.sessions.has_turn(turn_id))
                if not is_known:
                    messages += len(turn)
                    memory.end_turn(
                        session,
                        *(
                            "\n".join(line["content"] for line in turn if line["role"] == role)
                            for role in _ROLES
                        ),
                        messages=[_message(line) for line in turn],
                        turn_id=turn_id,
                        at=_time(turn[-1]),
                        user_at=_time(turn[0]),
                    )
            memory.end_session(session, "import")
    build_with_progress(memory)
    memory.flush(timeout=60)
    console().rule("[bold]1. A conversation comes in[/bold]", align="left")
    console().print(
        f"{counted(messages, 'message')} of {counted(len(sessions), 'session')}, stored and searchable"
        + (f" ({counted(known, 'turn')} here already)" if known else "")
    )
    print_table("", ("session", "when", "begins with"), _listing(memory), "")
    console().rule("[bold]2. Facts are recalled, with their evidence[/bold]", align="left")


def _turns(lines: Iterable[dict[str, str]]) -> Iterator[list[dict[str, str]]]:
    """Yield the turns of a session: the first speaker begins each."""
    turn: list[dict[str, str]] = []
    for line in lines:
        if turn and line["role"] == "user" and turn[-1]["role"] != "user":
            yield turn
            turn = []
        turn.append(line)
    yield turn


def _message(line: dict[str, str]) -> Message:
    return Message(
        role=line["role"],
        content=line["content"],
        speaker=line["speaker"],
        ref=line["ref"],
        timestamp=_time(line),
        origin="import",
    )


def _time(line: dict[str, str]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def _listing(memory: Memory) -> Iterator[tuple[str, str, str]]:
    for listed in reversed(memory.sessions.list_sessions(limit=100, everybody=True)):
        number = listed.session.title.rpartition(" ")[2]
        yield number, moment(listed.session.started_at), listed.preview


def _ask(memory: Memory, asked: SampleQuestion) -> bool:
    """Print the first results for a question; return True if its evidence is among them."""
    results = [
        one for one in memory.recall(asked.question, everybody=True).results if one.source == "sessions"
    ][:SHOWN]
    hit = next((one for one in results if one.ref in asked.evidence), None)
    mark = "[green]✓[/green]" if hit else "[red]✗[/red]"
    console().print(f"{mark} [bold]{asked.question}[/bold]")
    console().print(Text(f"  {_said(hit)}" if hit else f"  not found; expected: {asked.answer}"))
    return hit is not None


def _said(one: RecallHit) -> str:
    return f"{one.when}, {one.speaker}: {one.text}  ({one.ref})"


def _show_turn(memory: Memory) -> None:
    """Print what one turn would send to a model: the notes in the prompt, and recall fenced into the message."""
    console().rule("[bold]3. What a turn is given[/bold]", align="left")
    session = memory.start_session()
    memory.change_memory("add", "user", REMEMBERED, session=session)
    memory.flush()
    later = memory.start_session()
    prompt = memory.system_prompt(later).strip()
    message = memory.begin_turn(later, QUESTION).inject(QUESTION)
    for title, text in (
        ("in the system prompt, frozen for the session", prompt),
        ("the user message of this request only", message),
    ):
        console().print(Panel(Text(text), title=title, title_align="left"), soft_wrap=False)


def _whats_next(keep: Path | None) -> None:
    console().rule("[bold]Try next[/bold]", align="left")
    if keep is None:  # the home of this demo is gone, so a recall there is not possible
        lines = (
            "hermes-memory demo --keep DIR  (leaves the home of the demo in DIR, to look around)",
            'hermes-memory memory add "a fact worth keeping"  (goes into your own home)',
        )
    else:
        lines = (
            f'hermes-memory --home {keep} recall "your question"',
            f'hermes-memory --home {keep} memory add "a fact worth keeping"',
        )
    home = f"--home {keep} " if keep else ""
    for line in (*lines, f"hermes-memory {home}memory status"):
        console().print(Text(f"  {line}"))
