"""The agent: a conversation that remembers.

    with open_memory() as memory, Agent(memory, model) as agent:
        print(agent.run_turn("Where did we leave off?").text)

A turn recalls once for the person's message, asks the model, runs the tools it calls, stores what was said, and hands
the finished turn to the memory. Memory never fails a turn, and a turn that was interrupted reaches no provider.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Self

from hermes_core.agent.account import save_context_usage
from hermes_core.agent.answer import Chat
from hermes_core.agent.cadence import cadence_due
from hermes_core.agent.cancel import Cancel, Cancelled
from hermes_core.agent.chat_model import ChatModel, Hear, unheard
from hermes_core.agent.claims import lock_path, locked_unless_stopped
from hermes_core.agent.compression import Compressor, Limits, SummaryCompressor
from hermes_core.agent.delegation import INSTRUCTIONS, child_identity, delegation_of
from hermes_core.agent.equipment import Equipment, require_parts
from hermes_core.agent.exchange import Called, ToolLoop, untold
from hermes_core.agent.fullness import ContextUsage
from hermes_core.agent.given import require_function
from hermes_core.agent.life import Event, Passage, SessionLifecycle
from hermes_core.agent.lifecycle import cross, end_crashed, stand_again, take_along, write_prompt
from hermes_core.agent.prompt import mended
from hermes_core.agent.review import Background, Review, Reviewer
from hermes_core.agent.sessions import (
    carry_turn,
    find_session,
    give_title,
    identify,
    last_told,
    store_message,
    store_turn,
    store_usage,
    successor,
    tell_of_turn,
    undoable,
)
from hermes_core.agent.shared import shared_of
from hermes_core.agent.tidying import Tidier
from hermes_core.agent.tools import Tool
from hermes_core.agent.turn import Said, Turn, TurnResult, title_of
from hermes_core.agent.underway import TurnGuard
from hermes_core.contract.values import Session
from hermes_core.errors import ContextOverflow, LockTimeout, ModelError, SessionError
from hermes_core.manager import at_exit
from hermes_core.memory import Memory
from hermes_core.recall.rank import count_tokens
from hermes_core.recalled import TurnRecall
from hermes_core.skills.store import SkillStore
from hermes_core.stopping import stopped_by, what_stops

FOLLOWED = "another process has compressed this conversation; it goes on with the summary"


class Agent:
    """One conversation with a model, on a memory that outlives it. Cheap to make: a gateway makes one for each message, and
    drops it, since `close` ends the session. Not shared between threads, but `interrupt` may be called from any.

    `session_id` of a stored session goes on with that one. `auxiliary` does what is done behind the conversation, else
    `model`: it summarises, looks back, flushes and tidies. `toolsets` are those that the model gets (None: what config.yaml
    says for the platform). `folder` is where an AGENTS.md may stand. `skip_memory` leaves curated memory and providers out,
    not the search in past sessions. `reviewed` is told what a background review changed. Reviews run in `background`, one at
    a time: by default that of the memory, for all of its agents. `cancel` is shared by agents that stop together. `identity`
    are fields of `Session`: platform, user_id, chat_id and the others. Raises `ConfigError` and `SessionError` for what is
    none of these.
    """

    def __init__(
        self,
        memory: Memory,
        model: ChatModel,
        *,
        session_id: str = "",
        auxiliary: ChatModel | None = None,
        instructions: str = "",
        tools: Iterable[Tool] = (),
        toolsets: Collection[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        source: str = "",
        skip_memory: bool = False,
        compressor: Compressor | None = None,
        reviewed: Callable[[Review], None] | None = None,
        background: Background | None = None,
        clock: Callable[[], float] = time.time,
        cancel: Cancel | None = None,
        **identity: Any,
    ) -> None:
        require_parts(memory, model, auxiliary, background, cancel, reviewed)
        self.memory, self.model = memory, model
        self._settings = memory.config.agent
        self._clock = clock
        self._under_way = TurnGuard(cancel)
        self._skip_memory = skip_memory
        session = identify(memory, session_id, identity)
        self._equipment = Equipment(
            memory,
            session,
            instructions=instructions,
            host_tools=tools,
            toolsets=toolsets,
            folder=folder,
            skip_memory=skip_memory,
            # As many characters as the context has tokens: a quarter of it in most scripts.
            result_limit=min(self._settings.result_limit, model.context_length),
            delegate=self.delegate,
        )
        self.belt = self._equipment.belt
        self._own_background = background is None  # else others may review there for another memory
        behind = background or shared_of(memory).background
        self._reviewer = Reviewer(memory, auxiliary or model, self.belt, behind, reviewed)
        self._tidier = Tidier(memory, auxiliary or model, behind, reviewed, clock)
        self._fullness = ContextUsage(Limits.of(model, self._settings), count_tokens)
        self._life = SessionLifecycle(
            memory,
            session,
            compressor
            or SummaryCompressor(auxiliary or model, self._fullness.limits, count_tokens, self._fixed),
            lambda new: self._equipment.prompt(new, clock(), self._life.problems),
            self._flush,
            model.name,
            source,
            skip_memory,
            clock=clock,
        )
        self._life.problems += self._equipment.problems
        self._open("open" if memory.sessions.get_session(session.id) else "start")
        at_exit.note(self, on=memory)

    @property
    def session(self) -> Session:
        """The session that the next turn belongs to."""
        return self._life.session

    @property
    def history(self) -> tuple[Chat, ...]:
        """The conversation as the model is given it."""
        return tuple(self._life.history)

    @property
    def prompt(self) -> str:
        """The system prompt of this session."""
        return self._life.prompt

    @property
    def skills(self) -> SkillStore | None:
        """The skills of the home, None where they are switched off."""
        return self._equipment.skills

    @property
    def problems(self) -> tuple[str, ...]:
        """What did not work since the last turn, a sentence each; the result of the next one tells of it as well."""
        return tuple(self._life.problems)

    # -------------------------------------------------------------------- turn

    def run_turn(
        self, said: Said, *, hear: Hear = unheard, called: Called = untold, author: str = ""
    ) -> TurnResult:
        """Answer the person, who said a text, or OpenAI content parts where there are pictures. `hear` gets the answer
        as it comes, `called` each tool call with its result; `author` is who spoke, where several people do.

        Never raises for memory or model: `outcome` and `problems` of the result tell. Raises `SessionError` for what
        is no message, and when a turn is under way on another thread.
        """
        require_function("hear", hear)
        require_function("called", called)
        turn = Turn.of(said, author)
        if not turn.text.strip():
            raise SessionError(f"a turn needs something to answer, not {said!r}", "write a message")
        with self._under_way.turn():
            exchange = self._exchange(turn, hear, called)
            try:
                with stopped_by(self._under_way.cancel):
                    self._run(turn, exchange)
            finally:
                self._finish(turn, exchange)
            return self._result(turn, exchange)

    def interrupt(self) -> None:
        """Stop the turn under way, from any thread: what was seen stays in the session, no provider hears of it.

        Of another method under way it stops the waiting: a compression does not happen, the others come to their end.
        """
        self._under_way.cancel.set()

    def delegate(self, task: str, context: str = "") -> str:
        """Give a task to a subagent with a fresh context, no memory and no further delegation; returns its report.

        The parent's provider hears of it. Raises `Cancelled` when the turn is interrupted.
        """
        self._under_way.begin_other()
        stop = what_stops()  # of a tool that an earlier turn left behind, that turn's
        child = Agent(
            self.memory,
            self.model,
            tools=self._equipment.host_tools,
            toolsets=self._equipment.toolsets,
            instructions=INSTRUCTIONS,
            source="subagent",
            skip_memory=True,
            clock=self._clock,
            cancel=stop if isinstance(stop, Cancel) else self._under_way.cancel,
            **child_identity(self.session),
        )
        with child:
            result = child.run_turn(f"{task}\n\n{context}".strip())
        told = delegation_of(task, result)
        if not self._skip_memory:
            self._life.attempt(
                "telling of a delegation", lambda: self.memory.manager.on_delegation(told, self.session)
            )
        return told.result

    # --------------------------------------------------------------- lifecycle

    def new(self) -> None:
        """End this session and begin an empty one. In the midst of a turn this and the next five raise `SessionError`."""
        self._under_way.require_none()
        self._cross("new", successor(self.session, parent=False))

    def reset(self) -> None:
        """As `new`: what a gateway calls when the same chat is cleared."""
        self._under_way.require_none()
        self._cross("reset", successor(self.session, parent=False))

    def resume(self, session: str) -> None:
        """Leave this session and go on with a stored one, named by id, beginning of an id, or title.

        Raises `SessionError` when there is none.
        """
        self._under_way.require_none()
        found = find_session(self.memory, session, self.session)
        if found.id != self.session.id:
            self._cross("resume", found)

    def branch(self) -> None:
        """Go on in a copy of this session; this one stays as it is.

        To providers the turns so far are turns of this session only: an `undo` in it takes them back there too, whatever
        the copy still shows, and an `undo` in the copy takes none of them back there.
        """
        self._under_way.require_none()
        messages = list(self._life.history)
        self._cross("branch", successor(self.session, parent=bool(messages)), messages=messages)

    def undo(self, turns: int = 1) -> str:
        """Take back the last turns, also at the provider; returns the person's words of the first one taken back.

        Raises `SessionError` when there are none, or another process said something in between.
        """
        self._under_way.require_none()
        first = undoable(self.memory, self.session, turns, self._life.history)
        self._cross("rewind", self.session, rewind_to=first.id)
        return first.content

    def compress(self) -> bool:
        """Summarise the middle of the conversation and go on in a child session; whether that happened.

        One process at a time: while another compresses this session, wait for it, and go on with what it made.
        """
        self._under_way.require_none()
        self._under_way.begin_other()
        before = self.session.id
        with contextlib.suppress(Cancelled):
            self._compress()
        return self.session.id != before

    def _compress(self) -> None:
        lock = lock_path(self.memory.home.path / "locks", "compress-", self.session.id)
        try:
            with locked_unless_stopped(lock, self._under_way.cancel):
                if not self._follow():
                    self._cross("compress", successor(self.session, parent=True))
        except LockTimeout as exc:
            self._life.problems.append(f"the conversation was not made shorter: {exc}")

    def _follow(self) -> bool:
        """Go on with what another process made of this session, where it has compressed it; whether it has."""
        ended = stand_again(self._life)
        tip = self.memory.sessions.compression_tip(self.session.id)
        if tip == self.session.id:
            if ended:
                self._open("open")
            return False
        self._cross("resume", find_session(self.memory, tip, self.session))
        self._life.problems.append(FOLLOWED)
        return True

    def commit_memory_session(self, messages: Sequence[Chat] = ()) -> None:
        """Let providers learn from the session so far without ending it, as before its id changes.

        `messages` are what the host holds; what was stored counts.
        """
        del messages
        self._cross("commit", self.session)

    def shutdown_memory_provider(self, messages: Sequence[Chat] = ()) -> None:
        """End the session and shut all providers down, as at the end of the process, within 15 seconds."""
        del messages
        self._leave("shutdown", at_exit.SECONDS)

    def end_crashed(self, session_id: str) -> None:
        """End a session whose process died: what it stored goes on its way, and providers are told of the end."""
        end_crashed(self._life, session_id)

    def evict(self) -> None:
        """End the session because nobody has spoken for long; the next turn, or a resume, opens it again."""
        self._leave("evict")

    def close(self, timeout: float | None = None) -> None:
        """End the session, at the latest when the memory is closed or the program ends. The memory stays open, for other
        agents and for a review that runs, and a further turn opens the session again. `timeout` are the seconds that are
        left for this and for closing the memory.
        """
        self._leave("close", timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(at_exit.SECONDS if kind is SystemExit else None)

    # ---------------------------------------------------------- turn, in parts

    def _exchange(self, turn: Turn, hear: Hear, called: Called) -> ToolLoop:
        return ToolLoop(
            self.model,
            self.belt,
            self.session,
            self._under_way.cancel,
            self._settings.max_iterations,
            lambda message: self._keep(turn, message),
            hear,
            called,
        )

    def _run(self, turn: Turn, exchange: ToolLoop) -> None:
        at_exit.note(self, on=self.memory)
        self._life.attempt("going on with the session", self._follow)
        self._life.turns.add(turn.id)
        quiet = cadence_due(self._life, self._settings)
        self._keep(turn, {"role": "user", "content": turn.content})
        try:
            self._life.attempt("making room for the turn", lambda: self._make_room(turn, quiet))
            exchange.session = self.session
            turn.recall = self._recall(turn.text)
            turn.answer = exchange.run(self._request(turn))
            turn.outcome = "answered" if turn.answer.strip() else "failed"
            self._life.problems += exchange.faults(turn.answer)
        except Cancelled:
            turn.outcome = "interrupted"
        except (KeyboardInterrupt, SystemExit) as exc:
            self._under_way.cancel.set()
            turn.outcome = "interrupted"
            if isinstance(exc, SystemExit):
                raise
        except ModelError as exc:
            self._life.problems.append(str(exc))
            if isinstance(exc, ContextOverflow):  # whatever we counted: the next turn makes room first
                exchange.prompt_tokens, self._fullness.left = self.model.context_length, None
        finally:  # also when the host's own `hear` or `called` raises
            told = turn.outcome == "answered" and not self._skip_memory
            self._life.history += turn.chat() if told else turn.kept_back()

    def _make_room(self, turn: Turn, quiet: bool) -> None:
        """What is due before a turn: the session-end work of a chat that never ends, and compression, if it can be stored."""
        if quiet:
            self._cross("cadence", self.session)
        fixed, before = self._fixed(), self.session.id
        due = turn.message_id and self._fullness.is_due(fixed, self._life.history, turn.messages)
        if due or not self._life.history:
            self._life.problems += filter(None, [self._fullness.fault(fixed)])
        if not due:
            return
        try:
            self._compress()
        finally:
            if self.session.id != before:
                self._life.attempt("taking a message along", lambda: take_along(self._life, turn, before))

    def _fixed(self) -> str:
        """What stands before the messages in each request."""
        return f"{self.prompt}{self.belt.schemas}"

    def _recall(self, text: str) -> TurnRecall | None:
        if self._skip_memory:
            return None
        if not self._equipment.has("memory"):
            # No provider is asked; who counts turns hears of each all the same.
            self._life.attempt("telling of the turn", lambda: tell_of_turn(self.memory, self.session, text))
            return None
        recent = last_told(self._life.history)
        return self._life.asked(
            "recall", lambda: self.memory.begin_turn(text, self.session, recent=recent), None
        )

    def _request(self, turn: Turn) -> list[Chat]:
        """Prompt, history and the person's message, with what was recalled in this copy of it only."""
        content = turn.recall.inject(turn.content) if turn.recall is not None else turn.content
        if not self.prompt:
            self._life.attempt("writing the system prompt", lambda: write_prompt(self._life, self.session))
        system = {"role": "system", "content": self.prompt}
        return [system, *mended([*self._life.history, {"role": "user", "content": content}])]

    def _keep(self, turn: Turn, message: Chat) -> None:
        """Store a message at once: what was seen survives an interrupt and a crash."""
        ref = turn.keep(message)

        def store() -> None:
            stored = store_message(self.memory, self.session.id, message, ref, turn.speaker_of(message))
            turn.message_id = turn.message_id or stored

        self._life.attempt("storing a message", store)

    def _finish(self, turn: Turn, exchange: ToolLoop) -> None:
        self._fullness.told = exchange.prompt_tokens and exchange.prompt_tokens + count_tokens(turn.answer)
        memory, session_id, answered = self.memory, self.session.id, turn.outcome == "answered"
        keep = partial(self._fullness.keep, memory.sessions, session_id)
        used = partial(store_usage, memory, session_id, exchange.usage, keep)
        self._life.attempt("storing what the turn used", used)
        if answered:
            self._life.attempt("storing the turn", lambda: self._store(turn))
        self._life.attempt("taking the turn along", lambda: carry_turn(memory, turn, session_id))
        if answered:
            self._life.attempt("looking back", lambda: self._count_turn(turn))

    def _store(self, turn: Turn) -> None:
        if not self._skip_memory:  # what no turn is marked for stays in state.db, and no recovery hands it on
            store_turn(self.memory, self.session, turn, warm=self._equipment.has("memory"))
            self._life.problems += filter(None, [self.memory.refused])
        give_title(self.memory, self.session.id, title_of(turn.text))

    def _result(self, turn: Turn, exchange: ToolLoop) -> TurnResult:
        result = turn.result(self.session.id, self._life.problems, exchange.calls, exchange.usage)
        self._life.problems.clear()
        return result

    # ------------------------------------------------------------ looking back

    def wait_for_review(self, timeout: float) -> bool:
        """Wait for a background review; whether none runs any more."""
        return self._reviewer.background.wait(timeout)

    def stop_review(self, timeout: float = 1.0) -> bool:
        """Stop a background review, also one of another agent in the same background; whether none runs any more."""
        return self._reviewer.background.stop(timeout)

    def _count_turn(self, turn: Turn) -> None:
        if self._skip_memory:
            return
        if self._reviewer.turn_done(self.session, turn.used_memory):
            self._reviewer.start_review(self.session, self.prompt, self._life.history)
        else:
            self._life.attempt("tidying of memory", lambda: self._tidier.start_if_due(self.session))

    def _flush(self, session: Session, history: Sequence[Chat], stopped: Cancel, left: float) -> bool:
        return not self._skip_memory and self._reviewer.flush(session, self.prompt, history, stopped, left)

    # ----------------------------------------------------------------- private

    def _cross(self, event: Event, new: Session, **given: Any) -> Passage:
        before, said = self.session.id, self._life.history
        self._under_way.begin_other()
        passage = cross(self._life, Passage(event, self.session, new, cancel=self._under_way.cancel, **given))
        if event == "compress":
            self._fullness.tried(said, self._life.history, rotated=self.session.id != before)
        elif event == "rewind":
            self._fullness.forget()
        if passage.failed:
            raise SessionError(self._life.problems.pop(), "the conversation is where it was")
        if self.session.id != before or event in ("compress", "rewind"):
            account = partial(save_context_usage, self._life, self._fullness, self._reviewer, event)
            self._life.attempt("keeping account of the session", account)
        return passage

    def _open(self, event: Event) -> None:
        cross(self._life, Passage(event, None, self.session, cancel=self._under_way.cancel))
        save_context_usage(self._life, self._fullness, self._reviewer, event)

    def _leave(self, event: Event, timeout: float | None = None) -> None:
        at_exit.forget(self)
        until = math.inf if timeout is None else time.monotonic() + timeout
        if timeout is not None:
            self._under_way.stop(1.0)
        if event == "shutdown" and self._own_background:
            self.stop_review()
        self._cross(event, self.session, until=until)
