"""Vectors on a PostgreSQL server: made by several machines at once, and kept apart by owner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from hermes_core.errors import ConfigError
from hermes_core.sessions import maintenance
from hermes_core.sessions.owners import give_to_home
from hermes_core.sessions.search.protocol import Vector
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_agent.message_rows import hide_message
from hermes_memory_postgresql.pgvectors import PostgresVectors
from hermes_memory_semantic import dense, vector_store
from hermes_memory_semantic.vector_store import SqliteVectors
from hermes_memory_semantic.vectors import VectorIndex
from plugins.semantic.tests.conftest import OpenStore, open_store
from tests.sessions.conftest import server_database

__all__ = ["open_store"]

pytest.importorskip("numpy")

SUBJECTS = (("dog", "puppy"), ("money", "rent"), ("rain", "storm"), ("cat", "kitten"))


class SubjectEncoder(dense.Encoder):
    """An encoder whose vectors name the subjects of a text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, texts: Any, without: Any = ()) -> list[dense.Encoding]:
        import numpy

        self.texts += texts
        rows = numpy.full((len(texts), dense.DIMENSION), 0.01, numpy.float32)
        for row, text in zip(rows, texts, strict=True):
            for number, words in enumerate(SUBJECTS):
                row[number] = 0.3 * any(word in text for word in words)
        rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
        return [dense.Encoding(row, row[None]) for row in rows]


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> SubjectEncoder:
    encoder = SubjectEncoder()
    monkeypatch.setattr(dense, "installed", lambda: True)
    monkeypatch.setattr(dense, "loaded", lambda: True)
    monkeypatch.setattr(dense, "encoder", lambda: encoder)
    # Each test says when vectors are made.
    monkeypatch.setattr(VectorIndex, "wake", lambda _self: None)
    return encoder


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "machine" in metafunc.fixturenames:
        kinds = ["postgresql"]
        if "sqlite" in [mark.name for mark in metafunc.definition.iter_markers()] or "opened" in (
            metafunc.fixturenames
        ):
            kinds.insert(0, "sqlite")
        metafunc.parametrize("open_store", kinds, indirect=True)


@pytest.fixture
def machine(open_store: OpenStore) -> Callable[[], SessionStore]:
    """Opens the test's store on the server, as each machine does."""
    return open_store


@pytest.fixture
def opened(machine: Callable[[], SessionStore]) -> Callable[[], SessionStore]:
    """The same, in tests that also run on a file."""
    return machine


def index_of(db: SessionStore) -> VectorIndex:
    assert db.past.vectors is not None
    return db.past.vectors


def say(db: SessionStore, session: str, *texts: str, user: str = "") -> list[int]:
    db.create_session(session, user=user)
    return [db.append_message(session, "user", text) for text in texts]


def count(db: SessionStore, sql: str = "SELECT count(*) FROM vectors") -> int:
    return int(db.database.execute(sql).fetchone()[0])


def texts_of(db: SessionStore, query: str, user: str | None = None) -> list[str]:
    return [hit.text for hit in db.past.search(query, user=user, everybody=user is None)]


# ------------------------------------------------------------------ making


def test_a_message_whose_transaction_commits_late_gets_its_vector(
    machine: Callable[[], SessionStore],
) -> None:
    db, other = machine(), machine()
    say(db, "s1", "the rent", user="ann")
    say(other, "s2", "a storm", user="bob")
    index_of(db).build()
    with db.transaction():
        late = db.append_message("s1", "user", "a puppy")
        early = []
        thread = threading.Thread(target=lambda: early.append(other.append_message("s2", "user", "a kitten")))
        thread.start()
        thread.join()
        assert late < early[0]
        assert index_of(other).build() == 1
    assert index_of(other).missing() == 1
    assert index_of(other).build() == 1
    assert texts_of(db, "which dog?")[0] == "a puppy"
    assert texts_of(other, "which dog?")[0] == "a puppy"


