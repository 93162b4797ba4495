"""Escapes that stand for one character, read symbol by symbol.

An escape is an HTML entity (`&lt;`, `&#60;`, `&#x3c`), a backslash escape (`\\u003c`, `\\u{3c}`, `\\x3c`, `\\74`, `\\/`) or a
percent escape (`%3c`, `%u003c`, `%EF%BC%9C`). The escapes of an escape are the caller's: `&amp;lt;` gives "&" here.
"""

from __future__ import annotations

import html
import re
from functools import cache
from html.entities import html5
from typing import NamedTuple

from hermes_core.safety.lookalikes import wide_skeleton

ESCAPE_SIGNS = "&\\%"
"""Symbols with which an escape begins."""


class EscapeStep(NamedTuple):
    """Result of reading one symbol of an escape. Both of the first two are set if the escape may end here or go on.

    Attributes:
        rest: The escape with the symbol, if it may go on; else "".
        decoded: The symbol that the complete escape stands for ("" for a character that shows nothing); else None.
        taken: True if `decoded` includes the symbol that was read.
    """

    rest: str = ""
    decoded: str | None = None
    taken: bool = True


_NO_ESCAPE = EscapeStep()
_HEX = frozenset("0123456789abcdef")
_OCTAL = frozenset("01234567")
_DIGITS = frozenset("0123456789")


def read_escape(escape: str, symbol: str) -> EscapeStep:
    """Read the next symbol of an escape; `escape` holds those before it, in lower case.

    >>> read_escape("&#60", ";")
    EscapeStep(rest='', decoded='<', taken=True)
    """
    if escape.startswith("&#"):
        return _numeric_entity(escape, symbol)
    if escape[0] == "&":
        return _named_entity(escape, symbol)
    return _percent(escape, symbol) if escape[0] == "%" else _backslash(escape, symbol)


def _named_entity(escape: str, symbol: str) -> EscapeStep:
    names, beginnings = _named_entities()
    decoded = names.get(escape[1:])
    if decoded is not None and symbol == ";":
        return EscapeStep("", decoded)
    grown = escape + symbol
    goes_on = grown == "&#" or grown[1:] in beginnings
    # Browsers and models read an entity without its semicolon too.
    return EscapeStep(grown if goes_on else "", decoded, taken=False)


def _numeric_entity(escape: str, symbol: str) -> EscapeStep:
    digits = escape[2:]
    if not digits and symbol == "x":
        return EscapeStep("&#x")
    hexadecimal = digits.startswith("x")
    digits = digits.removeprefix("x")
    if symbol in (_HEX if hexadecimal else _DIGITS):
        # Without leading zeros a code point has at most 7 digits, so that digits without end don't hold back a stream.
        digits = (digits + symbol).lstrip("0") or "0"
        return EscapeStep(f"&#{'x' if hexadecimal else ''}{digits}") if len(digits) <= 7 else _NO_ESCAPE
    if not digits:
        return _NO_ESCAPE
    # Browsers read some numbers as Windows characters: `&#139;` is a bracket.
    return EscapeStep("", visible(html.unescape(f"{escape};")), taken=symbol == ";")


_SPACE_LETTERS = frozenset("nrtfv")
_LONG_ESCAPE = re.compile(r"\\u000[01]")
_SURROGATE = re.compile(r"\\ud[89ab]..")


def _backslash(escape: str, symbol: str) -> EscapeStep:
    grown = escape + symbol
    if escape == "\\":
        if symbol in "ux" or symbol in _OCTAL:
            return EscapeStep(grown)
        if symbol in _SPACE_LETTERS:
            return EscapeStep("", " ")
        return _NO_ESCAPE if symbol.isalnum() else EscapeStep("", symbol)
    if escape[1] in _OCTAL:
        if symbol in _OCTAL and len(escape) < 4:
            return EscapeStep(grown)
        return EscapeStep("", _character(escape[1:], 8), taken=False)
    kind, digits = escape[1], escape[2:]
    if digits.startswith("{"):
        if symbol == "}" and len(digits) > 1:
            return EscapeStep("", _character(digits[1:], 16))
        return EscapeStep(grown) if symbol in _HEX and len(digits) <= 8 else _NO_ESCAPE
    if not digits and symbol == "{":
        return EscapeStep(grown)
    if _SURROGATE.match(escape) and len(escape) in (6, 7):  # JSON writes a rare character as two escapes
        return EscapeStep(grown) if symbol == "\\u"[len(escape) - 6] else _NO_ESCAPE
    if symbol not in _HEX:
        return _NO_ESCAPE
    if kind == "x":
        return EscapeStep("", _character(grown[2:], 16)) if len(grown) == 4 else EscapeStep(grown)
    if len(grown) == 12:
        return EscapeStep("", visible(_pair(grown)))
    if len(grown) == 10 and not _SURROGATE.match(grown):
        return EscapeStep("", _character(grown[2:], 16))
    if len(grown) != 6 or _SURROGATE.match(grown):
        return EscapeStep(grown)
    rest = grown if _LONG_ESCAPE.match(grown) else ""  # `\U0000003c`
    return EscapeStep(rest, _character(grown[2:], 16))


def _pair(escapes: str) -> str:
    """Return the character of two surrogates, `\\ud835\\udc26`; "" if they are no pair."""
    units = bytes.fromhex(escapes.replace("\\u", ""))
    return units.decode("utf-16-be", "ignore")


def _percent(escape: str, symbol: str) -> EscapeStep:
    grown = escape + symbol
    if grown == "%u":
        return EscapeStep(grown)
    if grown.startswith("%u"):
        if symbol not in _HEX:
            return _NO_ESCAPE
        return EscapeStep("", _character(grown[2:], 16)) if len(grown) == 6 else EscapeStep(grown)
    position = len(escape) % 3
    if position == 0:  # another byte of one character
        return EscapeStep(grown) if symbol == "%" else _NO_ESCAPE
    if symbol not in _HEX:
        return _NO_ESCAPE
    if position == 1:
        return EscapeStep(grown)
    data = bytes.fromhex(grown.replace("%", ""))
    try:
        return EscapeStep("", visible(data.decode()))
    except UnicodeDecodeError as exc:
        # Before UTF-8 was common, one byte stood for one character.
        decoded = visible(data.decode("latin-1")) if len(data) == 1 else None
        return EscapeStep(grown if "unexpected end" in exc.reason else "", decoded)


def _character(digits: str, base: int) -> str:
    code = int(digits, base)
    return visible(chr(code)) if code <= 0x10FFFF else ""


def visible(text: str) -> str:
    """Return the first symbol that a reader sees in a decoded text; "" if it shows nothing."""
    return next(filter(None, map(wide_skeleton, text)), "")


@cache
def _named_entities() -> tuple[dict[str, str], frozenset[str]]:
    """Return the named entities that a reader sees as an ASCII symbol or nothing, and all beginnings of their names."""
    # Building this takes some milliseconds, and most processes never meet an entity.
    names = {}
    for name, text in html5.items():
        symbol = visible(text)
        if symbol.isascii():
            names[name.removesuffix(";").lower()] = symbol
    names |= {"lt": "<", "gt": ">", "amp": "&", "dash": "-"}
    return names, frozenset(name[:end] for name in names for end in range(1, len(name) + 1))
