CREATE TABLE schema_migrations (
    name TEXT PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT
;
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
    ;
CREATE INDEX sessions_by_activity ON sessions (last_active DESC);
CREATE INDEX sessions_by_user ON sessions (user, last_active DESC);
CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id <> '';
CREATE UNIQUE INDEX sessions_by_title ON sessions (title, user) WHERE title <> '';
CREATE INDEX sessions_by_title_length ON sessions (user, length(title), title) WHERE title <> '';
CREATE INDEX sessions_by_source_user ON sessions (source, user, last_active DESC);
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
    ;
CREATE UNIQUE INDEX messages_by_position ON messages (session_key, position);
CREATE UNIQUE INDEX messages_by_ref ON messages (session_key, ref) WHERE ref <> '';
CREATE INDEX messages_by_speaker ON messages (speaker) WHERE speaker > '';
CREATE INDEX messages_of_low_origin ON messages (session_key, role, origin, tool_name, state) WHERE (role = 'tool' OR origin IN ('user', 'provider', 'import', 'tool', 'web'));
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
    ;
CREATE INDEX turns_by_session ON turns (session_key, last_message_id);
CREATE INDEX turns_by_number ON turns (session_key, number) WHERE state = 0;
CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE vectors (
        message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        piece INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
        model TEXT NOT NULL, own BLOB NOT NULL, words BLOB NOT NULL,
        PRIMARY KEY (message_id, piece)
    ) STRICT
    ;
CREATE TABLE open_turns (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        session_key INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
        user TEXT NOT NULL, author TEXT NOT NULL, contexts TEXT NOT NULL, updated_at REAL NOT NULL
    ) STRICT
    ;
CREATE INDEX open_turns_by_session ON open_turns (session_key);
CREATE INDEX open_turns_by_time ON open_turns (updated_at);
CREATE TABLE open_messages (
        turn_key INTEGER NOT NULL REFERENCES open_turns (key) ON DELETE CASCADE,
        number INTEGER NOT NULL, message TEXT NOT NULL, PRIMARY KEY (turn_key, number)
    ) STRICT
    ;
CREATE TABLE host_state (
        scope TEXT NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (scope, owner, key)
    ) STRICT
    ;
CREATE TABLE turn_records (
        turn_key INTEGER PRIMARY KEY REFERENCES turns (key) ON DELETE CASCADE, record TEXT NOT NULL
    ) STRICT
    ;
CREATE TABLE daily_usage (
        user TEXT NOT NULL, day TEXT NOT NULL,
        turns INTEGER NOT NULL DEFAULT 0, recall_tokens INTEGER NOT NULL DEFAULT 0,
        prompt_tokens INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER NOT NULL DEFAULT 0,
        cache_read_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (user, day)
    ) STRICT
    ;
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
    ) STRICT
    ;
CREATE INDEX outbox_rows_in_order ON outbox_rows (provider, state, number);
CREATE INDEX outbox_rows_by_session ON outbox_rows (session_id, provider, state);
CREATE TABLE outbox_settled (
        provider TEXT NOT NULL,
        hook TEXT NOT NULL,
        event TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        settled_at REAL NOT NULL,
        PRIMARY KEY (provider, hook, event)
    ) STRICT
    ;
CREATE INDEX outbox_settled_by_age ON outbox_settled (settled_at);
CREATE INDEX outbox_settled_by_event ON outbox_settled (event);
CREATE TABLE outbox_refused (
        provider TEXT PRIMARY KEY, count INTEGER NOT NULL, refused_at REAL NOT NULL
    ) STRICT
    ;
