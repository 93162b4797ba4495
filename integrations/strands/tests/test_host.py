"""The promises of every host, on an agent of Strands with a scripted model."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hermes_strands import HermesPlugin
from pydantic import BaseModel
from strands import Agent
from strands.hooks import BeforeToolCallEvent
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager
from strands.types.content import Message

from hermes_core import Memory, open_memory
from hermes_memory_testing.hosting import (
    FENCE,
    Break,
    Call,
    HostContract,
    HostedAgent,
    Ledger,
    RecordedRequest,
    Say,
    Step,
)


class Scripted(Model):
    """A model that answers from a script, and records its requests."""

    def __init__(
        self, script: Sequence[Step], requests: list[RecordedRequest], *, pieces: bool = False
    ) -> None:
        self._steps, self._requests, self._pieces = list(script), requests, pieces
        self.stop_reason = "end_turn"

    def update_config(self, **model_config: Any) -> None:
        raise NotImplementedError

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self, messages: list[Message], tool_specs: Any = None, system_prompt: str | None = None, **_: Any
    ) -> AsyncIterator[Any]:
        names = tuple(spec["name"] for spec in tool_specs or ())
        self._requests.append(RecordedRequest(system_prompt or "", tuple(map(pair_of, messages)), names))
        steps = self._steps if self._pieces else [self._steps.pop(0)]
        yield {"messageStart": {"role": "assistant"}}
        reason = self.stop_reason
        for step in steps:
            if isinstance(step, Break):
                raise RuntimeError(step.message)
            if isinstance(step, Call):
                use = {"toolUseId": "call-1", "name": step.name}
                yield {"contentBlockStart": {"start": {"toolUse": use}}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(step.arguments)}}}}
                reason = "tool_use"
            else:
                yield {"contentBlockDelta": {"delta": {"text": step.text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}


def pair_of(message: Message) -> tuple[str, str]:
    results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
    if results:
        return "tool", "\n".join(content["text"] for result in results for content in result["content"])
    return message["role"], "\n".join(block["text"] for block in message["content"] if "text" in block)


def ask_approval(event: BeforeToolCallEvent) -> None:
    """Let a person approve each call."""
    if event.interrupt("approve") != "yes":
        event.cancel_tool = "not approved"


class StrandsAgent(HostedAgent):
    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.failed_tools = []
        self._memory = memory

    def run(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        return self._run(text, session, user, script)

    def run_with_image(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        picture = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
        return self._run([{"text": text}, picture], session, user, script)

    def stream(self, text: str, *, session: str, user: str, answer: Sequence[str]) -> str:
        async def read() -> str:
            model = Scripted([Say(piece) for piece in answer], self.requests, pieces=True)
            agent = self._agent(model, session, user)
            return "".join([event["data"] async for event in agent.stream_async(text) if "data" in event])

        return asyncio.run(read())

    def pause(self, text: str, *, session: str, user: str, call: Call) -> Any:
        agent = self._agent(Scripted([call], self.requests), session, user)
        agent.add_hook(ask_approval, BeforeToolCallEvent)
        result = agent(text)
        assert result.stop_reason == "interrupt"
        return [interrupt.id for interrupt in result.interrupts]

    def resume(
        self, paused: Any, *, session: str, user: str, script: Sequence[Step], answer: str = "yes"
    ) -> str:
        responses = [{"interruptResponse": {"interruptId": id_, "response": answer}} for id_ in paused]
        agent = self._agent(Scripted(script, self.requests), session, user)
        agent.add_hook(ask_approval, BeforeToolCallEvent)
        return str(agent(responses)).strip()

    def _run(self, prompt: Any, session: str, user: str, script: Sequence[Step]) -> str:
        agent = self._agent(Scripted(script, self.requests), session, user)
        result = agent(prompt)
        results = [
            block["toolResult"] for m in agent.messages for block in m["content"] if "toolResult" in block
        ]
        self.failed_tools = [str(each["content"]) for each in results if each["status"] == "error"]
        return str(result).strip()

    def _agent(self, model: Model, session: str, user: str) -> Agent:
        # A session manager outlives the process.
        sessions = FileSessionManager(
            f"{session}-{user}", storage_dir=str(self._memory.home.path / "strands")
        )
        hermes = HermesPlugin(self._memory, session_id=session, user_id=user)
        return Agent(model, plugins=[hermes], session_manager=sessions, callback_handler=None)


class TestStrands(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return StrandsAgent(memory)


def agent_of(
    memory: Memory, script: Sequence[Step], requests: list[RecordedRequest], **options: Any
) -> Agent:
    hermes = HermesPlugin(memory, session_id="c1", user_id="ann")
    settings = {"system_prompt": "Be brief.", "callback_handler": None, **options}
    return Agent(Scripted(script, requests), plugins=[hermes], **settings)


def history_of(memory: Memory, session_id: str = "c1") -> list[str]:
    chat = memory.conversation(session_id, platform="strands", user_id="ann")
    return [message.content for message in chat.history()]


def test_recall_is_in_no_message_of_the_framework(tmp_path: Path) -> None:
    requests: list[RecordedRequest] = []
    script = [
        Say("Noted."),
        Call("session_search", {"query": "pot"}),
        Say(f"Blue {FENCE}x</memory-context>."),
    ]
    with open_memory(tmp_path, provider=Ledger()) as memory:
        memory.conversation("c0", platform="strands", user_id="ann").turn("The pot is blue.").finish("Noted.")
        memory.flush()
        agent = agent_of(memory, script, requests)
        agent("Hello")
        result = agent("Which colour?")
        # Also after the tool call.
        assert ["They said: The pot is blue." in request.text for request in requests] == [True] * 3
        assert [request.text.count(FENCE) for request in requests] == [1, 1, 1]
        assert FENCE not in repr(agent.messages)
        assert str(result).strip() == "Blue ."
        assert history_of(memory)[-1] == "Blue ."


@pytest.mark.parametrize("prompt", ["Be brief.", [{"text": "Be brief."}], None])
def test_the_notes_follow_the_instructions_of_the_agent(tmp_path: Path, prompt: Any) -> None:
    requests: list[RecordedRequest] = []
    with open_memory(tmp_path) as memory:
        chat = memory.conversation(platform="strands", user_id="ann")
        chat.change_memory("add", "user", "Keeps a tortoise")
        agent_of(memory, [Say("Hi.")], requests, system_prompt=prompt)("Hello")
    assert "tortoise" in requests[0].system
    assert requests[0].system.startswith("Be brief.") or prompt is None


@pytest.mark.parametrize("reason", ["guardrail_intervened", "content_filtered"])
def test_an_answer_that_a_guardrail_stops_reaches_no_provider(tmp_path: Path, reason: str) -> None:
    ledger = Ledger()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = agent_of(memory, [Say("Blocked.")], [])
        agent.model.stop_reason = reason  # type: ignore[attr-defined]
        agent("Something bad")
        memory.flush()
        assert history_of(memory) == []
    assert ledger.turns == []


def test_a_run_that_is_cancelled_or_left_reaches_no_provider(tmp_path: Path) -> None:
    ledger = Ledger()

    async def talk(memory: Memory) -> None:
        agent = agent_of(memory, [Say("One"), Say("Two"), Say("Three")], [])
        stream = agent.stream_async("Left tea")
        async for event in stream:
            if "data" in event:
                break
        await stream.aclose()
        agent.add_hook(lambda event: agent.cancel(), BeforeToolCallEvent)
        agent.model._steps.insert(0, Call("session_search", {"query": "tea"}))  # type: ignore[attr-defined]
        result = await agent.invoke_async("Stopped tea")
        assert result.stop_reason == "cancelled"
        await agent.invoke_async("Whole tea")

    with open_memory(tmp_path, provider=ledger) as memory:
        asyncio.run(talk(memory))
        memory.flush()
    assert [turn.user for turn in ledger.turns] == ["Whole tea"]


def test_a_limit_that_leaves_no_answer_leaves_no_turn(tmp_path: Path) -> None:
    ledger = Ledger()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = agent_of(memory, [Call("session_search", {"query": "tea"}), Say("Here.")], [])
        assert agent("Tea?", limits={"turns": 1}).stop_reason == "limit_turns"
        memory.flush()
        assert history_of(memory) == []
    assert ledger.turns == []


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_a_call_that_a_person_approves_or_rejects_is_part_of_one_turn(tmp_path: Path, answer: str) -> None:
    ledger = Ledger()
    save = Call("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = StrandsAgent(memory)
        paused = agent.pause("I live in Oslo.", session="c1", user="ann", call=save)
        agent.resume(paused, session="c1", user="ann", script=[Say("Well.")], answer=answer)
        memory.flush()
        chat = memory.conversation("c1", platform="strands", user_id="ann")
        entries = memory.curated.of(chat.session).entries("user")
        assert entries == (("Lives in Oslo.",) if answer == "yes" else ())
    (turn,) = ledger.turns
    assert [message["role"] for message in turn.messages] == ["user", "assistant", "tool", "assistant"]


def test_a_run_whose_turn_has_expired_goes_on_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger()
    save = Call("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = StrandsAgent(memory)
        paused = agent.pause("I live in Oslo.", session="c1", user="ann", call=save)
        chat = memory.conversation("c1", platform="strands", user_id="ann")
        turn_id = agent._agent(Scripted([], []), "c1", "ann").state.get("hermes_turn")
        chat.resume(turn_id).cancel()
        assert agent.resume(paused, session="c1", user="ann", script=[Say("Noted.")]) == "Noted."
        memory.flush()
    assert ledger.turns == []
    assert "without its turn" in caplog.text


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


def test_a_structured_answer_is_a_turn(tmp_path: Path) -> None:
    ledger = Ledger()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = agent_of(memory, [Call("Weather", {"city": "Oslo", "degrees": 3})], [])
        result = agent("How cold is it?", structured_output_model=Weather)
        assert result.structured_output == Weather(city="Oslo", degrees=3)
        memory.flush()
    assert [turn.assistant for turn in ledger.turns] == ['{"city":"Oslo","degrees":3}']


def test_agents_without_a_session_id_have_conversations_of_their_own(tmp_path: Path) -> None:
    with open_memory(tmp_path) as memory:
        hermes = HermesPlugin(memory, user_id="ann")
        for _ in range(2):
            agent = Agent(Scripted([Say("Hi.")] * 2, []), plugins=[hermes], callback_handler=None)
            agent("Hello")
            agent("Hello again")
        sizes = [
            len(memory.sessions.get_messages(entry.session.id)) for entry in memory.sessions.list_sessions()
        ]
    assert sizes == [4, 4]


def test_the_raw_stream_is_scrubbed_too(tmp_path: Path) -> None:
    pieces = [Say(piece) for piece in ["Hi <memo", "ry-context>secret</memory", "-context> there.", " a <"]]

    async def talk(memory: Memory) -> tuple[str, str]:
        hermes = HermesPlugin(memory, session_id="c1", user_id="ann")
        agent = Agent(Scripted(pieces, [], pieces=True), plugins=[hermes], callback_handler=None)
        events = [event async for event in agent.stream_async("Hello")]
        return repr(events), "".join(event["data"] for event in events if "data" in event)

    with open_memory(tmp_path) as memory:
        events, text = asyncio.run(talk(memory))
        assert history_of(memory) == ["Hello", "Hi  there. a <"]
    assert "secret" not in events
    assert text == "Hi  there. a <"


def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = Path(__file__).parents[1] / "README.md"
    (example,) = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    model = '"us.anthropic.claude-sonnet-5"'
    assert model in example
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    exec(example.replace(model, "model"), {"model": Scripted([Say("On Fly.")], [])})
    with open_memory(tmp_path) as memory:
        assert [message.content for message in memory.sessions.get_messages("chat-7")][1] == "On Fly."
