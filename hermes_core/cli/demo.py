"""`hermes-memory demo`."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.panel import Panel
from rich.text import Text

from hermes_core.cli import Failure
from hermes_core.cli.importing import build_with_progress, import_with_progress
from hermes_core.cli.output import console, moment, print_table, warn
from hermes_core.config import set_value
from hermes_core.home import HermesHome
from hermes_core.importers import read_file
from hermes_core.importers.sample import SampleQuestion, sample_path, sample_questions
from hermes_core.memory import Memory, open_memory
from hermes_core.safety.terminal import counted
from hermes_core.storage.files import ensure_folder
from hermes_core.turn_recall import RecallHit

REMEMBERED = "Nadia can't eat cashews or pistachios."
QUESTION = "Which nuts is Nadia allergic to?"

MARK = ".hermes-demo"
"""A file in a home that a demo made: a later one may go on in it, and in no other."""

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
    sessions = read_file(sample_path(), "jsonl")
    done = import_with_progress(
        memory, ((session, session.turns) for session in sessions), sum(len(one.turns) for one in sessions)
    )
    build_with_progress(memory)
    memory.flush(timeout=60)
    console().rule("[bold]1. A conversation comes in[/bold]", align="left")
    console().print(
        f"{counted(done.messages, 'message')} of {counted(done.sessions, 'session')}, stored and searchable"
        + (f" ({counted(done.known, 'turn')} here already)" if done.known else "")
    )
    print_table("", ("session", "when", "begins with"), _listing(memory), "")
    console().rule("[bold]2. Facts are recalled, with their evidence[/bold]", align="left")


def _listing(memory: Memory) -> Iterator[tuple[str, str, str]]:
    for listed in reversed(memory.sessions.list_sessions(limit=100)):
        number = listed.session.title.rpartition(" ")[2]
        yield number, moment(listed.session.started_at), listed.preview


def _ask(memory: Memory, asked: SampleQuestion) -> bool:
    """Print the first results for a question; return True if its evidence is among them."""
    results = [one for one in memory.recall(asked.question).results if one.source == "sessions"][:SHOWN]
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
    prompt = memory.system_prompt(later).split("\n# ")[0].strip()
    message = memory.begin_turn(later, QUESTION).inject(QUESTION)
    console().print(
        Panel(Text(prompt), title="in the system prompt, frozen for the session", title_align="left")
    )
    console().print(
        Panel(Text(message), title="the user message of this request only", title_align="left"),
        soft_wrap=False,
    )


def _whats_next(keep: Path | None) -> None:
    console().rule("[bold]Try next[/bold]", align="left")
    home = f"--home {keep} " if keep else ""
    hint = "" if keep else "  (hermes-memory demo --keep DIR leaves this home for you to look around)"
    for line in (
        f'hermes-memory {home}recall "your question"{hint}',
        f'hermes-memory {home}memory add "a fact worth keeping"',
        f"hermes-memory {home}import chats.json",
        f"hermes-memory {home}memory status",
    ):
        console().print(Text(f"  {line}"))
