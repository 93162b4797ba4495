"""The context provider that gives an agent of Agent Framework memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agent_framework import (
    AgentResponse,
    AgentSession,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    ResponseStream,
    SessionContext,
)
from typing_extensions import override

from hermes_agent_framework.messages import (
    as_chat,
    as_content,
    is_prompt,
    with_recall,
    with_text,
    without_recall,
)
from hermes_core import (
    AsyncConversation,
    AsyncMemory,
    AsyncOpenTurn,
    HermesError,
    Memory,
    StreamingContextScrubber,
    ToolResult,
)

log = logging.getLogger(__name__)

OPEN_TURN = "turn"
"""Key in the provider's state of a session: the id of the turn that waits for approval, or that runs."""


class HermesContextProvider(ContextProvider):
    """Gives an agent the notes, recall and tools of a memory, and stores its turns.

    Args:
        memory: The memory of the process.
        user_id: Id of the user, or a function that reads it from the session of a run.
        platform: Name of the program, part of the user's identity.
        source_id: Id of the provider, different for each one of an agent.
        scrub_stream: False to pass streamed text on with recall that the model repeats.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        user_id: str | Callable[[AgentSession], str] = "",
        platform: str = "agent-framework",
        source_id: str = "hermes",
        scrub_stream: bool = True,
    ) -> None:
        super().__init__(source_id)
        self._memory = AsyncMemory(memory)
        self._schemas = memory.tool_schemas()
        self._user_id, self._platform, self._scrub_stream = user_id, platform, scrub_stream

    @override
    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Begin the turn of the person's message, or continue the one that waited for approval."""
        user = self._user_id if isinstance(self._user_id, str) else self._user_id(session)
        chat = await self._memory.conversation(session.session_id, platform=self._platform, user_id=user)
        turn = await self._turn(chat, context, state)
        if notes := await chat.system_prompt():
            context.extend_instructions(self.source_id, notes)
        run = _Run(turn, self._scrub_stream)
        context.metadata[self.source_id] = run
        context.extend_tools(self.source_id, [_tool(chat, schema, run.failures) for schema in self._schemas])
        context.extend_middleware(self.source_id, [_Failures(run), _Requests(run)])

    async def _turn(
        self, chat: AsyncConversation, context: SessionContext, state: dict[str, Any]
    ) -> AsyncOpenTurn | None:
        prompts = [message for message in context.input_messages if is_prompt(message)]
        if prompts:
            turn = await chat.turn(as_content(prompts))
            state[OPEN_TURN] = turn.id
            return turn
        if OPEN_TURN not in state:
            return None
        try:
            return await chat.resume(state[OPEN_TURN])
        except HermesError as exc:
            log.warning("a run goes on without its turn, which is not stored: %s", exc)
            del state[OPEN_TURN]
            return None

    @override
    async def after_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Store the turn if the run has ended, and keep it open if the run waits for a person."""
        run, response = context.metadata.get(self.source_id), context.response
        if not isinstance(run, _Run) or run.turn is None or response is None:
            return
        chats = [chat for message in without_recall(response.messages) for chat in as_chat(message)]
        await run.turn.add(*chats)
        if response.user_input_requests:
            return
        last = chats[-1] if chats else {}
        answered = last.get("role") == "assistant" and not last.get("tool_calls")
        await run.turn.finish(None if answered else _output(response))
        state.pop(OPEN_TURN, None)


def _output(response: AgentResponse[Any]) -> str:
    return response.text or ("" if response.value is None else str(response.value))


class _Run:
    """One run of an agent.

    Attributes:
        turn: The turn of the run; None if nobody said anything.
        failures: Why a tool of memory failed, by the id of the call.
    """

    def __init__(self, turn: AsyncOpenTurn | None, scrub_stream: bool) -> None:
        self.turn, self.scrub_stream = turn, scrub_stream
        self.failures: dict[str, str] = {}

    async def cancel(self) -> None:
        """Cancel the turn, because the run failed."""
        if self.turn is not None:
            await self.turn.cancel()


def _tool(chat: AsyncConversation, schema: dict[str, Any], failures: dict[str, str]) -> FunctionTool:
    async def call(ctx: FunctionInvocationContext, **arguments: Any) -> str:
        call_id = str(ctx.metadata.get("call_id", ""))
        result: ToolResult = await chat.call_tool(schema["name"], arguments, call_id)
        if not result.ok:
            failures[call_id] = result.error
        return result.text

    return FunctionTool(
        name=schema["name"], description=schema["description"], func=call, input_model=schema["parameters"]
    )


class _Failures(FunctionMiddleware):
    """Middleware of tools. With it, the framework passes the id of a call to the tool."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    @override
    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        await call_next()


class _Requests(ChatMiddleware):
    """Middleware of the requests to the model: recall goes in, and recall that the model repeats comes out."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    @override
    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        messages = list(context.messages)
        for content in (content for message in messages for content in message.contents):
            # An exception of the tool would hide its text from the model.
            if content.type == "function_result" and content.call_id in self._run.failures:
                content.exception = self._run.failures[content.call_id]
        places = [place for place, message in enumerate(messages) if is_prompt(message)]
        if self._run.turn is not None and places:
            copy = with_recall(messages[places[-1]], self._run.turn.recall)
            messages[places[-1]] = context.record_message_replacement(copy, messages[places[-1]])
            context.messages = messages
        try:
            await call_next()
        except (Exception, asyncio.CancelledError):
            await self._run.cancel()
            raise
        if isinstance(context.result, ResponseStream):
            context.result = ResponseStream(self._stream(context.result), finalizer=ChatResponse.from_updates)
        elif context.result is not None:
            context.result.messages = without_recall(context.result.messages)

    async def _stream(
        self, stream: ResponseStream[ChatResponseUpdate, ChatResponse[Any]]
    ) -> AsyncIterator[ChatResponseUpdate]:
        scrubber = StreamingContextScrubber()
        try:
            async for update in stream:
                if self._run.scrub_stream:
                    update.contents = [_scrubbed(content, scrubber) for content in update.contents]
                yield update
        except (Exception, asyncio.CancelledError):
            await self._run.cancel()
            raise
        if self._run.scrub_stream and (rest := scrubber.flush()):
            yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(rest)])


def _scrubbed(content: Content, scrubber: StreamingContextScrubber) -> Content:
    return with_text(content, scrubber.feed(content.text or "")) if content.type == "text" else content
