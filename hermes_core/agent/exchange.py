"""One exchange with a model: ask, run the tools that it calls, ask again, until it answers.

Knows nothing of sessions stored or providers called; turns, reviews, flushes and delegated tasks all run on it.
"""

from __future__ import annotations

import contextvars
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue

from hermes_core.agent.answer import Answer, Chat, ToolRequest, Usage
from hermes_core.agent.cancel import Cancel, Cancelled
from hermes_core.agent.model import ChatModel, Hear
from hermes_core.agent.prompt import UNANSWERED
from hermes_core.agent.tools import MALFORMED, Toolbelt, arguments_of
from hermes_core.contract.values import Session
from hermes_core.errors import ModelError
from hermes_core.safety.scrubber import StreamingContextScrubber

LAST_WORD = "You have used all tool calls of this turn. Answer now with what you have; call no tool."

MAX_AT_ONCE = 8
"""Calls of one answer that run side by side."""

Keep = Callable[[Chat], None]
Called = Callable[[ToolRequest, str], None]


def unheard(text: str) -> None:
    """For those who want the answer only when it is whole."""
    del text


def untold(request: ToolRequest, result: str) -> None:
    """For those who don't watch the tools."""
    del request, result


@dataclass(slots=True)
class Exchange:
    """Where an exchange goes: `keep` gets each new message, `hear` the text as it comes, `called` each tool's result."""

    model: ChatModel
    belt: Toolbelt
    session: Session
    cancel: Cancel
    limit: int = 40
    keep: Keep = lambda _: None
    hear: Hear = unheard
    called: Called = untold
    usage: Usage = field(default_factory=Usage)
    calls: int = 0

    def run(self, request: list[Chat]) -> str:
        """Extend `request` by what is said and done until the model answers without a call; returns that answer.

        Raises `ModelError` and `Cancelled`; what was seen until then has been kept, each call with a result.
        """
        for _ in range(self.limit):
            answer, text = self._ask(request)
            answer = _sendable(answer)
            self._add(request, answer.message(text))
            if not answer.calls:
                return text
            self._run_tools(request, answer)
        _, text = self._ask([*request, {"role": "user", "content": LAST_WORD}])
        self._add(request, {"role": "assistant", "content": text})
        return text

    def _ask(self, request: list[Chat]) -> tuple[Answer, str]:
        """The answer, and its text as the person saw it: without recalled text that the model repeats."""
        scrubber = StreamingContextScrubber()
        shown: list[str] = []

        def hear(text: str) -> None:
            visible = scrubber.feed(text)
            if visible:
                shown.append(visible)
                self.hear(visible)

        try:
            answer = self.model.complete(request, self.belt.schemas, hear=hear, cancel=self.cancel)
        except (ModelError, Cancelled, KeyboardInterrupt):
            if shown:
                self.keep({"role": "assistant", "content": "".join(shown)})
            raise
        rest = scrubber.flush()
        if rest:
            shown.append(rest)
            self.hear(rest)
        self.usage += answer.usage
        return answer, "".join(shown)

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

    def _result(self, call: ToolRequest) -> str:
        return self.belt.call(call, self.session, self.cancel)

    def _at_once(self, calls: Sequence[ToolRequest]) -> Iterator[str]:
        """Run these calls side by side; the one who interrupts is seen by each."""
        if len(calls) == 1:
            yield self._result(calls[0])
            return
        ends: list[SimpleQueue[str | None]] = [SimpleQueue() for _ in calls]

        def work(call: ToolRequest, end: SimpleQueue[str | None]) -> None:
            try:
                end.put(self._result(call))
            except Cancelled:
                end.put(None)

        for call, end in zip(calls, ends, strict=True):
            run = partial(contextvars.copy_context().run, work, call, end)
            threading.Thread(target=run, name=f"agent-call-{call.name}", daemon=True).start()
        for end in ends:
            result = end.get()
            if result is None:
                raise Cancelled
            yield result

    def _add(self, request: list[Chat], message: Chat) -> None:
        request.append(message)
        self.keep(message)


def _result(call: ToolRequest, text: str) -> Chat:
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text}


def _sendable(answer: Answer) -> Answer:
    """The answer with arguments that are JSON objects, free of recalled text: chat templates parse them again."""
    calls = []
    for call in answer.calls:
        found = arguments_of(call)
        kept = {MALFORMED: call.arguments[:2000]} if isinstance(found, str) else found
        calls.append(replace(call, arguments=json.dumps(kept, ensure_ascii=False)))
    return replace(answer, calls=tuple(calls))
