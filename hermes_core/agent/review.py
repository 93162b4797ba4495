"""Looking back: the background review after an answer, and the flush before messages leave the context.

Both are a short exchange with the model in which only the memory and skill tools run. No provider hears of it: the
session that they act for is no primary one. Nothing of it is stored as conversation.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hermes_core.agent.answer import Chat, ToolRequest
from hermes_core.agent.cancel import Cancel, Cancelled
from hermes_core.agent.exchange import Exchange
from hermes_core.agent.model import ChatModel
from hermes_core.agent.prompt import mended
from hermes_core.agent.tools import Toolbelt, arguments_of
from hermes_core.contract.values import Session
from hermes_core.errors import ModelError

log = logging.getLogger(__name__)

MAX_REQUESTS = 16

_TEST = (
    "The test for each entry: would a routine turn in a month go wrong without it? If not, leave it out. Most "
    "conversations hold nothing that passes, and then you change nothing. Facts, not orders; no progress of tasks; "
    "nothing that is there already; a fact in one place only."
)
REVIEW = (
    "[This is not from the person. They don't see it and can't answer.]\n"
    "Look back over the conversation. Did the person show what they prefer, correct you, or say who they are? Is there "
    "a fact of their environment that will hold? Save it with `memory`. Did a task take five or more tool calls, or go "
    "wrong before it went right, or did a skill prove wrong? Create or patch a skill. "
    f"{_TEST}\nWhen you are done, answer with the one word: done."
)
FLUSH = (
    "[This is not from the person. They don't see it and can't answer.]\n"
    "These messages are about to leave your context. Save what must not be lost with `memory`, and nothing else. "
    f"{_TEST}\nWhen you are done, answer with the one word: done."
)


@dataclass(frozen=True, slots=True)
class Review:
    """What a look back changed, a short line each; `failure` says why it did not come to its end."""

    changes: tuple[str, ...] = ()
    failure: str = ""

    def __str__(self) -> str:
        return f"Memory updated: {'; '.join(self.changes)}" if self.changes else ""


@dataclass(frozen=True, slots=True)
class LookBack:
    """One pass over a conversation. `suppressed` says of which targets a provider keeps the writes."""

    model: ChatModel
    belt: Toolbelt
    session: Session
    suppressed: Callable[[str], bool]

    def review(self, prompt: str, history: Sequence[Chat], cancel: Cancel) -> Review:
        """The background review: memory and skills, with the conversation's own prompt and tools, which are cached."""
        return self._run(prompt, history, REVIEW, ("memory", "skills"), "review", cancel)

    def flush(self, prompt: str, history: Sequence[Chat], cancel: Cancel) -> Review:
        """The pass before messages leave: memory only."""
        return self._run(prompt, history, FLUSH, ("memory",), "flush", cancel)

    def _run(
        self,
        prompt: str,
        history: Sequence[Chat],
        ask: str,
        toolsets: Sequence[str],
        context: Any,
        cancel: Cancel,
    ) -> Review:
        changes: list[str] = []

        def called(request: ToolRequest, result: str) -> None:
            line = _change(request, result)
            if line:
                changes.append(line)

        exchange = Exchange(
            self.model,
            self.belt.only(toolsets, self._refusal),
            replace(self.session, agent_context=context),
            cancel,
            MAX_REQUESTS,
            called=called,
        )
        request = [{"role": "system", "content": prompt}, *mended(history), {"role": "user", "content": ask}]
        try:
            exchange.run(request)
        except (ModelError, Cancelled) as exc:
            log.info("the %s did not come to its end: %s", context, exc or "it was stopped")
            return Review(tuple(changes), str(exc) or "stopped")
        return Review(tuple(changes))

    def _refusal(self, name: str, arguments: Mapping[str, Any]) -> str:
        target = arguments.get("target")
        if name == "memory" and isinstance(target, str) and self.suppressed(target):
            return f"{target!r} is kept by the memory provider, which has the conversation anyway"
        return ""


class Background:
    """Runs one piece of work at a time on a daemon thread; what comes while it runs is not taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._cancel = Cancel()

    def start(self, work: Callable[[Cancel], None], name: str) -> bool:
        """Begin; False when something is running."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return False
            self._cancel = Cancel()
            self._thread = threading.Thread(target=work, args=(self._cancel,), name=name, daemon=True)
            self._thread.start()
            return True

    def wait(self, timeout: float) -> bool:
        """Wait for what runs; whether nothing runs any more."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def stop(self, timeout: float = 1.0) -> bool:
        """Ask what runs to stop, and wait a little."""
        self._cancel.set()
        return self.wait(timeout)


def turns_since_memory(history: Sequence[Chat], interval: int) -> int:
    """Turns of the person since the last memory call or review, as the history tells: an agent made anew for each
    message keeps the cadence.
    """
    count = 0
    for message in history:
        if message["role"] == "user":
            count += 1
        elif any(call["function"]["name"] == "memory" for call in message.get("tool_calls", ())):
            count = 0
    return count % interval if interval else 0


def _change(request: ToolRequest, result: str) -> str:
    """What a call changed, in a few words; "" when it changed nothing."""
    arguments = arguments_of(request)
    try:
        answer = json.loads(result)
    except ValueError:
        return ""
    if isinstance(arguments, str) or not isinstance(answer, dict) or not answer.get("success"):
        return ""
    if request.name == "skill_manage":
        return f"skill {arguments.get('name')} ({arguments.get('action')})"
    if request.name == "memory":
        text = str(arguments.get("content") or arguments.get("old_text") or "several entries")
        return f"{arguments.get('target')} ({arguments.get('action', 'batch')}): {_clip(text)}"
    return ""


def _clip(text: str, width: int = 80) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
