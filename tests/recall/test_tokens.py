from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.recall import tokens
from hermes_core.recall.tokens import (
    MAX_TERM_CHARS,
    dense_runs,
    grams,
    index_spans,
    index_text,
    is_stop_word,
    words,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Why is the server down?", ["why", "is", "the", "server", "down"]),
        ("joe@example.com", ["joe", "example", "com"]),
        ("it’s `my_app.config`", ["it's", "my", "app", "config"]),
        ("Straße RE\u0301SUME\u0301", ["strasse", "résumé"]),
        ("docker部署 done", ["docker", "done"]),
        ("दिल्ली। सेब", ["दिल्ली", "सेब"]),
        ("סֵפֶר", ["ספר"]),
        ("", []),
    ],
)
def test_words_are_what_stands_between_signs(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Deployments deployed, deploying", "deploy deploy deploy"),
        ("snake_case, camelCase, path/to/FILE.py", "snake case camelcas path to file py"),
        ("v2s 0x1F 3.14e-10 b16s", "v2s 0x1f 3 14e 10 b16s"),
        ("don't, don’t", "don t don t"),
        ("Les élèves de Đà Nẵng, Łódź", "les elev de da nang lodz"),
        ("e\u0301le\u0300ves", "elev"),
        ("İSTANBUL'da ﬁne", "istanbul da fine"),
        ("обʼєкт, об'єкт", "об єкт об єкт"),
        ("Документы йога", "документ йог"),
        ("हिन्दी दस्तावेज़ों", "हिंद दस्तावेज"),
        ("می\u200cروم", "ميروم"),
        ("docker部署s", "docker s"),
        ("ﷺ", "صل الل عل سلم"),
        ("—_ʼ̈", ""),
    ],
)
def test_text_is_cut_into_terms(text: str, terms: str) -> None:
    assert index_text(text) == terms


def test_a_long_word_is_clipped() -> None:
    assert index_text("A" * 5_000 + " end") == "a" * MAX_TERM_CHARS + " end"
    assert index_text("жы" * 400) == "жы" * (MAX_TERM_CHARS // 2)


def test_few_words_are_remembered_and_no_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_KNOWN_WORDS", 10)
    known = tokens._Terms()
    for number in range(25):
        assert known[f"word{number}s"] == f"word{number}s"
        assert known["a" * 5_000] == "a" * MAX_TERM_CHARS
        assert 0 < len(known) <= 10
    assert max(map(len, known)) < MAX_TERM_CHARS


def test_spans_are_those_of_the_words_in_the_text() -> None:
    text = "Two CAFÉS, e\u0301clairs at 部署"
    spans = list(index_spans(text))
    assert " ".join(term for term, _, _ in spans) == index_text(text)
    assert [text[start:end] for _, start, end in spans] == ["Two", "CAFÉS", "e\u0301clairs", "at"]


@given(st.text())
def test_no_term_has_a_sign_of_the_language_of_an_index(text: str) -> None:
    for term in [*index_text(text).split(" "), *grams(text)[0]]:
        assert not any(sign in term for sign in "'\"\\*:&|!<>()\0\n\t ")
        assert not term.isascii() or term == "" or term.isalnum()


def test_every_script_without_spaces_is_cut_into_grams() -> None:
    for text in ("部署", "にほん", "สวัสดี", "서버", "🎉🎂"):
        ones, pairs = grams(text)

        assert ones == list(text)
        assert len(pairs) == len(text) - 1


def test_a_pair_never_joins_two_runs() -> None:
    assert grams("部 署") == (["部", "署"], [])


def test_a_possessive_does_not_hide_a_stop_word() -> None:
    assert is_stop_word("it's")
    assert not is_stop_word("caroline's")


@given(st.text())
def test_no_text_raises_and_no_dense_character_is_lost(text: str) -> None:
    words(text)
    assert "".join(grams(text)[0]) == "".join(dense_runs(text))
