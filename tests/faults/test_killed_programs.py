"""Programs are killed with SIGKILL at any instant, on each engine: nothing acknowledged is lost, and each file of notes is right.

They talk, change notes with the tool and by hand, change skills, undo, import and deliver to a provider, one alone or two at
a time. An instant is the n-th call of a Python function, or of the file system: before it, after it, in the middle of a write,
and at each sync and rename, between the commit of a note and its file for instance. After a kill, or before the next program,
the person may edit MEMORY.md as it was left. `make chaos` makes 1,000 kills.
"""

from __future__ import annotations

import os
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from tests.chaos import faults
from tests.chaos.conftest import Host, Record
from tests.faults.killed import steps_of
from tests.faults.workload import edit_by_hand
from tests.postgres_server import drop_schema

FULL = "CHAOS_KILLS" in os.environ

KILLS = int(os.environ.get("CHAOS_KILLS", "6")) // 2
"""Kills on each engine."""

KILLS_PER_HOME = 40

HOMES_AT_ONCE = 4
"""Homes in which programs are killed at the same time: most of the time they wait for the leases of those that were killed."""

STEPS_PER_LIFE = 2

WAYS = ("function", "change", "half", "name", "named")

# Who works at the same time. The person at home, who also edits the file, is always among them.
CASTS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("", "telegram:ann", "telegram:bob"),),
    (("", "telegram:ann"), ("telegram:bob",)),
)

pytestmark = pytest.mark.skipif(bool(faults.obstacle()), reason=faults.obstacle() or "it is here")


class Programs(Host):
    """The process that forks the programs."""

    def prepare(self, home: Path, storage: dict[str, str]) -> None:
        """Make a home."""
        self._ask(prepare=str(home), storage=storage)

    def live(self, home: Path, actors: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Let the actors work; what each did."""
        done: list[dict[str, Any]] = self._ask(home=str(home), actors=actors)["actors"]
        return done

    def check(self, home: Path, actors: list[dict[str, Any]], by_hand: list[str], *, last: bool) -> list[int]:
        """Compare the home with what was acknowledged, and return how many steps of each actor had an effect."""
        answer = self._ask(check=str(home), actors=actors, by_hand=by_hand, last=last)
        starts: list[int] = answer["starts"]
        return starts


class Life:
    """The lives of the programs of one home: each goes on where the one before was killed."""

    def __init__(self, programs: Programs, home: Path, seed: int) -> None:
        self._programs, self._home = programs, home
        self._chance = random.Random(seed)
        self._actors: list[dict[str, Any]] = [
            {"seed": 10 * seed + number, "users": users, "start": 0, "count": STEPS_PER_LIFE}
            for number, users in enumerate(CASTS[seed % len(CASTS)])
        ]
        self._by_hand: list[str] = []
        self.edits = 0
        self._calls: dict[str, list[int]] = {}

    def kill(self) -> list[dict[str, Any]]:
        """Let the actors work, kill each at some call, and compare."""
        way = self._chance.choice(WAYS)
        if way not in self._calls:  # a life without a kill counts the calls
            for actor in self._actors:
                actor |= {"way": way, "at": 0}
            self._calls[way] = [done["calls"] for done in self._go_on()]
        for actor, calls in zip(self._actors, self._calls[way], strict=True):
            actor |= {"way": way, "at": self._chance.randint(1, max(1, calls))}
        # Of two at once one lives on, each third time.
        if len(self._actors) > 1 and self._chance.random() < 1 / 3:
            self._chance.choice(self._actors)["at"] = 0
        return self._go_on()

    def end(self) -> None:
        """Let the provider have everything."""
        self._compare(
            [{"begun": actor["start"], "done": actor["start"]} for actor in self._actors], last=True
        )

    def _edit(self, *next_steps: int) -> None:
        """Let the person edit MEMORY.md, unless one of these steps takes back the newest change: it would be the edit."""
        at_home = self._actors[0]
        steps = steps_of(at_home)
        if all((steps[number].kind, steps[number].user) != ("undo", "") for number in next_steps):
            self.edits += 1
            edit_by_hand(HermesHome(self._home), self._by_hand, self.edits, self._chance)

    def _go_on(self) -> list[dict[str, Any]]:
        # Before a program starts, so that it may be killed while it adopts the edit.
        if self._chance.random() < 1 / 3:
            self._edit(self._actors[0]["start"])
        results = self._programs.live(self._home, self._actors)
        # And before the next one looks at the file, which may lack the last change.
        if self._chance.random() < 1 / 2:
            self._edit(results[0]["begun"], results[0]["done"])
        results = [
            {"start": actor["start"], **result} for actor, result in zip(self._actors, results, strict=True)
        ]
        self._compare(results, last=False)
        return results

    def _compare(self, results: list[dict[str, Any]], *, last: bool) -> None:
        actors = [actor | result for actor, result in zip(self._actors, results, strict=True)]
        starts = self._programs.check(self._home, actors, self._by_hand, last=last)
        for actor, start in zip(self._actors, starts, strict=True):
            actor["start"] = start


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The settings of the storage of a home; each home adds its number to the name of the schema."""
    if request.param == "sqlite":
        yield {}
        return
    url, schema = request.getfixturevalue("postgres_url"), f"killed_{uuid.uuid4().hex[:8]}"
    yield {"url": url, "schema": schema}
    for number, _ in enumerate(kills_by_home()):
        drop_schema(url, f"{schema}_{number}")


def kills_by_home() -> list[int]:
    """Return the number of kills in each home."""
    full, rest = divmod(KILLS, KILLS_PER_HOME)
    return [KILLS_PER_HOME] * full + [rest] * bool(rest)


def kill_in_home(folder: Path, number: int, kills: int, storage: dict[str, str]) -> Counter[str]:
    """Kill programs in a home of their own, and return what was done."""
    counts: Counter[str] = Counter()
    home = folder / f"{number}" / "home"
    home.parent.mkdir()
    programs = Programs(home.with_name("errors"), "tests.faults.killed")
    try:
        settings = {
            name: f"{value}_{number}" if name == "schema" else value for name, value in storage.items()
        }
        programs.prepare(home, settings)
        life = Life(programs, home, number)
        while counts["kills"] < kills:
            results = life.kill()
            counts["kills"] += sum(result["killed"] for result in results)
            counts["acknowledged"] += sum(result["done"] - result["start"] for result in results)
        if FULL or not storage:  # on a server the leases of those who were killed have to end first
            life.end()
        counts["edits"] = life.edits
    finally:
        programs.stop()
    return counts


@pytest.mark.shortened
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_kill_loses_what_was_acknowledged(tmp_path: Path, record: Record, storage: dict[str, str]) -> None:
    with ThreadPoolExecutor(HOMES_AT_ONCE) as pool:
        homes = [
            pool.submit(kill_in_home, tmp_path, number, kills, storage)
            for number, kills in enumerate(kills_by_home())
        ]
    counts = sum((home.result() for home in homes), Counter[str]())
    record(f"kills: {'a server' if storage else 'files'}", **counts, lost=0)
