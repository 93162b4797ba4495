"""The provider's search in conversations beside plain FTS5 and our session search, and vectors of words alone.

A message's vector is the sum of its words' phasors, each by how much the word tells; "neighbours" adds the messages
around it. Words are atoms of chance, or by meaning: the phase of a word at a dimension is the projection of its
embedding on a direction of chance (random Fourier features), so that words that mean about the same are near. From
all atoms by meaning their mean is taken away: what every word has in common would tell long messages from short ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import recall_scores
import recall_systems
from hermes_holographic import HolographicProvider, hrr
from hermes_holographic.language import index_words
from hermes_holographic.store import idf
from numpy.typing import NDArray
from rich.console import Console

from hermes_core import Session, ToolCall
from hermes_memory_semantic import dense
from hermes_memory_semantic.vectors import Likeness

DIM = 1024

STEM = 5
"""Letters by which two words are the same one."""

NEIGHBOURS = {-3: 0.3, -2: 0.4, -1: 0.6, 1: 0.4, 2: 0.2}
"""Messages of one session around another, and what each counts in its vector beside its own words."""

NEARNESS = 2.0
"""How fast the likeness of two words falls with the distance of their embeddings; 1.5 to 3 were tried."""

SHARE = 0.25
"""Deviations of a message's score in our search for one deviation of its vector's. 0.6 costs two points of recall@10."""

Atoms = Callable[[Sequence[str]], NDArray[np.complex64]]
"""Phasors of words, one row for each."""


def by_chance(words: Sequence[str]) -> NDArray[np.complex64]:
    phases = np.stack([hrr.atom(f"word:{word}", DIM) for word in words])
    return np.exp(2j * np.pi / 256 * phases.astype(np.float32)).astype(np.complex64)


def by_meaning(words: Sequence[str]) -> NDArray[np.complex64]:
    directions = np.random.default_rng(0).standard_normal((dense.DIMENSION, DIM)).astype(np.float32)
    known = dense.encoder().encode(words)
    known -= known.mean(axis=0)
    known /= np.linalg.norm(known, axis=1, keepdims=True)
    made = np.exp(1j * NEARNESS * (known @ directions)).astype(np.complex64)
    return np.asarray(made - made.mean(axis=0))


class Words:
    """The words of a conversation and of its questions by their stems, and what each tells; `spoken` is the shortest word
    of each stem."""

    def __init__(self, conversation: recall_scores.Conversation) -> None:
        self._sessions = [session for session, _ in conversation.messages()]
        self._said = [stems(f"{m.speaker}: {m.content}") for _, m in conversation.messages()]
        texts = [m.content for _, m in conversation.messages()] + [q.text for q in conversation.questions]
        spoken = {word for text in texts for word in index_words(text)}
        spoken |= {word for _, m in conversation.messages() for word in index_words(m.speaker)}
        shortest = {word[:STEM]: word for word in sorted(spoken, key=lambda word: (-len(word), word))}
        counts = Counter(word for words in self._said for word in words)
        self.known = sorted(shortest)
        self.spoken = [shortest[word] for word in self.known]
        self._at = {word: n for n, word in enumerate(self.known)}
        tells = idf({word: counts[word] for word in self.known}, len(self._said))
        self._tells = np.array([tells[word] for word in self.known], np.float32)

    @cached_property
    def own(self) -> NDArray[np.float32]:
        """A row for each message: what its words tell."""
        return np.stack([self.row(words) for words in self._said])

    @cached_property
    def around(self) -> NDArray[np.float32]:
        """The same with the messages around each."""
        found = self.own.copy()
        for distance, share in NEIGHBOURS.items():
            for at in range(max(0, -distance), min(len(found), len(found) - distance)):
                if self._sessions[at] == self._sessions[at + distance]:
                    found[at] += share * self.own[at + distance]
        return found

    def row(self, words: Sequence[str]) -> NDArray[np.float32]:
        found = np.zeros(len(self.known), np.float32)
        at = [self._at[word] for word in words]
        found[at] = self._tells[at]
        return found


def stems(text: str) -> list[str]:
    """Words by their first letters."""
    return list(dict.fromkeys(word[:STEM] for word in index_words(text)))


class Vectors:
    """The messages of one conversation as vectors; answers as `SessionStore.meaning` does, beside what that says."""

    def __init__(
        self, conversation: recall_scores.Conversation, atoms: Atoms, *, neighbours: bool, beside: Any = None
    ) -> None:
        self._words, self._beside = Words(conversation), beside
        self._atoms = atoms(self._words.spoken)
        # A word that no message holds is near to none by chance, and may be by meaning.
        self._counts = self._words.own.any(axis=0) if atoms is by_chance else 1.0
        self._rows = (self._words.around if neighbours else self._words.own) @ self._atoms

    def scores(self, question: str) -> NDArray[np.float32]:
        asked = (self._words.row(stems(question)) * self._counts) @ self._atoms.conj()
        return np.asarray((self._rows @ asked).real)

    def likeness(self, question: str) -> Likeness:
        scores = self.scores(question)
        worth = SHARE * (scores - scores.mean()) / (scores.std() or 1.0)
        if self._beside is not None and (other := self._beside.likeness(question)) is not None:
            worth = worth + np.array([other.of(number) for number in range(1, len(worth) + 1)])
        return Likeness(np.arange(1, len(worth) + 1), worth)

    def close(self) -> None:
        if self._beside is not None:
            self._beside.close()


@contextmanager
def alone(
    atoms: Atoms, neighbours: bool, conversation: recall_scores.Conversation, _folder: Path
) -> Iterator[recall_scores.Ask]:
    """Messages by their vectors and nothing else."""
    vectors = Vectors(conversation, atoms, neighbours=neighbours)
    refs = [message.ref for _, message in conversation.messages()]
    yield lambda question, k: [refs[at] for at in np.argsort(-vectors.scores(question), kind="stable")[:k]]


@contextmanager
def as_stored(conversation: recall_scores.Conversation, _folder: Path) -> Iterator[recall_scores.Ask]:
    """Messages by vectors as the provider keeps them: phases of 8 bits, without amplitudes, all words alike."""
    words = Words(conversation)
    refs, rows = [], []
    for _, message in conversation.messages():
        made = hrr.content_vector(stems(f"{message.speaker}: {message.content}"), DIM)
        refs.append(message.ref)
        rows.append(np.zeros(DIM, np.uint8) if made is None else made)
    stored = np.stack(rows)

    def ask(question: str, k: int) -> list[str]:
        tells = words.row(stems(question))
        weights = {word: float(tells[n]) for n, word in enumerate(words.known) if tells[n]} or {"": 0.0}
        return [
            refs[at] for at in np.argsort(-hrr.question_similarity(weights, stored, DIM), kind="stable")[:k]
        ]

    yield ask


@contextmanager
def holographic(conversation: recall_scores.Conversation, folder: Path) -> Iterator[recall_scores.Ask]:
    """The provider: each message is a fact of its session, "Speaker: text"; the action `search` is asked."""
    provider, home = HolographicProvider(), str(folder)

    def call(session_id: str, **arguments: Any) -> Any:
        session = Session(session_id, home=home)
        return json.loads(provider.handle_tool_call(ToolCall("fact_store", arguments), session))

    provider.initialize(Session("question", home=home))
    refs: dict[int, str] = {}
    for session_id, message in conversation.messages():
        fact = call(session_id, action="add", content=f"{message.speaker}: {message.content}")
        refs.setdefault(fact["fact_id"], message.ref)

    def ask(question: str, k: int) -> list[str]:
        found = call("question", action="search", query=question, limit=k)["results"]
        return [refs[fact["fact_id"]] for fact in found]

    yield ask
    provider.shutdown()


@contextmanager
def beside(
    atoms: Atoms, semantic: bool, conversation: recall_scores.Conversation, folder: Path
) -> Iterator[recall_scores.Ask]:
    """Our session search, with vectors as one more sign."""
    with recall_systems.stored(conversation, folder, semantic=semantic) as db:
        db.vectors = Vectors(conversation, atoms, neighbours=True, beside=db.vectors)  # type: ignore[assignment]
        yield lambda question, k: [hit.ref for hit in db.search(question, limit=k)]


def systems() -> dict[str, recall_systems.System]:
    """With and without vectors; by meaning where hermes-memory-semantic is installed."""
    found: dict[str, recall_systems.System] = {
        "plain-fts5": recall_systems.plain_fts5,
        "holographic": holographic,
        "vectors, stored": as_stored,
        "vectors": partial(alone, by_chance, False),
        "vectors, neighbours": partial(alone, by_chance, True),
        "ours": recall_systems.ours,
        "ours, vectors": partial(beside, by_chance, False),
    }
    if dense.installed():
        found |= {
            "vectors by meaning": partial(alone, by_meaning, False),
            "vectors by meaning, neighbours": partial(alone, by_meaning, True),
            "ours, vectors by meaning": partial(beside, by_meaning, False),
            "ours-semantic": recall_systems.ours_semantic,
            "ours-semantic, vectors by meaning": partial(beside, by_meaning, True),
        }
    return found


def scores(path: Path, console: Console) -> list[dict[str, Any]]:
    """Evidence recall on conversations of the LoCoMo format."""
    conversations = recall_scores.read(path)
    results = (recall_systems.run(name, system, conversations, console) for name, system in systems().items())
    return [recall_scores.score(result, 10) for result in results]
