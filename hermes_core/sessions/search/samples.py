"""The messages by which it is proven that a search index finds what is stored; see `IndexProof`."""

from __future__ import annotations

from hermes_core.sessions.search.match import Phrase
from hermes_core.sessions.search.texts import terms_of

# Messages that a proof looks up: the newest one, and others at equal distances, because a part of an index may be lost: a
# proof misses the loss of a fifth once in a thousand times.
SAMPLES = 32

# Terms by which a message is looked up, from the beginning of its text.
MAX_TERMS = 3
MAX_CHARS = 1000

# An index may lack terms of a larger message.
MAX_SIZE = 100_000

# The texts of a message `m` for `terms_of_sample`.
SAMPLED_TEXTS = f"substr(m.content, 1, {MAX_CHARS}), m.tool_name, substr(m.tool_calls, 1, {MAX_CHARS})"


def terms_of_sample(size: int, content: str, tool_name: str, tool_calls: str) -> tuple[Phrase, ...]:
    """Return the rarest terms at the beginning of a message; () for one that an index may lack.

    Args:
        size: Characters of the message.
        content: The beginning of its text.
        tool_name: The name of its tool, or "".
        tool_calls: The beginning of its calls as JSON, or "".
    """
    if size > MAX_SIZE:
        return ()
    # The last word of a cut text is the beginning of a word.
    terms = " ".join(terms_of(content, tool_name, tool_calls)).split()[: -1 if size > MAX_CHARS else None]
    # Letters of ASCII are the same in all versions of Python.
    return tuple(
        map(Phrase, sorted(set(terms), key=lambda term: (not term.isascii(), -len(term)))[:MAX_TERMS])
    )
