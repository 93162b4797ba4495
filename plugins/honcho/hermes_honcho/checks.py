"""The self-test of `hermes-memory doctor`: it writes in one session, reads in another, and deletes both."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from hermes_core import Session
from hermes_core.contract.values import Check
from hermes_core.errors import BackendRefused, BackendUnavailable
from hermes_honcho.client import Client, Line, status_of

PEER = "hermes-check"
"""A peer that nobody observes: no image of a person is touched."""


def self_test(client: Client, session: Session) -> Sequence[Check]:
    """Store a message and a conclusion in one session, find both from another. A wrong key is raised."""
    word = f"check{uuid.uuid4().hex}"
    first, second = (f"{PEER}-{word[5:17]}-{number}" for number in (1, 2))
    for name in (first, second):
        client.ensure(name, {PEER: (False, False)})
    try:
        return [_messages(client, first, word, session), _conclusions(client, second, word)]
    finally:
        for name in (first, second):
            client.delete_session(name)


def _messages(client: Client, first: str, word: str, session: Session) -> Check:
    """Store a message in the first session, and search the sessions of its author for it."""
    what = "write a message, and find it from another session"
    line = Line(PEER, f"{word} is what the self-test of {session.platform} wrote.", word, "user")
    client.store(first, [line], 1000)
    try:
        found = client.search(word, 5, seen_by=PEER)
    except (BackendRefused, BackendUnavailable) as exc:
        return _failed(client, what, exc)
    return Check(what, any(word in one.text for one in found), client.place)


def _conclusions(client: Client, second: str, word: str) -> Check:
    """Store a conclusion, recall it in the second session as a turn does, and delete it."""
    what = "write, recall and delete a conclusion"
    try:
        made = client.conclude(PEER, PEER, [f"{word} is what the self-test wrote."])
        known = client.context(second, PEER, PEER, word, most=5, tokens=500)
        found = client.conclusions(PEER, PEER, word, 5)
        gone = [client.drop(PEER, PEER, one.id) for one in made]
    except (BackendRefused, BackendUnavailable) as exc:
        return _failed(client, what, exc)
    recalled = word in known.representation and {one.id for one in made} <= {one.id for one in found}
    return Check(what, bool(made) and recalled and all(gone), client.place)


def _failed(client: Client, what: str, exc: BackendRefused | BackendUnavailable) -> Check:
    """Return the failed check. Honcho without its embedding model answers 422 or 500, and names no model."""
    remedy = exc.remedy
    if status_of(exc) in (422, 500):
        remedy = f"this needs an embedding model: {client.backend.remedy('model')}"
    return Check(what, False, exc.message, remedy)
