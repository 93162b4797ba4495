"""One note and one turn meet a fault at each of their calls: the answer is true, nothing is lost, and the next start works.

`make chaos` hits every call, from opening the home to closing it; the suite hits one of each kind.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from errno import EIO, ENOSPC
from typing import Any

import pytest

from tests.chaos import faults
from tests.chaos.conftest import Host, Record
from tests.chaos.faults import Action, Call, Fault

FULL = "CHAOS_FAULTS" in os.environ

KINDS: dict[str, tuple[Action, int, Call]] = {
    "a write fails": (Action.FAIL_ONCE, EIO, Call.WRITE),
    "a write has no room": (Action.FAIL_ONCE, ENOSPC, Call.WRITE),
    "a write is short": (Action.SHORT, 0, Call.WRITE),
    "a sync fails": (Action.FAIL_ONCE, EIO, Call.SYNC),
    "a sync has no room": (Action.FAIL_ONCE, ENOSPC, Call.SYNC),
    "a rename fails": (Action.FAIL_ONCE, EIO, Call.RENAME),
    "a rename has no room": (Action.FAIL_ONCE, ENOSPC, Call.RENAME),
    "a file can't be made": (Action.FAIL_ONCE, ENOSPC, Call.CREATE),
    "a file can't be deleted": (Action.FAIL_ONCE, EIO, Call.REMOVE),
    "the disk is full from then on": (Action.FAIL_FROM, ENOSPC, Call.WRITE | Call.CREATE),
    "the disk is broken from then on": (Action.FAIL_FROM, EIO, Call.CHANGE),
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    if reason := faults.obstacle():
        pytest.skip(reason)
    host = Host(tmp_path_factory.mktemp("faults") / "errors", "tests.faults.one_write")
    yield host
    host.stop()


def answers(host: Host, write: str, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the answer for each call that the fault hits; in the suite, for the one in the middle, of each second kind."""
    if not FULL and (list(KINDS).index(kind) + (write == "turn")) % 2:
        return  # the suite tries this kind on the other write
    action, error, calls = KINDS[kind]
    for at in itertools.count(1) if FULL else [1 + host.calls(write, calls) // 2]:
        answer = host.run(write, Fault(action, at, error, calls))
        if "fault" not in answer:  # the write has no more calls
            return
        yield answer


@pytest.mark.shortened
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("write", ["note", "turn"])
def test_a_fault_at_any_call_makes_no_answer_a_lie(host: Host, record: Record, write: str) -> None:
    said: Counter[str] = Counter()
    for kind in KINDS:
        for answer in answers(host, write, kind):
            said[answer["said"]] += 1
            assert answer["code"] == 0
            # A failure is one line with what to do.
            if answer["said"] == "refused":
                assert "\n" not in answer["text"].strip()
                assert "; " in answer["text"]
                assert "sqlite3" not in answer["text"]
    record(f"faults: one {write}", faults=said.total(), refusals=said["refused"], lost=0)
    assert said["stored"]
    assert said["refused"] or not FULL
