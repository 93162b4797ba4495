"""The move of the sessions when something goes wrong: kills, other programs, and targets that take no writes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.config import load_config
from hermes_core.errors import DatabaseUnavailable, StorageError
from hermes_core.health.storage import storage_status
from hermes_core.sessions.home_store import open_sessions
from hermes_memory_postgresql import storage_move
from hermes_memory_postgresql.engine import PostgresEngine
from hermes_memory_postgresql.storage_move import StorageMove
from plugins.postgresql.tests.test_storage_move import Run, fill, move, notes_of, opened, run, url
from tests.forked import python
from tests.postgres_server import PostgresServer, drop_schema

pytestmark = pytest.mark.names_engines("a move between engines")

__all__ = ["run", "url"]  # fixtures

COMMAND = "from hermes_core.cli import main; main()"

# Kills the command when config.yaml names the target, and the receipt is not saved yet.
KILLED_AT_THE_END = """
import os, signal, sys
from hermes_core.cli import main
from hermes_memory_postgresql import commands
commands.save_storage_receipt = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sys.argv = ["hermes-memory", *sys.argv[1:]]
main()
"""


def killed_at_the_end(home: HermesHome, to: str) -> None:
    words = [*python(), "-c", KILLED_AT_THE_END, "storage", "move", "--to", to, "--yes"]
    environment = {**os.environ, "HERMES_HOME": str(home.path)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.fixture
def other_schema(postgres_url: str, postgres_schema: str) -> Iterator[str]:
    name = f"{postgres_schema}_b"
    yield name
    drop_schema(postgres_url, name)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    with contextlib.closing(PostgresServer()) as started:
        yield started


# ------------------------------------------------------------------ kills


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
@pytest.mark.parametrize("there", [False, True])
def test_a_move_that_was_killed_after_the_switch_shows_the_same_receipt(
    hermes_home: HermesHome, url: str, run: Run, there: bool
) -> None:
    fill(hermes_home)
    whole = move(hermes_home, url)
    if there:
        move(hermes_home, "files")
    to = url if there else "files"
    killed_at_the_end(hermes_home, to)
    assert load_config(hermes_home).storage.url == ("" if to == "files" else to)
    receipt = json.loads(run("storage", "move", "--to", to, "--yes", "--json").stdout)
    assert (receipt["source_hash"], receipt["target_hash"]) == (whole.source_hash, whole.target_hash)
    assert receipt["rows"] == whole.rows
    assert receipt["verified"]
    assert receipt["switched"]
    assert receipt["copied"] == 0
    assert receipt["problems"] == []
    assert receipt["aside"]
    assert "already" in run("storage", "move", "--to", to, "--yes", code=1).stderr
    assert not storage_status(hermes_home).mark


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
def test_a_receipt_says_that_programs_have_used_the_target_since(
    hermes_home: HermesHome, url: str, run: Run
) -> None:
    fill(hermes_home)
    killed_at_the_end(hermes_home, url)
    with opened(hermes_home) as db:
        db.append_message("s1", "user", "a new one")
    result = run("storage", "move", "--to", url, "--yes", "--json", code=3)
    receipt = json.loads(result.stdout)
    assert receipt["verified"]
    assert receipt["source_hash"] == receipt["target_hash"]
    assert "session 's1'" in receipt["problems"][0]
    with opened(hermes_home) as db:
        assert db.get_messages("s1")[-1].content == "a new one"


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
def test_a_move_that_was_killed_after_the_switch_finds_rows_that_are_gone(
    hermes_home: HermesHome, url: str, run: Run
) -> None:
    fill(hermes_home)
    killed_at_the_end(hermes_home, url)
    with opened(hermes_home) as db:
        db.database.execute("DELETE FROM outbox_settled")
    printed = run("storage", "move", "--to", url, "--yes", code=3).stderr
    assert "outbox_settled: 1 rows, and 0 in the target" in printed


# ------------------------------------------------------------------ other programs


def test_another_home_of_the_same_path_can_not_go_on_with_a_move(
    hermes_home: HermesHome, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two containers have the same path of their home, and one store on a server."""
    fill(hermes_home)
    move(hermes_home, url)

    def stop(*_args: object) -> int:
        raise RuntimeError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(storage_move, "copy_store", stop)
        with pytest.raises(RuntimeError):
            move(hermes_home, "files")
    config = hermes_home.config_yaml.read_text()
    first = hermes_home.path.rename(hermes_home.path.with_name("first"))
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text(config)
    with pytest.raises(StorageError, match="another home has begun to move"):
        move(hermes_home, "files")

    second = hermes_home.path.rename(hermes_home.path.with_name("second"))
    first.rename(hermes_home.path)
    assert move(hermes_home, "files").verified
    hermes_home.path.rename(first)
    second.rename(hermes_home.path)
    with pytest.raises(StorageError, match="of another home, or that store was deleted"):
        move(hermes_home, "files")
    assert not hermes_home.state_db.exists()


def test_a_move_is_refused_while_another_program_uses_the_target(hermes_home: HermesHome, url: str) -> None:
    """It could write between the look at the empty target and its mark, and its notes would be replaced."""
    fill(hermes_home)
    schema = load_config(hermes_home).storage.schema
    with contextlib.closing(PostgresEngine(url, schema=schema)) as early:
        early.execute("SELECT 1")
        with pytest.raises(DatabaseUnavailable, match="other connection"):
            move(hermes_home, url)
        assert not storage_status(hermes_home).mark
        early.execute("INSERT INTO state_meta (key, value) VALUES ('a', 'b')")
    with contextlib.closing(PostgresEngine(url, schema=schema)) as later:
        assert later.execute("SELECT value FROM state_meta WHERE key = 'a'").fetchone()[0] == "b"
    with opened(hermes_home) as db:
        db.create_session("goes on")


