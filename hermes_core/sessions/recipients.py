"""For whom completed turns are meant: neither a provider that is off while they are said nor another account gets them later."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.records import CompletedTurn, read_meta

_PROVIDERS, _ACCOUNTS = "recipients_of_turns", "accounts_of_turns"
"""Keys in state_meta: the first turn's key and the name, or the account, of each stretch of turns, as JSON."""

MOST = 500
"""Stretches that are kept: two processes with different settings begin one with every other turn."""

Stretches = list[tuple[int, str | None]]


class Recipient(NamedTuple):
    """A provider, "" for none, and the fingerprint of its account; None where nothing was noted."""

    provider: str | None
    account: str | None


def note(sessions: SessionDB, provider: str, account: str | None) -> None:
    """From the next turn on they are meant for this provider and this account."""
    for key, value in ((_PROVIDERS, provider), (_ACCOUNTS, account)):
        stretches = _stretches(sessions, key)
        if not stretches or stretches[-1][1] != value:
            stretches.append((sessions.last_turn_key() + 1, value))
            sessions.set_meta(key, json.dumps(stretches[-MOST:]))


def recipient_of(sessions: SessionDB) -> Callable[[CompletedTurn], Recipient]:
    """For whom a turn is meant."""
    providers, accounts = _stretches(sessions, _PROVIDERS), _stretches(sessions, _ACCOUNTS)
    return lambda turn: Recipient(_at(providers, turn.key), _at(accounts, turn.key))


def providers_of(sessions: SessionDB, turn_ids: Sequence[str]) -> dict[str, str | None]:
    """The providers that any of these turns were meant for, each with its account then."""
    providers, accounts = _stretches(sessions, _PROVIDERS), _stretches(sessions, _ACCOUNTS)
    keys = sessions.keys_of_turns(turn_ids)
    return {provider: _at(accounts, key) for key in keys if (provider := _at(providers, key))}


def _at(stretches: Stretches, key: int) -> str | None:
    found = [value for first, value in stretches if first <= key]
    return found[-1] if found else None


def _stretches(sessions: SessionDB, key: str) -> Stretches:
    text = sessions.get_meta(key)
    return [] if text is None else read_meta(key, text, _parsed, [(0, "")])  # damaged: for nobody so far


def _parsed(text: str) -> Stretches:
    return [(int(first), value) for first, value in json.loads(text)]
