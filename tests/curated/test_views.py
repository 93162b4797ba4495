"""The files of notes as views of the database: what happens when they are deleted, swapped, brought from elsewhere or unwritable."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes_core import HermesHome, Notes, Session, open_memory
from hermes_core.cli import main
from hermes_core.curated import view
from hermes_core.curated.document import join_entries
from hermes_core.curated.edits import Operation
from hermes_core.errors import StorageError
from hermes_core.safety.origin import Reading
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.files import locked
from tests.curated.conftest import notes_of

MakeStore = Callable[..., Notes]


def backups(home: HermesHome) -> list[str]:
    return sorted(path.read_text("utf-8") for path in home.memories.glob("*.bak.*"))


def actions(store: Notes) -> list[str]:
    return [version.action for version in store.history()]


def origins(store: Notes) -> dict[str, str]:
    return {note.text: note.origin.origin for note in store.read().files["memory"].notes}


def make_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each write into the folder of the notes fail, also for a user who may write everywhere."""

    def fail(path: Path, *_: object) -> None:
        raise StorageError(f"can't write {str(path)!r}: Read-only file system", "make it writable")

    monkeypatch.setattr(view, "write_checked", fail)
    monkeypatch.setattr(view, "write_atomic", fail)


# ------------------------------------------------------------------ deleted and emptied


@pytest.mark.parametrize("first", ["read", "write"])
def test_a_deleted_view_is_written_again(make_store: MakeStore, hermes_home: HermesHome, first: str) -> None:
    store = make_store()
    store.add("memory", "tea")
    hermes_home.memory_md.unlink()
    if first == "write":
        assert "notice" not in store.add("memory", "rye")
    expected = ("tea",) if first == "read" else ("tea", "rye")
    assert store.entries("memory") == expected
    assert hermes_home.memory_md.read_text("utf-8") == join_entries(expected)
    assert "edit" not in actions(store)


