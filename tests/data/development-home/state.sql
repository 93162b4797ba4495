CREATE TABLE schema_migrations (
    name TEXT PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT;
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
, memory_prompt TEXT) STRICT;
CREATE INDEX sessions_by_activity ON sessions (last_active DESC);
CREATE INDEX sessions_by_user ON sessions (user, last_active DESC);
CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id <> '';
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
, native TEXT NOT NULL DEFAULT '', origin TEXT NOT NULL DEFAULT '') STRICT;
CREATE UNIQUE INDEX messages_by_position ON messages (session_key, position);
CREATE UNIQUE INDEX messages_by_ref ON messages (session_key, ref) WHERE ref <> '';
CREATE INDEX messages_by_speaker ON messages (speaker) WHERE speaker > '';
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
) STRICT;
CREATE INDEX turns_by_session ON turns (session_key, last_message_id);
CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE VIEW indexed_messages AS
SELECT id, content, trim(tool_name || ' ' || tool_calls) AS calls FROM messages WHERE state < 2;
CREATE VIRTUAL TABLE messages_fts USING fts5(
        content, calls, content='indexed_messages', content_rowid='id',
        tokenize='porter unicode61 remove_diacritics 2'
    );
CREATE VIRTUAL TABLE messages_grams USING fts5(ones, pairs, content='', tokenize='ascii');
CREATE UNIQUE INDEX sessions_by_title ON sessions (title, user) WHERE title <> '';
CREATE INDEX sessions_by_title_length ON sessions (user, length(title), title) WHERE title <> '';
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
CREATE TABLE open_turns (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        session_key INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
        user TEXT NOT NULL, author TEXT NOT NULL, contexts TEXT NOT NULL, updated_at REAL NOT NULL
    ) STRICT;
CREATE INDEX open_turns_by_session ON open_turns (session_key);
CREATE INDEX open_turns_by_time ON open_turns (updated_at);
CREATE TABLE open_messages (
        turn_key INTEGER NOT NULL REFERENCES open_turns (key) ON DELETE CASCADE,
        number INTEGER NOT NULL, message TEXT NOT NULL, PRIMARY KEY (turn_key, number)
    ) STRICT;
CREATE TABLE host_state (
        scope TEXT NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (scope, owner, key)
    ) STRICT;
CREATE INDEX messages_of_low_origin ON messages (session_key, role, origin, tool_name, state) WHERE (role = 'tool' OR origin IN ('user', 'provider', 'import', 'tool', 'web'));
CREATE INDEX sessions_by_source_user ON sessions (source, user, last_active DESC);
CREATE TABLE turn_records (
        turn_key INTEGER PRIMARY KEY REFERENCES turns (key) ON DELETE CASCADE, record TEXT NOT NULL
    ) STRICT;
CREATE TABLE daily_usage (
        user TEXT NOT NULL, day TEXT NOT NULL,
        turns INTEGER NOT NULL DEFAULT 0, recall_tokens INTEGER NOT NULL DEFAULT 0,
        prompt_tokens INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER NOT NULL DEFAULT 0,
        cache_read_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (user, day)
    ) STRICT;
CREATE TABLE vectors (
        message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        piece INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
        model TEXT NOT NULL, own BLOB NOT NULL, words BLOB NOT NULL,
        PRIMARY KEY (message_id, piece)
    ) STRICT;
CREATE INDEX turns_by_number ON turns (session_key, number) WHERE state = 0;
INSERT INTO schema_migrations VALUES ('sessions-messages-turns', 1795879919.0);
INSERT INTO schema_migrations VALUES ('text-cut-4', 1795879919.0);
INSERT INTO schema_migrations VALUES ('vectors', 1795879919.0);
INSERT INTO schema_migrations VALUES ('vectors-of-words', 1795879919.0);
INSERT INTO schema_migrations VALUES ('owners-of-chats', 1795879919.0);
INSERT INTO schema_migrations VALUES ('titles-of-users', 1795879919.0);
INSERT INTO schema_migrations VALUES ('titles-by-number', 1795879919.0);
INSERT INTO schema_migrations VALUES ('outbox', 1795879919.0);
INSERT INTO schema_migrations VALUES ('sessions-by-source', 1795879919.0);
INSERT INTO schema_migrations VALUES ('host-tables', 1795879919.0);
INSERT INTO schema_migrations VALUES ('owners-outside', 1795879919.0);
INSERT INTO schema_migrations VALUES ('origins', 1795879919.0);
INSERT INTO schema_migrations VALUES ('sources-by-user', 1795879919.0);
INSERT INTO schema_migrations VALUES ('turn-records', 1795879919.0);
INSERT INTO schema_migrations VALUES ('vectors-of-pieces', 1795879919.0);
INSERT INTO schema_migrations VALUES ('turns-by-number', 1795879919.0);
