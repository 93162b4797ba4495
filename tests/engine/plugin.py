"""The suite on PostgreSQL: each home has a schema of its own on a server, in place of state.db.

Tests with the marker `sqlite_only` are about files, and those with `names_engines` use the same engines in each run. They
are skipped with their reason. At the end it says how many tests used the server, and how many were skipped for which reason.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_memory_postgresql import postgres
from tests.engine.plans import StatementLog, table_walks
from tests.engine.sitecustomize import PREFIX, SERVER
from tests.postgres_server import drop_schema

REASONS = {"sqlite_only": "SQLite only: ", "names_engines": "names its engines: "}
"""How the reason of a skipped test begins, by the name of its marker."""

USED = "schemas on PostgreSQL"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that would say nothing more on PostgreSQL."""
    for item in items:
        for name, beginning in REASONS.items():
            if marker := item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=f"{beginning}{marker.args[0]}"))


class Schemas:
    """The schemas that the tests of this process made for homes."""

    def __init__(self, url: str, prefix: str) -> None:
        import psycopg

        self.url, self.prefix = url, prefix
        self.connection = psycopg.connect(url, autocommit=True)
        self.statements = StatementLog()

    def names(self) -> set[str]:
        """Return the names of the schemas that are there now."""
        query = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)"
        return {name for (name,) in self.connection.execute(query, (self.prefix,))}

    def drop(self, name: str) -> None:
        """Drop a schema with its tables."""
        drop_schema(self.url, name)

    def close(self) -> None:
        self.connection.close()


@pytest.fixture(scope="session", autouse=True)
def home_schemas(postgres_url: str) -> Iterator[Schemas]:
    """Name the server to all homes of this process, and of the programs that tests start."""
    folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    prefix = f"t{uuid.uuid4().hex[:12]}_"
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(Schemas(postgres_url, prefix)) as schemas:
        patch.setenv(SERVER, postgres_url)
        patch.setenv(PREFIX, prefix)
        patch.setenv("PYTHONPATH", os.pathsep.join(folders))
        patch.setattr(postgres, "psycopg_sql", schemas.statements.recording(postgres.psycopg_sql))
        yield schemas
        for name in schemas.names():
            schemas.drop(name)


@pytest.fixture(autouse=True)
def dropped_schemas(
    home_schemas: Schemas, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Iterator[None]:
    """Drop the schemas that a test made, and record whether it used the server."""
    before = home_schemas.names()
    yield
    names = home_schemas.names() - before
    if names or "postgres_schema" in request.fixturenames:
        record_property(USED, len(names))
    walks = {}
    if names and (statements := home_schemas.statements.take()):
        walks = table_walks(home_schemas.connection, min(names), statements)
    for name in names:
        home_schemas.drop(name)
    assert walks == {}, "statements that walk through tables"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests used the server, and how many were skipped for which reason."""
    stats = terminalreporter.stats
    ends = [report for kind in stats for report in stats[kind] if getattr(report, "when", "") == "teardown"]
    used = sum(any(name == USED for name, _ in report.user_properties) for report in ends)
    terminalreporter.section("engines")
    terminalreporter.line(f"{used} tests used PostgreSQL")
    for beginning in REASONS.values():
        reasons = Counter(
            str(report.longrepr[2]).partition(beginning)[2]
            for report in stats.get("skipped", ())
            if isinstance(report.longrepr, tuple) and beginning in str(report.longrepr[2])
        )
        terminalreporter.line(f"{beginning}{reasons.total()}")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"  {count:5} {reason}")
