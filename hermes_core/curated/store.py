"""The notes of one owner: MEMORY.md, USER.md and PROJECT.md, and every change that a model or a person makes of them."""

from __future__ import annotations

import contextlib
import copy
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs

from hermes_core.contract.values import ORIGIN_NAMES, MemoryTarget, MemoryWrite, Refused, Session
from hermes_core.curated.answers import (
    NOTHING,
    WAITS,
    RefusalCounter,
    Result,
    answer,
    caution,
    handed_on,
    taken_away,
)
from hermes_core.curated.document import NotesUsage, entries_for_model, measure, parse_note_file
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
    reverse,
)
from hermes_core.curated.files import NoteFiles, PlannedChange, notes_of, waiting_origins
from hermes_core.curated.history import MAX_ID, NoteVersion
from hermes_core.curated.hooks import NoteHooks
from hermes_core.curated.origins import Note, NoteOrigin, entry_hash
from hermes_core.curated.places import MAX_REMEMBERED
from hermes_core.curated.profile import field_operation
from hermes_core.curated.project import Repository
from hermes_core.curated.rows import NotesChanged
from hermes_core.curated.stored import NoteSettings, StoredNotes
from hermes_core.curated.vetting import (
    LIMIT_SETTING,
    NoteScan,
    is_low,
    new_notes,
    new_origins,
    open_notes,
    pinned,
    returning_notes,
    too_large,
    vetted_write,
)
from hermes_core.errors import ConfigError, MemoryConflict, OutboxError, StorageError
from hermes_core.home import HermesHome
from hermes_core.safety.origin import Reading, may_command, origin_of_text
from hermes_core.safety.redact import redact
from hermes_core.safety.terminal import counted
from hermes_core.storage.engine import Engine
from hermes_core.storage.files import LOCK_TIMEOUT

if TYPE_CHECKING:
    from hermes_core.safety.scan import Scan

TARGETS: tuple[MemoryTarget, ...] = ("memory", "user")

ENABLE_SETTING: Mapping[MemoryTarget, str] = {
    "memory": "memory.memory_enabled",
    "user": "memory.user_profile_enabled",
    "project": "memory.project",
}

