"""The promises of every host, on an agent of LangChain with a scripted model."""

from __future__ import annotations

import asyncio
import gc
import threading
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hermes_langchain import HermesMiddleware, ascrub_messages, scrub_messages
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    before_agent,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
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

# A checkpointer outlives the process, so one stands for each home.
CHECKPOINTS: dict[str, InMemorySaver] = {}


class HostRecorder:
    """The requests of a model that is not the agent's."""

    def __init__(self) -> None:
        self.requests: list[RecordedRequest] = []


class Scripted(BaseChatModel):
    """A model that answers from a script and records its requests."""

    script: Any
    recorder: Any
    tools: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Scripted:
        return Scripted(script=self.script, recorder=self.recorder, tools=tuple(tool.name for tool in tools))

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=message_of(self._next(messages)))])

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        step = self._next(messages)
        if isinstance(step, Hang):
            await step.answer()
        return ChatResult(generations=[ChatGeneration(message=message_of(step))])

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Any:
        step = self._next(messages)
        for piece in step.text if isinstance(step.text, list) else [step.text]:
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))

    def _next(self, messages: list[BaseMessage]) -> Any:
        system = "".join(message.text for message in messages if message.type == "system")
        roles = {"human": "user", "ai": "assistant"}
        said = [(roles.get(m.type, m.type), m.text) for m in messages if m.type != "system"]
        self.recorder.requests.append(RecordedRequest(system, tuple(said), self.tools))
        step = next(self.script)
        if isinstance(step, Break):
            raise RuntimeError(step.message)
        return step


def message_of(step: Any) -> AIMessage:
    if isinstance(step, AIMessage):
        return step
    return AIMessage("", tool_calls=[call_of(step)]) if isinstance(step, Call) else AIMessage(step.text)


def call_of(call: Call) -> dict[str, Any]:
    return {"name": call.name, "args": call.arguments, "id": uuid.uuid4().hex, "type": "tool_call"}


class Home(BaseModel):
    """The home of a person."""

    city: str


