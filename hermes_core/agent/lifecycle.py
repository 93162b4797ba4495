"""Every boundary in an agent's life as one table: event -> steps in order.

A step calls a hook of the providers, changes rows of state.db, or changes the agent itself. `cross` executes the
table, `lifecycle_table` prints it for the documentation, and the tests walk it cell by cell. A step that fails is
logged and noted; those after it run all the same.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from hermes_core.agent.answer import KEPT_BACK, Chat
from hermes_core.agent.cancel import Cancelled, interruptible
from hermes_core.agent.compression import Compressed, is_summary
from hermes_core.agent.given import id_of
from hermes_core.agent.life import Event, Passage, SessionLifecycle
from hermes_core.agent.sessions import (
    as_text,
    chat_of,
    compressed,
    conversation,
    find_session,
    kept_back_too,
    said_elsewhere,
    store_message,
    take_back,
)
from hermes_core.agent.turn import Turn
from hermes_core.contract.values import Session, SessionSwitch
from hermes_core.manager import at_exit
from hermes_core.manager.call import attempt
from hermes_core.recovery import owe, recover_switches, recover_turns, tell
from hermes_core.safety.redact import redact
from hermes_core.sessions.meta import key_of
from hermes_core.sessions.records import Relation
from hermes_core.stopping import stopped, stopped_by, waited

log = logging.getLogger(__name__)

Kind = Literal["hook", "rows", "agent"]

ENGINE_TIMEOUT = 2.0
"""Seconds that a compressor may take to hear of a session's begin or end."""

AFTER_FLUSH = 7.0
"""Of the seconds that an end may take those for what comes after the flush: the compressor, the rows, and the providers' shutdown."""


JOINED = "what another process said in this session is part of the conversation from here on; the next undo takes it back"

# ------------------------------------------------------------------- steps: providers


def _initialize(life: SessionLifecycle, passage: Passage) -> None:
    if not life.skip_memory:
        life.memory.manager.initialize_all(passage.new)


def _pre_compress(life: SessionLifecycle, passage: Passage) -> None:
    if life.skip_memory:
        return
    count = len(compressed(life.memory, passage.ending))
    told = life.memory.sessions.transcript(passage.ending.id).messages()
    ask = partial(life.memory.manager.on_pre_compress, as_text(told), count, passage.ending)
    passage.memory_context = redact(interruptible(ask, passage.cancel, "agent-pre-compress"))


def _session_end(life: SessionLifecycle, passage: Passage) -> None:
    ending = passage.ending
    if life.skip_memory or not life.memory.sessions.turn_count(ending.id):
        return
    last = life.memory.sessions.last_message_id(ending.id)
    life.memory.manager.on_session_end(ending, passage.end_reason, last)


def _switch(life: SessionLifecycle, passage: Passage) -> None:
    if passage.switch is not None and not life.skip_memory:
        tell(life.memory.sessions, life.memory.manager, passage.switch)


def _recover(life: SessionLifecycle, passage: Passage) -> None:
    if life.skip_memory or not life.memory.selected:
        return
    memory = life.memory
    added = recover_turns(memory.sessions, memory.manager, memory.selected, session=passage.new)
    recover_switches(memory.sessions, memory.manager, memory.selected)
    if added:
        log.info(
            "%d turns of session %s were stored and not on their way; they are now", added, passage.new.id
        )


def _shutdown(life: SessionLifecycle, passage: Passage) -> None:
    left = min(passage.until - time.monotonic(), at_exit.SECONDS) - ENGINE_TIMEOUT
    life.memory.manager.shutdown_all(max(left, 1.0))


# ------------------------------------------------------------------- steps: rows


def _make_row(
    life: SessionLifecycle, session: Session, parent_id: str, relation: Relation, title: str = ""
) -> None:
    life.memory.sessions.create_session(
        session.id,
        life.source or session.platform,
        user=session.owner,
        parent_id=parent_id,
        relation=relation,
        title=title,
        model=life.model_name,
        identity=session.to_dict(),
    )


def _create(life: SessionLifecycle, passage: Passage) -> None:
    new = passage.new
    _make_row(life, new, new.parent_id, "delegation" if new.agent_context == "subagent" else "")


