"""The places of all notes of a home: its files, or what an engine has in their place."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar, cast
from urllib.parse import unquote

from hermes_core.contract.values import MemoryTarget, parse_outside_id
from hermes_core.curated.origins import NoteOrigins
from hermes_core.curated.places import NoteFile, NotePlace
from hermes_core.curated.project import KeyFile, ProjectKeys
from hermes_core.errors import SessionError
from hermes_core.home import HermesHome, file_name_of
from hermes_core.storage.engine import Engine
from hermes_core.storage.files import LOCK_TIMEOUT
from hermes_core.storage.inventory import ORIGINS, Inventory

Key = TypeVar("Key")
Value = TypeVar("Value")

# Files, and tables of origins, of users that are remembered.
MAX_REMEMBERED = 256


class NoteEngine(Engine, Protocol):
    """An engine that keeps the notes of a home in rows, which several machines share."""

    def note_places(
        self, home: HermesHome, *, mirror: bool = ..., clock: Callable[[], float] = ...
    ) -> NotePlaces:
        """Return the places of the notes.

        Args:
            mirror: True to write a read-only copy of each row into the folder of the notes.
        """


class NotePlaces:
    """The places of the notes of a home in its files. An engine has a subclass of its own.

    Args:
        lock_timeout: Seconds to wait for the lock of a file.
    """

    def __init__(
        self,
        home: HermesHome,
        *,
        lock_timeout: float = LOCK_TIMEOUT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.home, self._lock_timeout, self._clock = home, lock_timeout, clock
        # Both remember what they have read, so that the turns of one user share them.
        self._files: OrderedDict[Path, NoteFile] = OrderedDict()
        self._origins: OrderedDict[Path, NoteOrigins] = OrderedDict()

    @property
    def project_keys(self) -> ProjectKeys:
        """The keys of the notes on repositories."""
        return KeyFile(self.home.memories / "projects")

    @property
    def journal(self) -> Path | Engine:
        """The file of the journal, or the database with its tables."""
        return self.home.journal_db

    def of_owner(self, owner: str) -> dict[MemoryTarget, NotePlace]:
        """Return the places of MEMORY.md and USER.md of a `Session.owner`."""
        return {
            "memory": self.place(self.home.memory_md_of(owner), owner, "memory"),
            "user": self.place(self.home.user_md_of(owner), owner, "user"),
        }

    def of_project(self, repository: str) -> NotePlace:
        """Return the place of the notes on a repository, by its `Repository.key`."""
        return self.place(self.home.project_md_of(repository), "", "project")

    def of_projects(self) -> list[NotePlace]:
        """Return the places of the notes on all repositories.

        Raises:
            StorageError: The database can't be read.
        """
        paths = sorted(self.home.memories.glob("projects/*/PROJECT.md"))
        return [self.place(path, "", "project") for path in paths]

    def place(self, path: Path, owner: str, target: MemoryTarget) -> NotePlace:  # noqa: ARG002  of rows
        """Return the place of the notes that a home without a server has in the file `path`."""
        file = self._files.get(path)
        return remembered(self._files, path, NoteFile(path, self.key(path))) if file is None else file

    def origins(self, folder: Path) -> NoteOrigins:
        """Return the origins of the notes in a folder of the home."""
        origins = self._origins.get(folder)
        if origins is None:
            inventory = Inventory(self.home.path)
            origins = NoteOrigins(
                folder / ORIGINS, self._clock, lock_timeout=self._lock_timeout, inventory=inventory
            )
            origins = remembered(self._origins, folder, origins)
        return origins

    def owners(self) -> list[str]:
        """Return the `Session.owner` of each user who has notes or skills of their own.

        Raises:
            StorageError: The database can't be read.
        """
        return sorted(_owners_with_folders(self.home))

    def delete(self, places: Iterable[NotePlace], folder: Path) -> None:
        """Delete the rows of these places, their history as far as it is in the outbox, and the origins of a folder."""

    def keys(self) -> list[str]:
        """Return the keys of all notes that the database has, or had; [] for files.

        Raises:
            StorageError: The database can't be read.
        """
        return []

    def reading(
        self,
        places: Iterable[NotePlace],  # noqa: ARG002  of rows
        folder: Path,  # noqa: ARG002  of rows
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context manager within which notes of a server are read at most once; files are read each time."""
        return contextlib.nullcontext()

    def key(self, path: Path) -> str:
        """Return the key of a file or folder of notes: its path below the folder of the notes."""
        return path.relative_to(self.home.memories).as_posix().removeprefix(".")


def remembered(table: OrderedDict[Key, Value], key: Key, value: Value) -> Value:
    """Store an object for a path or an owner, and drop the oldest beyond `MAX_REMEMBERED`. Return the stored one."""
    value = table.setdefault(key, value)
    while len(table) > MAX_REMEMBERED:
        with contextlib.suppress(KeyError):  # another thread was first
            table.popitem(last=False)
    return value


def note_places(
    home: HermesHome,
    database: Engine | None,
    *,
    mirror: bool = False,
    lock_timeout: float = LOCK_TIMEOUT,
    clock: Callable[[], float] = time.time,
) -> NotePlaces:
    """Return the places of the notes of a home: its files, or those of a database that several machines share."""
    if database is None:
        return NotePlaces(home, lock_timeout=lock_timeout, clock=clock)
    return cast("NoteEngine", database).note_places(home, mirror=mirror, clock=clock)


def owner_of_folder(name: str) -> str:
    """Return the `Session.owner` whose folder below `users` has this name; "" if no owner's has."""
    owner = unquote(name[:-17])
    if file_name_of(owner) == name:
        with contextlib.suppress(SessionError):  # a folder that another program made
            parse_outside_id(owner)
            return owner
    return ""


def _owners_with_folders(home: HermesHome) -> Iterator[str]:
    for folder in sorted(home.memories.glob("users/*")):
        if folder.is_dir() and (owner := owner_of_folder(folder.name)):
            yield owner
