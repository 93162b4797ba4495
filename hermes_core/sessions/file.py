"""The file state.db: opened, kept whole, checked, rebuilt and copied; what lies in it is the business of `sessions.db`."""

from __future__ import annotations

import functools
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from hermes_core.recall import dense
from hermes_core.sessions import upkeep
from hermes_core.sessions.mark import Mark
from hermes_core.sessions.meaning import VectorIndex
from hermes_core.sessions.migrations import MIGRATIONS
from hermes_core.storage.sqlite import Database, JournalMode

log = logging.getLogger(__name__)

File = TypeVar("File", bound="SessionFile")
Given = ParamSpec("Given")
Read = TypeVar("Read")


def reading(method: Callable[Concatenate[File, Given], Read]) -> Callable[Concatenate[File, Given], Read]:
    """A method that makes values of rows: a row that damage made another raises `DatabaseCorrupt`."""

    @functools.wraps(method)
    def sound(self: File, /, *args: Given.args, **kwargs: Given.kwargs) -> Read:
        with self._database.sound():
            return method(self, *args, **kwargs)

    return sound


class SessionFile:
    """One state.db and what stands beside it: its mark, its writers' queue, its vectors."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        journal_mode: JournalMode = "auto",
        read_only: bool = False,
        clock: Callable[[], float] = time.time,
        zone: tzinfo | None = None,
        semantic: bool = False,
    ) -> None:
        self.path = path = Path(path)
        self._mark = Mark(path)
        self._database = Database(
            path,
            MIGRATIONS,
            journal_mode=journal_mode,
            read_only=read_only,
            repair=upkeep.REPAIR,
            held_rows=lambda: upkeep.held_rows(path, self._mark),
            on_open=self._warn_when_behind,
            take_turns=True,
        )
        self._clock = clock
        self._zone = zone or datetime.now().astimezone().tzinfo
        self.meaning = (
            VectorIndex(self._database) if semantic and not read_only and dense.installed() else None
        )

    def hurry(self) -> None:
        """Wait for other processes only shortly from now on: the program ends."""
        self._database.hurry()

    def close(self) -> None:
        """Close every connection to the file."""
        if self.meaning is not None:
            self.meaning.close()
        self._database.close()
        self._mark.close()

    def transaction(self) -> AbstractContextManager[Any]:
        """Make the writes of a `with` block one: all of them are on disk when it ends, or none."""
        return self._database.transaction()

    def check(self) -> list[str]:
        """What is wrong with the file or its indexes, a line each; empty when all is well."""
        return upkeep.check(self._database, self._mark)

    def check_index(self) -> list[str]:
        """The lines of `check` about the search indexes, without reading each page of the file first."""
        return upkeep.check_index(self._database)

    def lost(self) -> list[str]:
        """The line of `check` that says that acknowledged messages are not in the file, if that is so."""
        return upkeep.behind(self._database, self.path, self._mark)

    def rebuild_index(self, progress: Callable[[int], None] | None = None) -> int:
        """Make the search indexes anew from the rows; returns how many messages were indexed.

        Others may write meanwhile; until the end a search finds less. `progress` is told the count so far.
        """
        return upkeep.rebuild(self._database, progress)

    def rebuild_vectors(self, progress: Callable[[int, int], None] = lambda *_: None) -> int:
        """Make all vectors anew; returns for how many messages, 0 without search by meaning.

        `progress` is told how many were made so far, and of how many: what a tool answered gets none.
        """
        if self.meaning is None:
            return 0
        self.meaning.forget()
        total = self.meaning.missing()
        return self.meaning.build(lambda done: progress(done, total))

    def vacuum(self, *, dry_run: bool = False) -> upkeep.Vacuumed:
        """Give the space of deleted rows back; a `dry_run` only says how much there is."""
        return upkeep.vacuum(self._database, dry_run=dry_run)

    def backup(self, target: Path) -> None:
        """Copy the whole store to `target`, also while others write."""
        self._database.backup(target)

    def _stored(self, message_id: int) -> None:
        """What follows when a message was stored; where that is a part of a larger transaction, the mark lags behind."""
        if not self._database.connection.in_transaction:
            self._mark.raise_to(message_id)
        if self.meaning is not None:
            self.meaning.wake()

    def _warn_when_behind(self, connection: sqlite3.Connection) -> None:
        for line in upkeep.behind(connection, self.path, self._mark):
            log.warning("%s", line)
