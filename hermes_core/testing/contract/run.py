"""A provider under the real manager, in a home of its own: what every check of the contract drives."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core import (
    HermesHome,
    MemoryManager,
    MemoryWrite,
    Message,
    Query,
    Recall,
    Session,
    SessionSwitch,
    Turn,
)
from hermes_core.contract.hooks import POLICIES
from hermes_core.testing.report import NOT_CLAIMED, NOT_RUN

if TYPE_CHECKING:
    from hermes_core.manager.call import CallResult
    from hermes_core.manager.health import ProviderHealth

LATE_START = "initialize has run for"
"""What the manager says of a provider that is still starting."""

NO_ANSWER = "no answer within"
"""What the manager says of a call that is late."""

WIDE_BUDGET = 100_000
"""Tokens of recall that a check asks for when it is not about the budget."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something to remember: `marker` is a made-up name that `said` holds and `question` asks for."""

    said: str
    question: str
    marker: str


TORTOISE = Fact("My tortoise is called Quillfeather.", "What is my tortoise called?", "Quillfeather")
BOATHOUSE = Fact(
    "The spare boathouse key hangs behind Ostrander.", "Where does the boathouse key hang?", "Ostrander"
)
REHEARSAL = Fact(
    "Our rehearsal cellar in Lund is called Bellwether.", "What is the rehearsal cellar called?", "Bellwether"
)


