"""The process is killed, for real, in the middle of things; the next one goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core.home import HermesHome
from hermes_core.outbox import delivery
from hermes_memory_testing.model_server import Reply
from tests.forked import python
from tests.outbox_of import end_pauses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugins.agent.tests.conftest import Stage

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kill -9 of POSIX")

RUN = """
import os, signal, sys, threading
from hermes_memory_agent import lifecycle
from hermes_memory_agent import Agent, ModelSettings, OpenAIModel, Tool
from hermes_core.errors import BackendUnavailable
from hermes_core.memory import open_memory
from hermes_memory_testing.fakes import RecordingProvider

home, url, moment, act, down = sys.argv[1:]

def die(*given):
    os.kill(os.getpid(), signal.SIGKILL)

def dying_after(name):
    run_step = lifecycle.StepRunner.__call__
    def run(runner, step, *given, **more):
        result = run_step(runner, step, *given, **more)
        if step == name:
            die()
        return result
    lifecycle.StepRunner.__call__ = run

def dying_in_rotate():
    stored = lifecycle.store_message
    def store(*given, **more):
        stored(*given, **more)
        die()
    lifecycle.store_message = store

provider = RecordingProvider()
# Else a switch may arrive here, in the process that dies, between its commit and the kill.
provider.gates["on_session_switch"] = threading.Event()
if down:
    provider.results["sync_turn"] = BackendUnavailable("it is down")
memory = open_memory(home, provider=provider)
agent = Agent(memory, OpenAIModel(ModelSettings(url, "m")), session_id="s1", tools=[Tool("die", "", {}, die)])
for number in range(1, 7):
    agent.run_turn(f"Question {number}.")
agent.wait_for_review(60)
if moment == "in rotate":
    dying_in_rotate()
elif moment:
    dying_after(moment)
memory.flush(0.5 if down else 10)
getattr(agent, act)()
agent.run_turn("After.")
"""


def run(
    stage: Stage,
    moment: str = "",
    act: str = "compress",
    *,
    down: bool = False,
    program: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    given = [str(stage.home), stage.server.base_url, moment, act, "down" if down else ""]
    return subprocess.Popen([*(program or python()), "-c", RUN, *given], env=os.environ)


def run_and_die(stage: Stage, moment: str = "", act: str = "compress", *, down: bool = False) -> None:
    """Run the program until it is killed."""
    assert run(stage, moment, act, down=down).wait(60) == -signal.SIGKILL
    end_pauses(HermesHome(stage.home))


def settled(stage: Stage) -> list[str]:
    """What the provider has been told of turns, by all processes, as the outbox knows."""
    assert stage.memory.flush(30)
    memory = stage.memory
    turns = [turn.turn.id for turn in memory.sessions.turns.complete()]
    assert all(memory.manager.outbox.knows("fake", "sync_turn", turn) for turn in turns)
    return [turn.turn.user for turn in memory.sessions.turns.complete()]


def test_a_kill_within_a_turn_loses_no_message_and_sends_no_half_turn(stage: Stage) -> None:
    stage.script(*[Reply("Yes.")] * 5, Reply("Let me see.", calls=[("die", {}), ("die", {})]), Reply("Back."))
    run_and_die(stage)
    agent = stage.agent(session_id="s1")
    assert [m["content"] for m in agent.history][-2:] == ["Question 6.", "Let me see."]
    assert agent.run_turn("Still there?").text == "Back."
    assert settled(stage) == [*(f"Question {n}." for n in range(1, 6)), "Still there?"]


@pytest.mark.parametrize("moment", ["summarise", "session_end", "in rotate", "rotate"])
def test_a_kill_within_a_compression_loses_nothing_and_resumes(stage: Stage, moment: str) -> None:
    stage.config("agent: {protect_last: 2}\nmemory: {flush_min_turns: 0, nudge_interval: 0}")
    stage.script(lambda request: Reply("Yes." if "tools" in request else "They spoke."))
    run_and_die(stage, moment)
    agent = stage.agent(session_id="s1")
    assert agent.run_turn("After the crash.").outcome == "answered"
    moved = moment == "rotate"
    assert (agent.session.id != "s1") is moved
    assert ("They spoke." in json.dumps(agent.history)) is moved
    assert settled(stage) == [*(f"Question {n}." for n in range(1, 7)), "After the crash."]
    assert len(stage.memory.sessions.list_sessions()) == 1
    for number in range(1, 7):
        assert stage.memory.sessions.past.search(f'"Question {number}"')


BOUNDARIES = {"undo": "rewind", "branch": "rotate", "reset": "rotate", "compress": "rotate"}


@pytest.mark.parametrize("act", BOUNDARIES)
def test_a_boundary_that_a_kill_kept_from_the_provider_is_told_once(stage: Stage, act: str) -> None:
    stage.config("agent: {protect_last: 2}\nmemory: {flush_min_turns: 0, nudge_interval: 0}")
    stage.script(lambda request: Reply("Yes." if "tools" in request else "They spoke."))
    run_and_die(stage, BOUNDARIES[act], act)
    assert stage.memory.flush(30)
    with stage.open_memory() as other:  # another process, at the same time
        other.manager.initialize_all(other.local_session)
        assert other.flush(30)
    assert stage.agent(session_id="s1").run_turn("After the crash.").outcome == "answered"
    assert stage.memory.flush(30)
    [told] = [call["switch"] for call in stage.provider.of("on_session_switch")]
    assert told.old.id == "s1"
    assert told.reason == {"undo": "rewind", "compress": "compression"}.get(act, act)
    assert (told.new.id == "s1") is (act == "undo")
    assert len(told.rewound_turns) == (act == "undo")


def test_a_turn_taken_back_before_a_kill_is_never_sent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    # A row that was on its way at the kill may have caused it, and waits so long.
    monkeypatch.setattr(delivery, "MAX_BACKOFF_S", 0.05)
    run_and_die(stage, "rewind", "undo", down=True)
    stage.agent(session_id="s1")
    assert stage.memory.flush(120)
    sent = [call["turn"].user for call in stage.provider.of("sync_turn")]
    assert sent == [f"Question {n}." for n in range(1, 6)]


def test_a_kill_within_a_review_leaves_the_conversation_as_it_was(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 6, flush_min_turns: 0}")
    child: list[subprocess.Popen[bytes]] = []
    started = threading.Event()

    def reply(request: dict[str, Any]) -> Reply:
        last = str(request["messages"][-1]["content"])
        if last.startswith("[This is not from the person"):
            started.wait(10)
            child[0].kill()
        return Reply("Yes.")

    stage.script(reply)
    child.append(run(stage, program=[sys.executable]))
    started.set()
    assert child[0].wait(60) == -signal.SIGKILL
    end_pauses(HermesHome(stage.home))
    agent = stage.agent(session_id="s1")
    assert len(agent.history) == 12
    assert agent.run_turn("After the crash.").outcome == "answered"
    assert settled(stage) == [*(f"Question {n}." for n in range(1, 7)), "After the crash."]
