"""The runs of LangGraph in this process, and the turn that all agents of a run share."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeGuard, TypeVar
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    ToolMessage,
    convert_to_openai_messages,
    message_to_dict,
)
from langchain_core.tracers.context import register_configure_hook
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp

from hermes_core import (
    AsyncConversation,
    AsyncMemory,
    AsyncOpenTurn,
    Conversation,
    Memory,
    OpenTurn,
    TurnRecall,
)

Result = TypeVar("Result")

PROBLEM = "the last turn of LangChain"
"""Name of a turn that could not be stored, in `Memory.problems`."""

RECENT_MESSAGES = 50
"""Stored messages among which the branch of a run is looked for before all are read."""

OWN_ANSWER = "hermes_answer"
"""Key in the metadata of an answer to a request of the turn, which a checkpoint keeps. Others are of other agents."""

MAX_REQUESTS = 4096
"""Requests to models of which the recall is remembered for the readers of streams, who may be slow."""

OWN_BLOCKS = frozenset(
    [
        "text",
        "refusal",
        "reasoning",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_call",
        "function_call",
        "input_json_delta",
    ]
)
"""Blocks of an answer that hold no more than its words and the calls of the agent's tools."""


async def settled(value: Any) -> Any:
    """Return a value, or the result of an awaitable: one function serves `Memory` and `AsyncMemory`."""
    return await value if inspect.isawaitable(value) else value


