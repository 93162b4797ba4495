"""The conformance tests of hosts, on a host with a loop of its own, and on hosts that break a promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hermes_core import Memory
from hermes_core.conversation import OpenTurn
from hermes_memory_testing.hosting import Break, Call, HostContract, HostedAgent, RecordedRequest, Say, Step


class PlainAgent(HostedAgent):
    """A loop on `OpenTurn`, as docs/how-to/embed.md shows it."""

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

    def stream(self, text: str, *, session: str, user: str, answer: Sequence[str]) -> str:
        turn = self._chat(session, user).turn(text)
        shown = "".join(turn.scrub(piece) for piece in answer) + turn.scrub("", end=True)
        turn.finish("".join(answer))
        return shown

    def pause(self, text: str, *, session: str, user: str, call: Call) -> str:
        turn = self._chat(session, user).turn(text)
        self._call(turn, call, answer=False)
        return turn.id

    def resume(self, paused: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        turn = self._chat(session, user).resume(paused)
        function = turn.messages[-1]["tool_calls"][0]["function"]
        result = turn.call_tool(function["name"], function["arguments"])
        turn.add({"role": "tool", "tool_call_id": "c", "content": result.text})
        return self._answer(turn, script)

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
        system = self._memory.system_prompt(chosen)
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
