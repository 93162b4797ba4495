"""Whatever a turn is waiting for, an interrupt ends it at once: nothing here waits for a deadline."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core.contract.values import Session
from hermes_core.stopping import stopped_by
from hermes_core.storage.files import locked
from hermes_memory_agent import Agent, ModelSettings, OpenAIModel, Tool
from hermes_memory_agent.cancel import Cancel, Cancelled
from hermes_memory_agent.configured import summariser
from hermes_memory_agent.skills.store import LOCK
from hermes_memory_testing.fakes import REMEMBER_TOOL
from hermes_memory_testing.model_server import ModelServer, Reply

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage

QUIET = "agent: {review: false}\nmemory: {flush_min_turns: 0}\n"
LONG = 60.0
"""Seconds of a deadline that no test waits for."""

Reached = Callable[[], object]


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What hangs waits for this."""
    event = threading.Event()
    yield event
    event.set()


def interrupted(agent: Agent, reached: Reached, act: Callable[[], Any] | None = None) -> Any:
    """What a turn, or `act`, gives that is interrupted as soon as `reached` returns; fails when it goes on."""
    given: list[Any] = []
    thread = threading.Thread(
        target=lambda: given.append((act or (lambda: agent.run_turn("And now?")))()), daemon=True
    )
    thread.start()
    reached()
    agent.interrupt()
    thread.join(LONG / 2)
    assert not thread.is_alive(), "the interrupt was not heard"
    return given[0]


def hung(stage: Stage, hook: str, never: threading.Event, **deadlines: float) -> tuple[Agent, Reached]:
    """An agent whose provider hangs in a hook from now on, and the moment in which it does."""
    memory = stage.open_memory(deadlines={hook: LONG, **deadlines})
    agent = stage.agent(memory)
    agent.run_turn("Hello.")
    before = stage.provider.hooks.count(hook)
    stage.provider.gates[hook] = never
    return agent, lambda: stage.provider.wait_for(hook, before + 1)


def talked(agent: Agent) -> Agent:
    """Said enough to be compressed."""
    for number in range(8):
        agent.run_turn(f"Message {number}. " + "word " * 100)
    return agent


def test_in_recall_nothing_is_asked_of_the_model_and_the_provider_is_not_blamed(
    stage: Stage, never: threading.Event
) -> None:
    agent, reached = hung(stage, "prefetch", never)
    asked = len(stage.server.requests)
    result = interrupted(agent, reached)
    assert (result.outcome, result.problems) == ("interrupted", ())
    assert [m["content"] for m in agent.history] == ["Hello.", "Yes.", "And now?"]
    assert len(stage.server.requests) == asked
    assert stage.told(durable=True) == ["sync_turn"]
    never.set()
    assert agent.run_turn("Go on.").recall.contexts, "the next turn waits for its recall again"


def test_in_the_tool_of_a_provider(stage: Stage, never: threading.Event) -> None:
    agent, reached = hung(stage, "handle_tool_call", never)
    stage.script(Reply(calls=[(REMEMBER_TOOL["name"], {"text": "tea"})]))
    assert interrupted(agent, reached).outcome == "interrupted"
    assert stage.told(durable=True) == ["sync_turn"]


def test_in_the_summaries_of_a_search_the_auxiliary_model_is_left_alone_too(
    stage: Stage, never: threading.Event
) -> None:
    asked = threading.Semaphore(0)

    def reply(_: object) -> Reply:
        asked.release()
        return Reply("It is", hold=never)

    with ModelServer([reply]) as server:
        auxiliary = OpenAIModel(ModelSettings(server.base_url, "small", retries=0))
        stage.memory.internals.search.summarise = summariser(auxiliary)
        for number in range(5):
            session = stage.memory.start_session()
            stage.memory.end_turn(session, f"The parser, {number}", "It parses.")
        stage.script(Reply(calls=[("session_search", {"query": "parser", "summary": True})]), Reply("Late."))
        agent = stage.agent()

        def all_at_once() -> None:
            for _ in range(3):
                assert asked.acquire(timeout=60)

        assert interrupted(agent, all_at_once).outcome == "interrupted"
        assert (len(server.requests), len(stage.server.requests)) == (3, 1)
        auxiliary.close()
        never.set()


def test_in_the_flush_of_a_chat_that_never_ends(stage: Stage, never: threading.Event) -> None:
    stage.config(
        "agent: {review: false, cadence_turns: 2, cadence_minutes: 10}\nmemory: {flush_min_turns: 1}\n"
    )
    now = [time.time()]
    agent = talked(stage.agent(clock=lambda: now[0]))
    now[0] += 3600
    asked = threading.Event()

    def flush(_: object) -> Reply:
        asked.set()
        return Reply("Let me", hold=never)

    stage.script(flush)
    assert interrupted(agent, lambda: asked.wait(60)).outcome == "interrupted"


