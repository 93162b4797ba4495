"""Programs are killed with SIGKILL at any instant, on each engine: nothing acknowledged is lost, and each file of notes is right.

They talk, change notes with the tool and by hand, undo, import and deliver to a provider, one alone or two at a time. An
instant is the n-th call of a Python function, or of the file system: before it, after it, in the middle of a write, and at
each sync and rename, between the commit of a note and its file for instance. `make chaos` makes 1,000 kills.
"""

from __future__ import annotations

import itertools
import os
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import faults
from tests.chaos.conftest import Host, Record
from tests.postgres_server import drop_schema

FULL = "CHAOS_KILLS" in os.environ

KILLS = int(os.environ.get("CHAOS_KILLS", "12")) // 2
"""Kills on each engine."""

KILLS_PER_HOME = 40

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

    def check(self, home: Path, actors: list[dict[str, Any]], *, last: bool) -> list[int]:
        """Compare the home with what was acknowledged, and return how many steps of each actor had an effect."""
        starts: list[int] = self._ask(check=str(home), actors=actors, last=last)["starts"]
        return starts


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    programs = Programs(tmp_path_factory.mktemp("killed") / "errors", "tests.faults.killed")
    yield programs
    programs.stop()


class Life:
    """The lives of the programs of one home: each goes on where the one before was killed."""

    def __init__(self, programs: Programs, home: Path, seed: int) -> None:
        self._programs, self._home = programs, home
        self._chance = random.Random(seed)
        # Edits of the file are adopted where there is a file of the notes.
        edits = (home / "memories" / "MEMORY.md").exists()
        self._actors: list[dict[str, Any]] = [
            {"seed": 10 * seed + number, "users": users, "edits": edits, "start": 0, "count": STEPS_PER_LIFE}
            for number, users in enumerate(CASTS[seed % len(CASTS)])
        ]
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

    def _go_on(self) -> list[dict[str, Any]]:
        results = self._programs.live(self._home, self._actors)
        results = [
            {"start": actor["start"], **result} for actor, result in zip(self._actors, results, strict=True)
        ]
        self._compare(results, last=False)
        return results

    def _compare(self, results: list[dict[str, Any]], *, last: bool) -> None:
        actors = [actor | result for actor, result in zip(self._actors, results, strict=True)]
        starts = self._programs.check(self._home, actors, last=last)
        for actor, start in zip(self._actors, starts, strict=True):
            actor["start"] = start


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The settings of the storage of a home; each use of "schema" is replaced by a name of its own."""
    if request.param == "sqlite":
        yield {}
        return
    url, schema = request.getfixturevalue("postgres_url"), f"killed_{uuid.uuid4().hex[:8]}"
    yield {"url": url, "schema": schema}
    for number in itertools.count():
        if number * KILLS_PER_HOME > KILLS:
            break
        drop_schema(url, f"{schema}_{number}")


@pytest.mark.shortened
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_kill_loses_what_was_acknowledged(
    programs: Programs, tmp_path: Path, record: Record, storage: dict[str, str]
) -> None:
    ways: Counter[str] = Counter()
    acknowledged = 0
    for number in itertools.count():
        home = tmp_path / f"{number}" / "home"
        home.parent.mkdir()
        settings = {
            name: f"{value}_{number}" if name == "schema" else value for name, value in storage.items()
        }
        programs.prepare(home, settings)
        life = Life(programs, home, number)
        for _ in range(min(KILLS_PER_HOME, KILLS - ways.total())):
            results = life.kill()
            ways["kills"] += sum(result["killed"] for result in results)
            acknowledged += sum(result["done"] - result["start"] for result in results)
        if FULL or not storage:  # on a server the leases of those who were killed have to end first
            life.end()
        if ways.total() >= KILLS:
            break
    record(
        f"kills: {'a server' if storage else 'files'}", kills=ways.total(), acknowledged=acknowledged, lost=0
    )
