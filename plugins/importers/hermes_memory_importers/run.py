"""Import of sessions into memory. Turns arrive as live ones do: stored, searchable, delivered to the provider."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, islice, repeat, takewhile
from typing import Any, NamedTuple

from hermes_core import Memory
from hermes_core.contract.values import Message, Session, parse_outside_id
from hermes_core.errors import HermesError
from hermes_core.origins import author_origin
from hermes_core.sessions.lineage import first_messages
from hermes_core.sessions.records import StoredMessage, as_json, sqlite_text, turn_of_ref, turn_ref
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_importers.copies import CopyFinder
from hermes_memory_importers.forms import match_messages
from hermes_memory_importers.records import RecordImport
from hermes_memory_importers.stream import json_digest
from hermes_memory_importers.values import (
    ImportedMessage,
    ImportedRecord,
    ImportedSession,
    ImportedTurn,
    Skip,
    StreamedItem,
    StreamedSession,
    excerpt_id,
)

PLATFORM = "import"

LIVE_PLATFORM = "cli"
"""Platform of live sessions: the person at home types in a program of this machine."""

# Turns in one commit, and characters after which it ends. Other programs wait for the lock meanwhile, some ten
# milliseconds.
TURNS_IN_COMMIT = 50
CHARS_IN_COMMIT = 100_000

# Turn ids are derived from the position of a turn, so that a second import of the file finds its turns stored.
_NAMESPACE = uuid.UUID("6f2d2f1e-3d0c-5c4e-9a53-0d6a1f1c7f2b")


# Fields of the contract's `Session` by which a session has its owner.
_OWNER_FIELDS = (
    *("platform", "user_id", "user_id_alt", "user_name", "chat_id", "chat_name", "chat_type", "thread_id"),
    "gateway_session_key",
)


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Counts of an import.

    Attributes:
        known: Turns and memories that were imported before.
        skipped: The reasons for what was left out.
        memories: Memories that the other program keeps.
        notes: Number of these that wait as notes.
    """

    sessions: int = 0
    turns: int = 0
    messages: int = 0
    known: int = 0
    skipped: tuple[Skip, ...] = ()
    memories: int = 0
    notes: int = 0

    def plus(self, other: ImportResult) -> ImportResult:
        """Return the counts of both imports together."""
        return ImportResult(
            self.sessions + other.sessions,
            self.turns + other.turns,
            self.messages + other.messages,
            self.known + other.known,
            (*self.skipped, *other.skipped),
            self.memories + other.memories,
            self.notes + other.notes,
        )


