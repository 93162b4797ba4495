"""Checks of the values that a host passes to an agent or a model.

A value of the wrong kind raises an error when the host makes the object, with advice what to pass instead. Otherwise it
would raise a TypeError in the middle of a turn.
"""

from __future__ import annotations

import math
from typing import Any

from hermes_core.errors import ConfigError, SessionError

Kind = type | tuple[type, ...]


def require(name: str, value: object, kind: Kind, instead: str) -> None:
    """Raise `ConfigError` if the argument `name` has a value of another type than `kind`; `instead` is advice."""
    if not isinstance(value, kind):
        raise refused(name, value, instead)


def require_function(name: str, value: object) -> None:
    """Raise `ConfigError` if the argument `name` has a value that is not callable."""
    if not callable(value):
        raise refused(name, value, "a function")


def require_number(name: str, value: Any, kind: Kind, minimum: float) -> None:
    """Raise `ConfigError` if the argument `name` is not a finite number of type `kind`, or is below `minimum`."""
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or not minimum <= value < math.inf:
        raise refused(name, value, f"a number of {minimum} or more")


def refused(name: str, value: object, instead: str) -> ConfigError:
    """Return the `ConfigError` for the argument `name`; `instead` says what to pass instead."""
    return ConfigError(f"{name} is {repr(value)[:200]}", f"give {instead}")


def session_id_of(value: object) -> str:
    """Return a session id as text. Some hosts use numbers. Raise `SessionError` if `value` is no text and no int."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise SessionError(
            f"a session id must be a str or an int, got {type(value).__name__}", "give session.id"
        )
    return str(value)
