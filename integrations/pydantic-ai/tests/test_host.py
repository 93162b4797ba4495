"""The promises of every host, on an agent of Pydantic AI with a scripted model."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hermes_pydantic_ai import HermesMemory
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, ImageUrl, ModelRetry, RunContext
from pydantic_ai.capabilities import PrepareTools, ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolResults, ToolDefinition

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
from hermes_memory_testing.model_server import ModelServer, Reply


class Home(BaseModel):
    city: str


def refuse(_ctx: RunContext[object], messages: list[ModelMessage]) -> list[ModelMessage]:
    raise PermissionError("refused")


class PydanticAgent(HostedAgent):
    absent: ClassVar[Mapping[str, str]] = {
        "run_two_agents": "a program that calls two agents makes two runs, and gives memory to those that answer people",
    }

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.failed_tools = []
        self._memory = memory

    def run(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        return str(self._run(text, session, user, script).output)

    def run_with_image(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        picture = BinaryContent(b"\x89PNG", media_type="image/png")
        return str(self._run([text, picture], session, user, script).output)

    def stream(self, text: str, *, session: str, user: str, answer: Sequence[str]) -> str:
        async def read() -> str:
            agent = Agent(self._model([Say(piece) for piece in answer]), capabilities=[self._hermes(user)])
            async with agent.run_stream(text, conversation_id=session) as result:
                return "".join([piece async for piece in result.stream_text(delta=True, debounce_by=None)])

        return asyncio.run(read())

    def pause(self, text: str, *, session: str, user: str, call: Call, before: Sequence[Step] = ()) -> Any:
        result = self._run(text, session, user, [*before, call], approval=call.name)
        assert isinstance(result.output, DeferredToolRequests)
        return json.loads(result.all_messages_json())

    def run_cancelled(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> None:
        hang, steps = Hang(), iter(script)

        async def respond(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
            step = next(steps, None)
            return response_of(step) if step is not None else await hang.answer()

        agent = Agent(FunctionModel(respond), capabilities=[self._hermes(user)])
        hang.cancel(agent.run(text, conversation_id=session))

    def run_searched(
        self, text: str, *, session: str, user: str, script: Sequence[Step], cites: bool = False
    ) -> str:
        steps: list[Any] = [response_of(step) for step in script]
        if cites:
            steps[-1].parts[0].provider_name = "openai"
            steps[-1].parts[0].provider_details = {"annotations": [{"type": "url_citation"}]}
        else:
            search = NativeToolCallPart("web_search", {"query": "office"}, tool_call_id="ws-1")
            found = NativeToolReturnPart("web_search", {"status": "completed"}, tool_call_id="ws-1")
            steps[0].parts = [search, found, *steps[0].parts]
        return str(self._run(text, session, user, steps).output)

    def run_with_history(
        self, history: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        return str(self._run(text, session, user, script, [ModelRequest([UserPromptPart(history)])]).output)

    def run_with_colleague(
        self, message: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        # As a program passes the messages of one agent to another.
        asked, said = ModelRequest([UserPromptPart("What is new?")]), ModelResponse([TextPart(message)])
        return str(self._run(text, session, user, script, [asked, said]).output)

    def run_late_result(
        self, result: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        self.run("Order tea.", session=session, user=user, script=[Say("It is on its way.")])
        history = asyncio.run(self._hermes(user).history(session))
        late = ModelRequest([ToolReturnPart("order", result, tool_call_id="order")])
        call = ModelResponse([ToolCallPart("order", {}, tool_call_id="order")])
        return str(self._run(text, session, user, script, [*history, call, late]).output)

    def resume(self, paused: Any, *, session: str, user: str, script: Sequence[Step]) -> str:
        history = ModelMessagesTypeAdapter.validate_json(json.dumps(paused))
        calls = [part.tool_call_id for part in history[-1].parts if isinstance(part, ToolCallPart)]
        results = DeferredToolResults(approvals=dict.fromkeys(calls, True))
        return str(self._run(None, session, user, script, history, results).output)

    def run_structured(self, text: str, *, session: str, user: str, city: str) -> Any:
        return self._run(text, session, user, [Call("final_result", {"city": city})], output_type=Home).output

    def run_blocks(self, text: str, *, session: str, user: str, blocks: Sequence[str]) -> str:
        return str(self._run(text, session, user, [Say(list(blocks))]).output)  # type: ignore[arg-type]

    def run_retried(self, text: str, *, session: str, user: str, answer: str) -> str:
        model = FallbackModel(self._model([Break()]), self._model([Say(answer)]), fallback_on=RuntimeError)
        return str(self._run(text, session, user, [], model=model).output)

    def run_blocked(self, text: str, *, session: str, user: str) -> None:
        self._run(text, session, user, [], more=[ProcessHistory(refuse)])

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
        other = Agent(self._model(inner), capabilities=[self._hermes(user)])

        async def ask(question: str) -> str:
            """Ask the other agent."""
            return str((await other.run(question)).output)

        script = [Call("ask", {"question": question}), Say(answer)]
        return str(self._run(text, session, user, script, tools=[ask]).output)

    def regenerate(self, *, session: str, user: str, answer: str) -> str:
        history = asyncio.run(self._hermes(user).history(session))
        return str(self._run(None, session, user, [Say(answer)], history[:-1]).output)

    def run_summarised(
        self, text: str, *, session: str, user: str, summary: str, script: Sequence[Step]
    ) -> str:
        def summarise(messages: list[ModelMessage]) -> list[ModelMessage]:
            return [ModelRequest([UserPromptPart(summary)]), messages[-1]]

        return str(self._run(text, session, user, script, more=[ProcessHistory(summarise)]).output)

    def _run(
        self,
        prompt: str | Sequence[UserContent] | None,
        session: str,
        user: str,
        script: Sequence[Step],
        history: list[ModelMessage] | None = None,
        results: DeferredToolResults | None = None,
        approval: str = "",
        more: Sequence[Any] = (),
        output_type: Any = None,
        model: Any = None,
        tools: Sequence[Any] = (),
    ) -> Any:
        hermes = self._hermes(user)
        agent: Agent[object, Any] = Agent(
            model or self._model(script),
            output_type=output_type or [str, DeferredToolRequests],
            tools=tools,
            capabilities=[*more, hermes, *([PrepareTools(require_approval(approval))] if approval else ())],
        )

        async def run() -> Any:
            messages = await hermes.history(session) if history is None else history
            return await agent.run(
                prompt, message_history=messages, deferred_tool_results=results, conversation_id=session
            )

        # Not run_sync, which leaves its event loop open.
        result = asyncio.run(run())
        returns = [part for message in result.all_messages() for part in message.parts]
        self.failed_tools = [
            str(part.content)
            for part in returns
            if isinstance(part, ToolReturnPart) and part.outcome == "failed"
        ]
        return result

    def _hermes(self, user: str) -> HermesMemory[object]:
        return HermesMemory(self._memory, user_id=user)

    def _model(self, script: Sequence[Step]) -> FunctionModel:
        steps = iter(script)

        def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            self.requests.append(request_of(messages, info))
            return response_of(next(steps))

        async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
            self.requests.append(request_of(messages, info))
            for step in script:
                assert isinstance(step, Say)
                yield step.text

        return FunctionModel(respond, stream_function=stream)


def response_of(step: Any) -> ModelResponse:
    if isinstance(step, Break):
        raise RuntimeError(step.message)
    if isinstance(step, ModelResponse):
        return step
    if isinstance(step, Call):
        return ModelResponse([ToolCallPart(step.name, step.arguments)])
    return ModelResponse(
        [TextPart(text) for text in ([step.text] if isinstance(step.text, str) else step.text)]
    )


def request_of(messages: list[ModelMessage], info: AgentInfo) -> RecordedRequest:
    pairs: list[tuple[str, str]] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                texts = [part.content] if isinstance(part.content, str) else part.content
                pairs.append(("user", "\n".join(text for text in texts if isinstance(text, str))))
            elif isinstance(part, ToolReturnPart):
                pairs.append(("tool", part.model_response_str()))
            elif isinstance(part, TextPart):
                pairs.append(("assistant", part.content))
    return RecordedRequest(
        info.instructions or "", tuple(pairs), tuple(tool.name for tool in info.function_tools)
    )


def require_approval(name: str) -> Any:
    def prepare(_ctx: RunContext[object], tools: list[ToolDefinition]) -> list[ToolDefinition]:
        return [replace(tool, kind="unapproved") if tool.name == name else tool for tool in tools]

    return prepare


class TestPydanticAI(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return PydanticAgent(memory)


class Weather(BaseModel):
    city: str
    degrees: int


def scripted_model(*responses: ModelResponse | str) -> FunctionModel:
    script = iter(responses)

    def respond(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        step = next(script)
        return ModelResponse([TextPart(step)]) if isinstance(step, str) else step

    return FunctionModel(respond)


def test_the_history_is_what_the_framework_made(tmp_path: Path) -> None:
    search = ModelResponse(
        [ToolCallPart("session_search", {"query": "a"}), ToolCallPart("session_search", {"query": "b"})]
    )
    picture = BinaryContent(b"\x00\xff\x89PNG", media_type="image/png")

    async def talk(memory: Memory) -> None:
        hermes = HermesMemory[object](memory, user_id="ann")
        agent = Agent(scripted_model(search, "Both."), system_prompt="Be brief.", capabilities=[hermes])
        prompt: list[UserContent] = ["Look", picture, ImageUrl("https://example.com/pot.png")]
        result = await agent.run(prompt, conversation_id="c1")
        history = await hermes.history("c1")
        # The instructions are the notes, which each request gets anew.
        expected = [
            replace(m, instructions=None) if isinstance(m, ModelRequest) else m for m in result.all_messages()
        ]
        as_json = ModelMessagesTypeAdapter.dump_json(expected)
        assert history == ModelMessagesTypeAdapter.validate_json(as_json)
        assert isinstance(history[0].parts[0], SystemPromptPart)
        roles = [message.role for message in memory.sessions.get_messages("c1")]
        assert roles == ["user", "assistant", "tool", "tool", "assistant"]

    with open_memory(tmp_path) as memory:
        asyncio.run(talk(memory))


def test_the_output_of_an_output_tool_is_the_answer(tmp_path: Path) -> None:
    answer = ModelResponse([ToolCallPart("final_result", {"city": "Oslo", "degrees": 3})])
    ledger = Ledger()

    async def talk(memory: Memory) -> None:
        hermes = HermesMemory[object](memory, user_id="ann")
        agent = Agent(scripted_model(answer), output_type=Weather, capabilities=[hermes])
        result = await agent.run("How cold is it?", conversation_id="c1")
        assert result.output == Weather(city="Oslo", degrees=3)
        assert len(await hermes.history("c1")) == 3

    with open_memory(tmp_path, provider=ledger) as memory:
        asyncio.run(talk(memory))
        memory.flush()
    assert [turn.assistant for turn in ledger.turns] == ['{"city":"Oslo","degrees":3}']


def test_feedback_to_the_model_is_in_the_history_and_in_no_turn(tmp_path: Path) -> None:
    ledger = Ledger()

    async def talk(memory: Memory) -> None:
        hermes = HermesMemory[object](memory, user_id="ann")
        agent = Agent(scripted_model("Wrong.", "Right."), capabilities=[hermes])

        @agent.output_validator
        def check(output: str) -> str:
            if output == "Wrong.":
                raise ModelRetry("say it right")
            return output

        result = await agent.run("Well?", conversation_id="c1")
        assert len(await hermes.history("c1")) == len(result.all_messages()) == 4

    with open_memory(tmp_path, provider=ledger) as memory:
        asyncio.run(talk(memory))
        memory.flush()
    (turn,) = ledger.turns
    assert (turn.user, turn.assistant) == ("Well?", "Right.")
    assert "say it right" not in repr(turn)


def test_recall_is_in_no_message_of_the_framework(tmp_path: Path) -> None:
    async def talk(memory: Memory) -> None:
        hermes = HermesMemory[object](memory, user_id="ann")
        agent = Agent(scripted_model("Noted.", "Blue."), capabilities=[hermes])
        await agent.run("The pot is blue.", conversation_id="c1")
        await asyncio.to_thread(memory.flush)
        asked = f"Which colour? And what is {FENCE}?"
        result = await agent.run(asked, conversation_id="c2")
        assert "They said" not in repr(result.all_messages())
        history = repr(await hermes.history("c2"))
        assert "They said" not in history
        assert asked in history

    with open_memory(tmp_path, provider=Ledger()) as memory:
        asyncio.run(talk(memory))


def test_users_of_one_agent_are_apart(tmp_path: Path) -> None:
    ledger = Ledger()

    async def talk(memory: Memory) -> None:
        def user_of(ctx: RunContext[str]) -> str:
            return ctx.deps

        def respond(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
            return ModelResponse([TextPart("Hi.")])

        hermes = HermesMemory(memory, user_id=user_of)
        agent = Agent(FunctionModel(respond), deps_type=str, capabilities=[hermes])
        users = ["ann", "bob", "eve"]
        await asyncio.gather(
            *(agent.run(f"I am {user}", deps=user, conversation_id=f"of {user}") for user in users)
        )
        for user in users:
            history = await hermes.history(f"of {user}", user_id=user)
            assert f"I am {user}" in repr(history[0])
            assert len(history) == 2
        with pytest.raises(ValueError, match="user_id"):
            await hermes.history("of ann")

    with open_memory(tmp_path, provider=ledger) as memory:
        asyncio.run(talk(memory))


def test_a_cancelled_run_reaches_no_provider(tmp_path: Path) -> None:
    ledger = Ledger()

    async def talk(memory: Memory) -> None:
        request = asyncio.Event()

        async def hang(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
            request.set()
            await asyncio.Event().wait()
            raise AssertionError

        agent = Agent(FunctionModel(hang), capabilities=[HermesMemory[object](memory, user_id="ann")])
        run = asyncio.create_task(agent.run("Stop", run_id="r1", conversation_id="c1"))
        await request.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        # A turn that were still open would be continued with its first text.
        chat = memory.conversation("c1", platform="pydantic-ai", user_id="ann")
        assert chat.turn("Another", turn_id="c1/r1").text == "Another"

    with open_memory(tmp_path, provider=ledger) as memory:
        asyncio.run(talk(memory))
        memory.flush()
    assert ledger.turns == []


def test_a_resumed_run_that_fails_can_be_resumed_again(tmp_path: Path) -> None:
    ledger = Ledger()
    save = Call("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = PydanticAgent(memory)
        paused = agent.pause("I live in Oslo.", session="c1", user="ann", call=save)
        with pytest.raises(RuntimeError):
            agent.resume(paused, session="c1", user="ann", script=[Break()])
        agent.resume(paused, session="c1", user="ann", script=[Say("Noted.")])
        memory.flush()
        assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("I live in Oslo.", "Noted.")]
        assert len(memory.sessions.get_messages("c1")) == 4


def test_a_run_that_answers_an_earlier_message_anew_is_a_turn(tmp_path: Path) -> None:
    ledger = Ledger()

    async def talk(memory: Memory) -> None:
        hermes = HermesMemory[object](memory, user_id="ann")
        search = ModelResponse([ToolCallPart("session_search", {"query": "again"})])
        model = scripted_model("One.", "Two.", search, "More.")
        agent = Agent(model, instructions="Go on.", capabilities=[hermes])
        first = await agent.run("Again", conversation_id="c1")
        second = await agent.run(message_history=first.all_messages()[:1], conversation_id="c1")
        # The person said nothing in this run.
        third = await agent.run(message_history=second.all_messages(), conversation_id="c1")
        assert third.output == "More."

    with open_memory(tmp_path, provider=ledger) as memory:
        asyncio.run(talk(memory))
        memory.flush()
    assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("Again", "One."), ("Again", "Two.")]


POT = "The pot is blue."


def tell(memory: Memory) -> None:
    """Let the provider know of the pot, and recall it from now on."""
    memory.conversation("c0", platform="pydantic-ai", user_id="ann").turn(POT).finish("Noted.")
    memory.flush()


def test_events_are_scrubbed_too(tmp_path: Path) -> None:
    async def talk(memory: Memory) -> str:
        async def stream(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str]:
            for piece in ["Hi <memo", f"ry-context>They said: {POT}</memory", "-context> there.", " a <"]:
                yield piece

        agent = Agent(
            FunctionModel(stream_function=stream), capabilities=[HermesMemory[object](memory, user_id="ann")]
        )
        async with agent.run_stream_events("Hello", conversation_id="c1") as events:
            return repr([event async for event in events])

    with open_memory(tmp_path, provider=Ledger()) as memory:
        tell(memory)
        events = asyncio.run(talk(memory))
    assert POT not in events
    assert "<memo" not in events


def test_a_message_that_comes_during_a_run_belongs_to_its_turn(tmp_path: Path) -> None:
    ledger = Ledger()

    async def talk(memory: Memory) -> None:
        hermes = HermesMemory[object](memory, user_id="ann")
        agent = Agent(
            scripted_model(ModelResponse([ToolCallPart("look", {})]), "Both."), capabilities=[hermes]
        )

        @agent.tool
        def look(ctx: RunContext[object]) -> str:
            ctx.enqueue("And the other pot?")
            return "blue"

        result = await agent.run("Which colour?", conversation_id="c1")
        assert "And the other pot?" in repr(result.all_messages())
        assert await hermes.history("c1")

    with open_memory(tmp_path, provider=ledger) as memory:
        asyncio.run(talk(memory))
        memory.flush()
    (turn,) = ledger.turns
    assert (turn.user, turn.assistant) == ("Which colour?", "Both.")
    roles = [message["role"] for message in turn.messages]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]


def test_recall_in_a_streamed_answer_of_the_history_is_not_sent_again(tmp_path: Path) -> None:
    echo = f"Hi {FENCE}They said: {POT}</memory-context> there."
    requests: list[RecordedRequest] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        requests.append(request_of(messages, info))
        return ModelResponse([TextPart("Bye.")])

    async def stream(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str]:
        yield echo

    async def talk(memory: Memory) -> list[ModelMessage]:
        hermes = HermesMemory[object](memory, user_id="ann")
        agent = Agent(FunctionModel(respond, stream_function=stream), capabilities=[hermes])
        async with agent.run_stream("Hello", conversation_id="c1") as result:
            await result.get_output()
        await agent.run("Bye", message_history=result.all_messages(), conversation_id="c1")
        return result.all_messages()

    with open_memory(tmp_path, provider=Ledger()) as memory:
        tell(memory)
        history = asyncio.run(talk(memory))
    earlier = [text for role, text in requests[0].messages if role == "assistant"]
    assert earlier == ["Hi  there."]
    assert POT in repr(history)


class Greeter(Ledger):
    def system_prompt_block(self) -> str:
        return "Greet in Norwegian."


def test_the_notes_are_those_of_the_user_from_the_first_request_on(tmp_path: Path) -> None:
    with open_memory(tmp_path, provider=Greeter()) as memory:
        agent = PydanticAgent(memory)
        ann = memory.conversation(platform="pydantic-ai", user_id="ann")
        ann.change_memory("add", "user", "Keeps a tortoise")
        for user in ("ann", "bob"):
            agent.run("Hello", session="c1", user=user, script=[Say("Hei.")])
            agent.run("Hello again", session="c1", user=user, script=[Say("Hei.")])
        systems = [request.system for request in agent.requests]
    assert systems[0] == systems[1]
    assert systems[2] == systems[3]
    assert all("Greet in Norwegian." in system for system in systems)
    assert ["tortoise" in system for system in systems] == [True, True, False, False]


def test_the_notes_follow_the_instructions_of_the_agent(tmp_path: Path) -> None:
    requests: list[RecordedRequest] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        requests.append(request_of(messages, info))
        return ModelResponse([TextPart("Hei.")])

    with open_memory(tmp_path, provider=Greeter()) as memory:
        hermes = HermesMemory[object](memory, user_id="ann")
        agent = Agent(FunctionModel(respond), instructions="Be brief.", capabilities=[hermes])
        asyncio.run(agent.run("Hello", conversation_id="c1"))
    assert requests[0].system.startswith("Be brief.")
    assert "Greet in Norwegian." in requests[0].system


def test_a_paused_run_can_go_on_in_another_conversation(tmp_path: Path) -> None:
    ledger = Ledger()
    save = Call("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = PydanticAgent(memory)
        paused = agent.pause("I live in Oslo.", session="c1", user="ann", call=save)
        for session in ("c2", "c1"):
            agent.resume(paused, session=session, user="ann", script=[Say("Noted.")])
        memory.flush()
        assert [turn.user for turn in ledger.turns] == ["I live in Oslo."] * 2
        assert [len(memory.sessions.get_messages(session)) for session in ("c1", "c2")] == [4, 4]


# The example leaves the model's client to the end of the program.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = ("memory", {"action": "add", "target": "memory", "content": "Billing is on Fly."})
    loop = asyncio.new_event_loop()  # `run_sync` uses it and leaves it open
    asyncio.set_event_loop(loop)
    try:
        with ModelServer([Reply(calls=[call]), Reply("On Fly.")]) as server:
            monkeypatch.setenv("HERMES_HOME", str(tmp_path))
            monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
            monkeypatch.setenv("OPENAI_API_KEY", "scripted")
            exec(example_of(Path(__file__).parents[1] / "README.md"), {})
            assert server.refused == []
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        gc.collect()
    with open_memory(tmp_path) as memory:
        assert memory.sessions.get_messages("chat-7")[-1].content == "On Fly."
        assert (
            "Billing is on Fly." in memory.conversation(platform="pydantic-ai", user_id="ann").system_prompt
        )
