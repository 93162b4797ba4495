"""Machines on one PostgreSQL server: each is a program with a home of its own, and all write to the same sessions.

`python -m tests.chaos.machines HOME URL SCHEMA FOLDER NAME` writes turns and notes until FOLDER/stop exists, and then waits
until the outbox is empty. Each acknowledged write is a line of FOLDER/acknowledged, and each call of the provider one of
FOLDER/received, in the order of the calls of all machines.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from hermes_core import Memory, MemoryProvider, open_memory
from hermes_core.contract.values import MemoryWrite, Session, Turn
from hermes_core.errors import HermesError
from hermes_core.manager import writes
from hermes_core.outbox import delivery
from hermes_core.outbox.delivery import OutboxWorker
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_postgresql import postgres

# Seconds of a lease, so that a suspended machine loses its own soon.
LEASE_S = 1.0

# Seconds after which a commit that no standby confirmed is refused.
COMMIT_TIMEOUT_S = 0.5

# Sessions to which all machines write at the same time.
SHARED_SESSIONS = 4

# A call to the provider takes this long, so that a kill meets some of them.
CALL_S = 0.003

# A note after so many turns.
TURNS_PER_NOTE = 8


class Recorder(MemoryProvider):
    """A provider of all machines: a line of one file for each call."""

    name = "recorder"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "received"

    def initialize(self, session: Session) -> None:
        pass

    def sync_turn(self, turn: Turn, session: Session) -> None:
        append_line(self._path, "turn", session.id, turn.id)
        time.sleep(CALL_S)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        append_line(self._path, "note", session.id, write.content)
        time.sleep(CALL_S)


def append_line(path: Path, *words: str) -> None:
    """Append a line in one call, so that lines of several programs do not mix."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, f"{' '.join(words)}\n".encode())
    os.close(handle)


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file; none if it does not exist yet."""
    return path.read_text().splitlines() if path.exists() else []


def write(memory: Memory, folder: Path, name: str) -> None:
    """Write until FOLDER/stop exists. A turn that could not be stored is stored later, under the same id."""
    chance = random.Random(name)
    sessions = [f"shared-{number}" for number in range(SHARED_SESSIONS)]
    number = 0
    while not (folder / "stop").exists():
        session, number = chance.choice(sessions), number + 1
        turn = f"{name}-{number}"
        while not (folder / "stop").exists():
            try:
                identity = memory.start_session(session, source="test")
                memory.end_turn(identity, f"question {turn}", "ok", turn_id=turn)
            except HermesError as exc:
                append_line(folder / "refused", type(exc).__name__)
                time.sleep(0.02)
            else:
                append_line(folder / "acknowledged", "turn", session, turn)
                break
        if number % TURNS_PER_NOTE == 0:
            note = f"note-{turn}"
            try:
                result = memory.change_memory("add", "memory", note, session=identity)
            except HermesError as exc:
                append_line(folder / "refused", type(exc).__name__)
                result = {"success": False}
            if result["success"] and "warning" not in result:
                append_line(folder / "acknowledged", "note", session, note)
            else:
                append_line(folder / "refused_notes", note)


def deliver(memory: Memory) -> None:
    """Wait until the provider has everything."""
    while True:
        with contextlib.suppress(HermesError):
            if memory.flush(5.0) and not memory.sessions.database.execute(_WAITING).fetchone()[0]:
                return


_WAITING = "SELECT count(*) FROM outbox_rows WHERE state = 'pending'"


def main(home: Path, url: str, schema: str, folder: Path, name: str) -> None:
    """Be a machine."""
    # The product's lease and pauses are longer than a test.
    writes.OutboxWorker = partial(OutboxWorker, lease=LEASE_S)  # type: ignore[misc, assignment]
    delivery.MAX_BACKOFF_S = 1.0
    postgres.COMMIT_TIMEOUT_S = COMMIT_TIMEOUT_S
    config: dict[str, Any] = {
        "storage": {"url": url, "schema": schema},
        "memory": {"memory_char_limit": 1_000_000},
    }
    with open_memory(home, provider=Recorder(folder), config=config) as memory:
        write(memory, folder, name)
        deliver(memory)


def faults(db: SessionStore, folder: Path) -> dict[str, Any]:
    """Compare what was acknowledged, what is stored and what the provider received.

    Return the number of acknowledged turns and notes, of calls that came twice, and of those that came after a later one
    of their session; and a list of what must not be: `lost`, `disordered`, `gaps`.
    """
    acknowledged, received = (lines_of(folder / name) for name in ("acknowledged", "received"))
    stored: dict[str, list[str]] = {}
    gaps = []
    for key, session, count in db.database.execute("SELECT key, id, message_count FROM sessions").fetchall():
        turns = db.database.execute("SELECT id FROM turns WHERE session_key = ? ORDER BY key", (key,))
        stored[session] = [row[0] for row in turns]
        sql = "SELECT position FROM messages WHERE session_key = ? ORDER BY id"
        positions = [row[0] for row in db.database.execute(sql, (key,))]
        if positions != list(range(count)) or count != 2 * len(stored[session]):
            gaps.append(f"{session}: {count} messages, {len(stored[session])} turns, positions {positions}")
    ordinals = "SELECT max(ordinal), count(DISTINCT ordinal), count(*) FROM messages GROUP BY owner_key"
    for row in db.database.execute(ordinals):
        if len({*row}) > 1:
            gaps.append(f"ordinals of an owner: highest, different, messages: {tuple(row)}")
    notes = []
    for (text,) in db.database.execute("SELECT text FROM note_entries").fetchall():
        notes += re.findall(r"note-[\w-]+", text)
    for file, version in db.database.execute("SELECT file, version FROM notes").fetchall():
        sql = "SELECT count(*) FROM note_changes WHERE file = ?"
        changes = db.database.execute(sql, (file,)).fetchone()[0]
        if changes != version:
            gaps.append(f"{file}: version {version}, {changes} changes")
    first = list(dict.fromkeys(received))
    arrived: dict[str, list[str]] = {}
    for line in first:
        kind, session, event = line.split()
        if kind == "turn":
            arrived.setdefault(session, []).append(event)
    facts = {f"turn {session} {turn}" for session, turns in stored.items() for turn in turns}
    turns_received = {line for line in first if line.startswith("turn ")}
    lost = sorted({*acknowledged} - {*first})
    lost += sorted({line for line in acknowledged if line.startswith("turn ")} - facts)
    lost += [f"never sent: {line}" for line in sorted(facts - turns_received)]
    lost += [f"sent and not stored: {line}" for line in sorted(turns_received - facts)]
    lost += sorted({line.split()[2] for line in acknowledged if line.startswith("note ")} - {*notes})
    noted = {line.split()[2] for line in first if line.startswith("note ")}
    # A commit that no standby confirmed is refused, and may be lost with the primary: another machine may have sent its note
    # before, or a view of the notes that had it brings it back as an edit by hand, of which no provider hears.
    refused = {*lines_of(folder / "refused_notes")}
    lost += [f"never sent: {note}" for note in sorted({*notes} - noted - refused)]
    lost += [f"sent and not stored: {note}" for note in sorted(noted - {*notes} - refused)]
    times = Counter(received)
    return {
        "acknowledged": len(acknowledged),
        "events": len(first),
        "doubles": sum(count - 1 for count in times.values()),
        "lost": lost,
        "disordered": [session for session in stored if arrived.get(session, []) != stored[session]],
        "gaps": gaps,
    }


if __name__ == "__main__":
    home_path, server, schema_name, shared, machine = sys.argv[1:]
    main(Path(home_path), server, schema_name, Path(shared), machine)
