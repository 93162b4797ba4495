"""A session that is exported comes back whole; what can't be imported changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_core.errors import SessionError
from hermes_core.sessions.records import calls_as_text
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.transfer import import_session, session_document


def store(db: SessionStore) -> None:
    db.create_session(
        "s1",
        "telegram",
        user="telegram:42",
        title="Trip",
        model="m",
        cwd="/x",
        identity={"platform": "telegram"},
    )
    db.append_turn(
        "s1",
        [
            {"role": "user", "content": "Where is the tent? 天幕", "speaker": "Ann", "timestamp": 5.0},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {"name": "look"}}]},
            {"role": "tool", "content": "cellar", "tool_call_id": "c1", "name": "look"},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "In the cellar."}],
                "reasoning": "easy",
            },
        ],
        "t1",
        1,
        at=6.0,
    )
    db.append_turn("s1", [{"role": "user", "content": "no"}, {"role": "assistant", "content": "ok"}], "t2", 2)
    db.rewind("s1", db.get_messages("s1")[4].id)
    db.append_turn("s1", [{"role": "user", "content": "And the stove?"}], "t3", 2)
    db.meta.add_usage("s1", input_tokens=12, cost_usd=0.5)
    db.meta.set_mark("s1", "pinned")
    db.end_session("s1", "close", at=99.0)
    db.create_session("s2", "telegram", user="telegram:42", parent_id="s1", relation="branch")


def test_an_export_comes_back_without_loss(db: SessionStore, tmp_path: Path) -> None:
    store(db)
    documents = [json.loads(json.dumps(session_document(db, name))) for name in ("s1", "s2")]
    other = SessionStore(tmp_path / "other.db")
    assert [import_session(other, document) for document in documents] == ["imported", "imported"]
    for document in documents:  # nobody here said what a file says
        for message in document["messages"]:
            message["origin"] = "import"
    assert [session_document(other, name) for name in ("s1", "s2")] == documents
    assert other.get_session("s1") == db.get_session("s1")
    assert other.check() == []
    for query in ("tent", "天幕", "cellar", "stove"):
        assert [hit.text for hit in other.past.search(query, everybody=True)] == [
            hit.text for hit in db.past.search(query, everybody=True)
        ]
    assert other.past.search('"no"', everybody=True) == []
    assert [turn.turn.id for turn in other.turns.complete(everybody=True)] == ["t1", "t3"]
    other.close()


def test_what_is_here_already_stays_as_it_is(db: SessionStore) -> None:
    store(db)
    document = session_document(db, "s1")
    assert import_session(db, document) == "present"
    db.append_message("s1", "user", "One more.")
    before = session_document(db, "s1")
    assert import_session(db, document) == "different"
    assert session_document(db, "s1") == before


def test_a_title_that_is_taken_gets_a_number(db: SessionStore) -> None:
    store(db)
    document = session_document(db, "s1")
    db.delete_session("s1")
    db.create_session("s3", user="telegram:42", title="Trip")
    assert import_session(db, document) == "imported"
    session = db.get_session("s1")
    assert session is not None
    assert session.title == "Trip #2"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: None,
        lambda d: [],
        lambda d: {**d, "format": "x"},
        lambda d: {**d, "version": 99},
        lambda d: {**d, "session": None},
        lambda d: {**d, "session": {"id": ""}},
        lambda d: {**d, "session": {**d["session"], "started_at": "x"}},
        lambda d: {**d, "session": {**d["session"], "title": ["x"]}},
        lambda d: {**d, "messages": 3},
        lambda d: {**d, "messages": [*d["messages"], {"role": "user"}]},
        lambda d: {**d, "turns": [], "messages": [{**d["messages"][0], "content": None}]},
        # Such a message would stand in the history, and not in the origin of what the model has read.
        *(
            (lambda d, state=state: {**d, "turns": [], "messages": [{**d["messages"][0], "state": state}]})
            for state in (1, 7, 10**30)
        ),
        lambda d: {**d, "turns": [], "messages": [{**d["messages"][0], "tool_calls": {"a": 1}}]},
        lambda d: {**d, "turns": [{**d["turns"][0], "last": 400}]},
        lambda d: {**d, "turns": [{**d["turns"][0], "id": None}]},
        lambda d: {**d, "turns": [{"first": 0, "last": 0}]},
        lambda d: {**d, "meta": 4},
    ],
)
def test_a_document_that_is_no_session_is_refused_whole(db: SessionStore, change: Any) -> None:
    store(db)
    document = session_document(db, "s1")
    db.delete_session("s1")
    with pytest.raises(SessionError):
        import_session(db, change(document))
    assert db.get_session("s1") is None
    assert db.check() == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(
            ("tool_calls", value)
            for value in ("not json", '{"a": 1}', "5", '[{"function": 5}]', "[" * 200_000)
        ),
        *(("parts", value) for value in ("nope", "{}", "7", 7)),
        ("native", "nope"),
        *(("identity", value) for value in ("nope", "[1]", '"ann"')),
    ],
)
def test_json_that_its_readers_can_not_use_is_refused_in_a_line(
    db: SessionStore, tmp_path: Path, column: str, value: object
) -> None:
    store(db)
    document = session_document(db, "s1")
    (document["session"] if column == "identity" else document["messages"][0])[column] = value
    other = SessionStore(tmp_path / "other.db")
    with pytest.raises(SessionError) as caught:
        import_session(other, document)
    assert repr(column) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert other.get_session("s1") is None


def test_calls_that_a_host_stored_in_another_form_come_back_and_can_be_shown(
    db: SessionStore, tmp_path: Path
) -> None:
    db.create_session("s1", "cli")
    db.append_message("s1", "assistant", "", tool_calls=["look()", {"arguments": "x"}])
    other = SessionStore(tmp_path / "other.db")
    assert import_session(other, session_document(db, "s1")) == "imported"
    assert other.get_messages("s1")[0].tool_calls == db.get_messages("s1")[0].tool_calls
    assert calls_as_text('[{"function": 5}]') == '[{"function": 5}]'
