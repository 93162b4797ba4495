"""Store of the notes: reading and changing both files, with limits, threat scan, journal, and answers for the model.

`MemoryStore.write` first checks the requested operations. Then it changes the journal and the file under the file's
lock. With a database that several machines share, the notes are rows of it instead of files; see `note_places`.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import random
import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from msgspec import Struct, structs

from hermes_core.config import load_config
from hermes_core.config.profile import ProfileField
from hermes_core.contract.values import (
    ORIGIN_NAMES,
    MemoryTarget,
    MemoryWrite,
    Origin,
    Refused,
    Session,
)
from hermes_core.curated.document import (
    PROMPT_LIMITS,
    FlaggedEntry,
    NotesSnapshot,
    NotesUsage,
    base_block,
    base_entries,
    entries_for_model,
    entries_of_prompt,
    entry_changes,
    entry_fault,
    entry_handle,
    flag_entries,
    flag_entry,
    is_incomplete,
    join_entries,
    measure,
    normalize_entry,
    parse_note_file,
    project_of_prompt,
    prompt_block,
    scanned_entries,
    split_threat,
    text_fault,
    unreadable_block,
)
from hermes_core.curated.edits import (
    Edit,
    NoteChange,
    Operation,
    Refusal,
    apply,
    find,
    in_batch,
    merge,
    names_entry,
    over_budget,
    preview,
    replacements,
    reverse,
)
from hermes_core.curated.journal import MAX_ID, NoteJournal, NoteVersion, OnWrite
from hermes_core.curated.note_places import note_places, remembered
from hermes_core.curated.origins import UNKNOWN, NoteOrigin, NoteOrigins, OriginTable, entry_hash
from hermes_core.curated.places import NoteFile, NotePlace, NotesChanged
from hermes_core.curated.profile import field_operation, profile_values, undeclared_values
from hermes_core.curated.project import Repository, earlier_keys, remember_key, with_notes_key
from hermes_core.errors import (
    ConfigError,
    LockTimeout,
    MemoryConflict,
    OutboxError,
    StorageError,
)
from hermes_core.home import HermesHome
from hermes_core.safety.origin import Reading, in_scope, lowest, may_command, origin_of_text
from hermes_core.safety.redact import redact, secrets_in
from hermes_core.safety.templates import without_turns
from hermes_core.safety.terminal import counted
from hermes_core.storage.chain import ChainReport
from hermes_core.storage.engine import Engine, RowConflict
from hermes_core.storage.files import LOCK_TIMEOUT
from hermes_core.storage.inventory import ORIGINS

if TYPE_CHECKING:
    from hermes_core.safety.scan import Scan, Threat

log = logging.getLogger(__name__)

TARGETS: tuple[MemoryTarget, ...] = ("memory", "user")

ENABLE_SETTING: Mapping[MemoryTarget, str] = {
    "memory": "memory.memory_enabled",
    "user": "memory.user_profile_enabled",
    "project": "memory.project",
}
LIMIT_SETTING: Mapping[MemoryTarget, str] = {
    "memory": "memory.memory_char_limit",
    "user": "memory.user_char_limit",
    "project": "memory.project_char_limit",
}

MAX_REFUSALS_PER_TURN = 3
"""Refusals in one turn of a session that tell the model how to correct the call. Later refusals tell it to stop."""

_MAX_COUNTED_SESSIONS = 1024

# Longest pause before a change is planned anew, so that writers of one note do not all come back at once.
_MAX_PAUSE_S = 0.02

Trust = Literal["open", "guarded", "strict"]
"""Values of `memory.trust`: all notes in the system prompt; only those of the person and their agent, the others as data;
or the others only after a person confirmed them."""

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")
Result = dict[str, Any]
FilterWrite = Callable[[MemoryWrite, Session], MemoryWrite | Refused]
Plan = Callable[[tuple[str, ...]], Edit | Refusal]
"""Function that gets the entries on disk, and returns the edited entries or a refusal."""

_UNCHANGED = {
    "add": "Entry already exists (no duplicate added).",
    "replace": "Entry already says this (nothing changed).",
    "batch": "All operations were done already (nothing changed).",
    "undo": "The entries are as they were before that change (nothing changed).",
    "restore": "The entries are as they were after that change (nothing changed).",
}
_NOTHING = "Nothing to change."
_CHANGED = {
    "add": "Entry added.",
    "replace": "Entry replaced.",
    "remove": "Entry removed.",
    "batch": "Applied {operations}.",
    "undo": "Undone: {changes} taken back.",
    "restore": "Restored: {changes} made.",
    "reset": "Removed {entries}; undo brings back what went.",
}
_SAVED = "Write saved. This update is complete — do not repeat it."
_WAITS = (
    "Write saved. This update is complete — do not repeat it. Its text comes from {origin}, so it is recalled as data "
    "and stands in no system prompt until the person confirms it: hermes-memory review."
)
_HANDED_ON = "The memory provider keeps this; the local file is unchanged. Do not repeat it."


class DataNote(Struct, frozen=True):
    """Note that is no part of the system prompt, because of its origin or because the scan flagged it.

    `flag` is the reason of the scan, or "". `waits` is True if a person can confirm the note.
    """

    target: MemoryTarget
    entry: str
    origin: NoteOrigin
    flag: str = ""

    @property
    def waits(self) -> bool:
        """True if the origin keeps the note out of the system prompt."""
        return not may_command(self.origin.origin)


def _require_files(home: HermesHome) -> None:
    """Raise `ConfigError` if the notes of a home are rows on a server."""
    if load_config(home, os.environ).storage.url:
        raise ConfigError(
            f"the notes of {str(home.path)!r} are on the server of storage.url, not in files",
            "open them with hermes_core.open_notes(home) in place of MemoryStore(home)",
        )


def _read_once(
    method: Callable[Concatenate[MemoryStore, Arguments], Value],
) -> Callable[Concatenate[MemoryStore, Arguments], Value]:
    """Return a method of the store that reads notes on a server at most once; see `MemoryStore.reading`."""

    @wraps(method)
    def reading(store: MemoryStore, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        with store.reading():
            return method(store, *args, **kwargs)

    return reading


class MemoryStore:
    """The notes of one home: MEMORY.md and USER.md. Safe to share between threads, processes, and machines with a database.

    Every call reads the file again under its lock, or the row anew. A method that changes the notes returns the dict that the
    `memory` tool returns: `success`, and either `message` and `usage`, or `error` and a remedy. If a file can't be
    locked or written, the method raises `StorageError` and nothing was changed.

    Args:
        memory_char_limit: Largest number of characters in MEMORY.md.
        user_char_limit: Largest number of characters in USER.md.
        scan: Threat scan of entries; default: `safety.scan.first_threat` without the texts that a person allowed.
        filter_write: Called before each write. It may return a changed write or a refusal.
        suppresses: Returns True for a target whose entries only the provider keeps, so that the file is not changed.
        on_write: Called with every accepted write, in order and under the file's lock. If it raises `OutboxError` or
            `StorageError`, the file stays changed and the result holds a warning.
        provider: Returns the name of the provider for which writes are stored now.
        per_user: True to give each user who is not the person at home both files of their own, see `of`.
        shared_base: File of notes, or folder with a MEMORY.md, that every prompt begins with and no write changes.
        trust: Where notes of low origin stand, see `Trust`.
        project: The repository of the working folder, whose PROJECT.md the person at home has; None for none.
        project_char_limit: Largest number of characters in PROJECT.md.
        accepted_origins: Low origins whose notes a person always accepts.
        profile_fields: Typed fields at the beginning of USER.md.
        lock_timeout: Seconds to wait for the file's lock, or to plan a change of a row anew that others keep changing.
        database: Database that several machines share. The notes, their origins and their history are rows of it then,
            and no file is read but the shared base. The caller closes it. None for the files of the home.
        in_files: True if the caller knows that the notes are in files. Otherwise a home whose config.yaml names a server
            is refused without a `database`: its files are no notes, or old ones.
        mirror: True to write a read-only copy of each row into the folder of the notes.

    Raises:
        ConfigError: A limit is below 1, or the notes of the home are on a server and there is no `database`.
    """

    def __init__(
        self,
        home: HermesHome,
        *,
        memory_char_limit: int = 2200,
        user_char_limit: int = 1375,
        memory_enabled: bool = True,
        user_profile_enabled: bool = True,
        scan: Scan | None = None,
        filter_write: FilterWrite | None = None,
        suppresses: Callable[[str], bool] | None = None,
        on_write: OnWrite | None = None,
        provider: Callable[[], str] = str,
        per_user: bool = True,
        shared_base: Path | None = None,
        trust: Trust = "guarded",
        accepted_origins: Collection[str] = (),
        profile_fields: Sequence[ProfileField] = (),
        project: Repository | None = None,
        project_char_limit: int = 2200,
        lock_timeout: float = LOCK_TIMEOUT,
        clock: Callable[[], float] = time.time,
        database: Engine | None = None,
        in_files: bool = False,
        mirror: bool = False,
    ) -> None:
        if database is None and not in_files:
            _require_files(home)
        self._home = home
        self._places = note_places(home, database, mirror=mirror, lock_timeout=lock_timeout, clock=clock)
        self._per_user = per_user
        self._base = shared_base
        self._owner, self.folder = "", home.memories
        # Their files and settings stay the same, so that the turns of one user share a store.
        self._of_owners: OrderedDict[str, MemoryStore] = OrderedDict()
        self._trust: Trust = trust
        self._accepted_origins = frozenset(accepted_origins)
        self.profile_fields = tuple(profile_fields)
        self._clock, self._lock_timeout = clock, lock_timeout
        self._limits: dict[MemoryTarget, int] = {"memory": memory_char_limit, "user": user_char_limit}
        for target, limit in self._limits.items():
            if limit < 1:
                raise ConfigError(
                    f"{LIMIT_SETTING[target]} is {limit!r}", "give a number of characters above 0"
                )
        self._limits["project"] = project_char_limit
        enabled: dict[MemoryTarget, bool] = {"memory": memory_enabled, "user": user_profile_enabled}
        self.enabled_targets = tuple(target for target in TARGETS if enabled[target])
        self.project = None if project is None else with_notes_key(project, self._places.project_keys)
        self._files = self._places.of_owner("")
        if self.project is not None:
            self._files["project"] = self._places.of_project(self.project.key)
            self.enabled_targets += ("project",)
        # Writes without a session, such as those of the command line, belong to the person at home.
        self._local = Session("local", home=str(home.path), identity=home.profile)
        self._scan = scan or partial(_scan, home)
        self._allows: Callable[[str], bool] = partial(_allows, home) if scan is None else lambda _: False
        self._scan_low = None if scan else partial(_scan, home, untrusted=True)
        self._filter_write = filter_write
        self._suppresses = suppresses
        self._journal = NoteJournal(
            self._places.journal,
            clock,
            lock_timeout=lock_timeout,
            on_write=on_write,
            provider=provider,
        )
        self.origins = self._places.origins(home.memories)
        self._refusals = RefusalCounter()
        self._snapshot = NotesSnapshot()

    def of(self, session: Session | None) -> MemoryStore:
        """Return the store for the owner of `session`. With `per_user`, both files are this owner's own."""
        owner = session.owner if session is not None and self._per_user else ""
        if not owner:
            return self
        if (own := self._of_owners.get(owner)) is not None:
            return own
        # A shallow copy: settings, journal and refusals are shared, only the files and the snapshot are the user's own.
        own = copy.copy(self)
        own._files = self._places.of_owner(owner)
        own._owner, own.project, own.folder = owner, None, self._home.folder_of(owner)
        own.enabled_targets = tuple(target for target in self.enabled_targets if target in TARGETS)
        own.origins = self._places.origins(own.folder)
        own._snapshot = NotesSnapshot()
        return remembered(self._of_owners, owner, own)

    def of_repository(self, key: str) -> MemoryStore:
        """Return the store of the person at home whose PROJECT.md is that of a repository, by its `Repository.key`."""
        own = copy.copy(self)
        own._files = {**self._files, "project": self._places.of_project(key)}
        own.enabled_targets = (*(name for name in self.enabled_targets if name != "project"), "project")
        return own

    def repositories(self) -> list[str]:
        """Return the `Repository.key` of each repository on which there are notes.

        Raises:
            StorageError: The database can't be read.
        """
        return [place.path.parent.name for place in self._places.of_projects()]

    def earlier_project_notes(self) -> list[NotePlace]:
        """Return the notes on the repository that are in no prompt, since its new address had notes already.

        Raises:
            StorageError: The database can't be read.
        """
        if self.project is None:
            return []
        known = self._places.project_keys.read(self.project)
        places = [self._places.of_project(key) for key in earlier_keys(self.project, known)]
        return [place for place in places if place.read()]

    def _remember_project(self, file: str) -> None:
        """Store under which key the notes on the repository are, before a change of the notes in `file`.

        Raises:
            StorageError: Another machine keeps them under another key, which was not known when this program began.
        """
        if self.project is None or file != self._places.of_project(self.project.key).key:
            return  # the notes on another repository
        keys = self._places.project_keys
        if keys.is_shared and with_notes_key(self.project, keys).key != self.project.key:
            raise StorageError(
                f"nothing was saved: another machine keeps the notes on {self.project.name!r} under an earlier address",
                "start this program again",
            )
        remember_key(self.project, keys)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager within which notes on a server are read at most once. Files are read each time."""
        return self._places.reading(self._files.values(), self.folder)

    @property
    def targets(self) -> tuple[MemoryTarget, ...]:
        """The files of this store, also those that are switched off."""
        return tuple(self._files)

    # ---------------------------------------------------------------- reading

    def load_from_disk(self) -> NotesSnapshot:
        """Read both files and keep their blocks for `format_for_system_prompt`, until this method is called again."""
        self._snapshot = self.take_snapshot()
        return self._snapshot

    @_read_once
    def take_snapshot(self) -> NotesSnapshot:
        """Read both files and return their blocks for the system prompt.

        Notes of low origin are left out; `data_notes` returns them. A file that can't be read or is not UTF-8 text has no
        block, and notes on a server that can't be reached have a line that says so; `problems` reports both.
        """
        blocks = {}
        table = self.origins.read()
        for target in self.enabled_targets:
            try:
                entries = self.in_order(target)
                may_stand = [entry for entry in entries if self._may_command(table.of(entry))]
                text = prompt_block(
                    target,
                    may_stand,
                    self._limits[target],
                    self._scan,
                    allows=self._allows,
                    used=measure(entries),
                    project=self.project.key if target == "project" and self.project else "",
                )
            except MemoryConflict as exc:
                log.warning("notes are left out of the prompt: %s", exc)
                if self._files[target].in_database:
                    blocks[target] = unreadable_block(target)
                continue
            if text:
                blocks[target] = text
        return NotesSnapshot(blocks, base_block(self.shared_entries()))

    def format_for_system_prompt(self, target: MemoryTarget) -> str | None:
        """Return the block of this target that the last `load_from_disk` kept; None if there is none.

        Later writes don't change the block.
        """
        return self._snapshot.blocks.get(target)

    def entries(self, target: MemoryTarget) -> tuple[str, ...]:
        """Return all entries on disk, including flagged ones.

        Raises:
            MemoryConflict: The file can't be read or is not UTF-8 text.
        """
        file = self._files[target]
        notes = parse_note_file(file.read())
        if notes.conflict:
            raise file.unreadable(notes.conflict, "save it as UTF-8 text, or move it away")
        return notes.entries

    def all_entries(self) -> list[str]:
        """Return the entries of all readable files whose origins this store keeps, also of other repositories."""
        projects = [] if self._owner else self._places.of_projects()
        files = {file.key: file for file in (*projects, *self._files.values())}
        entries: list[str] = []
        for file in files.values():
            with contextlib.suppress(MemoryConflict):
                entries += parse_note_file(file.read()).entries
        return entries

    @property
    def store_files(self) -> list[Path]:
        """The files that a write of this store changes, without the database of a server."""
        files = [file.path for file in self._files.values() if not file.in_database]
        return [*files, self._home.journal_db, self.origins.path] if files else []

    def owners(self) -> list[str]:
        """Return the `Session.owner` of each user who has notes or skills of their own.

        Raises:
            StorageError: The database can't be read.
        """
        return self._places.owners()

    def usage(self, target: MemoryTarget) -> NotesUsage:
        """Return the number of characters on disk and the limit.

        Raises:
            MemoryConflict: The file can't be read or is not UTF-8 text.
        """
        return NotesUsage(measure(self.entries(target)), self._limits[target])

    @_read_once
    def shown_entries(self) -> list[str]:
        """Return the entries of the shared base and of both files that the system prompt of a new session shows."""
        shown = self.shared_entries()
        for target in self.enabled_targets:
            with contextlib.suppress(MemoryConflict):
                shown += [
                    entry
                    for entry, origin, flag in self._scanned(target)
                    if self._may_command(origin) and not flag
                ]
        return shown

    @_read_once
    def data_notes(self) -> list[DataNote]:
        """Return the notes that stand in no system prompt because of their origin, or because the scan flagged them.

        Entries that are too large, or that imitate a block of the prompt, are no data either: no model sees them.
        """
        notes: list[DataNote] = []
        for target in self.enabled_targets:
            with contextlib.suppress(MemoryConflict):
                for entry, origin, flag in self._scanned(target):
                    if flag is not None and flag.id in ("too_large", "forged_frame"):
                        continue
                    if flag or not self._may_command(origin):
                        notes.append(DataNote(target, entry, origin, flag.reason if flag else ""))
        return notes

    @_read_once
    def waiting_notes(self) -> list[DataNote]:
        """Return the notes whose origin keeps them out of the system prompt until a person confirms them.

        Unlike `data_notes`, this scans nothing.
        """
        notes: list[DataNote] = []
        table = self.origins.read()
        for target in self.enabled_targets:
            with contextlib.suppress(MemoryConflict):
                for entry in self.entries(target):
                    if not self._may_command(origin := table.of(entry)):
                        notes.append(DataNote(target, entry, origin))
        return notes

    def lower(self, session: Session, since: float, reading: Reading) -> None:
        """Lower the origin of notes that a model wrote in a session, now that more of what it had read is known.

        Args:
            since: Time in epoch seconds; only notes written since then are lowered.
            reading: What the model had read.
        """
        table, lowered = self.origins.read(), dict[str, Origin]()
        for target in self.enabled_targets:
            with contextlib.suppress(MemoryConflict):
                for entry in self.entries(target):
                    known = table.of(entry)
                    if known.origin == "assistant" and known.session == session.id and known.at >= since:
                        lowered[entry] = origin_of_text(entry, reading)
        if lowered:
            self.origins.record(lowered, session.id)

    @_read_once
    def stored_origins(self) -> list[Origin]:
        """Return the origins of all entries on disk."""
        table, origins = self.origins.read(), list[Origin]()
        for target in self.enabled_targets:
            with contextlib.suppress(MemoryConflict):
                origins += [table.of(entry).origin for entry in self.entries(target)]
        return origins

    def recalled_notes(self) -> list[DataNote]:
        """Return the notes that the model gets as data: none under the trust "strict"."""
        return [] if self._trust == "strict" else self.data_notes()

    @_read_once
    def changes_since(self, prompt: str) -> tuple[list[str], list[str]]:
        """Return the entries that a stored prompt does not show although a new one would, and those that are gone.

        Both are empty while notes on a server can't be read.
        """
        if self._is_on_server and self.problems():
            return [], []
        return entry_changes(prompt, without_turns(self.take_snapshot().render()))

    @_read_once
    def outdated_origin(self, prompt: str) -> Origin | None:
        """Return the lowest origin of the notes in a stored prompt that may not stand in one any more; None for none.

        The origin of a note may be lowered after a session began, and a person may change `memory.trust`.
        """
        shown, base = entries_of_prompt(prompt)
        origins = list[str]()
        table = self.origins.read() if shown else OriginTable()
        # A server that can't be reached says nothing new of notes that were allowed when the prompt was built.
        if shown and not (table.fault and self._is_on_server):
            known = [table.of(entry) for entry in shown]
            # The prompt breaks tokens of chat templates, so that the hash of such an entry is another one.
            known += [note.origin for note in self.waiting_notes() if without_turns(note.entry) in shown]
            origins += [origin.origin for origin in known if not self._may_command(origin)]
        table = self._base_origins() if base else OriginTable()
        origins += [origin for entry in base if not may_command(origin := table.of(entry).origin)]
        return lowest(origins) if origins else None

    def is_of_another_project(self, prompt: str) -> bool:
        """Return True if the notes on another repository than that of the working folder stand in a stored prompt."""
        key = project_of_prompt(prompt)
        return bool(key) and (self.project is None or self.project.key != key)

    def is_renewable(self, prompt: str) -> bool:
        """Return True if notes on a server could not be read when a stored prompt was built, and can be read now."""
        return is_incomplete(prompt) and not self.problems()

    @property
    def _is_on_server(self) -> bool:
        return any(file.in_database for file in self._files.values())

    def _may_command(self, origin: NoteOrigin) -> bool:
        # A note whose origin was lost may come from anywhere, also if imports are accepted.
        accepted = (
            origin.origin in self._accepted_origins and structs.replace(origin, pinned=False) != UNKNOWN
        )
        return self._trust == "open" or may_command(origin.origin) or accepted

    @_read_once
    def flagged(self, target: MemoryTarget | None = None) -> list[FlaggedEntry]:
        """Return the entries that no model may see. Files that can't be used at all are reported by `problems`.

        Entries far beyond the limit of the file, which no model sees either, are not scanned.
        """
        flagged: list[FlaggedEntry] = []
        for name in (target,) if target else self.enabled_targets:
            with contextlib.suppress(MemoryConflict):
                flagged += filter(None, (flag for _, _, flag in self._scanned(name)))
        return flagged

    def flagged_among(self, target: MemoryTarget, entries: Sequence[str]) -> dict[str, FlaggedEntry]:
        """Return those of some neighbouring entries of a file that no model may see, by their text."""
        return {entry: flag for entry, _, flag in self._scanned(target, entries) if flag}

    def shared_entries(self) -> list[str]:
        """Return the entries of the shared base that a model may see."""
        return base_entries(self._read_base()[0], self._limits["memory"], self._scan, self._allows)

    def base_problems(self) -> list[str]:
        """Return a sentence for each part of the shared base that no model sees."""
        if self._base is None:
            return []
        entries, fault = self._read_base()
        where, limit = f"the shared base {str(self._base)!r}", self._limits["memory"]
        if fault:
            return [
                f"{where} is in no prompt: {fault}; correct memory.shared_base in config.yaml, or the file"
            ]
        flagged = flag_entries("memory", scanned_entries(entries, limit), limit, self._scan, self._allows)
        problems = [
            f"an entry of {where} is in no prompt: {one.reason}; edit the file" for one in flagged if one
        ]
        if len(self.shared_entries()) + len(problems) < len(entries):
            more = f"{limit * PROMPT_LIMITS:,} characters"
            problems.append(f"{where} is longer than {more}, and the rest is in no prompt; shorten the file")
        return problems

    def _read_base(self) -> tuple[tuple[str, ...], str]:
        """Return the entries of the shared base, or why it can't be read."""
        if self._base is None:
            return (), ""
        file = NoteFile(self._base_path(self._base))
        if file.path == self._files["memory"].path:  # their owner sees the notes once, and writes them
            return (), ""
        if not self._base.exists():
            return (), "nothing is there"
        try:
            notes = parse_note_file(file.read())
        except MemoryConflict as exc:
            return (), exc.message
        table = self._base_origins()
        entries = tuple(entry for entry in notes.entries if may_command(table.of(entry).origin))
        return entries, notes.conflict

    def _base_path(self, base: Path) -> Path:
        return base / "MEMORY.md" if base.is_dir() else base

    def _base_origins(self) -> OriginTable:
        """Return the origins of the shared base: the notes of another home bring theirs."""
        if self._base is None:
            return OriginTable()
        return NoteOrigins(self._base_path(self._base).with_name(ORIGINS)).read()

    @_read_once
    def problems(self) -> dict[MemoryTarget, MemoryConflict]:
        """Return the error of each file of the notes that can't be used now, by its target."""
        conflicts = {}
        for target in self.enabled_targets:
            try:
                self.entries(target)
            except MemoryConflict as exc:
                conflicts[target] = exc
        return conflicts

    # ---------------------------------------------------------------- writing

    def confirm(self, entries: Sequence[str]) -> None:
        """Store that a person read exactly these texts and lets them stand in the system prompt.

        No tool of a model may call this.
        """
        for entry in entries:  # before it counts: no confirmation is without an event
            self.record("confirm", entry_hash(entry))
        self.origins.confirm(entries)

    def pin(self, target: MemoryTarget, old_text: str, *, on: bool = True) -> Result:
        """Let only a person change or remove the entry that `old_text` identifies, or take that back.

        A pinned entry stands first in the system prompt. No tool of a model may call this.

        Args:
            old_text: A fragment, the whole text or the handle of exactly one entry.
            on: False to unpin the entry.
        """
        if off := self._off(target):
            return self.refuse(off, target, self._local)
        # Under the lock of the file: a model that changes it now has not seen the pin.
        with self._journal.opened(target, self._files[target], self._local) as opened:
            place = find(opened.entries, old_text)
            if not isinstance(place, Refusal):
                entry = opened.entries[place]
                if self.origins.read().of(entry).pinned != on:
                    self.record("pin" if on else "unpin", entry_hash(entry))
                    self.origins.pin(entry, on=on)
        if isinstance(place, Refusal):
            return self.refuse(place, target, self._local)
        message = "Entry pinned: only you can change or remove it." if on else "Entry no longer pinned."
        return {"success": True, "done": True, "target": target, "message": message, "entry": entry}

    @_read_once
    def in_order(self, target: MemoryTarget) -> list[str]:
        """Return all entries on disk, the profile first and then pinned ones.

        Raises:
            MemoryConflict: The file can't be read or is not UTF-8 text.
        """
        table, entries = self.origins.read(), self.entries(target)
        start = 1 if target == "user" and profile_values(entries, self.profile_fields) else 0
        rest = sorted(entries[start:], key=lambda entry: not table.of(entry).pinned)
        return [*entries[:start], *rest]

    def record(self, kind: str, text_hash: str, **details: Any) -> None:
        """Record a decision of a person about the text with this hash: confirm, reject or allow.

        Raises:
            StorageError: The journal can't be written.
        """
        self._journal.record(kind, text_hash, **details)

    def add(self, target: MemoryTarget, content: str, *, session: Session | None = None) -> Result:
        """Append an entry. If the file already has this entry, succeed without a change."""
        return self.write(target, [Operation("add", content)], session)

    def replace(
        self, target: MemoryTarget, old_text: str, content: str, *, session: Session | None = None
    ) -> Result:
        """Replace the entry that `old_text` identifies by `content`.

        Args:
            old_text: A fragment, the whole text or the handle of exactly one entry.
        """
        return self.write(target, [Operation("replace", content, old_text)], session)

    def remove(self, target: MemoryTarget, old_text: str, *, session: Session | None = None) -> Result:
        """Remove the entry that `old_text` identifies.

        Args:
            old_text: A fragment, the whole text or the handle of exactly one entry.
        """
        return self.write(target, [Operation("remove", "", old_text)], session)

    def profile(self) -> dict[str, str]:
        """Return the values of the typed fields in USER.md, by name.

        Raises:
            MemoryConflict: The file can't be read or is not UTF-8 text.
        """
        return profile_values(self.entries("user"), self.profile_fields)

    def undeclared_profile(self) -> dict[str, str]:
        """Return the values between the typed fields of USER.md whose field is not declared any more, by name.

        Raises:
            MemoryConflict: The file can't be read or is not UTF-8 text.
        """
        return undeclared_values(self.entries("user"), self.profile_fields)

    def set_profile(
        self, values: Mapping[str, Any], *, session: Session | None = None, reading: Reading | None = None
    ) -> Result:
        """Set typed fields of USER.md, all or none.

        Args:
            values: The new values by the names of fields; None deletes a value.
        """
        # Two calls at once, as models make them, would both begin a profile, or replace the same entry.
        return self._until_unchanged(lambda: self._set_profile(values, session, reading))

    def _set_profile(
        self, values: Mapping[str, Any], session: Session | None, reading: Reading | None
    ) -> Result:
        entries = self.entries("user")
        operation = field_operation(entries, values, self.profile_fields)
        if isinstance(operation, Refusal):
            return self.refuse(operation, "user", session)
        if operation is None:
            return {
                "success": True,
                "done": True,
                "target": "user",
                "message": "The fields have these values already.",
            }
        origin = self.origins.read().of(entries[0]).origin if operation.action == "replace" else "person"
        if reading is not None or self._may_command(NoteOrigin(origin, 1.0)):
            return self.write("user", [operation], session, reading=reading, expected=entries)
        # The person set one field, and has not confirmed the others, which stand in the same entry.
        result = self.write("user", [operation], session, reading=Reading(origin), expected=entries)
        if result.get("success"):
            result["notice"] = (
                f"The other fields come from {ORIGIN_NAMES[origin]}, so they wait: hermes-memory review."
            )
        return result

    def apply_batch(
        self, target: MemoryTarget, operations: Sequence[Operation], *, session: Session | None = None
    ) -> Result:
        """Apply all operations, or none if one is refused. The limit applies to the final entries only."""
        return self.write(target, operations, session, batch=True)

    def reset(
        self, target: MemoryTarget, *, session: Session | None = None, reading: Reading | None = None
    ) -> Result:
        """Remove all entries of a file. `undo` can restore them.

        Args:
            reading: What the model that calls this has read; None if a person calls it.
        """

        def plan(entries: tuple[str, ...]) -> Edit:
            return Edit((), tuple(NoteChange(0, "remove", "", entry) for entry in entries))

        return self._restore(target, "reset", plan, session, reading=reading)

    def undo(
        self, change: int | None = None, *, target: MemoryTarget | None = None, session: Session | None = None
    ) -> Result:
        """Undo the change with this id; default: the newest change.

        An undo is a change too, and can be undone by its id.

        Later changes of other entries stay. The limit does not apply, so that a removed entry can always be
        restored.
        """
        # If a process died after it replaced the file, its change is completed first, so that it can be undone.
        self._settle(target)
        if change is None:
            self._adopt_loss(target, session)
        for version in self._journal.versions(self._keys(target)):
            newest = change is None and version.action != "undo" and not version.undone
            if (newest or version.id == change) and (version.added or version.removed):
                break
        else:
            which = "There is no change" if change is None else f"There is no change {change}"
            return {"success": False, "error": f"{which} to undo; hermes-memory memory history lists them."}
        if version.undone:
            return {"success": False, "error": f"Change {version.id} is undone already."}

        def plan(entries: tuple[str, ...]) -> Edit | Refusal:
            return reverse(entries, version.before, version.after)

        return self._restore(version.target, "undo", plan, session, version.id)

    def restore(self, change: int, *, session: Session | None = None) -> Result:
        """Bring back all entries of a file as they were right after the change with this id.

        The restored version is a change too, and can be undone.
        """
        version = self.version(change)
        if version is None:
            return {
                "success": False,
                "error": f"There is no change {change}; hermes-memory memory history lists them.",
            }

        def plan(entries: tuple[str, ...]) -> Edit | Refusal:
            edit = reverse(entries, version.after, entries)
            return Edit(version.after, edit.changes) if isinstance(edit, Edit) and edit.changes else edit

        return self._restore(version.target, "restore", plan, session)

    def edit(
        self,
        target: MemoryTarget,
        text: str,
        base: Sequence[str],
        *,
        session: Session | None = None,
        action: Literal["edit", "import"] = "edit",
    ) -> Result:
        """Make the notes what a person wrote, as if the person had edited the file. No limit and no scan applies.

        What others changed since the person began stays, entry by entry. If they changed the same entry, nothing is
        changed, and the result says so with `conflict`.

        Args:
            text: The whole text as the person wrote it.
            base: The entries that the person began with.
            action: The action of the change in the history.
        """
        who = session or self._local
        if off := self._off(target):
            return self.refuse(off, None, who)
        written = parse_note_file(text.encode("utf-8", "surrogatepass"))
        if written.conflict:
            return {"success": False, "error": f"Nothing was changed: {written.conflict}."}
        try:
            return self._until_unchanged(
                lambda: self._edit_once(target, written.entries, tuple(base), who, action)
            )
        except MemoryConflict as exc:
            return self.refuse(Refusal(exc.message, remedy=exc.remedy, backup=exc.backup), target, who)

    def _edit_once(
        self,
        target: MemoryTarget,
        mine: tuple[str, ...],
        base: tuple[str, ...],
        session: Session,
        action: Literal["edit", "import"],
    ) -> Result:
        with self._journal.opened(target, self._files[target], session) as opened:
            notice = {"notice": opened.notice} if opened.notice else {}
            after = merge(base, mine, opened.entries)
            if after is None:
                error = "Nothing was changed: the same entry was changed by another program meanwhile."
                return {"success": False, "conflict": True, "error": error} | notice
            added, removed = (
                Counter(after) - Counter(opened.entries),
                Counter(opened.entries) - Counter(after),
            )
            result: Result = {
                "success": True,
                "target": target,
                "usage": str(NotesUsage(measure(after), self._limits[target])),
                "entry_count": len(after),
                "message": f"Edited: {added.total()} added, {removed.total()} removed."
                if after != opened.entries
                else _NOTHING,
            }
            if after != opened.entries:
                table = self.origins.read()
                for before, now in replacements(opened.entries, after):
                    if table.of(before).pinned:
                        self.origins.pin(now)
                if warning := self._journal.write(opened, action, after, ()):
                    result["warning"] = redact(warning)
        gone = Edit(after, tuple(NoteChange(0, "remove", "", entry) for entry in removed))
        return result | _caution(gone) | notice

    def verify(self) -> ChainReport | None:
        """Check the record of all changes of the notes, also of other users; None if there is no journal yet.

        Raises:
            StorageError: The journal can't be read.
        """
        return self._journal.verify() if self._journal.exists else None

    def writers(self) -> set[str]:
        """Return the `Session.owner` of everybody who had a note written, as far as the history goes."""
        return self._journal.writers() if self._journal.exists else set()

    def accept_history(self) -> None:
        """Record that a person accepts the history as it is, after `verify` had reported faults."""
        self._journal.accept()

    def history(
        self, target: MemoryTarget | None = None, limit: int = 50, *, before: int | None = None
    ) -> list[NoteVersion]:
        """Return at most `limit` changes of the notes, newest first.

        Changes of a process that died after it replaced the file are included.

        Args:
            before: Only changes before the one with this id; None for all.
        """
        self._settle(target)
        return list(islice(self._journal.versions(self._keys(target), before=before), limit))

    def version(self, change: int) -> NoteVersion | None:
        """Return the change with this id; None if the history of these notes does not have it."""
        newest = next(iter(self.history(limit=1, before=min(change, MAX_ID - 1) + 1)), None)
        return newest if newest is not None and newest.id == change else None

    def prune(self) -> int:
        """Delete the history and all backup copies of the notes. Return the number of deleted changes and copies.

        The deleted changes can't be undone any more. Changes whose writes are not in the outbox yet stay.
        """
        return sum(self._journal.prune(file) for file in self._files.values())

    def delete(self) -> None:
        """Delete the rows of the notes of a user from a server: texts, origins and history. Files are the caller's.

        Changes whose writes are not in the outbox yet stay. Call `prune` before.
        """
        if self._owner:
            self._places.delete(self._files.values(), self._home.folder_of(self._owner))

    def enqueue_missing(self) -> int:
        """Find the writes that a crash or a full outbox kept out of the outbox, and pass them to `on_write`.

        Return the number of changes to which these writes belong.

        Call this once when the program starts. The writes keep their ids, so that the outbox stores none of them
        twice.
        """
        self._settle(None)  # completes changes of a process that died, so that their writes are enqueued too
        return self._journal.enqueue_missing()

    def start_turn(self, session: Session | None = None) -> None:
        """Set the number of refusals of this session to 0."""
        self._refusals.reset(session or self._local)

    def refuse(self, refusal: Refusal, target: MemoryTarget | None, session: Session | None = None) -> Result:
        """Return the result for a refused call.

        After too many refusals in one turn, the result tells the model to stop.
        """
        if stop := self._refusals.add(session or self._local, refusal.reason):
            return {"success": False, "done": True, "error": redact(stop)}
        result: Result = {"success": False, "error": redact(refusal.reason)}
        if target and refusal.matches:
            result["matches"] = [self._shown(target, entry, preview) for entry in refusal.matches]
        if target and refusal.show_entries:
            with contextlib.suppress(MemoryConflict):
                entries = self.entries(target)
                result["current_entries"] = entries_for_model(
                    target, entries, self._limits[target], self._scan, withheld=True
                )
                result["usage"] = f"{measure(entries):,}/{self._limits[target]:,}"
        if refusal.backup:
            result["drift_backup"] = refusal.backup
        if refusal.remedy:
            result["remediation"] = redact(refusal.remedy)
        if refusal.for_person:
            result["for_person"] = redact(refusal.for_person)
        return result

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def journal_key(self, target: MemoryTarget) -> str:
        """Return the key under which the journal stores changes of this target's file.

        The file of each user has its own key.
        """
        return self._files[target].key

    # ---------------------------------------------------- steps of a write

    def write(
        self,
        target: MemoryTarget,
        operations: Sequence[Operation],
        session: Session | None = None,
        *,
        batch: bool = False,
        reading: Reading | None = None,
        expected: tuple[str, ...] | None = None,
    ) -> Result:
        """Apply all operations, or none if one is refused, and return the result.

        Args:
            batch: True to word the result for several operations.
            reading: What the model that calls this has read; None if a person writes.
            expected: The entries for which the operations were made; None for any.

        Raises:
            NotesChanged: The entries are not `expected` any more.
        """
        who = session or self._local
        if off := self._off(target):
            return self.refuse(off, None, who)
        # Called for each write, because the provider may have been loaded or shut down since the last one.
        suppressed = self._suppresses is not None and self._suppresses(target)
        limit = None if suppressed else self._limits[target]
        writes: list[MemoryWrite] = []
        for index, operation in enumerate(operations):
            write = self._vet(target, operation, who, limit, reading)
            if isinstance(write, Refusal):
                return self.refuse(in_batch(write, index, operation) if batch else write, target, who)
            writes.append(write)
        if not writes:
            return self.refuse(Refusal("operations list is empty."), target, who)
        if limit is None:  # only the provider keeps this target
            return self._enqueue_suppressed(target, writes, who, reading)

        requests = [
            Operation(write.action, write.content, write.old_text, operation.after)
            for write, operation in zip(writes, operations, strict=True)
        ]

        def plan(entries: tuple[str, ...]) -> Edit | Refusal:
            if expected is not None and entries != expected:
                raise NotesChanged(f"the notes in {target!r} were changed just now", "try again")
            edit = apply(entries, requests, batch=batch)
            if isinstance(edit, Refusal) or not edit.changes:
                return edit
            for entry in entries:
                if len(entry) > limit and entry in edit.entries:
                    return self._too_large(target, entry)
            for change in edit.changes:
                # A person added to this entry by hand. A fragment of it does not show that the caller has seen that.
                if len(change.previous) > limit and not names_entry(
                    writes[change.operation].old_text, change.previous
                ):
                    return self._too_large(target, change.previous)
            return self._split_threat(edit) or over_budget(entries, edit, writes, limit, batch=batch) or edit

        action = "batch" if batch else operations[0].action
        once = expected is not None  # the caller plans anew
        return self._commit(target, action, plan, who, writes=writes, reading=reading, once=once)

    def _origins_of(
        self, contents: Sequence[str], sources: Sequence[str], session: Session, reading: Reading | None
    ) -> dict[str, Origin]:
        """Return the origin of each of these new entries.

        Args:
            sources: The entries that the call replaces or merges.
        """
        own = session.owner == self._owner
        if reading is None:
            person: Origin = "owner" if session.is_owner else "person"
            return dict.fromkeys(contents, person if own else "user")
        table = self.origins.read()
        lower = [table.of(entry).origin for entry in sources]
        if not own:  # notes that several users share
            return dict.fromkeys(contents, lowest([reading.origin, "user", *lower]))
        inside = Reading(in_scope(reading.origin, self._owner), reading.said)
        return {content: origin_of_text(content, inside, lower) for content in contents}

    def _restore(
        self,
        target: MemoryTarget,
        action: str,
        plan: Plan,
        session: Session | None,
        undoes: int | None = None,
        reading: Reading | None = None,
    ) -> Result:
        """Commit an undo or a reset. The scan and observers may refuse it; the limit does not apply."""
        who = session or self._local
        if off := self._off(target):
            return self.refuse(off, None, who)

        def scanned(entries: tuple[str, ...]) -> Edit | Refusal:
            edit = plan(entries)
            # The entry may have been written before the rule existed, or removed because of it.
            for change in edit.changes if isinstance(edit, Edit) else ():
                if threat := self._scan(change.content):
                    return Refusal(
                        f"Blocked: the entry {entry_handle(change.content)} matches threat pattern {threat.id!r}: "
                        f"{threat.message}. It stays in the history and is not brought back.",
                        remedy=f"write the plain fact as a new entry, or edit {self._files[target].name} by hand; "
                        f"{ALLOW_HINT}",
                    )
                if kinds := ", ".join(secrets_in(change.content)):
                    return Refusal(
                        f"The entry {entry_handle(change.content)} holds what looks like a secret ({kinds}) and is not "
                        "brought back.",
                        remedy="note only where the secret is; `hermes-memory memory prune` takes it out of the history",
                    )
            return edit

        return self._commit(target, action, scanned, who, undoes=undoes, reading=reading)

    def _vet(
        self,
        target: MemoryTarget,
        operation: Operation,
        session: Session,
        limit: int | None,
        reading: Reading | None,
    ) -> MemoryWrite | Refusal:
        """Check an operation and return it as a write with an id.

        Return a refusal if the text is not valid as an entry or is too long, if an observer refuses it, or if the
        scan finds a threat in it.
        """
        content, old_text = normalize_entry(operation.content), normalize_entry(operation.old_text)
        write = MemoryWrite(str(uuid.uuid4()), operation.action, target, content, old_text)
        if fault := _write_fault(write, limit):
            return Refusal(fault)
        if self._filter_write:
            filtered = self._filter_write(write, session)
            if isinstance(filtered, Refused):
                return Refusal(f"An observer refused this write: {filtered.reason}")
            try:
                # An observer may change only content and metadata. The journal stores both as JSON.
                json.dumps(dict(filtered.metadata))
                write = replace(write, content=normalize_entry(filtered.content), metadata=filtered.metadata)
            except (TypeError, ValueError, AttributeError):
                return Refusal("An observer changed this write, and now its content or metadata is no text.")
            if fault := _write_fault(write, limit):
                return Refusal(f"An observer changed this write, and now: {fault}")
        threat = self._scan(write.content) if write.content else None
        if threat is None and write.content and reading is not None and self._scan_low is not None:
            origin = self._origins_of([write.content], (), session, reading)[write.content]
            threat = None if may_command(origin) else self._scan_low(write.content)
        if threat:
            return Refusal(
                f"Blocked: content matches threat pattern {threat.id!r}: {threat.message}. Memory goes into every "
                "system prompt: write the plain fact, without instructions, secrets or hidden characters.",
                remedy=ALLOW_HINT,
            )
        if kinds := ", ".join(secrets_in(write.content)):
            return Refusal(
                f"Nothing was saved: this holds what looks like a secret ({kinds}), and {target.upper()}.md is plain text "
                "that goes into every system prompt.",
                remedy="keep it in .env with `hermes-memory keys set NAME`, and note only the name",
            )
        return write

    def _split_threat(self, edit: Edit) -> Refusal | None:
        """Return a refusal if a new entry is a threat together with its neighbours in the file."""
        for content in [change.content for change in edit.changes if change.content in edit.entries]:
            place = edit.entries.index(content)
            for at, side in ((place, "before"), (place + 1, "after")):
                entry = edit.entries[at] if at < len(edit.entries) else ""
                threat = split_threat(join_entries(edit.entries[:at]), entry, self._scan) if entry else None
                if threat and not self._allows(content):
                    return Refusal(
                        f"Blocked: together with the entry {side} it, content matches threat pattern {threat.id!r}: "
                        f"{threat.message}. A prompt shows both as one text: write the plain fact.",
                        remedy=ALLOW_HINT,
                    )
        return None

    def _commit(
        self,
        target: MemoryTarget,
        action: str,
        plan: Plan,
        session: Session,
        *,
        writes: Sequence[MemoryWrite] = (),
        undoes: int | None = None,
        reading: Reading | None = None,
        once: bool = False,
    ) -> Result:
        """Lock and read the file, call `plan` with its entries, and write the edited entries.

        Return the result of the call.

        Args:
            plan: Returns the edited entries or a refusal.
            writes: The checked writes of the call, one for each operation. Undo and reset pass none: their writes
                are made from the changes.
            undoes: Id of the change that an undo reverts.
            once: True to raise `NotesChanged` instead of planning anew, if another program was quicker.
        """
        commit = partial(self._commit_once, target, action, plan, session, writes, undoes, reading)
        try:
            result, edit, notice = commit() if once else self._until_unchanged(commit)
        except MemoryConflict as exc:
            return self.refuse(Refusal(exc.message, remedy=exc.remedy, backup=exc.backup), target, session)
        if isinstance(edit, Refusal):
            return self.refuse(edit, target, session) | notice
        self._refusals.reset(session)
        result |= self._taken_away(target, edit, listed=bool(writes))
        return result | _caution(edit) | notice

    def _commit_once(
        self,
        target: MemoryTarget,
        action: str,
        plan: Plan,
        session: Session,
        writes: Sequence[MemoryWrite],
        undoes: int | None,
        reading: Reading | None,
    ) -> tuple[Result, Edit | Refusal, Result]:
        """Plan a change and write it. Return the result, the edit or its refusal, and further keys for the answer.

        Raises:
            NotesChanged: Another program changed the row since it was read. Nothing was changed.
        """
        notice: Result = {}
        with self._journal.opened(target, self._files[target], session) as opened:
            if opened.notice:
                notice["notice"] = opened.notice
            edit = plan(opened.entries)
            if isinstance(edit, Refusal):
                return {}, edit, notice
            known = self.origins.read()
            pinned = [
                change for change in edit.changes if change.previous and known.of(change.previous).pinned
            ]
            if reading is not None:
                # Not only those that the changes name: equal texts of another Unicode form go with them.
                for entry in opened.entries:
                    if known.of(entry).pinned and entry not in edit.entries:
                        return {}, _pinned(target, entry), notice
            table = _CHANGED if edit.changes else _UNCHANGED
            count = len(writes) if action == "batch" else len(edit.changes)
            result: Result = {
                "success": True,
                "done": True,
                "target": target,
                "usage": str(NotesUsage(measure(edit.entries), self._limits[target])),
                "entry_count": len(edit.entries),
                "message": table.get(action, _NOTHING).format(
                    operations=counted(count, "operation"),
                    changes=counted(count, "entry change"),
                    entries=counted(count, "entry", "entries"),
                ),
                "note": _SAVED,
            }
            contents = [change.content for change in edit.changes if change.content]
            if writes:
                sources = [change.previous for change in edit.changes if change.previous]
                origins = self._origins_of(contents, sources, session, reading)
            else:
                origins = {content: known.of(content).origin for content in contents}
            performed = self._performed(target, action, edit, writes, origins, session, undoes)
            if isinstance(performed, Refusal):
                return {}, performed, notice
            waiting = sorted(
                {origin for origin in origins.values() if not self._may_command(NoteOrigin(origin, 1.0))}
            )
            if waiting and performed:
                result |= {"origin": waiting[0], "note": _WAITS.format(origin=ORIGIN_NAMES[waiting[0]])}
            warning = ""
            notice |= self._back_up_large(target, edit)
            if performed:
                # Before a file: after a crash, no note may pass for a person's.
                record = partial(self._record_origins, origins, session, reading, pinned)
                if target == "project":
                    self._remember_project(opened.file.key)
                warning = self._journal.write(
                    opened, action, edit.entries, performed, undoes, before=record if writes else None
                )
            if warning:
                result["warning"] = redact(warning)
        return result, edit, notice

    def _record_origins(
        self,
        origins: Mapping[str, Origin],
        session: Session,
        reading: Reading | None,
        pinned: Sequence[NoteChange],
    ) -> None:
        """Store the origins of new entries. A pinned entry that a person wrote anew stays pinned."""
        self.origins.record(origins, session.id, raise_to=reading is None)
        for change in pinned:
            if change.content:
                self.origins.pin(change.content)

    def _until_unchanged(self, write: Callable[[], Value]) -> Value:
        """Call `write`, which plans a change and stores it, again as long as another program is quicker.

        Raises:
            LockTimeout: Others changed the notes again and again for longer than the timeout.
        """
        until = time.monotonic() + self._lock_timeout
        while True:
            try:
                return write()
            except (NotesChanged, RowConflict) as exc:
                if time.monotonic() >= until:
                    raise LockTimeout(
                        f"other programs changed the notes for more than {self._lock_timeout:g} s, each time before "
                        "this change was stored",
                        "nothing was changed: try again",
                    ) from exc
            time.sleep(random.uniform(0, _MAX_PAUSE_S))

    def _performed(
        self,
        target: MemoryTarget,
        action: str,
        edit: Edit,
        writes: Sequence[MemoryWrite],
        origins: Mapping[str, Origin],
        session: Session,
        undoes: int | None,
    ) -> list[MemoryWrite] | Refusal:
        """Return the writes for the provider: the checked `writes` as they were carried out, or those of an undo or reset.

        The changes of an undo or reset are known only now, so observers are asked here. They may refuse a change, but not
        alter it.
        """
        performed: list[MemoryWrite] = []
        for change in edit.changes:
            origin: dict[str, str] = {"origin": origins[change.content]} if change.content else {}
            if writes:
                vetted = writes[change.operation]
                performed.append(
                    replace(
                        vetted,
                        action=change.action,
                        content=change.content,
                        previous=change.previous,
                        metadata={**vetted.metadata, **origin},
                    )
                )
                continue
            restored = MemoryWrite(
                str(uuid.uuid4()),
                change.action,
                target,
                change.content,
                old_text=change.previous,
                previous=change.previous,
                metadata={"cause": action, **origin} | ({"undoes": str(undoes)} if undoes else {}),
            )
            filtered = self._filter_write(restored, session) if self._filter_write else restored
            if filtered != restored:
                reason = (
                    filtered.reason if isinstance(filtered, Refused) else "it would be changed on the way"
                )
                return Refusal(f"An observer refused this write: {reason}")
            performed.append(restored)
        return performed

    def _back_up_large(self, target: MemoryTarget, edit: Edit) -> Result:
        """Back up the file if the edit takes away an entry that a person made larger than the limit of the file."""
        file, limit = self._files[target], self._limits[target]
        large = any(len(change.previous) > limit for change in edit.changes)
        backup = file.try_back_up(file.read()) if large else ""
        return {"drift_backup": backup} if backup else {}

    def _taken_away(self, target: MemoryTarget, edit: Edit, *, listed: bool) -> Result:
        """Return the entries that the edit removed or replaced, for the answer.

        Args:
            listed: True to list several entries. A reset would list the whole file.
        """
        gone: Result = {}
        for action, key in (("remove", "removed"), ("replace", "replaced")):
            entries = [
                self._shown(target, change.previous)
                for change in edit.changes
                if change.previous and change.action == action
            ]
            if entries and len(edit.changes) == 1:
                gone[f"{key}_entry"] = entries[0]
            elif entries and listed:
                gone[f"{key}_entries"] = entries
        return gone

    def _enqueue_suppressed(
        self,
        target: MemoryTarget,
        writes: Sequence[MemoryWrite],
        session: Session,
        reading: Reading | None,
    ) -> Result:
        """Put writes into the outbox that only the provider keeps, without a change of the file.

        If a write can't be stored, return a refusal, because the write would be lost.
        """
        table, entries = self.origins.read(), self.entries(target) if reading is not None else ()
        for write in writes:
            place = find(entries, write.old_text) if write.old_text else None
            if isinstance(place, int) and table.of(entries[place]).pinned:
                return self.refuse(_pinned(target, entries[place]), target, session)
        origins = self._origins_of([write.content for write in writes if write.content], (), session, reading)
        for stored, write in enumerate(writes):
            origin = {"origin": origins[write.content]} if write.content else {}
            handed = replace(write, performed=False, metadata={**write.metadata, **origin})
            try:
                self._journal.enqueue(handed, session)
            except (OutboxError, StorageError) as exc:
                part = (
                    f"{counted(stored, 'operation is', 'operations are')} with the memory provider, counted from the "
                    "first: do not repeat that; the others were not"
                )
                refusal = Refusal(
                    f"{part if stored else 'Nothing was'} saved: {exc.message}.", remedy=exc.remedy
                )
                return self.refuse(refusal, target, session)
        self._refusals.reset(session)
        return {
            "success": True,
            "done": True,
            "target": target,
            "performed": False,
            "message": f"Handed {counted(len(writes), 'operation')} to the memory provider.",
            "note": _HANDED_ON,
        }

    def _off(self, target: MemoryTarget) -> Refusal | None:
        if target not in self._files:
            return Refusal(f"Invalid target {target!r}. Use {' or '.join(map(repr, self.targets))}.")
        if target not in self.enabled_targets:
            return Refusal(f"The {target!r} store is switched off ({ENABLE_SETTING[target]}: false).")
        return None

    def _too_large(self, target: MemoryTarget, entry: str) -> Refusal:
        """Return the refusal of a write to a file that holds an entry larger than the limit of the whole file."""
        limit, file = self._limits[target], self._files[target]
        backup = file.try_back_up(file.read())
        return Refusal(
            f"Refusing to write {file.name}: it holds an entry of {len(entry):,} characters, "
            f"more than the whole store ({limit:,}).",
            backup=backup,
            remedy=(
                f"Call memory with action 'remove' or 'replace' and target={target!r}, old_text={entry_handle(entry)!r}; "
                f"or split the entry in the file with lines that hold only '§'; or raise {LIMIT_SETTING[target]} "
                f"to {len(entry)} or more.{' The .bak file has a copy.' if backup else ''}"
            ),
        )

    def _settle(self, target: MemoryTarget | None) -> None:
        for name in (target,) if target else self.enabled_targets:
            try:
                self._journal.settle(self._files[name])
            except StorageError as exc:
                log.warning("the history may lack the last change of %s: %s", self._files[name].path, exc)

    def _adopt_loss(self, target: MemoryTarget | None, session: Session | None) -> None:
        """Enter a file that was emptied or deleted by hand into the history, so that this is the newest change."""
        for name in (target,) if target else self.enabled_targets:
            with contextlib.suppress(MemoryConflict):
                if not self._files[name].in_database and not self.entries(name):
                    with self._journal.opened(name, self._files[name], session or self._local):
                        pass

    def _keys(self, target: MemoryTarget | None) -> list[str]:
        return [file.key for name, file in self._files.items() if target in (None, name)]

    def _scanned(
        self, target: MemoryTarget, part: Sequence[str] | None = None
    ) -> list[tuple[str, NoteOrigin, FlaggedEntry | None]]:
        """Return the entries that a model may see, each with its origin, and its flag if it is withheld.

        Entries in the system prompt are no neighbours of those that are data.

        Args:
            part: The entries that are meant; default: those at the beginning of the file.

        Raises:
            MemoryConflict: The file can't be read or is not UTF-8 text.
        """
        entries = scanned_entries(self.entries(target) if part is None else part, self._limits[target])
        table = self.origins.read()
        origins = [table.of(entry) for entry in entries]
        flags: dict[int, FlaggedEntry | None] = {}
        for group in (True, False):
            places = [at for at, origin in enumerate(origins) if self._may_command(origin) is group]
            neighbours = [entries[at] for at in places]
            group_flags = flag_entries(target, neighbours, self._limits[target], self._scan, self._allows)
            flags.update(zip(places, group_flags, strict=True))
        return [(entry, origins[at], flags[at]) for at, entry in enumerate(entries)]

    def _flag(self, target: MemoryTarget, entry: str) -> FlaggedEntry | None:
        return flag_entry(target, entry, self._limits[target], self._scan)

    def _shown(self, target: MemoryTarget, entry: str, shorten: Callable[[str], str] = str) -> str:
        """Return the text of an entry for the model; for a flagged entry, return a placeholder."""
        flagged = self._flag(target, entry)
        return flagged.withheld if flagged else shorten(entry)


