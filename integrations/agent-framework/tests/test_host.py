"""The promises of every host, on an agent of Agent Framework with a scripted model."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from agent_framework import (
    Agent,
    AgentResponse,
    AgentSession,
    Annotation,
    BaseChatClient,
    ChatContext,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    SessionContext,
    SummarizationStrategy,
)
from hermes_agent_framework import HermesContextProvider
from pydantic import BaseModel

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
from hermes_memory_testing.trust_checks import NOTE, SAVE

# A session store outlives the process, so one stands for each home.
SESSIONS: dict[str, dict[tuple[str, str], str]] = {}


class Scripted(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A client whose model answers from a script, and records its requests."""

    def __init__(self, script: Sequence[Step], requests: list[RecordedRequest]) -> None:
        super().__init__()
        self._steps, self._requests = list(script), requests

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> Awaitable[ChatResponse[Any]] | ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        self._requests.append(request_of(messages, options))
        if stream:
            return ResponseStream(self._updates(), finalizer=ChatResponse.from_updates)
        return self._respond()

    async def _respond(self) -> ChatResponse[Any]:
        step = self._steps.pop(0)
        if isinstance(step, Hang):
            await step.answer()
        return ChatResponse(messages=[Message("assistant", contents_of(step))])

    async def _updates(self) -> AsyncIterator[ChatResponseUpdate]:
        for step in self._steps:
            yield ChatResponseUpdate(role="assistant", contents=[content_of(step)])


@dataclass(frozen=True)
class Searched:
    """An answer of a model whose server searched, with the items of the search or with a citation."""

    step: Step
    cites: bool


def contents_of(step: Any) -> list[Content]:
    if isinstance(step, Searched):
        (content,) = contents_of(step.step)
        if step.cites:
            content.annotations = [Annotation(type="citation", url="https://example.org", title="Office")]
            return [content]
        call = Content.from_search_tool_call(
            call_id="ws-1", tool_name="web_search", arguments={"query": "office"}
        )
        return [
            call,
            Content.from_search_tool_result(call_id="ws-1", tool_name="web_search", items=[]),
            content,
        ]
    if isinstance(step, Say) and isinstance(step.text, list):
        return [Content.from_text(text) for text in step.text]
    return [content_of(step)]


def content_of(step: Step) -> Content:
    if isinstance(step, Break):
        raise RuntimeError(step.message)
    if isinstance(step, Say):
        return Content.from_text(step.text)
    return Content.from_function_call("call-1", step.name, arguments=json.dumps(step.arguments))


def request_of(messages: Sequence[Message], options: Mapping[str, Any]) -> RecordedRequest:
    pairs = []
    for message in messages:
        results = [str(content.result) for content in message.contents if content.type == "function_result"]
        pairs.append(("tool" if results else message.role, "".join(results) or message.text))
    tools = tuple(tool.name for tool in options.get("tools") or ())
    return RecordedRequest(options.get("instructions") or "", tuple(pairs), tools)


class RequireApproval(ContextProvider):
    """A provider that lets a person approve each call of a tool."""

    def __init__(self, name: str) -> None:
        super().__init__("approval")
        self._name = name

    async def before_run(self, *, context: SessionContext, **_: Any) -> None:
        for tool in context.tools:
            if tool.name == self._name:
                tool.approval_mode = "always_require"


class Retry(ChatMiddleware):
    """A host that repeats a failed request."""

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        try:
            await call_next()
        except RuntimeError:
            await call_next()


class Refuse(ChatMiddleware):
    """A guardrail that lets no request pass."""

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        raise PermissionError("refused")


class Home(BaseModel):
    city: str


