"""Recognition of conversations that a program copied under a new id, as a resumed or forked session.

A copy has the same messages with the same times. If the program wrote the times anew, it names the session that it copied.
Each message comes in once, whichever of the files is read first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from hermes_core.sessions.lineage import children, first_messages
from hermes_core.sessions.records import StoredMessage, as_json, sqlite_text
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_importers.stream import json_digest
from hermes_memory_importers.values import (
    ImportedMessage,
    ImportedSession,
    ImportedTurn,
    StreamedSession,
    is_excerpt,
)

# Nobody writes so many characters twice by chance.
_DISTINCTIVE_CHARS = 40


class CopyFinder:
    """A comparison of imported conversations with the stored ones."""

    def __init__(self, sessions: SessionStore) -> None:
        self._sessions = sessions
        self._by_first: dict[str, dict[str, list[str]]] = {}
        self._added: set[str] = set()

    def add(self, session_id: str, source: str) -> bool:
        """Take notice of a session that was stored since. Return False if this is not the first time."""
        if source in self._by_first:
            for message in self._sessions.get_messages(session_id, limit=1):
                ids = self._by_first[source][_sign(message)]
                if session_id not in ids:
                    ids.append(session_id)
        is_other = session_id not in self._added
        self._added.add(session_id)
        return is_other

    def without_copies(
        self, head: ImportedSession, turns: Iterable[ImportedTurn], owner: str
    ) -> StreamedSession:
        """Return the conversation with the turns marked that another stored session holds.

        If the program went on with a whole copy, the session is the stored one, which grew. Otherwise the rest is a branch
        of it. A conversation without a stored beginning is returned as it is, and read as a stream.
        """
        rest = iter(turns)
        first = next(rest, None)
        if first is None:
            return head, ()
        if not self._candidates(head, first.messages[0], set()):
            return head, chain([first], rest)
        whole = [first, *rest]
        messages = [message for turn in whole for message in turn.messages]
        count, origin, grown = self._copied(head, messages, owner)
        if not count:
            return head, whole
        if count == len(messages):
            head = _as_stored(head, origin)
        elif grown and not head.copied_from and self._sessions.get_session(head.id) is None:
            # Names of turns and messages are unique within a file only.
            whole = [_renamed(turn, head.id) for turn in whole]
            head = _as_stored(head, origin)
        elif not self._is_child(origin, head.id):
            identity = {"parent_id": origin, **head.identity}
            head = replace(head, identity=identity, relation=head.relation or "branch")
        return head, list(_marked(whole, count))

    def _is_child(self, session_id: str, parent_id: str) -> bool:
        """Return True if the session was copied from the other one, although it was imported first."""
        stored = self._sessions.get_session(session_id)
        return stored is not None and stored.parent_id == parent_id

    def _copied(
        self, head: ImportedSession, messages: Sequence[ImportedMessage], owner: str
    ) -> tuple[int, str, bool]:
        """Return how many of the first messages are stored elsewhere, the last session that holds some of them, and True if
        they are all that this session holds.
        """
        count, origin, grown = 0, "", False
        used: set[str] = set()
        while count < len(messages):
            best = (0, "", False)
            for session_id in self._candidates(head, messages[count], used):
                stored = self._sessions.get_session(session_id)
                if stored is None or stored.user != owner:
                    continue
                held = self._sessions.get_messages(session_id)
                named = bool(head.copied_from) or stored.parent_id == head.id
                same = _common(messages[count:], held, timed=not named)
                likely = (
                    not named or session_id == head.copied_from or _is_distinctive(messages[count:], same)
                )
                if likely and same > best[0]:
                    best = (same, session_id, same == len(held))
            if not best[0]:
                break
            count, origin, grown = count + best[0], best[1], best[2]
            used.add(origin)
        return count, origin, grown

    def _candidates(self, head: ImportedSession, message: ImportedMessage, used: set[str]) -> list[str]:
        """Return the ids of the sessions that may begin with this message."""
        found: list[str] = []
        if message.timestamp is not None:
            found += self._index(head.source).get(_sign(message), ())
        if head.copied_from:
            found += [head.copied_from, *children(self._sessions.database, head.copied_from)]
        found += children(self._sessions.database, head.id)
        # A session takes the place of its prompts, and is no copy of them.
        return [one for one in dict.fromkeys(found) if one not in {head.id, *used} and not is_excerpt(one)]

    def _index(self, source: str) -> dict[str, list[str]]:
        index = self._by_first.get(source)
        if index is None:
            index = self._by_first[source] = defaultdict(list)
            for message in first_messages(self._sessions.database, source, 1):
                index[_sign(message)].append(message.session_id)
        return index


def _sign(message: ImportedMessage | StoredMessage) -> str:
    return json_digest([message.role, sqlite_text(message.content), message.timestamp])


def _common(messages: Sequence[ImportedMessage], stored: Sequence[StoredMessage], *, timed: bool) -> int:
    """Return the number of messages with which both begin."""
    count = 0
    for message, other in zip(messages, stored, strict=False):
        same = (message.role, sqlite_text(message.content)) == (other.role, other.content)
        if not same or (timed and message.timestamp != other.timestamp):
            break
        if as_json(list(message.tool_calls)) != as_json(list(other.tool_calls)):
            break
        count += 1
    return count


def _is_distinctive(messages: Sequence[ImportedMessage], count: int) -> bool:
    return count > 1 or sum(len(message.content) for message in messages[:count]) >= _DISTINCTIVE_CHARS


def _as_stored(head: ImportedSession, session_id: str) -> ImportedSession:
    """Return the facts about a session that add nothing to those of the stored one."""
    identity = {name: value for name, value in head.identity.items() if name != "parent_id"}
    return replace(head, id=session_id, title="", identity=identity, relation="", copied_from="")


def _renamed(turn: ImportedTurn, prefix: str) -> ImportedTurn:
    messages = [
        replace(message, ref=f"{prefix}/{message.ref}" if message.ref else "") for message in turn.messages
    ]
    return replace(turn, id=f"{prefix}/{turn.id}" if turn.id else "", messages=tuple(messages))


def _marked(turns: Iterable[ImportedTurn], count: int) -> Iterator[ImportedTurn]:
    """Yield the turns; of the first `count` messages, no turn is imported again."""
    for turn in turns:
        size = len(turn.messages)
        if count >= size:
            yield replace(turn, copied="wholly")
        elif count > 0:
            yield replace(turn, messages=turn.messages[count:], copied="partly")
        else:
            yield turn
        count -= size
