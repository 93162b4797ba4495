"""Background reviews and flushes: short runs of the model in which it saves to the notes and skills.

A review follows an answer, in the background. A flush comes before messages leave the model's context. Only the memory
and skill tools work in them. Providers are not notified of them, and their messages are not stored as conversation.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from hermes_core import Memory
from hermes_core.contract.values import Session
from hermes_core.curated.answers import changed_something
from hermes_core.errors import HermesError, ModelError, StorageError
from hermes_core.kit import clip, fold_space
from hermes_core.recall.tokens import count_tokens
from hermes_core.sessions.records import meta_key, read_meta
from hermes_memory_agent.answer import HIDDEN, ChatMessage, Messages, ToolRequest
from hermes_memory_agent.cancel import Cancel, Cancelled, ignore, start_thread
from hermes_memory_agent.compression import is_summary, last_that_fit
from hermes_memory_agent.loop import ToolLoop
from hermes_memory_agent.model import ChatModel
from hermes_memory_agent.prompt import repair_messages
from hermes_memory_agent.sessions import compression_ancestors, said_in
from hermes_memory_agent.tools import ToolRegistry, parse_arguments

log = logging.getLogger(__name__)

# Largest number of requests to the model in one review or flush: some models would never stop calling tools.
MAX_REQUESTS = 16

# Share of the model's context for the request of a review; the rest is for the model's answers.
MAX_CONTEXT_SHARE = 0.9

# Failure of a review that was stopped because the person left.
STOPPED = "stopped"

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

# The message to the model and the tools that work, by kind.
_INSTRUCTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "review": (REVIEW, ("memory", "skill_view", "skill_manage")),
    "flush": (FLUSH, ("memory",)),
}


@dataclass(frozen=True, slots=True)
class Review:
    """The result of a background review of the conversation, or of a curation of the notes.

    Attributes:
        changes: A short line for each change to notes and skills.
        failure: The reason if the review did not complete, else "".
    """

    changes: tuple[str, ...] = ()
    failure: str = ""

    def __str__(self) -> str:
        return f"Memory updated: {'; '.join(self.changes)}" if self.changes else ""


class Background:
    """A runner of background work. It runs one piece of work at a time and refuses other work meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # two agents of a gateway may start work at once
        self._thread: threading.Thread | None = None
        self._cancel = Cancel()

    def start(self, work: Callable[[Cancel], None], name: str) -> bool:
        """Start `work` on a daemon thread; return False if other work runs.

        Args:
            work: Function that gets the switch by which `cancel` stops it.
            name: Name of the thread.

        Raises:
            HermesError: no thread can be started.
        """
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return False
            self._cancel = Cancel()
            self._thread = start_thread(partial(work, self._cancel), name)
            return True

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the work that `start` began. Return True if none runs afterwards."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def cancel(self) -> None:
        """Ask the work that `start` began to stop, without waiting."""
        self._cancel.set()

    def stop(self, timeout: float = 1.0) -> bool:
        """Stop the work that `start` began: wait at most `timeout` seconds. Return True if none runs afterwards."""
        self.cancel()
        return self.wait(timeout)


