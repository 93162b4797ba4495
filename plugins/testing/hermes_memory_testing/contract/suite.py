"""A provider under the real manager, in a home of its own: what every check of the contract drives."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

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
from hermes_memory_testing.guards import shared_state, with_changes_since
from hermes_memory_testing.pytest_plugin import CHECK, FIX, NOT_CLAIMED, NOT_RUN, SCALE

if TYPE_CHECKING:
    from hermes_core.manager.call import CallResult
    from hermes_core.manager.manager import ProviderHealth


LATE_START = "initialize has run for"
"""What the manager says of a provider that is still starting."""

NO_ANSWER = "no answer within"
"""What the manager says of a call that is late."""

SHORT_DEADLINE_S = 0.25
"""Deadline of a hook that has hung in an earlier check: it was waited for once."""

HUNG_CLOSE_S = 0.3
"""Seconds for the end of a process in which a hook hangs."""

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
        """Move the clock `seconds` ahead."""
        self._ahead += seconds


class Run:
    """One manager and the provider that it holds, from the start to the end of a process.

    `make` gives a new provider each time. `deadlines` are seconds by hook name. `hung` has the hooks that hung in an
    earlier run, each with the deadline that it passed: they are not called again where the check can do without them.
    """

    def __init__(
        self,
        make: Callable[[], object],
        home: HermesHome,
        deadlines: Mapping[str, float],
        hung: Mapping[str, float],
    ) -> None:
        self.home = home
        self.deadlines = deadlines
        self._hung_before = dict(hung)
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
        """Return the manager's view of the provider."""
        return self.manager.health()[0]

    @property
    def name(self) -> str:
        """Return the name that the manager uses."""
        return self.health.name

    @property
    def hung(self) -> str:
        """The hook whose last call passed its deadline without an answer; "" if there is none."""
        health = self.health
        if LATE_START in health.reason:
            return "initialize"
        for text in (health.last_error, health.reason, *health.warnings):
            if NO_ANSWER in text:
                hook = next((hook for hook in POLICIES if f"{hook}:" in text), "")
                return hook or ("initialize" if "constructed" in text else "")
        return ""

    def claims(self, hook: str) -> bool:
        """Return True if the provider implements `hook`."""
        return callable(getattr(self.provider, hook, None))

    # --------------------------------------------------------------------- life

    def session(self, id: str = "s1", **identity: Any) -> Session:  # noqa: A002  the field's name
        """A session of a person in this home."""
        return Session(id, **{"home": str(self.home.path), **identity})

    def start(self, session: Session) -> str:
        """Make the provider ready for a session; why it is not, "" when it is, also while it has writes to catch up with."""
        if not self.accepted:
            return f"it is not accepted: {self.health.reason}"
        if "initialize" in self._hung_before:
            return f"{LATE_START} {self._hung_before['initialize']:g} s in an earlier check"
        self.manager.initialize_all(session)
        health = self.health
        catching_up = health.state == "degraded" and health.depth
        return "" if health.state == "active" or catching_up else health.reason

    def ready(self, session: Session) -> Session:
        """Start `session` and return it. Skip the check if the provider does not start, which another check covers."""
        trouble = self.start(session)
        if trouble:
            pytest.skip(f"{NOT_RUN}{trouble}")
        return session

    def ask(self, hook: str, **arguments: Any) -> CallResult:
        """Call one hook through the manager, with its deadline. Skip the check if the hook hung in an earlier one."""
        if hook in self._hung_before:
            pytest.skip(f"{NOT_RUN}{self.hung_before(hook)}")
        return self.manager.ask(self.name, hook, **arguments)

    def hung_before(self, hook: str) -> str:
        """Say that `hook` hung in an earlier check; "" if it did not."""
        deadline = self._hung_before.get(hook)
        return "" if deadline is None else f"{hook}() gave {NO_ANSWER} {deadline:g} s in an earlier check"

    def need(self, hook: str, **arguments: Any) -> Any:
        """Return the result of `hook`. Skip the check if the hook does not work, which another check covers."""
        outcome = self.ask(hook, **arguments)
        if not outcome.ok:
            pytest.skip(f"{NOT_RUN}{hook}() {outcome.status}: {outcome.error}")
        return outcome.value

    def close(self, timeout: float = 5.0) -> None:
        """End the process, as far as the provider can tell."""
        self._ended = True
        self.manager.shutdown_all(timeout)

    def discard(self) -> None:
        """End it without waiting for writes that the provider does not take, nor long for a hook that hangs."""
        if self._ended:
            return
        timeout = HUNG_CLOSE_S if self.hung else 5.0
        outbox = self.manager.outbox
        if outbox.exists:
            outbox.drop([row.number for row in outbox.pending(self.name)])
        self.close(timeout)

    # ------------------------------------------------------------------- writes

    def delivered(self) -> str:
        """Wait until the provider took all writes; what went wrong with the first that it did not take, else ""."""
        longest = max(self.deadlines[hook] for hook, policy in POLICIES.items() if policy.durable)
        # The slowest hook may use its whole deadline, and 5 s are for the way to it on a busy machine.
        until = time.monotonic() + longest + 5.0
        outbox = self.manager.outbox
        while waiting := [*outbox.dead_letters(self.name), *outbox.pending(self.name)]:
            failed = next((row for row in waiting if row.error), None)
            if failed is not None:
                how = "is late" if failed.error.startswith("in doubt") else "failed"
                return f"{failed.hook}() {how}: {failed.error}"
            if time.monotonic() > until:
                return f"{waiting[0].hook}() is not delivered: {self.health.reason}"
            # Short, so that a row that failed is seen before its next try.
            self.manager.flush(0.05)
        return ""

    def store(self, fact: Fact, session: Session, way: str = "", *, turn_id: str = "") -> None:
        """Give the provider a fact by one of `WAYS`, or by all that it has; wait until it took it."""
        for each in [way] if way else [w for w in WAYS if self.claims(w)]:
            if hung := self.hung_before(each):
                pytest.skip(f"{NOT_RUN}{hung}")
            WAYS[each](self, fact, session, turn_id)
        trouble = self.delivered()
        if trouble:
            pytest.skip(f"{NOT_RUN}{trouble}")

    def turn(self, fact: Fact, session: Session, turn_id: str = "") -> Turn:
        """A completed turn in which the person says the fact; stored durably when this returns."""
        turn = completed_turn(fact.said, turn_id)
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
        switch = SessionSwitch(uuid.uuid4().hex, old, new, reason, reset=reset, rewound_turns=tuple(turns))
        self.manager.on_session_switch(switch)

    # ------------------------------------------------------------------- recall

    def recall(self, question: str, session: Session, budget: int = WIDE_BUDGET) -> Recall:
        """Return the recall of a turn with this question. Skip the check if recall fails, which another check covers."""
        self.ready(session)
        if hung := self.hung_before("prefetch"):
            pytest.skip(f"{NOT_RUN}{hung}")
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
        """Count the fact in the recall of a later session of the same person, or else of its own session."""
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


