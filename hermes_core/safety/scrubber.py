"""Streaming scrubber: keeps recalled memory that a model repeats out of the answer that the person sees.

The output does not depend on how the stream was cut into pieces. The rules:

* Text between an opening and a closing fence tag is discarded with the tags.
* An opening tag hides the text to the end of the stream, even without a closing tag, if it begins a block: it stands
  alone on its line, our note follows it, or a letter follows directly. Any other opening tag may be a mention ("the
  <memory-context> tag"): its text is held back until the closing tag comes. If none comes within `MAX_SPAN` characters,
  the name is shown as `memory-context` with the text.
* A whole tag directly between two equal quotation marks (a backtick, ", ') is shown and opens nothing.
* A closing tag without an opening tag is dropped.
* The beginning of a tag is held back until the next characters decide, at most `MAX_HELD` characters. Dropping a tag
  never joins its two sides into a new tag: `</memory-</memory-context>context>` goes as a whole. If tags are nested so
  deep that an outer beginning had to be shown, the rest of that outer tag is dropped when it comes.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import Literal, NamedTuple

from msgspec import Struct, field

from hermes_core.safety.lookalikes import wide_skeleton
from hermes_core.safety.tags import IDLE, OTHER_WORD, TAG_CANDIDATE, TAG_NAME, Kind, TagReading, step

MAX_HELD = 400
"""Largest number of characters held back for one tag: a tag with every letter written as an entity fits."""

MAX_SPAN = 2_000
"""Largest number of characters held back after an opening tag that may be a mention."""

NOTE_START = "[system note"
"""Beginning of the note in each block, in lower case."""

_MAX_ATTRIBUTES = 200  # a tag without ">" must not hide the rest of the answer
_MAX_PENDING = 32  # a longer piece is read by the automaton instead, so that text is not delayed
_QUOTES = frozenset("`\"'")
_Mode = Literal["text", "span", "quoted"]


class _Threads(NamedTuple):
    """All ways to read the held text. Each way has its reading, the index at which it began, and that after its name."""

    readings: tuple[TagReading, ...] = ()
    starts: tuple[int, ...] = ()
    name_ends: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.readings)


_NO_THREADS = _Threads()


class _Tag(NamedTuple):
    """Tag or note that was read: the held text from `start` to `end`."""

    reading: TagReading
    start: int
    end: int


class _Held(Struct):
    """Text that may belong to a tag, with all ways to read it after each character.

    When a tag inside is dropped, its characters are removed, and the text around it is read on from the state before
    it. `first` is the index of the first character; text before it was shown already, and `base` are its readings.
    """

    chars: list[str] = field(default_factory=list)
    threads: list[_Threads] = field(default_factory=list)
    first: int = 0
    base: _Threads = _NO_THREADS

    @property
    def current(self) -> _Threads:
        """All ways to read the text so far."""
        return self.threads[-1] if self.threads else self.base

    @property
    def text(self) -> str:
        """The held characters."""
        return "".join(self.chars)

    def push(self, char: str, kinds: frozenset[Kind]) -> _Tag | None:
        """Add a character. Returns the tag that it completes."""
        index = self.first + len(self.chars)
        threads, tag = _advance(self.current, char, index, kinds)
        self.chars.append(char)
        self.threads.append(threads)
        return tag

    def cut(self, tag: _Tag) -> tuple[str, str]:
        """Remove a tag at the end. Returns its text, and the text after it, which must be read again."""
        start, end = max(tag.start - self.first, 0), max(tag.end - self.first, 0)
        text, rest = "".join(self.chars[start:end]), "".join(self.chars[end:])
        del self.chars[start:], self.threads[start:]
        return text, rest

    def shift(self) -> str:
        """Remove the beginning of the outermost tag, and keep its readings. Returns its text."""
        count = next(
            (at for at in range(1, len(self.chars)) if self.first + at in self.threads[at].starts),
            len(self.chars),
        )
        text = "".join(self.chars[:count])
        self.base = self.threads[count - 1]
        self.first += count
        del self.chars[:count], self.threads[:count]
        return text


def _advance(before: _Threads, char: str, index: int, kinds: frozenset[Kind]) -> tuple[_Threads, _Tag | None]:
    """Read a character in all ways, and as a new beginning. Returns the threads after it, and the tag that it completes."""
    symbol = wide_skeleton(char)
    if not symbol:
        return before, None
    readings, starts, name_ends = before
    after, sources, named, tags, endless = _transitions(readings, symbol, kinds)
    if endless and (char in "\r\n" or index - max(name_ends) > _MAX_ATTRIBUTES):
        # A further line, or a long text: the attributes are text that follows a tag without its ">".
        tag = min(
            (start, end, at) for at, (start, end) in enumerate(zip(starts, name_ends, strict=True)) if end
        )
        return before, _Tag(readings[tag[2]], tag[0], tag[1])
    if not sources and not tags:
        return _NO_THREADS, None
    starts, name_ends = (*starts, index), (*name_ends, 0)
    threads = _Threads(
        after,
        tuple([starts[source] for source in sources]),
        tuple([name_ends[source] or name * (index + 1) for source, name in zip(sources, named, strict=True)]),
    )
    if not tags:
        return threads, None
    ends = {"end": index + 1, "ended": index}
    read = [_Tag(way, starts[source], ends.get(way.place, name_ends[source])) for way, source in tags]
    return threads, min(read, key=lambda tag: (-tag.start, -tag.end))


@lru_cache(maxsize=16384)
def _transitions(
    readings: tuple[TagReading, ...], symbol: str, kinds: frozenset[Kind]
) -> tuple[
    tuple[TagReading, ...], tuple[int, ...], tuple[bool, ...], tuple[tuple[TagReading, int], ...], bool
]:
    """Read a symbol in all ways.

    Returns the readings after it, the place in `readings` that each comes from (its length for a new beginning), True
    for each that has its name, the tags that are complete with their places, and True if attributes are read.
    """
    after: dict[TagReading, int] = {}
    tags: list[tuple[TagReading, int]] = []
    for source, reading in enumerate((*readings, IDLE)):
        ways = step(reading, symbol)
        if reading.named and reading.kind in kinds and not ways:
            tags.append((reading, source))
        for way in ways:
            if way.place in ("end", "ended"):
                if way.kind in kinds:
                    tags.append((way, source))
            elif way != OTHER_WORD and (way.form != "note" or "note" in kinds):
                after[way] = source  # the shortest text: an escape that shows nothing may stand before it
    named = tuple(way.place != "name" for way in after)
    endless = any(reading.place == "attributes" for reading in readings)
    return tuple(after), tuple(after.values()), named, tuple(tags), endless


class _Opening(Struct):
    """Opening tag that may be a mention.

    Attributes:
        outer: Held text before the tag, which may be the beginning of another tag.
        blank_line: True if no shown text stands before `outer` on its line.
        text: Text after the tag.
    """

    outer: _Held
    blank_line: bool
    text: str = ""

    @property
    def alone(self) -> bool:
        """True if nothing stands before the tag on its line."""
        return self.blank_line and not self.outer.text.strip()

    @property
    def begins_block(self) -> bool | None:
        """True if everything after the tag is hidden, False if the tag may be a mention, None if that is not known yet."""
        first_line, newline, _ = self.text.partition("\n")
        if self.alone and newline and not first_line.strip():
            return True
        if self.text[:1].isascii() and self.text[:1].isalnum():
            return True
        start = self.text.lstrip()[: len(NOTE_START)].lower()
        if start == NOTE_START:
            return True
        return None if NOTE_START.startswith(start) else False


class StreamingContextScrubber:
    """Scrubber of one streamed answer of a model: removes fenced memory.

    >>> scrubber = StreamingContextScrubber()
    >>> [scrubber.feed(part) for part in ("Hi <mem", "ory-context>\\nsecret</memory-", "context> there")]
    ['Hi ', '', ' there']
    >>> scrubber.flush()
    ''
    """

    _candidate = TAG_CANDIDATE
    _kinds: frozenset[Kind] = frozenset({"tag"})
    _max_held: float = MAX_HELD

    def __init__(self) -> None:
        self.is_unclosed = False  # True if the last stream ended within a fence
        self.reset()

    def reset(self) -> None:
        """Begin a new stream."""
        # Fast way for ordinary text: while no tag was begun and nothing is held back, a piece without a starter passes
        # as it is; `_pending` is a starter at the end of such a piece, read again with the next one.
        self._calm = True
        self._pending = ""
        self._mode: _Mode = "text"
        self._held = _Held()
        self._span = _NO_THREADS  # readings inside a span
        self._openings: list[_Opening] = []
        self._openings_size = 0
        self._quoted: tuple[str, TagReading] = ("", IDLE)  # the tag after a quotation mark
        self._shown: list[str] = []
        self._last = ""  # the text before the current tag, for its quotation mark
        self._blank_line = True  # True if the current line has no text yet
        self._consumed = 0

    def feed(self, text: str) -> str:
        """Read the next piece of the answer and return the text that may be shown now."""
        if not self._calm:
            return self._read(text)
        if self._pending:
            text, self._pending = self._pending + text, ""
        candidate = self._candidate.search(text)
        if candidate is None:
            self._remember(text)
            return text
        start = candidate.start()
        if candidate.lastindex is None or len(text) - start > _MAX_PENDING:
            return self._read(text)
        shown, self._pending = text[:start], text[start:]
        self._remember(shown)
        return shown

    def flush(self) -> str:
        """End the stream: return held text that never became a tag, and discard an open span."""
        if self._mode == "quoted":
            self._drop_quoted(unread=0)
        held, self._held = self._held, _Held()
        self._emit(held.text)
        self.is_unclosed = self._mode == "span"
        if self._openings:
            last = self._openings[-1]
            cut_short = bool(last.begins_block is None and (last.alone or last.text.strip()))
            self.is_unclosed = cut_short
            self._release(len(self._openings) - cut_short)
            if cut_short:
                self._shown.append(last.outer.text)
        shown = "".join(self._shown) + self._pending
        self.reset()
        return shown

    def _read(self, text: str) -> str:
        """Return what may be shown of `text`."""
        at, end = 0, len(text)
        while at < end:
            if self._idle:
                candidate = self._candidate.search(text, at)
                start = candidate.start() if candidate else end
                if self._mode == "text":
                    self._emit(text[at:start])
                self._consumed += start - at
                at = start
                if at == end:
                    break
            self._take(text[at])
            at += 1
        self._calm = self._mode == "text" and self._idle and not self._openings
        shown = "".join(self._shown)
        self._shown.clear()
        return shown

    @property
    def _idle(self) -> bool:
        """True if no tag has begun."""
        if self._mode == "span":
            return not self._span
        return self._mode == "text" and not self._held.current

    def _take(self, char: str) -> None:
        """Read one character."""
        self._consumed += 1
        if self._mode == "quoted":
            self._in_quotes(char)
        elif self._mode == "span":
            self._in_span(char)
        else:
            self._in_text(char)

    def _take_again(self, text: str) -> None:
        """Read characters that were read as part of a tag and don't belong to it."""
        self._consumed -= len(text)
        for char in text:
            self._take(char)

    def _in_text(self, char: str) -> None:
        tag = self._held.push(char, self._kinds)
        if tag:
            self._end_tag(tag)
        elif not self._held.current:
            held, self._held = self._held, _Held()
            self._emit(held.text)
        elif len(self._held.chars) > self._max_held:
            self._emit(self._held.shift())

    def _end_tag(self, tag: _Tag) -> None:
        """Remove a tag that was read, unless it may stand between quotation marks."""
        text, rest = self._held.cut(tag)
        outermost = not self._held.chars and not self._held.base
        if self._last[-1:] in _QUOTES and self._last and outermost and tag.reading.place == "end":
            self._mode, self._quoted = "quoted", (text, tag.reading)
        else:
            self._drop(tag.reading, len(rest))
        self._take_again(rest)

    def _drop(self, reading: TagReading, unread: int) -> None:  # noqa: ARG002 -- for a whole text
        """Act on a tag whose text was removed, with `unread` characters after it that will be read again."""
        if not reading.closing:
            outer, self._held = self._held, _Held()
            self._openings.append(_Opening(outer, self._blank_line))
            self._openings_size += len(TAG_NAME)
            self._last, self._blank_line = "", False
        elif self._openings:
            self._held = self._forget_openings(self._openings[0])

    def _forget_openings(self, opening: _Opening) -> _Held:
        """Return to the line before an opening tag. Returns the held text before it."""
        self._openings.clear()
        self._openings_size = 0
        self._last, self._blank_line = "", opening.blank_line
        return opening.outer

    def _in_quotes(self, char: str) -> None:
        if char == self._last[-1:]:
            self._mode = "text"
            self._emit(self._mention(self._quoted[0], self._quoted[1]) + char)
        else:
            self._drop_quoted(unread=1)
            self._take_again(char)

    def _drop_quoted(self, unread: int) -> None:
        self._mode = "text"
        self._drop(self._quoted[1], unread)

    def _mention(self, tag: str, reading: TagReading) -> str:  # noqa: ARG002 -- for a whole text
        """Return the text shown for a tag in quotation marks."""
        return tag

    def _in_span(self, char: str) -> None:
        self._span, tag = _advance(self._span, char, self._consumed, self._kinds)
        if tag and tag.reading.closing and tag.reading.place in ("end", "ended"):
            self._mode = "text"
            if tag.reading.place == "ended":
                self._take_again(char)

    def _hide(self, outer: _Held) -> None:
        """Discard the text until a closing tag, and read on after that from `outer`, the held text before the span."""
        self._mode, self._held, self._span = "span", outer, _NO_THREADS

    def _emit(self, text: str) -> None:
        """Show a text, or hold it back if it may stand inside a span."""
        if not text:
            return
        self._remember(text)
        if not self._openings:
            self._shown.append(text)
            return
        last = self._openings[-1]
        undecided = last.begins_block is None
        last.text += text
        self._openings_size += len(text)
        if undecided and last.begins_block:
            self._release(len(self._openings) - 1)
            self._hide(self._forget_openings(last))
        elif self._openings_size > MAX_SPAN:
            sizes = accumulate(len(opening.text) + len(TAG_NAME) for opening in self._openings)
            excess = self._openings_size - MAX_SPAN
            self._release(next(count for count, size in enumerate(sizes, 1) if size >= excess))

    def _release(self, count: int) -> None:
        """Show the first openings and the text after them, since they are mentions."""
        for opening in self._openings[:count]:
            # The backticks also keep the text before and after the name from being read as one tag.
            self._shown.append(f"{opening.outer.text}`{TAG_NAME}`{opening.text}")
            self._openings_size -= len(opening.text) + len(TAG_NAME)
        del self._openings[:count]

    def _remember(self, text: str) -> None:
        """Note the text before the next tag."""
        if not text:
            return
        self._last = text
        blank_before = self._blank_line or "\n" in text
        self._blank_line = blank_before and not text.rpartition("\n")[2].strip()
