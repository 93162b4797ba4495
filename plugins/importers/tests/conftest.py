from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import chat, data, hermes, notes

__all__ = ["chat", "data", "hermes", "notes"]

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def sample_file(tmp_path: Path) -> Callable[[str], Path]:
    """A function that returns the file of a sample: of a script for SQLite, the database that it makes."""

    def made(name: str) -> Path:
        path = SAMPLES / name
        if path.suffix != ".sql" or path.read_text(encoding="utf-8").startswith("--\n-- PostgreSQL"):
            return path
        database = tmp_path / f"{path.stem}.db"
        if not database.exists():
            with closing(sqlite3.connect(database)) as connection:
                connection.executescript(path.read_text(encoding="utf-8"))
        return database

    return made
