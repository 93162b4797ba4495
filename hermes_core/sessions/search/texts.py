"""The text of a message as the search indexes get it."""

from __future__ import annotations

import re

from hermes_core.sessions.records import sqlite_text

_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")


def readable_calls(calls: str) -> str:
    r"""Return the JSON of tool calls with \uXXXX escapes replaced by their letters, so that a search finds them."""
    if "\\u" not in calls:
        return calls
    return sqlite_text(_ESCAPED.sub(lambda match: chr(int(match[1], 16)), calls))
