"""The agent: a conversation that remembers.

    with open_memory() as memory, Agent(memory, model) as agent:
        print(agent.run_turn("Where did we leave off?").text)

A turn recalls once for the person's message, asks the model and runs the tools that the model calls. It stores all
messages and hands the finished turn to the memory. A failure of the memory never fails a turn, and an interrupted turn
reaches no provider.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from types import NoneType
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from hermes_core import Memory, TurnRecall
from hermes_core.contract.values import Delegation, Origin, Session
from hermes_core.errors import ContextOverflow, ModelError, ModelRefused, SessionError
from hermes_core.manager import at_exit
from hermes_core.origins import message_origin
from hermes_core.recall.tokens import count_tokens
from hermes_core.safety.origin import Judge, current_reading, lowest, report_result
from hermes_core.safety.templates import without_turns
from hermes_core.sessions.records import text_of
from hermes_core.stopping import current_stop, stopped_by
from hermes_core.storage.verdicts import Verdicts
from hermes_memory_agent.answer import ORIGIN, ChatMessage, Messages, Usage
from hermes_memory_agent.cancel import Cancel, Cancelled, ignore
from hermes_memory_agent.compression import (
    Compressor,
    ContextLimits,
    ContextUsage,
    SummaryCompressor,
    tokens_of,
)
from hermes_memory_agent.curator import AutoCurator
from hermes_memory_agent.judge import model_judge
from hermes_memory_agent.lifecycle import SessionLifecycle, TurnGuard
from hermes_memory_agent.loop import OnToolCall, ToolLoop
from hermes_memory_agent.model import ChatModel, OnText, require_model
from hermes_memory_agent.prompt import (
    context_file,
    read_part,
    repair_messages,
    system_prompt,
)
from hermes_memory_agent.review import Background, Review, Reviewer
from hermes_memory_agent.sessions import (
    AgentTurn,
    TurnInput,
    TurnResult,
    copy_turn,
    find_session,
    recent_messages,
    resolve_session,
    rewind_target,
    said_in,
    set_default_title,
    store_message,
)
from hermes_memory_agent.skills.store import SkillStore, index_line, open_skills
from hermes_memory_agent.tools import (
    Tool,
    ToolRegistry,
    built_in_tools,
    delegate_tool,
    unknown_toolsets,
    watched,
    with_memory_tools,
    without_memory_tools,
)
from hermes_memory_agent.validation import Kind, refused, require, require_function

Item = TypeVar("Item")

# Users of a gateway whose skills are held open; others are opened again.
MAX_SKILL_STORES = 64

SUBAGENT_INSTRUCTIONS = (
    "You are a subagent: do the one task that you are given, with your tools, and answer with a report of what you did "
    "and found. Nobody is there to answer questions."
)


class Agent:
    """One conversation with a model. The memory lives longer than the agent.

    An agent is cheap: a gateway makes an agent for each message and drops it without `close`, which would end the
    session. Use an agent on one thread only; any thread may call `interrupt`.

    Args:
        memory: The memory, as `open_memory` returns it.
        model: The model of the conversation.
        session_id: Id of the session. If a session with this id is stored, the agent continues it.
        auxiliary: Model for the agent's own work: summaries of a long conversation, saving notes in the background, and
            curation of the notes. None uses `model`.
        instructions: Text for the system prompt.
        tools: The host's own tools.
        toolsets: Names of the enabled toolsets; None for the toolsets that config.yaml enables on the platform.
        folder: Folder whose AGENTS.md, or else CLAUDE.md, becomes part of the system prompt.
        trust_folder: True to take that file, False to leave it out; None for what `agent.trust_folder` and the person say.
        source: Name under which sessions are listed; the platform by default.
        skip_memory: Leave notes and providers out; `session_search` still works.
        compressor: The host's compressor of long conversations; None for `SummaryCompressor`.
        on_review: Function that gets each background review or curation that changed something or failed.
        background: Runner of background reviews; None for the runner that all agents of the memory share.
        clock: Function that returns the current time in epoch seconds.
        cancel: Switch that several agents share, so that all of them stop together; None for the agent's own switch.
        **identity: Fields of `Session`: platform, user_id, chat_id and others.

    Raises:
        ConfigError: an argument is of the wrong kind.
        SessionError: `agent_context` in `identity` is unknown.
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
        trust_folder: bool | None = None,
        source: str = "",
        skip_memory: bool = False,
        compressor: Compressor | None = None,
        on_review: Callable[[Review], object] = ignore,
        background: Background | None = None,
        clock: Callable[[], float] = time.time,
        cancel: Cancel | None = None,
        **identity: Any,
    ) -> None:
        require("memory", memory, Memory, "what open_memory returned")
        require_model("model", model)
        require_model("auxiliary", auxiliary or model)
        require("background", background, (Background, NoneType), "a Background, or none")
        require("cancel", cancel, (Cancel, NoneType), "a Cancel, or none")
        require_function("on_review", on_review)
        require("instructions", instructions, str, "a text")
        require("folder", folder, (str, os.PathLike, NoneType), "a path")
        require("trust_folder", trust_folder, (bool, NoneType), "True, False or None")
        self._host_tools = _require_all("tool", tools, Tool, "Tool(name, description, parameters, run)")
        if toolsets is not None:
            toolsets = _require_all("toolset", toolsets, str, "a name")
        self.memory, self.model = memory, model
        self._settings = memory.config.agent
        self._clock = clock
        self._guard = TurnGuard(cancel)
        self._skip_memory = skip_memory
        self._instructions = instructions
        self._folder = None if folder is None else Path(folder)
        self._trust_folder = {"yes": True, "no": False}.get(self._settings.trust_folder)
        if trust_folder is not None:
            self._trust_folder = trust_folder
        problems: list[str] = []
        session, stored = resolve_session(memory, session_id, identity, problems)
        enabled = toolsets if toolsets is not None else memory.config.enabled_toolsets.get(session.platform)
        self._toolsets = None if enabled is None else frozenset(enabled)
        problems += unknown_toolsets(enabled, self._host_tools)
        shared = shared_services(memory)
        self._skills = shared.skills_of(session)
        delegating = [delegate_tool(self.delegate)] if session.agent_context != "subagent" else []
        others = [*delegating, *built_in_tools(self._skills, memory), *self._host_tools]
        all_tools = (
            without_memory_tools(memory, others, session)
            if skip_memory
            else with_memory_tools(memory, others, self._toolsets, problems)
        )
        # As many characters as the context has tokens: in most scripts that fills a quarter of the context.
        extras = memory.internals.selection.extras
        if extras.watches_tools:
            all_tools = [watched(tool, extras) for tool in all_tools]
        self.tools = ToolRegistry(
            all_tools,
            self._toolsets,
            min(self._settings.result_limit, model.context_length),
            memory.config.memory.trusted_tools,
        )
        self._own_background = background is None  # the host's own may run reviews of another memory too
        background, auxiliary = background or shared.background, auxiliary or model
        if not skip_memory:
            memory.internals.origins.judge = Judge(model.name, model_judge(model))
        self._reviewer = Reviewer(memory, auxiliary, self.tools, background, on_review)
        self._curator = AutoCurator(memory, auxiliary, background, on_review, clock)
        self._overflowed = ""  # id of the last turn, if its request was too long
        self._usage = ContextUsage(ContextLimits.of(model, self._settings), count_tokens)
        self._life = SessionLifecycle(
            memory,
            session,
            compressor or SummaryCompressor(auxiliary, self._usage.limits, count_tokens, self._fixed_text),
            self._build_prompt,
            self._is_outdated,
            self._reviewer,
            self._usage,
            self._guard,
            model,
            source,
            skip_memory,
            problems=problems,
            clock=clock,
        )
        if stored:
            self._life.open()
        else:
            self._life.start()
        at_exit.register(self, user_of=memory)

    @property
    def session(self) -> Session:
        """The session of the next turn."""
        return self._life.session

    @property
    def history(self) -> tuple[ChatMessage, ...]:
        """The conversation as the model gets it."""
        return tuple(self._life.history)

    @property
    def prompt(self) -> str:
        """The system prompt of the session."""
        return self._life.prompt

    @property
    def skills(self) -> SkillStore | None:
        """The skills of the session's owner; None if they are switched off."""
        return self._skills

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each failure since the last turn; the result of the next turn contains them too."""
        return tuple(self._life.problems)

    # -------------------------------------------------------------------- turn

    def run_turn(
        self,
        message: TurnInput,
        *,
        on_text: OnText = ignore,
        on_tool_call: OnToolCall = ignore,
        author: str = "",
        origin: Origin | None = None,
        shows_line: bool = False,
    ) -> TurnResult:
        """Answer a message of the person.

        A failure of the memory or the model raises no exception: `outcome` and `problems` of the result report it.

        Args:
            message: Text, or OpenAI content parts of text and pictures.
            on_text: Function that gets each piece of the answer's text when it arrives.
            on_tool_call: Function that gets each tool call with its result.
            author: Name of the person, if several speak in the session.
            origin: Origin of the message, if no person of the session wrote it, as a mail or a webhook's text: "tool" or
                "web".
            shows_line: True if the program shows `TurnResult.noted` to the person, see `Conversation.turn`.

        Raises:
            SessionError: the message is empty or of another type, or a turn runs on another thread.
        """
        require_function("on_text", on_text)
        require_function("on_tool_call", on_tool_call)
        turn = AgentTurn.of(message, author, message_origin(self.session, author, origin))
        turn.shows_line = shows_line
        if not turn.text.strip():
            raise SessionError(f"the message is empty: {message!r}", "write a message")
        with self._guard.turn():
            loop = ToolLoop(
                self.model,
                self.tools,
                self.session,
                self._guard.cancel,
                self._settings.max_iterations,
                lambda new: self._store_message(turn, new),
                on_text,
                on_tool_call,
                reading=lambda origin: self.memory.internals.origins.reading(
                    self.session, origin, lambda: said_in([*self._life.history, *turn.messages]), [turn.id]
                ),
                recalled=lambda: turn.recall.contexts if turn.recall else (),
            )
            try:
                with stopped_by(self._guard.cancel):
                    self._run(turn, loop)
            finally:
                self._finish(turn, loop)
            result = turn.result(self.session.id, self._life.problems, loop.calls, loop.usage)
            self._life.problems.clear()
            return result

    def interrupt(self) -> None:
        """Interrupt the turn in progress. Any thread may call this.

        The messages of the interrupted turn are stored, but no provider gets them. Between turns, this abandons a
        running compression; any other method ends its waits early and then runs to completion.
        """
        self._guard.cancel.set()

    def delegate(self, task: str, context: str = "") -> str:
        """Let a subagent do a task and return the subagent's report; notify the provider of task and report.

        The subagent sees only `task` and `context`, has no memory and can't delegate. Raises `Cancelled` on interrupt.
        """
        self._guard.begin_work()
        stop = current_stop()  # in a tool that an earlier turn abandoned, that turn's switch
        identity = {k: v for k, v in self.session.to_dict().items() if k not in ("id", "home")}
        child = Agent(
            self.memory,
            self.model,
            tools=self._host_tools,
            toolsets=self._toolsets,
            instructions=SUBAGENT_INSTRUCTIONS,
            source="subagent",
            skip_memory=True,
            clock=self._clock,
            cancel=stop if isinstance(stop, Cancel) else self._guard.cancel,
            **{**identity, "parent_id": self.session.id, "agent_context": "subagent"},
        )
        with child:
            reading = current_reading()  # the task is in the words of a model that has read this
            result = child.run_turn(
                f"{task}\n\n{context}".strip(), origin=reading.origin if reading is not None else None
            )
        report_result([result.origin])
        if result.outcome == "interrupted":
            raise Cancelled
        problems = "; ".join(result.problems)
        report = f"{result.text}\n\n[{problems}]" if problems else result.text
        if result.outcome != "answered":
            report = f"the subagent failed: {problems}"
        if not self._skip_memory:
            delegation = Delegation(uuid.uuid4().hex, task, report, result.session_id)
            self._life.attempt(
                "notifying providers of a delegation",
                lambda: self.memory.manager.on_delegation(delegation, self.session),
            )
        return report

    # --------------------------------------------------------------- lifecycle

    def new(self) -> None:
        """End the session and begin an empty session.

        Like `reset`, `resume`, `branch`, `undo` and `compress`, raises `SessionError` during a turn.
        """
        self._guard.require_none()
        self._life.new()

    def reset(self) -> None:
        """End the session and begin an empty session, as `new` does, because a gateway's chat was cleared."""
        self._guard.require_none()
        self._life.reset()

    def resume(self, session: str) -> None:
        """Leave the current session and continue a stored session.

        `session` is the id of the stored session, the beginning of that id, or the title. Raises `SessionError` if no
        stored session has it.
        """
        self._guard.require_none()
        target = find_session(self.memory, session, self.session)
        if target.id != self.session.id:
            self._life.resume(target)

    def branch(self) -> None:
        """Copy the session and continue in the copy; the original session does not change.

        For providers, the turns so far belong to the original session only: an `undo` in the original removes them from
        the provider, and an `undo` in the copy does not.
        """
        self._guard.require_none()
        self._life.branch()

    def undo(self, turns: int = 1) -> str:
        """Undo the last `turns` turns, also at the provider; return the person's message of the first undone turn.

        Raises `SessionError` if the session has fewer turns, or another process added messages among them.
        """
        self._guard.require_none()
        first = rewind_target(self.memory, self.session, turns, self._life.history)
        self._life.rewind(first.id)
        return first.content

    def compress(self) -> bool:
        """Summarise the middle of the conversation and continue in a child session; return True if the session changed.

        If another process is compressing the session, wait for that process and continue in its child session.
        """
        self._guard.require_none()
        before = self.session.id
        with contextlib.suppress(Cancelled):
            self._life.compress()
        return self.session.id != before

    def commit_memory_session(self, messages: Messages = ()) -> None:
        """Let providers learn from the session so far without ending it.

        For a host that is about to change the session's id. `messages` is ignored: providers get the stored messages.
        """
        del messages
        self._life.commit()

    def shutdown_memory_provider(self, messages: Messages = ()) -> None:
        """End the session and shut all providers down, within 15 seconds. `messages` is ignored."""
        del messages
        deadline = self._leave(at_exit.EXIT_TIMEOUT_S)
        if self._own_background:
            self.stop_review()
        self._life.shutdown(deadline)

    def end_crashed(self, session_id: str) -> None:
        """End a session whose process died, and notify the providers of its stored turns and of its end."""
        self._life.end_crashed(session_id)

    def evict(self) -> None:
        """End the session because it was idle for long; the next turn, or a resume, opens the session again."""
        self._leave(None)
        self._life.evict()

    def close(self, timeout: float | None = None) -> None:
        """End the session. The session also ends when the memory is closed and when the program exits.

        The memory stays open for other agents and for a running review. A further turn opens the session again.

        Args:
            timeout: Seconds for ending the session and closing the memory together; None for no limit.
        """
        self._life.close(self._leave(timeout))

    def _leave(self, timeout: float | None) -> float:
        """Prepare for the end of the session; return the time by which it must have ended, on the monotonic clock.

        With a `timeout` in seconds, first interrupt a turn that another thread runs. Without one, return infinity.
        """
        at_exit.unregister(self)
        if timeout is None:
            return math.inf
        deadline = time.monotonic() + timeout
        self._guard.stop(1.0)  # the program ends, and a turn on another thread would go on using the session
        return deadline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(at_exit.EXIT_TIMEOUT_S if kind is SystemExit else None)

    # ---------------------------------------------------------- parts of a turn

    def _run(self, turn: AgentTurn, loop: ToolLoop) -> None:
        at_exit.register(self, user_of=self.memory)
        life = self._life
        life.attempt("continuing the session", life.follow)
        life.attempt("renewing the system prompt", life.renew_prompt)
        life.own_turns.add(turn.id)
        cadence_due = life.cadence_due(self._settings)
        # Stored before anything else: what the person said survives a crash.
        self._store_message(turn, {"role": "user", "content": turn.content, ORIGIN: turn.origin})
        try:
            life.attempt("making room for the turn", lambda: self._make_room(turn, cadence_due))
            loop.session = self.session
            turn.recall = self._recall(turn)
            turn.answer = loop.run(self._request(turn))
            turn.outcome = "answered" if turn.answer.strip() else "failed"
            life.problems += loop.problems(turn.answer)
        except Cancelled:
            turn.outcome = "interrupted"
        except (KeyboardInterrupt, SystemExit) as exc:
            self._guard.cancel.set()
            turn.outcome = "interrupted"
            if isinstance(exc, SystemExit):
                raise
        except ModelError as exc:
            life.problems.append(str(exc))
            # Sent again, it would be refused in every later turn.
            turn.set_aside = isinstance(exc, ModelRefused)
            if isinstance(exc, ContextOverflow):  # the estimate was too low: the next turn compresses first
                loop.prompt_tokens, self._usage.tokens_after_attempt = self.model.context_length, None
                turn.set_aside = self._is_too_long(turn)
        finally:  # also if the host's own `on_text` or `on_tool_call` raises
            complete = turn.outcome == "answered" and not self._skip_memory
            if turn.set_aside:
                life.set_aside(turn.id)
            else:
                life.history += turn.chat() if complete else turn.hidden()
            if turn.outcome == "answered":
                self._overflowed = ""

    def _is_too_long(self, turn: AgentTurn) -> bool:
        """Return True if a turn whose request was too long is too long itself, so that a compression makes no room.

        It is if it makes up most of the conversation, or if the turn before overflowed too: that one is set aside as well.
        """
        before, self._overflowed = self._overflowed, turn.id
        if before:
            self._life.set_aside(before)
        return bool(before) or tokens_of(turn.messages, count_tokens) * 2 > tokens_of(
            self._life.history, count_tokens
        )

    def _make_room(self, turn: AgentTurn, cadence_due: bool) -> None:
        """Let providers learn from an endless chat if `cadence_due`, and compress a conversation that is too long."""
        if cadence_due:
            self._life.cadence()
        fixed, before = self._fixed_text(), self.session.id
        due = turn.message_id and self._usage.is_due(fixed, self._life.history, turn.messages)
        if due or not self._life.history:
            self._life.problems += filter(None, [self._usage.problem(fixed)])
        if not due:
            return
        try:
            self._life.compress()
        finally:
            if self.session.id != before:
                self._life.attempt("moving a message", lambda: self._life.move_message(turn, before))

    def _has_toolset(self, name: str) -> bool:
        return self._toolsets is None or name in self._toolsets

    def _build_prompt(self, session: Session, problems: list[str]) -> str:
        """Build the system prompt of a new session. Append to `problems` a sentence for each part that is left out."""
        verdicts = Verdicts(self.memory.home)
        skills = self._skills if self._has_toolset("skills") else None
        if skills is not None:
            problems += skills.new_notices()
        return system_prompt(
            [schema["name"] for schema in self.tools.schemas],
            identity=read_part(self.memory.home.soul_md, verdicts, problems) or "",
            instructions=self._instructions,
            memory="" if self._skip_memory else self.memory.internals.prompts.build(session),
            skills=skills.index() if skills is not None else "",
            context_file=context_file(self._folder, verdicts, problems, trusted=self._trust_folder),
            today=datetime.fromtimestamp(self._clock()).astimezone().date(),
            platform=session.platform,
        )

    def _is_outdated(self, session: Session, prompt: str) -> bool:
        """Return True if a stored prompt holds a note or a skill that may not stand in a system prompt any more."""
        if not self._skip_memory and self.memory.internals.prompts.is_outdated(session, prompt):
            return True
        lines = prompt.split("\n")
        waiting = self._skills.waiting() if self._skills is not None and "SKILLS" in lines else ()
        return any(without_turns(index_line(skill)) in lines for skill in waiting)

    def _fixed_text(self) -> str:
        """Return the text that comes before the messages in each request."""
        return f"{self.prompt}{self.tools.schemas}"

    def _recall(self, turn: AgentTurn) -> TurnRecall | None:
        if self._skip_memory:
            return None
        memory, session = self.memory, self.session
        if not self._has_toolset("memory"):
            # No provider is asked, and providers that count turns are still notified.
            self._life.attempt(
                "notifying providers of the turn",
                lambda: memory.manager.on_turn_start(
                    memory.sessions.turns.last_number(session.id) + 1, turn.text, session, author=turn.author
                ),
            )
            return None
        recent = recent_messages(self._life.history)
        return self._life.attempt(
            "recall",
            lambda: memory.begin_turn(
                session,
                turn.content,
                recent=recent,
                author=turn.author,
                origin=turn.origin,
                shows_line=turn.shows_line,
            ),
        )

    def _request(self, turn: AgentTurn) -> list[ChatMessage]:
        """Return system prompt, history and the person's message. Recalled text is added to the request, not stored."""
        content = turn.recall.inject(turn.content) if turn.recall is not None else turn.content
        if not self.prompt:  # an interrupt stopped the building of the prompt
            self._life.attempt("writing the system prompt", lambda: self._life.write_prompt(self.session))
        system = {"role": "system", "content": self.prompt}
        recalled = turn.recall.origin if turn.recall is not None else "person"
        origin = lowest([turn.origin, recalled], owner=self.session.owner)
        message = {"role": "user", "content": content, ORIGIN: origin}
        return [system, *repair_messages([*self._life.history, message])]

    def _store_message(self, turn: AgentTurn, message: ChatMessage) -> None:
        """Store a message of the turn at once, so that the message survives an interrupt and a crash."""
        ref = turn.add(message)
        if message["role"] == "tool":  # `end_turn` believes no origin of a result that it does not know
            self.memory.internals.origins.remember_result(
                self.session, text_of(message["content"]), message[ORIGIN]
            )

        def store() -> None:
            stored = store_message(self.memory, self.session.id, message, ref, turn.speaker_of(message))
            turn.message_id = turn.message_id or stored

        self._life.attempt("storing a message", store)

    def _finish(self, turn: AgentTurn, loop: ToolLoop) -> None:
        self._usage.server_tokens = loop.prompt_tokens and loop.prompt_tokens + count_tokens(turn.answer)
        attempt, session_id, answered = self._life.attempt, self.session.id, turn.outcome == "answered"
        attempt("storing the usage of the turn", lambda: self._store_usage(loop.usage))
        if answered:
            attempt("storing the turn", lambda: self._store_turn(turn))
        attempt("copying the turn", lambda: copy_turn(self.memory, turn, session_id))
        if answered and not self._skip_memory:
            attempt("starting a review", lambda: self._review(turn))

    def _store_usage(self, usage: Usage) -> None:
        sessions = self.memory.sessions
        with sessions.transaction():  # both in one commit: a commit is a wait for the disk
            if usage != Usage():
                sessions.meta.add_usage(
                    self.session.id,
                    input_tokens=usage.prompt,
                    output_tokens=usage.completion,
                    cache_read_tokens=usage.cached,
                )
            self._usage.save(sessions, self.session.id)

    def _store_turn(self, turn: AgentTurn) -> None:
        """Mark the turn as complete and hand it to the provider; give an untitled session a title.

        With `skip_memory` the turn is not marked: its messages stay in state.db, but a provider never gets them.
        """
        if not self._skip_memory:
            self.memory.end_turn(
                self.session,
                turn.text,
                turn.answer,
                messages=turn.stored(),
                turn_id=turn.id,
                warm=self._has_toolset("memory"),
                author=turn.author,
            )
            self._life.problems += filter(None, [self.memory.problem_log.outbox])
        set_default_title(self.memory, self.session.id, turn.text)

    # ------------------------------------------------------------ background reviews

    def wait_for_review(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a background review or curation; return True if none runs afterwards."""
        return self._reviewer.background.wait(timeout)

    def stop_review(self, timeout: float = 1.0) -> bool:
        """Stop a background review or curation of the notes, even if another agent on the same memory started it.

        Wait for its end for at most `timeout` seconds; return True if none is running afterwards.
        """
        return self._reviewer.background.stop(timeout)

    def _review(self, turn: AgentTurn) -> None:
        if self._reviewer.count_turn(self.session, turn.used_memory):
            self._reviewer.start_review(self.session, self.prompt, self._life.history)
        else:
            self._life.attempt("starting a curation", lambda: self._curator.start_if_due(self.session))


def _require_all(name: str, values: Iterable[Item], kind: Kind, instead: str) -> tuple[Item, ...]:
    """Return the values of a list argument as a tuple.

    Raise `ConfigError` if `values` is a single value, or if a value is of another type than `kind`.

    Args:
        name: Name of one value, for the error message.
        values: The argument.
        kind: Type of each value.
        instead: Advice what to pass instead, for the error message.
    """
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise refused(f"{name}s", values, f"a list, and in it {instead}")
    items = tuple(values)
    for item in items:
        require(f"a {name}", item, kind, instead)
    return items


class SharedServices:
    """The objects that all agents of a memory share, so that a host can make an agent for each message and drop it.

    Attributes:
        background: Runner of background reviews, one at a time. Stopped when the memory is closed.
    """

    def __init__(self, memory: Memory) -> None:
        self.background = Background()
        # Not the memory itself: the table of services holds it weakly.
        self._home, self._config, self._database = memory.home, memory.config, memory.sessions.database
        self._provider_folders = memory.internals.selection.extras.skill_folders
        self._skills: OrderedDict[str, SkillStore] = OrderedDict()
        memory.internals.at_close.callback(self.background.stop)

    def skills_of(self, session: Session) -> SkillStore | None:
        """Return the store of skills of the session's owner; None if skills are switched off."""
        if not self._config.skills.enabled:
            return None
        owner = session.owner if self._config.memory.per_user else ""
        with _lock:
            store = self._skills.pop(owner, None) or open_skills(
                self._home, self._config, self._database, owner, self._provider_folders
            )
            self._skills[owner] = store
            while len(self._skills) > MAX_SKILL_STORES:
                self._skills.popitem(last=False)
        return store


_lock = threading.Lock()  # a gateway makes agents on several threads
_shared: WeakKeyDictionary[Memory, SharedServices] = WeakKeyDictionary()


def shared_services(memory: Memory) -> SharedServices:
    """Return the services that the agents of this memory share; make them if this is the first agent."""
    with _lock:
        if memory not in _shared:
            _shared[memory] = SharedServices(memory)
        return _shared[memory]
