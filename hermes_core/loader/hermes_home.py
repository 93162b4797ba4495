"""Where a provider written for Hermes Agent is told that its home is: by context, by process, and by environment."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from hermes_core.config import LENT, Credentials
from hermes_core.errors import CredentialError
from hermes_core.home import HermesHome

logger = logging.getLogger(__name__)

_override: contextvars.ContextVar[str | None] = contextvars.ContextVar("hermes_home_override", default=None)
_last_home: list[str] = []
"""Home of the provider loaded last: what threads without a context of ours are told."""


def get_hermes_home() -> Path:
    """The home that the running call belongs to, else that of the provider loaded last, else HERMES_HOME."""
    overridden = _override.get()
    if overridden:
        return Path(overridden)
    return Path(_last_home[-1]) if _last_home else HermesHome.resolve().path


def set_hermes_home_override(path: str | os.PathLike[str] | None) -> contextvars.Token[str | None]:
    """Let `get_hermes_home` answer this path in the running context; the token goes back to `reset_...`."""
    return _override.set(None if path is None else os.fspath(path))


def reset_hermes_home_override(token: contextvars.Token[str | None]) -> None:
    """Undo `set_hermes_home_override`."""
    _override.reset(token)


class _Environment:
    """HERMES_HOME and the home's `.env` in the process, for providers that read them directly.

    There is one environment for all. A call that loads or starts a provider has it for its own home while it lasts;
    beneath, it belongs to the home whose provider became active first, until that one is shut down. At last it is what
    it was before, but for what somebody else has changed meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Path] = []
        self._active: list[Path] = []
        self._before: dict[str, str | None] = {}
        self._given: dict[str, str] = {}

    def enter(self, path: Path) -> None:
        with self._lock:
            self._calls.append(path)
            self._apply()

    def leave(self, path: Path) -> None:
        with self._lock:
            self._calls.reverse()
            self._calls.remove(path)
            self._calls.reverse()
            self._apply()

    def hold(self, path: Path) -> Path:
        """Keep it for a provider of this home that is active now; the home that has it."""
        with self._lock:
            self._active.append(path)
            self._apply()
            return self._active[0]

    def release(self, path: Path) -> None:
        with self._lock:
            if path in self._active:
                self._active.remove(path)
                self._apply()

    def _apply(self) -> None:
        """Put back what was given, then give what the home in turn has."""
        for name, value in self._given.items():
            if os.environ.get(name) == value:
                _set(name, self._before[name])
        self._given, self._before = {}, {}
        LENT.clear()
        path = self._calls[-1] if self._calls else self._active[0] if self._active else None
        if path is None:
            return
        self._given = {**_secrets(path, os.environ), "HERMES_HOME": str(path)}
        self._before = {name: os.environ.get(name) for name in self._given}
        LENT.update({name: value for name, value in self._given.items() if name != "HERMES_HOME"})
        os.environ.update(self._given)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _secrets(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What `.env` adds to the environment; nothing when it can't be read, which status and doctor tell."""
    try:
        return Credentials(HermesHome(home), environment).for_environment()
    except CredentialError as exc:
        logger.warning("the secrets of %s are not given to the provider: %s", home, exc)
        return {}


_environment = _Environment()


@contextlib.contextmanager
def call_in(home: Path) -> Iterator[None]:
    """Run a call of a provider so that `get_hermes_home` answers this home."""
    token = set_hermes_home_override(home)
    try:
        yield
    finally:
        reset_hermes_home_override(token)


@contextlib.contextmanager
def environment_of(home: Path) -> Iterator[None]:
    """Load or start a provider: as `call_in`, and the environment has HERMES_HOME and the secrets of `.env`, because
    these providers read it directly."""
    _last_home[:] = [str(home)]
    _environment.enter(home)
    try:
        with call_in(home):
            yield
    finally:
        _environment.leave(home)


def hold_environment(home: Path, name: str) -> None:
    """Keep HERMES_HOME and `.env` of this home in the environment for the life of the provider called `name`.

    When a provider of another home is active in the process, the environment stays that one's, and this is logged.
    """
    owner = _environment.hold(home)
    if owner != home:
        logger.warning(
            "HERMES_HOME stays %s, where a provider is active too: %r of %s may use the wrong one; run it in a process "
            "of its own",
            owner,
            name,
            home,
        )


def release_environment(home: Path) -> None:
    """The end of one `hold_environment`."""
    _environment.release(home)
