"""Origin of a text: who or what it comes from. The origin decides where the text may stand, whatever the text says.

A scan finds only attacks that somebody has seen before. An origin that is bound when a text is stored, and lowered to
that of the worst input when a text is made from others, does not depend on the wording (arXiv:2606.24322, the lattice of
Denning 1976).
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any

from msgspec import Struct, field

from hermes_core.contract.values import Origin
from hermes_core.recall.tokens import dense_runs, fold, grams, is_stop_word, strip_possessive, words

# From the highest to the lowest. The last four are equal: nobody whom the memory belongs to said such a text.
RANKS: Mapping[str, int] = {
    "person": 0,
    "owner": 1,
    "assistant": 2,
    "file": 3,
    "user": 4,
    "provider": 5,
    "import": 5,
    "tool": 5,
    "web": 5,
}

LOWEST_RANK = max(RANKS.values())


def rank(origin: str) -> int:
    """Return the rank of an origin, 0 for the highest. An origin of a later version ranks lowest."""
    return RANKS.get(origin, LOWEST_RANK)


def lowest(origins: Iterable[str], default: Origin = "person") -> Origin:
    """Return the lowest of these origins, of equal ones the first; `default` if there are none.

    >>> lowest(["person", "web", "assistant", "tool"])
    'web'
    """
    worst: str = default
    known = False
    for origin in origins:
        if not known or rank(origin) > rank(worst):
            worst, known = origin, True
    return as_origin(worst)


def as_origin(text: object) -> Origin:
    """Return a stored value as an origin. A value that this version does not know becomes "import"."""
    return text if isinstance(text, str) and text in RANKS else "import"  # type: ignore[return-value]


def may_command(origin: str) -> bool:
    """Return True if a text of this origin may stand in a system prompt."""
    return rank(origin) <= RANKS["file"]


LOW_ORIGINS = tuple(name for name in RANKS if not may_command(name))
"""Origins of texts that stand in no system prompt until a person confirms them."""


def in_scope(origin: str, owner: str) -> Origin:
    """Return the origin as the scope of an owner sees it: the user of a scope is the person in it.

    Args:
        owner: `Session.owner` of the scope. The person at home, "", sees users as they are.
    """
    return "person" if origin == "user" and owner else as_origin(origin)


# -------------------------------------------------------------------- reading


class Reading(Struct):
    """Texts that a model has read when it calls a tool.

    Attributes:
        origin: The lowest origin of the texts.
        said: Returns the person's own messages of the session.
        result: Origin of the tool's result, if the tool reports one.
    """

    origin: Origin = "person"
    said: Callable[[], Sequence[str]] = field(default=lambda: ())
    result: Origin | None = None

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Make this the `current_reading` within the block, also on threads that copy the context."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[Reading | None] = ContextVar("hermes_core.reading", default=None)


def current_reading() -> Reading | None:
    """Return what the model that calls the running tool has read; None outside of a tool call."""
    return _current.get()


def report_result(origins: Iterable[str]) -> None:
    """Report the origins of the texts that the running tool returns. Without any, the result is the agent's own."""
    reading = _current.get()
    if reading is not None:
        earlier = [] if reading.result is None else [reading.result]
        reading.result = lowest([*earlier, *origins], "assistant")


def origin_of_text(text: str, reading: Reading, sources: Iterable[str] = ()) -> Origin:
    """Return the origin of a text that a model wrote.

    It is "assistant" if the model had read nothing lower, and "person" if the person made each statement of it in their
    own messages. Else it is the lowest origin of what the model had read.

    Args:
        text: The text.
        reading: What the model had read.
        sources: Origins of the texts that the model changed or merged into this one.
    """
    lower = lowest((reading.origin, *sources))
    if may_command(lower):
        return "assistant"
    return "person" if is_stated(text, reading.said()) else lower


# ----------------------------------------------------------------- statements

_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；，])|\n+")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+|\b[\w.+-]+@[\w-]+\.\S+", re.IGNORECASE)
# With sign, separators and unit: 1.5 is not 5.1, and 5 $ is not 5 €.
_NUMBER = re.compile(r"(?<!\w)[-+]?[$€£¥]?\d(?:[\d.,:/]*\d)?(?:\s?[%$€£¥°])?")
_QUESTION = re.compile(r"[?？؟\u037e]\s*[\"'”’)]*\s*$")
# Words with which a note names the person who said "I".
_FRAME = frozenset(["user", "user's", "person", "person's"])
_NEGATION_WORDS = """
    no not never none neither nor without nothing nobody cannot can't don't doesn't didn't isn't aren't wasn't weren't
    won't wouldn't shouldn't couldn't mustn't hasn't haven't hadn't stop avoid except unless
    cant dont doesnt didnt isnt arent wasnt werent wont wouldnt shouldnt couldnt mustnt hasnt havent hadnt
    nicht kein keine keinen keinem keiner nie niemals ohne außer nichts niemand
    ne pas jamais sans aucun aucune rien personne sauf nunca sin ningún ninguna jamás nada nadie excepto
    non mai senza nessuno nessuna não nem sem nenhum nenhuma niet geen nooit zonder
    inte ingen inget aldrig utan ikke aldri uten nie bez żaden не нет никогда без нельзя ни ніколи немає
    není nikdy nem soha nu fără ei älä δεν μην όχι tidak bukan jangan tanpa không chưa đừng
    değil yok asla لا لم لن ليس بدون أبدا נא לא אל אין בלי नहीं मत कभी बिना
    """
