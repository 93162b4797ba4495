"""Recognition of conversations that are imported again under another id, by their messages.

Some programs make up new ids for each export. A conversation with an unknown id is the same as a stored one if one of the
two is the beginning of the other: the same words in the same order, at the same times if the file has times. A stored
conversation matches one conversation of a file at most, so that two which begin alike stay two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice, takewhile

from hermes_core.importers.stream import json_digest
from hermes_core.importers.values import ImportedMessage, ImportedSession, ImportedTurn, StreamedSession
from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.records import StoredMessage, as_json, sqlite_text, turn_of_ref

# One message is not enough to find candidates: many conversations begin with the same greeting.
_COMPARED_MESSAGES = 3

# If no message has a time, so many characters of the person must agree: nobody writes so many twice by
# chance.
_DISTINCTIVE_CHARS = 40


def match_stored(sessions: SessionDB, imported: Iterable[StreamedSession]) -> Iterator[StreamedSession]:
    """Yield the same conversations, with the stored ids of sessions and messages for those that are stored already.

    These come last: a stored conversation whose own id is in the file must not be matched with another one.
    """
    known, waiting, names = _StoredSessions(sessions), list[StreamedSession](), dict[str, str]()
    for head, turns in imported:
        if head.minted and sessions.get_session(head.id) is None and known.candidates(head, turns):
            waiting.append((head, turns))
        else:
            known.matched.add(head.id)
            yield head, turns
    # A stored conversation that this one has grown out of is a surer match than one that contains it.
    for grown in (True, False):
        rest, waiting = waiting, []
        for head, turns in rest:
            found = names.get(head.id) or known.find(head, turns, grown=grown)
            if found is None:
                waiting.append((head, turns))
            else:
                known.matched.add(found)
                names[head.id] = found
                yield replace(head, id=found), _as_stored(turns, sessions.get_messages(found))
    yield from waiting


class _StoredSessions:
    """An index of the stored conversations by their first messages, without those in `matched`."""

    def __init__(self, sessions: SessionDB) -> None:
        self.matched: set[str] = set()
        self._sessions = sessions
        self._begins: dict[str, dict[str, list[str]]] = {}

    def find(self, head: ImportedSession, turns: Iterable[ImportedTurn], *, grown: bool) -> str | None:
        """Return the id of the longest stored conversation that is the beginning of this one.

        If not `grown`, return the first stored conversation that begins with all of this one.
        """
        best, most = None, 0
        for session_id in self.candidates(head, turns):
            stored = self._sessions.get_messages(session_id)
            same = list(_common(turns, stored))
            if len(same) <= most or not _is_distinctive(same):
                continue
            if len(same) == len(stored) if grown else len(same) == sum(len(turn.messages) for turn in turns):
                best, most = session_id, len(same)
        return best

    def candidates(self, head: ImportedSession, turns: Iterable[ImportedTurn]) -> list[str]:
        """Return the ids of the conversations that begin like this one."""
        begins = self._begins.get(head.source)
        if begins is None:
            begins = self._begins[head.source] = self._beginnings(head.source)
        signs = _signs(list(islice(_each(turns), _COMPARED_MESSAGES)))
        keys = [*signs[-1:], *(f"{sign} alone" for sign in signs[:-1])]
        found = chain.from_iterable(begins.get(key, ()) for key in keys)
        return [session_id for session_id in found if session_id not in self.matched]

    def _beginnings(self, source: str) -> dict[str, list[str]]:
        begins = defaultdict[str, list[str]](list)
        stored = self._sessions.first_messages(source, _COMPARED_MESSAGES)
        for session_id, messages in groupby(stored, lambda message: message.session_id):
            signs = _signs(list(messages)) if session_id.startswith(f"{source}-") else []
            for sign in signs:
                begins[sign].append(session_id)
            if signs:
                begins[f"{signs[-1]} alone"].append(session_id)
        return begins


def _signs(messages: Sequence[ImportedMessage | StoredMessage]) -> list[str]:
    """Return a digest of the first message, of the first two, and so on."""
    values = [[m.role, sqlite_text(m.content)] for m in messages]
    return [json_digest(values[: number + 1]) for number in range(len(values))]


def _each(turns: Iterable[ImportedTurn]) -> Iterator[ImportedMessage]:
    return chain.from_iterable(turn.messages for turn in turns)


def _common(turns: Iterable[ImportedTurn], stored: Iterable[StoredMessage]) -> Iterator[ImportedMessage]:
    """Yield the messages with which both begin."""
    return (
        one for one, _ in takewhile(lambda pair: _is_same(*pair), zip(_each(turns), stored, strict=False))
    )


def _is_same(message: ImportedMessage, stored: StoredMessage) -> bool:
    return (
        (message.role, sqlite_text(message.content)) == (stored.role, stored.content)
        and message.timestamp in (None, stored.timestamp)
        and as_json(list(message.tool_calls)) == as_json(list(stored.tool_calls))
    )


def _is_distinctive(messages: Sequence[ImportedMessage]) -> bool:
    if any(m.timestamp is not None for m in messages):
        return True
    return sum(len(m.content) for m in messages if m.role == "user") >= _DISTINCTIVE_CHARS


def _as_stored(turns: Iterable[ImportedTurn], stored: Iterable[StoredMessage]) -> Iterator[ImportedTurn]:
    """Yield the turns with the stored ids of the messages that are stored."""
    known = iter(stored)
    for turn in turns:
        messages = []
        for message in turn.messages:
            there = next(known, None)
            if there is not None and _is_same(message, there):
                messages.append(replace(message, ref="" if turn_of_ref(there.ref) else there.ref))
            else:
                messages.append(message)
                known = iter(())
        yield replace(turn, messages=tuple(messages))
