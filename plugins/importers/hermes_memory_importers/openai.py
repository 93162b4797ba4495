"""Importer for chats in OpenAI's shapes and for ChatGPT's export.

A chat is `{"messages": [{"role", "content"}]}`, alone, in a list or one a line. ChatGPT's conversations.json holds trees
of messages; the branch that was last on screen is read. DeepSeek's export has the same trees, with `fragments` in a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import nan
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_memory_importers import (
    NO_WORDS,
    ImportedMessage,
    ImportedSession,
    Part,
    SkipLog,
    StreamedItem,
    expected,
    in_time,
    json_digest,
    read_chat_message,
    read_fact,
    read_list,
    read_message,
    read_object,
    read_parts,
    read_records,
    read_role,
    read_text,
    read_time,
    split_turns,
)
from hermes_memory_importers.conversations import stream_conversations
from hermes_memory_importers.markers import START, without_marks
from hermes_memory_importers.saved_memories import MEMORY_KIND, ContextRecords

_DEEPSEEK_ROLES = {"REQUEST": "user", "RESPONSE": "assistant"}

# ChatGPT stores its reasoning, and its memories and what the person set, beside the conversation.
_HIDDEN_KINDS = frozenset({"thoughts", "reasoning_recap"})
_CONTEXT_KINDS = frozenset({"user_editable_context", "model_editable_context"})
_MEMORY_TOOL = "bio"


def is_openai(value: Mapping[str, Any]) -> bool:
    """Return True if a value looks like a chat, or a message or an item of a chat."""
    if isinstance(messages := value.get("messages"), list):
        return not messages or any(isinstance(message, Mapping) and "role" in message for message in messages)
    return ("role" in value and bool(value.keys() & {"content", "parts", "tool_calls"})) or _is_item(value)


def _is_item(value: Mapping[str, Any]) -> bool:
    """Return True for an item of OpenAI's responses that holds a call or a result."""
    return isinstance(value.get("type"), str) and "call_id" in value


def is_chatgpt(value: Mapping[str, Any]) -> bool:
    """Return True if a value looks like a conversation of ChatGPT."""
    nodes = value.get("mapping")
    return isinstance(nodes, Mapping) and (
        not nodes or any(isinstance(node, Mapping) and "message" in node for node in nodes.values())
    )


