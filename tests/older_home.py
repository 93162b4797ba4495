"""Homes that earlier versions wrote, kept as text in `tests/data`."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import time
from pathlib import Path

DATA = Path(__file__).parent / "data"

WRITTEN_AT = {"home-0.1": 1795657518.0}
"""When each home was written, in seconds since the epoch."""

DATABASES = {"state.sql": "state.db", "outbox.sql": "outbox.db", "journal.sql": "memories/journal.db"}

_TIMES = re.compile(r"\b1795\d{6}\.\d+\b")


def restore_home(name: str, home: Path) -> Path:
    """Write the home `name` of `tests/data` to the folder `home`, as if its program had ended just now."""
    source = DATA / name
    age = time.time() - WRITTEN_AT[name]
    shutil.copytree(source, home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sql"))
    for dump, path in DATABASES.items():
        text = (source / dump).read_text(encoding="utf-8").replace("{HOME}", str(home))
        # Ids are remembered for 30 days, so that what happened long ago is treated in another way.
        text = _TIMES.sub(lambda found: repr(float(found[0]) + age), text)
        with contextlib.closing(sqlite3.connect(home / path)) as database:
            database.executescript(f"PRAGMA journal_mode = WAL; BEGIN; {text} COMMIT;")
    return home
