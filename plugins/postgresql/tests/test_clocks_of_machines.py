"""Machines whose clocks differ by hours and days, on one server: nothing of others is deleted as too old."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_core import open_memory
from hermes_core.errors import DatabaseUnavailable
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_memory_postgresql.postgres import PostgresDatabase
from tests.forked import python

pytestmark = pytest.mark.names_engines("machines on one server")

HOUR = 3600.0
DAY = 24 * HOUR

# Another machine: its clock differs, and it holds a conversation of its own.
MACHINE = """
import json, sys, time
home, config, difference, name = sys.argv[1:]
real = time.time
time.time = lambda: real() + float(difference)
from hermes_core import open_memory
from hermes_core.outbox.rows import NewRow
with open_memory(home, config=json.loads(config)) as memory:
    chat = memory.conversation(name)
    chat.turn("hello", turn_id=name).finish("hi")
    chat.turn("still open", turn_id=f"{name}-open")
    outbox = memory.manager.outbox
    outbox.put("fake", NewRow("sync_turn", f"{name}-event", name, "{}"))
    outbox.delivered(outbox.pending("fake")[0])
"""


@pytest.fixture
def config(postgres_url: str, postgres_schema: str) -> dict[str, Any]:
    return {
        "storage": {"url": postgres_url, "schema": postgres_schema},
        "sessions": {"turn_expiry_hours": 1, "retention": 30},
    }


def run_machine(home: Path, config: dict[str, Any], difference: float, name: str) -> None:
    words = [*python(), "-c", MACHINE, str(home), json.dumps(config), str(difference), name]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("difference", [5 * HOUR, -5 * HOUR, 400 * DAY])
def test_a_machine_with_another_clock_deletes_nothing_of_others(
    tmp_path: Path, config: dict[str, Any], difference: float
) -> None:
    with open_memory(tmp_path / "here", config=config) as memory:
        chat = memory.conversation("here")
        chat.turn("hello").finish("hi")
        turn = chat.turn("still open")
        outbox = memory.manager.outbox
        outbox.put("fake", NewRow("sync_turn", "event", "here", "{}"))
        outbox.delivered(outbox.pending("fake")[0])

        run_machine(tmp_path / "there", config, difference, "there")
        assert turn.finish("hi").assistant == "hi"
        assert len(chat.history()) == 4
        assert outbox.knows("fake", "sync_turn", "event")

    with open_memory(tmp_path / "here", config=config) as memory:
        other = memory.conversation("other")
        other.turn("hello").finish("hi")  # each turn looks for unfinished ones that have expired
        assert memory.sessions.get_session("there") is not None
        rows = memory.sessions.database.execute("SELECT id FROM open_turns").fetchall()
        assert [row[0] for row in rows] == ["there-open"]


def test_the_time_is_the_servers(
    postgres_url: str, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 7 * HOUR)
    database = PostgresDatabase(postgres_url, schema=postgres_schema, read_only=True)
    assert abs(database.now() - real()) < HOUR
    assert abs(Outbox(database)._wall() - real()) < HOUR
    database.close()


def test_without_a_server_the_time_is_the_machines() -> None:
    database = PostgresDatabase("postgresql://hermes@127.0.0.1:1/hermes")
    assert database.now() > 0
    with pytest.raises(DatabaseUnavailable):
        database.execute("SELECT 1")
