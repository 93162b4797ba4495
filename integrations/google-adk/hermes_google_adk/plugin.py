"""The plugin that gives agents of ADK memory."""

from __future__ import annotations

import contextvars
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from hermes_core import (
    AsyncConversation,
    AsyncMemory,
    AsyncOpenTurn,
    Memory,
    StreamingContextScrubber,
    ToolResult,
    TurnRecall,
)
from hermes_google_adk.turns import (
    chat_content,
    current_turn,
    identity_of,
    rewind,
    store_turn,
    text_in,
    texts_of,
    turns_of,
)

# Runs that this process has begun. ADK does not report a run whose task is cancelled, so old runs are dropped here.
MAX_RUNS = 1024

# Beginning of a content that ADK makes of what another agent said, which is in the events.
FROM_AGENTS = "For context:"

# True while a tool runs. An agent that runs as a tool has a runner of its own with the same plugins.
_in_tool: contextvars.ContextVar[bool] = contextvars.ContextVar("hermes_google_adk_in_tool", default=False)


@dataclass(slots=True)
class _Run:
    """A run of the agent with its open turn.

    Attributes:
        asked: The person's message.
        notes: The notes for the system prompt.
        scrubbers: Scrubbers of the answers that are streamed, by agent and kind of text.
    """

    turn: AsyncOpenTurn
    asked: types.Content | None
    notes: str
    scrubbers: dict[tuple[str, bool], StreamingContextScrubber] = field(default_factory=dict)


