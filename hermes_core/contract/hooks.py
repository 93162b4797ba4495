"""The hooks of a memory provider, grouped by moment of life, each with its policy beside it.

A provider implements the hooks it wants and nothing else: subclass `hermes_core.MemoryProvider` and override methods of
these names, or mark the methods of any object with `@hookimpl`. Write blocking, single-purpose code. The manager owns
threads, deadlines, order, retries, durable writes and fences:

* each provider instance has two workers, one thread each. At most one *read* hook and one *write* hook run at a time
  (`Capabilities.serial` makes that one in all, `Capabilities.concurrent` allows several reads of different sessions,
  `Capabilities.slow_prefetch` takes `queue_prefetch` off the read worker);
* hooks on the write worker are rows of a durable outbox: delivered in order per session, at least once, with an id that
  stays the same on every try;
* a hook names the parameters that it wants and may leave out the others. They are plain, required and never gain a
  default; new fields are added to the frozen values of `hermes_core.contract.values`;
* a hook may be `async def`: all coroutines of one instance run on one event loop of its own.

`POLICIES` holds the same facts as data; the manager obeys it and the reference page is generated from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import pluggy

from hermes_core.contract.values import (
    Availability,
    Check,
    Delegation,
    EndReason,
    Erasure,
    Event,
    MemoryPage,
    MemoryRecord,
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

PROJECT = "hermes_core"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Moment = Literal["setup", "start", "turn", "boundary", "end", "observe"]
WorkerName = Literal["read", "write", "caller", "background"]

Spec = TypeVar("Spec", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules by which the manager calls one hook.

    Attributes:
        worker: "read" and "write" are the workers of a provider instance, "caller" is the thread that asks, and
            "background" a bounded queue.
        deadline: Seconds for one call.
        combining: What becomes of the answers of several providers or observers.
    """

    hook: str
    moment: Moment
    worker: WorkerName
    deadline: float
    combining: str
    on_failure: str

    @property
    def durable(self) -> bool:
        """True if a call is a row of the outbox, kept until the provider has taken it."""
        return self.worker == "write"


# Policy of every provider hook, by its name, in the order of a provider's life.
POLICIES: dict[str, Policy] = {}

# Policy of every observer hook, by its name.
OBSERVER_POLICIES: dict[str, Policy] = {}


def _policy(
    moment: Moment, *, worker: WorkerName, deadline: float, combining: str, on_failure: str
) -> Callable[[Spec], Spec]:
    def register(function: Spec) -> Spec:
        table = OBSERVER_POLICIES if moment == "observe" else POLICIES
        name = function.__name__
        table[name] = Policy(name, moment, worker, deadline, combining, on_failure)
        # A call reaches one provider. With `firstresult` a hook wrapper gets its answer, not a list with one answer.
        return hookspec(firstresult=True)(function)

    return register


class TranscriptReader(Protocol):
    """Reader of a session that ended, for the time when its row is delivered, also in a later process."""

    def messages(self) -> Sequence[Message]:
        """Return all live messages of the session up to the recorded end, oldest first, without recall."""
        ...


