"""Tables of the database of facts. A released version never changes; the next one appends a migration to the list."""

from __future__ import annotations

import sqlite3

from hermes_core.kit import Migration
from hermes_core.recall import CUT_VERSION
from hermes_holographic.entities import index_slips, indexed, put_slots
from hermes_holographic.language import content_key, name_key

WORDS = (
    "CREATE VIRTUAL TABLE facts_fts USING fts5(words, tags, tokenize='porter unicode61 remove_diacritics 2')"
)
"""The index of words, made from the facts."""

_SCHEMA = (
    """CREATE TABLE facts (
        fact_id INTEGER PRIMARY KEY AUTOINCREMENT,
        content TEXT NOT NULL,
        content_key TEXT NOT NULL UNIQUE,
        category TEXT NOT NULL,
        tags TEXT NOT NULL,
        source TEXT NOT NULL,
        trust REAL NOT NULL,
        prior REAL NOT NULL,
        retrieval_count INTEGER NOT NULL DEFAULT 0,
        helpful_count INTEGER NOT NULL DEFAULT 0,
        unhelpful_count INTEGER NOT NULL DEFAULT 0,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        confirmed_at REAL NOT NULL,
        conversation TEXT NOT NULL DEFAULT '',
        position INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    "CREATE INDEX facts_by_trust ON facts (trust DESC)",
    "CREATE INDEX facts_by_source ON facts (source)",
    "CREATE INDEX facts_by_place ON facts (conversation, position)",
    WORDS,
    "CREATE TABLE entities (entity_id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL) STRICT",
    "CREATE TABLE entity_names (key TEXT PRIMARY KEY, entity_id INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE fact_entities (
        entity_id INTEGER NOT NULL, fact_id INTEGER NOT NULL, given INTEGER NOT NULL,
        PRIMARY KEY (entity_id, fact_id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE name_slips (slip INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (slip, key)) STRICT, WITHOUT ROWID",
    "CREATE INDEX names_by_entity ON entity_names (entity_id)",
    "CREATE INDEX entities_by_fact ON fact_entities (fact_id)",
    """CREATE TABLE fact_slots (
        subject TEXT NOT NULL, attribute TEXT NOT NULL, value TEXT NOT NULL, fact_id INTEGER NOT NULL,
        PRIMARY KEY (subject, attribute, value, fact_id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX slots_by_fact ON fact_slots (fact_id)",
    """CREATE TABLE fact_vectors (
        fact_id INTEGER PRIMARY KEY, rev INTEGER NOT NULL UNIQUE, dim INTEGER NOT NULL, encoder TEXT NOT NULL,
        content BLOB, entity BLOB
    ) STRICT""",
    "CREATE INDEX vectors_by_encoder ON fact_vectors (encoder, dim)",
    "CREATE TABLE applied_writes (write_id TEXT PRIMARY KEY, applied_at REAL NOT NULL) STRICT, WITHOUT ROWID",
    # What another provider knew of an imported fact, so that it can have that back.
    "CREATE TABLE imported_facts (fact_id INTEGER PRIMARY KEY, fields TEXT NOT NULL) STRICT",
)


def _create(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        connection.execute(statement)


def _one_spelling(connection: sqlite3.Connection) -> None:
    """Index facts and names anew whose letters are written in two ways, ё and е; see `hermes_core.recall.letters`."""
    for (key,) in connection.execute("SELECT key FROM entity_names").fetchall():
        if (new := name_key(key)) != key:
            connection.execute("UPDATE OR IGNORE entity_names SET key = ? WHERE key = ?", (new, key))
            connection.execute("UPDATE OR IGNORE entities SET key = ? WHERE key = ?", (new, key))
            connection.execute("DELETE FROM name_slips WHERE key = ?", (key,))
            index_slips(connection, new)
    for fact_id, content in connection.execute("SELECT fact_id, content FROM facts").fetchall():
        if not content.isascii():
            key = (content_key(content), fact_id)
            connection.execute("UPDATE OR IGNORE facts SET content_key = ? WHERE fact_id = ?", key)
            connection.execute("UPDATE facts_fts SET words = ? WHERE rowid = ?", (indexed(content), fact_id))
            connection.execute("UPDATE fact_vectors SET encoder = '' WHERE fact_id = ?", (fact_id,))
            connection.execute("DELETE FROM fact_slots WHERE fact_id = ?", (fact_id,))
            put_slots(connection, fact_id, content)


MIGRATIONS: tuple[Migration, ...] = (
    ("schema-1", _create),
    (f"one_spelling_{CUT_VERSION}", _one_spelling),
)