class Reviewer:
    """The reviews and flushes of one agent: runs in which the model saves to notes and skills.

    Args:
        memory: The memory.
        model: The model that reviews.
        tools: The tools of the agent. Only the memory and skill tools work in a review.
        background: Runner of reviews, which the agents of a memory usually share.
        on_review: Function that gets each review that changed something or failed.
    """

    def __init__(
        self,
        memory: Memory,
        model: ChatModel,
        tools: ToolRegistry,
        background: Background,
        on_review: Callable[[Review], object] = ignore,
    ) -> None:
        self.background = background
        self._memory = memory
        self._model = model
        self._tools = tools
        self._on_review = on_review
        self._turns_since_memory = 0
        # Last message of the history in the last complete flush, so that the same history is not flushed twice.
        self._last_flushed: ChatMessage | None = None

    @property
    def _interval(self) -> int:
        return self._memory.config.memory.nudge_interval if self._memory.config.agent.review else 0

    def load_count(self, session: Session, history: Messages) -> None:
        """Load the number of turns since the last memory tool call that is stored with the conversation.

        Turns that were undone meanwhile are subtracted. If no number is stored, count the turns in `history`.
        """
        if not self._interval:
            return
        key, turns = self._key_and_turns(session)
        turns_before = read_meta(key, self._memory.sessions.meta.get(key), int, None)
        if turns_before is None:
            self._turns_since_memory = min(turns_since_memory(history, turns), turns)
            return
        self._turns_since_memory = max(turns - turns_before, 0)
        if turns < turns_before:
            self.save_count(session)

    def save_count(self, session: Session) -> None:
        """Store the number of turns since the last memory tool call, for the next agent in the conversation."""
        if self._interval:
            key, turns = self._key_and_turns(session)
            self._memory.sessions.meta.set(key, str(turns - self._turns_since_memory))

    def count_turn(self, session: Session, used_memory: bool) -> bool:
        """Count an answered turn; return True if enough turns have passed since the last memory tool call for a review.

        Do nothing if reviews are switched off, or if the agent has no memory tool or no notes that the tool may write.

        Args:
            session: The session of the turn.
            used_memory: True if the model called the memory tool in the turn. The count then begins anew.
        """
        if not self._interval or not self._has_notes():
            return False
        self._turns_since_memory = 0 if used_memory else self._turns_since_memory + 1
        if used_memory:
            self.save_count(session)
        return self._turns_since_memory >= self._interval

    def start_review(self, session: Session, prompt: str, history: Messages) -> bool:
        """Start a background review of the conversation; return False if other background work runs.

        A review that could not start, or was stopped, is due again after the next answer.
        """
        messages, due = list(history), self._turns_since_memory

        def work(cancel: Cancel) -> None:
            review = self._run(session, prompt, messages, "review", cancel)
            if review.failure == STOPPED:
                self._turns_since_memory += due
                with contextlib.suppress(StorageError):  # the memory may be closed
                    self.save_count(session)
            if review.changes or review.failure:
                self._on_review(review)

        started = self.background.start(work, "agent-review")
        if not started:
            log.info("a review is running already; this one comes after the next answer")
            return False
        self._turns_since_memory = 0
        self.save_count(session)
        return True

    def flush(
        self, session: Session, prompt: str, history: Messages, cancel: Cancel, timeout: float = math.inf
    ) -> bool:
        """Flush: let the model save notes before the messages of `history` leave its context.

        Return True if the flush completed, or if `history` was flushed before. Return False at once if the conversation
        is too short or there are no notes to write.

        Args:
            session: The session.
            prompt: The system prompt of the session.
            history: The messages of the conversation.
            cancel: Switch that stops the flush. Ctrl-C stops it too.
            timeout: Seconds to wait for the model; at most `agent.flush_seconds` of config.yaml.
        """
        min_turns = self._memory.config.memory.flush_min_turns
        if not min_turns or not session.primary or not self._has_notes():
            return False
        if not self._is_long(session, history, min_turns):
            return False
        if history[-1] is self._last_flushed:
            return True
        seconds, background = min(self._memory.config.agent.flush_seconds, timeout), Background()
        if seconds <= 0:
            return False
        messages = list(history)

        def work(cancel: Cancel) -> None:
            if not self._run(session, prompt, messages, "flush", cancel).failure:
                self._last_flushed = messages[-1]

        try:
            background.start(work, "agent-flush")
        except HermesError as exc:  # the interpreter is ending, or no thread is left
            log.warning("the session %s was not flushed: %s", session.id, exc)
            return False
        try:
            with cancel.callback(background.cancel):
                if not background.wait(seconds):
                    log.warning("the flush of session %s was stopped after %g s", session.id, seconds)
        finally:
            background.cancel()
        return self._last_flushed is messages[-1]

    def _run(
        self,
        session: Session,
        prompt: str,
        history: Messages,
        kind: Literal["review", "flush"],
        cancel: Cancel,
    ) -> Review:
        """Run a review or a flush: ask the model to save to notes and skills, and return the changes.

        The request has the conversation's own prompt and tools, because the server has them in its cache.
        """
        changes: list[str] = []

        def on_tool_call(request: ToolRequest, result: str) -> None:
            if line := _change(request, result):
                changes.append(line)

        # Its notes wait until it has come to its end.
        turn = uuid.uuid4().hex
        instruction, names = _INSTRUCTIONS[kind]
        fixed = count_tokens(f"{prompt}{self._tools.schemas}{instruction}")
        room = self._model.context_length * MAX_CONTEXT_SHARE - fixed
        loop = ToolLoop(
            self._model,
            self._tools.restricted(names, self._refusal),
            replace(session, agent_context=kind),
            cancel,
            MAX_REQUESTS,
            on_tool_call=on_tool_call,
            reading=lambda origin: self._memory.internals.origins.reading(
                session, origin, lambda: said_in(history), [turn]
            ),
        )
        last = last_that_fit(history, room, count_tokens)
        request = [
            {"role": "system", "content": prompt},
            *repair_messages([*last, {"role": "user", "content": instruction}]),
        ]
        try:
            loop.run(request)
        except (ModelError, Cancelled) as exc:
            log.info("the %s did not come to its end: %s", kind, exc or "it was stopped")
            return Review(tuple(changes), str(exc) or STOPPED)
        self._memory.internals.origins.settle(session, [turn])
        return Review(tuple(changes))

    def _key_and_turns(self, session: Session) -> tuple[str, int]:
        """Return the key of the stored count of turns, and the number of completed turns of the conversation.

        The key belongs to the first session of the conversation, so that the count survives a compression.
        """
        sessions, ids = self._memory.sessions, [session.id, *compression_ancestors(self._memory, session)]
        return meta_key("reviewed", ids[-1]), sum(map(sessions.turns.count, ids))

    def _is_long(self, session: Session, history: Messages, min_turns: int) -> bool:
        """Return True if the conversation has at least `min_turns` complete turns.

        A compressed conversation always has enough if the person wrote after the summary. In a branch only the history
        counts, because the turns that the branch began with are stored with another session.
        """
        if any(map(is_summary, history)):
            return any(message["role"] == "user" and not is_summary(message) for message in history)
        stored = self._memory.sessions.get_session(session.id)
        is_branch = stored is not None and stored.relation == "branch"
        return _answered(history) >= min_turns and (is_branch or self._key_and_turns(session)[1] >= min_turns)

    def _has_notes(self) -> bool:
        """Return True if the agent has the memory tool, and notes that the tool may write."""
        suppressed = self._memory.manager.suppresses_local_writes
        targets = self._memory.curated.enabled_targets
        return "memory" in self._tools and any(not suppressed(target) for target in targets)

    def _refusal(self, name: str, arguments: Mapping[str, Any]) -> str:
        target = arguments.get("target")
        if (
            name == "memory"
            and isinstance(target, str)
            and self._memory.manager.suppresses_local_writes(target)
        ):
            return f"{target!r} is kept by the memory provider, which has the conversation anyway"
        return ""


def turns_since_memory(history: Messages, turns: int = 0) -> int:
    """Count answered turns since the last memory tool call.

    If compression removed turns from `history`, return `turns` (the stored total) instead.
    """
    calls = [at for at, message in enumerate(history) if _calls_memory(message)]
    since = history[calls[-1] + 1 if calls else 0 :]
    return turns if any(map(is_summary, since)) else _answered(since)


def _calls_memory(message: ChatMessage) -> bool:
    return any(call["function"]["name"] == "memory" for call in message.get("tool_calls", ()))


def _answered(history: Messages) -> int:
    """Count the answered turns in `history`. Turns whose messages are hidden from providers don't count."""
    count, has_question = 0, False
    for message in history:
        if message["role"] == "user":
            has_question = not is_summary(message) and HIDDEN not in message
        elif has_question and message["role"] == "assistant" and not message.get("tool_calls"):
            count, has_question = count + (not is_summary(message)), False
    return count


def _change(request: ToolRequest, result: str) -> str:
    """Describe in a few words what a call of a memory or skill tool changed; return "" if it changed nothing."""
    arguments = parse_arguments(request)
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
