"""Notes of several machines on one server: views of their own, writers at once, kills, and connections that are lost."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome, MemoryWrite, Notes, Session, open_memory, open_notes
from hermes_core.config.profile import ProfileField
from hermes_core.curated import view
from hermes_core.curated.document import join_entries, split_entries
from hermes_core.curated.edits import Operation
from hermes_core.curated.history import MAX_CHANGES
from hermes_core.curated.tool import call_memory_tool
from hermes_core.errors import DatabaseUnavailable, LockTimeout, MemoryConflict, StorageError
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_core.safety.origin import Reading
from hermes_memory_postgresql.engine import PostgresEngine
from hermes_memory_postgresql.postgres import CommitInDoubt, CommitUnconfirmed, PostgresDatabase
from tests.curated.conftest import notes_of

ANN = Session("of-ann", platform="telegram", user_id="ann")


@pytest.fixture
def database(postgres_url: str, postgres_schema: str) -> Iterator[PostgresDatabase]:
    with contextlib.closing(PostgresEngine(postgres_url, schema=postgres_schema)) as opened:
        yield opened


MakeMachine = Callable[..., Notes]


@pytest.fixture
def make_machine(database: PostgresDatabase, tmp_path: Path) -> MakeMachine:
    """Make the notes of a machine by its name, with a home of its own, on the one server."""

    def make(name: str, **settings: Any) -> Notes:
        home = HermesHome(tmp_path / name)
        defaults: dict[str, Any] = {"scan": lambda text: None}
        return notes_of(home, database, **defaults | settings)

    return make


def view_of(notes: Notes, target: str = "memory") -> Path:
    return notes.files._home.memories / notes.files.key(target)  # type: ignore[arg-type]


def versions(database: PostgresDatabase) -> list[int]:
    return [row["id"] for row in database.execute("SELECT id FROM note_changes ORDER BY id")]


# ------------------------------------------------------------------ several machines


def test_two_machines_see_one_another_s_notes_origins_and_history(make_machine: MakeMachine) -> None:
    one, two = make_machine("one"), make_machine("two")
    one.write("memory", [Operation("add", "Uses ruff")], reading=Reading("web"))
    two.of(ANN).add("user", "Likes tea", session=ANN)
    assert two.entries("memory") == ("Uses ruff",)
    assert one.of(ANN).entries("user") == ("Likes tea",)
    assert [note.entry for note in two.read().waiting_notes()] == ["Uses ruff"]
    two.confirm(["Uses ruff"])
    assert one.read().waiting_notes() == []
    assert two.undo()["success"]
    assert one.entries("memory") == ()
    assert [version.action for version in one.history()] == ["undo", "add"]
    assert one.places.owners() == two.places.owners() == ["telegram:ann"]
    report = one.changes.verify()
    assert report is not None
    assert report.faults == ()


def test_a_change_is_planned_anew_if_another_machine_was_quicker(
    make_machine: MakeMachine,
) -> None:
    other = make_machine("other")
    other.add("memory", "Uses ruff")
    quicker = ["one", "two", "three"]

    def scan(text: str) -> None:
        # A pair of neighbours is scanned after the row was read, and before it is written.
        if "\nmine" in text and quicker:
            other.add("memory", quicker.pop())

    result = make_machine("mine", scan=scan).add("memory", "mine")
    assert result["success"]
    assert other.entries("memory") == ("Uses ruff", "three", "two", "one", "mine")
    assert len(other.history()) == 5


def test_a_note_that_others_change_all_the_time_is_an_error_in_time(make_machine: MakeMachine) -> None:
    other, numbers = make_machine("other"), itertools.count()
    other.add("memory", "Uses ruff")

    def scan(text: str) -> None:
        if "\nmine" in text:
            other.add("memory", f"note {next(numbers)}")

    with pytest.raises(LockTimeout, match="other programs changed the notes"):
        make_machine("mine", scan=scan, lock_timeout=0.2).add("memory", "mine")
    assert "mine" not in other.entries("memory")


def test_fields_that_two_machines_set_at_once_are_all_there(make_machine: MakeMachine) -> None:
    fields = [ProfileField(f"f{number}", "integer") for number in range(6)]
    machines = [make_machine(f"m{number % 2}", profile_fields=tuple(fields)) for number in range(6)]
    threads = [
        threading.Thread(target=machine.set_profile, args=({f"f{number}": number},))
        for number, machine in enumerate(machines)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert machines[0].read().profile() == {f"f{number}": str(number) for number in range(6)}
    assert len(machines[0].entries("user")) == 1


def test_the_write_for_the_provider_is_in_the_commit_of_the_change(
    make_machine: MakeMachine, database: PostgresDatabase
) -> None:
    outbox = Outbox(database)

    def enqueue(write: MemoryWrite, session: Session) -> None:
        outbox.put("p", NewRow("on_memory_write", write.id, session.id, write.content))
        if write.content == "Fails":
            raise CommitInDoubt("the connection was lost", "look")

    store = make_machine("one", on_write=enqueue)
    store.add("memory", "Uses ruff")
    with pytest.raises(CommitInDoubt):
        store.add("memory", "Fails")
    assert [row.body for row in outbox.pending("p")] == ["Uses ruff"]
    assert store.entries("memory") == ("Uses ruff",)
    assert len(store.history()) == 1


@pytest.mark.parametrize(
    ("error", "stored"),
    [(CommitInDoubt, True), (CommitInDoubt, False), (CommitUnconfirmed, True)],
)
def test_a_commit_in_doubt_is_looked_up_unless_it_is_on_the_primary_only(
    make_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch, error: type[CommitInDoubt], stored: bool
) -> None:
    store = make_machine("one")
    store.add("memory", "Uses ruff")
    transaction = PostgresDatabase.transaction

    @contextlib.contextmanager
    def lost(self: PostgresDatabase) -> Iterator[Any]:
        outer = not self.in_transaction
        try:
            with transaction(self) as connection:
                yield connection
                if outer and not stored:
                    raise error("the connection was lost", "look")
        finally:
            if outer:
                monkeypatch.setattr(PostgresDatabase, "transaction", transaction)
        if outer:
            raise error("the connection was lost", "look")

    monkeypatch.setattr(PostgresDatabase, "transaction", lost)
    if stored and error is CommitInDoubt:
        assert store.replace("memory", "ruff", "Uses mypy")["replaced_entry"] == "Uses ruff"
    else:
        with pytest.raises(error):
            store.replace("memory", "ruff", "Uses mypy")
    assert store.entries("memory") == (("Uses mypy",) if stored else ("Uses ruff",))


WRITER = """
import sys, threading
from pathlib import Path
from hermes_core import HermesHome, Notes
from hermes_core.curated.hooks import NoteHooks
from hermes_core.curated.stored import NoteSettings
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_memory_postgresql.engine import PostgresEngine

