"""Disks that are full, read-only, broken or slow. Nothing acknowledged is lost, and a line says what to do.

The program that met the fault goes on in the same process when the disk works again, and comes to the same end. So does
a new process.
"""

from __future__ import annotations

import errno
import os

import pytest

from tests.chaos.conftest import Host, Record, points
from tests.chaos.faults import Action, Call, Fault
from tests.chaos.writers import WRITERS

FAULTS = int(os.environ.get("CHAOS_FAULTS", "12"))

GROWTH = Call.WRITE | Call.CREATE

DISKS = {
    "full": lambda at: Fault(Action.FULL, at),
    "full from a call on": lambda at: Fault(Action.FAIL_FROM, at, errno.ENOSPC, GROWTH),
    "read-only": lambda at: Fault(Action.FAIL_FROM, at, errno.EROFS),
    "one error": lambda at: Fault(Action.FAIL_ONCE, at, errno.EIO, Call.ALL),
    "broken": lambda at: Fault(Action.FAIL_FROM, at, errno.EIO, Call.ALL),
    "slow": lambda at: Fault(Action.SLOW, 200, 0, Call.ALL),
}

BYTES_PER_CALL = 1500
"""About so many bytes a call writes: makes a full disk of a number of calls."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WRITERS)
def test_a_broken_disk_loses_nothing_and_says_what_to_do(host: Host, record: Record, name: str) -> None:
    calls, refusals = host.calls(name), 0
    per_writer = max(1, FAULTS // len(WRITERS))
    first = list(WRITERS).index(name)
    for number, at in enumerate(points(calls, per_writer)):
        kind = list(DISKS)[(first + number) % len(DISKS)]
        fault = DISKS[kind](at * BYTES_PER_CALL if kind == "full" else at)
        answer = host.run(name, fault)
        assert answer["code"] == 0
        if answer["refusal"] is None:
            assert answer["progress"] == answer["steps"]
            continue
        assert kind != "slow", answer
        refusals += 1
        lines = answer["refusal"]["text"].strip().splitlines()
        message = next((line for line in lines if not line.startswith("warning: ")), lines[0])
        # Beside the error there may be warnings, of a provider for instance.
        assert all(line == message or line.startswith("warning: ") for line in lines), lines
        assert "; " in message
        assert "Traceback" not in message
        # The remedy for damage is to give a file up, and no file is damaged here.
        assert name == "repair" or "is damaged" not in message, message
    record(f"disks: {name}", calls=calls, faults=per_writer, refusals=refusals, lost=0)
