"""The terms of a message as the search indexes get them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hermes_core.recall.tokens import grams, index_text
from hermes_core.sessions.records import State, sqlite_text

_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")


# States of messages that are in no index.
HIDDEN = (State.REWOUND, State.COPIED)


def terms_of_row(values: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the terms of a message from the columns of its row; None for a message that is in no index."""
    if values.get("state") in HIDDEN:
        return None
    # An imported message may lack columns, or have others in their place, which the table then refuses.
    texts = (values.get("content") or "", values.get("tool_name") or "", values.get("tool_calls") or "")
    return terms_of(*map(str, texts))


def terms_of(content: str, tool_name: str, tool_calls: str) -> tuple[str, str, str]:
    """Return the terms of a message's text, those of its tool and calls, and its grams, with spaces between them.

    Args:
        content: The text.
        tool_name: The name of the tool whose result the message is, or "".
        tool_calls: The calls as JSON, or "".
    """
    calls = f"{tool_name} {_readable(tool_calls)}" if tool_name or tool_calls else ""
    ones, pairs = grams(f"{content}\n{calls}")
    return index_text(content), index_text(calls), " ".join(ones + pairs)


def _readable(calls: str) -> str:
    r"""Return the JSON of tool calls with \uXXXX escapes replaced by their letters, so that a search finds them."""
    if "\\u" not in calls:
        return calls
    return sqlite_text(_ESCAPED.sub(lambda match: chr(int(match[1], 16)), calls))
