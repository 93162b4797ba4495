"""The middleware that gives an agent of LangChain memory, and a filter for streamed tokens."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
    message_to_dict,
)
from langchain_core.tools import StructuredTool
from langgraph.config import get_config
from langgraph.runtime import Runtime

from hermes_core import (
    AsyncMemory,
    AsyncOpenTurn,
    Memory,
    OpenTurn,
    StreamingContextScrubber,
    sanitize_context,
)

# Turns that this process has begun. A run that fails never ends its turn, so old ones are dropped here; they can be
# resumed by their id until they expire.
MAX_TURNS = 1024


class HermesState(AgentState[Any]):
    """The agent's state with the id of the open turn, which a checkpointer keeps while a run is paused."""

    hermes_turn: NotRequired[Annotated[str, PrivateStateAttr]]


class HermesMiddleware(AgentMiddleware[HermesState, Any, Any]):
    """Gives an agent the notes, recall and tools of a memory, and stores its turns.

    Args:
        memory: The memory of the process.
        user_id: Id of the user, or a function that reads it from the runtime of a run.
        platform: Name of the program, part of the user's identity.
        tools: False to offer no tools of memory.
    """

    state_schema = HermesState

    def __init__(
        self,
        memory: Memory,
        *,
        user_id: str | Callable[[Runtime[Any]], str] = "",
        platform: str = "langchain",
        tools: bool = True,
    ) -> None:
        super().__init__()
        self._memory, self._async = memory, AsyncMemory(memory)
        self._user_id, self._platform = user_id, platform
        self._turns: OrderedDict[str, OpenTurn | AsyncOpenTurn] = OrderedDict()
        self._schemas = {schema["name"]: schema for schema in memory.tool_schemas()} if tools else {}
        self.tools = [_declared(schema) for schema in self._schemas.values()]

    # ------------------------------------------------------------- begin and end

    def before_agent(self, state: HermesState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Begin a turn with the last message of the person."""
        asked = _last_human(state["messages"])
        if asked is None:
            return None
        chat = self._memory.conversation(**self._identity(runtime))
        return self._begun(chat.turn(_content(asked), native=message_to_dict(asked)))

    async def abefore_agent(self, state: HermesState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Begin a turn with the last message of the person."""
        asked = _last_human(state["messages"])
        if asked is None:
            return None
        chat = await self._async.conversation(**self._identity(runtime))
        return self._begun(await chat.turn(_content(asked), native=message_to_dict(asked)))

    def after_agent(self, state: HermesState, runtime: Runtime[Any]) -> None:
        """Store the turn with its tool calls and the answer."""
        turn = self._turn(state, runtime)
        if turn is not None:
            for message in _after_human(state["messages"]):
                turn.add(_chat(message), native=message_to_dict(message))
            turn.finish()
            self._turns.pop(turn.id, None)

    async def aafter_agent(self, state: HermesState, runtime: Runtime[Any]) -> None:
        """Store the turn with its tool calls and the answer."""
        turn = await self._aturn(state, runtime)
        if turn is not None:
            for message in _after_human(state["messages"]):
                await turn.add(_chat(message), native=message_to_dict(message))
            await turn.finish()
            self._turns.pop(turn.id, None)

    # ------------------------------------------------------------------- requests

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Add notes and recall to this request, and remove recall from the answer."""
        turn = self._turn(request.state, request.runtime)
        return handler(request) if turn is None else _scrubbed(handler(_with_memory(request, turn)))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Add notes and recall to this request, and remove recall from the answer."""
        turn = await self._aturn(request.state, request.runtime)
        if turn is None:
            return await handler(request)
        return _scrubbed(await handler(_with_memory(request, turn)))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Any]
    ) -> ToolMessage | Any:
        """Run a tool of memory; hand other tools on."""
        call = request.tool_call
        turn = self._turn(request.state, request.runtime) if call["name"] in self._schemas else None
        if turn is None:
            return handler(request)
        return _answer(call, turn.call_tool(call["name"], call["args"], call["id"] or ""))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Any]]
    ) -> ToolMessage | Any:
        """Run a tool of memory; hand other tools on."""
        call = request.tool_call
        turn = await self._aturn(request.state, request.runtime) if call["name"] in self._schemas else None
        if turn is None:
            return await handler(request)
        return _answer(call, await turn.call_tool(call["name"], call["args"], call["id"] or ""))

    # -------------------------------------------------------------------- private

    def _identity(self, runtime: Any) -> dict[str, Any]:
        user = self._user_id if isinstance(self._user_id, str) else self._user_id(runtime)
        # Without a thread each run is a conversation of its own.
        thread = str(get_config().get("configurable", {}).get("thread_id") or uuid.uuid4().hex)
        return {"session_id": thread, "platform": self._platform, "user_id": user}

    def _begun(self, turn: OpenTurn | AsyncOpenTurn) -> dict[str, Any]:
        self._turns[turn.id] = turn
        while len(self._turns) > MAX_TURNS:
            self._turns.popitem(last=False)
        return {"hermes_turn": turn.id}

    def _turn(self, state: Any, runtime: Any) -> OpenTurn | None:
        """Return the open turn of a run, which another process may have begun; None if there is none."""
        turn_id = state.get("hermes_turn")
        if not turn_id:
            return None
        turn = self._turns.get(turn_id)
        if not isinstance(turn, OpenTurn):
            turn = self._memory.conversation(**self._identity(runtime)).resume(turn_id)
            self._begun(turn)
        return turn

    async def _aturn(self, state: Any, runtime: Any) -> AsyncOpenTurn | None:
        """Return the open turn of a run, which another process may have begun; None if there is none."""
        turn_id = state.get("hermes_turn")
        if not turn_id:
            return None
        turn = self._turns.get(turn_id)
        if not isinstance(turn, AsyncOpenTurn):
            chat = await self._async.conversation(**self._identity(runtime))
            turn = await chat.resume(turn_id)
            self._begun(turn)
        return turn


