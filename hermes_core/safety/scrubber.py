"""Streaming scrubber: keeps recalled memory that a model repeats out of the answer that the person sees.

The output does not depend on how the stream was cut into pieces. The rules:

* Text between an opening and a closing fence tag is discarded with the tags. A tag counts at the start of a line and
  within a line, since leaking memory is worse than cutting an answer short.
* A whole tag directly between two equal quotation marks (a backtick, ", ') is shown and opens nothing, so that a model
  can write about the tag. Without quotes it counts as a fence.
* A closing tag without an opening tag is dropped. A span that is still open at the end is discarded.
* The beginning of a tag is held back until the next characters decide, at most `MAX_HELD` characters. Dropping a tag
  never joins its two sides into a new tag: `</memory-</memory-context>context>` goes as a whole. If tags are nested so
  deep that an outer beginning had to be shown, the rest of that outer tag is dropped when it comes.

The first half of the file is the grammar of a tag, as an automaton that reads one character at a time. A tag is
`<memory-context ...>` or `</memory-context ...>` in any disguise: any letter case, white space around the name,
full-width or look-alike letters, characters that show nothing, and each character possibly escaped as an entity, as
`\\u003c`, `\\x3c` or `%3c`, also twice (`&amp;lt;`). A longer name (`<memory-contexts>`) is another tag.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from hermes_core.safety.lookalikes import LOOKALIKES, skeleton

TAG_NAME = "memory-context"

STARTERS = frozenset("<&\\%＆﹠％﹪＼﹨") | {form for form, sign in LOOKALIKES.items() if sign == "<"}
"""Characters that a tag can begin with."""

STARTER = re.compile("[" + "".join(map(re.escape, sorted(STARTERS))) + "]")

_SPACES = r"\t-\r\x1c- "


def _candidate(starter: str, fillers: str, goes_on: str) -> str:
    """Return a pattern for `starter` and any of `fillers`, not followed by an ASCII character outside `goes_on`."""
    # A negated class of ASCII characters is one table lookup in `re`; a class of all that may follow is a search.
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
"""Starters that may begin a tag, judged by the next character: `a < b && c` holds none. If the match has a group, the
text ended before the next character.
"""

_NAMED = (
    {"lt": "<", "gt": ">", "amp": "&", "sol": "/"}
    | dict.fromkeys(("hyphen", "dash"), "-")
    | dict.fromkeys(("nbsp", "tab", "newline"), " ")
    | dict.fromkeys(("shy", "zwj", "zwnj", "zerowidthspace"), "")
)
"""Named entities that a disguised tag may use, with the symbol that a reader sees."""

_NAME_STARTS = frozenset(name[:end] for name in _NAMED for end in range(1, len(name)))
_HEX = frozenset("0123456789abcdef")

# Positions in the grammar. After "<" follow the letters of the name, one position each; a closing tag has its own row.
_OUTSIDE, _BRACKET, _SLASH = 0, 1, 2
_OPENING, _CLOSING = 10, 40
_DASH = TAG_NAME.index("-")


class TagState(NamedTuple):
    """Part of a tag that was read: the position in the grammar, and the beginning of an escape."""

    position: int = _OUTSIDE
    escape: str = ""

    @property
    def named(self) -> bool:
        """True if the whole name was read and only the end of the tag is missing."""
        return self.position in (_OPENING + len(TAG_NAME), _CLOSING + len(TAG_NAME))

    @property
    def closing(self) -> bool:
        """True in a closing tag."""
        return self.position >= _CLOSING


IDLE = TagState()


class TagStep(NamedTuple):
    """Result of reading one character. If `taken` is False, the character must be read again in the new state.

    `kind` is "more" (still a tag), "fail" (no tag), "again" (a new "<" inside), "end" (complete with ">") or "open"
    (the name is complete, ">" is missing).
    """

    kind: str
    state: TagState = IDLE
    taken: bool = True


_FAIL = TagStep("fail")


def step(state: TagState, char: str) -> TagStep:
    """Read one character in `state`."""
    symbol = skeleton(char)
    if not symbol:
        return TagStep("more", state) if state != IDLE else _FAIL
    if state.escape:
        return _escaped(state, symbol)
    if symbol in "&\\%":
        return TagStep("more", TagState(state.position, symbol))
    return _advance(state, symbol)


def _escaped(state: TagState, symbol: str) -> TagStep:
    grown, decoded, taken = unescape(state.escape, symbol)
    if decoded is None:
        if grown:
            return TagStep("more", TagState(state.position, grown))
        return TagStep("open", state, taken=False) if state.named else _FAIL
    if decoded in ("&", "\\", "%"):
        return TagStep("more", TagState(state.position, decoded), taken)
    if not decoded:  # an escaped character that shows nothing counts as a plain one in `step`
        return TagStep("more", TagState(state.position), taken) if state.position else _FAIL
    return _advance(TagState(state.position), decoded)._replace(taken=taken)


def unescape(escape: str, symbol: str) -> tuple[str, str | None, bool]:
    """Read the next symbol of an escape.

    Returns the part that is still incomplete, the character once it is complete (else None), and whether `symbol`
    belongs to the escape. ("", None, False) means that the text is no escape.
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
    return "", skeleton(chr(int(digits, 16))), True


