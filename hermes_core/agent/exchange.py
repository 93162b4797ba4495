"""One exchange with a model: ask, run the tools that it calls, ask again, until it answers.

Knows nothing of sessions stored or providers called; turns, reviews, flushes and delegated tasks all run on it.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue

from hermes_core.agent.answer import Answer, Chat, ToolRequest, Usage, behind_thoughts
from hermes_core.agent.cancel import Cancel, Cancelled, begin, taken
from hermes_core.agent.chat_model import ChatModel, Hear, answer_of, unheard
from hermes_core.agent.compression import tokens_of
from hermes_core.agent.prompt import UNANSWERED, mended
from hermes_core.agent.tools import Toolbelt, clipped, error, sendable
from hermes_core.contract.values import Session
from hermes_core.errors import ContextOverflow, HermesError
from hermes_core.recall.rank import count_tokens
from hermes_core.safety.fence import sanitize_context
from hermes_core.safety.scrubber import StreamingContextScrubber

LAST_WORD = "You have used all tool calls of this turn. Answer now with what you have; call no tool."

MAX_AT_ONCE = 8
"""Calls of one answer that run side by side."""

SHORT_RESULT = 2000
"""Characters of a tool's result in a conversation that fills the context, or that its server found too long."""

FULLEST = 0.85
"""Share of the context that a request may take; the rest is for the answer, and for what a count of ours misses."""