def score_openai(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 3 for a conversation of ChatGPT, 1 for a chat in the shape that many programs write, else 0."""
    if not isinstance(value, dict):
        return 0
    return 3 if is_chatgpt(value) else int(is_openai(value))


def read_openai(path: Path, skips: SkipLog) -> Iterator[StreamedItem]:
    """Yield every conversation of a file."""
    return stream_openai(read_records(path, skips), skips)


def stream_openai(values: Iterable[Any], skips: SkipLog) -> Iterator[StreamedItem]:
    """Yield every conversation among these values, in their order, without empty ones, and the memories beside them.

    A conversation or a message that can't be read is logged as a fault, and the rest is imported.
    """
    saved = ContextRecords(skips)
    conversations = stream_conversations(
        _conversations(values, skips),
        lambda item, where: _session(read_object(item, where), where, skips, saved),
        skips,
    )
    for conversation in conversations:
        yield conversation
        yield from saved.pop()
    yield from saved.pop()


def _conversations(values: Iterable[Any], skips: SkipLog) -> Iterator[Any]:
    """Yield the conversations among the values, and one of the messages and items that stand between them.

    A file of messages may begin with a record of another kind: a header, the thoughts of the model.
    """
    loose: list[Any] = []
    for value in values:
        if isinstance(value, dict) and not value.keys() & {"messages", "mapping"}:
            loose.append(value)
            continue
        yield from _chat_of(loose, skips)
        loose = []
        yield value
    yield from _chat_of(loose, skips)


def _chat_of(values: list[Any], skips: SkipLog) -> Iterator[Any]:
    """Yield the chat that the values are the messages of, or the values, if none of them is a message."""
    if any("role" in value or _is_item(value) for value in values):
        skips.open(1, len(values))
        yield {"messages": values}
    else:
        yield from values


def _session(item: Mapping[str, Any], where: str, skips: SkipLog, saved: ContextRecords) -> ImportedSession:
    title = read_fact(read_text, item.get("title"), f"{where}, title", skips) or ""
    own_id = read_text(item.get("conversation_id") or item.get("id"), f"{where}, id")
    times = (item.get(name) for name in ("create_time", "created_at", "inserted_at"))
    started = read_fact(read_time, next(filter(None, times), None), f"{where}, create_time", skips)
    if "mapping" in item:
        messages = list(_branch_messages(item, where, skips, saved))
        nodes = read_object(item["mapping"], f"{where}, mapping").values()
        source = "deepseek" if any(map(_is_deepseek, nodes)) else "chatgpt"
    elif "messages" in item:
        values = read_list(item["messages"], f"{where}, messages")
        skips.open(len(values))
        source, messages = "openai", _listed_messages(values, where, skips)
        if item.get("system"):
            skips.note_part(NO_WORDS, f"{where}, system")
        if strange := sorted(_strange_fields(item, values)):
            shown = ", ".join(strange[:8]) + (", ..." if len(strange) > 8 else "")
            skips.note_part(f"fields of an unknown program in the shape of OpenAI's chats: {shown}", where)
    else:
        raise expected(where, "'messages' or 'mapping'", sorted(item))
    if source == "openai" or not own_id:
        # Two files may both call a conversation "1". Its first message tells them apart, and stays when it grows.
        begins = messages[:1] if own_id else messages
        own_id = "-".join(filter(None, (own_id, json_digest([[m.role, m.content] for m in begins]))))
    return ImportedSession(
        id=f"{source}-{own_id}",
        source=source,
        title=title,
        started_at=started or next((m.timestamp for m in messages if m.timestamp is not None), None),
        turns=tuple(split_turns(messages)),
        minted=source == "openai",
        copyable=source != "openai",
    )


def _listed_messages(values: Sequence[Any], where: str, skips: SkipLog) -> list[ImportedMessage]:
    """Return the messages of a chat, in the order of their times if each has one."""
    found: list[list[ImportedMessage]] = []
    times: list[float] = []
    for index, raw in enumerate(values, 1):
        place = f"{where}, message {index}"
        try:
            value = read_object(raw, place)
            moment = next((value[name] for name in _TIMES if value.get(name)), None)
            at = read_fact(read_time, moment, f"{place}, timestamp", skips)
            found.append(
                read_chat_message(value, place, skips, ref=read_text(value.get("id"), f"{place}, id"), at=at)
            )
        except ImportFailed as exc:
            skips.fault(exc)
        else:
            times.append(nan if at is None else at)
    return list(chain.from_iterable(in_time(found, times)))


def _branch_messages(
    item: Mapping[str, Any], where: str, skips: SkipLog, saved: ContextRecords
) -> Iterator[ImportedMessage]:
    branch = _branch(item, where)
    names = {name for name, _ in branch}
    nodes = read_object(item["mapping"], f"{where}, mapping").items()
    messages = {name for name, node in nodes if isinstance(node, dict) and node.get("message") is not None}
    skips.open(len(messages))
    for name in sorted(messages - names):
        skips.note("messages of a branch that was left", f"{where}, node {name}")
    for node_id, node in branch:
        if node.get("message") is None:
            continue
        try:
            place = f"{where}, node {node_id}"
            if _is_deepseek(node):
                found = _deepseek_messages(node["message"], node_id, place, skips)
            else:
                found = _tree_messages(node["message"], place, skips, saved)
        except ImportFailed as exc:
            skips.fault(exc)
        else:
            yield from found


def _branch(item: Mapping[str, Any], where: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the nodes from the root to the node that was last on screen, else to the newest leaf."""
    nodes = read_object(item["mapping"], f"{where}, mapping")
    current = item.get("current_node")
    if not isinstance(current, str) or current not in nodes:
        current = _newest_leaf(nodes)
    branch: list[tuple[str, Mapping[str, Any]]] = []
    seen: set[str] = set()
    while isinstance(current, str) and current in nodes:
        if current in seen:
            raise expected(f"{where}, node {current}", "a tree", "a node that is its own ancestor")
        seen.add(current)
        node = read_object(nodes[current], f"{where}, node {current}")
        branch.append((current, node))
        current = node.get("parent")
    return branch[::-1]


def _newest_leaf(nodes: Mapping[str, Any]) -> str | None:
    parents = [node.get("parent") for node in nodes.values() if isinstance(node, dict)]
    inner = {parent for parent in parents if isinstance(parent, str)}
    leaves = [name for name in nodes if name not in inner]
    return max(reversed(leaves), key=lambda name: _moment(nodes[name]), default=None)


def _moment(node: object) -> float:
    """Return the time of the message of a node, 0 if it has none that can be read."""
    message = node.get("message") if isinstance(node, Mapping) else None
    try:
        return (read_time(message.get("create_time"), "") or 0.0) if isinstance(message, Mapping) else 0.0
    except ImportFailed:
        return 0.0


def _is_deepseek(node: object) -> bool:
    message = node.get("message") if isinstance(node, Mapping) else None
    return (
        isinstance(message, Mapping)
        and "author" not in message
        and isinstance(message.get("fragments"), list)
    )


def _deepseek_messages(
    message: Mapping[str, Any], node_id: str, where: str, skips: SkipLog
) -> list[ImportedMessage]:
    """Return the messages of a node of DeepSeek, whose kinds of fragments tell who wrote it."""
    at = read_time(message.get("inserted_at"), f"{where}, inserted_at")
    texts: dict[str, list[Part]] = {"user": [], "assistant": []}
    others = 0
    for raw in message["fragments"]:
        fragment = read_object(raw, f"{where}, fragments")
        kind = read_text(fragment.get("type"), f"{where}, type")
        if kind in _DEEPSEEK_ROLES:
            texts[_DEEPSEEK_ROLES[kind]] += read_parts(fragment.get("content"), f"{where}, content", skips)
        else:
            others += 1
            skips.note_part(f"parts of the kind {kind[:40]!r}", where)
    roles = [role for role, parts in texts.items() if parts]
    if not roles:
        skips.open(0) if others else skips.note(NO_WORDS, where)
        return []
    skips.open(len(roles))
    return [
        one
        for number, role in enumerate(roles)
        for one in read_message(
            role, texts[role], where, skips, ref=f"{node_id}/{number}" if number else node_id, at=at
        )
    ]


def _tree_messages(node: object, where: str, skips: SkipLog, saved: ContextRecords) -> list[ImportedMessage]:
    """Return the messages of a node, none for instructions, reasoning and hidden messages."""
    message = read_object(node, where)
    author = read_object(message.get("author"), f"{where}, author")
    role = read_role(author.get("role"), f"{where}, role")
    content = read_object(message.get("content"), f"{where}, content")
    metadata = read_object(message.get("metadata") or {}, f"{where}, metadata")
    kind = read_text(content.get("content_type"), f"{where}, content_type")
    ref = read_text(message.get("id"), f"{where}, id")
    at = read_time(message.get("create_time"), f"{where}, create_time")
    if kind in _CONTEXT_KINDS:
        saved.take(content, where)
    elif metadata.get("is_visually_hidden_from_conversation"):
        skips.note("messages that were hidden from the person", where)
    elif kind in _HIDDEN_KINDS:
        skips.note(f"parts of the kind {kind!r}", where)
    elif not role:
        skips.note(NO_WORDS, where)
    else:
        name = read_text(author.get("name"), f"{where}, name")
        parts = _tree_parts(message, content, role, name, f"{where}, content", skips)
        if role == "assistant" and message.get("recipient") == _MEMORY_TOOL:
            parts = _with_memory(parts, skips, saved)
        elif role != "tool":
            parts = _without_marks(parts, metadata, role, where, skips)
        return read_message(role, parts, where, skips, ref=ref, at=at)
    return []


def _with_memory(parts: Iterator[Part], skips: SkipLog, saved: ContextRecords) -> Iterator[Part]:
    """Yield the call by which the model saved a memory, which is a record too."""
    for part in parts:
        text = str((part.call or {}).get("arguments", "")).strip()
        if not text.startswith("{") and saved.add(text, MEMORY_KIND):
            skips.open(1, 0)
        yield part


def _without_marks(
    parts: Iterator[Part], metadata: Mapping[str, Any], role: str, where: str, skips: SkipLog
) -> Iterator[Part]:
    """Yield the parts with what marks of citations and entities stand for."""
    for part in parts:
        # Only marks that no keyboard types are a program's in the words of a person.
        if part.kind == "text" and (role == "assistant" or START in part.text):
            text, unknown = without_marks(part.text, metadata)
            skips.note_part("marks of citations and pictures of which the file says nothing", where, unknown)
            yield replace(part, text=text)
        else:
            yield part


def _tree_parts(
    message: Mapping[str, Any], content: Mapping[str, Any], role: str, name: str, where: str, skips: SkipLog
) -> Iterator[Part]:
    shown = content.get("parts", content.get("text"))
    parts = read_parts([content] if shown is None else shown, where, skips)
    recipient = message.get("recipient") or "all"
    if role == "tool":
        if text := "\n".join(part.text for part in parts):
            yield Part("result", text, None, name)
    elif role == "assistant" and recipient != "all":
        if text := "\n".join(part.text for part in parts):
            yield Part("call", call={"name": str(recipient), "arguments": text})
    else:
        yield from parts
    metadata = message.get("metadata")
    attached = metadata.get("attachments") if isinstance(metadata, Mapping) else None
    for one in attached if isinstance(attached, list) else ():
        # A picture is a part of the content too.
        if isinstance(one, Mapping) and not str(one.get("mime_type")).startswith("image/"):
            skips.note_part("attached files", where)


_TIMES = ("timestamp", "created_at", "create_time", "createdAt", "created", "ts")
_CHAT_FIELDS = frozenset(
    [
        "id",
        "conversation_id",
        "title",
        "messages",
        "model",
        "system",
        "tools",
        "metadata",
        "create_time",
        "created_at",
        "inserted_at",
        "updated_at",
        "update_time",
    ]
)
_MESSAGE_FIELDS = frozenset(
    [
        "role",
        "content",
        "parts",
        "name",
        "id",
        "timestamp",
        "created_at",
        "create_time",
        "tool_calls",
        "tool_call_id",
        "tool_name",
        "function_call",
        "refusal",
        "audio",
        "annotations",
        "attachments",
        "experimental_attachments",
        "files",
        "images",
        "reasoning",
        "reasoning_content",
        "thinking",
        "type",
        "status",
        "call_id",
        "output",
        "arguments",
        "input",
        "action",
        "summary",
        "encrypted_content",
        "phase",
        "model",
        "metadata",
        "finish_reason",
        "stop_reason",
        "stop_sequence",
        "usage",
    ]
)


def _strange_fields(item: Mapping[str, Any], messages: Sequence[Any]) -> set[str]:
    """Return the fields of a chat that no API and no documented file has: the facts of an unknown program."""
    strange = {name for name, value in item.items() if value} - _CHAT_FIELDS
    for message in messages:
        if isinstance(message, Mapping) and "role" in message:
            strange |= {name for name, value in message.items() if value} - _MESSAGE_FIELDS
    return strange
