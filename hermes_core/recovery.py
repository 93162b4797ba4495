"""What a kill or a full outbox kept from the provider: turns and switches that stand in state.db, and not in the outbox."""

from __future__ import annotations

import json
import logging
import time
from itertools import groupby
from typing import Any

from hermes_core.contract.values import Session, SessionSwitch
from hermes_core.errors import StorageError
from hermes_core.manager.manager import MemoryManager
from hermes_core.manager.outbox import REMEMBERED
from hermes_core.manager.payload import plain, switch_of
from hermes_core.sessions import recipients
from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.lineage import delegated
from hermes_core.sessions.records import read_meta

log = logging.getLogger(__name__)

_OWED = "switches_to_tell"
"""Key in state_meta: switches that happened and of which the outbox may not know, as JSON."""


def recover(sessions: SessionDB, manager: MemoryManager, provider: str) -> None:
    """Hand to the provider what it was not told.

    The key up to which turns are known is kept for each provider; one that is new here starts with the next turn.
    """
    mark, newest = f"handed:{provider}", sessions.last_turn_key()
    handed = sessions.get_meta(mark)
    if handed is not None and (since := read_meta(mark, handed, int, 0)) < newest:
        recover_turns(sessions, manager, provider, since=since)
    if handed != str(newest):
        sessions.set_meta(mark, str(newest))
    recover_switches(sessions, manager, provider)


def caught_up(sessions: SessionDB, manager: MemoryManager, provider: str) -> bool:
    """`recover` before another write; False where state.db can't be read. Raises `OutboxError` where there is no room."""
    try:
        recover(sessions, manager, provider)
    except StorageError as exc:
        log.error("what the provider was not told can't be handed on: %s", exc)
        return False
    return True


def recover_turns(
    sessions: SessionDB,
    manager: MemoryManager,
    provider: str,
    *,
    since: int = 0,
    session: Session | None = None,
) -> int:
    """Hand on turns that were meant for this provider, oldest first, each for the account of its time; how many.

    Those with a key higher than `since`, of one `session` or of all that were stored with who spoke in them.
    """
    turns = sessions.complete_turns(
        since,
        session_id=session.id if session else None,
        stored_after=manager.recover_since(),
        unless=lambda turn_id: manager.outbox.knows(provider, "sync_turn", turn_id),
    )
    added = 0
    for recipient, together in groupby(turns, recipients.recipient_of(sessions)):
        if recipient.provider in (None, provider):
            # Who resumes a session may be in another place than those who spoke in it.
            said = (
                (one.turn, Session.from_dict(one.identity) if one.identity else session) for one in together
            )
            added += manager.recover(((turn, who) for turn, who in said if who), recipient.account)
    return added


def delete(sessions: SessionDB, manager: MemoryManager, session_id: str) -> None:
    """Delete a session and what it delegated, so that none of their turns is handed on, also by who stores one meanwhile."""
    with sessions.transaction():  # no turn is stored meanwhile; after a kill it can be deleted again
        for one in delegated(sessions.database, session_id):
            turns = sessions.complete_turns(session_id=one, stored_after=time.time() - REMEMBERED)
            manager.forget_session(one, [stored.turn.id for stored in turns])
        sessions.delete_session(session_id)


# ------------------------------------------------------------------- switches


def owe(sessions: SessionDB, manager: MemoryManager, provider: str, switch: SessionSwitch) -> None:
    """Note, in the transaction that changes the rows, that this provider is to be told of it, and of turns that are taken
    back each that they were meant for; then `tell`.

    Without a provider ("") only turns that were taken back are noted: one that was in use before may have them.
    """
    owed = recipients.providers_of(sessions, switch.rewound_turns)
    if provider or (switch.rewound_turns and manager.outbox.path.exists()):
        owed[provider] = manager.account(provider)
    about = {"at": time.time(), "switch": plain(switch)}
    if owed:
        new = [{"provider": name, "account": account, **about} for name, account in owed.items()]
        _keep(sessions, [*_owed(sessions), *new])


def tell(
    sessions: SessionDB, manager: MemoryManager, switch: SessionSwitch, account: str | None = None
) -> None:
    """Tell of a switch. What was owed stays so while nobody is there to hear, or the outbox takes nothing; to a provider that
    is not in use, until it is.
    """

    def settled(one: dict[str, Any]) -> bool:
        here = not one["provider"] or manager.account(one["provider"]) is not None
        return one["switch"]["id"] == switch.id and here

    if manager.on_session_switch(switch, account=account):
        with sessions.transaction():
            _keep(sessions, [one for one in _owed(sessions) if not settled(one)])


def recover_switches(sessions: SessionDB, manager: MemoryManager, provider: str) -> None:
    """Tell what is owed to this provider. Turns that were taken back are taken back wherever they may be."""
    owed = _owed(sessions)
    own = {one["switch"]["id"] for one in owed if one["provider"] == provider}
    for one in owed:
        switch, mine = switch_of(one["switch"]), one["provider"] == provider
        anyone = switch.rewound_turns and switch.id not in own
        if one["at"] >= manager.recover_since() and (mine or anyone):
            tell(sessions, manager, switch, one["account"] if mine else None)


def _owed(sessions: SessionDB) -> list[dict[str, Any]]:
    oldest = time.time() - REMEMBERED
    owed: list[dict[str, Any]] = read_meta(_OWED, sessions.get_meta(_OWED), _parsed, [])
    return [one for one in owed if one["at"] >= oldest]


def _parsed(text: str) -> list[dict[str, Any]]:
    return [
        {
            "provider": one["provider"],
            "account": one["account"],
            "at": float(one["at"]),
            "switch": plain(switch_of(one["switch"])),
        }
        for one in json.loads(text)
    ]


def _keep(sessions: SessionDB, owed: list[dict[str, Any]]) -> None:
    sessions.set_meta(_OWED, json.dumps(owed))
