"""Importer for chats in OpenAI's shapes and for ChatGPT's export.

A chat is `{"messages": [{"role", "content"}]}`, alone, in a list or one a line. ChatGPT's conversations.json holds trees
of messages; the branch that was last on screen is read. DeepSeek's export has the same trees, with `fragments` in a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.importers import (
    ImportedMessage,
    ImportedSession,
    SkipLog,
    StreamedSession,
    expected,
    json_digest,
    read_content,
    read_list,
    read_object,
    read_records,
    read_role,
    read_text,
    read_time,
    split_turns,
)
from hermes_memory_importers.conversations import stream_conversations

# Transcripts of Hermes Agent begin with the facts about the session.
_HEADER_ROLE = "session_meta"

_DEEPSEEK_ROLES = {"REQUEST": "user", "RESPONSE": "assistant"}

# ChatGPT stores its reasoning and its notes about the person beside the conversation.
_HIDDEN_KINDS = frozenset({"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context"})


def is_openai(value: Mapping[str, Any]) -> bool:
    """Return True if a value looks like a chat, a message of a chat, or a conversation of ChatGPT."""
    if isinstance(nodes := value.get("mapping"), Mapping):
        return not nodes or any(isinstance(node, Mapping) and "message" in node for node in nodes.values())
    if isinstance(messages := value.get("messages"), list):
        return not messages or any(isinstance(message, Mapping) and "role" in message for message in messages)
    return value.get("role") == _HEADER_ROLE or (
        "role" in value and ("content" in value or "tool_calls" in value)
    )


def score_openai(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 1 if a value looks like a chat, else 0."""
    return 1 if isinstance(value, dict) and is_openai(value) else 0


