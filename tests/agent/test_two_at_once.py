"""Two processes, for real, in one session that has grown too long."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from hermes_core.testing.model_server import Reply

if TYPE_CHECKING:
    from tests.agent.conftest import Stage

RUN = """
import sys
from hermes_core.agent.loop import Agent
from hermes_core.agent.model import ModelSettings, OpenAIModel
from hermes_core.memory import open_memory

home, url, text = sys.argv[1:]
with open_memory(home, provider="") as memory:
    model = OpenAIModel(ModelSettings(url, "m", context_length=2000))
    agent = Agent(memory, model, session_id="s1", toolsets=["todo"])
    print("ready", flush=True)
    sys.stdin.readline()
    print("speaking", flush=True)
    result = agent.run_turn(text)
    print(result.outcome, result.session_id, flush=True)
"""


def start(stage: Stage, text: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(stage.home), stage.server.base_url, text]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def speak(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    assert child.stdout.readline() == "speaking\n"


def test_of_two_processes_one_compresses_and_the_other_goes_on_with_it(stage: Stage) -> None:
    stage.config("memory: {flush_min_turns: 0}")
    summarising, hold = threading.Event(), threading.Event()

    def reply(request: dict[str, Any]) -> Reply:
        if "tools" in request:
            return Reply("word " * 100)
        summarising.set()
        return Reply("They spoke of words.", hold=hold)

    stage.script(reply)
    agent = stage.agent(session_id="s1")
    for number in range(12):
        agent.run_turn(f"Question {number}.")
    one, two = start(stage, "Said by one."), start(stage, "Said by two.")
    speak(one)
    assert summarising.wait(20)
    speak(two)
    threading.Timer(0.3, hold.set).start()
    ends = [child.communicate(timeout=30)[0].split() for child in (one, two)]

    assert [outcome for outcome, _ in ends] == ["answered", "answered"]
    (session,) = {session for _, session in ends}
    sessions = stage.memory.sessions
    assert session == sessions.compression_tip("s1") != "s1"
    assert sum("tools" not in request for request in stage.server.requests) == 1
    assert [entry.session.id for entry in sessions.list_sessions()] == [session]
    said = [m.content for m in sessions.get_messages(session) if m.role == "user"]
    assert said[-2:] in (["Said by one.", "Said by two."], ["Said by two.", "Said by one."])
    assert "Said by" not in json.dumps([m.content for m in sessions.get_messages("s1")])
    for number in range(12):
        assert sessions.search(f'"Question {number}"')


def test_a_kill_while_a_turn_compresses_loses_not_even_the_message_that_began_it(stage: Stage) -> None:
    stage.config("memory: {flush_min_turns: 0}")
    summarising, hold = threading.Event(), threading.Event()

    def reply(request: dict[str, Any]) -> Reply:
        if "tools" in request:
            return Reply("word " * 100)
        summarising.set()
        return Reply("They spoke of words.", hold=hold)

    stage.script(reply)
    agent = stage.agent(session_id="s1")
    for number in range(12):
        agent.run_turn(f"Question {number}.")
    child = start(stage, "The last straw.")
    speak(child)
    assert summarising.wait(20)
    child.kill()
    child.communicate()
    hold.set()
    sessions = stage.memory.sessions
    assert sessions.search('"last straw"')
    after = stage.agent(session_id="s1", context_length=2000, toolsets=["todo"])
    assert after.run_turn("Still there?").outcome == "answered"
    assert sessions.compression_tip("s1") == after.session.id != "s1"
    assert "The last straw." in [m["content"] for m in after.history]
    assert len(sessions.list_sessions()) == 1