def test_the_thread_is_woken_after_the_commit(
    opened: Callable[[], SessionStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = opened()
    db.create_session("s1")
    missing: list[int] = []
    monkeypatch.setattr(index_of(db), "wake", lambda: missing.append(index_of(db).missing()))
    with db.transaction():
        db.append_turn("s1", [{"role": "user", "content": "a puppy"}], "t1", 1)
        assert missing == []
    assert missing == [1]
    db.append_message("s1", "user", "the rent")
    assert missing == [1, 2]


def test_the_first_start_misses_no_message_that_is_being_stored(
    machine: Callable[[], SessionStore], open_store: OpenStore
) -> None:
    writer, db = open_store(by_meaning=False), machine()
    say(writer, "s1", "the rent")
    begun, commit = threading.Event(), threading.Event()
    counts: list[int] = []

    def write() -> None:
        with writer.transaction():
            writer.append_message("s1", "user", "a puppy")
            begun.set()
            commit.wait(30)

    threads = [
        threading.Thread(target=write),
        threading.Thread(target=lambda: counts.append(index_of(db).build())),
    ]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    threads[1].join(0.3)  # it waits for the other transaction
    commit.set()
    for thread in threads:
        thread.join()
    assert counts == [2]
    assert texts_of(db, "which dog?")[0] == "a puppy"
    assert index_of(db).missing() == 0


def test_several_machines_share_the_work(
    machine: Callable[[], SessionStore], encoder: SubjectEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = [machine() for _ in range(3)]
    say(machines[0], "s1", *(f"message {number} of the storm" for number in range(60)))
    barrier, mine = threading.Barrier(3), threading.local()
    encode = encoder.encode

    def encode_together(texts: Any, without: Any = ()) -> list[dense.Encoding]:
        if not hasattr(mine, "met"):
            mine.met = True
            barrier.wait(30)  # each of them is at work at the same time
        return encode(texts, without)

    monkeypatch.setattr(encoder, "encode", encode_together)

    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda db=db: counts.append(index_of(db).build()))  # type: ignore[misc]
        for db in machines
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 60
    assert min(counts) > 0
    assert len(encoder.texts) == len(set(encoder.texts)) == 60
    assert count(machines[0], "SELECT count(*) FROM missing_vectors") == 0


def test_messages_with_vectors_are_not_queued_again(machine: Callable[[], SessionStore]) -> None:
    db = machine()
    say(db, "s1", "a puppy", "the rent")
    index_of(db).build()
    db.database.execute("UPDATE vector_state SET queued_to = 0")
    say(db, "s1", "a storm")
    assert index_of(db).build() == 1
    assert index_of(db).missing() == 0


def test_what_a_dead_machine_has_taken_is_made_after_its_lease(
    machine: Callable[[], SessionStore],
) -> None:
    db, dead = machine(), machine()
    say(db, "s1", "a puppy", "the rent")
    taken = index_of(dead)._store.take(1)
    assert len(taken) == 1
    assert [row["content"] for row in index_of(db)._store.take(8)] == ["the rent"]
    db.database.execute("UPDATE missing_vectors SET leased_until = 1")
    assert index_of(db).build() == 2
    assert texts_of(db, "which dog?")[0] == "a puppy"


def test_after_a_fault_the_messages_are_free_again(
    machine: Callable[[], SessionStore], encoder: SubjectEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, other = machine(), machine()
    say(db, "s1", "a puppy")

    def fail(*_: Any) -> Any:
        raise OSError("no model today")

    with monkeypatch.context() as patch:
        patch.setattr(encoder, "encode", fail)
        with pytest.raises(OSError, match="no model"):
            index_of(db).build()
    assert index_of(other).build() == 1


def test_a_message_without_readable_text_is_no_gap(opened: Callable[[], SessionStore]) -> None:
    db = opened()
    say(db, "s1", "a puppy", "\n \n", "the rent")
    assert index_of(db).missing() == 3
    index_of(db).build()
    assert index_of(db).missing() == 0
    assert count(db) == 2


def other_model(db: SessionStore) -> VectorIndex:
    """Return the index of a machine with another model on the same store."""
    other = VectorIndex(db.database)
    other._store = PostgresVectors(db.database, "newer", dense.DIMENSION, True)
    return other


def test_a_machine_with_another_model_leaves_the_vectors_and_searches_by_words(
    machine: Callable[[], SessionStore],
) -> None:
    db = machine()
    say(db, "s1", "a puppy")
    index_of(db).build()
    for _ in range(2):  # also after a new start
        other = other_model(db)
        assert "are made by 'all-MiniLM" in other.fault
        assert "not by 'newer'" in other.fault
        assert "sessions rebuild" in other.fault
        assert not other.works()
        assert other.likeness("which dog?") is None
        with pytest.raises(ConfigError, match="not by 'newer'"):
            other.build()
    assert count(db) == 1
    assert index_of(db).fault == ""
    assert texts_of(db, "which dog?")[0] == "a puppy"


def test_two_machines_that_begin_with_different_models_do_not_fight(
    machine: Callable[[], SessionStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = machine()
    say(db, "s1", "a puppy")
    other = other_model(db)
    store = index_of(db)._store
    assert isinstance(store, PostgresVectors)
    create = store._create_state

    def create_late() -> None:
        other._store.take(0)
        create()

    monkeypatch.setattr(store, "_create_state", create_late)
    with pytest.raises(ConfigError, match="by 'newer', not by 'all-MiniLM"):
        index_of(db).build()
    assert other.build() == 1


def test_a_rebuild_makes_all_vectors_by_the_model_of_its_machine(machine: Callable[[], SessionStore]) -> None:
    db = machine()
    say(db, "s1", "a puppy")
    index_of(db).build()
    other = other_model(db)
    assert other.fault
    other.forget()
    assert other.fault == ""
    assert other.build() == 1
    say(db, "s1", "the rent")
    with pytest.raises(ConfigError, match="by 'newer', not by 'all-MiniLM"):
        index_of(db).build()
    assert index_of(db).likeness("which dog?") is None
    assert "sessions rebuild" in index_of(db).fault
    assert other.build() == 1
    # Its own model again: a program that runs goes on without a new start.
    maintenance.rebuild_vectors(machine())
    assert index_of(db).likeness("which dog?") is not None
    assert index_of(db).fault == ""


def test_a_rebuild_without_a_model_deletes_no_vector(
    opened: Callable[[], SessionStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = opened()
    say(db, "s1", "a puppy")
    index_of(db).build()

    def fail() -> Any:
        raise ConfigError("the model is gone", "install it")

    monkeypatch.setattr(dense, "encoder", fail)
    with pytest.raises(ConfigError, match="the model is gone"):
        maintenance.rebuild_vectors(db)
    assert count(db) == 1


def test_vectors_of_another_model_that_were_under_way_are_not_stored(
    machine: Callable[[], SessionStore], encoder: SubjectEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = machine()
    say(db, "s1", "a puppy")
    newer = PostgresVectors(db.database, "newer", dense.DIMENSION, True)
    encode = encoder.encode

    def encode_late(texts: Any, without: Any = ()) -> list[dense.Encoding]:
        newer.forget()
        return encode(texts, without)

    monkeypatch.setattr(encoder, "encode", encode_late)
    index_of(db)._step()
    assert count(db) == 0
    assert newer.missing() == 1


# ------------------------------------------------------------------ removing


def test_hidden_and_deleted_messages_leave_no_vector(opened: Callable[[], SessionStore]) -> None:
    db, other = opened(), opened()
    first, second, third = say(db, "s1", "a puppy", "a dog", "the rent")
    say(db, "s2", "the storm", "another puppy")
    index_of(db).build()
    assert set(texts_of(other, "which dog?")) >= {"a puppy", "another puppy", "a dog"}

    def nearest() -> list[int]:
        likeness = index_of(other).likeness("which dog?")
        assert likeness is not None
        return sorted(likeness.best(9))

    assert len(nearest()) == 5
    hide_message(db, "s1", second)
    assert count(db) == 4
    assert second not in nearest()
    db.rewind("s1", third)
    assert count(db) == 3
    assert third not in nearest()
    db.delete_session("s2")
    assert count(db) == 1
    assert nearest() == [first]
    db.rewind("s1", first)
    assert count(db) == 0
    assert index_of(other).missing() == 0


def test_what_is_hidden_before_it_has_a_vector_gets_none(machine: Callable[[], SessionStore]) -> None:
    db = machine()
    first, second = say(db, "s1", "a puppy", "the rent")
    index_of(db).build()
    ids = say(db, "s1", "a kitten", "a cat")
    taken = index_of(db)._store.take(8)
    hide_message(db, "s1", ids[0])
    vector = partial(Vector, piece=0, first=0, last=1, own=b"\1" * dense.DIMENSION, words=b"")
    index_of(db)._store.save(ids, [vector(message_id=number) for number in ids], dense.DIMENSION)
    assert len(taken) == 2
    assert sorted(row[0] for row in db.database.execute("SELECT message_id FROM vectors")) == [
        first,
        second,
        ids[1],
    ]
    assert count(db, "SELECT count(*) FROM missing_vectors") == 0


# ------------------------------------------------------------------ owners


@pytest.fixture
def people(opened: Callable[[], SessionStore]) -> Iterator[SessionStore]:
    """A store of two people and others."""
    db = opened()
    say(db, "of-ann", "Ann has a puppy", "Ann pays the rent", user="ann")
    say(db, "of-bob", "Bob has a dog", "Bob saw a storm", user="bob")
    for number in range(20):
        say(db, f"of-{number}", "the kitten", "the puppy", user=f"user-{number}")
    index_of(db).build()
    return db


def test_owners_never_see_one_anothers_vectors(people: SessionStore) -> None:
    for user, ids in (("ann", {1, 2}), ("bob", {3, 4}), ("nobody", set())):
        likeness = index_of(people).likeness("which dog?", user=user)
        assert set(likeness.best(100) if likeness else ()) == ids
    assert texts_of(people, "which dog?", "ann")[0] == "Ann has a puppy"
    assert texts_of(people, "which dog?", "bob")[0] == "Bob has a dog"
    everybody = index_of(people).likeness("which dog?")
    assert everybody is not None
    assert len(everybody.best(100)) == 44


def test_the_messages_of_others_change_no_score(people: SessionStore) -> None:
    def score() -> float:
        return round(people.past.search("which dog?", user="ann")[0].score, 9)

    before = score()
    say(people, "of-bob", *(f"Bob has dog number {number}" for number in range(30)))
    index_of(people).build()
    assert score() == before


def test_a_session_that_gets_another_owner_takes_its_vectors_along(
    people: SessionStore, opened: Callable[[], SessionStore]
) -> None:
    other = opened()
    for user in ("bob", ""):
        index_of(other).likeness("which dog?", user=user)
    give_to_home(people, "bob")

    at_home = index_of(other).likeness("which dog?", user="")
    assert at_home is not None
    assert set(at_home.best(9)) == {3, 4}
    assert index_of(other).likeness("which dog?", user="bob") is None


def test_a_session_that_gets_its_first_owner_takes_its_vectors_along(
    opened: Callable[[], SessionStore],
) -> None:
    db, other = opened(), opened()
    say(db, "s1", "a puppy")
    say(db, "s2", "a dog", user="ann")
    index_of(db).build()
    index_of(other).likeness("which dog?", user="ann")
    db.create_session("s1", user="ann")
    likeness = index_of(other).likeness("which dog?", user="ann")
    assert likeness is not None
    assert set(likeness.best(9)) == {1, 2}


def test_a_process_holds_the_vectors_of_the_owners_who_searched_last(
    people: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = index_of(people)._store
    if not isinstance(store, SqliteVectors):
        pytest.skip("the server compares them")
    monkeypatch.setattr(vector_store, "MAX_CACHED_BYTES", 3 * 2 * (dense.DIMENSION + 32))
    for user in ("ann", "bob", "user-1", "user-2"):
        index_of(people).likeness("which dog?", user=user)
    assert store._cache.users == ["bob", "user-1", "user-2"]
    # More than that is read in parts, and not held.
    monkeypatch.setattr(vector_store, "VECTORS_PER_PART", 5)
    everybody = index_of(people).likeness("which dog?")
    assert everybody is not None
    assert len(everybody.nearness.ids) == 44
    assert None not in store._cache.users


def test_vectors_that_others_store_meanwhile_are_compared(
    people: SessionStore, opened: Callable[[], SessionStore]
) -> None:
    other = opened()
    for number in range(3):
        text = f"Ann walks dog number {number}"
        (message,) = say(people, "of-ann", text)
        say(people, "of-bob", f"Bob walks dog number {number}")
        index_of(people).build()
        likeness = index_of(other).likeness("which dog?", user="ann")
        assert likeness is not None
        assert message in likeness.best(9)
        assert len(likeness.best(99)) == 3 + number


# ------------------------------------------------------------------ with and without pgvector


def test_both_engines_give_the_same_results(
    machine: Callable[[], SessionStore], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        f"{('dog', 'money', 'rain', 'kitten')[number % 4]} {'puppy' * (number % 3)} number {number}"
        for number in range(60)
    ]
    results = []
    for db in (machine(), SessionStore(tmp_path / "file.db", make_vectors=VectorIndex)):
        say(db, "s1", *texts, "x " * 400 + "my rent and a storm and a kitten", user="ann")
        index_of(db).build()
        results.append(
            [
                (hit.message_id, round(hit.score, 5), hit.span)
                for query in ("which dog?", "a puppy in the rain", "kitten")
                for user in ("ann", None)
                for hit in db.past.search(query, user=user, everybody=user is None, limit=20)
            ]
        )
    db.close()
    assert results[0] == results[1]
    assert len(results[0]) == 120


def test_the_store_names_the_extension(machine: Callable[[], SessionStore]) -> None:
    index = index_of(machine())
    assert index.description().startswith("pgvector 0.")
    assert index.remedy() == ""


def test_a_server_without_the_extension_is_searched_by_words_and_has_vectors_after_a_rebuild(
    plain_server: tuple[str, str], postgres_schema: str, postgres_url: str
) -> None:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    url, password = plain_server
    databases = [server_database(url, f"{postgres_schema[:40]}_c", password) for _ in range(2)]
    db, other = (SessionStore(database, make_vectors=VectorIndex) for database in databases)
    say(db, "s1", "a puppy", "the rent", "a storm")
    assert index_of(db).build() == 0
    assert index_of(db).missing() == 0
    assert index_of(db).works()
    assert "no vectors" in index_of(db).description()
    assert "CREATE EXTENSION vector" in index_of(db).remedy()
    assert maintenance.rebuild_vectors(db) == 0
    assert count(db, "SELECT count(*) FROM missing_vectors") == 0
    assert index_of(other).likeness("which dog?") is None
    assert texts_of(other, "the rent")[0] == "the rent"
    assert index_of(other).fault == ""
    name = conninfo_to_dict(url)["dbname"]
    admin_url = make_conninfo(**{**conninfo_to_dict(postgres_url), "dbname": name})  # type: ignore[arg-type]
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION vector WITH SCHEMA public")
    try:
        assert index_of(db).remedy().startswith("hermes-memory sessions rebuild")
        assert maintenance.rebuild_vectors(db) == 3
        assert index_of(db).description().startswith("pgvector")
        for store in (db, other):
            assert texts_of(store, "which dog?")[0] == "a puppy"
        say(db, "s1", "a kitten")
        with psycopg.connect(admin_url, autocommit=True) as admin:
            admin.execute("DROP EXTENSION vector CASCADE")
        # The extension is gone, with all vectors; one message waits in the queue.
        assert index_of(db).build() == 0
        assert index_of(db).likeness("which dog?") is None
        assert texts_of(db, "the rent")[0] == "the rent"
        assert "CREATE EXTENSION vector" in index_of(db).remedy()
    finally:
        for store in (db, other):
            store.close()
        with psycopg.connect(admin_url, autocommit=True) as admin:
            admin.execute("DROP EXTENSION IF EXISTS vector CASCADE")


def test_the_vectors_of_an_owner_are_found_by_an_index(people: SessionStore) -> None:
    if not people.database.shared:
        pytest.skip("see test_plans")
    people.database.execute("ANALYZE")
    with people.database.transaction() as connection:
        connection.execute("SET LOCAL enable_seqscan = off")
        for sql in (
            "SELECT own FROM vectors v WHERE v.owner_key = (SELECT key FROM owners WHERE owner = 'ann')",
            "SELECT count(*) FROM missing_vectors x WHERE x.owner_key = (SELECT key FROM owners WHERE owner = 'ann')",
            "SELECT message_id FROM missing_vectors WHERE leased_until <= 1 ORDER BY message_id LIMIT 8",
        ):
            plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {sql}"))
            assert "Seq Scan" not in plan, plan


def test_a_search_by_meaning_takes_three_round_trips_more(
    people: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plugins.postgresql.tests.test_gin import MAX_ROUND_TRIPS, count_round_trips

    if not index_of(people).description():
        pytest.skip("for servers that compare vectors")
    people.past.search("which dog?", user="ann")
    trips = count_round_trips(people, monkeypatch, lambda: people.past.search("which dog?", user="ann"))
    assert 0 < trips <= MAX_ROUND_TRIPS + 3


def test_a_store_without_vectors_queues_nothing(
    open_store: OpenStore, machine: Callable[[], SessionStore]
) -> None:
    db = open_store(by_meaning=False)
    say(db, "s1", "a puppy")
    assert count(db, "SELECT count(*) FROM missing_vectors") == 0
    later = machine()
    assert index_of(later).missing() == 1
    assert index_of(later).build() == 1
