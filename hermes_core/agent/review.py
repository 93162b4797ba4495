"""Looking back: the background review after an answer, and the flush before messages leave the context.

Both are a short exchange with the model in which only the memory and skill tools run. No provider hears of it: the
session that they act for is no primary one. Nothing of it is stored as conversation.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hermes_core.agent.answer import KEPT_BACK, Chat, ToolRequest
from hermes_core.agent.cancel import Cancel, Cancelled, begin
from hermes_core.agent.chat_model import ChatModel
from hermes_core.agent.compression import is_summary, last_that_fit
from hermes_core.agent.exchange import ToolLoop
from hermes_core.agent.prompt import mended
from hermes_core.agent.sessions import compressed
from hermes_core.agent.tools import Toolbelt, arguments_of
from hermes_core.contract.values import Session
from hermes_core.curated.store import changed_something
from hermes_core.errors import ModelError, StorageError
from hermes_core.kit.text import clip, fold_space
from hermes_core.manager.call import attempt
from hermes_core.memory import Memory
from hermes_core.recall.rank import count_tokens
from hermes_core.sessions.meta import key_of, read_meta

log = logging.getLogger(__name__)

MAX_REQUESTS = 16

FULL = 0.9
"""Share of the model's context that a look back reads at most; the rest is for its answers."""

STOPPED = "stopped"
"""The failure of a look back that the person's leaving cut short."""

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

_PASSES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "review": (REVIEW, ("memory", "skill_view", "skill_manage")),
    "flush": (FLUSH, ("memory",)),
}
"""What the model is asked, and the tools that run."""


@dataclass(frozen=True, slots=True)
class Review:
    """What a look back changed, a short line each; `failure` says why it did not come to its end."""

    changes: tuple[str, ...] = ()
    failure: str = ""

    def __str__(self) -> str:
        return f"Memory updated: {'; '.join(self.changes)}" if self.changes else ""


