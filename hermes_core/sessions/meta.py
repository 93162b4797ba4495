"""Values kept beside the sessions, in `state_meta`: text that a disk, a rescue or a hand may have damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from hermes_core.sessions.records import storable

log = logging.getLogger(__name__)

Value = TypeVar("Value")

OF_A_SESSION = ("cadence", "fullness", "left_out", "flushed", "reviewed")
"""What agents keep with a session; it goes with it."""


def key_of(what: str, session_id: str) -> str:
    """The key under which one of these is kept."""
    return f"{what}:{storable(session_id)}"


def read_meta(key: str, text: str | None, read: Callable[[str], Value], without: Value) -> Value:
    """What `read` makes of the text kept under `key`; `without` it where there is none or it is damaged, which is logged."""
    if text is None:
        return without
    try:
        return read(text)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as exc:
        log.error("%r in state.db can't be read and is begun anew: %s", key, exc)
        return without
