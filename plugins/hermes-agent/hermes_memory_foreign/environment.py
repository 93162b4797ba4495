"""The surroundings of a provider written for Hermes Agent: its home, its session, the stored sessions, and its warnings.

The home is known by context, by process, and in the environment variables.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import logging
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from hermes_core import HermesHome
from hermes_core.config import Credentials
from hermes_core.contract.values import LOCAL_PLATFORMS, Session
from hermes_core.errors import CredentialError

logger = logging.getLogger(__name__)

_override: contextvars.ContextVar[str | None] = contextvars.ContextVar("hermes_home_override", default=None)
_session: contextvars.ContextVar[Session | None] = contextvars.ContextVar("hermes_session", default=None)
# Threads that a provider starts itself have no context of ours. They get the home of the provider that was
# loaded last.
_last_home: list[str] = []
# Weak, so that a closed memory does not have to take its sessions back.
_sessions: MutableMapping[str, Any] = weakref.WeakValueDictionary()
# By home, in the order in which they came up; a dict, because a set has no order.
_warnings: dict[str, dict[str, None]] = {}


def get_hermes_home() -> Path:
    """Return the home of the current call, else of the provider that was loaded last, else HERMES_HOME."""
    overridden = _override.get()
    if overridden:
        return Path(overridden)
    return Path(_last_home[-1]) if _last_home else HermesHome.resolve().path


def set_hermes_home_override(path: str | os.PathLike[str] | None) -> contextvars.Token[str | None]:
    """Let `get_hermes_home` return `path` in this context. `reset_hermes_home_override` takes the token."""
    return _override.set(None if path is None else os.fspath(path))


def reset_hermes_home_override(token: contextvars.Token[str | None]) -> None:
    """Undo `set_hermes_home_override`."""
    _override.reset(token)


def current_session() -> Session | None:
    """Return the session of the provider call that runs now, None outside such a call."""
    return _session.get()


def described_session(session: Session) -> Session:
    """Return the session as Hermes Agent would describe it, so that no user gets the memory of the person at home.

    Hermes Agent names no user on the command line, and some providers refuse one there. So the person at home speaks
    there from wherever they write, and a user who is named on a platform of the machine speaks over its API. A chat
    without users is a user, because many providers keep memories apart by the user's id alone.
    """
    if session.is_owner:
        outside = (
            "user_id",
            "user_id_alt",
            "user_name",
            "chat_id",
            "chat_name",
            "chat_type",
            "thread_id",
            "gateway_session_key",
        )
        return dataclasses.replace(session, platform="cli", **dict.fromkeys(outside, ""))  # type: ignore[arg-type]
    if not session.owner:
        return session
    platform = "api" if session.platform in LOCAL_PLATFORMS else session.platform
    return dataclasses.replace(session, platform=platform, user_id=session.user_id or session.owner)


def lend_sessions(home: Path, sessions: Any) -> None:
    """Let providers of this home read the stored sessions, as long as somebody else holds `sessions`."""
    _sessions[str(home)] = sessions


def lent_sessions(home: Path) -> Any:
    """Return the session store that was lent for this home, None if there is none or it is gone."""
    return _sessions.get(str(home))


def warn_once(warning: str, home: Path | None = None) -> None:
    """Log a warning about a provider, and keep it for `provider_warnings`. A repeated warning does nothing.

    Args:
        home: The home whose provider it is about; by default the home of the current call.
    """
    known = _warnings.setdefault(str(home or get_hermes_home()), {})
    if warning not in known:
        known[warning] = None
        logger.warning("%s", warning)


def provider_warnings(home: Path) -> tuple[str, ...]:
    """Return what `warn_once` has logged for providers of this home."""
    return tuple(_warnings.get(str(home), ()))


class _Environment:
    """HERMES_HOME and the secrets of `.env` in the process environment, for providers that read them there.

    All homes share one environment. A call that loads or starts a provider has it for its own home while the call lasts.
    Otherwise it belongs to the home whose provider became active first, until that provider is shut down. In the end
    every variable is restored, unless other code has changed it meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Path] = []
        self._active: list[Path] = []
        self._original: dict[str, str | None] = {}
        self._assigned: dict[str, str] = {}

    def enter(self, path: Path) -> None:
        with self._lock:
            self._calls.append(path)
            self._apply()

    def leave(self, path: Path) -> None:
        with self._lock:
            # Calls of several threads end in any order; the last entry of this home is the right one to remove.
            last = len(self._calls) - 1 - self._calls[::-1].index(path)
            del self._calls[last]
            self._apply()

    def hold(self, path: Path) -> Path:
        """Keep the environment for an active provider of this home. Return the home that has it."""
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
        """Restore the variables that were assigned, then assign those of the home whose turn it is."""
        for name, value in self._assigned.items():
            if os.environ.get(name) != value:
                continue  # other code has changed it
            original = self._original[name]
            if original is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = original
        self._assigned, self._original = {}, {}
        Credentials.lent.clear()
        path = self._calls[-1] if self._calls else self._active[0] if self._active else None
        if path is None:
            return
        self._assigned = {**_secrets(path, os.environ), "HERMES_HOME": str(path)}
        self._original = {name: os.environ.get(name) for name in self._assigned}
        Credentials.lent.update(
            {name: value for name, value in self._assigned.items() if name != "HERMES_HOME"}
        )
        os.environ.update(self._assigned)


def _secrets(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that `.env` adds. If it can't be read, return none: status and doctor report that."""
    try:
        return Credentials(HermesHome(home), environment).for_environment()
    except CredentialError as exc:
        logger.warning("the secrets of %s are not given to the provider: %s", home, exc)
        return {}


_environment = _Environment()


@contextlib.contextmanager
def call_in(home: Path, session: Session | None = None) -> Iterator[None]:
    """Let `get_hermes_home` and `current_session` return these while a call of a provider lasts."""
    token, session_token = set_hermes_home_override(home), _session.set(session)
    try:
        yield
    finally:
        _session.reset(session_token)
        reset_hermes_home_override(token)


@contextlib.contextmanager
def environment_of(home: Path) -> Iterator[None]:
    """Do the same as `call_in`, and set HERMES_HOME and the secrets of `.env`, while a provider is loaded or started."""
    _last_home[:] = [str(home)]
    _environment.enter(home)
    try:
        with call_in(home):
            yield
    finally:
        _environment.leave(home)


def hold_environment(home: Path, name: str) -> None:
    """Keep HERMES_HOME and the secrets of this home in the environment until `release_environment`.

    If a provider of another home is active in the process, the environment stays with that home; this is logged with
    the provider's `name`.
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
    """Undo one `hold_environment`."""
    _environment.release(home)
