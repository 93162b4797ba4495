from __future__ import annotations

import dataclasses
import inspect
import json
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.contract import values
from hermes_core.contract.values import Availability, Capabilities, Recall, RecallItem, Session, Turn
from hermes_core.errors import SessionError
from hermes_core.home import file_name_of
from hermes_core.kit.text import key_of, person_name, storable
from hermes_core.sessions.records import sqlite_text
from tests.table import table

VALUES = [cls for _, cls in inspect.getmembers(values, dataclasses.is_dataclass)]
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SESSIONS = st.builds(
    Session,
    **{field.name: TEXT for field in dataclasses.fields(Session) if field.name != "is_owner"},
    is_owner=st.booleans(),
)
OUTSIDE = (
    "user_id",
    "user_id_alt",
    "user_name",
    "chat_id",
    "chat_name",
    "chat_type",
    "thread_id",
    "gateway_session_key",
)


@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)
def test_a_value_is_frozen_small_and_explained(cls: Any) -> None:
    assert cls.__dataclass_params__.frozen
    assert "__slots__" in vars(cls)
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}(")


@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)
def test_a_field_that_comes_later_has_a_default(cls: Any) -> None:
    required = [
        f.name for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING
    ]
    assert required == [f.name for f in dataclasses.fields(cls)][: len(required)]


@given(SESSIONS)
def test_a_session_survives_json(session: Session) -> None:
    assert Session.from_dict(json.loads(json.dumps(session.to_dict()))) == session


def test_a_session_written_by_a_later_version_can_be_read() -> None:
    assert Session.from_dict({"id": "s", "mood": "new in 2.0"}) == Session("s")


class Chat(StrEnum):
    TELEGRAM = "telegram"


class Messenger(str, Enum):  # noqa: UP042  # as SDKs write it that are older than StrEnum
    TELEGRAM = "telegram"


def test_a_session_without_an_id_is_refused_not_shared_by_all_that_have_none() -> None:
    with pytest.raises(SessionError, match="without an id"):
        Session(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("platform", ["telegram", Chat.TELEGRAM, Messenger.TELEGRAM])
def test_ids_as_an_sdk_gives_them_are_those_of_the_same_person(platform: str) -> None:
    given: dict[str, Any] = {"platform": platform, "user_id": 42, "chat_id": -100, "user_name": None}
    session = Session("s", **given)
    assert session == Session("s", platform="telegram", user_id="42", chat_id="-100")
    assert (session.owner, session.scope) == ("telegram:42", '["default", "telegram", "42", "-100"]')
    assert Session.from_dict(json.loads(json.dumps(session.to_dict()))).to_dict() == session.to_dict()
    assert Session("s", platform=None).platform == "cli"  # type: ignore[arg-type]


@given(SESSIONS, SESSIONS)
def test_two_people_or_chats_share_a_scope_only_if_they_are_the_same(a: Session, b: Session) -> None:
    def person(s: Session) -> tuple[str, ...]:
        named = s.user_id or s.chat_id
        return (s.identity, s.platform, s.user_id, s.chat_id) if named and s.owner else (s.identity, s.owner)

    assert (a.scope == b.scope) == (person(a) == person(b))
    a = dataclasses.replace(a, user_id=a.user_id or "7")
    assert dataclasses.replace(a, id=b.id, parent_id=b.parent_id, thread_id=b.thread_id).scope == a.scope


@pytest.mark.parametrize("platform", sorted(values.LOCAL_PLATFORMS))
def test_a_local_session_without_an_outside_identity_is_of_the_person_at_home(platform: str) -> None:
    session = Session("s", platform=platform, parent_id="p", workspace="w", home="/h")
    assert (session.owner, session.scope) == ("", Session("other").scope)


@pytest.mark.parametrize(
    "platform", ["telegram", "", "CLI", "cli ", "ｃｌｉ", "c\u200bli", "cli\0", "my-app"]
)
def test_a_session_on_another_platform_is_not_of_the_person_at_home(platform: str) -> None:
    session = Session("s", platform=platform)
    assert session.owner != ""
    assert session.scope != Session("s").scope


@table("field", OUTSIDE)
@table("platform", ["cli", "mcp", "telegram"])
def test_a_session_with_any_outside_identity_is_not_of_the_person_at_home(platform: str, field: str) -> None:
    known = [Session("s", platform=platform, **{field: value}) for value in ("a", "b")]  # type: ignore[arg-type]
    assert len({session.owner for session in (*known, Session("s"))}) == 3
    assert len({session.scope for session in (*known, Session("s"))}) == 3


ODD = (
    "42",
    "42\0",
    "42\0\0",
    "42\ud800",
    "42\udc80",
    "42?",
    "42\ufffd",
    "42%00",
    "42\x85",
    "42\u200b",
    "４２",
    "42 ",
)
SPELLINGS = (
    "mel",
    "Mel",
    "MEL",
    "m\u00e9l",
    "me\u0301l",
    "..",
    ".",
    "/",
    "../mel",
    "user_id=mel",
    "\U0001f600",
    "\ud83d\ude00",
)


@pytest.mark.parametrize("field", ["user_id", "chat_id", "gateway_session_key", "user_name"])
def test_ids_that_differ_in_any_character_are_of_different_people_wherever_they_are_stored(
    field: str,
) -> None:
    sessions = [Session("s", platform="x", **{field: value}) for value in (*ODD, *SPELLINGS)]  # type: ignore[arg-type]
    for keys in (
        {sqlite_text(session.owner) for session in sessions},
        {storable(session.scope) for session in sessions},
        {file_name_of(session.owner).lower() for session in sessions},
        {person_name(session) for session in sessions},
        {key_of(getattr(session, field)) for session in sessions},
    ):
        assert len(keys) == len(sessions)


@given(SESSIONS)
def test_an_outside_id_names_its_session_exactly(session: Session) -> None:
    outside = session.outside_id
    if outside:
        assert Session("s", **values.parse_outside_id(outside)).outside_id == outside  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "telegram",
        "42",
        "telegram:",
        ":",
        "cli/",
        "telegram/user_id=42",
        "x/a b",
        "x/%ff",
        "x/mood=good",
        "x:a\0",
    ],
)
def test_a_text_that_no_session_has_as_its_id_is_refused(text: str) -> None:
    with pytest.raises(SessionError, match="; write "):
        values.parse_outside_id(text)


