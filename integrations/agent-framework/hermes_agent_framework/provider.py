"""The context provider that gives an agent of Agent Framework memory."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
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
    Message,
    ResponseStream,
    SessionContext,
)
from typing_extensions import override

from hermes_agent_framework.messages import (
    as_chat,
    is_prompt,
    is_summary,
    scrubbed,
    with_recall,
    without_recall,
)
from hermes_core import (
    AsyncConversation,
    AsyncMemory,
    AsyncOpenTurn,
    HermesError,
    Memory,
    ToolResult,
    TurnRecall,
)

log = logging.getLogger(__name__)

OPEN_TURN = "turn"
"""Key in the provider's state of a session: the id of the turn that waits for approval, or that runs."""

PROBLEM = "the last turn of Agent Framework"
"""Name of a turn that could not be stored, in `Memory.problems`."""


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
        outer = _outer_run.get()
        if outer is not None:  # an agent asks this one through a tool, and no person
            run = _Run(outer.chat, None, self._scrub_stream)
            run.tools = outer.tools
        else:
            user = self._user_id if isinstance(self._user_id, str) else self._user_id(session)
            chat = await self._memory.conversation(session.session_id, platform=self._platform, user_id=user)
            prompts = [message for message in context.input_messages if is_prompt(message)]
            run = _Run(chat, await self._turn(chat, context, state), self._scrub_stream)
            run.prompt = prompts[-1] if prompts else None
        chat = run.chat
        if notes := await chat.system_prompt():
            context.extend_instructions(self.source_id, notes)
        context.metadata[self.source_id] = run
        context.extend_tools(self.source_id, [_tool(run, schema) for schema in self._schemas])
        context.extend_middleware(self.source_id, [_Tools(run), _Requests(run)])

    async def _turn(
        self, chat: AsyncConversation, context: SessionContext, state: dict[str, Any]
    ) -> AsyncOpenTurn | None:
        prompts = [message for message in context.input_messages if is_prompt(message)]
        if prompts:
            turn = await chat.turn(as_chat(prompts[-1])[0])
            # The person's message is the last one. Who wrote the others, the program alone knows.
            before = [m for m in context.input_messages if m is not prompts[-1]]
            chats = [{**chat, "origin": "tool"} for message in before for chat in as_chat(message)]
            await turn.add(*chats)
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
        with self._memory.memory.problem_log.tolerate(PROBLEM, Exception):
            messages = without_recall(response.messages, run.turn.recall)
            chats = [chat for message in messages for chat in as_chat(message)]
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
        chat: The conversation.
        turn: The turn of the run; None if nobody said anything.
        prompt: The person's message.
        tools: The turn or conversation that runs the tools of memory.
        failures: Why a tool of memory failed, by the id of the call.
    """

    def __init__(self, chat: AsyncConversation, turn: AsyncOpenTurn | None, scrub_stream: bool) -> None:
        self.chat, self.turn, self.scrub_stream = chat, turn, scrub_stream
        self.prompt: Message | None = None
        self.tools: AsyncOpenTurn | AsyncConversation = turn or chat
        self.failures: dict[str, str] = {}


_outer_run: ContextVar[_Run | None] = ContextVar("hermes_agent_framework_outer_run", default=None)
"""The run whose tool is at work. An agent may run as a tool."""


def _tool(run: _Run, schema: dict[str, Any]) -> FunctionTool:
    async def call(ctx: FunctionInvocationContext, **arguments: Any) -> str:
        call_id = str(ctx.metadata.get("call_id", ""))
        result: ToolResult = await run.tools.call_tool(schema["name"], arguments, call_id)
        if not result.ok:
            run.failures[call_id] = result.error
        return result.text

    return FunctionTool(
        name=schema["name"], description=schema["description"], func=call, input_model=schema["parameters"]
    )


class _Tools(FunctionMiddleware):
    """Middleware of tools. With it, the framework passes the id of a call to the tool."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    @override
    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        token = _outer_run.set(self._run)
        try:
            await call_next()
        finally:
            _outer_run.reset(token)


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
        turn = self._run.turn
        if turn is None:
            await call_next()
            return
        # A summary or another provider's message may have the role "user" as well.
        places = [place for place, message in enumerate(messages) if self._is_prompt(message)]
        place = places[-1] if places else 0
        # What the run itself makes is added when it ends. A service that keeps the conversation gets only that.
        later = [m for m in messages[place:] if is_prompt(m) and not self._is_prompt(m)]
        earlier = [*messages[:place], *later]
        await turn.note_history(*(c for m in earlier if not is_summary(m) for c in as_chat(m)))
        if places:
            copy = with_recall(messages[place], turn.recall)
            replace = getattr(context, "record_message_replacement", None)  # since version 1.20
            messages[place] = replace(copy, messages[place]) if replace else copy
            context.messages = messages
        # If the request fails, the turn stays open: the host may repeat the request.
        await call_next()
        if isinstance(context.result, ResponseStream):
            stream = self._stream(context.result, turn.recall)
            context.result = ResponseStream(stream, finalizer=ChatResponse.from_updates)
        elif context.result is not None:
            context.result.messages = without_recall(context.result.messages, turn.recall)

    def _is_prompt(self, message: Message) -> bool:
        # The framework passes messages on as they are, and a host may make copies.
        prompt = self._run.prompt
        return prompt is not None and (message is prompt or message.contents == prompt.contents)

    async def _stream(
        self, stream: ResponseStream[ChatResponseUpdate, ChatResponse[Any]], recall: TurnRecall
    ) -> AsyncIterator[ChatResponseUpdate]:
        scrubber = recall.scrubber()
        async for update in stream:
            if self._run.scrub_stream:
                update.contents = [scrubbed(content, scrubber) for content in update.contents]
            yield update
        if self._run.scrub_stream and (rest := scrubber.flush()):
            yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(rest)])
