CREATE TABLE schema_migrations ( name TEXT PRIMARY KEY, applied_at REAL NOT NULL ) STRICT;
CREATE TABLE changes ( id INTEGER PRIMARY KEY AUTOINCREMENT, file TEXT NOT NULL, target TEXT NOT NULL, action TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('intent', 'done')), at REAL NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, fingerprint TEXT NOT NULL, session TEXT NOT NULL, writes TEXT NOT NULL, mirrored INTEGER NOT NULL, undoes INTEGER, undone INTEGER NOT NULL DEFAULT 0 , taker TEXT NOT NULL DEFAULT '') STRICT;
CREATE INDEX changes_by_file ON changes (file, id);
INSERT INTO schema_migrations VALUES ('changes', 1795657511.4711556);
INSERT INTO schema_migrations VALUES ('changes by file', 1795657511.4723208);
INSERT INTO schema_migrations VALUES ('who took a change', 1795657511.4750292);
INSERT INTO changes VALUES (1, 'MEMORY.md', 'memory', 'add', 'done', 1795657511.7677357, '', 'The garden gate sticks.', 'e33fd650d55c6745ed08d294354ffb3883b4445baa55ae7dc895a69a219f70f9', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "18aa51b5-a4bc-4d9c-b22a-110e31d1b753", "action": "add", "target": "memory", "content": "The garden gate sticks.", "old_text": "", "previous": "", "performed": true, "metadata": {}}]', 1, NULL, 0, 'diary');
INSERT INTO changes VALUES (2, 'MEMORY.md', 'memory', 'add', 'done', 1795657511.7836618, 'The garden gate sticks.', 'The garden gate sticks.
§
Deploys happen on Tuesdays.', '0ff6307c39ab8b3ce974805805ad9e7a7c5d608297a501788735510748299c7f', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "ef8732d5-5701-48bc-86c8-799b9d65658a", "action": "add", "target": "memory", "content": "Deploys happen on Tuesdays.", "old_text": "", "previous": "", "performed": true, "metadata": {}}]', 1, NULL, 0, 'diary');
INSERT INTO changes VALUES (3, 'MEMORY.md', 'memory', 'replace', 'done', 1795657511.8175578, 'The garden gate sticks.
§
Deploys happen on Tuesdays.', 'The garden gate sticks.
§
Deploys happen on Thursdays.', 'd4f255f1fc1c054f96a7150a25bf9431f154768bdd8135e3b0e184d06e506a8c', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "4e0b73e5-0c2c-4e90-a070-25c342ea9ba7", "action": "replace", "target": "memory", "content": "Deploys happen on Thursdays.", "old_text": "Deploys happen on Tuesdays.", "previous": "Deploys happen on Tuesdays.", "performed": true, "metadata": {}}]', 1, NULL, 0, 'diary');
INSERT INTO changes VALUES (4, 'USER.md', 'user', 'add', 'done', 1795657511.8378596, '', 'Prefers short answers.', 'cb2f059f0d4113a15d0e03b02bb33807a947f633187062ba59dd2967220d28ee', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "28761789-248b-4cf8-9baf-78221c8af618", "action": "add", "target": "user", "content": "Prefers short answers.", "old_text": "", "previous": "", "performed": true, "metadata": {}}]', 1, NULL, 0, 'diary');
INSERT INTO changes VALUES (5, 'users/chat%3Aann-9c9bcdd4360aafac/USER.md', 'user', 'add', 'done', 1795657511.8545747, '', 'Speaks Portuguese.', 'fd338a258bcfbfe5b82b700b4867a4bac7bf98d1c25d4ea2d95cd9f02c0d5b66', '{"id": "ann-1", "parent_id": "", "platform": "chat", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "ann", "user_name": "Ann", "chat_id": "room-1", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "48c2cad4-d266-42d4-9d9d-80308d6b8c47", "action": "add", "target": "user", "content": "Speaks Portuguese.", "old_text": "", "previous": "", "performed": true, "metadata": {}}]', 1, NULL, 0, 'diary');
INSERT INTO changes VALUES (6, 'users/chat%3Abob-5ec47b2aa4f15ec3/USER.md', 'user', 'add', 'done', 1795657511.8801007, '', 'Rides bicycles.', '25bf695ff8ebe3cd623a8e65f50f98b87b2cab6cccd1387ea94c64d77d0e7b4a', '{"id": "bob-1", "parent_id": "", "platform": "chat", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "bob", "user_name": "Bob", "chat_id": "room-2", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "b0205725-52e8-438f-99e3-16b0c1f309c8", "action": "add", "target": "user", "content": "Rides bicycles.", "old_text": "", "previous": "", "performed": true, "metadata": {}}]', 1, NULL, 0, 'diary');
INSERT INTO changes VALUES (7, 'users/chat%3Abob-5ec47b2aa4f15ec3/USER.md', 'user', 'remove', 'done', 1795657511.8984497, 'Rides bicycles.', '', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', '{"id": "bob-1", "parent_id": "", "platform": "chat", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "bob", "user_name": "Bob", "chat_id": "room-2", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "d16803ef-6505-4590-baae-c432d9e6d05e", "action": "remove", "target": "user", "content": "", "old_text": "Rides bicycles.", "previous": "Rides bicycles.", "performed": true, "metadata": {}}]', 1, NULL, 0, 'diary');
INSERT INTO changes VALUES (8, 'MEMORY.md', 'memory', 'add', 'done', 1795657516.3563344, 'The garden gate sticks.
§
Deploys happen on Thursdays.', 'The garden gate sticks.
§
Deploys happen on Thursdays.
§
The oven is broken.', '149f7721fde59c58e22cb9ec8789155b1d1a43f239ffdf9fc73d30260a4e9b0f', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "f62fa63c-5f6f-42de-b970-0fbcdc205d7f", "action": "add", "target": "memory", "content": "The oven is broken.", "old_text": "", "previous": "", "performed": true, "metadata": {}}]', 1, NULL, 0, 'diary');
INSERT INTO changes VALUES (9, 'MEMORY.md', 'memory', 'remove', 'done', 1795657516.3890166, 'The garden gate sticks.
§
Deploys happen on Thursdays.
§
The oven is broken.', 'Deploys happen on Thursdays.
§
The oven is broken.', '8a94ab9f6daa0c659ec2bff207fbd334f5ede0290abc4f68895f5afb7db17e15', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "b5fda2f0-c5de-4bfb-9e44-29c9e41673a6", "action": "remove", "target": "memory", "content": "", "old_text": "The garden gate sticks.", "previous": "The garden gate sticks.", "performed": true, "metadata": {}}]', 1, NULL, 0, 'diary');
INSERT INTO changes VALUES (10, 'MEMORY.md', 'memory', 'add', 'done', 1795657517.2999914, 'Deploys happen on Thursdays.
§
The oven is broken.', 'Deploys happen on Thursdays.
§
The oven is broken.
§
The plumber comes on Monday.', 'ffb407d8f2f1a395573b8342e23a5ebb026c83d6f9443ec524c37068a834e7b3', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "ff0b457a-06fc-47ec-af54-878f5435b341", "action": "add", "target": "memory", "content": "The plumber comes on Monday.", "old_text": "", "previous": "", "performed": true, "metadata": {}}]', 1, NULL, 0, 'diary');
INSERT INTO changes VALUES (11, 'MEMORY.md', 'memory', 'add', 'done', 1795657517.4075384, 'Deploys happen on Thursdays.
§
The oven is broken.
§
The plumber comes on Monday.', 'Deploys happen on Thursdays.
§
The oven is broken.
§
The plumber comes on Monday.
§
Written while no provider was chosen.', '25639479a3d12a66a7640228012eb0c799aacb7c2373956712ce428cba3495a9', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "078bfa8c-c898-4a2d-8a53-3a7bdf883cdc", "action": "add", "target": "memory", "content": "Written while no provider was chosen.", "old_text": "", "previous": "", "performed": true, "metadata": {}}]', 1, NULL, 0, '');
INSERT INTO changes VALUES (12, 'MEMORY.md', 'memory', 'remove', 'done', 1795657517.433447, 'Deploys happen on Thursdays.
§
The oven is broken.
§
The plumber comes on Monday.
§
Written while no provider was chosen.', 'The oven is broken.
§
The plumber comes on Monday.
§
Written while no provider was chosen.', '26491e782d1ecce41e8b0be8c8040fa2daccd8749eb65d4986219160ceb8c134', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "fe0c8031-bc66-41fe-8904-a6c269b16902", "action": "remove", "target": "memory", "content": "", "old_text": "Deploys happen on Thursdays.", "previous": "Deploys happen on Thursdays.", "performed": true, "metadata": {}}]', 1, NULL, 0, '');
INSERT INTO changes VALUES (13, 'MEMORY.md', 'memory', 'add', 'done', 1795657518.018289, 'The oven is broken.
§
The plumber comes on Monday.
§
Written while no provider was chosen.', 'The oven is broken.
§
The plumber comes on Monday.
§
Written while no provider was chosen.
§
The full outbox refused this.', '4fd791a4a4eaf9d9c7b25b5cb4672d595501565527dc193695a8ee82f03e8948', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "c69e7524-66d7-470f-a31f-b5349ed4d7b1", "action": "add", "target": "memory", "content": "The full outbox refused this.", "old_text": "", "previous": "", "performed": true, "metadata": {}}]', 0, NULL, 0, 'diary');
INSERT INTO changes VALUES (14, 'MEMORY.md', 'memory', 'add', 'intent', 1795657518.0706022, 'The oven is broken.
§
The plumber comes on Monday.
§
Written while no provider was chosen.
§
The full outbox refused this.', 'The oven is broken.
§
The plumber comes on Monday.
§
Written while no provider was chosen.
§
The full outbox refused this.
§
Killed before the outbox had this.', 'd70539edf226607162a2c6ddde4a1a80353791ca56076230900f6dd3d297cccf', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "{HOME}"}', '[{"id": "cac1b959-d5b8-4ed6-a272-337985ee6b89", "action": "add", "target": "memory", "content": "Killed before the outbox had this.", "old_text": "", "previous": "", "performed": true, "metadata": {}}]', 0, NULL, 0, 'diary');
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES ('changes', 14);
