"""The worker of a home: one process that takes transcripts in, and answers the hooks with recall.

A hook starts it, and it ends when no event has come for an hour. It may be killed at any time: an event stays in the spool
until its transcript is stored, and a start looks for transcripts that have changed since they were last read.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes_core import Memory, open_memory
from hermes_core.errors import HermesError, LockTimeout, StorageError
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.safety.origin import as_origin
from hermes_core.storage.files import locked
from hermes_memory_capture.hook import FOLDER, LOG, MISSED, PID, SOCKET, SPOOL
from hermes_memory_capture.installs import Installs
from hermes_memory_capture.programs import PROGRAMS, Program
from hermes_memory_capture.recall import PROJECT_KEY, context_for, project_of, rendered
from hermes_memory_capture.state import State, Transcript, changed_at, stamp_of, unread_transcripts
from hermes_memory_importers import (
    LIVE_PLATFORM,
    CopyFinder,
    SkipLog,
    StreamedItem,
    import_sessions,
    stream_file,
)

IDLE_S = 3600.0
"""Time without an event after which the worker ends."""

# A program may write the end of an answer after it has called its hook.
RECHECK_S = 1.0
RECHECKED_S = 60.0

# Without an event: the program may be at work on the last turn, and store the rest of it with its next event.
QUIET_S = 120.0

# A session that has no end: its program was killed, or tells of none.
OPEN_S = 24 * 3600.0

# The hook waits 260 ms in all.
DEADLINES = {"prefetch": 0.12, "on_turn_start": 0.05}

# The worker before this one may be about to end.
LOCK_S = 1.0

WAIT_S = 10.0
CATCH_UP_S = 600.0

MAX_REQUEST = 16 * 2**20
MAX_LOG = 2**18


class Event(Struct):
    """An event of the spool."""

    at: float
    program: str
    action: str
    session: str = ""
    path: str = ""
    folder: str = ""


class Worker:
    """The work on one home.

    Args:
        folder: The folder `capture` of the home.
        memory: The open memory of the home.
    """

    def __init__(self, folder: Path, memory: Memory) -> None:
        self.folder, self.memory = folder, memory
        self.state = State.load(folder)
        self._copies = CopyFinder(memory.sessions)
        self._wake, self._state_lock = threading.Event(), threading.Lock()
        self._last = time.monotonic()
        self._caught_up = float("-inf")
        self._recent: dict[tuple[str, str], Event] = {}

    def run(self, idle: float = IDLE_S) -> None:
        """Take in what is there, then what comes, until no event has come for `idle` seconds, or the settings change."""
        made_of = self._made_of()
        while (waited := time.monotonic() - self._last) < idle and self._made_of() == made_of:
            self.take_spool()
            self._take_again()
            if time.monotonic() - self._caught_up > CATCH_UP_S:
                self.catch_up()
            # Events on Windows, and those that came while the worker started, wake nobody.
            if self._wake.wait(RECHECK_S if waited < RECHECKED_S else WAIT_S):
                self._last = time.monotonic()
            self._wake.clear()
        self.memory.end_idle(OPEN_S, sources=[program.source for program in PROGRAMS.values()])

    def _made_of(self) -> list[list[int]]:
        """Return the stamps of what a new worker would read anew: the settings, and this program."""
        return [stamp_of(path) for path in (self.memory.home.config_yaml, Path(__file__))]

    def listen(self) -> None:
        """Answer the hooks from now on, on threads of their own, until the process ends."""
        self.state.problem, self.state.since = "", 0.0
        self._save()
        if not hasattr(socket, "AF_UNIX"):
            return
        with contextlib.suppress(FileNotFoundError):
            Path(SOCKET).unlink()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(SOCKET)
        listener.listen(64)
        threading.Thread(target=self._serve, args=[listener], daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        """Answer one hook. A connection without a request wakes the worker."""
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5.0)
            request = bytearray()
            while len(request) < MAX_REQUEST and (chunk := connection.recv(65536)):
                request += chunk
            name, _, payload = bytes(request).partition(b"\n")
            if name:
                try:
                    answer = self.recall(PROGRAMS[name.decode()], json.loads(payload))
                except (HermesError, LookupError, ValueError, RecursionError) as exc:
                    answer = ""
                    with (self.folder / MISSED).open("a") as missed:
                        missed.write(f"{time.time():.0f} {name.decode(errors='replace')} {exc}\n")
                connection.sendall(answer.encode() + b"\n")
            self._wake.set()

    def recall(self, program: Program, event: Any) -> str:
        """Return what the hook prints for a message of the person."""

        def on_read(session: Any, origin: str) -> None:
            # The worker may be killed before the answer is stored, whose origin depends on what its model read.
            with self._state_lock:
                self.state.read[session.id] = origin
                self.state.save(self.folder)

        event = event if isinstance(event, dict) else {}
        return rendered(program, event, context_for(self.memory, program, event, on_read))

    def take_spool(self) -> None:
        """Take in what the events of the spool tell of. An event is deleted when its transcript is stored."""
        spool = self.folder / SPOOL
        for file in sorted(spool.glob("[!.]*"), key=lambda file: (file.suffix != ".taken", file.name)):
            taken = file if file.suffix == ".taken" else file.with_name(f"{file.name}.taken")
            try:
                # Under another name, since the session may have its next event meanwhile.
                file.replace(taken)
                data = taken.read_bytes()
            except OSError:  # a hook is about to replace it
                continue
            self._last = time.monotonic()
            self._take_data(data)
            taken.unlink(missing_ok=True)

    def _take_data(self, data: bytes) -> None:
        """Take in an event. One that fails is reported and left out, so that those behind it come in."""
        try:
            event = msgspec.json.decode(data, type=Event)
        except msgspec.MsgspecError:
            return  # no hook wrote it
        program = PROGRAMS.get(event.program)
        if program is None:
            return
        failure = call_foreign(self._take_event, program, event)
        if not isinstance(failure, ForeignError):
            return
        if isinstance(
            failure.error, HermesError
        ):  # the home can't be used: the event stays for the next worker
            raise failure.error
        traceback.print_exception(failure.error)
        self.state.problem, self.state.since = f"an event of {program.name}: {failure}", time.time()
        self._save()

    def _take_event(self, program: Program, event: Event) -> None:
        state, session = (
            self.state,
            self.memory.session(program.session_id(event.session), platform=LIVE_PLATFORM),
        )
        state.events[program.name] = max(event.at, state.events.get(program.name, 0.0))
        if event.session and event.folder:
            state.folders[session.id] = event.folder
        if event.action == "start":
            self.memory.internals.start(session)
        else:
            for path in self._paths_of(program, event):
                self._recent[str(path), session.id] = event
                self.take(program, path, event)
        if event.action == "end" and self._is_stored(program, event):
            self.memory.end_session(session)
        self._save()

    def _take_again(self) -> None:
        """Take in what programs wrote shortly after their events."""
        for (path, session_id), event in list(self._recent.items()):
            if time.time() - event.at > RECHECKED_S:
                del self._recent[path, session_id]
            elif (known := self.state.transcripts.get(path)) and known.stamp != stamp_of(Path(path)):
                self.take(PROGRAMS[event.program], Path(path), event)

    def _paths_of(self, program: Program, event: Event) -> list[Path]:
        """Return the transcript of an event, or the files that may have its session."""
        if event.path and not program.is_database:
            return [Path(event.path)]
        folders = {one.data for one in Installs(self.folder.parent).all() if one.program == program.name}
        files = [file for folder in folders for file in program.transcript_files(Path(folder))]
        return [
            file for file in files if program.is_database or (event.session and event.session in file.name)
        ]

    def catch_up(self) -> None:
        """Take in, without an event, the transcripts that have changed since they were last read."""
        self._caught_up = time.monotonic()
        for gone in [name for name in self.state.transcripts if not stamp_of(Path(name))]:
            del self.state.transcripts[gone]
        for partial_event in (self.folder / SPOOL).glob(".*"):  # of hooks that were killed
            with contextlib.suppress(OSError):
                if time.time() - partial_event.stat().st_mtime > QUIET_S:
                    partial_event.unlink()
        for install in Installs(self.folder.parent).all():
            for path in unread_transcripts(install, self.state):
                if time.time() - changed_at(path) > QUIET_S:
                    self.take(PROGRAMS[install.program], path, since=install.at)

    def take(self, program: Program, path: Path, event: Event | None = None, since: float = 0.0) -> None:
        """Take in a transcript.

        Args:
            event: The event that tells of it; None if nothing does.
            since: Of a database without an event, only sessions count that began since this time or are stored.
        """
        known = self.state.transcripts.setdefault(str(path), Transcript(program.name))
        stamp = stamp_of(path)
        if not stamp:
            return
        heads: list[str] = []
        skips = SkipLog()
        items = stream_file(path, program.source, skips, self.memory.internals.extensions)
        if program.is_database:
            wanted = "" if event is None else program.session_id(event.session)
            items = self._of_database(items, wanted, since)
        store = partial(
            import_sessions, self.memory, self._noted(items, heads), copies=self._copies, live=True
        )
        # Code of importers, over a file of another program.
        result = call_foreign(store)
        faults = [skip.reason for skip in skips.all() if skip.fault]
        if isinstance(result, ForeignError):
            faults.append(str(result))
        elif (
            not heads
            and event is not None
            and event.action == "append"
            and not self._is_stored(program, event)
        ):
            faults.append("no message of a known form is in it")
        known.report("; ".join(faults))
        known.stamp = stamp
        for head in heads:
            self._note_project(head)
        self._save()

    def _is_stored(self, program: Program, event: Event) -> bool:
        return self.memory.sessions.get_session(program.session_id(event.session)) is not None

    def _of_database(
        self, items: Iterable[StreamedItem], wanted: str, since: float
    ) -> Iterator[StreamedItem]:
        """Yield the session of an event, or without one those that began since a time or are stored."""
        for item in items:
            if isinstance(item, tuple) and (
                item[0].id == wanted
                if wanted
                else (item[0].started_at or 0.0) >= since or self.memory.sessions.get_session(item[0].id)
            ):
                yield item

    def _noted(self, items: Iterable[StreamedItem], heads: list[str]) -> Iterator[StreamedItem]:
        """Yield the sessions, and add their ids to `heads`. Before, tell the memory what their models have read."""
        for item in items:
            if not isinstance(item, tuple):
                continue
            session_id = item[0].id
            heads.append(session_id)
            with self._state_lock:
                origin = self.state.read.pop(session_id, None)
            if origin is not None:
                session = self.memory.session(session_id, platform=LIVE_PLATFORM)
                self.memory.internals.origins.note_read(session, as_origin(origin))
            yield item

    def _note_project(self, session_id: str) -> None:
        """Store to which repository a session belongs, which decides where it is recalled."""
        folder = self.state.folders.get(session_id)
        if folder is None or self.memory.sessions.get_session(session_id) is None:
            return
        values = self.memory.conversation(session_id, platform=LIVE_PLATFORM).state
        project = project_of(folder)
        if values.get(PROJECT_KEY) != project:
            values[PROJECT_KEY] = project
        del self.state.folders[session_id]

    def _save(self) -> None:
        with self._state_lock:
            self.state.save(self.folder)


def work(home: Path, idle: float = IDLE_S) -> None:
    """Be the worker of a home, unless another process is. Raises `HermesError` if the home can't be opened."""
    folder = home / FOLDER
    found = folder.stat()
    if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
        raise StorageError(
            f"{str(folder)!r} is open to other accounts", "give it to this account alone: chmod 700"
        )
    with contextlib.suppress(LockTimeout), locked(folder / "worker", timeout=LOCK_S):
        os.chdir(folder)
        os.umask(0o077)
        for log in (LOG, MISSED):
            if Path(log).exists() and Path(log).stat().st_size > MAX_LOG:
                os.truncate(log, 0)
        Path(PID).write_text(str(os.getpid()))
        problem = "the worker ended unexpectedly"
        try:
            # No project: the folder of the process is that of no session.
            with open_memory(home, deadlines=DEADLINES, folder=folder.anchor) as memory:
                worker = Worker(folder, memory)
                memory.sessions.past.search("warm up", everybody=True, limit=1, proactive=True)
                worker.listen()
                worker.run(idle)
            problem = ""
        except HermesError as exc:
            problem = f"the worker ended: {exc}"
            raise
        finally:
            if problem:
                state = State.load(folder)
                state.problem, state.since = problem, time.time()
                state.save(folder)
            with contextlib.suppress(OSError):
                Path(SOCKET).unlink()


if __name__ == "__main__":
    work(Path(sys.argv[1]))
