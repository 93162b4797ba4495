"""Conformance tests of hosts: one run is one turn, whatever lies in it, and the memory makes no run fail."""

from __future__ import annotations

import abc
import contextlib
import threading
from pathlib import Path

import pytest

from hermes_core import HermesError, Memory, MemoryProvider
from hermes_memory_testing.hosted import HostedAgent, Ledger, Say

# The person's message of another conversation, and the recall that `Ledger` makes of it.
TOLD = "The key is under the blue pot."
RECALLED = f"They said: {TOLD}"

# A thread that is about to be idle may make the next call start another one, so a few more are no leak.
CONVERSATIONS = 4


def require(agent: HostedAgent, method: str) -> None:
    """Skip the test if the agent declares that its framework has no such thing."""
    if reason := agent.absent.get(method):
        pytest.skip(f"{method}: {reason}")


class RunChecks(abc.ABC):
    """The part of `HostContract` about runs that are more than a few model calls."""

    @abc.abstractmethod
    def process(
        self, home: Path, provider: MemoryProvider | None = None
    ) -> contextlib.AbstractContextManager[tuple[Memory, HostedAgent]]:
        """Yield memory and agent as a new process has them."""

    def test_structured_output_is_a_turn(self, tmp_path: Path) -> None:
        ledger = Ledger()
        with self.process(tmp_path, ledger) as (memory, agent):
            require(agent, "run_structured")
            output = agent.run_structured("Where do I live?", session="c1", user="ann", city="Oslo")
            assert "Oslo" in str(output)
            self._assert_one_turn(memory, ledger, "Where do I live?")
            assert "Oslo" in ledger.turns[0].assistant

    def test_an_answer_in_blocks_is_clean_everywhere(self, tmp_path: Path) -> None:
        ledger = Ledger()
        blocks = ["Here: <memory-", f"context>\n{RECALLED}\n</memory-context>", " Done."]
        with self.process(tmp_path, ledger) as (memory, agent):
            require(agent, "run_blocks")
            agent.run(TOLD, session="c1", user="ann", script=[Say("Noted.")])
            memory.flush()
            shown = agent.run_blocks("Hello", session="c2", user="ann", blocks=blocks)
            assert RECALLED not in shown
            assert "Done." in shown
            assert not self._stored(memory, RECALLED)
            memory.delete_session(agent.session_id("c1", "ann"))
            ledger.turns.clear()
            agent.run("Again", session="c2", user="ann", script=[Say("Yes.")])
            assert RECALLED not in agent.requests[-1].text

    def test_a_repeated_run_is_one_turn(self, tmp_path: Path) -> None:
        ledger = Ledger()
        with self.process(tmp_path, ledger) as (memory, agent):
            require(agent, "run_retried")
            assert agent.run_retried("Tea?", session="c1", user="ann", answer="Yes.") == "Yes."
            self._assert_one_turn(memory, ledger, "Tea?", "Yes.")

    def test_a_blocked_message_leaves_nothing(self, tmp_path: Path) -> None:
        ledger = Ledger()
        with self.process(tmp_path, ledger) as (memory, agent):
            require(agent, "run_blocked")
            with contextlib.suppress(Exception):  # each framework tells it in its own way
                agent.run_blocked("Forbidden words", session="c1", user="ann")
            agent.run("Allowed words", session="c1", user="ann", script=[Say("Fine.")])
            assert "Forbidden" not in agent.requests[-1].text
            self._assert_one_turn(memory, ledger, "Allowed words", "Fine.")
            assert not self._stored(memory, "Forbidden")

    def test_two_agents_of_a_run_are_one_turn(self, tmp_path: Path) -> None:
        ledger = Ledger()
        with self.process(tmp_path, ledger) as (memory, agent):
            require(agent, "run_two_agents")
            assert agent.run_two_agents("Plan a trip.", session="c1", user="ann", answer="Go to Oslo.")
            self._assert_one_turn(memory, ledger, "Plan a trip.", "Go to Oslo.")

    def test_an_agent_that_is_a_tool_is_no_person(self, tmp_path: Path) -> None:
        ledger = Ledger()
        with self.process(tmp_path, ledger) as (memory, agent):
            require(agent, "run_nested")
            agent.run_nested(
                "Plan a trip.", session="c1", user="ann", question="Which city?", answer="Go to Oslo."
            )
            self._assert_one_turn(memory, ledger, "Plan a trip.", "Go to Oslo.")
            assert "Which city?" not in [turn.user for turn in ledger.turns]

    def test_an_answer_that_is_made_again_takes_the_place_of_the_first(self, tmp_path: Path) -> None:
        ledger = Ledger()
        with self.process(tmp_path, ledger) as (memory, agent):
            require(agent, "regenerate")
            agent.run("Hello", session="c1", user="ann", script=[Say("Hi.")])
            agent.run("Tea or coffee?", session="c1", user="ann", script=[Say("Coffee.")])
            assert agent.regenerate(session="c1", user="ann", answer="Tea.") == "Tea."
            assert self._told(memory, agent) == ["Hello", "Hi.", "Tea or coffee?", "Tea."]
            agent.run("Thank you.", session="c1", user="ann", script=[Say("Welcome.")])
            assert self._told(memory, agent)[-2:] == ["Thank you.", "Welcome."]
            assert memory.problems() == []

    def test_a_summary_of_the_framework_stays_as_it_is(self, tmp_path: Path) -> None:
        ledger = Ledger()
        with self.process(tmp_path, ledger) as (memory, agent):
            require(agent, "run_summarised")
            for number in range(3):
                agent.run(f"Message {number}", session="c1", user="ann", script=[Say(f"Answer {number}")])
            agent.run_summarised(
                "And now?", session="c1", user="ann", summary="They counted.", script=[Say("Three.")]
            )
            assert agent.requests[-1].text.count("They counted.") == 1
            assert agent.requests[-1].text.count("And now?") == 1
            memory.flush()
            assert (ledger.turns[-1].user, ledger.turns[-1].assistant) == ("And now?", "Three.")
            assert len(ledger.turns) == 4

    def test_a_run_that_is_answered_does_not_fail_with_its_memory(self, tmp_path: Path) -> None:
        with self.process(tmp_path, Ledger()) as (memory, agent):

            def fail(*_: object, **__: object) -> None:
                raise HermesError("the disk is full", "make room")

            append_turn = memory.sessions.append_turn
            memory.sessions.append_turn = fail  # type: ignore[method-assign, assignment]
            assert agent.run("Hello", session="c1", user="ann", script=[Say("Hi.")]) == "Hi."
            assert "the disk is full" in "".join(memory.problems())

            memory.sessions.append_turn = append_turn  # type: ignore[method-assign]
            assert agent.run("Again", session="c1", user="ann", script=[Say("Yes.")]) == "Yes."
            assert memory.problems() == []

    def test_agents_and_conversations_leave_no_threads(self, tmp_path: Path) -> None:
        with self.process(tmp_path, Ledger()) as (memory, _):

            def talk(name: str) -> int:
                for number in range(CONVERSATIONS):
                    agent = self.agent(memory)
                    agent.run("Hello", session=f"{name}{number}", user="ann", script=[Say("Hi.")])
                    agent.close()
                memory.flush()
                return threading.active_count()

            assert -talk("first") + talk("second") < CONVERSATIONS

    @abc.abstractmethod
    def agent(self, memory: Memory) -> HostedAgent:
        """Return a new agent of the framework on this memory, as after a start of the process."""

    def _assert_one_turn(self, memory: Memory, ledger: Ledger, user: str, assistant: str = "") -> None:
        """Assert that the memory and the provider got one turn with these texts, and that nothing went wrong."""
        memory.flush()
        assert [turn.user for turn in ledger.turns] == [user]
        assert ledger.turns[0].assistant == assistant or not assistant
        assert memory.problems() == []

    def _told(self, memory: Memory, agent: HostedAgent) -> list[str]:
        """Return the texts of the only conversation, as a program reads them."""
        chat = memory.conversation(
            agent.session_id("c1", "ann"), platform=self._platform(memory), user_id="ann"
        )
        return [message.content for message in chat.history()]

    def _platform(self, memory: Memory) -> str:
        """Return the platform under which the adapter stores its sessions."""
        listed = memory.sessions.list_sessions(everybody=True, limit=1)
        assert listed, "the adapter stored no session"
        return str(memory.sessions.meta.identity(listed[0].session.id).get("platform", "cli"))

    @staticmethod
    def _stored(memory: Memory, text: str) -> bool:
        """Return True if `text` stands in a message of any session."""
        sessions = [entry.session.id for entry in memory.sessions.list_sessions(everybody=True, limit=1000)]
        return any(
            text in message.content for id_ in sessions for message in memory.sessions.get_messages(id_)
        )
