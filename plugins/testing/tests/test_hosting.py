"""The conformance tests of hosts, on a host with a loop of its own, and on hosts that break a promise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from hermes_core import Memory
from hermes_core.conversation import OpenTurn
from hermes_memory_testing.hosting import Break, Call, HostContract, HostedAgent, RecordedRequest, Say, Step


class PlainAgent(HostedAgent):
    """A loop on `OpenTurn`, as docs/how-to/embed.md shows it."""

    absent: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("run_structured", "run_blocks", "run_blocked", "run_two_agents", "run_summarised"),
        "a plain loop has no such thing",
    )

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory
        self.failed_tools = []

    def run(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        turn = self._chat(session, user).turn(text)
        try:
            return self._answer(turn, script)
        except RuntimeError:
            turn.cancel()
            raise

    def run_with_image(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        parts = [
            {"type": "text", "text": text},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
        ]
        return self._answer(self._chat(session, user).turn(parts), script)

    def run_searched(
        self, text: str, *, session: str, user: str, script: Sequence[Step], cites: bool = False
    ) -> str:
        turn = self._chat(session, user).turn(text)
        if not cites:
            turn.add({"type": "web_search_call", "id": "ws_1", "status": "completed"})
            return self._answer(turn, script)
        *calls, last = script
        for call in calls:
            assert isinstance(call, Call)
            self._call(turn, call)
        assert isinstance(last, Say)
        cited = {"type": "text", "text": last.text, "annotations": [{"type": "url_citation"}]}
        return turn.finish({"role": "assistant", "content": [cited]}).assistant

    def run_with_history(
        self, history: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        turn = self._chat(session, user).turn(text)
        turn.note_history({"role": "user", "content": history}, {"role": "assistant", "content": "Yes."})
        return self._answer(turn, script)

    def run_with_colleague(
        self, message: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        turn = self._chat(session, user).turn(text)
        turn.add({"role": "assistant", "name": "researcher", "content": message})
        return self._answer(turn, script)

    def run_late_result(
        self, result: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        self.run("Order tea.", session=session, user=user, script=[Say("It is on its way.")])
        turn = self._chat(session, user).turn(text)
        turn.add({"role": "tool", "tool_call_id": "order", "content": result})
        return self._answer(turn, script)

    def run_cancelled(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> None:
        turn = self._chat(session, user).turn(text)
        for call in script:
            assert isinstance(call, Call)
            self._call(turn, call)
        turn.cancel()

    def run_nested(
        self,
        text: str,
        *,
        session: str,
        user: str,
        question: str,
        answer: str,
        inner: Sequence[Step] = (Say("Oslo."),),
    ) -> str:
        turn = self._chat(session, user).turn(text)
        asks = {"id": "a", "type": "function", "function": {"name": "ask", "arguments": question}}
        turn.add({"role": "assistant", "content": "", "tool_calls": [asks]})
        for step in inner:
            if isinstance(step, Call):
                turn.call_tool(step.name, step.arguments)
            else:
                assert isinstance(step, Say)
                turn.add({"role": "tool", "tool_call_id": "a", "content": step.text})
        return turn.finish(answer).assistant

    def stream(self, text: str, *, session: str, user: str, answer: Sequence[str]) -> str:
        turn = self._chat(session, user).turn(text)
        shown = "".join(turn.scrub(piece) for piece in answer) + turn.scrub("", end=True)
        turn.finish("".join(answer))
        return shown

    def pause(self, text: str, *, session: str, user: str, call: Call, before: Sequence[Step] = ()) -> str:
        turn = self._chat(session, user).turn(text)
        for step in before:
            assert isinstance(step, Call)
            self._call(turn, step)
        self._call(turn, call, answer=False)
        return turn.id

    def resume(self, paused: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        turn = self._chat(session, user).resume(paused)
        function = turn.messages[-1]["tool_calls"][0]["function"]
        result = turn.call_tool(function["name"], function["arguments"])
        turn.add({"role": "tool", "tool_call_id": "c", "content": result.text})
        return self._answer(turn, script)

    def run_retried(self, text: str, *, session: str, user: str, answer: str) -> str:
        with contextlib.suppress(RuntimeError):
            self.run(text, session=session, user=user, script=[Break()])
        return self.run(text, session=session, user=user, script=[Say(answer)])

    def regenerate(self, *, session: str, user: str, answer: str) -> str:
        chat = self._chat(session, user)
        asked = [message.content for message in chat.history() if message.role == "user"][-1]
        chat.rewind()
        return self.run(asked, session=session, user=user, script=[Say(answer)])

    def _chat(self, session: str, user: str):  # type: ignore[no-untyped-def]
        return self._memory.conversation(session, platform="plain", user_id=user)

    def _answer(self, turn: OpenTurn, script: Sequence[Step]) -> str:
        for step in script:
            messages = turn.messages
            system = [message["content"] for message in messages if message["role"] == "system"]
            said = [(m["role"], text_of(m["content"])) for m in messages if m["role"] != "system"]
            tools = tuple(tool["name"] for tool in turn.tools("plain"))
            self.requests.append(RecordedRequest("".join(system), tuple(said), tools))
            if isinstance(step, Break):
                raise RuntimeError(step.message)
            if isinstance(step, Say):
                with self._memory.problem_log.tolerate("the last turn", Exception):
                    turn.finish(step.text)
                return step.text
            self._call(turn, step)
        raise AssertionError("the script has no answer")

    def _call(self, turn: OpenTurn, call: Call, *, answer: bool = True) -> None:
        function = {"name": call.name, "arguments": call.arguments}
        asks = [{"id": "c", "type": "function", "function": function}]
        turn.add({"role": "assistant", "content": "", "tool_calls": asks})
        if answer:
            result = turn.call_tool(call.name, call.arguments, "c")
            turn.add({"role": "tool", "tool_call_id": "c", "content": result.text})
            if not result.ok:
                self.failed_tools = [*(self.failed_tools or ()), result.text]


def text_of(content: object) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return str(content)


class TestPlainHost(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return PlainAgent(memory)


class Careless(PlainAgent):
    """A host that builds the prompt anew in each process, runs no tools and stores broken runs."""

    forgets_user = False

    def run(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        chosen = self._memory.start_session(
            session, platform="plain", user_id="" if self.forgets_user else user
        )
        recalled = self._memory.begin_turn(chosen, text)
        system = f"{self._memory.system_prompt(chosen)}\nProcess {id(self._memory)}"
        self.requests.append(RecordedRequest(system, (("user", recalled.inject(text)),), ()))
        step = script[-1]
        answer = step.text if isinstance(step, Say) else ""
        self._memory.end_turn(chosen, text, answer)
        if isinstance(step, Break):
            raise RuntimeError(step.message)
        return answer


class Forgetful(Careless):
    """A host that also forgets who the user is."""

    forgets_user = True


class CarelessContract(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return Careless(memory)


class ForgetfulContract(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return Forgetful(memory)


@pytest.mark.parametrize(
    ("contract", "test"),
    [
        (CarelessContract, HostContract.test_the_prompt_is_the_same_bytes_after_a_restart),
        (CarelessContract, HostContract.test_tools_of_memory_are_offered_and_run),
        (CarelessContract, lambda each, home: each.test_an_interrupted_run_reaches_no_provider(home, 0)),
        (ForgetfulContract, HostContract.test_two_users_at_once_are_apart),
    ],
)
def test_a_host_that_breaks_a_promise_fails(
    tmp_path: Path, contract: type[HostContract], test: Callable[..., None]
) -> None:
    with pytest.raises((AssertionError, ValueError)):
        test(contract(), tmp_path)
