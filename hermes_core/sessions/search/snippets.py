"""The part of a message that matched, with what matched in it marked as >>>this<<<."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from hermes_core.recall.letters import unaccented
from hermes_core.recall.tokens import DENSE, MARKS, dense_runs, for_words
from hermes_core.storage.sqlite import Database

SNIPPET_TOKENS = 40
"""Length of a snippet in words; a short message is shown whole."""

_BEFORE, _AROUND = 40, 240
"""Characters of a snippet before what matched first in it, and in all."""

_LOOKED_AT = 500
"""Places of one word in one message that are looked at."""

_READ = 20_000
"""Characters of a message that are looked at word by word."""

_LETTER = rf"(?:(?![{DENSE}])(?:[^\W_]|[{MARKS}]))"
_WORD = re.compile(rf"{_LETTER}+(?:'{_LETTER}+)*")
_PIECE = re.compile(f"{_LETTER}+")
_FORMS = """
    's s es ed ing e d r er ers y ies ied ier ly ment ments ation ations ion ions ate ates ated ating ator al ive able
"""
_ENDINGS = {"", *_FORMS.split()}
"""What two forms of a word may end in behind what they share. Rougher than the stems of the index, which is asked when
nothing in a text looks like what was found there.
"""


def snippet(database: Database, message_id: int, content: str, hits: Sequence[str]) -> str:
    """The part of a message that the FTS5 expressions `hits` matched; its beginning when only its neighbours did."""
    content = unicodedata.normalize("NFC", content)
    lowered = content.lower().replace("’", "'")
    words = [hit for hit in hits if " : " not in hit]
    said = [hit for hit in words if _may_stand(hit, lowered)] if not dense_runs(content) else []
    spans = sorted({span for word in _asked(said) for span in islice(_standing(lowered, word), _LOOKED_AT)})
    if len(lowered) != len(content):
        spans = []
    if not spans and not said and (marked := _marked(content, lowered, hits)):
        return marked
    if not content.isascii():
        spans = sorted({*spans, *islice(_of_one_stem(content, _asked(words)), _LOOKED_AT)})
    if spans:
        return _window(content, spans)
    return (
        (_found(database, message_id, said) if said else "")
        or _marked(content, lowered, hits)
        or _head(content)
    )


def _found(database: Database, message_id: int, said: Sequence[str]) -> str:
    """What FTS5 itself shows; "" when that is nothing, or long."""
    found = database.execute(
        f"SELECT snippet(messages_fts, -1, '>>>', '<<<', '...', {SNIPPET_TOKENS}) FROM messages_fts"
        " WHERE messages_fts MATCH ? AND rowid = ?",
        (" OR ".join(said), message_id),
    ).fetchone()
    return str(found[0]) if found and len(found[0]) < 20 * SNIPPET_TOKENS else ""


def _asked(expressions: Iterable[str]) -> set[str]:
    """The words of FTS5 expressions."""
    phrases = (phrase for expression in expressions for phrase in expression.split('"')[1::2])
    return {word for phrase in phrases for word in _WORD.findall(phrase)}


def _may_stand(expression: str, lowered: str) -> bool:
    """Whether a text may hold a word of an expression, in some form: each list that FTS5 need not open saves time."""
    return any(not word.isascii() or word[:3] in lowered for word in expression.split('"')[1::2])


def _standing(lowered: str, word: str) -> Iterator[tuple[int, int]]:
    """Where a word stands in a text, in some form."""
    at = lowered.find(word[:3])
    while at >= 0:
        match = _WORD.match(lowered, at)
        end = match.end() if match else at + 1
        if not (at and _WORD.match(lowered, at - 1)) and _alike(lowered[at:end], word):
            yield at, end
        at = lowered.find(word[:3], end)


def _of_one_stem(content: str, asked: Collection[str]) -> Iterator[tuple[int, int]]:
    """Where the words stand that the index takes for those asked: in other letters, or cut by their script's stemmer."""
    looked_at: dict[str, bool] = {}

    def is_asked(word: str) -> bool:
        if word not in looked_at:
            looked_at[word] = _is_one_of(asked, word)
        return looked_at[word]

    for match in _WORD.finditer(content, 0, _READ):
        if not match[0].isascii():
            pieces = (match, *(_PIECE.finditer(content, *match.span()) if "'" in match[0] else ()))
            yield from islice((piece.span() for piece in pieces if is_asked(piece[0])), 1)


def _is_one_of(asked: Collection[str], word: str) -> bool:
    """Whether the index takes the word for one of those asked; of Latin letters it holds no accents."""
    form = for_words(word)
    if form in asked:
        return True
    letters = unaccented(form)
    return letters.isascii() and any(_alike(letters, other) for other in asked)


def _alike(one: str, other: str) -> bool:
    """Whether two words look like forms of one: plan and planned, study and studies, but not plan and plane."""
    if one == other:
        return True
    pairs = enumerate(zip(one, other, strict=False))
    shared = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    if shared < 3:
        return False
    doubled = one[shared - 1]
    rests = {rest[rest[:1] == doubled :] for rest in (one[shared:], other[shared:])}
    return rests <= _ENDINGS and (rests - {"", "s"} != {"e"})


def _window(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The stretch with the most of the spans, all of them marked."""
    start, end = 0, len(text)
    if end > _AROUND:
        starts, near = [at for at, _ in spans], _AROUND - _BEFORE
        first = max(starts, key=lambda at: bisect_left(starts, at + near) - bisect_left(starts, at))
        start = max(first - _BEFORE, 0)
        start = text.find(" ", start, first) + 1 or start if start else 0
        end = min(start + _AROUND, len(text))
    parts, at = ["..." if start else ""], start
    for begin, stop in spans:
        if at <= begin and stop <= end:
            parts += [text[at:begin], ">>>", text[begin:stop], "<<<"]
            at = stop
    return "".join([*parts, text[at:end], "..." if end < len(text) else ""])


def _marked(text: str, lowered: str, hits: Sequence[str]) -> str:
    """Around the first word or gram that stands in the text as it was asked; "" when none does."""
    for hit in hits:
        asked = hit.partition(" : ")[2] or hit.partition(" OR ")[0]
        start = lowered.find(asked.strip('"')) if len(lowered) == len(text) else -1
        if start >= 0:
            end = start + len(asked) - 2
            before, after = text[max(start - 60, 0) : start], text[end : end + 100]
            marked = f"{before}>>>{text[start:end]}<<<{after}"
            return ("..." if start > 60 else "") + marked + ("..." if end + 100 < len(text) else "")
    return ""


def _head(text: str) -> str:
    head = " ".join(text[: 10 * SNIPPET_TOKENS].split()[:SNIPPET_TOKENS])
    return head + "..." if len(head) < len(text.strip()) else head
