"""The life of an agent's sessions: the events that begin, change and end a session, one method for each event.

An event is a series of steps. A step calls a hook of the providers, changes rows of state.db, or changes the agent
itself. A step that fails is logged and reported; the later steps run all the same. A session always ends before the
agent switches to another session. The documentation prints `EVENTS` and `STEPS`, at the end of this file, as a table;
the tests compare this table with the steps that the methods run.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeVar

from hermes_core import Memory
from hermes_core.config import AgentConfig
from hermes_core.contract.values import EndReason, Session, SessionSwitch
from hermes_core.errors import HermesError, SessionError, StorageError
from hermes_core.kit import redact
from hermes_core.manager import at_exit
from hermes_core.manager.call import attempt
from hermes_core.sessions.records import Relation, StoredMessage, meta_key, read_meta, turn_of_ref
from hermes_core.stopping import stopped, stopped_by, wait_unless_stopped
from hermes_core.storage.leases import Lease
from hermes_memory_agent.answer import HIDDEN, ChatMessage, Messages
from hermes_memory_agent.cancel import Cancel, Cancelled, interruptible, start_thread
from hermes_memory_agent.compression import (
    Compressed,
    Compressor,
    ContextUsage,
    hide_summary,
    is_summary,
    with_origins,
)
from hermes_memory_agent.locks import compression_lock
from hermes_memory_agent.message_rows import delete_copy, hide_message
from hermes_memory_agent.model import ChatModel
from hermes_memory_agent.review import Reviewer
from hermes_memory_agent.sessions import (
    AgentTurn,
    chat_of,
    compression_ancestors,
    find_session,
    load_history,
    messages_of_others,
    rewind_session,
    set_turn_aside,
    store_message,
    successor,
    text_messages,
)
from hermes_memory_agent.validation import session_id_of

log = logging.getLogger(__name__)

Value = TypeVar("Value")

# Time for a compressor's `on_session_start` or `on_session_end`: a host's code must not hold up the session.
COMPRESSOR_TIMEOUT_S = 2.0

# Time before the deadline of a session's end at which the flush stops. The compressor, the rows and the providers'
# shutdown need this time.
RESERVED_AFTER_FLUSH_S = 7.0

FOLLOWED = "another process has compressed this conversation; it continues with the summary"
JOINED = (
    "messages of another process in this session are now part of the conversation; the next undo removes them"
)


class TurnGuard:
    """A guard that allows one turn at a time.

    Attributes:
        cancel: Switch that interrupts the turn and other work of the agent. Each piece of work gets a new switch,
            unless several agents share a switch (`shared`) to stop together.
    """

    def __init__(self, shared: Cancel | None) -> None:
        self.cancel = shared or Cancel()
        self._is_own = shared is None
        self._busy = threading.Lock()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Mark a turn as in progress within the block. Raise `SessionError` if another turn is in progress."""
        if not self._busy.acquire(blocking=False):
            raise _turn_in_progress()
        try:
            if self._is_own:  # a new switch, so that work which an earlier turn abandoned stays cancelled
                self.cancel = Cancel()
            yield
        finally:
            self._busy.release()

    def require_none(self) -> None:
        """Raise `SessionError` if a turn is in progress, for instance when a tool of that turn calls this."""
        if self._busy.locked():
            raise _turn_in_progress()

    def begin_work(self) -> None:
        """Begin a piece of work that an earlier interrupt does not cancel.

        Do nothing within a turn, whose interrupt counts for the work too, or if `cancel` is shared.
        """
        if self._is_own and not self._busy.locked():
            self.cancel = Cancel()

    def stop(self, timeout: float) -> None:
        """Interrupt the turn that another thread runs, if any, and wait at most `timeout` seconds for its end."""
        if self._busy.locked():
            self.cancel.set()
            if self._busy.acquire(timeout=timeout):
                self._busy.release()


def _turn_in_progress() -> SessionError:
    return SessionError("a turn is in progress", "wait for it, or interrupt it")


