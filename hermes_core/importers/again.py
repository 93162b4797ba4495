"""Conversations that come in again under another id, known by what was said in them.

Some programs make up new ids for each export. A conversation whose id is not known is taken for an earlier one when all
that is stored of that one is how this one begins, or when this one is how that one begins: the same words in the same
order, at the same times where the file tells them. No earlier conversation is taken for two of one file, so that
two that begin alike stay two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice, takewhile

from hermes_core.importers.fields import digest
from hermes_core.importers.values import ImportedMessage, ImportedSession, ImportedTurn, StreamedSession
from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.records import StoredMessage, as_json, storable, turn_of_ref

_LOOKED_AT = 3
"""Messages by which conversations are found that may be the same; many begin with the same greeting."""

_SURELY = 40
"""Characters that nobody says twice by chance: so many of the person's must agree where no message has a time."""


def as_known(sessions: SessionDB, imported: Iterable[StreamedSession]) -> Iterator[StreamedSession]:
    """The same conversations; those that are stored under another id come with that one, and with the ids of messages
    as they are stored. They come last: only then it is known which of the stored ones have their own ids in the file.
    """
    known, waiting, names = _Known(sessions), list[StreamedSession](), dict[str, str]()
    for head, turns in imported:
        if head.minted and sessions.get_session(head.id) is None and known.may_be(head, turns):
            waiting.append((head, turns))
        else:
            known.taken.add(head.id)
            yield head, turns
    for grown in (True, False):
        rest, waiting = waiting, []
        for head, turns in rest:
            found = names.get(head.id) or known.find(head, turns, grown=grown)
            if found is None:
                waiting.append((head, turns))
            else:
                known.taken.add(found)
                names[head.id] = found
                yield replace(head, id=found), _as_stored(turns, sessions.get_messages(found))
    yield from waiting


class _Known:
    """The stored conversations by how they begin; `taken` are those that are not looked for any more."""

    def __init__(self, sessions: SessionDB) -> None:
        self.taken: set[str] = set()
        self._sessions = sessions
        self._begins: dict[str, dict[str, list[str]]] = {}

    def may_be(self, head: ImportedSession, turns: Iterable[ImportedTurn]) -> bool:
        """Whether there are any that begin like this one."""
        return bool(self._candidates(head, turns))

    def find(self, head: ImportedSession, turns: Iterable[ImportedTurn], *, grown: bool) -> str | None:
        """The longest one that this one has `grown` out of; else the first that begins with all of it."""
        best, most = None, 0
        for session_id in self._candidates(head, turns):
            stored = self._sessions.get_messages(session_id)
            same = list(_common(turns, stored))
            if len(same) <= most or not _surely(same):
                continue
            if len(same) == len(stored) if grown else len(same) == sum(len(turn.messages) for turn in turns):
                best, most = session_id, len(same)
        return best

    def _candidates(self, head: ImportedSession, turns: Iterable[ImportedTurn]) -> list[str]:
        begins = self._begins.get(head.source)
        if begins is None:
            begins = self._begins[head.source] = self._beginnings(head.source)
        signs = _signs(list(islice(_each(turns), _LOOKED_AT)))
        keys = [*signs[-1:], *(f"{sign} alone" for sign in signs[:-1])]
        found = chain.from_iterable(begins.get(key, ()) for key in keys)
        return [session_id for session_id in found if session_id not in self.taken]

    def _beginnings(self, source: str) -> dict[str, list[str]]:
        begins = defaultdict[str, list[str]](list)
        stored = self._sessions.beginnings(source, _LOOKED_AT)
        for session_id, messages in groupby(stored, lambda message: message.session_id):
            signs = _signs(list(messages)) if session_id.startswith(f"{source}-") else []
            for sign in signs:
                begins[sign].append(session_id)
            if signs:
                begins[f"{signs[-1]} alone"].append(session_id)
        return begins


def _signs(messages: Sequence[ImportedMessage | StoredMessage]) -> list[str]:
    """What stands for the first message, for the first two, and so on."""
    said = [[m.role, storable(m.content)] for m in messages]
    return [digest(said[: number + 1]) for number in range(len(said))]


def _each(turns: Iterable[ImportedTurn]) -> Iterator[ImportedMessage]:
    return chain.from_iterable(turn.messages for turn in turns)


def _common(turns: Iterable[ImportedTurn], stored: Iterable[StoredMessage]) -> Iterator[ImportedMessage]:
    """The messages with which both begin."""
    return (one for one, _ in takewhile(lambda pair: _is(*pair), zip(_each(turns), stored, strict=False)))


def _is(message: ImportedMessage, stored: StoredMessage) -> bool:
    return (
        (message.role, storable(message.content)) == (stored.role, stored.content)
        and message.timestamp in (None, stored.timestamp)
        and as_json(list(message.tool_calls)) == as_json(list(stored.tool_calls))
    )


def _surely(messages: Sequence[ImportedMessage]) -> bool:
    if any(m.timestamp is not None for m in messages):
        return True
    return sum(len(m.content) for m in messages if m.role == "user") >= _SURELY


def _as_stored(turns: Iterable[ImportedTurn], stored: Iterable[StoredMessage]) -> Iterator[ImportedTurn]:
    """The turns, in which the messages that are stored have the ids that they have there."""
    known = iter(stored)
    for turn in turns:
        messages = []
        for message in turn.messages:
            there = next(known, None)
            if there is not None and _is(message, there):
                messages.append(replace(message, ref="" if turn_of_ref(there.ref) else there.ref))
            else:
                messages.append(message)
                known = iter(())
        yield replace(turn, messages=tuple(messages))