def test_an_owner_who_writes_from_outside_is_the_person_at_home() -> None:
    owner = Session("s", platform="telegram", user_id="42", chat_id="7", is_owner=True)
    assert (owner.owner, owner.scope, owner.outside_id) == ("", Session("t").scope, "telegram:42")
    assert not Session.from_dict({"id": "s", "is_owner": "yes"}).is_owner


@given(TEXT, TEXT.filter(bool), TEXT, TEXT.filter(bool))
def test_a_chat_that_names_no_user_is_a_person_of_its_own(
    platform: str, user: str, elsewhere: str, chat: str
) -> None:
    person, group = (
        Session("s", platform=platform, user_id=user),
        Session("s", platform=elsewhere, chat_id=chat),
    )
    assert "" != group.owner != person.owner != ""
    assert dataclasses.replace(person, chat_id=chat, thread_id="7").owner == person.owner
    assert group.owner != Session("s", platform=elsewhere, chat_id=f"{chat}/").owner


@pytest.mark.parametrize(
    ("platform", "chat", "owner"),
    [
        ("telegram", "-1007", "telegram/-1007"),
        ("a/b", "!c:d", "a%2Fb/%21c%3Ad"),
        ("x", "\ud83d", "x/%ED%A0%BD"),
        ("telegram", -7, "telegram/-7"),
    ],
)
def test_the_owner_of_a_chat_is_spelt_without_a_colon(platform: str, chat: Any, owner: str) -> None:
    assert Session("s", platform=platform, chat_id=chat).owner == owner


AMBIGUOUS = st.text("%:3Aa", min_size=1)


@given(*[AMBIGUOUS] * 4)
def test_users_of_two_platforms_are_one_only_if_platform_and_user_are(a: str, b: str, c: str, d: str) -> None:
    one, other = Session("s", platform=a, user_id=b), Session("s", platform=c, user_id=d)
    assert (one.owner == other.owner) == ((a, b) == (c, d))
    assert Session("s", platform="a:b", user_id="c").owner != Session("s", platform="a", user_id="b:c").owner


@pytest.mark.parametrize("context", ["subagent", "cron", "review", "flush"])
def test_only_a_primary_session_has_a_person(context: Any) -> None:
    assert Session("s").primary
    assert not Session("s", agent_context=context).primary


@given(st.builds(Turn, id=TEXT, number=st.integers(), user=TEXT, assistant=TEXT))
def test_a_turn_survives_json(turn: Turn) -> None:
    data = json.loads(json.dumps(dataclasses.asdict(turn)))
    assert Turn(**{**data, "messages": tuple(data["messages"])}) == turn


def test_recall_is_true_when_it_holds_something_and_its_own_text_comes_first() -> None:
    item = RecallItem("Likes tea ", when="8 May", speaker="Mel")
    assert not Recall()
    assert not Recall(text=" \n")
    assert Recall((item, RecallItem("x"))).render() == "- [8 May] Mel: Likes tea\n- x"
    assert Recall((item,), text=" ready ").render() == "ready"


def test_availability_says_why_not() -> None:
    assert Availability()
    no = Availability.no("no key", "set KEY")
    assert (bool(no), no.reason, no.remedy) == (False, "no key", "set KEY")


@pytest.mark.parametrize(
    ("declared", "memory", "user"),
    [(False, False, False), (True, True, True), ({"user": True}, False, True), ({}, False, False)],
)
def test_local_writes_are_suppressed_for_all_targets_or_one(declared: Any, memory: bool, user: bool) -> None:
    capabilities = Capabilities(suppresses_local_writes=declared)
    assert (capabilities.suppresses("memory"), capabilities.suppresses("user")) == (memory, user)