def import_sessions(
    memory: Memory,
    items: Iterable[StreamedItem],
    on_turn: Callable[[], None] = lambda: None,
    copies: CopyFinder | None = None,
    problems: list[str] | None = None,
    live: bool = False,
    user: str = "",
) -> ImportResult:
    """Store every turn and every memory that is not stored yet. It is safe to run again, also after a kill.

    Args:
        items: Conversations and memories, as `stream_file` yields them.
        on_turn: Called once a turn, for a progress bar.
        copies: The finder of copies for several imports, which knows the sessions of the earlier ones.
        problems: Gets a sentence for each memory that the provider did not take.
        live: True for sessions that a program of the person at home holds now. They do not end with the import, and their
            messages have the origins that messages of a turn have.
        user: The person, as `Session.outside_id`, to whom the memories belong, and the conversations whose file names nobody;
            "" for the person at home.

    Raises:
        SessionError: `user` names nobody, or a conversation is that of another user already.
    """
    fields = parse_outside_id(user) if user else {}
    platform = LIVE_PLATFORM if live else PLATFORM
    total, copies = ImportResult(), copies or CopyFinder(memory.sessions)
    records: list[RecordImport] = []
    for head, whole in _match_stored(memory.sessions, _sessions_of(memory, items, records, user)):
        if "platform" not in head.identity:
            head = replace(head, identity={**head.identity, **fields})
        if head.excerpt_of and memory.sessions.get_session(head.excerpt_of) is not None:
            total = replace(total, sessions=total.sessions + 1, known=total.known + sum(1 for _ in whole))
            continue
        head = _with_stored_owner(memory, head)
        imported, turns = head, whole
        if head.copyable:
            identity: dict[str, Any] = {"platform": platform, **head.identity}
            owner = memory.session(head.id, **identity).owner
            imported, turns = copies.without_copies(head, whole, owner)
        turns, same = _matched(memory, imported, turns)
        who: dict[str, Any] = {"platform": platform, **imported.identity}
        if memory.sessions.get_session(imported.id) is not None:
            # A session without an owner belongs to the home until a file names its user.
            memory.sessions.create_session(imported.id, user=memory.session(imported.id, **who).owner)
        session = memory.start_session(
            imported.id,
            source=imported.source,
            title=imported.title,
            started_at=imported.started_at,
            **who,
        )
        if imported.relation:  # start_session does not change a session that is stored
            memory.sessions.create_session(imported.id, relation=imported.relation)
        new = known = messages = 0
        for batch in _batches(_read_turns(turns, same)):
            store = partial(_store_batch, memory, session, batch, is_told=not head.excerpt_of, live=live)
            for is_new, count in memory.sessions.with_index(store, idempotent=True):
                new, known, messages = new + is_new, known + (not is_new), messages + count
                on_turn()
        if not live:
            memory.end_session(session, "import")
        if memory.sessions.get_session(excerpt_id(imported.id)) is not None:
            memory.sessions.delete_session(excerpt_id(imported.id))
        # Two forms of a session are one session, also in two files.
        is_other = copies.add(session.id, imported.source)
        total = ImportResult(
            total.sessions + is_other, total.turns + new, total.messages + messages, total.known + known
        )
    for one in records:
        kept = one.counts.total() - one.counts["known"]
        total = replace(
            total, known=total.known + one.counts["known"], memories=kept, notes=one.counts["note"]
        )
        if problems is not None:
            problems += one.problems
    return total


def _sessions_of(
    memory: Memory, items: Iterable[StreamedItem], records: list[RecordImport], user: str
) -> Iterator[StreamedSession]:
    """Yield the conversations, and store the memories between them. The first memory adds its import to `records`."""
    for item in items:
        if isinstance(item, ImportedRecord):
            if not records:
                records.append(RecordImport(memory, user))
            records[0].take(item)
        else:
            yield item


def _matched(
    memory: Memory, head: ImportedSession, turns: Iterable[ImportedTurn]
) -> tuple[Iterable[ImportedTurn], Iterator[int | None]]:
    """Return the turns, and for each of their messages the index of the stored message that another form brought."""
    if head.in_forms and (stored := memory.sessions.get_messages(head.id)):
        turns = iter(turns)
        first = list(islice(turns, 1))
        turns = chain(first, turns)
        # If the ids of messages are those of the stored ones, they decide, and the session is read as a stream. A number
        # may be that of a line or a row, which another form counts otherwise.
        ref = first[0].messages[0].ref if first else ""
        if not ref or ref.isdigit() or not memory.sessions.turns.has_message(head.id, ref):
            turns = list(turns)
            return turns, iter(match_messages(list(_each(turns)), stored))
    return turns, repeat(None)


def _with_stored_owner(memory: Memory, head: ImportedSession) -> ImportedSession:
    """Return the session with the user and the chat of the stored one, if its file names none.

    Else the other form of a user's session would come in as a second session, which is the home's.
    """
    stored = None if "platform" in head.identity else memory.sessions.get_session(head.id)
    if stored is None or not stored.user:
        return head
    row = memory.sessions.turns.context(head.id, stored.user).row
    identity = json.loads(row.get("identity") or "{}")
    known = {name: identity[name] for name in _OWNER_FIELDS if identity.get(name)}
    return replace(head, identity={**known, **head.identity})


class _ReadTurn(NamedTuple):
    """A turn to store: its number in the session, and the messages of it that match none of the stored ones."""

    number: int
    turn: ImportedTurn
    missing: list[ImportedMessage]


