"""Importer for sessions of Claude Code: `~/.claude/projects/<folder>/<session id>.jsonl`, a record a line.

Records form a tree (`uuid`, `parentUuid`). A person who goes back to an earlier message begins a new branch, and the
messages of the old branch stay in the file. The branch that ends with the last record is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.importers.stream import (
    JsonLine,
    expected,
    lines_at,
    read_content,
    read_lines,
    read_list,
    read_object,
    read_text,
    read_time,
    tool_call,
)
from hermes_core.importers.values import (
    ImportedMessage,
    ImportedSession,
    SkipLog,
    StreamedSession,
    split_turns,
)

SOURCE = "claude-code"

# Text that the program sends in the name of the person: commands, their output, reminders, the editor's selection.
_INJECTED = re.compile(
    r"\s*<(command-|local-command-|system-reminder|ide_|bash-|task-notification|user-prompt-submit-hook)"
)
# A later kind wins: a title that the person gave replaces a generated one.
_TITLES = {"ai-title": "aiTitle", "custom-title": "customTitle"}

_HIDDEN_FLAGS = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage")


@dataclass(frozen=True, slots=True)
class _Record:
    """Facts about a line that decide on which branch it is."""

    number: int
    offset: int
    parent: str
    before: str
    message_id: str
    is_result: bool
    is_message: bool


@dataclass(slots=True)
class _Tree:
    """One session of the file."""

    records: dict[str, _Record] = field(default_factory=dict)
    title: str = ""
    last: str = ""
    leaf: str = ""


def is_claude_code(value: Mapping[str, Any]) -> bool:
    """Return True if a line looks like a record of Claude Code."""
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    return (
        "sessionId" in value or (kind == "summary" and "leafUuid" in value) or kind == "file-history-snapshot"
    )


def read_claude_code(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield the sessions of a file, nearly always one. A turn has the id of its first record."""
    trees = _trees(path, skips)
    for session_id, tree in trees.items():
        branch = _current_branch(tree)
        for uuid, record in tree.records.items():
            if record.is_message and uuid not in branch:
                skips.note("messages of a branch that was left", f"line {record.number}")
        places = [(r.number, r.offset) for uuid, r in tree.records.items() if uuid in branch and r.is_message]
        messages = _messages(path, places, skips)
        first = next(messages, None)
        if first is None:
            continue
        head = ImportedSession(f"{SOURCE}-{session_id}", SOURCE, tree.title, first.timestamp)
        yield head, split_turns(chain([first], messages), named=True)


def _trees(path: Path, skips: SkipLog) -> dict[str, _Tree]:
    trees: dict[str, _Tree] = {}
    titles: dict[str, str] = {}
    summaries: dict[str, str] = {}
    for line in read_lines(path, skips):
        try:
            value = read_object(line.value, f"line {line.number}")
        except ImportFailed as exc:
            skips.fault(exc)
            continue
        kind, uuid = value.get("type"), value.get("uuid")
        if isinstance(kind, str) and isinstance(title := value.get(_TITLES.get(kind, "")), str):
            titles[kind] = title
        elif isinstance(leaf := value.get("leafUuid"), str) and isinstance(value.get("summary"), str):
            summaries[leaf] = value["summary"]
        elif not isinstance(uuid, str) or not isinstance(value.get("sessionId"), str):
            skips.note("records of the program's own", f"line {line.number}")
        elif value.get("isSidechain"):
            skips.note("messages of a subagent", f"line {line.number}")
        else:
            tree = trees.setdefault(value["sessionId"], _Tree())
            # A resumed session repeats records of an earlier one; the first copy counts.
            if uuid not in tree.records:
                tree.records[uuid] = record = _record(line, value, tree.last)
                tree.last = uuid
                tree.leaf = uuid if record.is_message else tree.leaf
    for tree in trees.values():
        # A summary names the last record that it covers. Older files begin with summaries of other sessions.
        tree.title = next((summaries[leaf] for leaf in reversed(summaries) if leaf in tree.records), "")
    if trees:
        newest = list(trees.values())[-1]
        newest.title = next((titles[kind] for kind in reversed(_TITLES) if titles.get(kind)), newest.title)
    return trees


