"""No search says that nothing was found while its index could not have found it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hermes_core import Memory, open_memory
from hermes_core.cli import main
from hermes_core.contract.values import Session
from hermes_core.sessions.search import proof
from hermes_core.sessions.search.texts import terms_of
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.tool import SessionSearchTool

WORD = "kumquat"
DELETED = "INSERT INTO messages_fts (messages_fts, rowid, words, calls, grams) VALUES ('delete', ?, ?, ?, ?)"
LOST = "the search index was damaged and is being built again"

DAMAGE = {
    "zeroed blocks": "UPDATE messages_fts_data SET block = zeroblob(length(block))",
    "zeroed leaves": "UPDATE messages_fts_data SET block = zeroblob(length(block)) WHERE id > 10",
    "no leaves": "DELETE FROM messages_fts_data WHERE id > 10",
    "no structure": "DELETE FROM messages_fts_data WHERE id = 10",
    "all deleted": "INSERT INTO messages_fts (messages_fts) VALUES ('delete-all')",
    "no index of leaves": "DELETE FROM messages_fts_idx",
    "no sizes": "DELETE FROM messages_fts_docsize",
    "last size gone": "DELETE FROM messages_fts_docsize WHERE id = (SELECT max(id) FROM messages_fts_docsize)",
    "no configuration": "DELETE FROM messages_fts_config",
    "no table of blocks": "DROP TABLE messages_fts_data",
    "no table of sizes": "DROP TABLE messages_fts_docsize",
    "no index": "DROP TABLE messages_fts",
}


def fill(path: Path) -> None:
    with contextlib.closing(SessionStore(path)) as db:
        db.create_session("s")
        with db.transaction():
            for number in range(300):
                db.append_message("s", "user", f"My {WORD} number {number} grows in zone{number % 7}.")


def damage(path: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(sql)
        connection.commit()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "DELAY_S", 0)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    fill(tmp_path / "home" / "state.db")
    return tmp_path / "home"


@pytest.fixture
def db(home: Path) -> Iterator[SessionStore]:
    with contextlib.closing(SessionStore(home / "state.db")) as opened:
        yield opened


def wait_for_index(db: SessionStore) -> None:
    builder = db.past.proof._builder
    assert builder is not None
    builder.join()


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_index_is_said_and_made_anew(home: Path, db: SessionStore, kind: str) -> None:
    damage(home / "state.db", DAMAGE[kind])

    nothing = db.past.search("never mentioned")
    assert nothing == []
    [problem] = db.past.problems_of(nothing)
    assert problem

    wait_for_index(db)
    found = db.past.search(f"{WORD} zone3", limit=5)
    assert len(found) == 5
    assert db.past.problems_of(found) == []
    assert db.past.problems_of(db.past.search("never mentioned")) == []
    db.close()  # frees the pages of an index that could not be dropped
    with contextlib.closing(SessionStore(home / "state.db")) as again:
        assert again.check() == []


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_stored_is_found_without_the_index(home: Path, db: SessionStore, kind: str) -> None:
    damage(home / "state.db", DAMAGE[kind])
    found = db.past.search(f"{WORD} zone3", limit=5)
    assert len(found) == 5
    assert db.past.problems_of(found)


def test_messages_whose_sessions_are_lost_are_said(home: Path, db: SessionStore) -> None:
    damage(home / "state.db", "DELETE FROM sessions")
    assert db.past.problems_of(db.past.search(WORD))


def test_an_answer_that_lacks_most_is_said(home: Path, db: SessionStore) -> None:
    with contextlib.closing(sqlite3.connect(home / "state.db")) as connection:
        rows = connection.execute("SELECT id, content FROM messages WHERE id <= 200").fetchall()
        for message_id, text in rows:
            connection.execute(DELETED, (message_id, *terms_of(text, "", "")))
            connection.execute("INSERT INTO messages_fts_docsize VALUES (?, x'000000')", (message_id,))
        connection.commit()
    found = db.past.search(f"{WORD} zone3", limit=300)
    assert len({hit.message_id for hit in found}) == 300
    assert found.problem == LOST


def test_the_words_of_a_question_are_looked_for_in_the_newest_messages(db: SessionStore) -> None:
    text = f"My {WORD} number 290 grows in zone3."
    [message_id] = [hit.message_id for hit in db.past.search("290", limit=300) if hit.text == text]
    with db.database.transaction() as connection:
        values = (message_id, *terms_of(text, "", ""))
        connection.execute(DELETED, values)
        connection.execute(
            "INSERT INTO messages_fts (rowid, words, calls, grams) VALUES (?, ?, '', '')",
            (message_id, values[1].replace("290", "")),
        )
    found = db.past.search("290", limit=300)
    assert text in [hit.text for hit in found]
    assert found.problem == LOST


def test_a_whole_index_is_proven_without_a_word(db: SessionStore) -> None:
    assert db.past.problems_of(db.past.search("never mentioned")) == []
    assert db.past.proof.is_recent()
    assert db.past.proof._builder is None


def test_a_store_of_messages_without_words_is_proven(tmp_path: Path) -> None:
    with contextlib.closing(SessionStore(tmp_path / "other.db")) as db:
        db.create_session("s")
        assert db.past.problems_of(db.past.search("anything")) == []
        db.append_message("s", "user", "?!")
        assert db.past.problems_of(db.past.search("anything")) == []
        last = db.append_message("s", "user", "soon gone")
        db.rewind("s", last)
        assert db.past.problems_of(db.past.search("anything")) == []
        db.delete_session("s")
        assert db.past.problems_of(db.past.search("anything")) == []


# ---------------------------------------------------------------------- the surfaces


@pytest.fixture
def damaged(home: Path) -> Path:
    damage(home / "state.db", DAMAGE["zeroed blocks"])
    return home


def run(home: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(home), *words])


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_command_says_so(damaged: Path, options: list[str]) -> None:
    result = run(damaged, "sessions", "search", "never mentioned", *options)
    assert result.exit_code == 3
    assert LOST in result.stderr
    again = run(damaged, "sessions", "search", "never mentioned", *options)
    assert (again.exit_code, again.stderr) == (0, "")


def test_the_recall_says_so(damaged: Path) -> None:
    result = run(damaged, "recall", "never mentioned", "--json")
    assert result.exit_code == 3
    assert [problem for problem in json.loads(result.stdout)["problems"] if LOST in problem]


def test_the_recall_says_that_past_sessions_cannot_be_searched(home: Path) -> None:
    damage(home / "state.db", "ALTER TABLE messages RENAME COLUMN position TO gone")
    result = run(home, "recall", f"Where does {WORD} number 7 grow?", "--json")
    assert result.exit_code == 3
    assert [problem for problem in json.loads(result.stdout)["problems"] if "is damaged" in problem]


def test_the_status_says_so(damaged: Path) -> None:
    result = run(damaged, "memory", "status", "--json")
    assert result.exit_code == 3
    assert [problem for problem in json.loads(result.stdout)["problems"] if LOST in problem]


def test_the_tool_says_so(damaged: Path) -> None:
    with contextlib.closing(SessionStore(damaged / "state.db")) as db:
        answer = json.loads(SessionSearchTool(db).call({"query": "never mentioned"}, Session("now")))
    assert answer["results"] == []
    assert LOST in answer["warning"]


def test_a_turn_says_so_once(damaged: Path) -> None:
    with open_memory(damaged) as memory:
        problems = memory.conversation("new").turn("What did I never mention?").problems
    assert [problem for problem in problems if LOST in problem] == [problems[-1]]


def test_the_problems_of_a_memory_say_so(damaged: Path) -> None:
    with open_memory(damaged) as memory:
        assert [problem for problem in memory.problems() if LOST in problem]


# ---------------------------------------------------------------------- the cost in a turn


class Statements:
    """The statements of a call on the connection of this thread."""

    def __init__(self, memory: Memory) -> None:
        self._connection: Any = memory.sessions.database.connection  # type: ignore[attr-defined]

    def of(self, call: Callable[[], object]) -> list[str]:
        statements: list[str] = []
        self._connection.set_trace_callback(statements.append)
        call()
        self._connection.set_trace_callback(None)
        return statements


def test_a_turn_that_is_given_nothing_uses_the_last_proof(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(proof.time, "monotonic", lambda: now[0])
    with open_memory(home) as memory:
        statements = Statements(memory)

        def proofs(question: str = "Good morning, never mentioned!") -> int:
            search = lambda: memory.sessions.past.search(question, proactive=True)  # noqa: E731
            return sum("WITH steps" in statement for statement in statements.of(search))

        assert proofs() == 1
        assert proofs() == 0
        now[0] += proof.MAX_AGE_S + 1
        assert proofs() == 0  # of fewer than fifty messages ago
        for number in range(proof.MAX_NEWER + 1):
            memory.sessions.append_message("s", "user", f"later {number}")
        assert proofs(f"In which zone grows my {WORD} number 17?") == 0  # something is found
        assert proofs() == 1
        assert proofs() == 0