def _read_turns(turns: Iterable[ImportedTurn], same: Iterator[int | None]) -> Iterator[_ReadTurn]:
    """Yield turns to store; `same` yields for each message the id of the stored one that it matches, or None."""
    # Some programs write the same id into several messages; only the first may keep it.
    seen: dict[str, int] = {}
    for number, imported in enumerate(turns):
        turn = _without_repeated_refs(imported, seen)
        yield _ReadTurn(
            number, turn, [m for m, other in zip(turn.messages, same, strict=False) if other is None]
        )


def _batches(turns: Iterable[_ReadTurn]) -> Iterator[list[_ReadTurn]]:
    """Yield the turns of one commit each. If the file has a fault, the turns before it come first."""
    batch: list[_ReadTurn] = []
    size = 0
    try:
        for read in turns:
            batch.append(read)
            size += sum(len(message.content) for message in read.turn.messages)
            if len(batch) == TURNS_IN_COMMIT or size > CHARS_IN_COMMIT:
                yield batch
                batch, size = [], 0
    except HermesError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _store_batch(
    memory: Memory, session: Session, batch: Sequence[_ReadTurn], *, is_told: bool, live: bool
) -> list[tuple[bool, int]]:
    """Store turns in one commit. Return for each True if it is new, and how many messages were stored."""
    with memory.sessions.transaction():
        return [_store_turn(memory, session, read, is_told=is_told, live=live) for read in batch]


def _store_turn(
    memory: Memory, session: Session, read: _ReadTurn, *, is_told: bool, live: bool
) -> tuple[bool, int]:
    """Store what is not stored yet of a turn. Return True if the turn is new, and the number of its new messages."""
    turn = read.turn
    if turn.copied == "wholly":
        return False, 0
    if not turn.copied and len(read.missing) < len(turn.messages):
        return False, _append(memory, session, _messages(read.missing, live=live))
    turn_id = _turn_id(memory, session, turn, read.number)
    if turn.copied == "partly" or memory.sessions.has_turn(turn_id):
        return False, _append(memory, session, _missing(memory, session, turn, turn_id, live=live))
    return True, _import_turn(memory, session, turn_id, turn, is_told=is_told, live=live)


def _without_repeated_refs(turn: ImportedTurn, seen: dict[str, int]) -> ImportedTurn:
    """Remove the `ref` of a message that another message has too, since the two would be taken for one."""
    messages = []
    for m in turn.messages:
        content = hash((m.role, m.content))
        messages.append(replace(m, ref="") if m.ref and seen.setdefault(m.ref, content) != content else m)
    return replace(turn, messages=tuple(messages))


def _turn_id(memory: Memory, session: Session, turn: ImportedTurn, index: int) -> str:
    """Derive the id of a turn from its name or position.

    If another turn is stored under the position (an abandoned branch), derive the id from the content.
    """
    # A name may be a number too, and is none of the positions of another form.
    turn_id = _id(session.id, f"turn {turn.id}" if turn.id else str(index))
    first = turn.messages[0].ref
    if turn.id or not memory.sessions.has_turn(turn_id):
        return turn_id
    if not first:
        messages = [(m.role, sqlite_text(m.content)) for m in turn.messages]
        stored = memory.sessions.turns.messages(turn_id)
        same = all(new == old for new, old in zip(messages, stored, strict=False))
        return turn_id if same else _id(session.id, f"{index} {json_digest(messages)}")
    by_ref = _id(session.id, f"ref {first}")
    known = memory.sessions.turns.has_message(session.id, first) and not memory.sessions.has_turn(by_ref)
    return turn_id if known else by_ref


def _id(session_id: str, name: str) -> str:
    return uuid.uuid5(_NAMESPACE, f"{session_id}/{name}").hex


def _import_turn(
    memory: Memory, session: Session, turn_id: str, turn: ImportedTurn, *, is_told: bool, live: bool
) -> int:
    """Store a turn and return the number of its messages. A turn without a word of a person is told to no provider."""
    messages = _messages(turn.messages, live=live)
    times = [m.timestamp for m in turn.messages if m.timestamp is not None]
    at, first = max(times, default=None), next(iter(times), None)
    user = _text_of(turn, "user")
    if is_told and user.strip():
        asked = next((m.timestamp for m in turn.messages if m.role == "user"), None)
        memory.end_turn(
            session,
            user,
            _text_of(turn, "assistant"),
            messages=messages,
            turn_id=turn_id,
            at=at,
            user_at=first if asked is None else asked,
        )
    else:
        memory.sessions.append_turn(session.id, _labelled(memory, session, messages), turn_id, at=at)
    return len(turn.messages)


