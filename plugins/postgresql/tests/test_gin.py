"""Searches on PostgreSQL beside those on SQLite: the same answers, few round trips, and an index for each look-up."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core.cli.sample import sample_path, sample_questions
from hermes_core.recall.tokens import CUT_VERSION
from hermes_core.sessions.search.filters import Filters
from hermes_core.sessions.search.lookup import MAX_RARE_MESSAGES
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_agent.message_rows import hide_message
from hermes_memory_postgresql import tsvector
from hermes_memory_postgresql.engine import PostgresEngine
from hermes_memory_postgresql.schema import CUT_KEY

# A search makes at most so many round trips if no session of a program has to fill up its result.
MAX_ROUND_TRIPS = 5

QUESTIONS = (
    '"the harrow" OR freight',
    "harrow AND NOT freight",
    "fore* NOT harrow",
    "What happened in October 2023?",
    "部署失败",
    "部署 AND harrow",
    "NOT harrow",
    "ラーメン 東京",
    "документов",
    "cafés",
)

OTHER_TEXTS = (
    "docker 部署失败 again at Harrow",
    "東京のラーメン屋 is closed",
    "Ждём новые документы сервера",
    "two cafe\u0301s in the harbour",
)


@pytest.fixture
def server(postgres_url: str, postgres_schema: str) -> Iterator[SessionStore]:
    store = SessionStore(PostgresEngine(postgres_url, schema=postgres_schema))
    yield store
    store.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SessionStore]:
    store = SessionStore(tmp_path / "beside.db")
    yield store
    store.close()


def store_sample(db: SessionStore, copies: int = 1) -> None:
    """Store the sample conversation for the owner "me", between messages of another owner."""
    lines = map(json.loads, sample_path().read_text(encoding="utf-8").splitlines())
    sessions = [(name, list(group)) for name, group in itertools.groupby(lines, lambda line: line["session"])]
    with db.transaction():
        db.create_session("theirs", user="them", started_at=1.0)
        for copy in range(copies):
            for number, (name, messages) in enumerate(sessions):
                session = f"{copy}-{name}"
                started = 1_694_500_000.0 + 86_400 * (number + 100 * copy)
                db.create_session(session, user="me", started_at=started)
                turns = [
                    {
                        "role": "user",
                        "content": message["content"],
                        "speaker": message["speaker"],
                        "timestamp": started + at,
                    }
                    for at, message in enumerate(messages)
                ]
                turns += [{"role": "user", "content": text, "timestamp": started} for text in OTHER_TEXTS]
                db.append_turn(session, turns, f"turn-{session}", 1)
                db.append_turn(
                    "theirs",
                    [{"role": "user", "content": "harrow freight forecasts", "timestamp": 1.0}] * 5,
                    f"their-{session}",
                    number + 1,
                )


def answers(db: SessionStore, query: str, **filters: Any) -> list[tuple[int, float, str]]:
    hits = db.past.search(query, user="me", **filters)
    return [(hit.message_id, round(hit.score, 6), hit.snippet) for hit in hits]


def test_both_engines_answer_with_the_same_ten_messages(file: SessionStore, server: SessionStore) -> None:
    for db in (file, server):
        store_sample(db)
    for query in (*(question.question for question in sample_questions()), *QUESTIONS):
        assert answers(server, query) == answers(file, query), query
        assert answers(server, query, sort="newest") == answers(file, query, sort="newest"), query
        assert answers(server, query, role="user", proactive=True) == answers(
            file, query, role="user", proactive=True
        ), query
        assert answers(server, query, session=["0-session_1", "0-session_2"]) == answers(
            file, query, session=["0-session_1", "0-session_2"]
        ), query


def test_both_engines_hold_the_same_terms(file: SessionStore, server: SessionStore) -> None:
    for db in (file, server):
        store_sample(db)
        db.append_message(
            "theirs", "assistant", "", tool_calls=[{"name": "run", "arguments": '{"path": "docs/Café 部署"}'}]
        )
    of_file: dict[int, set[str]] = {}
    file.database.execute(
        "CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'messages_fts', 'instance')"
    )
    for term, message_id in file.database.execute("SELECT term, doc FROM temp.terms"):
        of_file.setdefault(message_id, set()).add(term)
    rows = server.database.execute("SELECT id, tsvector_to_array(terms) FROM messages").fetchall()
    assert {message_id: set(terms) for message_id, terms in rows} == of_file


def store_common_words(db: SessionStore) -> None:
    """Store words that are in more messages than are looked up whole, and pairs of them."""
    numbers = random.Random(7)
    names = ("harbour", "forecast", "truck", "invoice", "weather")
    with db.transaction():
        for session in range(4):
            db.create_session(f"s{session}", user="me", started_at=float(session))
            turns = [
                {
                    "role": ("user", "assistant")[number % 2],
                    "content": " ".join(numbers.sample(names, 2)) + f" {number} 部署",
                    "timestamp": float(number),
                }
                for number in range(MAX_RARE_MESSAGES)
            ]
            db.append_turn(f"s{session}", turns, f"turn{session}", 1)


def test_both_engines_rank_common_words_alike(file: SessionStore, server: SessionStore) -> None:
    for db in (file, server):
        store_common_words(db)
    for query in (
        "harbour",
        "harbour forecast truck",
        "invoice 17 weather",
        "部署 truck",
        "部署",
        "truck NOT harbour",
    ):
        for filters in ({}, {"sort": "oldest"}, {"session": "s2"}):
            asked = [(row[0], row[2]) for row in answers(file, query, **filters)]
            assert [(row[0], row[2]) for row in answers(server, query, **filters)] == asked, (query, filters)


def count_round_trips(db: SessionStore, monkeypatch: pytest.MonkeyPatch, search: Callable[[], object]) -> int:
    import psycopg

    calls = 0
    for owner in (psycopg.Connection, psycopg.Cursor):
        execute = owner.execute

        def counted(self: Any, *args: Any, execute: Any = execute, **options: Any) -> Any:
            nonlocal calls
            calls += isinstance(self, psycopg.Cursor)
            return execute(self, *args, **options)

        monkeypatch.setattr(owner, "execute", counted)
    search()
    monkeypatch.undo()
    return calls


@pytest.mark.parametrize(
    ("query", "filters"),
    [
        ("harbour forecast truck 17", {}),
        ("harbour forecast truck 部署 17", {"role": "user", "since": 1.0}),
        ("harbour AND (truck OR 部署) NOT 17", {}),
        ("harbour forecast in May 2023", {"sort": "newest"}),
        ("harbour in May 2023", {"proactive": True}),
        ("nothing of it", {"source": "cli"}),
    ],
)
def test_a_search_makes_few_round_trips(
    server: SessionStore, monkeypatch: pytest.MonkeyPatch, query: str, filters: dict[str, Any]
) -> None:
    store_common_words(server)
    trips = count_round_trips(server, monkeypatch, lambda: server.past.search(query, user="me", **filters))
    assert 0 < trips <= MAX_ROUND_TRIPS


@pytest.fixture
def shared(server: SessionStore) -> SessionStore:
    """A store with 12,000 messages of 60 owners, of whom each has a few sessions."""
    texts = [f"{word} kumquat 部署 tree" for word in ("harbour", "forecast", "truck")]
    columns = [server.index.columns({"content": text}) for text in texts]
    database = server.database
    with database.transaction() as connection:
        connection.execute(
            """INSERT INTO sessions (id, source, "user", started_at, last_active, message_count)
               SELECT 's' || n, 'cli', 'u' || n % 60, n, n, 100 FROM generate_series(1, 120) AS n"""
        )
        connection.execute(
            """INSERT INTO messages (session_key, position, size, timestamp, role, speaker, content, terms)
               SELECT s.key, n, 20, n, 'user', CASE n % 50 WHEN 0 THEN 'Ann' ELSE '' END, t.content,
                   t.terms::tsvector
               FROM generate_series(0, 99) AS n CROSS JOIN sessions s
               JOIN unnest(?::text[], ?::text[]) WITH ORDINALITY AS t (content, terms, number)
                   ON t.number = 1 + n % 3
               ORDER BY n, s.key""",
            (texts, [column["terms"] for column in columns]),
        )
    for table in ("messages", "sessions", "owners"):
        database.execute(f"VACUUM ANALYZE {table}")
    return server


def plans(db: SessionStore, search: Callable[[], object]) -> list[dict[str, Any]]:
    """Return the steps of the plans of all statements of a search."""
    database = db.database
    steps: list[dict[str, Any]] = []
    execute = database.execute

    def explained(sql: str, parameters: Any = ()) -> Any:
        (document,) = execute(f"EXPLAIN (FORMAT JSON) {sql}", parameters).fetchone()
        pending = [document[0]["Plan"] if isinstance(document, list) else json.loads(document)[0]["Plan"]]
        while pending:
            step = pending.pop()
            steps.append(step)
            pending += step.get("Plans", ())
        return execute(sql, parameters)

    database.execute = explained  # type: ignore[method-assign]
    try:
        search()
    finally:
        database.execute = execute  # type: ignore[method-assign]
    return steps


def test_no_look_up_of_an_owner_reads_a_whole_table(shared: SessionStore) -> None:
    searches: tuple[tuple[str, dict[str, Any]], ...] = (
        ("kumquat", {}),
        ("kumquat harbour", {"sort": "newest"}),
        ("部署 部", {}),
        ("kumquat AND harbour NOT 部署", {}),
        ("kum*", {"role": "user"}),
        ('"kumquat tree"', {"source": "cli"}),
        ("What did Ann say about harbour trees in May 1970?", {}),
    )
    for query, filters in searches:
        steps = plans(
            shared, lambda query=query, filters=filters: shared.past.search(query, user="u7", **filters)
        )

        scans = [step for step in steps if step["Node Type"] == "Seq Scan"]
        assert [step for step in scans if step["Relation Name"] == "messages"] == [], query
        # The owner stands in the condition of the index itself: else it would bring the hits of all owners.
        conditions = [step["Index Cond"] for step in steps if step.get("Index Name") == "messages_by_terms"]
        assert conditions, query
        assert all("owner_key" in text and "bucket" in text for text in conditions), query


def test_a_message_beyond_the_limits_of_the_index_is_stored_and_found(server: SessionStore) -> None:
    server.create_session("s", user="me")
    texts = (
        "kumquat " + "A1b2" * 5_000,  # one token of encoded data
        " ".join(f"kumquat w{number}" for number in range(90_000)),  # more words than a tsvector holds
        "kumquat " * 20_000,  # more positions
        "kumquat " + "x y " * 9_000 + "the last words",
        "部署" * 20_000 + " kumquat",
        "kumquat 'quoted' \\ back\\slash :1,2 & | ! <-> *",
    )
    ids = {server.append_message("s", "user", text) for text in texts}

    assert {hit.message_id for hit in server.past.search("kumquat", user="me")} == ids
    assert server.check() == []


def test_words_that_do_not_fit_are_the_rare_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tsvector, "MAX_VECTOR_BYTES", 30)
    terms = tsvector.vector_of(["often rare often seldom often once"]).split()
    assert terms[0] == "'often'"
    assert 1 < len(terms) < 4


def test_a_check_finds_rows_that_differ_and_a_rebuild_repairs_them(server: SessionStore) -> None:
    server.create_session("s", user="me")
    message = server.append_message("s", "user", "the kumquat tree")
    hidden = server.append_message("s", "user", "a kumquat that was undone")
    hide_message(server, "s", hidden)
    server.database.execute("UPDATE messages SET terms = '''other''' WHERE id = ?", (message,))
    (fault,) = server.check()
    assert "1 of 1 messages" in fault
    assert server.past.search("kumquat", user="me") == []

    assert server.index.rebuild() == 1

    assert server.check() == []
    assert [hit.message_id for hit in server.past.search("kumquat", user="me")] == [message]


def test_words_by_older_rules_are_reported_and_still_searched(server: SessionStore) -> None:
    server.create_session("s", user="me")
    server.append_message("s", "user", "the kumquat tree")
    assert server.meta.get(CUT_KEY) == CUT_VERSION
    server.meta.set(CUT_KEY, "1")
    assert f"version 1, not {CUT_VERSION}" in server.past.problem
    assert server.past.search("kumquat", user="me")

    server.index.rebuild()

    assert server.past.problem == ""


def test_speakers_of_all_owners_are_known_owner_by_owner(file: SessionStore, server: SessionStore) -> None:
    for db in (file, server):
        for owner, speakers in (("u1", ("Ann", "Bob")), ("u2", ("Ann", "Cleo")), ("u3", ())):
            db.create_session(owner, user=owner, source="cli" if owner == "u1" else "telegram")
            db.append_message(owner, "user", "nobody says this")
            for speaker in speakers:
                db.append_message(owner, "user", "tea", speaker=speaker)
        question = "What did Ann, Bob and Cleo say?"
        names = {
            name: sorted(set(db.index.scope_facts(question, filters, ()).names))
            for name, filters in (
                ("all", Filters()),
                ("u2", Filters(user="u2")),
                ("cli", Filters(sources=("cli",))),
                ("u2 at cli", Filters(user="u2", sources=("cli",))),
            )
        }
        assert names == {
            "all": ["Ann", "Bob", "Cleo"],
            "u2": ["Ann", "Cleo"],
            "cli": ["Ann", "Bob"],
            "u2 at cli": [],
        }
