"""The middleware that gives an agent of LangChain memory."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Hashable
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import HumanMessage, ToolMessage, message_to_dict
from langchain_core.tools import StructuredTool
from langgraph.config import get_config
from langgraph.runtime import Runtime

from hermes_core import AsyncMemory, HermesError, Memory, TurnRecall
from hermes_langchain.messages import scrubbed, with_memory
from hermes_langchain.runs import (
    RUNS,
    HostedRun,
    chat_form,
    drive,
    first_left,
    question,
    remember_recall,
    settled,
)


class HermesState(AgentState[Any]):
    """The agent's state with the turn of its run, which a checkpointer keeps.

    Attributes:
        hermes: `turn`, the id of the turn; `asked`, the id of the person's message, "" for an agent that another agent
            asks; `left`, see `HostedRun`.
    """

    hermes: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


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
        self._schemas = {schema["name"]: schema for schema in memory.tool_schemas()} if tools else {}
        self.tools = [_declared(schema) for schema in self._schemas.values()]

    # ------------------------------------------------------------- begin and end

    def before_agent(self, state: HermesState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Begin the turn of the run with the person's message, or join the turn that another agent of the run began."""
        return drive(self._begin(self._memory, state, runtime))

    async def abefore_agent(self, state: HermesState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Begin the turn of the run, or join it; see `before_agent`."""
        return await self._begin(self._async, state, runtime)

    def after_agent(self, state: HermesState, runtime: Runtime[Any]) -> None:
        """Add the messages of the agent to the turn, which is stored when the run ends."""
        drive(self._end(self._memory, state, runtime))

    async def aafter_agent(self, state: HermesState, runtime: Runtime[Any]) -> None:
        """Add the messages of the agent to the turn, which is stored when the run ends."""
        await self._end(self._async, state, runtime)

    # ------------------------------------------------------------------- requests

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Add notes and recall to this request, and remove recall from the answer."""
        with_notes, recall = drive(self._request(self._memory, request))
        return scrubbed(handler(with_notes), recall)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Add notes and recall to this request, and remove recall from the answer."""
        with_notes, recall = await self._request(self._async, request)
        return scrubbed(await handler(with_notes), recall)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Any]
    ) -> ToolMessage | Any:
        """Run a tool of memory; hand other tools on."""
        return drive(self._called(self._memory, request)) or handler(request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Any]]
    ) -> ToolMessage | Any:
        """Run a tool of memory; hand other tools on."""
        return await self._called(self._async, request) or await handler(request)

    # -------------------------------------------------------------------- private

    def _identity(self, runtime: Any) -> dict[str, Any]:
        user = self._user_id if isinstance(self._user_id, str) else self._user_id(runtime)
        # Without a thread each run is a conversation of its own.
        thread = str(get_config().get("configurable", {}).get("thread_id") or RUNS.root.hex)
        return {"session_id": thread, "platform": self._platform, "user_id": user}

    def _key(self, identity: dict[str, Any]) -> Hashable:
        return id(self._memory), *identity.values()

    async def _begin(
        self, host: Memory | AsyncMemory, state: HermesState, runtime: Any
    ) -> dict[str, Any] | None:
        identity, messages = self._identity(runtime), state["messages"]
        run = RUNS.get(self._key(identity))
        if run is not None:
            # A later agent goes on with the turn. An agent that is a tool is asked by an agent, and not by the person.
            goes_on = run.answered or any(message.id == run.asked for message in messages)
            return {"hermes": {"turn": run.turn.id, "asked": run.asked if goes_on else ""}}
        asked = question(messages)
        if asked is None:
            return None
        previous = state.get("hermes", {}).get("asked")
        if previous is None and "checkpoint_id" in get_config().get("metadata", {}):
            previous = ""  # the program went back to before the first turn
        run = await self._new(host, identity, asked, previous)
        with run.tolerate():
            await run.note_history(messages)
        return {"hermes": {"turn": run.turn.id, "asked": run.asked, "left": run.left}}

    async def _new(
        self, host: Memory | AsyncMemory, identity: dict[str, Any], asked: HumanMessage, previous: str | None
    ) -> HostedRun:
        """Begin the turn of the run.

        Args:
            host: The memory, in the form that the run waits for.
            identity: Arguments of `Memory.conversation`.
            asked: The person's message.
            previous: Id of the person's message in the turn before; see `first_left`.
        """
        chat = await settled(host.conversation(**identity))
        # Agents that run at once begin one turn. A program may give two runs one id.
        turn_id = uuid.uuid5(RUNS.root, f"{chat.id} {asked.id}").hex
        if await settled(host.sessions.has_turn(turn_id)):
            turn_id = ""
        left = await first_left(chat, asked.id, previous)
        native = message_to_dict(asked)
        turn = await settled(chat.turn(chat_form(asked), turn_id=turn_id, native=native))
        return RUNS.setdefault(self._key(identity), HostedRun(host, chat, turn, asked.id or "", left))

    async def _run(self, host: Memory | AsyncMemory, state: Any, runtime: Any) -> HostedRun | None:
        """Return the run in which the caller is; None if it has no turn.

        The run may go on with a checkpoint: of a paused run, whose turn is open, or of a run that has ended, whose turn
        is then answered again.
        """
        known = state.get("hermes")
        if known is None:
            return None
        identity = self._identity(runtime)
        run = RUNS.get(self._key(identity))
        if run is not None:
            return run
        if not await settled(host.sessions.has_turn(known["turn"])):
            chat = await settled(host.conversation(**identity))
            try:
                turn = await settled(chat.resume(known["turn"]))
            except HermesError:  # it has expired
                pass
            else:
                run = HostedRun(host, chat, turn, known["asked"], known.get("left"))
                return RUNS.setdefault(self._key(identity), run)
        asked = question(state["messages"])
        return None if asked is None else await self._new(host, identity, asked, known["asked"])

    async def _request(
        self, host: Memory | AsyncMemory, request: ModelRequest[Any]
    ) -> tuple[ModelRequest[Any], TurnRecall | None]:
        """Return the request with notes and recall, and the recall."""
        run = await self._run(host, request.state, request.runtime)
        if run is None:
            return request, None
        asked = run.asked if _is_asked(request.state) else ""
        if not asked:
            return with_memory(request, run.turn, asked), None
        with run.tolerate():
            await run.record(request.state["messages"])
            await run.note_history(request.messages)
        remember_recall(run.turn.recall)
        return with_memory(request, run.turn, asked), run.turn.recall

    async def _called(self, host: Memory | AsyncMemory, request: ToolCallRequest) -> ToolMessage | None:
        """Run a tool of memory; return None for other tools."""
        call = request.tool_call
        if call["name"] not in self._schemas:
            return None
        run = await self._run(host, request.state, request.runtime)
        if run is None:
            return None
        result = await settled(run.turn.call_tool(call["name"], call["args"], call["id"] or ""))
        status = "success" if result.ok else "error"
        return ToolMessage(result.text, tool_call_id=call["id"], name=call["name"], status=status)

    async def _end(self, host: Memory | AsyncMemory, state: HermesState, runtime: Any) -> None:
        run = await self._run(host, state, runtime)
        if run is not None and _is_asked(state):
            await run.end_agent(state)


def _is_asked(state: Any) -> bool:
    """Return True if the person asks the agent, False if another agent does."""
    return bool(state["hermes"]["asked"])


def _declared(schema: dict[str, Any]) -> StructuredTool:
    """Return a tool that offers a schema to the model; `wrap_tool_call` runs it."""

    def outside(**_: Any) -> str:
        raise RuntimeError(f"{schema['name']} runs in an agent with HermesMiddleware only")

    return StructuredTool(
        name=schema["name"], description=schema["description"], args_schema=schema["parameters"], func=outside
    )
