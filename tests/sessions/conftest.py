from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_core.sessions.session_store import SessionStore
from hermes_memory_postgresql.engine import PostgresEngine
from tests.outbox_of import ON_POSTGRES

OpenStore = Callable[..., SessionStore]

# Files whose tests take a store of these fixtures.
ON_BOTH_ENGINES = {
    "test_commands",
    "test_db",
    "test_lineage",
    "test_lookup",
    "test_questions",
    "test_search",
    "test_snippets",
    "test_sources",
    "test_summaries",
    "test_tool",
    "test_transfer",
    "test_turn_records",
}

# Their tests that are about the file of SQLite.
OF_THE_FILE = {
    "test_the_file_is_private_and_a_reader_can_search_it",
    "test_damage_inside_the_file_is_said_and_not_passed_over",
    "test_a_backup_holds_everything",
}

# Files whose tests are about one engine, and why.
OF_SQLITE = {
    "test_index": "the index of SQLite",
    "test_readable_rows": "a damaged or missing file",
    "test_repair": "a damaged or missing file",
}

# Of both, the ones that `make test` runs on both engines; `make test-engines` runs all.
ALWAYS_ON_BOTH = {"test_db", "test_lineage", "test_search", "test_transfer"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = metafunc.module.__name__.rpartition(".")[2]
    of_the_file = metafunc.function.__name__ in OF_THE_FILE
    if "db" in metafunc.fixturenames and name in ON_BOTH_ENGINES:
        if ON_POSTGRES:
            metafunc.parametrize("db", ["postgresql"], indirect=True)
        elif name in ALWAYS_ON_BOTH and not of_the_file:
            metafunc.parametrize("db", ["sqlite", "postgresql"], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = OF_SQLITE.get(item.path.stem, "")
        if getattr(item, "originalname", "") in OF_THE_FILE:
            reason = "the file of the sessions"
        if reason and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.sqlite_only(reason))


@pytest.fixture
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    """A store of the test's own, with one session named s1."""
    store = SessionStore(tmp_path / "state.db")
    if getattr(request, "param", "sqlite") == "postgresql":
        url, schema = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")
        store = SessionStore(PostgresEngine(url, schema=schema))
    store.create_session("s1")
    yield store
    store.close()


def server_database(url: str, schema: str, password: str = "") -> PostgresEngine:
    return PostgresEngine(url, schema=schema, password=password)
