"""The schema of state.db as named migrations. A released migration never changes; new migrations are added at the end.

Message text is stored once, in the table `messages`. There are two full-text indexes (FTS5). The word index reads its
text from a view of the table, and leaves out text in scripts without spaces between words ("dense runs", see
`recall.tokens`). The gram index has the single characters and pairs of characters of such text. Rewound messages are in
neither index.
"""

from __future__ import annotations

import json
import sqlite3

from hermes_core.contract.values import Session
from hermes_core.outbox.store import create_tables
from hermes_core.recall.tokens import CUT_VERSION
from hermes_core.sessions.search import index
from hermes_core.storage.sqlite import Migration

_TABLES = (
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
        cost_usd REAL NOT NULL DEFAULT 0
    ) STRICT
    """,
    "CREATE INDEX sessions_by_activity ON sessions (last_active DESC)",
    "CREATE INDEX sessions_by_user ON sessions (user, last_active DESC)",
    "CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id <> ''",
    "CREATE UNIQUE INDEX sessions_by_title ON sessions (title) WHERE title <> ''",
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
        speaker TEXT NOT NULL DEFAULT '',
        ref TEXT NOT NULL DEFAULT '',
        tool_name TEXT NOT NULL DEFAULT '',
        tool_call_id TEXT NOT NULL DEFAULT '',
        content TEXT NOT NULL,
        tool_calls TEXT NOT NULL DEFAULT '',
        reasoning TEXT NOT NULL DEFAULT '',
        parts TEXT NOT NULL DEFAULT ''
    ) STRICT
    """,
    "CREATE UNIQUE INDEX messages_by_position ON messages (session_key, position)",
    "CREATE UNIQUE INDEX messages_by_ref ON messages (session_key, ref) WHERE ref <> ''",
    "CREATE INDEX messages_by_speaker ON messages (speaker) WHERE speaker > ''",
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
    "CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    """
    CREATE VIEW indexed_messages AS
    SELECT id, content, trim(tool_name || ' ' || tool_calls) AS calls FROM messages WHERE state < 2
    """,
)


def _create(connection: sqlite3.Connection) -> None:
    for statement in _TABLES:
        connection.execute(statement)
    index.create_indexes(connection)


def _cut_text(connection: sqlite3.Connection) -> None:
    """Rebuild the search indexes with this version's rules for cutting text into words.

    Forget the migrations of newer rules, so that a newer version of this package rebuilds the indexes again.
    """
    later = (
        "DELETE FROM schema_migrations WHERE name LIKE 'text-cut-%' AND CAST(substr(name, 10) AS INTEGER) > ?"
    )
    connection.execute(later, (int(CUT_VERSION),))
    index.rebuild_indexes(connection)


def _add_vectors(connection: sqlite3.Connection) -> None:
    """Create the table `vectors` for search by meaning. It stays empty without the extra `[semantic]`."""
    connection.execute(
        """CREATE TABLE vectors (
            message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
            model TEXT NOT NULL, own BLOB NOT NULL, pair BLOB NOT NULL
        ) STRICT"""
    )


def _store_words(connection: sqlite3.Connection) -> None:
    """Change the table `vectors` to store a vector for each word of a message, and delete all old vectors.

    Of each number in a vector only the sign is stored.
    """
    connection.execute("DELETE FROM vectors")
    connection.execute("ALTER TABLE vectors RENAME COLUMN pair TO words")


def give_to_chats(connection: sqlite3.Connection) -> None:
    """Set the owner of sessions without a user to `Session.owner`: the chat, if the session belongs to a chat.

    Earlier versions stored sessions of chats, and of other platforms, as sessions of the person at home.
    """
    rows = connection.execute("SELECT key, identity FROM sessions WHERE user = '' AND json_valid(identity)")
    for key, identity in rows.fetchall():
        owner = Session.from_dict({"id": "", **json.loads(identity)}).owner
        connection.execute("UPDATE sessions SET user = ? WHERE key = ?", (owner, key))


def _separate_users(connection: sqlite3.Connection) -> None:
    """Set the owners of sessions from other platforms, and forget prompts with notes that all users shared."""
    give_to_chats(connection)
    connection.execute("UPDATE sessions SET system_prompt = '' WHERE user <> ''")


def _title_by_number(connection: sqlite3.Connection) -> None:
    """Find the highest number among the titles of a user without reading all of them."""
    connection.execute(
        "CREATE INDEX sessions_by_title_length ON sessions (user, length(title), title) WHERE title <> ''"
    )


def _title_by_user(connection: sqlite3.Connection) -> None:
    """Let sessions of two users have the same title: a number in a title would reveal the other user's session."""
    connection.execute("DROP INDEX sessions_by_title")
    connection.execute("CREATE UNIQUE INDEX sessions_by_title ON sessions (title, user) WHERE title <> ''")


