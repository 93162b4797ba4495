from __future__ import annotations

import random
import re
import sys
import threading
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_core.recall.letters import _stem, english_stem, hebrew_forms, stem_words
from hermes_core.recall.tokens import fold, index_text, words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ёж", "еж"),
        ("ΆΝΕΜΟΣ", "άνεμος"),
        ("ΰ", "υ"),
        ("أحمد إلى آخر", "احمد الى اخر"),
        ("مـــدرسة", "مدرسه"),
        ("ﻛﺘﺎﺏ", "كتاب"),
        ("۱۲۳", "123"),
        ("दिल्ली ४५", "दिल्ली 45"),
        ("गाँव", "गांव"),
        ("İstanbul", "istanbul"),
        ("ＡＢＣ－１", "abc-1"),
        ("ﬁle", "file"),
        ("обʼєкт", "об'єкт"),
        ("ג׳ירפה", "ג'ירפה"),
        ("Donau\u00addampf", "donaudampf"),
        ("می\u200cروم", "میروم"),
    ],
)
def test_two_spellings_are_compared_as_one(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@pytest.mark.parametrize("text", ["йод", "café", "naïve", "über", "ñandú", "东京", "서울"])
def test_letters_that_are_not_each_other_stay(text: str) -> None:
    assert fold(text) == text


def test_a_stem_is_cut_only_where_the_script_tells_the_language() -> None:
    assert stem_words("planned studies für häuser") == "planned studies für häuser"
    assert stem_words("сервера данных") == "сервер дан"
    assert stem_words("да") == "да"
    assert stem_words("साइकिलें। كتابي۔") == "साइकिल। كتاب۔"
    assert stem_words("والكتاب فالكتاب والد") == stem_words("كتاب كتاب والد")
    assert stem_words("сервера" * 6) == "сервера" * 6


def test_no_other_ending_of_an_english_word_is_changed() -> None:
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyzaeiouy"
    words = {"".join(chance.choices(letters, k=chance.randrange(3, 10))) for _ in range(20_000)}
    for path in (Path(__file__).parents[2] / "docs").rglob("*.md"):
        words |= set(re.findall("[a-z]{3,40}", path.read_text(encoding="utf-8").lower()))
    assert [word for word in words if english_stem(word) != _stem.__wrapped__("English", word)] == []


def test_words_are_cut_alike_on_many_threads_at_once() -> None:
    """A stemmer keeps the word that it cuts on itself; a stem that is wrong once stands in the index for good."""
    words = [
        f"{word}{ending}" for word in ("документ", "сервер", "база", "таблиц") for ending in letters_of(200)
    ]
    alone = {word: _stem.__wrapped__("Russian", word) for word in words}
    wrong: list[str] = []

    def cut(order: list[str]) -> None:
        wrong.extend(word for word in order if _stem.__wrapped__("Russian", word) != alone[word])

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=cut, args=(words[at:] + words[:at],)) for at in (0, 100, 300, 500)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []


def letters_of(count: int) -> list[str]:
    alphabet = "абвгдежзиклмнопрстуф"
    return [alphabet[at // 20 % 20] + alphabet[at % 20] + "ами" for at in range(count)]


def test_only_hebrew_is_sought_with_its_prefixes() -> None:
    assert "והבית" in hebrew_forms("בית")
    assert hebrew_forms("house") == ()


@given(st.text())
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(st.text(st.characters(categories=["L", "M", "N", "Zs"])))
@example("\u00c0\u17d2")  # decomposed, the accent stands behind the Khmer sign
def test_what_is_composed_and_what_is_not_are_one(text: str) -> None:
    assert index_text(unicodedata.normalize("NFD", text)) == index_text(unicodedata.normalize("NFC", text))


@given(st.text())
def test_a_look_up_of_a_text_s_own_words_is_cut_as_the_text(text: str) -> None:
    """What is asked in the words of a text is what the index holds of it."""
    held = words(index_text(text))
    for word in words(text):
        for piece in words(index_text(word)):
            assert piece in held
