"""Notes as files in a folder: `memory export` and `memory import`, on both engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome, open_memory
from hermes_memory_archive.note_files import import_note_files
from tests.outbox_of import set_origins

pytestmark = pytest.mark.usefixtures("engine")


def test_notes_go_into_a_folder_and_into_another_home(
    hermes: Any, data: Any, hermes_home: HermesHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hermes("memory", "add", "Uses ruff")
    hermes("memory", "add", "Is called Mel", "--target", "user")
    hermes("memory", "add", "Is called Ann", "--target", "user", "--user", "telegram:ann")
    with open_memory(hermes_home) as memory:
        set_origins(memory, {"Uses ruff": "web"}, "s1")
        project = memory.curated.of_repository("pond-0123456789ab")
        assert project.add("project", "Tests run with make")["success"]
    done = hermes("memory", "export", tmp_path / "out", "--all-users")
    files = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.md")}
    [folder] = (tmp_path / "out" / "users").iterdir()
    assert files == {
        "MEMORY.md",
        "USER.md",
        "projects/pond-0123456789ab/PROJECT.md",
        f"users/{folder.name}/USER.md",
    }
    assert done.stdout.count("1 entry") == 4
    assert json.loads((tmp_path / "out" / "origins.json").read_text())["entries"]

    other = HermesHome(tmp_path / "other")
    with open_memory(other, config={}) as memory:
        results = import_note_files(memory, tmp_path / "out", all_users=True)
        assert {result.file for result in results} == files
        assert all(result.result["success"] for result in results)
        # A text of a page waits there as well.
        assert [note.entry for note in memory.curated.read().waiting_notes()] == ["Uses ruff"]
        assert memory.curated.entries("user") == ("Is called Mel",)
        assert memory.curated.places.repositories() == ["pond-0123456789ab"]
        assert memory.curated.places.owners() == ["telegram:ann"]


def test_an_import_makes_the_notes_what_the_files_say_and_can_be_undone(
    hermes: Any, data: Any, tmp_path: Path
) -> None:
    hermes("memory", "add", "Uses ruff")
    hermes("memory", "add", "Likes tea")
    hermes("memory", "add", "Is called Mel", "--target", "user")
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "MEMORY.md").write_text("Uses uv\r\n§\r\nLikes tea\r\n")
    assert "MEMORY.md: Edited: 1 added, 1 removed." in hermes("memory", "import", folder).stdout
    assert data("memory", "show") == {"memory": ["Uses uv", "Likes tea"], "user": ["Is called Mel"]}
    assert data("memory", "history")[0]["action"] == "import"
    hermes("memory", "undo")
    assert data("memory", "show")["memory"] == ["Uses ruff", "Likes tea"]


def test_files_with_a_damaged_file_of_origins_wait(hermes: Any, data: Any, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "MEMORY.md").write_text("Uses uv")
    (tmp_path / "notes" / "origins.json").write_text("{")
    hermes("memory", "import", tmp_path / "notes")
    assert data("memory", "show", "--origin")["memory"][0]["waits"]


def test_a_folder_without_notes_or_the_own_one_is_refused(
    hermes: Any, hermes_home: HermesHome, tmp_path: Path
) -> None:
    assert "has no MEMORY.md" in hermes("memory", "import", tmp_path, code=1).stderr
    hermes("memory", "add", "Uses ruff")
    hermes_home.memories.mkdir(exist_ok=True)
    assert "is the folder of the notes" in hermes("memory", "export", hermes_home.memories, code=1).stderr
