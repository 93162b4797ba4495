"""Child processes for providers: a command-line program that is asked, or a server that is kept.

No shell, no input from the terminal, a process group of its own that is killed whole at the deadline, and an environment
that is given and not inherited by accident: `child_environment` starts from the few variables every program needs.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import IO, Any

from hermes_core.errors import BackendUnavailable, ProviderUnavailable
from hermes_core.kit.text import clip, fold_space

__all__ = ["ProgramResult", "Service", "child_environment", "find_program", "run", "run_in_terminal"]

LARGEST_OUTPUT = 16 * 1024 * 1024
"""Bytes of a program's output that are read; the rest is left out."""

GRACE = 2.0
"""Seconds between the polite signal and the one that can't be refused."""

_WINDOWS = sys.platform == "win32"
_NEEDED = (
    ("SYSTEMROOT", "COMSPEC", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP", "PATH")
    if _WINDOWS
    else ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
)
_OF_THE_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """A program that ended by itself: its exit code and what it wrote, as text."""

    code: int
    out: str
    err: str

    def lines(self) -> Iterator[Any]:
        """The JSON values of an output of one value a line (NDJSON); lines that are no JSON are left out."""
        for line in self.out.split("\n"):  # JSON may hold U+2028 as it is, where splitlines() ends a line too
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def values(self) -> list[Any]:
        """The JSON values of an output that is one value in any layout, or of `lines`; empty when there are none."""
        try:
            return [json.loads(self.out)]
        except ValueError:
            return list(self.lines())


def find_program(name: str) -> str | None:
    """The path of a program, or None. `name` may be a path already."""
    return shutil.which(name)


def child_environment(
    extra: Mapping[str, str] | None = None,
    base: Mapping[str, str] | None = None,
    *,
    also: Sequence[str] = (),
) -> dict[str, str]:
    """What a child process sees: PATH, home, language and proxies of ours, then `extra`. No key of another program.

    `also` are names of more variables of ours to hand on, with `*` for any part: `"XDG_*_HOME"`.
    """
    ours = os.environ if base is None else base
    kept = (*_NEEDED, *_OF_THE_NETWORK, *(name.lower() for name in _OF_THE_NETWORK), *also)
    handed_on = {n: value for n, value in ours.items() if any(fnmatchcase(n, name) for name in kept)}
    return {**handed_on, **(extra or {})}


def run(
    command: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    stdin: str = "",
) -> ProgramResult:
    """Run a program to its end. `env` is its whole environment, by default `child_environment()`.

    Raises `ProviderUnavailable` when it can't be started, and `BackendUnavailable` when it has not ended after
    `timeout` seconds: it and all it started are killed then, or when our process ends.
    What a program leaves running when it ends stays.
    """
    # Files and not pipes: a grandchild that keeps a pipe open would keep us waiting for its end.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = _start(command, env, cwd, subprocess.PIPE if stdin else subprocess.DEVNULL, out, err)
        end = partial(kill_group, process)
        atexit.register(end)  # the thread that waits for it may be left behind
        try:
            process.communicate(stdin.encode() if stdin else None, timeout=timeout)
        except subprocess.TimeoutExpired as exc:
            raise BackendUnavailable(
                f"{command[0]!r} has not ended after {timeout:g} s" + _last_words(err)
            ) from exc
        finally:
            end()
            atexit.unregister(end)
        return ProgramResult(process.returncode, _read(out), _read(err))


def run_in_terminal(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | str | None = None
) -> int:
    """Give the terminal to a program until it ends; its exit code. For commands that hand on to the backend's own.

    Raises `ProviderUnavailable` when it can't be started.
    """
    try:
        return subprocess.run(
            list(command), env=child_environment() if env is None else dict(env), cwd=cwd
        ).returncode
    except (OSError, ValueError) as exc:
        raise _not_started(command, exc) from exc


class Service:
    """A server that runs beside us: started once, stopped with everything that it started.

    Output goes to the end of `log`. Use it for a backend that the person asked us to run.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
    ) -> None:
        self.command = tuple(command)
        self.log = log
        self._env = env
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process id, also after it ended; None before it was started."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it, unless it runs. Raises `ProviderUnavailable` when that can't be done."""
        if self.running:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as file:
            self._process = _start(
                self.command, self._env, self._cwd, subprocess.DEVNULL, file, subprocess.STDOUT
            )

    def wait_until(self, ready: Any, timeout: float, pause: float = 0.1) -> None:
        """Wait until `ready()` is true. Raises `BackendUnavailable`, with its last words, when it ends or is too slow."""
        until = time.monotonic() + timeout
        while not ready():
            if not self.running:
                raise BackendUnavailable(f"{self.command[0]!r} ended by itself{self._words()}")
            if time.monotonic() > until:
                raise BackendUnavailable(
                    f"{self.command[0]!r} is not ready after {timeout:g} s{self._words()}"
                )
            time.sleep(pause)

    def stop(self, grace: float = GRACE) -> None:
        """End it and all it started: politely, after `grace` seconds by force."""
        if self._process is not None:
            kill_group(self._process, grace)

    def stop_at_exit(self, wanted: bool = True) -> None:
        """Stop it at the end of the program, for as long as nobody else would; or, with False, no longer."""
        atexit.unregister(self.stop)
        if wanted:
            atexit.register(self.stop)

    def _words(self) -> str:
        with self.log.open("rb") as file:
            return _last_words(file)


def kill_group(process: subprocess.Popen[bytes], grace: float = 0.0) -> None:
    """End a process that `run` or `Service` started, with its group. One that has ended is left alone, and so is what
    it left behind: its number may be another's by now."""
    if process.poll() is not None:
        return
    if grace:
        _signal(process, signal.SIGTERM)
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            pass
    _signal(process, signal.SIGTERM if _WINDOWS else signal.SIGKILL)
    process.wait()


def _start(
    command: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: Path | str | None,
    stdin: int,
    out: IO[bytes],
    err: IO[bytes] | int,
) -> subprocess.Popen[bytes]:
    flags: dict[str, Any] = (
        {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
        if _WINDOWS
        else {"start_new_session": True}
    )
    surroundings = child_environment() if env is None else dict(env)
    try:
        return subprocess.Popen(
            list(command), stdin=stdin, stdout=out, stderr=err, env=surroundings, cwd=cwd, **flags
        )
    except (OSError, ValueError) as exc:
        raise _not_started(command, exc) from exc


def _not_started(command: Sequence[str], reason: Exception) -> ProviderUnavailable:
    return ProviderUnavailable(f"can't start {command[0]!r} ({reason})", "is it installed, and on the PATH?")


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """The signal to the whole group."""
    if _WINDOWS:
        process.terminate()
        return
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(LARGEST_OUTPUT).decode("utf-8", "replace")


def _last_words(file: IO[bytes]) -> str:
    """The end of what a program wrote, to stand behind an error."""
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - 400))
    words = fold_space(file.read().decode("utf-8", "replace"))
    return f": {clip(words, 300)}" if words else ""