def scrub_messages(stream: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yield the (message, metadata) pairs of `stream_mode="messages"`, without recall that the model repeats."""
    scrubber = StreamingContextScrubber()
    last: tuple[Any, Any] | None = None
    for chunk, metadata in stream:
        if isinstance(chunk, AIMessage) and isinstance(chunk.content, str):
            last = (chunk, metadata)
            chunk = chunk.model_copy(update={"content": scrubber.feed(chunk.content)})
        yield chunk, metadata
    if last is not None and (rest := scrubber.flush()):
        yield last[0].model_copy(update={"content": rest}), last[1]


def _declared(schema: dict[str, Any]) -> StructuredTool:
    """Return a tool that offers a schema to the model; `wrap_tool_call` runs it."""

    def outside(**_: Any) -> str:
        raise RuntimeError(f"{schema['name']} runs in an agent with HermesMiddleware only")

    return StructuredTool(
        name=schema["name"], description=schema["description"], args_schema=schema["parameters"], func=outside
    )


def _with_memory(request: ModelRequest[Any], turn: OpenTurn | AsyncOpenTurn) -> ModelRequest[Any]:
    """Return the request with the notes after the system prompt, and recall in the person's last message."""
    memory_prompt = next((m["content"] for m in turn.messages if m["role"] == "system"), "")
    prompts = [request.system_prompt or "", memory_prompt]
    system = "\n\n".join(filter(None, prompts))
    messages = list(request.messages)
    place = max(
        (at for at, message in enumerate(messages) if isinstance(message, HumanMessage)), default=None
    )
    if place is not None:
        messages[place] = messages[place].model_copy(update={"content": turn.request_message["content"]})
    return request.override(messages=messages, system_message=SystemMessage(system) if system else None)


def _scrubbed(response: ModelResponse[Any]) -> ModelResponse[Any]:
    for message in response.result:
        if isinstance(message, AIMessage) and isinstance(message.content, str):
            message.content = sanitize_context(message.content)
    return response


def _answer(call: Any, result: Any) -> ToolMessage:
    status = "success" if result.ok else "error"
    return ToolMessage(result.text, tool_call_id=call["id"], name=call["name"], status=status)


def _last_human(messages: Sequence[AnyMessage]) -> HumanMessage | None:
    return next((message for message in reversed(messages) if isinstance(message, HumanMessage)), None)


def _after_human(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    place = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
    return messages[place + 1 :]


def _content(message: HumanMessage) -> Any:
    return _chat(message)["content"]


def _chat(message: BaseMessage) -> dict[str, Any]:
    """Return a message in the OpenAI chat form."""
    chat: Any = convert_to_openai_messages(message)
    return dict(chat)