def _entity(escape: str, symbol: str) -> tuple[str, str | None, bool]:
    """Read the next symbol of a named or numeric entity, as `unescape` does."""
    if escape.startswith("&#"):
        return _numeric(escape, symbol)
    if escape[1:] in _NAMED:  # complete: browsers and models read it without its semicolon too
        return "", _NAMED[escape[1:]], symbol == ";"
    name = escape[1:] + symbol
    if name == "#" or name in _NAMED or name in _NAME_STARTS:
        return escape + symbol, None, True
    return ("&", None, True) if escape == "&" and symbol == "&" else ("", None, False)


def _numeric(escape: str, symbol: str) -> tuple[str, str | None, bool]:
    """Read the next symbol of an entity such as `&#60;` or `&#x3c;`, as `unescape` does."""
    digits = escape[2:]
    if not digits and symbol == "x":
        return "&#x", None, True
    base = 16 if digits.startswith("x") else 10
    digits = digits.removeprefix("x")
    if symbol in _HEX and (base == 16 or symbol.isdigit()):
        # Without leading zeros a code point has at most 7 digits, so that digits without end don't hold back the stream.
        grown = (digits + symbol).lstrip("0") or "0"
        return (f"&#{'x' if base == 16 else ''}{grown}", None, True) if len(grown) <= 7 else ("", None, False)
    if not digits or not 0 < (code := int(digits, base)) <= 0x10FFFF:
        return "", None, False
    return "", skeleton(chr(code)), symbol == ";"


def _advance(state: TagState, symbol: str) -> TagStep:
    """Read one visible symbol: the "<", the slash, the next letter of the name, or the end."""
    position = state.position
    if state.named:
        return _after_name(state, symbol)
    if symbol == "<":
        return TagStep("more" if position == _OUTSIDE else "again", TagState(_BRACKET))
    if position in (_BRACKET, _SLASH):
        return _before_name(position, symbol)
    if position == _OUTSIDE:
        return _FAIL
    row = _CLOSING if state.closing else _OPENING
    read = position - row
    if symbol == TAG_NAME[read]:
        return TagStep("more", TagState(position + 1))
    # "memory - context" and "memory--context" are read as the name.
    around_dash = read in (_DASH, _DASH + 1) and symbol == " "
    another_dash = read == _DASH + 1 and symbol == "-"
    return TagStep("more", TagState(position)) if around_dash or another_dash else _FAIL


def _before_name(position: int, symbol: str) -> TagStep:
    if symbol == " ":
        return TagStep("more", TagState(position))
    if symbol == "/":
        return TagStep("more", TagState(_SLASH))
    if symbol == TAG_NAME[0]:
        return TagStep("more", TagState((_OPENING if position == _BRACKET else _CLOSING) + 1))
    return _FAIL


def _after_name(state: TagState, symbol: str) -> TagStep:
    if symbol == ">":
        return TagStep("end", state)
    if symbol == "<":
        return TagStep("open", state, taken=False)
    if symbol.isalnum() or symbol in "-_.:":  # a longer name is another tag
        return _FAIL
    return TagStep("open", state)


# ------------------------------------------------------------------ scrubber

MAX_HELD = 160
"""Largest number of characters held back: a tag with every letter written as a numeric entity fits."""

_MAX_ATTRIBUTES = 200  # a closing tag without ">" must not hide the rest of the answer
_MAX_PENDING = 32  # a longer piece is read by the automaton instead, so that text is not delayed
_QUOTES = frozenset("`\"'")
_candidate_in = CANDIDATE.search
_Mode = Literal["text", "span", "quoted", "attributes"]


class _Begun(NamedTuple):
    """Beginning of a tag inside which another tag began."""

    state: TagState
    text: str
    escape_at: int


