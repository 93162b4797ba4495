"""Turns that a kill kept from the provider: stored whole in state.db, and not in the outbox yet."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hermes_core.contract.values import Session
from hermes_core.manager.manager import MemoryManager
from hermes_core.sessions import recipients
from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.records import CompletedTurn


def missing_turns(
    sessions: SessionDB,
    manager: MemoryManager,
    provider: str,
    *,
    since: int = 0,
    session_id: str | None = None,
) -> Iterator[CompletedTurn]:
    """Those that were meant for this provider, with a key higher than `since`, oldest first."""
    turns = sessions.complete_turns(
        since,
        session_id=session_id,
        stored_after=manager.recover_since(),
        unless=partial(manager.outbox.knows, provider, "sync_turn"),
    )
    return filter(recipients.meant_for(sessions, provider), turns)


def recover(sessions: SessionDB, manager: MemoryManager, provider: str) -> None:
    """Hand them to the provider.

    The key up to which that is known is kept for each provider; one that is new here starts with the next turn.
    """
    mark, newest = f"handed:{provider}", sessions.last_turn_key()
    handed = sessions.get_meta(mark)
    if handed is not None and int(handed) < newest:
        missing = missing_turns(sessions, manager, provider, since=int(handed))
        manager.recover((one.turn, Session.from_dict(one.identity)) for one in missing if one.identity)
    if handed != str(newest):
        sessions.set_meta(mark, str(newest))
