from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from hermes_core.cli.sample import SampleQuestion, sample_path, sample_questions


@pytest.fixture(scope="module")
def lines() -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in sample_path().read_text(encoding="utf-8").splitlines()]
    assert len({line["session"] for line in lines}) == 9
    return {line["ref"]: line for line in lines}


def test_it_is_a_year_of_nine_sessions_and_each_line_has_its_own_reference(lines: dict[str, Any]) -> None:
    assert len(lines) >= 170
    assert {line["speaker"] for line in lines.values()} == {"Nadia", "Tomas"}
    assert len({line["content"] for line in lines.values()}) == len(lines)


def test_eight_questions_have_evidence_and_five_of_them_are_for_the_demo(lines: dict[str, Any]) -> None:
    questions = sample_questions()
    assert (len(questions), sum(q.demo for q in questions)) == (8, 5)
    assert all(ref in lines for q in questions for ref in q.evidence)


@pytest.mark.parametrize("question", sample_questions(), ids=lambda q: q.question)
def test_even_a_plain_word_index_finds_the_evidence(question: SampleQuestion, lines: dict[str, Any]) -> None:
    index = sqlite3.connect(":memory:")
    index.execute("CREATE VIRTUAL TABLE line USING fts5(ref UNINDEXED, text, tokenize='porter unicode61')")
    index.executemany(
        "INSERT INTO line VALUES (?, ?)", [(ref, line["content"]) for ref, line in lines.items()]
    )
    words = " OR ".join(f'"{word}"' for word in question.question.rstrip("?").replace("'s", "").split())
    found = index.execute("SELECT ref FROM line WHERE line MATCH ? ORDER BY bm25(line) LIMIT 10", (words,))
    assert set(question.evidence) & {ref for (ref,) in found}
    index.close()
