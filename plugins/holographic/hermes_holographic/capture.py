"""Facts worth keeping from a person's message, found by rules that read English."""

from __future__ import annotations

import re

from hermes_core.recall import fold
from hermes_holographic.language import sentences

_PREFERENCE = re.compile(
    r"(?:i|we) (?:really |usually |always |never |also |much |do not |don't |still )*"
    r"(?:prefer|like|love|enjoy|hate|dislike|use|avoid)\b"
    r"|(?:my|our) (?:favou?rite|preferred|default) .+ (?:is|are) "
    r"|i (?:always|never|usually) "
)
_DECISION = re.compile(
    r"we(?:'ve| have)? (?:decided|agreed|chose|chosen)\b|(?:the|our) project (?:uses|needs|requires|runs) "
)

# Words by which a message speaks to an assistant rather than about its author.
_ADDRESSED = re.compile(
    r"\b(?:you|your|please|ignore|disregard|instructions?|system|assistant|prompt|password|from now on|must|reveal|pretend)\b"
    r"|[<>{}\[\]`|]|https?:|^\W*(?:system|assistant|user|human)\s*:"
)
_CODE = re.compile(
    r"```.*?(?:```|\Z)|^[ \t]*>[^\n]*|<[^<>]{1,80}>.{0,4000}?</[^<>]{1,80}>", re.DOTALL | re.MULTILINE
)
_SHORTEST, _LONGEST = 10, 240
_READ = 20_000
"""Characters of one message that are read; more is a pasted document, not a person speaking."""


def statements(message: str) -> list[tuple[str, str]]:
    """Return what a person's message states about them or their project, as (sentence, category).

    Code, quotations, tagged text, questions, and sentences that address an assistant are left out: a captured
    sentence comes back in later conversations, where an instruction would be obeyed again.
    """
    found: list[tuple[str, str]] = []
    for line in sentences(_CODE.sub("\n", message[:_READ])):
        sentence = line.strip("-*• ")
        text = fold(sentence)
        if not _SHORTEST <= len(sentence) <= _LONGEST or sentence.endswith("?") or _ADDRESSED.search(text):
            continue
        if _DECISION.match(text):
            found.append((sentence, "project"))
        elif _PREFERENCE.match(text):
            found.append((sentence, "user_pref"))
    return found
