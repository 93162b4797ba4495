"""Messages that look like an agent's, and queries about them: words drawn from a Zipf distribution, a tenth Chinese."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hermes_core.sessions.session_store import SessionStore

SESSION = 40
"""Messages of a session."""

QUERIES = 20
"""Queries of each kind."""

VOCABULARY = 20_000

WEIGHTS = [1 / rank for rank in range(1, VOCABULARY + 1)]
_SYLLABLES = [
    "ba",
    "co",
    "di",
    "fu",
    "ga",
    "he",
    "ji",
    "ko",
    "la",
    "mi",
    "no",
    "pe",
    "qui",
    "ra",
    "so",
    "tu",
    "va",
    "we",
    "xi",
    "zo",
    "br",
    "cl",
    "st",
    "th",
    "ing",
    "er",
]
_CHARACTERS = [chr(0x4E00 + 7 * n) for n in range(2_000)]


class Corpus:
    """Messages that look like an agent's. The same seed gives the same ones."""

    def __init__(self, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        words = random.Random(0)
        made: dict[str, None] = {}
        while len(made) < VOCABULARY:
            made["".join(words.choices(_SYLLABLES, k=words.randint(2, 4)))] = None
        self.words = list(made)

    def text(self) -> str:
        """About two hundred bytes."""
        if self._chance.random() < 0.1:
            return "".join(self._chance.choices(_CHARACTERS, _weights(len(_CHARACTERS)), k=66))
        return " ".join(self._chance.choices(self.words, cum_weights=CUMULATED, k=32))[:200]

    def message(self, number: int) -> dict[str, Any]:
        """A message in chat form."""
        message: dict[str, Any] = {
            "role": ("user", "assistant", "tool", "assistant")[number % 4],
            "content": self.text(),
            "timestamp": 1.7e9 + 30 * number,
        }
        if number % 4 == 3:
            arguments = json.dumps({"path": f"/srv/app/{self.words[number % VOCABULARY]}.py"})
            message["tool_calls"] = [
                {
                    "id": f"c{number}",
                    "type": "function",
                    "function": {"name": "read_file", "arguments": arguments},
                }
            ]
        if message["role"] == "tool":
            message["name"] = "read_file"
        return message


def _weights(count: int) -> Sequence[float]:
    return WEIGHTS[:count]


CUMULATED: list[float] = []
_sum = 0.0
for _weight in WEIGHTS:
    _sum += _weight
    CUMULATED.append(_sum)


def conversations(corpus: Corpus, count: int) -> Iterator[tuple[str, float, list[dict[str, Any]]]]:
    """Sessions of forty messages: id, beginning, messages."""
    for first in range(0, count, SESSION):
        messages = [corpus.message(first + n) for n in range(min(SESSION, count - first))]
        yield f"session-{first // SESSION:07d}", 1.7e9 + 30 * first, messages


def queries(db: SessionStore, corpus: Corpus, total: int) -> dict[str, list[str]]:
    """Twenty queries of each kind, made from the corpus."""
    chance = random.Random(2)
    common, middle, rare = corpus.words[:100], corpus.words[100:2_000], corpus.words[-5_000:]
    stored = [m for n in (chance.randrange(1, total) for _ in range(QUERIES * 4)) if (m := db.get_message(n))]
    latin = [m.content.split() for m in stored if " " in m.content]
    dense = [m.content for m in stored if m.content and " " not in m.content] or ["部署失败"]

    def several(make: Callable[[], str]) -> list[str]:
        return [make() for _ in range(QUERIES)]

    def phrase() -> str:
        words = chance.choice(latin)
        at = chance.randrange(len(words) - 4)
        return '"' + " ".join(words[at : at + 3]) + '"'

    def run(length: int) -> str:
        text = chance.choice(dense)
        at = chance.randrange(max(len(text) - length, 1))
        return text[at : at + length]

    return {
        "1 common word": several(lambda: chance.choice(common)),
        "2 common words": several(lambda: " ".join(chance.sample(common, 2))),
        "3 common words": several(lambda: " ".join(chance.sample(common, 3))),
        "rare word": several(lambda: chance.choice(rare)),
        "phrase": several(phrase),
        "prefix": several(lambda: chance.choice(middle)[:4] + "*"),
        "boolean": several(
            lambda: f"{chance.choice(common)} AND {chance.choice(middle)} NOT {chance.choice(common)}"
        ),
        "CJK 1": several(lambda: run(1)),
        "CJK 2": several(lambda: run(2)),
        "CJK 4": several(lambda: run(4)),
        "CJK AND NOT": several(lambda: f"{run(1)} AND {run(1)} NOT {run(2)}"),
        "no hit": several(lambda: f"zzz{chance.randrange(10**6)}"),
        "no hit CJK": several(lambda: "龘靐"),
        "natural": several(
            lambda: (
                "what did we say about "
                + " ".join(
                    [
                        *chance.sample(common, 2),
                        *chance.sample(middle, chance.randint(1, 4)),
                        chance.choice(rare),
                    ]
                )
                + "?"
            )
        ),
    }


NATURAL = "natural"
