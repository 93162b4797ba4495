"""How a change reaches a memory file so that no crash, edit or full disk loses anything."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from hermes_core.contract.values import MemoryTarget, MemoryWrite, Session
from hermes_core.curated.disk import MemoryFile, fingerprint
from hermes_core.curated.document import Document, parse, render
from hermes_core.curated.journal import Journal, Step
from hermes_core.errors import MemoryConflict, OutboxError, StorageError
from hermes_core.storage.files import locked

log = logging.getLogger(__name__)

OnWrite = Callable[[MemoryWrite, Session], object]

_NOT_TOLD = "Saved here, but the memory provider was not told yet"


@dataclass(frozen=True, slots=True)
class Opened:
    """A file as it is under its lock: `mark` is its fingerprint, `notice` tells of an edit from outside, adopted."""

    target: MemoryTarget
    file: MemoryFile
    session: Session
    mark: str
    entries: tuple[str, ...] = ()
    notice: str = ""


class Writer:
    """Opens files under their locks and commits changes: intent, file, mirror, done, in this order."""

    def __init__(
        self, journal: Journal, lock_timeout: float, on_write: OnWrite | None, taker: Callable[[], str]
    ) -> None:
        self._journal = journal
        self._taker = taker
        self._lock_timeout = lock_timeout
        self._on_write = on_write

    @contextlib.contextmanager
    def opened(self, target: MemoryTarget, file: MemoryFile, session: Session) -> Iterator[Opened]:
        """Hold the lock; decide what a dead process left, adopt what a person did.

        Raises `MemoryConflict` for what can't be adopted, with a copy of it, and `StorageError` (`LockTimeout`).
        """
        with locked(file.locked_path, self._lock_timeout):
            data = file.read()
            mark = fingerprint(data)
            self._journal.settle(file.key, mark)
            found = parse(data)
            if found.conflict:
                message, remedy = conflict(file, found.conflict)
                raise MemoryConflict(message, remedy, back_up(file, data))
            opened = Opened(target, file, session, mark, found.entries)
            yield replace(opened, notice=self._adopt(opened, data, found))

    def commit(
        self,
        opened: Opened,
        action: str,
        after: tuple[str, ...],
        writes: Sequence[MemoryWrite],
        undoes: int | None = None,
    ) -> str:
        """Replace the file; gives a warning when that stands and the provider was not told.

        Raises `StorageError`; whether the file was replaced before that, whoever opens it next finds out.
        """
        told = writes if self._on_write else ()
        change = self._journal.begin(
            _step(opened, action, opened.entries, after, told, undoes), self._taker()
        )
        opened.file.replace(render(after), opened.mark)
        warning = self._tell_overdue(told) or self._mirror(change, told, opened.session)
        try:
            self._journal.finish(change, mirrored=not warning)
        except StorageError as exc:
            # The file holds the change and the journal its intent: whoever opens the file next marks it done.
            log.warning("change %d of %s is written, not marked done: %s", change, opened.file.name, exc)
        return warning

    def settle(self, file: MemoryFile) -> None:
        """Decide what a dead process left, so that the history is true."""
        with locked(file.locked_path, self._lock_timeout), contextlib.suppress(MemoryConflict):
            self._journal.settle(file.key, fingerprint(file.read()))

    def prune(self, file: MemoryFile) -> int:
        """Forget how the file came to be what it is, with the copies beside it; how many changes and copies went."""
        with locked(file.locked_path, self._lock_timeout):
            mark = ""
            with contextlib.suppress(MemoryConflict):
                mark = fingerprint(file.read())
                self._journal.settle(file.key, mark)
            return self._journal.prune(file.key, mark) + file.drop_backups()

    def mirror_missing(self) -> int:
        """Tell `on_write` of the writes that it refused or never saw; gives the number of changes it took.

        A provider that took changes before, and was not the chosen one since, is told which of its entries went meanwhile.
        """
        told, taker = 0, self._taker()
        since = self._journal.last_taken(taker) if taker else 0
        for change, session, writes in self._journal.unmirrored(taker):
            if self._on_write is None or self._mirror(change, writes, session):
                break
            self._journal.finish(change, mirrored=True, taker=taker)
            told += 1
        for change, session, write in self._journal.gone(taker, since) if since else ():
            self._hand_on_to_all(change, replace(write, action="remove", content=""), session)
        return told

    def hand_on(self, write: MemoryWrite, session: Session) -> bool:
        """Give a write to the provider; False when none is there to be told.

        Raises `OutboxError`, or `StorageError` of its disk, when it is not taken.
        """
        if self._on_write is None:
            raise OutboxError("no memory provider takes it", "check the provider's state")
        return self._on_write(write, session) is not False

    def _tell_overdue(self, told: Sequence[MemoryWrite]) -> str:
        """Tell what was refused before, since a later change told first would be overruled by it; gives a warning."""
        try:
            for change, session, writes in self._journal.unmirrored(self._taker()) if told else ():
                if not all(self._hand_on_to_all(change, write, session) for write in writes):
                    break
                self._journal.finish(change, mirrored=True, taker=self._taker())
        except (OutboxError, StorageError) as exc:
            log.warning("earlier memory writes are not mirrored: %s", exc)
            return f"{_NOT_TOLD}: {exc}"
        return ""

    def _mirror(self, change: int, writes: Sequence[MemoryWrite], session: Session) -> str:
        for write in writes:
            try:
                self._hand_on_to_all(change, write, session)
            except (OutboxError, StorageError) as exc:
                log.warning("memory write %s is not mirrored: %s", write.id, exc)
                return f"{_NOT_TOLD}: {exc}"
        return ""

    def _hand_on_to_all(self, change: int, write: MemoryWrite, session: Session) -> bool:
        """Give a write to the provider: what is gone as a removal by who had it written, whose memory it is in."""
        writer = (
            self._journal.writer_of(write.previous, change) if write.previous and session.primary else None
        )
        if writer is None or not writer.primary or _memory_of(writer) == _memory_of(session):
            return self.hand_on(write, session)
        there = replace(writer, identity=session.identity, home=session.home)
        taken = self.hand_on(replace(write, action="remove", content=""), there)
        if not write.content:
            return taken
        new = replace(write, id=f"{write.id}-new", action="add", old_text="", previous="")
        return self.hand_on(new, session) and taken

    def _adopt(self, opened: Opened, data: bytes, found: Document) -> str:
        """Journal a change from outside, with a copy of what would otherwise be gone; gives the notice."""
        file = opened.file
        known = self._journal.last_known(file.key)
        if known.fingerprint == opened.mark if known else found.canonical:
            return ""
        before = known.entries if known else found.entries
        emptied = bool(before) and not found.entries
        copy = None
        if emptied or not found.canonical:
            copy = file.back_up(render(before).encode("utf-8") if emptied else data)
        step = _step(opened, "edit", before, found.entries, (), None, opened.mark)
        change = self._journal.record(step)
        log.info("adopted an edit of %s from outside as change %d", file.path, change)
        what = "emptied" if emptied else "edited"
        undoable = "" if before == found.entries else ", which can be undone"
        kept = f"; a backup is {str(copy)!r}" if copy else ""
        return f"{file.name} was {what} outside this tool: adopted as change {change}{undoable}{kept}."


def _memory_of(session: Session) -> tuple[str, str]:
    """Where providers keep what a session writes: some go by the user, some by user and chat."""
    return session.owner, session.chat_id


def conflict(file: MemoryFile, reason: str) -> tuple[str, str]:
    """Message and remedy for bytes that can't be adopted."""
    return (
        f"Refusing to write {file.name}: {reason}, so rewriting it could lose something",
        f"Save {str(file.path)!r} as UTF-8 text, or move it away and add its facts again with the memory tool "
        "from the .bak copy",
    )


def back_up(file: MemoryFile, data: bytes) -> str:
    """Where a copy lies, or that there is none; what is refused stays on disk anyway."""
    try:
        return str(file.back_up(data))
    except StorageError as exc:
        log.warning("no backup of %s: %s", file.path, exc)
        return f"{file.path} (BACKUP FAILED — file unchanged on disk)"


def _step(
    opened: Opened,
    action: str,
    before: tuple[str, ...],
    after: tuple[str, ...],
    writes: Sequence[MemoryWrite],
    undoes: int | None,
    mark: str = "",
) -> Step:
    text = render(after)
    return Step(
        file=opened.file.key,
        target=opened.target,
        action=action,
        before=render(before),
        after=text,
        fingerprint=mark or fingerprint(text.encode("utf-8")),
        session=opened.session,
        writes=writes,
        undoes=undoes,
    )