def drive(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that waits for nothing, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    raise RuntimeError("a coroutine of the synchronous memory waits")


class HostedRun:
    """A run of LangGraph with its turn.

    Attributes:
        turn: The turn.
        asked: Id of the person's message.
        answered: True if an agent of the run has ended.
        left: Id of the first stored message that the branch of checkpoints has left; None if there is none.

    Args:
        host: The memory that stores the turn.
        chat: The conversation of the turn.
        turn: The turn.
        asked: Id of the person's message.
        left: See the attribute.
    """

    def __init__(
        self,
        host: Memory | AsyncMemory,
        chat: Conversation | AsyncConversation,
        turn: OpenTurn | AsyncOpenTurn,
        asked: str,
        left: int | None,
    ) -> None:
        self.turn, self.asked, self.left, self.answered = turn, asked, left, False
        self._host, self._chat = host, chat
        self._answer: str | None = None
        self._recorded = {native["data"]["id"] for native in turn.natives if native}
        # Agents of one graph may run at once.
        self._lock = threading.Lock()

    def tolerate(self) -> contextlib.AbstractContextManager[None]:
        """Return a block whose errors are problems of the memory, and don't end the run."""
        memory = self._host.memory if isinstance(self._host, AsyncMemory) else self._host
        return memory.problem_log.tolerate(PROBLEM, Exception)

    async def record(self, messages: Sequence[AnyMessage]) -> None:
        """Add the messages after the person's to the turn. A summary may take them out of the next state."""
        place = next((at for at, message in enumerate(messages) if message.id == self.asked), -1)
        for message in messages[place + 1 :]:
            is_of_turn = isinstance(message, AIMessage | ToolMessage) or (place >= 0 and _is_said(message))
            with self._lock:
                is_new = is_of_turn and message.id not in self._recorded
                self._recorded.add(message.id)
            if is_new:
                is_foreign = isinstance(message, AIMessage) and OWN_ANSWER not in message.response_metadata
                chat = chat_form(message) | ({"origin": "tool"} if is_foreign else {})
                await settled(self.turn.add(chat, native=message_to_dict(message)))

    async def note_history(self, messages: Sequence[AnyMessage]) -> None:
        """Note the messages of a request that are not of this turn. A summary is made of such messages."""
        own = {self.asked, *self._recorded}
        earlier = [message for message in messages if message.id not in own and not _is_summary(message)]
        await settled(self.turn.note_history(*map(chat_form, earlier)))

    async def end_agent(self, state: Mapping[str, Any]) -> None:
        """Record the messages of an agent that has ended. The turn is stored when the run ends."""
        self.answered = True
        with self.tolerate():
            await self.record(state["messages"])
            self._answer = _answer_of_tool(state)

    async def finish(self) -> None:
        """Store the turn in place of the turns that this branch of the conversation has left."""
        with self.tolerate():
            if self.left is not None:
                await settled(self._host.rewind(self._chat.session, self.left))
            await settled(self.turn.finish(self._answer))


async def first_left(
    chat: Conversation | AsyncConversation, asked: str | None, previous: str | None
) -> int | None:
    """Return the id of the first stored message that a branch of checkpoints has left; None if there is none.

    Args:
        chat: The conversation.
        asked: Id of the person's message.
        previous: Id of the person's message of the previous turn on the branch; "" if the branch has none, None if that
            is not known.
    """
    for last in (RECENT_MESSAGES, None):
        history = await settled(chat.history(last=last))
        stored: list[tuple[int, Any]] = [
            (message.id, (message.native or {}).get("data", {}).get("id"))
            for message in history
            if message.role == "user"
        ]
        ids = [message_id for _, message_id in stored]
        if asked in ids:  # answered before
            return stored[ids.index(asked)][0]
        if previous in ids:
            later = stored[ids.index(previous) + 1 :]
            return later[0][0] if later else None
        if previous is None or len(history) < RECENT_MESSAGES:
            break
    return stored[0][0] if previous == "" and stored else None


class Runs(BaseCallbackHandler):
    """The runs in this process, as LangChain reports them to its callbacks.

    The root of a run is the outermost graph. Agents that are nodes of a graph or tools of an agent are parts of its run.
    """

    run_inline = True  # the root of a run is known before its parts begin
    ignore_llm = ignore_chat_model = ignore_retriever = True

    def __init__(self) -> None:
        self._roots: dict[UUID, UUID] = {}
        self._hosted: dict[UUID, dict[Hashable, HostedRun]] = {}

    @property
    def root(self) -> UUID:
        """The root of the run in which the caller is."""
        parent = getattr(get_config().get("callbacks"), "parent_run_id", None) or uuid.uuid4()
        return self._roots.get(parent, parent)

    def get(self, key: Hashable) -> HostedRun | None:
        """Return what the caller's run has under a key; None if there is nothing."""
        return self._hosted.get(self.root, {}).get(key)

    def setdefault(self, key: Hashable, run: HostedRun) -> HostedRun:
        """Keep a hosted run until the caller's run ends, and return it, or that which is kept already."""
        return self._hosted.setdefault(self.root, {}).setdefault(key, run)

    def on_chain_start(
        self,
        *_: Any,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **__: Any,
    ) -> None:
        """Note the root of a run. What runs in a node of a graph has the node in its metadata."""
        parent = (
            run_id if parent_run_id is None or "langgraph_node" not in (metadata or {}) else parent_run_id
        )
        self._roots[run_id] = self._roots.get(parent, parent)

    on_tool_start = on_chain_start

    @property
    def on_chain_end(self) -> Callable[..., Any]:
        """The function for the end of a run."""
        return self._callback(self._end)

    @property
    def on_chain_error(self) -> Callable[..., Any]:
        """The function for the failure of a run."""
        return self._callback(self._fail)

    @staticmethod
    def _callback(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
        """Return a callback in the form that LangChain waits for: a coroutine function if an event loop runs."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            return function
        return lambda *args, **kwargs: drive(function(*args, **kwargs))

    async def _end(self, _: object, *, run_id: UUID, **__: Any) -> None:
        self._roots.pop(run_id, None)
        for run in self._hosted.pop(run_id, {}).values():
            if run.answered:
                await run.finish()

    async def _fail(self, error: BaseException, *, run_id: UUID, **__: Any) -> None:
        root = self._roots.get(run_id, run_id)
        # The reader of a stream may stop at the answer. An interrupt ends the root as if it had succeeded.
        if run_id != root and not isinstance(error, GraphBubbleUp):
            self._roots.pop(run_id, None)
        elif run_id == root and isinstance(error, GeneratorExit):
            await self._end(None, run_id=run_id)
        else:
            self._roots.pop(run_id, None)
            self._hosted.pop(root, None)

    on_tool_end, on_tool_error = on_chain_end, on_chain_error


RUNS = Runs()
_VARIABLE: ContextVar[Runs | None] = ContextVar("hermes_langchain_runs", default=RUNS)
register_configure_hook(_VARIABLE, inheritable=True)


_recalled: OrderedDict[str, TurnRecall] = OrderedDict()


def remember_recall(recall: TurnRecall) -> None:
    """Remember the recall in the request to the model that the caller's node sends."""
    _recalled[str(get_config().get("metadata", {}).get("langgraph_checkpoint_ns"))] = recall
    while len(_recalled) > MAX_REQUESTS:
        _recalled.popitem(last=False)


def recall_of(metadata: Mapping[str, Any]) -> TurnRecall | None:
    """Return the recall in the request to which a streamed token answers; None for an agent without memory."""
    return _recalled.get(str(metadata.get("langgraph_checkpoint_ns")))


def chat_form(message: AnyMessage) -> dict[str, Any]:
    """Return a message in the OpenAI chat form.

    If the model's server did more than answer, the message has the origin of that.
    """
    converted: Any = convert_to_openai_messages(message)
    chat: dict[str, Any] = dict(converted)
    if isinstance(message, AIMessage) and isinstance(chat["content"], list):
        own = [part for part in chat["content"] if part.get("type") in OWN_BLOCKS]
        if len(own) < len(chat["content"]):
            chat |= {"content": own, "origin": "tool"}
    return chat


def question(messages: Sequence[AnyMessage]) -> HumanMessage | None:
    """Return the person's last message. A summary is nobody's message, and a name that of another agent."""
    own = [message for message in reversed(messages) if _is_said(message)]
    return next((message for message in own if not message.name), own[0] if own else None)


def _is_said(message: AnyMessage) -> TypeGuard[HumanMessage]:
    return isinstance(message, HumanMessage) and not _is_summary(message)


def _is_summary(message: AnyMessage) -> bool:
    return "lc_source" in message.additional_kwargs


def _answer_of_tool(state: Mapping[str, Any]) -> str | None:
    """Return the answer of a run that ends with a tool: structured output, or the result of a tool; None for others."""
    messages = state["messages"]
    last = messages[-1]
    if not isinstance(last, ToolMessage):
        return None
    if state.get("structured_response") is not None:
        calls = [
            call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls
        ]
        given = next((call["args"] for call in reversed(calls) if call["id"] == last.tool_call_id), None)
        if given is not None:
            return json.dumps(given, ensure_ascii=False)
    return last.text
