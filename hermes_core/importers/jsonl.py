"""One message a line: `{"session", "role", "content"}`, with `timestamp`, `speaker`, `ref`, `title` where there are any."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_core.importers.fields import (
    digest,
    expected,
    read_content,
    read_object,
    read_role,
    read_text,
    read_time,
)
from hermes_core.importers.turns import into_turns
from hermes_core.importers.values import ImportedMessage, ImportedSession


def read_jsonl(lines: Iterable[tuple[int, object]]) -> list[ImportedSession]:
    """Sessions in the order in which they begin, from (line number, parsed line) pairs; raises `ImportFailed`."""
    messages: dict[str, list[ImportedMessage]] = {}
    titles: dict[str, str] = {}
    for number, raw in lines:
        where = f"line {number}"
        line = read_object(raw, where)
        name = read_text(line.get("session"), f"{where}, session")
        if not name:
            raise expected(where, "a 'session' that says which conversation it belongs to", sorted(line))
        role = read_role(line.get("role"), f"{where}, role")
        content = read_content(line.get("content"), f"{where}, content")
        titles[name] = titles.get(name) or read_text(line.get("title"), f"{where}, title")
        if role and content.strip():
            messages.setdefault(name, []).append(
                ImportedMessage(
                    role=role,
                    content=content,
                    speaker=read_text(line.get("speaker"), f"{where}, speaker"),
                    ref=read_text(line.get("ref"), f"{where}, ref"),
                    timestamp=read_time(line.get("timestamp"), f"{where}, timestamp"),
                    tool_name=read_text(line.get("name"), f"{where}, name") if role == "tool" else "",
                )
            )
    return [_session(name, titles[name], said) for name, said in messages.items()]


def _session(name: str, title: str, messages: list[ImportedMessage]) -> ImportedSession:
    # Two files may both call a session "1": what it begins with tells them apart, and stays when the file grows.
    beginning = digest([messages[0].role, messages[0].content])
    times = (message.timestamp for message in messages if message.timestamp is not None)
    return ImportedSession(
        f"jsonl-{name}-{beginning}", "jsonl", title, next(times, None), into_turns(messages)
    )
