"""The promises of every host, on an agent of LangChain with a scripted model."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

from hermes_langchain import HermesMiddleware, scrub_messages
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from hermes_core import Memory
from hermes_memory_testing.hosting import Break, Call, HostContract, HostedAgent, RecordedRequest, Say, Step

# A checkpointer outlives the process, so one stands for each home.
CHECKPOINTS: dict[str, InMemorySaver] = {}


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
        step = self._next(messages)
        message = AIMessage(step.text) if isinstance(step, Say) else AIMessage("", tool_calls=[call_of(step)])
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Any:
        step = self._next(messages)
        for piece in step.text if isinstance(step.text, list) else [step.text]:
            yield ChatGenerationChunk(message=AIMessageChunk(piece))

    def _next(self, messages: list[BaseMessage]) -> Any:
        system = "".join(message.text for message in messages if message.type == "system")
        roles = {"human": "user", "ai": "assistant"}
        said = [(roles.get(m.type, m.type), m.text) for m in messages if m.type != "system"]
        self.recorder.requests.append(RecordedRequest(system, tuple(said), self.tools))
        step = next(self.script)
        if isinstance(step, Break):
            raise RuntimeError(step.message)
        return step


def call_of(call: Call) -> dict[str, Any]:
    return {"name": call.name, "args": call.arguments, "id": uuid.uuid4().hex, "type": "tool_call"}


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
        return "".join(
            chunk.content for chunk, _ in scrub_messages(stream) if isinstance(chunk, AIMessageChunk)
        )

    def pause(self, text: str, *, session: str, user: str, call: Call) -> Any:
        asked = {"messages": [{"role": "user", "content": text}]}
        result = self._agent(user, [call], approval=call.name).invoke(asked, self._config(session, user))
        assert result["__interrupt__"]
        return call.name

    def resume(self, paused: Any, *, session: str, user: str, script: Sequence[Step]) -> str:
        agent = self._agent(user, script, approval=paused)
        result = agent.invoke(
            Command(resume={"decisions": [{"type": "approve"}]}), self._config(session, user)
        )
        return str(result["messages"][-1].content)

    def _invoke(self, asked: Any, session: str, user: str, script: Sequence[Step]) -> str:
        agent, config = self._agent(user, script), self._config(session, user)
        if self._asynchronous:
            result = asyncio.run(agent.ainvoke(asked, config))
        else:
            result = agent.invoke(asked, config)
        messages = result["messages"]
        self.failed_tools = [m.content for m in messages if m.type == "tool" and m.status == "error"]
        return str(messages[-1].content)

    def _agent(self, user: str, script: Sequence[Step], approval: str = "") -> Any:
        middleware: list[Any] = [HermesMiddleware(self._memory, user_id=user)]
        if approval:
            middleware.append(HumanInTheLoopMiddleware(interrupt_on={approval: True}))
        model = Scripted(script=iter(script), recorder=self)
        return create_agent(model, middleware=middleware, checkpointer=self._saver)

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
