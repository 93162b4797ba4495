"""Importer for the export of claude.ai: conversations.json, a list of conversations with `chat_messages`.

Messages form a tree (`uuid`, `parent_message_uuid`). An edited question begins a new branch, and the old branch stays in
the file. The branch that was last on screen is read. It ends with `current_leaf_message_uuid`, which a saved page has
and the export lacks, else with the last message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from hermes_core.errors import ImportFailed
from hermes_memory_importers import (
    ImportedMessage,
    ImportedSession,
    SkipLog,
    StreamedSession,
    expected,
    read_fact,
    read_list,
    read_message,
    read_object,
    read_parts,
    read_records,
    read_text,
    read_time,
    split_turns,
)
from hermes_memory_importers.conversations import stream_conversations

SOURCE = "claude-ai"
MESSAGES = "chat_messages"

_ROOT = "00000000-0000-"
"""The beginning of the parent id of a first message."""

_ROLES = {"human": "user", "assistant": "assistant"}


def score_claude_ai(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 4 if a value is a conversation of claude.ai, else 0."""
    return 4 if isinstance(value, dict) and isinstance(value.get(MESSAGES), list) else 0


def read_claude_ai(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every conversation of a file."""
    return stream_claude_ai(read_records(path, skips), skips)


def stream_claude_ai(values: Iterable[Any], skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every conversation among these values, in their order. A turn has the id of its first message."""
    return stream_conversations(
        values, lambda item, where: _session(read_object(item, where), where, skips), skips
    )


def _session(item: Mapping[str, Any], where: str, skips: SkipLog) -> ImportedSession:
    own_id = read_text(item.get("uuid"), f"{where}, uuid")
    if not own_id:
        raise expected(f"{where}, uuid", "an id", item.get("uuid"))
    title = read_fact(read_text, item.get("name"), f"{where}, name", skips) or ""
    started = read_fact(read_time, item.get("created_at"), f"{where}, created_at", skips)
    messages: list[ImportedMessage] = []
    for place, message in _branch(item, where, skips):
        try:
            messages += _messages_of(message, place, skips)
        except ImportFailed as exc:
            skips.fault(exc)
    return ImportedSession(
        id=f"{SOURCE}-{own_id}",
        source=SOURCE,
        title=title,
        started_at=started,
        turns=tuple(split_turns(messages, named=True)),
    )


def _branch(item: Mapping[str, Any], where: str, skips: SkipLog) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the messages of the branch that was last on screen, each with its place in the file."""
    places: list[tuple[str, Mapping[str, Any]]] = []
    for index, raw in enumerate(read_list(item.get(MESSAGES), f"{where}, {MESSAGES}"), 1):
        try:
            places.append((f"{where}, message {index}", read_object(raw, f"{where}, message {index}")))
        except ImportFailed as exc:
            skips.fault(exc)
    skips.open(len(item[MESSAGES]))
    numbers = {
        message.get("uuid"): at for at, (_, message) in enumerate(places) if _is_id(message.get("uuid"))
    }
    leaf = item.get("current_leaf_message_uuid")
    parents = {parent for _, message in places if _is_id(parent := message.get("parent_message_uuid"))}
    ids = [message.get("uuid") for _, message in places]
    leaves = [at for at, own in enumerate(ids) if not (_is_id(own) and own in parents)] if parents else []
    newest = max(reversed(leaves), key=lambda at: _moment(places[at][1]), default=len(places) - 1)
    at = numbers[leaf] if _is_id(leaf) and leaf in numbers else newest
    branch: dict[int, None] = {}
    while at >= 0 and at not in branch:
        branch[at] = None
        parent = places[at][1].get("parent_message_uuid")
        # If the parent is missing or not named, the message before is taken for it.
        before = -1 if _is_id(parent) and parent.startswith(_ROOT) else at - 1
        at = numbers.get(parent, before) if _is_id(parent) else before
    for at, (place, _) in enumerate(places):
        if at not in branch:
            skips.note("messages of a branch that was left", place)
    # The links tell the order, since a file may hold an answer before its question.
    return [places[at] for at in reversed(branch)]


def _moment(message: Mapping[str, Any]) -> float:
    """Return the time of a message, 0 if it has none that can be read."""
    try:
        return read_time(message.get("created_at"), "") or 0.0
    except ImportFailed:
        return 0.0


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)


def _messages_of(message: Mapping[str, Any], where: str, skips: SkipLog) -> list[ImportedMessage]:
    """Return the messages of a record: the text before a tool result, the result, the text after it."""
    sender = message.get("sender")
    if not isinstance(sender, str) or sender not in _ROLES:
        raise expected(f"{where}, sender", " or ".join(_ROLES), sender)
    at = read_time(message.get("created_at"), f"{where}, created_at")
    ref = read_text(message.get("uuid"), f"{where}, uuid")
    parts = (part for block in _blocks(message, where, skips) for part in read_parts([block], where, skips))
    return read_message(_ROLES[sender], parts, where, skips, ref=ref, at=at)


def _blocks(message: Mapping[str, Any], where: str, skips: SkipLog) -> Iterator[Any]:
    """Yield the parts of a message. A long paste is an attachment without a name; older exports have only a text."""
    content = read_list(message.get("content") or [], f"{where}, content")
    yield from content or [{"type": "text", "text": message.get("text")}]
    for field in ("files", "files_v2"):
        skips.note_part(
            "attached files", where, len(read_list(message.get(field) or [], f"{where}, {field}"))
        )
    for raw in read_list(message.get("attachments") or [], f"{where}, attachments"):
        attached = read_object(raw, f"{where}, attachments")
        if attached.get("file_name"):
            skips.note_part("attached files", where)
        else:
            yield {"type": "text", "text": attached.get("extracted_content")}
