"""Nothing that a turn or a tool call asks walks through a whole table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from hermes_core.contract.values import Session
from hermes_core.sessions.owners import give_to_home, stored_users
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.tool import SessionSearchTool

ASKED: dict[str, Callable[[SessionStore], object]] = {
    "append": lambda db: db.append_message("s1", "user", "kumquat"),
    "session": lambda db: db.get_session("s1"),
    "by prefix": lambda db: db.find_session("s"),
    "by title": lambda db: db.find_session("Plan", title_only=True),
    "next title": lambda db: db.meta.next_title("Plan", user="u"),
    "messages": lambda db: db.get_messages("s1", limit=3, offset=5),
    "around": lambda db: db.past.around(5),
    "last": lambda db: db.last_message_id("s1"),
    "turns": lambda db: db.turns.count("s1"),
    "rewind": lambda db: db.rewind("s1", 18),
    "browse": lambda db: SessionSearchTool(db).call({}, Session("now")),
    "browse of a user": lambda db: SessionSearchTool(db).call({}, Session("now", user_id="u")),
    "list after a session": lambda db: db.list_sessions(before="s1"),
    "list of a user after a session": lambda db: db.list_sessions(user="u", before="s2"),
    "users": lambda db: stored_users(db.database),
    "give to home": lambda db: give_to_home(db, "u"),
    "tip": lambda db: db.compression_tip("s1"),
    "family": lambda db: db.lineage("s1"),
    "delete": lambda db: db.delete_session("s1"),
    "word": lambda db: db.past.search("kumquat"),
    "sorted": lambda db: db.past.search("kumquat", sort="newest"),
    "boolean": lambda db: db.past.search("kumquat AND tree NOT 部署"),
    "CJK": lambda db: db.past.search("部 AND 署"),
    "of a user": lambda db: db.past.search("kumquat tree", user="u"),
    "tool": lambda db: SessionSearchTool(db).call({"query": "why kumquat trees?"}, Session("now")),
    "read": lambda db: SessionSearchTool(db).call({"session_id": "s2"}, Session("now")),
    "scroll": lambda db: SessionSearchTool(db).call(
        {"session_id": "s2", "around_message_id": 25}, Session("now")
    ),
}


@pytest.fixture
def filled(db: SessionStore) -> SessionStore:
    db.create_session("s2", title="Plan", user="u")
    for session in ("s1", "s2"):
        for number in range(20):
            db.append_message(session, "user", f"kumquat trees 部署 {number}")
    return db


@pytest.mark.parametrize("asked", ASKED)
def test_no_statement_scans_a_table(filled: SessionStore, asked: str) -> None:
    connection = filled.database.connection
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    ASKED[asked](filled)
    connection.set_trace_callback(None)

    seen = [s for s in statements if s.lstrip().startswith(("SELECT", "WITH", "UPDATE", "DELETE"))]
    assert seen
    assert {(line, s) for s in seen for line in scans(connection, s)} == set()


def scans(connection: sqlite3.Connection, statement: str) -> list[str]:
    """Steps that walk a whole table of ours. An index walked in order ends with the limit."""
    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
    ours = ("SCAN messages", "SCAN m", "SCAN sessions", "SCAN s", "SCAN c", "SCAN p", "SCAN t", "SCAN turns")
    return [step for step in steps if step in ours or "AUTOMATIC" in step]


def steps(db: SessionStore, search: Callable[[], object]) -> int:
    """How much SQLite works for a search, in hundreds of its steps."""
    connection, counted = db.database.connection, 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    connection.set_progress_handler(count, 100)
    search()
    connection.set_progress_handler(None, 0)
    return counted


def test_the_messages_of_a_turn_are_read_without_walking_through_its_session(db: SessionStore) -> None:
    def turn(number: int) -> None:
        said = {"role": "user", "content": "kumquat"}
        assert db.turns.messages(f"t{number}") == [("user", "kumquat")]
        assert len(db.append_turn("s", [said], f"t{number}", 1).message_ids) == 1
        assert len(list(db.turns.complete(number))) == 1

    def say(first: int, last: int) -> None:
        for number in range(first, last):
            db.append_turn("s", [{"role": "user", "content": "kumquat"}], f"t{number}", number + 1)

    db.create_session("s")
    say(0, 10)
    few = steps(db, lambda: turn(9))
    with db.transaction():
        say(10, 1000)
    assert steps(db, lambda: turn(999)) <= few + 1


def test_a_search_for_one_user_does_not_walk_through_what_others_said(db: SessionStore) -> None:
    def own() -> None:
        for query in ("kumquat tree", "kumquat AND tree", "部"):
            assert {hit.session_id for hit in db.past.search(query, user="u")} == {"first", "last"}

    def others(first: int, count: int) -> None:
        with db.transaction():
            for number in range(first, first + count):
                if number % 40 == 0:
                    db.create_session(f"of {number}", user=f"v{number}")
                db.append_message(f"of {number - number % 40}", "user", "kumquat trees 部署")

    db.create_session("first", user="u")
    db.append_message("first", "user", "kumquat trees 部署")
    others(0, 400)
    db.create_session("last", user="u")
    db.append_message("last", "user", "kumquat trees 部署")
    few = steps(db, own)
    others(400, 4_000)
    assert steps(db, own) < 1.5 * few


def test_finding_out_whom_a_question_names_does_not_walk_through_what_all_said(db: SessionStore) -> None:
    def said(times: int) -> None:
        with db.transaction():
            for number in range(20 * times):
                db.append_message("s1", "user", "nothing of note", speaker=f"Ann{number % 20:02}")

    said(1)
    few = steps(db, lambda: db.past.search("What did Ann07 eat?"))
    said(20)
    assert steps(db, lambda: db.past.search("What did Ann07 eat?")) < 1.5 * few


def test_a_check_lets_others_write_between_its_looks(filled: SessionStore) -> None:
    connection = filled.database.connection
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    assert filled.check() == []
    connection.set_trace_callback(None)

    held = "\n".join(statements).split("BEGIN IMMEDIATE")[1:]
    long = ("'integrity-check'", "SELECT count(*) FROM (SELECT id FROM ")
    assert [sum(one.count(sign) for sign in long) for one in held] == [1, 1, 1, 0]


def test_the_next_number_of_a_title_costs_the_same_among_any_number_of_sessions(db: SessionStore) -> None:
    steps: list[int] = []
    costs = []
    for start, end in ((0, 30), (30, 300)):
        for number in range(start, end):
            db.create_session(f"job{number}", title="Check the mail", user="cron")
        steps.clear()
        db.database.connection.set_progress_handler(lambda: steps.append(1), 10)
        assert db.meta.next_title("Check the mail", user="cron") == f"Check the mail #{end + 1}"
        db.database.connection.set_progress_handler(None, 0)
        costs.append(len(steps))
    assert costs[1] < costs[0] * 1.5
