"""Random damage of the store on a PostgreSQL server: no surface gives an empty answer without a word."""

# ruff: noqa: S608  names of our own tables

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.config.keys import SEMANTIC
from plugins.semantic.tests.test_embeddings import Server
from tests.chaos.conftest import Record
from tests.chaos.test_empty_answers import BY_MEANING, LONG_AGO, MESSAGES, SURFACES, TALK, ask, rounds_of
from tests.postgres_server import PostgresServer

pytestmark = [
    pytest.mark.timeout(7200),
    pytest.mark.slow,
    pytest.mark.shortened,
    pytest.mark.names_engines("damages the files of a server of its own"),
]

DAMAGES = int(os.environ.get("CHAOS_KILLS", "20"))
BLOCK = 8192
SCHEMA = "hermes"


class Store:
    """A server with a whole store, of which each round damages a copy: a database of its own."""

    def __init__(self, server: PostgresServer, folder: Path, embeddings: Server) -> None:
        import psycopg

        self.server, self._folder, self._embeddings = server, folder, embeddings
        self._admin = psycopg.connect(server.url, autocommit=True)
        self._admin.execute("CREATE DATABASE whole")
        # A server reads few messages one by one, and not by the index.
        self._admin.execute("ALTER ROLE hermes SET enable_seqscan = off")
        with open_memory(self.home("whole")) as memory:
            db = memory.sessions
            db.create_session("old")
            with db.transaction():
                for number in range(MESSAGES):
                    text = f"The password of locker{number} is zebra{number}."
                    db.append_message("old", "user", text, timestamp=LONG_AGO)
                db.append_message("old", "user", TALK, timestamp=LONG_AGO)
            assert db.past.vectors is not None
            db.past.vectors.build()

    def home(self, database: str) -> HermesHome:
        home = HermesHome.resolve(self._folder / database)
        home.path.mkdir(exist_ok=True)
        url = self.server.url.replace("/postgres", f"/{database}")
        recall = {
            "embeddings": "http",
            "embeddings_url": self._embeddings.url,
            "embeddings_model": "subjects",
        }
        config = {"storage": {"url": url, "schema": SCHEMA}, "recall": {**recall, "sessions": "auto"}}
        home.config_yaml.write_text(json.dumps({**config, "memory": {"provider": ""}}))
        return home

    @contextlib.contextmanager
    def copy(self, number: int) -> Iterator[tuple[HermesHome, str]]:
        """Yield a home on a copy of the store, with the name of its database."""
        name = f"round{number}"
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE whole STRATEGY file_copy")
        try:
            yield self.home(name), name
        finally:
            self._admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, database: str, *statements: str) -> None:
        """Run statements, of which the damage of an earlier one may refuse some."""
        import psycopg

        url = self.server.url.replace("/postgres", f"/{database}")
        with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
            connection.execute(f"SET search_path = {SCHEMA}, public")
            for statement in statements:
                with contextlib.suppress(psycopg.Error):
                    connection.execute(statement)

    def index_file(self, database: str) -> Path:
        """Return the file of the index of words of a copy that nobody has opened, so that no block is in memory."""
        import psycopg

        whole = self.server.url.replace("/postgres", "/whole")
        with contextlib.closing(psycopg.connect(whole, autocommit=True)) as connection:
            row = connection.execute(f"SELECT pg_relation_filepath('{SCHEMA}.messages_by_terms')").fetchone()
        oid = self._admin.execute("SELECT oid FROM pg_database WHERE datname = %s", (database,)).fetchone()
        assert row is not None
        assert oid is not None
        return self.server.data / "base" / str(oid[0]) / Path(row[0]).name

    def close(self) -> None:
        self._admin.close()


Damage = Callable[[random.Random, Store, str], object]


def chosen(numbers: random.Random, column: str) -> str:
    """A condition on a random part of the rows of a table, often on all."""
    part = numbers.choice((1, 1, 2, 5))
    return f"{column} % {part} = {numbers.randrange(part)}"


def terms(numbers: random.Random, store: Store, database: str) -> None:
    """Delete or replace the terms of messages, or let the index lack them."""
    value = numbers.choice(("NULL", "''", "'other'"))
    where = chosen(numbers, "id")
    again = "UPDATE messages SET terms = terms || 'more'::tsvector"
    ready = "UPDATE pg_index SET indisready = {} WHERE indexrelid = 'messages_by_terms'::regclass"
    ways = (
        (f"UPDATE messages SET terms = {value} WHERE {where}",),
        (ready.format("false"), f"{again} WHERE {where}", ready.format("true")),
        ("DROP INDEX messages_by_terms",),
    )
    store.execute(database, *numbers.choice(ways))


