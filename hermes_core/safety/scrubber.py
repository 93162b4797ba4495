"""Keeps recalled memory that a model repeats out of what the person sees, while the answer streams.

The rules, for a stream cut anywhere (the total output is the same for every way of cutting it):

* What stands between an opening and a closing fence tag is discarded, and the tags with it. A tag counts wherever it
  stands, at the start of a line or within one, since leaking memory is worse than cutting an answer short.
* A model that writes *about* the tag puts it in quotes: a whole tag directly between two equal quotation marks
  (a backtick, ", ') is shown as it is and opens nothing. Without quotes it counts as a fence.
* A closing tag without an opening one is dropped. A span that is still open at the end is discarded.
* The beginning of a tag is held back until the next characters decide, never more than `MAX_HELD` of them. A dropped
  tag never joins its two sides into a new one: `</memory-</memory-context>context>` goes as a whole, and when nesting
  is so deep that an outer beginning had to be let through, its rest is dropped when it comes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from hermes_core.safety.letters import fold
from hermes_core.safety.tags import CANDIDATE, IDLE, State, step, unescape

MAX_HELD = 160
"""Characters held back at most: room for a tag with every letter written as a numeric entity."""

_MAX_ATTRIBUTES = 200
_MAX_PENDING = 32
_QUOTES = frozenset("`\"'")
_candidate_in = CANDIDATE.search
_Mode = Literal["text", "span", "quoted", "attributes"]


class _Begun(NamedTuple):
    """The beginning of a tag in which another one began."""

    state: State
    text: str
    escape_at: int


class StreamingContextScrubber:
    """Removes fenced memory from a model's streamed answer; one instance a stream.

    >>> scrubber = StreamingContextScrubber()
    >>> [scrubber.feed(part) for part in ("Hi <mem", "ory-context>\\nsecret</memory-", "context> there")]
    ['Hi ', '', ' there']
    >>> scrubber.flush()
    ''
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next text begins a new stream."""
        self._calm = (
            True  # nothing read of a tag, nothing hidden: text in which none can begin passes untouched
        )
        self._pending = (
            ""  # a bare "<" or the like at the end of such text, to be looked at with what follows
        )
        self._mode: _Mode = "text"
        self._state = IDLE  # how much of a tag has been read
        self._held = ""  # that beginning of a tag, as it was written
        self._escape_at = -1  # where in it the present escape began; -1: in text that was let through
        self._outer: list[_Begun] = []  # tags that had begun when a new one began inside them
        self._outer_size = 0
        self._base = IDLE  # how much of a tag the text let through ends with
        self._last = ""  # the text let through last, for the quotation mark before a tag
        self._closing = False  # of the tag read last
        self._complete = False  # whether that tag had its ">"
        self._opened_at = 0  # behind the opening tag read last, in the piece of text that it ended in
        self._resume: _Mode = "text"  # where a tag with attributes returns to if it never ends
        self._attributes = 0
        self._attribute_escape = ""

    def feed(self, text: str) -> str:
        """Take the next piece of the answer; returns what may be shown now."""
        if not self._calm:
            unseen = self._mode == "span" and self._state == IDLE and _candidate_in(text) is None
            return "" if unseen else self._read(text)
        if self._pending:
            text, self._pending = self._pending + text, ""
        found = _candidate_in(text)
        if found is None:
            self._last = text or self._last
            return text
        start = found.start()
        if found.lastindex is None or len(text) - start > _MAX_PENDING:
            return self._read(text, start)
        shown, self._pending = text[:start], text[start:]
        self._last = shown or self._last
        return shown

    def flush(self) -> str:
        """The stream has ended: returns a tag's beginning that never became a tag, discards an open span."""
        rest = self._pending + (self._held if self._mode == "text" else "")
        begun = "".join(outer.text for outer in self._outer)
        self.reset()
        return begun + rest

    @property
    def hiding(self) -> bool:
        """Whether an opening tag was read and its closing tag was not."""
        return self._mode == "span" or (self._mode == "attributes" and self._resume == "span")

    def _read(self, text: str, start: int = 0) -> str:
        """Read `text` a character at a time where a tag may be; no tag begins before `start`."""
        shown: list[str] = []
        if start:
            self._show(shown, text[:start])
        at, end = start, len(text)
        while at < end:
            if self._state == IDLE and self._mode in ("text", "span"):
                found = _candidate_in(text, at)
                start = found.start() if found else end
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
        before = self._state
        did = step(before, char)
        if did.kind == "fail":
            self._failed(char, shown)
            return True
        if did.state.escape and not before.escape:
            self._escape_at = len(self._held)
        if did.kind == "again":
            self._begin_again(before)
        if did.taken:
            self._held += char
        self._state = did.state
        if did.kind in ("end", "open"):
            self._tag(did.state.closing, complete=did.kind == "end")
        elif len(self._held) + self._outer_size > MAX_HELD:
            self._let_through(shown)
        return did.taken

    def _failed(self, char: str, shown: list[str]) -> None:
        """What was held is no tag, unless `char` begins one inside it that will be dropped."""
        begun = step(IDLE, char)
        if begun.kind != "fail":
            self._push(_Begun(self._state, self._held, self._escape_at))
            self._held, self._state, self._escape_at = char, begun.state, 0
            return
        self._show(shown, "".join(outer.text for outer in self._outer) + self._held + char)
        self._forget()

    def _begin_again(self, before: State) -> None:
        """A "<" within a tag begins a new one; it is the next character, or the escape that is just complete."""
        start = self._escape_at if before.escape else len(self._held)
        if start >= 0:
            self._push(_Begun(State(before.position), self._held[:start], -1))
            self._held = self._held[start:]
        self._escape_at = -1

    def _push(self, begun: _Begun) -> None:
        if begun.text:
            self._outer.append(begun)
            self._outer_size += len(begun.text)

    def _let_through(self, shown: list[str]) -> None:
        """Too much is held: the oldest of it is shown, and its rest, should it come, will be dropped."""
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
        """Behind a dropped tag: the tag that had begun around it may still be completed."""
        self._mode = "text"
        if not self._outer:
            self._held, self._state, self._escape_at = "", self._base, -1
            return
        self._state, self._held, self._escape_at = self._outer.pop()
        self._outer_size -= len(self._held)

    def _tag(self, closing: bool, *, complete: bool) -> None:
        self._closing, self._complete = closing, complete
        quoted = self._last[-1:] in _QUOTES and not self._outer and self._base == IDLE
        if complete and quoted and self._last:
            self._mode = "quoted"
            return
        self._drop()

    def _drop(self) -> None:
        """Leave out the tag that was held, and go on as it asks."""
        self._held = ""
        if self._opens():
            self._mode, self._state = "span", IDLE
        elif self._complete:
            self._resume_outer()
        else:
            self._await_end("text")

    def _opens(self) -> bool:
        """Whether the tag just read hides what follows."""
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
        """What is shown for a tag in quotation marks."""
        return tag

    def _in_span(self, char: str) -> bool:
        did = step(self._state, char)
        if did.kind == "fail":
            did = step(IDLE, char)
            self._state = did.state
            return True
        self._state = did.state
        if did.kind in ("end", "open"):
            self._state = IDLE
            if did.state.closing and did.kind == "end":
                self._resume_outer()
            elif did.state.closing:
                self._await_end("span")
        return did.taken

    def _in_attributes(self, char: str) -> bool:
        """Behind the name of a closing tag: its end is ">"; a new tag, a line with more on it or a long text is none."""
        symbol: str | None = fold(char)
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
