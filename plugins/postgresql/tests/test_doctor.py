"""Findings about the PostgreSQL server of the sessions, each with the fault really made."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from hermes_core.cli import main
from hermes_core.config import load_config, set_value
from hermes_core.health.databases import examine_databases
from hermes_core.health.finding import Finding
from hermes_core.home import HermesHome
from hermes_core.outbox.lines import DeliveryLines
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_core.sessions.home_store import open_sessions
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_postgresql import doctor as checks
from hermes_memory_postgresql import postgres
from hermes_memory_postgresql.doctor import examine_server
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.names_engines("faults of a server of its own")

Admin = Callable[..., None]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server as a production one is set up."""
    with contextlib.closing(PostgresServer(max_connections="24")) as started:
        # Settings of the command line can't be changed by ALTER SYSTEM.
        for name in ("fsync", "full_page_writes", "autovacuum"):
            del started._settings[name]
        started.stop()
        started.start()
        yield started


@pytest.fixture
def admin(server: PostgresServer) -> Iterator[Admin]:
    """Run statements as the superuser; settings of the whole server are taken back."""
    with contextlib.closing(psycopg.connect(server.url, autocommit=True)) as connection:
        connection.execute("SET default_transaction_read_only = off")

        def run(*statements: str) -> None:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]  # a str of the test's own
                if statement.startswith("ALTER SYSTEM"):
                    connection.execute("SELECT pg_reload_conf()")
                    time.sleep(0.2)

        yield run
        run("ALTER SYSTEM RESET ALL")


@pytest.fixture
def home(server: PostgresServer, hermes_home: HermesHome, admin: Admin) -> Iterator[HermesHome]:
    """A home with a role, a database and a schema of its own, and one message."""
    name = f"home_{uuid.uuid4().hex[:12]}"
    admin(f"CREATE ROLE {name} LOGIN", f"CREATE DATABASE {name} OWNER {name}")
    set_value(hermes_home, "storage.url", f"postgresql://{name}@127.0.0.1:{server.port}/{name}")
    set_value(hermes_home, "recall.semantic", "off")
    with opened(hermes_home) as db:
        db.create_session("s1")
        db.append_message("s1", "user", "the tent is in the garage")
    yield hermes_home
    admin(f"DROP DATABASE {name} WITH (FORCE)", f"DROP ROLE {name}")


@contextlib.contextmanager
def opened(home: HermesHome) -> Iterator[SessionStore]:
    with contextlib.closing(open_sessions(home, load_config(home))) as db:
        yield db


def name_of(home: HermesHome) -> str:
    return load_config(home).storage.url.rpartition("/")[2]


def run_in(home: HermesHome, server: PostgresServer, *statements: str) -> None:
    """Run statements as the superuser in the database of the home."""
    url = server.url.rpartition("/")[0] + f"/{name_of(home)}?options=-csearch_path%3Dhermes,public"
    with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[call-overload]


def faults(home: HermesHome) -> list[Finding]:
    return [finding for finding in examine_server(home, load_config(home)) if finding.state != "ok"]


def fault(home: HermesHome) -> Finding:
    """The one finding that is not "ok"."""
    (finding,) = faults(home)
    assert finding.remedy
    assert "\n" not in finding.detail + finding.remedy
    return finding


def test_a_server_as_it_should_be_has_no_faults(home: HermesHome) -> None:
    findings = {finding.what: finding for finding in examine_server(home, load_config(home))}
    assert {finding.state for finding in findings.values()} == {"ok"}
    assert "1 message can be found" in findings["search index"].detail
    assert "durable" in findings["server settings"].detail


def test_all_facts_take_few_round_trips(home: HermesHome, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    execute, send = psycopg.Cursor.execute, postgres.PostgresDatabase.send

    def note(self: Any, query: Any, *more: Any, **named: Any) -> Any:
        if not self.connection.pgconn.pipeline_status:
            sent.append(str(query))
        return execute(self, query, *more, **named)

    def note_pipeline(self: Any, *more: Any) -> Any:
        sent.append("pipeline")
        return send(self, *more)

    monkeypatch.setattr(psycopg.Cursor, "execute", note)
    monkeypatch.setattr(postgres.PostgresDatabase, "send", note_pipeline)
    assert faults(home) == []
    # The search path, the record of migrations, the counts, the facts, and a sample of the search index.
    assert len(sent) <= 9, sent


def test_the_findings_are_lines_and_json_of_doctor(home: HermesHome, admin: Admin) -> None:
    admin("ALTER SYSTEM SET synchronous_commit = off")
    result = CliRunner().invoke(main, ["doctor", "--json"])
    findings = {one["what"]: one for one in json.loads(result.stdout)["findings"]}
    assert findings["synchronous_commit"]["state"] == "failed"
    assert "ALTER SYSTEM" in findings["synchronous_commit"]["remedy"]
    assert result.exit_code == 3


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("fsync = off", "fsync"),
        ("full_page_writes = off", "full_page_writes"),
        ("synchronous_commit = off", "synchronous_commit"),
        ("autovacuum = off", "vacuum"),
        ("default_transaction_isolation = 'serializable'", "isolation"),
    ],
)
def test_a_setting_that_breaks_a_promise_is_named(
    home: HermesHome, admin: Admin, setting: str, what: str
) -> None:
    admin(f"ALTER SYSTEM SET {setting}")
    finding = fault(home)
    assert finding.what == what
    assert finding.state == ("warning" if what == "vacuum" else "failed")


