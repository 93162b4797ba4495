"""The plugin that gives an agent of Strands memory."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Literal

from strands import Agent
from strands.agent.agent_result import AgentResult
from strands.hooks import AfterInvocationEvent, BeforeInvocationEvent, MessageAddedEvent
from strands.middleware import (
    ExecuteToolContext,
    ExecuteToolStage,
    InvokeModelContext,
    InvokeModelStage,
    ModelStopReason,
    TypedEvent,
)
from strands.plugins import Plugin
from strands.tools.tools import PythonAgentTool
from strands.types.content import Message, SystemPrompt
from strands.types.tools import ToolResult, ToolUse

from hermes_core import (
    AsyncConversation,
    AsyncMemory,
    AsyncOpenTurn,
    HermesError,
    Memory,
    StreamingContextScrubber,
)
from hermes_strands.messages import (
    as_chat,
    is_of_agents,
    is_prompt,
    serves_tools,
    with_recall,
    without_recall,
)

log = logging.getLogger(__name__)

OPEN_TURN = "hermes_turn"
"""Key in the agent's state: the id of the turn that waits for a person, or that runs."""

PAUSES = ("interrupt", "checkpoint")
"""Reasons for which a run stops and goes on later."""

ENDS = ("end_turn", "stop_sequence", "max_tokens")
"""Reasons for which a run stops with its answer. A limit may stop it with one; a guardrail or a person does not."""


class HermesPlugin(Plugin):
    """Gives an agent the notes, recall and tools of a memory, and stores its turns. An agent has one conversation.

    Args:
        memory: The memory of the process.
        session_id: Id of the conversation; default: a new one for each agent.
        user_id: Id of the user.
        platform: Name of the program, part of the user's identity.
        scrub_stream: False to pass streamed text on with recall that the model repeats.
    """

    name = "hermes_memory"

    def __init__(
        self,
        memory: Memory,
        *,
        session_id: str = "",
        user_id: str = "",
        platform: str = "strands",
        scrub_stream: bool = True,
    ) -> None:
        super().__init__()
        self._memory, self._schemas = memory, memory.tool_schemas()
        self._session_id, self._user_id, self._platform = session_id, user_id, platform
        self._scrub_stream = scrub_stream

    def init_agent(self, agent: Agent) -> None:
        """Give the agent its conversation, tools and hooks."""
        chat = self._memory.conversation(self._session_id, platform=self._platform, user_id=self._user_id)
        _AgentMemory(AsyncMemory(self._memory), chat.session.id, self).attach(agent)

    def tolerate(self) -> AbstractContextManager[None]:
        """Return a block whose errors are problems of the memory, and don't end the run."""
        return self._memory.problem_log.tolerate("the last turn of Strands", Exception)

    async def conversation(self, memory: AsyncMemory, session_id: str) -> AsyncConversation:
        """Return the conversation of an agent."""
        return await memory.conversation(session_id, platform=self._platform, user_id=self._user_id)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """Schemas of the tools of memory."""
        return self._schemas

    @property
    def scrubs(self) -> bool:
        """True if streamed text is scrubbed."""
        return self._scrub_stream


