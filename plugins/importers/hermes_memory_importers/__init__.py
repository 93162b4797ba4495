"""Import of conversations of other tools: the command, the formats, and what an importer is written with.

`read_file` and `stream_file` detect the format of a file: our own JSON Lines, or one that an extension registers. Ids are
derived from the content of the file, so that a second import of the same file, or of a later export that continues the same
sessions, is recognised.

Names are loaded when they are first used: the extension is imported with every command.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_memory_importers.copies import CopyFinder
    from hermes_memory_importers.formats import (
        is_known,
        read_file,
        stream_file,
    )
    from hermes_memory_importers.forms import (
        match_messages,
    )
    from hermes_memory_importers.parts import (
        NO_WORDS,
        OF_PROGRAM,
        Part,
        read_chat_message,
        read_content,
        read_message,
        read_parts,
        sender_of,
        tool_call,
        without_text,
    )
    from hermes_memory_importers.run import LIVE_PLATFORM, ImportResult, import_sessions
    from hermes_memory_importers.stream import (
        JsonLine,
        expected,
        first_bytes,
        in_time,
        json_digest,
        lines_at,
        read_fact,
        read_lines,
        read_list,
        read_moment,
        read_object,
        read_records,
        read_role,
        read_text,
        read_time,
        read_values,
        whole_text,
    )
    from hermes_memory_importers.unpack import (
        find_files,
    )
    from hermes_memory_importers.values import (
        PROJECT_KIND,
        ImportedMessage,
        ImportedRecord,
        ImportedSession,
        ImportedTurn,
        Skip,
        SkipLog,
        StreamedItem,
        StreamedSession,
        excerpt_id,
        split_turns,
    )

_MODULES = {
    "copies": "CopyFinder",
    "run": "LIVE_PLATFORM ImportResult import_sessions",
    "formats": "is_known read_file stream_file",
    "forms": "match_messages",
    "parts": "NO_WORDS OF_PROGRAM Part read_chat_message read_content read_message read_parts sender_of tool_call without_text",
    "stream": "JsonLine expected first_bytes in_time json_digest lines_at read_fact read_lines read_list read_moment read_object read_records read_role read_text read_time read_values whole_text",
    "unpack": "find_files",
    "values": "PROJECT_KIND ImportedMessage ImportedRecord ImportedSession ImportedTurn Skip SkipLog StreamedItem StreamedSession excerpt_id split_turns",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "LIVE_PLATFORM",
    "NO_WORDS",
    "OF_PROGRAM",
    "PROJECT_KIND",
    "CopyFinder",
    "ImportResult",
    "ImportedMessage",
    "ImportedRecord",
    "ImportedSession",
    "ImportedTurn",
    "JsonLine",
    "Part",
    "Skip",
    "SkipLog",
    "StreamedItem",
    "StreamedSession",
    "excerpt_id",
    "expected",
    "find_files",
    "first_bytes",
    "import_sessions",
    "in_time",
    "is_known",
    "json_digest",
    "lines_at",
    "match_messages",
    "read_chat_message",
    "read_content",
    "read_fact",
    "read_file",
    "read_lines",
    "read_list",
    "read_message",
    "read_moment",
    "read_object",
    "read_parts",
    "read_records",
    "read_role",
    "read_text",
    "read_time",
    "read_values",
    "sender_of",
    "split_turns",
    "stream_file",
    "tool_call",
    "whole_text",
    "without_text",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