class Skipping:
    """A monotonic clock that can be told to skip ahead, so that nobody waits for a backoff or a breaker."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def skip(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self._ahead += seconds


class Run:
    """One manager and the provider that it holds, from the start to the end of a process.

    `make` gives a new provider each time. `deadlines` are seconds by hook name.
    """

    def __init__(self, make: Callable[[], object], home: HermesHome, deadlines: Mapping[str, float]) -> None:
        self.home = home
        self.deadlines = deadlines
        self.clock = Skipping()
        self.made: list[object] = []
        self._make = make
        self._ended = False
        self._skipped: BaseException | None = None
        self.manager = MemoryManager(
            home, deadlines=deadlines, start_wait=deadlines["initialize"], clock=self.clock
        )
        self.accepted = self.manager.add_provider(self._provider)
        if self._skipped is not None:
            raise self._skipped

    # ----------------------------------------------------------------- provider

    @property
    def provider(self) -> Any:
        """The provider that was made first; None when none could be."""
        return self.made[0] if self.made else None

    @property
    def health(self) -> ProviderHealth:
        """How the manager sees it."""
        return self.manager.health()[0]

    @property
    def name(self) -> str:
        """What the manager calls it."""
        return self.health.name

    def claims(self, hook: str) -> bool:
        """Whether the provider implements `hook`."""
        return callable(getattr(self.provider, hook, None))

    # --------------------------------------------------------------------- life

    def session(self, id: str = "s1", **identity: Any) -> Session:  # noqa: A002  the field's name
        """A session of a person in this home."""
        return Session(id, **{"home": str(self.home.path), **identity})

    def start(self, session: Session) -> str:
        """Make the provider ready for a session; why it is not, "" when it is, also while it has writes to catch up with."""
        if not self.accepted:
            return f"it is not accepted: {self.health.reason}"
        self.manager.initialize_all(session)
        health = self.health
        catching_up = health.state == "degraded" and health.depth
        return "" if health.state == "active" or catching_up else health.reason

    def ready(self, session: Session) -> Session:
        """`session`, started. What keeps the provider from starting is another check's finding."""
        trouble = self.start(session)
        if trouble:
            pytest.skip(f"{NOT_RUN}{trouble}")
        return session

    def ask(self, hook: str, **arguments: Any) -> CallResult:
        """Call one hook through the manager, with its deadline."""
        return self.manager.ask(self.name, hook, **arguments)

    def need(self, hook: str, **arguments: Any) -> Any:
        """What `hook` returns. When it does not work, that is another check's finding."""
        outcome = self.ask(hook, **arguments)
        if not outcome.ok:
            pytest.skip(f"{NOT_RUN}{hook}() {outcome.status}: {outcome.error}")
        return outcome.value

    def close(self, timeout: float = 5.0) -> None:
        """End the process, as far as the provider can tell."""
        self._ended = True
        self.manager.shutdown_all(timeout)

    def discard(self) -> None:
        """End it without waiting for writes that the provider does not take."""
        if self._ended:
            return
        outbox = self.manager.outbox
        if outbox.path.exists():
            outbox.drop([row.number for row in outbox.pending(self.name)])
        self.close()

    # ------------------------------------------------------------------- writes

    def delivered(self) -> str:
        """Wait until the provider took all writes; what went wrong with the first that it did not take, else ""."""
        longest = max(self.deadlines[hook] for hook, policy in POLICIES.items() if policy.durable)
        until = time.monotonic() + longest + 5.0
        outbox = self.manager.outbox
        while waiting := [*outbox.parked(self.name), *outbox.pending(self.name)]:
            failed = next((row for row in waiting if row.error), None)
            if failed is not None:
                how = "is late" if failed.error.startswith("in doubt") else "failed"
                return f"{failed.hook}() {how}: {failed.error}"
            if time.monotonic() > until:
                return f"{waiting[0].hook}() is not delivered: {self.health.reason}"
            self.manager.flush(0.05)
        return ""

    def store(self, fact: Fact, session: Session, way: str = "", *, turn_id: str = "") -> None:
        """Give the provider a fact by one of `WAYS`, or by all that it has; wait until it took it."""
        for each in [way] if way else [w for w in WAYS if self.claims(w)]:
            WAYS[each](self, fact, session, turn_id)
        trouble = self.delivered()
        if trouble:
            pytest.skip(f"{NOT_RUN}{trouble}")

    def turn(self, fact: Fact, session: Session, turn_id: str = "") -> Turn:
        """A completed turn in which the person says the fact; stored durably when this returns."""
        turn = turn_of(fact.said, turn_id)
        self.manager.sync_all(turn, session)
        return turn

    def write(self, session: Session, **fields: Any) -> MemoryWrite:
        """A change of curated memory; stored durably when this returns."""
        write = MemoryWrite(**{"id": uuid.uuid4().hex, "action": "add", "target": "memory", **fields})
        self.manager.on_memory_write(write, session)
        return write

    def end(self, session: Session, said: Sequence[str]) -> None:
        """The end of a session in which the person said these things; stored durably when this returns."""
        self.manager.on_session_end(session, "close", messages=messages_of(said))

    def switch(
        self, old: Session, new: Session, reason: Any, turns: Sequence[str] = (), *, reset: bool = False
    ) -> None:
        """The conversation goes on under another session; stored durably when this returns."""
        switch = SessionSwitch(uuid.uuid4().hex, old, new, reason, reset=reset)
        self.manager.on_session_switch(switch, turns)

    # ------------------------------------------------------------------- recall

    def recall(self, question: str, session: Session, budget: int = WIDE_BUDGET) -> Recall:
        """What a turn with this question is given. A recall that fails is another check's finding."""
        self.ready(session)
        self.manager.on_turn_start(1, question, session)
        query = Query(question, budget=budget, now=time.time())
        result = self.manager.prefetch_all(query, session)
        if not result.parts:
            pytest.skip(f"{NOT_CLAIMED}prefetch()")
        part = result.parts[0]
        if part.reason.startswith("prefetch "):
            pytest.skip(f"{NOT_RUN}{part.reason}")
        return part.recall

    def recalled(self, fact: Fact, session: Session) -> int:
        """How often the fact comes back: in a later session of the same person, else in its own."""
        later = Session.from_dict({**session.to_dict(), "id": f"{session.id}-later"})
        times = self.recall(fact.question, later).render().count(fact.marker)
        return times or self.recall(fact.question, session).render().count(fact.marker)

    # ------------------------------------------------------------------ private

    def _provider(self) -> object:
        try:
            provider = self._make()
        except pytest.skip.Exception as exc:
            # The manager would take it for a fault; it is the author's word about this machine.
            self._skipped = exc
            raise
        self.made.append(provider)
        return provider


def turn_of(said: str, turn_id: str = "") -> Turn:
    """A completed turn with its two messages."""
    return Turn(
        turn_id or uuid.uuid4().hex, 1, said, "I will keep that in mind.", messages_of([said]), at=time.time()
    )


def messages_of(said: Sequence[str]) -> tuple[Message, ...]:
    """A conversation in which the person says these things."""
    pairs = [
        (
            Message(role="user", content=text),
            Message(role="assistant", content="I will keep that in mind."),
        )
        for text in said
    ]
    return tuple(message for pair in pairs for message in pair)


def messages_with_tool() -> tuple[Message, ...]:
    """A turn for which the model called a tool."""
    asked, told = messages_of([BOATHOUSE.said])
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    calling = Message(role="assistant", content="", tool_calls=[call])
    return asked, calling, Message(role="tool", content="{}", tool_call_id="c1", name="find"), told


WAYS: dict[str, Callable[[Run, Fact, Session, str], Any]] = {
    "sync_turn": lambda run, fact, session, id_: run.turn(fact, session, id_),
    "on_memory_write": lambda run, fact, session, id_: run.write(
        session, id=id_ or uuid.uuid4().hex, content=fact.said
    ),
    "on_session_end": lambda run, fact, session, _: run.end(session, [fact.said]),
}
"""Hooks by which a provider may learn something, and how each is told a fact."""
