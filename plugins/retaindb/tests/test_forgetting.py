"""A person is forgotten on each flavour of RetainDB, and what it keeps is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_core.errors import BackendUnavailable
from plugins.retaindb.tests.conftest import Agent
from plugins.retaindb.tests.stand_in import RetainDB

Start = Callable[..., Agent]
ADA = {"platform": "telegram", "user_id": "ada"}
BOB = {"platform": "telegram", "user_id": "bob"}
SAID, OTHER = "My tortoise is called Quillfeather.", "My parrot is called Alderney."


@pytest.mark.parametrize("flavour", ["cloud", "server", "local"])
def test_all_memories_of_a_user_go_and_those_of_others_stay(
    start: Start, serve: Callable[..., RetainDB], flavour: str
) -> None:
    agent = start(serve(flavour))
    ada, bob = agent.session("s1", **ADA), agent.session("s2", **BOB)
    for number in range(5):
        agent.say(f"{SAID[:-1]} number {number}.", f"t{number}", session=ada, at=1.7e9)
    agent.say(OTHER, "t9", session=bob, at=1.7e9)
    erasure = agent.call("forget_user", user=ada.owner, session=ada)
    assert erasure.deleted[0].startswith("5 memories of 'telegram:ada'")
    assert [text for text in agent.server.known() if "Quillfeather" in text] == []
    assert agent.recalled("parrot Alderney", bob) != []
    (kept,) = erasure.remaining
    assert ("local-store.json" in kept) == (flavour == "local")
    assert agent.call("forget_user", user=ada.owner, session=ada).deleted == ()


def test_what_is_still_being_stored_is_waited_for(start: Start, serve: Callable[..., RetainDB]) -> None:
    agent = start(serve(lagging=True))
    ada = agent.session("s1", **ADA)
    agent.say(SAID, session=ada, at=1.7e9)
    with pytest.raises(BackendUnavailable) as error:
        agent.call("forget_user", user=ada.owner, session=ada)
    assert error.value.retry_after
    agent.server.settle()
    agent.call("forget_user", user=ada.owner, session=ada)
    assert agent.server.known() == []


def test_the_files_of_a_user_go(agent: Agent, tmp_path: object) -> None:
    ada, bob = agent.session("s1", **ADA), agent.session("s2", **BOB)
    for session in (ada, bob):
        root = agent.provider._root(session)
        agent.provider.client.upload("a.txt", b"text", f"{root}a.txt", "USER")
    erasure = agent.call("forget_user", user=ada.owner, session=ada)
    assert any(text.startswith("1 files of") for text in erasure.deleted)
    assert [file["path"].split("/")[2] for file in agent.server.files.values()] == ["telegram%3Abob"]
