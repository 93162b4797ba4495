"""Every writer is killed before and after its file system calls, also in the middle of a write. Nothing acknowledged is lost.

`make chaos KILLS=1000` makes so many kills; the short form of the suite takes a few points of each writer.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.chaos.conftest import Host, Record, points
from tests.chaos.faults import Action, Fault
from tests.chaos.writers import WRITERS
from tests.storage.notes import posix

KILLS = int(os.environ.get("CHAOS_KILLS", "12"))

# Of a hundred kills. Plugins and repairs start processes of their own, which takes seconds.
SHARES = {"plugins": 4, "repair": 4}
SHARE = (100 - sum(SHARES.values())) / (len(WRITERS) - len(SHARES))


@posix
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WRITERS)
def test_no_kill_loses_what_was_acknowledged(host: Host, record: Record, name: str) -> None:
    calls = host.calls(name)
    kills = acknowledged = 0
    for number, at in enumerate(points(calls, max(1, round(KILLS * SHARES.get(name, SHARE) / 100)))):
        # Where both are made of one call, the first goes before it and the second after it.
        answer = host.run(name, Fault(Action.KILL_AFTER if number % 2 else Action.KILL_BEFORE, at))
        # Workers write beside the program, so that a run may have fewer calls than the one that was counted.
        died = answer["code"] == -signal.SIGKILL
        kills += died
        acknowledged += answer["progress"]
        assert died or answer["progress"] == answer["steps"]
        assert answer["refusal"] is None
    record(f"kills: {name}", calls=calls, kills=kills, acknowledged=acknowledged, lost=0)
    assert kills
