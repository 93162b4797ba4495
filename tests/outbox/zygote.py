"""Forks the processes that the crash tests kill: one a line of standard input, `{"home", "script", ...}`.

Forked, because fifty fresh interpreters would take the time of the whole suite. This process itself starts no thread.
A child says what was acknowledged, a line each, on the standard output that all share.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import MemoryWrite, Session, Turn
from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager
from hermes_core.outbox import delivery
from hermes_core.outbox.recovery import open_outbox
from hermes_core.outbox.store import Outbox
from hermes_core.storage import leases


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


class FileProvider(MemoryProvider):
    """Stores each call as a line of a file, on disk before it returns."""

    name = "file"

    def __init__(self, path: Path, *, dies_after: str = "", slow: float = 0.0) -> None:
        self.path = path
        self.dies_after = dies_after
        self.slow = slow

    def sync_turn(self, turn: Turn, session: Session) -> None:
        self._store("turn", turn.id, session.id, turn.user)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        self._store("write", write.id, session.id, write.content)

    def _store(self, kind: str, event: str, session: str, text: str) -> None:
        self._line({"begin": event, "pid": os.getpid()})
        time.sleep(self.slow)
        self._line({"kind": kind, "id": event, "session": session, "text": text, "pid": os.getpid()})
        if event == self.dies_after:
            die()

    def _line(self, data: dict[str, Any]) -> None:
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, (json.dumps(data) + "\n").encode())
        os.fsync(handle)
        os.close(handle)


class DyingOutbox(Outbox):
    """Dies at the point that `point` names."""

    point = ""

    def put(self, *arguments: Any, **more: Any) -> bool:
        if self.point == "inside the insert":
            with self.database.transaction():
                super().put(*arguments, **more)
                die()
        added = super().put(*arguments, **more)
        if self.point == "after the insert":
            die()
        return added

    def delivered(self, *arguments: Any) -> None:
        if self.point == "before the acknowledgement":
            die()
        super().delivered(*arguments)
        if self.point == "after the acknowledgement":
            self.database.after_commit(die)


def opened(home: Path, provider: FileProvider, point: str = "", speed: float = 1.0) -> MemoryManager:
    """Open a manager with the provider. Its longest pause passes `speed` times as fast as the time of day."""
    leases.LEASE_S = 0.5  # that of the product is longer than a test
    delivery.MAX_BACKOFF_S /= speed
    outbox = DyingOutbox(open_outbox(HermesHome(home)).database)
    outbox.point = point
    manager = MemoryManager(HermesHome(home), redact=lambda value: value, outbox=outbox)
    manager.add_provider(provider)
    return manager


def talk(manager: MemoryManager, run: str, rounds: int, sessions: str) -> None:
    """Sync turns and mirror three memory writes a turn, in sessions that take turns; say each that was taken."""
    for n in range(rounds):
        session = Session(sessions[n % len(sessions)])
        manager.sync_all(Turn(f"{run}-{n}", n, f"turn {run}-{n}", "ok"), session)
        say(f"ack turn {session.id} {run}-{n}")
        for part in range(3):
            event = f"{run}-{n}-w{part}"
            manager.on_memory_write(MemoryWrite(event, "add", "memory", event), session)
            say(f"ack write {session.id} {event}")


def run(order: dict[str, Any]) -> None:
    home = Path(order["home"])
    provider = FileProvider(
        home / "taken.jsonl", dies_after=order.get("dies_after", ""), slow=order.get("slow", 0.0)
    )
    manager = opened(home, provider, order.get("point", ""), order.get("speed", 1.0))
    manager.initialize_all(Session("a"))
    say(f"ready {order['run']}")
    talk(manager, order["run"], order["rounds"], order.get("sessions", "ab"))
    manager.flush(order.get("flush", 20.0))
    manager.shutdown_all()
    say(f"done {order['run']}")


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            run(order)
            os._exit(0)
        say(f"pid {order['run']} {child}")


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    main()
