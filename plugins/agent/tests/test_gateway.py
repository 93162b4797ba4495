"""Many people on one process: one memory, an agent for each message."""

from __future__ import annotations

import gc
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core import Capabilities, MemoryProvider
from hermes_core.contract.values import Query, Recall, RecallItem, Session, Turn
from hermes_core.errors import SessionError
from hermes_memory_agent import Agent
from hermes_memory_testing.model_server import Reply
from plugins.agent.tests.test_review import ADD, is_look_back, reviewing
from tests.manager.conftest import until

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage

SECRET = {"ann": "ZEBRA", "bob": "WALRUS"}


class Scoped(MemoryProvider):
    """Keeps what was said by scope, as a native provider does."""

    name = "scoped"

    def __init__(self) -> None:
        self.kept: dict[str, list[str]] = {}

    def prefetch(self, query: Query, session: Session) -> Recall:
        return Recall(tuple(RecallItem(text) for text in self.kept.get(session.scope, ())[-3:]))

    def sync_turn(self, turn: Turn, session: Session) -> None:
        self.kept.setdefault(session.scope, []).append(turn.user)


class OnSelf(MemoryProvider):
    """Keeps its session on `self`, as providers written for Hermes Agent do; the manager makes one for each session."""

    name = "onself"
    capabilities = Capabilities(scope="session")

    def initialize(self, session: Session) -> None:
        self.mine: list[str] = []

    def prefetch(self, query: Query) -> Recall:
        return Recall(tuple(RecallItem(text) for text in self.mine[-3:]))

    def sync_turn(self, turn: Turn) -> None:
        self.mine.append(turn.user)


def speak(stage: Stage, memory: Any, user: str, text: str) -> Any:
    agent = Agent(
        memory, stage.model(), session_id=f"chat-{user}", platform="telegram", user_id=user, chat_id=user
    )
    result = agent.run_turn(text)
    assert result.outcome == "answered"
    return agent


WRITTEN_FOR_HERMES_AGENT = """
from agent.memory_provider import MemoryProvider

class Selfish(MemoryProvider):
    name = "selfish"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        self._session_id, self._said = session_id, []

    def get_tool_schemas(self):
        return []

    def prefetch(self, query, *, session_id=""):
        return "\\n".join(self._said[-3:])

    def sync_turn(self, user_content, assistant_content, *, session_id=""):
        self._said.append(user_content)

def register(ctx):
    ctx.register_memory_provider(Selfish())
"""


def written_for_hermes_agent(stage: Stage) -> str:
    """A provider as they are published for Hermes Agent, which keeps session and text on itself; its name."""
    folder = stage.home / "plugins" / "selfish"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(WRITTEN_FOR_HERMES_AGENT)
    return "selfish"


@pytest.mark.parametrize("provider", [lambda _: Scoped, lambda _: OnSelf, written_for_hermes_agent])
def test_two_people_never_see_each_others_anything(stage: Stage, provider: Callable[[Stage], object]) -> None:
    stage.config(
        "memory: {nudge_interval: 0}"
    )  # a review asks in the background, while another person speaks
    memory = stage.open_memory(provider(stage))
    recalled = 0
    stage.script(
        lambda request: (
            Reply(calls=[("session_search", {"query": "ZEBRA WALRUS"})])
            if request["messages"][-1]["role"] == "user" and "search" in request["messages"][-1]["content"]
            else Reply("Yes.")
        )
    )
    dice = random.Random(7)
    for number in range(30):
        user = dice.choice(["ann", "bob"])
        before = len(stage.server.requests)
        speak(stage, memory, user, dice.choice([f"My word is {SECRET[user]} {number}.", "search the past"]))
        other = SECRET["bob" if user == "ann" else "ann"]
        for request in stage.server.requests[before:]:
            said = [m for m in request["messages"] if m["role"] != "assistant"]
            texts = [str(m["content"]).replace("ZEBRA WALRUS", "") for m in said]
            assert [text for text in texts if other in text] == []
            recalled += any("<memory-context>" in text for text in texts)
        assert memory.flush(30)
    assert recalled > 12
    assert memory.problems() == []


