"""The schema of state.db. A released version never changes; the next version appends a migration to the list.

Message text is stored once, in the table `messages`. The full-text index (FTS5) holds its terms, as `recall.tokens` cuts
them. Rewound messages are not in the index.
"""

from __future__ import annotations

import sqlite3

from hermes_core.outbox.store import create_tables
from hermes_core.recall.tokens import CUT_VERSION
from hermes_core.sessions.search import index
from hermes_core.storage.sqlite import SCHEMA_1, Migration

# The rows whose origin may be lower than that of the session's own people: what was stored with a low origin, and all
# results of tools, which hosts and imports may store without an origin.
MAY_BE_LOWER = "(role = 'tool' OR origin IN ('user', 'provider', 'import', 'tool', 'web'))"

REPAIR = "it was left as it is: `hermes-memory sessions repair` copies it, then saves what can be read"

_TABLES = (
    # The frozen memory of a session's prompt, `memory_prompt`, is NULL if nothing was frozen yet, and '' for a new user.
    """
    CREATE TABLE sessions (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        source TEXT NOT NULL,
        user TEXT NOT NULL DEFAULT '',
        parent_id TEXT NOT NULL DEFAULT '',
        relation TEXT NOT NULL DEFAULT '',
        title TEXT NOT NULL DEFAULT '',
        model TEXT NOT NULL DEFAULT '',
        model_config TEXT NOT NULL DEFAULT '',
        system_prompt TEXT NOT NULL DEFAULT '',
        cwd TEXT NOT NULL DEFAULT '',
        identity TEXT NOT NULL DEFAULT '',
        started_at REAL NOT NULL,
        last_active REAL NOT NULL,
        ended_at REAL,
        end_reason TEXT NOT NULL DEFAULT '',
        message_count INTEGER NOT NULL DEFAULT 0,
        tool_call_count INTEGER NOT NULL DEFAULT 0,
        rewind_count INTEGER NOT NULL DEFAULT 0,
        input_tokens INTEGER NOT NULL DEFAULT 0,
        output_tokens INTEGER NOT NULL DEFAULT 0,
        cache_read_tokens INTEGER NOT NULL DEFAULT 0,
        cache_write_tokens INTEGER NOT NULL DEFAULT 0,
        reasoning_tokens INTEGER NOT NULL DEFAULT 0,
        cost_usd REAL NOT NULL DEFAULT 0,
        memory_prompt TEXT
    ) STRICT
    """,
    "CREATE INDEX sessions_by_activity ON sessions (last_active DESC)",
    "CREATE INDEX sessions_by_user ON sessions (user, last_active DESC)",
    "CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id <> ''",
    # By user: a number that is added to a title would reveal that another user has a session of that title.
    "CREATE UNIQUE INDEX sessions_by_title ON sessions (title, user) WHERE title <> ''",
    # Finds the highest number among the titles of a user without reading all of them.
    "CREATE INDEX sessions_by_title_length ON sessions (user, length(title), title) WHERE title <> ''",
    # Lists a user's sessions of some sources without reading those of the others.
    "CREATE INDEX sessions_by_source_user ON sessions (source, user, last_active DESC)",
    # `position` counts the messages of a session that are not rewound, without gaps; the big columns stand last, so
    # that the small ones are read without following overflow pages.
    """
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_key INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
        position INTEGER,
        state INTEGER NOT NULL DEFAULT 0,
        size INTEGER NOT NULL,
        timestamp REAL NOT NULL,
        role TEXT NOT NULL,
        origin TEXT NOT NULL DEFAULT '',
        speaker TEXT NOT NULL DEFAULT '',
        ref TEXT NOT NULL DEFAULT '',
        tool_name TEXT NOT NULL DEFAULT '',
        tool_call_id TEXT NOT NULL DEFAULT '',
        content TEXT NOT NULL,
        tool_calls TEXT NOT NULL DEFAULT '',
        reasoning TEXT NOT NULL DEFAULT '',
        parts TEXT NOT NULL DEFAULT '',
        native TEXT NOT NULL DEFAULT ''
    ) STRICT
    """,
    "CREATE UNIQUE INDEX messages_by_position ON messages (session_key, position)",
    "CREATE UNIQUE INDEX messages_by_ref ON messages (session_key, ref) WHERE ref <> ''",
    "CREATE INDEX messages_by_speaker ON messages (speaker) WHERE speaker > ''",
    "CREATE INDEX messages_of_low_origin ON messages (session_key, role, origin, tool_name, state)"
    f" WHERE {MAY_BE_LOWER}",
    """
    CREATE TABLE turns (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        session_key INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        first_message_id INTEGER NOT NULL,
        last_message_id INTEGER NOT NULL,
        state INTEGER NOT NULL DEFAULT 0,
        author TEXT NOT NULL DEFAULT '',
        at REAL NOT NULL,
        stored_at REAL NOT NULL
    ) STRICT
    """,
    "CREATE INDEX turns_by_session ON turns (session_key, last_message_id)",
    # Finds the last number of a session, and counts its turns, without reading all of them.
    "CREATE INDEX turns_by_number ON turns (session_key, number) WHERE state = 0",
    "CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    # A vector for each piece of a message. The table stays empty without the package hermes-memory-semantic.
    """
    CREATE TABLE vectors (
        message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        piece INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
        model TEXT NOT NULL, own BLOB NOT NULL, words BLOB NOT NULL,
        PRIMARY KEY (message_id, piece)
    ) STRICT
    """,
    """
    CREATE TABLE open_turns (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        session_key INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
        user TEXT NOT NULL, author TEXT NOT NULL, contexts TEXT NOT NULL, updated_at REAL NOT NULL
    ) STRICT
    """,
    "CREATE INDEX open_turns_by_session ON open_turns (session_key)",
    "CREATE INDEX open_turns_by_time ON open_turns (updated_at)",
    """
    CREATE TABLE open_messages (
        turn_key INTEGER NOT NULL REFERENCES open_turns (key) ON DELETE CASCADE,
        number INTEGER NOT NULL, message TEXT NOT NULL, PRIMARY KEY (turn_key, number)
    ) STRICT
    """,
    """
    CREATE TABLE host_state (
        scope TEXT NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (scope, owner, key)
    ) STRICT
    """,
    """
    CREATE TABLE turn_records (
        turn_key INTEGER PRIMARY KEY REFERENCES turns (key) ON DELETE CASCADE, record TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE daily_usage (
        user TEXT NOT NULL, day TEXT NOT NULL,
        turns INTEGER NOT NULL DEFAULT 0, recall_tokens INTEGER NOT NULL DEFAULT 0,
        prompt_tokens INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER NOT NULL DEFAULT 0,
        cache_read_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (user, day)
    ) STRICT
    """,
    "CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until REAL NOT NULL) STRICT",
)


def _create(connection: sqlite3.Connection) -> None:
    for statement in _TABLES:
        connection.execute(statement)
    create_tables(connection)


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
