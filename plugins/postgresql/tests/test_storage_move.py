"""The move of the sessions between a file and a server: whole, resumable, and never into a store that others use."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hermes_core import HermesHome, open_memory
from hermes_core.cli import main
from hermes_core.config import load_config, set_value
from hermes_core.curated.history import NoteVersion
from hermes_core.curated.rows import place_of
from hermes_core.errors import DatabaseUnavailable, MemoryConflict, StorageError
from hermes_core.health.storage import storage_status
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_core.sessions.home_store import open_sessions
from hermes_core.sessions.open_turns import HostState, OpenTurnStore
from hermes_core.sessions.records import StoredOpenTurn
from hermes_core.sessions.schema import STORED_TABLES
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.turn_records import TurnRecord, record_statements
from hermes_core.storage.moved import StoreMark
from hermes_memory_agent.skills.history import SkillHistory
from hermes_memory_postgresql import storage_move
from hermes_memory_postgresql.marks import write_mark
from hermes_memory_postgresql.storage_move import StorageMove
from hermes_memory_postgresql.store_copy import TABLE_NAMES, StoreDigest, digest_store
from tests.forked import python
from tests.postgres_server import columns_of

pytestmark = pytest.mark.names_engines("a move between engines")

Run = Callable[..., Result]


@pytest.fixture
def run(hermes_home: HermesHome) -> Run:
    def call(*words: object, code: int = 0, typed: str | None = None) -> Result:
        result = CliRunner().invoke(main, [str(word) for word in words], input=typed)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (words, result.stdout, result.stderr)
        return result

    return call


@pytest.fixture
def url(postgres_url: str, postgres_schema: str, hermes_home: HermesHome) -> Iterator[str]:
    """The address of a server, with a schema of the test's own in the configuration."""
    set_value(hermes_home, "storage.schema", postgres_schema)
    yield postgres_url
    import psycopg

    from tests.postgres_server import drop_schema

    with contextlib.closing(psycopg.connect(postgres_url)) as connection:
        names = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, ?)".replace("?", "%s"),
            (f"{postgres_schema[:30]}_moved",),
        ).fetchall()
    for (name,) in names:
        drop_schema(postgres_url, name)


@contextlib.contextmanager
def opened(home: HermesHome) -> Iterator[SessionStore]:
    with contextlib.closing(open_sessions(home, load_config(home))) as db:
        yield db


def fill(home: HermesHome) -> None:
    """Store something of every kind."""
    with opened(home) as db:
        for number in range(8):
            name, user = f"s{number}", f"telegram:{number % 3}" if number else ""
            db.create_session(name, "telegram", user=user, title=f"Plan {number}", identity={"user_id": user})
            for turn in range(5):
                texts = [
                    {"role": "user", "content": f"Where do kumquats grow? {number} {turn} 部署在哪里"},
                    {
                        "role": "assistant",
                        "content": "",
                        "tool_calls": [{"id": "1", "function": {"name": "x"}}],
                    },
                    {
                        "role": "tool",
                        "content": "a page\t'quoted' \\ %s ? :name",
                        "tool_call_id": "1",
                        "origin": "web",
                    },
                    {"role": "assistant", "content": f"In Ghana {turn}.", "timestamp": 1e9 + turn / 3},
                ]
                record = record_statements(f"{name}-t{turn}", user, 1.7e9, TurnRecord(recall_tokens=turn))
                with db.transaction():
                    db.append_turn(name, texts, f"{name}-t{turn}", turn + 1, further=record)
        db.rewind("s2", db.get_messages("s2")[8].id)
        db.create_session("branch", parent_id="s1", relation="branch", user="telegram:1")
        db.append_message("branch", "user", "copied text", copied=True)
        db.delete_session("s7")
        db.meta.add_usage("s1", input_tokens=7, cost_usd=0.125)
        db.meta.set("handed:fake", "3")
        HostState(db, "user", lambda: "telegram:1")["places"] = ["Ghana"]
        open_turn = StoredOpenTurn("o1", "s1", {"role": "user", "content": "open"}, "Ann", messages=())
        OpenTurnStore(db).create(open_turn, at=1.7e9)
        OpenTurnStore(db).add("o1", [{"role": "assistant", "content": "half"}], at=1.7e9)
        outbox = Outbox(db.database, max_rows=6)
        for number in range(6):
            outbox.put("fake", NewRow("sync_turn", f"e{number}", f"s{number % 2}", json.dumps({"n": number})))
        with contextlib.suppress(StorageError, Exception):
            outbox.put("full", NewRow("sync_turn", "e9", "s1", "{}"))
        rows = outbox.pending("fake")
        outbox.delivered(rows[0])
        outbox.failed(rows[2], "down", counted=True)
        outbox.bury(rows[1], "refused")
    with open_memory(home) as memory:
        ann = memory.session("s1", user_id="1", platform="telegram")
        memory.change_memory("add", content="The tent is green", by_person=True)
        memory.change_memory("replace", content="The tent is red", old_text="green")
        memory.change_memory("add", "user", "Likes kumquats", session=ann)
        memory.curated.undo()
        home.user_md.write_text("Written by hand.\n\n§\n\nÄ second one\n", encoding="utf-8")
        memory.change_memory("add", "user", "A third one")
        assert memory.curated.pin("memory", "green")["success"]


