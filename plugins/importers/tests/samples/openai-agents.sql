CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at TIMESTAMP, updated_at TIMESTAMP);
CREATE TABLE agent_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, message_data TEXT, created_at TIMESTAMP);
INSERT INTO agent_sessions VALUES ('user_7', '2026-09-01 10:00:00', '2026-09-01 10:00:09');
INSERT INTO agent_messages (session_id, message_data, created_at) VALUES ('user_7', '{"role": "user", "content": "part01"}', '2026-09-01 10:00:01');
INSERT INTO agent_messages (session_id, message_data, created_at) VALUES ('user_7', '{"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "part02"}]}', '2026-09-01 10:00:01');
INSERT INTO agent_messages (session_id, message_data, created_at) VALUES ('user_7', '{"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"city\": \"part03\"}"}', '2026-09-01 10:00:01');
INSERT INTO agent_messages (session_id, message_data, created_at) VALUES ('user_7', '{"type": "function_call_output", "call_id": "c1", "output": "part04"}', '2026-09-01 10:00:01');
INSERT INTO agent_messages (session_id, message_data, created_at) VALUES ('user_7', '{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "part05", "annotations": []}]}', '2026-09-01 10:00:01');