class _AgentMemory:
    """Memory of one agent, with the turn that it runs. An agent runs one invocation at a time."""

    def __init__(self, memory: AsyncMemory, session_id: str, plugin: HermesPlugin) -> None:
        self._memory, self._session_id, self._plugin = memory, session_id, plugin
        self._chat: AsyncConversation | None = None
        self._turn: AsyncOpenTurn | None = None
        self._prompt: Message | None = None  # the person's message of this run
        self._input: list[Message] = []  # what the program gave with it
        self._is_served = False  # True if the model's server runs tools of its own

    def attach(self, agent: Agent) -> None:
        """Register the tools, hooks and the middleware of the requests to the model."""
        agent.tool_registry.process_tools([self._tool(schema) for schema in self._plugin.schemas])
        agent.add_hook(self._begin, BeforeInvocationEvent)
        agent.add_hook(self._add, MessageAddedEvent)
        agent.add_hook(self._end, AfterInvocationEvent)
        agent.add_middleware(InvokeModelStage, self._request)
        agent.add_middleware(ExecuteToolStage, self._execute)

    async def _conversation(self) -> AsyncConversation:
        outer = _outer_agent.get()
        if outer is not None and outer is not self:
            return await outer._conversation()
        if self._chat is None:
            self._chat = await self._plugin.conversation(self._memory, self._session_id)
        return self._chat

    async def _tools(self) -> AsyncOpenTurn | AsyncConversation:
        """Return the turn that runs the tools of memory, or the conversation if there is none."""
        outer = _outer_agent.get()
        if outer is not None and outer is not self:
            return await outer._tools()
        return self._turn or await self._conversation()

    # ------------------------------------------------------------------------ run

    async def _begin(self, event: BeforeInvocationEvent) -> None:
        """Begin the turn of the person's message, or continue the one that waited for a person."""
        chat, state = await self._conversation(), event.agent.state
        prompts = [message for message in event.messages or () if is_prompt(message)]
        self._turn, self._prompt, self._input = None, prompts[-1] if prompts else None, []
        if _outer_agent.get() is not None:  # an agent asks this one through a tool, and no person
            return
        if prompts:
            *results, asked = as_chat(prompts[-1])
            self._turn = await chat.turn(asked, origin="tool" if is_of_agents(prompts[-1]) else None)
            # The person's message is the last one. Who wrote the others, the program alone knows.
            self._input = list(event.messages or ())
            others = [message for message in self._input if message is not prompts[-1]]
            given = [*(chat for message in others for chat in as_chat(message)), *results]
            await self._turn.add(*({**chat, "origin": "tool"} for chat in given))
            state.set(OPEN_TURN, self._turn.id)
        elif turn_id := state.get(OPEN_TURN):
            try:
                self._turn = await chat.resume(turn_id)
            except HermesError as exc:
                log.warning("a run goes on without its turn, which is not stored: %s", exc)
                state.delete(OPEN_TURN)

    async def _add(self, event: MessageAddedEvent) -> None:
        # The messages of the input were added when the run began.
        is_input = any(event.message["content"] == given["content"] for given in self._input)
        if self._turn is not None and not is_input:
            chats = as_chat(without_recall(event.message, self._turn.recall))
            # Strands keeps no items of a search by the model's server, so each answer may have read one.
            served = {"origin": "web"} if self._is_served and event.message["role"] == "assistant" else {}
            with self._plugin.tolerate():
                await self._turn.add(*({**served, **chat} for chat in chats))

    async def _end(self, event: AfterInvocationEvent) -> None:
        """Store the turn if the run has an answer, keep it open if it waits for a person, and else cancel it."""
        turn, result = self._turn, event.result
        if turn is None or (result is not None and result.stop_reason in PAUSES):
            return
        self._turn = None
        event.agent.state.delete(OPEN_TURN)
        with self._plugin.tolerate():
            await self._store(turn, result)

    @staticmethod
    async def _store(turn: AsyncOpenTurn, result: AgentResult | None) -> None:
        if result is None:
            await turn.cancel()
            return
        chats = as_chat(without_recall(result.message, turn.recall))
        answered = bool(chats) and chats[-1]["role"] == "assistant" and not chats[-1].get("tool_calls")
        if result.structured_output is not None:
            await turn.finish(result.structured_output.model_dump_json())
        elif result.stop_reason in ENDS or (answered and result.stop_reason.startswith("limit_")):
            await turn.finish(None if answered else "")
        else:
            await turn.cancel()

    # ------------------------------------------------------------------- requests

    async def _request(
        self,
        context: InvokeModelContext,
        next_fn: Callable[[InvokeModelContext], AsyncGenerator[TypedEvent, None]],
    ) -> AsyncGenerator[TypedEvent, None]:
        """Add notes and recall to a copy of the request, and remove recall that the model repeats."""
        self._is_served = serves_tools(context.model.get_config())
        messages, turn = list(context.messages), self._turn
        notes = await (await self._conversation()).system_prompt()
        system_prompt = _with_notes(context.system_prompt, notes)
        if turn is None:
            async for event in next_fn(context.replace(system_prompt=system_prompt)):
                yield event
            return
        # A summary has the role "user" as well.
        content = self._prompt["content"] if self._prompt is not None else None
        places = [place for place, message in enumerate(messages) if message["content"] == content]
        manager: Any = getattr(context.agent, "conversation_manager", None)
        summary = (manager.get_state().get("summary_message") if manager is not None else None) or {}
        earlier = [
            m
            for at, m in enumerate(messages)
            if at not in places[-1:] and m["content"] != summary.get("content")
        ]
        await turn.note_history(*(chat for message in earlier for chat in as_chat(message)))
        if places:
            messages[places[-1]] = with_recall(messages[places[-1]], turn.recall)
        request = context.replace(messages=messages, system_prompt=system_prompt)
        data, chunks = turn.recall.scrubber(), turn.recall.scrubber()
        async for event in next_fn(request):
            if isinstance(event, ModelStopReason):
                if self._plugin.scrubs and (rest := data.flush()):
                    yield TypedEvent({"data": rest, "delta": {"text": rest}})
                clean = without_recall(event.message, turn.recall)
                yield ModelStopReason(event.stop_reason, clean, event.usage, event.metrics)
                continue
            if self._plugin.scrubs:
                _scrub(event, data, chunks)
            yield event

    async def _execute(
        self,
        context: ExecuteToolContext,
        next_fn: Callable[[ExecuteToolContext], AsyncGenerator[Any, None]],
    ) -> AsyncGenerator[Any, None]:
        """Execute a tool, which may be an agent."""
        outer = _outer_agent.get()
        _outer_agent.set(outer or self)
        try:
            async for event in next_fn(context):
                yield event
        finally:
            _outer_agent.set(outer)

    def _tool(self, schema: dict[str, Any]) -> PythonAgentTool:
        async def call(tool_use: ToolUse, **_: Any) -> ToolResult:
            tools = await self._tools()
            result = await tools.call_tool(schema["name"], tool_use["input"], tool_use["toolUseId"])
            status: Literal["success", "error"] = "success" if result.ok else "error"
            return {"toolUseId": tool_use["toolUseId"], "status": status, "content": [{"text": result.text}]}

        spec = {**schema, "inputSchema": {"json": schema["parameters"]}}
        del spec["parameters"]
        return PythonAgentTool(schema["name"], spec, call)  # type: ignore[arg-type]  # it takes coroutines as well


_outer_agent: ContextVar[_AgentMemory | None] = ContextVar("hermes_strands_outer_agent", default=None)
"""The memory of the agent whose tool is at work."""


def _with_notes(prompt: SystemPrompt, notes: str) -> SystemPrompt:
    if not notes:
        return prompt
    if isinstance(prompt, list):
        return [*prompt, {"text": notes}]
    return f"{prompt}\n\n{notes}" if prompt else notes


def _scrub(event: TypedEvent, data: StreamingContextScrubber, chunks: StreamingContextScrubber) -> None:
    """Remove recall from a text in a streamed event: for callbacks, or of the raw stream, where it stands once more."""
    if isinstance(event.get("data"), str):
        event["data"] = data.feed(event["data"])
        event["delta"] = {**event.get("delta", {}), "text": event["data"]}
    chunk = event.get("event", {}).get("contentBlockDelta", {})
    if "text" in (delta := chunk.get("delta", {})):
        # A copy: the framework makes the answer out of the chunk.
        text = chunks.feed(delta["text"])
        event["event"] = {"contentBlockDelta": {**chunk, "delta": {**delta, "text": text}}}
