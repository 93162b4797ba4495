"""An agent is made on any home: what is damaged there is a problem of its turns, and no exception of `Agent()`."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_core.memory import open_memory
from hermes_memory_agent import Agent
from tests.rounds import ALL

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage

FILES = [
    "state.db",
    "stores.json",
    "memories",
    "memories/MEMORY.md",
    "memories/journal.db",
    "skills",
    "skills/a/SKILL.md",
    "SOUL.md",
]


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def empty(path: Path) -> None:
    remove(path)
    path.write_bytes(b"")


def garble(path: Path) -> None:
    remove(path)
    path.write_bytes(bytes(range(256)) * 40)


def make_folder(path: Path) -> None:
    remove(path)
    path.mkdir()


def link_to_itself(path: Path) -> None:
    remove(path)
    path.symlink_to(path.name)


def make_pipe(path: Path) -> None:
    remove(path)
    os.mkfifo(path)


def damage(path: Path) -> None:
    if path.is_file() and path.stat().st_size > 8192:
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (path.stat().st_size - 4096))


DAMAGES = [remove, empty, garble, make_folder, link_to_itself, damage]
if os.name != "nt":
    DAMAGES.append(make_pipe)


EACH = [(name, harm, late) for name in FILES for late in (False, True) for harm in DAMAGES]
# Each file at both times, and each kind of damage to two files or more.
SOME = [
    (name, DAMAGES[at % len(DAMAGES)], late)
    for at, (name, late) in enumerate(itertools.product(FILES, (False, True)))
]


OF_DATABASE = [pytest.mark.sqlite_only("a damaged or missing file")]
OF_OPEN_DATABASE = [*OF_DATABASE, pytest.mark.posix_files("replaces a file that is open")]


@pytest.mark.shortened
@pytest.mark.parametrize(
    ("name", "harm", "late"),
    [
        pytest.param(
            name,
            harm,
            late,
            id=f"{name}-{harm.__name__}-{'while it is open' if late else 'before the memory opens'}",
            marks=() if name != "state.db" else OF_OPEN_DATABASE if late else OF_DATABASE,
        )
        for name, harm, late in (EACH if ALL else SOME)
    ],
)
def test_an_agent_is_made_and_answers(
    stage: Stage, name: str, harm: Callable[[Path], None], late: bool
) -> None:
    with open_memory(stage.home) as memory:
        memory.change_memory("add", "memory", "likes tea")
        memory.end_turn(memory.start_session("s1", platform="cli"), "Where is the tent?", "In the cellar.")
    for folder in ("skills/a", "logs"):
        (stage.home / folder).mkdir(parents=True, exist_ok=True)
    (stage.home / "skills/a/SKILL.md").write_text("---\nname: a\ndescription: b\n---\nText")
    if not late:
        harm(stage.home / name)
    memory = stage.open_memory("")
    if late:
        harm(stage.home / name)
    for session_id in ("s1", ""):
        agent = Agent(memory, stage.model(), session_id=session_id)
        result = agent.run_turn("And the stove?")
        assert result.outcome == "answered"
        if name == "state.db":
            assert any("state.db" in problem for problem in result.problems)
