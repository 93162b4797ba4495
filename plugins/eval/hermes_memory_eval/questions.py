"""Questions made from what was said, each with the messages that answer it."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hermes_core.recall import dense_runs, fold, is_stop_word, says_unknown, words
from hermes_core.recall.rank import asks, speaks_of_self
from hermes_memory_eval.baseline import PlainFts5

Kind = Literal["own facts", "asked before", "hints"]

KINDS: tuple[Kind, ...] = ("own facts", "asked before", "hints")

# Candidates that are remembered for each question that is wanted: many of them ask for too many messages.
CANDIDATES_PER_QUESTION = 20

# Words of a sentence that tells a fact, and of a question that the person asked.
SENTENCE_WORDS = range(3, 25)

# Characters of a message that states a fact; a longer text tells more than one.
MAX_FACT_CHARS = 400

# Characters of the shortest answer of an agent that tells something.
MIN_ANSWER_CHARS = 20

# Telling words of a message of which a hint is made, and of the hint.
MIN_HINTED_WORDS, HINT_WORDS = 6, 3

# Share of the messages above which a word is common, and the number of messages that is never many.
COMMON_SHARE, FEW_MESSAGES = 0.02, 3

# Messages that may have all words of a question: with more, it asks for no one of them.
MAX_SAME_WORDS = 10

_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)*")
_CONTRACTION = re.compile(r"['’].*")
_SENTENCE_END = re.compile(r"(?<=[^\d][.!?。！？])\s+|(?<=[。！？])|\n+")


@dataclass(frozen=True)
class Said:
    """A stored message."""

    id: int
    session_id: str
    role: str
    text: str
    speaker: str = ""


@dataclass(frozen=True)
class MadeQuestion:
    """A question with the messages that answer it, of which any one counts. `own` are messages that are the question."""

    kind: Kind
    text: str
    evidence: frozenset[int]
    own: frozenset[int] = frozenset()


@dataclass
class Corpus:
    """Sample of the messages, drawn while they are read once.

    Attributes:
        messages: Number of messages.
        sessions: Number of their sessions.
        frequency: Number of messages by word.
        idle: Messages of the person that ask nothing and tell nothing of the person.
    """

    wanted: int
    seed: int
    messages: int = 0
    sessions: int = 0
    frequency: Counter[str] = field(default_factory=Counter)
    idle: list[Said] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._candidates: dict[Kind, list[tuple[Said, ...]]] = {kind: [] for kind in KINDS}
        self._seen: Counter[str] = Counter()
        self._ids: dict[str, list[int]] = {}

    def read(self, said: Iterable[Said]) -> Iterator[tuple[str, int]]:
        """Draw from messages, in the order of their sessions; yield each as a row of the baseline."""
        before: Said | None = None
        for message in said:
            self.messages += 1
            if before is None or before.session_id != message.session_id:
                self.sessions, before = self.sessions + 1, None
            self.frequency.update(set(map(fold, words(message.text))))
            self._ids.setdefault(same_text(message.text), []).append(message.id)
            self._draw(message, before)
            before = message
            yield f"{message.speaker or message.role}: {message.text}", message.id

    def _draw(self, message: Said, before: Said | None) -> None:
        text = message.text
        if message.role == "user" and len(text) <= MAX_FACT_CHARS and not asks(text):
            if speaks_of_self(text):
                self._keep(self._candidates["own facts"], "own facts", (message,))
            elif len(words(text)) >= SENTENCE_WORDS[0]:
                self._keep(self.idle, "idle", message, self.wanted)
        if _answers(message, before):
            assert before is not None
            self._keep(self._candidates["asked before"], "asked before", (before, message))
        self._keep(self._candidates["hints"], "hints", (message,))

    def _keep(self, kept: list, kind: str, one: object, most: int = 0) -> None:  # type: ignore[type-arg]
        """Keep each candidate with the same chance, however many there are."""
        most = most or self.wanted * CANDIDATES_PER_QUESTION
        self._seen[kind] += 1
        if len(kept) < most:
            kept.append(one)
        elif (at := self._random.randrange(self._seen[kind])) < most:
            kept[at] = one

    def questions(self, baseline: PlainFts5) -> list[MadeQuestion]:
        """Return at most `wanted` questions of each kind; `baseline` has all messages."""
        made: list[MadeQuestion] = []
        for kind, candidates in self._candidates.items():
            of_kind: dict[str, MadeQuestion] = {}
            for candidate in self._random.sample(candidates, len(candidates)):
                if len(of_kind) == self.wanted:
                    break
                if (question := self._made(kind, candidate, baseline)) is not None:
                    of_kind.setdefault(same_text(question.text), question)
            made += of_kind.values()
        return made

    def _made(self, kind: Kind, candidate: Sequence[Said], baseline: PlainFts5) -> MadeQuestion | None:
        answer = candidate[-1]
        evidence = frozenset(self._ids[same_text(answer.text)])
        if kind == "asked before":
            own = frozenset(self._ids[same_text(candidate[0].text)])
            return MadeQuestion(kind, candidate[0].text.strip(), evidence - own, own)
        text = self._cue(answer.text) if kind == "own facts" else self._hint(answer.text)
        if not text:
            return None
        telling = [word for word in words(text) if self._tells(word)]
        # A script without spaces has no words that the baseline could count.
        if telling and baseline.count_with_all(telling, MAX_SAME_WORDS) > MAX_SAME_WORDS:
            return None
        return MadeQuestion(kind, text, evidence)

    def _tells(self, word: str) -> bool:
        """Return True if a word is not common, in the language or in these messages."""
        most = max(FEW_MESSAGES, COMMON_SHARE * self.messages)
        stem = _CONTRACTION.sub("", word)  # "they're" tells no more than "they"
        return not is_stop_word(fold(stem)) and self.frequency[fold(word)] <= most and not stem.isdigit()

    def _cue(self, text: str) -> str:
        """Return the beginning of a sentence about the person as a question for its rest; "" if there is none.

        "My passport is in the blue drawer." becomes "My passport?".
        """
        for sentence in _SENTENCE_END.split(text):
            if not speaks_of_self(sentence) or sentence.rstrip().endswith(("?", "？")):
                continue
            if runs := dense_runs(sentence):
                return f"{sentence[: sentence.index(runs[0]) + max(len(runs[0]) // 2, 2)]}？"
            found = list(_WORD.finditer(sentence))
            telling = [match for match in found if self._tells(match[0])]
            if len(found) in SENTENCE_WORDS and len(telling) > 1:
                cue = sentence[: telling[len(telling) // 2 - 1].end()].strip()
                if speaks_of_self(cue):
                    return f"{cue}?"
        return ""

    def _hint(self, text: str) -> str:
        """Return a few telling words of a message; "" if it has not many."""
        telling = list(dict.fromkeys(match[0] for match in _WORD.finditer(text) if self._tells(match[0])))
        if len(telling) < MIN_HINTED_WORDS:
            return ""
        chosen = set(self._random.sample(telling, HINT_WORDS))
        return " ".join(word for word in telling if word in chosen)


def _answers(message: Said, before: Said | None) -> bool:
    """Return True if a message is the agent's answer to a question that the person asked right before."""
    return (
        before is not None
        and (before.role, message.role) == ("user", "assistant")
        and asks(before.text)
        and len(words(before.text)) in SENTENCE_WORDS
        and len(message.text) >= MIN_ANSWER_CHARS
        and not says_unknown(message.text)
    )


def same_text(text: str) -> str:
    """Return a text in the form in which two messages count as the same."""
    return " ".join(text.casefold().split())
