"""Two processes, for real, in one session that has grown too long."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core.errors import SessionError
from hermes_memory_agent import Agent
from hermes_memory_agent.lifecycle import FOLLOWED, SessionLifecycle
from hermes_memory_testing.model_server import Reply
from tests.forked import python

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugins.agent.tests.conftest import Stage

RUN = """
import sys
from hermes_memory_agent import Agent
from hermes_memory_agent import ModelSettings, OpenAIModel
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


def start(stage: Stage, text: str, program: Sequence[str] = ()) -> subprocess.Popen[str]:
    command = [*(program or python()), "-c", RUN, str(stage.home), stage.server.base_url, text]
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
    assert summarising.wait(60)
    speak(two)
    threading.Timer(0.3, hold.set).start()
    ends = [child.communicate(timeout=60)[0].split() for child in (one, two)]

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
        assert sessions.past.search(f'"Question {number}"')


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
    child = start(stage, "The last straw.", [sys.executable])
    speak(child)
    assert summarising.wait(60)
    child.kill()
    child.communicate()
    hold.set()
    sessions = stage.memory.sessions
    assert sessions.past.search('"last straw"')
    after = stage.agent(session_id="s1", context_length=2000, toolsets=["todo"])
    assert after.run_turn("Still there?").outcome == "answered"
    assert sessions.compression_tip("s1") == after.session.id != "s1"
    assert "The last straw." in [m["content"] for m in after.history]
    assert len(sessions.list_sessions()) == 1


class Apart:
    """Two chats on one session, the first of which can be held in the midst of a summary."""

    def __init__(self, stage: Stage) -> None:
        stage.config("memory: {flush_min_turns: 0}")
        self.stage, self.sessions = stage, stage.memory.sessions
        self.summarising, self.answering = threading.Event(), threading.Event()
        self.hold, self.answer = threading.Event(), threading.Event()
        self.hold.set()
        self.answer.set()
        stage.script(self.reply)
        first = stage.agent(session_id="s1")
        for number in range(8):
            first.run_turn(f"Question {number}. " + "word " * 100)
        self.one = stage.agent(session_id="s1", context_length=2000, toolsets=["todo"])
        self.two = stage.agent(session_id="s1", toolsets=["todo"])

    def reply(self, request: dict[str, Any]) -> Reply:
        if "tools" not in request:
            self.summarising.set()
            return Reply("They spoke of words.", hold=self.hold)
        if "slowly" in str(request["messages"][-1]["content"]):
            self.answering.set()
            return Reply("At last.", hold=self.answer)
        return Reply("Yes.")

    def while_one_compresses(self, act: Any) -> None:
        self.hold.clear()
        thread = threading.Thread(target=self.one.run_turn, args=("The last straw.",))
        thread.start()
        assert self.summarising.wait(60)
        act()
        self.hold.set()
        thread.join(10)
        assert self.one.session.id != "s1"

    def said(self) -> list[str]:
        """What the person said last, as whoever resumes the conversation has it."""
        resumed = self.stage.agent(session_id="s1")
        return [m["content"] for m in resumed.history if m["role"] == "user"][-4:]


def test_the_other_of_two_chats_follows_to_the_compressed_session_at_its_next_turn(stage: Stage) -> None:
    apart = Apart(stage)
    apart.two.run_turn("Before.")
    assert apart.one.compress()
    result = apart.two.run_turn("After.")
    assert result.session_id == apart.one.session.id != "s1"
    assert FOLLOWED in result.problems
    asked = json.dumps(stage.asked()[-1])
    assert "They spoke of words." in asked
    assert "Before." in asked
    assert apart.two.run_turn("And on.").problems == ()
    assert apart.said()[-3:] == ["Before.", "After.", "And on."]
    assert len(stage.memory.sessions.list_sessions()) == 1


def test_what_the_other_says_while_one_compresses_is_in_both_conversations_once(stage: Stage) -> None:
    apart = Apart(stage)
    apart.while_one_compresses(lambda: apart.two.run_turn("In between."))
    assert apart.said()[-2:] == ["In between.", "The last straw."]
    assert [hit.session_id for hit in apart.sessions.past.search('"in between"')] == ["s1"]
    assert apart.sessions.turns.count("s1") == 9, "taking the message along took a turn of the other's back"
    apart.one.run_turn("What did I say?")
    assert "In between." in json.dumps(stage.asked()[-1])


