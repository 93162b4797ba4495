"""The archive of a backup: every file of a home as it was, in a ZIP file with a manifest of hashes.

Databases are copied by SQLite, so that each copy is one state of the database. The notes are copied under their locks, with
their origins and their history. state.db comes last: what was put into the outbox for a change of the notes is in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import stat
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import quote

from hermes_core.errors import DatabaseCorrupt, StorageError
from hermes_core.home import HermesHome
from hermes_core.safety.redact import redact, redact_value
from hermes_core.storage.files import PRIVATE_FILE, ensure_folder, locked, remedy_for, sync_folder
from hermes_core.storage.inventory import FILE_NAME as INVENTORY
from hermes_core.storage.inventory import STATE_DB
from hermes_core.storage.output_file import open_partial

FORMAT = "hermes-memory-backup"
VERSION = 1
MANIFEST = "hermes-backup.json"
HOME_FOLDER, OUTSIDE_FOLDER = "home", "outside"

DATABASES = (".db", ".sqlite", ".sqlite3")

# Other homes, copies, code that is installed again, and what has no meaning after the process.
SKIPPED_FOLDERS = frozenset(
    {"profiles", "backups", "logs", "locks", "node_modules", "venv", ".venv", "__pycache__", ".git"}
)
_SKIPPED_FILES = re.compile(r".*(?:-wal|-shm|-journal|\.lock|\.tmp|\.partial|\.pid|\.sock)")
_COPIES = (".damaged", ".lost-", ".repairing", ".before-restore-", ".restoring-")
SECRET_FILES = re.compile(
    r"\.env(?:\..*)?|.*\.(?:pem|key|p12|pfx)|credentials?(?:\..*)?|(?:auth|oauth|token)s?[\w.-]*\.json|id_(?:rsa|ed25519|ecdsa)"
)
_CHUNK_BYTES = 1024 * 1024
_MAX_MANIFEST_BYTES = 256 * 1024 * 1024
_AGAIN = "make another backup, or take an older one"


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds.

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
    """The manifest of a backup. `outside` is number of a folder in the archive -> absolute path that it was copied from."""

    created_at: float
    home: str
    program: str
    files: Mapping[str, BackupFile]
    outside: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def make_backup(
    home: HermesHome,
    path: Path,
    *,
    secrets: bool = False,
    outside: Sequence[Path] = (),
    on_file: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.time,
    program: str = "",
) -> BackupReport:
    """Write a backup of a home, check it, and put it at `path`. Programs may use the home meanwhile.

    What was acknowledged before this function was called is in the backup.

    Args:
        secrets: True to include `.env` and other files with keys.
        outside: Files and folders outside the home that providers name.
        on_file: Called once a file, for a progress bar.

    Raises:
        DatabaseCorrupt: A database of the home is damaged. No archive was written.
        StorageError: A file can't be read or written, or the archive is not what was written.
    """
    ensure_folder(path.parent)
    with _disk_errors(path):
        partial, file = open_partial(path)
    try:
        with (
            _disk_errors(path),
            tempfile.TemporaryDirectory(prefix=".hermes-backup-", dir=path.parent) as work,
        ):
            with file:
                writer = _Writer(home, file, Path(work), secrets=secrets, on_file=on_file)
                with closing(writer.archive):
                    content = writer.write(outside, clock(), program)
                file.flush()
                os.fsync(file.fileno())
            databases = check_backup(partial, Path(work))
            partial.replace(path)
            sync_folder(path.parent)
    finally:
        file.close()
        partial.unlink(missing_ok=True)
    size = path.stat().st_size
    return BackupReport(path, len(content.files), databases, size, content.created_at, content.left_out)


class _Writer:
    """The writer of one archive."""

    def __init__(
        self, home: HermesHome, file: IO[bytes], work: Path, *, secrets: bool, on_file: Callable[[], object]
    ) -> None:
        self._home, self._work, self._secrets, self._on_file = home, work, secrets, on_file
        self.archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False)
        self._files: dict[str, BackupFile] = {}
        self._left_out: list[str] = []

    def write(self, outside: Sequence[Path], now: float, program: str) -> BackupContent:
        """Write all files and the manifest."""
        root = self._home.path
        paths = sorted(_walk(root, self._left_out))
        # A store that the inventory lists must be in the backup, so the inventory is older than the stores.
        self._add_all(root, [one for one in paths if one.name == INVENTORY])
        with ExitStack() as held:
            for path in sorted({*self._note_files(), *self._skill_journals()}):
                held.enter_context(locked(path))
            # Listed anew, since a note or a skill may have come before the locks were held.
            notes, skills = sorted(_walk(self._home.memories, [])), sorted(_walk(self._home.skills, []))
            self._add_all(root, [*notes, *skills])
        inside = (self._home.memories, self._home.skills)
        rest = [
            one
            for one in paths
            if one.name != INVENTORY and not any(one.is_relative_to(top) for top in inside)
        ]
        self._add_all(root, [one for one in rest if one.name != STATE_DB])
        self._add_all(root, [one for one in rest if one.name == STATE_DB])
        folders = {}
        for number, place in enumerate(outside):
            folders[str(number)] = str(place)
            base = place if place.is_dir() else place.parent
            found = sorted(_walk(place, self._left_out)) if place.is_dir() else [place]
            self._add_all(base, [one for one in found if one.exists()], f"{OUTSIDE_FOLDER}/{number}")
        if (root / "profiles").is_dir():
            names = ", ".join(sorted(one.name for one in (root / "profiles").iterdir()))
            self._left_out.append(
                f"the profiles {names}, homes of their own: hermes-memory --profile NAME backup"
            )
        content = BackupContent(now, str(root), program, self._files, folders, tuple(self._left_out))
        document = {"format": FORMAT, "version": VERSION, **asdict(content)}
        self.archive.writestr(MANIFEST, json.dumps(document))
        return content

    def _note_files(self) -> Iterator[Path]:
        users = self._home.memories / "users"
        folders = [self._home.memories, *(users.iterdir() if users.is_dir() else ())]
        for folder in folders:
            for name in ("MEMORY.md", "USER.md"):
                if (folder / name).exists():
                    yield Path(os.path.realpath(folder / name))

    def _skill_journals(self) -> Iterator[Path]:
        users = self._home.memories / "users"
        for folder in (self._home.skills, *users.glob("*/skills")):
            if (folder / ".journal.db").exists():
                yield folder / ".journal.db"

    def _add_all(self, base: Path, paths: Iterable[Path], folder: str = HOME_FOLDER) -> None:
        for path in paths:
            relative = path.relative_to(base).as_posix()
            try:
                self._add(path, f"{folder}/{relative}", relative)
            except FileNotFoundError:
                continue  # a program deleted it meanwhile
            self._on_file()

    def _add(self, path: Path, name: str, relative: str) -> None:
        status = path.stat()
        if not self._secrets and SECRET_FILES.fullmatch(path.name):
            self._left_out.append(f"{relative!r}, which may hold keys: --with-secrets includes it")
            return
        if not stat.S_ISREG(status.st_mode):
            self._left_out.append(f"{relative!r}, which is no regular file")
            return
        if _is_database(path) and (copy := self._database_copy(path)) is not None:
            self._store(copy, name, status, database=True)
            copy.unlink()
            return
        if not self._secrets and path.suffix in (".json", ".yaml", ".yml") and path.parent == self._home.path:
            data = path.read_bytes()
            clean = _without_secrets(path, data)
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
            while chunk := source.read(_CHUNK_BYTES):
                member.write(chunk)
                sha.update(chunk)
                size += len(chunk)
        mode = stat.S_IMODE(status.st_mode)
        self._files[name] = BackupFile(sha.hexdigest(), size, mode, status.st_mtime, database)

    def _database_copy(self, path: Path) -> Path | None:
        """Return a copy of one state of a database; None if the file is no database."""
        copy = self._work / "copy.db"
        copy.unlink(missing_ok=True)
        try:
            # Never opened as a plain file: closing it would drop the locks that SQLite holds on it in this process.
            with (
                closing(
                    sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=30.0)
                ) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.DatabaseError as exc:
            if "not a database" in str(exc):
                return None
            if not path.exists():
                raise FileNotFoundError(str(path)) from exc
            if "malformed" in str(exc):
                raise _damaged(str(path), str(exc)) from exc
            raise StorageError(
                f"{str(path)!r} can't be copied: {exc}", "see that no program holds it, then try again"
            ) from exc
        if faults := database_faults(copy):
            raise _damaged(str(path), faults)
        return copy


def database_faults(path: Path) -> str:
    """Return what SQLite's check finds in a database, "" for nothing."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("PRAGMA integrity_check(3)").fetchall()
    except sqlite3.DatabaseError as exc:
        return str(exc)
    return "; ".join(str(row[0]) for row in rows if row[0] != "ok")


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
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive, _read_manifest(path, archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as exc:
        raise StorageError(f"{str(path)!r} is no whole backup: {exc}", _AGAIN) from exc


def extract(archive: zipfile.ZipFile, name: str, file: BackupFile, target: Path) -> None:
    """Write one file of a backup to `target`. Raises `StorageError` if it is not what the manifest says."""
    sha, size = hashlib.sha256(), 0
    ensure_folder(target.parent)
    with archive.open(name) as member, target.open("wb") as copy:
        target.chmod(PRIVATE_FILE)
        while chunk := member.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > file.size:
                break
            sha.update(chunk)
            copy.write(chunk)
        copy.flush()
        os.fsync(copy.fileno())
    if size != file.size or sha.hexdigest() != file.sha256:
        raise StorageError(f"{name!r} in the backup is another file than was written", _AGAIN)


def _read_manifest(path: Path, archive: zipfile.ZipFile) -> BackupContent:
    names = archive.namelist()
    if MANIFEST not in names:
        raise StorageError(
            f"{str(path)!r} is no backup of this program", "name a file that hermes-memory backup wrote"
        )
    with archive.open(MANIFEST) as member:
        data = member.read(_MAX_MANIFEST_BYTES + 1)
    try:
        value: Any = json.loads(data) if len(data) <= _MAX_MANIFEST_BYTES else None
        version = value["version"]
        if value["format"] == FORMAT and isinstance(version, int) and version > VERSION:
            raise StorageError(
                f"{str(path)!r} has version {version!r}, and this program reads {VERSION}",
                "restore it with a newer version of this program",
            )
        files = {
            str(name): BackupFile(
                str(one["sha256"]),
                int(one["size"]),
                int(one["mode"]),
                float(one["mtime"]),
                bool(one["database"]),
            )
            for name, one in value["files"].items()
        }
        outside = {str(number): str(place) for number, place in value["outside"].items()}
        content = BackupContent(
            float(value["created_at"]),
            str(value["home"]),
            str(value["program"]),
            files,
            outside,
            tuple(map(str, value["left_out"])),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as exc:
        raise StorageError(
            f"the manifest of {str(path)!r} can't be read ({type(exc).__name__})", _AGAIN
        ) from exc
    if {*files, MANIFEST} != set(names) or len(names) != len(set(names)):
        raise StorageError(f"{str(path)!r} holds other files than its manifest names", _AGAIN)
    for name in files:
        parts = PurePosixPath(name).parts
        allowed = parts[:1] == (HOME_FOLDER,) or (parts[:1] == (OUTSIDE_FOLDER,) and parts[1] in outside)
        if (
            not allowed
            or ".." in parts
            or "\\" in name
            or ":" in parts[-1]
            or name.startswith("/")
            or len(parts) < 2
        ):
            raise StorageError(
                f"{str(path)!r} names the file {name!r}, which no home has", "don't use this file"
            )
    whole, packed = sum(one.file_size for one in archive.infolist()), path.stat().st_size
    if whole > 1000 * packed + 2**30 or whole < sum(file.size for file in files.values()):
        raise StorageError(
            f"{str(path)!r} would unpack to {whole:,} bytes, as no backup does", "don't use this file"
        )
    return content


def _walk(root: Path, left_out: list[str]) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED_FOLDERS
            and not any(part in name for part in _COPIES)
            and not name.startswith(".hermes-backup-")
        )
        for name in list(folders):
            if Path(folder, name).is_symlink():
                left_out.append(f"the folder {str(Path(folder, name))!r}, which is a link")
        for name in names:
            path = Path(folder, name)
            if not _SKIPPED_FILES.fullmatch(name) and not any(part in name for part in _COPIES):
                yield path


def _is_database(path: Path) -> bool:
    return path.suffix in DATABASES


def _without_secrets(path: Path, data: bytes) -> bytes:
    """Return a settings file without values that look like keys. Keys of a JSON file go whole."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    if path.suffix != ".json":
        return redact(text).encode() if redact(text) != text else data
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return redact(text).encode() if redact(text) != text else data
    clean = _pruned(value, redact_value(value))
    return data if clean == value else (json.dumps(clean, indent=1, ensure_ascii=False) + "\n").encode()


def _pruned(value: Any, redacted: Any) -> Any:
    """Return a value without the parts that redaction changed."""
    if isinstance(value, dict) and isinstance(redacted, dict):
        return {
            key: _pruned(value[key], redacted[key])
            for key in value
            if key in redacted and (isinstance(value[key], dict | list) or value[key] == redacted[key])
        }
    return value if value == redacted else redacted


def _damaged(name: str, faults: str) -> DatabaseCorrupt:
    return DatabaseCorrupt(
        f"{name!r} is damaged: {faults}; no backup was made",
        "repair it (state.db: hermes-memory sessions repair) or put the file of an older backup in its place",
    )


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StorageError(
            f"can't write the backup {str(path)!r}: {exc.strerror or exc}",
            remedy_for(exc, "check the folder and the modes of the home"),
        ) from exc
