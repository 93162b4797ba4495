"""Checks of the files of a home: writability, permissions, locks, disk space."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from hermes_core.config import Credentials
from hermes_core.health.finding import Finding, FindingState, HealthCheck, failed, run_check, run_checks
from hermes_core.home import HermesHome
from hermes_core.loader.parts import recorded_parts
from hermes_core.safety.terminal import counted
from hermes_core.shell_words import shell_line, shell_moves, shell_word
from hermes_core.storage.files import PRIVATE_FILE, PRIVATE_FOLDER, ensure_folder, file_system, write_atomic
from hermes_core.storage.verdicts import Verdicts, read_for_prompt

LOW_SPACE_BYTES = 200 * 1024 * 1024
# Below this a write-ahead log may not fit, and writes fail.
NO_SPACE_BYTES = 10 * 1024 * 1024

# This project holds its locks for milliseconds, so a longer wait means that a process hangs.
LOCK_TIMEOUT_S = 1.0

# A younger temporary file or lock may belong to a write that is in progress.
ABANDONED_AFTER_S = 3600.0

_FIX_REMOVES = "hermes-memory doctor --fix removes it"


def examine_files(home: HermesHome) -> Iterator[Finding]:
    """Run every check of files and folders, writability first. A check that fails hides no other."""
    basic = list(_not_folders(home)) or run_check("home", lambda: _writable(home))
    yield from basic
    yield from run_checks(_CHECKS, home)
    if not any(finding.failed for finding in basic):
        yield from run_check("locks", lambda: _locks(home))


def _not_folders(home: HermesHome) -> Iterator[Finding]:
    folders = (home.path, home.memories, home.logs)
    files = (home.config_yaml, home.env_file, home.memory_md, home.user_md)
    wrong = [(path, f"folder {path.name}", "file", "folder") for path in folders if path.is_file()]
    wrong += [(path, path.name, "folder", "file") for path in files if path.is_dir()]
    for path, what, present, wanted in wrong:
        remedy = f"move it away: {shell_moves([(path, f'{path}.old')])}"
        yield failed(what, f"{str(path)!r} is a {present} and must be a {wanted}", remedy)


def _writable(home: HermesHome) -> Iterator[Finding]:
    """Write, read and delete a file in the way all files are written. Raises `StorageError`."""
    is_new = not home.path.exists()
    for folder in (home.path, home.memories):
        probe = folder / f".doctor-{uuid.uuid4().hex}"
        try:
            write_atomic(probe, b"written by hermes-memory doctor\n")
            probe.read_bytes()
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()
    made = Finding("home", "note", f"{home.path} did not exist and was made now", "is it the one you mean?")
    yield made if is_new else Finding("home", "ok", f"{home.path} can be written")


def _secrets(home: HermesHome) -> Iterator[Finding]:
    lines = Credentials(home).unread_lines() if home.env_file.is_file() else []
    if lines:
        which = f"line {lines[0]} is" if len(lines) == 1 else f"lines {', '.join(map(str, lines))} are"
        detail = f"{which} not of the form NAME=VALUE and give{'s' * (len(lines) == 1)} nothing"
        yield Finding(".env", "warning", detail, "write NAME=VALUE, with no quote or with two")
    if names := Credentials(home).controlling_names() if home.env_file.is_file() else []:
        detail = f"{', '.join(names)} control{'s' * (len(names) == 1)} programs and reaches no provider"
        yield Finding(".env", "warning", detail, "set what you need of it in your shell, and remove the line")


def _room(home: HermesHome) -> Iterator[Finding]:
    # A home that does not exist yet is on the disk of its nearest existing parent.
    existing = next(path for path in (home.path, *home.path.parents) if path.exists())
    free, on = shutil.disk_usage(existing).free, file_system(home.path)
    where = f"{_format_size(free)} free on {on.kind or 'an unknown file system'}"
    state: FindingState = "failed" if free < NO_SPACE_BYTES else "warning" if free < LOW_SPACE_BYTES else "ok"
    yield Finding("disk space", state, where, "" if state == "ok" else "free space on this disk")
    if not on.carries_wal:
        slow = f"{on.kind or 'a file system of an unknown type'} carries no write-ahead log, so databases use the slower journal"
        yield Finding("file system", "note", slow)


def _modes(home: HermesHome) -> Iterator[Finding]:
    """Report files and folders that other users may read or write."""
    if os.name == "nt":
        return
    found = [(path, PRIVATE_FOLDER) for path in (home.path, home.memories, home.logs) if path.is_dir()]
    found += [(path, PRIVATE_FILE) for path in sorted(set(_own_files(home)))]
    open_ones = [(path, mode) for path, mode in found if stat.S_IMODE(path.stat().st_mode) & 0o077]
    for path, mode in open_ones:
        what = f"permissions of {_relative_name(path, home)}"
        detail = f"others of this machine may use it: mode {stat.S_IMODE(path.stat().st_mode):04o}"
        remedy = f"hermes-memory doctor --fix, or {shell_line(('chmod', f'{mode:o}', path))}"
        yield Finding(what, "warning", detail, remedy, repair=partial(_chmod, path, mode))
    if not open_ones:
        count = counted(len(found), "file or folder is private", "files and folders are private")
        yield Finding("permissions", "ok", count)


def _owner(home: HermesHome) -> Iterator[Finding]:
    """Report private files of another user, as `sudo hermes-memory` makes: the owner of the home can't use them."""
    if os.name == "nt" or not home.path.exists():
        return
    owner = home.path.stat().st_uid
    folders = [folder for folder in (home.path, home.memories, home.logs) if folder.is_dir()]
    for path in sorted(path for folder in folders for path in folder.iterdir()):
        file = path.lstat()
        if file.st_uid != owner and not file.st_mode & stat.S_IROTH:
            made = f"{_relative_name(path, home)}, and perhaps more, was made by user {file.st_uid}"
            remedy = f"chown -R {owner} {str(home.path)!r}, and run hermes-memory as that user"
            yield Finding("owner", "warning", f"{made}: {owner}, who owns the home, can't use it", remedy)
            return


