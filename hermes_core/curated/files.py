"""The files of one owner's notes: rows of the database, and views on disk that are made to agree with them.

Each look compares the view with the bytes that this program last saw there. Other bytes are an edit: the difference
becomes a change of the person who made it. A change by this program is one transaction: the notes with their origins,
the history, and what the provider is to be told. Then the view is written. If the program dies in between, the next look
writes it.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, structs

from hermes_core.contract.values import MemoryTarget, MemoryWrite, Origin, Session
from hermes_core.curated.base import SharedBase, origins_in_file, read_base
from hermes_core.curated.document import NoteFileContent, join_entries, parse_note_file, split_entries
from hermes_core.curated.edits import changed_ranges, merge, replacements
from hermes_core.curated.history import NoteHistory, change_key
from hermes_core.curated.hooks import NoteHooks
from hermes_core.curated.origins import NEW, PERSON, UNKNOWN, Note, NoteOrigin, entry_hash, normal_form
from hermes_core.curated.places import NotePlaces
from hermes_core.curated.project import ProjectKeys, Repository, earlier_keys, with_notes_key
from hermes_core.curated.rows import NoteRows, NotesChanged, StoredFile, place_of
from hermes_core.curated.stored import NoteSettings
from hermes_core.curated.view import EditedMeanwhile
from hermes_core.errors import LockTimeout, MemoryConflict, OutboxError, StorageError
from hermes_core.home import HermesHome
from hermes_core.safety.origin import as_origin, lowest, may_command
from hermes_core.storage.engine import CommitInDoubt, CommitUnconfirmed, Engine, RowConflict, Statement
from hermes_core.storage.inventory import lost_store

log = logging.getLogger(__name__)

Value = TypeVar("Value")

# Longest pause before a change is planned anew, so that writers of one note do not all come back at once.
_MAX_PAUSE_S = 0.02

# A view with an earlier text counts as an older one if it was written so long before the last change: an edit by hand
# that brings this text back comes after that. Clocks of file systems are behind by up to 10 ms.
_OLDER_BY_S = 1.0

_NOT_ENQUEUED = "Saved here, but the memory provider is not told of it"


# Sixty threads that plan at once would void each other's plans for longer than the timeout.
_RETRIES = threading.RLock()


class OpenFile(Struct, frozen=True):
    """File whose change is planned.

    Attributes:
        data: Bytes of the view; None if there is none.
        others: Notes of the owner's other files, with the origins of texts that may move between them.
        notice: Report of an edit by hand that was adopted since the last change.
    """

    file: StoredFile
    data: bytes | None
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


class PlannedChange(Struct, frozen=True):
    """Change of a file for its history.

    Attributes:
        action: The action of the change, see `NoteVersion`.
        writes: The writes for the provider.
        undoes: Id of the change that an undo reverts.
    """

    action: str
    session: Session
    writes: Sequence[MemoryWrite] = ()
    undoes: int | None = None


class NoteFiles:
    """The files of one owner's notes.

    A change is planned on a file that `open` returned, and stored by `commit` if no other program changed the file
    meanwhile; `until_unchanged` plans it anew otherwise.

    Args:
        database: The database of the home, which the caller closes.
        project: The repository of the working folder, whose PROJECT.md the person at home has; None for none.
        lock_timeout: Seconds in which a change is planned anew that others keep changing.
        lost_at: Time in epoch seconds at which a person accepted the loss of the database. Views that are older come
            back as data, since nobody knows any more where their entries came from.
    """

    def __init__(
        self,
        home: HermesHome,
        database: Engine,
        settings: NoteSettings,
        hooks: NoteHooks,
        project: Repository | None,
        *,
        lock_timeout: float,
        clock: Callable[[], float],
        lost_at: float,
    ) -> None:
        # Machines that share a database have views of their own, and folders of repositories.
        place = place_of(home, shared=database.shared)
        self._home, self._database, self._rows = home, database, NoteRows(database, clock, place)
        self.settings, self.hooks, self.clock = settings, hooks, clock
        self.changes = NoteHistory(database, clock)
        self.places = NotePlaces(home, self._rows)
        self._lock_timeout, self._lost_at = lock_timeout, lost_at
        self.owner = ""
        self._files = self.places.of_owner("")
        self._project_keys = ProjectKeys(database, home.memories / "projects", place.partition(":")[0])
        self.project = None if project is None else with_notes_key(project, self._project_keys)
        if self.project is not None:
            self._files["project"] = self.places.of_project(self.project.key)
        # Writes without a session, such as those of the command line, belong to the person at home.
        self.local = Session("local", home=str(home.path), identity=home.profile)
        # Reports of adopted edits, by file, for the answer to the next change.
        self._notices: dict[str, str] = {}

    def of(self, owner: str) -> NoteFiles:
        """Return the files of another owner, without those of a project."""
        own = copy.copy(self)
        own.owner, own.project, own._files = owner, None, self.places.of_owner(owner)
        return own

    def of_repository(self, key: str) -> NoteFiles:
        """Return these files with the PROJECT.md of a repository, by its `Repository.key`."""
        own = copy.copy(self)
        own._files = {**self._files, "project": self.places.of_project(key)}
        return own

    def with_settings(self, settings: NoteSettings) -> NoteFiles:
        """Return the same files under other settings."""
        own = copy.copy(self)
        own.settings = settings
        return own

    @property
    def targets(self) -> tuple[MemoryTarget, ...]:
        """The files of this owner, also those that are switched off."""
        return tuple(self._files)

    @property
    def enabled(self) -> tuple[MemoryTarget, ...]:
        """The files that are in use."""
        return tuple(target for target in self._files if target in self.settings.enabled)

    @property
    def keys(self) -> list[str]:
        """The names of all files in the database."""
        return [file.key for file in self._files.values()]

    def key(self, target: MemoryTarget) -> str:
        """Return the path of the view of a target below the folder of the notes, which is its name in the database."""
        return self._files[target].key

    # ---------------------------------------------------------------- reading

    def statement(self) -> Statement:
        """Return the statement that reads all files in use, for a read of more than the notes; see `read`."""
        return self._rows.statement([self._files[target] for target in self.enabled])

    def read(
        self, rows: Iterable[Any] | None = None
    ) -> tuple[dict[MemoryTarget, StoredFile], dict[MemoryTarget, MemoryConflict], bool]:
        """Read all files that are in use. An edit by hand is adopted first, if that can be stored.

        Return the files, the error of each that can't be used, and True if the database can't be read. The files are then
        what the views show.

        Args:
            rows: The rows of `statement`, if they were read just now.
        """
        targets, problems = self.enabled, dict[MemoryTarget, MemoryConflict]()
        files = {target: self._files[target] for target in targets}
        try:
            meant = list(files.values())
            stored = self._rows.read(meant) if rows is None else self._rows.stored(meant, rows)
        except StorageError as exc:
            if (
                not self._database.shared
            ):  # a server that is down comes back, and nothing of the session changes
                files = {target: self._from_view(file) for target, file in files.items()}
            for target in targets:
                fact = f"the notes {files[target].key!r} can't be read: {exc.message}"
                problems[target] = MemoryConflict(fact, exc.remedy)
            return files, problems, True
        files = dict(zip(targets, stored, strict=True))
        for target in targets if self.settings.mirror else ():
            try:
                files[target] = self._looked_at(files[target])
            except MemoryConflict as exc:
                log.warning("%s is left out: %s", files[target].key, exc)
                problems[target] = exc
        return files, problems, False

    def stored(self) -> list[StoredFile]:
        """Return all files as they are stored, without a look at the views."""
        return self._rows.read(list(self._files.values()))

    def base(self) -> SharedBase:
        """Read the shared base."""
        path = self.settings.shared_base
        return SharedBase() if path is None else read_base(path, self._home.memories / self.key("memory"))

    def last_gone(self, entry: str) -> Note | None:
        """Return an entry as it was when it was last taken away; None if it never was."""
        gone = self.changes.last_gone(self.keys, entry) if self._database.exists else None
        if gone is None or not gone.origin.confirmed:
            return gone
        # Whoever takes a note away takes its confirmation back.
        origin = structs.replace(gone.origin, origin=as_origin(gone.origin.confirmed), confirmed="")
        return structs.replace(gone, origin=origin)

    def _from_view(self, file: StoredFile) -> StoredFile:
        """Return what the view of a file shows, of which nobody knows the origins as the database can't be read."""
        with contextlib.suppress(MemoryConflict):
            data = self.places.view(file.key).read() if self.settings.mirror else None
            return structs.replace(file, notes=notes_of(file, parse_note_file(data or b"").entries, UNKNOWN))
        return file

    def _looked_at(self, file: StoredFile) -> StoredFile:
        """Return a file after a look at its view."""
        view = self.places.view(file.key)
        if file.is_shown_by(data := view.read()):
            return file
        if conflict := parse_note_file(data or b"").conflict:
            raise view.unreadable(conflict, "save it as UTF-8 text, or move it away")
        try:
            return self._synchronise(file, self.local).file
        except NotesChanged:
            return self._looked_at(self._rows.read([file])[0])
        except StorageError as exc:
            # A home that is only read: what the person wrote counts, and is stored later.
            view.warn("and the notes can't be made to agree", exc)
            if data is None or file.was_shown_by(data):
                return file
            origin = UNKNOWN if lost_store(self._home.state_db) else PERSON
            return structs.replace(file, notes=notes_of(file, parse_note_file(data).entries, origin))

    def earlier_projects(self) -> list[str]:
        """Return the keys of earlier notes on the repository, in no prompt since its new address had notes already.

        Raises:
            StorageError: The database can't be read.
        """
        if self.project is None:
            return []
        known = earlier_keys(self.project, self._project_keys.read(self.project))
        return [key for key in known if self.of_repository(key).read()[0]["project"].notes]

    # ---------------------------------------------------------------- the views

    def open(self, target: MemoryTarget, session: Session) -> OpenFile:
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
        opened = self._synchronise(file, session) if self.settings.mirror else OpenFile(file, None)
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
            return OpenFile(file, data)
        # A view that is gone, or as it was before a change whose program died, is written again. So is an older one that
        # was never seen here, or that a backup put in place of a newer one.
        is_older = (
            data is not None
            and (not file.seen or view.written_at() < file.changed_at - _OLDER_BY_S)
            and not parse_note_file(data).conflict
            and self.changes.had_text(file, _text_in(data))
        )
        if data is None or file.was_shown_by(data) or is_older:
            self._write_view(file, data)
            return OpenFile(file, view.read())
        if file.view_text.encode() == data:  # written by a program that died before it could say so
            self._database.batch([self._rows.set_view(file, data, file.text)])
            return OpenFile(file, data)
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
            return OpenFile(file, view.read())
        emptied = bool(file.notes) and not parsed.entries
        copy = None
        if emptied or not parsed.canonical:
            copy = view.back_up(file.text.encode() if emptied else data)
        origin, known = self._origins_of_view(file)
        notes = notes_of(file, after, origin, known | waiting_origins(parsed))
        # A file of another program that is met for the first time, in the layout of ours, is no edit.
        is_first = not file.version and parsed.canonical
        change, _ = self.store(
            file,
            notes,
            None if is_first else PlannedChange("edit", session),
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
        return OpenFile(stored, view.read())

    def _origins_of_view(self, file: StoredFile) -> tuple[NoteOrigin, dict[str, NoteOrigin]]:
        """Return the origin of entries that are new in the view of a file, and those of some of them by `entry_hash`."""
        if self._lost_at and self.places.view(file.key).written_at() < self._lost_at:
            return UNKNOWN, {}
        if file.version or not self._database.shared:
            return NoteOrigin("person", self.clock() if file.version else 0.0), {}
        # A home whose notes were in files, and that was pointed at a server without a move.
        try:
            known = origins_in_file(self._home, file.key)
        except StorageError as exc:
            log.warning(
                "the entries of %s wait for a person, since it is not known whose they are: %s", file.key, exc
            )
            return UNKNOWN, {}
        return PERSON, {entry_hash(text): origin for text, origin in known.items()}

    def _write_view(self, file: StoredFile, expected: bytes | None) -> str:
        """Write the view of stored notes. Return a warning if it can't be written: the next look tries again."""
        view = self.places.view(file.key)
        if not file.text and expected is None:
            return ""
        try:
            with self._database.transaction():
                # The view of a version that is not the newest would pass for an edit by hand.
                if self._rows.lock(file):
                    data = view.write(file.view_text, expected)
                    self._database.execute(*self._rows.set_view(file, data, file.text))
        except EditedMeanwhile as exc:
            log.info("%s: %s; the next look adopts it", view.path, exc)
        except (StorageError, MemoryConflict) as exc:
            view.warn("is not as the notes are", exc)
            return f"Saved, but {view.name} can't be written: {exc}"
        return ""

    # ---------------------------------------------------------------- writing

    def until_unchanged(self, write: Callable[[], Value]) -> Value:
        """Call `write`, which plans a change and stores it, again as long as another program is quicker.

        Raises:
            LockTimeout: Others changed the notes again and again for longer than the timeout.
        """
        until = time.monotonic() + self._lock_timeout
        lock: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        while True:
            try:
                with lock:
                    return write()
            except (NotesChanged, RowConflict) as exc:
                if time.monotonic() >= until:
                    raise LockTimeout(
                        f"other programs changed the notes for more than {self._lock_timeout:g} s, each time before "
                        "this change was stored",
                        "nothing was changed: try again",
                    ) from exc
            lock = _RETRIES
            time.sleep(random.uniform(0, _MAX_PAUSE_S))

    def commit(self, opened: OpenFile, notes: Sequence[Note], change: PlannedChange) -> str:
        """Store a planned change and write the view. Return a warning if not all that should follow was done.

        Raises:
            NotesChanged: Another program changed the notes since they were read. Nothing was changed.
            StorageError: The change could not be stored.
        """
        file = opened.file
        self._keep_project(file.key)
        _, warning = self.store(file, notes, change)
        if not self.settings.mirror:
            return warning
        after = structs.replace(file, notes=tuple(notes), version=file.version + 1)
        written = self._write_view(after, opened.data) if after.view_text != file.view_text else ""
        return "; ".join(filter(None, (warning, written)))

    def _keep_project(self, key: str) -> None:
        """Store under which key the notes on the repository are, before a change of them.

        Raises:
            StorageError: Another machine keeps them under another key, which was not known when this program began.
        """
        if self.project is None or key != self.places.of_project(self.project.key).key:
            return  # other notes
        if with_notes_key(self.project, self._project_keys).key != self.project.key:
            raise StorageError(
                f"nothing was saved: another machine keeps the notes on {self.project.name!r} under an earlier address",
                "start this program again",
            )

    def store(
        self,
        file: StoredFile,
        notes: Sequence[Note],
        change: PlannedChange | None = None,
        *,
        before: StoredFile | None = None,
        view: Statement | None = None,
    ) -> tuple[int, str]:
        """Store notes, history and rows of the outbox in one transaction, without their view.

        Return the id of the change, and a warning if the outbox does not take it.

        Args:
            change: The change for the history; None for one without trace there, which changes no text.
            before: What the history says was there before; default: `file`.
            view: Statement that stores that a view was seen; None for none.
        """
        told = change.writes if change is not None and self.hooks.on_write is not None else ()
        provider = self.hooks.provider() if told else ""
        after, number, warning = [note.text for note in notes], 0, ""
        statements = [self._rows.claim(file)]
        if change is not None:
            # Of several writers the others wait at the first statement, and have little to undo.
            session, undoes = change.session, change.undoes
            statements.append(
                self.changes.add(before or file, after, change.action, session, told, undoes, provider)
            )
        try:
            with self._database.transaction():
                claimed, *added = self._database.batch(statements)
                if not claimed:
                    raise NotesChanged(f"{file.key} was changed by another program just now", "try again")
                number = int(added[0][0][0]) if added else 0
                statements = self._rows.replace(
                    file,
                    [structs.replace(note, change=number) if note.change == NEW else note for note in notes],
                )
                if change is not None:
                    statements += self.changes.complete(file.key, number, change.undoes)
                if view is not None:
                    statements.append(view)
                if statements:
                    self._database.batch(statements)
                if change is not None:
                    warning = self._tell(file, told, number, change.session)
                    self.changes.record_change(
                        file.key,
                        number,
                        change.action,
                        (before or file).text,
                        join_entries(after),
                        change.session.id,
                    )
        except CommitUnconfirmed:
            raise  # it is there, and lost with the primary
        except CommitInDoubt:
            if not number or not self._is_stored(number):
                raise
        return number, warning

    def _tell(self, file: StoredFile, writes: Iterable[MemoryWrite], change: int, session: Session) -> str:
        """Put the writes of a change into the outbox. Return a warning if it does not take them."""
        for write in writes:
            try:
                self.hooks.tell_change(write, file.note(write.previous), session, self.changes)
            except OutboxError as exc:  # a later write may replace what this one said
                log.warning("change %d of the notes is not in the outbox: %s", change, exc)
                return f"{_NOT_ENQUEUED}: {exc}"
        return ""

    def _is_stored(self, change: int) -> bool:
        with contextlib.suppress(StorageError):
            return self.changes.has(change)
        return False

    def set_origins(
        self,
        change: Callable[[Note], NoteOrigin],
        event: str = "",
        texts: frozenset[str] | None = None,
        target: MemoryTarget | None = None,
    ) -> None:
        """Change the origins of notes, and record an event for each text whose origin is another one then.

        Args:
            event: Kind of the event; "" for none.
            texts: The texts of the notes; None for all.
            target: The file; None for all in use.
        """
        files = [self._files[name] for name in self.enabled if target in (None, name)]
        changed: set[str] = set()
        views: list[StoredFile] = []
        with self._database.transaction():
            for file in self._rows.read(files):
                notes = [
                    structs.replace(note, origin=change(note))
                    if texts is None or note.text in texts
                    else note
                    for note in file.notes
                ]
                if notes != list(file.notes):
                    self.store(file, notes)
                    after = structs.replace(file, notes=tuple(notes), version=file.version + 1)
                    views += [after] if after.view_text != file.view_text and self.settings.mirror else []
                    changed.update(
                        note.text for note, old in zip(notes, file.notes, strict=True) if note != old
                    )
            for text in sorted(changed) if event else ():
                self.changes.record(event, entry_hash(text))
        for file in views:
            data = self.places.view(file.key).read()
            if data is not None and file.was_shown_by(data):
                self._write_view(file, data)

    # ---------------------------------------------------------------- whole files

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

        def take_in() -> tuple[int, int]:
            file = self.open(target, self.local).file
            known = {change_key(change) for change in self.changes.portable(file.key)}
            earlier = [change for change in changes if change_key(change) not in known]
            new = [structs.replace(note, change=NEW) for note in notes if note.text not in file.entries]
            if new or earlier:
                after = (*file.notes, *new)
                text = join_entries([note.text for note in after])
                # A history that ends with the notes as they are says all. Else the import is a change of its own.
                is_whole = not (known or file.notes) and bool(earlier) and earlier[-1]["after"] == text
                with self._database.transaction():
                    self.changes.take_in(earlier)
                    self.store(file, after, None if is_whole else PlannedChange("import", self.local))
            return len(new), len(earlier)

        counts = self.until_unchanged(take_in)
        self.read()  # writes the view
        return counts

    def prune(self) -> int:
        """Delete the history and all backup copies of the notes. Return the number of deleted changes and copies.

        The deleted changes can't be undone any more.
        """
        deleted = 0
        for key in self.keys:
            deleted += self.changes.prune(key) if self._database.exists else 0
            deleted += self.places.view(key).drop_backups()
        if deleted and not self._database.shared:
            # The write-ahead log holds the deleted pages until a checkpoint truncates it.
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return deleted

    def delete(self) -> None:
        """Delete the rows of the notes of a user: texts, origins and history. Views are the caller's."""
        if self.owner and self._database.exists:
            self._rows.delete(self.keys)


def notes_of(
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
        left.setdefault(normal_form(note.text), []).append(note)
    beside = {} if new else _changed_beside_waiting(file, entries)
    pinned = {
        after
        for before, after in replacements(file.entries, entries)
        if (known := file.note(before)) is not None and known.origin.pinned
    }
    notes = []
    for entry in entries:
        if same := left.get(normal_form(entry)):
            place = next((at for at, note in enumerate(same) if note.text == entry), 0)
            known = same.pop(place)
            notes.append(known if known.text == entry else structs.replace(known, text=entry))
        elif new and entry in new:
            notes.append(new[entry])
        else:
            own = (origins or {}).get(entry_hash(entry), origin)
            own = structs.replace(own, origin=lowest([own.origin, *beside.get(entry, ())]))
            notes.append(Note(entry, structs.replace(own, pinned=own.pinned or entry in pinned), NEW))
    return tuple(notes)


def waiting_origins(content: NoteFileContent) -> dict[str, NoteOrigin]:
    """Return the origins of the entries that a file itself names as waiting, by `entry_hash`."""
    return {entry_hash(entry): UNKNOWN for entry in content.waiting}


def _changed_beside_waiting(file: StoredFile, entries: Sequence[str]) -> dict[str, list[Origin]]:
    """Return the origins of waiting notes in whose place, or beside which, an edit of the whole text changed an entry.

    An editor may join a note with its neighbour, or split it.
    """
    forms = [normal_form(note.text) for note in file.notes]
    low = [None if may_command(note.origin.origin) else note.origin.origin for note in file.notes]
    near_origins: dict[str, list[Origin]] = {}
    if not any(low):
        return near_origins
    for start, end, changed in changed_ranges(forms, [normal_form(entry) for entry in entries]):
        # A new entry between two others changes neither.
        near = low[max(start - 1, 0) : end + 1] if end > start else []
        for form in changed:
            near_origins.setdefault(form, []).extend(origin for origin in near if origin)
    return {
        entry: near_origins[normal_form(entry)] for entry in entries if normal_form(entry) in near_origins
    }


def _text_in(data: bytes) -> str:
    """Return the text of the entries in a view of this program; that of the whole file in another layout."""
    parsed = parse_note_file(data)
    return join_entries(parsed.entries) if parsed.canonical else data.decode("utf-8")
