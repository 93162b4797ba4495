"""The archive of a backup: every file of a home as it was, in a ZIP file with a manifest of hashes.

Databases are copied by SQLite, so that each copy is one state of the database. While the files of notes and skills are
copied, nobody writes state.db, and its copy is its state of then: a file that is another version of the notes would pass
for an edit by hand in the restored home.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import quote

from hermes_core import HermesHome, Memory
from hermes_core.config import Config, load_config
from hermes_core.errors import DatabaseCorrupt, StorageError
from hermes_core.kit import printable
from hermes_core.loader.parts import recorded_parts
from hermes_core.storage.files import PRIVATE_FILE, ensure_folder, locked
from hermes_core.storage.inventory import FILE_NAME as INVENTORY
from hermes_core.storage.output_file import refuse_existing
from hermes_core.storage.sqlite import integrity_faults
from hermes_memory_archive.selection import (
    DATABASES,
    KEPT_FOLDERS,
    MAX_SETTINGS_BYTES,
    files_below,
    may_be_settings,
    may_hold_keys,
    store_folders,
    without_secrets,
)
from hermes_memory_archive.zip_file import CHUNK_BYTES, ArchiveFormat, NewFile, disk_errors

MANIFEST = "hermes-backup.json"
_AGAIN = "make another backup, or take an older one"
FORMAT = ArchiveFormat(
    "hermes-memory-backup",
    1,
    MANIFEST,
    noun="backup",
    error=StorageError,
    foreign="name a file that hermes-memory backup wrote",
    again=_AGAIN,
    max_ratio=1000,
    free_bytes=2**30,
    max_manifest_bytes=4 * 1024 * 1024,
    # The manifest names each file by a path of 4,096 bytes at most, each of which JSON may spell in six.
    manifest_bytes_per_member=32 * 1024,
)
HOME_FOLDER, OUTSIDE_FOLDER = "home", "outside"

NOTE_FILES = ("MEMORY.md", "USER.md")
_MAX_TIME_S = 253_402_300_799.0
"""The last second of the year 9999, behind which neither a date nor a file system counts."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Content of a backup.

    Attributes:
        path: The archive.
        bytes: Size of the archive.
        databases: Number of files that are SQLite databases; each was opened and checked.
        left_out: A sentence for each thing that it does not hold.
    """

    path: Path
    files: int
    databases: int
    bytes: int
    created_at: float
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file of a backup by the name that it has in the archive."""

    sha256: str
    size: int
    mode: int
    mtime: float
    database: bool = False


@dataclass(frozen=True, slots=True)
class BackupContent:
    """The manifest of a backup.

    Attributes:
        outside: Number of a folder in the archive -> absolute path that it was copied from.
        outside_files: The numbers of `outside` that are one file each, not a folder.
    """

    created_at: float
    home: str
    program: str
    files: Mapping[str, BackupFile]
    outside: Mapping[str, str] = field(default_factory=dict)
    outside_files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def outside_paths(memory: Memory) -> list[Path]:
    """Return files and folders outside the home in which the providers have data, as a backup must hold them."""
    paths: list[Path] = []
    for health in memory.manager.health():
        result = memory.manager.ask(health.name, "backup_paths")
        memory.problem_log.extension_problems[f"backup of {health.name}"] = (
            f"what {health.name!r} has outside the home is in no backup: {result.error}"
            if result.error
            else ""
        )
        paths += [Path(path) for path in result.value or () if result.ok and Path(path).exists()]
    return [path for path in dict.fromkeys(paths) if not path.is_relative_to(memory.home.path)]