class HermesPlugin(BasePlugin):
    """Gives the agents of a runner the notes and recall of a memory, and stores their turns.

    Args:
        memory: The memory of the process.
        name: Name of the plugin.
        platform: Name of the program, part of the user's identity.
        scrub: False to leave recall that the model repeats in its answer to the person.
    """

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        *,
        name: str = "hermes_memory",
        platform: str = "google-adk",
        scrub: bool = True,
    ) -> None:
        super().__init__(name=name)
        self._memory = memory if isinstance(memory, AsyncMemory) else AsyncMemory(memory)
        self._platform, self._scrub = platform, scrub
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def tools(self) -> list[BaseTool]:
        """Return the tools of memory, for the tools of an agent."""
        return [_MemoryTool(self, schema) for schema in self._memory.memory.tool_schemas()]

    async def call_tool(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run a tool of memory for the user and session of a run."""
        run = self._runs.get(context.invocation_id)
        identity = identity_of(self._platform, context.session)
        tools = run.turn if run is not None else await self._memory.conversation(**identity)
        return await tools.call_tool(name, arguments, context.function_call_id or "")

    # ------------------------------------------------------------- begin and end

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Begin a turn, or continue the turn of a run that waited for a person."""
        session, invocation = invocation_context.session, invocation_context.invocation_id
        asked = current_turn(session.events, invocation)
        # Nobody speaks to an agent that runs as a tool. A live session has no message before it begins.
        if asked is None or _in_tool.get() or invocation_context.live_request_queue is not None:
            return
        if await self._memory.sessions.has_turn(asked.id):  # a finished run that is resumed
            return
        chat: AsyncConversation = await self._memory.conversation(**identity_of(self._platform, session))
        await rewind(self._memory, chat, session.events)
        turn = await chat.turn(chat_content(asked.asked), turn_id=asked.id, history=0)
        # The model also reads events that a program added, and those of runs that failed.
        others = [one for one in turns_of(session.events) if one.id != asked.id]
        await turn.note_history(*(message for one in others for message in one.messages))
        self._runs[invocation] = _Run(turn, asked.asked, await chat.system_prompt())
        while len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Store the turn if its last event is a final response. Otherwise the run may go on, and its turn stays open."""
        run = self._runs.pop(invocation_context.invocation_id, None)
        with self._memory.memory.problem_log.tolerate("the last turn of ADK", Exception):
            turn = current_turn(invocation_context.session.events, invocation_context.invocation_id)
            if run is not None and turn is not None:
                await store_turn(self._memory, run.turn.session, turn, recalled_origin=run.turn.recall.origin)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        """Drop the turn of a run that failed."""
        del error
        run = self._runs.pop(invocation_context.invocation_id, None)
        if run is not None:
            await run.turn.cancel()

    # ------------------------------------------------------------------ requests

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> None:
        """Add notes and recall to this request. The session keeps neither."""
        run = self._runs.get(callback_context.invocation_id)
        if run is None:
            return
        # Other plugins may add contents, such as a page that they found.
        known = "\n".join(texts_of(callback_context.session.events))
        added = [text for text in map(text_in, llm_request.contents) if text.strip() not in known]
        await run.turn.note_history(*(text for text in added if not text.startswith(FROM_AGENTS)))
        if run.notes:
            llm_request.append_instructions([run.notes])
        if run.turn.recall.context:
            _inject(llm_request.contents, run.asked, run.turn.recall)

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> None:
        """Remove recall from an answer, or from a piece of it."""
        run = self._runs.get(callback_context.invocation_id)
        content = llm_response.content
        if not self._scrub or run is None or content is None or not content.parts:
            return
        agent, partial = callback_context.agent_name, bool(llm_response.partial)
        scrubbers = run.scrubbers if partial else {}  # a whole answer ends a stream
        recall = run.turn.recall
        parts = [_scrubbed(part, agent, scrubbers, recall) for part in content.parts]
        if not partial:
            for kind in [kind for kind in run.scrubbers if kind[0] == agent]:
                del run.scrubbers[kind]
            rests = ((scrubber.flush(), thought) for (_, thought), scrubber in scrubbers.items())
            parts += [types.Part(text=rest, thought=thought or None) for rest, thought in rests if rest]
        # A copy, since the model may go on with its own. Returning a response would end the callbacks of the agent.
        llm_response.content = content.model_copy(update={"parts": parts})

    # --------------------------------------------------------------------- tools

    async def before_tool_callback(self, **_: Any) -> None:
        """Note that a tool runs, since an agent may run as a tool."""
        _in_tool.set(True)

    async def after_tool_callback(self, **_: Any) -> None:
        """Note that the tool has ended."""
        _in_tool.set(False)

    async def on_tool_error_callback(self, **_: Any) -> None:
        """Note that the tool has ended."""
        _in_tool.set(False)


class _MemoryTool(BaseTool):
    """A tool of memory, for the user and session of the run."""

    def __init__(self, plugin: HermesPlugin, schema: Mapping[str, Any]) -> None:
        super().__init__(name=schema["name"], description=schema["description"])
        self._plugin, self._schema = plugin, schema

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._schema["parameters"],
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        """Run the tool. The result of a call that failed has the key "error"."""
        result = await self._plugin.call_tool(self.name, args, tool_context)
        try:
            value = json.loads(result.text)
        except ValueError:
            value = result.text
        response = value if isinstance(value, dict) else {"result": value}
        return response if result.ok else {**response, "error": result.error}


def _scrubbed(
    part: types.Part,
    agent: str,
    scrubbers: dict[tuple[str, bool], StreamingContextScrubber],
    recall: TurnRecall,
) -> types.Part:
    """Return a part with what may be shown of its text. Recall may begin in one part and end in another."""
    if not part.text:
        return part
    text = scrubbers.setdefault((agent, bool(part.thought)), recall.scrubber()).feed(part.text)
    return part if text == part.text else part.model_copy(update={"text": text})


def _inject(contents: list[types.Content], asked: types.Content | None, recall: TurnRecall) -> None:
    """Add recall to the person's message of a request, or to its end if the agent does not see the message."""
    own = asked.parts if asked is not None else None
    # Other contents of the role "user" are results of tools and what other agents said.
    place = next((at for at in reversed(range(len(contents))) if own and contents[at].parts == own), None)
    fence = types.Part(text=f"\n\n{recall.context}")
    if place is None or own is None:
        contents.append(types.Content(role="user", parts=[fence]))
        return
    contents[place] = types.Content(role="user", parts=[*own, fence])
