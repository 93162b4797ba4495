"""The session that gives agents of the OpenAI Agents SDK memory."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from agents import (
    FunctionTool,
    InputGuardrailTripwireTriggered,
    RunConfig,
    RunHooks,
    Runner,
    RunResult,
    RunResultStreaming,
    RunState,
)
from agents.memory import SessionSettings
from agents.run import CallModelData, ModelInputData
from agents.tool_context import ToolContext

from hermes_core import (
    AsyncConversation,
    AsyncMemory,
    AsyncOpenTurn,
    HermesError,
    Memory,
    TurnRecall,
)
from hermes_openai_agents.items import INPUT_ROLES, Item, items_of, messages_of, texts_of

log = logging.getLogger(__name__)

# Key in the conversation's state of the id of the open turn, by which another process continues a paused run.
TURN_KEY = "openai_agents_turn"

# Key in the conversation's state of the messages that the person sent to runs without an answer. They are in the history of
# the next run, and are stored with it.
LEFT_KEY = "openai_agents_left"

# Origin of items that no run gave as its own input or output.
UNKNOWN_ORIGIN: Any = "tool"

PROBLEM = "the last turn of the Agents SDK"
"""Name of a turn that could not be stored, in `Memory.problems`."""


class HermesSession:
    """A session of the Agents SDK in a memory, for one conversation. Use one object for one run at a time.

    Attributes:
        session_id: Id of the conversation.
        session_settings: Settings of the SDK, such as the largest number of items in a request.
        hooks: Run hooks that end a turn, for `Runner.run(hooks=...)`; `run` passes them itself.

    Args:
        memory: The memory of the process.
        session_id: Id of the conversation; default: a new one.
        user_id: Id of the user. Users share nothing.
        platform: Name of the program, part of the user's identity.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self, memory: Memory, session_id: str = "", *, user_id: str = "", platform: str = "openai-agents"
    ) -> None:
        self._memory, self._plain = AsyncMemory(memory), memory
        self.session_id = session_id or uuid.uuid4().hex
        self._identity: dict[str, Any] = {"user_id": user_id, "platform": platform}
        self._chat: AsyncConversation | None = None
        self.hooks: RunHooks[Any] = _Hooks(self)
        # The open turn and what this process added to it.
        self._turn: AsyncOpenTurn | None = None
        self._recall: TurnRecall | None = None  # of the latest run, whose events may be read after its end
        self._items: list[Item] = []
        self._repeated: list[Item] = []  # input of a streamed run: the filter gets it first, then `add_items`
        self._fresh = False  # True between the reading of the history and the first input of a run
        self._history: list[Item] = []  # what the run read
        self._outside = False  # True if a program added the items of the open turn, and no run
        self._new: list[Item] = []  # the input of the run, if a callback merges it with the history
        self._hooked = False  # True if the hooks saw a request of this turn
        self._wrapper: Any = None  # context of the latest run
        # True if the run has guardrails, None if that is not known.
        self._guarded: bool | None = None
        self._guarded_config: bool | None = None
        self._final: tuple[Any, BaseException | None] | None = None

    # -------------------------------------------------------- protocol of the SDK

    async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[Item]:
        """Return the items of finished turns, and those added outside of a run; with `limit`, the last ones.

        Args:
            limit: Largest number of items; default: that of `session_settings`, if there is one.
            wrapper: The context of the run that asks; None for a program.
        """
        if wrapper is not None and wrapper is not self._wrapper:  # a new run
            await self._leave()
            self._wrapper, self._fresh, self._new, self._guarded = wrapper, True, [], self._guarded_config
        chat = await self._conversation()
        items = _items_of(await chat.history())
        items += await chat.state.get(LEFT_KEY, [])
        if self._outside:
            items += self._items
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        self._history = items if limit is None else items[max(0, len(items) - limit) :]
        return list(self._history)

    async def add_items(self, items: list[Item], *, wrapper: Any = None) -> None:
        """Store items in the open turn. The person's message begins a turn, and the final answer ends it.

        Args:
            items: The items.
            wrapper: The context of the run that adds them; None for a program.
        """
        items, repeated = list(items), self._repeated
        self._repeated = []
        if repeated and items[-len(repeated) :] == repeated:
            if len(items) > len(repeated):  # history that the program gave with the input
                log.warning("%d earlier items of the input are not stored", len(items) - len(repeated))
            return
        if isinstance(sys.exception(), InputGuardrailTripwireTriggered):
            return  # the SDK stores the message all the same
        begins = self._fresh and any(item.get("role") == "user" for item in items)
        self._fresh, self._outside = False, wrapper is None
        if begins or wrapper is None:
            await self._store(items)
            return
        with self._plain.problem_log.tolerate(PROBLEM, Exception):  # the model has answered
            await self._store(items)

    async def pop_item(self, *, wrapper: Any = None) -> Item | None:
        """Remove the last item and return it. The rest of a finished turn is open again, and undone at the provider."""
        items, origin = list(self._items), UNKNOWN_ORIGIN
        if items:
            await self._cancel()
        else:
            chat = await self._conversation()
            before = await chat.history()
            if not before:
                return None
            await chat.rewind()
            undone = before[len(await chat.history()) :]
            items, origin = _items_of(undone), undone[0].origin
        del wrapper
        self._outside = True
        if len(items) > 1:
            await self._add(items[:-1], finish=False, origin=origin)
        return items[-1] if items else None

    async def clear_session(self, *, wrapper: Any = None) -> None:
        """Delete the conversation."""
        del wrapper
        await self._cancel()
        await (await self._conversation()).delete()
        self._chat = None

    # ------------------------------------------------------------------------ run

    async def run(self, agent: Any, input: Any, **options: Any) -> RunResult:  # noqa: A002 - the SDK's name
        """Run an agent in this session; see `Runner.run`."""
        try:
            return await Runner.run(agent, input, session=self, **self._options(options))
        except BaseException:
            if not isinstance(input, RunState):  # a paused run can be tried once more
                await self._leave()
            raise

    def run_streamed(self, agent: Any, input: Any, **options: Any) -> RunResultStreaming:  # noqa: A002
        """Run an agent in this session and stream; see `Runner.run_streamed`. Pass its events through `scrub`."""
        return Runner.run_streamed(agent, input, session=self, **self._options(options))

    async def scrub(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield the events of a streamed run without recall that the model repeats."""
        try:
            async for event in self._scrubbed(events):
                yield event
        except (Exception, asyncio.CancelledError):
            await self._leave()
            raise

    async def _scrubbed(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        scrubber: Any = None
        last: Any = None
        async for event in events:
            data: Any = event.data if event.type == "raw_response_event" else None
            kind, recall = getattr(data, "type", ""), self._recall
            if recall is None:
                pass
            elif kind == "response.output_text.delta":
                last, scrubber = event, scrubber or recall.scrubber()
                delta = scrubber.feed(data.delta)
                event = dataclasses.replace(event, data=data.model_copy(update={"delta": delta}))
            elif kind == "response.output_text.done":
                if last is not None and (rest := scrubber.flush()):
                    yield dataclasses.replace(last, data=last.data.model_copy(update={"delta": rest}))
                scrubber = last = None
                data.text = recall.remove_from(data.text)
            elif kind == "response.content_part.done":
                _scrub_parts([data.part], recall)
            elif kind == "response.output_item.done":
                _scrub_parts(getattr(data.item, "content", None), recall)
            elif kind == "response.completed":
                for item in data.response.output:
                    _scrub_parts(getattr(item, "content", None), recall)
            yield event

    def run_config(self, base: RunConfig | None = None) -> RunConfig:
        """Return a run configuration that adds notes and recall to each request, after the filter of `base`."""
        base = base or RunConfig()
        chained = base.call_model_input_filter
        self._guarded_config = True if base.input_guardrails or base.output_guardrails else None
        merge = base.session_input_callback
        if merge is not None:

            async def merged(history: list[Item], new: list[Item]) -> list[Item]:
                self._new = list(new)
                result: Any = merge(history, new)
                return list(await result if inspect.isawaitable(result) else result)

            base = dataclasses.replace(base, session_input_callback=merged)

        async def with_memory(data: CallModelData[Any]) -> ModelInputData:
            received = list(data.model_data.input)
            result: Any = data.model_data if chained is None else chained(data)
            result = await result if inspect.isawaitable(result) else result
            return await self._with_memory(received, result)

        return dataclasses.replace(base, call_model_input_filter=with_memory)

    def instructions(self, base: str | Callable[..., Any] = "") -> Callable[[Any, Any], Awaitable[str]]:
        """Return instructions for an agent: `base` and the notes. `run` adds the notes to an agent without them."""

        async def with_notes(context: Any, agent: Any) -> str:
            text: Any = base(context, agent) if callable(base) else base
            return await self._with_notes(await text if inspect.isawaitable(text) else text)

        return with_notes

    def tools(self) -> list[FunctionTool]:
        """Return the tools of memory for an agent of this session."""
        return [self._tool(schema) for schema in self._plain.tool_schemas()]

    # -------------------------------------------------------------------- private

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        config = options.get("run_config")
        base = RunConfig(**config) if isinstance(config, dict) else config
        hooks = self.hooks if options.get("hooks") is None else _HookChain(self.hooks, options["hooks"])
        return {**options, "run_config": self.run_config(base), "hooks": hooks}

    def _tool(self, schema: dict[str, Any]) -> FunctionTool:
        async def invoke(context: ToolContext[Any], arguments: str) -> str:
            tools = self._turn or await self._conversation()
            return (await tools.call_tool(schema["name"], arguments, context.tool_call_id)).text

        return FunctionTool(
            schema["name"], schema["description"], schema["parameters"], invoke, strict_json_schema=False
        )

    async def _conversation(self) -> AsyncConversation:
        if self._chat is None:
            self._chat = await self._memory.conversation(self.session_id, **self._identity)
        return self._chat

    async def _with_notes(self, instructions: str | None) -> str:
        prompt = await (await self._conversation()).system_prompt()
        if prompt and prompt not in (instructions or ""):
            return "\n\n".join(filter(None, [instructions, prompt]))
        return instructions or ""

    async def _with_memory(self, received: list[Item], data: ModelInputData) -> ModelInputData:
        """Return a request with notes, and with recall in the message of the person that began the turn."""
        if self._fresh:  # a streamed run, whose input is not stored yet
            start = len(self._history)
            if received[:start] != self._history:  # the program or the SDK changed the history
                start = len(received)
                while start and received[start - 1].get("role") in INPUT_ROLES:
                    start -= 1
            if start < len(received):
                await self._store(received[start:])
                self._repeated = received[start:]
            self._fresh = False
        turn = await self._open()
        items = list(data.input)
        if turn is not None:
            places = [
                at for at, item in enumerate(items) if item.get("role") == "user" and _is_of(item, turn)
            ]
            # What the run itself makes is added as it ends. A filter may change the person's message.
            earlier = (
                items[: places[-1]] if places else [item for item in items if item.get("role") == "user"]
            )
            await turn.note_history(*(message for message, _ in messages_of(earlier)))
            if places:
                items[places[-1]] = _with_recall(items[places[-1]], turn)
        instructions = await self._with_notes(data.instructions)
        return ModelInputData(input=items, instructions=instructions or data.instructions)

    async def _open(self) -> AsyncOpenTurn | None:
        """Return the open turn, which another process may have begun; None if there is none."""
        if self._turn is None:
            chat = await self._conversation()
            turn_id = await chat.state.get(TURN_KEY)
            if turn_id:
                try:
                    self._turn = await chat.resume(turn_id, history=0)
                except HermesError as exc:
                    log.warning("the turn of this run can't be continued: %s", exc)
                    await chat.state.delete(TURN_KEY)
                else:
                    self._recall = self._turn.recall
        return self._turn

    async def _store(self, items: list[Item]) -> None:
        """Store items of one turn or several."""
        while items:
            end = _end_of_turn(items)
            # Of what a program adds, or gives before the person's message, nobody knows who wrote it.
            origin = UNKNOWN_ORIGIN if self._outside or end < len(items) else None
            await self._add(items[:end], origin=origin)
            items = items[end:]

    async def _add(self, items: list[Item], *, finish: bool = True, origin: Any = None) -> None:
        """Store items of one turn, and finish the turn if they end it.

        Args:
            items: The items.
            finish: False to leave the turn open.
            origin: Origin of the person's message, if it is not the person of the run who sends it.
        """
        messages = messages_of(items)
        asked = _place_of_question(messages)
        # A person's message never continues the turn of another process, which may still run.
        turn = self._turn if asked is not None else await self._open()
        if turn is None:
            if asked is None:
                log.warning("the run has no open turn: a turn without the person's message is stored")
                turn = await self._begin({"role": "user", "content": ""}, [], origin)
            else:
                native = [item for _, part in messages[: asked + 1] for item in part]
                turn = await self._begin(messages[asked][0], native, origin)
                for message, part in messages[:asked]:
                    if not self._new or any(item in self._new for item in part):  # else a callback made it
                        await turn.add({**message, "origin": UNKNOWN_ORIGIN}, native=[])
                self._items += native
                items = [item for _, part in messages[asked + 1 :] for item in part]
        items = [_without_recall(item, turn.recall) for item in items]
        messages = messages_of(items)
        calls = [call for message in (*turn.messages, *(m for m, _ in messages)) for call in _calls(message)]
        names = {call["id"]: call["function"]["name"] for call in calls}
        for message, native in messages:
            if message["role"] == "tool" and message["tool_call_id"] in names:
                message["name"] = names[message["tool_call_id"]]
            await turn.add(message, native=native)
        self._items += items
        last = messages[-1][0] if messages else {}
        answered = last.get("role") == "assistant" and not last.get("tool_calls")
        if self._final is not None:
            output, error = self._final
            # The SDK also stores items while it handles the failure of an output guardrail.
            if sys.exception() is error:
                await (turn.finish() if answered else turn.finish(str(output), native=[]))
                await self._forget(finished=True)
        elif answered and finish and not self._hooked:
            await turn.finish()
            await self._forget(finished=True)

    async def _begin(self, asked: dict[str, Any], native: list[Item], origin: Any) -> AsyncOpenTurn:
        """Begin a turn with a message, which stands for these items."""
        chat = await self._conversation()
        native = [*await chat.state.get(LEFT_KEY, []), *native]
        turn = self._turn = await chat.turn(asked, native=native, history=0, origin=origin)
        self.session_id, self._recall = chat.id, turn.recall
        await chat.state.set(TURN_KEY, turn.id)
        return turn

    async def _leave(self) -> None:
        """End the open turn of this object without an answer.

        The history of the next run has the person's message, unless a guardrail may have stopped the run.
        """
        if self._turn is not None and (self._outside or self._guarded is False):
            chat, natives = await self._conversation(), self._turn.natives
            items = natives if self._outside else natives[:1]
            await chat.state.set(LEFT_KEY, [item for native in items for item in native or ()])
        await self._cancel()

    async def _cancel(self) -> None:
        """Delete the open turn of this object, if there is one. Others expire."""
        if self._turn is not None:
            await self._turn.cancel()
        await self._forget()

    async def _forget(self, *, finished: bool = False) -> None:
        turn, chat = self._turn, await self._conversation()
        self._turn, self._items, self._repeated, self._final = None, [], [], None
        self._outside = self._hooked = False
        if finished and await chat.state.get(LEFT_KEY):
            await chat.state.delete(LEFT_KEY)
        if turn is not None and await chat.state.get(TURN_KEY) == turn.id:
            await chat.state.delete(TURN_KEY)


class _Hooks(RunHooks[Any]):
    """Hooks that tell a session of requests and of the final answer."""

    def __init__(self, session: HermesSession) -> None:
        self._session = session

    async def on_agent_start(self, _context: Any, agent: Any) -> None:
        session = self._session
        session._guarded = bool(
            session._guarded or getattr(agent, "input_guardrails", True) or agent.output_guardrails
        )

    async def on_llm_start(self, *_: Any, **__: Any) -> None:
        self._session._hooked = True

    async def on_llm_end(self, _context: Any, _agent: Any, response: Any) -> None:
        # The SDK makes output, events and items of these very objects.
        if (recall := self._session._recall) is not None:
            for item in response.output:
                _scrub_parts(getattr(item, "content", None), recall)

    async def on_agent_end(self, _context: Any, _agent: Any, output: Any) -> None:
        self._session._final = (output, sys.exception())


class _HookChain(RunHooks[Any]):
    """Run hooks that call several run hooks, in order."""

    def __init__(self, *chain: RunHooks[Any]) -> None:
        self._chain = chain


def _in_order(name: str) -> Callable[..., Awaitable[None]]:
    async def call(self: _HookChain, *args: Any, **kwargs: Any) -> None:
        for hooks in self._chain:
            await getattr(hooks, name)(*args, **kwargs)

    return call


for _name in dir(RunHooks):
    if _name.startswith("on_"):
        setattr(_HookChain, _name, _in_order(_name))


def _items_of(stored: Sequence[Any]) -> list[Item]:
    """Return the items of stored messages, also of those that another host stored."""
    lists = (items_of(entry.as_chat()) if entry.native is None else entry.native for entry in stored)
    return [item for items in lists for item in items]


def _end_of_turn(items: list[Item]) -> int:
    """Return the place of the first message of the person that follows an answer; else the number of items."""
    answered = False
    for at, item in enumerate(items):
        if item.get("role") == "user" and answered:
            return at
        answered = answered or item.get("role") == "assistant"
    return len(items)


def _is_of(item: Item, turn: AsyncOpenTurn) -> bool:
    """Return True if the item is the message that began the turn. Agents that run as tools have other messages."""
    return all(text.strip() in turn.text for text in texts_of(item))


def _place_of_question(messages: Sequence[tuple[dict[str, Any], list[Item]]]) -> int | None:
    """Return the place of the person's message, the last one before an answer; None if there is none."""
    roles = [message["role"] for message, _ in messages]
    asked = roles[: roles.index("assistant")] if "assistant" in roles else roles
    return max((at for at, role in enumerate(asked) if role == "user"), default=None)


def _without_recall(item: Item, recall: TurnRecall) -> Item:
    """Return an item without recall that the model repeats. Results of tools, and the person's words, stay as they are."""
    if item.get("role") in INPUT_ROLES or str(item.get("type")).endswith("_output"):
        return item
    content = item.get("content")
    if isinstance(content, list):
        own = [part for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
        texts = iter(_scrubbed_texts([part["text"] for part in own], recall))
        parts = [{**part, "text": next(texts)} if any(part is o for o in own) else part for part in content]
        item = {**item, "content": parts}
    clean: Item = recall.remove_from(item)
    return clean


def _scrubbed_texts(texts: Sequence[str], recall: TurnRecall) -> list[str]:
    """Return the texts of one message without recall, which may begin in one of them and end in another."""
    scrubber = recall.scrubber()
    clean = [scrubber.feed(text) for text in texts]
    if clean:
        clean[-1] += scrubber.flush()
    return clean


def _with_recall(item: Item, turn: AsyncOpenTurn) -> Item:
    content = turn.recall.inject(item.get("content") or "")
    if isinstance(content, list):
        content = [{**part, "type": "input_text"} if part.get("type") == "text" else part for part in content]
    return {**item, "content": content}


def _calls(message: Any) -> Any:
    return message.get("tool_calls") or ()


def _scrub_parts(parts: Any, recall: TurnRecall) -> None:
    """Remove recall from content parts of an answer, in place."""
    own = [part for part in parts or () if isinstance(getattr(part, "text", None), str)]
    for part, text in zip(own, _scrubbed_texts([part.text for part in own], recall), strict=True):
        part.text = text
