"""A person is forgotten: their space, and their sessions with the archives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_core import MemoryWrite
from hermes_core.contract.values import Erasure
from hermes_core.errors import BackendUnavailable
from plugins.openviking.tests.conftest import Agent
from plugins.openviking.tests.stand_in import Viking


def of(agent: Agent, user: str) -> Agent:
    return agent.of(platform="telegram", user_id=user)


def note(agent: Agent, text: str) -> None:
    agent.provider.on_memory_write(MemoryWrite(f"w-{text}", "add", "user", text), agent.session)


def test_the_space_of_a_user_goes_with_its_sessions_and_others_keep_theirs(
    agent: Agent, server: Viking
) -> None:
    ada, bob = of(agent, "ada"), of(agent, "bob")
    for each, text in ((ada, "My tortoise is called Quillfeather."), (bob, "My parrot is called Alderney.")):
        each.turn(text)
        note(each, f"noted: {text}")
    agent.turn("I am at home.")
    erasure = agent.provider.forget_user(ada.session)
    assert ada.space.root in erasure.deleted[0]
    assert not [name for name in server.sessions if name.startswith(ada.space.peer)]
    assert len(server.sessions) == 2
    assert len(server.files) == 1
    assert bob.recall("What is my parrot called?") != []
    assert agent.provider.forget_user(ada.session) == Erasure()


def test_what_the_server_still_learns_is_waited_for(today: Viking, start: Callable[..., Agent]) -> None:
    ada = of(start(today), "ada")
    ada.turn("My tortoise is called Quillfeather.")
    ada.provider.on_session_end(ada.session)
    for task in today.tasks.values():
        task["status"] = "running"
    with pytest.raises(BackendUnavailable, match="still learns"):
        ada.provider.forget_user(ada.session)
    for task in today.tasks.values():
        task["status"] = "completed"
    ada.provider.forget_user(ada.session)
    assert today.sessions == {}
