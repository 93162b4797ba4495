"""No search by meaning says that nothing was found while it could not have found it."""

from __future__ import annotations

import pytest

from hermes_core.sessions.session_store import SessionStore
from hermes_memory_semantic import dense
from hermes_memory_semantic.vectors import VectorIndex
from plugins.semantic.tests.conftest import OpenStore
from plugins.semantic.tests.test_vectors import TALK, filled, meaning_of

pytestmark = [
    pytest.mark.skipif(not dense.installed(), reason="needs the local model"),
    pytest.mark.slow,
]

NOTHING = "asdfghjkl"
DAMAGE = {
    "no vectors": "DELETE FROM vectors",
    "half of the vectors": "DELETE FROM vectors WHERE message_id % 2 = 0",
    "zeroed vectors": "UPDATE vectors SET own = zeroblob(length(own))",
    "cut vectors": "UPDATE vectors SET own = x'01'",
    "vectors of nobody": "UPDATE vectors SET model = 'another'",
    "no table": "DROP TABLE vectors",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_lost_vectors_are_said(open_store: OpenStore, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    db = filled(open_store())
    assert db.past.problems_of(db.past.search(NOTHING)) == []
    db.database.execute(DAMAGE[kind])
    monkeypatch.setattr(VectorIndex, "wake", lambda _: None)  # only what is said counts here
    nothing = open_store().past
    hits = nothing.search(NOTHING)
    assert hits == []
    assert [problem for problem in nothing.problems_of(hits) if "by meaning" in problem]


@pytest.mark.parametrize("kind", list(DAMAGE)[:-1])
def test_lost_vectors_are_made_again(open_store: OpenStore, kind: str) -> None:
    filled(open_store()).database.execute(DAMAGE[kind])
    db = open_store()
    assert db.past.problems_of(db.past.search(NOTHING))
    builder = meaning_of(db)._thread
    assert builder is not None
    meaning_of(db).close()
    again: SessionStore = open_store()
    meaning_of(again).build()
    assert again.past.search("new dog in the family?")[0].text == TALK[0]
    assert again.past.problems_of(again.past.search(NOTHING)) == []


def test_vectors_that_are_behind_are_said(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VectorIndex, "wake", lambda _: None)
    db = filled(open_store())
    db.append_message("s1", "user", "A message of just now")
    assert db.past.problems_of(db.past.search(NOTHING)) == []
    db.append_message("s1", "user", "A message of an hour ago", timestamp=1_700_000_000.0)
    assert db.past.search("new dog in the family?").problem == ""
    db.database.execute("UPDATE messages SET timestamp = 1700000000.0")
    [problem] = db.past.problems_of(db.past.search(NOTHING))
    assert "does not know all messages yet" in problem
