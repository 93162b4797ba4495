"""The self-test of `hermes-memory doctor`: what is written is recalled and deleted, in a session of its own."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from hermes_core import BackendRefused, BackendUnavailable, Check, Session
from hermes_honcho.client import Client, Line

PEER = "hermes-check"
"""A peer that nobody observes: no image of a person is touched."""


def self_test(client: Client, session: Session) -> Sequence[Check]:
    """Store a message and a conclusion, find both, delete both. A wrong key is raised."""
    word = f"check{uuid.uuid4().hex}"
    name = f"{PEER}-{word[5:17]}"
    client.ensure(name, {PEER: (False, False)})
    try:
        return [_messages(client, name, word, session), _conclusions(client, word)]
    finally:
        client.delete_session(name)


def _messages(client: Client, name: str, word: str, session: Session) -> Check:
    client.store(
        name, [Line(PEER, f"{word} is what the self-test of {session.platform} wrote.", word, "user")], 1000
    )
    seen = client.context(name, PEER, PEER, tokens=500)
    return Check("write and read a message", any(word in one.text for one in seen.recent), client.place)


def _conclusions(client: Client, word: str) -> Check:
    what = "write, recall and delete a conclusion"
    try:
        made = client.conclude(PEER, PEER, [f"{word} is what the self-test wrote."])
        found = client.conclusions(PEER, PEER, word, 5)
        gone = [client.drop(PEER, PEER, one.id) for one in made]
    except (BackendRefused, BackendUnavailable) as exc:
        return Check(
            what, False, exc.message, "conclusions need an embedding model: see the server's settings"
        )
    recalled = {one.id for one in made} & {one.id for one in found}
    return Check(what, bool(recalled) and all(gone), client.place)