def _rotate(life: SessionLifecycle, passage: Passage) -> None:
    """End the old session and begin the new one with its messages, all at once or not at all."""
    sessions, old, new, messages = life.memory.sessions, passage.ending, passage.new, passage.messages or []
    compressing = passage.event == "compress"
    with sessions.transaction():
        before = sessions.get_session(old.id)  # none where another process has deleted it meanwhile
        if messages and before:
            title = sessions.next_title(before.title, user=before.user)
            _make_row(life, new, old.id, "compression" if compressing else "branch", title)
        else:
            _make_row(life, new, "", "")
        for message in messages:
            carried = compressing and not is_summary(message)
            store_message(life.memory, new.id, message, carried=carried)
        late = said_elsewhere(life.memory, old.id, life.taken_up, life.turns) if compressing else []
        for one in late:
            store_message(life.memory, new.id, chat_of(one), one.ref, one.speaker, carried=True)
        _end(life, passage)
        _owe(life, passage)
    adopt(life, new, [*messages, *map(chat_of, late)])


def _reopen(life: SessionLifecycle, passage: Passage) -> None:
    sessions = life.memory.sessions
    with sessions.transaction():
        if passage.old is not None and passage.old.id != passage.new.id:
            _end(life, passage)
        stored = sessions.get_session(passage.new.id)
        if stored is None or stored.ended_at is not None:
            sessions.reopen_session(passage.new.id)
        _owe(life, passage)
    adopt(life, passage.new, conversation(life.memory, passage.new.id))


def _rewind(life: SessionLifecycle, passage: Passage) -> None:
    if passage.rewind_to is None:
        return
    sessions = life.memory.sessions
    with sessions.transaction():
        _owe(life, passage, take_back(life.memory, passage.new.id, passage.rewind_to))
    if said_elsewhere(life.memory, passage.new.id, life.taken_up, life.turns):
        _note(life, JOINED)
    adopt(life, passage.new, conversation(life.memory, passage.new.id))


def _owe(life: SessionLifecycle, passage: Passage, taken_back: Sequence[str] = ()) -> None:
    """From here on providers are told of the switch, if need be by the next start: by `_switch`, or by a recovery."""
    if passage.old is None or (life.skip_memory and not taken_back):
        return
    passage.switch = SessionSwitch(
        uuid.uuid4().hex,
        passage.old,
        passage.new,
        passage.switch_reason,
        reset=passage.event in ("new", "reset"),
        rewound_turns=tuple(taken_back),
    )
    owe(life.memory.sessions, life.memory.manager, life.memory.selected, passage.switch)


def _end(life: SessionLifecycle, passage: Passage) -> None:
    """Nothing to end is where another process has removed the session, or nothing was said in it."""
    sessions, ending = life.memory.sessions, passage.ending.id
    if not sessions.remove_unused(ending) and sessions.get_session(ending) is not None:
        sessions.end_session(ending, passage.end_reason)


def stand_again(life: SessionLifecycle) -> bool:
    """Make the session's row anew where another process has removed it, so that what is said is stored; whether the row
    that is there says that the session has ended.
    """
    stored = life.memory.sessions.get_session(life.session.id)
    if stored is None or not life.history:
        _keep_prompt(life, life.session)
    return stored is not None and stored.ended_at is not None


def take_along(life: SessionLifecycle, turn: Turn, old: str) -> None:
    """The turn under way goes on in another session, and with it the person's message, which was stored in the old one.

    Another process may have carried a copy of it along, which no search finds.
    """
    sessions, message, ref = life.memory.sessions, turn.chat()[0], turn.messages[0]["ref"]
    with sessions.transaction():
        sessions.drop_carried(life.session.id, ref)
        store_message(life.memory, life.session.id, message, ref, turn.author)
        if sessions.get_session(old) is not None:
            sessions.withdraw(old, turn.message_id)
    life.history = [said for said in life.history if said.get(KEPT_BACK) != ref]


# ------------------------------------------------------------------- steps: the agent


def _look(life: SessionLifecycle, passage: Passage) -> None:
    """A compressor that can't tell beforehand is asked when it compresses."""
    can_shorten = getattr(life.compressor, "can_shorten", None)
    if can_shorten is not None:
        history = [dict(message) for message in life.history]
        look = partial(attempt, lambda: can_shorten(history))
        passage.stopped = interruptible(look, passage.cancel, "agent-compressor") == (False, None)


def _flush(life: SessionLifecycle, passage: Passage) -> None:
    """A session that was flushed when it ended is not read again until something is said in it."""
    sessions, ending = life.memory.sessions, passage.ending.id
    goes_on = passage.event in ("compress", "cadence")  # mostly with a turn whose message is stored already
    key, last = key_of("flushed", ending), str(sessions.last_message_id(ending))
    if goes_on or sessions.get_meta(key) != last:
        left = passage.until - time.monotonic() - AFTER_FLUSH
        done = life.flush(passage.ending, life.history, passage.cancel, left)
        if done and not goes_on:
            sessions.set_meta(key, last)


