"""Reader for the folder `sessions` of a home of Hermes Agent.

A session has up to two files there. `session_ID.json` is the last state of the model's context, without times of
messages; `ID.jsonl` is the transcript of a gateway, a message a line, with times. Each may lack messages of the other one.
Both are read as one session, whichever is named. `sessions.json` tells who talks in a session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import nan
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.safety.skill_messages import words_beside_skill
from hermes_memory_importers import (
    NO_WORDS,
    ImportedMessage,
    ImportedSession,
    SkipLog,
    StreamedSession,
    expected,
    in_time,
    json_digest,
    match_messages,
    read_chat_message,
    read_fact,
    read_object,
    read_records,
    read_text,
    read_time,
    split_turns,
)

SOURCE = "hermes-agent"

OF_HERMES = "texts that Hermes Agent wrote in the person's name"

CONTEXTS = {"subagent": "subagent", "tool": "subagent", "cron": "cron"}
"""Sources without a person, whose turns are delivered to no provider."""

_HEADER_ROLE = "session_meta"
_INDEX = "sessions.json"

# Names of files of sessions, by which a transcript without a header is known.
_NAME = re.compile(r"(?:session_)?((?:cron_\w+_)?\d{8}_\d{6}(?:_\w+)?)\.jsonl?", re.ASCII)

_MACHINE = (
    "[IMPORTANT: Background process",
    "[IMPORTANT: You are running as a scheduled cron job",
    "[IMPORTANT: The following skill(s) were listed",
    "[ASYNC DELEGATION",
    "[CONTEXT COMPACTION",
    "[CONTEXT SUMMARY]:",
    "[SYSTEM:",
    "[Your active task list was preserved across context compression]",
)
# Notes that the gateway puts before the words of the person, and the frame of what they said in a voice message.
_NOTE = re.compile(
    r"\s*\[(System note|Runtime note|Note: model was|Replying to|The user sent an? (image|photo|video|file|document))\b"
    r"(?:[^\[\]]|\[[^\[\]]*\])*\](\s*\n\n|\s*\Z)"
)
_VOICE = re.compile(r"\s*\[The user sent a voice message~[^\"]*\"(.*?)\"\](?=\s*\n\n|\s*\Z)", re.DOTALL)


def session_id_of(session_id: object) -> str:
    """Return our id of a session of Hermes Agent."""
    return f"{SOURCE}-{session_id}"


def persons_words(text: str) -> str:
    """Return the person's own words in a user message; "" if Hermes Agent wrote all of it.

    A `/skill` command, and a skill that a channel loads, becomes a message with the whole skill in front of the person's
    words, if there are any.
    """
    beside = words_beside_skill(text)
    if beside is not None:
        return persons_words(beside)
    if text.startswith(_MACHINE):
        return ""
    said: list[str] = []
    while (voice := _VOICE.match(text)) or (note := _NOTE.match(text)):
        if voice:
            said.append(voice[1])
        text = text[(voice or note).end() :]  # type: ignore[union-attr]  # one of both matched
    return "\n\n".join(filter(None, [*said, text.strip()])) if said else text


def is_session_file(path: Path, value: Mapping[str, Any]) -> bool:
    """Return True if a value looks like the beginning of a file in the folder `sessions`."""
    return (
        _is_snapshot(value)
        or _is_dump(value)
        or _is_index(path, value)
        or value.get("role") == _HEADER_ROLE
        or ("role" in value and "content" in value and _NAME.fullmatch(path.name) is not None)
    )


def read_session_file(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield the session of a file, in the union of its two forms; nothing of a file that holds no session.

    Snapshots of several sessions may stand in one file.
    """
    records = list(read_records(path, skips))
    first = read_object(records[0], "line 1")
    if not _is_snapshot(first) and (_is_dump(first) or _is_index(path, first)):
        skips.note(
            "requests and indexes of sessions, whose messages stand in other files", "line 1", len(records)
        )
        return
    for own in [[record] for record in records] if _is_snapshot(first) else [records]:
        try:
            if not _is_snapshot(own[0]) and _is_snapshot(first):
                raise expected("a session", "'session_id' and 'messages'", own[0])
            form = _Form(path, own, skips)
        except ImportFailed as exc:
            skips.fault(exc)
            continue
        yield from _session(path, form, skips)


def _session(path: Path, own: _Form, skips: SkipLog) -> Iterator[StreamedSession]:
    forms = [own]
    if (other := _other_form(path, own)) is not None:
        forms.append(other)
    # A transcript has the times of the messages.
    forms.sort(key=lambda form: form.is_snapshot)
    messages = forms[0].messages
    if len(forms) == 2:
        messages = _union(messages, forms[1].messages)
        # The messages of the other file are in this account too.
        parts = [sum(message.parts for message in found) for found in (messages, own.messages)]
        skips.open(parts[0], parts[1])
    if not messages:
        return
    platform = next(filter(None, (form.platform for form in forms)), "")
    if own.id.startswith("cron_"):
        platform = "cron"
    session_id = own.id or json_digest([[m.role, m.content] for m in messages[:1]])
    facts = _origin(path.with_name(_INDEX), own.id)
    identity = {"agent_context": CONTEXTS.get(platform, "primary")}
    if facts.get("user_id") or facts.get("chat_id"):  # the owner decides who may find the session
        identity |= {**facts, "platform": facts.get("platform") or platform}
    if parent := next(filter(None, (form.parent for form in forms)), ""):
        identity["parent_id"] = session_id_of(parent)
    started = next((form.started for form in forms[::-1] if form.started is not None), messages[0].timestamp)
    head = ImportedSession(
        session_id_of(session_id),
        platform or SOURCE,
        next(filter(None, (form.title for form in forms)), ""),
        started,
        identity=identity,
        minted=not own.id,
        in_forms=bool(own.id),
    )
    yield head, tuple(split_turns(messages))