def notes_of(home: HermesHome) -> list[object]:
    """All that is kept of the notes, as a person sees it."""
    with open_memory(home) as memory:
        ann = memory.session("s1", user_id="1", platform="telegram")
        stores = [memory.curated, memory.curated.of(ann)]
        kept = [
            (store.read().files[target].notes, store.history(target))
            for store in stores
            for target in store.enabled_targets
        ]
        return [*kept, memory.curated.changes.verify()]


def texts_of_views(home: HermesHome) -> dict[str, str]:
    """The files of notes of a home, by their path below its folder of notes."""
    paths = sorted(home.memories.rglob("*.md"))
    return {path.relative_to(home.memories).as_posix(): path.read_text("utf-8") for path in paths}


def digest(home: HermesHome) -> StoreDigest:
    with opened(home) as db:
        return digest_store(db.database)


def move(home: HermesHome, to: str) -> storage_move.StorageMoveReceipt:
    with StorageMove(home, to) as work:
        return work.run(work.plan())


# ------------------------------------------------------------------ there and back


def test_a_home_goes_to_a_server_and_back_with_all_that_it_holds(
    hermes_home: HermesHome, url: str, run: Run
) -> None:
    fill(hermes_home)
    before = digest(hermes_home)
    notes = notes_of(hermes_home)
    with opened(hermes_home) as db:
        hits = [hit.message_id for hit in db.past.search("kumquats 2 3", user="telegram:2")]
    printed = run("storage", "move", "--to", url, "--yes").stdout
    assert load_config(hermes_home).storage.url == url
    with opened(hermes_home) as db:
        assert db.database.shared
        assert [hit.message_id for hit in db.past.search("kumquats 2 3", user="telegram:2")] == hits
        assert db.index.check() == []
        new = db.append_message("s1", "user", "a new one")
        assert new > before.rows["messages"] + 20  # numbers of the deleted session are not given again
        db.rewind("s1", new)
        outbox = Outbox(db.database)
        assert [row.error for row in outbox.dead_letters()] == ["refused"]
        assert [row.attempts for row in outbox.pending("fake")] == [1, 0, 0, 0]
        assert outbox.knows("fake", "sync_turn", "e0")
        assert db.database.execute("SELECT sum(pending), sum(count) FROM outbox_lines").fetchone()[:] == (
            4,
            5,
        )
    assert "refuses writes" in printed
    assert notes_of(hermes_home) == notes
    with open_memory(hermes_home) as memory:
        assert memory.curated.undo()["success"]
        memory.change_memory("add", content="The stove is new", by_person=True)
    notes = notes_of(hermes_home)
    there = digest(hermes_home)
    document = json.loads(run("storage", "move", "--to", "files", "--yes", "--json").stdout)
    assert document["verified"]
    assert document["switched"]
    assert document["source_hash"] == document["target_hash"]
    assert {name: document["rows"][name] for name in there.rows} == there.rows
    assert document["rows"]["notes"] == 3
    assert document["rows"]["note_entries"] == 5
    assert Path(document["aside"]).exists()  # the file from before the first move
    assert not load_config(hermes_home).storage.url
    with opened(hermes_home) as db:
        assert not db.database.shared
        assert db.check() == []
        assert db.append_message("s1", "user", "newer") > new
    assert notes_of(hermes_home) == notes
    with open_memory(hermes_home) as memory:
        assert memory.problems() == []
        assert memory.curated.undo()["success"]