def _summarise(life: SessionLifecycle, passage: Passage) -> None:
    """Without a summary nothing moves: the middle leaves the prompt of this agent only and stays in state.db."""
    passage.stopped = True
    history, said, cancel = list(life.history), passage.memory_context, passage.cancel
    given = [dict(message) for message in history]  # the compressor may write into it

    def work() -> tuple[Any, BaseException | None]:
        return attempt(lambda: life.compressor.compress(given, said, cancel))

    found, failure = interruptible(work, cancel, "agent-compressor")
    if isinstance(failure, Cancelled):
        raise failure
    if failure is not None:
        _note(life, f"the compressor failed: {type(failure).__name__}: {failure}")
    elif isinstance(found, Compressed):
        passage.stopped = bool(found.failure)
        same = {id(copy): own for copy, own in zip(given, history, strict=False) if copy == own}
        passage.messages = kept_back_too(history, [same.get(id(one), one) for one in found.messages])
        if found.failure:
            life.history = list(passage.messages)
            done = "shortened without a summary" if found.left_out else "not made shorter"
            _note(life, f"the conversation was {done}: {found.failure}")
    elif found is not None:
        _note(life, f"the compressor answered {type(found).__name__}, not Compressed")


def _prompt(life: SessionLifecycle, passage: Passage) -> None:
    life.prompt = ""
    write_prompt(life, passage.new)


def write_prompt(life: SessionLifecycle, session: Session) -> None:
    """Build the system prompt of this session; one that was stopped on its way is left for the next turn to build."""
    prompt = life.write_prompt(session)
    if not stopped():
        life.prompt = prompt
        _keep_prompt(life, session)


def _keep_prompt(life: SessionLifecycle, session: Session) -> None:
    """Store the prompt. Other processes may be in the session from its first moment, and leave it: the prompt that is stored
    is that of all, and a row that one of them removed, since nothing was said, is made anew.
    """
    sessions = life.memory.sessions
    with sessions.transaction():
        if sessions.get_session(session.id) is None:
            _create(life, Passage("start", None, session))
        stored = sessions.system_prompt(session.id)
        if not stored:
            sessions.set_system_prompt(session.id, life.prompt)
        life.prompt = stored or life.prompt


def _restore(life: SessionLifecycle, passage: Passage) -> None:
    life.prompt = life.memory.sessions.system_prompt(passage.new.id)
    if not life.prompt:
        _prompt(life, passage)


def _carry(life: SessionLifecycle, passage: Passage) -> None:
    life.memory.sessions.set_system_prompt(passage.new.id, life.prompt)


def _engine_end(life: SessionLifecycle, passage: Passage) -> None:
    _tell_engine(life, lambda: life.compressor.on_session_end(passage.ending))


def _engine_start(life: SessionLifecycle, passage: Passage) -> None:
    reason = "compression" if passage.event == "compress" else passage.event
    _tell_engine(life, lambda: life.compressor.on_session_start(passage.new, reason))


def _tell_engine(life: SessionLifecycle, tell: Callable[[], None]) -> None:
    """The compressor may be anybody's: it can neither break a boundary nor hold it up."""
    ended: list[BaseException | None] = []
    thread = threading.Thread(
        target=lambda: ended.append(attempt(tell)[1]), name="agent-compressor", daemon=True
    )
    if failure := attempt(thread.start)[1]:  # the system has none left, or the interpreter is ending
        log.info("the compressor was not told: %s", failure)
        return

    def joined(seconds: float) -> bool:
        thread.join(seconds)
        return not thread.is_alive()

    if not waited(joined, ENGINE_TIMEOUT) and stopped():
        return
    if not ended:
        _note(life, f"the compressor took more than {ENGINE_TIMEOUT:g} s and was left behind")
    elif ended[0] is not None:
        _note(life, f"the compressor failed: {type(ended[0]).__name__}: {ended[0]}")


def _note(life: SessionLifecycle, problem: str) -> None:
    log.warning(problem)
    life.problems.append(problem)


# ------------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what it touches, what it does, for the documentation, and the function that does it."""

    kind: Kind
    says: str
    run: Callable[[SessionLifecycle, Passage], None]


