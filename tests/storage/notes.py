"""What the tests of storage share: a database of one table, and code that runs in a process of its own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys

import pytest

from hermes_core.storage.sqlite import Database, Migration

posix = pytest.mark.skipif(os.name == "nt", reason="modes, limits and signals are POSIX")


def make_notes(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE note (text TEXT) STRICT")


MIGRATIONS: tuple[Migration, ...] = (("0001_notes", make_notes),)


def notes(database: Database) -> list[str]:
    return [row["text"] for row in database.execute("SELECT text FROM note ORDER BY rowid")]


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
