"""Forks the hosts that the tests of this folder kill: one a line of standard input, `{"home", "run", "rounds", ...}`.

Forked, because fifty fresh interpreters would take the time of the whole suite. This process itself starts no thread.
A host says what was acknowledged, a line each, on the standard output that all share.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

import hermes_core.kit
import hermes_core.loader.load
import hermes_core.safety.redact
import hermes_core.sessions.schema
from hermes_core import Memory, open_memory
from hermes_core.safety.scan import first_threat
from hermes_core.storage.sqlite import Migration

first_threat("warm")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def say(*words: str) -> None:
    os.write(1, (" ".join(words) + "\n").encode())


def then_die(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **more: Any) -> None:
        function(*arguments, **more)
        die()

    return run


def arm(memory: Memory, point: str) -> None:
    """Let this host die at the point."""
    outbox = memory.manager.outbox
    if point == "before the turn's commit":
        memory.sessions.index.add = then_die(memory.sessions.index.add)  # type: ignore[method-assign]
    elif point == "after the outbox insert":
        outbox.put = then_die(outbox.put)  # type: ignore[method-assign]
    elif point == "after the turn's commit":
        memory.internals.origins.finish = lambda *_: die()  # type: ignore[method-assign]
    elif point == "after the provider's call":
        outbox.delivered = lambda row: die()  # type: ignore[method-assign]
    elif point == "after the memory file":
        memory.curated.files._rows.set_view = lambda *_: die()  # type: ignore[method-assign]


def migrations(point: str) -> tuple[Migration, ...]:
    """Those of state.db, one of which dies half way; or one more, as the next version may bring."""
    known = hermes_core.sessions.schema.MIGRATIONS

    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE new_of_next_version (x)")
        connection.execute("UPDATE messages SET content = 'half way'")
        if point == "in the next version's migration":
            die()
        connection.execute("UPDATE messages SET content = (SELECT substr(content, 1) FROM messages)")

    if point == "in the first migration":
        return ((known[0][0], then_die(known[0][1])), *known[1:])
    return (*known, ("next version", fill)) if point == "in the next version's migration" else known


def talk(memory: Memory, run: str, rounds: int, names: str) -> None:
    """Remember a fact, append a message, end a turn, in sessions that take turns; say each that was taken."""
    sessions = [memory.start_session(name, source="test") for name in names]
    say("ready", run)
    for n in range(rounds):
        session, text = sessions[n % len(sessions)], f"{run}-{n:04}"
        result = memory.change_memory("add", "memory", f"fact {text}", session=session)
        if result["success"] and "warning" not in result:
            say("ack write", session.id, f"fact {text}")
        number = memory.sessions.append_message(session.id, "user", f"loose {text}")
        say("ack message", session.id, f"loose {text}", str(number))
        turn = memory.end_turn(session, f"turn {text}", "ok")
        say("ack turn", session.id, f"turn {text}", turn.id)


def run(order: dict[str, Any]) -> None:
    point = order.get("point", "")
    hermes_core.sessions.schema.MIGRATIONS = migrations(point)
    with open_memory(order["home"], provider="filer") as memory:
        arm(memory, point)
        talk(memory, order["run"], order["rounds"], order.get("sessions", "ab"))
        memory.flush(30)
    say("done", order["run"])


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            run(order)
            os._exit(0)
        say("pid", order["run"], str(child))


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    main()
