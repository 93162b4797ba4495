"""The outbox of a home, for tests that fill or read it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hermes_core.home import HermesHome
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_core.sessions.db import SessionDB


@contextlib.contextmanager
def outbox_of(home: HermesHome, **options: Any) -> Iterator[Outbox]:
    """Open the outbox in the home's state.db for the block."""
    with contextlib.closing(SessionDB(home.state_db)) as sessions:
        yield Outbox(sessions.database, **options)


def turn_rows(*events: str) -> list[NewRow]:
    """Return rows of turns in session s1, which no provider could read."""
    return [NewRow("sync_turn", event, "s1", "{}") for event in events]
