"""For which provider completed turns are meant: one that is off while they are said does not get them later."""

from __future__ import annotations

import json
from collections.abc import Callable

from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.records import CompletedTurn

_KEY = "recipients_of_turns"
"""Key in state_meta: the first turn's key and the provider's name of each stretch of turns, as JSON."""


def note(sessions: SessionDB, provider: str) -> None:
    """From the next turn on they are meant for this provider; "" for none."""
    stretches = _stretches(sessions)
    if not stretches or stretches[-1][1] != provider:
        stretches.append((sessions.last_turn_key() + 1, provider))
        sessions.set_meta(_KEY, json.dumps(stretches))


def meant_for(sessions: SessionDB, provider: str) -> Callable[[CompletedTurn], bool]:
    """Whether a turn is meant for this provider; one of which nothing was noted is."""
    stretches = _stretches(sessions)

    def meant(turn: CompletedTurn) -> bool:
        names = [name for first, name in stretches if first <= turn.key]
        return not names or names[-1] == provider

    return meant


def _stretches(sessions: SessionDB) -> list[tuple[int, str]]:
    return [(first, name) for first, name in json.loads(sessions.get_meta(_KEY) or "[]")]