def test_a_server_that_takes_no_writes(home: HermesHome, admin: Admin) -> None:
    admin("ALTER SYSTEM SET default_transaction_read_only = on")
    assert "target_session_attrs" in fault(home).remedy


def test_a_standby_that_is_named_and_absent(home: HermesHome, admin: Admin) -> None:
    admin("ALTER SYSTEM SET synchronous_standby_names = 'other_room'")
    finding = fault(home)
    assert (finding.what, finding.state) == ("standby", "failed")
    assert "other_room" in finding.detail
    admin("ALTER SYSTEM SET synchronous_commit = 'local'")
    assert [finding.what for finding in faults(home)] == ["synchronous_commit", "standby"]


def test_an_old_server(home: HermesHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "MINIMUM_POSTGRES", 99)
    assert "99 or newer" in fault(home).remedy


def test_a_superuser_and_tables_of_another_role(
    home: HermesHome, server: PostgresServer, admin: Admin
) -> None:
    name = name_of(home)
    admin(f"ALTER ROLE {name} SUPERUSER")
    assert "superuser" in fault(home).detail
    admin(f"ALTER ROLE {name} NOSUPERUSER")
    run_in(home, server, "ALTER TABLE messages OWNER TO hermes", f"GRANT ALL ON messages TO {name}")
    finding = fault(home)
    assert "does not own messages" in finding.detail
    run_in(home, server, f"REVOKE DELETE ON messages FROM {name}")
    assert "lacks DELETE on messages" in faults(home)[0].detail


