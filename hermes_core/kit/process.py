"""Child processes for providers: a program that answers and ends, or a server that stays.

A child gets no shell and no input from the terminal. It has a process group of its own, which is killed whole at
the deadline. Its environment is explicit: `child_environment` starts from the few variables that every program
needs.
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
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from hermes_core.errors import BackendUnavailable, ProviderUnavailable
from hermes_core.kit.text import clip, fold_space

__all__ = ["ProgramResult", "Service", "child_environment", "find_program", "run", "run_in_terminal"]

# The rest is left out: a program that writes without end must not fill our memory.
MAX_OUTPUT_BYTES = 16 * 1024 * 1024

# Between SIGTERM and SIGKILL: a database flushes in this time, and the host still ends within its 15 s of shutdown.
STOP_GRACE_S = 2.0

_WINDOWS = sys.platform == "win32"

# What a backend's program writes in a home is for the owner's eyes, as all else there.
_PRIVATE: dict[str, Any] = {} if _WINDOWS else {"umask": 0o077}
_BASE_VARIABLES = (
    ("SYSTEMROOT", "COMSPEC", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP", "PATH")
    if _WINDOWS
    else ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
)
_NETWORK_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


class ProgramResult(Struct, frozen=True):
    """Exit code and output of a program that ended by itself."""

    code: int
    out: str
    err: str

    def lines(self) -> Iterator[Any]:
        """Yield the JSON values of an output with one value a line (NDJSON). Lines that are no JSON are left out."""
        for line in self.out.split("\n"):  # JSON may hold U+2028 as it is, where splitlines() ends a line too
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def values(self) -> list[Any]:
        """Return the JSON values of an output: one value in any layout, else `lines`."""
        try:
            return [json.loads(self.out)]
        except ValueError:
            return list(self.lines())


def find_program(name: str) -> str | None:
    """Return the path of a program, None if there is none. `name` may be a path already."""
    return shutil.which(name)


def child_environment(
    extra: Mapping[str, str] | None = None,
    base: Mapping[str, str] | None = None,
    *,
    also: Sequence[str] = (),
) -> dict[str, str]:
    """Return the environment for a child: our PATH, home, language and proxies, then `extra`. Keys of other
    programs stay out.

    `also` names more of our variables to hand on, with `*` for any part of a name: `"XDG_*_HOME"`.
    """
    ours = os.environ if base is None else base
    names = (*_BASE_VARIABLES, *_NETWORK_VARIABLES, *(name.lower() for name in _NETWORK_VARIABLES), *also)
    inherited = {n: value for n, value in ours.items() if any(fnmatchcase(n, name) for name in names)}
    return {**inherited, **(extra or {})}


def run(
    command: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    stdin: str = "",
) -> ProgramResult:
    """Run a program to its end and return its result.

    Args:
        command: Program and arguments.
        timeout: Seconds until the program and everything that it started are killed. They also end with our process.
        env: Whole environment, by default `child_environment()`.
        cwd: Working folder.
        stdin: Text for its standard input.

    Raises:
        ProviderUnavailable: It can't be started.
        BackendUnavailable: It had not ended after `timeout` seconds.

    What a program leaves running when it ends by itself stays.
    """
    # Files and not pipes: a grandchild that keeps a pipe open would keep us waiting for its end.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = _start(command, env, cwd, subprocess.PIPE if stdin else subprocess.DEVNULL, out, err)
        end = partial(kill_group, process)
        # The host may abandon the thread that waits here; the child must still not outlive our process.
        atexit.register(end)
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
    """Give the terminal to a program until it ends, and return its exit code. For commands that forward to a
    backend's own program.

    Raises `ProviderUnavailable` if it can't be started.
    """
    try:
        return subprocess.run(
            list(command), env=child_environment() if env is None else dict(env), cwd=cwd, **_PRIVATE
        ).returncode
    except (OSError, ValueError) as exc:
        raise _not_started(command, exc) from exc


class Service:
    """A server that runs beside us: started once, and stopped with everything that it started.

    Its output goes to the end of `log`. Use it for a backend that the person asked us to run.
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
        """True if it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id, also after the end; None before the start."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the server unless it runs. Raises `ProviderUnavailable` if it can't be started."""
        if self.running:
            return  # a second start would fight the first one for its port
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as file:
            self._process = _start(
                self.command, self._env, self._cwd, subprocess.DEVNULL, file, subprocess.STDOUT
            )

    def wait_until(self, ready: Any, timeout: float, pause: float = 0.1) -> None:
        """Wait until `ready()` is true. Raises `BackendUnavailable` with its last output if it ends or is too slow."""
        until = time.monotonic() + timeout
        while not ready():
            if not self.running:
                raise BackendUnavailable(f"{self.command[0]!r} ended by itself{self._words()}")
            if time.monotonic() > until:
                raise BackendUnavailable(
                    f"{self.command[0]!r} is not ready after {timeout:g} s{self._words()}"
                )
            time.sleep(pause)

    def stop(self, grace: float = STOP_GRACE_S) -> None:
        """End the server and all it started: with SIGTERM, and after `grace` seconds by force."""
        if self._process is not None:
            kill_group(self._process, grace)

    def stop_at_exit(self, wanted: bool = True) -> None:
        """Stop the server when our process ends, for the time that nothing else would; False takes that back."""
        atexit.unregister(self.stop)
        if wanted:
            atexit.register(self.stop)

    def _words(self) -> str:
        with self.log.open("rb") as file:
            return _last_words(file)


def kill_group(process: subprocess.Popen[bytes], grace: float = 0.0) -> None:
    """End a process that `run` or `Service` started, with its whole group.

    A process that has ended is left alone, and so is what it left behind: the system may have given its number
    to another.
    """
    if process.poll() is not None:
        return
    if grace and not _WINDOWS:  # there a program can be asked nothing
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
    environ = child_environment() if env is None else dict(env)
    try:
        return subprocess.Popen(
            list(command),
            stdin=stdin,
            stdout=out,
            stderr=err,
            env=environ,
            cwd=cwd,
            **_PRIVATE,
            **_group_flags(),
        )
    except (OSError, ValueError) as exc:
        raise _not_started(command, exc) from exc


def _group_flags() -> dict[str, Any]:
    if _WINDOWS:
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    return {"start_new_session": True}


def _not_started(command: Sequence[str], reason: Exception) -> ProviderUnavailable:
    return ProviderUnavailable(f"can't start {command[0]!r} ({reason})", "is it installed, and on the PATH?")


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the whole group. On Windows, end the process with all that it started."""
    if _WINDOWS:
        program = Path(os.environ.get("SYSTEMROOT", "C:\\Windows"), "System32", "taskkill.exe")
        try:
            subprocess.run([program, "/PID", str(process.pid), "/T", "/F"], capture_output=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            pass
        process.terminate()  # does nothing if it has ended
        return
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it ended in between; macOS reports a group of zombies as a missing permission


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT_BYTES).decode("utf-8", "replace")


def _last_words(file: IO[bytes]) -> str:
    """Return the end of a program's output, as the end of an error message."""
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - 400))  # the cause of a failure is at the end
    words = fold_space(file.read().decode("utf-8", "replace"))
    return f": {clip(words, 300)}" if words else ""
