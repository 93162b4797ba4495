from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.sessions import maintenance
from hermes_core.sessions.session_store import SessionStore
from tests.rounds import rounds


def contents(path: Path) -> list[tuple[str, ...]]:
    """Every term of the index with where it stands."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT count(*) FROM messages_fts").fetchone()
        connection.execute(
            "CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'messages_fts', 'instance')"
        )
        return sorted(connection.execute("SELECT * FROM temp.terms"), key=str)


TEXTS = st.text(st.sampled_from("ab 部署🎂é'\"-\ud800\0"), max_size=12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("xy"), TEXTS),
        st.tuples(st.just("rewind"), st.sampled_from("xy"), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.sampled_from("xy"), st.just(0)),
    ),
    max_size=15,
)


def apply(db: SessionStore, step: tuple[str, str, str | int]) -> None:
    action, session, value = step
    db.create_session(session)
    messages = db.get_messages(session)
    if action == "append":
        db.append_message(session, "user", str(value), tool_calls=[{"a": value}], tool_name=str(value))
    elif action == "delete":
        db.delete_session(session)
    elif messages:
        chosen = messages[int(value) % len(messages)].id
        db.rewind(session, chosen)


@settings(max_examples=rounds(60))
@given(steps=STEPS)
def test_after_any_operations_the_index_equals_a_rebuilt_one(steps: list[tuple[str, str, str | int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        db = SessionStore(Path(folder) / "state.db")
        db.create_session("x")
        for step in steps:
            apply(db, step)
        kept = contents(db.database.path)
        assert db.check() == []
        db.index.rebuild()
        assert contents(db.database.path) == kept
        db.close()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM messages_fts_data WHERE id > 10",
        "INSERT INTO messages_fts (messages_fts) VALUES ('delete-all')",
        "INSERT INTO messages_fts (messages_fts, rowid, words, calls, grams) VALUES ('delete', 1, 'kumquat pie', '', '')",
    ],
)
def test_an_index_that_lost_something_is_found_out_and_made_anew(db: SessionStore, damage: str) -> None:
    db.append_message("s1", "user", "kumquat pie")
    db.append_message("s1", "assistant", "部署 done")
    db.close()
    with sqlite3.connect(db.database.path) as connection:
        connection.execute(damage)
    connection.close()

    again = SessionStore(db.database.path)
    assert "rebuild it" in again.check()[0]
    assert again.index.rebuild() == 2
    assert again.check() == []
    assert len(again.past.search('"kumquat pie"')) == 1
    again.close()


def test_a_text_that_was_changed_behind_the_index_is_found_out(db: SessionStore) -> None:
    for text in ("the kumquat tree", "部署 done", "pomelo"):
        last = db.append_message("s1", "user", text, tool_calls=[{"path": text}], tool_name="run")
    assert db.check() == []
    db.database.execute("UPDATE messages SET content = 'pomelos and quinces' WHERE id = ?", (last,))
    (fault,) = db.check()
    assert "differs from 1 of 3 messages that were compared" in fault
    db.index.rebuild()
    assert db.check() == []


def test_terms_that_a_hidden_message_left_are_not_found(db: SessionStore) -> None:
    db.append_message("s1", "user", "the kumquat tree")
    hidden = db.append_message("s1", "user", "a kumquat that was undone")
    db.rewind("s1", hidden)
    db.database.execute("INSERT INTO messages_fts (rowid, words) VALUES (?, 'kumquat quinc')", (hidden,))

    assert [hit.text for hit in db.past.search("kumquat quince")] == ["the kumquat tree"]
    assert [hit.text for hit in db.past.search("kumquat OR quince")] == ["the kumquat tree"]
    assert db.past.search("quince") == []


def test_rebuilding_tells_how_far_it_is(db: SessionStore) -> None:
    for number in range(5):
        db.append_message("s1", "user", f"message {number}")
    told: list[int] = []
    tell: Callable[[int], None] = told.append

    db.index.rebuild(tell)

    assert told == [5]


# ------------------------------------------------------------------ a damaged index, and none at all


def damage(path: Path, *tables: str) -> None:
    """Overwrite every page of the tables of the index whose names contain one of `tables`."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        names = connection.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'").fetchall()
        pages = [page for name, page in names if any(part in name for part in tables) and page]
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)


