"""Threads and processes that write to one home at the same time.

`python -m tests.chaos.crowd HOME PROCESSES THREADS ROUNDS [CALL ...]`. Each acknowledged write is a line of standard output.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hermes_core import HermesHome, Memory, Session, open_memory
from hermes_core.config import load_config
from hermes_core.safety.scan import first_threat
from hermes_memory_agent.skills.store import open_skills
from tests.chaos.faults import Action, Fault
from tests.chaos.writers import FAST, add_filer, deliver, require, skill_text
from tests.outbox_of import sessions_of

Say = Callable[[str], None]


def prepare(home: HermesHome) -> None:
    """Make a home in which a crowd can write."""
    add_filer(home)
    with open_memory(home, provider="") as memory:
        memory.start_session("shared", source="test")


def write(memory: Memory, name: str, rounds: int, say: Say) -> None:
    """Write notes, messages, turns and open turns; half of the turns go to a session that all share."""
    sessions = [
        memory.start_session("shared", source="test"),
        memory.start_session(f"of-{name}", source="test"),
    ]
    for number in range(rounds):
        session, text = sessions[number % 2], f"{name}-{number}"
        _write_once(memory, session, text, say)


def _write_once(memory: Memory, session: Session, text: str, say: Say) -> None:
    require(memory.change_memory("add", "memory", f"note {text}", session=session))
    say(f"note {text}")
    memory.sessions.append_message(session.id, "user", f"loose {text}")
    say(f"message {session.id} loose {text}")
    memory.end_turn(session, f"turn {text}", "ok")
    say(f"message {session.id} turn {text}")
    turn = memory.conversation(session.id).turn(f"open {text}")
    turn.add({"role": "assistant", "content": f"step {text}"})
    turn.finish(f"answer {text}")
    say(f"message {session.id} open {text}")
    memory.sessions.past.search(text, everybody=True)


def write_skill(home: HermesHome, name: str, say: Say) -> None:
    """Write a skill of this name."""
    with contextlib.closing(sessions_of(home)) as sessions:
        open_skills(home, load_config(home), sessions.database).create(name, "work", skill_text(name))
    say(f"skill {name}")


def run(home: HermesHome, name: str, threads: int, rounds: int, say: Say) -> None:
    """Write with so many threads, which share one memory."""
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            write(memory, f"{name}.{number}", rounds, say)
        except BaseException as exc:
            errors.append(exc)
            raise

    with open_memory(home, clock=lambda: time.monotonic() * FAST) as memory:
        crowd = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in crowd:
            thread.start()
        write_skill(home, f"skill-{name}", say)
        for thread in crowd:
            thread.join()
    if errors:
        raise errors[0]


def losses(home: HermesHome, acknowledged: list[str]) -> list[str]:
    """Return the acknowledged writes that are not in the home, or not at the provider."""
    turns, notes = deliver(home)
    with open_memory(home, provider="") as memory:
        assert memory.sessions.check() == []
        facts = {f"note {entry.removeprefix('note ')}" for entry in memory.curated.entries("memory")}
        assert set(memory.curated.entries("memory")) <= notes
        assert {turn.turn.user for turn in memory.sessions.turns.complete(everybody=True)} <= turns
        for (session,) in memory.sessions.database.execute("SELECT id FROM sessions").fetchall():
            stored = [
                message.content for message in memory.sessions.get_messages(session) if message.role == "user"
            ]
            assert len(stored) == len(set(stored))
            facts |= {f"message {session} {text}" for text in stored}
        store = open_skills(home, load_config(home), memory.sessions.database)
        facts |= {f"skill {skill.name}" for skill in store.skills()}
    return sorted(set(acknowledged) - facts)


def say_line(text: str) -> None:
    """Write a line in one call, so that lines of several processes do not mix."""
    os.write(1, f"{text}\n".encode())


def fork(home: HermesHome, name: str, threads: int, rounds: int, fault: Fault | None) -> int:
    """Start a process that writes, and meets the fault if there is any. Return its id."""
    child = os.fork()
    if child:
        return child
    if fault is not None:
        fault.arm(home.path)
    run(home, name, threads, rounds, say_line)
    os._exit(0)


def main(home: HermesHome, processes: int, threads: int, rounds: int, kills: list[int]) -> None:
    """Let processes write at the same time; again for each number in `kills`, at which call the first one dies."""
    first_threat("warm")
    for wave, at in enumerate(kills or [0]):
        action = Action.KILL_AFTER if wave % 2 else Action.KILL_BEFORE
        children = [
            fork(home, f"w{wave}p{number}", threads, rounds, Fault(action, at) if at and not number else None)
            for number in range(processes)
        ]
        for child in children:
            say_line(f"exit {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    count, threads_each, rounds_each, *at_calls = map(int, numbers)
    main(HermesHome(Path(folder)), count, threads_each, rounds_each, at_calls)
