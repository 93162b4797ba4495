"""Import of conversations of other tools, and what an importer is written with.

`read_file` and `stream_file` detect the format of a file: our own JSON Lines, or one that an extension registers. Ids are
derived from the content of the file, so that a second import of the same file, or of a later export that continues the same
sessions, is recognised.
"""

from hermes_core.importers.formats import is_known, read_file, stream_file
from hermes_core.importers.forms import match_messages
from hermes_core.importers.parts import (
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
from hermes_core.importers.skill_messages import words_beside_skill
from hermes_core.importers.stream import (
    JsonLine,
    expected,
    first_bytes,
    in_time,
    json_digest,
    lines_at,
    read_fact,
    read_lines,
    read_list,
    read_object,
    read_records,
    read_role,
    read_text,
    read_time,
    read_values,
    whole_text,
)
from hermes_core.importers.unpack import find_files
from hermes_core.importers.values import (
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

__all__ = [
    "NO_WORDS",
    "OF_PROGRAM",
    "PROJECT_KIND",
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
    "words_beside_skill",
]
