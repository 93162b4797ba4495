"""Facts that leave for another provider and come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hermes_holographic import HolographicProvider

from hermes_core import Session
from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import BackendRefused


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session("s1", home=str(tmp_path))


@pytest.fixture
def provider(session: Session) -> Iterator[HolographicProvider]:
    opened = HolographicProvider(lambda: 1000.0)
    opened.initialize(session)
    yield opened
    opened.shutdown()


def exported(provider: HolographicProvider, session: Session) -> list[MemoryRecord]:
    return list(provider.export_memories("", session).records)


def test_a_fact_comes_back_with_trust_ratings_names_and_times(
    provider: HolographicProvider, session: Session, tmp_path: Path
) -> None:
    store = provider._facts_of(session).store
    fact, _ = store.add(
        "Mel keeps bees.", "project", "garden, bees", ["Mel Byrd"], source="session:s1", conversation="s1"
    )
    store.feedback(fact, helpful=True)
    store.feedback(fact, helpful=False)
    store.count_retrievals([fact])
    (record,) = exported(provider, session)
    assert (record.kind, record.tags, record.details["entities"]) == (
        "project",
        ("garden", "bees"),
        "Mel Byrd",
    )
    other = HolographicProvider(lambda: 5000.0)
    elsewhere = Session("s2", home=str(tmp_path / "other"))
    other.initialize(elsewhere)
    other.import_memory(record, elsewhere)
    assert [one.digest for one in exported(other, elsewhere)] == [record.digest]
    assert [fact["content"] for fact in other._facts_of(elsewhere).probe("Mel Byrd", limit=5)] == [
        "Mel keeps bees."
    ]
    other.shutdown()


def test_what_another_provider_knew_of_a_memory_is_given_back(
    provider: HolographicProvider, session: Session
) -> None:
    foreign = MemoryRecord("Tea at four.", "m1", 5.0, 6.0, "world", (), {"document": "d7", "trust": 9.0})
    provider.import_memory(foreign, session)
    (record,) = exported(provider, session)
    assert (record.kind, record.details["document"], record.created_at) == ("world", "d7", 5.0)
    assert record.details["trust"] == 1.0


def test_a_fact_that_is_there_keeps_its_trust_and_another_spelling_is_refused(
    provider: HolographicProvider, session: Session
) -> None:
    provider.import_memory(MemoryRecord("Likes tea", details={"trust": 0.9}), session)
    provider.import_memory(MemoryRecord("Likes tea", details={"trust": 0.1}), session)
    assert [one.details["trust"] for one in exported(provider, session)] == [0.9]
    with pytest.raises(BackendRefused, match="another spelling"):
        provider.import_memory(MemoryRecord("likes TEA!"), session)
    with pytest.raises(BackendRefused, match="no word"):
        provider.import_memory(MemoryRecord(" "), session)


def test_pages_go_on_behind_the_last_fact(
    provider: HolographicProvider, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_holographic.provider.MAX_EXPORTED", 2)
    store = provider._facts_of(session).store
    for number in range(5):
        store.add(f"Fact number {number}.", "general")
    store.remove(2)
    texts, cursor = [], ""
    while True:
        page = provider.export_memories(cursor, session)
        texts += [one.text for one in page.records]
        cursor = page.cursor
        if not cursor:
            break
    assert texts == [f"Fact number {number}." for number in (0, 2, 3, 4)]


def test_a_removed_fact_leaves_nothing_of_its_import(provider: HolographicProvider, session: Session) -> None:
    provider.import_memory(MemoryRecord("Secret of Ann.", details={"origin": "diary"}), session)
    store = provider._facts_of(session).store
    store.remove(int(exported(provider, session)[0].id))
    assert store.db.execute("SELECT count(*) FROM imported_facts").fetchone()[0] == 0
