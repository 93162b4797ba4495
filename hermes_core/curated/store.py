"""The notes of one owner: MEMORY.md, USER.md and PROJECT.md as rows of the database, with the files as views of them.

Each call looks at the views before it uses the rows. A view with other bytes than this program last saw there was edited:
the difference becomes a change of the person who edited it, with history and undo. A change by this program is one
transaction: the notes with their origins, the history, and what the provider is to be told. Then the view is written. If
the program dies in between, the next look writes it.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import random
import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct, structs

from hermes_core.contract.values import (
    ORIGIN_NAMES,
    MemoryTarget,
    MemoryWrite,
    Origin,
    Refused,
    Session,
)
from hermes_core.curated.base import SharedBase, origins_in_file, read_base
from hermes_core.curated.document import (
    FlaggedEntry,
    NotesUsage,
    entries_for_model,
    entry_fault,
    entry_handle,
    flag_entry,
    join_entries,
    measure,
    normalize_entry,
    parse_note_file,
    split_entries,
    split_threat,
    text_fault,
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
from hermes_core.curated.history import MAX_ID, NoteHistory, NoteVersion, change_key
from hermes_core.curated.origins import PERSON, UNKNOWN, Note, NoteOrigin, entry_hash
from hermes_core.curated.places import NotePlaces, remembered
from hermes_core.curated.profile import field_operation
from hermes_core.curated.project import ProjectKeys, Repository, earlier_keys, with_notes_key
from hermes_core.curated.rows import NoteRows, NotesChanged, StoredFile, place_of
from hermes_core.curated.stored import NoteSettings, StoredNotes
from hermes_core.curated.view import EditedMeanwhile
from hermes_core.errors import ConfigError, LockTimeout, MemoryConflict, OutboxError, StorageError
from hermes_core.home import HermesHome
from hermes_core.safety.origin import Reading, in_scope, lowest, may_command, origin_of_text, rank
from hermes_core.safety.redact import redact, secrets_in
from hermes_core.safety.terminal import counted
from hermes_core.storage.engine import CommitInDoubt, CommitUnconfirmed, Engine, RowConflict, Statement
from hermes_core.storage.files import LOCK_TIMEOUT
from hermes_core.storage.inventory import lost_store

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

# A view with an earlier text counts as an older one if it was written so long before the last change: an edit by hand
# that brings this text back comes after that. Clocks of file systems are behind by up to 10 ms.
_OLDER_BY_S = 1.0

# `Note.change` of an entry that is new: its change gets an id when it is stored.
_NEW = -1

Value = TypeVar("Value")
Result = dict[str, Any]
FilterWrite = Callable[[MemoryWrite, Session], MemoryWrite | Refused]
Plan = Callable[[tuple[str, ...]], Edit | Refusal]
"""Function that gets the entries on disk, and returns the edited entries or a refusal."""

OnWrite = Callable[[MemoryWrite, Session], object]

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


_NOT_ENQUEUED = "Saved here, but the memory provider is not told of it"


class NoteHooks(Struct, frozen=True):
    """What the host of the notes is asked and told.

    Attributes:
        filter_write: Called before each write. It may return a changed write or a refusal.
        suppresses: Returns True for a target whose entries only the provider keeps, so that nothing is changed here.
        on_write: Called with every accepted write, in order and in its transaction. If it raises `OutboxError`, the
            change is stored and the result holds a warning.
        provider: Returns the name of the provider for which writes are stored now.
    """

    filter_write: FilterWrite | None = None
    suppresses: Callable[[str], bool] | None = None
    on_write: OnWrite | None = None
    provider: Callable[[], str] = str


class OpenFile(Struct, frozen=True):
    """File whose change is planned.

    Attributes:
        data: Bytes of the view; None if there is none.
        others: Notes of the owner's other files, with the origins of texts that may move between them.
        notice: Report of an edit by hand that was adopted since the last change.
    """

    file: StoredFile
    data: bytes | None
    session: Session
    others: tuple[Note, ...] = ()
    notice: str = ""

    @property
    def entries(self) -> tuple[str, ...]:
        """The texts of the notes."""
        return self.file.entries

    def note(self, entry: str) -> Note | None:
        """Return the note with this text, in this file or another one of its owner."""
        return self.file.note(entry) or next((note for note in self.others if note.text == entry), None)

    def is_pinned(self, entry: str) -> bool:
        """Return True if only a person may change the entry."""
        note = self.file.note(entry)
        return note is not None and note.origin.pinned


class Notes:
    """The notes of one owner. Safe to share between threads and processes, and between machines with a server.

    Every call looks at the views and reads the rows anew. A change is stored when the call returns: notes, origins,
    history and outbox in one transaction, so that a crash leaves all of it or nothing. A method that changes the notes
    returns the dict that the `memory` tool returns: `success`, and either `message` and `usage`, or `error` and a remedy.
    If something can't be locked or written, the method raises `StorageError` and nothing was changed.

    Args:
        database: The database of the home, which the caller closes.
        scan: Threat scan of entries; default: `safety.scan.first_threat` without the texts that a person allowed.
        project: The repository of the working folder, whose PROJECT.md the person at home has; None for none.
        lock_timeout: Seconds in which a change is planned anew that others keep changing.
        lost_at: Time in epoch seconds at which a person accepted the loss of the database. Views that are older come
            back as data, since nobody knows any more where their entries came from.

    Raises:
        ConfigError: A limit is below 1.
    """

    def __init__(
        self,
        home: HermesHome,
        database: Engine,
        settings: NoteSettings | None = None,
        hooks: NoteHooks | None = None,
        *,
        scan: Scan | None = None,
        project: Repository | None = None,
        lock_timeout: float = LOCK_TIMEOUT,
        clock: Callable[[], float] = time.time,
        lost_at: float = 0.0,
    ) -> None:
        self._home, self._settings, self._hooks = home, settings or NoteSettings(), hooks or NoteHooks()
        for target, limit in self._settings.limits.items():
            if limit < 1:
                raise ConfigError(
                    f"{LIMIT_SETTING[target]} is {limit!r}", "give a number of characters above 0"
                )
        # Machines that share a database have views of their own, and folders of repositories.
        place = place_of(home, shared=database.shared)
        self._database, self._rows = database, NoteRows(database, clock, place)
        self.changes = NoteHistory(database, clock)
        self.places = NotePlaces(home, self._rows)
        self._project_keys = ProjectKeys(database, home.memories / "projects", place.partition(":")[0])
        self._clock, self._lock_timeout, self._lost_at = clock, lock_timeout, lost_at
        # Settings and files stay the same, so that the turns of one user share an object.
        self._of_owners: OrderedDict[str, Notes] = OrderedDict()
        self._owner = ""
        self._files = self.places.of_owner("")
        self.project = None if project is None else with_notes_key(project, self._project_keys)
        if self.project is not None:
            self._files["project"] = self.places.of_project(self.project.key)
        # Writes without a session, such as those of the command line, belong to the person at home.
        self._local = Session("local", home=str(home.path), identity=home.profile)
        self._scan = scan or partial(_scan, home)
        self._allows: Callable[[str], bool] = partial(_allows, home) if scan is None else lambda _: False
        self._scan_low = None if scan else partial(_scan, home, untrusted=True)
        self._refusals = RefusalCounter()
        # Reports of adopted edits, by file, for the answer to the next change.
        self._notices: dict[str, str] = {}

    def of(self, session: Session | None) -> Notes:
        """Return the notes of the owner of `session`. With `per_user`, both files are this owner's own."""
        owner = session.owner if session is not None and self._settings.per_user else ""
        if not owner:
            return self
        if (own := self._of_owners.get(owner)) is not None:
            return own
        # A shallow copy: settings, database and refusals are shared, only the files are the user's own.
        own = copy.copy(self)
        own._files = self.places.of_owner(owner)
        own._owner, own.project = owner, None
        return remembered(self._of_owners, owner, own)

    def of_repository(self, key: str) -> Notes:
        """Return the notes of the person at home with the PROJECT.md of a repository, by its `Repository.key`."""
        own = copy.copy(self)
        own._files = {**self._files, "project": self.places.of_project(key)}
        return own

    def with_settings(self, settings: NoteSettings) -> Notes:
        """Return the same notes under other settings."""
        own = copy.copy(self)
        own._settings, own._of_owners = settings, OrderedDict()
        return own

    def earlier_projects(self) -> list[str]:
        """Return the keys of earlier notes on the repository, in no prompt since its new address had notes already.

        Raises:
            StorageError: The database can't be read.
        """
        if self.project is None:
            return []
        known = earlier_keys(self.project, self._project_keys.read(self.project))
        return [key for key in known if self.of_repository(key).read().files["project"].notes]

    @property
    def targets(self) -> tuple[MemoryTarget, ...]:
        """The files of this owner, also those that are switched off."""
        return tuple(self._files)

    @property
    def enabled_targets(self) -> tuple[MemoryTarget, ...]:
        """The files that are in use."""
        return tuple(target for target in self._files if target in self._settings.enabled)

    @property
    def settings(self) -> NoteSettings:
        """The settings of the notes of the home."""
        return self._settings

    # ---------------------------------------------------------------- reading

    def statement(self) -> Statement:
        """Return the statement that reads all files in use, for a read of more than the notes; see `read`."""
        return self._rows.statement([self._files[target] for target in self.enabled_targets])

    def read(self, rows: Iterable[Any] | None = None) -> StoredNotes:
        """Read all files that are in use. An edit by hand is adopted first, if that can be stored.

        Args:
            rows: The rows of `statement`, if they were read just now.
        """
        targets, problems = self.enabled_targets, dict[MemoryTarget, MemoryConflict]()
        files, unreachable = {target: self._files[target] for target in targets}, False
        try:
            meant = list(files.values())
            stored = self._rows.read(meant) if rows is None else self._rows.stored(meant, rows)
            files = dict(zip(targets, stored, strict=True))
        except StorageError as exc:
            unreachable = True
            if (
                not self._database.shared
            ):  # a server that is down comes back, and nothing of the session changes
                files = {target: self._from_view(file) for target, file in files.items()}
            for target in targets:
                fact = f"the notes {files[target].key!r} can't be read: {exc.message}"
                problems[target] = MemoryConflict(fact, exc.remedy)
        for target in () if unreachable or not self._settings.mirror else targets:
            try:
                files[target] = self._looked_at(files[target])
            except MemoryConflict as exc:
                log.warning("%s is left out: %s", files[target].key, exc)
                problems[target] = exc
        return StoredNotes(
            files,
            problems,
            self._settings,
            unreachable=unreachable,
            base=self._read_base(),
            project=self.project.key if self.project is not None else "",
            scan=self._scan,
            allows=self._allows,
            gone=self._last_gone,
        )

    def entries(self, target: MemoryTarget) -> tuple[str, ...]:
        """Return all entries of a file, including flagged ones.

        Raises:
            MemoryConflict: The file can't be used.
        """
        return self.read().entries(target)

    def _from_view(self, file: StoredFile) -> StoredFile:
        """Return what the view of a file shows, of which nobody knows the origins as the database can't be read."""
        with contextlib.suppress(MemoryConflict):
            data = self.places.view(file.key).read() if self._settings.mirror else None
            return structs.replace(file, notes=_notes_of(file, parse_note_file(data or b"").entries, UNKNOWN))
        return file

    def _looked_at(self, file: StoredFile) -> StoredFile:
        """Return a file after a look at its view."""
        view = self.places.view(file.key)
        if file.is_shown_by(data := view.read()):
            return file
        if conflict := parse_note_file(data or b"").conflict:
            raise view.unreadable(conflict, "save it as UTF-8 text, or move it away")
        try:
            return self._synchronise(file, self._local).file
        except NotesChanged:
            return self._looked_at(self._rows.read([file])[0])
        except StorageError as exc:
            # A home that is only read: what the person wrote counts, and is stored later.
            view.warn("and the notes can't be made to agree", exc)
            if data is None or file.was_shown_by(data):
                return file
            origin = UNKNOWN if lost_store(self._home.state_db) else PERSON
            return structs.replace(file, notes=_notes_of(file, parse_note_file(data).entries, origin))

    def _read_base(self) -> SharedBase:
        base = self._settings.shared_base
        return (
            SharedBase() if base is None else read_base(base, self._home.memories / self._files["memory"].key)
        )

    def _last_gone(self, entry: str) -> Note | None:
        keys = [file.key for file in self._files.values()]
        return self.changes.last_gone(keys, entry) if self._database.exists else None

    # ---------------------------------------------------------------- the view

    def _open(self, target: MemoryTarget, session: Session) -> OpenFile:
        """Return a file whose change is planned, after a look at its view. Nothing is locked meanwhile.

        Raises:
            MemoryConflict: The view can't be read or is not UTF-8 text. The error names a backup copy of it.
            NotesChanged: Another program was quicker with the same edit by hand.
            StorageError: An edit by hand can't be stored.
        """
        meant = self._files[target]
        file, *others = self._rows.read(
            [meant, *(one for one in self._files.values() if one.key != meant.key)]
        )
        opened = self._synchronise(file, session) if self._settings.mirror else OpenFile(file, None, session)
        return structs.replace(
            opened,
            others=tuple(note for other in others for note in other.notes),
            notice=self._notices.pop(file.key, ""),
        )

    def _synchronise(self, file: StoredFile, session: Session) -> OpenFile:
        """Make the view and the rows of a file agree."""
        view = self.places.view(file.key)
        data = view.read()
        if file.is_shown_by(data):
            return OpenFile(file, data, session)
        # A view that is gone, or as it was before a change whose program died, is written again. So is an older one that
        # was never seen here, or that a backup put in place of a newer one.
        is_older = (
            data is not None
            and (not file.seen or view.written_at() < file.changed_at - _OLDER_BY_S)
            and not parse_note_file(data).conflict
            and self.changes.had_text(file, data.decode("utf-8"))
        )
        if data is None or file.was_shown_by(data) or is_older:
            self._write_view(file, data)
            return OpenFile(file, view.read(), session)
        if file.text.encode() == data:  # written by a program that died before it could say so
            self._database.batch([self._rows.set_view(file, data, file.text)])
            return OpenFile(file, data, session)
        return self._adopt(file, data, session)

    def _adopt(self, file: StoredFile, data: bytes, session: Session) -> OpenFile:
        """Store an edit by hand as a change of the person, and report it.

        A backup copy is written if something would be lost: of the old entries if the file was emptied, or of the view
        if the next write would change its layout.
        """
        view, parsed = self.places.view(file.key), parse_note_file(data)
        if parsed.conflict:
            raise MemoryConflict(
                f"Refusing to write {view.name}: {parsed.conflict}, so rewriting it could lose something",
                f"save {str(view.path)!r} as UTF-8 text, or move it away and add its facts again from the .bak copy",
                view.try_back_up(data),
            )
        # What a person took out of a view that was never seen here is not known, and an entry that both changed stays in
        # both forms, which a person can tell apart.
        base = split_entries(self._rows.text_of_view(file)) if file.seen else ()
        after = merge(base, parsed.entries, file.entries, both=True) or ()
        if file.seen and base != file.entries and after == file.entries:
            # Nothing that the notes lack: a view of ours that a kill kept from being recorded.
            self._write_view(file, data)
            return OpenFile(file, view.read(), session)
        emptied = bool(file.notes) and not parsed.entries
        copy = None
        if emptied or not parsed.canonical:
            copy = view.back_up(file.text.encode() if emptied else data)
        is_lost = self._lost_at and view.written_at() < self._lost_at
        origin = UNKNOWN if is_lost else NoteOrigin("person", self._clock() if file.version else 0.0)
        known: dict[str, NoteOrigin] = {}
        if not file.version and self._database.shared:
            # A home whose notes were in files, and that was pointed at a server without a move.
            try:
                before = origins_in_file(self._home, file.key)
                known = {entry_hash(text): note for text, note in before.items()}
            except StorageError as exc:
                log.warning(
                    "the entries of %s wait for a person, since it is not known whose they are: %s",
                    view.path,
                    exc,
                )
                origin = UNKNOWN
        notes = _notes_of(file, after, origin, known)
        # A file of another program that is met for the first time, in the layout of ours, is no edit.
        is_first = not file.version and parsed.canonical
        change = self._store(
            file,
            notes,
            "" if is_first else "edit",
            session,
            # What was there before the first look is not what this edit made, so that no undo takes it away.
            before=None if file.version else structs.replace(file, notes=notes),
            # Also if other notes were joined with it: the view is then an old one, and no edit a second time.
            view=self._rows.set_view(file, data, join_entries(parsed.entries)),
        )
        [stored] = self._rows.read([file])
        if after != parsed.entries:
            self._write_view(stored, data)
        if not is_first:
            log.info("adopted an edit of %s from outside as change %d", view.path, change)
            what = "emptied" if emptied else "edited"
            undoable = "" if after == file.entries or not file.version else ", which can be undone"
            where = f"; a backup is {str(copy)!r}" if copy else ""
            self._notices[file.key] = (
                f"{view.name} was {what} outside this tool: adopted as change {change}{undoable}{where}."
            )
        return OpenFile(stored, view.read(), session)

    def _write_view(self, file: StoredFile, expected: bytes | None) -> str:
        """Write the view of stored notes. Return a warning if it can't be written: the next look tries again."""
        view = self.places.view(file.key)
        if not file.text and expected is None:
            return ""
        try:
            with self._database.transaction():
                # The view of a version that is not the newest would pass for an edit by hand.
                if self._rows.lock(file):
                    data = view.write(file.text, expected)
                    self._database.execute(*self._rows.set_view(file, data, file.text))
        except EditedMeanwhile as exc:
            log.info("%s: %s; the next look adopts it", view.path, exc)
        except (StorageError, MemoryConflict) as exc:
            view.warn("is not as the notes are", exc)
            return f"Saved, but {view.name} can't be written: {exc}"
        return ""

    # ---------------------------------------------------------------- writing

    def confirm(self, entries: Sequence[str]) -> None:
        """Store that a person read exactly these texts and lets them stand in the system prompt.

        No tool of a model may call this.
        """
        now = self._clock()

        def confirmed(note: Note) -> NoteOrigin:
            before = note.origin
            return structs.replace(
                before, origin="person", at=now, confirmed=before.confirmed or before.origin
            )

        self._until_unchanged(partial(self._set_origins, frozenset(entries), confirmed, "confirm"))

    def lower(self, session: Session, since: float, reading: Reading) -> None:
        """Lower the origin of notes that a model wrote in a session, now that more of what it had read is known.

        Args:
            since: Time in epoch seconds; only notes written since then are lowered.
            reading: What the model had read.
        """

        def lowered(note: Note) -> NoteOrigin:
            before = note.origin
            if before.origin == "assistant" and before.session == session.id and before.at >= since:
                return structs.replace(before, origin=origin_of_text(note.text, reading))
            return before

        self._until_unchanged(partial(self._set_origins, None, lowered))

    def _set_origins(
        self, texts: frozenset[str] | None, change: Callable[[Note], NoteOrigin], event: str = ""
    ) -> None:
        """Change the origins of notes with these texts, or of all, and record an event for each text."""
        with self._database.transaction():
            for file in self._rows.read([self._files[target] for target in self.enabled_targets]):
                notes = [
                    structs.replace(note, origin=change(note))
                    if texts is None or note.text in texts
                    else note
                    for note in file.notes
                ]
                if notes != list(file.notes):
                    self._replace(file, notes)
            for text in sorted(texts or ()):
                self.changes.record(event, entry_hash(text))

    def pin(self, target: MemoryTarget, old_text: str, *, on: bool = True) -> Result:
        """Let only a person change or remove the entry that `old_text` identifies, or take that back.

        A pinned entry stands first in the system prompt. No tool of a model may call this.

        Args:
            old_text: A fragment, the whole text or the handle of exactly one entry.
            on: False to unpin the entry.
        """
        if off := self._off(target):
            return self.refuse(off, target, self._local)

        def write() -> str | Refusal:
            opened = self._open(target, self._local)
            place = find(opened.entries, old_text)
            if isinstance(place, Refusal):
                return place
            entry = opened.entries[place]
            notes = [
                structs.replace(note, origin=structs.replace(note.origin, pinned=on))
                if note.text == entry
                else note
                for note in opened.file.notes
            ]
            if notes != list(opened.file.notes):
                with self._database.transaction():
                    self._replace(opened.file, notes)
                    self.changes.record("pin" if on else "unpin", entry_hash(entry))
            return entry

        entry = self._until_unchanged(write)
        if isinstance(entry, Refusal):
            return self.refuse(entry, target, self._local)
        message = "Entry pinned: only you can change or remove it." if on else "Entry no longer pinned."
        return {"success": True, "done": True, "target": target, "message": message, "entry": entry}

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
        stored = self.read()
        entries = stored.entries("user")
        operation = field_operation(entries, values, self._settings.profile_fields)
        if isinstance(operation, Refusal):
            return self.refuse(operation, "user", session)
        if operation is None:
            return {
                "success": True,
                "done": True,
                "target": "user",
                "message": "The fields have these values already.",
            }
        origin = stored.origin_of(entries[0]).origin if operation.action == "replace" else "person"
        if reading is not None or self._settings.may_command(NoteOrigin(origin, 1.0)):
            return self.write("user", [operation], session, reading=reading, expected=entries)
        # The person set one field, and has not confirmed the others, which stand in the same entry.
        result = self.write("user", [operation], session, reading=Reading(origin), expected=entries)
        if result.get("success"):
            result["notice"] = (
                f"The other fields come from {ORIGIN_NAMES[origin]}, so they wait: hermes-memory review."
            )
        return result

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
        self.read()  # an edit by hand that nobody has looked at is the newest change
        for version in self.changes.versions(self._keys(target)):
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
        origins: Mapping[str, NoteOrigin] | None = None,
    ) -> Result:
        """Make the notes what a person wrote, as if the person had edited the file. No limit and no scan applies.

        What others changed since the person began stays, entry by entry. If they changed the same entry, nothing is
        changed, and the result says so with `conflict`.

        Args:
            text: The whole text as the person wrote it.
            base: The entries that the person began with.
            action: The action of the change in the history.
            origins: Origins of texts that are new here, by `entry_hash`; the others are the person's.
        """
        who = session or self._local
        if off := self._off(target):
            return self.refuse(off, None, who)
        written = parse_note_file(text.encode("utf-8", "surrogatepass"))
        if written.conflict:
            return {"success": False, "error": f"Nothing was changed: {written.conflict}."}
        try:
            return self._until_unchanged(
                lambda: self._edit_once(target, written.entries, tuple(base), who, action, origins or {})
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
        origins: Mapping[str, NoteOrigin],
    ) -> Result:
        opened = self._open(target, session)
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
            "usage": str(NotesUsage(measure(after), self._settings.limits[target])),
            "entry_count": len(after),
            "message": f"Edited: {added.total()} added, {removed.total()} removed."
            if after != opened.entries
            else _NOTHING,
        }
        if after != opened.entries:
            notes = _notes_of(opened.file, after, NoteOrigin("person", self._clock(), session.id), origins)
            if warning := self._commit(opened, notes, action):
                result["warning"] = redact(warning)
        gone = Edit(after, tuple(NoteChange(0, "remove", "", entry) for entry in removed))
        return result | _caution(gone) | notice

    def take_in(
        self, target: MemoryTarget, notes: Sequence[Note], changes: Sequence[Mapping[str, Any]]
    ) -> tuple[int, int]:
        """Add notes of another home behind those that are here, and their history. Return how many of each are new.

        No limit and no scan applies, and no provider is told. The caller has checked everything.

        Args:
            notes: The notes. Those whose text is here stay as they are.
            changes: Their history, as `NoteHistory.portable` returned it.

        Raises:
            MemoryConflict: The file can't be used.
            StorageError: The notes could not be stored.
        """
        counts = self._until_unchanged(lambda: self._take_in_once(target, notes, changes))
        self.read()  # writes the view
        return counts

    def _take_in_once(
        self, target: MemoryTarget, notes: Sequence[Note], changes: Sequence[Mapping[str, Any]]
    ) -> tuple[int, int]:
        file = self._open(target, self._local).file
        known = {change_key(change) for change in self.changes.portable(file.key)}
        earlier = [change for change in changes if change_key(change) not in known]
        new = [structs.replace(note, change=_NEW) for note in notes if note.text not in file.entries]
        if new or earlier:
            after = (*file.notes, *new)
            text = join_entries([note.text for note in after])
            # A history that ends with the notes as they are says all. Else the import is a change of its own.
            is_whole = not (known or file.notes) and bool(earlier) and earlier[-1]["after"] == text
            with self._database.transaction():
                self.changes.take_in(earlier)
                self._store(file, after, "" if is_whole else "import", self._local)
        return len(new), len(earlier)

    def history(
        self, target: MemoryTarget | None = None, limit: int = 50, *, before: int | None = None
    ) -> list[NoteVersion]:
        """Return at most `limit` changes of the notes, newest first.

        Args:
            before: Only changes before the one with this id; None for all.
        """
        return list(islice(self.changes.versions(self._keys(target), before=before), limit))

    def version(self, change: int) -> NoteVersion | None:
        """Return the change with this id; None if the history of these notes does not have it."""
        newest = next(iter(self.history(limit=1, before=min(change, MAX_ID - 1) + 1)), None)
        return newest if newest is not None and newest.id == change else None

    def prune(self) -> int:
        """Delete the history and all backup copies of the notes. Return the number of deleted changes and copies.

        The deleted changes can't be undone any more.
        """
        deleted = 0
        for key in self._keys(None):
            deleted += self.changes.prune(key) if self._database.exists else 0
            deleted += self.places.view(key).drop_backups()
        if deleted and not self._database.shared:
            # The write-ahead log holds the deleted pages until a checkpoint truncates it.
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return deleted

    def delete(self) -> None:
        """Delete the rows of the notes of a user: texts, origins and history. Views are the caller's."""
        if self._owner and self._database.exists:
            self._rows.delete(self._keys(None))

    def tell_removals(self) -> None:
        """Tell the provider in use of entries that it has, and that were removed while another provider was in use.

        Call this once when the program starts.
        """
        if not self._database.exists or not (provider := self._hooks.provider()):
            return
        known: dict[str, Notes] = {}
        for session, write, note in self.changes.removed_without(provider):
            notes = known.setdefault(session.owner, self.of(session))
            if all(note.text not in file.entries for file in self._rows.read(list(notes._files.values()))):
                notes._tell(replace(write, action="remove", content=""), note, session)

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
                    target, entries, self._settings.limits[target], self._scan, withheld=True
                )
                result["usage"] = f"{measure(entries):,}/{self._settings.limits[target]:,}"
        if refusal.backup:
            result["drift_backup"] = refusal.backup
        if refusal.remedy:
            result["remediation"] = redact(refusal.remedy)
        if refusal.for_person:
            result["for_person"] = redact(refusal.for_person)
        return result

    def key(self, target: MemoryTarget) -> str:
        """Return the path of the view of a target below the folder of the notes, which is its name in the database."""
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
        suppresses = self._hooks.suppresses
        suppressed = suppresses is not None and suppresses(target)
        limit = None if suppressed else self._settings.limits[target]
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
        return self._change(target, action, plan, who, writes=writes, reading=reading, once=once)

    def _origins_of(
        self,
        contents: Sequence[str],
        sources: Iterable[NoteOrigin],
        session: Session,
        reading: Reading | None,
    ) -> dict[str, Origin]:
        """Return the origin of each of these new entries.

        Args:
            sources: Origins of the entries that the call replaces or merges.
        """
        own = session.owner == self._owner
        if reading is None:
            person: Origin = "owner" if session.is_owner else "person"
            return dict.fromkeys(contents, person if own else "user")
        lower = [source.origin for source in sources]
        if not own:  # notes that several users share
            return dict.fromkeys(contents, lowest([reading.origin, "user", *lower]))
        inside = Reading(in_scope(reading.origin, self._owner), reading.said)
        return {content: origin_of_text(content, inside, lower) for content in contents}

    def _new_note(self, opened: OpenFile, content: str, origin: Origin, reading: Reading | None) -> Note:
        """Return a new entry. A text that was known keeps a lower origin, or that a person confirmed it."""
        new = NoteOrigin(origin, self._clock(), opened.session.id)
        known = opened.note(content) or self._last_gone(content)
        if known is None:
            return Note(content, new, _NEW)
        before = known.origin
        if not before.confirmed and (reading is None or rank(origin) > rank(before.origin)):
            before = structs.replace(new, pinned=before.pinned)
        return Note(content, before, _NEW)

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
                        remedy=f"write the plain fact as a new entry, or edit {self.places.view(self._files[target].key).name} by hand; "
                        f"{ALLOW_HINT}",
                    )
                if kinds := ", ".join(secrets_in(change.content)):
                    return Refusal(
                        f"The entry {entry_handle(change.content)} holds what looks like a secret ({kinds}) and is not "
                        "brought back.",
                        remedy="note only where the secret is; `hermes-memory memory prune` takes it out of the history",
                    )
            return edit

        return self._change(target, action, scanned, who, undoes=undoes, reading=reading)

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
        if self._hooks.filter_write:
            filtered = self._hooks.filter_write(write, session)
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

    def _change(
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
        """Open a file, call `plan` with its entries, and store the edited entries. Return the result of the call.

        Args:
            plan: Returns the edited entries or a refusal.
            writes: The checked writes of the call, one for each operation. Undo and reset pass none: their writes
                are made from the changes.
            undoes: Id of the change that an undo reverts.
            once: True to raise `NotesChanged` instead of planning anew, if another program was quicker.
        """
        change = partial(self._change_once, target, action, plan, session, writes, undoes, reading)
        try:
            result, edit, notice = change() if once else self._until_unchanged(change)
        except MemoryConflict as exc:
            return self.refuse(Refusal(exc.message, remedy=exc.remedy, backup=exc.backup), target, session)
        if isinstance(edit, Refusal):
            return self.refuse(edit, target, session) | notice
        self._refusals.reset(session)
        result |= self._taken_away(target, edit, listed=bool(writes))
        return result | _caution(edit) | notice

    def _change_once(
        self,
        target: MemoryTarget,
        action: str,
        plan: Plan,
        session: Session,
        writes: Sequence[MemoryWrite],
        undoes: int | None,
        reading: Reading | None,
    ) -> tuple[Result, Edit | Refusal, Result]:
        """Plan a change and store it. Return the result, the edit or its refusal, and further keys for the answer.

        Raises:
            NotesChanged: Another program changed the notes since they were read. Nothing was changed.
        """
        notice: Result = {}
        opened = self._open(target, session)
        if opened.notice:
            notice["notice"] = opened.notice
        edit = plan(opened.entries)
        if isinstance(edit, Refusal):
            return {}, edit, notice
        if reading is not None:
            # Not only those that the changes name: equal texts of another Unicode form go with them.
            for entry in opened.entries:
                if opened.is_pinned(entry) and entry not in edit.entries:
                    return {}, _pinned(target, entry), notice
        table = _CHANGED if edit.changes else _UNCHANGED
        count = len(writes) if action == "batch" else len(edit.changes)
        result: Result = {
            "success": True,
            "done": True,
            "target": target,
            "usage": str(NotesUsage(measure(edit.entries), self._settings.limits[target])),
            "entry_count": len(edit.entries),
            "message": table.get(action, _NOTHING).format(
                operations=counted(count, "operation"),
                changes=counted(count, "entry change"),
                entries=counted(count, "entry", "entries"),
            ),
            "note": _SAVED,
        }
        new = self._new_notes(opened, edit, bool(writes), session, reading)
        performed = self._performed(target, action, edit, writes, new, session, undoes)
        if isinstance(performed, Refusal):
            return {}, performed, notice
        waiting = sorted(
            {note.origin.origin for note in new.values() if not self._settings.may_command(note.origin)}
        )
        if waiting and performed:
            result |= {"origin": waiting[0], "note": _WAITS.format(origin=ORIGIN_NAMES[waiting[0]])}
        if (
            any(len(change.previous) > self._settings.limits[target] for change in edit.changes)
            and opened.data
        ):
            # A person made this entry larger than the limit of the file, perhaps without another copy.
            notice["drift_backup"] = self.places.view(opened.file.key).try_back_up(opened.data)
        if performed:
            if target == "project":
                self._remember_project(opened.file.key)
            notes = _notes_of(opened.file, edit.entries, PERSON, {}, new)
            if warning := self._commit(opened, notes, action, performed, undoes):
                result["warning"] = redact(warning)
        return result, edit, notice

    def _new_notes(
        self, opened: OpenFile, edit: Edit, is_written: bool, session: Session, reading: Reading | None
    ) -> dict[str, Note]:
        """Return the notes that an edit adds or brings back, by their text."""
        contents = [change.content for change in edit.changes if change.content]
        if not is_written:  # an undo, a restored version
            return {
                text: structs.replace(known, change=_NEW)
                if (known := opened.note(text) or self._last_gone(text))
                else Note(text, UNKNOWN, _NEW)
                for text in contents
            }
        previous = [note for change in edit.changes if (note := opened.file.note(change.previous))]
        origins = self._origins_of(contents, [note.origin for note in previous], session, reading)
        new = {text: self._new_note(opened, text, origin, reading) for text, origin in origins.items()}
        for change in edit.changes:  # a pinned entry that a person wrote anew stays pinned
            if change.content and opened.is_pinned(change.previous):
                note = new[change.content]
                new[change.content] = structs.replace(note, origin=structs.replace(note.origin, pinned=True))
        return new

    def _remember_project(self, key: str) -> None:
        """Store under which key the notes on the repository are, before a change of them.

        Raises:
            StorageError: Another machine keeps them under another key, which was not known when this program began.
        """
        if self.project is None or key != self.places.of_project(self.project.key).key:
            return  # the notes on another repository
        if with_notes_key(self.project, self._project_keys).key != self.project.key:
            raise StorageError(
                f"nothing was saved: another machine keeps the notes on {self.project.name!r} under an earlier address",
                "start this program again",
            )

    def _commit(
        self,
        opened: OpenFile,
        notes: Sequence[Note],
        action: str,
        writes: Sequence[MemoryWrite] = (),
        undoes: int | None = None,
    ) -> str:
        """Store a planned change and write the view. Return a warning if not all that should follow was done.

        Raises:
            NotesChanged: Another program changed the notes since they were read. Nothing was changed.
            StorageError: The change could not be stored.
        """
        warnings: list[str] = []
        self._store(opened.file, notes, action, opened.session, writes, undoes, warnings=warnings)
        if self._settings.mirror:
            after = structs.replace(opened.file, notes=tuple(notes), version=opened.file.version + 1)
            if after.text != opened.file.text and (warning := self._write_view(after, opened.data)):
                warnings.append(warning)
        return "; ".join(warnings)

    def _store(
        self,
        file: StoredFile,
        notes: Sequence[Note],
        action: str,
        session: Session,
        writes: Sequence[MemoryWrite] = (),
        undoes: int | None = None,
        *,
        before: StoredFile | None = None,
        view: Statement | None = None,
        warnings: list[str] | None = None,
    ) -> int:
        """Store notes, history and rows of the outbox in one transaction. Return the id of the change.

        Args:
            action: The action of the change; "" for none.
            before: What the history says was there before; default: `file`.
            view: Statement that stores that a view was seen; None for none.
            warnings: Gets a sentence if the outbox does not take a write.
        """
        after, change = [note.text for note in notes], 0
        told = writes if self._hooks.on_write is not None else ()
        provider = self._hooks.provider() if told else ""
        try:
            with self._database.transaction():
                if action:
                    # Of several writers the others wait at the first statement, and have little to undo.
                    statement = self.changes.add(
                        before or file, after, action, session, told, undoes, provider
                    )
                    claimed, [row] = self._database.batch([self._rows.claim(file), statement])
                    change = int(row[0])
                else:
                    [claimed] = self._database.batch([self._rows.claim(file)])
                if not claimed:
                    raise NotesChanged(f"{file.key} was changed by another program just now", "try again")
                new = [
                    structs.replace(note, change=change) if note.change == _NEW else note for note in notes
                ]
                statements = self._rows.replace(file, new)
                if action:
                    statements += self.changes.complete(file.key, change, undoes)
                if view is not None:
                    statements.append(view)
                if statements:
                    self._database.batch(statements)
                for write in told:
                    try:
                        self._tell(write, file.note(write.previous), session)
                    except OutboxError as exc:
                        log.warning("change %d of the notes is not in the outbox: %s", change, exc)
                        if warnings is not None:
                            warnings.append(f"{_NOT_ENQUEUED}: {exc}")
                        break  # a later one may replace what this one said
                if action:
                    self.changes.record_change(
                        file.key, change, action, (before or file).text, join_entries(after), session.id
                    )
        except CommitUnconfirmed:
            raise  # it is there, and lost with the primary
        except CommitInDoubt:
            if not change or not self._is_stored(change):
                raise
        return change

    def _is_stored(self, change: int) -> bool:
        with contextlib.suppress(StorageError):
            return self.changes.has(change)
        return False

    def _replace(self, file: StoredFile, notes: Sequence[Note]) -> None:
        """Store notes whose texts are the same, without a change in the history."""
        self._store(file, notes, "", self._local)

    def _tell(self, write: MemoryWrite, previous: Note | None, session: Session) -> bool:
        """Put a write into the outbox. Return False if no provider takes it.

        If the write replaces or removes an entry that another user wrote, store a removal for that user, and the new
        entry for the user of `session`.

        Raises:
            OutboxError: The outbox does not accept the write.
        """
        known = (
            self.changes.writer(previous.change) if previous and previous.change and session.primary else None
        )
        writer = known[0] if known else None
        # Some providers keep a separate memory for each user, others for each user and chat.
        if (
            writer is None
            or not writer.primary
            or (writer.owner, writer.chat_id) == (session.owner, session.chat_id)
        ):
            return self._enqueue(write, session)
        there = replace(writer, identity=session.identity, home=session.home)
        stored = self._enqueue(replace(write, action="remove", content=""), there)
        if not write.content:
            return stored
        new = replace(write, id=f"{write.id}-new", action="add", old_text="", previous="")
        return self._enqueue(new, session) and stored

    def _enqueue(self, write: MemoryWrite, session: Session) -> bool:
        if self._hooks.on_write is None:
            raise OutboxError("no memory provider takes it", "check the provider's state")
        return self._hooks.on_write(write, session) is not False

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
        new: Mapping[str, Note],
        session: Session,
        undoes: int | None,
    ) -> list[MemoryWrite] | Refusal:
        """Return the writes for the provider: the checked `writes` as they were carried out, or those of an undo or reset.

        The changes of an undo or reset are known only now, so observers are asked here. They may refuse a change, but not
        alter it.
        """
        performed: list[MemoryWrite] = []
        for change in edit.changes:
            origin: dict[str, str] = {"origin": new[change.content].origin.origin} if change.content else {}
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
            filtered = self._hooks.filter_write(restored, session) if self._hooks.filter_write else restored
            if filtered != restored:
                reason = (
                    filtered.reason if isinstance(filtered, Refused) else "it would be changed on the way"
                )
                return Refusal(f"An observer refused this write: {reason}")
            performed.append(restored)
        return performed

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
        stored = self.read() if reading is not None else None
        entries = stored.entries(target) if stored is not None else ()
        for write in writes:
            place = find(entries, write.old_text) if write.old_text else None
            if stored is not None and isinstance(place, int) and stored.origin_of(entries[place]).pinned:
                return self.refuse(_pinned(target, entries[place]), target, session)
        origins = self._origins_of([write.content for write in writes if write.content], (), session, reading)
        for count, write in enumerate(writes):
            origin = {"origin": origins[write.content]} if write.content else {}
            handed = replace(write, performed=False, metadata={**write.metadata, **origin})
            try:
                self._enqueue(handed, session)
            except (OutboxError, StorageError) as exc:
                part = (
                    f"{counted(count, 'operation is', 'operations are')} with the memory provider, counted from the "
                    "first: do not repeat that; the others were not"
                )
                refusal = Refusal(
                    f"{part if count else 'Nothing was'} saved: {exc.message}.", remedy=exc.remedy
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
        limit, view = self._settings.limits[target], self.places.view(self._files[target].key)
        data = view.read() if self._settings.mirror else None
        backup = view.try_back_up(data) if data else ""
        return Refusal(
            f"Refusing to write {view.name}: it holds an entry of {len(entry):,} characters, "
            f"more than the whole store ({limit:,}).",
            backup=backup,
            remedy=(
                f"Call memory with action 'remove' or 'replace' and target={target!r}, old_text={entry_handle(entry)!r}; "
                f"or split the entry in the file with lines that hold only '§'; or raise {LIMIT_SETTING[target]} "
                f"to {len(entry)} or more.{' The .bak file has a copy.' if backup else ''}"
            ),
        )

    def _keys(self, target: MemoryTarget | None) -> list[str]:
        return [file.key for name, file in self._files.items() if target in (None, name)]

    def _flag(self, target: MemoryTarget, entry: str) -> FlaggedEntry | None:
        return flag_entry(target, entry, self._settings.limits[target], self._scan)

    def _shown(self, target: MemoryTarget, entry: str, shorten: Callable[[str], str] = str) -> str:
        """Return the text of an entry for the model; for a flagged entry, return a placeholder."""
        flagged = self._flag(target, entry)
        return flagged.withheld if flagged else shorten(entry)


def _notes_of(
    file: StoredFile,
    entries: Sequence[str],
    origin: NoteOrigin = PERSON,
    origins: Mapping[str, NoteOrigin] | None = None,
    new: Mapping[str, Note] | None = None,
) -> tuple[Note, ...]:
    """Return these entries as notes: those of the file as they are, the others as new ones.

    An entry in the place of a pinned one stays pinned.

    Args:
        origin: Origin of the others.
        origins: Origins of some of them, by `entry_hash`.
        new: Notes for some of them, by their text.
    """
    left: dict[str, list[Note]] = {}
    for note in file.notes:
        left.setdefault(note.text, []).append(note)
    pinned = {
        after
        for before, after in replacements(file.entries, entries)
        if (known := file.note(before)) is not None and known.origin.pinned
    }
    notes = []
    for entry in entries:
        if left.get(entry):
            notes.append(left[entry].pop(0))
        elif new and entry in new:
            notes.append(new[entry])
        else:
            own = (origins or {}).get(entry_hash(entry), origin)
            notes.append(Note(entry, structs.replace(own, pinned=own.pinned or entry in pinned), _NEW))
    return tuple(notes)


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
