"""A person is forgotten: with the bank of their own, or with the documents of their sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_core import Session
from hermes_core.contract.values import Erasure
from hermes_core.errors import BackendUnavailable
from plugins.hindsight.tests.conftest import Agent

SAID, OTHER = "My tortoise is called Quillfeather.", "My parrot is called Alderney."


def of(agent: Agent, user: str, session_id: str) -> Session:
    return agent.session(session_id, platform="telegram", user_id=user)


def forget(agent: Agent, session: Session) -> Any:
    return agent.run(agent.provider.forget_user(session))


@pytest.mark.parametrize(
    "settings", [{}, {"bank_id_template": "{profile}-{user}"}, {"bank_mission": "Know."}]
)
def test_the_bank_of_a_user_goes_and_those_of_others_stay(
    start: Callable[..., Agent], settings: dict[str, Any]
) -> None:
    agent = start(**settings)
    ada, bob = of(agent, "ada", "s1"), of(agent, "bob", "s2")
    agent.say(SAID, "t1", ada)
    agent.say(SAID, "t2", of(agent, "ada", "s3"))
    agent.say(OTHER, "t3", bob)
    before = set(agent.server.banks)
    assert "with its 2 documents" in forget(agent, ada).deleted[0]
    assert len(before - set(agent.server.banks)) == 1
    assert agent.server.said() == [OTHER]
    assert forget(agent, of(agent, "ada", "s3")) == Erasure()


@pytest.mark.parametrize("settings", [{"bank_id": "all"}, {"bank_id_template": "{profile}-{session}"}])
def test_a_bank_of_everybody_loses_the_documents_of_the_session(
    start: Callable[..., Agent], settings: dict[str, Any]
) -> None:
    agent = start(**settings)
    ada, bob = of(agent, "ada", "s1"), of(agent, "bob", "s2")
    agent.say(SAID, "t1", ada)
    agent.say(OTHER, "t3", bob)
    assert "1 document in the bank" in forget(agent, ada).deleted[0]
    assert agent.server.said() == [OTHER]
    assert forget(agent, ada) == Erasure()


def test_what_the_server_still_works_on_is_waited_for(agent: Agent) -> None:
    agent.server.hold = True
    ada = of(agent, "ada", "s1")
    agent.say(SAID, "t1", ada)
    with pytest.raises(BackendUnavailable, match="still worked on"):
        forget(agent, ada)
    agent.server.work()
    forget(agent, ada)
    assert agent.server.said() == []