def make_backup(
    home: HermesHome,
    path: Path,
    *,
    secrets: bool = False,
    force: bool = False,
    outside: Sequence[Path] = (),
    excluded: Collection[Path] = (),
    config: Config | None = None,
    on_file: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.time,
    program: str = "",
) -> BackupReport:
    """Write a backup of a home, check it, and put it at `path`. Programs may use the home meanwhile.

    What was acknowledged before this function was called is in the backup.

    Args:
        secrets: True to include `.env` and other files with keys.
        force: True to replace a file that exists at `path`.
        outside: Files and folders outside the home that providers name.
        excluded: Files and folders of the home to leave out, such as the folder of the backups.
        config: The configuration of the home; default: that of its config.yaml.
        on_file: Called once a file, for a progress bar.

    Raises:
        ConfigError: config.yaml can't be read, and `config` is None.
        DatabaseCorrupt: A database of the home is damaged. No archive was written.
        StorageError: A file can't be read or written, `path` exists, or the archive is not what was written.
    """
    on_server = stores_on_server(load_config(home) if config is None else config)
    refuse_existing(path, "give force=True", force=force)
    ensure_folder(path.parent)
    with (
        disk_errors("write the backup", path, "check the folder and the modes of the home"),
        NewFile(path) as new,
        tempfile.TemporaryDirectory(prefix=".hermes-backup-", dir=path.parent) as work,
    ):
        writer = _Writer(home, new.file, Path(work), secrets=secrets, on_file=on_file)
        writer.leave_out(on_server)
        writer.exclude([*excluded, path, new.partial, Path(work)])
        with closing(writer):
            content = writer.write(outside, clock(), program)
        new.file.flush()
        databases = check_backup(new.partial, Path(work))
        new.put_in_place()
    size = path.stat().st_size
    return BackupReport(path, len(content.files), databases, size, content.created_at, content.left_out)


def stores_on_server(config: Config) -> tuple[str, ...]:
    """Return a sentence about the stores on the server of `storage.url`, which no backup of files holds."""
    storage = config.storage
    if not storage.url:
        return ()
    return (
        f"the sessions, the notes and the outbox, which are on the server {storage.url!r}: back it up with its own tools, "
        f"such as pg_dump --schema={storage.schema}",
    )


