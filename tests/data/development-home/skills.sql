CREATE TABLE schema_migrations (
    name TEXT PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT;
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path TEXT NOT NULL,
    action TEXT NOT NULL,
    at REAL NOT NULL,
    before TEXT,
    after TEXT,
    session_id TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0
) STRICT;
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
INSERT INTO schema_migrations VALUES ('skill-changes', 1795879919.0);
INSERT INTO schema_migrations VALUES ('chain of events', 1795879919.0);
