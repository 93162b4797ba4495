"""Words and grams of messages, and conditions on them, in the language of PostgreSQL's types `tsvector` and `tsquery`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hermes_core.recall.porter import index_words
from hermes_core.recall.tokens import grams, index_text
from hermes_core.sessions.search.match import Match, Phrase
from hermes_core.sessions.search.texts import readable_calls

# Bytes of one `tsvector`, below the server's limit of 1 MB. A message beyond it loses positions first, which only
# phrases need, and then rare words.
MAX_VECTOR_BYTES = 1_000_000

# The last position, and the number of positions of a word, that the server keeps.
MAX_POSITION = 16_383
MAX_POSITIONS = 255

# Positions between the text and the calls of a message, and between its single characters and pairs, so that no phrase
# reaches from the one to the other.
GAP = 2

# Bytes of a word beside its letters, and of each of its positions.
_WORD_BYTES, _POSITION_BYTES = 5, 2


def vectors_of(content: str, calls: str) -> tuple[str, str | None]:
    """Return the words of a message, and its grams or None, as texts for `tsvector` columns.

    No message is refused: what does not fit is left out.

    Args:
        content: The text of the message.
        calls: The name of its tool, and its tool calls as JSON.

    >>> vectors_of("two docker 部署", "")
    ("'two':1 'docker':2", "'部':1 '署':2 '部署':5")
    """
    calls = readable_calls(calls)
    words = _vector((index_words(index_text(content)), index_words(index_text(calls))))
    ones, pairs = grams(f"{content}\n{calls}")
    return words, _vector((ones, pairs)) if ones else None


def tsquery_of(match: Match) -> str | None:
    """Return a condition of one kind as a `tsquery`; None if no message can fulfil it.

    A phrase without a word fulfils nothing, as in FTS5.
    """
    if isinstance(match, Phrase):
        words = index_words(match.text) if match.kind == "word" else match.text.split()
        return " <-> ".join(map(_quoted, words)) + ":*" * match.prefix if words else None
    parts = [tsquery_of(operand) for operand in match.operands]
    known = [f"({part})" for part in parts if part is not None]
    if match.operator == "NOT":
        return f"!{known[0]}" if known else None
    if not known or (match.operator == "AND" and len(known) < len(parts)):
        return None
    return (" & " if match.operator == "AND" else " | ").join(known)


def _vector(columns: Iterable[Sequence[str]]) -> str:
    places: dict[str, list[int]] = {}
    at = 0
    counts: Counter[str] = Counter()
    for column in columns:
        counts.update(column)
        for word in column:
            at += 1
            known = places.setdefault(word, [])
            if at <= MAX_POSITION and len(known) < MAX_POSITIONS:
                known.append(at)
        at += GAP
    letters = {word: len(word.encode()) + _WORD_BYTES for word in places}
    size = sum(letters.values())
    if size + _POSITION_BYTES * sum(map(len, places.values())) > MAX_VECTOR_BYTES:
        places = {word: [] for word in places}
    if size > MAX_VECTOR_BYTES:
        room = MAX_VECTOR_BYTES
        frequent = []
        for word, _ in counts.most_common():
            room -= letters[word]
            if room < 0:
                break
            frequent.append(word)
        places = {word: [] for word in frequent}
    return " ".join(
        f"{_quoted(word)}:{','.join(map(str, known))}" if known else _quoted(word)
        for word, known in places.items()
    )


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
