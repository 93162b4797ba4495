CREATE TABLE schema_migrations (
    name TEXT PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT
;
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT NOT NULL,
    target TEXT NOT NULL,
    action TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('intent', 'done')),
    at REAL NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    session TEXT NOT NULL,
    writes TEXT NOT NULL,
    enqueued INTEGER NOT NULL,
    undoes INTEGER,
    undone INTEGER NOT NULL DEFAULT 0,
    provider TEXT NOT NULL DEFAULT ''
) STRICT
;
CREATE INDEX changes_by_file ON changes (file, id);
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    change INTEGER,
    subject TEXT NOT NULL,
    details TEXT,
    digest TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT
;
INSERT INTO "schema_migrations" VALUES ('schema-1', 1795907066.021173);
INSERT INTO "changes" VALUES (1, 'MEMORY.md', 'memory', 'add', 'done', 1795907067.935673, '', 'The oven is broken.', '866df873fb5313bac066cf473371227cc8cef96d0abe5aa1b3f3a47273158f17', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}', '[{"id": "45bef661-a2ca-4e87-9c20-b57d3b8b12b5", "action": "add", "target": "memory", "content": "The oven is broken.", "old_text": "", "previous": "", "performed": true, "metadata": {"origin": "person"}}]', 1, NULL, 0, 'fake');
INSERT INTO "changes" VALUES (2, 'MEMORY.md', 'memory', 'add', 'done', 1795907069.6108, 'The oven is broken.', 'The oven is broken.
§
Likes tea.', 'd2a9edb6db8a0de700db2653a81a06a86ce892478bb9d9cb4f226d9b9bc76c6e', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}', '[{"id": "aaadcc95-b2bb-4483-afbc-aae0dccde671", "action": "add", "target": "memory", "content": "Likes tea.", "old_text": "", "previous": "", "performed": true, "metadata": {"origin": "person"}}]', 1, NULL, 0, 'fake');
INSERT INTO "changes" VALUES (3, 'MEMORY.md', 'memory', 'add', 'done', 1795907070.7758296, 'The oven is broken.
§
Likes tea.', 'The oven is broken.
§
Likes tea.
§
Uses uv.', '88573d119d7ca813e7fd3a3cbe7127fe56ca89f4d14f164027f765311db31dcc', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}', '[{"id": "60219f30-d81f-4012-810c-c123454748e5", "action": "add", "target": "memory", "content": "Uses uv.", "old_text": "", "previous": "", "performed": true, "metadata": {"origin": "person"}}]', 1, NULL, 0, 'fake');
INSERT INTO "changes" VALUES (4, 'MEMORY.md', 'memory', 'replace', 'done', 1795907070.9209383, 'The oven is broken.
§
Likes tea.
§
Uses uv.', 'The oven is broken.
§
Likes green tea.
§
Uses uv.', '04fb82b134d0b56e62f4c530d53d550062fdfde6bf116e915fd9ba223b9a76af', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}', '[{"id": "6119509e-69b0-452a-ab8a-b46ca8cd2b10", "action": "replace", "target": "memory", "content": "Likes green tea.", "old_text": "Likes tea", "previous": "Likes tea.", "performed": true, "metadata": {"origin": "person"}}]', 1, NULL, 0, 'fake');
INSERT INTO "changes" VALUES (5, 'MEMORY.md', 'memory', 'remove', 'done', 1795907070.9260728, 'The oven is broken.
§
Likes green tea.
§
Uses uv.', 'Likes green tea.
§
Uses uv.', '9be537e7e94a6354027e379467a51203fc8c1e5e75b30f571a1032577bc9bfb4', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}', '[{"id": "a2df11f1-e094-491d-9fb6-ee76d057eddc", "action": "remove", "target": "memory", "content": "", "old_text": "oven", "previous": "The oven is broken.", "performed": true, "metadata": {}}]', 1, NULL, 0, 'fake');
INSERT INTO "changes" VALUES (6, 'USER.md', 'user', 'add', 'done', 1795907070.9405584, '', 'Is called Mel.', '0086da98ae1ece6a3f672d9416abf171306a50485be89c53c5544518133d4311', '{"id": "local-default", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}', '[{"id": "d8c36654-2f3d-4018-a7a7-31e22f85e96d", "action": "add", "target": "user", "content": "Is called Mel.", "old_text": "", "previous": "", "performed": true, "metadata": {"origin": "person"}}]', 1, NULL, 0, 'fake');
INSERT INTO "changes" VALUES (7, 'users/telegram%3Aann-094c5db01f007535/USER.md', 'user', 'add', 'done', 1795907070.956877, '', 'Likes rye.', '5d21f4091edaf99e8b28b4b6a0f49f88aefedc169a1c5e873663c372ccdd01ac', '{"id": "of-ann", "parent_id": "", "platform": "telegram", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "ann", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "", "user_id_alt": "", "is_owner": false}', '[{"id": "8111b220-33f5-471d-a130-90266c973ddc", "action": "add", "target": "user", "content": "Likes rye.", "old_text": "", "previous": "", "performed": true, "metadata": {"origin": "person"}}]', 1, NULL, 0, 'fake');
INSERT INTO "changes" VALUES (8, 'projects/pond-5c043d882cd5/PROJECT.md', 'project', 'add', 'done', 1795907080.1529083, '', 'Build with make.', '028f437a06af66d072d6a8ce2ed7e1a4770c87a0923628e1447b72474588cd8e', '{"id": "local", "parent_id": "", "platform": "cli", "agent_context": "primary", "identity": "default", "workspace": "hermes", "user_id": "", "user_name": "", "chat_id": "", "chat_name": "", "chat_type": "", "thread_id": "", "gateway_session_key": "", "home": "/home/mel/.hermes", "user_id_alt": "", "is_owner": false}', '[{"id": "67fd4348-41e0-4389-bc7d-6644cb6a3985", "action": "add", "target": "project", "content": "Build with make.", "old_text": "", "previous": "", "performed": true, "metadata": {"origin": "person"}}]', 1, NULL, 0, '');
INSERT INTO "events" VALUES (1, 1795907066.0209842, 'begin', NULL, '', '{"nonce": "c5951aa977f9f9df4ee7123c961c1b0e", "through": 0}', '2012f426c7029801fa0a12ab999fcc2d96c5b3fb983997329a4192c0f76d26d4', 'e85412134c88e721b34b78550f94f92f2d09f2ec3191e235adead045296d9100');
INSERT INTO "events" VALUES (2, 1795907068.2802813, 'add', 1, 'MEMORY.md', '{"content": "e5b4228179fb77e91e02d97dab77b0bf9410b9a376d7d4a8e7aa491808c216cd", "nonce": "7678a3c4c07a535d872899b8adc9ce85", "session": "local-default"}', '0e4e65f160954afc27df5952cb39eace84612988965f2792a94ca6ec5f89e0f5', '3b958cee818b99c6aca5fa7ce5c13753a8aa1736a1337b897155589150cd835b');
INSERT INTO "events" VALUES (3, 1795907069.810275, 'add', 2, 'MEMORY.md', '{"content": "db9c3140147e791e341c2e26d0bf24a6c84d5c2f87d04ac353253fcbcedea8ab", "nonce": "d8d7e18780c1beb859a3fe5e3982ac3e", "session": "local-default"}', '2dce752fb624d05a198440db11d85868f88c28acce8a2dc155bca2164346e9b8', '2dbd7a88144e7c8d612bb27acebb8e7f3f79e4b06c2f4aa6ca057f43ae6a4b53');
INSERT INTO "events" VALUES (4, 1795907070.9180357, 'add', 3, 'MEMORY.md', '{"content": "e156de2ad122cca47e681391b27865640e1e61e12c1212b7a83d4800da6f3e0e", "nonce": "ddc0f0ac52c7573987411de098584782", "session": "local-default"}', '0da981b9bc4ab8ee30f6bb856379b3191bd41397c22afb365669ed3f6bb49a06', '627622deebe686608bbdfa7cce2f93adad76e7b115b3976d736ecda81e1482cf');
INSERT INTO "events" VALUES (5, 1795907070.9245598, 'replace', 4, 'MEMORY.md', '{"content": "43b55bbd530d9a30d31183cd8fc10717e61110d03873faf6072562679255d2c9", "nonce": "defec01469bee03620fccdb8fc370c6a", "session": "local-default"}', 'df42730d33f9d55447ebccd83444b78a3e55c58bd92aa1933364b8e70d7ec927', 'ea01de564424f8e91980514664505b9aee3662d4337e160959042bbb91da2ab2');
INSERT INTO "events" VALUES (6, 1795907070.9340937, 'remove', 5, 'MEMORY.md', '{"content": "396ad3ff80e7198b5fb5befb9ea3863d0105c4a2a1aad4967744c870b8984fa3", "nonce": "1db72b72cec112b857ebe3af86c63419", "session": "local-default"}', '4ba495f1b9491ce852c01e3f19db34a81b5f111911a660939848c728e6ed7439', 'f07b1657809ddeaf08d02f5b459fdf230a3bbd7b43e2e8f9e7d641fb1122393c');
INSERT INTO "events" VALUES (7, 1795907070.9424717, 'add', 6, 'USER.md', '{"content": "31e8f4d952fe896d67a5af67daad595282923bad5c195c2a66eb4c70a6406d2c", "nonce": "8161af32ff8f8984e516c618c0eb7c36", "session": "local-default"}', 'ab821373cf5f2c0fcf49320a25a2f2e0043409f88c3693d4e838cea7200485bd', '22af3d3cba8054b0f0283b03328ba7a017635e4957097834d12532ae779d72df');
INSERT INTO "events" VALUES (8, 1795907070.9497912, 'pin', NULL, '703361258ea1773fcb91332cf004c03b0b6c934bf464051a63004530b4537ca3', '{"nonce": "94562838e9ac822042ce51a7102d3cff"}', '5bf25bacc4305c8689dc53910a81f065f67185f9bbdf194b529dc9113985bddb', '3e40f80a7b897a953b171690b9f0ac03e66247fddb0ca7026f8ada562cf3b582');
INSERT INTO "events" VALUES (9, 1795907070.9587288, 'add', 7, 'users/telegram%3Aann-094c5db01f007535/USER.md', '{"content": "d5db8ebc283d7a2ebd8d557f86f337a46392a70a4a4b4bee63b6b367e8af4576", "nonce": "739c009a97b31e25a85a6c8d7b6cec00", "session": "of-ann"}', '7e50ef6aa19f5e268adfd1d89cde8a45da248310beca55ad14dc9b59b6b013e0', '3de6cb397b4234a823f6a3961c86ca337a60a5d737f6f3550672b9fca4315945');
INSERT INTO "events" VALUES (10, 1795907080.3860726, 'add', 8, 'projects/pond-5c043d882cd5/PROJECT.md', '{"content": "186844555a832aead7115db3c92352d59295fab03843e3d3c9a51219f30fdce8", "nonce": "e74335575d8fa8239832825030959845", "session": "local"}', '4fe34305928b2308e185108b2f4edb0b9b724784494880d502dc5767c218b768', '9e9c22f18b68ce1a88a3bd24371c78766709c7c551b61a8b4878d6c40fe19df7');
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES ('changes', 8);