url, schema, home, name = sys.argv[1:]
database = PostgresEngine(url, schema=schema)
outbox = Outbox(database)
lock = threading.Lock()

def enqueue(write, session):
    outbox.put("p", NewRow("on_memory_write", write.id, session.id, write.content))

settings = NoteSettings(limits=dict.fromkeys(("memory", "user", "project"), 10**7))
hooks = NoteHooks(on_write=enqueue)
notes = Notes(HermesHome(Path(home)), database, settings, hooks, scan=lambda text: None)

def work(number):
    count = 0
    while True:
        entry = f"{name} {number} {count}"
        assert notes.add("memory", entry)["success"]
        with lock:
            print(entry, flush=True)
        count += 1

for number in range(2):
    threading.Thread(target=work, args=(number,), daemon=True).start()
threading.Event().wait()
"""


def test_of_four_writers_with_kills_every_acknowledged_entry_is_there(
    database: PostgresDatabase,
    make_machine: MakeMachine,
    postgres_url: str,
    postgres_schema: str,
    tmp_path: Path,
) -> None:
    acknowledged: list[str] = []
    random.seed(39)
    with contextlib.ExitStack() as stack:
        for life in range(3):
            processes = []
            for machine in ("one", "two"):
                command = [sys.executable, "-c", WRITER, postgres_url, postgres_schema]
                command += [str(tmp_path / machine), f"{machine}-{life}"]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                stack.callback(process.kill)
                processes.append(process)
            for process in processes:  # all four have begun
                assert process.stdout is not None
                acknowledged += [process.stdout.readline().strip() for _ in range(4)]
            time.sleep(random.uniform(0.2, 0.8))
            for process in processes:
                process.kill()
                rest, _ = process.communicate()
                acknowledged += [line for line in rest.split("\n")[:-1] if line]
    reader = make_machine("reader")
    entries = reader.entries("memory")
    assert set(acknowledged) <= set(entries)
    assert len(set(entries)) == len(entries)
    outbox = [row.body for row in Outbox(database).pending("p")]
    assert sorted(outbox) == sorted(entries)
    history = reader.history(limit=10_000)
    assert {version.action for version in history} == {"add"}  # no old view passed for an edit by hand
    assert len(history) == min(len(entries), MAX_CHANGES)
    for machine in ("one", "two"):
        home = tmp_path / machine
        assert make_machine(machine).entries("memory") == entries
        assert (home / "memories" / "MEMORY.md").read_text("utf-8") == join_entries(entries)
    report = reader.changes.verify()
    assert report is not None
    assert report.faults == ()


# ------------------------------------------------------------------ reads


def test_notes_are_read_in_one_round_trip(
    make_machine: MakeMachine, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_machine("one")
    store.add("memory", "Uses ruff")
    store.add("user", "Is called Ann")
    reads: list[str] = []
    execute, read = PostgresDatabase.execute, PostgresDatabase.read

    def count_execute(self: PostgresDatabase, *args: Any) -> Any:
        reads.append("one")
        return execute(self, *args)

    def count_read(self: PostgresDatabase, *args: Any) -> Any:
        reads.append("all")
        return read(self, *args)

    monkeypatch.setattr(PostgresDatabase, "execute", count_execute)
    monkeypatch.setattr(PostgresDatabase, "read", count_read)
    notes = store.read()
    notes.snapshot()
    notes.data_notes()
    assert notes.entries("user") == ("Is called Ann",)
    assert reads == ["all"]


def test_notes_of_a_server_that_is_down_are_not_taken_for_empty(tmp_path: Path) -> None:
    database = PostgresEngine("postgresql://hermes@127.0.0.1:1/hermes")
    store = notes_of(HermesHome(tmp_path), database)
    view_of(store).parent.mkdir()
    view_of(store).write_text("Uses mypy", "utf-8")
    with pytest.raises(MemoryConflict, match=r"the notes 'MEMORY.md' can't be read: can't reach"):
        store.entries("memory")
    with pytest.raises(DatabaseUnavailable, match="can't reach"):
        store.add("memory", "Uses ruff")
    result = json.loads(call_memory_tool(store, {"action": "add", "content": "Uses ruff"}, Session("s1")))
    assert not result["success"]
    assert "start the server" in result["remediation"]
    assert store.read().snapshot().render().count("can't be read at the moment") == 2
    assert set(store.read().problems) == {"memory", "user"}
    assert view_of(store).read_text("utf-8") == "Uses mypy"


@pytest.mark.parametrize("setting", ["file", "environment"])
def test_a_program_without_a_memory_opens_the_notes_of_the_server(
    setting: str,
    postgres_url: str,
    postgres_schema: str,
    hermes_home: HermesHome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "" if setting == "environment" else f"url: {postgres_url}, "
    if setting == "environment":
        monkeypatch.setenv("HERMES_STORAGE", postgres_url)
    hermes_home.path.mkdir(parents=True, exist_ok=True)
    hermes_home.config_yaml.write_text(f"storage: {{{url}schema: {postgres_schema}}}\n")
    with open_memory(hermes_home) as memory:
        memory.change_memory("add", content="a note of the server", by_person=True)
    hermes_home.memory_md.write_text("a note of the server\n§\nby hand", "utf-8")
    with open_notes(hermes_home) as notes:
        assert notes.entries("memory") == ("a note of the server", "by hand")
        assert [version.action for version in notes.history()] == ["edit", "add"]
    assert not list(hermes_home.path.glob("state.db*"))


def test_all_that_a_server_has_of_a_user_is_deleted(
    make_machine: MakeMachine, database: PostgresDatabase
) -> None:
    store = make_machine("one")
    own = store.of(ANN)
    own.write("user", [Operation("add", "Is called Ann")], ANN, reading=Reading("web"))
    store.add("memory", "Uses ruff")
    own.reset("user", session=ANN)
    own.files.prune()
    own.files.delete()
    for table in ("notes", "note_entries", "note_changes", "note_views", "note_events"):
        rows = [str(tuple(row)) for row in database.execute(f"SELECT * FROM {table}")]  # noqa: S608  ours
        assert not [row for row in rows if "nn" in row], table
    assert store.entries("memory") == ("Uses ruff",)


# ------------------------------------------------------------------ views


def test_a_view_that_another_machine_made_old_is_renewed_at_the_next_look(make_machine: MakeMachine) -> None:
    one, two = make_machine("one"), make_machine("two")
    one.add("memory", "Uses ruff")
    two.add("memory", "Uses mypy")
    assert view_of(one).read_text("utf-8") == "Uses ruff"
    assert view_of(two).read_text("utf-8") == "Uses ruff\n§\nUses mypy"
    assert one.entries("memory") == ("Uses ruff", "Uses mypy")
    assert view_of(one).read_text("utf-8") == "Uses ruff\n§\nUses mypy"
    two.reset("memory")
    assert one.entries("memory") == ()
    assert view_of(one).read_text("utf-8") == ""
    assert [version.action for version in one.history()] == ["reset", "add", "add"]


def test_an_edit_of_a_view_that_another_machine_made_old_is_joined_with_its_changes(
    make_machine: MakeMachine,
) -> None:
    one, two = make_machine("one"), make_machine("two")
    for text in ("tea", "rye", "oats"):
        one.add("memory", text)
    two.replace("memory", "oats", "milk")
    two.add("memory", "figs")
    view_of(one).write_text("tea\n§\nbarley\n§\noats", "utf-8")
    assert one.entries("memory") == two.entries("memory") == ("tea", "barley", "milk", "figs")
    assert (
        view_of(one).read_text("utf-8")
        == view_of(two).read_text("utf-8")
        == "tea\n§\nbarley\n§\nmilk\n§\nfigs"
    )
    [edit] = [version for version in two.history() if version.action == "edit"]
    assert (edit.added, edit.removed) == (("barley",), ("rye",))
    assert two.undo(edit.id)["success"]
    assert one.entries("memory") == ("tea", "rye", "milk", "figs")


def test_an_entry_that_was_edited_on_two_machines_is_there_in_both_forms(make_machine: MakeMachine) -> None:
    one, two = make_machine("one"), make_machine("two")
    one.add("memory", "tea")
    one.add("memory", "rye")
    two.entries("memory")
    view_of(one).write_text("green tea\n§\nrye", "utf-8")
    view_of(two).write_text("black tea\n§\nrye", "utf-8")
    assert one.entries("memory") == ("green tea", "rye")
    assert two.entries("memory") == one.entries("memory") == ("green tea", "black tea", "rye")
    assert view_of(one).read_text("utf-8") == view_of(two).read_text("utf-8")
    assert [version.action for version in one.history()][:2] == ["edit", "edit"]


def test_the_same_edit_on_two_machines_is_one(make_machine: MakeMachine) -> None:
    one, two = make_machine("one"), make_machine("two")
    one.add("memory", "tea")
    two.entries("memory")
    for machine in (one, two):
        view_of(machine).write_text("tea\n§\nrye", "utf-8")
    assert one.entries("memory") == two.entries("memory") == ("tea", "rye")
    assert [version.action for version in one.history()] == ["edit", "add"]


def test_edits_on_two_machines_at_once_are_both_there(make_machine: MakeMachine) -> None:
    machines = [make_machine(f"m{number}") for number in range(4)]
    machines[0].add("memory", "tea")
    for number, machine in enumerate(machines):
        machine.entries("memory")
        view_of(machine).write_text(f"tea\n§\nby hand {number}", "utf-8")
    threads = [threading.Thread(target=machine.read) for machine in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {"tea", *(f"by hand {number}" for number in range(4))}
    for machine in machines:
        assert set(machine.entries("memory")) == expected
        assert len(machine.entries("memory")) == 5


def test_a_home_under_another_name_of_its_machine_loses_nothing(
    make_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has another host name each time, and its volume holds the views."""
    first, other = make_machine("one"), make_machine("other")
    first.add("memory", "tea")
    first.add("memory", "rye")
    other.remove("memory", "tea")
    monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
    renamed = make_machine("one")
    assert view_of(renamed).read_text("utf-8") == "tea\n§\nrye"
    assert renamed.entries("memory") == ("rye",)
    assert view_of(renamed).read_text("utf-8") == "rye"
    view_of(renamed).write_text("rye\n§\nby hand", "utf-8")
    monkeypatch.setattr(socket, "gethostname", lambda: "renamed-again")
    again = make_machine("one")
    assert again.entries("memory") == ("rye", "by hand")


