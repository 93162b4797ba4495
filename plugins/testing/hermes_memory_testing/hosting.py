"""Conformance tests of hosts: what an adapter of an agent framework promises, as a class of pytest tests.

An adapter's tests subclass `HostContract` and implement `agent`, with the framework's own scripted model:

    class TestAdapter(HostContract):
        def agent(self, memory):
            return MyFrameworkAgent(memory)
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core import Memory, MemoryProvider, open_memory
from hermes_memory_testing.hosted import (
    FENCE,
    Break,
    Call,
    Hang,
    HostedAgent,
    Ledger,
    RecordedRequest,
    Say,
    Step,
    example_of,
)
from hermes_memory_testing.run_checks import RECALLED, TOLD, RunChecks, require
from hermes_memory_testing.trust_checks import TrustChecks

__all__ = [
    "FENCE",
    "Break",
    "Call",
    "Hang",
    "HostContract",
    "HostedAgent",
    "Ledger",
    "RecordedRequest",
    "Say",
    "Step",
    "example_of",
]

# Seconds for a child process to start a framework and run one turn on a busy machine.
CHILD_TIMEOUT_S = 120.0


class HostContract(RunChecks, TrustChecks):
    """Promises of every host of memory. Subclass it in the tests of an adapter, and implement `agent`."""

    @contextlib.contextmanager
    def process(
        self, home: Path, provider: MemoryProvider | None = None
    ) -> Iterator[tuple[Memory, HostedAgent]]:
        """Yield memory and agent as a new process has them."""
        with open_memory(home, provider=provider if provider is not None else "") as memory:
            agent = self.agent(memory)
            try:
                yield memory, agent
            finally:
                agent.close()

    def test_a_run_is_stored_once_and_delivered(self, tmp_path: Path) -> None:
        ledger = Ledger()
        with self.process(tmp_path, ledger) as (memory, agent):
            answer = agent.run("The pot is blue.", session="c1", user="ann", script=[Say("Noted.")])
            assert memory.flush()
            assert answer == "Noted."
            assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("The pot is blue.", "Noted.")]
            assert memory.sessions.counts()["messages"] == 2
            assert memory.sessions.past.search("pot blue", everybody=True)

    def test_the_prompt_is_the_same_bytes_after_a_restart(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as (memory, agent):
            agent.run("Hello", session="c1", user="ann", script=[Say("Hi.")])
            first = agent.requests[-1].system
        with self.process(tmp_path) as (memory, agent):
            # What is written later stands in the prompt of the next session only.
            other = memory.conversation(platform=self._platform(memory), user_id="ann")
            other.change_memory("add", "user", "Keeps a tortoise")
            agent.run("Hello again", session="c1", user="ann", script=[Say("Hi.")])
            assert agent.requests[-1].system == first
            assert "tortoise" not in first

    def test_recall_is_in_the_current_request_only(self, tmp_path: Path) -> None:
        ledger = Ledger()
        with self.process(tmp_path, ledger) as (memory, agent):
            agent.run("The key is under the pot.", session="c1", user="ann", script=[Say("Noted.")])
            memory.flush()
            agent.run("Where is the key?", session="c2", user="ann", script=[Say("Under the pot.")])
            memory.flush()
            role, text = agent.requests[-1].messages[-1]
            assert role == "user"
            assert text.startswith("Where is the key?")
            assert FENCE in text
            assert "They said: The key is under the pot." in text

            agent.run("Thank you.", session="c2", user="ann", script=[Say("You're welcome.")])
            memory.flush()
            assert agent.requests[-1].text.count(FENCE) <= 1
            assert FENCE not in "".join(text for _, text in agent.requests[-1].messages[:-1])
            assert not self._stored(memory, FENCE)
            assert FENCE not in repr(ledger.turns)

    def test_tools_of_memory_are_offered_and_run(self, tmp_path: Path) -> None:
        ledger = Ledger()
        save = Call("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
        with self.process(tmp_path, ledger) as (memory, agent):
            agent.run("I live in Oslo.", session="c1", user="ann", script=[save, Say("Noted.")])
            memory.flush()
            assert {"memory", "session_search"} <= set(agent.requests[0].tools)
            role, text = agent.requests[-1].messages[-1]
            assert role == "tool"
            assert '"success": true' in text or '"success":true' in text
            owner = memory.conversation("c1", platform=self._platform(memory), user_id="ann")
            assert memory.curated.of(owner.session).entries("user") == ("Lives in Oslo.",)
            (turn,) = ledger.turns
            assert [message["role"] for message in turn.messages] == [
                "user",
                "assistant",
                "tool",
                "assistant",
            ]

    def test_a_failed_tool_is_marked_as_failed(self, tmp_path: Path) -> None:
        wrong = Call("memory", {"action": "remove", "target": "user", "old_text": "nothing"})
        with self.process(tmp_path) as (_, agent):
            agent.run("Forget that.", session="c1", user="ann", script=[wrong, Say("There is nothing.")])
            assert "error" in agent.requests[-1].messages[-1][1]
            if agent.failed_tools is not None:
                assert len(agent.failed_tools) == 1

    @pytest.mark.parametrize("steps", [0, 1])
    def test_an_interrupted_run_reaches_no_provider(self, tmp_path: Path, steps: int) -> None:
        ledger = Ledger()
        search = Call("session_search", {"query": "tea"})
        with self.process(tmp_path, ledger) as (memory, agent):
            with pytest.raises(BaseException):  # noqa: B017 - each framework raises an error of its own
                agent.run("Broken tea", session="c1", user="ann", script=[*[search] * steps, Break()])
            memory.flush()
            assert ledger.turns == []
            assert memory.sessions.past.search("Broken tea", everybody=True) == []

            agent.run("Whole tea", session="c1", user="ann", script=[Say("Here.")])
            memory.flush()
            assert [turn.user for turn in ledger.turns] == ["Whole tea"]

    def test_words_about_the_fence_stay(self, tmp_path: Path) -> None:
        ledger = Ledger()
        asked = f"What is {FENCE}tea</memory-context> for?"
        answer = f"The {FENCE} tag holds recall: {FENCE}such as this</memory-context>, you see."
        with self.process(tmp_path, ledger) as (memory, agent):
            agent.run(TOLD, session="c1", user="ann", script=[Say("Noted.")])
            memory.flush()
            assert agent.run(asked, session="c2", user="ann", script=[Say(answer)]) == answer
            assert agent.requests[-1].messages[-1][1].startswith(asked)
            memory.flush()
            assert (ledger.turns[-1].user, ledger.turns[-1].assistant) == (asked, answer)
            assert self._stored(memory, asked)
            assert self._stored(memory, answer)
            agent.run("Thanks.", session="c2", user="ann", script=[Say("Yes.")])
            assert answer in agent.requests[-1].text
            if "stream" not in agent.absent:
                pieces = [answer[:4], *(answer[at : at + 7] for at in range(4, len(answer), 7))]
                streamed = agent.stream("And now?", session="c3", user="ann", answer=pieces)
                assert streamed == answer

    def test_an_echoed_fence_is_not_stored(self, tmp_path: Path) -> None:
        ledger = Ledger()
        echo = f"Here: {FENCE}\n{RECALLED}\n</memory-context> Done."
        with self.process(tmp_path, ledger) as (memory, agent):
            agent.run(TOLD, session="c1", user="ann", script=[Say("Noted.")])
            memory.flush()
            agent.run("Hello", session="c2", user="ann", script=[Say(echo)])
            memory.flush()
            assert not self._stored(memory, RECALLED)
            assert RECALLED not in repr(ledger.turns)

    def test_two_users_at_once_are_apart(self, tmp_path: Path) -> None:
        with self.process(tmp_path, Ledger()) as (memory, agent):
            answers: dict[str, str] = {}

            def talk(user: str) -> None:
                for number in range(3):
                    script = [Say(f"answer {number} for {user}")]
                    answers[user] = agent.run(f"{user} says {number}", session="c1", user=user, script=script)

            threads = [threading.Thread(target=talk, args=(user,)) for user in ("ann", "bob")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(CHILD_TIMEOUT_S)
            assert answers == {"ann": "answer 2 for ann", "bob": "answer 2 for bob"}
            for user, other in (("ann", "bob"), ("bob", "ann")):
                chat = memory.conversation(
                    agent.session_id("c1", user), platform=self._platform(memory), user_id=user
                )
                text = "\n".join(message.content for message in chat.history())
                assert text.count(f"{user} says") == 3
                assert other not in text

    def test_a_paused_run_is_one_turn(self, tmp_path: Path) -> None:
        ledger = Ledger()
        save = Call("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
        with self.process(tmp_path, ledger) as (memory, agent):
            require(agent, "pause")
            paused = agent.pause("I live in Oslo.", session="c1", user="ann", call=save)
            memory.flush()
            assert ledger.turns == []
        with self.process(tmp_path, ledger) as (memory, agent):
            assert agent.resume(paused, session="c1", user="ann", script=[Say("Noted.")]) == "Noted."
            memory.flush()
            assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("I live in Oslo.", "Noted.")]

    def test_a_message_with_a_picture_is_a_turn(self, tmp_path: Path) -> None:
        ledger = Ledger()
        with self.process(tmp_path, ledger) as (memory, agent):
            require(agent, "run_with_image")
            agent.run_with_image("What is this?", session="c1", user="ann", script=[Say("A pot.")])
            memory.flush()
            (turn,) = ledger.turns
            assert turn.user.startswith("What is this?")
            assert turn.assistant == "A pot."

    def test_streamed_text_is_scrubbed(self, tmp_path: Path) -> None:
        pieces = ["Hi <memo", f"ry-context>{RECALLED}</memory", "-context> there."]
        with self.process(tmp_path, Ledger()) as (memory, agent):
            require(agent, "stream")
            agent.run(TOLD, session="c1", user="ann", script=[Say("Noted.")])
            memory.flush()
            shown = agent.stream("Hello", session="c2", user="ann", answer=pieces)
            assert RECALLED not in shown
            assert shown.startswith("Hi")
            assert not self._stored(memory, RECALLED)

    def test_a_process_killed_before_the_end_of_a_turn_leaves_no_half_turn(self, tmp_path: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        child = spawn.Process(target=_run_and_die, args=(type(self), tmp_path))
        child.start()
        child.join(CHILD_TIMEOUT_S)
        assert child.exitcode == -signal.SIGKILL

        ledger = Ledger()
        with self.process(tmp_path, ledger) as (memory, agent):
            memory.flush()
            assert ledger.turns == []
            assert memory.sessions.past.search("killed", everybody=True) == []
            agent.run("Alive again", session="c1", user="ann", script=[Say("Good.")])
            memory.flush()
            assert [turn.user for turn in ledger.turns] == ["Alive again"]


def _run_and_die(contract: type[HostContract], home: Path) -> None:
    """Run one turn in this process, and kill the process when the turn would be stored."""
    with open_memory(home, provider=Ledger()) as memory:

        def die(*_: object, **__: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        memory.sessions.append_turn = die  # type: ignore[method-assign, assignment]
        agent = contract().agent(memory)
        agent.run("Will be killed", session="c1", user="ann", script=[Say("Too late.")])
