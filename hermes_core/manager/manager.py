"""The memory manager: calls every provider at the right moment, and never lets one of them hold or break a turn."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import os
import sqlite3
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hermes_core.contract.hooks import OBSERVER_POLICIES, POLICIES
from hermes_core.contract.values import (
    Delegation,
    EndReason,
    Event,
    MemoryWrite,
    Message,
    Query,
    Recall,
    Refused,
    Session,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.errors import ConfigError, OutboxError
from hermes_core.home import HermesHome
from hermes_core.manager.call import CallResult
from hermes_core.manager.health import ManagerConfig, ProviderHealth
from hermes_core.manager.held import ProviderHandle
from hermes_core.manager.instance import ABSENT, Flight, Landed
from hermes_core.manager.observers import Listener, Observers
from hermes_core.manager.outbox import Outbox
from hermes_core.manager.payload import Transcripts, pack, pack_end, plain
from hermes_core.manager.prefetch import Prefetch, RecallPart, RecallResult
from hermes_core.manager.registry import Registry
from hermes_core.manager.roster import Roster
from hermes_core.manager.writes import Writes
from hermes_core.safety.fence import without_turns
from hermes_core.safety.redact import redact_value
from hermes_core.stopping import stopped

log = logging.getLogger(__name__)

MAX_TEXT = 32_000
"""Characters that a provider may put into a prompt at once, its block or its words for a summary: about 8,000 tokens."""

MAX_PROMPTS = 4096
"""Sessions whose system prompt is kept frozen; a few kilobytes each."""

__all__ = ["MemoryManager", "ProviderHealth", "RecallPart", "RecallResult"]


class MemoryManager:
    """The providers of one home. Lives as long as the process; safe to share between threads, agents and sessions.

    `deadlines` are seconds by hook name, in place of the policy's. `start_wait` is how long a start waits for
    `initialize`. `transcripts(session_id, last_message_id)` reads a session that ended; without it the messages given
    to `on_session_end` are stored. `clock` measures and `wall` dates. `redact` cleans all that leaves for a provider.
    """

    def __init__(
        self,
        home: HermesHome,
        *,
        deadlines: Mapping[str, float] | None = None,
        start_wait: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        transcripts: Transcripts | None = None,
        observers: Sequence[object] = (),
        on_event: Callable[[Event], None] | None = None,
        redact: Callable[[Any], Any] = redact_value,
    ) -> None:
        self.home = home
        self._transcripts = transcripts
        self._redact = redact
        checked = _checked_deadlines(deadlines or {})
        self._terms = ManagerConfig(clock, wall, self._redact, checked, start_wait, self._emit)
        self._registry = Registry()
        listeners = [Listener(on_event)] if on_event else []
        self._observers = Observers([*observers, *listeners], self._registry, self._terms)
        self._roster = Roster(self._registry, self._terms)
        self._writes = Writes(home, self._roster, self._terms, transcripts)
        self._prefetch = Prefetch(self._terms)
        self._prompts: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._shut_down = False
        self._process = os.getpid()

    # --------------------------------------------------------------- providers

    def add_provider(
        self,
        source: object,
        *,
        name: str = "",
        builtin: bool = False,
        fingerprint: Callable[[], str] | None = None,
    ) -> bool:
        """Take a provider: an instance, a class, or a factory without arguments. Whether it was accepted.

        One that is not is logged and stays in `health` with its reason; nothing is raised. `name` is what the host
        calls it, `fingerprint` says whose data it is (url, account, bank): writes recorded for another are parked.
        """
        with self.home.asking():
            return self._roster.add(source, name, builtin=builtin, fingerprint=fingerprint)

    def ask(self, provider: str, hook: str, **arguments: Any) -> CallResult:
        """Call one hook of one provider and wait for it: `check`, `backup_paths`, `register_cli`."""
        session = arguments.get("session")
        for held in self._roster:
            if held.name == provider and held.implements(hook):
                instance = held.instance(session) if isinstance(session, Session) else held.first
                with self.home.asking():
                    return instance.call(hook, arguments)
        return ABSENT

    def health(self) -> tuple[ProviderHealth, ...]:
        """How each provider is, those first that were accepted, in the order of their coming."""
        return (*map(self._health_of, self._roster), *self._roster.inactive)

    def account(self, provider: str) -> str | None:
        """The fingerprint of the account that this provider was started with; None when it is not in use."""
        return next((held.fingerprint for held in self._roster.external if held.name == provider), None)

    @property
    def outbox(self) -> Outbox:
        """Writes that wait for a provider; the file is made when it is first needed."""
        return self._writes.outbox

    # ------------------------------------------------------------------- start

    def initialize_all(self, session: Session, wait: float | None = None) -> None:
        """Start what has not started, and wait for it a little; what takes longer goes on in the background.

        `wait` is in seconds from the beginning of a start; None: as long as a turn waits.
        """
        instances = [held.instance(session) for held in self._roster]
        for instance in instances:
            instance.start(session)
        for instance in instances:
            instance.wait_started(self._terms.start_wait if wait is None else wait)
        self._writes.resume()

    def build_system_prompt(self, session: Session) -> str:
        """The providers' blocks, joined by a blank line: the same text for the whole session."""
        with self._lock:
            frozen = self._prompts.get(session.id)
        if frozen is not None:
            return frozen
        return self._freeze(session, self._blocks(session), replace=False)

    def frozen_system_prompt(self, session: Session) -> str:
        """The prompt that this session was given, "" when none was built yet."""
        with self._lock:
            return self._prompts.get(session.id, "")

    def rebuild_system_prompt(self, session: Session) -> str:
        """Ask the providers again, after a compression for instance, and freeze what they say now."""
        return self._freeze(session, self._blocks(session), replace=True)

    def get_all_tool_schemas(self) -> list[dict[str, Any]]:
        """The tools of all providers, as `{"name", "description", "parameters"}`."""
        return copy.deepcopy(self._roster.tools.schemas)

    def get_all_tool_names(self) -> set[str]:
        """The names that `handle_tool_call` answers."""
        return self._roster.tools.names

    # -------------------------------------------------------------------- turn

    def on_turn_start(self, number: int, message: str, session: Session, *, alone: bool = False) -> None:
        """Tell the providers that the person spoke. Not waited for: it is handed over together with `prefetch`, or at
        once where it stands `alone`, since none follows.
        """
        for held in self._roster.implementing("on_turn_start"):
            arguments = {
                "turn_number": number,
                "message": self._clean(held, message),
                "session": session,
            }
            held.instance(session).submit("on_turn_start", arguments, watched=False, alone=alone)

    def prefetch_all(self, query: Query, session: Session) -> RecallResult:
        """What is remembered for this message; waits at most until the deadline of `prefetch`."""
        began = time.monotonic()
        asked = self._roster.implementing("prefetch")
        parts = self._prefetch.ask(asked, self._clean_query(query), session) if asked else []
        if self._observers.filter("filter_recall"):
            parts = [self._filtered(part, session) if part.recall else part for part in parts]
        return RecallResult(tuple(parts), (time.monotonic() - began) * 1000)

    def queue_prefetch_all(self, query: Query, session: Session) -> None:
        """Let the providers prepare the next turn, in the background."""
        for held in self._roster:
            if self._prefetch.preparing(held):
                self._prefetch.warm(held, self._clean_query(query), session)

    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        """Run a provider's tool; the text for the model, which is a JSON object with `error` when it went wrong."""
        call = dataclasses.replace(call, name=self._roster.tools.current(call.name))
        held = self._roster.tools.owner(call.name)
        if held is None:
            return _error(f"no memory provider handles tool {call.name!r}")
        if not isinstance(call.arguments, dict):
            return _error(
                f"arguments of {call.name!r} must be an object, not {type(call.arguments).__name__}"
            )
        clean = call
        if not held.builtin:
            clean = dataclasses.replace(call, arguments=self._redact(plain(call.arguments)))
        outcome = held.awaited(session).call("handle_tool_call", {"call": clean, "session": session})
        if outcome.ok:
            return str(outcome.value)
        return _error(
            f"memory tool {call.name!r} {outcome.status}: {outcome.error or 'it can not be called'}"
        )

    def sync_all(self, turn: Turn, session: Session) -> None:
        """Store a completed turn for the providers: on disk when this returns, sent in the background.

        Raises `OutboxFull` or `DatabaseUnavailable` when it could not be stored.
        """
        self._writes.store("sync_turn", session, lambda: pack("sync_turn", turn, session, self._redact))

    def on_memory_write(self, write: MemoryWrite, session: Session) -> bool:
        """Mirror a change of curated memory to the providers, durable as `sync_all`; False when none is there to hear.

        One that was not made in the file has no other place: `OutboxError` says that no provider takes it.
        """
        takers = self._roster.takers("on_memory_write") if session.primary else ()
        if not (write.performed or takers):
            raise OutboxError(
                f"no memory provider stores what a session of kind {session.agent_context!r} writes",
                "tell the person, or say it in your answer",
            )
        self._writes.store(
            "on_memory_write", session, lambda: pack("on_memory_write", write, session, self._redact)
        )
        return bool(takers) or not session.primary

    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """Tell the providers what a subagent did; durable as `sync_all`."""
        self._writes.store(
            "on_delegation", session, lambda: pack("on_delegation", delegation, session, self._redact)
        )

    @staticmethod
    def vet_observer(observer: object) -> None:
        """Raise `ProviderInvalid` for what can be none of the `observers` of a manager."""
        Registry().enter_observer(observer)

    def filter_write(self, write: MemoryWrite, session: Session) -> MemoryWrite | Refused:
        """What the observers make of a change of curated memory, before it happens."""
        return self._observers.filter_write(write, session)

    def suppresses_local_writes(self, target: str) -> bool:
        """Whether a provider keeps this target instead of the local file."""
        return any(held.first.capabilities.suppresses(target) for held in self._roster.external)

    # ---------------------------------------------------------------- boundary

    def on_pre_compress(self, messages: Sequence[Message], count: int, session: Session) -> str:
        """What the providers want kept in the summary. `count` says how often this session was compressed before."""
        if not session.primary:
            return ""
        flights = []
        for held in self._roster.implementing("on_pre_compress"):
            arguments = {
                "messages": tuple(self._clean(held, plain(messages))),
                "compression_count": count,
                "session": session,
            }
            flights.append((held, held.instance(session).submit("on_pre_compress", arguments)))
        return _joined(flights)

    def on_session_end(
        self,
        session: Session,
        reason: EndReason,
        last_message_id: int | None = None,
        messages: Sequence[Message] | None = None,
    ) -> None:
        """Tell the providers that a session ended, after all of its writes; durable as `sync_all`.

        The same end, of one session at one last message, is told once.
        """
        by_reference = self._transcripts is not None and (last_message_id is not None or messages is None)
        event = uuid.uuid4().hex if last_message_id is None else f"{session.id}:{last_message_id}"
        stored = None if by_reference else messages
        self._writes.store(
            "on_session_end",
            session,
            lambda: pack_end(event, session, reason, last_message_id, stored, self._redact),
        )

    def on_session_switch(
        self, switch: SessionSwitch, turns_to_drop: Iterable[str] = (), account: str | None = None
    ) -> bool:
        """The conversation goes on under another id: recall follows at once, the providers hear of it in order; False
        when none is there to hear.

        `turns_to_drop` and those of the switch were taken back: what was not sent yet is dropped in the same operation,
        the others travel as `rewound_turns`. `account` is the one it happened under, the one in use for None.
        """
        self._prefetch.forget(switch.old.id)
        return self._writes.switch(switch, turns_to_drop, account)

    def forget_session(self, session_id: str, turns: Iterable[str] = ()) -> int:
        """A session is deleted: its unsent writes and its recall are dropped, and those of its `turns` that another thread
        or process hands over only now, but not the word to forget what was taken back. Returns how many writes waited.
        """
        self._prefetch.forget(session_id)
        with self._lock:
            self._prompts.pop(session_id, None)
        return self._writes.drop_session(session_id, turns)

    # --------------------------------------------------------------- recovery

    def recover(self, turns: Iterable[tuple[Turn, Session]], account: str | None = None) -> int:
        """Store complete turns that the outbox does not know, after a crash between store and outbox; how many.

        Give turns stored since `recover_since()`: what was settled before is no longer known. `account` is the one they
        were said under, the one in use for None.
        """
        return self._writes.recover(turns, account)

    def recover_since(self) -> float:
        """The time in seconds since the epoch from which on stored turns may be given to `recover`."""
        return self._writes.recover_since()

    # --------------------------------------------------------------------- end

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until the providers have taken all writes. False when some stay in the outbox."""
        return self._writes.flush(timeout)

    @property
    def closed(self) -> bool:
        """Whether `shutdown_all` was called."""
        return self._shut_down

    @property
    def forked(self) -> bool:
        """Whether this is a fork of the process that made it: the threads and the providers are the parent's."""
        return self._process != os.getpid()

    def shutdown_all(self, timeout: float = 15.0) -> None:
        """Shut down in reverse order, in `timeout` seconds in all. What was not sent stays in the outbox.

        What hangs is left behind on daemon threads, which don't hold the process. A second call does nothing, and
        none in a fork.
        """
        if self.forked:
            return
        with self._lock:
            if self._shut_down:
                return
            self._shut_down = True
        until = time.monotonic() + timeout
        self.outbox.hurry()
        try:
            self._writes.flush_at_end(timeout / 5)
        except sqlite3.Error as exc:
            log.error("the outbox can't be read at the end: %s", exc)
        finally:  # also when Ctrl-C ends the wait for writes
            self._writes.stop(timeout / 15)
            self._close_all(until)

    # ----------------------------------------------------------------- private

    def _close_all(self, until: float) -> None:
        instances = [instance for held in reversed([*self._roster]) for instance in held.close()]
        for position, instance in enumerate(instances):
            left = max(0.0, until - time.monotonic())
            if not instance.close(left / (len(instances) - position)):
                log.warning("%s did not end in time and is left behind", instance.label)
        for held in self._roster.external:
            held.vitals.report()
        self._observers.stop(min(1.0, max(0.0, until - time.monotonic())))
        self._terms.errands.stop(max(0.0, until - time.monotonic()))
        self._writes.outbox.close()

    def _emit(self, kind: str, data: Mapping[str, Any]) -> None:
        self._observers.emit(kind, data)

    def _clean(self, held: ProviderHandle, value: Any) -> Any:
        return value if held.builtin else self._redact(value)

    def _clean_query(self, query: Query) -> Query:
        recent = tuple(self._redact(plain(query.recent))) if query.recent else ()
        text = self._redact(query.text)
        if text == query.text and not recent:
            return query
        return dataclasses.replace(query, text=text, recent=recent)

    def _blocks(self, session: Session) -> str:
        return _joined(
            [
                (held, held.awaited(session).submit("system_prompt_block", {"session": session}))
                for held in self._roster.implementing("system_prompt_block")
            ]
        )

    def _freeze(self, session: Session, text: str, *, replace: bool) -> str:
        if stopped():  # who did not wait for a provider has not its block
            return text
        with self._lock:
            if replace or session.id not in self._prompts:
                self._prompts[session.id] = text
            self._prompts.move_to_end(session.id)
            if len(self._prompts) > MAX_PROMPTS:
                self._prompts.popitem(last=False)
            return self._prompts[session.id]

    def _filtered(self, part: RecallPart, session: Session) -> RecallPart:
        answer = self._observers.filter_recall(part.recall, session)
        if isinstance(answer, Refused):
            return part._replace(recall=Recall(), origin="none", reason=answer.reason)
        return part._replace(recall=answer)

    def _health_of(self, held: ProviderHandle) -> ProviderHealth:
        state, reason = held.condition()
        vitals = held.vitals
        health = ProviderHealth(
            held.name,
            state,
            reason,
            breakers={kind: breaker.state for kind, breaker in vitals.breakers.items()},
            last_error=vitals.last_error,
            warnings=tuple(held.warnings),
            hooks=vitals.hooks,
            **vitals.totals(),
        )
        return self._writes.with_backlog(held, health)


def _checked_deadlines(deadlines: Mapping[str, float]) -> Mapping[str, float]:
    for hook, seconds in deadlines.items():
        if hook not in POLICIES and hook not in OBSERVER_POLICIES:
            raise ConfigError(
                f"{hook!r} is no hook, so it can have no deadline", "name a hook of the contract"
            )
        if not isinstance(seconds, int | float) or not seconds > 0:
            raise ConfigError(f"the deadline of {hook!r} is {seconds!r}", "give seconds above 0")
    return dict(deadlines)


def _joined(flights: Iterable[tuple[ProviderHandle, Flight | Landed]]) -> str:
    """What the providers say for a prompt, a blank line between them."""
    texts = []
    for held, flight in flights:
        text = without_turns(flight.wait().value or "").strip()
        if len(text) > MAX_TEXT and not held.builtin:
            log.warning("%s: %d characters for a prompt are cut to %d", held.name, len(text), MAX_TEXT)
            text = text[:MAX_TEXT]
        texts.append(text)
    return "\n\n".join(filter(None, texts))


def _error(message: str) -> str:
    return json.dumps({"error": message}, ensure_ascii=False)
