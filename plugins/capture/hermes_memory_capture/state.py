"""Record of what the worker has taken in, and of what it could not: `capture/state.json`. Only the worker writes it."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from msgspec import Struct, field

from hermes_core.storage.files import PRIVATE_FILE, write_checked
from hermes_memory_capture.installs import Install
from hermes_memory_capture.programs import PROGRAMS

FILE = "state.json"

NS_PER_S = 1_000_000_000


class Transcript(Struct):
    """A transcript as it was when it was last read.

    Attributes:
        stamp: Sizes and times of its files then; they differ when the program has written on.
        at: Time of that reading in epoch seconds.
        problem: Why something of it is not in memory; "" if all is.
        since: Time in epoch seconds since which there is this problem.
    """

    program: str
    stamp: list[int] = []
    at: float = 0.0
    problem: str = ""
    since: float = 0.0

    def report(self, problem: str) -> None:
        """Set the problem, and keep the time of an earlier one."""
        self.since = (self.since or time.time()) if problem else 0.0
        self.problem = problem


class State(Struct):
    """The state of capture in a home.

    Attributes:
        transcripts: The transcripts that were read, by path.
        events: Time of the last event of each program in epoch seconds.
        folders: Folder of the sessions whose repository is not stored yet, by their ids.
        read: Lowest origin of the recall that a session has got, by the id of the session.
        problem: Why the worker ended, or can't work; "" if it can.
        since: Time in epoch seconds since which there is this problem.
    """

    transcripts: dict[str, Transcript] = field(default_factory=dict)
    events: dict[str, float] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    since: float = 0.0

    @classmethod
    def load(cls, folder: Path) -> State:
        """Return the stored state. Without one, the worker reads the transcripts again, and finds all known."""
        try:
            return msgspec.json.decode((folder / FILE).read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError):
            return cls()

    def save(self, folder: Path) -> None:
        """Store the state."""
        write_checked(folder / FILE, msgspec.json.encode(self), PRIVATE_FILE, lambda: None)


def stamp_of(path: Path) -> list[int]:
    """Return the sizes and times of a transcript and of its write-ahead log; [] if it is gone."""
    stamp: list[int] = []
    for file in (path, Path(f"{path}-wal")):
        try:
            found = file.stat()
        except (OSError, ValueError):  # a path with a NUL byte
            continue
        stamp += [found.st_size, found.st_mtime_ns]
    return stamp


def changed_at(file: Path) -> float:
    """Return the time in epoch seconds of the last change of a transcript, 0 if it is gone."""
    return max(stamp_of(file)[1::2], default=0) / NS_PER_S


def transcripts_of(install: Install, state: State) -> list[Path]:
    """Return the transcripts that changed since an installation.

    Of an installation for one project, only those count that its hooks have named.
    """
    if install.project:
        files = [Path(path) for path, known in state.transcripts.items() if known.program == install.program]
    else:
        files = list(PROGRAMS[install.program].transcript_files(Path(install.data)))
    return [file for file in files if changed_at(file) >= install.at]


def unread_transcripts(install: Install, state: State) -> list[Path]:
    """Return the transcripts of which something is not in memory."""
    return [
        file
        for file in transcripts_of(install, state)
        if (known := state.transcripts.get(str(file))) is None
        or known.stamp != stamp_of(file)
        or known.problem
    ]
