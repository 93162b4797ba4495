"""Names and keys for backends, and waiting for what they do later."""

from __future__ import annotations

import dataclasses
import re

import hypothesis.strategies as st
from hypothesis import given

from hermes_core import Session
from hermes_core.kit import key_of, person_name, poll, profile_name

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
