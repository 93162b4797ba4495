"""The file rules of Windows, for programs that run on Linux.

Python and SQLite open files there without delete sharing. So a file that any process has open can be neither deleted, nor
renamed, nor replaced; nor can a folder above it, or a folder in which a process runs. A file without a write bit can't be
deleted. `os.rename` replaces nothing. Some names are refused, and some devices hide behind a name.

The rules hold below the folder of temporary files, where homes and repositories of tests are. Python imports this module at
its start if PYTHONPATH names this folder. So they hold for the programs that tests start.
"""

from __future__ import annotations

import builtins
import errno
import os
import re
import signal
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

RULES = "HERMES_TEST_FILE_RULES"
"""Environment variable: "windows" to have these rules."""

# A queue of writers is a file that Windows never has (`storage.sqlite._WriterQueue`).
IGNORED = (".queue",)

DEVICE = re.compile(r"(?i)(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])\s*(\..*)?")
FORBIDDEN = re.compile(r'[\x00-\x1f<>:"|?*\\]')

IN_USE, DENIED, BAD_NAME, EXISTS = 32, 5, 123, 183


class Refusal(PermissionError):
    """Refusal of Windows. Errors of its system have a `winerror`."""

    winerror = IN_USE


class BadName(OSError):
    """Refusal of a name."""

    winerror = BAD_NAME


def name_fault(name: str) -> str:
    """Return why Windows makes no file of this name, or another one; "" if it makes it."""
    if DEVICE.fullmatch(name):
        return "the name of a device"
    if FORBIDDEN.search(name):
        return "a sign that no name has"
    return "an end that is cut off" if name not in (".", "..") and name[-1:] in (".", " ") else ""


def processes() -> Iterator[str]:
    """Yield the ids of the processes of the tests, which have the rules in their environment."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environment:
            if f"{RULES}=windows".encode() in environment.read():
                yield pid


def open_paths(of: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the files that these processes have open."""
    for pid in of:
        with suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    yield os.readlink(f"/proc/{pid}/fd/{number}")


def is_open(path: str) -> bool:
    """Return True if a process has a file open. The processes are looked at only if the kernel refuses a lease."""
    # Opened here again, a database would lose its locks when that is closed.
    if path in open_paths(["self"]):
        return True
    with suppress(ImportError, OSError):  # a test may hide the module
        import fcntl

        file = os.open(path, os.O_RDONLY)
        try:
            # A process that opens the file meanwhile causes this signal, which is ignored.
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        finally:
            os.close(file)
        return False
    return path in open_paths(processes())


def working_folders() -> Iterator[str]:
    """Yield the folders in which processes run."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            yield os.readlink(f"/proc/{pid}/cwd")


def real(path: Any, folder: int) -> str:
    """Return the path of an entry, whose own link is not followed. "" if it is not below the temporary files."""
    if isinstance(path, int):
        return ""
    text = os.fsdecode(path)
    if folder != -1 and not os.path.isabs(text):
        text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
    parent, name = os.path.split(os.path.abspath(text))
    found = os.path.join(os.path.realpath(parent), name)
    return found if found.startswith(ROOT) else ""


def real_of_database(name: Any) -> str:
    """Return the path of a database; "" for a URI, and for one in memory."""
    return "" if os.fsdecode(name).startswith(("file:", ":")) else real(name, -1)


def refuse_if_used(path: str, empty: bool = False) -> None:
    """Raise if a file is open, or a folder has an open file, unless it is `empty`, or is the one of a process."""
    try:
        kind = os.lstat(path).st_mode
    except OSError:
        return
    if stat.S_ISDIR(kind):
        opened = [] if empty else filter(is_file, open_paths(processes()))
        used = chain(working_folders(), opened)
        users = [name for name in used if name == path or name.startswith(path + os.sep)]
    elif stat.S_ISREG(kind) and not path.endswith(IGNORED):
        users = [path] if is_open(path) else []
    else:
        return
    if users:
        raise Refusal(errno.EACCES, f"the file is in use by a process ({users[0]})", path)


def is_file(path: str) -> bool:
    """Return True for a regular file: Windows can't open a folder, and pipes and sockets have no place there."""
    with suppress(OSError):
        return path.startswith(ROOT) and not path.endswith(IGNORED) and stat.S_ISREG(os.lstat(path).st_mode)
    return False


def refuse_if_read_only(path: str) -> None:
    """Raise if a file has no write bit, which is the attribute "read-only" there."""
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode) and not mode & stat.S_IWUSR:
            refusal = Refusal(errno.EACCES, "the file is read-only", path)
            refusal.winerror = DENIED
            raise refusal


def refuse_name(path: str) -> None:
    """Raise if a part of the path below the temporary files is no name there."""
    for name in path.removeprefix(ROOT).split(os.sep):
        if fault := name_fault(name):
            raise BadName(errno.EINVAL, f"the file name is not correct: {fault}", path)


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what Windows would refuse."""
    if event == "os.remove":
        if path := real(*arguments):
            refuse_if_read_only(path)
            refuse_if_used(path)
    elif event == "os.rmdir":
        if path := real(*arguments):
            refuse_if_used(path, empty=True)
    elif event == "os.rename":
        source, target, of_source, of_target = arguments
        if path := real(source, of_source):
            refuse_if_used(path)
        if path := real(target, of_target):
            refuse_name(path)
            refuse_if_read_only(path)
            refuse_if_used(path)
    elif event == "os.mkdir":
        if path := real(arguments[0], arguments[2]):
            refuse_name(path)
    elif event == "open":
        path, _, flags = arguments
        if flags & os.O_CREAT and isinstance(path, (str, bytes, os.PathLike)) and (path := real(path, -1)):
            refuse_name(path)
    elif event == "sqlite3.connect" and (path := real_of_database(arguments[0])):
        refuse_name(path)


def install() -> None:
    """Have the rules in this process, and in those that it starts, until they end."""
    global ROOT
    ROOT = os.path.realpath(tempfile.gettempdir()) + os.sep
    rename = os.rename

    def rename_to_new(source: Any, target: Any, **folders: Any) -> None:
        if os.path.lexists(target) and not (os.path.samefile(source, target)):
            raise FileExistsError(errno.EEXIST, "the file exists", os.fsdecode(target))
        rename(source, target, **folders)

    os.rename = rename_to_new  # type: ignore[assignment]
    builtins.__import__ = import_as_there
    sys.addaudithook(audit)


_import = builtins.__import__


def import_as_there(name: str, *more: Any, **named: Any) -> Any:
    """Import a module, but not the one whose absence is how a repair knows Windows."""
    if name == "fcntl" and more and (more[0] or {}).get("__name__") == "hermes_core.sessions.maintenance":
        raise ModuleNotFoundError("No module named 'fcntl'", name=name)
    return _import(name, *more, **named)


ROOT = os.sep

if __name__ == "sitecustomize" and os.environ.get(RULES) == "windows":
    install()
