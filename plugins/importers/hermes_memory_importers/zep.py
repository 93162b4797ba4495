"""Importer for Zep and Graphiti: threads, and the nodes, edges and episodes of a graph, as their APIs answer them.

A value is an answer with one of the lists in `_LISTS`, or one element of such a list. A message of a thread, and an episode that
is one, becomes a message; every other episode, each fact and each entity with a summary becomes a record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import ImportFailed
from hermes_memory_importers import (
    ImportedMessage,
    ImportedRecord,
    ImportedSession,
    SkipLog,
    StreamedItem,
    StreamedSession,
    expected,
    read_chat_message,
    read_fact,
    read_list,
    read_object,
    read_records,
    read_text,
    read_time,
    split_turns,
    whole_text,
)
from hermes_memory_importers.conversations import note_other_lists, yield_record

SOURCE = "zep"

_LISTS = ("messages", "episodes", "nodes", "edges", "facts", "items")
_IDS = ("thread_id", "thread_uuid", "session_id", "group_id", "graph_id", "graph_uuid")
_ROLES = {
    **dict.fromkeys(("user", "human", "norole"), "user"),
    **dict.fromkeys(("assistant", "ai", "agent", "bot"), "assistant"),
    **dict.fromkeys(("tool", "function"), "tool"),
    "system": "system",
}

# Who speaks stands before the words in an episode: `Ann(user): Hello`, `user: Hello`.
_SPEAKER = re.compile(r"([^\n:()]{0,60}?)[ ]?(?:\(([a-z]*)\))?:[ ]?(?=\S)")


def score_zep(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 4 for an answer or an element of Zep or Graphiti, else 0."""
    if not isinstance(value, dict):
        return 0
    known = _kind(value) or any(
        isinstance(value.get(name), list)
        and any(isinstance(one, dict) and _kind(one) for one in value[name][:5])
        for name in _LISTS
    )
    return 4 if known else 0


def read_zep(path: Path, skips: SkipLog) -> Iterator[StreamedItem]:
    """Yield the records, a session for each answer with the messages of a thread, and the other sessions at the end."""
    loose: dict[str, list[ImportedMessage]] = {}
    for number, raw in enumerate(read_records(path, skips), 1):
        where = f"record {number}"
        try:
            value = read_object(raw, where)
            if _kind(value):
                yield from _element(value, _name(value, {}), where, loose, skips)
                continue
            elements = [
                (name, one)
                for name in _LISTS
                if value.get(name)
                for one in read_list(value[name], f"{where}, {name}")
            ]
        except ImportFailed as exc:
            skips.fault(exc)
            continue
        skips.open(len(elements))
        note_other_lists(value, _LISTS, where, skips)
        own: dict[str, list[ImportedMessage]] = {}
        begins = next(
            (str(one["uuid"]) for _, one in elements if isinstance(one, dict) and one.get("uuid")), ""
        )
        for at, (name, one) in enumerate(elements, 1):
            place = f"{where}, {name} {at}"
            thread = _name(one, value) if isinstance(one, dict) else ""
            yield from _element(one, thread or begins, place, own, skips)
        yield from _sessions(own)
    yield from _sessions(loose)


def _kind(value: Mapping[str, Any]) -> str:
    """Return what an element is: a fact, an entity, a message or another episode; "" for anything else."""
    if not isinstance(value.get("uuid"), str) or "chat_messages" in value:
        return ""
    if isinstance(value.get("fact"), str):
        return "fact"
    if isinstance(value.get("content"), str):
        if value.get("role_type") or str(value.get("role")) in _ROLES:
            return "message"
        if value.get("source") == "message":
            return "spoken"
        return "episode" if "source" in value or "source_description" in value else ""
    is_node = any(name in value for name in ("labels", "group_id", "graph_uuid")) and "summary" in value
    return "entity" if is_node and isinstance(value.get("name"), str) else ""


