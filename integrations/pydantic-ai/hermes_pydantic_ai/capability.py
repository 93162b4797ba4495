"""The capability that gives an agent of Pydantic AI memory."""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import AsyncIterable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import (
    AgentStreamEvent,
    InstructionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, RunContext, Tool
from pydantic_ai.toolsets import FunctionToolset
from pydantic_core import to_json
from typing_extensions import override

from hermes_core import (
    AsyncConversation,
    AsyncMemory,
    AsyncOpenTurn,
    Memory,
    StreamingContextScrubber,
)
from hermes_pydantic_ai.messages import (
    as_chat,
    as_content,
    as_native,
    prompts,
    split_prompt,
    with_recall,
    without_recall,
)

PROBLEM = "the last turn of Pydantic AI"
"""Name of a turn that could not be stored, in `Memory.problems`."""

# Conversations of which the recall is remembered, and the parts of it for each. A program may keep an answer as it was
# streamed, with recall that the model repeated, and pass it as history later.
MAX_CONVERSATIONS, MAX_CONTEXTS = 1000, 40


class HermesMemory(AbstractCapability[AgentDepsT]):
    """Gives an agent the notes, recall and tools of a memory, and stores its turns.

    Args:
        memory: The memory of the process.
        user_id: Id of the user, or a function that reads it from the context of a run.
        platform: Name of the program, part of the user's identity.
        scrub_stream: False to pass streamed text on with recall that the model repeats.
        id: Id of the capability, different for each one of an agent.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        user_id: str | Callable[[RunContext[AgentDepsT]], str] = "",
        platform: str = "pydantic-ai",
        scrub_stream: bool = True,
        id: str = "hermes_memory",  # noqa: A002 - the name in Pydantic AI
    ) -> None:
        self.id = id
        self._memory = AsyncMemory(memory)
        self._schemas = memory.tool_schemas()
        self._user_id, self._platform, self._scrub_stream = user_id, platform, scrub_stream
        self._contexts: OrderedDict[str, tuple[tuple[str, str], ...]] = OrderedDict()
        # State of one run, on the copy that `for_run` makes. `_prompt_run` is the run that sent the person's message: an
        # earlier one if the run goes on after an approval.
        self._chat: AsyncConversation | None = None
        self._turn: AsyncOpenTurn | None = None
        self._tools: AsyncOpenTurn | AsyncConversation | None = None  # what runs the tools of memory
        self._prompt_run: str | None = None
        self._left: int | None = None  # the first message that the answer of this run takes the place of
        self._requests = 0

    async def history(self, conversation_id: str, *, user_id: str | None = None) -> list[ModelMessage]:
        """Return the messages of the finished turns of a conversation, for `message_history`.

        Args:
            conversation_id: Id of the conversation.
            user_id: Id of the user; default: that of the capability.

        Raises:
            ValueError: The capability has a function for the user, and no id was given.
        """
        user = self._user_id if user_id is None else user_id
        if not isinstance(user, str):
            raise ValueError("user_id is a function, which needs a run: give history the id as `user_id=`")
        chat = await self._memory.conversation(conversation_id, platform=self._platform, user_id=user)
        texts = [message.native_json for message in await chat.history() if message.native_json]
        return [message for text in texts for message in ModelMessagesTypeAdapter.validate_json(text)]

    # ------------------------------------------------------------------------ run

    @override
    async def for_run(self, ctx: RunContext[AgentDepsT]) -> HermesMemory[AgentDepsT]:
        """Return a copy for one run."""
        run = copy.copy(self)
        run._chat = run._turn = run._tools = run._prompt_run = run._left = None
        run._requests = 0
        return run

    @override
    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: Any) -> AgentRunResult[Any]:
        """Store the turn if the run ends, keep it open if the run waits for tools, and cancel it if the run fails."""
        user = self._user_id if isinstance(self._user_id, str) else self._user_id(ctx)
        outer = _outer_run.get()
        if outer is not None:  # an agent asks this one through a tool, and no person
            self._chat, self._tools, self._requests = outer._chat, outer._tools, 1
        else:
            session_id = ctx.conversation_id or ""
            self._chat = await self._memory.conversation(session_id, platform=self._platform, user_id=user)
            self._tools = self._chat
        try:
            result: AgentRunResult[Any] = await handler()
        except (Exception, asyncio.CancelledError):
            # A turn of an earlier run stays open, so that the program can try once more with the approval.
            if self._turn is not None and self._prompt_run == ctx.run_id:
                await self._turn.cancel()
            raise
        if self._turn is not None and not isinstance(result.output, DeferredToolRequests):
            with self._memory.memory.problem_log.tolerate(PROBLEM, Exception):
                await self._finish(self._turn, result)
        return result

    async def _finish(self, turn: AsyncOpenTurn, result: AgentRunResult[Any]) -> None:
        messages = result.all_messages()
        prompt = self._prompt(messages)
        # Without the person's message, another capability has rewritten the history.
        answers = result.new_messages() if prompt is None else messages[prompt[0] + 1 :]
        if self._left is not None and self._chat is not None:
            await self._memory.rewind(self._chat.session, self._left)
        last: dict[str, Any] = {}
        pending: list[ModelMessage] = []  # messages without a chat form are stored with the next message
        for message in (without_recall(answer, turn.recall) for answer in answers):
            pending.append(message)
            if chats := as_chat(message):
                await turn.add(*chats, native=as_native(pending))
                last, pending = chats[-1], []
        if last.get("role") == "assistant" and not last.get("tool_calls"):
            await turn.finish()
        else:  # the output of an output tool
            output = result.output
            text = output if isinstance(output, str) else to_json(output, fallback=str).decode()
            await turn.finish(text, native=as_native(pending) or None)

    # ------------------------------------------------------------------- requests

    @override
    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Begin the turn with the first request, and add notes and recall to copies of each request."""
        messages = list(request_context.messages)
        self._requests += 1
        # A later request of a run without a message of the person would find the person's message of an earlier turn.
        if self._requests == 1:
            await self._begin(messages)
        if self._turn is not None and self._chat is not None:
            # Also answers that a program streamed and put into its history as they came.
            recalled = replace(self._turn.recall, contexts=self._contexts.get(self._chat.id, ()))
            messages = [without_recall(message, recalled) for message in messages]
            prompt = self._prompt(messages)
            if prompt is None:  # what this run made is added when it ends
                earlier = [message for message in messages if message.run_id != ctx.run_id]
            else:
                earlier = [*messages[: prompt[0]], split_prompt(prompt[1])[0]]
                messages[prompt[0]] = with_recall(prompt[1], self._turn.recall)
            await self._turn.note_history(*(chat for message in earlier for chat in as_chat(message)))
        parameters = request_context.model_request_parameters
        # Not `get_instructions`: the framework asks for those before the turn begins, which starts the providers.
        if self._chat is not None and (notes := await self._chat.system_prompt()):
            instructions = [*(parameters.instruction_parts or []), InstructionPart(notes, dynamic=True)]
            parameters = replace(parameters, instruction_parts=instructions)
        return replace(request_context, messages=messages, model_request_parameters=parameters)

    async def _begin(self, messages: Sequence[ModelMessage]) -> None:
        """Begin the turn of the person's last message, or continue it. An empty request has no turn."""
        if self._chat is None or not prompts(messages) or not messages[-1].parts:
            return
        request = prompts(messages)[-1][1]
        self._prompt_run = request.run_id
        # With the conversation, since a program may go on with a copy of the history in another conversation.
        turn_id = f"{self._chat.id}/{request.run_id}" if request.run_id else ""
        if turn_id and await self._memory.sessions.has_turn(turn_id):
            turn_id = ""  # the program lets the model answer an earlier message anew
            asked = [m for m in await self._chat.history() if m.role == "user"]
            runs = [{native.get("run_id") for native in m.native or ()} for m in asked]
            self._left = next(
                (m.id for m, own in zip(asked, runs, strict=True) if request.run_id in own), None
            )
        content, native = as_content(split_prompt(request)[1]), as_native([request])
        self._turn = self._tools = await self._chat.turn(content, turn_id=turn_id, native=native)
        contexts = (*self._contexts.pop(self._chat.id, ()), *self._turn.recall.contexts)
        self._contexts[self._chat.id] = contexts[-MAX_CONTEXTS:]
        while len(self._contexts) > MAX_CONVERSATIONS:
            self._contexts.popitem(last=False)

    def _prompt(self, messages: Sequence[ModelMessage]) -> tuple[int, ModelRequest] | None:
        """Return the message that began the turn, with its place; None if it isn't there."""
        items = [item for item in prompts(messages) if item[1].run_id == self._prompt_run]
        if not items:
            return None
        # A run may get further messages while it works. Without ids of runs, the last message is the person's.
        return items[0] if self._prompt_run else items[-1]

    @override
    async def after_model_request(
        self, ctx: RunContext[AgentDepsT], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Remove recall from the answer."""
        return response if self._turn is None else without_recall(response, self._turn.recall)

    @override
    async def wrap_tool_execute(
        self, ctx: RunContext[AgentDepsT], *, handler: Any, args: Any, **_: Any
    ) -> Any:
        """Execute a tool, which may run an agent."""
        token = _outer_run.set(self)
        try:
            return await handler(args)
        finally:
            _outer_run.reset(token)

    @override
    def get_toolset(self) -> FunctionToolset[AgentDepsT]:
        """Return the tools of memory."""
        return FunctionToolset([self._tool(schema) for schema in self._schemas], id=self.id)

    def _tool(self, schema: dict[str, Any]) -> Tool[AgentDepsT]:
        async def call(ctx: RunContext[AgentDepsT], **arguments: Any) -> str:
            if self._tools is None:
                raise RuntimeError(f"the tool {schema['name']!r} runs in a run of an agent only")
            result = await self._tools.call_tool(schema["name"], arguments, ctx.tool_call_id or "")
            if not result.ok:
                raise ToolFailed(result.text)
            return result.text

        return Tool.from_schema(
            call, schema["name"], schema["description"], schema["parameters"], takes_ctx=True
        )

    # --------------------------------------------------------------------- stream

    @property
    @override
    def has_wrap_run_event_stream(self) -> bool:
        """False, or each run would be streamed. A run that is streamed anyway is wrapped all the same."""
        return False

    @override
    async def wrap_run_event_stream(
        self, ctx: RunContext[AgentDepsT], *, stream: AsyncIterable[AgentStreamEvent]
    ) -> AsyncIterable[AgentStreamEvent]:
        """Remove recall from streamed text."""
        scrubbers: dict[int, StreamingContextScrubber] = {}
        async for event in stream:
            turn = self._turn
            if turn is None or not self._scrub_stream:
                pass
            elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                scrubber = scrubbers[event.index] = turn.recall.scrubber()
                event = replace(event, part=replace(event.part, content=scrubber.feed(event.part.content)))
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                scrubber = scrubbers.setdefault(event.index, turn.recall.scrubber())
                text = scrubber.feed(event.delta.content_delta)
                event = replace(event, delta=replace(event.delta, content_delta=text))
            elif isinstance(event, PartEndEvent) and isinstance(event.part, TextPart):
                if event.index in scrubbers and (rest := scrubbers.pop(event.index).flush()):
                    yield PartDeltaEvent(index=event.index, delta=TextPartDelta(rest))
                clean = turn.recall.remove_from(event.part.content)
                event = replace(event, part=replace(event.part, content=clean))
            yield event


_outer_run: ContextVar[HermesMemory[Any] | None] = ContextVar("hermes_pydantic_ai_outer_run", default=None)
"""The run whose tool is at work."""