@pytest.fixture
def filled(db: SessionStore) -> SessionStore:
    for number in range(500):
        db.append_message("s1", "user", f"message {number} kumquat{number} 部署")
    db.close()
    return db


DAMAGES = {
    "terms": ("messages_fts_data", "messages_fts_idx"),
    "structure": ("messages_fts_config",),
    "numbers of terms": ("messages_fts_docsize",),
    "all": ("messages_fts_",),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_index_stops_no_write_and_is_built_again(filled: SessionStore, kind: str) -> None:
    damage(filled.database.path, *DAMAGES[kind])
    db = SessionStore(filled.database.path)
    for number in range(3):
        db.append_turn("s1", [{"role": "user", "content": f"pomelo{number} 部署"}], f"t{number}", 1)
    assert db.last_message_id("s1")
    assert db.past.search("kumquat77")[0].text == "message 77 kumquat77 部署"
    assert db.past.search("pomelo1")[0].text == "pomelo1 部署"
    db.rewind("s1", db.last_message_id("s1") or 0)
    for number in range(3, 8):
        db.append_message("s1", "user", f"pomelo{number} 部署")
    db.index.rebuild()
    assert db.past.problem == ""
    assert db.check() == []
    assert db.past.search("kumquat77")[0].text == "message 77 kumquat77 部署"
    db.close()


def test_a_search_notices_a_damaged_index_and_answers_all_the_same(filled: SessionStore) -> None:
    damage(filled.database.path, "messages_fts_data")
    db = SessionStore(filled.database.path)
    (hit, *_) = db.past.search("kumquat77")
    assert hit.text == "message 77 kumquat77 部署"
    assert "kumquat77" in db.past.snippet(hit.message_id, "kumquat77")
    assert "0 of 500 messages" in db.past.problem
    for number in range(4):  # each builds a part of it again
        db.append_message("s1", "user", f"pomelo{number}")
    assert db.past.problem == ""
    db.close()
    again = SessionStore(db.database.path)
    assert again.check() == []
    again.close()


class WithoutFTS5(sqlite3.Connection):
    """A connection of an SQLite that was built without FTS5."""

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        return self.cursor().execute(sql, *arguments)

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        self.refuse(sql)
        return super().executemany(sql, rows)

    def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
        connection = self

        class Cursor(factory):  # type: ignore[misc]
            def execute(self, sql: str, *arguments: Any) -> Any:
                connection.refuse(sql)
                return super().execute(sql, *arguments)

        return super().cursor(Cursor)

    def refuse(self, sql: str) -> None:
        tables = re.search(r"fts5\(|(FROM|INTO) messages_fts\b|messages_fts (f|MATCH)", sql)
        if tables:
            raise sqlite3.OperationalError("no such module: fts5")


def test_without_fts5_messages_are_stored_found_and_indexed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = SessionStore(tmp_path / "state.db")
    db.create_session("s1")
    db.append_message("s1", "user", "the first kumquat")
    db.close()
    connect = sqlite3.connect
    for path in (tmp_path / "state.db", tmp_path / "new.db"):
        with monkeypatch.context() as patched:
            patched.setattr(sqlite3, "connect", partial(connect, factory=WithoutFTS5))
            db = SessionStore(path)
            db.create_session("s1")
            db.append_turn("s1", [{"role": "user", "content": "a second kumquat, 部署"}], "t1", 1)
            last = db.append_message("s1", "user", "to be undone")
            db.rewind("s1", last)
            assert "no FTS5" in db.past.problem
            assert "a second kumquat, 部署" in [hit.text for hit in db.past.search("kumquat second")]
            assert [hit.text for hit in db.past.search("部署")] == ["a second kumquat, 部署"]
            assert "no FTS5" in db.check()[0]
            maintenance.vacuum(db)
            db.close()
        db = SessionStore(path)
        for _ in range(2):  # the first finds FTS5, the second builds the index
            db.append_message("s1", "user", "a third kumquat")
        assert db.past.problem == ""
        assert "a second kumquat, 部署" in [hit.text for hit in db.past.search("second kumquat")]
        assert db.check() == []
        db.close()