class FrameworkAgent(HostedAgent):
    absent: ClassVar[Mapping[str, str]] = {
        "run_two_agents": "a workflow gives each agent a session and a run of its own",
        "regenerate": "a session has no checkpoints, and its messages have no ids",
    }

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.failed_tools = []
        self._memory = memory
        self._sessions = SESSIONS.setdefault(str(memory.home.path), {})
        self._user_of: dict[str, str] = {}

    def run(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        return self._run(text, session, user, script).text

    def run_with_image(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        picture = Content.from_data(b"\x89PNG", media_type="image/png")
        return self._run(Message("user", [text, picture]), session, user, script).text

    def stream(self, text: str, *, session: str, user: str, answer: Sequence[str]) -> str:
        async def read() -> str:
            agent = self._agent([Say(piece) for piece in answer], user)
            stream = agent.run(text, session=AgentSession(session_id=session), stream=True)
            return "".join([update.text async for update in stream])

        return asyncio.run(read())

    def pause(self, text: str, *, session: str, user: str, call: Call, before: Sequence[Step] = ()) -> Any:
        response = self._run(text, session, user, [*before, call], approval=call.name)
        (request,) = response.user_input_requests
        return request.to_dict()

    def resume(
        self, paused: Any, *, session: str, user: str, script: Sequence[Step], approved: bool = True
    ) -> str:
        request = Content.from_dict(paused)
        assert request.function_call is not None
        answer = Message("user", [request.to_function_approval_response(approved)])
        return self._run(answer, session, user, script, approval=str(request.function_call.name)).text

    def run_cancelled(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> None:
        hang = Hang()
        agent = self._agent([*script, hang], user)
        hang.cancel(agent.run(text, session=AgentSession(session_id=session)))

    def run_searched(
        self, text: str, *, session: str, user: str, script: Sequence[Step], cites: bool = False
    ) -> str:
        steps: list[Any] = list(script)
        place = -1 if cites else 0
        steps[place] = Searched(steps[place], cites)
        return self._run(text, session, user, steps).text

    def run_with_history(
        self, history: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        earlier = [Message("user", [history]), Message("assistant", ["I see."])]
        return self._run([*earlier, Message("user", [text])], session, user, script).text

    def run_with_colleague(
        self, message: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        said = Message("assistant", [message], author_name="researcher")
        return self._run([Message("user", [text]), said], session, user, script).text

    def run_late_result(
        self, result: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        self.run("Order tea.", session=session, user=user, script=[Say("It is on its way.")])
        late = Message("tool", [Content.from_function_result("order", result=result)])
        return self._run([late, Message("user", [text])], session, user, script).text

    def run_structured(self, text: str, *, session: str, user: str, city: str) -> Any:
        script = [Say(json.dumps({"city": city}))]
        return self._run(text, session, user, script, response_format=Home).value

    def run_blocks(self, text: str, *, session: str, user: str, blocks: Sequence[str]) -> str:
        return self._run(text, session, user, [Say(list(blocks))]).text  # type: ignore[arg-type]

    def run_retried(self, text: str, *, session: str, user: str, answer: str) -> str:
        return self._run(text, session, user, [Break(), Say(answer)], middleware=[Retry()]).text

    def run_blocked(self, text: str, *, session: str, user: str) -> None:
        self._run(text, session, user, [], middleware=[Refuse()])

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
        other = self._agent(inner, user).as_tool(name="ask", arg_name="task", propagate_session=True)
        script = [Call("ask", {"task": question}), Say(answer)]
        return self._run(text, session, user, script, tools=[other]).text

    def run_summarised(
        self, text: str, *, session: str, user: str, summary: str, script: Sequence[Step]
    ) -> str:
        strategy = SummarizationStrategy(client=Scripted([Say(summary)], []), target_count=1, threshold=0)
        return self._run(text, session, user, script, compaction_strategy=strategy).text

    def _run(
        self,
        prompt: str | Message | Sequence[Message],
        session: str,
        user: str,
        script: Sequence[Step],
        approval: str = "",
        response_format: Any = None,
        **more: Any,
    ) -> AgentResponse[Any]:
        stored = self._sessions.get((user, session))
        current = AgentSession.from_dict(json.loads(stored)) if stored else AgentSession(session_id=session)
        agent = self._agent(script, user, approval, **more)
        options: Any = {"response_format": response_format} if response_format else None
        response: AgentResponse[Any] = asyncio.run(agent.run(prompt, session=current, options=options))
        self._sessions[user, session] = json.dumps(current.to_dict())
        contents = [content for message in response.messages for content in message.contents]
        self.failed_tools = [str(content.result) for content in contents if content.exception]
        return response

    def _agent(
        self,
        script: Sequence[Step],
        user: str,
        approval: str = "",
        **more: Any,
    ) -> Agent[Any]:
        providers: list[ContextProvider] = [HermesContextProvider(self._memory, user_id=user)]
        if approval:
            providers.append(RequireApproval(approval))
        return Agent(Scripted(script, self.requests), context_providers=providers, name="host", **more)


class TestAgentFramework(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return FrameworkAgent(memory)


def agent_of(
    memory: Memory, script: Sequence[Step], requests: list[RecordedRequest], **options: Any
) -> Agent[Any]:
    hermes = HermesContextProvider(memory, **{"user_id": "ann", **options})
    return Agent(Scripted(script, requests), instructions="Be brief.", context_providers=[hermes])


class Letters(ContextProvider):
    """Another provider, which brings a text along."""

    async def before_run(self, *, context: SessionContext, **_: Any) -> None:
        context.extend_messages(self.source_id, [Message("user", [f"{NOTE}, a letter says."])])


@pytest.mark.parametrize("is_first", [True, False])
def test_what_another_provider_brings_is_read_from_elsewhere(tmp_path: Path, is_first: bool) -> None:
    with open_memory(tmp_path) as memory:
        hermes = HermesContextProvider(memory, user_id="ann")
        providers = [Letters("letters"), hermes] if is_first else [hermes, Letters("letters")]
        agent = Agent(Scripted([SAVE, Say("Noted.")], []), context_providers=providers)
        asyncio.run(agent.run("When are they paid?", session=AgentSession(session_id="c1")))
        chat = memory.conversation(platform="agent-framework", user_id="ann")
        assert [note.entry for note in memory.curated.of(chat.session).read().waiting_notes()] == [NOTE]
        assert NOTE not in chat.system_prompt


def test_recall_is_in_no_message_and_no_state_of_the_framework(tmp_path: Path) -> None:
    requests: list[RecordedRequest] = []

    async def talk(memory: Memory) -> None:
        script = [
            Say("Noted."),
            Call("session_search", {"query": "pot"}),
            Say(f"Blue {FENCE}They said: The pot is blue.</memory-context>."),
        ]
        agent = agent_of(memory, script, requests)
        await agent.run("The pot is blue.", session=AgentSession(session_id="c1"))
        await asyncio.to_thread(memory.flush)
        session, question = AgentSession(session_id="c2"), Message("user", ["Which colour?"])
        response = await agent.run(question, session=session)
        assert all("They said" in request.text for request in requests[1:])  # also after the tool call
        assert question.text == "Which colour?"
        assert FENCE not in json.dumps(session.to_dict())
        assert response.text == "Blue ."

    with open_memory(tmp_path, provider=Ledger()) as memory:
        asyncio.run(talk(memory))


def test_the_notes_follow_the_instructions_of_the_agent(tmp_path: Path) -> None:
    requests: list[RecordedRequest] = []
    with open_memory(tmp_path) as memory:
        chat = memory.conversation(platform="agent-framework", user_id="ann")
        chat.change_memory("add", "user", "Keeps a tortoise")
        asyncio.run(agent_of(memory, [Say("Hi.")], requests).run("Hello", session=AgentSession()))
    assert requests[0].system.startswith("Be brief.")
    assert "tortoise" in requests[0].system


def test_users_of_one_agent_are_apart(tmp_path: Path) -> None:
    ledger = Ledger()

    async def talk(memory: Memory) -> None:
        agent = agent_of(memory, [Say("Hi.")] * 3, [], user_id=lambda session: str(session.state["user"]))
        sessions = [AgentSession(session_id=f"of {user}") for user in ("ann", "bob", "eve")]
        for session in sessions:
            session.state["user"] = session.session_id.removeprefix("of ")
        await asyncio.gather(
            *(agent.run(f"I am {session.state['user']}", session=session) for session in sessions)
        )
        for user in ("ann", "bob", "eve"):
            chat = memory.conversation(f"of {user}", platform="agent-framework", user_id=user)
            assert [message.content for message in chat.history()] == [f"I am {user}", "Hi."]

    with open_memory(tmp_path, provider=ledger) as memory:
        asyncio.run(talk(memory))


def test_a_stream_that_fails_or_is_left_reaches_no_provider(tmp_path: Path) -> None:
    ledger = Ledger()

    async def talk(memory: Memory) -> None:
        session = AgentSession(session_id="c1")
        broken = agent_of(memory, [Say("Well, "), Break()], [])
        with pytest.raises(RuntimeError):
            async for _ in broken.run("Broken tea", session=session, stream=True):
                pass
        stream = agent_of(memory, [Say("One "), Say("two")], []).run("Cold tea", session=session, stream=True)
        async for _ in stream:
            break
        agent = agent_of(memory, [Say("One "), Say("two")], [])
        result = await agent.run("Whole tea", session=session, stream=True).get_final_response()
        assert result.text == "One two"

    with open_memory(tmp_path, provider=ledger) as memory:
        asyncio.run(talk(memory))
        memory.flush()
        assert memory.sessions.past.search("Broken", everybody=True) == []
    assert [(turn.user, turn.assistant) for turn in ledger.turns] == [("Whole tea", "One two")]


def test_a_cancelled_run_reaches_no_provider(tmp_path: Path) -> None:
    ledger = Ledger()
    with open_memory(tmp_path, provider=ledger) as memory:
        FrameworkAgent(memory).run_cancelled("Stop", session="c1", user="ann", script=[])
        assert memory.conversation("c1", platform="agent-framework", user_id="ann").history() == []
        memory.flush()
    assert ledger.turns == []


@pytest.mark.parametrize("approved", [True, False])
def test_a_call_that_a_person_approves_or_rejects_is_part_of_one_turn(tmp_path: Path, approved: bool) -> None:
    ledger = Ledger()
    save = Call("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = FrameworkAgent(memory)
        paused = agent.pause("I live in Oslo.", session="c1", user="ann", call=save)
        agent.resume(paused, session="c1", user="ann", script=[Say("Well.")], approved=approved)
        memory.flush()
        chat = memory.conversation("c1", platform="agent-framework", user_id="ann")
        assert memory.curated.of(chat.session).entries("user") == (("Lives in Oslo.",) if approved else ())
    (turn,) = ledger.turns
    assert [message["role"] for message in turn.messages] == ["user", "assistant", "tool", "assistant"]
    assert turn.messages[1]["content"] == ""


def test_a_run_whose_turn_has_expired_goes_on_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger()
    save = Call("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = FrameworkAgent(memory)
        paused = agent.pause("I live in Oslo.", session="c1", user="ann", call=save)
        chat = memory.conversation("c1", platform="agent-framework", user_id="ann")
        state = json.loads(SESSIONS[str(memory.home.path)]["ann", "c1"])["state"]
        chat.resume(state["hermes"]["turn"]).cancel()
        assert agent.resume(paused, session="c1", user="ann", script=[Say("Noted.")]) == "Noted."
        memory.flush()
    assert ledger.turns == []
    assert "without its turn" in caplog.text


def test_the_value_of_a_structured_answer_and_a_picture_alone_are_a_turn(tmp_path: Path) -> None:
    ledger = Ledger()
    picture = Message("user", [Content.from_uri("https://example.com/pot.png", media_type="image/png")])
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = agent_of(memory, [Say('{"colour": "blue"}')], [])
        asyncio.run(agent.run([picture], session=AgentSession(session_id="c1")))
        memory.flush()
        (message, _) = memory.sessions.get_messages("c1")
        assert message.parts[0]["image_url"] == {"url": "https://example.com/pot.png"}
    (turn,) = ledger.turns
    assert turn.assistant == '{"colour": "blue"}'


def test_a_run_without_a_message_of_a_person_has_notes_and_tools_and_no_turn(tmp_path: Path) -> None:
    ledger, requests = Ledger(), list[RecordedRequest]()
    with open_memory(tmp_path, provider=ledger) as memory:
        agent = agent_of(memory, [Say("Hi.")], requests)
        asyncio.run(agent.run(Message("system", ["Greet."]), session=AgentSession(session_id="c1")))
        memory.flush()
    assert "memory" in requests[0].tools
    assert ledger.turns == []


# The example leaves the model's client to the end of the program.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("agent_framework_openai")
    call = ("memory", {"action": "add", "target": "memory", "content": "Billing is on Fly."})
    with ModelServer([Reply(calls=[call]), Reply("On Fly.")], strict=False) as server:
        monkeypatch.setenv("HERMES_HOME", str(tmp_path))
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "scripted")
        exec(example_of(Path(__file__).parents[1] / "README.md"), {})
        gc.collect()
    with open_memory(tmp_path) as memory:
        assert memory.sessions.get_messages("chat-7")[-1].content == "On Fly."
        prompt = memory.conversation(platform="agent-framework", user_id="ann").system_prompt
        assert "Billing is on Fly." in prompt
