"""Origin of a text: who or what it comes from. The origin decides where the text may stand, whatever the text says.

A scan finds only attacks that somebody has seen before. An origin that is bound when a text is stored, and lowered to
that of the worst input when a text is made from others, does not depend on the wording (arXiv:2606.24322, the lattice of
Denning 1976).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar

from msgspec import Struct, field, structs

from hermes_core.contract.values import Origin
from hermes_core.recall.tokens import STOP_WORDS, grams, index_text
from hermes_core.safety.statements import is_stated

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

# Words with which a note names the person.
_FRAME = frozenset(["user", "person"])


def rank(origin: str) -> int:
    """Return the rank of an origin, 0 for the highest. An origin of a later version ranks lowest."""
    return RANKS.get(origin, LOWEST_RANK)


def lowest(origins: Iterable[str], default: Origin = "person", *, owner: str = "") -> Origin:
    """Return the lowest of these origins, of equal ones the first; `default` if there are none.

    Args:
        owner: `Session.owner` of a scope whose user is the person in it: their own words hide no file that they attached.

    >>> lowest(["person", "web", "assistant", "tool"])
    'web'
    """
    worst: str = default
    known = False
    ranks = {"user": RANKS["assistant"] + 0.5} if owner else {}
    for origin in origins:
        if not known or ranks.get(origin, rank(origin)) > ranks.get(worst, rank(worst)):
            worst, known = origin, True
    return as_origin(worst)


def as_origin(text: object) -> Origin:
    """Return a stored value as an origin. A value that this version does not know becomes "import"."""
    return text if isinstance(text, str) and text in RANKS else "import"  # type: ignore[return-value]


def may_command(origin: str) -> bool:
    """Return True if a text of this origin may stand in a system prompt.

    A file is there only as such, SOUL.md or a skill: what a model made from an attachment waits.
    """
    return rank(origin) <= RANKS["assistant"]


LOW_ORIGINS = tuple(name for name in RANKS if not may_command(name))
"""Origins of texts that stand in no system prompt until a person confirms them."""


def in_scope(origin: str, owner: str) -> Origin:
    """Return the origin as the scope of an owner sees it: the user of a scope is the person in it.

    Args:
        owner: `Session.owner` of the scope. The person at home, "", sees users as they are.
    """
    return "person" if origin == "user" and owner else as_origin(origin)


# -------------------------------------------------------------------- reading

# Characters of the person's messages that a judge reads. Older messages that do not fit are left out as a whole, since
# a part of a message may say the opposite of it.
MAX_JUDGED_CHARS = 20_000

# Addresses, names of hosts and files, and numbers of accounts and telephones.
_ADDRESS = re.compile(
    r"[a-z][\w+.-]*://\S+|[\w.+-]+@\S+|(?:[\w-]+\.)+[a-z]{2,}|(?<!\w)~?/[\w./-]+|\w*(?:\d\W?){5,}\w*"
)


class Judge(Struct, frozen=True):
    """A judge of notes that the rule does not find in the person's words.

    Attributes:
        name: Name for the record, such as that of a model.
        ask: Returns True if the words of the first argument, a person's messages, state the note of the second. It
            returns None if it does not know, and reads nothing but the two.
    """

    name: str
    ask: Callable[[Sequence[str], str], bool | None]

    def says_so(self, said: Sequence[str], note: str) -> bool:
        """Return True if the judge says that these messages state a note.

        An address or a long number has to stand in them, whatever the judge says.
        """
        room, words = MAX_JUDGED_CHARS - len(note), list[str]()
        for message in reversed([*dict.fromkeys(said)]):
            if len(message) <= room:
                room -= len(message)
                words.insert(0, message)
        text = "\n".join(words).lower()
        known = (text, re.sub(r"[\s/().-]", "", text))
        addresses = [found.strip(" .,;:!?") for found in _ADDRESS.findall(note.lower())]
        if not words or not all(any(one in form for form in known) for one in addresses):
            return False
        return self.ask(words, note) is True


class Reading(Struct):
    """Texts that a model has read when it calls a tool.

    Attributes:
        origin: The lowest origin of the texts, without the notes that wait for a person.
        said: Returns the person's own messages of the session.
        result: Origin of the tool's result, if the tool reports one.
        waiting: Returns the texts of notes that wait, with their origins. The model may have read them as data.
        judge: The judge of what the rule does not find in the person's messages; None for none.
        judged: What the judge said of each text that it was asked about.
        turn: Id of the turn in which the model writes. Its notes wait until the turn has ended well. "" for a program that
            knows all that the model reads.
    """

    origin: Origin = "person"
    said: Callable[[], Sequence[str]] = field(default=lambda: ())
    result: Origin | None = None
    waiting: Callable[[], Sequence[tuple[str, Origin]]] = field(default=lambda: ())
    judge: Judge | None = None
    judged: dict[str, bool] = field(default_factory=dict)
    turn: str = ""

    def consult(self, text: str) -> None:
        """Ask the judge about a text, once. It may take seconds: call this before a lock is taken."""
        if self.judge is not None and text not in self.judged:
            self.judged[text] = self.judge.says_so(self.said(), text)

    def judge_of(self, text: str) -> str:
        """Return the name of the judge that said of a text that the person states it; "" for none."""
        return self.judge.name if self.judge is not None and self.judged.get(text) else ""

    def in_scope_of(self, owner: str) -> Reading:
        """Return the same as the scope of an owner sees it, see `in_scope`."""
        return structs.replace(self, origin=in_scope(self.origin, owner))

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
    own messages, by the rule or as a judge said before. Else it is the lowest origin of what the model had read. A note that waits counts as read for texts
    that follow from it.

    Args:
        text: The text.
        reading: What the model had read.
        sources: Origins of the texts that the model changed or merged into this one.
    """
    lower = lowest((reading.origin, *sources, *origins_behind(text, reading.waiting())))
    if may_command(lower):
        return "assistant"
    return "person" if reading.judged.get(text) or is_stated(text, reading.said()) else lower


def origins_behind(text: str, waiting: Iterable[tuple[str, Origin]]) -> list[Origin]:
    """Return the origins of those waiting notes from which a text may follow."""
    return [origin for note, origin in waiting if follows(text, note)]


def follows(text: str, note: str) -> bool:
    """Return True if a text may follow from a note: it has a third of the words of the shorter one, or a long number.

    >>> follows("Tea is bought from Lund", "Lund sells tea"), follows("The office is closed", "Lund sells tea")
    (True, False)
    """
    ours, theirs = _terms(text), _terms(note)
    shared = ours & theirs
    return bool(shared) and (
        len(shared) * 3 >= min(len(ours), len(theirs))
        or any(len(term) > 2 and any(map(str.isdigit, term)) for term in shared)
    )


def _terms(text: str) -> set[str]:
    """Return the words of a text that say what it is about: stems without short words, and pairs of dense runs."""
    terms = {term for term in index_text(text).split() if len(term) > 2 or term.isdigit()}
    return (terms | set(grams(text)[1])) - STOP_WORDS - _FRAME