def _log(home: HermesHome) -> Iterator[Finding]:
    """Report a log that can't be written: the log itself can't say so."""
    path = home.log_file if home.log_file.exists() else home.logs
    if path.exists() and not os.access(path, os.W_OK):
        lost = f"{str(path)!r} can't be written: what goes wrong is not noted"
        yield Finding("log", "warning", lost, "check its owner and mode")


def _own_files(home: HermesHome) -> Iterator[Path]:
    patterns = {
        home.path: (".env", "*.json", "*.db", "*.db-wal", "*.db-shm"),
        home.memories: ("*.md", "*.md.bak*", "*.md.mine*", "*.json", "*.db", "*.db-wal", "*.db-shm"),
        home.logs: ("hermes.log*",),
    }
    for folder, names in patterns.items():
        for name in names:
            yield from (path for path in folder.glob(name) if path.is_file() and path.suffix != ".lock")


def _locks(home: HermesHome) -> Iterator[Finding]:
    """Report locks that are held, that can't be taken, or whose file was deleted."""
    for folder in (home.path, home.memories, home.logs):
        for path in sorted(folder.glob("*.lock")):
            yield from _lock(path, home)


def _lock(path: Path, home: HermesHome) -> Iterator[Finding]:
    what = f"lock {_relative_name(path, home)}"
    # Asked before the lock is taken: some versions of filelock write to the file then, or remove it after.
    stale = _stale(path)
    lock = FileLock(path, timeout=LOCK_TIMEOUT_S, mode=PRIVATE_FILE, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        owner = holder(path)
        held = f"{owner or 'another process'} has held it for more than {LOCK_TIMEOUT_S:g} s"
        yield failed(what, held, stop_remedy(owner))
    except OSError as exc:
        remedy = f"hermes-memory doctor --fix, or remove {str(path)!r}"
        detail = f"it can't be taken: {exc.strerror or exc}"
        yield Finding(what, "failed", detail, remedy, repair=lambda: _free(path))
    else:
        lock.release()
        if stale:
            gone = "nobody holds it, and the file that it stood for is gone"
            yield Finding(what, "note", gone, _FIX_REMOVES, repair=lambda: _remove(path))


def holder(path: Path) -> str:
    """Return the holder of a lock, as "process 123 (python)", "" if unknown. Only Linux tells it, in /proc/locks."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return ""
    for words in (line.split() for line in lines):
        if "->" in words or len(words) < 6 or words[3] != "WRITE" or not words[5].endswith(f":{inode}"):
            continue
        if words[4].isdigit() and int(words[4]) not in (0, os.getpid()):
            return f"process {words[4]}{_process_name(words[4])}"
    return ""


def stop_remedy(owner: str) -> str:
    """Return the remedy for a process that holds a lock too long; `owner` comes from `holder`."""
    if not owner:
        return "stop the program that holds it, then try again"
    return f"stop it if it hangs: kill {owner.split()[1]}"


def _process_name(pid: str) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return f" ({name})"


def _left_behind(home: HermesHome) -> Iterator[Finding]:
    """Report temporary files of interrupted writes. The files themselves are whole."""
    # Not below `plugins`: what lies there is a program's own.
    places = [folder.glob(".*.tmp") for folder in (home.path, home.plugins)]
    folders = [folder for part in recorded_parts(home.path).values() for folder in part.folders(home.path)]
    others = [folder for folder in folders if home.memories not in folder.parents]
    places += [folder.rglob(".*.tmp") for folder in (home.memories, *others)]
    for place in places:
        for path in sorted(place):
            if path.is_file() and time.time() - path.stat().st_mtime > ABANDONED_AFTER_S:
                what = f"file {_relative_name(path, home)}"
                why = "a write was interrupted and left it behind"
                yield Finding(what, "note", why, _FIX_REMOVES, repair=partial(_remove, path))


def _stale(lock: Path) -> bool:
    if lock.with_suffix("").exists():
        return False
    return time.time() - lock.stat().st_mtime > ABANDONED_AFTER_S


def _chmod(path: Path, mode: int) -> str:
    path.chmod(mode)
    return f"mode set to {mode:04o}"


def _remove(path: Path) -> str:
    path.unlink(missing_ok=True)
    return f"{str(path)!r} was removed"


def _free(path: Path) -> str:
    """Make a lock usable: remove an empty folder in its place, correct the mode of a file."""
    if path.is_dir():
        path.rmdir()
        ensure_folder(path.parent)
        return f"the folder {str(path)!r} was removed"
    return _chmod(path, PRIVATE_FILE)


def _relative_name(path: Path, home: HermesHome) -> str:
    return "the home" if path == home.path else path.relative_to(home.path).as_posix()


def _format_size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


_CHECKS: tuple[HealthCheck[HermesHome], ...] = (
    HealthCheck("disk space", _room),
    HealthCheck("permissions", _modes),
    HealthCheck(".env", _secrets),
    HealthCheck("owner", _owner),
    HealthCheck("log", _log),
    HealthCheck("temporary files", _left_behind),
)


def examine_texts(home: HermesHome) -> Iterator[Finding]:
    """Name what the threat scan finds in SOUL.md. It works all the same; a person can allow it."""
    verdicts = Verdicts(home)
    if fault := verdicts.fault:
        yield failed(home.verdicts_json.name, fault.message, fault.remedy)
    notices: list[str] = []
    with contextlib.suppress(OSError):
        text = read_for_prompt(home.soul_md)
        command = f"hermes-memory memory allow --file {shell_word(home.soul_md)}"
        notices += verdicts.review(text, str(home.soul_md), command).notices
    yield from notice_findings(notices)


def notice_findings(notices: Iterable[str]) -> Iterator[Finding]:
    """Yield a finding for each notice of `Verdicts.review`."""
    for notice in notices:
        detail, _, remedy = notice.rpartition("; if it is right: ")
        yield Finding("text", "warning", detail, f"read it; if it is right: {remedy}")
