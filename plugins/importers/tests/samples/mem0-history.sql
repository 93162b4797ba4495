CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT, created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT);
INSERT INTO history VALUES ('h0', 'a', NULL, 'likes tea', 'ADD', '2026-09-01T10:00:00', NULL, 0, NULL, NULL);
INSERT INTO history VALUES ('h1', 'a', 'likes tea', 'likes part01', 'UPDATE', '2026-09-01T10:00:01', NULL, 0, NULL, NULL);
INSERT INTO history VALUES ('h2', 'b', NULL, 'part02', 'ADD', '2026-09-01T10:00:02', NULL, 0, NULL, NULL);
INSERT INTO history VALUES ('h3', 'b', 'part02', NULL, 'DELETE', '2026-09-01T10:00:03', NULL, 1, NULL, NULL);