class _Writer:
    """The writer of one archive."""

    def __init__(
        self, home: HermesHome, file: IO[bytes], work: Path, *, secrets: bool, on_file: Callable[[], object]
    ) -> None:
        self._home, self._work, self._secrets, self._on_file = home, work, secrets, on_file
        self.archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False)
        self._files: dict[str, BackupFile] = {}
        self._left_out: list[str] = []
        self._excluded = set[Path]()
        self._state: sqlite3.Connection | None = None
        self._closing = ExitStack()

    def close(self) -> None:
        """Close the archive and the database."""
        with self._closing:
            self.archive.close()

    def leave_out(self, sentences: Iterable[str]) -> None:
        """Name what the backup does not hold."""
        self._left_out += sentences

    def exclude(self, paths: Iterable[Path]) -> None:
        """Leave these files and folders out. A folder that holds the home, its notes or a part of it can't be."""
        root = Path(os.path.realpath(self._home.path))
        for path in paths:
            real = Path(os.path.realpath(path))
            if not real.is_relative_to(root) or real == root:
                continue
            relative = real.relative_to(root)
            if len(relative.parts) == 1 and relative.name in store_folders(root):
                continue
            self._excluded.add(self._home.path / relative)
            if (
                real.is_dir()
                and relative.parts[0] not in KEPT_FOLDERS
                and not real.name.startswith(".hermes-backup-")
            ):
                self._left_out.append(f"the folder {relative.as_posix()!r}, which is that of the backups")

    def _walk(self, root: Path, leave_out: Callable[[str], object], *, is_home: bool = False) -> list[Path]:
        return sorted(files_below(root, leave_out, is_home=is_home, excluded=self._excluded))

    def write(self, outside: Sequence[Path], now: float, program: str) -> BackupContent:
        """Write all files and the manifest."""
        root = self._home.path
        stores = [self._home.path / name for name in store_folders(root)]
        paths = self._walk(root, self._left_out.append, is_home=True)
        # A store that the inventory lists must be in the backup, so the inventory is older than the stores.
        self._add_all(root, [one for one in paths if one.name == INVENTORY])
        with ExitStack() as held:
            for path in sorted(self._part_locks()):
                held.enter_context(locked(path))
            held.enter_context(self._state_held())
            # Listed anew, since a note or an item of a part may have come before the locks were held.
            for store in stores:
                # The walk through the home named what is left out, but it follows no link.
                name = partial(self._leave_out_of, store.name) if store.is_symlink() else _say_nothing
                self._add_all(root, self._walk(store, name))
        rest = [
            one
            for one in paths
            if one.name != INVENTORY and not any(one.is_relative_to(store) for store in stores)
        ]
        # First, because the log of the database grows while its state is remembered.
        self._add_all(root, sorted(rest, key=lambda one: one != self._home.state_db))
        folders, singles = self._add_outside(outside)
        if (root / "profiles").is_dir():
            names = ", ".join(sorted(printable(one.name) for one in (root / "profiles").iterdir()))
            self._left_out.append(
                f"the profiles {names}, homes of their own: hermes-memory --profile NAME backup"
            )
        content = BackupContent(
            now, str(root), program, self._files, folders, tuple(singles), tuple(self._left_out)
        )
        document = {**FORMAT.header(), **asdict(content)}
        self.archive.writestr(MANIFEST, json.dumps(document))
        return content

    def _add_outside(self, places: Sequence[Path]) -> tuple[dict[str, str], list[str]]:
        """Add what is outside the home. Return number -> place, and the numbers that are one file each."""
        folders, singles = dict[str, str](), list[str]()
        for number, place in enumerate(map(str, places)):
            # What a provider names is meant, also if it is a link.
            base = Path(os.path.realpath(place))
            folder, before = f"{OUTSIDE_FOLDER}/{number}", len(self._files)
            if not base.exists():
                self._left_out.append(f"{place!r}, which is not there")
            elif base.is_dir():
                self._add_all(base, self._walk(base, partial(self._leave_out_of, place)), folder)
            else:
                name = Path(place).name
                self._add(base, f"{folder}/{name}", place)
                self._on_file()
                singles.append(str(number))
            if len(self._files) > before:
                folders[str(number)] = place
        return folders, singles

    def _leave_out_of(self, place: str, sentence: str) -> None:
        self._left_out.append(f"of {place!r}: {sentence}")

    @contextmanager
    def _state_held(self) -> Iterator[None]:
        """Let nobody write state.db for the block, and remember its state for the copy."""
        path = self._home.state_db
        with ExitStack() as held:
            if path.exists():
                with _database_errors(path):
                    writer = held.enter_context(closing(_connection(path)))
                    try:
                        writer.execute("BEGIN IMMEDIATE")
                    except sqlite3.OperationalError as exc:
                        if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:  # else nobody can write it
                            raise
                    self._state = self._closing.enter_context(closing(_connection(path)))
                    self._state.execute("BEGIN")
                    self._state.execute("SELECT 1 FROM sqlite_master").fetchone()
            yield

    def _part_locks(self) -> Iterator[Path]:
        """Yield the files by which the parts of the home, such as skills, are locked, also if their extension is missing."""
        for part in recorded_parts(self._home.path).values():
            files = (folder / part.lock for folder in part.folders(self._home.path) if part.lock)
            # Without a lock file nothing was ever changed there, and the folder may be one that can't be written.
            yield from (file for file in files if file.with_name(f"{file.name}.lock").exists())

    def _add_all(self, base: Path, paths: Iterable[Path], folder: str = HOME_FOLDER) -> None:
        for path in paths:
            relative = path.relative_to(base).as_posix()
            try:
                self._add(path, f"{folder}/{relative}", relative)
            except FileNotFoundError:
                continue  # a program deleted it meanwhile
            self._on_file()

    def _add(self, path: Path, name: str, relative: str) -> None:
        real = path
        if path.is_symlink():
            # The notes may be links to files that a person keeps elsewhere; this program follows these only.
            real = Path(os.path.realpath(path))
            if path.name not in NOTE_FILES or not path.is_relative_to(self._home.memories):
                self._left_out.append(f"{relative!r}, a link, which is not followed")
                return
        if not self._secrets and (may_hold_keys(path.name) or may_hold_keys(real.name)):
            self._left_out.append(f"{relative!r}, which may hold keys: --with-secrets includes it")
            return
        status = real.lstat()
        if not stat.S_ISREG(status.st_mode):
            self._left_out.append(f"{relative!r}, which is no regular file")
            return
        if _is_backup(path):
            self._left_out.append(f"{relative!r}, which is a backup")
            return
        if _is_database(path) and (copy := self._database_copy(path)) is not None:
            self._store(copy, name, status, database=True)
            copy.unlink()
            return
        if not self._secrets and may_be_settings(path.name) and status.st_size <= MAX_SETTINGS_BYTES:
            data = path.read_bytes()
            clean = without_secrets(path, data)
            if clean != data:
                self._left_out.append(f"the secrets in {relative!r}: --with-secrets includes them")
            plain = self._work / "plain"
            plain.write_bytes(clean)
            self._store(plain, name, status)
            return
        self._store(path, name, status)

    def _store(self, path: Path, name: str, status: os.stat_result, *, database: bool = False) -> None:
        sha, size = hashlib.sha256(), 0
        info = zipfile.ZipInfo(name)
        info.compress_type = zipfile.ZIP_DEFLATED
        with path.open("rb") as source, self.archive.open(info, "w", force_zip64=True) as member:
            while chunk := source.read(CHUNK_BYTES):
                member.write(chunk)
                sha.update(chunk)
                size += len(chunk)
        mode = stat.S_IMODE(status.st_mode)
        self._files[name] = BackupFile(sha.hexdigest(), size, mode, status.st_mtime, database)

    def _database_copy(self, path: Path) -> Path | None:
        """Return a copy of one state of a database; None if the file is no database."""
        copy = self._work / "copy.db"
        copy.unlink(missing_ok=True)
        is_copied = False
        with _database_errors(path), ExitStack() as opened:
            source = self._state if path == self._home.state_db else None
            source = source or opened.enter_context(closing(_connection(path)))
            target = opened.enter_context(closing(sqlite3.connect(copy)))
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            is_copied = True
        if not is_copied:
            return None
        if faults := database_faults(copy):
            raise _damaged(str(path), faults)
        return copy