def test_a_folder_of_notes_that_was_deleted_is_written_again(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    ann = Session("a", platform="telegram", user_id="ann")
    store = make_store()
    store.add("memory", "tea")
    store.of(ann).add("user", "Is called Ann", session=ann)
    shutil.rmtree(hermes_home.memories)
    assert store.entries("memory") == ("tea",)
    assert store.of(ann).entries("user") == ("Is called Ann",)
    assert (hermes_home.folder_of("telegram:ann") / "USER.md").read_text("utf-8") == "Is called Ann"


def test_an_emptied_view_empties_the_notes_at_the_next_look_and_can_be_undone(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    store = make_store()
    store.add("memory", "tea")
    store.add("memory", "rye")
    hermes_home.memory_md.write_text("\n")
    assert store.read().snapshot().render() == ""
    assert backups(hermes_home) == ["tea\n§\nrye"]
    assert actions(store) == ["edit", "add", "add"]
    assert store.undo()["success"]
    assert store.entries("memory") == ("tea", "rye")


def test_an_emptied_view_takes_no_note_that_another_program_added_since(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    store = make_store()
    store.add("memory", "tea")
    make_store(mirror=False).add("memory", "rye")  # no view shows it yet
    hermes_home.memory_md.write_text("")
    assert store.entries("memory") == ("rye",)
    assert hermes_home.memory_md.read_text("utf-8") == "rye"
    assert backups(hermes_home) == ["tea\n§\nrye"]


def test_what_went_from_the_view_and_from_the_notes_stays_away(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    store, elsewhere = make_store(), make_store(mirror=False)
    store.add("memory", "tea")
    store.add("memory", "rye")
    elsewhere.remove("memory", "tea")
    hermes_home.memory_md.write_text("tea")
    assert store.entries("memory") == ()
    assert hermes_home.memory_md.read_text("utf-8") == ""


# ------------------------------------------------------------------ brought from elsewhere


def test_a_view_of_another_home_is_an_edit_by_the_person(
    make_store: MakeStore, hermes_home: HermesHome, tmp_path: Path
) -> None:
    store = make_store()
    store.add("memory", "tea")
    (tmp_path / "MEMORY.md").write_text("oats\n§\nmilk", "utf-8")
    shutil.copy2(tmp_path / "MEMORY.md", hermes_home.memory_md)
    assert store.entries("memory") == ("oats", "milk")
    assert origins(store) == {"oats": "person", "milk": "person"}
    assert store.undo()["success"]
    assert store.entries("memory") == ("tea",)


def test_a_view_that_was_never_seen_here_adds_what_is_new_and_takes_nothing_away(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    make_store(mirror=False).add("memory", "tea")
    make_store(mirror=False).add("memory", "rye")
    hermes_home.memories.mkdir(parents=True, exist_ok=True)
    hermes_home.memory_md.write_text("rye\n§\noats", "utf-8")
    store = make_store()
    assert store.entries("memory") == ("tea", "rye", "oats")
    assert hermes_home.memory_md.read_text("utf-8") == "tea\n§\nrye\n§\noats"
    assert actions(store) == ["edit", "add", "add"]


def test_an_old_view_that_was_never_seen_here_is_renewed(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    store = make_store(mirror=False)
    store.add("memory", "tea")
    store.add("memory", "rye")
    store.remove("memory", "tea")
    hermes_home.memories.mkdir(parents=True, exist_ok=True)
    hermes_home.memory_md.write_text("tea\n§\nrye", "utf-8")  # as it was before the last change
    assert make_store().entries("memory") == ("rye",)
    assert hermes_home.memory_md.read_text("utf-8") == "rye"
    assert actions(store) == ["remove", "add", "add"]


def test_bytes_that_no_database_takes_are_refused_in_a_view_that_was_never_seen(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    make_store(mirror=False).add("memory", "tea")
    hermes_home.memories.mkdir(parents=True, exist_ok=True)
    hermes_home.memory_md.write_bytes(b"rye\0")
    store = make_store()
    assert "NUL" in store.add("memory", "oats")["error"]
    assert list(store.read().problems) == ["memory"]
    hermes_home.memory_md.write_bytes(b"rye")
    assert store.entries("memory") == ("tea", "rye")


# ------------------------------------------------------------------ a lost database


@pytest.fixture
def lost(hermes_home: HermesHome) -> HermesHome:
    """A home whose database was deleted while the views of its notes stayed."""
    with open_memory(hermes_home) as memory:
        memory.change_memory("add", content="Likes tea", by_person=True)
        memory.change_memory("add", "user", "Is called Ann", by_person=True)
        memory.curated.write("memory", [Operation("add", "Read on a page")], reading=Reading("web"))
    for path in hermes_home.path.glob("state.db*"):
        path.unlink()
    return hermes_home


@pytest.mark.sqlite_only("a database that is a file")
def test_while_the_database_is_lost_views_are_data_and_take_no_writes(lost: HermesHome) -> None:
    with open_memory(lost) as memory:
        assert any("held data" in problem for problem in memory.problems())
        assert memory.curated.entries("memory") == ("Likes tea", "Read on a page")
        assert memory.curated.read().snapshot().render() == ""
        assert not memory.change_memory("add", content="Likes rye", by_person=True)["success"]
    assert lost.memory_md.read_text("utf-8").startswith("Likes tea\n§\nRead on a page\n<!-- wait for")


@pytest.mark.sqlite_only("a database that is a file")
def test_views_of_a_lost_database_come_back_as_data_that_waits_for_a_person(lost: HermesHome) -> None:
    result = CliRunner().invoke(main, ["doctor", "--accept-loss"])
    assert "it begins anew" in result.stderr
    lost.memory_md.write_text("Likes tea\n§\nRead on a page\n§\nWritten by hand since", "utf-8")
    with open_memory(lost) as memory:
        notes = memory.curated
        assert {note.entry for note in notes.read().waiting_notes()} == {
            "Likes tea",
            "Read on a page",
            "Is called Ann",
        }
        prompt = notes.read().snapshot().render()
        assert "Written by hand since" in prompt
        assert "Likes tea" not in prompt
        notes.confirm(["Likes tea"])
        assert "Likes tea" in notes.read().snapshot().render()
        assert "Read on a page" not in notes.read().snapshot().render()
        assert memory.change_memory("add", content="Likes rye", by_person=True)["success"]
        assert memory.problems() == []


@pytest.mark.sqlite_only("a database that is a file")
def test_an_edit_before_the_loss_was_accepted_waits_too(hermes_home: HermesHome) -> None:
    hermes_home.memories.mkdir(parents=True)
    hermes_home.memory_md.write_text("Nobody knows who wrote this", "utf-8")
    later = hermes_home.memory_md.stat().st_mtime + 60
    with contextlib.closing(SessionStore(hermes_home.state_db)) as sessions:
        store = notes_of(hermes_home, sessions.database, lost_at=later)
        assert origins(store) == {"Nobody knows who wrote this": "import"}
        hermes_home.memory_md.write_text("Nobody knows who wrote this\n§\ntea", "utf-8")
        os.utime(hermes_home.memory_md, (later + 1, later + 1))
        assert origins(store) == {"Nobody knows who wrote this": "import", "tea": "person"}


# ------------------------------------------------------------------ Hermes Agent beside us


def write_as_hermes_agent(home: HermesHome, change: Callable[[list[str]], list[str]]) -> None:
    """Change MEMORY.md as the memory tool of Hermes Agent does: under its lock, read it, write it as a whole."""
    with locked(home.memory_md):
        text = home.memory_md.read_text("utf-8") if home.memory_md.exists() else ""
        new = change([entry.strip() for entry in text.split("\n§\n") if entry.strip()])
        draft = home.memory_md.with_name(".mem_1.tmp")
        draft.write_text("\n§\n".join(new), "utf-8")
        draft.replace(home.memory_md)


def test_notes_of_hermes_agent_and_ours_are_the_same_notes(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    write_as_hermes_agent(hermes_home, lambda entries: [*entries, "by Hermes"])
    store = make_store()
    assert "notice" not in store.add("memory", "ours")
    write_as_hermes_agent(hermes_home, lambda entries: [*entries, "by Hermes again"])
    assert store.entries("memory") == ("by Hermes", "ours", "by Hermes again")
    write_as_hermes_agent(hermes_home, lambda entries: [entry for entry in entries if entry != "ours"])
    assert store.entries("memory") == ("by Hermes", "by Hermes again")
    assert actions(store) == ["edit", "edit", "add"]
    assert backups(hermes_home) == []
    assert store.undo()["success"]
    assert set(store.entries("memory")) == {"by Hermes", "ours", "by Hermes again"}


def test_a_note_that_is_stored_while_hermes_agent_writes_is_not_written_over(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    write_as_hermes_agent(hermes_home, lambda entries: ["by Hermes"])
    store = make_store()
    ours = threading.Thread(target=store.add, args=("memory", "ours"))

    def write(entries: list[str]) -> list[str]:
        ours.start()
        ours.join(0.5)  # it has stored the note, and waits for the lock with its view
        return [*entries, "by Hermes meanwhile"]

    write_as_hermes_agent(hermes_home, write)
    ours.join()
    assert set(store.entries("memory")) == {"by Hermes", "ours", "by Hermes meanwhile"}
    assert store.entries("memory") == tuple(hermes_home.memory_md.read_text("utf-8").split("\n§\n"))


def test_a_lock_that_is_never_released_keeps_the_view_old_and_no_note(
    make_store: MakeStore, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "HERMES_AGENT_TIMEOUT_S", 0.01)
    store = make_store()
    store.add("memory", "tea")
    with locked(hermes_home.memory_md):
        result = store.add("memory", "rye")
        assert result["success"]
        assert "Saved, but MEMORY.md can't be written" in result["warning"]
        assert store.entries("memory") == ("tea", "rye")
    assert hermes_home.memory_md.read_text("utf-8") == "tea"
    assert store.entries("memory") == ("tea", "rye")
    assert hermes_home.memory_md.read_text("utf-8") == "tea\n§\nrye"


# ------------------------------------------------------------------ a folder that is only read


def test_in_a_read_only_folder_notes_are_stored_and_one_warning_names_the_view(
    make_store: MakeStore,
    hermes_home: HermesHome,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = make_store()
    store.add("memory", "tea")
    with monkeypatch.context() as patch:
        make_read_only(patch)
        assert "Saved, but MEMORY.md can't be written" in store.add("memory", "rye")["warning"]
        for _ in range(3):
            assert store.entries("memory") == ("tea", "rye")
        assert hermes_home.memory_md.read_text("utf-8") == "tea"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "MEMORY.md" in caplog.text
    assert "Read-only file system" in caplog.text
    assert store.entries("memory") == ("tea", "rye")
    assert hermes_home.memory_md.read_text("utf-8") == "tea\n§\nrye"


def test_in_a_read_only_folder_reads_show_what_the_file_says(
    make_store: MakeStore,
    hermes_home: HermesHome,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = make_store()
    store.write("memory", [Operation("add", "Read on a page")], reading=Reading("web"))
    hermes_home.memory_md.write_text("Read on a page\r\n§\r\nBy hand\r\n", "utf-8", newline="")
    with monkeypatch.context() as patch:
        make_read_only(patch)  # the edit needs a backup of its layout
        for _ in range(3):
            assert origins(store) == {"Read on a page": "web", "By hand": "person"}
    assert actions(store) == ["add"]
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    assert origins(store) == {"Read on a page": "web", "By hand": "person"}
    assert actions(store) == ["edit", "add"]


# ------------------------------------------------------------------ symbolic links


def test_a_link_stays_a_link_and_another_target_is_an_edit(
    make_store: MakeStore, hermes_home: HermesHome, tmp_path: Path
) -> None:
    for name, text in (("one.md", "tea"), ("two.md", "oats")):
        (tmp_path / name).write_text(text, "utf-8")
    hermes_home.memories.mkdir(parents=True)
    hermes_home.memory_md.symlink_to(tmp_path / "one.md")
    store = make_store()
    store.add("memory", "rye")
    assert (tmp_path / "one.md").read_text("utf-8") == "tea\n§\nrye"
    hermes_home.memory_md.unlink()
    hermes_home.memory_md.symlink_to(tmp_path / "two.md")
    assert store.entries("memory") == ("oats",)
    store.add("memory", "milk")
    assert hermes_home.memory_md.is_symlink()
    assert (tmp_path / "two.md").read_text("utf-8") == "oats\n§\nmilk"
    assert (tmp_path / "one.md").read_text("utf-8") == "tea\n§\nrye"


def test_a_link_to_nothing_gets_the_view(
    make_store: MakeStore, hermes_home: HermesHome, tmp_path: Path
) -> None:
    store = make_store()
    store.add("memory", "tea")
    hermes_home.memory_md.rename(tmp_path / "kept.md")
    hermes_home.memory_md.symlink_to(tmp_path / "shared.md")
    assert store.entries("memory") == ("tea",)
    assert (tmp_path / "shared.md").read_text("utf-8") == "tea"
    assert hermes_home.memory_md.is_symlink()


# ------------------------------------------------------------------ Git


def test_a_checkout_of_an_earlier_version_right_after_a_note_is_an_edit_that_can_be_undone(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    store = make_store()
    store.add("memory", "tea")
    committed = hermes_home.memory_md.read_bytes()
    store.add("memory", "rye")
    hermes_home.memory_md.unlink()  # git checkout makes a new file
    hermes_home.memory_md.write_bytes(committed)
    assert store.entries("memory") == ("tea",)
    assert actions(store) == ["edit", "add", "add"]
    assert store.undo()["success"]
    assert store.entries("memory") == ("tea", "rye")
    assert hermes_home.memory_md.read_text("utf-8") == "tea\n§\nrye"


def test_a_checkout_and_back_between_two_looks_changes_nothing(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    store = make_store()
    store.add("memory", "tea")
    committed = hermes_home.memory_md.read_bytes()
    hermes_home.memory_md.write_bytes(b"of a branch")
    hermes_home.memory_md.write_bytes(committed)
    assert store.entries("memory") == ("tea",)
    assert actions(store) == ["add"]


def test_marks_of_a_merge_are_text_that_a_person_sees(make_store: MakeStore, hermes_home: HermesHome) -> None:
    store = make_store()
    store.add("memory", "tea")
    conflict = "<<<<<<< HEAD\ntea\n=======\nrye\n>>>>>>> branch\n"
    hermes_home.memory_md.write_text(conflict, "utf-8")
    assert store.entries("memory") == (conflict.strip(),)
    assert backups(hermes_home) == [conflict]
    assert store.undo()["success"]
    assert store.entries("memory") == ("tea",)


# ------------------------------------------------------------------ without views


def test_without_views_no_file_is_written_or_read(make_store: MakeStore, hermes_home: HermesHome) -> None:
    ann = Session("a", platform="telegram", user_id="ann")
    store = make_store(mirror=False)
    store.add("memory", "tea")
    store.of(ann).add("user", "Is called Ann", session=ann)
    store.replace("memory", "tea", "rye")
    store.undo()
    store.reset("user")
    assert not hermes_home.memories.exists()
    hermes_home.memories.mkdir(parents=True)
    hermes_home.memory_md.write_bytes(b"\xff of another program")
    assert store.entries("memory") == ("tea",)
    assert store.add("memory", "oats")["success"]
    assert store.read().problems == {}
    assert hermes_home.memory_md.read_bytes() == b"\xff of another program"
    assert [path.name for path in hermes_home.memories.iterdir()] == ["MEMORY.md"]


def test_views_that_are_switched_on_again_are_renewed_and_an_edit_meanwhile_is_joined(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    store, without = make_store(), make_store(mirror=False)
    store.add("memory", "tea")
    store.add("user", "Is called Ann")
    without.add("memory", "rye")
    without.add("user", "Likes figs")
    hermes_home.memory_md.write_text("tea\n§\noats", "utf-8")
    assert store.entries("memory") == ("tea", "rye", "oats")
    assert store.entries("user") == ("Is called Ann", "Likes figs")
    assert hermes_home.memory_md.read_text("utf-8") == "tea\n§\nrye\n§\noats"
    assert hermes_home.user_md.read_text("utf-8") == "Is called Ann\n§\nLikes figs"