_CUTS = ((1, SHORT_RESULT), (0, SHORT_RESULT), (1, SHORT_RESULT // 10))

_CUT_SHORT = {
    "length": "its server's limit of tokens was reached",
    "content_filter": "its server's content filter stopped it",
    # OpenRouter; vLLM and SGLang; DeepSeek
    **dict.fromkeys(("error", "abort", "insufficient_system_resource"), "its server broke it off"),
}
_NO_ANSWER = {
    **_CUT_SHORT,
    "iterations": "it went on calling tools (agent.max_iterations)",
    "tool_calls": "its server announced a tool call and sent none",
}

Keep = Callable[[Chat], None]
Called = Callable[[ToolRequest, str], None]


def untold(request: ToolRequest, result: str) -> None:
    """For those who don't watch the tools."""
    del request, result


@dataclass(slots=True)
class ToolLoop:
    """Where an exchange goes: `keep` gets each new message, `hear` the text as it comes, `called` each tool's result.

    `usage` is of all its requests; of the last one are `prompt_tokens`, its size as the server counted it, 0 where it did
    not, `finish`, and `shown`, the text that was heard.
    """

    model: ChatModel
    belt: Toolbelt
    session: Session
    cancel: Cancel
    limit: int = 40
    keep: Keep = lambda _: None
    hear: Hear = unheard
    called: Called = untold
    usage: Usage = field(default_factory=Usage)
    prompt_tokens: int = 0
    finish: str = ""
    calls: int = 0
    shown: list[str] = field(default_factory=list)
    _counted: int = 0

    def run(self, request: list[Chat]) -> str:
        """Extend `request` by what is said and done until the model answers without a call; returns that answer. The last
        request of the `limit` is for an answer: of that no call is run.

        Raises `ModelError` and `Cancelled`; what was seen until then has been kept, each call with a result.
        """
        for _ in range(self.limit - 1):
            answer, text = self._ask_in_room(request)
            answer = self._sendable(answer)
            if text.strip() or answer.calls:  # some servers refuse a conversation that holds an empty message
                self._add(request, answer.message(text))
            if not answer.calls:
                return text
            self._run_tools(request, answer)
        if self.limit > 1:
            request = mended([*request, {"role": "user", "content": LAST_WORD}])
        answer, text = self._ask_in_room(request)
        if text.strip():
            self._add(request, self._sendable(replace(answer, calls=())).message(text))
        elif answer.calls:
            self.finish = "iterations"
        return text

    def faults(self, answer: str) -> list[str]:
        """What is to be said of this answer, the last one: why there is none, or not all of it."""
        if answer.strip():
            cut = _CUT_SHORT.get(self.finish)
            return [f"the answer is not whole: {cut}"] if cut else []
        reason = _NO_ANSWER.get(self.finish)
        if not reason and self.finish not in ("", "stop"):
            reason = f"its server says {self.finish!r}"
        return [f"the model gave no answer: {reason}" if reason else "the model gave no answer"]

    def _ask_in_room(self, request: list[Chat]) -> tuple[Answer, str]:
        """Ask, where it fills the context with results of tools cut short: older ones, then all; and again so where the
        server finds it too long.

        They are cut in `request` alone: what is kept stays whole.
        """
        self._make_room(request)
        try:
            return self._ask(request)
        except ContextOverflow:
            for spared in (1, 0):
                shorter = _cut_results(request, spared, SHORT_RESULT)
                if self.shown or shorter == request:  # nor is anything said again that the person saw begin
                    continue
                request[:] = shorter
                with contextlib.suppress(ContextOverflow):
                    return self._ask(request)
            raise

    def _make_room(self, request: list[Chat]) -> None:
        """Cut results of tools short until the request fits. Some servers, as Ollama, cut what is too long without a word,
        and the system prompt first.
        """
        if not any(message["role"] == "tool" for message in request):
            return
        size = tokens_of(request, count_tokens) + count_tokens(str(self.belt.schemas))
        if self.prompt_tokens:
            added = tokens_of(request[self._counted :], count_tokens)
            size = max(size, self.prompt_tokens + added)
        for spared, most in _CUTS:
            if size <= self.model.context_length * FULLEST:
                return
            shorter = _cut_results(request, spared, most)
            size -= tokens_of(request, count_tokens) - tokens_of(shorter, count_tokens)
            request[:] = shorter

    def _ask(self, request: list[Chat]) -> tuple[Answer, str]:
        """The answer, and its text as the person saw it: without recalled text that the model repeats, and without
        thoughts that nothing told from it until their end, since the server's template had begun them."""
        scrubber = StreamingContextScrubber()
        self.shown = shown = []
        heard = False

        def show(text: str) -> None:
            if text:
                self.hear(text)
                shown.append(text)

        def hear(text: str) -> None:
            nonlocal heard
            heard = True
            show(scrubber.feed(text))

        whole = False
        try:
            answer = answer_of(self.model, request, self.belt.schemas, hear=hear, cancel=self.cancel)
            if answer.text and not heard:  # a model of the host's that does not stream
                hear(answer.text)
            show(scrubber.flush())
            whole = True
        finally:  # whatever broke it off, also a SIGTERM or the host's own `hear`
            if shown and not whole:
                self.keep({"role": "assistant", "content": "".join(shown)})
        self.usage += answer.usage
        self.prompt_tokens, self._counted = answer.usage.prompt, len(request)
        self.finish = answer.finish or ""  # None, where a host hands on what its SDK has
        return answer, behind_thoughts("".join(shown))

    def _run_tools(self, request: list[Chat], answer: Answer) -> None:
        answered = 0
        try:
            for call, result in zip(answer.calls, self._results(answer.calls), strict=True):
                self._add(request, _result(call, result))
                answered += 1
                self.called(call, result)
        except (Cancelled, KeyboardInterrupt):
            for call in answer.calls[answered:]:
                self._add(request, _result(call, UNANSWERED))
            raise
        finally:
            self.calls += answered

    def _results(self, calls: Sequence[ToolRequest]) -> Iterator[str]:
        """The result of each call, in their order; those next to one another that may do so run at once."""
        for beside, found in itertools.groupby(calls, lambda call: self.belt.parallel(call.name)):
            group, size = list(found), MAX_AT_ONCE if beside else 1
            for start in range(0, len(group), size):
                yield from self._at_once(group[start : start + size])

    def _call(self, call: ToolRequest) -> str:
        return self.belt.call(call, self.session, self.cancel)

    def _at_once(self, calls: Sequence[ToolRequest]) -> Iterator[str]:
        """Run these calls side by side; an interrupt reaches each of them."""
        if len(calls) == 1:
            yield self._call(calls[0])
            return
        ends: list[SimpleQueue[str | None]] = [SimpleQueue() for _ in calls]

        def work(call: ToolRequest, end: SimpleQueue[str | None]) -> None:
            try:
                end.put(self._call(call))
            except Cancelled:
                end.put(None)

        for call, end in zip(calls, ends, strict=True):
            run = partial(contextvars.copy_context().run, work, call, end)
            try:
                begin(threading.Thread(target=run, name=f"agent-call-{call.name}", daemon=True))
            except HermesError as exc:
                end.put(error(f"tool {call.name!r} failed: {exc}"))
        for end in ends:
            result = taken(end)
            if result is None:
                raise Cancelled
            yield result

    def _sendable(self, answer: Answer) -> Answer:
        """The answer with calls that every server takes back. What the model copied of recalled text is left out, of its
        thoughts too.
        """
        cut = "cut off at the limit of tokens: " if answer.finish == "length" else ""
        calls = tuple(sendable(call, self.belt, cut) for call in answer.calls)
        return replace(answer, calls=calls, reasoning=sanitize_context(answer.reasoning))

    def _add(self, request: list[Chat], message: Chat) -> None:
        request.append(message)
        self.keep(message)


def _cut_results(request: Sequence[Chat], spared: int, most: int) -> list[Chat]:
    """The request with results of tools of `most` characters, all but the last `spared`."""
    places = [at for at, message in enumerate(request) if message["role"] == "tool"]
    chosen = places[: len(places) - spared]
    return [
        {**message, "content": clipped(message["content"], most)} if at in chosen else message
        for at, message in enumerate(request)
    ]


def _result(call: ToolRequest, text: str) -> Chat:
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text}
