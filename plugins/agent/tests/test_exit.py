"""The end of the program: an agent that nobody closed ends its session in order, before its memory, within 15 seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from hermes_memory_agent.lifecycle import SessionLifecycle
from hermes_memory_testing.model_server import Reply
from tests.forked import python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plugins.agent.tests.conftest import Stage

NO_THREADS = (3, 12) <= sys.version_info < (3, 12, 3)
"""These start no thread at their end: there the flush is left out, which is said."""

HOST = """
import os, signal, sys, threading, warnings
from hermes_core import open_memory
from hermes_memory_agent import Agent, ModelSettings, OpenAIModel
from hermes_memory_testing.fakes import RecordingProvider

home, url, act = sys.argv[1:]
# From 3.12 on Python warns of every fork beside threads.
warnings.simplefilter("ignore", DeprecationWarning)

class Told(RecordingProvider):
    def answer(self, hook, **given):
        if hook == "on_session_end":
            print(given["session"].id, given["reason"], flush=True)
        elif hook == "shutdown":
            print(hook, flush=True)
        return super().answer(hook, **given)

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
memory = open_memory(home, provider=Told)
model = OpenAIModel(ModelSettings(url, "m", retries=0))
agent = Agent(memory, model, session_id="s1")
agent.run_turn("Hello.")
if act in ("close", "evict", "shutdown_memory_provider"):
    getattr(agent, act)()
    assert act.startswith("shutdown") or memory.flush(30)
    print("done", flush=True)
elif act == "drop":
    del agent
elif act == "close the memory":
    memory.close()
elif act == "fork":
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    print("waited", flush=True)
elif act == "two":
    two = Agent(memory, model, session_id="s2")
    two.run_turn("Hello.")
elif act in ("wait", "use it again"):
    if act == "use it again":
        agent.evict()
        agent.run_turn("Hello again.")
    print("ready", flush=True)
    # `signal.pause()` would miss a signal that comes just before it. A wait without an end is not left when the system
    # gives the signal to another thread.
    while not threading.Event().wait(0.1):
        pass
"""


@pytest.fixture
def never() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def host(stage: Stage, act: str) -> subprocess.Popen[str]:
    """A program with an agent that it leaves as it is, after this act."""
    stage.config("memory: {flush_min_turns: 1}\nagent: {review: false, flush_seconds: 60}\n")
    return subprocess.Popen(
        [*python(), "-c", HOST, str(stage.home), stage.server.base_url, act],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def until_its_end(child: subprocess.Popen[str], timeout: float = 60) -> tuple[str, str]:
    """What the program says; one that does not end in time is killed."""
    try:
        return child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise


def ends(stage: Stage) -> dict[str, str]:
    return {entry.session.id: entry.session.end_reason for entry in stage.memory.sessions.list_sessions()}


def flushes(stage: Stage) -> int:
    return sum("not from the person" in str(messages[-1]["content"]) for messages in stage.asked())


@pytest.mark.parametrize(
    ("act", "told", "ended", "flushed"),
    [
        ("nothing", ["s1 close", "shutdown"], {"s1": "close"}, 1),
        ("two", ["s2 close", "s1 close", "shutdown"], {"s1": "close", "s2": "close"}, 2),
        ("close", ["s1 close", "done", "shutdown"], {"s1": "close"}, 1),
        ("evict", ["s1 evict", "done", "shutdown"], {"s1": "evict"}, 1),
        ("shutdown_memory_provider", ["s1 close", "shutdown", "done"], {"s1": "close"}, 1),
        ("drop", ["shutdown"], {"s1": ""}, 0),
        ("close the memory", ["s1 close", "shutdown"], {"s1": "close"}, 1),
        ("fork", ["waited", "s1 close", "shutdown"], {"s1": "close"}, 1),
    ],
)
def test_an_agent_that_nobody_closed_ends_its_session_when_the_program_ends(
    stage: Stage, act: str, told: list[str], ended: dict[str, str], flushed: int
) -> None:
    if act == "fork" and not hasattr(os, "fork"):
        pytest.skip("needs fork")
    out, err = until_its_end(host(stage, act))
    if NO_THREADS and act in ("nothing", "two", "fork"):
        assert err.count("was not flushed") == flushed
        err, flushed = "", 0
    assert (out.splitlines(), err) == (told, "")
    assert ends(stage) == ended
    assert flushes(stage) == flushed


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("act", ["wait", "use it again"])
def test_one_line_of_a_host_lets_a_sigterm_end_its_agents_in_order(stage: Stage, act: str) -> None:
    with host(stage, act) as child:
        assert child.stdout is not None
        before = ["s1 evict"] if act == "use it again" else []
        heard = sorted(child.stdout.readline().strip() for _ in range(len(before) + 1))
        assert heard == sorted([*before, "ready"])
        child.send_signal(signal.SIGTERM)
        out, err = until_its_end(child)
    assert (child.returncode, "was not flushed" in err) == (143, NO_THREADS)
    assert out.splitlines() == ["s1 close", "shutdown"]
    assert ends(stage) == {"s1": "close"}


@pytest.mark.skipif(NO_THREADS, reason="asks no model at the end")
@pytest.mark.parametrize("act", ["nothing", "two"])
def test_a_model_that_hangs_at_the_end_holds_no_program_longer_than_15_seconds(
    stage: Stage, never: threading.Event, act: str
) -> None:
    last = "s2" if act == "two" else "s1"
    asked_at: list[float] = []

    def reply(request: dict[str, Any]) -> Reply:
        if "not from the person" not in str(request["messages"][-1]["content"]):
            return Reply("Yes.")
        asked_at.append(time.monotonic())
        return Reply("Let me", hold=never)

    stage.script(reply)
    out, _ = until_its_end(host(stage, act), 120)
    assert time.monotonic() - asked_at[0] < 15
    assert out.splitlines() == [f"{last} close", *(["s1 close"] if act == "two" else []), "shutdown"]
    assert ends(stage) == dict.fromkeys(["s1", last], "close")


@pytest.mark.parametrize("act", ["evict", "close", "shutdown_memory_provider"])
def test_an_agent_that_is_used_after_its_end_opens_its_session_once_and_ends_it_again(
    stage: Stage, act: str
) -> None:
    agent = stage.agent(session_id="s1")
    agent.run_turn("Hello.")
    prompt = agent.prompt
    getattr(agent, act)()
    assert agent.run_turn("Hello again.").outcome == "answered"
    assert ends(stage) == {"s1": ""}
    assert agent.prompt == prompt
    assert [m["content"] for m in agent.history] == ["Hello.", "Yes.", "Hello again.", "Yes."]
    agent.run_turn("And again.")
    agent.close()
    assert ends(stage) == {"s1": "close"}
    with stage.open_memory() as after:
        after.manager.initialize_all(after.local_session)
        assert after.flush(30)
    told = [call["reason"] for call in stage.provider.of("on_session_end")]
    # After a shutdown the turns and the second end wait for the next start.
    assert told == ["evict" if act == "evict" else "close", "close"]
    assert len(stage.provider.of("sync_turn")) == 3


def test_an_open_event_is_crossed_once_by_an_agent_that_is_used_after_its_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, opened = stage.agent(), list[str]()
    agent.run_turn("Hello.")
    agent.evict()
    open_session = SessionLifecycle.open

    def recording(life: SessionLifecycle) -> None:
        opened.append(life.session.id)
        open_session(life)

    monkeypatch.setattr(SessionLifecycle, "open", recording)
    agent.run_turn("Hello again.")
    agent.run_turn("And again.")
    assert opened == [agent.session.id]
