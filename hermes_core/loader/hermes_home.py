"""Where a provider written for Hermes Agent is told that its home is: by context, by process, and by environment."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from hermes_core.credentials import Credentials
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
    """HERMES_HOME and the home's `.env` in the process while calls need them; put back when the last of them returns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._before: dict[str, str | None] = {}

    def enter(self, path: Path) -> None:
        with self._lock:
            self._depth += 1
            given = {**_secrets(path, self._untouched()), "HERMES_HOME": str(path)}
            for name, value in given.items():
                self._before.setdefault(name, os.environ.get(name))
                os.environ[name] = value

    def _untouched(self) -> dict[str, str]:
        """The environment without what other calls have put there: one home's secrets are not another's."""
        before = {name: value for name, value in self._before.items() if value is not None}
        return {name: value for name, value in os.environ.items() if name not in self._before} | before

    def leave(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth:
                return
            for name, value in self._before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            self._before.clear()


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
        _environment.leave()