def test_a_schema_that_the_connection_does_not_use(home: HermesHome, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = postgres.PostgresDatabase._connect

    def connect_without_options(self: postgres.PostgresDatabase) -> object:
        self._takes_options = False
        return connect(self)

    monkeypatch.setattr(postgres.PostgresDatabase, "_connect", connect_without_options)
    assert "SET search_path" in fault(home).remedy


def test_a_remote_host_without_encryption(home: HermesHome) -> None:
    url = load_config(home).storage.url
    set_value(home, "storage.url", url.replace("@127.0.0.1", "@db.example") + "?hostaddr=127.0.0.1")
    finding = fault(home)
    assert (finding.what, finding.state) == ("sslmode", "warning")
    assert "nothing is encrypted" in finding.detail


def test_connections_that_run_out(home: HermesHome, server: PostgresServer, admin: Admin) -> None:
    set_value(home, "storage.pool", 30)
    assert "storage.pool is 30" in fault(home).detail
    set_value(home, "storage.pool", 8)
    with contextlib.ExitStack() as stack:
        for _ in range(17):
            stack.enter_context(contextlib.closing(psycopg.connect(server.url)))
        finding = fault(home)
    assert finding.what == "connections"
    assert "of 21 are in use" in finding.detail
    admin(f"ALTER ROLE {name_of(home)} CONNECTION LIMIT 3")
    set_value(home, "storage.pool", 2)
    url = load_config(home).storage.url
    with contextlib.closing(psycopg.connect(url)), contextlib.closing(psycopg.connect(url)):
        assert "3 of 3 are in use" in fault(home).detail


def test_a_transaction_that_somebody_forgot(home: HermesHome, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(psycopg.connect(load_config(home).storage.url)) as forgotten:
        forgotten.execute("SELECT 1")
        pid = forgotten.info.backend_pid
        assert faults(home) == []
        monkeypatch.setattr(checks, "MAX_TRANSACTION_S", 0.0)
        finding = fault(home)
    assert "idle in transaction" in finding.detail
    assert f"pg_terminate_backend({pid})" in finding.remedy


@pytest.mark.parametrize(("offset", "words"), [(90.0, "90 s ahead"), (-90.0, "90 s behind")])
def test_a_clock_that_differs(home: HermesHome, offset: float, words: str) -> None:
    config = load_config(home)
    findings = [
        one for one in examine_server(home, config, lambda: time.time() + offset) if one.state != "ok"
    ]
    assert [words in one.detail for one in findings] == [True]


def test_an_extension_that_was_dropped(home: HermesHome, server: PostgresServer) -> None:
    run_in(home, server, "DROP EXTENSION btree_gin CASCADE")
    findings = {finding.detail: finding for finding in faults(home)}
    assert any("searches have no index" in detail for detail in findings)
    (missing,) = [
        finding for detail, finding in findings.items() if "messages_by_terms is not there" in detail
    ]
    run_in(home, server, "CREATE EXTENSION btree_gin", missing.remedy)
    assert faults(home) == []


def test_a_missing_extension_of_search_by_meaning_is_a_finding_about_that_search_alone(
    home: HermesHome, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HERMES_SEMANTIC")
    run_in(home, server, "DROP EXTENSION IF EXISTS vector CASCADE")
    set_value(home, "recall.semantic", "auto")
    assert faults(home) == []


def test_a_text_key_in_the_order_of_a_language(home: HermesHome, server: PostgresServer) -> None:
    run_in(home, server, 'ALTER TABLE outbox_rows ALTER COLUMN event TYPE text COLLATE "default"')
    finding = fault(home)
    assert "outbox_rows.event" in finding.detail
    run_in(home, server, finding.remedy)
    assert faults(home) == []


def test_dead_rows_and_a_table_without_vacuum(
    home: HermesHome, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_in(home, server, "ALTER TABLE messages SET (autovacuum_enabled = false)")
    assert "autovacuum is off for messages" in fault(home).detail
    monkeypatch.setattr(checks, "MIN_DEAD_ROWS", 3)
    for _ in range(5):
        run_in(
            home, server, "UPDATE messages SET speaker = speaker || 'x'", "SELECT pg_stat_force_next_flush()"
        )
    (finding,) = [one for one in faults(home) if one.detail.startswith("messages has")]
    assert "messages has 5 dead rows beside 1; last vacuum: never" in finding.detail
    run_in(home, server, finding.remedy, "ALTER TABLE messages RESET (autovacuum_enabled)")
    assert not [one for one in faults(home) if "messages" in one.detail]


def test_an_index_that_is_not_valid(home: HermesHome, server: PostgresServer) -> None:
    with opened(home) as db:
        db.append_message("s1", "user", "again")
    with pytest.raises(psycopg.errors.UniqueViolation):
        run_in(home, server, "CREATE UNIQUE INDEX CONCURRENTLY broken ON messages (role)")
    finding = fault(home)
    assert (finding.state, finding.remedy) == ("failed", "DROP INDEX broken")


def test_an_index_that_is_much_larger_than_its_rows(
    home: HermesHome, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "MIN_BLOATED_BYTES", 100_000)
    run_in(
        home,
        server,
        "INSERT INTO outbox_settled SELECT 'p', 'h', 'e' || n, '', n FROM generate_series(1, 20000) n",
        "DELETE FROM outbox_settled WHERE settled_at > 1",
        "SELECT pg_stat_force_next_flush()",
        "VACUUM (ANALYZE) outbox_settled",
    )
    findings = faults(home)
    assert {finding.what for finding in findings} == {"indexes"}
    run_in(home, server, *(finding.remedy for finding in findings))
    assert faults(home) == []


def test_words_that_wait_in_front_of_an_index(
    home: HermesHome, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_in(home, server, "ALTER INDEX messages_by_terms RESET (gin_pending_list_limit)")
    finding = fault(home)
    assert "the server's limit" in finding.detail
    run_in(
        home,
        server,
        finding.remedy,
        "CREATE EXTENSION pgstattuple",
        f"GRANT pg_stat_scan_tables TO {name_of(home)}",
    )
    assert faults(home) == []
    monkeypatch.setattr(checks, "MAX_PENDING_KB", 0)
    with opened(home) as db:
        db.append_message("s1", "user", "one more")
    run_in(home, server, "ALTER INDEX messages_by_terms SET (gin_pending_list_limit = 64)")
    waiting = [
        finding
        for finding in faults(home)
        if "kB of terms wait in front of messages_by_terms" in finding.detail
    ]
    assert "gin_clean_pending_list" in waiting[0].remedy


def test_a_lease_that_nobody_takes_over(home: HermesHome, server: PostgresServer) -> None:
    with opened(home) as db:
        outbox = Outbox(db.database)
        outbox.put("fake", NewRow("sync_turn", "e1", "s1", "{}"))
        lines = DeliveryLines(outbox, "fake")
        assert lines.next(()) is not None
        assert faults(home) == []
        run_in(home, server, "UPDATE outbox_lines SET until = until - 3600")
        finding = fault(home)
        lines.release()
    assert "1 write for fake of 1 session belong" in finding.detail
    assert faults(home) == []


def test_messages_that_the_index_does_not_find(home: HermesHome, server: PostgresServer) -> None:
    run_in(home, server, "UPDATE messages SET terms = NULL")
    assert fault(home).what == "search index"


def test_files_that_are_no_longer_read(home: HermesHome) -> None:
    for name in ("state.db", "state.db.moved-20261127t000000z"):
        (home.path / name).write_bytes(b"old")
    notes = {finding.what: finding.state for finding in examine_databases(home)}
    assert notes["state.db"] == notes["state.db.moved-20261127t000000z"] == "note"