def test_a_session_of_another_person_can_not_be_taken(stage: Stage) -> None:
    memory = stage.memory
    speak(stage, memory, "ann", "Hello.")
    for _ in range(2):
        agent = Agent(memory, stage.model(), session_id="chat-ann", platform="telegram", user_id="bob")
        assert agent.session.id == "chat-ann@telegram%3Abob"
        assert "Hello." not in str(agent.history)
    bob = speak(stage, memory, "bob", "Good day.")
    bob.resume("chat-ann")
    assert bob.session.id == "chat-ann@telegram%3Abob"
    with pytest.raises(SessionError, match="no session"):
        bob.resume("Hello.")


def test_nobody_takes_over_a_conversation_by_naming_it_as_a_parent(stage: Stage) -> None:
    memory = stage.memory
    speak(stage, memory, "ann", "Hello.")
    memory.sessions.end_session("chat-ann", "compression")
    memory.sessions.create_session("mine", user="telegram:bob", parent_id="chat-ann")
    memory.sessions.append_message("mine", "user", "WALRUS")
    # The session of another owner is no continuation, so ann goes on where she was.
    agent = Agent(memory, stage.model(), session_id="chat-ann", platform="telegram", user_id="ann")
    assert agent.session.id == "chat-ann"
    assert agent.history[0]["content"] == "Hello."
    assert "WALRUS" not in str(agent.history)


def test_a_chat_that_names_no_user_is_a_person_of_its_own(stage: Stage) -> None:
    memory, place = stage.memory, {"platform": "telegram", "chat_id": "ann"}
    at_home = Agent(memory, stage.model(), session_id="at-home")
    speak(stage, memory, "ann", "My word is ZEBRA.")
    group = Agent(memory, stage.model(), session_id="group", **place)
    for agent in (at_home, group):
        assert agent.run_turn("My word is WALRUS.").outcome == "answered"

    for theirs in ("at-home", "My word is ZEBRA.", "chat-ann"):
        with pytest.raises(SessionError, match="no session"):
            group.resume(theirs)
    for somebody in ({}, {"platform": "telegram", "user_id": "ann"}, {**place, "chat_id": "8"}):
        other = Agent(memory, stage.model(), session_id="group", **somebody)
        assert other.session.id != "group"
        assert "WALRUS" not in str(other.history)
    at_home.resume("group")
    assert at_home.session.id == "group@home"

    group.branch()
    assert memory.sessions.get_session(group.session.id).user == "telegram/ann"  # type: ignore[union-attr]
    again = Agent(memory, stage.model(), session_id=group.session.id, **place)
    again.resume("group")
    assert again.session.id == "group"


def test_a_persons_session_has_a_title_that_tells_of_nobody_elses(stage: Stage) -> None:
    memory = stage.memory
    for user in ("ann", "bob"):
        speak(stage, memory, user, "Hello.")
        assert memory.sessions.get_session(f"chat-{user}").title == "Hello."  # type: ignore[union-attr]
    bob = speak(stage, memory, "bob", "What now?")
    bob.branch()
    assert memory.sessions.get_session(bob.session.id).title == "Hello. #2"  # type: ignore[union-attr]
    bob.resume("Hello.")
    assert bob.session.user_id == "bob"


