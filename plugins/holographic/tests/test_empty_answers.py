"""An index of words that can't find what is stored is made anew before a search says that nothing is known."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hermes_holographic.store import FactStore

DAMAGE = {
    "zeroed blocks": "UPDATE facts_fts_data SET block = zeroblob(length(block))",
    "zeroed leaves": "UPDATE facts_fts_data SET block = zeroblob(length(block)) WHERE id > 10",
    "no index of leaves": "DELETE FROM facts_fts_idx",
    "no sizes": "DELETE FROM facts_fts_docsize",
    "no rows": "DELETE FROM facts_fts",
    "no words": "UPDATE facts_fts SET words = ''",
}


def opened(path: Path) -> FactStore:
    return FactStore(path, 1024, 0.5, lambda: 1.0)


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_index_is_made_anew(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "facts.db"
    store = opened(path)
    for number in range(30):
        store.add(f"The kumquat number {number} grows in Ghana.", "general")
    assert len(store.match(["kumquat"], 5, 0.0, None)) == 5
    store.db.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(DAMAGE[kind])
        connection.commit()
    store = opened(path)
    assert len(store.match(["kumquat"], 50, 0.0, None)) == 30
    assert store.match(["never"], 5, 0.0, None) == {}
    assert store.db.integrity() == []
    store.db.close()


def test_a_store_without_words_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(tmp_path / "facts.db")
    assert store.match(["never"], 5, 0.0, None) == {}
    fact_id, _ = store.add("It is as it is.", "general")
    assert store.match(["never"], 5, 0.0, None) == {}
    store.remove(fact_id)
    assert store.match(["never"], 5, 0.0, None) == {}
    assert not caplog.records
    store.db.close()
