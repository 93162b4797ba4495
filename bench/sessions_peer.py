"""Hermes Agent's session store, asked the same as ours: a process in the environment where hermes-agent is installed.

It is sent one request a line and answers with the seconds of each call, by the clock and of CPU, taken in that process.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_SERVER = r"""
import json, sqlite3, sys, time
from pathlib import Path

answers, sys.stdout = sys.stdout, sys.stderr
from hermes_state import SessionDB
from tools.session_search_tool import session_search

path = Path(sys.argv[1])
db = SessionDB(path)

def timed(call):
    began, working = time.perf_counter(), time.thread_time()
    found = call()
    working = time.thread_time() - working
    return [time.perf_counter() - began, working], found

def fill(sessions):
    # In one transaction, as nobody appends: its triggers index the rows all the same.
    for name, at, messages in sessions:
        db.create_session(name, "cli")
        db._conn.execute("BEGIN")
        db._conn.executemany(
            "INSERT INTO messages (session_id, role, content, tool_calls, tool_name, timestamp) VALUES (?, ?, ?, ?, ?, ?)",
            [(name, m["role"], m["content"], json.dumps(m["tool_calls"]) if m.get("tool_calls") else None,
              m.get("name"), m["timestamp"]) for m in messages])
        db._conn.execute("UPDATE sessions SET started_at = ?, message_count = ? WHERE id = ?", (at, len(messages), name))
        db._conn.execute("COMMIT")
    return []

def append(messages):
    db.create_session("appended", "cli")
    return [timed(lambda: db.append_message("appended", m["role"], m["content"], tool_name=m.get("name"),
                                            tool_calls=m.get("tool_calls")))[0] for m in messages]

def search(texts):
    return [timed(lambda: db.search_messages(text, limit=20))[0] for text in texts]

def tool(texts):
    return [timed(lambda: session_search(query=text, db=db, current_session_id="elsewhere"))[0] for text in texts]

def answered(texts):
    return sum(bool(db.search_messages(text, limit=20)) for text in texts)

def opened(count):
    def once():
        other = SessionDB(path)
        other.get_session("session-0000000")
        other.close()
    return [timed(once)[0] for _ in range(count)]

def size(_):
    db._conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return path.stat().st_size

known = {one.__name__: one for one in (fill, append, search, tool, answered, opened, size)}
for line in sys.stdin:
    name, argument = json.loads(line)
    answers.write(json.dumps(known[name](argument)) + "\n")
    answers.flush()
"""


class Peer:
    """The peer's store in `folder`, in a process of the Python environment at `environment`."""

    def __init__(self, environment: Path, folder: Path) -> None:
        home = folder / "peer"
        home.mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [environment / "bin" / "python", "-c", _SERVER, str(home / "state.db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "HERMES_HOME": str(home), "HOME": str(home)},
            cwd=home,
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def fill(self, sessions: Iterable[tuple[str, float, Sequence[dict[str, Any]]]]) -> None:
        for session in sessions:
            self.ask("fill", [session])

    def ask(self, name: str, argument: Any) -> Any:
        """What the process answers: seconds by the clock and of CPU for each call, or a size in bytes, or a count."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, argument]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the peer ended ({self._process.wait()}): is hermes-agent installed there?")
        return json.loads(answer)
