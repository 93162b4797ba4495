"""The grammar of a fence tag, as one automaton that reads a character at a time.

A tag is `<memory-context ...>` or `</memory-context ...>` however it is written: any letter case, white space around
the name, full-width or look-alike letters, characters that show nothing, and each character possibly escaped as an
entity, as `\\u003c`, `\\x3c` or `%3c`, also twice (`&amp;lt;`). A longer name (`<memory-contexts>`) is another tag.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hermes_core.safety.letters import LOOKALIKES, fold

NAME = "memory-context"

STARTERS = frozenset("<&\\%＆﹠％﹪＼﹨") | {form for form, sign in LOOKALIKES.items() if sign == "<"}
"""The characters with which a tag can begin; text without any of them holds none."""

STARTER = re.compile("[" + "".join(map(re.escape, sorted(STARTERS))) + "]")

_SPACES = r"\t-\r\x1c- "


def _candidate(starter: str, fillers: str, goes_on: str) -> str:
    """Pattern of `starter` and any of `fillers`, where none of the visible ASCII characters that can't go on follows.

    What can is said by what can't, all of it ASCII: such a class is looked up at once, whatever character it is asked for.
    """
    visible = map(chr, [*range(ord("\t"), ord("\r") + 1), *range(0x1C, 0x7F)])
    rules_out = "".join(re.escape(char) for char in visible if char not in goes_on)
    return rf"{re.escape(starter)}[{fillers}]*+(?:\Z()|[^{rules_out}])"


CANDIDATE = re.compile(
    "|".join(
        [
            _candidate("<", rf"{_SPACES}/<", "mM&\\%"),
            _candidate("&", "&", "lLaA#<\\%"),
            _candidate("\\", r"\\", "uUxX<&%"),
            _candidate("%", "%", "0123456789abcdefABCDEF<&\\"),
            *sorted(STARTERS - set("<&\\%")),  # reason enough, whatever follows
        ]
    )
)
"""Starters that what follows does not rule out: in `a < b && c` none begins a tag. With a group, the text ended before
that could be told.
"""

_NAMED = {
    "lt": "<",
    "gt": ">",
    "amp": "&",
    "sol": "/",
    "hyphen": "-",
    "dash": "-",
    "nbsp": " ",
    "tab": " ",
    "newline": " ",
    "shy": "",
    "zwj": "",
    "zwnj": "",
    "zerowidthspace": "",
}
_NAME_STARTS = frozenset(name[:end] for name in _NAMED for end in range(1, len(name)))
_HEX = frozenset("0123456789abcdef")

# Positions in the grammar. Behind "<" come the letters of the name; a closing tag has its own row of them.
_OUTSIDE, _BRACKET, _SLASH = 0, 1, 2
_OPENING, _CLOSING = 10, 40
_DASH = NAME.index("-")


class State(NamedTuple):
    """How much of a tag has been read: the position in the grammar and the escape that is under way."""

    position: int = _OUTSIDE
    escape: str = ""

    @property
    def named(self) -> bool:
        """Whether the whole name stands there, so that only its end is missing."""
        return self.position in (_OPENING + len(NAME), _CLOSING + len(NAME))

    @property
    def closing(self) -> bool:
        """Whether this is a closing tag."""
        return self.position >= _CLOSING


IDLE = State()


class Step(NamedTuple):
    """What one character did. `taken` is False when the character has to be read again in the new state."""

    kind: str  # "more": still a tag; "fail": no tag; "again": a new "<" inside; "end": complete with ">"; "open": ">" is still to come
    state: State = IDLE
    taken: bool = True


_FAIL = Step("fail")


def step(state: State, char: str) -> Step:
    """Read one character in `state`."""
    symbol = fold(char)
    if not symbol:
        return Step("more", state) if state != IDLE else _FAIL
    if state.escape:
        return _escaped(state, symbol)
    if symbol in "&\\%":
        return Step("more", State(state.position, symbol))
    return _advance(state, symbol)


def _escaped(state: State, symbol: str) -> Step:
    grown, decoded, taken = unescape(state.escape, symbol)
    if decoded is None:
        if grown:
            return Step("more", State(state.position, grown))
        return Step("open", state, taken=False) if state.named else _FAIL
    if decoded in ("&", "\\", "%"):
        return Step("more", State(state.position, decoded), taken)
    if not decoded:  # nothing to be seen, as `step` takes a character that shows nothing
        return Step("more", State(state.position), taken) if state.position else _FAIL
    return _advance(State(state.position), decoded)._replace(taken=taken)


def unescape(escape: str, symbol: str) -> tuple[str, str | None, bool]:
    """Go on reading an escape: (what is pending, what it means once complete, whether `symbol` was part of it).

    ("", None, False) means that it is no escape at all.
    """
    if escape[0] == "&":
        return _entity(escape, symbol)
    if escape == "\\" and symbol == "\\":
        return "\\", None, True
    if escape == "\\":
        return ("\\" + symbol, None, True) if symbol in "ux" else ("", None, False)
    if symbol not in _HEX:
        return "", None, False
    grown = escape + symbol
    digits = grown.lstrip("%\\ux")
    if len(digits) < (4 if grown.startswith("\\u") else 2):
        return grown, None, True
    return "", fold(chr(int(digits, 16))), True


def _entity(escape: str, symbol: str) -> tuple[str, str | None, bool]:
    if escape.startswith("&#"):
        return _numeric(escape, symbol)
    if escape[1:] in _NAMED:  # complete; its semicolon may be missing
        return "", _NAMED[escape[1:]], symbol == ";"
    name = escape[1:] + symbol
    if name == "#" or name in _NAMED or name in _NAME_STARTS:
        return escape + symbol, None, True
    return ("&", None, True) if escape == "&" and symbol == "&" else ("", None, False)


def _numeric(escape: str, symbol: str) -> tuple[str, str | None, bool]:
    digits = escape[2:]
    if not digits and symbol == "x":
        return "&#x", None, True
    base = 16 if digits.startswith("x") else 10
    digits = digits.removeprefix("x")
    if symbol in _HEX and (base == 16 or symbol.isdigit()):
        grown = (digits + symbol).lstrip("0") or "0"
        return (f"&#{'x' if base == 16 else ''}{grown}", None, True) if len(grown) <= 7 else ("", None, False)
    if not digits or not 0 < (code := int(digits, base)) <= 0x10FFFF:
        return "", None, False
    return "", fold(chr(code)), symbol == ";"


def _advance(state: State, symbol: str) -> Step:
    position = state.position
    if state.named:
        return _after_name(state, symbol)
    if symbol == "<":
        return Step("more" if position == _OUTSIDE else "again", State(_BRACKET))
    if position in (_BRACKET, _SLASH):
        return _before_name(position, symbol)
    if position == _OUTSIDE:
        return _FAIL
    row = _CLOSING if state.closing else _OPENING
    read = position - row
    if symbol == NAME[read]:
        return Step("more", State(position + 1))
    around_dash = read in (_DASH, _DASH + 1) and symbol == " "
    another_dash = read == _DASH + 1 and symbol == "-"
    return Step("more", State(position)) if around_dash or another_dash else _FAIL


def _before_name(position: int, symbol: str) -> Step:
    if symbol == " ":
        return Step("more", State(position))
    if symbol == "/":
        return Step("more", State(_SLASH))
    if symbol == NAME[0]:
        return Step("more", State((_OPENING if position == _BRACKET else _CLOSING) + 1))
    return _FAIL


def _after_name(state: State, symbol: str) -> Step:
    if symbol == ">":
        return Step("end", state)
    if symbol == "<":
        return Step("open", state, taken=False)
    if symbol.isalnum() or symbol in "-_.:":
        return _FAIL
    return Step("open", state)
