"""The foundation of the checks: what an author overrides, the fixtures, and how a finding is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest

from hermes_core import HermesHome, Session
from hermes_core.contract.hooks import POLICIES
from hermes_core.testing.contract.run import BOATHOUSE, WAYS, Fact, Run
from hermes_core.testing.guards import shared_state
from hermes_core.testing.report import CHECK, FIX, NOT_CLAIMED, NOT_RUN, SCALE

_PERSON = ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA")
_XDG = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")


class Suite:
    """What an author says about the provider. Only `make_provider` has to be written."""

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
    """Whether a turn that is sent again after its answer was lost is kept once. False, where the backend offers neither
    a key nor a look-up; say so in the provider's documentation."""

    isolates_users: ClassVar[bool] = False
    """Whether two users of one home have memories of their own."""

    distribution: ClassVar[str] = ""
    """Name of the distribution, when it can't be told from the provider's module."""

    foreign: ClassVar[bool] = False
    """Whether it is written for Hermes Agent, whose contract has no budgets, no ids and no settings of ours."""

    home: HermesHome
    """The home of the running test; HERMES_HOME is set to it."""

    _first: ClassVar[Mapping[str, str]]
    """What the process shares, before the first test of this class: whatever is set in each life is set from then on."""

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
        """What the table calls the provider."""
        return type(self).__name__

    def eventually(self, seen: Callable[[], bool]) -> bool:
        """Whether `seen()` comes true. A backend that is consistent at once needs one look; others override this."""
        return seen()

    def outage(self) -> AbstractContextManager[object] | None:
        """A context in which the backend is down; None when there is no backend, or it can't be stopped."""
        return None

    def lost_answers(self) -> AbstractContextManager[object] | None:
        """A context in which the backend takes what it is sent and the answer never arrives; None when it has none."""
        return None

    def received(self) -> Sequence[str] | None:
        """What the backend has of the turns: the person's texts, in the order in which they arrived, with repeats.
        None when it can't be told."""
        return None

    @pytest.fixture
    def backend(self) -> Any:
        """Whatever must run beside the provider, a stand-in server for instance. Override it as a fixture."""
        return None

    @pytest.fixture
    def settings(self, backend: Any) -> Mapping[str, Any]:  # noqa: ARG002  asked for, so that it runs
        """Values for the provider's settings file. Override it as a fixture; it may ask for `backend`."""
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
        request.node.user_properties.append((CHECK, [self.label(), *_described(request)]))
        self.person, self.folder = tmp_path / "person", tmp_path / "folder"
        for folder in (self.person, self.folder):
            folder.mkdir()
        for name in _PERSON:
            monkeypatch.setenv(name, str(self.person))
        for name in (*_XDG, "HERMES_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(self.folder)
        monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
        self.home = HermesHome(tmp_path / "home")
        self.furnish(self.home, settings)
        if "_first" not in vars(type(self)):
            type(self)._first = shared_state()
        yield
        for run in self._runs:
            run.discard()

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
        """Another process as far as the provider can tell: a new manager and a new provider."""
        scale = float(self._request.config.getoption(SCALE, 1.0))
        deadlines = {hook: policy.deadline * scale for hook, policy in POLICIES.items()}
        where = home or self.home
        run = Run(lambda: self.make_in(where), where, {**deadlines, **self.deadlines})
        self._runs.append(run)
        return run

    def started(self, *hooks: str, **identity: Any) -> Session:
        """A session of the running provider, which must implement `hooks`."""
        for hook in hooks:
            if self.run.provider is not None and not self.run.claims(hook):
                self.not_claimed(f"{hook}()")
        return self.run.ready(self.run.session(**identity))

    def learned(self, fact: Fact, session: Session, way: str) -> bool:
        """Store `fact` in the running provider by `way` and say whether it is recalled."""
        self.run.store(fact, session, way)
        return self.eventually(lambda: self.run.recalled(fact, session) > 0)

    def settled(self, session: Session, way: str) -> None:
        """Wait until what was stored by `way` has arrived, also in a backend that is not consistent at once."""
        self.learned(BOATHOUSE, session, way)

    def kept(self, fact: Fact) -> bool:
        """Whether the backend has a turn in which `fact` was said, as far as it can be told."""
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
    return group.__name__.lower(), title