def _record(line: JsonLine, value: Mapping[str, Any], before: str) -> _Record:
    parent = value.get("parentUuid") or value.get("logicalParentUuid")
    if not isinstance(parent, str):
        parent = before if value.get("subtype") == "compact_boundary" else ""
    message = value.get("message")
    message = message if isinstance(message, Mapping) else {}
    message_id = message.get("id")
    return _Record(
        line.number,
        line.offset,
        parent,
        before,
        message_id if isinstance(message_id, str) else "",
        value.get("type") == "user" and "tool_result" in _kinds(message.get("content")),
        value.get("type") in ("user", "assistant") or _queued(value) is not None,
    )


def _current_branch(tree: _Tree) -> set[str]:
    """Return the records from the first message to the last.

    An answer with several tool calls is several records, each the parent of its own result; all of them belong to the
    branch.
    """
    branch: set[str] = set()
    at = tree.leaf
    while at and at not in branch:
        branch.add(at)
        record = tree.records[at]
        # A missing parent is in another file, or its line was lost.
        at = record.parent if record.parent in tree.records else record.before if record.parent else ""
    answers = {tree.records[uuid].message_id for uuid in branch} - {""}
    for uuid, record in tree.records.items():
        if record.message_id in answers or (record.is_result and record.parent in branch):
            branch.add(uuid)
    return branch


def _messages(path: Path, places: list[tuple[int, int]], skips: SkipLog) -> Iterator[ImportedMessage]:
    tool_names: dict[str, str] = {}
    for line in lines_at(path, places):
        try:
            found = list(_line_messages(line, tool_names, skips))
        except ImportFailed as exc:
            skips.fault(exc)
        else:
            yield from found


def _line_messages(line: JsonLine, tool_names: dict[str, str], skips: SkipLog) -> Iterator[ImportedMessage]:
    """Yield the messages of a record: each tool result, then the text."""
    where, value = f"line {line.number}", line.value
    at = read_time(value.get("timestamp"), f"{where}, timestamp")
    ref = read_text(value.get("uuid"), where)
    if (queued := _queued(value)) is not None:
        yield ImportedMessage("user", read_content(queued, where), ref=ref, timestamp=at)
        return
    message = read_object(value.get("message"), f"{where}, message")
    if any(value.get(name) for name in _HIDDEN_FLAGS) or message.get("model") == "<synthetic>":
        skips.note("notes and summaries of the program's own", where)
        return
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else read_list(content, where)
    texts: list[str] = []
    calls: list[dict[str, object]] = []
    for index, raw in enumerate(blocks):
        block = read_object(raw, f"{where}, content")
        kind = block.get("type")
        if kind == "text":
            text = read_content(block.get("text"), f"{where}, text")
            if value.get("type") == "assistant" or not _INJECTED.match(text):
                texts.append(text)
            else:
                skips.note("commands, reminders and other text of the program's own", where)
        elif kind == "tool_use":
            name = read_text(block.get("name"), f"{where}, name")
            call_id = read_text(block.get("id"), f"{where}, id")
            tool_names[call_id] = name
            calls.append(tool_call(call_id, name, block.get("input") or {}))
        elif kind == "tool_result":
            result = read_content(block.get("content"), f"{where}, tool_result")
            name = tool_names.pop(str(block.get("tool_use_id")), "")
            if result.strip():
                yield ImportedMessage("tool", result, ref=f"{ref}/{index}", timestamp=at, tool_name=name)
        else:
            skips.note(f"parts of the kind {str(kind)[:40]!r}", where)
    text = "\n".join(filter(str.strip, texts))
    if text or calls:
        role = value.get("type")
        if role not in ("user", "assistant"):
            raise expected(where, "user or assistant", role)
        yield ImportedMessage(role, text, ref=ref, timestamp=at, tool_calls=tuple(calls))


def _queued(value: Mapping[str, Any]) -> object:
    """Return the text that the person typed while the agent worked, None for any other record."""
    attached = value.get("attachment")
    if value.get("type") != "attachment" or not isinstance(attached, Mapping):
        return None
    typed = attached.get("type") == "queued_command" and attached.get("commandMode", "prompt") == "prompt"
    return attached.get("prompt") if typed else None


def _kinds(content: object) -> set[object]:
    blocks = content if isinstance(content, list) else []
    return {str(block.get("type")) for block in blocks if isinstance(block, Mapping)}