def _name(value: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Return the id of the thread that an element belongs to; "" if neither it nor the answer has one."""
    found = (one.get(name) for one in (value, answer) for name in _IDS)
    return next((one for one in found if isinstance(one, str) and one), "")


def _element(
    raw: object, thread: str, where: str, threads: dict[str, list[ImportedMessage]], skips: SkipLog
) -> Iterator[ImportedRecord]:
    """Yield the record of an element, or add its message to the thread."""
    kind = _kind(raw) if isinstance(raw, dict) else ""
    if kind == "fact" and isinstance(raw, dict) and (raw.get("invalid_at") or raw.get("expired_at")):
        skips.note("facts that no longer hold", where)
    elif kind in ("message", "spoken"):
        try:
            messages = _messages_of(read_object(raw, where), kind, where, skips)
        except ImportFailed as exc:
            skips.fault(exc)
        else:
            threads.setdefault(thread, []).extend(messages)
    else:
        yield from yield_record(partial(_record, kind=kind, skips=skips), raw, where, skips)


def _record(raw: object, where: str, kind: str, skips: SkipLog) -> ImportedRecord:
    value = read_object(raw, where)
    if not kind:
        raise expected(where, "a message, an episode, a fact or an entity", sorted(value))
    created = _time(value, where, skips) or 0.0
    text = read_text(value.get({"fact": "fact", "entity": "summary"}.get(kind, "content")), where).strip()
    title = ""
    if kind == "entity" and text:
        text = f"{value['name']}: {text}"
    elif kind == "episode":
        title = read_text(value.get("source_description") or value.get("name"), where)
    return ImportedRecord(MemoryRecord(whole_text(text), created_at=created, kind=kind), SOURCE, title)


def _time(value: Mapping[str, Any], where: str, skips: SkipLog) -> float | None:
    """Return the time that an element is about, else the time at which it was stored."""
    for name in ("reference_time", "valid_at", "created_at"):
        if value.get(name):
            return read_fact(read_time, value[name], f"{where}, {name}", skips)
    return None


def _messages_of(value: Mapping[str, Any], kind: str, where: str, skips: SkipLog) -> list[ImportedMessage]:
    at, ref = _time(value, where, skips), str(value["uuid"])
    if kind == "message":
        # Older answers have the role in `role_type`, and the speaker in `role`.
        role, speaker = value.get("role_type") or value.get("role"), value.get("name")
        if value.get("role_type") and not speaker and str(value.get("role")) not in _ROLES:
            speaker = value.get("role")
        said = [(str(role), read_text(speaker, f"{where}, name"), str(value["content"]))]
    else:
        said = list(_spoken(str(value["content"])))
    skips.open(len(said))
    found: list[ImportedMessage] = []
    for number, (role, speaker, words) in enumerate(said):
        chat = {"role": _ROLES.get(role.lower(), "user"), "content": words}
        own_ref = f"{ref}/{number}" if number else ref
        found += read_chat_message(chat, where, skips, ref=own_ref, at=at, speaker=speaker)
    return found


def _spoken(content: str) -> Iterator[tuple[str, str, str]]:
    """Yield the role, the speaker and the words of each message that an episode holds, a message or several lines of them."""
    blocks: list[tuple[str, str, list[str]]] = []
    for line in content.split("\n"):
        match = _SPEAKER.match(line)
        is_new = match is not None and (not blocks or bool(match[2]) or match[1].strip().lower() in _ROLES)
        if match is not None and is_new:
            name = match[1].strip()
            blocks.append((match[2] or name, "" if name.lower() in _ROLES else name, [line[match.end() :]]))
        elif blocks:
            blocks[-1][2].append(line)
        else:
            blocks.append(("", "", [line]))
    for role, speaker, lines in blocks:
        yield role, speaker, "\n".join(lines)


def _sessions(threads: Mapping[str, list[ImportedMessage]]) -> Iterator[StreamedSession]:
    for name, held in threads.items():
        # Lists of episodes begin with the newest one.
        in_order = all(message.timestamp is not None for message in held)
        messages = sorted(held, key=lambda one: one.timestamp or 0.0) if in_order else held
        if messages:
            head = ImportedSession(f"{SOURCE}-{name}", SOURCE, "", messages[0].timestamp)
            yield head, split_turns(messages, named=True)
