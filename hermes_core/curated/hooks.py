"""Callbacks of the host of the notes, and the rule by which a change of the notes reaches a memory provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from msgspec import Struct

from hermes_core.contract.values import MemoryWrite, Refused, Session
from hermes_core.curated.history import NoteHistory
from hermes_core.curated.origins import Note
from hermes_core.errors import OutboxError

FilterWrite = Callable[[MemoryWrite, Session], MemoryWrite | Refused]
OnWrite = Callable[[MemoryWrite, Session], object]


class NoteHooks(Struct, frozen=True):
    """Callbacks of the host of the notes.

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

    def vetted(self, write: MemoryWrite, session: Session) -> MemoryWrite | Refused:
        """Return a write as the observers let it pass."""
        return self.filter_write(write, session) if self.filter_write is not None else write

    def is_suppressed(self, target: str) -> bool:
        """Return True if only the provider keeps the entries of this target."""
        # Asked for each write, because the provider may have been loaded or shut down since the last one.
        return self.suppresses is not None and self.suppresses(target)

    def tell(self, write: MemoryWrite, session: Session) -> bool:
        """Put a write into the outbox. Return False if no provider takes it.

        Raises:
            OutboxError: The outbox does not accept the write.
        """
        if self.on_write is None:
            raise OutboxError("no memory provider takes it", "check the provider's state")
        return self.on_write(write, session) is not False

    def tell_change(
        self, write: MemoryWrite, previous: Note | None, session: Session, history: NoteHistory
    ) -> bool:
        """Put a write into the outbox that may replace or remove an entry which another user wrote.

        Then a removal is stored for that user, and the new entry for the user of `session`.

        Args:
            previous: The entry that is replaced or removed, if it is known.

        Raises:
            OutboxError: The outbox does not accept the write.
        """
        known = history.writer(previous.change) if previous and previous.change and session.primary else None
        writer = known[0] if known else None
        # Some providers keep a separate memory for each user, others for each user and chat.
        if (
            writer is None
            or not writer.primary
            or (writer.owner, writer.chat_id) == (session.owner, session.chat_id)
        ):
            return self.tell(write, session)
        there = replace(writer, identity=session.identity, home=session.home)
        stored = self.tell(replace(write, action="remove", content=""), there)
        if not write.content:
            return stored
        new = replace(write, id=f"{write.id}-new", action="add", old_text="", previous="")
        return self.tell(new, session) and stored
