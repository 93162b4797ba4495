"""No search on a server says that nothing was found while its index could not have found it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_core import open_memory
from hermes_core.errors import StorageError
from hermes_core.sessions.search import proof
from hermes_core.sessions.search.protocol import INDEX_LOST
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.inventory import Inventory
from hermes_memory_postgresql import gin
from hermes_memory_postgresql.engine import PostgresEngine

DAMAGE = {
    "no terms": "UPDATE messages SET terms = NULL",
    "no words": "UPDATE messages SET terms = ''",
    "other words": "UPDATE messages SET terms = 'other'",
    "the last words": "UPDATE messages SET terms = NULL WHERE id = (SELECT max(id) FROM messages)",
    "a third": "UPDATE messages SET terms = 'other' WHERE id % 3 = 0",
}


@pytest.fixture
def server(postgres_url: str, postgres_schema: str) -> Iterator[SessionStore]:
    # A server reads few messages one by one, and not by the index.
    url = f"{postgres_url}?options=-c%20enable_seqscan%3Doff"
    with contextlib.closing(SessionStore(PostgresEngine(url, schema=postgres_schema))) as store:
        store.create_session("s", user="me")
        with store.transaction():
            for number in range(60):
                store.append_message("s", "user", f"My kumquat number {number} grows in zone{number % 7}.")
        yield store


def test_tables_that_are_gone_are_said(
    postgres_url: str, postgres_schema: str, tmp_path: Path, server: SessionStore
) -> None:
    config = {"storage": {"url": postgres_url, "schema": postgres_schema}}
    with open_memory(tmp_path / "home", config=config) as memory:
        assert memory.problems() == []
        server.database.execute(f"DROP SCHEMA {postgres_schema} CASCADE")
        with pytest.raises(StorageError):
            memory.sessions.past.search("kumquat")
        assert [one for one in memory.recall("kumquat").problems if "is damaged" in one]
    for _ in range(2):
        with open_memory(tmp_path / "home", config=config) as memory:
            nothing = memory.sessions.past.search("kumquat")
            assert nothing == []
            [problem] = memory.sessions.past.problems_of(nothing)
            assert "was made anew" in problem
            assert [one for one in memory.problems() if "was made anew" in one]
    Inventory(tmp_path / "home").accept()
    with open_memory(tmp_path / "home", config=config) as memory:
        assert memory.sessions.past.problems_of(memory.sessions.past.search("kumquat")) == []


def test_a_damaged_index_is_said_and_made_anew(server: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "DELAY_S", 0)
    assert server.past.problems_of(server.past.search("never mentioned", user="me")) == []
    for kind, sql in DAMAGE.items():
        server.database.execute(sql)
        nothing = server.past.search("never mentioned", user="me")
        assert (nothing, server.past.problems_of(nothing)) == ([], [INDEX_LOST]), kind
        builder = server.past.proof._builder
        assert builder is not None
        builder.join()
        found = server.past.search("kumquat zone3", user="me")
        assert len(found) == 10, kind
        assert server.past.problems_of(server.past.search("never mentioned", user="me")) == [], kind
        assert server.check() == [], kind


def lose_entries(database: PostgresEngine, store: Callable[[], object]) -> None:
    """Let the GIN index lack what is stored meanwhile, as one does that a crash or a bad disk has damaged."""
    ready = "UPDATE pg_index SET indisready = %s WHERE indexrelid = 'messages_by_terms'::regclass"
    database.execute(ready % "false")
    store()
    database.execute(ready % "true")


def test_an_index_that_lost_entries_is_said_and_made_anew(
    server: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "DELAY_S", 0)
    database = server.database
    assert isinstance(database, PostgresEngine)
    lose_entries(database, lambda: server.append_message("s", "user", "The zeppelin lands in Marrowby."))
    nothing = server.past.search("Where does the zeppelin land?", user="me")
    assert (nothing, server.past.problems_of(nothing)) == ([], [INDEX_LOST])
    builder = server.past.proof._builder
    assert builder is not None
    builder.join()
    assert "Marrowby" in server.past.search("Where does the zeppelin land?", user="me")[0].text
    assert server.past.problems_of(server.past.search("never mentioned", user="me")) == []


def test_an_index_that_may_not_be_made_anew_says_how(
    postgres_url: str, postgres_schema: str, server: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "DELAY_S", 0)
    database = server.database
    assert isinstance(database, PostgresEngine)
    lose_entries(database, lambda: server.append_message("s", "user", "The zeppelin lands in Marrowby."))
    monkeypatch.setattr(gin, "REINDEX", "REINDEX INDEX CONCURRENTLY gone")
    assert server.past.search("Where does the zeppelin land?", user="me").problem == INDEX_LOST
    builder = server.past.proof._builder
    assert builder is not None
    builder.join()
    nothing = server.past.search("Where does the zeppelin land?", user="me")
    assert nothing == []
    assert "run `hermes-memory sessions rebuild`" in nothing.problem
    with pytest.raises(StorageError, match="let the owner of its tables run: REINDEX"):
        server.index.rebuild()
    monkeypatch.undo()
    server.index.rebuild()
    assert "Marrowby" in server.past.search("Where does the zeppelin land?", user="me")[0].text


@pytest.mark.parametrize("table", ["messages", "sessions", "owners"])
def test_rows_that_are_lost_are_said(
    server: SessionStore, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(proof, "DELAY_S", 0)
    with server.database.transaction() as connection:
        connection.execute("SET LOCAL session_replication_role = replica")  # no foreign key refuses it
        connection.execute(f"DELETE FROM {table}")  # noqa: S608  a name of the test
    nothing = server.past.search("kumquat", user="me")
    assert (nothing, server.past.problems_of(nothing)) == ([], [INDEX_LOST])
    builder = server.past.proof._builder
    assert builder is not None
    builder.join()
    assert "sessions rebuild" in server.past.search("kumquat", user="me").problem
    with pytest.raises(StorageError, match="are lost; restore a backup"):
        server.index.rebuild()
