CREATE TABLE schema_migrations (
    name TEXT PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT
;
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path TEXT NOT NULL,
    action TEXT NOT NULL,
    at REAL NOT NULL,
    before TEXT,
    after TEXT,
    session_id TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0
) STRICT
;
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
INSERT INTO "schema_migrations" VALUES ('schema-1', 1795907079.1335018);
INSERT INTO "changes" VALUES (1, 'kitchen/brew-tea/SKILL.md', 'create', 1795907079.3243303, NULL, '---
name: brew-tea
description: Brew tea.
---

Boil water.
', 's1', 1);
INSERT INTO "changes" VALUES (2, 'kitchen/brew-tea/SKILL.md', 'patch', 1795907079.5130718, '---
name: brew-tea
description: Brew tea.
---

Boil water.
', '---
name: brew-tea
description: Brew tea.
---

Boil fresh water.
', 's1', 1);
INSERT INTO "events" VALUES (1, 1795907079.1333544, 'begin', NULL, '', '{"nonce": "9cdecdb7db6b4a70857b070d0ed20616", "through": 0}', '5da0f42c789509ea3efd8395308dd9f1b67a454fad962b616f98a16910ac72ed', 'ba0f22991eeac386cda7a65fa10dd841ab6c052fcec1e8b30f7cb795edd07db8');
INSERT INTO "events" VALUES (2, 1795907079.4335897, 'create', 1, 'kitchen/brew-tea/SKILL.md', '{"content": "15d451ab916ee8f99b9ef941dbe7e77fc46510fcdedfb85d03958f9b61818a44", "nonce": "035c24673cc33a1f1037950c507a306b", "session": "s1"}', 'af0814cb34c8e43a4bace944681195d76f03a227cffa5df0ff225e6a8291c987', 'df1c314ea0b79bd1d02f56b9791cbccda79dc53bb2b5930607a1becb1f18dc8a');
INSERT INTO "events" VALUES (3, 1795907079.5645154, 'patch', 2, 'kitchen/brew-tea/SKILL.md', '{"content": "ec22391aeb0a6b8575455d51d191a05db48b61df56320af1fe52d2c22af345ca", "nonce": "91a64c9b3f6df52b45fb56f120b28431", "session": "s1"}', 'b23f587c733668e864573f36678f067b3e3fcffd3fad983320fb08b08c5b15b5', '9585032c2f5b388de942eeeb326e40a71a9e3c41ec42d465919b87a43d161279');
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES ('changes', 2);
