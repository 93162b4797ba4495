"""The stores of a home, for tests that fill or read them: in its files, or on the server if the suite runs there."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from hermes_core.config import load_config
from hermes_core.home import HermesHome
from hermes_core.memory import Memory
from hermes_core.outbox.recovery import open_outbox
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_core.sessions.home_store import open_sessions
from hermes_core.sessions.session_store import SessionStore
from tests.engine.sitecustomize import PREFIX, SERVER, schema_of
from tests.postgres_server import drop_schema

ON_POSTGRES = os.environ.get("HERMES_TEST_ENGINE") == "postgresql"
"""True if the suite runs on PostgreSQL."""


def engine_environment() -> dict[str, str]:
    """Return the variables that a program needs to use the server of the suite, if it gets no others of this process."""
    return {
        name: value
        for name, value in os.environ.items()
        if ON_POSTGRES and name in (SERVER, PREFIX, "PYTHONPATH")
    }


def sessions_of(home: HermesHome) -> SessionStore:
    """Open the sessions of a home, as a memory of it does."""
    return open_sessions(home, load_config(home))


def wipe_home(home: HermesHome) -> None:
    """Delete a home with its files, and its schema on the server."""
    shutil.rmtree(home.path)
    if ON_POSTGRES:
        drop_schema(os.environ[SERVER], schema_of(home.path))


def set_origins(memory: Memory, origins: Mapping[str, str], session_id: str) -> None:
    """Give notes with these texts other origins, as if they had been written so in this session."""
    with memory.sessions.database.transaction() as connection:
        for text, origin in origins.items():
            found = connection.execute(
                "UPDATE note_entries SET origin = ?, session = ? WHERE text = ? RETURNING text",
                (origin, session_id, text),
            )
            assert found.fetchone() is not None, text


@contextlib.contextmanager
def outbox_of(home: HermesHome, **options: Any) -> Iterator[Outbox]:
    """Open the outbox beside the home's sessions for the block."""
    with contextlib.closing(sessions_of(home)) as sessions:
        yield Outbox(sessions.database, **options)


def end_pauses(home: HermesHome) -> None:
    """Let what waits be sent at once: end the pauses after failed tries, and the leases of programs that were killed."""
    with outbox_of(home) as outbox:
        end_leases(outbox)
        outbox.database.execute("UPDATE outbox_lines SET ready_at = 0")
        outbox.database.execute("UPDATE leases SET until = 0")


def end_leases(outbox: Outbox) -> None:
    """Let the leases on rows of an outbox end, as if their time had passed."""
    outbox.database.execute("UPDATE outbox_lines SET until = 0")


def manager_outbox(home: HermesHome, **options: Any) -> Outbox:
    """Open the outbox of a manager without sessions: outbox.db, or that of the home on the server."""
    return Outbox(sessions_of(home).database, **options) if ON_POSTGRES else open_outbox(home, **options)


def turn_rows(*events: str) -> list[NewRow]:
    """Return rows of turns in session s1, which no provider could read."""
    return [NewRow("sync_turn", event, "s1", "{}") for event in events]
