"""The promises of every host, on an agent of ADK with a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import json
import threading
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App, ResumabilityConfig
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import Workflow
from google.genai import types
from hermes_google_adk import HermesMemoryService, HermesPlugin
from pydantic import BaseModel

from hermes_core import Memory, open_memory, open_memory_async
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
from hermes_memory_testing.trust_checks import NOTE, SAVE

APP = "helper"

# A session service outlives the process, so one stands for each home.
SESSIONS: dict[str, InMemorySessionService] = {}


@dataclass
class Blocks:
    """An answer in several parts."""

    blocks: Sequence[str]


@dataclass
class Searched:
    """An answer of a model whose server searched."""

    response: LlmResponse


def text_part(text: str) -> types.Part:
    return types.Part(text=text)


def call_part(call: Call) -> types.Part:
    return types.Part(
        function_call=types.FunctionCall(name=call.name, args=call.arguments, id=uuid.uuid4().hex)
    )


class Scripted(BaseLlm):
    """A model that answers from a script and records its requests."""

    script: Any
    recorder: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.recorder.requests.append(request_of(llm_request))
        step = next(self.script)
        if isinstance(step, Hang):
            await step.answer()
        if isinstance(step, Searched):
            yield step.response
            return
        if isinstance(step, Break):
            raise RuntimeError(step.message)
        if isinstance(step, Call):
            yield said(call_part(step))
            return
        if isinstance(step, Blocks):
            yield LlmResponse(content=types.Content(role="model", parts=[*map(text_part, step.blocks)]))
            return
        pieces = [step.text] if isinstance(step.text, str) else step.text
        if stream:
            for piece in pieces:
                yield said(types.Part(text=piece), partial=True)
        yield said(types.Part(text="".join(pieces)), partial=False)


class Approval(BasePlugin):
    """Asks a person before each call of a tool."""

    def __init__(self, tool: str) -> None:
        super().__init__(name="approval")
        self._tool = tool

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_context: Any, **_: Any
    ) -> dict[str, Any] | None:
        if tool.name == self._tool and tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="May I?")
            tool_context.actions.skip_summarization = True
            return {"error": "a person must approve"}
        return None


def said(part: types.Part, partial: bool | None = None) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[part]), partial=partial)


def request_of(request: LlmRequest) -> RecordedRequest:
    messages = []
    for content in request.contents:
        parts = content.parts or []
        results = [part.function_response for part in parts if part.function_response]
        messages += [("tool", json.dumps(result.response)) for result in results]
        if not results:
            role = "user" if content.role == "user" else "assistant"
            messages.append((role, "".join(part.text or "" for part in parts)))
    return RecordedRequest(
        str(request.config.system_instruction or ""), tuple(messages), tuple(request.tools_dict or {})
    )


class Refusal(BasePlugin):
    """Refuses each message."""

    async def on_user_message_callback(self, **_: Any) -> None:
        raise PermissionError("refused")


class Home(BaseModel):
    city: str


class AdkAgent(HostedAgent):
    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.failed_tools = []
        self.plugin = HermesPlugin(memory)
        self.sessions = SESSIONS.setdefault(str(memory.home.path), InMemorySessionService())

    def run(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        return self._answer([types.Part(text=text)], session, user, script)

    def run_with_image(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        picture = types.Part.from_bytes(data=b"picture", mime_type="image/png")
        return self._answer([types.Part(text=text), picture], session, user, script)

    def stream(self, text: str, *, session: str, user: str, answer: Sequence[str]) -> str:
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        runner = self.runner([Say(list(answer))])  # type: ignore[arg-type]
        events = self.events([types.Part(text=text)], session, user, runner, run_config=config)
        pieces = "".join(text_of(event) for event in events if event.partial)
        assert text_of(events[-1]) == pieces
        return pieces

    def pause(self, text: str, *, session: str, user: str, call: Call, before: Sequence[Step] = ()) -> Any:
        runner = self.runner([*before, call], Approval(call.name))
        events = self.events([types.Part(text=text)], session, user, runner)
        (asked,) = [
            call
            for event in events
            for call in event.get_function_calls()
            if call.id in (event.long_running_tool_ids or ())
        ]
        return {"tool": call.name, "asked": {"id": asked.id, "name": asked.name}}

    def resume(self, paused: Any, *, session: str, user: str, script: Sequence[Step]) -> str:
        approved = types.FunctionResponse(**paused["asked"], response={"confirmed": True})
        runner = self.runner(script, Approval(paused["tool"]))
        events = self.events([types.Part(function_response=approved)], session, user, runner)
        return text_of(events[-1])

    def run_cancelled(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> None:
        hang = Hang()
        message = types.Content(role="user", parts=[text_part(text)])
        runner = self.runner([*script, hang])

        async def run() -> None:
            async for _ in runner.run_async(user_id=user, session_id=session, new_message=message):
                pass

        hang.cancel(run())

    def run_searched(
        self, text: str, *, session: str, user: str, script: Sequence[Step], cites: bool = False
    ) -> str:
        call, answer = script
        assert isinstance(call, Call)
        assert isinstance(answer, Say)
        steps: list[Any] = [call, answer]
        if cites:
            grounding = types.GroundingMetadata(web_search_queries=["office"])
            steps[1] = Searched(
                said(text_part(answer.text)).model_copy(update={"grounding_metadata": grounding})
            )
        else:
            result = types.Part(code_execution_result=types.CodeExecutionResult(output="Mondays"))
            steps[0] = Searched(
                LlmResponse(content=types.Content(role="model", parts=[result, call_part(call)]))
            )
        return text_of(self.events([text_part(text)], session, user, self.runner(steps))[-1])

    def run_with_history(
        self, history: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        self.append(session, user, Event(author="user", content=types.UserContent(history)))
        return self.run(text, session=session, user=user, script=script)

    def run_with_colleague(
        self, message: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        both = [self.llm_agent([Say(message)], "researcher")]
        both.append(self.llm_agent(script, "second", tools=self.plugin.tools()))
        runner = self.runner([], agent=Workflow(name="both", edges=[("START", *both)]))
        return text_of(self.events([text_part(text)], session, user, runner)[-1])

    def run_late_result(
        self, result: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        def order() -> dict[str, Any]:
            """Order tea."""
            return {"state": "ordered"}

        steps = [Call("order", {}), Say("It is on its way."), *script]
        tools = [*self.plugin.tools(), LongRunningFunctionTool(order)]
        runner = self.runner([], agent=self.llm_agent(steps, tools=tools))
        events = self.events([text_part(text)], session, user, runner)
        (call,) = [call for event in events for call in event.get_function_calls()]
        late = types.FunctionResponse(id=call.id, name=call.name, response={"state": result})
        return text_of(self.events([types.Part(function_response=late)], session, user, runner)[-1])

    def append(self, session: str, user: str, event: Event) -> None:
        """Add an event to a session, as a program does that brings a history along."""

        async def add() -> None:
            named = {"app_name": APP, "user_id": user, "session_id": session}
            stored = await self.sessions.get_session(**named) or await self.sessions.create_session(**named)
            await self.sessions.append_event(stored, event)

        asyncio.run(add())

    def run_structured(self, text: str, *, session: str, user: str, city: str) -> Any:
        script = [Call("set_model_response", {"city": city})]
        agent = self.llm_agent(script, tools=self.plugin.tools(), output_schema=Home)
        return text_of(self.events([text_part(text)], session, user, self.runner([], agent=agent))[-1])

    def run_blocks(self, text: str, *, session: str, user: str, blocks: Sequence[str]) -> str:
        runner = self.runner([Blocks(blocks)])  # type: ignore[list-item]
        return text_of(self.events([text_part(text)], session, user, runner)[-1])

    def run_retried(self, text: str, *, session: str, user: str, answer: str) -> str:
        with contextlib.suppress(RuntimeError):
            self.run(text, session=session, user=user, script=[Break()])
        return self.run(text, session=session, user=user, script=[Say(answer)])

    def run_blocked(self, text: str, *, session: str, user: str) -> None:
        self.events([text_part(text)], session, user, self.runner([], Refusal("refusal")))

    def run_two_agents(self, text: str, *, session: str, user: str, answer: str) -> str:
        both = [self.llm_agent([Say("A draft.")], "first"), self.llm_agent([Say(answer)], "second")]
        runner = self.runner([], agent=Workflow(name="both", edges=[("START", *both)]))
        return text_of(self.events([text_part(text)], session, user, runner)[-1])

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
        other = AgentTool(self.llm_agent(inner, "ask", tools=self.plugin.tools()))
        agent = self.llm_agent([Call("ask", {"request": question}), Say(answer)], tools=[other])
        return text_of(self.events([text_part(text)], session, user, self.runner([], agent=agent))[-1])

    def regenerate(self, *, session: str, user: str, answer: str) -> str:
        asked = [e for e in self.stored_session(session, user).events if e.author == "user"][-1]
        undone = {"user_id": user, "session_id": session, "rewind_before_invocation_id": asked.invocation_id}
        asyncio.run(self.runner([]).rewind_async(**undone))
        return self.run(text_of(asked), session=session, user=user, script=[Say(answer)])

    def run_summarised(
        self, text: str, *, session: str, user: str, summary: str, script: Sequence[Step]
    ) -> str:
        summarised = types.Content(role="user", parts=[text_part(summary)])
        plugin = ContextFilterPlugin(custom_filter=lambda contents: [summarised, contents[-1]])
        return text_of(self.events([text_part(text)], session, user, self.runner(script, plugin))[-1])

    def session_id(self, session: str, user: str) -> str:
        return f"{APP}/{user}/{session}"

    def runner(self, script: Sequence[Step], *plugins: BasePlugin, agent: Any = None) -> Runner:
        agent = agent or self.llm_agent(script, tools=self.plugin.tools())
        app = App(name=APP, root_agent=agent, plugins=[*plugins, self.plugin])
        return Runner(app=app, session_service=self.sessions, auto_create_session=True)

    def llm_agent(self, script: Sequence[Step], name: str = "helper", **fields: Any) -> LlmAgent:
        model = Scripted(model="scripted", script=iter(script), recorder=self)
        return LlmAgent(name=name, description=name, instruction="Be short.", model=model, **fields)

    def events(
        self, parts: list[types.Part], session: str, user: str, runner: Runner, **options: Any
    ) -> list[Event]:
        message = types.Content(role="user", parts=parts)

        async def run() -> list[Event]:
            stream = runner.run_async(user_id=user, session_id=session, new_message=message, **options)
            return [event async for event in stream]

        return asyncio.run(run())

    def stored_session(self, session: str, user: str) -> Any:
        return asyncio.run(self.sessions.get_session(app_name=APP, user_id=user, session_id=session))

    def _answer(self, parts: list[types.Part], session: str, user: str, script: Sequence[Step]) -> str:
        events = self.events(parts, session, user, self.runner(script))
        results = [result.response or {} for event in events for result in event.get_function_responses()]
        self.failed_tools = [json.dumps(result) for result in results if "error" in result]
        return text_of(events[-1])


def text_of(event: Event) -> str:
    parts = event.content.parts if event.content else None
    return "".join(part.text or "" for part in parts or [])


# ADK's own AgentTool uses an argument of its runner that it calls deprecated.
@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")
class TestAdk(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return AdkAgent(memory)


class Record(Ledger):
    """A ledger that also counts a turn which comes twice."""

    def sync_turn(self, turn: Any) -> None:
        self.turns.append(turn)


def say(agent: AdkAgent, text: str, runner: Runner, session: str = "c1") -> list[Event]:
    return agent.events([types.Part(text=text)], session, "ann", runner)


def test_a_run_that_the_caller_stops_early_is_not_stored(tmp_path: Path) -> None:
    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = AdkAgent(memory)
        runner = agent.runner([Call("session_search", {"query": "tea"}), Say("Never.")])

        async def stop() -> None:
            message = types.Content(role="user", parts=[types.Part(text="Half tea")])
            stream = runner.run_async(user_id="ann", session_id="c1", new_message=message)
            async for _ in stream:
                break
            await stream.aclose()

        asyncio.run(stop())
        memory.flush()
        assert ledger.turns == []
        assert memory.sessions.past.search("Half tea", everybody=True) == []


def test_a_cancelled_run_is_not_stored(tmp_path: Path) -> None:
    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = AdkAgent(memory)
        reached = asyncio.Event()

        async def wait() -> dict[str, Any]:
            reached.set()
            await asyncio.Event().wait()
            return {}

        runner = agent.runner([], agent=agent.llm_agent([Call("wait", {})], tools=[wait]))

        async def cancel() -> None:
            message = types.Content(role="user", parts=[types.Part(text="Half tea")])

            async def run() -> None:
                async for _ in runner.run_async(user_id="ann", session_id="c1", new_message=message):
                    pass

            task = asyncio.ensure_future(run())
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancel())
        memory.flush()
        assert ledger.turns == []


def test_an_error_of_the_model_is_no_answer(tmp_path: Path) -> None:
    class Blocked(Scripted):
        async def generate_content_async(self, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
            yield LlmResponse(error_code="SAFETY", error_message="blocked")

    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = AdkAgent(memory)
        model = Blocked(model="scripted", script=iter([]), recorder=agent)
        say(agent, "Hello", agent.runner([], agent=LlmAgent(name="helper", model=model)))
        memory.flush()
        assert ledger.turns == []


def test_agents_in_sequence_make_one_turn(tmp_path: Path) -> None:
    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = AdkAgent(memory)
        writer = agent.llm_agent([Say("A draft.")], "writer")
        editor = agent.llm_agent([Say("The text.")], "editor")
        office = Workflow(name="office", edges=[("START", writer, editor)])
        say(agent, "Write.", agent.runner([], agent=office))
        memory.flush()
        (turn,) = ledger.turns
        assert (turn.user, turn.assistant) == ("Write.", "The text.")
        assert [message["content"] for message in turn.messages] == ["Write.", "A draft.", "The text."]


def test_recall_reaches_an_agent_that_takes_over(tmp_path: Path) -> None:
    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = AdkAgent(memory)
        agent.run("The key is under the pot.", session="c0", user="ann", script=[Say("Noted.")])
        memory.flush()
        expert = agent.llm_agent([Say("Under the pot.")], "expert")
        transfer = Call("transfer_to_agent", {"agent_name": "expert"})
        main = agent.llm_agent([transfer], sub_agents=[expert])
        say(agent, "Where?", agent.runner([], agent=main))
        memory.flush()
        assert len(agent.requests) == 3
        for request in agent.requests[-2:]:
            (text,) = [text for _, text in request.messages if "<memory-context>" in text]
            assert text.startswith("Where?")
        assert (ledger.turns[-1].user, ledger.turns[-1].assistant) == ("Where?", "Under the pot.")


# ADK itself passes plugins to the runner of such an agent in a deprecated way.
@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning")
def test_an_agent_that_runs_as_a_tool_is_no_conversation(tmp_path: Path) -> None:
    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = AdkAgent(memory)
        expert = AgentTool(agent.llm_agent([Say("Forty-two.")], "expert"))
        main = agent.llm_agent([Call("expert", {"request": "Compute."}), Say("It is 42.")], tools=[expert])
        say(agent, "What is it?", agent.runner([], agent=main))
        memory.flush()
        assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("What is it?", "It is 42.")]
        assert len(memory.sessions.list_sessions(everybody=True)) == 1


def test_the_result_of_a_long_running_tool_makes_a_second_turn(tmp_path: Path) -> None:
    def order(thing: str) -> dict[str, Any]:
        """Order a thing."""
        return {"state": f"{thing} is ordered"}

    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = AdkAgent(memory)
        tools = [LongRunningFunctionTool(order)]
        script = [Call("order", {"thing": "tea"}), Say("It is on its way."), Say("It is here.")]
        runner = agent.runner([], agent=agent.llm_agent(script, tools=tools))
        events = say(agent, "Order tea.", runner)
        (call,) = [call for event in events for call in event.get_function_calls()]
        result = types.FunctionResponse(id=call.id, name=call.name, response={"state": "delivered"})
        agent.events([types.Part(function_response=result)], "c1", "ann", runner)
        memory.flush()
        assert [turn.assistant for turn in ledger.turns] == ["It is on its way.", "It is here."]
        assert "delivered" in str(ledger.turns[1].messages)


def test_the_session_is_kept_without_recall_and_notes(tmp_path: Path) -> None:
    with open_memory(tmp_path, provider=Ledger()) as memory:
        agent = AdkAgent(memory)
        for text in ("The pot is blue.", "Which pot?"):
            agent.run(text, session="c1", user="ann", script=[Say("Blue.")])
            memory.flush()
        assert "<memory-context>" in agent.requests[-1].text
        assert "<memory-context>" not in agent.stored_session("c1", "ann").model_dump_json()


def test_an_echoed_fence_is_in_no_event_and_no_state(tmp_path: Path) -> None:
    echo = "Here: <memory-context>\nThey said: Tea is green.\n</memory-context> Done."
    with open_memory(tmp_path, provider=Ledger()) as memory:
        agent = AdkAgent(memory)
        agent.run("Tea is green.", session="c0", user="ann", script=[Say("Noted.")])
        memory.flush()
        runner = agent.runner([], agent=agent.llm_agent([Say(echo)], output_key="answer"))
        events = say(agent, "Hello", runner)
        stored = agent.stored_session("c1", "ann")
        assert "green" not in repr(events)
        assert stored.state["answer"].startswith("Here:")
        assert "green" not in stored.model_dump_json()


def test_the_service_and_the_plugin_store_each_turn_once(tmp_path: Path) -> None:
    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent, service = AdkAgent(memory), HermesMemoryService(memory)
        agent.run("The pot is blue.", session="c1", user="ann", script=[Say("Noted.")])
        for _ in range(2):
            asyncio.run(service.add_session_to_memory(agent.stored_session("c1", "ann")))
        memory.flush()
        assert len(ledger.turns) == 1
        assert memory.sessions.counts()["messages"] == 2


def test_the_service_stores_sessions_that_ran_without_the_plugin(tmp_path: Path) -> None:
    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent, service = AdkAgent(memory), HermesMemoryService(memory)
        model = agent.llm_agent([Say("Noted."), Say("Undone."), Break()])
        runner = Runner(app_name=APP, agent=model, session_service=agent.sessions, auto_create_session=True)
        say(agent, "The pot is blue.", runner)
        undone = say(agent, "The pot is red.", runner)[-1].invocation_id
        asyncio.run(runner.rewind_async(user_id="ann", session_id="c1", rewind_before_invocation_id=undone))
        with pytest.raises(RuntimeError):
            say(agent, "The pot is broken.", runner)
        asyncio.run(service.add_session_to_memory(agent.stored_session("c1", "ann")))
        memory.flush()
        assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("The pot is blue.", "Noted.")]

    with open_memory(tmp_path) as memory:
        service = HermesMemoryService(memory)

        def search(user: str) -> str:
            response = asyncio.run(service.search_memory(app_name=APP, user_id=user, query="pot"))
            return response.model_dump_json()

        assert "The pot is blue." in search("ann")
        assert "pot" not in search("bob")


def test_what_another_plugin_adds_to_a_request_is_read_from_elsewhere(tmp_path: Path) -> None:
    class Letters(BasePlugin):
        async def before_model_callback(self, *, llm_request: LlmRequest, **_: Any) -> None:
            llm_request.contents.insert(0, types.UserContent(f"{NOTE}, a letter says."))

    with open_memory(tmp_path) as memory:
        agent = AdkAgent(memory)
        say(agent, "When are they paid?", agent.runner([SAVE, Say("Noted.")], Letters("letters")))
        chat = memory.conversation(platform="google-adk", user_id="ann")
        assert [note.entry for note in memory.curated.of(chat.session).read().waiting_notes()] == [NOTE]


def test_an_aborted_run_is_not_stored(tmp_path: Path) -> None:
    if "abort_signal" not in inspect.signature(Runner.run_async).parameters:
        pytest.skip("older versions of ADK abort no run")
    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = AdkAgent(memory)
        abort = asyncio.Event()

        def stop() -> dict[str, Any]:
            """Stop the run."""
            abort.set()
            return {"stopped": True}

        script = [Call("stop", {}), Say("Never."), Say("Here.")]
        runner = agent.runner([], agent=agent.llm_agent(script, tools=[stop]))
        agent.events([types.Part(text="Half tea")], "c1", "ann", runner, abort_signal=abort)
        memory.flush()
        assert ledger.turns == []


@pytest.mark.filterwarnings("ignore:.EXPERIMENTAL.:UserWarning")
def test_a_run_that_is_resumed_after_its_end_stays_one_turn(tmp_path: Path) -> None:
    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = AdkAgent(memory)
        main = agent.llm_agent([Say("Noted."), Say("Again.")])
        resumable = ResumabilityConfig(is_resumable=True)
        app = App(name=APP, root_agent=main, plugins=[agent.plugin], resumability_config=resumable)
        runner = Runner(app=app, session_service=agent.sessions, auto_create_session=True)
        (*_, last) = say(agent, "The pot is blue.", runner)

        async def resume() -> None:
            stream = runner.run_async(user_id="ann", session_id="c1", invocation_id=last.invocation_id)
            async for _ in stream:
                pass

        asyncio.run(resume())
        memory.flush()
        assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("The pot is blue.", "Noted.")]


def test_a_run_that_waits_for_a_long_running_tool_is_one_turn(tmp_path: Path) -> None:
    def order(thing: str) -> None:
        """Order a thing."""

    ledger = Record()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = AdkAgent(memory)
        script = [Call("order", {"thing": "tea"}), Say("It is here.")]
        main = agent.llm_agent(script, tools=[LongRunningFunctionTool(order)])
        runner = agent.runner([], agent=main)
        events = say(agent, "Order tea.", runner)
        memory.flush()
        assert ledger.turns == []
        (call,) = [call for event in events for call in event.get_function_calls()]
        result = types.FunctionResponse(id=call.id, name=call.name, response={"state": "delivered"})
        agent.events([types.Part(function_response=result)], "c1", "ann", runner)
        memory.flush()
        assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("Order tea.", "It is here.")]


def test_an_approved_call_has_one_result(tmp_path: Path) -> None:
    ledger = Record()
    save = Call("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = AdkAgent(memory)
        paused = agent.pause("I live in Oslo.", session="c1", user="ann", call=save)
        agent.resume(paused, session="c1", user="ann", script=[Say("Noted.")])
        memory.flush()
        (turn,) = ledger.turns
        assert [message["role"] for message in turn.messages] == ["user", "assistant", "tool", "assistant"]
        assert "success" in turn.messages[2]["content"]


def test_without_scrub_the_person_sees_the_answer_as_it_is(tmp_path: Path) -> None:
    echo = "Here:\n<memory-context>\nsecret recall"
    with open_memory(tmp_path) as memory:
        agent = AdkAgent(memory)
        agent.plugin = HermesPlugin(memory, scrub=False)
        assert agent.run("Hello", session="c1", user="ann", script=[Say(echo)]) == echo
        assert "secret" not in memory.sessions.get_messages("helper/ann/c1")[1].content


def test_an_asynchronous_memory_serves_plugin_and_service(tmp_path: Path) -> None:
    async def talk() -> str:
        async with open_memory_async(tmp_path) as memory:
            agent = AdkAgent(memory.memory)
            agent.plugin = HermesPlugin(memory)
            await agent.runner([Say("Noted.")]).run_debug("The pot is blue.", user_id="ann", quiet=True)
            service = HermesMemoryService(memory)
            response = await service.search_memory(app_name=APP, user_id="ann", query="pot")
            return response.model_dump_json()

    assert "The pot is blue." in asyncio.run(talk())


class Gemini(BaseHTTPRequestHandler):
    """The API of Gemini, with answers from a script."""

    steps: ClassVar[list[Step]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        step = self.steps.pop(0)
        part: Any = {"text": getattr(step, "text", "")}
        if isinstance(step, Call):
            part = {"functionCall": {"id": "call-1", "name": step.name, "args": step.arguments}}
        content = {"role": "model", "parts": [part]}
        body = json.dumps({"candidates": [{"content": content, "finishReason": "STOP"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


# The example leaves the model's client to the end of the program.
@pytest.mark.filterwarnings("ignore:(?i)unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")
def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = {"action": "add", "target": "memory", "content": "Billing is on Fly."}
    Gemini.steps = [Call("memory", note), Say("On Fly.")]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gemini)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("GOOGLE_API_KEY", "scripted")
    try:
        exec(example_of(Path(__file__).parents[1] / "README.md"), {})
        gc.collect()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    with open_memory(tmp_path) as memory:
        chat = memory.conversation(platform="google-adk", user_id="ann")
        assert "Billing is on Fly." in chat.system_prompt
        (listed,) = memory.sessions.list_sessions(everybody=True)
        assert memory.sessions.get_messages(listed.session.id)[-1].content == "On Fly."