class ProviderHooks:
    """Specifications of the provider hooks. Never instantiated; `MemoryProvider` is what authors subclass."""

    # ------------------------------------------------------------------ setup

    @_policy(
        "setup",
        worker="read",
        deadline=1.0,
        combining="this provider",
        on_failure="the reason is shown and the provider is not activated",
    )
    def is_available(self) -> Availability | bool:
        """Say whether the provider can run here: packages, programs, keys. No network, no subprocess.

        Called before anything else, also to list. Return `Availability.no(reason, remedy)` rather than False.
        """
        raise NotImplementedError

    @_policy(
        "setup", worker="read", deadline=60.0, combining="this provider", on_failure="shown as a failed check"
    )
    def check(self, session: Session) -> Sequence[Check]:
        """Test the real path for `hermes-memory doctor`: write something, recall it in another session, delete it.

        Called on an initialized provider, on request only. The session is a primary one of a user that nobody else is,
        and `kit.later_session` makes the other one from it.
        """
        raise NotImplementedError

    @_policy(
        "setup",
        worker="read",
        deadline=1.0,
        combining="this provider",
        on_failure="nothing extra is backed up",
    )
    def backup_paths(self) -> Sequence[str]:
        """Return absolute paths outside HERMES_HOME that a backup must hold. Called without `initialize`."""
        raise NotImplementedError

    @_policy(
        "setup",
        worker="read",
        deadline=1.0,
        combining="added to the writes in the outbox",
        on_failure="counted as none",
    )
    def pending_writes(self, session: Session) -> int:
        """Return the number of writes that the provider took and keeps, so that its backend does not have them yet.

        Called on an initialized provider, for `hermes-memory memory status` and `doctor`. No network. Define it if the
        provider sends writes in batches.
        """
        raise NotImplementedError

    @_policy(
        "setup",
        worker="read",
        deadline=60.0,
        combining="page after page of this provider",
        on_failure="the export or the move stops with the reason, and a later run begins with the first page again",
    )
    def export_memories(self, cursor: str, session: Session) -> MemoryPage:
        """Return a page of what is stored for the user of the session, in an order that stays, word for word.

        Called on an initialized provider by `hermes-memory export` and `migrate`, until `MemoryPage.cursor` is "". The
        first call gets "", each other one the cursor of the page before. Change nothing, and leave out what belongs to
        another user. A page is what the backend gives within the deadline; a few hundred records are a good size.
        """
        raise NotImplementedError

    @_policy(
        "setup",
        worker="read",
        deadline=60.0,
        combining="this provider",
        on_failure="a record that the provider refuses is listed; anything else stops the move, and a later run goes on there",
    )
    def import_memory(self, record: MemoryRecord, session: Session) -> None:
        """Store a memory of the user of the session word for word, with no model that rewrites it.

        Called on an initialized provider by `hermes-memory import` and `migrate`. The text is stored when this returns, or
        is on its way to a backend that stores later. If the user has a memory with `record.key`, change nothing: a run
        that was killed begins again. Keep the other fields where the backend has room for them, as
        `kit.pack_record` writes them, so that `export_memories` gives them back. Raise `BackendRefused` for a record
        that the backend can't take.
        """
        raise NotImplementedError

    @_policy(
        "setup", worker="read", deadline=1.0, combining="this provider", on_failure="the command is left out"
    )
    def register_cli(self, group: Any) -> None:
        """Add commands to `group`, a `click.Group` named after the provider. Only the active provider is asked."""
        raise NotImplementedError

    # ------------------------------------------------------------------ start

    @_policy(
        "start",
        worker="read",
        deadline=1.0,
        combining="name to provider, frozen with the prompt",
        on_failure="the provider offers no tools",
    )
    def get_tool_schemas(self) -> Sequence[dict[str, Any]]:
        """Return the tools for the model as `{"name", "description", "parameters"}` with a JSON schema.

        Called before `initialize`, so that the answer may depend on settings and on nothing else. A name that the host
        or another provider uses is refused.
        """
        raise NotImplementedError

    @_policy(
        "start",
        worker="read",
        deadline=30.0,
        combining="once an instance",
        on_failure="degraded: no recall and tools answer an error; writes wait in the outbox",
    )
    def initialize(self, session: Session) -> None:
        """Open what the provider needs: files under `session.home`, a client, a warm cache.

        The start waits two seconds, then goes on without the provider; recall and writes begin when this returns. Keep
        `home`, `identity` and `workspace` if you must; the rest of the session arrives with every call. If it raises,
        it is called again later, on the same object. A provider whose start may take longer than the deadline has an
        attribute `start_timeout` with the seconds.
        """
        raise NotImplementedError

    @_policy(
        "start",
        worker="read",
        deadline=1.0,
        combining="joined by a blank line, frozen with the prompt",
        on_failure="left out of the prompt",
    )
    def system_prompt_block(self, session: Session) -> str:
        """Return a short static text for the system prompt, or "". It stays as it is for the whole session.

        The first 32,000 characters are used.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------- turn

    @_policy("turn", worker="read", deadline=1.0, combining="nothing", on_failure="logged")
    def on_turn_start(self, turn_number: int, message: str, session: Session, author: str) -> None:
        """Note that the person spoke. If the turn asks for recall, `prefetch` comes next.

        `author` is who spoke, as in `Turn.author`: "" if the host names nobody.
        """
        raise NotImplementedError

    @_policy(
        "turn",
        worker="read",
        deadline=5.0,
        combining="labelled parts of one fence, providers in parallel",
        on_failure="the warmed result of this session is used, else none; a late result becomes the warmed one",
    )
    def prefetch(self, query: Query, session: Session) -> Recall | str | None:
        """Return what is remembered for this message; an empty `Recall` when nothing is relevant.

        Called once a turn, however many tools the turn calls. `query.text` is the person's own message. After a recall
        that failed, the next turn does not wait for this hook, and one more call comes between the turns, to see
        whether the backend is back.
        """
        raise NotImplementedError

    @_policy(
        "turn",
        worker="read",
        deadline=30.0,
        combining="held as the session's warmed result",
        on_failure="logged",
    )
    def queue_prefetch(self, query: Query, session: Session) -> Recall | str | None:
        """Prepare the next turn in the background. The returned recall is used if the next `prefetch` is late."""
        raise NotImplementedError

    @_policy(
        "turn",
        worker="read",
        deadline=60.0,
        combining="this provider",
        on_failure="the model gets a JSON object with `error`",
    )
    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        """Run one of the provider's tools and return the text for the model, JSON as a rule."""
        raise NotImplementedError

    @_policy(
        "turn",
        worker="write",
        deadline=60.0,
        combining="nothing",
        on_failure="stays in the outbox, tried again",
    )
    def sync_turn(self, turn: Turn, session: Session) -> None:
        """Store a completed turn. Interrupted turns never come here. Use `turn.id` so that a repeat is harmless."""
        raise NotImplementedError

    @_policy(
        "turn",
        worker="write",
        deadline=60.0,
        combining="nothing",
        on_failure="stays in the outbox, tried again",
    )
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Mirror a change of MEMORY.md or USER.md. Refused writes and duplicates never come here.

        If a person removes or replaces an entry that another person wrote, it comes as a removal with the session of
        that other person.
        """
        raise NotImplementedError

    @_policy(
        "turn",
        worker="write",
        deadline=60.0,
        combining="nothing",
        on_failure="stays in the outbox, tried again",
    )
    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """Note what a subagent did for this session. The subagent itself has no provider."""
        raise NotImplementedError

    # --------------------------------------------------------------- boundary

    @_policy(
        "boundary",
        worker="read",
        deadline=120.0,
        combining="joined by a blank line, given to the summary as data",
        on_failure="no contribution",
    )
    def on_pre_compress(
        self, messages: Sequence[Message], compression_count: int, session: Session
    ) -> str | None:
        """Save what matters before these messages leave the context; return text that the summary should keep.

        Messages are `{"role", "content"}` with plain text, as in `on_session_end`. The compressor waits for this hook
        and uses the first 32,000 characters.
        """
        raise NotImplementedError

    @_policy(
        "boundary",
        worker="write",
        deadline=120.0,
        combining="after all rows of that session",
        on_failure="stays in the outbox, tried again",
    )
    def on_session_end(self, reader: TranscriptReader, reason: EndReason, session: Session) -> None:
        """Learn from the whole session. Comes after its last turn and before any switch.

        The reader returns the messages of this session: no turn that was stopped or failed, and no message that a
        compression copied from the session before.
        """
        raise NotImplementedError

    @_policy(
        "boundary",
        worker="write",
        deadline=30.0,
        combining="after all rows of the old session; recall uses the new session at once",
        on_failure="stays in the outbox, tried again",
    )
    def on_session_switch(self, switch: SessionSwitch) -> None:
        """Move cached state from `switch.old` to `switch.new`; forget `switch.rewound_turns` if there are any."""
        raise NotImplementedError

    @_policy(
        "boundary",
        worker="write",
        deadline=120.0,
        combining="a row behind all others of each session of the user",
        on_failure="stays in the outbox, tried again",
    )
    def forget_user(self, user: str, session: Session) -> Erasure:
        """Delete all that is stored of a person: what was sent, what was learned of it, and copies on this disk.

        `user` is the `Session.owner`. Called by `hermes-memory forget`, once for each deleted session of the user and
        last for a session that stored nothing, so that what a session named is found by the session. Where the backend
        has a place for the user alone, the first call deletes that, and the others find nothing: return `Erasure()`.
        Delete nothing of anybody else, make nothing anew, and say in `Erasure.remaining` what stays. If the backend
        still works on what it was sent, raise `BackendUnavailable` with `retry_after`.
        """
        raise NotImplementedError

    # -------------------------------------------------------------------- end

    @_policy(
        "end",
        worker="caller",
        deadline=15.0,
        combining="reverse order, after both workers stopped",
        on_failure="logged; what was not sent stays in the outbox",
    )
    def shutdown(self) -> None:
        """Close what `initialize` opened. Borrowed clients stay open.

        Called once, also if `initialize` raised, was late, or was cancelled because the program ends. If a write hangs
        at the end, or another call on the same thread, it comes when that call returns, if the program still runs.
        """
        raise NotImplementedError


class ObserverHooks:
    """Specifications of the observer hooks. Entry-point group: `hermes_core.observers`, any number of observers.

    An observer may also wrap any provider hook with `@hookimpl(wrapper=True)`: a generator that yields once, gets the
    checked return value of the hook, and returns it or another. It runs on the provider's worker, within the deadline
    of the hook. If it raises, that call fails, by the name of the observer. `tryfirst` and `trylast` order several.
    """

    @_policy(
        "observe",
        worker="caller",
        deadline=1.0,
        combining="each sees what the one before returned",
        on_failure="the write is refused, and shown",
    )
    def filter_write(self, write: MemoryWrite, session: Session) -> MemoryWrite | Refused:
        """Check a change of the notes before it happens. Return it, a changed one, or `Refused(reason)`."""
        raise NotImplementedError

    @_policy(
        "observe",
        worker="caller",
        deadline=1.0,
        combining="each sees what the one before returned",
        on_failure="that recall is left out, and shown",
    )
    def filter_recall(self, recall: Recall, session: Session) -> Recall | Refused:
        """Check recalled text before it is fenced. Return it, a changed one, or `Refused(reason)`."""
        raise NotImplementedError

    @_policy("observe", worker="background", deadline=30.0, combining="nothing", on_failure="logged")
    def on_event(self, event: Event) -> None:
        """Note an event. A bounded queue feeds this hook; events that don't fit are dropped and logged."""
        raise NotImplementedError


HOOK_NAMES: frozenset[str] = frozenset(POLICIES)
OBSERVER_HOOK_NAMES: frozenset[str] = frozenset(OBSERVER_POLICIES)
