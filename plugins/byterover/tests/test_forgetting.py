"""A person is forgotten: the tree, and what brv keeps of its project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hermes_byterover.client import Brv

from hermes_core import MemoryWrite
from hermes_core.contract.values import Erasure
from hermes_core.errors import BackendUnavailable
from plugins.byterover.tests.conftest import Agent

ADA = {"platform": "telegram", "user_id": "ada"}
BOB = {"platform": "telegram", "user_id": "bob"}


def note(agent: Agent, text: str, **identity: str) -> Path:
    """A note of the user, and the folder in which brv keeps what it did in that project."""
    session = agent.session(**identity)
    agent.provider.on_memory_write(MemoryWrite(f"w-{text}", "add", "user", text), session)
    folder = agent.provider.tree(session).folder
    project = "--".join(folder.parts[1:])
    kept = agent.home / "byterover-data" / "brv" / "projects" / project / "curate-log"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "cur-1.json").write_text(text)
    return folder


def held(agent: Agent, word: str) -> list[str]:
    files = (path for path in agent.home.rglob("*") if path.is_file())
    return [path.name for path in files if word.encode() in path.read_bytes()]


def test_the_tree_and_the_log_of_a_user_go_and_those_of_others_stay(agent: Agent) -> None:
    folder = note(agent, "has the tortoise Quillfeather", **ADA)
    note(agent, "has the parrot Alderney", **BOB)
    session = agent.session(**ADA)
    erasure = agent.provider.forget_user(session.owner, session)
    assert str(folder) in erasure.deleted
    assert len(erasure.deleted) == 2
    assert erasure.remaining == ()
    assert held(agent, "Quillfeather") == []
    assert len(held(agent, "Alderney")) == 2
    assert agent.provider.forget_user(session.owner, session) == Erasure()
    assert not folder.exists()


def test_a_tree_of_everybody_is_named(start: Callable[..., Agent], tmp_path: Path) -> None:
    agent = start(folder=str(tmp_path / "team"))
    session = agent.session(**ADA)
    (kept,) = agent.provider.forget_user(session.owner, session).remaining
    assert str(tmp_path / "team") in kept


def test_a_curation_that_runs_is_waited_for(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = note(agent, "has the tortoise Quillfeather", **ADA)
    session = agent.session(**ADA)
    agent.say("The boathouse key hangs behind Ostrander.", **ADA)
    (entry,) = agent.provider.client.log(folder, 20.0)
    running = entry.__class__(entry.id, entry.task, "processing", entry.context, "", 9e9, (), 0)
    monkeypatch.setattr(Brv, "log", lambda *_: [running])
    with pytest.raises(BackendUnavailable, match="still curates"):
        agent.provider.forget_user(session.owner, session)
    monkeypatch.undo()
    agent.provider.forget_user(session.owner, session)
    assert not folder.exists()
