"""Private files: locks between processes, atomic replacement, file modes, and the type of the file system."""

from __future__ import annotations

import contextlib
import errno
import functools
import ntpath
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from filelock import BaseFileLock, FileLock, Timeout
from msgspec import Struct

from hermes_core.errors import HermesError, LockTimeout, StorageError
from hermes_core.stopping import stopped, wait_unless_stopped

# Seconds to wait for another process that writes the same file. Processes of this package hold a lock for
# milliseconds.
LOCK_TIMEOUT = 10.0

# Half a second in all: well below the time after which a person thinks that a write hangs.
_WINDOWS_RENAME_ATTEMPTS = 25
_WINDOWS_RENAME_PAUSE_S = 0.02

# Threads of one process wait so many times as long as for another process: each waits for the writes of all before it.
_THREAD_TIMEOUT_FACTOR = 6

# A lock for each lock file that this process has used. A fork forgets them: their holders are threads of its parent.
_thread_locks: dict[str, threading.Lock] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread_locks.clear)

Value = TypeVar("Value")

NS_PER_S = 1_000_000_000

# The kernel takes the times of files from a clock that ticks every 1 to 16 ms. Some file systems store whole seconds, FAT
# even ones only.
TICK_NS = 20_000_000
COARSE_TICK_NS = 2 * NS_PER_S + TICK_NS

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700

_NOT_OF_PROVIDERS = frozenset({"plugins", "profiles"})
"""Folders that `make_private` does not enter: they may be large, and no provider writes there."""

# Memory-mapped WAL indexes need shared memory between all processes that use the file. These file systems do not
# provide it reliably.
# https://www.sqlite.org/wal.html, "All processes using a database must be on the same host computer".
_NO_SHARED_MEMORY = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "afpfs",
        "webdav",
        "davfs",
        "ftp",
        "9p",
        "virtiofs",
        "vboxsf",
        "vmhgfs",
        "prl_fs",
        "drvfs",
        "macfuse",
        "osxfuse",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "remote",
    ]
)

# Types of drives of Windows, by the numbers of GetDriveTypeW.
_DRIVES = {2: "removable", 3: "fixed", 4: "remote", 5: "cdrom", 6: "ramdisk"}

# A line of `mount` of macOS and the BSDs: "//ann@nas/home on /Volumes/home (smbfs, nodev)".
_MOUNT = re.compile(r".* on (/.*) \((\w[^,)]*).*\)")


class FileSystem(Struct, frozen=True):
    """Type of a file system, by its name in the operating system; "" if unknown."""

    kind: str

    @property
    def carries_wal(self) -> bool:
        """True if SQLite's write-ahead log is safe on this type of file system, and the type is known."""
        return self.kind not in ("", *_NO_SHARED_MEMORY) and not self.kind.startswith("fuse")


