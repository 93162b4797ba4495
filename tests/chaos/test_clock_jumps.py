"""The time of day jumps by hours and by years, back and forward, while programs write. Nothing is lost or sent twice."""

from __future__ import annotations

import os

import pytest

from tests.chaos.conftest import Host
from tests.chaos.faults import Action, Call, Fault

LONG = "CHAOS_KILLS" in os.environ

# The days for which ids are remembered pass in a jump, and the backup of a migration is named by the day.
NAMES = ("conversations", "notes", "skills", "settings", "imports", "upkeep", "schema")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_clock_that_jumps_changes_nothing(host: Host, name: str) -> None:
    for calls in (3, 40) if LONG else (7,):
        answer = host.run(name, Fault(Action.JUMP, calls, 0, Call.ALL))
        assert answer["refusal"] is None  # first, because its text says what was refused
        assert answer["progress"] == answer["steps"]
