from __future__ import annotations

import contextlib
import os
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core import HermesHome, MemoryWrite, Session
from hermes_core.curated.document import split_entries
from hermes_core.curated.edits import Operation
from hermes_core.curated.store import Notes
from hermes_core.curated.view import MAX_BACKUPS
from hermes_core.errors import MemoryConflict
from hermes_core.sessions.session_store import SessionStore
from tests.curated.conftest import notes_of
from tests.storage.notes import posix

MakeStore = Callable[..., Notes]

LAYOUTS = {
    "CRLF": b"Uses ruff\r\n\xc2\xa7\r\nUses mypy\r\n",
    "BOM": b"\xef\xbb\xbfUses ruff\n\xc2\xa7\nUses mypy",
    "blank lines around the delimiter": b"Uses ruff\n\n\xc2\xa7\n\nUses mypy\n\n",
    "last newline": b"Uses ruff\n\xc2\xa7\nUses mypy\n",
}


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def backups(home: HermesHome) -> list[Path]:
    return sorted(home.memories.glob("*.bak.*"))


@pytest.mark.parametrize("data", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("known", [False, True], ids=["never seen", "written before"])
def test_a_layout_is_adopted_with_a_backup_and_a_journal_entry(
    store: Notes, hermes_home: HermesHome, data: bytes, known: bool
) -> None:
    if known:
        store.add("memory", "Uses ruff")
    put(hermes_home.memory_md, data)
    result = store.add("memory", "Uses pytest")
    assert result["success"]
    assert "was edited outside this tool" in result["notice"]
    assert store.entries("memory") == ("Uses ruff", "Uses mypy", "Uses pytest")
    assert [version.action for version in store.history()][:2] == ["add", "edit"]
    [copy] = backups(hermes_home)
    assert copy.read_bytes() == data
    assert copy.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("data", [b"# Notes\n\n- tea\n- rye\n", b"tea"], ids=["headings", "no delimiter"])
def test_a_file_of_another_shape_is_one_entry(store: Notes, hermes_home: HermesHome, data: bytes) -> None:
    put(hermes_home.memory_md, data)
    assert store.add("memory", "Uses ruff")["success"]
    assert store.entries("memory") == (data.decode().strip(), "Uses ruff")


def test_an_edit_is_adopted_once(store: Notes, hermes_home: HermesHome) -> None:
    put(hermes_home.memory_md, b"tea\r\n")
    assert "notice" in store.add("memory", "tea")
    assert "notice" not in store.add("memory", "tea")
    assert [version.action for version in store.history()] == ["edit"]
    assert len(backups(hermes_home)) == 1


def test_a_file_by_another_program_of_this_format_needs_no_backup(
    store: Notes, hermes_home: HermesHome
) -> None:
    store.add("memory", "tea")
    put(hermes_home.memory_md, "tea\n§\nrye".encode())
    assert "was edited outside this tool" in store.add("memory", "oats")["notice"]
    assert backups(hermes_home) == []


def test_equal_entries_of_a_file_stand_once_in_the_prompt(store: Notes, hermes_home: HermesHome) -> None:
    twice = ["Likes tea", "Likes caf\u00e9", "one\ntwo"]
    again = [f"{twice[0]}  \r\n", unicodedata.normalize("NFD", twice[1]), twice[2], twice[0]]
    put(hermes_home.memory_md, "\n§\n".join([*twice, "Has a cat", *again]).encode())
    shown = unicodedata.normalize("NFC", store.read().snapshot().render())
    assert [shown.count(entry) for entry in (*twice, "Has a cat")] == [1] * 4
    assert shown.index(twice[2]) < shown.index("Has a cat")


def test_an_edit_that_is_saved_while_we_write_is_not_overwritten(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    def save_meanwhile(write: MemoryWrite, session: Session) -> MemoryWrite:
        if write.metadata.get("cause") == "reset":  # its observers are asked under the lock
            put(hermes_home.memory_md, b"saved by an editor")
        return write

    store = make_store(filter_write=save_meanwhile)
    store.add("memory", "tea")
    assert store.reset("memory")["success"]
    assert hermes_home.memory_md.read_text() == "saved by an editor"
    assert store.entries("memory") == ("saved by an editor",)
    assert [version.action for version in store.history()] == ["edit", "reset", "add"]


def test_an_edit_by_hand_can_be_undone(store: Notes, hermes_home: HermesHome) -> None:
    store.add("memory", "tea")
    put(hermes_home.memory_md, b"coffee\n")
    store.add("memory", "rye")
    [edit] = [version for version in store.history() if version.action == "edit"]
    assert (edit.added, edit.removed) == (("coffee",), ("tea",))
    assert store.undo(edit.id)["success"]
    assert store.entries("memory") == ("tea", "rye")


@pytest.mark.parametrize("removed", [False, True])
def test_an_older_file_that_a_backup_brought_back_is_no_edit(
    store: Notes, hermes_home: HermesHome, removed: bool
) -> None:
    store.add("memory", "Uses uv")
    store.add("memory", "Lives in Lund")
    older, notes = hermes_home.memory_md.read_bytes(), ("Uses uv", "Lives in Lund", "Likes tea")
    store.add("memory", "Likes tea")
    if removed:
        store.remove("memory", "Lives")
        notes = ("Uses uv", "Likes tea")
    hermes_home.memory_md.write_bytes(older)
    hour_ago = time.time() - 3600
    os.utime(hermes_home.memory_md, (hour_ago, hour_ago))
    assert store.entries("memory") == notes
    assert split_entries(hermes_home.memory_md.read_text()) == notes
    assert "edit" not in {change.action for change in store.history()}


def test_a_file_emptied_by_hand_is_reported_also_in_a_refused_call(
    store: Notes, hermes_home: HermesHome
) -> None:
    store.add("memory", "Uses ruff")
    hermes_home.memory_md.write_text("")
    refused = store.replace("memory", "ruff", "Uses mypy")
    assert not refused["success"]
    assert "emptied outside this tool: adopted as change 2, which can be undone" in refused["notice"]
    assert "notice" not in store.add("memory", "Uses mypy")


def test_a_file_emptied_from_outside_comes_back(store: Notes, hermes_home: HermesHome) -> None:
    store.add("memory", "tea")
    hermes_home.memory_md.write_bytes(b"")
    assert "was emptied outside this tool" in store.add("memory", "rye")["notice"]
    [copy] = backups(hermes_home)
    assert copy.read_bytes() == b"tea"
    [edit] = [version for version in store.history() if version.action == "edit"]
    store.undo(edit.id)
    assert set(store.entries("memory")) == {"tea", "rye"}


CONFLICTS = {"Latin-1": b"caf\xe9", "UTF-16": "tea".encode("utf-16"), "NUL": b"tea\0"}


@pytest.mark.parametrize("data", CONFLICTS.values(), ids=CONFLICTS)
def test_bytes_that_are_no_text_are_backed_up_and_refused(
    store: Notes, hermes_home: HermesHome, data: bytes
) -> None:
    put(hermes_home.memory_md, data)
    refused = store.add("memory", "Uses ruff")
    assert refused["error"].startswith("Refusing to write MEMORY.md")
    assert "UTF-8" in refused["remediation"]
    assert hermes_home.memory_md.read_bytes() == Path(refused["drift_backup"]).read_bytes() == data
    assert store.read().snapshot().render() == ""
    assert list(store.read().problems) == ["memory"]
    with pytest.raises(MemoryConflict, match=r"MEMORY\.md' can't be read: .*; save it as UTF-8 text"):
        store.entries("memory")


def test_a_conflict_that_was_resolved_locks_nothing(store: Notes, hermes_home: HermesHome) -> None:
    put(hermes_home.memory_md, b"caf\xe9")
    store.add("memory", "Uses ruff")
    put(hermes_home.memory_md, "café".encode())
    assert store.add("memory", "Uses ruff")["success"]
    assert store.entries("memory") == ("café", "Uses ruff")


def test_the_other_file_is_not_touched_by_a_conflict(store: Notes, hermes_home: HermesHome) -> None:
    put(hermes_home.memory_md, b"\xff")
    assert store.add("user", "Mel")["success"]


def test_equal_bytes_are_backed_up_once_and_copies_are_bounded(store: Notes, hermes_home: HermesHome) -> None:
    foreign = hermes_home.memories / "MEMORY.md.bak.1700000000"
    put(foreign, b"of another program")
    for number in range(MAX_BACKUPS + 3):
        put(hermes_home.memory_md, b"\xff%d" % number)
        copies = {store.add("memory", "x").get("drift_backup") for _ in range(2)}
        store.start_turn()
        assert len(copies) == 1
    assert len(backups(hermes_home)) == MAX_BACKUPS + 1
    assert foreign.exists()


def make_folder(path: Path) -> None:
    path.mkdir(parents=True)


def make_pipe(path: Path) -> None:
    path.parent.mkdir(parents=True)
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.symlink_to(path)


@pytest.mark.parametrize("make", [make_folder, pytest.param(make_pipe, marks=posix), make_loop])
def test_an_unreadable_file_is_never_taken_for_empty(
    store: Notes, hermes_home: HermesHome, make: Callable[[Path], None]
) -> None:
    make(hermes_home.memory_md)
    refused = store.add("memory", "Uses ruff")
    assert "can't be read" in refused["error"]
    assert refused["remediation"]
    assert store.read().snapshot().render() == ""
    assert not hermes_home.memory_md.is_file()


def test_a_symbolic_link_stays_a_link(store: Notes, hermes_home: HermesHome, tmp_path: Path) -> None:
    put(tmp_path / "notes.md", b"tea")
    hermes_home.memories.mkdir(parents=True)
    hermes_home.memory_md.symlink_to(tmp_path / "notes.md")
    store.add("memory", "rye")
    assert (tmp_path / "notes.md").read_text() == "tea\n§\nrye"
    assert hermes_home.memory_md.is_symlink()


def test_homes_that_share_a_file_by_a_link_share_its_notes(
    make_store: MakeStore, hermes_home: HermesHome, tmp_path: Path
) -> None:
    put(tmp_path / "notes.md", b"tea")
    other = HermesHome(tmp_path / "other")
    for home in (hermes_home, other):
        home.memories.mkdir(parents=True)
        home.memory_md.symlink_to(tmp_path / "notes.md")
    with contextlib.closing(SessionStore(other.state_db)) as sessions:
        one, two = make_store(), notes_of(other, sessions.database)
        one.add("memory", "rye")
        two.add("memory", "oats")
        assert one.entries("memory") == two.entries("memory") == ("tea", "rye", "oats")


# ------------------------------------------------------------ an entry larger than the store


LARGE = "# Notes\n" + "- a line of them\n" * 10


def test_an_entry_larger_than_the_store_is_backed_up_and_refused_with_a_remedy(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    store = make_store(memory_char_limit=50)
    put(hermes_home.memory_md, LARGE.encode())
    refused = store.add("memory", "x")
    assert "an entry of 177 characters, more than the whole store (50)" in refused["error"]
    assert store.read().flagged()[0].handle in refused["remediation"]
    assert Path(refused["drift_backup"]).read_text() == LARGE
    assert hermes_home.memory_md.read_text() == LARGE
    assert store.read().snapshot().render() == ""
    assert [flagged.id for flagged in store.read().flagged()] == ["too_large"]


@pytest.mark.parametrize("change", ["replace", "remove", "batch"])
def test_a_fragment_never_destroys_what_a_person_added_to_an_entry(
    make_store: MakeStore, hermes_home: HermesHome, change: str
) -> None:
    store = make_store(memory_char_limit=50)
    store.add("memory", "Deploys on Fridays")
    grown = f"Deploys on Fridays\n{LARGE}".encode()
    put(hermes_home.memory_md, grown)
    if change == "replace":
        refused = store.replace("memory", "Fridays", "Deploys on Mondays")
    elif change == "remove":
        refused = store.remove("memory", "Fridays")
    else:
        operations = [Operation("add", "tea"), Operation("replace", "Deploys on Mondays", "Fridays")]
        refused = store.write("memory", operations, batch=True)
    assert not refused["success"]
    assert store.read().flagged()[0].handle in refused["remediation"]
    assert Path(refused["drift_backup"]).read_bytes() == grown
    assert hermes_home.memory_md.read_bytes() == grown


def test_an_entry_larger_than_the_store_can_be_replaced_or_removed_by_its_handle(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    store = make_store(memory_char_limit=50)
    put(hermes_home.memory_md, LARGE.encode())
    replaced = store.replace("memory", store.read().flagged()[0].handle, "- short")
    assert replaced["success"]
    assert Path(replaced["drift_backup"]).read_bytes() == LARGE.encode()
    put(hermes_home.memory_md, LARGE.encode())
    assert store.remove("memory", store.read().flagged()[0].handle)["success"]
    assert store.entries("memory") == ()


def test_a_huge_file_is_scanned_and_answered_only_at_its_start(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    scanned: list[str] = []
    store = make_store(memory_char_limit=100, scan=scanned.append)
    put(hermes_home.memory_md, "\n§\n".join(f"fact number {n}" for n in range(20_000)).encode())
    refused = store.add("memory", "one more fact")
    assert sum(map(len, refused["current_entries"])) < 400
    assert "more entries are on disk" in refused["current_entries"][-1]
    store.read().flagged()
    store.read().shown_entries()
    store.read().snapshot()
    assert len(scanned) < 600
    assert store.remove("memory", "fact number 19999")["success"]


def test_an_overfull_file_can_be_emptied_entry_by_entry(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    store = make_store(memory_char_limit=20)
    put(hermes_home.memory_md, "\n§\n".join(f"entry {number}" for number in range(9)).encode())
    assert not store.add("memory", "x")["success"]
    for number in range(9):
        assert store.remove("memory", f"entry {number}")["success"]
    assert store.add("memory", "x")["success"]


def test_a_file_in_place_of_the_folder_leaves_everything_as_it_was(
    store: Notes, hermes_home: HermesHome
) -> None:
    hermes_home.path.mkdir(parents=True, exist_ok=True)
    hermes_home.memories.write_text("a file where the folder should be")
    assert "can't be read: Not a directory" in store.add("memory", "x")["error"]
    assert hermes_home.memories.read_text() == "a file where the folder should be"