class StreamingContextScrubber:
    """Scrubber of one streamed answer of a model: removes fenced memory.

    >>> scrubber = StreamingContextScrubber()
    >>> [scrubber.feed(part) for part in ("Hi <mem", "ory-context>\\nsecret</memory-", "context> there")]
    ['Hi ', '', ' there']
    >>> scrubber.flush()
    ''
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin a new stream."""
        # Fast way for ordinary text: while no tag was begun and nothing is hidden, a piece without a starter passes as
        # it is; `_pending` is a starter at the end of such a piece, read again with the next one.
        self._calm = True
        self._pending = ""
        self._mode: _Mode = "text"
        self._state = IDLE  # the part of a tag that was read
        self._held = ""  # the text of that part
        self._escape_at = -1  # index in `_held` where the current escape began; -1: in text already shown
        self._outer: list[_Begun] = []  # beginnings of tags around the current one
        self._outer_size = 0
        self._base = IDLE  # the part of a tag that the shown text ends with
        self._last = ""  # the text shown last, for the quotation mark before a tag
        self._closing = False  # True if the last tag was a closing tag
        self._complete = False  # True if the last tag had its ">"
        self._opened_at = 0  # index after the last opening tag, in the piece that it ended in
        self._resume: _Mode = "text"  # mode to return to if a tag with attributes never ends
        self._attributes = 0
        self._attribute_escape = ""

    def feed(self, text: str) -> str:
        """Read the next piece of the answer and return the text that may be shown now."""
        if not self._calm:
            # A long span is skipped piece by piece, without the automaton, until a tag may begin.
            skip = self._mode == "span" and self._state == IDLE and _candidate_in(text) is None
            return "" if skip else self._read(text)
        if self._pending:
            text, self._pending = self._pending + text, ""
        candidate = _candidate_in(text)
        if candidate is None:
            self._last = text or self._last
            return text
        start = candidate.start()
        if candidate.lastindex is None or len(text) - start > _MAX_PENDING:
            return self._read(text, start)
        shown, self._pending = text[:start], text[start:]
        self._last = shown or self._last
        return shown

    def flush(self) -> str:
        """End the stream: return held text that never became a tag, and discard an open span."""
        rest = self._pending + (self._held if self._mode == "text" else "")
        begun = "".join(outer.text for outer in self._outer)
        self.reset()
        return begun + rest

    @property
    def hiding(self) -> bool:
        """True after an opening tag, until its closing tag."""
        return self._mode == "span" or (self._mode == "attributes" and self._resume == "span")

    def _read(self, text: str, start: int = 0) -> str:
        """Return what may be shown of `text`. The caller knows that no tag begins before `start`."""
        shown: list[str] = []
        if start:
            self._show(shown, text[:start])
        at, end = start, len(text)
        while at < end:
            if self._state == IDLE and self._mode in ("text", "span"):
                candidate = _candidate_in(text, at)
                start = candidate.start() if candidate else end
                if self._mode == "text":
                    self._show(shown, text[at:start])
                at = start
                if at == end:
                    break
            mode = self._mode
            at += self._take(text[at], shown)
            if self._mode == "span" and mode in ("text", "quoted"):
                self._opened_at = at
        self._calm = self._mode == "text" and self._state == IDLE
        return "".join(shown)

    def _take(self, char: str, shown: list[str]) -> bool:
        """Read one character. Returns False if it must be read again in the new mode."""
        match self._mode:
            case "text":
                return self._in_text(char, shown)
            case "span":
                return self._in_span(char)
            case "quoted":
                return self._in_quotes(char, shown)
            case "attributes":
                return self._in_attributes(char)

    def _show(self, shown: list[str], text: str) -> None:
        if text:
            shown.append(text)
            self._last = text

    def _in_text(self, char: str, shown: list[str]) -> bool:
        """Read one character outside a span, and hold it back while it may belong to a tag."""
        before = self._state
        result = step(before, char)
        if result.kind == "fail":
            self._failed(char, shown)
            return True
        if result.state.escape and not before.escape:
            self._escape_at = len(self._held)
        if result.kind == "again":
            self._begin_again(before)
        if result.taken:
            self._held += char
        self._state = result.state
        if result.kind in ("end", "open"):
            self._tag(result.state.closing, complete=result.kind == "end")
        elif len(self._held) + self._outer_size > MAX_HELD:
            self._let_through(shown)
        return result.taken

    def _failed(self, char: str, shown: list[str]) -> None:
        """Show the held text, which is no tag, unless `char` begins a tag inside it."""
        begun = step(IDLE, char)
        if begun.kind != "fail":
            # If the inner tag is dropped, the outer beginning and the text after it could form a tag: it stays held.
            self._push(_Begun(self._state, self._held, self._escape_at))
            self._held, self._state, self._escape_at = char, begun.state, 0
            return
        self._show(shown, "".join(outer.text for outer in self._outer) + self._held + char)
        self._forget()

    def _begin_again(self, before: TagState) -> None:
        """Begin a new tag inside a tag: its "<" is the next character, or the escape that was just completed."""
        start = self._escape_at if before.escape else len(self._held)
        if start >= 0:
            self._push(_Begun(TagState(before.position), self._held[:start], -1))
            self._held = self._held[start:]
        self._escape_at = -1

    def _push(self, begun: _Begun) -> None:
        if begun.text:
            self._outer.append(begun)
            self._outer_size += len(begun.text)

    def _let_through(self, shown: list[str]) -> None:
        """Show the oldest held text, since too much is held. If the rest of that tag comes, it is dropped."""
        if self._outer:
            oldest = self._outer.pop(0)
            self._outer_size -= len(oldest.text)
            self._show(shown, oldest.text)
            self._base = oldest.state
        else:
            self._show(shown, self._held)
            self._held, self._base, self._escape_at = "", self._state, -1

    def _forget(self) -> None:
        self._held, self._state, self._base = "", IDLE, IDLE
        self._outer, self._outer_size = [], 0

    def _resume_outer(self) -> None:
        """Return to the tag that had begun around a dropped tag, which may still be completed."""
        self._mode = "text"
        if not self._outer:
            self._held, self._state, self._escape_at = "", self._base, -1
            return
        self._state, self._held, self._escape_at = self._outer.pop()
        self._outer_size -= len(self._held)

    def _tag(self, closing: bool, *, complete: bool) -> None:
        """Drop a tag that was read, unless it may stand between quotation marks."""
        self._closing, self._complete = closing, complete
        quoted = self._last[-1:] in _QUOTES and not self._outer and self._base == IDLE
        if complete and quoted and self._last:
            self._mode = "quoted"
            return
        self._drop()

    def _drop(self) -> None:
        """Leave out the held tag and enter the mode that follows from it."""
        self._held = ""
        if self._opens():
            self._mode, self._state = "span", IDLE
        elif self._complete:
            self._resume_outer()
        else:
            self._await_end("text")

    def _opens(self) -> bool:
        """Return True if the tag that was just read hides the text after it."""
        return not self._closing

    def _await_end(self, resume: _Mode) -> None:
        self._mode, self._resume = "attributes", resume
        self._attributes, self._attribute_escape = 0, ""

    def _in_quotes(self, char: str, shown: list[str]) -> bool:
        if char == self._last[-1:]:
            self._show(shown, self._mention(self._held) + char)
            self._mode = "text"
            self._forget()
            return True
        self._drop()
        return False

    def _mention(self, tag: str) -> str:
        """Return the text shown for a tag in quotation marks."""
        return tag

    def _in_span(self, char: str) -> bool:
        result = step(self._state, char)
        if result.kind == "fail":
            result = step(IDLE, char)
            self._state = result.state
            return True
        self._state = result.state
        if result.kind in ("end", "open"):
            self._state = IDLE
            if result.state.closing and result.kind == "end":
                self._resume_outer()
            elif result.state.closing:
                self._await_end("span")
        return result.taken

    def _in_attributes(self, char: str) -> bool:
        """Read behind the name of a closing tag until ">". A new tag, a further line or a long text means it never ends."""
        symbol: str | None = skeleton(char)
        taken = True
        if self._attribute_escape and symbol:
            pending, decoded, taken = unescape(self._attribute_escape, symbol)
            self._attribute_escape = pending
            if pending or decoded is not None:
                symbol = decoded
            else:
                taken = True
        elif symbol and symbol in "&\\%":
            self._attribute_escape, symbol = symbol, None
        self._attributes += symbol != " "
        if symbol == ">":
            self._resume_outer()
            return taken
        new_line = char in "\r\n" and self._attributes > 0
        if symbol == "<" or new_line or self._attributes > _MAX_ATTRIBUTES:
            self._never_ends()
            return False
        return taken

    def _never_ends(self) -> None:
        if self._resume == "span":
            self._mode, self._state = "span", IDLE
        else:
            self._resume_outer()