def test_both_hashes_are_those_of_the_rows_before(hermes_home: HermesHome, url: str) -> None:
    fill(hermes_home)
    hashes = [move(hermes_home, to) for to in (url, "files", url, "files")]
    assert len({receipt.source_hash for receipt in hashes} | {receipt.target_hash for receipt in hashes}) == 1
    assert all(receipt.copied == sum(receipt.rows.values()) for receipt in hashes)


def test_every_column_of_both_engines_is_copied(hermes_home: HermesHome, url: str, tmp_path: Path) -> None:
    other = HermesHome(tmp_path / "other")
    set_value(other, "storage.url", url)
    set_value(other, "storage.schema", load_config(hermes_home).storage.schema)
    with opened(hermes_home) as file, opened(other) as server:
        file.create_session("s1")
        server.create_session("s1")
        for table in STORED_TABLES:
            assert columns_of(file.database, table.name) == {*table.column_names}, table.name
            own = {"owner_key", "ordinal", "bucket", "terms"} if table.name == "messages" else set()
            assert columns_of(server.database, table.name) == {*table.column_names, *own}, table.name
        kept = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        names = {row[0] for row in file.database.execute(kept) if not row[0].startswith("messages_")}
    assert names - {table.name for table in STORED_TABLES} == {
        "schema_migrations",
        "leases",
        "outbox_lines",
        "vectors",
    }


# ------------------------------------------------------------------ views of the notes


def test_edits_that_nobody_has_looked_at_are_moved(hermes_home: HermesHome, url: str) -> None:
    with open_memory(hermes_home) as memory:
        memory.change_memory("add", content="Uses ruff", by_person=True)
        ann = memory.session("s1", user_id="1", platform="telegram")
        memory.change_memory("add", "user", "Likes kumquats", session=ann)
    users = next(hermes_home.memories.glob("users/*/USER.md"))
    project = hermes_home.project_md_of("0123456789abcdef")
    project.parent.mkdir(parents=True)
    written = {
        hermes_home.memory_md: "Uses ruff\n\n§\nWritten by hand \n\n",
        users: "Likes figs\n",
        project: "Run the tests with make.\n",
    }
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    receipt = move(hermes_home, url)
    assert (receipt.rows["notes"], receipt.rows["note_changes"]) == (3, 5)
    for path in written:
        path.unlink()  # another machine has none of them
    with open_memory(hermes_home) as memory:
        ann = memory.session("s1", user_id="1", platform="telegram")
        assert memory.curated.entries("memory") == ("Uses ruff", "Written by hand")
        assert memory.curated.of(ann).entries("user") == ("Likes figs",)
        there = memory.curated.of_repository("0123456789abcdef")
        assert there.entries("project") == ("Run the tests with make.",)
        assert [version.action for version in memory.curated.history("memory")] == ["edit", "add"]
        assert memory.curated.undo(target="memory")["success"]
        assert memory.curated.entries("memory") == ("Uses ruff",)


