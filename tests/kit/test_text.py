from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import Session
from hermes_core.kit import (
    bullet_list,
    clip,
    fold_space,
    is_trivial,
    key_of,
    person_name,
    poll,
    profile_name,
    query_text,
    redact,
    storable,
)
from tests.table import table


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


@table(
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


PEOPLE = st.tuples(st.text(max_size=3), st.text(max_size=3), st.text(min_size=1, max_size=3))


@given(PEOPLE, PEOPLE)
def test_no_two_people_share_a_name(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    names = [
        person_name(Session("s1", identity=profile, platform=platform, user_id=user))
        for profile, platform, user in (one, other)
    ]
    assert (names[0] == names[1]) == (one == other)
    assert re.fullmatch("[A-Za-z0-9-]+", names[0])


def test_the_person_of_the_home_has_no_name_and_a_chat_alone_has_one() -> None:
    assert person_name(Session("s1", identity="work")) == ""
    room, user = Session("s1", platform="irc", chat_id="#tea"), Session("s1", platform="irc", user_id="#tea")
    assert person_name(room).startswith("irc-tea-")
    assert person_name(room) != person_name(user)


def test_a_user_has_one_name_in_all_their_chats() -> None:
    user = Session("s1", platform="telegram", user_id="42")
    chats = [dataclasses.replace(user, chat_id=chat) for chat in ("42", "-1007")]
    assert {person_name(session) for session in (user, *chats)} == {"telegram-42-318da146c455727a"}


def test_the_default_profile_has_the_plain_name() -> None:
    assert [profile_name(one) for one in ("", "default", "work")] == ["hermes", "hermes", "hermes-work"]


def test_a_key_depends_on_each_part_and_takes_any_text() -> None:
    assert key_of("a", "b") == key_of("a", "b") != key_of("b", "a")
    assert key_of("a\nb", "c") != key_of("a", "b\nc")
    assert len(key_of("half \ud83d", length=40)) == 40


def test_polling_ends_with_the_answer_or_with_the_time() -> None:
    answers, now = iter([0, 0, 7, 8]), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    assert poll(lambda: next(answers), 10.0, 1.0, lambda: now[0], sleep) == 7
    assert now == [2.0]
    assert poll(lambda: 0, 3.0, 1.0, lambda: now[0], sleep) == 0
    assert now == [5.0]
