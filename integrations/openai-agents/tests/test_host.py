"""The promises of every host, on an agent of the OpenAI Agents SDK with its scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import itertools
import json
import multiprocessing
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    OutputGuardrail,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    RunHooks,
    Runner,
    RunState,
    Session,
    UserError,
    function_tool,
    set_tracing_disabled,
)
from agents.run import CallModelData, ModelInputData
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from hermes_openai_agents import HermesSession
from hermes_openai_agents.items import messages_of
from openai.types.responses import Response, ResponseCompletedEvent, ResponseFunctionWebSearch
from openai.types.responses.response_function_web_search import ActionSearch
from openai.types.responses.response_output_text import AnnotationURLCitation
from pydantic import BaseModel

from hermes_core import Memory, open_memory
from hermes_memory_testing.hosting import (
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
from hermes_memory_testing.model_server import ModelServer, Reply
from hermes_memory_testing.trust_checks import NOTE, SAVE

set_tracing_disabled(True)
RECALLED = "They said: The key is under the blue pot."  # as the checks have it
CALL_IDS = itertools.count()


class Pieces(ScriptedModel):
    """A scripted model that streams its text in pieces."""

    def __init__(self, steps: Any, pieces: Sequence[str] = ()) -> None:
        super().__init__(steps)
        self.pieces = pieces

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async for event in super().stream_response(*args, **kwargs):
            if event.type != "response.output_text.delta":
                yield event
                continue
            for piece in self.pieces or [event.delta]:
                yield event.model_copy(update={"delta": piece})


def model_of(script: Sequence[Step], pieces: Sequence[str] = ()) -> Pieces:
    return Pieces([step_of(step) for step in script], pieces)


def step_of(step: Any) -> Any:
    if isinstance(step, list | ModelStep):
        return step
    if isinstance(step, Break):
        return RuntimeError(step.message)
    if isinstance(step, Hang):
        return ModelStep.respond(lambda _: step.answer())
    number = next(CALL_IDS)
    if isinstance(step, Call):
        return [function_call(step.name, step.arguments, call_id=f"call_{number}")]
    if isinstance(step.text, list):
        parts = [assistant_message(text).content[0] for text in step.text]
        return [assistant_message("", item_id=f"msg_{number}").model_copy(update={"content": parts})]
    return [assistant_message(step.text, item_id=f"msg_{number}")]


def text_of(item: Any) -> str:
    content = item.get("content", item.get("output", ""))
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


class Home(BaseModel):
    city: str


def trip(*_: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


class AgentsAgent(HostedAgent):
    """An agent of the SDK; each run has a session object of its own, as in a server."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory
        self._config: RunConfig | None = None

    def run(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        return self._run(text, session, user, model_of(script))

    def run_with_image(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        content = [
            {"type": "input_text", "text": text},
            {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
        ]
        return self._run([{"role": "user", "content": content}], session, user, model_of(script))

    def stream(self, text: str, *, session: str, user: str, answer: Sequence[str]) -> str:
        async def shown() -> str:
            own = HermesSession(self._memory, session, user_id=user)
            model = model_of([Say("".join(answer))], answer)
            result = own.run_streamed(self._agent(own, model), text)
            pieces = []
            async for event in own.scrub(result.stream_events()):
                assert RECALLED not in repr(event)
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    pieces.append(event.data.delta)
            assert RECALLED not in str(result.final_output)
            return "".join(pieces)

        return asyncio.run(shown())

    def pause(self, text: str, *, session: str, user: str, call: Call, before: Sequence[Step] = ()) -> Any:
        async def paused() -> Any:
            own = HermesSession(self._memory, session, user_id=user)
            result = await own.run(self._agent(own, model_of([*before, call]), approval=call.name), text)
            assert result.interruptions
            return {"call": call.name, "state": result.to_state().to_string()}

        return asyncio.run(paused())

    def resume(self, paused: Any, *, session: str, user: str, script: Sequence[Step]) -> str:
        async def resumed() -> str:
            own = HermesSession(self._memory, session, user_id=user)
            model = model_of(script)
            agent = self._agent(own, model, approval=paused["call"])
            state = await RunState.from_string(agent, paused["state"])
            for interruption in state.get_interruptions():
                state.approve(interruption)
            result = await own.run(agent, state)
            self._record(model)
            return str(result.final_output)

        return asyncio.run(resumed())

    def run_cancelled(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> None:
        hang = Hang()
        own = HermesSession(self._memory, session, user_id=user)
        hang.cancel(self._start(own, self._agent(own, model_of([*script, hang])), text))

    def run_searched(
        self, text: str, *, session: str, user: str, script: Sequence[Step], cites: bool = False
    ) -> str:
        steps = [step_of(step) for step in script]
        if cites:
            source = {"url": "https://example.org", "title": "Office", "start_index": 0, "end_index": 1}
            citation = AnnotationURLCitation(type="url_citation", **source)
            steps[-1][0].content[0].annotations = [citation]
        else:
            action = ActionSearch(type="search", query="office")
            search = {"id": "ws_1", "status": "completed", "type": "web_search_call"}
            output = [ResponseFunctionWebSearch(action=action, **search), *steps[0]]
            response = Response(
                id="resp_1",
                created_at=0,
                model="scripted",
                object="response",
                output=output,
                parallel_tool_calls=True,
                tool_choice="auto",
                tools=[],
            )
            ended = ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)
            steps[0] = ModelStep(output=output, stream_events=[ended])
        return self._run(text, session, user, model_of(steps))

    def run_with_history(
        self, history: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        earlier = [{"role": "user", "content": history}, {"role": "assistant", "content": "I see."}]
        asked = [*earlier, {"role": "user", "content": text}]
        return self._run(asked, session, user, model_of(script))

    def run_with_colleague(
        self, message: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        own = HermesSession(self._memory, session, user_id=user)
        second = Agent[Any](name="second", model=model_of(script), tools=[*own.tools()])
        said = [
            assistant_message(message, item_id="msg_researcher"),
            *step_of(Call("transfer_to_second", {})),
        ]
        researcher = self._agent(own, model_of([said]), handoffs=[second])
        return str(asyncio.run(self._start(own, researcher, text)))

    def run_late_result(
        self, result: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        self.run("Order tea.", session=session, user=user, script=[Say("It is on its way.")])
        late = {"type": "function_call_output", "call_id": "order", "output": result}
        return self._run([late, {"role": "user", "content": text}], session, user, model_of(script))

    def run_structured(self, text: str, *, session: str, user: str, city: str) -> Any:
        said = Say(json.dumps({"city": city}))
        return self._run(text, session, user, model_of([said]), output_type=Home)

    def run_blocks(self, text: str, *, session: str, user: str, blocks: Sequence[str]) -> str:
        return self._run(text, session, user, model_of([Say(list(blocks))]))  # type: ignore[arg-type]

    def run_retried(self, text: str, *, session: str, user: str, answer: str) -> str:
        with contextlib.suppress(RuntimeError):
            self._run(text, session, user, model_of([Break()]))
        return self._run(text, session, user, model_of([Say(answer)]))

    def run_blocked(self, text: str, *, session: str, user: str) -> None:
        self._run(text, session, user, model_of([Say("No.")]), input_guardrails=[InputGuardrail(trip)])

    def run_two_agents(self, text: str, *, session: str, user: str, answer: str) -> str:
        second = Agent[Any](name="second", model=model_of([Say(answer)]))
        first = model_of([Call("transfer_to_second", {})])
        return self._run(text, session, user, first, handoffs=[second])

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
        own = HermesSession(self._memory, session, user_id=user)
        other = self._agent(own, model_of(inner)).as_tool("ask", "Ask the other agent.")
        model = model_of([Call("ask", {"input": question}), Say(answer)])
        try:
            return str(asyncio.run(self._start(own, self._agent(own, model, more=[other]), text)))
        finally:
            self._record(model)

    def regenerate(self, *, session: str, user: str, answer: str) -> str:
        async def undo() -> Any:
            own = HermesSession(self._memory, session, user_id=user)
            await own.pop_item()
            return await own.pop_item()

        asked = asyncio.run(undo())
        return self._run([asked], session, user, model_of([Say(answer)]))

    def run_summarised(
        self, text: str, *, session: str, user: str, summary: str, script: Sequence[Step]
    ) -> str:
        self._config = RunConfig(
            session_input_callback=lambda _, new: [{"role": "user", "content": summary}, *new]
        )
        return self._run(text, session, user, model_of(script))

    def _run(self, asked: Any, session: str, user: str, model: Pieces, **options: Any) -> str:
        own = HermesSession(self._memory, session, user_id=user)
        try:
            return str(asyncio.run(self._start(own, self._agent(own, model, **options), asked)))
        finally:
            self._record(model)

    async def _start(self, own: HermesSession, agent: Agent[Any], asked: Any) -> Any:
        return (await own.run(agent, asked, run_config=self._config)).final_output

    def _agent(
        self, own: HermesSession, model: Any, approval: str = "", more: Sequence[Any] = (), **options: Any
    ) -> Agent[Any]:
        tools = [dataclasses.replace(tool, needs_approval=tool.name == approval) for tool in own.tools()]
        return Agent(name="host", instructions="Be brief.", model=model, tools=[*tools, *more], **options)

    def _record(self, model: Pieces) -> None:
        for call in model.calls:
            said = []
            for item in call.input:
                kind = item.get("type", "message")
                role = "tool" if kind == "function_call_output" else item.get("role", "assistant")
                said.append((role, text_of(item)))
            tools = tuple(tool.name for tool in call.tools)
            self.requests.append(RecordedRequest(call.system_instructions or "", tuple(said), tools))


class StreamedAgent(AgentsAgent):
    async def _start(self, own: HermesSession, agent: Agent[Any], asked: Any) -> Any:
        result = own.run_streamed(agent, asked, run_config=self._config)
        async for _ in own.scrub(result.stream_events()):
            pass
        return result.final_output


class RunnerAgent(AgentsAgent):
    """Gives the parts of the session to `Runner.run` itself."""

    async def _start(self, own: HermesSession, agent: Agent[Any], asked: Any) -> Any:
        config = own.run_config(self._config)
        result = await Runner.run(agent, asked, session=own, hooks=own.hooks, run_config=config)
        return result.final_output


class TestRun(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return AgentsAgent(memory)


class TestStreamed(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return StreamedAgent(memory)


class TestRunner(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return RunnerAgent(memory)


# ------------------------------------------------------------------- the SDK's own


def fail(*_: Any) -> GuardrailFunctionOutput:
    raise ValueError("the guardrail is broken")


@function_tool
def weather() -> str:
    """Return the weather."""
    return "It rains."


def resume_and_exit(home: Path, paused: Any) -> None:
    """Resume a paused run in this process."""
    with open_memory(home, provider=(ledger := Ledger())) as memory:
        host = AgentsAgent(memory)
        assert host.resume(paused, session="c1", user="ann", script=[Say("Noted.")]) == "Noted."
        memory.flush()
        assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("I live in Oslo.", "Noted.")]
        roles = [message["role"] for message in ledger.turns[0].messages]
        assert roles == ["user", "assistant", "tool", "assistant"]
        os._exit(7)  # after all assertions; the lines above end with another code


def test_another_process_resumes_a_paused_run(tmp_path: Path) -> None:
    save = Call("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
    with open_memory(tmp_path) as memory:
        paused = AgentsAgent(memory).pause("I live in Oslo.", session="c1", user="ann", call=save)
    child = multiprocessing.get_context("spawn").Process(target=resume_and_exit, args=(tmp_path, paused))
    child.start()
    child.join(120)
    assert child.exitcode == 7


def run_of(streamed: bool) -> Any:
    async def run(own: HermesSession, agent: Agent[Any], asked: Any, **options: Any) -> Any:
        if not streamed:
            return await own.run(agent, asked, **options)
        result = own.run_streamed(agent, asked, **options)
        async for _ in result.stream_events():
            pass
        return result

    return run


GUARDRAILS: list[dict[str, Any]] = [
    {"input_guardrails": [InputGuardrail(trip)]},
    {"input_guardrails": [InputGuardrail(trip, run_in_parallel=False)]},
    {"output_guardrails": [OutputGuardrail(trip)]},
    {"output_guardrails": [OutputGuardrail(fail)]},
    {"output_guardrails": [OutputGuardrail(trip)], "tool_use_behavior": "stop_on_first_tool"},
    {"output_guardrails": [OutputGuardrail(fail)], "tool_use_behavior": "stop_on_first_tool"},
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("guard", GUARDRAILS, ids=range(len(GUARDRAILS)))
def test_a_run_that_a_guardrail_stops_reaches_no_provider(
    tmp_path: Path, guard: dict[str, Any], streamed: bool
) -> None:
    ledger = Ledger()
    first: Step = Call("weather", {}) if "tool_use_behavior" in guard else Say("A secret.")
    with open_memory(tmp_path, provider=ledger) as memory:

        async def talk() -> None:
            own = HermesSession(memory, "c1", user_id="ann")
            agent = Agent(name="a", model=model_of([first]), tools=[weather], **guard)
            stopped = (InputGuardrailTripwireTriggered, OutputGuardrailTripwireTriggered, ValueError)
            with pytest.raises(stopped):
                await run_of(streamed)(own, agent, "Forbidden question")
            model = model_of([Say("Yes.")])
            await own.run(Agent(name="a", model=model), "Allowed question")
            assert "Forbidden" not in repr(model.calls[0].input)
            items = await own.get_items()
            assert "Allowed question" in repr(items)

        asyncio.run(talk())
        memory.flush()
        assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("Allowed question", "Yes.")]
        (stored,) = memory.sessions.list_sessions(everybody=True)
        assert "Forbidden" not in repr(memory.sessions.get_messages(stored.session.id))


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_result_may_be_the_answer(tmp_path: Path, streamed: bool) -> None:
    ledger = Ledger()
    with open_memory(tmp_path, provider=ledger) as memory:

        async def talk() -> list[Any]:
            own = HermesSession(memory, "c1", user_id="ann")
            model = model_of([Call("weather", {})])
            agent = Agent(name="a", model=model, tools=[weather], tool_use_behavior="stop_on_first_tool")
            await run_of(streamed)(own, agent, "How is the weather?")
            return await own.get_items()

        items = asyncio.run(talk())
        memory.flush()
        assert [turn.assistant for turn in ledger.turns] == ["It rains."]
        assert [item.get("type") for item in items] == [None, "function_call", "function_call_output"]


ITEMS: list[dict[str, Any]] = [
    {"role": "developer", "content": "Answer in verse."},
    {"role": "user", "content": "First part"},
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "and a picture"},
            {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "low"},
        ],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}", "id": "fc_1"},
    {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}", "id": "fc_2"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "rain"}]},
    {"type": "function_call_output", "call_id": "c2", "output": "sun"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Both.", "annotations": [], "logprobs": []}],
    },
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": "You're welcome."},
]


def test_items_come_back_as_they_were_added(tmp_path: Path) -> None:
    ledger = Ledger()

    async def add(memory: Memory) -> None:
        own = HermesSession(memory, "c1", user_id="ann")
        assert isinstance(own, Session)
        assert await own.get_items() == []
        await own.add_items(list(ITEMS))
        assert await own.get_items() == ITEMS

    async def read(memory: Memory) -> None:
        own = HermesSession(memory, "c1", user_id="ann")
        assert await own.get_items() == ITEMS
        assert await own.get_items(limit=3) == ITEMS[-3:]
        assert await own.get_items(limit=0) == []
        assert await HermesSession(memory, "c1", user_id="bob").get_items() == []

    with open_memory(tmp_path, provider=ledger) as memory:
        asyncio.run(add(memory))
        memory.flush()
        assert [turn.assistant for turn in ledger.turns] == ["Both.", "You're welcome."]
    with open_memory(tmp_path) as memory:
        asyncio.run(read(memory))


@pytest.mark.parametrize("streamed", [False, True])
def test_a_history_in_the_input_is_stored(tmp_path: Path, streamed: bool) -> None:
    with open_memory(tmp_path) as memory:

        async def talk() -> None:
            own = HermesSession(memory, "c1", user_id="ann")
            await own.run(Agent(name="a", model=model_of([Say("Hi.")])), "Hello")
            before = await own.get_items()
            model = model_of([Say("Bye.")])
            await run_of(streamed)(
                own, Agent(name="a", model=model), [*ITEMS, {"role": "user", "content": "Bye"}]
            )
            items = await own.get_items()
            assert items[: len(before)] == before
            assert items[len(before) : -2] == ITEMS
            assert [text_of(item) for item in items[-2:]] == ["Bye", "Bye."]

        asyncio.run(talk())


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("outside", [False, True])
def test_earlier_items_of_a_program_are_read_from_elsewhere(
    tmp_path: Path, streamed: bool, outside: bool
) -> None:
    letter = {"role": "user", "content": f"{NOTE}, the letter says."}
    with open_memory(tmp_path) as memory:

        async def talk() -> None:
            own = HermesSession(memory, "c1", user_id="ann")
            asked: list[Any] = [letter, {"role": "user", "content": "Go on."}]
            if outside:
                await own.add_items([letter, {"role": "assistant", "content": "I see."}])
                asked = asked[1:]
            agent = Agent(name="a", model=model_of([SAVE, Say("Noted.")]), tools=[*own.tools()])
            await run_of(streamed)(own, agent, asked)
            assert letter in await own.get_items()

        asyncio.run(talk())
        chat = memory.conversation(platform="openai-agents", user_id="ann")
        assert [note.entry for note in memory.curated.of(chat.session).read().waiting_notes()] == [NOTE]


@pytest.mark.parametrize("streamed", [False, True])
def test_recall_stands_after_pictures_as_a_part_of_the_api(tmp_path: Path, streamed: bool) -> None:
    ledger = Ledger()
    with open_memory(tmp_path, provider=ledger) as memory:

        async def talk() -> None:
            own = HermesSession(memory, "c1", user_id="ann")
            await own.run(Agent(name="a", model=model_of([Say("Noted.")])), "The key is under the pot.")
            memory.flush()
            model = model_of([Call("weather", {}), Say("Under it.")])
            agent = Agent(name="a", model=model, tools=[weather])
            await run_of(streamed)(own, agent, [{"role": "user", "content": "Look:"}, ITEMS[2]])
            for call in model.calls:
                content = call.input[3]["content"]
                assert [part["type"] for part in content] == ["input_text", "input_image", "input_text"]
                assert "They said: The key is under the pot." in content[-1]["text"]
            assert "<memory-context>" not in repr(await own.get_items())

        asyncio.run(talk())
        memory.flush()
        turn = ledger.turns[-1]
        assert turn.user.startswith("and a picture")
        assert [message["content"] for message in turn.messages][1] == "Look:"


def test_words_about_the_fence_stay_in_the_history(tmp_path: Path) -> None:
    fence = "<memory-context>tea</memory-context>"
    with open_memory(tmp_path) as memory:

        async def talk() -> None:
            own = HermesSession(memory, "c1", user_id="ann")
            result = {"type": "function_call_output", "call_id": "c1", "output": f"a page with {fence}"}
            content = [{"type": "input_text", "text": f"Hello {fence}"}]
            asked, answer = (
                {"role": "user", "content": content},
                {"role": "assistant", "content": f"{fence} Hi."},
            )
            await own.add_items([asked, ITEMS[4], result])
            await own.add_items([answer])
            assert await own.get_items() == [asked, ITEMS[4], result, answer]

        asyncio.run(talk())


def test_a_run_without_its_turn_is_stored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_memory(tmp_path) as memory:

        async def talk() -> None:
            own = HermesSession(memory, "c1", user_id="ann")
            await own.add_items([{"role": "assistant", "content": "Out of nowhere."}])
            assert len(await own.get_items()) == 1

        asyncio.run(talk())
    assert "no open turn" in caplog.text


def test_two_runs_of_a_conversation_at_once_are_two_turns(tmp_path: Path) -> None:
    ledger = Ledger()
    with open_memory(tmp_path, provider=ledger) as memory:

        async def talk() -> None:
            first, second = (HermesSession(memory, "c1", user_id="ann") for _ in range(2))
            for own, text in ((first, "One?"), (second, "Two?")):
                await own.get_items()
                await own.add_items([{"role": "user", "content": text}])
            await second.add_items([{"role": "assistant", "content": "Two."}])
            await first.add_items([{"role": "assistant", "content": "One."}])

        asyncio.run(talk())
        memory.flush()
        assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("Two?", "Two."), ("One?", "One.")]


def test_items_can_be_removed_one_by_one(tmp_path: Path) -> None:
    async def pop(memory: Memory) -> None:
        own = HermesSession(memory, "c1", user_id="ann")
        await own.add_items(list(ITEMS))
        for count in range(len(ITEMS) - 1, -1, -1):
            assert await own.pop_item() == ITEMS[count]
            assert await own.get_items() == ITEMS[:count]
        assert await own.pop_item() is None

    with open_memory(tmp_path) as memory:
        asyncio.run(pop(memory))
        assert memory.sessions.past.search("picture", everybody=True) == []


def test_a_cleared_session_is_empty_and_goes_on(tmp_path: Path) -> None:
    async def clear(memory: Memory) -> None:
        own = HermesSession(memory, "c1", user_id="ann")
        await own.add_items(list(ITEMS))
        await own.clear_session()
        assert await own.get_items() == []
        await own.run(Agent(name="a", model=model_of([Say("Hi.")])), "Hello")
        assert len(await HermesSession(memory, "c1", user_id="ann").get_items()) == 2

    with open_memory(tmp_path) as memory:
        asyncio.run(clear(memory))


@pytest.mark.parametrize("streamed", [False, True])
def test_the_filter_and_hooks_of_the_program_run_too(tmp_path: Path, streamed: bool) -> None:
    class Counter(RunHooks[Any]):
        starts = 0

        async def on_llm_start(self, *_: Any) -> None:
            self.starts += 1

    def shout(data: CallModelData[Any]) -> ModelInputData:
        items: list[Any] = [
            {**item, "content": str(item["content"]).upper()} for item in data.model_data.input
        ]
        return ModelInputData(input=items, instructions="LOUD")

    with open_memory(tmp_path, provider=Ledger()) as memory:

        async def talk() -> None:
            own, counter = HermesSession(memory, "c1", user_id="ann"), Counter()
            model = model_of([Say("Hi.")])
            config = RunConfig(call_model_input_filter=shout)
            agent = Agent(name="a", model=model)
            await run_of(streamed)(own, agent, "Hello", hooks=counter, run_config=config)
            assert counter.starts == 1
            assert model.calls[0].input[-1]["content"] == "HELLO"
            assert (model.calls[0].system_instructions or "").startswith("LOUD")
            assert [text_of(item) for item in await own.get_items()] == ["Hello", "Hi."]

        asyncio.run(talk())


def test_a_session_without_hooks_keeps_the_history(tmp_path: Path) -> None:
    with open_memory(tmp_path) as memory:

        async def talk() -> None:
            own = HermesSession(memory, "c1", user_id="ann")
            own_model = model_of([Call("weather", {}), Say("Rain."), Say("Bye.")])
            agent = Agent(name="a", model=own_model, tools=[weather])
            await Runner.run(agent, "Weather?", session=own)
            await Runner.run(agent, "Bye", session=own)
            assert len(own_model.calls[-1].input) == 5

        asyncio.run(talk())


def test_instructions_have_the_notes_once(tmp_path: Path) -> None:
    with open_memory(tmp_path) as memory:
        chat = memory.conversation(platform="openai-agents", user_id="ann")
        chat.change_memory("add", "user", "Keeps a tortoise")

        async def talk() -> None:
            own = HermesSession(memory, "c1", user_id="ann")
            model = model_of([Say("Hi.")])
            await own.run(Agent(name="a", model=model, instructions=own.instructions("Be brief.")), "Hello")
            system = model.calls[0].system_instructions or ""
            assert system.startswith("Be brief.")
            assert system.count("tortoise") == 1

        asyncio.run(talk())


@pytest.mark.parametrize("kind", ["web_search_call", "mcp_call", "kind_of_next_year_call"])
def test_an_item_of_a_servers_tool_has_its_origin(kind: str) -> None:
    answer = {"role": "assistant", "content": "On Mondays."}
    pairs = [
        messages_of([{"type": kind, "id": "1"}, answer]),
        messages_of([answer, {"type": kind, "id": "1"}]),
    ]
    assert [message["origin"] for pair in pairs for message, _ in pair] == ["tool", "tool"]
    assert "origin" not in messages_of([{"type": "reasoning", "id": "1"}, answer])[0][0]


def test_a_message_of_another_host_becomes_items(tmp_path: Path) -> None:
    with open_memory(tmp_path) as memory:
        chat = memory.conversation("c1", platform="openai-agents", user_id="ann")
        call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        turn = chat.turn("Weather?")
        turn.add(
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "rain"},
        )
        turn.finish("It rains.")
        items = asyncio.run(HermesSession(memory, "c1", user_id="ann").get_items())
        assert items == [
            {"role": "user", "content": "Weather?"},
            {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "rain"},
            {"role": "assistant", "content": "It rains."},
        ]


def test_an_agent_that_is_a_tool_gets_no_recall(tmp_path: Path) -> None:
    ledger = Ledger()
    with open_memory(tmp_path, provider=ledger) as memory:

        async def talk() -> None:
            own = HermesSession(memory, "c1", user_id="ann")
            await own.run(Agent(name="a", model=model_of([Say("Noted.")])), "The key is under the pot.")
            memory.flush()
            inner = model_of([Say("Inner answer")])
            helper = Agent(name="helper", model=inner).as_tool("ask", "Ask the helper.")
            outer = model_of([Call("ask", {"input": "Look around"}), Say("Under the pot.")])
            await own.run(Agent(name="a", model=outer, tools=[helper]), "Where is the key?")
            assert "<memory-context>" not in repr(inner.calls)
            assert "<memory-context>" in repr(outer.calls[-1].input)

        asyncio.run(talk())
        memory.flush()
        assert [(turn.user, turn.assistant) for turn in ledger.turns][1:] == [
            ("Where is the key?", "Under the pot.")
        ]


def test_a_cancelled_run_and_a_left_stream_reach_no_provider(tmp_path: Path) -> None:
    ledger = Ledger()
    with open_memory(tmp_path, provider=ledger) as memory:

        async def talk() -> None:
            own, called = HermesSession(memory, "c1", user_id="ann"), asyncio.Event()

            @function_tool
            async def wait() -> str:
                """Wait for ever."""
                called.set()
                await asyncio.Event().wait()
                return ""

            agent = Agent(name="a", model=model_of([Call("wait", {})]), tools=[wait])
            run = asyncio.create_task(own.run(agent, "Cancelled question"))
            await called.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            left = own.run_streamed(Agent(name="a", model=model_of([Say("Left.")])), "Left question")
            async for _ in left.stream_events():
                break
            left.cancel()
            model = model_of([Say("Yes.")])
            await own.run(Agent(name="a", model=model), "Whole question")
            texts = [text_of(item) for item in model.calls[0].input]
            # The stream was left before its message was sent.
            assert texts == ["Cancelled question", "Whole question"]

        asyncio.run(talk())
        memory.flush()
        assert [turn.user for turn in ledger.turns] == ["Whole question"]


@pytest.mark.parametrize("approved", [True, False])
def test_a_run_may_be_paused_twice(tmp_path: Path, approved: bool) -> None:
    ledger = Ledger()
    passing = OutputGuardrail(lambda *_: GuardrailFunctionOutput(output_info=None, tripwire_triggered=False))
    with open_memory(tmp_path, provider=ledger) as memory:

        async def talk() -> None:
            own = HermesSession(memory, "c1", user_id="ann")
            model = model_of([Call("weather", {}), Call("weather", {}), Say("Done.")])
            asking = dataclasses.replace(weather, needs_approval=True)
            # With an output guardrail, the SDK stores the call when the run goes on.
            agent = Agent(name="a", model=model, tools=[asking], output_guardrails=[passing])
            result: Any = await own.run(agent, "Twice?")
            while result.interruptions:
                state = await RunState.from_string(agent, result.to_state().to_string())
                for interruption in state.get_interruptions():
                    (state.approve if approved else state.reject)(interruption)
                own = HermesSession(memory, "c1", user_id="ann")
                try:
                    result = await run_of(streamed=True)(own, agent, state)
                except UserError as exc:
                    pytest.skip(f"the lowest version of the SDK resumes no such run: {exc}")
            types = [item.get("type", "message") for item in await own.get_items()]
            assert types == ["message", *["function_call", "function_call_output"] * 2, "message"]

        asyncio.run(talk())
        memory.flush()
        (turn,) = ledger.turns
        assert [message["role"] for message in turn.messages] == [
            "user",
            *["assistant", "tool"] * 2,
            "assistant",
        ]


def test_a_run_that_is_handed_over_is_one_turn(tmp_path: Path) -> None:
    ledger = Ledger()
    with open_memory(tmp_path, provider=ledger) as memory:
        own = HermesSession(memory, "c1", user_id="ann")
        second = Agent(name="b", model=model_of([Say("B here.")]))
        first = Agent(name="a", model=model_of([Call("transfer_to_b", {})]), handoffs=[second])
        asyncio.run(own.run(first, "Give me B"))
        memory.flush()
        assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("Give me B", "B here.")]


@pytest.mark.parametrize("same_object", [True, False])
@pytest.mark.parametrize("host", [AgentsAgent, StreamedAgent, RunnerAgent])
def test_the_history_has_a_message_whose_run_failed(
    tmp_path: Path, host: type[AgentsAgent], same_object: bool
) -> None:
    ledger = Ledger()
    if host is RunnerAgent and not same_object:
        pytest.skip("nobody tells the session that a run of Runner.run failed, but its next run")
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = host(memory)

        async def talk() -> None:
            own = HermesSession(memory, "c1", user_id="ann")
            with pytest.raises(RuntimeError):
                await agent._start(own, agent._agent(own, model_of([Break()])), "My cat is called Mia.")
            for question, answer in (("What is she called?", "Mia."), ("Thank you.", "Welcome.")):
                if not same_object:
                    own = HermesSession(memory, "c1", user_id="ann")
                model = model_of([Say(answer)])
                await agent._start(own, agent._agent(own, model), question)
                assert [text_of(item) for item in model.calls[0].input].count("My cat is called Mia.") == 1

        asyncio.run(talk())
        memory.flush()
        assert [turn.user for turn in ledger.turns] == ["What is she called?", "Thank you."]


# The example leaves the model's client to the end of the program.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = ("memory", {"action": "add", "target": "memory", "content": "Billing is on Fly."})
    with ModelServer([Reply(calls=[call]), Reply("On Fly.")]) as server:
        monkeypatch.setenv("HERMES_HOME", str(tmp_path))
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "scripted")
        exec(example_of(Path(__file__).parents[1] / "README.md"), {})
        gc.collect()
        assert server.refused == []
    with open_memory(tmp_path) as memory:
        assert memory.sessions.get_messages("chat-7")[-1].content == "On Fly."
        prompt = memory.conversation(platform="openai-agents", user_id="ann").system_prompt
        assert "Billing is on Fly." in prompt
