"""Conformance tests of hosts: a note stands in a system prompt only if its run ended well and read nothing foreign."""

from __future__ import annotations

import abc
import contextlib
from pathlib import Path

import pytest

from hermes_core import Memory, MemoryProvider
from hermes_memory_testing.hosted import Break, Call, HostedAgent, Say
from hermes_memory_testing.run_checks import require

# Nobody says this sentence. A model that read nothing may conclude it.
NOTE = "Invoices of the office are paid on Mondays"
SAVE = Call("memory", {"action": "add", "target": "memory", "content": NOTE})


class TrustChecks(abc.ABC):
    """The part of `HostContract` about what a later system prompt says."""

    @abc.abstractmethod
    def process(
        self, home: Path, provider: MemoryProvider | None = None
    ) -> contextlib.AbstractContextManager[tuple[Memory, HostedAgent]]:
        """Yield memory and agent as a new process has them."""

    @abc.abstractmethod
    def _platform(self, memory: Memory) -> str:
        """Return the platform under which the adapter stores its sessions."""

    @staticmethod
    @abc.abstractmethod
    def _stored(memory: Memory, text: str) -> bool:
        """Return True if `text` stands in a message of any session."""

    def test_a_note_of_a_run_that_read_nothing_is_in_later_prompts(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as (memory, agent):
            agent.run("When are they paid?", session="c1", user="ann", script=[SAVE, Say("Noted.")])
            assert self._is_in_a_prompt(memory)

    def test_a_note_of_a_later_run_is_in_later_prompts(self, tmp_path: Path) -> None:
        office = Call("memory", {"action": "add", "target": "memory", "content": "The office is in Oslo"})
        with self.process(tmp_path) as (memory, agent):
            agent.run("Hello", session="c1", user="ann", script=[Say("Hi.")])
            agent.run("Where is it?", session="c1", user="ann", script=[office, Say("In Oslo.")])
        with self.process(tmp_path) as (memory, agent):
            agent.run("When are they paid?", session="c1", user="ann", script=[SAVE, Say("Noted.")])
            assert self._is_in_a_prompt(memory)

    def test_a_note_of_a_failed_run_waits(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as (memory, agent):
            agent.run("Hello", session="c0", user="ann", script=[Say("Hi.")])
            with contextlib.suppress(BaseException):  # each framework raises an error of its own
                agent.run("When are they paid?", session="c1", user="ann", script=[SAVE, Break()])
            self._assert_waits(memory)
            agent.run("Hello", session="c2", user="ann", script=[Say("Hi.")])
            self._assert_waits(memory)
        with self.process(tmp_path) as (memory, agent):
            agent.run("Hello", session="c3", user="ann", script=[Say("Hi.")])
            assert NOTE not in agent.requests[-1].system

    def test_a_note_of_a_cancelled_run_waits(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as (memory, agent):
            require(agent, "run_cancelled")
            agent.run("Hello", session="c0", user="ann", script=[Say("Hi.")])
            agent.run_cancelled("When are they paid?", session="c1", user="ann", script=[SAVE])
            self._assert_waits(memory)
            agent.run("Hello", session="c1", user="ann", script=[Say("Hi.")])
            self._assert_waits(memory)

    def test_a_note_of_a_run_that_nobody_approves_waits(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as (memory, agent):
            require(agent, "pause")
            search = Call("session_search", {"query": "invoices"})
            agent.pause("When are they paid?", session="c1", user="ann", call=search, before=[SAVE])
            agent.run("Hello", session="c2", user="ann", script=[Say("Hi.")])
            self._assert_waits(memory)
        with self.process(tmp_path) as (memory, agent):
            agent.run("Hello", session="c3", user="ann", script=[Say("Hi.")])
            self._assert_waits(memory)

    def test_a_note_of_a_run_after_a_late_result_waits(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as (memory, agent):
            require(agent, "run_late_result")
            agent.run_late_result(
                f"{NOTE}, the office writes.",
                "Go on.",
                session="c1",
                user="ann",
                script=[SAVE, Say("Noted.")],
            )
            self._assert_waits(memory)

    def test_a_note_of_a_run_with_the_message_of_another_agent_waits(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as (memory, agent):
            require(agent, "run_with_colleague")
            agent.run_with_colleague(
                f"{NOTE}.", "Go on.", session="c1", user="ann", script=[SAVE, Say("Noted.")]
            )
            self._assert_waits(memory)

    def test_a_note_of_an_agent_that_another_agent_asks_waits(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as (memory, agent):
            require(agent, "run_nested")
            agent.run("Hello", session="c0", user="ann", script=[Say("Hi.")])
            agent.run_nested(
                "Go on.",
                session="c1",
                user="ann",
                question=f"{NOTE}.",
                answer="Done.",
                inner=[SAVE, Say("Noted.")],
            )
            self._assert_waits(memory)

    def test_a_note_of_a_run_with_an_attachment_waits(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as (memory, agent):
            require(agent, "run_with_image")
            agent.run_with_image("What is this?", session="c1", user="ann", script=[SAVE, Say("An invoice.")])
            self._assert_waits(memory)
            # The picture is still in the conversation.
            other = Call("memory", {**SAVE.arguments, "content": "The office is in Oslo"})
            agent.run("Go on.", session="c1", user="ann", script=[other, Say("Noted.")])
            assert not self._is_in_a_prompt(memory, "Oslo")

    @pytest.mark.parametrize("cites", [False, True])
    def test_a_note_of_a_run_whose_model_searched_waits(self, tmp_path: Path, cites: bool) -> None:
        with self.process(tmp_path) as (memory, agent):
            require(agent, "run_searched")
            answer = agent.run_searched(
                "When are they paid?", session="c1", user="ann", script=[SAVE, Say("Noted.")], cites=cites
            )
            assert answer == "Noted."
            assert self._stored(memory, "Noted.")
            self._assert_waits(memory)

    def test_a_note_of_a_run_with_a_history_of_its_own_waits(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as (memory, agent):
            require(agent, "run_with_history")
            agent.run_with_history(
                f"{NOTE}, the letter says.", "Go on.", session="c1", user="ann", script=[SAVE, Say("Noted.")]
            )
            self._assert_waits(memory)

    def _assert_waits(self, memory: Memory) -> None:
        chat = memory.conversation(platform=self._platform(memory), user_id="ann")
        notes = memory.curated.of(memory.session(chat.session)).read()
        assert NOTE in [note.entry for note in notes.waiting_notes()]
        assert not self._is_in_a_prompt(memory)

    def _is_in_a_prompt(self, memory: Memory, text: str = NOTE) -> bool:
        return text in memory.conversation(platform=self._platform(memory), user_id="ann").system_prompt
