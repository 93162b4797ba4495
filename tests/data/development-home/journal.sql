CREATE TABLE schema_migrations (
    name TEXT PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT;
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT NOT NULL,
    target TEXT NOT NULL,
    action TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('intent', 'done')),
    at REAL NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    session TEXT NOT NULL,
    writes TEXT NOT NULL,
    enqueued INTEGER NOT NULL,
    undoes INTEGER,
    undone INTEGER NOT NULL DEFAULT 0
, provider TEXT NOT NULL DEFAULT '') STRICT;
CREATE INDEX changes_by_file ON changes (file, id);
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    change INTEGER,
    subject TEXT NOT NULL,
    details TEXT,
    digest TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
INSERT INTO schema_migrations VALUES ('changes', 1795879919.0);
INSERT INTO schema_migrations VALUES ('changes by file', 1795879919.0);
INSERT INTO schema_migrations VALUES ('who took a change', 1795879919.0);
INSERT INTO schema_migrations VALUES ('rows in the outbox', 1795879919.0);
INSERT INTO schema_migrations VALUES ('chain of events', 1795879919.0);