@pytest.mark.parametrize("act", ["new", "reset", "evict", "close"])
def test_in_the_flush_at_the_end_of_a_session(stage: Stage, never: threading.Event, act: str) -> None:
    stage.config("agent: {review: false, flush_seconds: 60}\nmemory: {flush_min_turns: 1}\n")
    agent = talked(stage.agent())
    before, asked = agent.session.id, threading.Event()
    agent.interrupt()

    def flush(_: object) -> Reply:
        asked.set()
        return Reply("Let me", hold=never)

    stage.script(flush)
    interrupted(agent, lambda: asked.wait(10), getattr(agent, act))
    ended = stage.memory.sessions.get_session(before)
    assert ended is not None
    assert ended.end_reason == act
    assert agent.problems == ()
    assert (agent.session.id == before) is (act in ("evict", "close"))


@pytest.mark.parametrize("hook", ["on_pre_compress", "system_prompt_block"])
def test_in_a_compression_that_waits_for_the_provider(
    stage: Stage, never: threading.Event, hook: str
) -> None:
    stage.config(QUIET)
    agent, reached = hung(stage, hook, never)
    talked(agent)
    before = agent.session.id
    assert interrupted(agent, reached, agent.compress) is (agent.session.id != before)
    never.set()
    assert agent.run_turn("Go on.").outcome == "answered"
    assert "The fake remembers." in stage.asked()[-1][0]["content"], "what was not waited for is asked again"
    assert stage.memory.sessions.meta.system_prompt(agent.session.id) == agent.prompt


def test_in_the_tool_of_skills_while_another_process_changes_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()

    def wait(path: Path) -> AbstractContextManager[None]:
        waits.set()
        return locked(path)

    monkeypatch.setattr("hermes_memory_agent.skills.store.locked", wait)
    agent = stage.agent()
    skill = {"action": "create", "name": "tea", "content": "---\nname: tea\ndescription: d\n---\nBoil."}
    stage.script(Reply(calls=[("skill_manage", skill)]))

    with locked(stage.memory.home.skills / LOCK):
        assert interrupted(agent, lambda: waits.wait(60)).outcome == "interrupted"
    assert not list(stage.memory.home.skills.rglob("SKILL.md"))
    assert len(stage.server.requests) == 1


def test_in_what_a_compressor_does_at_a_boundary(
    stage: Stage, never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_memory_agent.lifecycle.COMPRESSOR_TIMEOUT_S", LONG)
    began = threading.Event()
    agent = talked(stage.agent())

    def hang(*_: object) -> None:
        began.set()
        never.wait()

    monkeypatch.setattr(agent._life.compressor, "on_session_end", hang)
    assert interrupted(agent, lambda: began.wait(60), agent.compress)
    assert agent.problems == ()


def test_who_stops_a_turn_stops_no_delivery_of_a_memory_that_was_opened_in_it(
    stage: Stage, never: threading.Event
) -> None:
    stop = threading.Event()
    with stopped_by(stop):
        memory = stage.open_memory()
    stage.provider.gates["sync_turn"] = never
    agent = stage.agent(memory)
    agent.run_turn("Tell it.")
    stop.set()
    assert stage.provider.wait_for("sync_turn")
    assert not never.wait(0.15), "longer than a wait looks away"
    never.set()
    assert stage.told(durable=True) == ["sync_turn"]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of POSIX")
@pytest.mark.parametrize("beside", [False, True])
def test_a_signal_that_the_system_gives_to_another_thread_is_heard_by_the_one_that_waits(
    stage: Stage, never: threading.Event, beside: bool
) -> None:
    """As it may where the process was stopped when the signal came."""
    other = threading.Thread(target=never.wait, daemon=True)
    other.start()
    late: list[bool] = []
    timer = threading.Timer(0.1, signal.pthread_kill, (other.ident, signal.SIGUSR1))
    timers = [timer]

    def run(arguments: Mapping[str, Any], session: Session) -> str:
        with contextlib.suppress(
            IndexError
        ):  # one signal for both calls: a second would come after the handler
            timers.pop().start()
        never.wait(20)
        late.append(True)
        return "Late."

    agent = stage.agent(tools=[Tool("wait", "", {}, run, parallel=True)])
    stage.script(Reply(calls=[("wait", {})] * (1 + beside)), Reply("Late."))
    before = signal.signal(signal.SIGUSR1, lambda *_: agent.interrupt())
    try:
        assert agent.run_turn("Wait.").outcome == "interrupted"
        assert not late
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that signals")
def test_by_the_handler_of_a_signal_that_comes_while_the_switch_is_touched() -> None:
    cancel = Cancel()
    before = signal.signal(signal.SIGALRM, lambda *_: cancel.set())
    try:
        for number in range(300):
            cancel = Cancel()
            signal.setitimer(signal.ITIMER_REAL, 0.000001 * (1 + number % 50))
            with pytest.raises(Cancelled):
                cancel.wait(LONG)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
