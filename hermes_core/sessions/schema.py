"""The schema of state.db. A released version never changes; the next version appends a migration to the list.

Message text is stored once, in the table `messages`. The full-text index (FTS5) holds its terms, as `recall.tokens` cuts
them. Rewound messages are not in the index.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hermes_core.curated.tables import NOTE_TABLES
from hermes_core.outbox.store import OUTBOX_TABLES
from hermes_core.recall.tokens import CUT_VERSION
from hermes_core.sessions.search import index
from hermes_core.storage.engine import REPAIR
from hermes_core.storage.sqlite import SCHEMA_1, Database, JournalMode, Migration, create_tables
from hermes_core.storage.tables import Column, Index, Table, integer, number, real, text, texts

# The rows whose origin may be lower than that of the session's own people: what was stored with a low origin, and all
# results of tools, which hosts and imports may store without an origin.
MAY_BE_LOWER = "(role = 'tool' OR origin IN ('file', 'user', 'provider', 'import', 'tool', 'web'))"

SESSION_TABLES = (
    # The frozen memory of a session's prompt, `memory_prompt`, is NULL if nothing was frozen yet, and '' for a new user.
    Table(
        "sessions",
        (
            *(number("key"), text("id", unique=True), text("source")),
            *texts(
                "user",
                "parent_id",
                "relation",
                "title",
                "model",
                "model_config",
                "system_prompt",
                "cwd",
                "identity",
            ),
            *(real("started_at"), real("last_active"), real("ended_at", null=True), text("end_reason", "")),
            *(integer(f"{what}_count", 0) for what in ("message", "tool_call", "rewind")),
            *(
                integer(f"{what}_tokens", 0)
                for what in ("input", "output", "cache_read", "cache_write", "reasoning")
            ),
            *(real("cost_usd", 0), text("memory_prompt", null=True)),
        ),
        (
            Index("sessions_by_activity", "last_active DESC, key DESC"),
            Index("sessions_by_user", '"user", last_active DESC, key DESC'),
            Index("sessions_by_parent", "parent_id", where="parent_id <> ''"),
            # By user: a number that is added to a title would reveal that another user has a session of that title.
            Index("sessions_by_title", 'title, "user"', where="title <> ''", unique=True),
            # Finds the highest number among the titles of a user without reading all of them.
            Index("sessions_by_title_length", '"user", length(title), title', where="title <> ''"),
            # Lists a user's sessions of some sources without reading those of the others.
            Index("sessions_by_source_user", 'source, "user", last_active DESC'),
        ),
        fill=70,
    ),
    # `position` counts the messages of a session that are not rewound, without gaps; the big columns stand last, so
    # that the small ones are read without following overflow pages.
    Table(
        "messages",
        (
            *(
                number("id"),
                integer("session_key", references="sessions (key)"),
                integer("position", null=True),
            ),
            *(integer("state", 0), integer("size"), real("timestamp"), text("role")),
            *texts("origin", "speaker", "ref", "tool_name", "tool_call_id"),
            *(text("content"), *texts("tool_calls", "reasoning", "parts", "native")),
        ),
        (
            Index("messages_by_position", "session_key, position", unique=True),
            Index("messages_by_ref", "session_key, ref", where="ref <> ''", unique=True),
            Index("messages_by_time", "timestamp"),
            Index("messages_by_speaker", "speaker", where="speaker > ''"),
            Index(
                "messages_of_low_origin", "session_key, role, origin, tool_name, state", where=MAY_BE_LOWER
            ),
        ),
    ),
    Table(
        "turns",
        (
            *(number("key"), text("id", unique=True), integer("session_key", references="sessions (key)")),
            *(
                integer("number"),
                integer("first_message_id"),
                integer("last_message_id"),
                integer("state", 0),
            ),
            *(text("author", ""), real("at"), real("stored_at")),
        ),
        (
            Index("turns_by_session", "session_key, last_message_id"),
            # Finds the last number of a session, and counts its turns, without reading all of them.
            Index("turns_by_number", "session_key, number", where="state = 0"),
        ),
    ),
    Table("turn_records", (integer("turn_key", references="turns (key)", key=True), text("record"))),
    Table(
        "open_turns",
        (
            *(number("key"), text("id", unique=True), integer("session_key", references="sessions (key)")),
            *(*texts("user", "author", "contexts"), real("updated_at")),
        ),
        (Index("open_turns_by_session", "session_key"), Index("open_turns_by_time", "updated_at")),
    ),
    Table(
        "open_messages",
        (integer("turn_key", references="open_turns (key)"), integer("number"), text("message")),
        key=("turn_key", "number"),
    ),
    Table(
        "daily_usage",
        (
            *(text("user"), text("day"), integer("turns", 0)),
            *(integer(f"{what}_tokens", 0) for what in ("recall", "prompt", "input", "cache_read", "output")),
        ),
        key=("user", "day"),
    ),
    Table("state_meta", (text("key", key=True), text("value"))),
    Table(
        "host_state",
        (text("scope"), text("owner"), text("key"), text("value")),
        key=("scope", "owner", "key"),
    ),
    Table("leases", (text("name", key=True), text("holder"), real("until")), fill=50),
)

# In an order in which each row comes after the rows that it refers to.
TABLES = (*SESSION_TABLES, *OUTBOX_TABLES, *NOTE_TABLES)
"""The tables that every engine has."""

STORED_TABLES = tuple(table for table in TABLES if table.name not in ("leases", "outbox_lines"))
"""The tables of what is kept: leases end by time, and the lines of the outbox are made by its rows."""

# A vector for each piece of a message. The table stays empty without the package hermes-memory-semantic.
_VECTORS = Table(
    "vectors",
    (
        integer("message_id", references="messages (id)"),
        *(integer("piece"), integer("first"), integer("last"), text("model")),
        *(Column("own", "blob"), Column("words", "blob")),
    ),
    key=("message_id", "piece"),
)


def _create(connection: sqlite3.Connection) -> None:
    create_tables(connection, (*TABLES, _VECTORS))


def _cut_text(connection: sqlite3.Connection) -> None:
    """Rebuild the search index with this version's rules for cutting text into words.

    Forget the migrations of newer rules, so that a newer version of this package rebuilds the index again.
    """
    later = (
        "DELETE FROM schema_migrations WHERE name LIKE 'text-cut-%' AND CAST(substr(name, 10) AS INTEGER) > ?"
    )
    connection.execute(later, (int(CUT_VERSION),))
    index.rebuild_index(connection)


MIGRATIONS: tuple[Migration, ...] = ((SCHEMA_1, _create), (f"text-cut-{CUT_VERSION}", _cut_text))


def open_file(path: Path, journal_mode: JournalMode, read_only: bool, *, marked: bool = False) -> Database:
    """Return the engine of the file of a store. The first write makes the file.

    Args:
        marked: True to open a store that is moved to another engine. No other program writes to it.
    """
    return Database(
        path,
        MIGRATIONS,
        journal_mode=journal_mode,
        read_only=read_only,
        repair=REPAIR,
        empty_is_damage=True,
        queue_writers=not marked,
        marked=marked,
    )
