CREATE TABLE ItemTable (key TEXT UNIQUE, value BLOB);
CREATE TABLE cursorDiskKV (key TEXT UNIQUE, value BLOB);
INSERT INTO cursorDiskKV VALUES ('composerData:c1', '{"composerId": "c1", "name": "Fix it", "createdAt": 1788256800000, "fullConversationHeadersOnly": [{"bubbleId": "b1", "type": 1}, {"bubbleId": "b2", "type": 2}, {"bubbleId": "b3", "type": 2}]}');
INSERT INTO cursorDiskKV VALUES ('bubbleId:c1:b1', '{"type": 1, "bubbleId": "b1", "text": "part01", "createdAt": "2026-09-01T10:00:01.000Z", "images": [{"path": "part02"}]}');
INSERT INTO cursorDiskKV VALUES ('bubbleId:c1:b2', '"{\"type\": 2, \"bubbleId\": \"b2\", \"text\": \"\", \"thinking\": {\"text\": \"part03\"}, \"createdAt\": \"2026-09-01T10:00:02.000Z\", \"toolFormerData\": {\"name\": \"read_file\", \"toolCallId\": \"t1\", \"rawArgs\": \"{\\\"path\\\": \\\"part04\\\"}\", \"result\": \"part05\"}}"');
INSERT INTO cursorDiskKV VALUES ('bubbleId:c1:b3', '{"type": 2, "bubbleId": "b3", "text": "part06", "createdAt": "2026-09-01T10:00:03.000Z"}');
INSERT INTO cursorDiskKV VALUES ('composerData:c2', '{"composerId": "c2", "createdAt": 1788256900000, "conversation": [{"type": 1, "bubbleId": "a", "text": "part07"}, {"type": 2, "bubbleId": "b", "text": "part08"}]}');
INSERT INTO cursorDiskKV VALUES ('composerData:c3', '{"composerId": "c3", "subagentInfo": {"x": 1}, "conversation": [{"type": 1, "bubbleId": "a", "text": "part09"}]}');