def read_openai(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every conversation of a file."""
    return stream_openai(read_records(path, skips), skips)


def stream_openai(values: Iterable[Any], skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every conversation among these values, in their order, without empty ones.

    A conversation that can't be read is logged as a fault. In a ChatGPT export, which nobody corrects by hand, a single
    message that can't be read is a fault and the rest of the conversation is imported.
    """
    return stream_conversations(
        _conversations(values), lambda item, where: _session(read_object(item, where), where, skips), skips
    )


def _conversations(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values, or the one conversation that they are the messages of."""
    rest = iter(values)
    first = next(rest, None)
    if isinstance(first, dict) and "role" in first:
        yield {"messages": [first, *rest]}
    elif first is not None:
        yield first
        yield from rest


def _session(item: Mapping[str, Any], where: str, skips: SkipLog) -> ImportedSession:
    if "mapping" in item:
        messages = list(_branch_messages(item, where, skips))
        nodes = read_object(item["mapping"], f"{where}, mapping").values()
        source = "deepseek" if any(map(_is_deepseek, nodes)) else "chatgpt"
    elif "messages" in item:
        source, messages = "openai", list(_listed_messages(item["messages"], where))
    else:
        raise expected(where, "'messages' or 'mapping'", sorted(item))
    own_id = read_text(item.get("conversation_id") or item.get("id"), f"{where}, id")
    if source == "openai" or not own_id:
        # Two files may both call a conversation "1". Its first message tells them apart, and stays when it grows.
        begins = messages[:1] if own_id else messages
        own_id = "-".join(filter(None, (own_id, json_digest([[m.role, m.content] for m in begins]))))
    times = (item.get(name) for name in ("create_time", "created_at", "inserted_at"))
    started = read_time(next(filter(None, times), None), f"{where}, create_time")
    return ImportedSession(
        id=f"{source}-{own_id}",
        source=source,
        title=read_text(item.get("title"), f"{where}, title"),
        started_at=started or next((m.timestamp for m in messages if m.timestamp is not None), None),
        turns=tuple(split_turns(messages)),
        minted=source == "openai",
        copyable=source != "openai",
    )


def _listed_messages(value: object, where: str) -> Iterator[ImportedMessage]:
    for index, raw in enumerate(read_list(value, f"{where}, messages"), 1):
        place = f"{where}, message {index}"
        message = read_object(raw, place)
        if message.get("role") == _HEADER_ROLE:
            continue
        role = read_role(message.get("role"), f"{place}, role")
        content = read_content(message.get("content"), f"{place}, content")
        calls = message.get("tool_calls") or []
        if not role or not (content.strip() or calls):
            continue
        yield ImportedMessage(
            role=role,
            content=content,
            speaker=read_text(message.get("name"), f"{place}, name") if role != "tool" else "",
            ref=read_text(message.get("id"), f"{place}, id"),
            timestamp=read_time(message.get("timestamp") or message.get("created_at"), f"{place}, timestamp"),
            tool_name=read_text(message.get("name"), f"{place}, name") if role == "tool" else "",
            tool_calls=tuple(
                dict(read_object(call, f"{place}, tool_calls"))
                for call in read_list(calls, f"{place}, tool_calls")
            ),
        )


def _branch_messages(item: Mapping[str, Any], where: str, skips: SkipLog) -> Iterator[ImportedMessage]:
    for node_id, node in _branch(item, where):
        if node.get("message") is None:
            continue
        try:
            place = f"{where}, node {node_id}"
            if _is_deepseek(node):
                found = _deepseek_message(node["message"], node_id, place, skips)
            else:
                found = _tree_message(node["message"], place)
        except ImportFailed as exc:
            skips.fault(exc)
        else:
            if found is not None:
                yield found


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
    return leaves[-1] if leaves else None


def _is_deepseek(node: object) -> bool:
    message = node.get("message") if isinstance(node, Mapping) else None
    return (
        isinstance(message, Mapping)
        and "author" not in message
        and isinstance(message.get("fragments"), list)
    )


def _deepseek_message(
    message: Mapping[str, Any], node_id: str, where: str, skips: SkipLog
) -> ImportedMessage | None:
    """Return the message of a node of DeepSeek, whose kinds of fragments tell who wrote it."""
    texts: dict[str, list[str]] = {"user": [], "assistant": []}
    for raw in message["fragments"]:
        fragment = read_object(raw, f"{where}, fragments")
        kind = read_text(fragment.get("type"), f"{where}, type")
        if kind in _DEEPSEEK_ROLES:
            texts[_DEEPSEEK_ROLES[kind]].append(read_content(fragment.get("content"), f"{where}, content"))
        else:
            skips.note(f"parts of the kind {kind[:40]!r}", where)
    role = "user" if texts["user"] else "assistant"
    text = "\n".join(filter(str.strip, texts[role]))
    at = read_time(message.get("inserted_at"), f"{where}, inserted_at")
    return ImportedMessage(role, text, ref=node_id, timestamp=at) if text else None


def _tree_message(node: object, where: str) -> ImportedMessage | None:
    """Return the message of a node, None for instructions, reasoning and hidden messages."""
    message = read_object(node, where)
    author = read_object(message.get("author"), f"{where}, author")
    role = read_role(author.get("role"), f"{where}, role")
    content = read_object(message.get("content"), f"{where}, content")
    metadata = read_object(message.get("metadata") or {}, f"{where}, metadata")
    hidden = metadata.get("is_visually_hidden_from_conversation")
    kind = read_text(content.get("content_type"), f"{where}, content_type")
    if not role or hidden or kind in _HIDDEN_KINDS:
        return None
    text = read_content(content.get("parts", content.get("text")), f"{where}, content")
    if not text.strip():
        return None
    recipient = message.get("recipient") or "all"
    calls = recipient != "all" and role == "assistant"
    return ImportedMessage(
        role=role,
        content="" if calls else text,
        ref=read_text(message.get("id"), f"{where}, id"),
        timestamp=read_time(message.get("create_time"), f"{where}, create_time"),
        tool_name=read_text(author.get("name"), f"{where}, name") if role == "tool" else "",
        tool_calls=({"name": str(recipient), "arguments": text},) if calls else (),
    )
