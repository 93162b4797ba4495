"""One large store out of a few conversations: themselves, between others that are like them and say something else."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from recall_scores import Conversation

from hermes_core.recall.tokens import is_stop_word
from hermes_memory_importers.values import ImportedMessage, ImportedSession

ALIKE = 40
"""A word is exchanged with one of so many that are about as frequent."""

APART = 365 * 86400.0
"""Seconds by which the dates of a copy are moved at the most, either way."""

_WORD = re.compile(r"[^\W\d_]+")
_SYLLABLES = (
    "ba",
    "co",
    "di",
    "fen",
    "ga",
    "hil",
    "jo",
    "ka",
    "lo",
    "mi",
    "nor",
    "pe",
    "ra",
    "su",
    "ta",
    "vi",
)


def mixed(conversations: Sequence[Conversation], turns: int) -> Conversation:
    """All conversations in one, in order of time, with as many copies of them as make `turns` messages.

    In a copy each content word is exchanged throughout for another about as frequent, speakers get names of their own,
    and all dates are moved by one step. So copies speak as people do, of other things; the questions and their
    evidence are those of the originals.
    """
    originals = [_marked(c, "", lambda text: text, 0.0) for c in conversations]
    ranked = _ranked(originals)
    everything, chance = list(originals), random.Random(0)
    count = sum(len(c.text_of()) for c in originals)
    while count < turns:
        number = len(everything)
        source = originals[number % len(originals)]
        exchange = _exchange(ranked, _speakers(source), chance)
        copy = _marked(source, f"copy {number} of ", exchange, chance.uniform(-APART, APART))
        everything.append(copy)
        count += len(copy.text_of())
    sessions = sorted((s for c in everything for s in c.sessions), key=lambda s: s.started_at or 0.0)
    questions = tuple(question for c in originals for question in c.questions)
    return Conversation(f"{count} messages", tuple(sessions), questions)


def _marked(source: Conversation, mark: str, say: Callable[[str], str], later: float) -> Conversation:
    """The conversation with its texts said otherwise and its dates moved; all ids are its own."""
    name = f"{mark}{source.id}"

    def message(one: ImportedMessage) -> ImportedMessage:
        at = None if one.timestamp is None else one.timestamp + later
        speaker, content = say(one.speaker), say(one.content)
        return replace(one, speaker=speaker, content=content, ref=f"{name} {one.ref}", timestamp=at)

    def session(one: ImportedSession) -> ImportedSession:
        turns = tuple(replace(turn, messages=tuple(map(message, turn.messages))) for turn in one.turns)
        at = None if one.started_at is None else one.started_at + later
        return replace(one, id=f"{name} {one.id}", title="", started_at=at, turns=turns)

    questions = tuple(
        replace(q, evidence=frozenset(f"{name} {ref}" for ref in q.evidence)) for q in source.questions
    )
    return Conversation(name, tuple(map(session, source.sessions)), questions)


def _ranked(conversations: Sequence[Conversation]) -> list[str]:
    """Content words, the most frequent first."""
    counts = Counter(
        word
        for c in conversations
        for text in c.text_of().values()
        for word in _WORD.findall(text.lower())
        if not is_stop_word(word)
    )
    return sorted(counts, key=lambda word: (-counts[word], word))


def _speakers(conversation: Conversation) -> list[str]:
    return sorted({message.speaker for _, message in conversation.messages()})


def _exchange(ranked: Sequence[str], speakers: Sequence[str], chance: random.Random) -> Callable[[str], str]:
    """What says a text with other words of about the same frequency, and other names."""
    other: dict[str, str] = {}
    for start in range(0, len(ranked), ALIKE):
        words = ranked[start : start + ALIKE]
        other.update(zip(words, chance.sample(words, k=len(words)), strict=True))
    other.update((name.lower(), "".join(chance.choices(_SYLLABLES, k=3))) for name in speakers)

    def exchanged(match: re.Match[str]) -> str:
        word = match[0]
        found = other.get(word.lower(), word)
        return found.capitalize() if word[0].isupper() else found

    return lambda text: _WORD.sub(exchanged, text)
