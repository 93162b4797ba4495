"""Records of turns: what each turn was given by recall.

The records are for people who want to know why the agent knew something. They are bounded: the newest `MAX_RECORDS` are
kept, and each holds the beginnings of a few texts. A note or a message of a past session is stored by its name and not
by its text, so that a text that was removed does not stay here. Recall of a provider is stored as text. It is deleted
with its session.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hermes_core.sessions.daily_usage import usage_statements
from hermes_core.sessions.records import StoredMessage, sqlite_text
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.engine import Statement

MAX_RECORDS = 2_000
MAX_ITEMS = 20
MAX_TEXT_CHARS = 400
MAX_REASON_CHARS = 400


class RecalledItem(Struct, frozen=True):
    """One recalled text.

    Attributes:
        text: Beginning of the text; "" for a note or a message, which `handle` or `message_id` names.
        tokens: Estimated tokens of the whole text.
        score: The provider's score; None if it gave none.
        origin: Who or what the text comes from.
        repeated: True if it was left out because the model saw the text already.
        span: The place of the text in the message, if it was a part: its first character, and the one after its last.
    """

    text: str = ""
    tokens: int = 0
    score: float | None = None
    origin: str = ""
    handle: str = ""
    session_id: str = ""
    message_id: int | None = None
    repeated: bool = False
    span: tuple[int, int] | None = None


class RecalledSource(Struct, frozen=True):
    """The recall of one source for one turn.

    Attributes:
        source: Name of the provider, "notes" or "sessions".
        outcome: As `RecallPart.outcome`: "fresh", or "late, warmed" for instance.
        reason: The reason why the recall is not fresh, or the problem of the provider; "" if there is none.
        elapsed_ms: Milliseconds until the recall was complete.
        tokens: Estimated tokens of what the turn was given.
        items: The recalled texts, at most `MAX_ITEMS`.
        count: Number of recalled texts.
    """

    source: str
    outcome: str = ""
    reason: str = ""
    elapsed_ms: float = 0.0
    tokens: int = 0
    items: tuple[RecalledItem, ...] = ()
    count: int = 0


class TurnRecord(Struct, frozen=True):
    """Record of the recall and notes of one turn.

    Attributes:
        prompt_tokens: Estimated tokens of the notes and the provider's block in the system prompt.
        recall_tokens: Estimated tokens of the recall.
        elapsed_ms: Milliseconds that the turn waited for recall.
        left_out: A sentence for each recall that was left out.
    """

    prompt_tokens: int = 0
    recall_tokens: int = 0
    elapsed_ms: float = 0.0
    sources: tuple[RecalledSource, ...] = ()
    left_out: tuple[str, ...] = ()


class ListedTurn(Struct, frozen=True):
    """A turn in a list. `key` grows with each turn; `question` is the beginning of the person's message."""

    key: int
    id: str
    session_id: str
    number: int
    at: float
    question: str
    recall_tokens: int
    elapsed_ms: float


class StoredTurnRecord(Struct, frozen=True):
    """A stored turn with its record. `record` is None if the turn has none: it was imported, for instance."""

    id: str
    session_id: str
    user: str
    number: int
    at: float
    messages: tuple[StoredMessage, ...]
    record: TurnRecord | None


def record_statements(turn_id: str, owner: str, at: float, record: TurnRecord) -> list[Statement]:
    """Return statements that store the record of a new turn, and drop the oldest records.

    Run them in the transaction that stores the turn, after its row.
    """
    text = sqlite_text(json.dumps(msgspec.to_builtins(record), ensure_ascii=False))
    tokens = {"recall_tokens": record.recall_tokens, "prompt_tokens": record.prompt_tokens}
    return [
        ("INSERT INTO turn_records SELECT key, ? FROM turns WHERE id = ?", (text, turn_id)),
        (
            "DELETE FROM turn_records WHERE turn_key <= (SELECT key FROM turns WHERE id = ?) - ?",
            (turn_id, MAX_RECORDS),
        ),
        *usage_statements(owner, at, turns=1, **tokens),
    ]


def list_turns(
    db: SessionStore, *, user: str = "", before: int | None = None, limit: int = 20
) -> list[ListedTurn]:
    """Return turns with a record, newest first.

    Args:
        user: Owner of the turns; default: the person at home.
        before: Only turns with a lower key; None for all.
        limit: Largest number of turns.
    """
    rows = db.database.execute(
        # SQLite then walks the records, of which there are few, and not the turns of all users.
        """SELECT t.key, t.id, s.id AS session_id, t.number, t.at, r.record,
                  (SELECT substr(content, 1, 200) FROM messages m WHERE m.id = t.first_message_id) AS question
           FROM turn_records r CROSS JOIN turns t CROSS JOIN sessions s
           WHERE t.key = r.turn_key AND s.key = t.session_key AND r.turn_key < :before AND s.user = :user
             AND t.state = 0
           ORDER BY r.turn_key DESC LIMIT :limit""",
        {"before": 2**63 - 1 if before is None else before, "limit": limit, "user": sqlite_text(user)},
    )
    turns = []
    for row in rows:
        record = _decoded(row["record"])
        turns.append(
            ListedTurn(
                row["key"],
                row["id"],
                row["session_id"],
                row["number"],
                row["at"],
                " ".join((row["question"] or "").split()),
                record.recall_tokens,
                record.elapsed_ms,
            )
        )
    return turns


def turn_record(db: SessionStore, turn_id: str, *, max_messages: int = 50) -> StoredTurnRecord | None:
    """Return a stored turn with its first messages and its record; None if there is no such turn."""
    row = db.database.execute(
        """SELECT t.id, s.id AS session_id, s.user, t.number, t.at, t.first_message_id, t.last_message_id, r.record
           FROM turns t JOIN sessions s ON s.key = t.session_key LEFT JOIN turn_records r ON r.turn_key = t.key
           WHERE t.id = ?""",
        (sqlite_text(turn_id),),
    ).fetchone()
    if row is None:
        return None
    first = db.get_message(row["first_message_id"])
    messages = db.past.around(first.id, max_messages) if first is not None else None
    shown = (
        [m for m in messages.messages if row["first_message_id"] <= m.id <= row["last_message_id"]]
        if messages
        else []
    )
    record = None if row["record"] is None else _decoded(row["record"])
    return StoredTurnRecord(
        row["id"], row["session_id"], row["user"], row["number"], row["at"], tuple(shown), record
    )


def turns_at(db: SessionStore, session_id: str, messages: Sequence[StoredMessage]) -> dict[int, str]:
    """Return the ids of the turns that begin with one of these messages of a session, by the id of the message."""
    if not messages:
        return {}
    rows = db.database.execute(
        """SELECT first_message_id, id FROM turns WHERE session_key = (SELECT key FROM sessions WHERE id = ?)
           AND last_message_id >= ? AND first_message_id BETWEEN ? AND ? AND state = 0 LIMIT ?""",
        (sqlite_text(session_id), messages[0].id, messages[0].id, messages[-1].id, len(messages)),
    )
    return {row[0]: row[1] for row in rows}


def _decoded(text: str) -> TurnRecord:
    """Return a stored record; an empty one if a newer version wrote it or the disk changed it."""
    try:
        return msgspec.json.decode(text, type=TurnRecord)
    except msgspec.MsgspecError:
        return TurnRecord(left_out=("the record of this turn can't be read",))
