"""A person is forgotten: sessions, conclusions, cards, and what waits in the home."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hermes_honcho import client as module

from hermes_core import MemoryWrite
from hermes_core.contract.values import Erasure
from hermes_core.errors import BackendUnavailable
from plugins.honcho.tests.conftest import Agent
from plugins.honcho.tests.stand_in import HonchoServer

Start = Callable[..., Agent]
TORTOISE, PARROT = "My tortoise is called Quillfeather.", "My parrot is called Alderney."
ADA = {"platform": "telegram", "user_id": "ada"}
BOB = {"platform": "telegram", "user_id": "bob"}


def forget(agent: Agent) -> Erasure:
    return agent.provider.forget_user(agent.session.owner, agent.session)


def held(agent: Agent, word: str) -> list[str]:
    """The files of the home with this word."""
    agent.provider.shutdown()
    files = (path for path in agent.home.rglob("*") if path.is_file())
    return [path.name for path in files if word.encode() in path.read_bytes()]


def test_sessions_conclusions_and_cards_of_a_user_go_and_others_keep_theirs(
    agent: Agent, server: HonchoServer
) -> None:
    ada, bob = agent.other(id="s2", **ADA), agent.other(id="s3", **BOB)
    for each, text in ((ada, TORTOISE), (bob, PARROT), (agent, "I am at home.")):
        each.say(text)
        each.provider.on_memory_write(MemoryWrite(f"w-{text}", "add", "user", f"noted: {text}"), each.session)
    ada.tool("honcho_profile", card=["has a tortoise"])
    erasure = forget(ada)
    assert [text.split(" in ")[0] for text in erasure.deleted] == ["1 session", "1 conclusion"]
    assert erasure.remaining == ()
    assert [text for text in server.texts() if "Quillfeather" in text] == []
    assert [text for text in server.concluded() if "Quillfeather" in text] == []
    assert [card for card in server.the.cards.values() if card] == []
    assert PARROT in server.texts()
    assert "I am at home." in server.texts()
    assert "Alderney" in bob.ask("What is my parrot called?")
    assert forget(ada) == Erasure()


def test_a_session_of_several_people_is_hidden_and_named(agent: Agent, server: HonchoServer) -> None:
    group = {"gateway_session_key": "tea", "chat_id": "-7"}
    ada, bob = agent.other(id="s2", **ADA, **group), agent.other(id="s3", **BOB, **group)
    ada.say(TORTOISE)
    bob.say(PARROT)
    erasure = forget(ada)
    assert "session 'tea', which other people share" in erasure.remaining[0]
    assert PARROT in server.texts()
    shown = bob.provider.client.search("tortoise Quillfeather parrot", 10, seen_by="telegram-bob")
    assert [one.text for one in shown if "Quillfeather" in one.text] == []


def test_a_deletion_that_honcho_has_not_done_is_waited_for(
    agent: Agent, server: HonchoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ERASE_WAIT_S", 0.0)
    ada = agent.other(id="s2", **ADA)
    ada.say(TORTOISE)
    server.deletes = False
    for _ in range(2):  # also by the next try, which finds the session still there
        with pytest.raises(BackendUnavailable, match="still deletes"):
            forget(ada)
    server.deletes = True
    forget(ada)
    assert server.texts() == []


def test_an_alias_of_the_person_at_home_loses_its_session_alone(start: Start, server: HonchoServer) -> None:
    agent = start(firstTurnDialecticWait=0, userPeerAliases={"ada": "user"}, sessionStrategy="per-session")
    ada = agent.other(id="s2", **ADA)
    agent.say("I am at home.")
    ada.say(TORTOISE)
    erasure = forget(ada)
    assert erasure.deleted[0].startswith("1 session")
    assert "the peer 'user'" in erasure.remaining[0]
    assert [text for text in server.texts() if text != "Noted."] == ["I am at home."]


def test_turns_and_notes_that_wait_in_the_home_go(start: Start, server: HonchoServer) -> None:
    agent = start(firstTurnDialecticWait=0, writeFrequency="session")
    ada, bob = agent.other(id="s2", **ADA), agent.other(id="s3", **BOB)
    ada.say(TORTOISE)
    bob.say(PARROT)
    assert agent.provider.pending_writes() == 2
    forget(ada)
    assert agent.provider.pending_writes() == 1
    assert held(agent, "Quillfeather") == []
    assert server.texts() == []
