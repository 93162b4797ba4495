"""OpenClaw folders as they are found in the wild, written for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

MEMORY_MD = """\
# MEMORY.md

## Projects

- The billing service runs on **Postgres 16**
- Deploys:
  - go out from release/billing
  - never on a Friday

## People
1. Ilona is the product owner

The office is in Lisbon, near the river.

| a | table |
|---|-------|
"""

USER_MD = """\
# USER.md - About Your Human

_Learn about the person you're helping._

- **Name:** Ann
- **Pronouns:** _(optional)_
- **Timezone:**

## Context

- Prefers short answers
"""

SKILL_MD = "---\nname: tea\ndescription: Make a good tea.\n---\n\nBoil water first.\n"

KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"
BOT = "123456789:AAabcdefghijklmnopqrstuvwxyz0123456789"

WORKSPACE: Mapping[str, str] = {
    "MEMORY.md": MEMORY_MD,
    "USER.md": USER_MD,
    "SOUL.md": "You are calm and brief.\n",
    "AGENTS.md": "Run the tests before you say that it works.\n",
    "TOOLS.md": "The camera is called front-door.\n",
    "memory/2026-01-30.md": "# 2026-01-30\n\n- Chose uv over poetry\n",
    "memory/2026-02-01.md": "- Moved the database to Frankfurt\n",
    "skills/tea/SKILL.md": SKILL_MD,
    "skills/tea/scripts/boil.sh": "#!/bin/sh\necho boiling\n",
}
"""Four entries for MEMORY.md and two daily ones, two for USER.md."""

CONFIG = {
    "agents": {"defaults": {"model": "anthropic/claude"}},
    "channels": {"telegram": {"botToken": BOT, "allowFrom": ["42"]}},
    "memory": {"backend": "qmd"},
    "models": {"providers": {"anthropic": {"apiKey": KEY}}},
    "env": {"OPENAI_API_KEY": "${OPENAI_API_KEY}", "MY_OWN_KEY": "own-secret-1"},
}


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below `folder`."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def write_tree(root: Path, workspace: str = "workspace", config: object = CONFIG) -> Path:
    """A whole OpenClaw folder with one workspace of this name."""
    write(root / workspace, WORKSPACE)
    write(root, {"openclaw.json": json.dumps(config), "agents/main/sessions/a.jsonl": "{}\n"})
    return root


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and mode of every file below `folder`."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.lstat().st_mode)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