Plan = Callable[[tuple[str, ...]], Edit | Refusal]
"""Function that gets the entries as they are stored, and returns the edited entries or a refusal."""


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
        lost_at: Time in epoch seconds at which a person accepted the loss of the database.

    Attributes:
        files: The files of the owner, as rows and views.
        changes: Their history.
        places: The files of all owners of the home.

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
        settings = settings or NoteSettings()
        for target, limit in settings.limits.items():
            if limit < 1:
                raise ConfigError(
                    f"{LIMIT_SETTING[target]} is {limit!r}", "give a number of characters above 0"
                )
        self.files = NoteFiles(
            home,
            database,
            settings,
            hooks or NoteHooks(),
            project,
            lock_timeout=lock_timeout,
            clock=clock,
            lost_at=lost_at,
        )
        self.changes, self.places = self.files.changes, self.files.places
        self._remember_owners()
        self._scan = NoteScan(home, scan)
        self._refusals = RefusalCounter()

    def of(self, session: Session | None) -> Notes:
        """Return the notes of the owner of `session`. With `per_user`, both files are this owner's own."""
        owner = session.owner if session is not None and self.settings.per_user else ""
        return self._of_owner(owner) if owner else self

    def _remember_owners(self) -> None:
        # Settings and files stay the same, so that the turns of one user share an object.
        self._of_owner = lru_cache(MAX_REMEMBERED)(lambda owner: self._with(self.files.of(owner)))

    def of_repository(self, key: str) -> Notes:
        """Return the notes of the person at home with the PROJECT.md of a repository, by its `Repository.key`."""
        return self._with(self.files.of_repository(key))

    def with_settings(self, settings: NoteSettings) -> Notes:
        """Return the same notes under other settings."""
        own = self._with(self.files.with_settings(settings))
        own._remember_owners()
        return own

    def _with(self, files: NoteFiles) -> Notes:
        # A shallow copy: scan, database and refusals are shared.
        own = copy.copy(self)
        own.files = files
        return own

    @property
    def settings(self) -> NoteSettings:
        """The settings of the notes of the home."""
        return self.files.settings

    @property
    def enabled_targets(self) -> tuple[MemoryTarget, ...]:
        """The files that are in use."""
        return self.files.enabled

    # ---------------------------------------------------------------- reading

    def read(self, rows: Iterable[Any] | None = None) -> StoredNotes:
        """Read all files that are in use. An edit by hand is adopted first, if that can be stored.

        Args:
            rows: The rows of `files.statement`, if they were read just now.
        """
        files, problems, unreachable = self.files.read(rows)
        return StoredNotes(
            files,
            problems,
            self.settings,
            unreachable=unreachable,
            base=self.files.base(),
            project=self.files.project.key if self.files.project is not None else "",
            scan=self._scan.first_threat,
            allows=self._scan.allows,
            gone=self.files.last_gone,
        )

    def entries(self, target: MemoryTarget) -> tuple[str, ...]:
        """Return all entries of a file, including flagged ones.

        Raises:
            MemoryConflict: The file can't be used.
        """
        return self.read().entries(target)

    def history(
        self, target: MemoryTarget | None = None, limit: int = 50, *, before: int | None = None
    ) -> list[NoteVersion]:
        """Return at most `limit` changes of the notes, newest first.

        Args:
            before: Only changes before the one with this id; None for all.
        """
        keys = self.files.keys if target is None else [self.files.key(target)]
        return list(islice(self.changes.versions(keys, before=before), limit))

    def version(self, change: int) -> NoteVersion | None:
        """Return the change with this id; None if the history of these notes does not have it."""
        newest = next(iter(self.history(limit=1, before=min(change, MAX_ID - 1) + 1)), None)
        return newest if newest is not None and newest.id == change else None

    # ---------------------------------------------------------------- what a person decides

    def confirm(self, entries: Sequence[str], event: str = "confirm") -> None:
        """Store that a person read exactly these texts and lets them stand in the system prompt.

        No tool of a model may call this.

        Args:
            event: Kind of the event in the record.
        """
        now = self.files.clock()

        def confirmed(note: Note) -> NoteOrigin:
            before = note.origin
            known = before.confirmed or before.origin
            return structs.replace(before, origin="person", at=now, confirmed=known, turn="")

        self.files.until_unchanged(lambda: self.files.set_origins(confirmed, event, frozenset(entries)))

    def settle(
        self, turns: Collection[str], reading: Reading, *, is_known: bool = True, lowers: str = ""
    ) -> None:
        """Store the origin of the notes that a model wrote in a turn, now that the turn has ended well.

        Args:
            turns: Ids of the turn.
            reading: What the model had read in it.
            is_known: False if the messages of the turn do not show that. Then only what the person states stops waiting.
            lowers: Id of a session whose earlier notes have the origin too, because a result came late; "" for none.
        """
        inside = reading.in_scope_of(self.files.owner)

        def is_meant(note: Note) -> bool:
            origin = note.origin
            late = origin.origin == "assistant" and origin.session == lowers
            return late or bool(origin.turn and origin.turn in turns)

        def settled(note: Note) -> NoteOrigin:
            origin = origin_of_text(note.text, inside) if is_meant(note) else None
            if origin is None or not (is_known or may_command(origin)):
                return note.origin
            return structs.replace(note.origin, origin=origin, turn="")

        for file in self.files.stored() if reading.judge is not None else ():
            for note in filter(is_meant, file.notes):
                refused = self._scan.refusal_of("memory", note.text, is_low=True)
                if refused is None and not may_command(origin_of_text(note.text, inside)):
                    inside.consult(note.text)
                if judge := inside.judge_of(note.text):
                    self.changes.record("judge", entry_hash(note.text), judge=judge)
        self.files.until_unchanged(lambda: self.files.set_origins(settled))

    def pin(self, target: MemoryTarget, old_text: str, *, on: bool = True) -> Result:
        """Let only a person change or remove the entry that `old_text` identifies, or take that back.

        A pinned entry stands first in the system prompt. No tool of a model may call this.

        Args:
            old_text: A fragment, the whole text or the handle of exactly one entry.
            on: False to unpin the entry.
        """
        files = self.files
        if off := self._off(target):
            return self.refuse(off, target)

        def write() -> str | Refusal:
            entries = files.open(target, files.local).entries
            place = find(entries, old_text)
            if isinstance(place, Refusal):
                return place
            entry = entries[place]
            files.set_origins(
                lambda note: structs.replace(note.origin, pinned=on),
                "pin" if on else "unpin",
                frozenset({entry}),
                target,
            )
            return entry

        entry = files.until_unchanged(write)
        if isinstance(entry, Refusal):
            return self.refuse(entry, target)
        message = "Entry pinned: only you can change or remove it." if on else "Entry no longer pinned."
        return {"success": True, "done": True, "target": target, "message": message, "entry": entry}

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
        files, who = self.files, session or self.files.local
        if off := self._off(target):
            return self.refuse(off, None, who)
        written = parse_note_file(text.encode("utf-8", "surrogatepass"))
        if written.conflict:
            return {"success": False, "error": f"Nothing was changed: {written.conflict}."}

        def edit() -> Result:
            opened = files.open(target, who)
            notice = {"notice": opened.notice} if opened.notice else {}
            after = merge(tuple(base), written.entries, opened.entries)
            if after is None:
                error = "Nothing was changed: the same entry was changed by another program meanwhile."
                return {"success": False, "conflict": True, "error": error} | notice
            before, now = Counter(opened.entries), Counter(after)
            result: Result = {
                "success": True,
                "target": target,
                "usage": str(NotesUsage(measure(after), self.settings.limits[target])),
                "entry_count": len(after),
                "message": NOTHING,
            }
            if after != opened.entries:
                added, removed = (now - before).total(), (before - now).total()
                result["message"] = f"Edited: {added} added, {removed} removed."
                own = NoteOrigin("person", files.clock(), who.id)
                notes = notes_of(opened.file, after, own, {**(origins or {}), **waiting_origins(written)})
                if warning := files.commit(opened, notes, PlannedChange(action, who)):
                    result["warning"] = redact(warning)
            gone = Edit(after, tuple(NoteChange(0, "remove", "", entry) for entry in before - now))
            return result | caution(gone) | notice

        try:
            return files.until_unchanged(edit)
        except MemoryConflict as exc:
            return self.refuse(Refusal(exc.message, remedy=exc.remedy, backup=exc.backup), target, who)

    # ---------------------------------------------------------------- writing

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
        return self.files.until_unchanged(lambda: self._set_profile(values, session, reading))

    def _set_profile(
        self, values: Mapping[str, Any], session: Session | None, reading: Reading | None
    ) -> Result:
        stored = self.read()
        entries = stored.entries("user")
        operation = field_operation(entries, values, self.settings.profile_fields)
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
        if reading is not None or self.settings.may_command(NoteOrigin(origin, 1.0)):
            return self.write("user", [operation], session, reading=reading, expected=entries)
        # The person set one field, and has not confirmed the others, which stand in the same entry.
        result = self.write("user", [operation], session, reading=Reading(origin), expected=entries)
        if result.get("success"):
            result["notice"] = (
                f"The other fields come from {ORIGIN_NAMES[origin]}, so they wait: hermes-memory review."
            )
        return result

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
        files, who = self.files, session or self.files.local
        if off := self._off(target):
            return self.refuse(off, None, who)
        suppressed = files.hooks.is_suppressed(target)
        limit = self.settings.limits[target]
        writes: list[MemoryWrite] = []
        low_texts: list[str] = []
        for index, operation in enumerate(operations):
            asked = MemoryWrite(
                str(uuid.uuid4()), operation.action, target, operation.content, operation.old_text
            )
            write = vetted_write(files, asked, who, None if suppressed else limit)
            if isinstance(write, MemoryWrite):
                low = is_low(files, write.content, who, reading)
                low_texts += [write.content] if low else []
                write = self._scan.refusal_of(target, write.content, is_low=low) or write
            if isinstance(write, Refusal):
                return self.refuse(in_batch(write, index, operation) if batch else write, target, who)
            writes.append(write)
        if not writes:
            return self.refuse(Refusal("operations list is empty."), target, who)
        if reading is not None:  # a text that gives orders was refused before
            for text in low_texts:
                reading.consult(text)
        if suppressed:
            return self._hand_on(target, writes, who, reading)
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
                    return too_large(files, target, entry)
            for change in edit.changes:
                # A person added to this entry by hand. A fragment of it does not show that the caller has seen that.
                old_text = writes[change.operation].old_text
                if len(change.previous) > limit and not names_entry(old_text, change.previous):
                    return too_large(files, target, change.previous)
            return (
                self._scan.refusal_beside(edit)
                or over_budget(entries, edit, requests, limit, batch=batch)
                or edit
            )

        change = PlannedChange("batch" if batch else operations[0].action, who, writes)
        # A caller who expects entries plans anew.
        return self._change(target, plan, change, reading, once=expected is not None)

    def _hand_on(
        self, target: MemoryTarget, writes: Sequence[MemoryWrite], session: Session, reading: Reading | None
    ) -> Result:
        """Put writes into the outbox that only the provider keeps, without a change of the file.

        If a write can't be stored, return a refusal, because the write would be lost.
        """
        stored = self.read() if reading is not None else None
        entries = stored.entries(target) if stored is not None else ()
        for write in writes:
            place = find(entries, write.old_text) if write.old_text else None
            if stored is not None and isinstance(place, int) and stored.origin_of(entries[place]).pinned:
                return self.refuse(pinned(target, entries[place]), target, session)
        contents = [write.content for write in writes if write.content]
        origins = new_origins(self.files.owner, contents, (), session, reading)
        for count, write in enumerate(writes):
            origin = {"origin": origins[write.content]} if write.content else {}
            handed = replace(write, performed=False, metadata={**write.metadata, **origin})
            try:
                self.files.hooks.tell(handed, session)
            except (OutboxError, StorageError) as exc:
                part = (
                    f"{counted(count, 'operation is', 'operations are')} with the memory provider, counted from the "
                    "first: do not repeat that; the others were not"
                )
                fact = f"{part if count else 'Nothing was'} saved: {exc.message}."
                return self.refuse(Refusal(fact, remedy=exc.remedy), target, session)
        self._refusals.reset(session)
        return handed_on(target, len(writes))

    def reset(
        self, target: MemoryTarget, *, session: Session | None = None, reading: Reading | None = None
    ) -> Result:
        """Remove all entries of a file. `undo` can restore them.

        Args:
            reading: What the model that calls this has read; None if a person calls it.
        """

        def plan(entries: tuple[str, ...]) -> Edit:
            return Edit((), tuple(NoteChange(0, "remove", "", entry) for entry in entries))

        return self._restore(target, plan, PlannedChange("reset", session or self.files.local), reading)

    def undo(
        self, change: int | None = None, *, target: MemoryTarget | None = None, session: Session | None = None
    ) -> Result:
        """Undo the change with this id; default: the newest change.

        An undo is a change too, and can be undone by its id.

        Later changes of other entries stay. The limit does not apply, so that a removed entry can always be
        restored.
        """
        self.read()  # an edit by hand that nobody has looked at is the newest change
        keys = self.files.keys if target is None else [self.files.key(target)]
        for version in self.changes.versions(keys):
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

        undo = PlannedChange("undo", session or self.files.local, undoes=version.id)
        return self._restore(version.target, plan, undo)

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

        return self._restore(version.target, plan, PlannedChange("restore", session or self.files.local))

    def _restore(
        self, target: MemoryTarget, plan: Plan, change: PlannedChange, reading: Reading | None = None
    ) -> Result:
        """Commit an undo or a reset. The scan and observers may refuse it; the limit does not apply."""
        if off := self._off(target):
            return self.refuse(off, None, change.session)
        view = self.places.view(self.files.key(target)).name

        def scanned(entries: tuple[str, ...]) -> Edit | Refusal:
            edit = plan(entries)
            changes = edit.changes if isinstance(edit, Edit) else ()
            refusals = (self._scan.refusal_of_old(one.content, view) for one in changes if one.content)
            return next(filter(None, refusals), edit)

        return self._change(target, scanned, change, reading)

    # ---------------------------------------------------- steps of a write

    def _change(
        self,
        target: MemoryTarget,
        plan: Plan,
        change: PlannedChange,
        reading: Reading | None,
        *,
        once: bool = False,
    ) -> Result:
        """Open a file, call `plan` with its entries, and store the edited entries. Return the result of the call.

        Args:
            plan: Returns the edited entries or a refusal.
            change: The change with the checked writes of the call, one for each operation. Undo and reset have none:
                their writes are made from what `plan` returns.
            once: True to raise `NotesChanged` instead of planning anew, if another program was quicker.
        """

        def write() -> Result:
            opened = self.files.open(target, change.session)
            notice: Result = {"notice": opened.notice} if opened.notice else {}
            edit = plan(opened.entries)
            if isinstance(edit, Refusal):
                return self.refuse(edit, target, change.session) | notice
            if reading is not None:
                # Not only those that the changes name: equal texts of another Unicode form go with them.
                for entry in opened.entries:
                    if opened.is_pinned(entry) and entry not in edit.entries:
                        return self.refuse(pinned(target, entry), target, change.session) | notice
            limit = self.settings.limits[target]
            result = answer(target, change.action, edit, limit, len(change.writes))
            if change.writes:
                new = new_notes(self.files, opened, edit, change.session, reading)
            else:
                new = returning_notes(self.files, opened, edit)
            writes = self._performed(target, edit, change, new, reading)
            if isinstance(writes, Refusal):
                return self.refuse(writes, target, change.session) | notice
            if any(len(one.previous) > limit for one in edit.changes) and opened.data:
                # A person made this entry larger than the limit of the file, perhaps without another copy.
                notice["drift_backup"] = self.places.view(opened.file.key).try_back_up(opened.data)
            if writes:
                origins = {
                    note.origin.origin for note in new.values() if not self.settings.may_command(note.origin)
                }
                if origins:
                    first = min(origins)
                    result |= {"origin": first, "note": WAITS.format(origin=ORIGIN_NAMES[first])}
                notes = notes_of(
                    opened.file,
                    edit.entries,
                    new=open_notes(new, reading.turn if reading is not None else ""),
                )
                if warning := self.files.commit(opened, notes, structs.replace(change, writes=writes)):
                    result["warning"] = redact(warning)
            self._refusals.reset(change.session)
            gone = taken_away(edit, lambda entry: self._shown(target, entry), listed=bool(change.writes))
            return result | gone | notice

        try:
            return write() if once else self.files.until_unchanged(write)
        except MemoryConflict as exc:
            refusal = Refusal(exc.message, remedy=exc.remedy, backup=exc.backup)
            return self.refuse(refusal, target, change.session)

    def _performed(
        self,
        target: MemoryTarget,
        edit: Edit,
        planned: PlannedChange,
        new: Mapping[str, Note],
        reading: Reading | None,
    ) -> list[MemoryWrite] | Refusal:
        """Return the writes for the provider: the checked ones as they were carried out, or those of an undo or reset.

        The changes of an undo or reset are known only now, so observers are asked here. They may refuse a change, but not
        alter it.
        """
        performed: list[MemoryWrite] = []
        for change in edit.changes:
            origin: dict[str, str] = {"origin": new[change.content].origin.origin} if change.content else {}
            if reading is not None and (judge := reading.judge_of(change.content)):
                origin["judge"] = judge
            if planned.writes:
                vetted = planned.writes[change.operation]
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
            undoes = {"undoes": str(planned.undoes)} if planned.undoes else {}
            restored = MemoryWrite(
                str(uuid.uuid4()),
                change.action,
                target,
                change.content,
                old_text=change.previous,
                previous=change.previous,
                metadata={"cause": planned.action, **origin, **undoes},
            )
            verdict = self.files.hooks.vetted(restored, planned.session)
            if verdict != restored:
                changed = "it would be changed on the way"
                reason = verdict.reason if isinstance(verdict, Refused) else changed
                return Refusal(f"An observer refused this write: {reason}")
            performed.append(restored)
        return performed

    def start_turn(self, session: Session | None = None) -> None:
        """Set the number of refusals of this session to 0."""
        self._refusals.reset(session or self.files.local)

    def refuse(self, refusal: Refusal, target: MemoryTarget | None, session: Session | None = None) -> Result:
        """Return the result for a refused call.

        After too many refusals in one turn, the result tells the model to stop.
        """
        if stop := self._refusals.add(session or self.files.local, refusal.reason):
            return {"success": False, "done": True, "error": redact(stop)}
        result: Result = {"success": False, "error": redact(refusal.reason)}
        if target and refusal.matches:
            result["matches"] = [self._shown(target, entry, preview) for entry in refusal.matches]
        if target and refusal.show_entries:
            with contextlib.suppress(MemoryConflict):
                entries, limit = self.entries(target), self.settings.limits[target]
                scan = self._scan.first_threat
                result["current_entries"] = entries_for_model(target, entries, limit, scan, withheld=True)
                result["usage"] = f"{measure(entries):,}/{limit:,}"
        if refusal.backup:
            result["drift_backup"] = refusal.backup
        if refusal.remedy:
            result["remediation"] = redact(refusal.remedy)
        if refusal.for_person:
            result["for_person"] = redact(refusal.for_person)
        return result

    def _shown(self, target: MemoryTarget, entry: str, shorten: Callable[[str], str] = str) -> str:
        return self._scan.shown(target, entry, self.settings.limits[target], shorten)

    def _off(self, target: MemoryTarget) -> Refusal | None:
        if target not in (known := self.files.targets):
            return Refusal(f"Invalid target {target!r}. Use {' or '.join(map(repr, known))}.")
        if target not in self.enabled_targets:
            return Refusal(f"The {target!r} store is switched off ({ENABLE_SETTING[target]}: false).")
        return None

    def tell_removals(self) -> None:
        """Tell the provider in use of entries that it has, and that were removed while another provider was in use.

        Call this once when the program starts.
        """
        if not (provider := self.files.hooks.provider()):
            return
        for session, write, note in self.changes.removed_without(provider):
            files = self.of(session).files
            if all(note.text not in file.entries for file in files.stored()):
                removal = replace(write, action="remove", content="")
                files.hooks.tell_change(removal, note, session, self.changes)
