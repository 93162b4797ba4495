"""Notes in an editor: `memory edit`, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_core.config import load_config

pytestmark = pytest.mark.usefixtures("engine")

Editor = Callable[[str], None]


def change(home: HermesHome, *calls: str) -> str:
    """Code of an editor during which an agent changes the notes."""
    config = load_config(home)
    storage = {"storage": {"url": config.storage.url, "schema": config.storage.schema}}
    lines = [
        "from hermes_core import open_memory",
        f"memory = open_memory({str(home.path)!r}, config={storage if config.storage.url else {}!r})",
        *(f"assert memory.curated.{call}['success']" for call in calls),
        "memory.close()",
    ]
    return "\n".join(lines) + "\n"


def test_an_edit_is_stored_as_one_by_hand_and_can_be_undone(hermes: Any, data: Any, editor: Editor) -> None:
    hermes("memory", "add", "Uses ruff")
    editor("text += '§\\n  Uses mypy \\n\\n'")
    done = hermes("memory", "edit")
    assert done.stdout == "Edited: 1 added, 0 removed. 0% — 21/2,200 chars\n"
    assert data("memory", "show")["memory"] == ["Uses ruff", "Uses mypy"]
    assert [version["action"] for version in data("memory", "history")] == ["edit", "add"]
    hermes("memory", "undo")
    assert data("memory", "show")["memory"] == ["Uses ruff"]
    editor("")
    assert hermes("memory", "edit").stdout == "nothing was changed\n"


def test_the_notes_of_a_user_are_edited_alone(hermes: Any, data: Any, editor: Editor) -> None:
    hermes("memory", "add", "Is called Ann", "--target", "user", "--user", "telegram:ann")
    editor("text = text.replace('Ann', 'Anna')")
    hermes("memory", "edit", "--target", "user", "--user", "telegram:ann")
    assert data("memory", "show", "--user", "telegram:ann")["user"] == ["Is called Anna"]
    assert data("memory", "show")["user"] == []


def test_what_the_agent_adds_meanwhile_stays(
    hermes: Any, data: Any, editor: Editor, hermes_home: HermesHome
) -> None:
    hermes("memory", "add", "Uses ruff")
    hermes("memory", "add", "Likes tea")
    agent = change(hermes_home, "add('memory', 'Has a cat')", "replace('memory', 'ruff', 'Uses uv')")
    editor(f"{agent}text = text.replace('Likes tea', 'Likes rye')")
    assert "2 added" not in hermes("memory", "edit").stdout
    assert data("memory", "show")["memory"] == ["Uses uv", "Likes rye", "Has a cat"]


def test_of_a_conflict_nothing_is_lost_and_the_person_is_told_where_it_is(
    hermes: Any, data: Any, editor: Editor, hermes_home: HermesHome
) -> None:
    hermes("memory", "add", "Likes tea", "--target", "user")
    agent = change(hermes_home, "replace('user', 'tea', 'Likes coffee')")
    editor(f"{agent}text = 'Likes rye'")
    done = hermes("memory", "edit", "--target", "user", code=1)
    [kept] = hermes_home.memories.glob("USER.md.mine.*")
    assert kept.read_text() == "Likes rye"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert str(kept) in done.stderr
    assert "the same entry was changed by another program" in done.stderr
    assert len(done.stderr.strip().split("\n")) == 1
    assert data("memory", "show")["user"] == ["Likes coffee"]


def test_a_text_that_can_not_be_stored_is_kept(hermes: Any, editor: Editor, hermes_home: HermesHome) -> None:
    editor("text = 'before\\0after'")
    done = hermes("memory", "edit", code=1)
    assert "NUL" in done.stderr
    assert [path.read_text() for path in hermes_home.memories.glob("*.mine.*")] == ["before\0after"]


def test_a_file_that_was_there_before_the_database_is_taken_into_it(
    data: Any, hermes_home: HermesHome, engine: str
) -> None:
    del engine
    hermes_home.memories.mkdir(parents=True, exist_ok=True)
    hermes_home.memory_md.write_text("Uses ruff")
    assert data("memory", "show")["memory"] == ["Uses ruff"]
    assert hermes_home.memory_md.read_text() == "Uses ruff"
    assert data("memory", "history") == []
