"""Terms of messages, and conditions on them, in the language of PostgreSQL's types `tsvector` and `tsquery`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hermes_core.sessions.search.match import Syntax

# Bytes of one `tsvector`, below the server's limit of 1 MB. A message beyond it loses positions first, which only
# phrases need, and then rare terms.
MAX_VECTOR_BYTES = 1_000_000

# The last position, and the number of positions of a term, that the server keeps.
MAX_POSITION = 16_383
MAX_POSITIONS = 255

# Positions between the text, the calls and the grams of a message, so that no phrase reaches from one to another.
GAP = 2

# Bytes of a term beside its letters, and of each of its positions.
_TERM_BYTES, _POSITION_BYTES = 5, 2


def vector_of(columns: Iterable[str]) -> str:
    """Return the terms of a message, as `terms_of` returns them, as text for a `tsvector` column.

    No message is refused: what does not fit is left out.

    >>> vector_of(("two docker", "", "部 署 部署"))
    "'two':1 'docker':2 '部':7 '署':8 '部署':9"
    """
    places: dict[str, list[int]] = {}
    at = 0
    counts: Counter[str] = Counter()
    for column in columns:
        terms = column.split()
        counts.update(terms)
        for term in terms:
            at += 1
            known = places.setdefault(term, [])
            if at <= MAX_POSITION and len(known) < MAX_POSITIONS:
                known.append(at)
        at += GAP
    letters = {term: len(term.encode()) + _TERM_BYTES for term in places}
    if sum(letters.values()) + _POSITION_BYTES * sum(map(len, places.values())) > MAX_VECTOR_BYTES:
        places, room = {}, MAX_VECTOR_BYTES
        for term, _ in counts.most_common():
            room -= letters[term]
            if room < 0:
                break
            places[term] = []
    return " ".join(
        f"{_quoted(term)}:{','.join(map(str, known))}" if known else _quoted(term)
        for term, known in places.items()
    )


def _quoted(term: str) -> str:
    # A term has letters and digits only, of which none has a meaning within quotation marks.
    return f"'{term}'"


TSQUERY = Syntax(
    phrase=lambda phrase: " <-> ".join(map(_quoted, phrase.text.split())) + ":*" * phrase.prefix,
    both=" & ",
    either=" | ",
    without=" & !",
    condition="m.terms @@ ?::tsquery",
)