_NEGATIONS = frozenset(_NEGATION_WORDS.split())
_DENSE_NEGATION = re.compile("[不没沒别別無无未非勿莫禁]|ない|ません|なく|ず|안|않|못|없|말|ไม่|อย่า|ห้าม")
# Words that, after a negation, are none: "don't forget that I like tea".
_REMINDERS = frozenset(["forget", "forgot"])
# Words that begin a clause with another negation than the clause before.
_CONTRASTS = """
    but however though although whereas while aber sondern mais pero sino ma però mas maar но але ama لكن ولكن אבל लेकिन
    """
_DENSE_CONTRASTS = "但是?|而是|けど|けれど|でも|하지만|แต่"
_CLAUSE_END = re.compile(
    rf"(?<=[,:،、])(?!\d)|\s[-–—]\s|[()]|\s(?=(?:{'|'.join(_CONTRASTS.split())})\s)|{_DENSE_CONTRASTS}",
    re.IGNORECASE,
)
_NEGATION = "\N{NOT SIGN}"


def is_stated(text: str, said: Iterable[str]) -> bool:
    """Return True if the person made each statement of `text` in a sentence of their own.

    The words of a statement are compared after folding and without endings. They stand in one sentence in the same order,
    with the same numbers, in clauses with as many negations, and are more than half of its words. All that follows a
    negation in its clause counts as one word: who doesn't like green tea may like other tea. A question states nothing,
    and an address of a page is named, not stated.

    >>> is_stated("The person likes green tea.", ["I like green tea in the morning!"])
    True
    >>> is_stated("The person likes no green tea.", ["I like green tea in the morning!"])
    False
    >>> is_stated("Ann is not vegan.", ["Ann is vegan, not Bob."])
    False
    """
    statements = [_Statement.of(sentence) for sentence in _sentences(text)]
    if not statements or not all(statement.size for statement in statements):
        return False
    sentences = [
        _Statement.of(_ADDRESS.sub(" ", sentence))
        for message in said
        for sentence in _sentences(message)
        if not _QUESTION.search(sentence)
    ]
    return all(any(statement.is_in(sentence) for sentence in sentences) for statement in statements)


def _sentences(text: str) -> list[str]:
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]


class _Statement(Struct, frozen=True):
    """One sentence: its words without endings, in order, and its numbers with their signs.

    Each word stands with the number of negations in its clause. A negation and what follows it in the clause are one item.
    """

    items: tuple[tuple[tuple[str, ...], int], ...]
    numbers: frozenset[str]

    @classmethod
    def of(cls, sentence: str) -> _Statement:
        items: list[tuple[tuple[str, ...], int]] = []
        for clause in _CLAUSE_END.split(sentence):
            marked = _marked(clause)
            negations = marked.count(_NEGATION)
            start = marked.index(_NEGATION) if negations else len(marked)
            items += [((word,), negations) for word in marked[:start]]
            items += [(tuple(marked[start:]), negations)] if negations else []
        return cls(tuple(items), frozenset(_NUMBER.findall(fold(sentence))))

    @property
    def size(self) -> int:
        """Number of the words without negations."""
        return sum(word != _NEGATION for words, _ in self.items for word in words)

    def is_in(self, other: _Statement) -> bool:
        rest = iter(other.items)
        in_order = all(item in rest for item in self.items)
        return in_order and self.numbers <= other.numbers and self.size * 2 > other.size


def _marked(clause: str) -> list[str]:
    """Return the words of a clause in order, then the pairs of its dense runs, with a mark for each negation."""
    marked: list[str] = []
    for word in words(clause):
        if word in _REMINDERS and _NEGATION in marked:
            marked.remove(_NEGATION)
        elif word in _NEGATIONS or word.endswith("n't"):
            marked.append(_NEGATION)
        elif word not in _FRAME and not is_stop_word(word):
            marked.append(_stem(word))
    for run in dense_runs(fold(clause)):
        for place, part in enumerate(_DENSE_NEGATION.split(run)):
            marked += [_NEGATION] if place else []
            marked += grams(part)[1] or list(part)
    return marked


def _stem(word: str) -> str:
    word = strip_possessive(word)
    return word if any(char.isdigit() for char in word) else _english_stem(word)


def _english_stem(word: str) -> str:
    # A new stemmer for each word: it keeps the word on itself, and several threads stem at the same time.
    stem: str = _stemmer()().stemWord(word)
    return stem


@cache
def _stemmer() -> Any:
    # At its first use: many processes never ask.
    return importlib.import_module("snowballstemmer.english_stemmer").EnglishStemmer
