"""Notes in rows of a server: writers of several machines, kills, connections that are lost, copies, and edits by people."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome, MemoryWrite, Session, open_memory, open_notes
from hermes_core.curated.edits import merge
from hermes_core.curated.store import MemoryStore
from hermes_core.errors import ConfigError, LockTimeout, MemoryConflict
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_memory_archive.notes import export_notes, import_notes
from hermes_memory_postgresql.engine import PostgresEngine
from hermes_memory_postgresql.notes import is_mirror
from hermes_memory_postgresql.postgres import CommitInDoubt, CommitUnconfirmed, PostgresDatabase
from hermes_memory_postgresql.schema import MIGRATIONS
from tests.conftest import InstallPlugin

ANN = Session("of-ann", platform="telegram", user_id="ann")


@pytest.fixture
def database(postgres_url: str, postgres_schema: str) -> Iterator[PostgresDatabase]:
    with contextlib.closing(PostgresEngine(postgres_url, schema=postgres_schema)) as opened:
        yield opened


MakeMachine = Callable[..., MemoryStore]


@pytest.fixture
def make_machine(database: PostgresDatabase, tmp_path: Path) -> MakeMachine:
    """Make a store with a home of its own on the one server."""

    def make(name: str, **settings: Any) -> MemoryStore:
        defaults: dict[str, Any] = {"scan": lambda text: None, "database": database}
        return MemoryStore(HermesHome(tmp_path / name), **defaults | settings)

    return make


def versions(database: PostgresDatabase, file: str = "MEMORY.md") -> list[int]:
    rows = database.execute("SELECT version FROM note_changes WHERE file = ? ORDER BY version", (file,))
    return [row["version"] for row in rows]


# ------------------------------------------------------------------ several machines


def test_two_machines_see_one_another_s_notes_origins_and_history(make_machine: MakeMachine) -> None:
    one, two = make_machine("one"), make_machine("two")
    one.add("memory", "Uses ruff")
    two.of(ANN).add("user", "Likes tea", session=ANN)
    one.origins.record({"Uses ruff": "web"}, "s1")
    assert two.entries("memory") == ("Uses ruff",)
    assert one.of(ANN).entries("user") == ("Likes tea",)
    assert [note.entry for note in two.waiting_notes()] == ["Uses ruff"]
    two.confirm(["Uses ruff"])
    assert one.waiting_notes() == []
    assert two.undo()["success"]
    assert one.entries("memory") == ()
    assert [version.action for version in one.history()] == ["undo", "add"]
    assert one.owners() == two.owners() == ["telegram:ann"]
    report = one.verify()
    assert report is not None
    assert report.faults == ()


def test_a_change_is_planned_anew_if_another_machine_was_quicker(
    make_machine: MakeMachine, database: PostgresDatabase
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
    assert versions(database) == [1, 2, 3, 4, 5]


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
    from hermes_core.config.profile import ProfileField

    fields = [ProfileField(f"f{number}", "integer") for number in range(6)]
    machines = [make_machine(f"m{number % 2}", profile_fields=fields) for number in range(6)]
    threads = [
        threading.Thread(target=machine.set_profile, args=({f"f{number}": number},))
        for number, machine in enumerate(machines)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert machines[0].profile() == {f"f{number}": str(number) for number in range(6)}
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
from hermes_core import HermesHome
from hermes_core.curated.store import MemoryStore
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_memory_postgresql.engine import PostgresEngine

url, schema, home, name = sys.argv[1:]
database = PostgresEngine(url, schema=schema)
outbox = Outbox(database)
lock = threading.Lock()

def enqueue(write, session):
    outbox.put("p", NewRow("on_memory_write", write.id, session.id, write.content))

store = MemoryStore(
    HermesHome(Path(home)), memory_char_limit=10**7, scan=lambda text: None, on_write=enqueue, database=database
)

def work(number):
    count = 0
    while True:
        entry = f"{name} {number} {count}"
        assert store.add("memory", entry)["success"]
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
                process.send_signal(signal.SIGKILL)
                rest, _ = process.communicate()
                acknowledged += [line for line in rest.split("\n")[:-1] if line]
    entries = make_machine("reader").entries("memory")
    assert set(acknowledged) <= set(entries)
    assert len(set(entries)) == len(entries)
    outbox = [row.body for row in Outbox(database).pending("p")]
    assert sorted(outbox) == sorted(entries)
    stored = versions(database)
    assert stored == list(range(stored[0], stored[-1] + 1))
    assert stored[-1] == len(entries)
    report = make_machine("reader").verify()
    assert report is not None
    assert report.faults == ()


# ------------------------------------------------------------------ reads


def test_a_block_reads_the_notes_in_one_round_trip(
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
    with store.reading():
        store.take_snapshot()
        store.data_notes()
        assert store.entries("user") == ("Is called Ann",)
    assert reads == ["all"]
    store.take_snapshot()
    assert reads == ["all", "all"]


def test_a_change_within_a_block_is_seen_there(make_machine: MakeMachine) -> None:
    store = make_machine("one")
    with store.reading():
        assert store.entries("memory") == ()
        store.add("memory", "Uses ruff")
        assert store.entries("memory") == ("Uses ruff",)
        assert store.of(ANN).entries("memory") == ()
        make_machine("other").add("memory", "Uses mypy")
        assert store.add("memory", "Uses uv")[
            "success"
        ]  # although this block has not read the other one's note
        assert store.entries("memory") == ("Uses ruff", "Uses mypy", "Uses uv")


def test_notes_of_a_server_that_is_down_are_not_taken_for_empty(tmp_path: Path) -> None:
    database = PostgresEngine("postgresql://hermes@127.0.0.1:1/hermes", MIGRATIONS)
    store = MemoryStore(HermesHome(tmp_path), scan=lambda text: None, database=database)
    with pytest.raises(MemoryConflict, match=r"the notes 'MEMORY.md' can't be read: can't reach"):
        store.entries("memory")
    result = store.add("memory", "Uses ruff")
    assert not result["success"]
    assert "can't be read" in result["error"]
    assert "start the server" in result["remediation"]
    assert store.take_snapshot().render().count("can't be read at the moment") == 2
    assert set(store.problems()) == {"memory", "user"}
    assert store.origins.read().fault


def test_history_and_origins_go_from_files_to_a_server_and_back(
    make_machine: MakeMachine, database: PostgresDatabase, tmp_path: Path
) -> None:
    here, there, back = (HermesHome(tmp_path / name) for name in ("here", "there", "back"))
    files = MemoryStore(here, scan=lambda text: None)
    files.add("memory", "Uses ruff")
    files.add("memory", "Likes tea")
    files.replace("memory", "ruff", "Uses mypy")
    files.undo()
    files.of(ANN).add("user", "Is called Ann", session=ANN)
    files.origins.record({"Likes tea": "web"}, "s1")
    records = list(export_notes(here, lambda folder: True, pytest.fail))
    assert [import_notes(there, one, keep_origins=True, database=database)[1] for one in records] == [4, 1]
    server = make_machine("there")

    def state(store: MemoryStore) -> list[object]:
        told = [(one.action, one.after, one.undone) for one in store.history()]
        return [store.entries("memory"), told, store.waiting_notes(), store.of(ANN).entries("user")]

    assert state(server) == state(files)
    assert versions(database) == [1, 2, 3, 4]
    assert server.owners() == ["telegram:ann"]
    for one in records:  # a second time nothing is new
        assert import_notes(there, one, keep_origins=True, database=database) == (0, 0)
    server.add("memory", "Has a cat")
    assert versions(database) == [1, 2, 3, 4, 5]
    for one in export_notes(there, lambda folder: True, pytest.fail, database):
        import_notes(back, one, keep_origins=True)
    again = MemoryStore(back, scan=lambda text: None)
    assert state(again) == state(server)
    for store in (files, server, again):
        report = store.verify()
        assert report is not None
        assert report.faults == ()


# A provider of an earlier version, which opens the notes itself.
OWN_STORE = """
from pathlib import Path

