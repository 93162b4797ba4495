"""Checks of the PostgreSQL server of the sessions: durability, access, load, vacuum, indexes, replication and leases.

All facts are read in one round trip, and what needs an extension in a second one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_core import HermesHome
from hermes_core.config import Config
from hermes_core.errors import HermesError
from hermes_core.health.finding import Finding, failed
from hermes_core.safety.terminal import counted
from hermes_core.sessions.home_store import open_sessions
from hermes_memory_postgresql.postgres import PostgresDatabase
from hermes_memory_postgresql.schema import index_statements

if TYPE_CHECKING:
    from hermes_core.sessions.session_store import SessionStore

MAX_TRANSACTION_S = 60.0
"""Age of a transaction after which it is reported: it keeps vacuum from removing anything newer."""

MAX_CLOCK_DIFFERENCE_S = 2.0
MAX_CONNECTION_SHARE = 0.8

MIN_DEAD_ROWS = 10_000
MAX_DEAD_SHARE = 0.2

MIN_BLOATED_BYTES = 16 * 2**20
MAX_BLOAT_FACTOR = 4.0
"""Size of an index, in multiples of what its rows need, from which it is reported. A fresh one has about 1.2."""

MAX_PENDING_KB = 1024
"""Words of new messages that wait in front of an index; each search reads all of them."""

EXPIRED_LEASE_S = 60.0
"""Seconds after the end of a lease in which some worker should have taken it over."""

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_SAFE_MODES = ("verify-ca", "verify-full")

_SETTINGS = (
    "server_version",
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "synchronous_standby_names",
    "default_transaction_isolation",
    "transaction_read_only",
    "max_connections",
    "superuser_reserved_connections",
    "autovacuum",
)

_FACTS = {
    "settings": f"SELECT {', '.join(f'current_setting({name!r}) AS {name}' for name in _SETTINGS)}",
    "role": """
        SELECT current_user AS name, r.rolsuper AS super, r.rolconnlimit AS connections, pg_backend_pid() AS pid,
            extract(epoch FROM clock_timestamp())::double precision AS clock,
            pg_has_role('pg_read_all_stats', 'USAGE') AS sees_all, pg_is_in_recovery() AS standby
        FROM pg_roles r WHERE r.rolname = current_user
    """,
    "extensions": """
        SELECT a.name, a.installed_version IS NOT NULL AS installed FROM pg_available_extensions a
        WHERE a.name = 'btree_gin'
    """,
    "connections": "SELECT count(*) AS used, count(*) FILTER (WHERE usename = current_user) AS mine FROM pg_stat_activity WHERE datid IS NOT NULL AND usesysid IS NOT NULL",
    "transaction": """
        SELECT pid, usename, state, extract(epoch FROM clock_timestamp() - xact_start)::double precision AS age
        FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND usesysid IS NOT NULL
        ORDER BY xact_start LIMIT 1
    """,
    "standbys": """
        SELECT count(*) AS connected, count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous,
            count(sync_state) AS known FROM pg_stat_replication
    """,
    "collations": """
        SELECT c.relname AS name, a.attname AS place, l.collname AS collation FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid JOIN pg_collation l ON l.oid = a.attcollation
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
            AND l.collname NOT IN ('C', 'POSIX', 'ucs_basic', 'pg_c_utf8') ORDER BY 1, 2
    """,
    "rights": """
        SELECT c.relname AS name, pg_has_role(c.relowner, 'USAGE') AS owned,
            array_to_string(ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p
                WHERE NOT has_table_privilege(c.oid, p)), ', ') AS missing
        FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' ORDER BY 1
    """,
    "tables": """
        SELECT t.relname AS name, t.n_live_tup AS live, t.n_dead_tup AS dead, c.reltuples < 0 AS unknown,
            extract(epoch FROM now() - greatest(t.last_vacuum, t.last_autovacuum))::double precision AS vacuumed,
            EXISTS (SELECT 1 FROM unnest(c.reloptions) o WHERE o LIKE 'autovacuum_enabled=%'
                AND NOT split_part(o, '=', 2)::boolean) AS switched_off
        FROM pg_stat_user_tables t JOIN pg_class c ON c.oid = t.relid
        WHERE t.schemaname = current_schema() ORDER BY 1
    """,
    "indexes": """
        SELECT i.relname AS name, t.relname AS of_table, x.indisvalid AS valid, m.amname AS kind,
            pg_relation_size(i.oid) AS bytes, pg_table_size(t.oid) AS table_bytes, i.reltuples::double precision AS rows,
            16 + coalesce((SELECT sum(s.avg_width) FROM pg_attribute a JOIN pg_stats s ON s.attname = a.attname
                WHERE a.attrelid = t.oid AND a.attnum = ANY (x.indkey::int2[])
                AND s.schemaname = current_schema() AND s.tablename = t.relname), 8) AS width,
            (SELECT split_part(o, '=', 2)::bigint FROM unnest(i.reloptions) o
                WHERE o LIKE 'gin_pending_list_limit=%') AS pending_kb
        FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
        JOIN pg_am m ON m.oid = i.relam WHERE t.relnamespace = current_schema()::regnamespace ORDER BY 1
    """,
    "leases": """
        SELECT provider, count(*) AS lines, sum(pending) AS pending FROM outbox_lines
        WHERE holder <> '' AND pending > 0
            AND until < extract(epoch FROM clock_timestamp())::double precision - :expired
        GROUP BY provider ORDER BY provider
    """,
    "pending": """
        SELECT n.nspname AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE p.proname = 'pgstatginindex' AND has_function_privilege(p.oid, 'EXECUTE')
            AND has_schema_privilege(n.oid, 'USAGE') LIMIT 1
    """,
}

Facts = Mapping[str, list[Any]]


def examine_home(folder: Path, config: Config) -> Iterator[Finding]:
    """Yield the findings about the server of a home, and about the files that it replaces."""
    home = HermesHome(folder)
    yield from examine_server(home, config)


def examine_server(
    home: HermesHome, config: Config, clock: Callable[[], float] = time.time
) -> Iterator[Finding]:
    """Yield the findings about the server of the sessions and about its search index, or its fault."""
    try:
        with contextlib.closing(open_sessions(home, config)) as sessions:
            yield from _examine(sessions, config, clock)
    except HermesError as exc:
        yield failed("server", exc.message, exc.remedy)


def _examine(sessions: SessionStore, config: Config, clock: Callable[[], float]) -> Iterator[Finding]:
    database = sessions.database
    count = counted(sessions.counts()["messages"], "message")
    started = clock()
    rows = database.read([(sql, {"expired": EXPIRED_LEASE_S}) for sql in _FACTS.values()])
    asked = (started + clock()) / 2
    facts = dict(zip(_FACTS, rows, strict=True))
    settings = facts["settings"][0]
    schema = config.storage.schema
    yield Finding(
        "server", "ok", f"PostgreSQL {settings['server_version']}, {database.label}, schema {schema}"
    )
    checks = (
        _examine_durability(facts),
        _examine_standbys(facts),
        _examine_role(facts, schema),
        _examine_address(sessions, config, facts),
        _examine_load(facts, config),
        _examine_clock(facts, asked),
        _examine_extensions(facts),
        _examine_collations(facts),
        _examine_tables(facts, schema),
        _examine_indexes(facts),
        _examine_pending(sessions, facts),
        _examine_leases(facts),
    )
    findings = [finding for check in checks for finding in check]
    yield from findings
    if not findings:
        used, most = facts["connections"][0]["used"], settings["max_connections"]
        yield Finding("server settings", "ok", f"durable, {used} of {most} connections in use")
    if faults := sessions.index.check():
        more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
        yield failed(
            "search index",
            f"it does not fit the messages: {faults[0]}{more}",
            "hermes-memory sessions rebuild makes it anew from the messages",
        )
    else:
        yield Finding("search index", "ok", f"{count} can be found")


# ------------------------------------------------------------------ durability


def _examine_durability(facts: Facts) -> Iterator[Finding]:
    settings = facts["settings"][0]
    if settings["fsync"] != "on":
        yield failed(
            "fsync",
            "it is off: a power cut may destroy the whole database",
            "ALTER SYSTEM SET fsync = on, then reload",
        )
    if settings["full_page_writes"] != "on":
        yield failed(
            "full_page_writes",
            "it is off: a power cut may leave half-written pages",
            "ALTER SYSTEM SET full_page_writes = on, then reload, unless the file system writes pages whole",
        )
    commit, named = settings["synchronous_commit"], settings["synchronous_standby_names"]
    if commit == "off":
        yield failed(
            "synchronous_commit",
            "it is off: a crash of the server loses turns that were acknowledged",
            "ALTER ROLE or ALTER SYSTEM SET synchronous_commit = on",
        )
    elif named and commit == "local":
        yield Finding(
            "synchronous_commit",
            "warning",
            f"it is 'local', so that nobody waits for the standby {named!r}",
            "ALTER ROLE or ALTER SYSTEM SET synchronous_commit = on",
        )


def _examine_standbys(facts: Facts) -> Iterator[Finding]:
    settings, role, standbys = facts["settings"][0], facts["role"][0], facts["standbys"][0]
    if role["standby"] or settings["transaction_read_only"] == "on":
        yield failed(
            "server",
            "it takes no writes: a standby, or default_transaction_read_only is on",
            "add target_session_attrs=read-write to storage.url, with all hosts",
        )
        return
    named = settings["synchronous_standby_names"]
    if not named:
        return
    if not standbys["synchronous"] and (not standbys["connected"] or standbys["known"]):
        yield failed(
            "standby",
            f"none of synchronous_standby_names {named!r} is connected, so that commits wait for it",
            "start the standby, or take it out: ALTER SYSTEM SET synchronous_standby_names = '', then reload",
        )
    elif not role["sees_all"]:
        yield Finding(
            "standby",
            "note",
            f"the role {role['name']!r} can't see whether {named!r} keeps up",
            f"GRANT pg_read_all_stats TO {role['name']}",
        )


# ------------------------------------------------------------------ access


def _examine_role(facts: Facts, schema: str) -> Iterator[Finding]:
    role, name = facts["role"][0], facts["role"][0]["name"]
    isolation = facts["settings"][0]["default_transaction_isolation"]
    if isolation != "read committed":
        yield failed(
            "isolation",
            f"transactions are {isolation!r}: turns fail that would wait for one another",
            f"ALTER ROLE {name} SET default_transaction_isolation = 'read committed'",
        )
    if role["super"]:
        yield Finding(
            "role",
            "warning",
            f"{name!r} is a superuser: it may read and destroy all homes on the server",
            "give each home a role that owns its schema only: CREATE ROLE ... LOGIN",
        )
    missing = [f"{row['missing']} on {row['name']}" for row in facts["rights"] if row["missing"]]
    if missing:
        yield failed(
            "role",
            f"{name!r} lacks {_first(missing)}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {name}",
        )
    foreign = [row["name"] for row in facts["rights"] if not row["owned"]]
    if foreign:
        yield Finding(
            "role",
            "warning",
            f"{name!r} does not own {_first(foreign)}, so that an upgrade can't change it",
            f"ALTER TABLE {schema}.{foreign[0]} OWNER TO {name}",
        )


def _examine_address(sessions: SessionStore, config: Config, facts: Facts) -> Iterator[Finding]:
    """Examine the way to the server: encryption, and a pooler between."""
    database = sessions.database
    assert isinstance(database, PostgresDatabase)
    link = database.link()
    local = link.host.startswith("/") or link.host in _LOCAL_HOSTS or not link.host
    if not local and link.sslmode not in _SAFE_MODES:
        yield Finding(
            "sslmode",
            "warning",
            f"{link.host!r} is another machine, and {'its certificate is not checked' if link.encrypted else 'nothing is encrypted'}",
            "add sslmode=verify-full to storage.url",
        )
    # A pooler gives its own number for the process that serves a connection.
    if link.pid != facts["role"][0]["pid"] and config.storage.prepare == "auto":
        yield Finding(
            "pooler",
            "warning",
            "a pooler stands before the server, and storage.prepare is 'auto', which PgBouncer can do from 1.21 on",
            "set max_prepared_statements there, or run: hermes-memory config set storage.prepare off",
        )


def _examine_load(facts: Facts, config: Config) -> Iterator[Finding]:
    settings, role = facts["settings"][0], facts["role"][0]
    most = int(settings["max_connections"]) - int(settings["superuser_reserved_connections"])
    used = facts["connections"][0]["used"]
    if 0 <= role["connections"] < most:
        used, most = facts["connections"][0]["mine"], role["connections"]
    if used > most * MAX_CONNECTION_SHARE:
        yield Finding(
            "connections",
            "warning",
            f"{used} of {most} are in use",
            "raise max_connections, lower storage.pool, or put PgBouncer in transaction mode before the server",
        )
    elif config.storage.pool > most:
        yield Finding(
            "connections",
            "warning",
            f"storage.pool is {config.storage.pool}, and the server takes {most}",
            "lower storage.pool: all programs together must stay below that",
        )
    for row in facts["transaction"]:
        if row["age"] > MAX_TRANSACTION_S:
            yield Finding(
                "transactions",
                "warning",
                f"one of {row['usename']!r} is open for {row['age']:.0f} s ({row['state']}), and keeps vacuum from its work",
                f"end that program, or SELECT pg_terminate_backend({row['pid']})",
            )


def _examine_clock(facts: Facts, asked: float) -> Iterator[Finding]:
    difference = asked - facts["role"][0]["clock"]
    if abs(difference) > MAX_CLOCK_DIFFERENCE_S:
        yield Finding(
            "clock",
            "warning",
            f"this machine is {abs(difference):.0f} s {'ahead of' if difference > 0 else 'behind'} the server: "
            "messages of several machines get wrong times",
            "let both keep the time with NTP",
        )


# ------------------------------------------------------------------ tables


def _examine_extensions(facts: Facts) -> Iterator[Finding]:
    installed = {row["name"]: row["installed"] for row in facts["extensions"]}
    if not installed.get("btree_gin"):
        yield failed(
            "extension btree_gin",
            "it is not there, so that searches have no index",
            "CREATE EXTENSION btree_gin WITH SCHEMA public, then make the indexes that are named below",
        )


def _examine_collations(facts: Facts) -> Iterator[Finding]:
    rows = facts["collations"]
    if rows:
        name, place, collation = rows[0]["name"], rows[0]["place"], rows[0]["collation"]
        columns = _first([f"{row['name']}.{row['place']}" for row in rows])
        yield failed(
            "collation",
            f"{columns}: texts are compared by {collation!r}, not byte by byte, so that ranges of ids are wrong",
            f'ALTER TABLE {name} ALTER COLUMN "{place}" TYPE text COLLATE "C"',
        )


def _examine_tables(facts: Facts, schema: str) -> Iterator[Finding]:
    if facts["settings"][0]["autovacuum"] != "on":
        yield Finding(
            "vacuum",
            "warning",
            "autovacuum is off: deleted rows stay, and plans get wrong",
            "ALTER SYSTEM SET autovacuum = on, then reload",
        )
    for row in facts["tables"]:
        table = f"{schema}.{row['name']}"
        if row["dead"] > MIN_DEAD_ROWS and row["dead"] > row["live"] * MAX_DEAD_SHARE:
            ago = "never" if row["vacuumed"] is None else f"{row['vacuumed'] / 3600:.0f} h ago"
            yield Finding(
                "vacuum",
                "warning",
                f"{row['name']} has {row['dead']:,} dead rows beside {row['live']:,}; last vacuum: {ago}",
                f"VACUUM (ANALYZE) {table}",
            )
        elif row["switched_off"]:
            yield Finding(
                "vacuum",
                "warning",
                f"autovacuum is off for {row['name']}",
                f"ALTER TABLE {table} RESET (autovacuum_enabled)",
            )
        elif row["unknown"] and row["live"] > MIN_DEAD_ROWS:
            yield Finding(
                "vacuum",
                "warning",
                f"{row['name']} has {row['live']:,} rows and was never analyzed: plans are guesses",
                f"ANALYZE {table}",
            )


def _examine_indexes(facts: Facts) -> Iterator[Finding]:
    statements, rows = index_statements(), facts["indexes"]
    names = {row["name"] for row in rows}
    for name in sorted(statements.keys() - names):
        yield failed(
            "indexes", f"{name} is not there: whole tables are read", " ".join(statements[name].split())
        )
    for row in rows:
        name = row["name"]
        if not row["valid"]:
            remedy = f"REINDEX INDEX CONCURRENTLY {name}" if name in statements else f"DROP INDEX {name}"
            yield failed(
                "indexes", f"{name} of {row['of_table']} is not valid: it costs time and is not used", remedy
            )
            continue
        gin = row["kind"] == "gin"
        # The words of a message take less than the message, and a key as much as its columns.
        needed = row["table_bytes"] / 2 if gin else max(row["rows"], 1) * row["width"]
        if row["bytes"] > max(MIN_BLOATED_BYTES, needed * MAX_BLOAT_FACTOR) and row["rows"] >= 0:
            yield Finding(
                "indexes",
                "warning",
                f"{name} has {row['bytes'] / 2**20:,.0f} MiB, several times of what its rows need",
                f"REINDEX INDEX CONCURRENTLY {name}",
            )
        if gin and (row["pending_kb"] is None or row["pending_kb"] > MAX_PENDING_KB):
            limit = "the server's limit" if row["pending_kb"] is None else f"{row['pending_kb']} kB"
            yield Finding(
                "indexes",
                "warning",
                f"{name} lets words wait up to {limit}, which each search reads as well",
                f"ALTER INDEX {name} SET (gin_pending_list_limit = 256)",
            )


def _examine_pending(sessions: SessionStore, facts: Facts) -> Iterator[Finding]:
    """Examine the words that wait in front of an index, which only the extension pgstattuple can count."""
    names = [row["name"] for row in facts["indexes"] if row["kind"] == "gin" and row["valid"]]
    if not facts["pending"] or not names:
        return
    extension = facts["pending"][0]["name"]
    queries = [
        (f"""SELECT pending_pages FROM "{extension}".pgstatginindex('"{name}"'::regclass)""", ())
        for name in names
    ]
    for name, rows in zip(names, sessions.database.read(queries), strict=True):
        waiting = rows[0][0] * 8
        if waiting > MAX_PENDING_KB:
            yield Finding(
                "indexes",
                "warning",
                f"{waiting:,} kB of terms wait in front of {name}, and each search reads them",
                f"SELECT gin_clean_pending_list('{name}'), and see that autovacuum runs",
            )


def _examine_leases(facts: Facts) -> Iterator[Finding]:
    for row in facts["leases"]:
        yield Finding(
            "leases",
            "warning",
            f"{counted(row['pending'], 'write')} for {row['provider']} of {counted(row['lines'], 'session')} belong to a "
            "machine that has stopped, and no other one takes them",
            f"start a program whose memory.provider is {row['provider']}",
        )


def _first(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