def _connection(path: Path) -> sqlite3.Connection:
    # Never opened as a plain file: closing it would drop the locks that SQLite holds on it in this process.
    uri = f"file:{quote(str(path))}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=30.0, isolation_level=None)


@contextmanager
def _database_errors(path: Path) -> Iterator[None]:
    """Raise the errors of SQLite as ours. A file that is no database ends the block without an error."""
    try:
        yield
    except sqlite3.DatabaseError as exc:
        if "not a database" in str(exc):
            return
        if not path.exists():
            raise FileNotFoundError(str(path)) from exc
        if "malformed" in str(exc):
            raise _damaged(str(path), str(exc)) from exc
        raise StorageError(
            f"{str(path)!r} can't be copied: {exc}", "see that no program holds it, then try again"
        ) from exc


def database_faults(path: Path) -> str:
    """Return what SQLite's check finds in a database, "" for nothing."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            return "; ".join(integrity_faults(connection)[:3])
    except sqlite3.DatabaseError as exc:
        return str(exc)


def check_backup(path: Path, work: Path) -> int:
    """Read a backup again: every file has its hash, every database opens and is whole. Return the number of databases.

    Raises:
        StorageError: It is not what was written.
    """
    databases = 0
    with opened_backup(path) as (archive, content):
        for name, file in content.files.items():
            copy = work / "checked"
            extract(archive, name, file, copy)
            if file.database:
                databases += 1
                if faults := database_faults(copy):
                    raise StorageError(f"{name!r} in the backup is damaged: {faults}", _AGAIN)
            copy.unlink()
    return databases


@contextmanager
def opened_backup(path: Path) -> Iterator[tuple[zipfile.ZipFile, BackupContent]]:
    """Open a backup and read its manifest.

    Raises:
        StorageError: The file is no backup, damaged, of a newer version, or names a path outside a home.
    """
    archive, content = FORMAT.open(path, _content_of, lambda content: content.files)
    with archive, FORMAT.faults(path):
        if len(archive.namelist()) <= len(content.files):
            raise FORMAT.fault(path, "it lacks files that its manifest names")
        _check_names(path, content)
        yield archive, content


def extract(archive: zipfile.ZipFile, name: str, file: BackupFile, target: Path) -> None:
    """Write one file of a backup to `target`. Raises `StorageError` if it is not what the manifest says."""
    sha, size = hashlib.sha256(), 0
    ensure_folder(target.parent)
    with archive.open(name) as member, target.open("wb") as copy:
        target.chmod(PRIVATE_FILE)
        while chunk := member.read(CHUNK_BYTES):
            size += len(chunk)
            if size > file.size:
                break
            sha.update(chunk)
            copy.write(chunk)
        copy.flush()
        os.fsync(copy.fileno())
    if size != file.size or sha.hexdigest() != file.sha256:
        raise StorageError(f"{name!r} in the backup is another file than was written", _AGAIN)


def _content_of(value: Any) -> BackupContent:
    """Return the content that a manifest names. Folders outside the home without a file in the archive are dropped."""
    files = {
        str(name): BackupFile(
            str(one["sha256"]),
            int(one["size"]),
            int(one["mode"]),
            min(max(0.0, float(one["mtime"])), _MAX_TIME_S),
            bool(one["database"]),
        )
        for name, one in value["files"].items()
    }
    created_at = float(value["created_at"])
    if not 0 <= created_at <= _MAX_TIME_S:
        raise ValueError(created_at)
    numbers = {name.split("/")[1] for name in files if name.startswith(f"{OUTSIDE_FOLDER}/")}
    return BackupContent(
        created_at,
        str(value["home"]),
        str(value["program"]),
        files,
        {str(number): str(place) for number, place in value["outside"].items() if number in numbers},
        tuple(map(str, value.get("outside_files", ()))),
        tuple(map(str, value["left_out"])),
    )


def _check_names(path: Path, content: BackupContent) -> None:
    """Raise `StorageError` if a file could get to a place that a restore doesn't fill."""
    for number in content.outside:
        if not (number.isascii() and number.isdigit()):
            raise StorageError(
                f"{str(path)!r} names the folder {number!r} outside the home, and these are numbered",
                "don't use this file",
            )
    for name in content.files:
        if not _is_member_name(name, content.outside):
            raise StorageError(
                f"{str(path)!r} names the file {name!r}, which no home has", "don't use this file"
            )


def _is_member_name(name: str, outside: Mapping[str, str]) -> bool:
    parts = PurePosixPath(name).parts
    if len(parts) < 2 or name != "/".join(parts) or ".." in parts or "\0" in name:
        return False
    if os.name == "nt" and ("\\" in name or ":" in name):  # a folder, a drive or a stream there
        return False
    if parts[0] == HOME_FOLDER:
        # Compared without case: on macOS and Windows, "Logs" is the folder "logs".
        return parts[1].casefold() not in KEPT_FOLDERS
    return parts[0] == OUTSIDE_FOLDER and len(parts) > 2 and parts[1] in outside


def _is_database(path: Path) -> bool:
    return path.suffix in DATABASES


def _say_nothing(_: str) -> None:
    """Do nothing with a sentence that was said before."""


def _is_backup(path: Path) -> bool:
    if path.suffix != ".zip":
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return MANIFEST in archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return False


def _damaged(name: str, faults: str) -> DatabaseCorrupt:
    return DatabaseCorrupt(
        f"{name!r} is damaged: {faults}; no backup was made",
        "repair it (state.db: hermes-memory sessions repair) or put the file of an older backup in its place",
    )