def _index_sources(connection: sqlite3.Connection) -> None:
    """Find the stored sources without reading all sessions."""
    connection.execute("CREATE INDEX sessions_by_source ON sessions (source)")


def _add_host_tables(connection: sqlite3.Connection) -> None:
    """Add what hosts store: items of their framework, frozen memory of prompts, unfinished turns and state."""
    connection.execute("ALTER TABLE messages ADD COLUMN native TEXT NOT NULL DEFAULT ''")
    # NULL means that nothing was frozen yet; a new user's memory is frozen as ''.
    connection.execute("ALTER TABLE sessions ADD COLUMN memory_prompt TEXT")
    connection.execute(
        """CREATE TABLE open_turns (
            key INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            session_key INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
            user TEXT NOT NULL, author TEXT NOT NULL, contexts TEXT NOT NULL, updated_at REAL NOT NULL
        ) STRICT"""
    )
    connection.execute("CREATE INDEX open_turns_by_session ON open_turns (session_key)")
    connection.execute("CREATE INDEX open_turns_by_time ON open_turns (updated_at)")
    connection.execute(
        """CREATE TABLE open_messages (
            turn_key INTEGER NOT NULL REFERENCES open_turns (key) ON DELETE CASCADE,
            number INTEGER NOT NULL, message TEXT NOT NULL, PRIMARY KEY (turn_key, number)
        ) STRICT"""
    )
    connection.execute(
        """CREATE TABLE host_state (
            scope TEXT NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
            PRIMARY KEY (scope, owner, key)
        ) STRICT"""
    )


# The rows whose origin may be lower than that of the session's own people: all results of tools, since earlier versions
# stored no origins, and what was stored with a low origin.
MAY_BE_LOWER = "(role = 'tool' OR origin IN ('user', 'provider', 'import', 'tool', 'web'))"


def _add_origins(connection: sqlite3.Connection) -> None:
    """Add the origin of each message, with an index that finds the lowest ones of a session."""
    connection.execute("ALTER TABLE messages ADD COLUMN origin TEXT NOT NULL DEFAULT ''")
    connection.execute(
        "CREATE INDEX messages_of_low_origin ON messages (session_key, role, origin, tool_name, state)"
        f" WHERE {MAY_BE_LOWER}"
    )


def _index_sources_by_user(connection: sqlite3.Connection) -> None:
    """List a user's sessions of some sources without reading those of the others."""
    connection.execute("DROP INDEX sessions_by_source")
    connection.execute("CREATE INDEX sessions_by_source_user ON sessions (source, user, last_active DESC)")


def _add_turn_records(connection: sqlite3.Connection) -> None:
    """Add the records of turns, and the tokens of each day; see `turn_records`."""
    connection.execute(
        """CREATE TABLE turn_records (
            turn_key INTEGER PRIMARY KEY REFERENCES turns (key) ON DELETE CASCADE, record TEXT NOT NULL
        ) STRICT"""
    )
    connection.execute(
        """CREATE TABLE daily_usage (
            user TEXT NOT NULL, day TEXT NOT NULL,
            turns INTEGER NOT NULL DEFAULT 0, recall_tokens INTEGER NOT NULL DEFAULT 0,
            prompt_tokens INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER NOT NULL DEFAULT 0,
            cache_read_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (user, day)
        ) STRICT"""
    )


def _store_pieces(connection: sqlite3.Connection) -> None:
    """Change the table `vectors` to store a vector for each piece of a message, and delete all old vectors."""
    connection.execute("DROP TABLE vectors")
    connection.execute(
        """CREATE TABLE vectors (
            message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
            piece INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
            model TEXT NOT NULL, own BLOB NOT NULL, words BLOB NOT NULL,
            PRIMARY KEY (message_id, piece)
        ) STRICT"""
    )


def _index_turn_numbers(connection: sqlite3.Connection) -> None:
    """Find the last number of a session, and count its turns, without reading all of its turns."""
    connection.execute("CREATE INDEX turns_by_number ON turns (session_key, number) WHERE state = 0")


MIGRATIONS: tuple[Migration, ...] = (
    ("sessions-messages-turns", _create),
    (f"text-cut-{CUT_VERSION}", _cut_text),
    ("vectors", _add_vectors),
    ("vectors-of-words", _store_words),
    ("owners-of-chats", give_to_chats),
    ("titles-of-users", _title_by_user),
    ("titles-by-number", _title_by_number),
    ("outbox", create_tables),
    ("sessions-by-source", _index_sources),
    ("host-tables", _add_host_tables),
    ("owners-outside", _separate_users),
    ("origins", _add_origins),
    ("sources-by-user", _index_sources_by_user),
    ("turn-records", _add_turn_records),
    ("vectors-of-pieces", _store_pieces),
    ("turns-by-number", _index_turn_numbers),
)
