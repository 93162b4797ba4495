from __future__ import annotations

from pathlib import Path

import pytest

from hermes_core.recall.query import analyse
from hermes_core.sessions.search.filters import Filters
from hermes_core.sessions.search.fts5 import Fts5Reader, KnownSpeakers, scope_facts
from hermes_core.sessions.search.lookup import MAX_COMMON_HITS, MAX_RARE_MESSAGES
from hermes_core.sessions.search.match import match_of
from hermes_core.sessions.search.reader import IndexRequest
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.sqlite import Database

MANY = MAX_RARE_MESSAGES + 100


@pytest.fixture
def large(db: SessionStore) -> SessionStore:
    """A store where "plan" stands in more messages than are looked up whole."""
    turn = [{"role": "user", "content": f"plan {number}"} for number in range(MANY)]
    db.append_turn("s1", turn, "bulk", 1)
    return db


def animals(db: SessionStore, name: str, before: str) -> int:
    db.create_session(name)
    db.append_message(name, "user", before)
    return db.append_message(name, "assistant", "a zebra was seen")


def test_a_common_word_weighs_what_rare_ones_bring_also_from_beside(large: SessionStore) -> None:
    animals(large, "a", "nothing")
    wanted = animals(large, "b", "the plan")
    animals(large, "c", "something")

    hits = large.past.search("zebra plan", limit=3)

    assert hits[0].message_id == wanted
    assert {hit.session_id for hit in hits} <= {"a", "b", "c"}


def test_two_common_words_bring_what_holds_both_however_old_it_is(db: SessionStore) -> None:
    with db.transaction():
        db.append_turn("s1", [{"role": "user", "content": "the plan for the zebra"}] * 9, "both", 1)
        for number in range(2 * MAX_COMMON_HITS // 50 + 2):
            db.create_session(f"{number}")
            turn = [{"role": "user", "content": ("plan", "zebra")[number % 2]}] * 50
            db.append_turn(f"{number}", turn, f"{number}", number)

    assert {hit.session_id for hit in db.past.search("zebra plan", limit=9)} == {"s1"}


def test_a_common_word_alone_is_answered_and_by_time_if_wanted(large: SessionStore) -> None:
    newest = large.append_message("s1", "user", "another plan")

    assert len(large.past.search("plan", limit=50)) == 50
    assert large.past.search("plan", sort="newest")[0].message_id == newest
    assert large.past.search("plan", sort="oldest")[0].text == "plan 0"


def test_common_words_in_a_boolean_query_are_ranked_among_what_fulfils_it(large: SessionStore) -> None:
    assert [hit.text for hit in large.past.search("plan AND 7")] == ["plan 7"]
    assert len(large.past.search("plan NOT 7", limit=1_000, sort="oldest")) == MANY - 1


@pytest.mark.sqlite_only("an estimate of FTS5")
def test_how_often_a_common_word_stands_is_estimated_from_how_thick_it_lies(large: SessionStore) -> None:
    for number in range(MANY):
        large.append_message("s1", "user", f"other {number}")
    database = Database(large.database.path)
    newest = scope_facts(database, "plan", Filters(), (), KnownSpeakers())[0].newest or 0
    reader = Fts5Reader(database, Filters(), None, 10, newest)

    (plan,) = analyse("plan").terms
    ((found,), _) = reader.find([IndexRequest(match_of(plan), MAX_RARE_MESSAGES)])

    assert not found.whole
    assert MANY * 0.3 < found.frequency < MANY * 1.2
    database.close()


@pytest.mark.parametrize("sessions", [3, 150])
def test_a_word_weighs_the_same_for_its_owner_beside_messages_of_others(
    tmp_path: Path, sessions: int
) -> None:
    def fill(db: SessionStore, others: int) -> None:
        with db.transaction():
            for number in range(sessions):
                db.create_session(f"mine{number}", user="me")
                turn = [
                    {"role": "user", "content": f"{('plan', 'plan boat', 'plan house tree')[i % 3]} {i}"}
                    for i in range(1_500 // sessions)
                ]
                db.append_turn(f"mine{number}", turn, f"turn{number}", 1)
            db.create_session("theirs", user="them")
            turn = [{"role": "user", "content": ("boat", "rain")[i % 2]} for i in range(others)]
            db.append_turn("theirs", turn, "theirs", 1)

    alone, shared = SessionStore(tmp_path / "alone.db"), SessionStore(tmp_path / "shared.db")
    fill(alone, 2)
    fill(shared, 3_000)

    def scores(db: SessionStore) -> list[tuple[str, float]]:
        return [(hit.text, round(hit.score, 6)) for hit in db.past.search("plan boat 7", user="me", limit=20)]

    assert scores(shared) == scores(alone)
    alone.close()
    shared.close()
