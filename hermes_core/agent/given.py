"""What a host gives an agent or a model, looked at before anything begins: what is of another kind is an error that says
what to give, and not one of Python's in the midst of a turn.
"""

from __future__ import annotations

import math
from typing import Any

from hermes_core.errors import ConfigError, SessionError

Kind = type | tuple[type, ...]


def require(name: str, value: object, kind: Kind, instead: str) -> None:
    """Raises `ConfigError` for a value that is of another kind."""
    if not isinstance(value, kind):
        raise refused(name, value, instead)


def require_function(name: str, value: object) -> None:
    """Raises `ConfigError` for what can't be called."""
    if not callable(value):
        raise refused(name, value, "a function")


def require_number(name: str, value: Any, kind: Kind, least: float) -> None:
    """Raises `ConfigError` for what is no number of this kind, or less than the `least`."""
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or not least <= value < math.inf:
        raise refused(name, value, f"a number of {least} or more")


def refused(name: str, value: object, instead: str) -> ConfigError:
    """The error for what was given as `name`."""
    return ConfigError(f"{name} is {repr(value)[:200]}", f"give {instead}")


def id_of(given: object) -> str:
    """A session's id, which hosts also have as a number. Raises `SessionError` for what is none."""
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise SessionError(f"a {type(given).__name__} is no id", "give session.id")
    return str(given)