class LangChainAgent(HostedAgent):
    def __init__(self, memory: Memory, *, asynchronous: bool = False) -> None:
        super().__init__()
        self.failed_tools = []
        self._asynchronous = asynchronous
        self._saver = CHECKPOINTS.setdefault(str(memory.home.path), InMemorySaver())
        self._memory = memory

    def run(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        return self._invoke({"messages": [{"role": "user", "content": text}]}, session, user, script)

    def run_with_image(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
        content = [{"type": "text", "text": text}, picture]
        return self._invoke({"messages": [{"role": "user", "content": content}]}, session, user, script)

    def stream(self, text: str, *, session: str, user: str, answer: Sequence[str]) -> str:
        agent = self._agent(user, [Say(list(answer))])  # type: ignore[arg-type]
        asked = {"messages": [{"role": "user", "content": text}]}
        stream = agent.stream(asked, self._config(session, user), stream_mode="messages")
        return "".join(chunk.text for chunk, _ in scrub_messages(stream) if isinstance(chunk, AIMessageChunk))

    def pause(self, text: str, *, session: str, user: str, call: Call, before: Sequence[Step] = ()) -> Any:
        agent = self._agent(user, [*before, call], approval=call.name)
        assert self._result(agent, text, session, user)["__interrupt__"]
        return call.name

    def run_cancelled(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> None:
        hang = Hang()
        agent = self._agent(user, [*script, hang])
        asked = {"messages": [{"role": "user", "content": text}]}
        hang.cancel(agent.ainvoke(asked, self._config(session, user)))

    def run_searched(
        self, text: str, *, session: str, user: str, script: Sequence[Step], cites: bool = False
    ) -> str:
        messages: list[Any] = [message_of(step) for step in script]
        if cites:  # as OpenAI's Responses API answers
            source = {"type": "url_citation", "url": "https://example.org", "title": "Office"}
            text_block = {"type": "text", "text": messages[-1].content, "annotations": [source]}
            messages[-1].content = [text_block]
        else:  # as Anthropic answers
            use = {
                "type": "server_tool_use",
                "id": "ws_1",
                "name": "web_search",
                "input": {"query": "office"},
            }
            found = {"type": "web_search_tool_result", "tool_use_id": "ws_1", "content": []}
            messages[0].content = [use, found]
        return str(self._result(self._agent(user, messages), text, session, user)["messages"][-1].text)

    def run_with_history(
        self, history: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        asked = [{"role": "user", "content": history}, {"role": "user", "content": text}]
        return self._invoke({"messages": asked}, session, user, script)

    def run_with_colleague(
        self, message: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        # As a supervisor passes the report of an agent on.
        report = {"role": "user", "name": "researcher", "content": message}
        return self._invoke({"messages": [{"role": "user", "content": text}, report]}, session, user, script)

    def run_late_result(
        self, result: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        self.run("Order tea.", session=session, user=user, script=[Say("It is on its way.")])
        late = ToolMessage(result, tool_call_id="order")
        return self._invoke({"messages": [late, HumanMessage(text)]}, session, user, script)

    def resume(self, paused: Any, *, session: str, user: str, script: Sequence[Step]) -> str:
        agent = self._agent(user, script, approval=paused)
        result = agent.invoke(
            Command(resume={"decisions": [{"type": "approve"}]}), self._config(session, user)
        )
        return str(result["messages"][-1].content)

    def run_structured(self, text: str, *, session: str, user: str, city: str) -> Any:
        agent = self._agent(user, [Call("Home", {"city": city})], response_format=ToolStrategy(Home))
        return self._result(agent, text, session, user)["structured_response"]

    def run_blocks(self, text: str, *, session: str, user: str, blocks: Sequence[str]) -> str:
        said: Any = Say([{"type": "text", "text": block} for block in blocks])  # type: ignore[arg-type]
        return str(self._result(self._agent(user, [said]), text, session, user)["messages"][-1].text)

    def run_retried(self, text: str, *, session: str, user: str, answer: str) -> str:
        again = ModelRetryMiddleware(max_retries=1, initial_delay=0, on_failure="error")
        agent = self._agent(user, [Break(), Say(answer)], again)
        return str(self._result(agent, text, session, user)["messages"][-1].text)

    def run_blocked(self, text: str, *, session: str, user: str) -> None:
        @before_agent(can_jump_to=["end"])
        def refuse(*_: Any) -> dict[str, Any]:
            raise PermissionError("refused")

        agent = self._agent(user, [], refuse, saver=False)
        self._result(agent, text, session, user)

    def run_two_agents(self, text: str, *, session: str, user: str, answer: str) -> str:
        graph = StateGraph(MessagesState)
        graph.add_node("first", self._agent(user, [Say("A draft.")], saver=False))
        graph.add_node("second", self._agent(user, [Say(answer)], saver=False))
        graph.add_edge(START, "first").add_edge("first", "second").add_edge("second", END)
        return str(
            self._result(graph.compile(checkpointer=self._saver), text, session, user)["messages"][-1].text
        )

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
        other = self._agent(user, inner, saver=False)
        asked = {"messages": [{"role": "user", "content": question}]}

        def ask(question: str) -> str:
            """Ask the other agent."""
            return str(other.invoke(asked)["messages"][-1].text)

        async def aask(question: str) -> str:
            return str((await other.ainvoke(asked))["messages"][-1].text)

        helper = StructuredTool.from_function(ask, coroutine=aask, name="ask")
        agent = self._agent(user, [Call("ask", {"question": question}), Say(answer)], tools=[helper])
        return str(self._result(agent, text, session, user)["messages"][-1].text)

    def regenerate(self, *, session: str, user: str, answer: str) -> str:
        agent, config = self._agent(user, [Say(answer)]), self._config(session, user)
        checkpoint = next(state for state in agent.get_state_history(config) if state.next == ("model",))
        return str(self._result(agent, None, session, user, checkpoint.config)["messages"][-1].text)

    def run_summarised(
        self, text: str, *, session: str, user: str, summary: str, script: Sequence[Step]
    ) -> str:
        model = Scripted(script=iter([Say(summary)]), recorder=HostRecorder())
        middleware = SummarizationMiddleware(model, trigger=("messages", 2), keep=("messages", 1))
        agent = self._agent(user, script, middleware)
        return str(self._result(agent, text, session, user)["messages"][-1].text)

    def _invoke(self, asked: Any, session: str, user: str, script: Sequence[Step]) -> str:
        messages = self._result(self._agent(user, script), asked, session, user)["messages"]
        self.failed_tools = [m.content for m in messages if m.type == "tool" and m.status == "error"]
        return str(messages[-1].content)

    def _result(self, agent: Any, asked: Any, session: str, user: str, config: Any = None) -> Any:
        asked = {"messages": [{"role": "user", "content": asked}]} if isinstance(asked, str) else asked
        config = config or self._config(session, user)
        if self._asynchronous:
            return asyncio.run(agent.ainvoke(asked, config))
        return agent.invoke(asked, config)

    def _agent(
        self,
        user: str,
        script: Sequence[Step],
        *others: Any,
        approval: str = "",
        saver: bool = True,
        **options: Any,
    ) -> Any:
        middleware: list[Any] = [*others, HermesMiddleware(self._memory, user_id=user)]
        if approval:
            middleware.append(HumanInTheLoopMiddleware(interrupt_on={approval: True}))
        model = Scripted(script=iter(script), recorder=self)
        return create_agent(
            model, middleware=middleware, checkpointer=self._saver if saver else None, **options
        )

    def session_id(self, session: str, user: str) -> str:
        # A checkpointer knows threads only, so a program names them after the user.
        return f"{user}-{session}"

    def _config(self, session: str, user: str) -> Any:
        return {"configurable": {"thread_id": self.session_id(session, user)}}


class TestLangChain(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return LangChainAgent(memory)


class TestLangChainAsync(HostContract):
    def agent(self, memory: Memory) -> HostedAgent:
        return LangChainAgent(memory, asynchronous=True)


PLATFORM: Any = {"platform": "langchain", "user_id": "ann"}


def told(memory: Memory, thread: str = "ann-c1") -> list[str]:
    return [message.content for message in memory.conversation(thread, **PLATFORM).history()]


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def hosted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Memory, LangChainAgent]]:
    with open_memory(tmp_path, provider="") as memory:
        yield memory, LangChainAgent(memory, asynchronous=request.param)


def two_turns(agent: LangChainAgent, session: str) -> list[Any]:
    """Run two turns with a tool call each, and return the checkpoints from which a run can go on."""
    for number in (1, 2):
        script: list[Step] = [Call("session_search", {"query": "tea"}), Say(f"Answer {number}")]
        agent.run(f"Question {number}", session=session, user="ann", script=script)
    history = agent._agent("ann", []).get_state_history(agent._config(session, "ann"))
    return [state for state in history if state.next]


def test_a_run_from_a_checkpoint_takes_the_place_of_what_came_after(
    hosted: tuple[Memory, LangChainAgent],
) -> None:
    memory, agent = hosted
    nodes = set()
    for place in range(len(two_turns(agent, "c0"))):
        state = two_turns(agent, f"c{place + 1}")[place]
        nodes |= set(state.next)
        asked = sum(message.type == "human" for message in state.values.get("messages", ()))
        number = asked + (state.next == ("__start__",))
        answer = f"Answer {number}" if state.next == ("HermesMiddleware.after_agent",) else "Anew"

        agent._result(agent._agent("ann", [Say("Anew")]), None, f"c{place + 1}", "ann", state.config)
        own = [text for text in told(memory, f"ann-c{place + 1}") if text.startswith(("Q", "A"))]
        assert own == [*["Question 1", "Answer 1"][: 2 * number - 2], f"Question {number}", answer], (
            state.next
        )
        assert memory.problems() == []
    assert nodes == {
        "__start__",
        "HermesMiddleware.before_agent",
        "model",
        "tools",
        "HermesMiddleware.after_agent",
    }


def test_a_question_that_the_program_changed_takes_the_place_of_the_first(
    hosted: tuple[Memory, LangChainAgent],
) -> None:
    memory, agent = hosted
    states = [state for state in two_turns(agent, "c1") if state.next == ("model",)]
    state = next(state for state in states if state.values["messages"][-1].type == "human")
    graph = agent._agent("ann", [Say("Anew")])
    changed = HumanMessage("Question 3", id=state.values["messages"][-1].id)
    config = graph.update_state(
        state.config, {"messages": [changed]}, as_node="HermesMiddleware.before_agent"
    )
    agent._result(graph, None, "c1", "ann", config)
    assert told(memory)[-2:] == ["Question 3", "Anew"]
    assert "Question 2" not in told(memory)
    assert memory.problems() == []


def test_a_second_agent_that_waits_is_part_of_the_turn(hosted: tuple[Memory, LangChainAgent]) -> None:
    memory, agent = hosted

    def graph(*scripts: list[Step]) -> Any:
        built = StateGraph(MessagesState)
        built.add_node("first", agent._agent("ann", scripts[0], saver=False))
        built.add_node("second", agent._agent("ann", scripts[1], saver=False, approval="session_search"))
        built.add_edge(START, "first").add_edge("first", "second").add_edge("second", END)
        return built.compile(checkpointer=agent._saver)

    waiting = graph([Say("A draft.")], [Call("session_search", {"query": "tea"})])
    agent._result(waiting, "Plan a trip.", "c1", "ann")
    assert told(memory) == []
    answer: Command[Any] = Command(resume={"decisions": [{"type": "approve"}]})
    agent._result(graph([], [Say("Go to Oslo.")]), answer, "c1", "ann")
    chat = memory.conversation("ann-c1", **PLATFORM)
    assert [message.role for message in chat.history()] == [
        "user",
        "assistant",
        "assistant",
        "tool",
        "assistant",
    ]
    assert told(memory)[0] == "Plan a trip."
    assert memory.problems() == []


def test_what_a_graph_says_between_its_agents_is_stored_and_read_from_elsewhere(
    hosted: tuple[Memory, LangChainAgent],
) -> None:
    memory, agent = hosted
    built = StateGraph(MessagesState)
    built.add_node("first", agent._agent("ann", [Say("A draft.")], saver=False))
    built.add_node("letter", lambda _: {"messages": [HumanMessage(f"{NOTE}, a letter says.")]})
    built.add_node("second", agent._agent("ann", [SAVE, Say("Noted.")], saver=False))
    built.add_edge(START, "first").add_edge("first", "letter")
    built.add_edge("letter", "second").add_edge("second", END)
    agent._result(built.compile(checkpointer=agent._saver), "When are they paid?", "c1", "ann")
    assert told(memory)[:3] == ["When are they paid?", "A draft.", f"{NOTE}, a letter says."]
    chat = memory.conversation(**PLATFORM)
    assert [note.entry for note in memory.curated.of(chat.session).read().waiting_notes()] == [NOTE]


def test_an_answer_that_the_agent_did_not_ask_for_is_read_from_elsewhere(
    hosted: tuple[Memory, LangChainAgent],
) -> None:
    memory, agent = hosted
    built = StateGraph(MessagesState)
    built.add_node("researcher", lambda _: {"messages": [AIMessage(f"{NOTE}.")]})
    built.add_node("second", agent._agent("ann", [SAVE, Say("Noted.")], saver=False))
    built.add_edge(START, "researcher").add_edge("researcher", "second").add_edge("second", END)
    agent._result(built.compile(checkpointer=agent._saver), "When are they paid?", "c1", "ann")
    chat = memory.conversation(**PLATFORM)
    assert [note.entry for note in memory.curated.of(chat.session).read().waiting_notes()] == [NOTE]


def test_a_note_of_a_run_that_a_person_approved_is_kept(hosted: tuple[Memory, LangChainAgent]) -> None:
    memory, agent = hosted
    paused = agent.pause("When are they paid?", session="c1", user="ann", call=SAVE)
    agent.resume(paused, session="c1", user="ann", script=[Say("Noted.")])
    assert NOTE in memory.conversation(**PLATFORM).system_prompt


def test_a_summary_within_a_run_leaves_the_turn_whole(hosted: tuple[Memory, LangChainAgent]) -> None:
    memory, agent = hosted
    model = Scripted(script=iter([Say("A summary.")] * 5), recorder=HostRecorder())
    summaries = SummarizationMiddleware(model, trigger=("messages", 4), keep=("messages", 2))
    search = Call("session_search", {"query": "tea"})
    graph = agent._agent("ann", [search] * 4 + [Say("Done.")], summaries)
    agent._result(graph, "Look for tea.", "c1", "ann")
    assert "A summary." in agent.requests[-1].text
    assert "Look for tea." not in agent.requests[-1].text
    roles = [message.role for message in memory.conversation("ann-c1", **PLATFORM).history()]
    assert roles == ["user", *["assistant", "tool"] * 4, "assistant"]
    assert told(memory)[0] == "Look for tea."
    assert memory.problems() == []


def test_the_questions_of_a_program_in_one_chain_are_turns(tmp_path: Path) -> None:
    with open_memory(tmp_path, provider="") as memory:
        agent = LangChainAgent(memory)

        def talk(_: object) -> None:
            for number in (1, 2):
                agent.run(f"Question {number}", session="c1", user="ann", script=[Say(f"Answer {number}")])

        RunnableLambda(talk).invoke({})
        assert told(memory) == ["Question 1", "Answer 1", "Question 2", "Answer 2"]


def test_a_reader_who_stops_at_the_answer_has_a_turn(tmp_path: Path) -> None:
    with open_memory(tmp_path, provider="") as memory:
        agent = LangChainAgent(memory)
        asked = {"messages": [{"role": "user", "content": "Hello"}]}
        stream = agent._agent("ann", [Say("Hi.")]).stream(
            asked, agent._config("c1", "ann"), stream_mode="updates"
        )
        for update in stream:
            if "HermesMiddleware.after_agent" in update:
                break
        stream.close()
        assert told(memory) == ["Hello", "Hi."]


def test_a_system_prompt_in_blocks_keeps_its_marks(hosted: tuple[Memory, LangChainAgent]) -> None:
    memory, agent = hosted
    memory.conversation(**PLATFORM).change_memory("add", "user", "Lives in Oslo.")
    requests: list[Any] = []

    class Spy(Scripted):
        def _next(self, messages: list[BaseMessage]) -> Any:
            requests.append(messages)
            return super()._next(messages)

        def bind_tools(self, tools: Sequence[Any], **_: Any) -> Scripted:
            return self

    block = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    graph = create_agent(
        Spy(script=iter([Say("Hi.")]), recorder=agent),
        system_prompt=SystemMessage([block]),
        middleware=[HermesMiddleware(memory, user_id="ann")],
    )
    agent._result(graph, "Hello", "c1", "ann")
    first, notes = requests[0][0].content
    assert first == block
    assert "Lives in Oslo." in notes["text"]


def chunk(content: Any, **fields: Any) -> tuple[AIMessageChunk, dict[str, Any]]:
    metadata = {"langgraph_node": "model", "langgraph_checkpoint_ns": "model:1"}
    return AIMessageChunk(content=content, **fields), metadata


PIECES = ["Hi <memo", "ry-context>\nThey said: Hello.</memory", "-context> there", " <mem"]
BLOCKS = [[{"type": "text", "text": piece, "index": 0}] for piece in PIECES]
STREAMS = {
    "text": [chunk(piece) for piece in PIECES],
    "blocks": [chunk(blocks) for blocks in BLOCKS],
    "thoughts between": [
        item
        for blocks in BLOCKS
        for item in (chunk(blocks), chunk([{"type": "reasoning", "reasoning": "."}]))
    ],
    "with an end": [chunk(PIECES[0]), *map(chunk, PIECES[1:3]), chunk(PIECES[3], chunk_position="last")],
    "several modes": [("messages", chunk(piece)) for piece in PIECES],
    "subgraphs": [(("node:1",), "messages", chunk(piece)) for piece in PIECES],
    "second version": [{"type": "messages", "ns": (), "data": chunk(piece)} for piece in PIECES],
    "two at once": [
        item for piece in PIECES for item in (chunk(piece, id="1"), chunk("".join(piece.split("<")), id="2"))
    ],
}


def shown(item: Any) -> str:
    pair = (
        item["data"] if isinstance(item, dict) else item if isinstance(item[0], AIMessageChunk) else item[-1]
    )
    return pair[0].text if pair[0].id != "2" else ""


@pytest.fixture
def recalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model's request of `chunk` have recall."""
    with open_memory(tmp_path, provider=Ledger()) as memory:
        memory.conversation("c1").turn("Hello.").finish("Hi.")
        memory.flush()
        recall = memory.conversation("c2").turn("Hello again").recall
    monkeypatch.setattr("hermes_langchain.runs._recalled", {"model:1": recall})


@pytest.mark.usefixtures("recalled")
@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_streams_of_all_forms_are_clean(stream: list[Any]) -> None:
    async def items() -> AsyncIterator[Any]:
        for item in stream:
            yield item

    async def collect() -> list[Any]:
        return [item async for item in ascrub_messages(items())]

    for clean in (list(scrub_messages(stream)), asyncio.run(collect())):
        assert "".join(map(shown, clean)) == "Hi  there <mem"


def test_other_items_of_a_stream_pass() -> None:
    items: list[Any] = [
        {"model": {}},
        ("updates", {"model": {}}),
        ("custom", (1, 2)),
        {"type": "values", "data": {}},
        "x",
    ]
    assert list(scrub_messages(items)) == items


def test_runs_at_once_in_a_thread_are_all_stored(tmp_path: Path) -> None:
    with open_memory(tmp_path, provider="") as memory:
        agent = LangChainAgent(memory)
        agent.run("First", session="c1", user="ann", script=[Say("One.")])

        @before_agent
        def meanwhile(*_: Any) -> None:
            other = threading.Thread(
                target=agent.run,
                args=("Second",),
                kwargs={"session": "c1", "user": "ann", "script": [Say("Two.")]},
            )
            other.start()
            other.join()

        graph = create_agent(
            Scripted(script=iter([Say("Three.")]), recorder=agent),
            middleware=[HermesMiddleware(memory, user_id="ann"), meanwhile],
            checkpointer=agent._saver,
        )
        agent._result(graph, "Third", "c1", "ann")
        assert told(memory) == ["First", "One.", "Second", "Two.", "Third", "Three."]


# The example leaves the model's client to the end of the program.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langchain_openai")
    call = ("memory", {"action": "add", "target": "memory", "content": "Billing is on Fly."})
    with ModelServer([Reply(calls=[call]), Reply("On Fly.")], strict=False) as server:
        monkeypatch.setenv("HERMES_HOME", str(tmp_path))
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "scripted")
        exec(example_of(Path(__file__).parents[1] / "README.md"), {})
        gc.collect()
    with open_memory(tmp_path) as memory:
        assert told(memory, "chat-7")[-1] == "On Fly."
        assert "Billing is on Fly." in memory.conversation(**PLATFORM).system_prompt
