"""Questions in scripts without spaces and in Korean, each asked in other words than it was answered in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core.sessions.session_store import SessionStore

DATA = Path(__file__).with_name("data")
EXCHANGES_OF_A_SESSION = 10
FILES = ["chinese.txt", "japanese.txt", "korean.txt", "thai.txt"]


def read_exchanges(name: str) -> list[list[str]]:
    """Return the lines of a file: what one person says, what the other answers, and a question for that answer."""
    return [line.split("|") for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(params=FILES)
def name(request: pytest.FixtureRequest) -> str:
    file: str = request.param
    return file


@pytest.fixture
def db(name: str, tmp_path: Path) -> Iterator[SessionStore]:
    """Return a store that holds the exchanges of a file."""
    database = SessionStore(tmp_path / "state.db")
    for number, (statement, answer, _) in enumerate(read_exchanges(name)):
        session = f"s{number // EXCHANGES_OF_A_SESSION}"
        database.create_session(session)
        messages = [{"role": "user", "content": statement}, {"role": "assistant", "content": answer}]
        database.append_turn(session, messages, f"t{number}", number + 1)
    yield database
    database.close()


def test_most_questions_find_their_evidence(name: str, db: SessionStore) -> None:
    asked = read_exchanges(name)

    found = [answer in [hit.text for hit in db.past.search(question)] for _, answer, question in asked]

    assert len(found) >= 16
    assert sum(found) >= 0.75 * len(found)


def test_most_questions_of_a_turn_get_something_without_a_search(name: str, db: SessionStore) -> None:
    asked = [(question, answer) for _, answer, question in read_exchanges(name)]
    answerable = [
        question for question, answer in asked if answer in [hit.text for hit in db.past.search(question)]
    ]

    open_questions = [question for question in answerable if db.past.search(question, proactive=True)]

    assert len(open_questions) >= 0.8 * len(answerable)


@pytest.mark.parametrize(("kind", "share"), [("small_talk", 0.15), ("task", 0.35)])
def test_most_turns_that_ask_nothing_get_nothing(
    kind: str, share: float, name: str, db: SessionStore
) -> None:
    turns = json.loads((DATA / "turns.json").read_text(encoding="utf-8"))[name][kind]

    answered = [turn for turn in turns if db.past.search(turn, proactive=True)]

    assert len(turns) >= 10
    assert len(answered) <= share * len(turns), answered
