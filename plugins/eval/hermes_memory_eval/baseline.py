"""The baseline: FTS5 of SQLite as most people write it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hermes_core.recall import is_stop_word, words

# Letters of scripts that are written without spaces between words, or with other spaces than those between words.
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+(?: [\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+)*"
)


class PlainFts5:
    """An index with the tokenizer `porter`, whose answers have any word of the question, ordered by BM25.

    Args:
        path: The file of the index.
        cut: Function that every text and every question passes first.
    """

    def __init__(self, path: Path, cut: Callable[[str], str] = str) -> None:
        self._db = sqlite3.connect(path)
        self._cut = cut
        self._db.execute(
            "CREATE VIRTUAL TABLE f USING fts5(text, ref UNINDEXED, tokenize='porter unicode61')"
        )

    def add(self, rows: Iterable[tuple[str, Any]]) -> None:
        """Index texts, each with a reference."""
        self._db.executemany("INSERT INTO f VALUES (?, ?)", ((self._cut(text), ref) for text, ref in rows))
        self._db.commit()

    def ask(self, question: str, limit: int) -> list[Any]:
        """Return the references of the texts that answer best."""
        asked = self._cut(question)
        pairs = [f'"{pair}"' for run in _UNSPACED.findall(asked) for pair in run.split()]
        terms = " OR ".join(filter(None, (any_of(asked), *dict.fromkeys(pairs))))
        sql = "SELECT ref FROM f WHERE f MATCH ? ORDER BY rank LIMIT ?"
        return [row[0] for row in self._db.execute(sql, (terms or '""', limit))]

    def count_with_all(self, asked: Iterable[str], most: int) -> int:
        """Return the number of texts that have all of these words; counting stops above `most`."""
        terms = " AND ".join(f'"{word}"' for word in asked)
        sql = "SELECT count(*) FROM (SELECT 1 FROM f WHERE f MATCH ? LIMIT ?)"
        return int(self._db.execute(sql, (terms or '""', most + 1)).fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def any_of(question: str) -> str:
    """Return the words of a question joined by OR, as FTS5 reads it, without words that every text has."""
    return " OR ".join(f'"{word}"' for word in words(question) if not is_stop_word(word))


def bigrams(text: str) -> str:
    """Return the text with each run of Chinese, Japanese or Korean letters as its pairs, so that FTS5 can match parts of it."""
    return _UNSPACED.sub(
        lambda run: f" {' '.join(run[0][at : at + 2] for at in range(max(len(run[0]) - 1, 1)))} ", text
    )
