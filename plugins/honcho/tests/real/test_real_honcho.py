"""A real Honcho server, whichever HONCHO_BASE_URL names: `make test-real`. Needs an embedding model there."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from hermes_honcho.client import Client, Line

URL = os.environ.get("HONCHO_BASE_URL", "")

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not URL, reason="HONCHO_BASE_URL names no server: Honcho's is in no package registry"),
]


@pytest.fixture
def client() -> Iterator[Client]:
    opened = Client(URL, os.environ.get("HONCHO_API_KEY"), "hermes-test", 30.0, 10.0)
    yield opened
    opened.close()


def test_a_real_server_takes_every_call(client: Client) -> None:
    session, user, turn = f"real-{uuid.uuid4().hex}", f"user-{uuid.uuid4().hex}", uuid.uuid4().hex
    client.ensure(session, {user: (True, True), "hermes": (True, True)})
    lines = [
        Line(user, "My tortoise is called Quillfeather.", turn, "user"),
        Line("hermes", "Noted.", turn, "assistant"),
    ]
    for _ in range(2):
        client.store(session, lines, 25_000)
    known = client.context(
        session, "hermes", user, "What is the tortoise called?", near=0.8, most=10, tokens=500
    )
    assert [one.text for one in known.recent] == [line.text for line in lines]
    assert lines[0].text in [one.text for one in client.search("tortoise", 5, seen_by=user)]
    assert (
        client.set_card("hermes", user, ["Has a tortoise"])
        == client.card("hermes", user)
        == ["Has a tortoise"]
    )
    assert client.set_card("hermes", user, []) == []
    (made,) = client.conclude("hermes", user, ["Quillfeather eats dandelions."])
    assert client.conclude("hermes", user, [made.text]) == []
    assert made.id in [one.id for one in client.conclusions("hermes", user, "dandelions")]
    assert "dandelions" in client.view("hermes", user, "dandelions").representation
    assert client.drop("hermes", user, made.id)
    assert not client.drop("hermes", user, made.id)
    assert len(client.rewind(session, [turn])) == 2
    assert client.search("Quillfeather", 5, seen_by=user) == []
    assert client.upload(session, "hermes", "SOUL.md", "I am calm.") == 1
    assert user in client.peers(1000)
    assert client.pending() >= 0
    client.delete_session(session)