CREATE TABLE outbox_totals (count INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT;
INSERT INTO "schema_migrations" VALUES ('schema-1', 1795907065.8982394);
INSERT INTO "schema_migrations" VALUES ('text-cut-4', 1795907065.8983738);
INSERT INTO "sessions" VALUES (1, 's0', 'cli', '', '', '', '', '', '', '', '', '{"id":"s0","parent_id":"","platform":"cli","agent_context":"primary","identity":"default","workspace":"hermes","user_id":"","user_name":"","chat_id":"","chat_name":"","chat_type":"","thread_id":"","gateway_session_key":"","home":"/home/mel/.hermes","user_id_alt":"","is_owner":false}', 1795907066.3476365, 1795907067.2210548, NULL, '', 3, 0, 0, 0, 0, 0, 0, 0, 0.0, NULL);
INSERT INTO "sessions" VALUES (2, 's1', 'cli', '', '', '', '', '', '', '', '', '{"id":"s1","parent_id":"","platform":"cli","agent_context":"primary","identity":"default","workspace":"hermes","user_id":"","user_name":"","chat_id":"","chat_name":"","chat_type":"","thread_id":"","gateway_session_key":"","home":"/home/mel/.hermes","user_id_alt":"","is_owner":false}', 1795907067.2287245, 1795907067.361753, NULL, '', 3, 0, 0, 0, 0, 0, 0, 0, 0.0, NULL);
INSERT INTO "sessions" VALUES (3, 'open', 'cli', '', '', '', '', '', '', '', '', '{"id":"open","parent_id":"","platform":"cli","agent_context":"primary","identity":"default","workspace":"hermes","user_id":"","user_name":"","chat_id":"","chat_name":"","chat_type":"","thread_id":"","gateway_session_key":"","home":"/home/mel/.hermes","user_id_alt":"","is_owner":false}', 1795907070.959905, 1795907070.959905, NULL, '', 0, 0, 0, 0, 0, 0, 0, 0, 0.0, '══════════════════════════════════════════════
MEMORY (your personal notes) [1% — 27/2,200 chars]
══════════════════════════════════════════════
Uses uv.
══════════════════════════════════════════════
END OF MEMORY

══════════════════════════════════════════════
USER PROFILE (who the user is) [1% — 14/1,375 chars]
══════════════════════════════════════════════
Is called Mel.
══════════════════════════════════════════════
END OF USER PROFILE

[The memory provider fake says:]
The fake remembers.');
INSERT INTO "messages" VALUES (1, 1, 0, 0, 19, 1795907066.4978328, 'user', 'person', '', '', '', '', 'Where is tent 0? 部署', '', '', '', '');
INSERT INTO "messages" VALUES (2, 1, 1, 0, 14, 1795907066.4978328, 'assistant', 'assistant', '', '', '', '', 'In the garage.', '', '', '', '');
INSERT INTO "messages" VALUES (3, 1, 2, 0, 4, 1795907067.2210548, 'user', '', '', '', '', '', 'gone', '', '', '', '');
INSERT INTO "messages" VALUES (4, 2, 0, 0, 19, 1795907067.2407103, 'user', 'person', '', '', '', '', 'Where is tent 1? 部署', '', '', '', '');
INSERT INTO "messages" VALUES (5, 2, 1, 0, 14, 1795907067.2407103, 'assistant', 'assistant', '', '', '', '', 'In the garage.', '', '', '', '');
INSERT INTO "messages" VALUES (6, 2, 2, 0, 4, 1795907067.361753, 'user', '', '', '', '', '', 'gone', '', '', '', '');
INSERT INTO "turns" VALUES (1, '7f7e1d18fe5e4e0781c32793595925a0', 1, 1, 1, 2, 0, '', 1795907066.4978328, 1795907066.4983706);
INSERT INTO "turns" VALUES (2, '475c7938fc7347178d903e335a3b577f', 2, 1, 4, 5, 0, '', 1795907067.2407103, 1795907067.2408674);
INSERT INTO "state_meta" VALUES ('key', 'value');
INSERT INTO "open_turns" VALUES (1, 'open-t1', 3, '{"role": "user", "content": "Not answered yet."}', '', '{"contexts": [["notes", "- (from a web page, 28 November 2026) Likes green tea."], ["fake", "- open: Not answered yet."]], "origin": "web"}', 1795907070.9592507);
INSERT INTO "outbox_rows" VALUES (1, 'fake', 's0', 'sync_turn', '7f7e1d18fe5e4e0781c32793595925a0', 'pending', 0, '', 1795907066.4988, '', '{"schema": 1, "session": {"id": "s0", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}, "value": {"number": 1, "user": "Where is tent 0? \u90e8\u7f72", "assistant": "In the garage.", "messages": [{"role": "user", "content": "Where is tent 0? \u90e8\u7f72"}, {"role": "assistant", "content": "In the garage."}], "author": "", "at": 1795907066.4978328, "origin": "assistant", "id": "7f7e1d18fe5e4e0781c32793595925a0"}}');
INSERT INTO "outbox_rows" VALUES (2, 'fake', 's1', 'sync_turn', '475c7938fc7347178d903e335a3b577f', 'pending', 0, '', 1795907067.2410479, '', '{"schema": 1, "session": {"id": "s1", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}, "value": {"number": 1, "user": "Where is tent 1? \u90e8\u7f72", "assistant": "In the garage.", "messages": [{"role": "user", "content": "Where is tent 1? \u90e8\u7f72"}, {"role": "assistant", "content": "In the garage."}], "author": "", "at": 1795907067.2407103, "origin": "assistant", "id": "475c7938fc7347178d903e335a3b577f"}}');
INSERT INTO "outbox_rows" VALUES (3, 'fake', 'local-default', 'on_memory_write', '45bef661-a2ca-4e87-9c20-b57d3b8b12b5', 'pending', 0, '', 1795907068.2497253, '', '{"schema": 1, "session": {"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}, "value": {"action": "add", "target": "memory", "content": "The oven is broken.", "old_text": "", "previous": "", "performed": true, "metadata": {"origin": "person"}, "id": "45bef661-a2ca-4e87-9c20-b57d3b8b12b5"}}');
INSERT INTO "outbox_rows" VALUES (4, 'fake', 'local-default', 'on_memory_write', 'aaadcc95-b2bb-4483-afbc-aae0dccde671', 'pending', 0, '', 1795907069.808669, '', '{"schema": 1, "session": {"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}, "value": {"action": "add", "target": "memory", "content": "Likes tea.", "old_text": "", "previous": "", "performed": true, "metadata": {"origin": "person"}, "id": "aaadcc95-b2bb-4483-afbc-aae0dccde671"}}');
INSERT INTO "outbox_rows" VALUES (5, 'fake', 'local-default', 'on_memory_write', '60219f30-d81f-4012-810c-c123454748e5', 'pending', 0, '', 1795907070.9171066, '', '{"schema": 1, "session": {"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}, "value": {"action": "add", "target": "memory", "content": "Uses uv.", "old_text": "", "previous": "", "performed": true, "metadata": {"origin": "person"}, "id": "60219f30-d81f-4012-810c-c123454748e5"}}');
INSERT INTO "outbox_rows" VALUES (6, 'fake', 'local-default', 'on_memory_write', '6119509e-69b0-452a-ab8a-b46ca8cd2b10', 'pending', 0, '', 1795907070.9238973, '', '{"schema": 1, "session": {"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}, "value": {"action": "replace", "target": "memory", "content": "Likes green tea.", "old_text": "Likes tea", "previous": "Likes tea.", "performed": true, "metadata": {"origin": "person"}, "id": "6119509e-69b0-452a-ab8a-b46ca8cd2b10"}}');
INSERT INTO "outbox_rows" VALUES (7, 'fake', 'local-default', 'on_memory_write', 'a2df11f1-e094-491d-9fb6-ee76d057eddc', 'pending', 0, '', 1795907070.9335957, '', '{"schema": 1, "session": {"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}, "value": {"action": "remove", "target": "memory", "content": "", "old_text": "oven", "previous": "The oven is broken.", "performed": true, "metadata": {}, "id": "a2df11f1-e094-491d-9fb6-ee76d057eddc"}}');
INSERT INTO "outbox_rows" VALUES (8, 'fake', 'local-default', 'on_memory_write', 'd8c36654-2f3d-4018-a7a7-31e22f85e96d', 'pending', 0, '', 1795907070.9419777, '', '{"schema": 1, "session": {"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}, "value": {"action": "add", "target": "user", "content": "Is called Mel.", "old_text": "", "previous": "", "performed": true, "metadata": {"origin": "person"}, "id": "d8c36654-2f3d-4018-a7a7-31e22f85e96d"}}');
INSERT INTO "outbox_rows" VALUES (9, 'fake', 'of-ann', 'on_memory_write', '8111b220-33f5-471d-a130-90266c973ddc', 'pending', 0, '', 1795907070.9581857, '', '{"schema": 1, "session": {"id": "of-ann", "parent_id": "", "platform": "telegram", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "ann", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}, "value": {"action": "add", "target": "user", "content": "Likes rye.", "old_text": "", "previous": "", "performed": true, "metadata": {"origin": "person"}, "id": "8111b220-33f5-471d-a130-90266c973ddc"}}');
INSERT INTO "outbox_totals" VALUES (9, 5213);
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES ('messages', 6);
INSERT INTO sqlite_sequence VALUES ('turns', 2);
INSERT INTO sqlite_sequence VALUES ('outbox_rows', 9);
