"""The promises of every host, on an agent of Strands with a scripted model."""

from __future__ import annotations

import asyncio
import gc
import json
import struct
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hermes_strands import HermesPlugin
from pydantic import BaseModel
from strands import Agent
from strands.agent.conversation_manager import SummarizingConversationManager
from strands.hooks import AfterModelCallEvent, BeforeToolCallEvent
from strands.models import Model
from strands.multiagent import GraphBuilder
from strands.session.file_session_manager import FileSessionManager
from strands.types.content import Message
from strands.types.exceptions import ContextWindowOverflowException

from hermes_core import Memory, open_memory
from hermes_memory_testing.hosting import (
    FENCE,
    Break,
    Call,
    Hang,
    HostContract,
    HostedAgent,
    Ledger,
    RecordedRequest,
    Say,
    Step,
    example_of,
)

REFUSAL = Say("I can't say that.")
ERRORS: dict[str, type[Exception]] = {"the request is too long": ContextWindowOverflowException}


@dataclass(frozen=True)
class Cited:
    """A text of the model with a citation."""

    text: str


class Scripted(Model):
    """A model that answers from a script, and records its requests."""

    def __init__(
        self, script: Sequence[Step], requests: list[RecordedRequest], *, pieces: bool = False
    ) -> None:
        self._steps, self._requests, self._pieces = list(script), requests, pieces
        self.stop_reason = "end_turn"
        self.settings: dict[str, Any] = {}

    def update_config(self, **model_config: Any) -> None:
        raise NotImplementedError

    def get_config(self) -> Any:
        return self.settings

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
            if isinstance(step, Hang):
                await step.answer()
            if isinstance(step, Cited):
                yield {"contentBlockDelta": {"delta": {"citation": {"title": "Office"}}}}
                yield {"contentBlockDelta": {"delta": {"text": step.text}}}
                yield {"contentBlockStop": {}}
                continue
            if isinstance(step, Break):
                raise ERRORS.get(step.message, RuntimeError)(step.message)
            if step == REFUSAL:
                yield {"redactContent": {"redactUserContentMessage": "[refused]"}}
                reason = "guardrail_intervened"
            if isinstance(step, Call):
                use = {"toolUseId": "call-1", "name": step.name}
                yield {"contentBlockStart": {"start": {"toolUse": use}}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(step.arguments)}}}}
                reason = "tool_use"
            for text in step.text if isinstance(step, Say) and isinstance(step.text, list) else ():
                yield {"contentBlockDelta": {"delta": {"text": text}}}
                yield {"contentBlockStop": {}}
            if isinstance(step, Say) and isinstance(step.text, str):
                yield {"contentBlockDelta": {"delta": {"text": step.text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}


def pair_of(message: Message) -> tuple[str, str]:
    results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
    if results:
        return "tool", "\n".join(content["text"] for result in results for content in result["content"])
    return message["role"], "\n".join(block["text"] for block in message["content"] if "text" in block)


def ask_approval(name: str) -> Callable[[BeforeToolCallEvent], None]:
    """Return a hook that lets a person approve each call of a tool."""

    def ask(event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] == name and event.interrupt("approve") != "yes":
            event.cancel_tool = "not approved"

    return ask


def ask_again(event: AfterModelCallEvent) -> None:
    """Repeat a failed request."""
    event.retry = event.exception is not None


def message_of(role: str, text: str) -> Any:
    return {"role": role, "content": [{"text": text}]}


class Home(BaseModel):
    city: str


class StrandsAgent(HostedAgent):
    absent: ClassVar[Mapping[str, str]] = {
        "run_two_agents": "each agent of a graph or swarm has a conversation of its own",
        "regenerate": "messages have no ids, and an agent's list of them is changed in place",
    }

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.failed_tools = []
        self._memory = memory
        self._settings: dict[str, Any] = {}

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

    def pause(self, text: str, *, session: str, user: str, call: Call, before: Sequence[Step] = ()) -> Any:
        agent = self._agent(Scripted([*before, call], self.requests), session, user)
        agent.add_hook(ask_approval(call.name), BeforeToolCallEvent)
        result = agent(text)
        assert result.stop_reason == "interrupt"
        return {"tool": call.name, "ids": [interrupt.id for interrupt in result.interrupts]}

    def resume(
        self, paused: Any, *, session: str, user: str, script: Sequence[Step], answer: str = "yes"
    ) -> str:
        responses = [{"interruptResponse": {"interruptId": id_, "response": answer}} for id_ in paused["ids"]]
        agent = self._agent(Scripted(script, self.requests), session, user)
        agent.add_hook(ask_approval(paused["tool"]), BeforeToolCallEvent)
        return str(agent(responses)).strip()

    def run_cancelled(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> None:
        hang = Hang()
        agent = self._agent(Scripted([*script, hang], self.requests), session, user)
        hang.cancel(agent.invoke_async(text))

    def run_searched(
        self, text: str, *, session: str, user: str, script: Sequence[Step], cites: bool = False
    ) -> str:
        steps: list[Any] = list(script)
        if cites:
            steps[-1] = Cited(steps[-1].text)
        else:
            self._settings = {"anthropic_tools": [{"type": "web_search_20250305", "name": "web_search"}]}
        return self._run(text, session, user, steps)

    def run_with_history(
        self, history: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        messages = [message_of("user", history), message_of("assistant", "I see.")]
        agent = Agent(
            Scripted(script, self.requests),
            messages=messages,
            plugins=[HermesPlugin(self._memory, session_id=session, user_id=user)],
            callback_handler=None,
        )
        return str(agent(text)).strip()

    def run_with_colleague(
        self, message: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        hermes = HermesPlugin(self._memory, session_id=session, user_id=user)
        graph = GraphBuilder()
        graph.add_node(Agent(Scripted([Say(message)], []), callback_handler=None), "researcher")
        second = Agent(Scripted(script, self.requests), plugins=[hermes], callback_handler=None)
        graph.add_node(second, "second")
        graph.add_edge("researcher", "second")
        graph.set_entry_point("researcher").set_max_node_executions(2)
        return str(graph.build()(text).results["second"].result).strip()

    def run_late_result(
        self, result: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        self.run("Order tea.", session=session, user=user, script=[Say("It is on its way.")])
        late = {"toolResult": {"toolUseId": "order", "status": "success", "content": [{"text": result}]}}
        return self._run([late, {"text": text}], session, user, script)

    def run_structured(self, text: str, *, session: str, user: str, city: str) -> Any:
        agent = self._agent(Scripted([Call("Home", {"city": city})], self.requests), session, user)
        return agent(text, structured_output_model=Home).structured_output

    def run_blocks(self, text: str, *, session: str, user: str, blocks: Sequence[str]) -> str:
        return self._run(text, session, user, [Say(list(blocks))])  # type: ignore[arg-type]

    def run_retried(self, text: str, *, session: str, user: str, answer: str) -> str:
        return self._run(text, session, user, [Break(), Say(answer)], hooks=[ask_again])

    def run_blocked(self, text: str, *, session: str, user: str) -> None:
        self._run(text, session, user, [REFUSAL])

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
        hermes = HermesPlugin(self._memory, user_id=user)
        model = Scripted(inner, self.requests)
        other = Agent(model, plugins=[hermes], callback_handler=None, name="ask", description="An agent.")
        return self._run(
            text, session, user, [Call("ask", {"input": question}), Say(answer)], tools=[other.as_tool()]
        )

    def run_summarised(
        self, text: str, *, session: str, user: str, summary: str, script: Sequence[Step]
    ) -> str:
        steps = [Break("the request is too long"), *script]
        return self._run(text, session, user, steps, summary=summary)

    def _run(
        self,
        prompt: Any,
        session: str,
        user: str,
        script: Sequence[Step],
        hooks: Sequence[Any] = (),
        **options: Any,
    ) -> str:
        agent = self._agent(Scripted(script, self.requests), session, user, **options)
        for hook in hooks:
            agent.add_hook(hook, AfterModelCallEvent)
        result = agent(prompt)
        results = [
            block["toolResult"] for m in agent.messages for block in m["content"] if "toolResult" in block
        ]
        self.failed_tools = [str(each["content"]) for each in results if each["status"] == "error"]
        return str(result).strip()

    def _agent(self, model: Scripted, session: str, user: str, summary: str = "", **options: Any) -> Agent:
        model.settings = self._settings
        # A session manager outlives the process.
        sessions = FileSessionManager(
            f"{session}-{user}", storage_dir=str(self._memory.home.path / "strands")
        )
        summaries = SummarizingConversationManager(
            summary_ratio=0.8,
            preserve_recent_messages=1,
            summarization_agent=Agent(Scripted([Say(summary)], []), callback_handler=None),
        )
        return Agent(
            model,
            plugins=[HermesPlugin(self._memory, session_id=session, user_id=user)],
            session_manager=sessions,
            conversation_manager=summaries,
            callback_handler=None,
            **options,
        )


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
        Say(f"Blue {FENCE}They said: The pot is blue.</memory-context>."),
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
            len(memory.sessions.get_messages(entry.session.id))
            for entry in memory.sessions.list_sessions(everybody=True)
        ]
    assert sizes == [4, 4]


def test_the_raw_stream_is_scrubbed_too(tmp_path: Path) -> None:
    told = "They said: The pot is blue."
    pieces = [Say(piece) for piece in ["Hi <memo", f"ry-context>{told}</memory", "-context> there.", " a <"]]

    async def talk(memory: Memory) -> tuple[str, str]:
        hermes = HermesPlugin(memory, session_id="c1", user_id="ann")
        agent = Agent(Scripted(pieces, [], pieces=True), plugins=[hermes], callback_handler=None)
        events = [event async for event in agent.stream_async("Hello")]
        return repr(events), "".join(event["data"] for event in events if "data" in event)

    with open_memory(tmp_path, provider=Ledger()) as memory:
        memory.conversation("c0", platform="strands", user_id="ann").turn("The pot is blue.").finish("Noted.")
        memory.flush()
        events, text = asyncio.run(talk(memory))
        assert history_of(memory) == ["Hello", "Hi  there. a <"]
    assert told not in events
    assert text == "Hi  there. a <"


class Bedrock(BaseHTTPRequestHandler):
    """The ConverseStream API of Bedrock, with an answer from a script."""

    steps: ClassVar[list[Step]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        step = self.steps.pop(0)
        reason = "tool_use" if isinstance(step, Call) else "end_turn"
        events: list[tuple[str, Any]] = [("messageStart", {"role": "assistant"})]
        if isinstance(step, Call):
            use = {"toolUse": {"toolUseId": "call-1", "name": step.name}}
            events.append(("contentBlockStart", {"contentBlockIndex": 0, "start": use}))
            delta: Any = {"toolUse": {"input": json.dumps(step.arguments)}}
        else:
            assert isinstance(step, Say)
            delta = {"text": step.text}
        events.append(("contentBlockDelta", {"contentBlockIndex": 0, "delta": delta}))
        events += [("contentBlockStop", {"contentBlockIndex": 0}), ("messageStop", {"stopReason": reason})]
        body = b"".join(event_of(name, payload) for name, payload in events)
        self.send_response(200)
        self.send_header("content-type", "application/vnd.amazon.eventstream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


def event_of(name: str, payload: Any) -> bytes:
    """Return an event in the binary form of AWS: lengths, headers, JSON, and a checksum after each."""
    fields = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack("!B", len(key)) + key.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for key, value in fields.items()
    )
    body = json.dumps(payload).encode()
    lengths = struct.pack("!II", len(headers) + len(body) + 16, len(headers))
    message = lengths + struct.pack("!I", zlib.crc32(lengths)) + headers + body
    return message + struct.pack("!I", zlib.crc32(message))


# The example leaves the model's client to the end of the program.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = {"action": "add", "target": "memory", "content": "Billing is on Fly."}
    Bedrock.steps = [Call("memory", note), Say("On Fly.")]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bedrock)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", f"http://127.0.0.1:{server.server_address[1]}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "scripted")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    try:
        exec(example_of(Path(__file__).parents[1] / "README.md"), {})
        gc.collect()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    with open_memory(tmp_path) as memory:
        assert history_of(memory, "chat-7")[-1] == "On Fly."
        prompt = memory.conversation(platform="strands", user_id="ann").system_prompt
        assert "Billing is on Fly." in prompt
