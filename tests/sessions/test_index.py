from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.search import index


def contents(path: Path) -> list[tuple[str, ...]]:
    """Every token of both indexes with where it stands."""
    connection = sqlite3.connect(path)
    connection.execute("SELECT count(*) FROM messages_fts, messages_grams").fetchone()
    found: list[tuple[str, ...]] = []
    for table in ("messages_fts", "messages_grams"):
        connection.execute(
            f"CREATE VIRTUAL TABLE temp.v_{table} USING fts5vocab('main', '{table}', 'instance')"
        )
        rows = connection.execute(f"SELECT * FROM temp.v_{table}")  # noqa: S608  # named above
        found += [(table, *row) for row in rows]
    connection.close()
    return sorted(found, key=str)


TEXTS = st.text(st.sampled_from("ab 部署🎂é'\"-\ud800\0"), max_size=12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("xy"), TEXTS),
        st.tuples(st.just("rewind"), st.sampled_from("xy"), st.integers(0, 9)),
        st.tuples(st.just("compact"), st.sampled_from("xy"), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.sampled_from("xy"), st.just(0)),
    ),
    max_size=15,
)


def apply(db: SessionDB, step: tuple[str, str, str | int]) -> None:
    action, session, value = step
    db.create_session(session)
    messages = db.get_messages(session)
    if action == "append":
        db.append_message(session, "user", str(value), tool_calls=[{"a": value}], tool_name=str(value))
    elif action == "delete":
        db.delete_session(session)
    elif messages:
        chosen = messages[int(value) % len(messages)].id
        (db.rewind if action == "rewind" else db.compact)(session, chosen)


@settings(max_examples=60)
@given(steps=STEPS)
def test_after_any_operations_the_indexes_equal_rebuilt_ones(steps: list[tuple[str, str, str | int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        db = SessionDB(Path(folder) / "state.db")
        db.create_session("x")
        for step in steps:
            apply(db, step)
        kept = contents(db.path)
        assert db.check() == []
        index.rebuild_in_steps(db.database)
        assert contents(db.path) == kept
        db.close()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM messages_fts_data WHERE id > 10",
        "INSERT INTO messages_fts (messages_fts) VALUES ('delete-all')",
        "INSERT INTO messages_fts (messages_fts, rowid, content, calls) VALUES ('delete', 1, 'kumquat pie', '')",
    ],
)
def test_an_index_that_lost_something_is_found_out_and_made_anew(db: SessionDB, damage: str) -> None:
    db.append_message("s1", "user", "kumquat pie")
    db.append_message("s1", "assistant", "部署 done")
    db.close()
    with sqlite3.connect(db.path) as connection:
        connection.execute(damage)
    connection.close()

    again = SessionDB(db.path)
    assert "rebuild it" in again.check()[0]
    assert index.rebuild_in_steps(again.database) == 2
    assert again.check() == []
    assert len(again.search('"kumquat pie"')) == 1
    again.close()


def test_rebuilding_tells_how_far_it_is(db: SessionDB) -> None:
    for number in range(5):
        db.append_message("s1", "user", f"message {number}")
    told: list[int] = []
    tell: Callable[[int], None] = told.append

    index.rebuild_in_steps(db.database, tell)

    assert told == [5]
