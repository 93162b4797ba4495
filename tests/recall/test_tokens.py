from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.recall.tokens import dense_runs, grams, is_stop_word, words


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
