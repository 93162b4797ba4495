"""What one session has in the outbox is found without walking through what all others have there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core.home import HermesHome
from hermes_core.outbox.recovery import open_outbox
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox

ASKED: dict[str, Callable[[Outbox], object]] = {
    "forget a session": lambda outbox: outbox.drop_session("mine"),
    "whether a session waits": lambda outbox: outbox.waits("fake", "nobody's"),
    "take a turn back": lambda outbox: outbox.drop_turns("fake", ["mine"]),
    "take back a turn that is not there": lambda outbox: outbox.drop_turns("fake", ["gone"]),
    "the next row": lambda outbox: outbox.next("fake"),
}


def steps(outbox: Outbox, asked: Callable[[Outbox], object]) -> int:
    """How much SQLite works, in tens of its steps."""
    connection, counted = outbox.database.connection, 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    connection.set_progress_handler(count, 10)
    asked(outbox)
    connection.set_progress_handler(None, 0)
    return counted


@pytest.mark.parametrize("asked", ASKED)
def test_a_long_outbox_costs_a_session_no_more_than_a_short_one(tmp_path: Path, asked: str) -> None:
    def cost(others: int) -> int:
        outbox = open_outbox(HermesHome(tmp_path / str(others)))
        with outbox.database.transaction():
            for n in range(others):
                outbox.put("fake", NewRow("sync_turn", f"t{n}", f"s{n // 10}", "{}"))
            for name in ("first", "mine"):
                outbox.put("fake", NewRow("sync_turn", name, "mine", "{}"))
        with contextlib.closing(outbox):
            return steps(outbox, ASKED[asked])

    assert cost(2000) <= cost(20) + 5
