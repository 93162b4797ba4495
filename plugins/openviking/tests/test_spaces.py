"""Whose memory is where, and which URIs a person may use."""

from __future__ import annotations

import re

import pytest
from hermes_openviking.spaces import Space, space_of
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import Session
from hermes_core.kit import ToolInputInvalid

OWN = Space("alice", "hermes", whole=True)
GUEST = Space("alice", "hermes-1f", owner=False)
SAFE_PEER = re.compile(r"[A-Za-z0-9_.@-]{1,255}")


def peer(session: Session, agent: str = "") -> str:
    return space_of(session, "alice", agent, whole=True).peer


def test_the_default_profile_is_hermes_and_the_others_bear_their_names() -> None:
    assert peer(Session("s")) == "hermes"
    assert peer(Session("s", identity="coder")) == "hermes-coder"
    assert peer(Session("s", identity="coder"), agent="carla") == "carla"


def test_people_of_a_gateway_have_spaces_of_their_own_also_under_a_name_that_was_set() -> None:
    sessions = [
        Session("s", platform="telegram", user_id="1"),
        Session("s", platform="telegram", user_id="2"),
        Session("s", platform="signal", user_id="1"),
        Session("s", platform="telegram", user_id="1", identity="coder"),
        Session("s"),
    ]
    assert len({peer(session) for session in sessions}) == 5
    assert len({peer(session, "carla") for session in sessions}) == 5


def test_only_the_person_at_the_default_profiles_terminal_reads_what_others_keep_for_the_user() -> None:
    assert space_of(Session("s"), "alice", "", whole=True).theirs
    assert not space_of(Session("s"), "alice", "", whole=False).theirs
    assert not space_of(Session("s", identity="coder"), "alice", "", whole=True).theirs
    assert not space_of(Session("s", platform="telegram", user_id="1"), "alice", "", whole=True).theirs


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=200))
def test_any_identity_gives_a_peer_and_a_session_that_the_server_takes(
    identity: str, user: str, session_id: str
) -> None:
    space = space_of(Session(session_id, identity=identity, user_id=user), "alice", "", whole=True)
    assert SAFE_PEER.fullmatch(space.peer)
    assert space.peer.count("@") < 2
    assert re.fullmatch(r"[A-Za-z0-9_.@-]{1,255}", space.conversation(session_id))


def test_sessions_of_one_id_are_apart_for_each_space() -> None:
    assert OWN.conversation("20261122_ab") == "hermes.20261122_ab"
    assert GUEST.conversation("20261122_ab") != OWN.conversation("20261122_ab")
    assert OWN.conversation("a/b") != OWN.conversation("a_b")


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("viking://user/alice/peers/hermes/memories/", "viking://user/alice/peers/hermes/memories"),
        ("viking://~/peers/hermes/memories", "viking://user/alice/peers/hermes/memories"),
        ("viking://user/peers/hermes/memories/a.md", "viking://user/alice/peers/hermes/memories/a.md"),
        ("viking://user/memories/a.md", "viking://user/alice/peers/hermes/memories/a.md"),
        ("viking://user/alice/memories/profile.md", "viking://user/alice/memories/profile.md"),
        (" viking://resources/manual ", "viking://resources/manual"),
        ("viking://agent/skills", "viking://agent/skills"),
    ],
)
def test_short_and_old_forms_are_filled_in(sent: str, meant: str) -> None:
    assert OWN.resolve(sent) == meant


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "viking://",
        "viking://user",
        "viking://user/alice",
        "viking://user/alice/peers",
        "viking://user/alice/peers/hermes2/memories/a.md",
        "viking://user/alice/peers/hermes-1f/memories/a.md",
        "viking://user/alice/sessions/hermes.s1",
        "viking://user/bob/memories/a.md",
        "viking://user/alice/peers/hermes/../hermes-1f/memories",
        "viking://user/alice/peers/hermes/memories/a.md?x=1",
        "viking://user/alice/peers/hermes/memories/a\n.md",
        "viking://user/alice/peers/hermes\\..\\x",
        "viking://./user",
        "file:///etc/passwd",
        "https://example.com",
    ],
)
def test_what_is_somebody_elses_or_no_uri_is_refused(uri: str) -> None:
    with pytest.raises(ToolInputInvalid):
        OWN.resolve(uri)


def test_a_guest_sees_neither_the_owners_memories_nor_the_users() -> None:
    for uri in (OWN.memories, "viking://user/alice/memories", "viking://user/alice/resources"):
        with pytest.raises(ToolInputInvalid):
            GUEST.resolve(uri)
    assert GUEST.recalled(documents=True) == [GUEST.memories, GUEST.resources, "viking://resources"]


@pytest.mark.parametrize(
    "uri",
    [
        OWN.memories,
        f"{OWN.memories}/preferences",
        f"{OWN.memories}/preferences/.overview.md",
        f"{OWN.resources}/manual.md",
        "viking://resources/manual.md",
        "viking://user/alice/memories/profile.md",
        "viking://agent/skills/a.md",
    ],
)
def test_only_a_memory_of_ones_own_can_be_forgotten(uri: str) -> None:
    with pytest.raises(ToolInputInvalid):
        OWN.forgettable(uri)
    assert OWN.forgettable(f"{OWN.memories}/events/a.md") == f"{OWN.memories}/events/a.md"


def test_the_owner_may_put_documents_before_everybody_and_a_guest_may_not() -> None:
    assert OWN.destination("viking://resources/manual") == "viking://resources/manual"
    assert GUEST.destination(f"{GUEST.resources}/manual") == f"{GUEST.resources}/manual"
    for space, uri in ((GUEST, "viking://resources/x"), (OWN, "viking://agent/x"), (OWN, OWN.memories)):
        with pytest.raises(ToolInputInvalid):
            space.destination(uri)


def test_the_same_text_has_the_same_file() -> None:
    assert OWN.file("events", "tea") == OWN.file("events", "tea") != OWN.file("events", "milk")
    assert OWN.file("events", "half \ud83d").startswith(f"{OWN.memories}/events/")