def test_a_second_move_of_the_same_home_is_refused(hermes_home: HermesHome, url: str, run: Run) -> None:
    fill(hermes_home)
    with StorageMove(hermes_home, url):
        program = subprocess.run(
            [*python(), "-c", COMMAND, "storage", "move", "--to", url, "--yes"],
            env={**os.environ, "HERMES_HOME": str(hermes_home.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert program.returncode == 1
    assert "another process has held" in program.stderr
    assert "Traceback" not in program.stderr


def test_a_note_of_a_program_that_this_one_can_not_see_is_moved_or_refused(
    hermes_home: HermesHome, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(hermes_home)
    results: list[bool] = []
    mark_source = StorageMove._mark_source

    with open_memory(hermes_home) as memory:

        def write(text: str) -> None:
            try:
                results.append(memory.curated.add("memory", text)["success"])
            except DatabaseUnavailable:
                results.append(False)

        def write_before_and_after(self: StorageMove, *args: object) -> None:
            write("The lamp is on")  # after the look at the views
            mark_source(self, *args)  # type: ignore[arg-type]
            write("The lamp is off")

        monkeypatch.setattr(StorageMove, "_mark_source", write_before_and_after)
        # As a program that opened the file before, and that this process can't see.
        monkeypatch.setattr(StorageMove, "other_programs", lambda _self: "")
        with StorageMove(hermes_home, url) as work:
            work.run(work.plan())
    assert results == [True, False]
    with open_memory(hermes_home) as memory:
        assert memory.curated.entries("memory")[-1] == "The lamp is on"
        assert memory.curated.history("memory")[0].action == "add"


# ------------------------------------------------------------------ targets


def test_a_target_that_takes_no_writes_leaves_the_source_as_it_is(
    hermes_home: HermesHome, url: str, run: Run
) -> None:
    """The tables are there already, as on a standby of a server with them."""
    fill(hermes_home)
    schema = load_config(hermes_home).storage.schema
    with contextlib.closing(PostgresEngine(url, schema=schema)) as ready:
        ready.execute("SELECT 1")
    settings = "options=-cdefault_transaction_read_only%3Don"
    printed = run("storage", "move", "--to", f"{url}?{settings}", "--yes", code=1).stderr
    assert "takes no writes" in printed
    assert not storage_status(hermes_home).mark
    with opened(hermes_home) as db:
        db.create_session("goes on")
    with contextlib.closing(PostgresEngine(url, schema=schema)) as unmarked:
        unmarked.execute("SELECT 1")


def test_a_target_that_vanishes_in_the_middle_says_what_to_do(
    hermes_home: HermesHome, server: PostgresServer, run: Run
) -> None:
    fill(hermes_home)
    copy = storage_move.copy_store

    def copy_and_stop(*args: object) -> int:
        copied = copy(*args)  # type: ignore[arg-type]
        server.stop("immediate")
        return copied

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_move, "copy_store", copy_and_stop)
        printed = run("storage", "move", "--to", server.url, "--yes", code=1).stderr
    assert "run the same command again" in printed
    assert "storage unmark" in printed
    assert "nothing was stored" not in printed
    assert not load_config(hermes_home).storage.url
    server.start()
    assert "already" in run("storage", "move", "--to", server.url, "--yes").stdout
    assert load_config(hermes_home).storage.url == server.url


def test_a_move_that_is_given_up_leaves_the_source_usable(
    hermes_home: HermesHome, server: PostgresServer, run: Run
) -> None:
    fill(hermes_home)
    with StorageMove(hermes_home, server.url) as work, pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_move, "copy_store", lambda *_: server.stop("immediate"))
        with pytest.raises(StorageError, match="storage unmark"):
            work.run(work.plan())
    run("storage", "unmark", "--yes")
    with open_memory(hermes_home) as memory:
        assert memory.change_memory("add", content="Still stored", by_person=True)["success"]
        memory.conversation("chat").turn("hello").finish("hi")


# ------------------------------------------------------------------ from server to server


def test_a_home_goes_from_one_schema_to_another_with_its_notes(
    hermes_home: HermesHome, url: str, run: Run, other_schema: str
) -> None:
    fill(hermes_home)
    move(hermes_home, url)
    with open_memory(hermes_home) as memory:
        memory.change_memory("add", content="Only on the server", by_person=True)
    notes = notes_of(hermes_home)
    run("storage", "move", "--to", url, "--schema", other_schema, "--yes")
    assert load_config(hermes_home).storage.schema == other_schema
    assert notes_of(hermes_home) == notes
    with open_memory(hermes_home) as memory:
        assert memory.curated.undo()["success"]
        assert "Only on the server" not in memory.curated.entries("memory")


def test_a_record_that_can_not_be_read_is_named(hermes_home: HermesHome, url: str, run: Run) -> None:
    fill(hermes_home)
    path = hermes_home.path / "migration" / "storage-move.json"
    path.parent.mkdir()
    path.write_text("{")
    assert (
        "can't be read as the record of a move" in run("storage", "move", "--to", url, "--yes", code=1).stderr
    )
    path.unlink()
    assert move(hermes_home, url).switched
    assert not path.exists()
    assert not Path(f"{path}.tmp").exists()
    with contextlib.closing(open_sessions(hermes_home, load_config(hermes_home))) as db:
        assert db.get_session("s1") is not None
