CREATE TABLE schema_migrations (
    name TEXT PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT;
CREATE TABLE facts (
    fact_id INTEGER PRIMARY KEY AUTOINCREMENT,
    content TEXT NOT NULL,
    content_key TEXT NOT NULL UNIQUE,
    category TEXT NOT NULL,
    tags TEXT NOT NULL,
    source TEXT NOT NULL,
    trust REAL NOT NULL,
    retrieval_count INTEGER NOT NULL DEFAULT 0,
    helpful_count INTEGER NOT NULL DEFAULT 0,
    unhelpful_count INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    confirmed_at REAL NOT NULL
, prior REAL NOT NULL DEFAULT 0.5, conversation TEXT NOT NULL DEFAULT '', position INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX facts_by_trust ON facts (trust DESC);
CREATE INDEX facts_by_source ON facts (source);
CREATE VIRTUAL TABLE facts_fts USING fts5(words, tags, tokenize='porter unicode61 remove_diacritics 2');
CREATE TABLE entities (entity_id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL) STRICT;
CREATE TABLE entity_names (key TEXT PRIMARY KEY, entity_id INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE fact_entities (
    entity_id INTEGER NOT NULL, fact_id INTEGER NOT NULL, given INTEGER NOT NULL,
    PRIMARY KEY (entity_id, fact_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX names_by_entity ON entity_names (entity_id);
CREATE INDEX entities_by_fact ON fact_entities (fact_id);
CREATE TABLE fact_slots (
    subject TEXT NOT NULL, attribute TEXT NOT NULL, value TEXT NOT NULL, fact_id INTEGER NOT NULL,
    PRIMARY KEY (subject, attribute, value, fact_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX slots_by_fact ON fact_slots (fact_id);
CREATE TABLE fact_vectors (
    fact_id INTEGER PRIMARY KEY, rev INTEGER NOT NULL UNIQUE, dim INTEGER NOT NULL, encoder TEXT NOT NULL,
    content BLOB, entity BLOB
) STRICT;
CREATE INDEX vectors_by_encoder ON fact_vectors (encoder, dim);
CREATE TABLE applied_writes (write_id TEXT PRIMARY KEY, applied_at REAL NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE name_slips (slip INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (slip, key)) STRICT, WITHOUT ROWID;
CREATE INDEX facts_by_place ON facts (conversation, position);
CREATE TABLE imported_facts (fact_id INTEGER PRIMARY KEY, fields TEXT NOT NULL) STRICT;
INSERT INTO schema_migrations VALUES ('facts', 1795879919.0);
INSERT INTO schema_migrations VALUES ('name_slips', 1795879919.0);
INSERT INTO schema_migrations VALUES ('prior', 1795879919.0);
INSERT INTO schema_migrations VALUES ('kinds_of_values', 1795879919.0);
INSERT INTO schema_migrations VALUES ('one_spelling_4', 1795879919.0);
INSERT INTO schema_migrations VALUES ('places', 1795879919.0);
INSERT INTO schema_migrations VALUES ('fields_of_others', 1795879919.0);
