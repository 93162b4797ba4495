"""The line of a turn that names notes of its session that wait, and what the person's next message does to them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from msgspec import Struct

from hermes_core.contract.values import Origin, Session
from hermes_core.curated.store import Notes
from hermes_core.curated.stored import DataNote, StoredNotes
from hermes_core.curated.waiting import WaitingNote, reject_note
from hermes_core.kit.text import clip
from hermes_core.origins import remember
from hermes_core.safety.origin import follows, in_scope, may_command
from hermes_core.safety.statements import is_refusal, may_refuse
from hermes_core.safety.terminal import counted

# Notes that a line names, and characters of each.
MAX_NAMED, MAX_NAMED_CHARS = 3, 160

SECONDS_PER_DAY = 86400.0


class _Shown(Struct):
    """Texts that a session was shown: those of its latest line, and those of all its lines."""

    latest: tuple[str, ...] = ()
    all: frozenset[str] = frozenset()


class NotedLine:
    """The lines of the sessions of a home.

    Args:
        notes: The notes of the home.
        waiting_days: Days after which a note that waits expires; 0 for never.
    """

    def __init__(self, notes: Notes, waiting_days: int) -> None:
        self._notes, self._days = notes, waiting_days
        self._shown: OrderedDict[str, _Shown] = OrderedDict()

    def of_turn(
        self,
        session: Session,
        message: str,
        stored: StoredNotes,
        read: Callable[[], Origin],
        *,
        is_first: bool,
    ) -> str:
        """Return the line for a turn of a host that shows it; "" for none. Let the message answer the line before.

        Args:
            message: The person's message; "" if no person wrote it.
            stored: The notes of the session's owner.
            read: Returns the lowest origin of what the session has read.
            is_first: True in the first turn of a session, which drops notes that have waited for too long.
        """
        shown = self._shown.get(session.id, _Shown())
        waiting, parts = stored.waiting_notes(), list[str]()
        answered = [note for note in waiting if note.entry in shown.latest]
        if answered and is_refusal(message):
            parts.append(_drop(self._notes.of(session), answered, session, "dropped"))
        elif answered and self._is_accepted(message, answered, waiting, in_scope(read(), session.owner)):
            self._notes.of(session).confirm([note.entry for note in answered], "silence")
        if is_first:
            parts += drop_expired(self._notes.of(session), waiting, session, self._days)
        own = [n for n in waiting if n.origin.session == session.id and n.entry not in shown.all]
        if own:
            parts.append(f"noted: {_names(own)}; say no to drop {'it' if len(own) == 1 else 'them'}")
        latest = tuple(note.entry for note in own)
        remember(self._shown, session.id, _Shown(latest, shown.all.union(latest)))
        return "\n".join(parts)

    def _is_accepted(
        self, message: str, answered: Sequence[DataNote], waiting: Sequence[DataNote], read: Origin
    ) -> bool:
        """Return True if a message without an objection makes the notes of the line before the person's.

        Silence accepts nothing in a session that has read a text of a lower origin, such as another note that waits.
        """
        return (
            may_command(read)
            # What the model had read is not known of a note whose turn did not end well.
            and not any(note.origin.turn for note in answered)
            and len(answered) == len(waiting)
            and bool(message)
            and not may_refuse(message)
            and not any(follows(message, note.entry) for note in answered)
        )


def drop_expired(store: Notes, waiting: Sequence[DataNote], session: Session, days: int) -> list[str]:
    """Remove the notes that have waited for longer than this. Return a sentence about them; none if there are none.

    Args:
        days: 0 to remove none.
    """
    before = store.files.clock() - days * SECONDS_PER_DAY
    expired = [note for note in waiting if days and 0 < note.origin.at < before]
    return [_drop(store, expired, session, f"waited for {days} days, and expired")] if expired else []


def _drop(store: Notes, notes: Sequence[DataNote], session: Session, what: str) -> str:
    for note in notes:
        reject_note(store, WaitingNote("", note.target, note.entry, note.origin.origin), session)
    return f"{what}: {_names(notes)}; hermes-memory memory undo brings back what was removed"


def _names(notes: Sequence[DataNote]) -> str:
    names = [f'"{clip(" ".join(note.entry.split()), MAX_NAMED_CHARS)}"' for note in notes[:MAX_NAMED]]
    more = len(notes) - len(names)
    return ", ".join(names) + (f" and {counted(more, 'more note', 'more notes')}" if more else "")