@contextlib.contextmanager
def locked(path: Path, timeout: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Hold the lock file beside `path` (`NAME.lock`) during the `with` block.

    The operating system releases the lock when the process dies. A thread that holds the lock can't take it a second time.

    Raises:
        LockTimeout: Another process held the lock for more than `timeout` seconds, or the current turn was stopped.
    """
    ensure_folder(path.parent)
    name = f"{path}.lock"
    # Threads of this process queue here: at the lock file each would only look every 50 ms whether it is free, so that
    # some of 64 threads waited for more than ten seconds.
    threads = _thread_locks.setdefault(_real_name(name), threading.Lock())
    if not wait_unless_stopped(partial(_acquire_thread, threads), timeout * _THREAD_TIMEOUT_FACTOR):
        raise _lock_timeout(name, timeout * _THREAD_TIMEOUT_FACTOR)
    try:
        # Not thread-local: the generator may be closed on another thread than the one that opened it.
        lock = FileLock(name, mode=PRIVATE_FILE, thread_local=False)
        try:
            acquired = wait_unless_stopped(partial(_acquire, lock), timeout)
        except OSError as exc:
            raise _storage_error("lock", path, exc) from exc
        if not acquired:
            raise _lock_timeout(name, timeout)
        try:
            yield
        finally:
            lock.release()
    finally:
        threads.release()


@functools.lru_cache(maxsize=256)
def _real_name(name: str) -> str:
    """Return the real path of a lock file.

    It chooses the queue of threads only. If a folder becomes a link later, the lock file itself still excludes them.
    """
    return os.path.realpath(name)


def _lock_timeout(name: str, timeout: float) -> LockTimeout:
    long = "" if stopped() else f" for more than {timeout:g} s"
    return LockTimeout(f"another process has held {name!r}{long}", "stop it, then try again")


def _acquire_thread(lock: threading.Lock, seconds: float) -> bool:
    return lock.acquire(timeout=seconds)


def _acquire(lock: BaseFileLock, seconds: float) -> bool:
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return False
    return True


def write_atomic(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Replace the content of `path` by `data` atomically: at any moment the file holds the old bytes or the new ones.

    The new bytes and the folder entry are on disk when this returns. If `path` is a symbolic link, its target is
    replaced.

    Raises:
        StorageError: The file can't be written. The old file is untouched.
    """
    write_checked(path, data, mode, lambda: None)


def write_checked(path: Path, data: bytes, mode: int, check: Callable[[], object]) -> None:
    """Replace the content of `path` atomically, as `write_atomic` does.

    Args:
        check: Called directly before the replacement. If it raises, the file stays as it is.
    """
    try:
        # A link in the path of the folder needs no look: the rename follows it. `resolve` raises no OSError for a circle.
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        ensure_folder(target.parent)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _keep_owner(target, temporary)
            Path(temporary).chmod(mode)
            check()
            _replace(temporary, target)
        finally:
            with contextlib.suppress(OSError):  # after a success the temporary file does not exist any more
                delete_path(Path(temporary))
        sync_folder(target.parent)
    except OSError as exc:
        raise _storage_error("write", path, exc) from exc


def _replace(temporary: str, target: Path) -> None:
    # On Windows the rename fails while another process, or a virus scanner, has the target open: they read for milliseconds.
    for left in reversed(range(_WINDOWS_RENAME_ATTEMPTS)):
        try:
            Path(temporary).replace(target)
        except PermissionError as exc:
            if not left or not hasattr(exc, "winerror"):
                raise
            with contextlib.suppress(OSError):
                _make_replaceable(target)
            time.sleep(_WINDOWS_RENAME_PAUSE_S)
        else:
            return


def delete_path(path: Path) -> None:
    """Delete a file, a link, or a folder with all that is in it; on Windows also what is read-only, as objects of git are."""
    delete = shutil.rmtree if path.is_dir() and not path.is_symlink() else Path.unlink
    try:
        delete(path)
    except PermissionError as exc:
        if not hasattr(exc, "winerror"):
            raise
        for folder, _, names in os.walk(path):
            for name in names:
                _make_replaceable(Path(folder, name))
        _make_replaceable(path)
        delete(path)


def _make_replaceable(path: Path) -> None:
    # Windows neither replaces nor deletes a file without a write bit.
    mode = path.lstat().st_mode
    if not mode & stat.S_IWRITE:
        path.chmod(stat.S_IMODE(mode) | stat.S_IWRITE)


def _keep_owner(target: Path, temporary: str) -> None:
    """Give the temporary file the owner of `target`, if root replaces it.

    Otherwise the owner could not read the new file.
    """
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        with contextlib.suppress(
            OSError
        ):  # a new file, or root in a container that lacks the right to do this
            found = target.stat()
            os.chown(temporary, found.st_uid, found.st_gid)


class FileValue(Generic[Value]):
    """A value that is read from a file, and read again only after the file has changed.

    Two versions of a file are told apart by inode, size and times. Threads may share an instance.
    """

    def __init__(self) -> None:
        self._known: tuple[tuple[int, ...], Value] | None = None

    def get(self, path: Path, read: Callable[[], Value], missing: Value | None = None) -> Value:
        """Return the result of `read` for this state of the file.

        Args:
            read: Reads the file. It is called each time if the file can't be looked at.
            missing: Returned if there is no file; default: the result of `read`.
        """
        known, began = self._known, time.time_ns()
        try:
            found = path.stat()
        except OSError as exc:
            return missing if missing is not None and isinstance(exc, FileNotFoundError) else read()
        stamp = (
            found.st_dev,
            found.st_ino,
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
            found.st_mode,
        )
        if known is not None and known[0] == stamp:
            return known[1]
        value = read()
        # A write in the same tick of the clock may leave the stamp as it is. A time in the future proves nothing.
        coarse = found.st_mtime_ns % NS_PER_S == 0 == found.st_ctime_ns % NS_PER_S
        age = began - max(found.st_mtime_ns, found.st_ctime_ns)
        self._known = (stamp, value) if age > (COARSE_TICK_NS if coarse else TICK_NS) else None
        return value

    def forget(self) -> None:
        """Read the file again next time: the value depends on more than its bytes."""
        self._known = None


def open_at_once(path: str, flags: int) -> int:
    """Open a file with `O_NONBLOCK`, as an `opener` for `open`, because opening a pipe would block for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that a rename or a new file in it survives a power cut.

    Windows does not support this.
    """
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def read_utf8(path: Path, error: type[HermesError]) -> str:
    """Return the text of a UTF-8 file; "" if it does not exist. Raise `error` if it can't be read or is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UnicodeDecodeError as exc:
        raise error(f"{str(path)!r} is not UTF-8 text ({exc.reason})", "save it as UTF-8") from exc
    except OSError as exc:
        remedy = remedy_for(exc, "check its owner and mode")
        raise error(f"can't read {str(path)!r}: {exc.strerror or exc}", remedy) from exc


def ensure_folder(folder: Path, mode: int = PRIVATE_FOLDER) -> None:
    """Create `folder` and its missing parents with private modes, on disk. An existing folder keeps its mode."""
    try:
        if folder.is_dir():
            return
        # `parents=True` would give the parents the mode of the umask.
        for one in (*reversed(folder.parents), folder):
            if not one.exists():
                one.mkdir(mode=mode, exist_ok=True)
                # A power cut would take the folder with all that is synced in it.
                sync_folder(one.parent)
        folder.mkdir(mode=mode, exist_ok=True)
    except OSError as exc:
        raise _storage_error("make folder", folder, exc) from exc


def make_private(home: Path, since: float, *, deep: bool = True) -> None:
    """Give what was made or changed in a home since a time the modes of the home: the owner's rights, and no others.

    Libraries write files with the umask of the process, which is everybody's: to change it would change what other threads
    of a host write.

    Args:
        since: Seconds since the epoch. What is older keeps the modes that somebody gave it.
        deep: False for the entries of the home alone. A folder among them closes all that is in it.
    """
    folders = [os.fspath(home)] if os.name != "nt" else []
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if not (is_folder or entry.is_file(follow_symlinks=False)):
                    continue
                found = entry.stat(follow_symlinks=False)
                if found.st_ctime >= since and stat.S_IMODE(found.st_mode) & 0o077:
                    with contextlib.suppress(OSError):  # it is another user's, or gone
                        Path(entry.path).chmod(stat.S_IMODE(found.st_mode) & 0o700)
                if deep and is_folder and entry.name not in _NOT_OF_PROVIDERS:
                    folders.append(entry.path)


def file_system(path: Path) -> FileSystem:
    """Return the type of the file system of `path`, or of its nearest parent that exists."""
    existing = path.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    real = os.path.realpath(existing)
    return FileSystem(drive_kind(real) if os.name == "nt" else mounted_kind(Path(real), mounts()))


def mounts() -> list[tuple[str, str]]:
    """Return folder and type of each mount; [] if the system does not say."""
    if sys.platform != "linux":
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            # It reads a table of the kernel, and waits for no server.
            done = subprocess.run(["/sbin/mount"], capture_output=True, timeout=5, check=True)
            return [
                match.groups()
                for match in map(_MOUNT.fullmatch, os.fsdecode(done.stdout).splitlines())
                if match
            ]
        return []
    try:
        lines = os.fsdecode(Path("/proc/self/mounts").read_bytes()).splitlines()
    except OSError:
        return []
    # A blank in the name of a folder is "\040".
    plain = partial(re.sub, r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)))
    return [(plain(point), kind) for _, point, kind, *_ in map(str.split, lines)]


def mounted_kind(path: Path, table: Iterable[tuple[str, str]]) -> str:
    """Return the type of the innermost mount that contains a path; "" if none does."""
    best, kind = -1, ""
    for point, found in table:
        mount = Path(_folded(point))
        if Path(_folded(str(path))).is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), found
    return kind


def _folded(path: str) -> str:
    # The file systems of macOS take two spellings of a name for one.
    return path if sys.platform == "linux" else unicodedata.normalize("NFC", path).casefold()


def drive_kind(path: str, drive_type: Callable[[str], int] | None = None) -> str:
    """Return the type of the drive of an absolute path of Windows: "remote" for a share, also one that has a letter."""
    drive = ntpath.splitdrive(path.replace("/", "\\"))[0]
    is_device = drive.startswith(("\\\\?\\", "\\\\.\\"))
    if drive.startswith("\\\\") and (not is_device or drive[4:8].upper() == "UNC\\"):
        return "remote"
    if drive_type is None:
        import ctypes

        drive_type = ctypes.windll.kernel32.GetDriveTypeW  # type: ignore[attr-defined,unused-ignore]
    return _DRIVES.get(drive_type(f"{drive}\\"), "")


_REMEDIES = {
    errno.ENOSPC: "free disk space, then try again",
    errno.EDQUOT: "your disk quota is used up: free space, then try again",
    errno.EROFS: "the file system is read-only: remount it or use another HERMES_HOME",
    errno.EACCES: "check who owns the folder and its mode",
    errno.EPERM: "check who owns the folder and its mode",
    # A write may have failed after the replacement, so this promises nothing about the file.
    errno.ENAMETOOLONG: "use a home whose path is shorter",
    errno.EIO: "see that the disk works, then try again",
}


def remedy_for(exc: OSError, default: str) -> str:
    """Return what to do about an error of a disk, or `default` if the disk is not to blame."""
    disk = exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENAMETOOLONG)
    return _REMEDIES[exc.errno or 0] if disk else default


def _storage_error(verb: str, path: Path, exc: OSError) -> StorageError:
    return StorageError(
        f"can't {verb} {str(path)!r}: {exc.strerror or exc}",
        _REMEDIES.get(exc.errno or 0, "nothing was changed"),
    )