@dataclass(slots=True)
class SessionLifecycle:
    """An agent's current session, and the events that begin, change and end it.

    Attributes:
        memory: The memory.
        session: The current session.
        compressor: The compressor of long conversations, which may be a host's own.
        build_prompt: Function that returns the system prompt of a session and appends sentences to a list of problems.
        is_outdated: Function that returns True if the stored prompt of a session may not be sent any more.
        reviewer: The reviewer, which also lets the model save notes before messages leave its context (flush).
        usage: The use of the model's context.
        guard: The guard whose `cancel` ends the waits of an event.
        model: The model of the conversation, whose name is stored with new sessions.
        source: Name under which new sessions are listed; "" for the platform.
        skip_memory: True if providers and notes are left out.
        history: The conversation as the model gets it: the session's stored messages up to `loaded_up_to`, then the
            messages of this agent's own turns. Other processes may have stored more messages.
        loaded_up_to: Id of the newest stored message when the session was entered.
        own_turns: Ids of the turns of this agent.
        prompt: The system prompt.
        problems: A sentence for each failure since the last turn.
        clock: Function that returns the current time in epoch seconds.
    """

    memory: Memory
    session: Session
    compressor: Compressor
    build_prompt: Callable[[Session, list[str]], str]
    is_outdated: Callable[[Session, str], bool]
    reviewer: Reviewer
    usage: ContextUsage
    guard: TurnGuard
    model: ChatModel
    source: str = ""
    skip_memory: bool = False
    history: list[ChatMessage] = field(default_factory=list)
    loaded_up_to: int = 0
    own_turns: set[str] = field(default_factory=set)
    prompt: str = ""
    problems: list[str] = field(default_factory=list)
    _lease: Lease | None = field(default=None, init=False)
    clock: Callable[[], float] = time.time

    # ---------------------------------------------------------- events

    def start(self) -> None:
        """Store the current session, which is new, and begin it."""
        session = self.session
        with self._event("start") as step:
            if step("create", self._create, session):
                step("initialize", self._initialize, session)
                step("prompt", self.write_prompt, session)
                step("compressor_start", self._notify_compressor_start, session, "start")
        self.attempt("storing the counts of the session", self._load_counts)

    def open(self) -> None:
        """Continue a stored session in an agent that has had no other session."""
        session = self.session
        with self._event("open") as step:
            if step("reopen", self._reopen, session):
                step("initialize", self._initialize, session)
                step("restore", self._restore_prompt, session)
                step("compressor_start", self._notify_compressor_start, session, "open")
        self.attempt("storing the counts of the session", self._load_counts)

    def new(self) -> None:
        """End the session and begin an empty session."""
        self._begin_empty("new")

    def reset(self) -> None:
        """End the session and begin an empty session, because a gateway's chat was cleared."""
        self._begin_empty("reset")

    def _begin_empty(self, event: Literal["new", "reset"]) -> None:
        old, new = self.session, successor(self.session, parent=False)
        switch = SessionSwitch(uuid.uuid4().hex, old, new, event, reset=True)
        with self._event(event) as step:
            step("flush", self._flush, old)
            step("session_end", self._notify_end, old, event)
            step("compressor_end", self._notify_compressor_end, old)
            if not step("rotate", self._rotate, switch, [], event):
                raise self._not_moved()
            step("initialize", self._initialize, new)
            step("prompt", self.write_prompt, new)
            step("compressor_start", self._notify_compressor_start, new, event)
        self.attempt("storing the counts of the session", self._load_counts)

    def resume(self, session: Session) -> None:
        """Leave the current session and continue the stored session `session`."""
        old, new = self.session, session
        switch = SessionSwitch(uuid.uuid4().hex, old, new, "resume")
        with self._event("resume") as step:
            step("flush", self._flush, old)
            step("session_end", self._notify_end, old, "resume")
            step("compressor_end", self._notify_compressor_end, old)
            if not step("reopen", self._reopen, new, switch):
                raise self._not_moved()
            step("initialize", self._initialize, new)
            step("restore", self._restore_prompt, new)
            step("compressor_start", self._notify_compressor_start, new, "resume")
        self.attempt("storing the counts of the session", self._load_counts)

    def branch(self) -> None:
        """Copy the session and continue in the copy; the original session does not change."""
        messages = list(self.history)
        old, new = self.session, successor(self.session, parent=bool(messages))
        switch = SessionSwitch(uuid.uuid4().hex, old, new, "branch")
        with self._event("branch") as step:
            step("session_end", self._notify_end, old, "branch")
            step("compressor_end", self._notify_compressor_end, old)
            if not step("rotate", self._rotate, switch, messages, "branch"):
                raise self._not_moved()
            step("initialize", self._initialize, new)
            step("copy_prompt", self._keep_prompt, new)
            step("compressor_start", self._notify_compressor_start, new, "branch")

        def copy_counts() -> None:
            self.reviewer.save_count(new)
            self._load_counts()

        self.attempt("storing the counts of the session", copy_counts)

    def rewind(self, message_id: int) -> None:
        """Undo the turns from the message with this id on, also at the provider."""
        with self._event("rewind") as step:
            switch = step("rewind", self._rewind, message_id)
            self.usage.reset()
            if switch is None:
                raise self._not_moved()

        def save_counts() -> None:
            self.usage.save(self.memory.sessions, self.session.id)
            self._load_counts()

        self.attempt("storing the counts of the session", save_counts)

    def compress(self) -> None:
        """Summarise the middle of the conversation and continue in a child session.

        Only one process compresses a session. Another process waits for it and continues in the same child session.
        """
        self.guard.begin_work()
        try:
            with compression_lock(self.memory, self.session.id, self.guard.cancel) as self._lease:
                if not self.follow():
                    self._compress()
        except StorageError as exc:
            self.problems.append(f"the conversation was not compressed: {exc}")

    def _compress(self) -> None:
        old, new, before = self.session, successor(self.session, parent=True), self.history
        switch = SessionSwitch(uuid.uuid4().hex, old, new, "compression")
        messages, moved = None, None
        with self._event("compress") as step:
            if not step("can_shorten", self._cannot_shorten):
                step("flush", self._flush, old, goes_on=True)
                memory_context = step("pre_compress", self._ask_providers, old)
                # Without the checkpoint that the person demands, the only copy of the messages must stay in the context.
                if memory_context is not None or not self.memory.config.agent.checkpoint_required:
                    messages = step("summarise", self._summarise, memory_context or "")
            if messages is not None:
                step("session_end", self._notify_end, old, "compression")
                step("compressor_end", self._notify_compressor_end, old)
                moved = step("rotate", self._rotate, switch, messages, "compression")
            if moved:
                step("initialize", self._initialize, new)
                step("prompt", self.write_prompt, new)
                step("compressor_start", self._notify_compressor_start, new, "compression")
        self.usage.record_attempt(before, self.history, rotated=bool(moved))
        if messages is not None and not moved:
            raise self._not_moved()
        save = partial(self.usage.save, self.memory.sessions, self.session.id)
        self.attempt("storing the counts of the session", save)

    def cadence(self) -> None:
        """Let the model save notes and providers learn from the session so far, without ending the session.

        For a chat that never ends: `cadence_due` says when enough turns and a pause have passed.
        """
        with self._event("cadence") as step:
            step("flush", self._flush, self.session, goes_on=True)
            step("session_end", self._notify_end, self.session, "cadence")

    def commit(self) -> None:
        """Let providers learn from the session so far, because the host is about to change the session's id."""
        with self._event("commit") as step:
            step("session_end", self._notify_end, self.session, "cadence")
            step("compressor_end", self._notify_compressor_end, self.session)

    def evict(self) -> None:
        """End the session because it was idle for long."""
        self._end("evict", math.inf)

    def close(self, deadline: float = math.inf) -> None:
        """End the session before `deadline`, in seconds of the monotonic clock."""
        self._end("close", deadline)

    def _end(self, event: Literal["evict", "close"], deadline: float) -> None:
        with self._event(event, is_last=True) as step:
            step("flush", self._flush, self.session, deadline=deadline)
            step("session_end", self._notify_end, self.session, event)
            step("compressor_end", self._notify_compressor_end, self.session)
            step("end", self._end_row, self.session, event)

    def shutdown(self, deadline: float) -> None:
        """End the session and shut all providers down before `deadline`, in seconds of the monotonic clock."""
        with self._event("shutdown", is_last=True) as step:
            step("flush", self._flush, self.session, deadline=deadline)
            step("session_end", self._notify_end, self.session, "close")
            step("end", self._end_row, self.session, "close")
            step("shutdown", self._shut_down_providers, deadline)
            step("compressor_end", self._notify_compressor_end, self.session)

    def end_crashed(self, session_id: str) -> None:
        """End a session whose process died, if the session is still open.

        If the session was compressed before the crash, its child session is ended.
        """
        sessions = self.memory.sessions
        stored = sessions.get_session(sessions.compression_tip(session_id_of(session_id)))
        if stored is None or stored.ended_at is not None:
            return
        session = find_session(self.memory, stored.id, self.session)
        # The crashed session may have had a memory although this agent has none.
        life = replace(self, skip_memory=False)
        with life._event("crash", is_last=True) as step:
            step("session_end", life._notify_end, session, "crash")
            step("end", life._end_row, session, "crash")

    # ---------------------------------------------------------- between turns

    def follow(self) -> bool:
        """Check whether another process changed the session, and adapt.

        If another process compressed the session, continue in the child session and return True. If another process
        removed the session because it had no messages, store it again; if another process ended it, open it again.
        """
        sessions = self.memory.sessions
        stored = sessions.get_session(self.session.id)
        if stored is None or not self.history:
            self._store_prompt(self.session)
        tip = sessions.compression_tip(self.session.id)
        if tip == self.session.id:
            if stored is not None and stored.ended_at is not None:
                self.open()
            return False
        self.resume(find_session(self.memory, tip, self.session))
        self.problems.append(FOLLOWED)
        return True

    def cadence_due(self, settings: AgentConfig) -> bool:
        """Return True if providers should learn from a chat that never ends, because enough turns and a pause passed.

        The answer is True only once; the turns are then counted from 0 again. `settings` sets the number of turns and
        the length of the pause.
        """
        turns_between, pause = settings.cadence_turns, settings.cadence_minutes * 60
        if not turns_between or self.skip_memory or not self.session.primary:
            return False

        def is_due() -> bool:
            sessions, key = self.memory.sessions, meta_key("cadence", self.session.id)
            turns, stored = sessions.turns.count(self.session.id), sessions.get_session(self.session.id)
            idle = self.clock() - stored.last_active if stored is not None else 0.0
            if turns - read_meta(key, sessions.meta.get(key), int, 0) < turns_between or idle < pause:
                return False
            sessions.meta.set(key, str(turns))
            return True

        return bool(self.attempt("reading the cadence", is_due))

    def move_message(self, turn: AgentTurn, old_id: str) -> None:
        """Move the person's message of the turn in progress from the old session to the current session.

        Another process that compressed the old session may have put a copy of the message into the current session.
        Searches leave copies out, so the copy is deleted and the message itself takes its place.
        """
        sessions, message, ref = self.memory.sessions, turn.chat()[0], turn.messages[0]["ref"]
        with sessions.transaction():
            delete_copy(sessions, self.session.id, ref)
            store_message(self.memory, self.session.id, message, ref, turn.author)
            if sessions.get_session(old_id) is not None:
                hide_message(sessions, old_id, turn.message_id)
        self.history = [other for other in self.history if other.get(HIDDEN) != ref]

    def write_prompt(self, session: Session) -> None:
        """Build the system prompt of a session and store it.

        If an interrupt stops the building, no prompt is stored, and the next turn builds it.
        """
        old, self.prompt = self.prompt, ""
        prompt = self.build_prompt(session, self.problems)
        if not stopped():
            self.prompt = prompt
            self._store_prompt(session, replaces=old)

    def renew_prompt(self) -> None:
        """Build the system prompt anew if a note in it may not stand there any more."""
        # Not the skills: a running program can't lower them, and reading all takes long.
        if not self.skip_memory and self.memory.internals.prompts.is_outdated(self.session, self.prompt):
            self.write_prompt(self.session)

    def attempt(self, action_name: str, action: Callable[[], Value]) -> Value | None:
        """Run the action and return its result. If it raises a `HermesError`, log it, add a problem and return None."""
        try:
            return action()
        except HermesError as exc:
            log.warning("%s failed: %s", action_name, exc)
            self.problems.append(f"{action_name} failed: {exc}")
            return None

    # ---------------------------------------------------------- running steps

    @contextlib.contextmanager
    def _event(self, event: str, *, is_last: bool = False) -> Iterator[StepRunner]:
        """Yield the function that runs the steps of an event.

        Args:
            event: Name of the event.
            is_last: True if nobody continues the session after the event. An interrupt then stops the flush, but the
                other steps still run.
        """
        self.guard.begin_work()
        runner = StepRunner(self, event, defer_interrupt=is_last)
        with contextlib.nullcontext() if is_last else stopped_by(self.guard.cancel):
            yield runner
        runner.raise_interrupt()

    def _not_moved(self) -> SessionError:
        """Return the error for an event that failed to change state.db. The last problem becomes its message."""
        return SessionError(self.problems.pop(), "the conversation did not change")

    def _load_counts(self) -> None:
        """Load the use of the context and the reviewer's count of turns that the session's last agent stored."""
        self.history = self.usage.load(self.memory.sessions, self.session.id, self.history)
        self.reviewer.load_count(self.session, self.history)

    # ---------------------------------------------------------- steps: providers

    def _initialize(self, session: Session) -> None:
        if not self.skip_memory:
            self.memory.manager.initialize_all(session)

    def _ask_providers(self, session: Session) -> str:
        """Return the text that providers want the summary to keep."""
        if self.skip_memory:
            return ""
        messages = text_messages(self.memory.sessions.transcript(session.id).messages())
        count = len(compression_ancestors(self.memory, session))
        required = self.memory.config.agent.checkpoint_required
        if required:
            # A checkpoint is evidence, and a summary is the model's own text.
            messages = [message for message in messages if not is_summary({**message})]
        ask = partial(
            self.memory.manager.on_pre_compress, messages, count, session, require_checkpoint=required
        )
        return redact(interruptible(ask, self.guard.cancel, "agent-pre-compress"))

    def _notify_end(self, session: Session, reason: EndReason) -> None:
        if self.skip_memory or not self.memory.sessions.turns.count(session.id):
            return
        last = self.memory.sessions.last_message_id(session.id)
        self.memory.manager.on_session_end(session, reason, last)

    def _record_switch(self, switch: SessionSwitch) -> None:
        """Put the session switch into the outbox for the provider, in the transaction that changes the rows."""
        if not self.skip_memory or switch.rewound_turns:
            self.memory.manager.on_session_switch(switch)

    def _shut_down_providers(self, deadline: float) -> None:
        left = min(deadline - time.monotonic(), at_exit.EXIT_TIMEOUT_S) - COMPRESSOR_TIMEOUT_S
        self.memory.manager.shutdown_all(max(left, 1.0))

    # ---------------------------------------------------------- steps: rows

    def _create(self, session: Session) -> Literal[True]:
        relation: Relation = "delegation" if session.agent_context == "subagent" else ""
        self._create_row(session, session.parent_id, relation)
        return True

    def _create_row(self, session: Session, parent_id: str, relation: Relation, title: str = "") -> None:
        self.memory.sessions.create_session(
            session.id,
            self.source or session.platform,
            user=session.owner,
            parent_id=parent_id,
            relation=relation,
            title=title,
            model=self.model.name,
            identity=session.to_dict(),
        )

    def _rotate(self, switch: SessionSwitch, messages: Messages, reason: EndReason) -> Literal[True]:
        """End the session `switch.old` and begin `switch.new` with these messages, in one transaction."""
        sessions, old, new = self.memory.sessions, switch.old, switch.new
        compressing = reason == "compression"

        def rotate() -> list[StoredMessage]:
            with sessions.transaction():
                if compressing and self._lease is not None:
                    self._lease.hold()  # a program that was suspended meanwhile must not end the session a second time
                stored = sessions.get_session(old.id)  # None if another process has deleted it meanwhile
                if messages and stored:
                    title = sessions.meta.next_title(stored.title, user=stored.user)
                    self._create_row(new, old.id, "compression" if compressing else "branch", title)
                else:
                    self._create_row(new, "", "")
                for message in messages:
                    copied = compressing and not is_summary(message)
                    store_message(self.memory, new.id, message, copied=copied)
                # Other processes may have stored messages while the summary was written.
                late = (
                    messages_of_others(self.memory, old.id, self.loaded_up_to, self.own_turns)
                    if compressing
                    else []
                )
                for other in late:
                    store_message(self.memory, new.id, chat_of(other), other.ref, other.speaker, copied=True)
                self._end_row(old, reason)
                self._record_switch(switch)
                return late

        # Another program may take the same numbered title at the same moment.
        late = sessions.database.retry(rotate, idempotent=False)
        self._enter(new, [*messages, *map(chat_of, late)])
        return True

    def _reopen(self, session: Session, switch: SessionSwitch | None = None) -> Literal[True]:
        """Open a stored session again. If there is a `switch`, end its old session in the same transaction."""
        sessions = self.memory.sessions
        with sessions.transaction():
            if switch is not None:
                self._end_row(switch.old, "resume")
            stored = sessions.get_session(session.id)
            if stored is None or stored.ended_at is not None:
                sessions.reopen_session(session.id)
            if switch is not None:
                self._record_switch(switch)
        self._enter(session, load_history(self.memory, session.id))
        return True

    def _rewind(self, message_id: int) -> SessionSwitch:
        session = self.session
        with self.memory.sessions.transaction():
            turns = tuple(rewind_session(self.memory, session.id, message_id))
            switch = SessionSwitch(uuid.uuid4().hex, session, session, "rewind", rewound_turns=turns)
            self._record_switch(switch)
        if messages_of_others(self.memory, session.id, self.loaded_up_to, self.own_turns):
            self._report(JOINED)
        self._enter(session, load_history(self.memory, session.id))
        return switch

    def _end_row(self, session: Session, reason: EndReason) -> None:
        """End the session in state.db, or remove it if it has no messages."""
        sessions = self.memory.sessions
        # Another process may have removed it already.
        if not sessions.delete_if_unused(session.id) and sessions.get_session(session.id) is not None:
            sessions.end_session(session.id, reason)

    def set_aside(self, turn_id: str) -> None:
        """Leave a turn out of all later requests, since the model's server refuses it for good."""
        self.history = [one for one in self.history if turn_of_ref(one.get(HIDDEN, "")) != turn_id]
        self.attempt("setting a message aside", lambda: set_turn_aside(self.memory, self.session.id, turn_id))

    def _enter(self, session: Session, messages: Messages) -> None:
        """Make `session` the current session, with `messages` as its history."""
        self.session, self.history = session, list(messages)
        self.loaded_up_to = self.memory.sessions.last_message_id(session.id) or 0

    # ---------------------------------------------------------- steps: the agent

    def _flush(self, session: Session, *, goes_on: bool = False, deadline: float = math.inf) -> None:
        """Let the model save to the notes what matters in the session (flush).

        Args:
            session: The session.
            goes_on: True if the session continues afterwards. If it ends, and has no new message since an earlier end,
                nothing is done.
            deadline: Time at which the session must have ended, in seconds of the monotonic clock.
        """
        sessions = self.memory.sessions
        key, last = meta_key("flushed", session.id), str(sessions.last_message_id(session.id))
        if self.skip_memory or (not goes_on and sessions.meta.get(key) == last):
            return
        timeout = deadline - time.monotonic() - RESERVED_AFTER_FLUSH_S
        self.renew_prompt()
        done = self.reviewer.flush(session, self.prompt, self.history, self.guard.cancel, timeout)
        if done and not goes_on:
            sessions.meta.set(key, last)

    def _cannot_shorten(self) -> bool:
        """Return True if the compressor has a method `can_shorten`, and it returns False for the conversation."""
        can_shorten = getattr(self.compressor, "can_shorten", None)
        if can_shorten is None:
            return False
        copies = [dict(message) for message in self.history]
        ask = partial(attempt, lambda: can_shorten(copies))
        return interruptible(ask, self.guard.cancel, "agent-compressor") == (False, None)

    def _summarise(self, memory_context: str) -> list[ChatMessage] | None:
        """Let the compressor shorten the conversation; return the messages of the child session.

        Return None if there is no summary. The agent then stays in the session. In the agent's requests, a note may
        replace the middle of the conversation; state.db keeps all messages.
        """
        history, cancel = list(self.history), self.guard.cancel
        copies = [dict(message) for message in history]  # the compressor may change them

        def compress() -> object:  # a host's compressor may return anything
            return self.compressor.compress(copies, memory_context, cancel)

        result, failure = interruptible(partial(attempt, compress), cancel, "agent-compressor")
        if isinstance(failure, Cancelled):
            raise failure
        if failure is not None:
            self._report(f"the compressor failed: {type(failure).__name__}: {failure}")
        elif isinstance(result, Compressed):
            # Unchanged messages must be this agent's own objects again, because `ContextUsage` compares by identity.
            originals = {id(copy): own for copy, own in zip(copies, history, strict=False) if copy == own}
            shorter = [originals.get(id(message), message) for message in result.messages]
            shorter = with_origins(result, shorter, history, memory_context, self.session.owner)
            messages = hide_summary(history, shorter)
            if not result.failure:
                return messages
            self.history = messages
            done = "shortened without a summary" if result.left_out else "not made shorter"
            self._report(f"the conversation was {done}: {result.failure}")
        elif result is not None:
            self._report(f"the compressor answered {type(result).__name__}, not Compressed")
        return None

    def _restore_prompt(self, session: Session) -> None:
        self.prompt = self.memory.sessions.meta.system_prompt(session.id)
        if not self.prompt or self.is_outdated(session, self.prompt):
            self.write_prompt(session)

    def _keep_prompt(self, session: Session) -> None:
        self.memory.sessions.meta.set_system_prompt(session.id, self.prompt)

    def _store_prompt(self, session: Session, *, replaces: str = "") -> None:
        """Store the system prompt with the session; if another prompt is stored already, use that one instead.

        Processes that share a session must send the same bytes. If another process removed the session because it had
        no messages, create its row again.

        Args:
            replaces: The stored prompt that the new one replaces; "" for none.
        """
        sessions = self.memory.sessions
        with sessions.transaction():
            if sessions.get_session(session.id) is None:
                self._create(session)
            stored = sessions.meta.system_prompt(session.id)
            if stored in ("", replaces):
                stored = ""
                sessions.meta.set_system_prompt(session.id, self.prompt)
            self.prompt = stored or self.prompt

    def _notify_compressor_start(self, session: Session, reason: str) -> None:
        self._notify_compressor(lambda: self.compressor.on_session_start(session, reason))

    def _notify_compressor_end(self, session: Session) -> None:
        self._notify_compressor(lambda: self.compressor.on_session_end(session))

    def _notify_compressor(self, notify: Callable[[], None]) -> None:
        """Notify the compressor of a session's begin or end, on a separate thread.

        An error or a delay in a host's compressor then becomes a problem and does not affect the session.
        """
        results: list[BaseException | None] = []
        try:
            thread = start_thread(lambda: results.append(attempt(notify)[1]), "agent-compressor")
        except HermesError as exc:  # no thread is left, or the interpreter is ending
            log.info("the compressor was not notified: %s", exc)
            return

        def join(seconds: float) -> bool:
            thread.join(seconds)
            return not thread.is_alive()

        if not wait_unless_stopped(join, COMPRESSOR_TIMEOUT_S) and stopped():
            return
        if not results:
            self._report(f"the compressor took more than {COMPRESSOR_TIMEOUT_S:g} s and was abandoned")
        elif results[0] is not None:
            self._report(f"the compressor failed: {type(results[0]).__name__}: {results[0]}")

    def _report(self, problem: str) -> None:
        log.warning(problem)
        self.problems.append(problem)