from hermes_core import HermesHome, MemoryProvider
from hermes_core.curated.store import MemoryStore


class OwnStore(MemoryProvider):
    name = "own_store"

    def initialize(self, session):
        MemoryStore(HermesHome(Path(session.home))).add("memory", "a second truth")
"""


@pytest.mark.parametrize("setting", ["file", "environment"])
def test_a_program_that_opens_the_notes_itself_is_told_how(
    setting: str,
    database: PostgresDatabase,
    postgres_url: str,
    postgres_schema: str,
    hermes_home: HermesHome,
    install_plugin: InstallPlugin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "" if setting == "environment" else f"url: {postgres_url}, "
    if setting == "environment":
        monkeypatch.setenv("HERMES_STORAGE", postgres_url)
    hermes_home.memories.mkdir(parents=True)
    hermes_home.config_yaml.write_text(f"storage: {{{url}schema: {postgres_schema}}}\n")
    old = hermes_home.memories / "MEMORY.md"
    old.write_text("an old note")
    with pytest.raises(ConfigError, match=r"on the server .* hermes_core.open_notes\(home\)") as raised:
        MemoryStore(hermes_home)
    assert "\n" not in str(raised.value)
    install_plugin("own_store", OWN_STORE)
    with open_memory(hermes_home, provider="own_store") as memory:
        memory.change_memory("add", content="a note of the server")
        memory.begin_turn(memory.start_session("s1"), "Hello")
        (health,) = [one for one in memory.manager.health() if one.name == "own_store"]
        assert "open_notes" in health.reason
    with open_notes(hermes_home) as notes:
        assert notes.entries("memory") == ("a note of the server",)
    assert old.read_text() == "an old note"


def test_all_that_a_server_has_of_a_user_is_deleted(
    make_machine: MakeMachine, database: PostgresDatabase
) -> None:
    store = make_machine("one")
    own = store.of(ANN)
    own.add("user", "Is called Ann", session=ANN)
    own.origins.record({"Is called Ann": "web"}, "s1")
    store.add("memory", "Uses ruff")
    own.reset("user", session=ANN)
    own.prune()
    own.delete()
    for table in ("notes", "note_changes", "note_origins"):
        rows = [str(tuple(row)) for row in database.execute(f"SELECT * FROM {table}")]  # noqa: S608  ours
        assert not [row for row in rows if "nn" in row], table
    assert store.owners() == []
    assert store.entries("memory") == ("Uses ruff",)
    own.add("user", "Is called Anna", session=ANN)
    assert versions(database, own.journal_key("user")) == [1]


# ------------------------------------------------------------------ copies


def test_a_mirror_is_written_after_each_change_and_never_read(make_machine: MakeMachine) -> None:
    one, two = make_machine("one", mirror=True), make_machine("two", mirror=True)
    one.add("memory", "Uses ruff")
    copy = one._files["memory"].path
    assert copy.read_text() == "Uses ruff"
    assert copy.stat().st_mode & 0o777 == 0o400
    assert is_mirror(copy)
    two.add("memory", "Uses mypy")
    assert copy.read_text() == "Uses ruff"
    one.take_snapshot()
    assert copy.read_text() == "Uses ruff\n§\nUses mypy"
    copy.chmod(0o600)
    copy.write_text("Written by hand")
    assert one.entries("memory") == ("Uses ruff", "Uses mypy")
    one.add("memory", "Uses uv")
    assert copy.read_text() == "Uses ruff\n§\nUses mypy\n§\nUses uv"
    [kept] = copy.parent.glob("MEMORY.md.bak.*")  # what a person wrote is not lost
    assert kept.read_text() == "Written by hand"


def test_without_the_setting_no_file_is_written(make_machine: MakeMachine) -> None:
    store = make_machine("one")
    store.add("memory", "Uses ruff")
    assert not store._files["memory"].path.parent.exists()


# ------------------------------------------------------------------ edits by people


@pytest.mark.parametrize(
    ("mine", "theirs", "merged"),
    [
        (["tea", "oats"], ["tea", "rye", "milk"], ("tea", "oats", "milk")),
        (["tea", "rye", "mine"], ["tea", "rye", "theirs"], ("tea", "rye", "theirs", "mine")),
        (["rye"], ["tea", "oats"], ("oats",)),
        (["tea", "oats"], ["tea", "oats"], ("tea", "oats")),
        ([], ["tea", "rye", "milk"], ("milk",)),
        (["tea", "oats"], ["tea", "barley"], None),
        (["tea"], ["tea", "barley"], None),
    ],
)
def test_edits_of_the_same_notes_are_joined_entry_by_entry(
    mine: list[str], theirs: list[str], merged: tuple[str, ...] | None
) -> None:
    assert merge(["tea", "rye"], mine, theirs) == merged