def test_a_turn_under_way_while_another_process_compresses_goes_along_whole(stage: Stage) -> None:
    apart = Apart(stage)
    apart.answer.clear()
    turn = partial(apart.two.run_turn, "Answer slowly.", author="Ann")
    slow = threading.Thread(target=turn)
    slow.start()
    assert apart.answering.wait(60)
    apart.while_one_compresses(list)
    assert apart.said()[-1] == "The last straw."
    apart.answer.set()
    slow.join(10)
    assert apart.said()[-2:] == ["The last straw.", "Answer slowly."]
    carried = apart.sessions.get_messages(apart.sessions.compression_tip("s1"))[-2:]
    assert [(m.content, m.speaker) for m in carried] == [("Answer slowly.", "Ann"), ("At last.", "")]
    with pytest.raises(SessionError, match="another process has compressed"):
        apart.two.undo()
    apart.two.run_turn("On.")
    assert apart.two.undo() == "On."
    with pytest.raises(SessionError, match="only 1 can be undone"):
        apart.two.undo(2)


def test_a_message_that_waits_while_another_process_compresses_is_found_where_it_is_answered(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = Apart(stage)
    compress = SessionLifecycle.compress

    def after_the_other(life: SessionLifecycle) -> None:
        if life is apart.one._life:
            other = stage.agent(session_id="s1", context_length=2000, toolsets=["todo"])
            assert other.history[-1]["content"] == "The last straw."
            assert other.compress()
        compress(life)

    monkeypatch.setattr(SessionLifecycle, "compress", after_the_other)
    result = apart.one.run_turn("The last straw.")
    assert (
        [hit.session_id for hit in apart.sessions.past.search('"last straw"')]
        == [result.session_id]
        != ["s1"]
    )
    assert str(stage.asked()[-1]).count("The last straw.") == 1
    assert [m["content"] for m in apart.one.history[-2:]] == ["The last straw.", "Yes."]
    assert apart.said().count("The last straw.") == 1
    assert apart.sessions.check() == []
    assert apart.one.undo() == "The last straw."


def test_who_leaves_a_session_without_a_word_takes_it_from_nobody(stage: Stage) -> None:
    one, two, three = (stage.agent(session_id="s1") for _ in range(3))
    one.close()
    assert stage.memory.sessions.get_session("s1") is None
    assert two.run_turn("Hello.").problems == ()
    three.new()
    assert three.problems == ()
    two.close()
    (entry,) = stage.memory.sessions.list_sessions()
    assert (entry.session.id, entry.session.message_count, entry.session.end_reason) == ("s1", 2, "new")
    assert stage.memory.sessions.meta.system_prompt("s1") == two.prompt


def test_two_who_begin_a_session_at_once_send_the_same_prompt(stage: Stage) -> None:
    others: list[Agent] = []

    def in_between() -> float:
        if not others:
            others.append(stage.agent(session_id="s1", clock=lambda: 0.0))
        return 86400.0

    one = stage.agent(session_id="s1", clock=in_between)
    assert one.prompt == others[0].prompt == stage.memory.sessions.meta.system_prompt("s1") != ""


def test_who_leaves_a_session_that_another_begins_and_comes_back_sends_its_prompt(stage: Stage) -> None:
    others: list[Agent] = []

    def in_between() -> float:
        if not others:
            others.append(stage.agent(session_id="s1", clock=lambda: 0.0))
            others[0].close()  # nothing was said, so the session is not kept
        return 86400.0

    one = stage.agent(session_id="s1", clock=in_between)
    assert one.problems == ()
    others[0].run_turn("Hello.")
    assert stage.asked()[-1][0]["content"] == one.prompt == stage.memory.sessions.meta.system_prompt("s1")


def test_what_is_said_while_the_session_is_deleted_in_the_midst_of_a_summary_is_stored(stage: Stage) -> None:
    apart = Apart(stage)

    def reply(request: dict[str, Any]) -> Reply:
        if "tools" in request:
            return Reply(status=500)
        stage.memory.delete_session("s1")
        return Reply("They spoke of words.")

    stage.script(reply)
    result = apart.one.run_turn("The last straw.")
    assert (result.outcome, len(result.problems)) == ("failed", 1)  # the model's
    [hit] = apart.sessions.past.search('"last straw"')
    assert hit.session_id == result.session_id
    session = apart.sessions.get_session(result.session_id)
    assert session is not None
    assert (session.parent_id, session.relation) == ("", "")


def test_a_chat_whose_session_was_deleted_goes_on_and_is_stored(stage: Stage) -> None:
    agent = stage.agent(session_id="s1")
    agent.run_turn("Hello.")
    stage.memory.delete_session("s1")
    assert agent.run_turn("Still there?").problems == ()
    assert [m.content for m in stage.memory.sessions.get_messages("s1")] == ["Still there?", "Yes."]
    stage.memory.delete_session("s1")
    agent.reset()
    assert agent.problems == ()
