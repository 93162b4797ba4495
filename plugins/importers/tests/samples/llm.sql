CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, response TEXT, conversation_id TEXT, datetime_utc TEXT);
INSERT INTO conversations VALUES ('01c', 'A walk', 'gpt');
INSERT INTO responses VALUES ('01r', 'gpt', 'part01', NULL, 'part02', '01c', '2026-09-01T10:00:00.000000+00:00');
INSERT INTO responses VALUES ('02r', 'gpt', 'part03', NULL, 'part04', '01c', '2026-09-01T10:01:00.000000+00:00');
INSERT INTO responses VALUES ('03r', 'gpt', 'part05', NULL, 'part06', NULL, '2026-09-02T10:00:00.000000+00:00');