def completed_turn(said: str, turn_id: str = "") -> Turn:
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


_PERSON = ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA")
_XDG = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")


class Suite:
    """The author's description of a provider. Only `make_provider` must be written."""

    name: ClassVar[str] = ""
    """The provider's name; needed when there are `settings`, which go into `$HERMES_HOME/<name>.json`."""

    secrets: ClassVar[Mapping[str, str]] = {}
    """Environment variables that the provider needs, for the `.env` of each test's home."""

    deadlines: ClassVar[Mapping[str, float]] = {}
    """Seconds by hook, in place of the policy's."""

    recalled_from: ClassVar[Collection[str] | None] = None
    """Those of `sync_turn`, `on_memory_write` and `on_session_end` after which a fact must be recalled word for word.
    None: one of them at least must be, and each that is seen to be is held to the other checks."""

    patience: ClassVar[float] = 2.0
    """Seconds that threads, files and sockets have to go away after shutdown."""

    exactly_once: ClassVar[bool] = True
    """True if a turn that is sent again after its answer was lost is kept once. Set False if the backend offers neither a
    key nor a look-up, and say so in the provider's documentation."""

    isolates_users: ClassVar[bool] = False
    """True if two users of one home have memories of their own."""

    distribution: ClassVar[str] = ""
    """Name of the distribution, when it can't be told from the provider's module."""

    foreign: ClassVar[bool] = False
    """True for a provider of Hermes Agent, whose contract has no budgets, no ids and no settings of ours."""

    home: HermesHome
    """The home of the running test; HERMES_HOME is set to it."""

    _first: ClassVar[Mapping[str, str]]
    """State of the process before the first test of this class. Later tests set the same state again."""

    _last: ClassVar[Mapping[str, str]]
    """State of the process after the latest test of this class."""

    _hung: ClassVar[dict[str, float]]
    """Hooks that hung in an earlier check of this class, each with the deadline that it passed. No other check waits for
    them so long."""

    def __init_subclass__(cls) -> None:
        """Refuse claims on what there is not: what they are about would silently go unchecked."""
        super().__init_subclass__()
        for claim, known in (("recalled_from", WAYS), ("deadlines", POLICIES)):
            for name in vars(cls).get(claim) or ():
                if name not in known:
                    raise pytest.UsageError(f"{cls.__name__}.{claim}: {name!r} is none of {', '.join(known)}")

    # ----------------------------------------------------------------- override

    def make_provider(self) -> object:
        """Return a new provider, as the entry point would make it. Called more than once in a test."""
        raise NotImplementedError("write make_provider() in your subclass of ProviderContract")

    def make_in(self, home: HermesHome) -> object:  # noqa: ARG002  for those who override it
        """Return a new provider for this home. Override it when the home must be known before `initialize`."""
        return self.make_provider()

    def label(self) -> str:
        """Return the provider's name in the table."""
        return type(self).__name__

    def eventually(self, seen: Callable[[], bool]) -> bool:
        """Return True once `seen()` is true. Override it to wait, if the backend is not consistent at once."""
        return seen()

    def outage(self) -> AbstractContextManager[object] | None:
        """A context in which the backend is down; None when there is no backend, or it can't be stopped."""
        return None

    def lost_answers(self) -> AbstractContextManager[object] | None:
        """A context in which the backend takes what it is sent and the answer never arrives; None when it has none."""
        return None

    def received(self) -> Sequence[str] | None:
        """Return the person's texts of all turns that the backend has, in order of arrival and with repeats.

        Return None if the backend can't tell.
        """
        return None

    @pytest.fixture
    def backend(self) -> Any:
        """Provide what must run beside the provider, such as a stand-in server. Override it as a fixture."""
        return None

    @pytest.fixture
    def settings(self, backend: Any) -> Mapping[str, Any]:  # noqa: ARG002  asked for, so that it runs
        """Return values for the provider's settings file. Override it as a fixture; it may ask for `backend`."""
        return {}

    # ----------------------------------------------------------------- fixtures

    @pytest.fixture(autouse=True)
    def _contract(
        self,
        request: pytest.FixtureRequest,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        settings: Mapping[str, Any],
    ) -> Iterator[None]:
        """A person, a folder and a home of the test's own; what was opened is closed in the end."""
        self._request = request
        self._settings = settings
        self._runs: list[Run] = []
        if "_hung" not in vars(type(self)):
            type(self)._hung = {}
        request.node.user_properties.append((CHECK, [self.label(), *_described(request)]))
        self.person, self.folder = tmp_path / "person", tmp_path / "folder"
        for folder in (self.person, self.folder):
            folder.mkdir()
        for name in _PERSON:
            monkeypatch.setenv(name, str(self.person))
        # With these set, a provider would find the files of the person who runs the tests.
        for name in (*_XDG, "HERMES_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        # A provider that writes into the working folder is found there, and the repository stays clean.
        monkeypatch.chdir(self.folder)
        monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
        self.home = HermesHome(tmp_path / "home")
        self.furnish(self.home, settings)
        if "_first" not in vars(type(self)):
            type(self)._first = type(self)._last = shared_state()
        # Other tests may run between two of this class, and what they change is not the provider's.
        type(self)._first = with_changes_since(self._last, self._first)
        yield
        for run in self._runs:
            if hook := run.hung:
                self._hung.setdefault(hook, run.deadlines[hook])
            run.discard()
        type(self)._last = shared_state()

    def furnish(self, home: HermesHome, settings: Mapping[str, Any]) -> None:
        """Make a home and put settings and secrets in it."""
        home.path.mkdir()
        if self.secrets:
            text = "".join(f"{name}='{value}'\n" for name, value in self.secrets.items())
            home.env_file.write_text(text, encoding="utf-8")
            home.env_file.chmod(0o600)
        if settings:
            if not self.name:
                raise pytest.UsageError(
                    f"{type(self).__name__} has settings and no name; set name = '...', the provider's own, "
                    "so that they can be put into its file"
                )
            home.provider_json(self.name).write_text(json.dumps(dict(settings)), encoding="utf-8")

    # --------------------------------------------------------------------- runs

    @property
    def run(self) -> Run:
        """The manager of this test and the provider in it; opened when it is first asked for."""
        return self._runs[0] if self._runs else self.open()

    def open(self, home: HermesHome | None = None) -> Run:
        """Open another manager with another provider, which is another process as far as the provider can tell."""
        scale = float(self._request.config.getoption(SCALE, 1.0))
        deadlines = {hook: policy.deadline * scale for hook, policy in POLICIES.items()}
        where = home or self.home
        deadlines |= self.deadlines
        for hook in self._hung:
            deadlines[hook] = min(deadlines[hook], SHORT_DEADLINE_S)
        run = Run(lambda: self.make_in(where), where, deadlines, self._hung)
        self._runs.append(run)
        return run

    def started(self, *hooks: str, **identity: Any) -> Session:
        """A session of the running provider, which must implement `hooks`."""
        for hook in hooks:
            if self.run.provider is not None and not self.run.claims(hook):
                self.not_claimed(f"{hook}()")
        for hook in hooks:
            if hung := self.run.hung_before(hook):
                self.not_run(hung)
        return self.run.ready(self.run.session(**identity))

    def learned(self, fact: Fact, session: Session, way: str) -> bool:
        """Store `fact` in the running provider by `way` and say whether it is recalled."""
        self.run.store(fact, session, way)
        return self.eventually(lambda: self.run.recalled(fact, session) > 0)

    def settled(self, session: Session, way: str) -> None:
        """Wait until what was stored by `way` has arrived, also in a backend that is not consistent at once."""
        self.learned(BOATHOUSE, session, way)

    def kept(self, fact: Fact) -> bool:
        """Return True if the backend has a turn in which `fact` was said, or can't tell."""
        got = self.received()
        return got is None or fact.said in got

    def observable(self, fact: Fact, session: Session) -> str:
        """A way by which `fact` was now stored and is recalled; without one the check has nothing to look at."""
        for way in WAYS:
            if self.run.claims(way) and self.learned(fact, session, way):
                return way
        return self.not_claimed("what is stored is not recalled word for word")

    def need_delivered(self) -> None:
        """Wait until the running provider took all writes. One that it does not take is another check's finding."""
        trouble = self.run.delivered()
        if trouble:
            self.not_run(trouble)

    # ----------------------------------------------------------------- findings

    def fault(self, problem: str, remedy: str) -> NoReturn:
        """The provider breaks the contract: `problem` says how, `remedy` what to do."""
        __tracebackhide__ = True
        self._request.node.user_properties.append((FIX, [problem, remedy]))
        pytest.fail(f"{problem}\nto fix: {remedy}", pytrace=False)

    def not_claimed(self, what: str) -> NoReturn:
        """The provider does not do what this check is about."""
        pytest.skip(f"{NOT_CLAIMED}{what}")

    def not_run(self, why: str) -> NoReturn:
        """The check can't tell, because of something that is another check's finding."""
        pytest.skip(f"{NOT_RUN}{why}")


def _described(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Group and title of a check: the class that defines it first, and its name as words."""
    check = request.node.originalname
    group = next(base for base in reversed(request.cls.__mro__) if check in vars(base))
    title = str(request.node.name).removeprefix("test_").replace("_", " ")
    return group.__name__.removesuffix("Checks").lower(), title