def test_people_talk_at_the_same_time(stage: Stage) -> None:
    memory = stage.memory
    users = [f"user-{number}" for number in range(50)]

    def talk(user: str) -> None:
        for number in range(2):
            speak(stage, memory, user, f"I am {user}, {number}.")

    threads = [threading.Thread(target=talk, args=(user,)) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for user in users:
        stored = memory.sessions.get_messages(f"chat-{user}")
        assert [m.content for m in stored if m.role == "user"] == [f"I am {user}, {n}." for n in range(2)]
    stage.told(durable=True)
    told = [(call["session"].user_id, call["turn"].user) for call in stage.provider.of("sync_turn")]
    assert len(told) == 100
    assert all(user in text for user, text in told)


def test_an_agent_made_for_each_message_sends_the_same_prefix(stage: Stage) -> None:
    for number in range(3):
        speak(stage, stage.memory, "ann", f"Message {number}.")
    first, second, third = stage.asked()
    assert json.dumps(second)[: len(json.dumps(first[:1])) - 1] == json.dumps(first[:1])[:-1]
    assert third[: len(second) - 1] == second[:-1]


class HeldReviews:
    """A model whose looks back take until `hold` is set; the first of them makes these calls."""

    def __init__(self, *calls: Any) -> None:
        self.asked, self.hold = threading.Event(), threading.Event()
        self.calls = list(calls)

    def __call__(self, request: dict[str, Any]) -> Reply:
        if not is_look_back(request):
            return Reply("Yes.")
        self.asked.set()
        calls, self.calls = self.calls, []
        return Reply("" if calls else "done", calls=calls, hold=self.hold)


def test_one_review_at_a_time_whoever_spoke(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 1, flush_min_turns: 0}")
    model = HeldReviews()
    stage.script(model)
    agents = [speak(stage, stage.memory, user, "Hello.") for user in ("ann", "bob", "cy")]
    assert model.asked.wait(10)
    assert [agent.wait_for_review(0) for agent in agents] == [False] * 3
    model.hold.set()
    assert agents[0].wait_for_review(10)
    assert sum(map(is_look_back, stage.server.requests)) == 1
    assert speak(stage, stage.memory, "bob", "And now?").wait_for_review(10)
    assert sum(map(is_look_back, stage.server.requests)) == 2, "the one that found no room came not later"


def test_reviews_of_another_memory_run_beside(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 1, flush_min_turns: 0}")
    model = HeldReviews()
    stage.script(model)
    ann = speak(stage, stage.memory, "ann", "Hello.")
    assert model.asked.wait(10)
    bob = speak(stage, stage.open_memory(), "bob", "Hello.")
    assert not bob.wait_for_review(0)
    model.hold.set()
    assert ann.wait_for_review(10)
    assert bob.wait_for_review(10)
    assert sum(map(is_look_back, stage.server.requests)) == 2


def test_who_closes_an_agent_lets_its_review_come_to_its_end(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 1, flush_min_turns: 0}")
    skill = "---\nname: tea\ndescription: Make tea.\n---\nBoil water."
    create = ("skill_manage", {"action": "create", "name": "tea", "category": "home", "content": skill})
    model = HeldReviews(ADD, create)
    stage.script(model)
    with stage.agent() as agent:
        agent.run_turn("I like tea.")
        assert model.asked.wait(10)
    model.hold.set()
    assert agent.wait_for_review(10)
    assert stage.memory.curated.entries("user") == ("Prefers short answers.",)
    assert (stage.home / "skills" / "home" / "tea" / "SKILL.md").exists()


def test_the_end_of_a_memory_stops_its_review(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 1, flush_min_turns: 0}")
    model = HeldReviews(ADD)
    stage.script(model)
    reviews: list[Any] = []
    memory = stage.open_memory()
    agent = stage.agent(memory, on_review=reviews.append)
    agent.run_turn("I like tea.")
    assert model.asked.wait(10)
    memory.close()
    assert agent.wait_for_review(0)
    assert [review.failure for review in reviews] == ["stopped"]
    assert until(lambda: "agent-review" not in [thread.name for thread in threading.enumerate()])
    model.hold.set()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc")
def test_agents_that_are_dropped_leave_nothing_behind(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 1, flush_min_turns: 0}")
    patch = ("skill_manage", {"action": "create", "name": "tea", "category": "home", "content": "no skill"})
    model = stage.model()

    def message(number: int) -> None:
        stage.script(Reply(calls=[patch]), reviewing())
        agent = Agent(stage.memory, model, session_id=f"chat-{number % 3}", platform="x", user_id="ann")
        assert agent.run_turn("Hello.").outcome == "answered"
        assert agent.skills is not None
        agent.skills.history()
        assert agent.wait_for_review(10)

    def held() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    for number in range(6):
        message(number)
    gc.disable()  # nothing may wait for the collector, whose time nobody knows
    try:
        before = held()
        for number in range(12):
            message(number)
        assert [after < was + 12 for after, was in zip(held(), before, strict=True)] == [True, True]
    finally:
        gc.enable()
