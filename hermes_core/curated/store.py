"""MemoryStore: the two files, with a lock, a journal, a scan, and every rule of what may be written."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Sequence

from hermes_core.contract.values import MemoryTarget, MemoryWrite, Session
from hermes_core.curated import results
from hermes_core.curated.disk import MemoryFile
from hermes_core.curated.document import Usage, measure, parse
from hermes_core.curated.edits import (
    Change,
    Edit,
    Operation,
    Refusal,
    apply,
    handle,
    over_budget,
    oversized,
    reverse,
)
from hermes_core.curated.journal import Journal, Version
from hermes_core.curated.results import Answers, Result
from hermes_core.curated.snapshot import Flagged, Scan, Snapshot, Threat, block, flag
from hermes_core.curated.vetting import FilterWrite, Vetting, performed
from hermes_core.curated.writer import OnWrite, Writer, back_up
from hermes_core.errors import ConfigError, MemoryConflict, OutboxError, StorageError
from hermes_core.home import HermesHome
from hermes_core.storage.files import LOCK_TIMEOUT

log = logging.getLogger(__name__)

TARGETS: tuple[MemoryTarget, ...] = ("memory", "user")

ENABLE_SETTING = {"memory": "memory.memory_enabled", "user": "memory.user_profile_enabled"}
LIMIT_SETTING = {"memory": "memory.memory_char_limit", "user": "memory.user_char_limit"}

Plan = Callable[[tuple[str, ...]], Edit | Refusal]
"""What a call does to the entries that it finds."""

Writes = Callable[[Sequence[Change]], list[MemoryWrite] | Refusal]
"""What the provider is told of the changes."""


class MemoryStore:
    """Curated memory of one home. Safe for threads and processes: every call reads the file anew, under its lock.

    `filter_write` may veto or change a write before anything happens; `suppresses(target)` leaves the local file as it
    is; with `per_user` each user of a gateway has a USER.md of their own, see `of`; `on_write` is told every accepted
    write, in order and under the file's lock; an `OutboxError` or `StorageError` that it raises is shown in the result,
    and the write stands; `taker` names the provider that is to be told now.

    Changes are answered with a dict as the `memory` tool gives it: `success`, then `message` and `usage`, or `error`
    and what to do. A file that can't be locked or written raises `StorageError`, and nothing was changed.
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
        taker: Callable[[], str] = str,
        per_user: bool = False,
        lock_timeout: float = LOCK_TIMEOUT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._home = home
        self._per_user = per_user
        self._limits: dict[MemoryTarget, int] = {"memory": memory_char_limit, "user": user_char_limit}
        for target, limit in self._limits.items():
            if limit < 1:
                raise ConfigError(
                    f"{LIMIT_SETTING[target]} is {limit!r}", "give a number of characters above 0"
                )
        self._enabled: dict[MemoryTarget, bool] = {"memory": memory_enabled, "user": user_profile_enabled}
        self._files: dict[MemoryTarget, MemoryFile] = {
            "memory": MemoryFile(home.memory_md),
            "user": MemoryFile(home.user_md),
        }
        self._nobody = Session("local", home=str(home.path), identity=home.profile)
        self._scan = scan or _scan
        self._suppresses = suppresses
        self._vetting = Vetting(self._scan, filter_write)
        self._journal = Journal(home.journal_db, clock)
        self._writer = Writer(self._journal, lock_timeout, on_write, taker)
        self._answers = Answers(self._limits, self._scan, self.entries)
        self._snapshot = Snapshot()

    def of(self, session: Session | None) -> MemoryStore:
        """The store of who speaks: this one, or with `per_user` one whose USER.md is that user's own."""
        owner = session.owner if session is not None and self._per_user else ""
        if not owner:
            return self
        own = copy.copy(self)
        path = self._home.user_md_of(owner)
        own._files = {**self._files, "user": MemoryFile(path, f"users/{path.parent.name}/{path.name}")}
        own._answers = Answers(self._limits, self._scan, own.entries, self._answers.breaker)
        own._snapshot = Snapshot()
        return own

    # ---------------------------------------------------------------- reading

    @property
    def enabled_targets(self) -> tuple[MemoryTarget, ...]:
        """The stores that are switched on."""
        return tuple(target for target in TARGETS if self._enabled[target])

    def load_from_disk(self) -> Snapshot:
        """Freeze what the system prompt shows of the files, until the next call."""
        self._snapshot = self.take_snapshot()
        return self._snapshot

    def take_snapshot(self) -> Snapshot:
        """What the system prompt would show now; nothing is frozen here.

        A file that can't be read or adopted has no block: it is logged, and `problems` tells.
        """
        blocks = {}
        for target in self.enabled_targets:
            try:
                text = block(target, self.entries(target), self._limits[target], self._scan)
            except MemoryConflict as exc:
                log.warning("curated memory is left out of the prompt: %s", exc)
                continue
            if text:
                blocks[target] = text
        return Snapshot(blocks)

    def format_for_system_prompt(self, target: MemoryTarget) -> str | None:
        """The frozen block of this target; None without one. Writes don't change it, `load_from_disk` does."""
        return self._snapshot.blocks.get(target)

    def entries(self, target: MemoryTarget) -> tuple[str, ...]:
        """All entries on disk now, flagged ones too. Raises `MemoryConflict` when the file can't be adopted."""
        file = self._files[target]
        found = parse(file.read())
        if found.conflict:
            raise file.unreadable(found.conflict, "save it as UTF-8 text, or move it away")
        return found.entries

    def usage(self, target: MemoryTarget) -> Usage:
        """Characters in use on disk now, and the limit. Raises `MemoryConflict`."""
        return Usage(measure(self.entries(target)), self._limits[target])

    def shown_entries(self) -> list[str]:
        """Entries on disk that the prompt of a new session shows."""
        shown: list[str] = []
        for target in self.enabled_targets:
            with contextlib.suppress(MemoryConflict):
                shown += [entry for entry in self.entries(target) if not self._flag(target, entry)]
        return shown

    def flagged(self, target: MemoryTarget | None = None) -> list[Flagged]:
        """Entries on disk that no prompt and no result shows, with the reason; `problems` tells of whole files."""
        found = []
        for one in (target,) if target else self.enabled_targets:
            with contextlib.suppress(MemoryConflict):
                found += [flagged for entry in self.entries(one) if (flagged := self._flag(one, entry))]
        return found

    def problems(self) -> dict[MemoryTarget, MemoryConflict]:
        """Files that can't be read or adopted now, with what to do."""
        found = {}
        for target in self.enabled_targets:
            try:
                self.entries(target)
            except MemoryConflict as exc:
                found[target] = exc
        return found

    # ---------------------------------------------------------------- writing

    def add(self, target: MemoryTarget, content: str, *, session: Session | None = None) -> Result:
        """Append an entry. One that is there already is a success that changes nothing."""
        return self._write(target, [Operation("add", content)], session)

    def replace(
        self, target: MemoryTarget, old_text: str, content: str, *, session: Session | None = None
    ) -> Result:
        """Put `content` in the place of the one entry that `old_text` names."""
        return self._write(target, [Operation("replace", content, old_text)], session)

    def remove(self, target: MemoryTarget, old_text: str, *, session: Session | None = None) -> Result:
        """Remove the one entry that `old_text` names: by a fragment, the whole text, or its handle."""
        return self._write(target, [Operation("remove", "", old_text)], session)

    def apply_batch(
        self, target: MemoryTarget, operations: Sequence[Operation], *, session: Session | None = None
    ) -> Result:
        """Do all operations or none; the limit counts for the final result only."""
        return self._write(target, operations, session, batch=True)

    def reset(self, target: MemoryTarget, *, session: Session | None = None) -> Result:
        """Remove every entry. `undo` brings them back."""

        def plan(entries: tuple[str, ...]) -> Edit:
            return Edit((), tuple(Change(0, "remove", "", entry) for entry in entries))

        return self._restore(target, "reset", plan, session)

    def undo(
        self, change: int | None = None, *, target: MemoryTarget | None = None, session: Session | None = None
    ) -> Result:
        """Take back the newest change, or the one of this id; an undo can itself be undone by its id.

        Later changes of other entries stay. The limit does not apply: what was there may come back.
        """
        version = self._undoable(change, target)
        if version is None:
            which = "There is no change" if change is None else f"There is no change {change}"
            return results.refused(f"{which} to undo. The history lists what can be undone.")
        if version.undone:
            return results.refused(f"Change {version.id} is undone already.")

        def plan(entries: tuple[str, ...]) -> Edit | Refusal:
            return reverse(entries, version.before, version.after)

        return self._restore(version.target, "undo", plan, session, version.id)

    def history(self, target: MemoryTarget | None = None, limit: int = 50) -> list[Version]:
        """The changes that happened, newest first, also those that a process did not live to report."""
        self._settle(target)
        return list(itertools.islice(self._journal.versions(self._keys(target)), limit))

    def prune(self) -> int:
        """Forget what was changed and removed, with all copies; how many changes and copies went.

        Nothing can be undone any more. Changes that the provider was not told yet stay until it was.
        """
        return sum(self._writer.prune(file) for file in self._files.values())

    def mirror_missing(self) -> int:
        """Tell `on_write` again of accepted writes that it refused or never saw; gives how many changes it took.

        And of the entries of the provider of now that went while it was not the chosen one.
        For a host to call at its start. Writes keep their ids, so that what was seen already is known again.
        """
        self._settle(None)
        return self._writer.mirror_missing()

    def start_turn(self, session: Session | None = None) -> None:
        """Count this session's refusals anew."""
        self._answers.breaker.reset(session or self._nobody)

    def refuse(self, refusal: Refusal, target: MemoryTarget | None, session: Session | None = None) -> Result:
        """A refusal as a result; after too many in one turn, one that tells the model to stop."""
        return self._answers.refuse(refusal, target, session or self._nobody)

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    # ---------------------------------------------------- the way of a write

    def _write(
        self,
        target: MemoryTarget,
        asked: Sequence[Operation],
        session: Session | None,
        *,
        batch: bool = False,
    ) -> Result:
        who = session or self._nobody
        if off := self._off(target):
            return self.refuse(off, None, who)
        suppressed = self._suppresses is not None and self._suppresses(target)
        limit = None if suppressed else self._limits[target]
        writes = self._vetting.operations(target, asked, who, batch=batch, limit=limit)
        if isinstance(writes, Refusal):
            return self.refuse(writes, target, who)
        if limit is None:
            return self._hand_on(target, writes, who)
        operations = [Operation(write.action, write.content, write.old_text) for write in writes]

        def plan(entries: tuple[str, ...]) -> Edit | Refusal:
            edit = apply(entries, operations, batch=batch)
            if isinstance(edit, Refusal) or not edit.changes:
                return edit
            if large := oversized(entries, edit, limit):
                return self._too_large(target, large)
            return over_budget(entries, edit, operations, limit, batch=batch) or edit

        def told(changes: Sequence[Change]) -> list[MemoryWrite]:
            return [performed(writes[change.operation], change) for change in changes]

        return self._commit(target, "batch" if batch else asked[0].action, plan, told, who, asked=len(asked))

    def _restore(
        self,
        target: MemoryTarget,
        action: str,
        plan: Plan,
        session: Session | None,
        undoes: int | None = None,
    ) -> Result:
        """A change that is no operation of the model: observers may veto it, the limit does not apply."""
        who = session or self._nobody
        if off := self._off(target):
            return self.refuse(off, None, who)
        origin = {"origin": action} | ({"undoes": str(undoes)} if undoes else {})

        def told(changes: Sequence[Change]) -> list[MemoryWrite] | Refusal:
            return self._vetting.restored(target, changes, who, origin)

        return self._commit(target, action, plan, told, who, undoes=undoes)

    def _commit(
        self,
        target: MemoryTarget,
        action: str,
        plan: Plan,
        told: Writes,
        session: Session,
        *,
        asked: int = 1,
        undoes: int | None = None,
    ) -> Result:
        """Under the lock: read, plan, and write what the plan changed."""
        try:
            with self._writer.opened(target, self._files[target], session) as opened:
                edit = plan(opened.entries)
                notice = {"notice": opened.notice} if opened.notice else {}
                if isinstance(edit, Refusal):
                    return self.refuse(edit, target, session) | notice
                result = results.saved(target, action, edit, self._limits[target], asked)
                if edit.changes:
                    writes = told(edit.changes)
                    if isinstance(writes, Refusal):
                        return self.refuse(writes, target, session) | notice
                    if warning := self._writer.commit(opened, action, edit.entries, writes, undoes):
                        result["warning"] = warning
        except MemoryConflict as exc:
            return self.refuse(Refusal(exc.message, remedy=exc.remedy, backup=exc.backup), target, session)
        self._answers.breaker.reset(session)
        return result | self._answers.previous(target, edit) | results.caution(target, edit) | notice

    def _hand_on(self, target: MemoryTarget, writes: Sequence[MemoryWrite], session: Session) -> Result:
        """Local writes are suppressed: what the provider does not take is nowhere, so that is no success."""
        for taken, write in enumerate(writes):
            try:
                self._writer.hand_on(dataclasses.replace(write, performed=False), session)
            except (OutboxError, StorageError) as exc:
                part = f"The first {taken} operation(s) are with the memory provider, do not repeat them; the others were not"
                refusal = Refusal(
                    f"{part if taken else 'Nothing was'} saved: {exc.message}.", remedy=exc.remedy
                )
                return self.refuse(refusal, target, session)
        self._answers.breaker.reset(session)
        return results.handed_on(target, len(writes))

    def _off(self, target: MemoryTarget) -> Refusal | None:
        if target not in TARGETS:
            return Refusal(f"Invalid target {target!r}. Use 'memory' or 'user'.")
        if not self._enabled[target]:
            return Refusal(f"The {target!r} store is switched off ({ENABLE_SETTING[target]}: false).")
        return None

    def _too_large(self, target: MemoryTarget, entry: str) -> Refusal:
        """An entry larger than the whole store: nothing is written until it is split, shortened or removed."""
        limit, file = self._limits[target], self._files[target]
        return Refusal(
            f"Refusing to write {file.name}: it holds an entry of {len(entry):,} characters, "
            f"more than the whole store ({limit:,}).",
            backup=back_up(file, file.read()),
            remedy=(
                f"Call memory with action 'remove' or 'replace' and target={target!r}, old_text={handle(entry)!r}; "
                f"or split the entry in the file with lines that hold only '§'; or raise {LIMIT_SETTING[target]} "
                f"to {len(entry)} or more. The .bak file has a copy."
            ),
        )

    def _undoable(self, change: int | None, target: MemoryTarget | None) -> Version | None:
        self._settle(target)
        for version in self._journal.versions(self._keys(target)):
            newest = change is None and version.action != "undo" and not version.undone
            if (newest or version.id == change) and (version.added or version.removed):
                return version
        return None

    def _settle(self, target: MemoryTarget | None) -> None:
        for one in (target,) if target else self.enabled_targets:
            try:
                self._writer.settle(self._files[one])
            except StorageError as exc:
                log.warning("the history may lack the last change of %s: %s", self._files[one].path, exc)

    def key_of(self, target: MemoryTarget) -> str:
        """The name of this target's file in the journal: another for each user's own."""
        return self._files[target].key

    def _keys(self, target: MemoryTarget | None) -> list[str]:
        return [file.key for name, file in self._files.items() if target in (None, name)]

    def _flag(self, target: MemoryTarget, entry: str) -> Flagged | None:
        return flag(target, entry, self._limits[target], self._scan)


def _scan(text: str) -> Threat | None:
    # Imported when first needed: its patterns take time to compile, and not every process writes.
    from hermes_core.safety.scan import first_threat

    return first_threat(text)