class _Form:
    """A file of a session: the facts about the session, and its messages."""

    def __init__(self, path: Path, records: Sequence[Any], skips: SkipLog) -> None:
        self.is_snapshot = _is_snapshot(records[0])
        if self.is_snapshot:
            facts, values, place = records[0], records[0]["messages"], "message"
        else:
            is_header = isinstance(records[0], dict) and records[0].get("role") == _HEADER_ROLE
            facts, values, place = (records[0] if is_header else {}), records, "line"
        name = _NAME.fullmatch(path.name)
        texts = ("session_id", "platform", "parent_session_id", "title")
        given, self.platform, self.parent, self.title = (
            read_fact(read_text, facts.get(field), field, skips) or "" for field in texts
        )
        in_home = path.parent.name == "sessions" and path.suffix == ".jsonl"
        self.id = given or (name[1] if name else path.stem if in_home else "")
        first, last = facts.get("session_start") or facts.get("timestamp"), facts.get("last_updated")
        self.started = read_fact(read_time, first, "session_start", skips)
        if self.started is None:
            self.started = _time_of_id(self.id)
        self.ended = read_fact(read_time, last, "last_updated", skips)
        self.messages: list[ImportedMessage] = []
        if self.is_snapshot:
            skips.open(len(values))
            if facts.get("system_prompt"):
                skips.note_part(NO_WORDS, "system_prompt")
        for number, value in enumerate(values, 1):
            try:
                self.messages += self._read(value, f"{place} {number}", skips)
            except ImportFailed as exc:
                skips.fault(exc)
        times = [nan if message.timestamp is None else message.timestamp for message in self.messages]
        self.messages = list(in_time(self.messages, times))

    def _read(self, value: object, where: str, skips: SkipLog) -> list[ImportedMessage]:
        record = read_object(value, where)
        if record.get("role") == _HEADER_ROLE:
            skips.open(0)
            return []
        at = read_time(record.get("timestamp"), f"{where}, timestamp")
        if at is None and self.started is not None:
            # The state of a context has no times of messages. A second each keeps them in order.
            at = self.started + len(self.messages)
            at = at if self.ended is None or self.ended < self.started else min(at, self.ended)
        return read_chat_message(record, where, skips, at=at, words=persons_words, reason=OF_HERMES)


def _time_of_id(session_id: str) -> float | None:
    """Return the time that the id of a session holds, None if it holds none."""
    moment = re.search(r"\d{8}_\d{6}", session_id)
    try:
        return (
            datetime.strptime(moment[0], "%Y%m%d_%H%M%S").replace(tzinfo=UTC).timestamp() if moment else None
        )
    except ValueError:
        return None


def _union(messages: Sequence[ImportedMessage], others: Sequence[ImportedMessage]) -> list[ImportedMessage]:
    """Return the messages of both forms. A message that only the second form has follows the one before it there."""
    found = match_messages(others, messages)
    union = [[message] for message in messages]
    begin: list[ImportedMessage] = []
    place, at = begin, None
    for other, index in zip(others, found, strict=True):
        if index is None:
            place.append(other if at is None else replace(other, timestamp=at))
        else:
            place = union[index]
            own = place[0]
            place[0] = replace(
                own,
                tool_name=own.tool_name or other.tool_name,
                tool_call_id=own.tool_call_id or other.tool_call_id,
                timestamp=other.timestamp if own.timestamp is None else own.timestamp,
            )
            at = place[0].timestamp
    return [*begin, *(message for group in union for message in group)]


def _other_form(path: Path, own: _Form) -> _Form | None:
    """Return the second file of a session, None if there is none that can be read."""
    other = path.with_name(f"{own.id}.jsonl" if own.is_snapshot else f"session_{own.id}.json")
    if not own.id or "/" in own.id or not other.is_file():
        return None
    try:
        records = list(read_records(other, SkipLog()))
        form = _Form(other, records, SkipLog()) if records and isinstance(records[0], dict) else None
    except ImportFailed:
        return None  # the fault is reported when that file is imported
    return form if form is not None and form.id == own.id and form.is_snapshot != own.is_snapshot else None


def _origin(index: Path, session_id: str) -> dict[str, str]:
    """Return who talks in a session, as the index of the folder tells it."""
    try:
        entries = next(read_records(index, SkipLog()), None) if index.is_file() else None
        for entry in entries.values() if isinstance(entries, dict) else ():
            origin = entry.get("origin") if isinstance(entry, dict) else None
            if isinstance(origin, dict) and entry.get("session_id") == session_id:
                names = ("platform", "user_id", "chat_id", "chat_type", "thread_id")
                return {name: read_text(origin.get(name), name) for name in names}
    except ImportFailed:
        pass  # the index only tells the owner
    return {}


def _is_snapshot(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("messages"), list)
        and ("session_id" in value or {"session_start", "model"} <= value.keys())
        and len(value.keys() & {"session_start", "last_updated", "message_count", "platform", "model"}) > 1
    )


def _is_dump(value: Mapping[str, Any]) -> bool:
    return {"session_id", "request", "reason"} <= value.keys() and isinstance(value["request"], dict)


def _is_index(path: Path, value: Mapping[str, Any]) -> bool:
    entries = value.values()
    return path.name == _INDEX and all(isinstance(one, dict) and "session_id" in one for one in entries)