# Steps that change rows of state.db. After one of them the event has to complete, since nothing undoes it.
ROW_STEPS = frozenset({"create", "rotate", "reopen", "rewind"})


class StepRunner:
    """A function that runs the steps of one event.

    Ctrl-C or SIGTERM ends an event at once as long as no step of `ROW_STEPS` has run. After such a step, the interrupt
    only ends the running step: the other steps still run, and `raise_interrupt` then raises the interrupt.

    Args:
        life: The sessions of the agent.
        event: Name of the event, for messages.
        defer_interrupt: True if an interrupt must not end the event even before a step of `ROW_STEPS`.
    """

    def __init__(self, life: SessionLifecycle, event: str, *, defer_interrupt: bool) -> None:
        self._life = life
        self._event = event
        self._defers = defer_interrupt
        self._interrupt: BaseException | None = None

    def __call__(
        self, step: str, action: Callable[..., Value], *arguments: object, **options: object
    ) -> Value | None:
        """Run `action` as the step named `step`; return its result, or None if the step failed or was interrupted."""
        log.debug("%s: %s", self._event, step)
        try:
            result = self._life.attempt(f"{self._event}: {step}", partial(action, *arguments, **options))
        except (KeyboardInterrupt, SystemExit) as exc:
            if not self._defers:
                raise
            self._interrupt = exc
            return None
        self._defers = self._defers or step in ROW_STEPS
        return result

    def raise_interrupt(self) -> None:
        """Raise the interrupt that arrived while the steps of the event ran, if one did."""
        if self._interrupt is not None:
            raise self._interrupt