class RefusalCounter:
    """Counter of refusals by session, to stop a model that repeats a failing write. Safe to share between threads."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._lock = threading.Lock()  # sessions of a gateway write from threads of their own

    def add(self, session: Session, reason: str) -> str:
        """Count a refusal. If there were too many, return a text that tells the model to stop; else ""."""
        # A background review has the id of its session, but is counted separately.
        key = session.id, session.agent_context
        with self._lock:
            count = self._counts.pop(key, 0) + 1
            self._counts[key] = count
            # A gateway may have any number of sessions, so the least recently used count is dropped.
            while len(self._counts) > _MAX_COUNTED_SESSIONS:
                self._counts.popitem(last=False)
        if count <= MAX_REFUSALS_PER_TURN:
            return ""
        return (
            f"Memory consolidation failed {counted(count, 'time')} this turn. Stop calling this tool now, answer the person, "
            f"and leave memory as it is; nothing was changed. The last reason: {reason}"
        )

    def reset(self, session: Session) -> None:
        """Set the count of this session to 0, after a success or at the start of a turn."""
        with self._lock:
            self._counts.pop((session.id, session.agent_context), None)


def changed_something(result: Mapping[str, Any]) -> bool:
    """Return True if the call with this result changed the notes.

    A successful call may have had nothing to change.
    """
    return bool(result.get("success")) and result.get("message") not in (*_UNCHANGED.values(), _NOTHING)


def _write_fault(write: MemoryWrite, limit: int | None) -> str:
    if write.action != "add" and not write.old_text:
        return "old_text cannot be empty."
    if write.action == "add" and not write.content:
        return "Content cannot be empty."
    if write.action == "replace" and not write.content:
        return "new_content cannot be empty. Use 'remove' to delete entries."
    size = len(write.content)
    if limit is not None and size > limit:
        return f"Nothing was saved: the text has {size:,} chars, more than the whole store ({limit:,}): write a shorter one."
    fault = entry_fault(write.content) or text_fault(write.old_text)
    return f"Nothing was saved: {fault}." if fault else ""


def _pinned(target: MemoryTarget, entry: str) -> Refusal:
    return Refusal(
        f"Nothing was saved: the person pinned the entry {preview(entry)!r}, so that it always stays as it is.",
        remedy="add what is new as an entry of its own, or ask the person to change it, or to unpin it: "
        f"hermes-memory memory pin --off --target {target} 'a part of it'",
    )


def _caution(edit: Edit) -> Result:
    """Return a warning if a removed entry holds a secret, since it stays in the history; else {}."""
    removed = Counter(kind for change in edit.changes for kind in secrets_in(change.previous))
    if not removed:
        return {}
    return {
        "caution": (
            f"What went looks like a secret ({', '.join(removed)}): the history keeps it for undo until "
            "`hermes-memory memory prune`."
        )
    }


ALLOW_HINT = "only a person can overrule the scan: hermes-memory memory allow 'the exact text'"


def _scan(home: HermesHome, text: str, *, untrusted: bool = False) -> Threat | None:
    # Imported at the first use: loading and compiling the rules takes a tenth of a second, and many processes never
    # write.
    from hermes_core.storage.verdicts import Verdicts

    return Verdicts(home).scan(text, untrusted=untrusted)


def _allows(home: HermesHome, text: str) -> bool:
    from hermes_core.storage.verdicts import Verdicts

    return Verdicts(home).allows(text)
