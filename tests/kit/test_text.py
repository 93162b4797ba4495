from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.kit import bullet_list, clip, fold_space, is_trivial, query_text, redact, storable


@given(st.text(), st.integers(0, 40))
def test_clipped_text_is_never_longer_than_the_limit(text: str, limit: int) -> None:
    assert len(clip(text, limit)) <= limit or len(text) <= limit


def test_short_text_is_not_clipped() -> None:
    assert clip("tea", 3) == "tea"
    assert clip("green tea", 8) == "green…"


@given(st.lists(st.text(), max_size=8), st.integers(0, 60))
def test_bullets_stay_within_the_budget_and_are_one_line_each(lines: list[str], budget: int) -> None:
    text = bullet_list(lines, budget)
    assert len(f"{text}\n") <= budget or not text
    assert all(line.startswith("- ") for line in text.split("\n") if text)


def test_a_measure_other_than_characters_can_be_given() -> None:
    assert (
        bullet_list(["one two", "three"], 1, measure=lambda line: line.count(" ") - 1) == "- one two\n- three"
    )


def test_white_space_of_any_kind_folds() -> None:
    assert fold_space("\ta \u00a0\n b\r\n") == "a b"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "ok",
        "Thanks!",
        "ok, sounds good",
        "👍",
        "...",
        "/new",
        "好的",
        "Danke!",
        "Guten Morgen!",
        "¡Muchas gracias!",
        "D’accord, merci",
        "Спасибо большое!",
        "ΚΑΛΗΜΕΡΑ",
        "شكرًا جزيلا",
        "תודה רבה",
        "धन्यवाद।",
        "Teşekkür ederim",
        "ありがとうございます。",
        "안녕하세요",
        "ขอบคุณครับ",
        "谢谢你！",
    ],
)
def test_small_talk_is_trivial(text: str) -> None:
    assert is_trivial(text)


@pytest.mark.parametrize(
    "text",
    [
        "Where is Mel?",
        "thanks, and which tea?",
        "/deploy to staging",
        "你住在哪里",
        "谁?",
        "药",
        "नाम",
        "नहाना?",
        "ชื่อ",
        "где?",
        "أين؟",
        "왜?",
    ],
)
def test_a_question_is_not_trivial(text: str) -> None:
    assert not is_trivial(text)


@given(st.text(st.characters()))
def test_storable_text_can_be_written_and_is_else_as_it_was(text: str) -> None:
    storable(text).encode()
    assert len(storable(text)) == len(text.replace("\0", ""))
    assert "\0" not in storable(text)
    assert storable(storable(text)) == storable(text)


def test_a_provider_that_reads_a_file_itself_can_leave_out_its_secrets() -> None:
    assert "hunter2" not in redact("password=hunter2hunter2 likes tea")


def test_a_pasted_file_becomes_a_question_that_a_backend_takes() -> None:
    pasted = "All work and no play. \n" * 50_000
    assert query_text(pasted, 30) == "All work and no play. All…"
    assert len(query_text(pasted)) <= 4000
    assert query_text("half \ud83d\0") == "half ?"
    assert not is_trivial(pasted)


@given(st.text(), st.integers(0, 40))
def test_a_question_is_never_longer_than_the_limit(text: str, limit: int) -> None:
    assert len(query_text(text, limit)) <= limit
