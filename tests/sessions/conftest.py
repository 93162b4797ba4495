from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.postgres_schema import MIGRATIONS
from hermes_core.storage.postgres import PostgresDatabase

# Files whose tests run on both engines. The other files are about the file of SQLite, or about one engine's plans.
ON_BOTH_ENGINES = {
    "test_db",
    "test_lineage",
    "test_questions",
    "test_search",
    "test_snippets",
    "test_summaries",
    "test_tool",
    "test_transfer",
}

# Their tests that are about the file of SQLite.
OF_THE_FILE = {
    "test_a_store_whose_transaction_was_undone_is_not_said_to_have_lost_something",
    "test_the_file_is_private_and_a_reader_can_search_it",
    "test_damage_inside_the_file_is_said_and_not_passed_over",
    "test_a_backup_holds_everything",
}

# Of these, the ones that `make test` leaves to `make test-engines` on PostgreSQL.
ONLY_WITH_ENGINES = {"test_questions", "test_snippets", "test_summaries", "test_tool"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = metafunc.module.__name__.rpartition(".")[2]
    left_out = metafunc.function.__name__ in OF_THE_FILE
    if "db" in metafunc.fixturenames and name in ON_BOTH_ENGINES and not left_out:
        marks = [pytest.mark.engines] if name in ONLY_WITH_ENGINES else []
        metafunc.parametrize("db", ["sqlite", pytest.param("postgresql", marks=marks)], indirect=True)


@pytest.fixture
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionDB]:
    """A store of the test's own, with one session named s1."""
    store = SessionDB(tmp_path / "state.db")
    if getattr(request, "param", "sqlite") == "postgresql":
        url, schema = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")
        store = SessionDB(PostgresDatabase(url, MIGRATIONS, schema=schema))
    store.create_session("s1")
    yield store
    store.close()