@pytest.mark.parametrize("first", ["files", "server"])
def test_an_edit_during_a_move_is_an_edit_of_the_notes_that_were_moved(
    hermes_home: HermesHome, url: str, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    places = [url, "files"]
    if first == "server":
        move(hermes_home, places.pop(0))
        places.append(url)
    with open_memory(hermes_home) as memory:
        for text in ("Uses ruff", "Uses mypy", "Likes tea"):
            memory.change_memory("add", content=text, by_person=True)
    copy = storage_move.copy_store
    edits = ["Uses ruff\n§\nLikes figs", "Likes figs\n§\nLikes rye"]

    def edit(*args: object) -> int:
        hermes_home.memory_md.write_text(edits.pop(0), "utf-8")
        return copy(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(storage_move, "copy_store", edit)
    for to, entries in zip(places, [("Uses ruff", "Likes figs"), ("Likes figs", "Likes rye")], strict=True):
        move(hermes_home, to)
        with open_memory(hermes_home) as memory:
            assert memory.curated.entries("memory") == entries
            assert memory.curated.history("memory")[0].action == "edit"
            assert {note.origin.origin for note in memory.curated.read().files["memory"].notes} == {"person"}


def test_after_a_move_views_that_another_machine_made_old_are_renewed(
    hermes_home: HermesHome, url: str, tmp_path: Path
) -> None:
    """They are no edits: a note that went on the other machine does not come back by them."""
    fill(hermes_home)
    move(hermes_home, url)
    other = HermesHome(tmp_path / "other")
    other.path.mkdir()
    other.config_yaml.write_text(hermes_home.config_yaml.read_text())
    for number in range(2):
        with open_memory(other) as elsewhere:
            elsewhere.change_memory("add", content=f"Note {number} of the other machine", by_person=True)
        if not number:
            with open_memory(hermes_home) as memory:
                assert "Note 0 of the other machine" in memory.curated.entries("memory")
        with open_memory(other) as elsewhere:
            assert elsewhere.curated.remove("memory", f"Note {number} of")["success"]
    shown = texts_of_views(hermes_home)
    assert "Note 0 of the other machine" in shown["MEMORY.md"]
    actions = [version.action for version in _history(hermes_home)]
    move(hermes_home, "files")
    with open_memory(hermes_home) as memory:
        assert not any("other machine" in entry for entry in memory.curated.entries("memory"))
    assert "other machine" not in hermes_home.memory_md.read_text("utf-8")
    assert [version.action for version in _history(hermes_home)] == actions
    assert not list(hermes_home.memories.glob("MEMORY.md.bak.*"))


def _history(home: HermesHome) -> list[NoteVersion]:
    with open_memory(home, config={"memory": {"mirror": False}}) as memory:
        return memory.curated.history("memory")


def test_moves_leave_the_views_as_they_are(hermes_home: HermesHome, url: str) -> None:
    fill(hermes_home)
    before = notes_of(hermes_home)
    views = texts_of_views(hermes_home)
    for to in (url, "files", url):
        move(hermes_home, to)
        assert texts_of_views(hermes_home) == views
        assert notes_of(hermes_home) == before
    assert texts_of_views(hermes_home) == views


def test_a_view_that_can_not_be_read_as_notes_is_named_before_anything_is_moved(
    hermes_home: HermesHome, url: str
) -> None:
    fill(hermes_home)
    hermes_home.memory_md.write_bytes(b"caf\xe9")
    with pytest.raises(MemoryConflict, match=r"MEMORY\.md' can't be read") as raised:
        move(hermes_home, url)
    assert raised.value.remedy.endswith("; nothing was moved")
    hermes_home.memory_md.write_text("café", "utf-8")
    assert move(hermes_home, url).switched
    with open_memory(hermes_home) as memory:
        assert memory.curated.entries("memory") == ("café",)


def test_a_change_of_a_skill_that_a_crash_interrupted_can_be_completed_after_a_move(
    hermes_home: HermesHome, url: str
) -> None:
    with opened(hermes_home) as db:
        change = SkillHistory(db.database, "skills").begin(
            "tea/SKILL.md", "write", "a", "b", "s1", "person", None
        )
    for to in (url, "files"):
        move(hermes_home, to)
        with opened(hermes_home) as db:
            place = place_of(hermes_home, shared=db.database.shared)
            history = SkillHistory(db.database, "skills", place)
            assert [row["id"] for row in history.pending()] == [change]


def test_a_home_without_views_is_moved_without_a_look_at_its_files(hermes_home: HermesHome, url: str) -> None:
    fill(hermes_home)
    set_value(hermes_home, "memory.mirror", False)
    hermes_home.memory_md.write_text("of another program", "utf-8")
    before = notes_of(hermes_home)
    for to in (url, "files"):
        move(hermes_home, to)
        assert notes_of(hermes_home) == before
    assert hermes_home.memory_md.read_text("utf-8") == "of another program"


# ------------------------------------------------------------------ one side takes writes


def test_a_role_without_rights_is_refused_before_the_source_is_marked(
    hermes_home: HermesHome, url: str, postgres_url: str
) -> None:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    fill(hermes_home)
    with contextlib.closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute("DROP ROLE IF EXISTS hermes_without_rights")
        connection.execute("CREATE ROLE hermes_without_rights LOGIN")
        try:
            user = conninfo_to_dict(postgres_url)["user"]
            with pytest.raises(DatabaseUnavailable, match="permission denied"):
                move(hermes_home, url.replace(f"//{user}@", "//hermes_without_rights@"))
        finally:
            connection.execute("DROP ROLE hermes_without_rights")
    with open_memory(hermes_home) as memory:
        assert memory.change_memory("add", content="Still stored", by_person=True)["success"]


def test_notes_take_no_writes_on_the_side_that_was_moved(hermes_home: HermesHome, url: str) -> None:
    fill(hermes_home)
    with open_memory(hermes_home) as earlier:
        earlier.change_memory("add", content="before", by_person=True)
        database = earlier.sessions.database
        write_mark(database, StoreMark("id", "source", complete=False, other=url), TABLE_NAMES)
        with pytest.raises(DatabaseUnavailable, match="moved to"):
            earlier.curated.add("memory", "late")
        late = earlier.change_memory("add", content="late", by_person=True)
        assert not late["success"]
        assert "late" not in hermes_home.memory_md.read_text("utf-8")
        hermes_home.memory_md.write_text("by hand", "utf-8")
        assert earlier.curated.entries("memory") == ("by hand",)  # as in a home that is only read
        write_mark(database, None, TABLE_NAMES)
        assert earlier.change_memory("add", content="later", by_person=True)["success"]
        assert earlier.curated.entries("memory") == ("by hand", "later")


def test_an_empty_home_can_be_moved(hermes_home: HermesHome, url: str) -> None:
    assert move(hermes_home, url).switched
    with open_memory(hermes_home) as memory:
        memory.conversation("chat").turn("hello").finish("hi")
    assert move(hermes_home, "files").messages == 2


def test_a_short_form_of_the_address_is_replaced(hermes_home: HermesHome, url: str) -> None:
    fill(hermes_home)
    schema = load_config(hermes_home).storage.schema
    move(hermes_home, url)
    hermes_home.config_yaml.write_text(f"storage: {url}?options=-csearch_path%3D{schema}\n")
    hermes_home.config_yaml.write_text(f"# mine\nstorage: {url}\n")
    set_value(hermes_home, "storage.schema", schema)
    assert load_config(hermes_home).storage.url == url
    assert move(hermes_home, "files").switched
    assert "# mine" in hermes_home.config_yaml.read_text()


# ------------------------------------------------------------------ kills

KILLED = """
import os, signal, sys
from hermes_core import HermesHome
from hermes_memory_postgresql.storage_move import StorageMove
from hermes_core.storage import sqlite
from hermes_memory_postgresql import postgres

commits = 0

def count(kind, name):
    original = getattr(kind, name)
    def wrapper(self, *args, **options):
        global commits
        context = original(self, *args, **options)
        class Counted:
            def __enter__(inner):
                inner.outer = not self.in_transaction
                return context.__enter__()
            def __exit__(inner, *exc):
                global commits
                result = context.__exit__(*exc)
                commits += inner.outer
                if commits == int(sys.argv[3]):
                    os.kill(os.getpid(), signal.SIGKILL)
                return result
        return Counted()
    setattr(kind, name, wrapper)

from hermes_memory_postgresql import store_copy
store_copy.ROWS_PER_COMMIT = 40
count(sqlite.Database, "transaction")
count(postgres.PostgresDatabase, "transaction")
with StorageMove(HermesHome.resolve(sys.argv[1]), sys.argv[2]) as work:
    work.run(work.plan())
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
@pytest.mark.parametrize("kills", [(1, 3, 12), (5, 9, 1)])
def test_a_killed_move_goes_on_and_doubles_nothing(
    hermes_home: HermesHome, url: str, kills: tuple[int, ...]
) -> None:
    fill(hermes_home)
    before = move(hermes_home, url).source_hash
    for to in ("files", url):
        killed = 0
        for number in (*kills, 10**6):
            words = [*python(), "-c", KILLED, str(hermes_home.path), to, str(number)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode in (0, -signal.SIGKILL), done.stderr
            killed += done.returncode != 0
            if not done.returncode:
                break
            # Killed before the source was marked, it takes writes as before.
            if not _reached(hermes_home, to) and storage_status(hermes_home).mark:
                with pytest.raises(DatabaseUnavailable, match="moved to"), opened(hermes_home) as db:
                    db.create_session("meanwhile")
        assert killed
        assert _reached(hermes_home, to)
        status = storage_status(hermes_home)
        assert not status.mark
    with StorageMove(hermes_home, "files") as work:
        receipt = work.run(work.plan())
    assert receipt.source_hash == receipt.target_hash == before


def _reached(home: HermesHome, to: str) -> bool:
    return load_config(home).storage.url == ("" if to == "files" else to)


# ------------------------------------------------------------------ only one store takes writes


def test_a_program_that_ran_before_can_not_write_into_the_source(hermes_home: HermesHome, url: str) -> None:
    fill(hermes_home)
    with StorageMove(hermes_home, url) as work:
        plan = work.plan()
        running = work._open(work._config, "write")  # as a program that connects before the mark is set
        with running as db:
            mark = work._begin(db, plan)
            work._mark_source(db, mark)
            for write in (
                lambda: db.create_session("late"),
                lambda: db.append_message("s1", "user", "late"),
                lambda: db.meta.set("late", "1"),
                lambda: Outbox(db.database).put("fake", NewRow("sync_turn", "late", "s1", "{}")),
                lambda: db.delete_session("s1"),
            ):
                with pytest.raises(DatabaseUnavailable, match="moved to") as failure:
                    write()
                assert "storage move" in failure.value.remedy
        assert mark.other == plan.target
        with pytest.raises(DatabaseUnavailable, match="being moved"), opened(hermes_home) as db:
            db.create_session("late")


def test_a_connection_that_ends_by_itself_is_no_other_program(
    hermes_home: HermesHome, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_move, "SETTLE_S", 60)
    fill(hermes_home)
    move(hermes_home, url)
    with opened(hermes_home) as ending:
        ending.database.execute("SELECT 1")
        timer = threading.Timer(1, ending.close)
        timer.start()
        assert move(hermes_home, "files").switched
        timer.join()


def test_a_machine_with_the_old_settings_can_not_write_into_the_server(
    hermes_home: HermesHome, url: str
) -> None:
    fill(hermes_home)
    move(hermes_home, url)
    with opened(hermes_home) as elsewhere:
        elsewhere.append_message("s1", "user", "before")
        with StorageMove(hermes_home, "files") as work:
            plan = work.plan()
            with pytest.raises(DatabaseUnavailable, match="1 other connection "):
                work.run(plan)
            with work._open(work._config, "write") as server:
                work._mark_source(server, work._begin(server, plan))
        with pytest.raises(DatabaseUnavailable, match="moved to") as failure:
            elsewhere.append_message("s1", "user", "late")
        assert "start this program again" in failure.value.remedy


def test_a_lease_shows_a_program_whose_connection_does_not(hermes_home: HermesHome, url: str) -> None:
    fill(hermes_home)
    move(hermes_home, url)
    claim = "INSERT INTO leases VALUES ('session-s1', 'x 1 host', extract(epoch FROM now()) + ?)"
    with opened(hermes_home) as db:
        db.database.execute(claim, (60,))
    with StorageMove(hermes_home, "files") as work:
        assert "or stopped just now: 1" in work.other_programs()
        with opened(hermes_home) as db:
            db.database.execute("UPDATE leases SET until = 0")
        assert work.other_programs() == ""


def test_a_moved_store_is_refused_until_it_is_unmarked(hermes_home: HermesHome, url: str, run: Run) -> None:
    fill(hermes_home)
    move(hermes_home, url)
    set_value(hermes_home, "storage.url", "")
    with pytest.raises(DatabaseUnavailable, match="not used any more"), opened(hermes_home) as db:
        db.create_session("late")
    assert "takes no writes" in run("storage", "status").stdout
    assert "given up" in run("storage", "unmark", "--yes").stdout
    with opened(hermes_home) as db:
        db.create_session("late")
    assert json.loads(run("storage", "status", "--json").stdout)["mark"] == ""


@pytest.mark.skipif(os.name == "nt", reason="a file that others have open is not known there")
def test_a_move_is_refused_while_another_program_has_the_file_open(
    hermes_home: HermesHome, url: str, run: Run
) -> None:
    fill(hermes_home)
    program = (
        "import sys, time; from hermes_core.sessions.session_store import SessionStore; db = SessionStore(sys.argv[1]);"
        "db.counts(); print('open', flush=True); sys.stdin.readline(); db.close()"
    )
    words = [sys.executable, "-c", program, str(hermes_home.state_db)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "open\n"
        assert "another program" in run("storage", "move", "--to", url, "--yes", code=1).stderr
        assert not load_config(hermes_home).storage.url
        with StorageMove(hermes_home, url) as work:
            waits = iter([None, other.stdin.write])

            def sleep(_seconds: float) -> None:
                if act := next(waits, None):
                    act("\n")
                    other.stdin.flush()  # type: ignore[union-attr]
                    other.wait(120)

            work.wait(sleep)
            assert work.run(work.plan()).switched


# ------------------------------------------------------------------ refusals


def test_a_target_that_holds_something_else_is_refused(hermes_home: HermesHome, url: str, run: Run) -> None:
    fill(hermes_home)
    schema = load_config(hermes_home).storage.schema
    with contextlib.closing(
        open_sessions(hermes_home, storage_move._config_of(load_config(hermes_home), url, schema))
    ) as db:
        db.create_session("theirs")
    printed = run("storage", "move", "--to", url, "--yes", code=1).stderr
    assert "is not empty (1 sessions)" in printed
    with opened(hermes_home) as db:
        db.create_session("mine")


def test_the_same_store_and_a_password_in_the_address_are_refused(
    hermes_home: HermesHome, url: str, run: Run
) -> None:
    assert "already" in run("storage", "move", "--to", "files", "--yes", code=1).stderr
    secret = url.replace("hermes@", "hermes:swordfish@")
    result = run("storage", "move", "--to", secret, "--yes", code=1)
    assert "password" in result.stderr
    assert "swordfish" not in result.stdout + result.stderr


def test_a_dry_run_makes_nothing(hermes_home: HermesHome, url: str, run: Run) -> None:
    import psycopg

    fill(hermes_home)
    plan = json.loads(run("storage", "move", "--to", url, "--dry-run", "--json").stdout)
    assert plan["rows"]["turns"] > 0
    assert not plan["goes_on"]
    with contextlib.closing(psycopg.connect(url)) as connection:
        schema = load_config(hermes_home).storage.schema
        assert connection.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone() == (None,)
    with opened(hermes_home) as db:
        db.create_session("goes on")


def test_rows_that_differ_leave_the_settings_as_they_are(
    hermes_home: HermesHome, url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(hermes_home)
    copy = storage_move.copy_store

    def copy_badly(source: SessionStore, target: SessionStore, progress: Callable[[int], object]) -> int:
        copied = copy(source, target, progress)
        target.database.execute("UPDATE messages SET timestamp = timestamp + 1 WHERE id = 7")
        target.database.execute("DELETE FROM outbox_settled")
        return copied

    monkeypatch.setattr(storage_move, "copy_store", copy_badly)
    printed = run("storage", "move", "--to", url, "--yes", code=1).stderr
    assert "outbox_settled: 1 rows, and 0" in printed
    assert "session 's0'" in printed
    assert not load_config(hermes_home).storage.url
    run("storage", "unmark", "--yes")
    with opened(hermes_home) as db:
        db.create_session("goes on")


def test_a_variable_that_comes_before_the_file_is_named(
    hermes_home: HermesHome, url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(hermes_home)
    move(hermes_home, url)
    monkeypatch.setenv("HERMES_STORAGE", url)
    assert "HERMES_STORAGE" in run("storage", "move", "--to", "files", "--yes", code=3).stderr