def test_a_machine_without_views_writes_and_reads_no_file(make_machine: MakeMachine) -> None:
    one, two = make_machine("one", mirror=False), make_machine("two")
    one.add("memory", "Uses ruff")
    assert not view_of(one).parent.exists()
    view_of(one).parent.mkdir(parents=True)
    view_of(one).write_text("by hand", "utf-8")
    two.add("memory", "Uses mypy")
    assert one.entries("memory") == ("Uses ruff", "Uses mypy")
    assert view_of(one).read_text("utf-8") == "by hand"
    assert [path.name for path in view_of(one).parent.iterdir()] == ["MEMORY.md"]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_home_with_files_that_is_pointed_at_a_server_keeps_the_origins_of_its_notes(
    hermes_home: HermesHome, postgres_url: str, postgres_schema: str, damaged: bool
) -> None:
    with open_memory(hermes_home, config={"storage": {"url": ""}}) as memory:
        memory.change_memory("add", content="Likes tea", by_person=True)
        memory.curated.write("memory", [Operation("add", "Read on a page")], reading=Reading("web"))
    if damaged:
        hermes_home.state_db.write_bytes(b"garbage" * 1000)
    storage = {"url": postgres_url, "schema": postgres_schema}
    with open_memory(hermes_home, config={"storage": storage}) as memory:
        assert memory.curated.entries("memory") == ("Likes tea", "Read on a page")
        waiting = [note.entry for note in memory.curated.read().waiting_notes()]
        assert waiting == (["Likes tea", "Read on a page"] if damaged else ["Read on a page"])
        assert ("Likes tea" in memory.curated.read().snapshot().render()) is not damaged


