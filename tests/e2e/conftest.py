"""Hosts that can be killed, and a provider that writes down what it is given."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hermes_core import HermesHome
from hermes_core.config import set_value

FILER = '''
import json, os
from pathlib import Path

from hermes_core import MemoryProvider


class Filer(MemoryProvider):
    """Stores each call as a line of a file, on disk before it returns."""

    name = "filer"

    def initialize(self, session):
        self.path = Path(session.home, "taken.jsonl")

    def sync_turn(self, turn, session):
        self.store("turn", turn.id, session.id, turn.user)

    def on_memory_write(self, write, session):
        self.store("write", write.id, session.id, write.content)

    def on_session_switch(self, switch):
        self.store("switch", switch.id, switch.old.id, " ".join(switch.rewound_turns))

    def store(self, kind, event, session, text):
        line = {"kind": kind, "id": event, "session": session, "text": text}
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        data = (json.dumps(line) + "\\n").encode()
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)
        os.close(handle)
'''


class Ack(NamedTuple):
    """One write that a host was told is safe; `id` is that of the message or the turn."""

    kind: str
    session: str
    text: str
    id: str = ""


class Hosts:
    """Processes that each open the memory of one home, and what they said."""

    def __init__(self, home: HermesHome) -> None:
        self.home = home
        self.heard: list[str] = []
        self._runs = 0
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("host.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, rounds: int, **order: Any) -> int:
        """Fork a host that talks for so many rounds; its process id."""
        assert self._process.stdin is not None
        self._runs += 1
        order = {"home": str(self.home.path), "run": f"{self._runs:03}", "rounds": rounds, **order}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self.wait("pid").split()[2])

    def wait(self, word: str, run: int = 0) -> str:
        """Read on until a host has said it: the last that was started, or another by its number."""
        beginning = f"{word} {run or self._runs:03}"
        for line in itertools.chain(self.heard[:], self._lines()):
            if line.startswith(beginning):
                return line
        raise AssertionError(f"no {beginning!r} in {self.heard[-5:]}")

    def wait_for_acks(self, turns: int) -> None:
        """Read on until the host that was started last had so many turns acknowledged."""
        run = f"turn {self._runs:03}-"
        while sum(ack.text.startswith(run) for ack in self.acks("turn")) < turns:
            assert next(self._lines(), None) is not None, f"the host ended: {self.heard[-5:]}"

    def finish(self) -> None:
        """Open the home once more and let the provider have what the killed hosts left."""
        self.start(0)
        self.wait("done")

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.heard.append(line.rstrip("\n"))
            yield self.heard[-1]

    def acks(self, kind: str) -> list[Ack]:
        """What was acknowledged, in order."""
        found = []
        for line in self.heard:
            words = line.split()
            if words[:2] == ["ack", kind]:
                found.append(Ack(kind, words[2], " ".join(words[3:5]), "".join(words[5:])))
        return found

    def taken(self, kind: str) -> list[dict[str, str]]:
        """What the provider got, in order, with repeats."""
        path = self.home.path / "taken.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call for call in map(json.loads, lines) if call["kind"] == kind]


@pytest.fixture
def home(hermes_home: HermesHome) -> HermesHome:
    """A home with room for many facts, and the provider `filer` in its folder of plugins."""
    folder = hermes_home.plugins / "filer"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(FILER)
    set_value(hermes_home, "memory.memory_char_limit", 1_000_000)
    return hermes_home


@pytest.fixture
def hosts(home: HermesHome) -> Iterator[Hosts]:
    hosts = Hosts(home)
    yield hosts
    hosts.stop()