# -------------------------------------------------------------- the table of the documentation

# For each step: the kind of thing that it touches, and a description for the documentation.
STEPS: Mapping[str, tuple[Literal["hook", "rows", "agent"], str]] = {
    "can_shorten": (
        "agent",
        "the compressor's `can_shorten`, if it has one; if that is False, the event ends here",
    ),
    "flush": ("agent", "the model saves what it should to MEMORY.md and USER.md"),
    "pre_compress": ("hook", "`on_pre_compress`"),
    "summarise": ("agent", "the compressor's `compress`; without a summary the event ends here"),
    "session_end": ("hook", "`on_session_end` of the old session, if it has turns"),
    "compressor_end": ("agent", "the compressor's `on_session_end`"),
    "create": ("rows", "create the session's row"),
    "rotate": ("rows", "end the old session and create the new one with its messages; `on_session_switch`"),
    "reopen": ("rows", "end the session that is left and open the other one again; `on_session_switch`"),
    "rewind": ("rows", "remove messages and turns; `on_session_switch`"),
    "end": ("rows", "end the session; one without messages is removed"),
    "initialize": ("hook", "`initialize`, once for each instance"),
    "prompt": ("agent", "`system_prompt_block` of all providers, and a new system prompt, which is stored"),
    "restore": ("agent", "the stored system prompt, the same bytes"),
    "copy_prompt": ("agent", "the system prompt of the old session, the same bytes"),
    "compressor_start": ("agent", "the compressor's `on_session_start`"),
    "shutdown": ("hook", "`shutdown` of all providers, in reverse order"),
}

# The steps of each event, in order.
EVENTS: Mapping[str, tuple[str, ...]] = {
    event: tuple(steps.split())
    for event, steps in {
        "start": "create initialize prompt compressor_start",
        "open": "reopen initialize restore compressor_start",
        "new": "flush session_end compressor_end rotate initialize prompt compressor_start",
        "reset": "flush session_end compressor_end rotate initialize prompt compressor_start",
        "resume": "flush session_end compressor_end reopen initialize restore compressor_start",
        "branch": "session_end compressor_end rotate initialize copy_prompt compressor_start",
        "rewind": "rewind",
        "compress": "can_shorten flush pre_compress summarise session_end compressor_end rotate initialize prompt "
        "compressor_start",
        "cadence": "flush session_end",
        "commit": "session_end compressor_end",
        "evict": "flush session_end compressor_end end",
        "close": "flush session_end compressor_end end",
        "shutdown": "flush session_end end shutdown compressor_end",
        "crash": "session_end end",
    }.items()
}