class Background:
    """Runs one piece of work at a time on a daemon thread; what comes while it runs is not taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._cancel = Cancel()

    def start(self, work: Callable[[Cancel], None], name: str) -> bool:
        """Begin; False when something is running. Raises `HermesError` where no thread is left."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return False
            self._cancel = Cancel()
            thread = threading.Thread(target=work, args=(self._cancel,), name=name, daemon=True)
            begin(thread)
            self._thread = thread
            return True

    def wait(self, timeout: float) -> bool:
        """Wait for what runs; whether nothing runs any more."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def cancel(self) -> None:
        """Ask what runs to stop."""
        self._cancel.set()

    def stop(self, timeout: float = 1.0) -> bool:
        """Ask what runs to stop, and wait a little."""
        self.cancel()
        return self.wait(timeout)


class Reviewer:
    """Looks back over a conversation when it is due. One for each agent; `background` is shared by several."""

    def __init__(
        self,
        memory: Memory,
        model: ChatModel,
        belt: Toolbelt,
        background: Background,
        reviewed: Callable[[Review], None] | None = None,
    ) -> None:
        self.background = background
        self._memory = memory
        self._model = model
        self._belt = belt
        self._reviewed = reviewed
        self._since_memory = 0
        self._flushed: Chat | None = None
        """The last message that a flush came to its end with."""

    @property
    def _interval(self) -> int:
        return self._memory.config.memory.nudge_interval if self._memory.config.agent.review else 0

    def hydrate(self, session: Session, history: Sequence[Chat]) -> None:
        """Take up the count where the stored conversation left it, without turns that failed or were taken back."""
        if not self._interval:
            return
        key, turns = self._key_and_turns(session)
        last = read_meta(key, self._memory.sessions.get_meta(key), int, None)
        if last is None:
            self._since_memory = min(turns_since_memory(history, turns), turns)
            return
        self._since_memory = max(turns - last, 0)
        if turns < last:
            self.note(session)

    def note(self, session: Session) -> None:
        """Store the count with the conversation, where the turns of its session don't tell it."""
        if self._interval:
            key, turns = self._key_and_turns(session)
            self._memory.sessions.set_meta(key, str(turns - self._since_memory))

    def turn_done(self, session: Session, used_memory: bool) -> bool:
        """Count an answered turn; whether a review is due. Counted only when there is a memory tool and a file for it to
        write.
        """
        if not self._interval or not self._keeps_notes():
            return False
        self._since_memory = 0 if used_memory else self._since_memory + 1
        if used_memory:
            self.note(session)
        return self._since_memory >= self._interval

    def start_review(self, session: Session, prompt: str, history: Sequence[Chat]) -> bool:
        """Begin a review in the background; False when one is running: then it is due again after the next answer, as is
        one that is stopped.
        """
        messages, due = list(history), self._since_memory

        def work(cancel: Cancel) -> None:
            review = self._look_back(session, prompt, messages, "review", cancel)
            if review.failure == STOPPED:
                self._since_memory += due
                with contextlib.suppress(StorageError):  # the memory may be closed
                    self.note(session)
            if self._reviewed is not None and (review.changes or review.failure):
                self._reviewed(review)

        started = self.background.start(work, "agent-review")
        if not started:
            log.info("a review is running already; this one comes after the next answer")
            return False
        self._since_memory = 0
        self.note(session)
        return True

    def flush(
        self, session: Session, prompt: str, history: Sequence[Chat], stopped: Cancel, left: float = math.inf
    ) -> bool:
        """Let the model save what matters before these messages leave; bounded, and never in the way of the exit. Whether
        it came to the end of that.

        Who throws `stopped`, or presses Ctrl-C, waits no longer, nor is there more time than is `left`. What was flushed is
        not read again while nothing is said.
        """
        least = self._memory.config.memory.flush_min_turns
        if not least or not session.primary or not self._keeps_notes():
            return False
        if not self._is_long(session, history, least):
            return False
        if history[-1] is self._flushed:
            return True
        seconds, flusher = min(self._memory.config.agent.flush_seconds, left), Background()
        if seconds <= 0:
            return False
        messages = list(history)

        def work(cancel: Cancel) -> None:
            if not self._look_back(session, prompt, messages, "flush", cancel).failure:
                self._flushed = messages[-1]

        _, failure = attempt(flusher.start, work, "agent-flush")
        if failure is not None:  # the interpreter is ending, or no thread is left
            log.warning("the session %s was not flushed: %s", session.id, failure)
            return False
        try:
            with stopped.calling(flusher.cancel):
                if not flusher.wait(seconds):
                    log.warning("the flush of session %s was stopped after %g s", session.id, seconds)
        finally:
            flusher.cancel()
        return self._flushed is messages[-1]

    def _look_back(
        self,
        session: Session,
        prompt: str,
        history: Sequence[Chat],
        kind: Literal["review", "flush"],
        cancel: Cancel,
    ) -> Review:
        """One pass with the conversation's own prompt and tools, which the server has cached; few of them run."""
        changes: list[str] = []

        def called(request: ToolRequest, result: str) -> None:
            line = _change(request, result)
            if line:
                changes.append(line)

        ask, tools = _PASSES[kind]
        room = self._model.context_length * FULL - count_tokens(f"{prompt}{self._belt.schemas}{ask}")
        exchange = ToolLoop(
            self._model,
            self._belt.only(tools, self._refusal),
            replace(session, agent_context=kind),
            cancel,
            MAX_REQUESTS,
            called=called,
        )
        request = [
            {"role": "system", "content": prompt},
            *mended([*last_that_fit(history, room, count_tokens), {"role": "user", "content": ask}]),
        ]
        try:
            exchange.run(request)
        except (ModelError, Cancelled) as exc:
            log.info("the %s did not come to its end: %s", kind, exc or "it was stopped")
            return Review(tuple(changes), str(exc) or STOPPED)
        return Review(tuple(changes))

    def _key_and_turns(self, session: Session) -> tuple[str, int]:
        """Where the count is kept, with the first session of the conversation, and how many turns it had."""
        sessions, ids = self._memory.sessions, [session.id, *compressed(self._memory, session)]
        return key_of("reviewed", ids[-1]), sum(map(sessions.turn_count, ids))

    def _is_long(self, session: Session, history: Sequence[Chat], least: int) -> bool:
        """Whether so many turns of this history were completed. One that was compressed has had its turns; of those that a
        branch began with it is known that they were answered.
        """
        if any(map(is_summary, history)):
            return any(message["role"] == "user" and not is_summary(message) for message in history)
        stored = self._memory.sessions.get_session(session.id)
        branch = stored is not None and stored.relation == "branch"
        return _answered(history) >= least and (branch or self._key_and_turns(session)[1] >= least)

    def _keeps_notes(self) -> bool:
        """Whether there is a memory tool, and a file that it may write."""
        suppressed = self._memory.manager.suppresses_local_writes
        targets = self._memory.curated.enabled_targets
        return "memory" in self._belt and any(not suppressed(target) for target in targets)

    def _refusal(self, name: str, arguments: Mapping[str, Any]) -> str:
        target = arguments.get("target")
        if (
            name == "memory"
            and isinstance(target, str)
            and self._memory.manager.suppresses_local_writes(target)
        ):
            return f"{target!r} is kept by the memory provider, which has the conversation anyway"
        return ""


def turns_since_memory(history: Sequence[Chat], turns: int = 0) -> int:
    """Answered turns since the last memory call, as the history tells; `turns`, those of the whole conversation, where a
    compression took some of them out of it.
    """
    calls = [at for at, message in enumerate(history) if _calls_memory(message)]
    since = history[calls[-1] + 1 if calls else 0 :]
    return turns if any(map(is_summary, since)) else _answered(since)


def _calls_memory(message: Chat) -> bool:
    return any(call["function"]["name"] == "memory" for call in message.get("tool_calls", ()))


def _answered(history: Sequence[Chat]) -> int:
    """How often the person was answered; what was broken off is kept back."""
    count, asked = 0, False
    for message in history:
        if message["role"] == "user":
            asked = not is_summary(message) and KEPT_BACK not in message
        elif asked and message["role"] == "assistant" and not message.get("tool_calls"):
            count, asked = count + (not is_summary(message)), False
    return count


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
    if request.name == "memory" and changed_something(answer):
        text = str(arguments.get("content") or arguments.get("old_text") or "several entries")
        return f"{arguments.get('target')} ({arguments.get('action', 'batch')}): {clip(fold_space(text), 80)}"
    return ""