def _missing(
    memory: Memory, session: Session, turn: ImportedTurn, turn_id: str, *, live: bool
) -> list[Message]:
    """Return the messages that a known turn gained since, as when the agent was still at work.

    The turn was delivered to the provider when it was first imported, and is not delivered again.
    """
    stored = len(memory.sessions.turns.messages(turn_id))
    missing = []
    for number, (m, message) in enumerate(
        zip(turn.messages, _messages(turn.messages, live=live), strict=True)
    ):
        # A message without a ref is identified by its position in the turn.
        message["ref"] = m.ref or turn_ref(turn_id, number)
        if (m.ref or number >= stored) and not memory.sessions.turns.has_message(session.id, message["ref"]):
            missing.append(message)
    return missing


def _append(memory: Memory, session: Session, messages: Sequence[Message]) -> int:
    """Store messages behind those of the session, and return their number."""
    for m in _labelled(memory, session, messages):
        memory.sessions.append_message(
            session.id,
            m["role"],
            m["content"],
            tool_calls=m.get("tool_calls", ()),
            tool_name=m.get("name", ""),
            tool_call_id=m.get("tool_call_id", ""),
            timestamp=m.get("timestamp"),
            speaker=m.get("speaker", ""),
            ref=m.get("ref", ""),
            origin=m["origin"],
        )
    return len(messages)


def _labelled(memory: Memory, session: Session, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages with the origins that `Memory.end_turn` would give them."""
    if not messages:
        return []
    read = memory.sessions.turns.context(session.id, session.owner, origin=True).origin
    asked = "\n".join(message["content"] for message in messages if message["role"] == "user")
    return memory.internals.origins.with_origins(session, messages, author_origin(session), read, asked=asked)


def _text_of(turn: ImportedTurn, role: str) -> str:
    return "\n".join(message.content for message in turn.messages if message.role == role)


def _messages(imported: Iterable[ImportedMessage], *, live: bool) -> list[Message]:
    """Return messages as a turn has them: a live one gets its origin when it is stored."""
    return [_message(message, live=live) for message in imported]


def _message(imported: ImportedMessage, *, live: bool) -> Message:
    message = Message(role=imported.role, content=imported.content)
    if not live:
        message["origin"] = "import"
    if imported.speaker:
        message["speaker"] = imported.speaker
    if imported.ref:
        message["ref"] = imported.ref
    if imported.timestamp is not None:
        message["timestamp"] = imported.timestamp
    if imported.tool_name:
        message["name"] = imported.tool_name
    if imported.tool_call_id:
        message["tool_call_id"] = imported.tool_call_id
    if imported.tool_calls:
        message["tool_calls"] = [dict(call) for call in imported.tool_calls]
    return message


# ------------------------------------------------------------------------------------------------------- duplicates

# One message is not enough to find candidates: many conversations begin with the same greeting.
_COMPARED_MESSAGES = 3

# If no message has a time, so many characters of the person must agree: nobody writes so many twice by
# chance.
_DISTINCTIVE_CHARS = 40


def _match_stored(sessions: SessionStore, imported: Iterable[StreamedSession]) -> Iterator[StreamedSession]:
    """Yield the same conversations, with the stored ids of sessions and messages for those that are stored already.

    Some programs make up new ids for each export. A conversation with an unknown id is the same as a stored one if one
    of the two is the beginning of the other: the same words in the same order, at the same times if the file has times.
    A stored conversation matches one conversation of a file at most, so that two which begin alike stay two.

    Matched conversations come last: a stored conversation whose own id is in the file must not be matched with another
    one.
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

    def __init__(self, sessions: SessionStore) -> None:
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
        stored = first_messages(self._sessions.database, source, _COMPARED_MESSAGES)
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
