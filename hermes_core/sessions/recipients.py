"""For whom completed turns are meant: neither a provider that is off while they are said nor another account gets them later."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.records import CompletedTurn

_KEY = "recipients_of_turns"
"""Key in state_meta: the first turn's key, the provider's name and its account of each stretch of turns, as JSON."""


class Recipient(NamedTuple):
    """A provider, "" for none, and the fingerprint of its account; None where nothing was noted."""

    provider: str | None = None
    account: str | None = None


def note(sessions: SessionDB, provider: str, account: str | None) -> None:
    """From the next turn on they are meant for this provider and this account."""
    stretches = _stretches(sessions)
    meant = Recipient(provider, account)
    if not stretches or stretches[-1][1] != meant:
        told = [(first, *one) for first, one in [*stretches, (sessions.last_turn_key() + 1, meant)]]
        sessions.set_meta(_KEY, json.dumps(told))


def recipient_of(sessions: SessionDB) -> Callable[[CompletedTurn], Recipient]:
    """For whom a turn is meant."""
    stretches = _stretches(sessions)

    def meant(turn: CompletedTurn) -> Recipient:
        found = [one for first, one in stretches if first <= turn.key]
        return found[-1] if found else Recipient()

    return meant


def _stretches(sessions: SessionDB) -> list[tuple[int, Recipient]]:
    return [(first, Recipient(*one)) for first, *one in json.loads(sessions.get_meta(_KEY) or "[]")]