def blocks(numbers: random.Random, store: Store, database: str) -> None:
    """Replace or cut off blocks of the file of the index. With zeroed blocks, the server itself ends no search."""
    path = store.index_file(database)
    content = bytearray(path.read_bytes())
    for _ in range(numbers.choice((1, 3, 20))):
        at = numbers.randrange(len(content) // BLOCK) * BLOCK
        content[at : at + BLOCK] = numbers.randbytes(BLOCK)
    with path.open("r+b") as file:
        file.write(content)
        if numbers.random() < 0.2:
            file.truncate(numbers.randrange(len(content) // BLOCK) * BLOCK)


def schema(numbers: random.Random, store: Store, database: str) -> None:
    """Drop, empty or rename a table, a column, or all."""
    table = numbers.choice(("messages", "sessions", "turns", "state_meta", "schema_migrations", "owners"))
    ways = (
        f"DROP TABLE {table} CASCADE",
        f"DELETE FROM {table}",
        f"ALTER TABLE {table} RENAME TO gone",
        f"ALTER TABLE messages RENAME COLUMN {numbers.choice(('content', 'position', 'terms', 'bucket'))} TO gone",
        f"DROP SCHEMA {SCHEMA} CASCADE",
        f"ALTER SCHEMA {SCHEMA} RENAME TO gone",
    )
    store.execute(database, "SET session_replication_role = replica", numbers.choice(ways))


def vectors(numbers: random.Random, store: Store, database: str) -> None:
    """Delete, rename or forget vectors."""
    ways = (
        f"DELETE FROM vectors WHERE {chosen(numbers, 'message_id')}",
        "UPDATE vectors SET model = 'another'",
        "DROP TABLE vectors CASCADE",
        "ALTER TABLE vectors RENAME TO gone",
    )
    forgotten = ("DELETE FROM state_meta WHERE key LIKE 'meaning%'",)
    store.execute(database, numbers.choice(ways), *(forgotten if numbers.random() < 0.3 else ()))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with contextlib.ExitStack() as opened:
        patch = opened.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(SEMANTIC, "auto")
        embeddings = opened.enter_context(contextlib.closing(Server()))
        server = opened.enter_context(contextlib.closing(PostgresServer(autovacuum="off")))
        folder = tmp_path_factory.mktemp("homes")
        yield opened.enter_context(contextlib.closing(Store(server, folder, embeddings)))


def test_the_whole_store_answers_on_each_surface(store: Store) -> None:
    with store.copy(0) as (home, _):
        for surface in SURFACES:
            assert ask(home.path, surface, "What is the password of locker17?", "zebra17") == "found", surface
            if surface != "turn":  # nothing close enough in meaning for a turn
                assert ask(home.path, surface, BY_MEANING, TALK) == "found", surface


@pytest.mark.parametrize("kind", ["terms", "blocks", "schema", "vectors"])
def test_damage_on_a_server_is_said(
    store: Store, kind: str, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By meaning, something is always found.
    monkeypatch.setenv(SEMANTIC, "auto" if kind == "vectors" else "off")
    damage: Damage = {"terms": terms, "blocks": blocks, "schema": schema, "vectors": vectors}[kind]
    silent, outcomes = list[Any](), {"found": 0, "said": 0, "other": 0}
    for number, numbers in rounds_of(f"{kind} on a server", DAMAGES // 5):
        with store.copy(number + 1) as (home, database):
            if kind == "schema":
                with open_memory(home) as memory:  # a home knows what the server held
                    memory.problems()
            damage(numbers, store, database)
            surface, locker = numbers.choice(list(SURFACES)), numbers.randrange(MESSAGES)
            # One word, so that no other message answers: a server proves only that nothing was found.
            question, wanted = f"Where is zebra{locker}?", f"locker{locker} is"
            if kind == "vectors":
                surface = numbers.choice([name for name in SURFACES if name != "turn"])
                question, wanted = BY_MEANING, TALK
            outcome = ask(home.path, surface, question, wanted)
            # An answer that is not empty may lack what has lost its vector.
            if wanted == TALK and "The password of locker" in outcome:
                outcome = "other"
            if outcome in outcomes:
                outcomes[outcome] += 1
            else:
                silent.append((number, surface, outcome[:200]))
    record(f"damage of {kind} on PostgreSQL", **outcomes, silent=len(silent))
    assert silent == []
