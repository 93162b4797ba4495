CREATE TABLE schema_migrations (
    name TEXT PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT;
CREATE TABLE outbox_rows (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    provider TEXT NOT NULL,
    session_id TEXT NOT NULL,
    hook TEXT NOT NULL,
    event TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'dead letter')),
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    fingerprint TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (provider, hook, event)
) STRICT;
CREATE INDEX outbox_rows_in_order ON outbox_rows (provider, state, number);
CREATE INDEX outbox_rows_by_session ON outbox_rows (session_id, provider, state);
CREATE TABLE outbox_settled (
    provider TEXT NOT NULL,
    hook TEXT NOT NULL,
    event TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    settled_at REAL NOT NULL,
    PRIMARY KEY (provider, hook, event)
) STRICT;
CREATE INDEX outbox_settled_by_age ON outbox_settled (settled_at);
CREATE INDEX outbox_settled_by_event ON outbox_settled (event);
CREATE TABLE outbox_refused (
    provider TEXT PRIMARY KEY, count INTEGER NOT NULL, refused_at REAL NOT NULL
) STRICT;
CREATE TABLE outbox_totals (count INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT;
CREATE TRIGGER outbox_row_added AFTER INSERT ON outbox_rows BEGIN
    UPDATE outbox_totals SET count = count + 1, bytes = bytes + length(new.body);
END;
CREATE TRIGGER outbox_row_removed AFTER DELETE ON outbox_rows BEGIN
    UPDATE outbox_totals SET count = count - 1, bytes = bytes - length(old.body);
END;
INSERT INTO schema_migrations VALUES ('outbox', 1795879919.0);
INSERT INTO schema_migrations VALUES ('outbox of 0.1', 1795879919.0);
