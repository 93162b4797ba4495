"""The tool loop: ask a model, run the tools that it calls, and ask again until it answers.

The loop knows nothing of stored sessions and providers. Turns, background reviews, flushes and delegated tasks all run
on the loop.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue

from hermes_core.contract.values import Origin, Session
from hermes_core.errors import ContextOverflow, HermesError
from hermes_core.recall.tokens import count_tokens
from hermes_core.safety.fence import Contexts, RecallScrubber
from hermes_core.safety.origin import Reading, lowest, may_command
from hermes_memory_agent.answer import (
    ORIGIN,
    Answer,
    ChatMessage,
    Messages,
    ToolRequest,
    Usage,
    without_thoughts,
)
from hermes_memory_agent.cancel import Cancel, Cancelled, ignore, next_item, start_thread
from hermes_memory_agent.compression import tokens_of
from hermes_memory_agent.model import ChatModel, OnText, ask
from hermes_memory_agent.prompt import INTERRUPTED_RESULT, repair_messages
from hermes_memory_agent.tools import ToolRegistry, error, sendable, truncated

LAST_REQUEST_NOTE = "You have used all tool calls of this turn. Answer now with what you have; call no tool."

# Largest number of tool calls that run at the same time: each takes a thread, and may run a subagent.
MAX_PARALLEL_CALLS = 8

# A tool's result is truncated to this many characters if the conversation fills the context.
SHORT_RESULT = 2000

# Share of the context for a request; the rest is for the answer and for the error of the token estimate.
MAX_REQUEST_SHARE = 0.85

# Steps of truncation, tried one after another until the request fits: the number of newest tool results that stay
# whole, and the characters of each other result.
_TRUNCATION_STEPS = ((1, SHORT_RESULT), (0, SHORT_RESULT), (1, SHORT_RESULT // 10))

_TRUNCATED_ANSWER = {
    "length": "its server's limit of tokens was reached",
    "content_filter": "its server's content filter stopped it",
    # OpenRouter; vLLM and SGLang; DeepSeek
    **dict.fromkeys(("error", "abort", "insufficient_system_resource"), "its server broke it off"),
}
_NO_ANSWER = {
    **_TRUNCATED_ANSWER,
    "iterations": "it went on calling tools (agent.max_iterations)",
    "tool_calls": "its server announced a tool call and sent none",
}

OnMessage = Callable[[ChatMessage], None]
OnToolCall = Callable[[ToolRequest, str], None]


@dataclass(slots=True)
class ToolLoop:
    """One run of a model with tools.

    Attributes:
        model: The model to ask.
        tools: The tools that the model may call.
        session: The session that the tools act for.
        cancel: The switch that stops the run.
        max_requests: Largest number of requests to the model. The last request is for an answer; no tool runs after it.
        on_message: Function that gets each new message and stores it.
        on_text: Function that gets each piece of the answer's text when it arrives.
        on_tool_call: Function that gets each tool call with its result.
        usage: Tokens of all requests together.
        prompt_tokens: Tokens of the last request, as the server counted them; 0 if the server sent no count.
        finish: The server's reason for the end of the last answer.
        calls: Number of tool calls.
        shown: Pieces of the last answer that the person saw.
        reading: Returns what the model has read, for the lowest origin of its request.
        recalled: Returns the recall in the request.
    """

    model: ChatModel
    tools: ToolRegistry
    session: Session
    cancel: Cancel
    max_requests: int = 40
    on_message: OnMessage = ignore
    on_text: OnText = ignore
    on_tool_call: OnToolCall = ignore
    usage: Usage = field(default_factory=Usage)
    prompt_tokens: int = 0
    finish: str = ""
    calls: int = 0
    shown: list[str] = field(default_factory=list)
    reading: Callable[[Origin], Reading] = Reading
    recalled: Callable[[], Contexts] = lambda: ()
    _counted: int = 0
    """Number of messages in the request that `prompt_tokens` counts."""

    def run(self, request: list[ChatMessage]) -> str:
        """Ask the model and run the tools that it calls, until it answers without a tool call; return that answer.

        The messages of the run are appended to `request`. If the run is interrupted, each tool call without a result
        gets a result that says so.

        Raises:
            ModelError: the model failed.
            Cancelled: the run was interrupted.
        """
        for _ in range(self.max_requests - 1):
            answer, text = self._ask_with_room(request)
            answer = self._sendable(answer)
            if text.strip() or answer.calls:  # some servers refuse a conversation with an empty message
                self._add(request, answer.message(text))
            if not answer.calls:
                return text
            self._run_tools(request, answer)
        if self.max_requests > 1:
            request = repair_messages([*request, {"role": "user", "content": LAST_REQUEST_NOTE}])
        answer, text = self._ask_with_room(request)
        if text.strip():
            self._add(request, self._sendable(replace(answer, calls=())).message(text))
        elif answer.calls:
            self.finish = "iterations"
        return text

    def problems(self, answer: str) -> list[str]:
        """Return a sentence with the reason if the last `answer` is empty or incomplete; else an empty list."""
        if answer.strip():
            cut = _TRUNCATED_ANSWER.get(self.finish)
            return [f"the answer is not whole: {cut}"] if cut else []
        reason = _NO_ANSWER.get(self.finish)
        if not reason and self.finish not in ("", "stop"):
            reason = f"its server says {self.finish!r}"
        return [f"the model gave no answer: {reason}" if reason else "the model gave no answer"]

    def _ask_with_room(self, request: list[ChatMessage]) -> tuple[Answer, str]:
        """Ask the model; return the answer and its text as it is stored.

        If tool results fill the context, truncate them before the request. If the server still finds the request too
        long, truncate more and ask again. Only `request` changes: the stored messages keep the whole results.
        """
        self._make_room(request)
        try:
            return self._ask(request)
        except ContextOverflow:
            for whole_results in (1, 0):
                shorter = _truncate_results(request, whole_results, SHORT_RESULT)
                # The person has seen the beginning of an answer, and another try would answer in other words.
                if self.shown or shorter == request:
                    continue
                request[:] = shorter
                with contextlib.suppress(ContextOverflow):
                    return self._ask(request)
            raise

    def _make_room(self, request: list[ChatMessage]) -> None:
        """Truncate tool results in the request until it fits into the model's context.

        Some servers, such as Ollama, silently cut a request that is too long, beginning with the system prompt.
        """
        if not any(message["role"] == "tool" for message in request):
            return
        size = tokens_of(request, count_tokens) + count_tokens(str(self.tools.schemas))
        if self.prompt_tokens:
            added = tokens_of(request[self._counted :], count_tokens)
            size = max(size, self.prompt_tokens + added)
        for whole_results, limit in _TRUNCATION_STEPS:
            if size <= self.model.context_length * MAX_REQUEST_SHARE:
                return
            shorter = _truncate_results(request, whole_results, limit)
            size -= tokens_of(request, count_tokens) - tokens_of(shorter, count_tokens)
            request[:] = shorter

    def _ask(self, request: list[ChatMessage]) -> tuple[Answer, str]:
        """Ask the model once; return the answer and its text as it is stored.

        The stored text leaves out recalled text that the model repeated. It also leaves out thoughts that end with
        `</think>` but don't begin with `<think>`, because the model's chat template contains the opening tag.
        """
        scrubber = RecallScrubber(self.recalled())
        self.shown = shown = []
        streamed = False

        def show(text: str) -> None:
            if text:
                self.on_text(text)
                shown.append(text)

        def receive(text: str) -> None:
            nonlocal streamed
            streamed = True
            show(scrubber.feed(text))

        complete = False
        try:
            answer = ask(self.model, request, self.tools.schemas, on_text=receive, cancel=self.cancel)
            if answer.text and not streamed:  # a host's model that does not stream
                receive(answer.text)
            show(scrubber.flush())
            complete = True
        finally:  # after any interruption, also a SIGTERM or an error in the host's `on_text`
            if shown and not complete:
                self.on_message(
                    {"role": "assistant", "content": "".join(shown)}
                    | written_origin(request, self.session.owner)
                )
        self.usage += answer.usage
        self.prompt_tokens, self._counted = answer.usage.prompt, len(request)
        self.finish = answer.finish or ""  # None, if a host forwards the value of its SDK
        return answer, without_thoughts("".join(shown))

    def _run_tools(self, request: list[ChatMessage], answer: Answer) -> None:
        completed = 0
        try:
            results = self._results(answer.calls, origin_of(request, self.session.owner))
            for call, (result, origin) in zip(answer.calls, results, strict=True):
                self._add(request, _result_message(call, result) | {ORIGIN: origin})
                completed += 1
                self.on_tool_call(call, result)
        except (Cancelled, KeyboardInterrupt):
            # Servers refuse a conversation in which a call has no result.
            for call in answer.calls[completed:]:
                self._add(request, _result_message(call, INTERRUPTED_RESULT) | {ORIGIN: "assistant"})
            raise
        finally:
            self.calls += completed

    def _results(self, calls: Sequence[ToolRequest], read: Origin) -> Iterator[tuple[str, Origin]]:
        """Run the tool calls; yield their results with their origins in the order of the calls.

        Calls of parallel tools that follow one another run at the same time; other calls run alone.

        Args:
            read: The lowest origin of what the model has read.
        """
        for parallel, neighbours in itertools.groupby(calls, lambda call: self.tools.is_parallel(call.name)):
            group, size = list(neighbours), MAX_PARALLEL_CALLS if parallel else 1
            for start in range(0, len(group), size):
                yield from self._run_parallel(group[start : start + size], read)

    def _call(self, call: ToolRequest, read: Origin) -> tuple[str, Origin]:
        reading = self.reading(read)
        with reading.active():
            text = self.tools.call(call, self.session, self.cancel)
        own = self.tools.origin_of(call.name)
        return text, own if reading.result is None else lowest([own, reading.result])

    def _run_parallel(self, calls: Sequence[ToolRequest], read: Origin) -> Iterator[tuple[str, Origin]]:
        """Run these tool calls at the same time and yield their results in order. An interrupt stops all of them."""
        if len(calls) == 1:
            yield self._call(calls[0], read)
            return
        results: list[SimpleQueue[tuple[str, Origin] | None]] = [SimpleQueue() for _ in calls]

        def work(call: ToolRequest, result: SimpleQueue[tuple[str, Origin] | None]) -> None:
            try:
                result.put(self._call(call, read))
            except Cancelled:
                result.put(None)

        for call, result in zip(calls, results, strict=True):
            try:
                start_thread(
                    partial(contextvars.copy_context().run, work, call, result), f"agent-call-{call.name}"
                )
            except HermesError as exc:  # no thread is left
                result.put((error(f"tool {call.name!r} failed: {exc}"), "assistant"))
        for result in results:
            answer = next_item(result)
            if answer is None:
                raise Cancelled
            yield answer

    def _sendable(self, answer: Answer) -> Answer:
        """Return the answer with tool calls in a form that every server accepts, and without recall that it repeats in them or in its thoughts.

        A later request sends the calls to a server again.
        """
        prefix = "cut off at the limit of tokens: " if answer.finish == "length" else ""
        scrub = RecallScrubber(self.recalled(), is_answer=False).cleaned
        clean = [replace(call, arguments=scrub(call.arguments)) for call in answer.calls]
        calls = tuple(sendable(call, self.tools, prefix) for call in clean)
        return replace(answer, calls=calls, reasoning=scrub(answer.reasoning))

    def _add(self, request: list[ChatMessage], message: ChatMessage) -> None:
        if message["role"] == "assistant":
            message = message | written_origin([*request, message], self.session.owner)
        request.append(message)
        self.on_message(message)


def origin_of(messages: Messages, owner: str) -> Origin:
    """Return the lowest origin of messages, of which those without one are the person's and the agent's."""
    return lowest((message.get(ORIGIN, "person") for message in messages), owner=owner)


def written_origin(request: Messages, owner: str) -> ChatMessage:
    """Return the origin of what a model writes after this request as a field of its message; none if it is its own."""
    read = origin_of(request, owner)
    return {} if may_command(read) else {ORIGIN: read}


def _truncate_results(request: Messages, whole_results: int, max_characters: int) -> list[ChatMessage]:
    """Return the request with all tool results truncated except the newest ones.

    Args:
        request: The messages of the request.
        whole_results: Number of the newest tool results to keep whole.
        max_characters: Length of a truncated result.
    """
    places = [at for at, message in enumerate(request) if message["role"] == "tool"]
    older = places[: len(places) - whole_results]
    return [
        {**message, "content": truncated(message["content"], max_characters)} if at in older else message
        for at, message in enumerate(request)
    ]


def _result_message(call: ToolRequest, text: str) -> ChatMessage:
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text}
