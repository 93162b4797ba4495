CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT, created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT);
INSERT INTO history VALUES ('h0', 'a', NULL, 'likes tea', 'ADD', '2026-09-01T10:00:00', NULL, 0, NULL, NULL);
INSERT INTO history VALUES ('h1', 'a', 'likes tea', 'likes part01', 'UPDATE', '2026-09-01T10:00:00', '2026-09-01T10:00:01', 0, NULL, NULL);
INSERT INTO history VALUES ('h2', 'b', NULL, 'part02', 'ADD', '2026-09-01T10:00:02', NULL, 0, NULL, NULL);
INSERT INTO history VALUES ('h3', 'b', 'part02', NULL, 'DELETE', '2026-09-01T10:00:02', NULL, 1, NULL, NULL);
CREATE TABLE messages (id TEXT PRIMARY KEY, session_scope TEXT, role TEXT, content TEXT, name TEXT, created_at DATETIME);
INSERT INTO messages VALUES ('m1', 'user_id=ann', 'user', 'part03', 'Ann', '2026-09-01T10:00:04+00:00');
INSERT INTO messages VALUES ('m2', 'user_id=ann', 'assistant', 'part04', NULL, '2026-09-01T10:00:05+00:00');
INSERT INTO messages VALUES ('m3', 'user_id=ann', 'system', 'part05', NULL, '2026-09-01T10:00:06+00:00');
