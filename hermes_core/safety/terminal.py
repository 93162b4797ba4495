"""Text for a terminal, a log or a line of JSON, in which nothing controls the terminal or looks like a line of ours."""

from __future__ import annotations

import re
import unicodedata

from hermes_core.safety.redact import redact

_DRIVES = "\\x7f-\\x9f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff"
_UNPRINTABLE = re.compile(f"[\\x00-\\x08\\x0b-\\x1f{_DRIVES}]")
# JSON escapes the C0 controls only. Some programs end a line at U+2028 and U+2029, and a surrogate can't be encoded.
_UNESCAPED = re.compile(f"[\\u2028\\u2029{_DRIVES}]")

# Line ends and tabs change how a text looks, and nothing else.
_VISIBLE_CONTROLS = frozenset("\n\t")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    """Replace characters that control a terminal or turn the direction of a line.

    >>> printable("red \\x1b[31m, back \\u202e")
    'red \N{REPLACEMENT CHARACTER}[31m, back \N{REPLACEMENT CHARACTER}'
    """
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_controls(text: str) -> str:
    r"""Write characters that control a terminal or turn the direction of a line as escapes.

    >>> print(escape_controls("red \x1b[31m, back \u202e"))
    red \u001b[31m, back \u202e
    """
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def escape_hidden(text: str) -> str:
    r"""Write each character that is not seen as an escape, so that a person sees what is confirmed.

    >>> print(escape_hidden("tea\u200b and cake"))
    tea\u200b and cake
    """
    return "".join(
        f"\\u{ord(char):04x}" if _is_hidden(char) and char not in _VISIBLE_CONTROLS else char for char in text
    )


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN_CATEGORIES


def hanging(text: str) -> str:
    """Make an error or a warning fit for a terminal: redact it and indent further lines, so that none passes for ours.

    >>> print(hanging("it broke\\nerror: all is lost"))
    it broke
      error: all is lost
    """
    return re.sub(r"\n(?=\S)", "\n  ", printable(redact(text).strip("\r\n").replace("\r\n", "\n")))


def json_line(text: str) -> str:
    """Escape the characters of a JSON text that control a terminal or end a line. The value stays the same.

    >>> print(json_line('"clear \\x9b2J"'))
    "clear \\u009b2J"
    """
    return _UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun. `many` is the plural of nouns that don't take s.

    >>> counted(1, "entry", "entries"), counted(2000, "message")
    ('1 entry', '2,000 messages')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
