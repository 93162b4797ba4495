"""Text on its way to a terminal, a log or a line of JSON: nothing in it drives the terminal or looks like a line of ours."""

from __future__ import annotations

import re

from hermes_core.safety.redact import redact

_DRIVES = "\\x7f-\\x9f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff"
_UNPRINTABLE = re.compile(f"[\\x00-\\x08\\x0b-\\x1f{_DRIVES}]")
# JSON escapes the C0 controls only. At U+2028 and U+2029 other programs end a line, and half a surrogate has no UTF-8.
_UNESCAPED = re.compile(f"[\\u2028\\u2029{_DRIVES}]")


def printable(text: str) -> str:
    """The text without what drives a terminal: control characters, and those that turn the direction of a line.

    >>> printable("red \\x1b[31m, back \\u202e")
    'red \N{REPLACEMENT CHARACTER}[31m, back \N{REPLACEMENT CHARACTER}'
    """
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def hanging(text: str) -> str:
    """An error or a warning fit for a terminal: without secrets, and its further lines indented, so that none of them
    passes for a line of ours.

    >>> print(hanging("it broke\\nerror: all is lost"))
    it broke
      error: all is lost
    """
    return re.sub(r"\n(?=\S)", "\n  ", printable(redact(text).strip("\r\n").replace("\r\n", "\n")))


def json_line(text: str) -> str:
    """Text of JSON with escapes for what drives a terminal, or ends a line for some reader; it says the same.

    >>> print(json_line('"clear \\x9b2J"'))
    "clear \\u009b2J"
    """
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