STEPS: Mapping[str, Step] = {
    "look": Step(
        "agent", "the compressor's `can_shorten`, where it has one; where not, it stops here", _look
    ),
    "flush": Step("agent", "the model saves what it should to MEMORY.md and USER.md", _flush),
    "pre_compress": Step("hook", "`on_pre_compress`", _pre_compress),
    "summarise": Step("agent", "the compressor's `compress`; without a summary it stops here", _summarise),
    "session_end": Step("hook", "`on_session_end` of the old session, if it has turns", _session_end),
    "engine_end": Step("agent", "the compressor's `on_session_end`", _engine_end),
    "create": Step("rows", "the session's row", _create),
    "rotate": Step("rows", "end the old session, make the new one with its messages", _rotate),
    "reopen": Step("rows", "end the session that is left, open the other again", _reopen),
    "rewind": Step("rows", "take messages and turns back", _rewind),
    "end": Step("rows", "end the session; one in which nothing was said is not kept", _end),
    "initialize": Step("hook", "`initialize`, where it has not happened", _initialize),
    "recover": Step("hook", "`sync_turn` of complete turns that are not on their way", _recover),
    "prompt": Step("agent", "`system_prompt_block` of all, a new system prompt, stored", _prompt),
    "restore": Step("agent", "the stored system prompt, the same bytes", _restore),
    "carry": Step("agent", "the system prompt goes along, the same bytes", _carry),
    "switch": Step("hook", "`on_session_switch`", _switch),
    "engine_start": Step("agent", "the compressor's `on_session_start`", _engine_start),
    "shutdown": Step("hook", "`shutdown` of all, in reverse order", _shutdown),
}

_ROWS: Mapping[Event, str] = {
    "start": "create initialize prompt engine_start",
    "open": "reopen initialize recover restore engine_start",
    "new": "flush session_end engine_end rotate initialize prompt switch engine_start",
    "reset": "flush session_end engine_end rotate initialize prompt switch engine_start",
    "resume": "flush session_end engine_end reopen initialize recover restore switch engine_start",
    "branch": "session_end engine_end rotate initialize carry switch engine_start",
    "rewind": "rewind switch",
    "compress": "look flush pre_compress summarise session_end engine_end rotate initialize prompt switch engine_start",
    "cadence": "flush session_end",
    "commit": "session_end engine_end",
    "evict": "flush session_end engine_end end",
    "close": "flush session_end engine_end end",
    "shutdown": "flush session_end end shutdown engine_end",
    "crash": "recover session_end end",
}
TABLE: Mapping[Event, tuple[str, ...]] = {event: tuple(steps.split()) for event, steps in _ROWS.items()}
"""What happens at each boundary, in this order."""


def cross(life: SessionLifecycle, passage: Passage) -> Passage:
    """Run the steps of this event.

    Who throws its `cancel` waits no longer, and what was waited for is left out. Ctrl-C or a SIGTERM before the rows are
    changed leaves everything as it was. Later, and where the session ends in any case, it ends the step that it meets;
    the steps after it run, and then it is raised.
    """
    # At its end a session waits on: who stops that stops the flush, and providers hear of the rest.
    with contextlib.nullcontext() if passage.event in _LAST else stopped_by(passage.cancel):
        return _cross(life, passage)


def _cross(life: SessionLifecycle, passage: Passage) -> Passage:
    ended_by: BaseException | None = None
    no_way_back = passage.event in _LAST
    for name in TABLE[passage.event]:
        step, done = STEPS[name], False
        try:
            done = life.attempt(f"{passage.event}: {name}", partial(step.run, life, passage))
        except (KeyboardInterrupt, SystemExit) as exc:
            if not no_way_back:
                raise
            ended_by = exc
        passage.failed = not done and name in _GROUND
        if passage.stopped or passage.failed:
            break
        no_way_back = no_way_back or name in _GROUND
    if ended_by is not None:
        raise ended_by
    return passage


def end_crashed(life: SessionLifecycle, session_id: str) -> None:
    """End a session whose process died, or the one it had just been compressed into, if it is open still."""
    sessions = life.memory.sessions
    stored = sessions.get_session(sessions.compression_tip(id_of(session_id)))
    if stored is not None and stored.ended_at is None:
        found = find_session(life.memory, stored.id, life.session)
        # It may have had a memory where this agent has none.
        cross(replace(life, skip_memory=False), Passage("crash", None, found))


_LAST = frozenset({"evict", "close", "shutdown", "crash"})
"""Events after which nobody goes on with the session."""

_GROUND = frozenset({"create", "rotate", "reopen", "rewind"})
"""Without these rows the steps after them would speak of a session that is not there."""


def lifecycle_table() -> str:
    """The table as Markdown."""
    lines = ["| event | steps, in order |", "|---|---|"]
    lines += [f"| {event} | {', '.join(steps)} |" for event, steps in TABLE.items()]
    lines += ["", "| step | touches | does |", "|---|---|---|"]
    lines += [f"| {name} | {step.kind} | {step.says} |" for name, step in STEPS.items()]
    return "\n".join(lines)


def adopt(life: SessionLifecycle, session: Session, messages: Sequence[Chat]) -> None:
    """Go on in this session with these messages."""
    life.session, life.history = session, list(messages)
    life.taken_up = life.memory.sessions.last_message_id(session.id) or 0