class Machines:
    """Two machines on which notes are added, removed and edited by hand, with what should be there afterwards."""

    def __init__(self, machines: list[Notes], choose: random.Random, patch: pytest.MonkeyPatch) -> None:
        self.machines, self._choose, self._patch = machines, choose, patch
        self.present: set[str] = set()
        self._number = itertools.count()

    def step(self) -> None:
        """Do one thing on one machine, where a view may fail to be written, as after a kill."""
        notes = self._choose.choice(self.machines)
        with self._patch.context() as patch:
            if self._choose.random() < 0.25:
                patch.setattr(view, "write_checked", self._fail)
            self._choose.choice([self.add, self.remove, self.edit, self.edit, notes.__class__.read])(notes)

    def add(self, notes: Notes) -> None:
        text = self._new_text()
        assert notes.add("memory", text)["success"]

    def remove(self, notes: Notes) -> None:
        for text in notes.entries("memory")[:1]:
            assert notes.remove("memory", text)["success"]
            self.present.discard(text)

    def edit(self, notes: Notes) -> None:
        """Insert, change or delete an entry in the view, whether it shows the notes of now or not."""
        path = view_of(notes)
        entries = list(split_entries(path.read_text("utf-8"))) if path.exists() else []
        at = self._choose.randint(0, len(entries))
        if (gone := entries[at : at + self._choose.randint(0, 1)]) and self._choose.random() < 0.5:
            entries[at : at + 1] = []
        else:
            entries[at : at + len(gone)] = [self._new_text()]
        self.present -= set(gone)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(join_entries(entries), "utf-8")

    def _new_text(self) -> str:
        text = f"note {next(self._number)}"
        self.present.add(text)
        return text

    @staticmethod
    def _fail(path: Path, *_: object) -> None:
        raise StorageError(f"can't write {str(path)!r}", "make room")


@pytest.mark.parametrize("seed", range(12))
def test_changes_and_edits_on_two_machines_in_any_order_are_joined(
    make_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """No entry is lost, none comes back, none stands twice, and both views show the notes."""
    work = Machines([make_machine("one"), make_machine("two")], random.Random(seed), monkeypatch)
    for _ in range(15):
        work.step()
    for notes in (*work.machines, *work.machines):
        notes.read()
    entries = work.machines[0].entries("memory")
    assert sorted(entries) == sorted(work.present)
    for notes in work.machines:
        assert notes.entries("memory") == entries
        assert split_entries(view_of(notes).read_text("utf-8")) == entries
