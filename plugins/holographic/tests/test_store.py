from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hermes_holographic import hrr
from hermes_holographic.entities import MAX_ENTITIES
from hermes_holographic.store import FactStore
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import MemoryWrite
from hermes_core.kit import Database

ADD_FOREVER = """
import sys, itertools
from pathlib import Path
from hermes_holographic.store import FactStore
store = FactStore(Path(sys.argv[1]), 1024, 0.5, lambda: 1.0)
for number in itertools.count():
    fact_id, _ = store.add(f"Mel saw comet {number} with {sys.argv[2]}", "general")
    print(fact_id, number, flush=True)
"""


def child(path: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ADD_FOREVER, str(path), name], stdout=subprocess.PIPE, text=True
    )


def read(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


@pytest.fixture
def store(agent: Any) -> FactStore:
    found: FactStore = agent.provider.open(agent.home).store
    return found


def test_the_same_fact_again_is_the_old_one_confirmed(store: FactStore, agent: Any) -> None:
    first = store.add("Mel likes tea.", "general")
    agent.clock.now += 10
    assert first == (1, True)
    assert store.add("  mel  LIKES tea ", "project") == (1, False)
    fact = store.get(1)
    assert fact is not None
    assert fact["category"] == "general"
    assert fact["confirmed_at"] == fact["created_at"] + 10


def test_a_fact_said_again_in_other_letters_reads_as_it_was_said_last(agent: Any) -> None:
    known = agent.add("The alarm code is tulip", tags="house")
    agent.tool("fact_feedback", action="helpful", fact_id=known)
    assert agent.add("The alarm code is TULIP!") == known
    (fact,) = agent.fact("search", query="alarm code")["results"]
    assert (fact["content"], fact["tags"]) == ("The alarm code is TULIP!", "house")
    assert fact["trust_score"] == 0.55


def test_a_fact_that_helps_more_often_than_not_keeps_its_standing_where_steps_of_trust_sink(
    store: FactStore,
) -> None:
    fact_id, _ = store.add("Mel likes tea.", "general")
    assert (store.get(fact_id) or {})["reliability"] == 0.5
    for helpful in (True, False, True) * 10:
        store.feedback(fact_id, helpful)
    fact = store.get(fact_id) or {}
    assert fact["trust_score"] == pytest.approx(0.5)
    assert fact["reliability"] == round((2 + 20) / (4 + 30), 4)
    store.update(fact_id, trust_delta=-0.5)
    assert (store.get(fact_id) or {})["reliability"] == round(20 / 34, 4)


def test_new_text_replaces_all_that_the_old_one_was_found_by(store: FactStore) -> None:
    fact_id, _ = store.add("Bob lives in Berlin", "general", entities=["The Climbers"])
    assert store.update(fact_id, content="Zoë lives in Tokyo")
    assert (store.entities.about("bob"), store.entities.about("zoë"), store.entities.about("climbers")) == (
        [],
        [fact_id],
        [fact_id],
    )
    assert store.match(["berlin"], 9, 0, None) == {}
    assert set(store.match(["tokyo"], 9, 0, None)) == {fact_id}


def test_a_fact_of_many_names_keeps_the_given_ones_and_as_many_as_its_vector_holds(store: FactStore) -> None:
    crowd = ", ".join(f"Visitor{i} Nobody{i}" for i in range(40))
    fact_id, _ = store.add(f"we met {crowd}", "general", entities=["Ann"])
    assert len(store.entities.keys_of(fact_id)) == MAX_ENTITIES
    assert store.entities.about("ann") == [fact_id]


def test_a_removed_fact_leaves_nothing_and_its_id_is_not_given_again(store: FactStore) -> None:
    store.add("Bob lives in Berlin", "general")
    fact_id, _ = store.add("Bob's boat is called Vega", "general")
    assert store.remove(fact_id)
    assert not store.remove(fact_id)
    assert store.entities.about("vega") == []
    assert store.match(["boat"], 9, 0, None) == {}
    assert store.add("Bob's boat is called Vega", "general") == (fact_id + 1, True)


def test_an_add_costs_the_same_among_thousands_of_facts(store: FactStore) -> None:
    def cost(number: int) -> tuple[int, int]:
        statements: list[str] = []
        steps: list[int] = []
        store.db.connection.set_trace_callback(statements.append)
        store.db.connection.set_progress_handler(lambda: steps.append(1), 10)
        store.add(f"Bob met Eve at comet {number}", "general")
        store.db.connection.set_trace_callback(None)
        store.db.connection.set_progress_handler(None, 0)
        return len(statements), len(steps)

    with store.db.transaction():
        store.add("Bob met Eve", "general")
        statements, steps = cost(1)
        for number in range(2, 5000):
            store.add(f"Bob met Eve at comet {number}", "general")
        later_statements, later_steps = cost(5000)
    assert later_statements == statements
    assert later_steps < 1.5 * steps


def test_facts_of_another_process_are_found_as_soon_as_they_are_written(agent: Any) -> None:
    agent.add("Mel plays chess")
    process = child(agent.home / "memory_store.db", "Ann")
    try:
        ids = [int(line.split()[0]) for line in read(process, 20)]
        found = agent.provider.open(agent.home).probe("Ann", limit=100_000)
        assert set(ids) <= {fact["fact_id"] for fact in found}
        # What is written while it looks is found by its name, and may not be in the matrix yet.
        assert all(fact["confidence"] > hrr.SIGMAS for fact in found if fact["fact_id"] in ids)
    finally:
        process.kill()
        process.communicate()


def test_one_thread_reads_while_another_writes(agent: Any) -> None:
    def write() -> None:
        for number in range(150):
            agent.provider.on_memory_write(
                MemoryWrite(f"w{number}", "add", "memory", f"Ann saw comet {number}"), agent.session
            )

    writer = threading.Thread(target=write)
    writer.start()
    seen = [agent.fact("probe", entity="Ann", limit=50)["count"]]
    while writer.is_alive():
        seen.append(agent.fact("probe", entity="Ann", limit=50)["count"])
    writer.join()
    assert seen == sorted(seen)
    memory = agent.provider.open(agent.home)
    assert len(memory.probe("Ann", limit=500)) == len(memory.matrix) == 150


def test_two_processes_add_to_one_file_and_lose_nothing(agent: Any) -> None:
    processes = [child(agent.home / "memory_store.db", name) for name in ("Ann", "Ben")]
    told = {name: read(p, 100) for name, p in zip(("Ann", "Ben"), processes, strict=True)}
    for process in processes:
        process.kill()
        process.communicate()
    for name, lines in told.items():
        found = agent.provider.open(agent.home).probe(name, limit=10_000)
        assert {int(line.split()[0]) for line in lines} <= {fact["fact_id"] for fact in found}


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
@pytest.mark.parametrize("acknowledged", [1, 7, 40])
def test_what_was_added_before_a_kill_is_there_and_whole(tmp_path: Path, acknowledged: int) -> None:
    process = child(tmp_path / "facts.db", "Ann")
    lines = read(process, acknowledged)
    process.send_signal(signal.SIGKILL)
    lines += process.communicate()[0].splitlines()
    store = FactStore(tmp_path / "facts.db", 1024, 0.5, lambda: 1.0)
    about = set(store.entities.about("ann"))
    assert {int(line.split()[0]) for line in lines if " " in line} <= about
    assert store.db.integrity() == []
    assert set(store.match(["comet"], 10_000, 0, None)) == about
    assert {fact_id for _, fact_id, _ in store.vectors_since(0)} == about
    store.db.close()


def test_another_dimension_reads_the_old_file_and_makes_its_vectors_anew(
    start: Callable[..., Any],
) -> None:
    start(hrr_dim=256).add("Bob lives in Berlin")
    for dim in (1024, 512):
        agent = start(hrr_dim=dim)
        (fact,) = agent.fact("probe", entity="Bob")["results"]
        assert fact["confidence"] > hrr.SIGMAS
        assert agent.provider.open(agent.home).store.encode_stale() == 0


def test_vectors_of_another_encoder_are_made_anew(start: Callable[..., Any]) -> None:
    agent = start()
    agent.add("Bob lives in Berlin")
    Database(agent.home / "memory_store.db").execute(
        "UPDATE fact_vectors SET encoder = 'older', entity = x'00'"
    )
    (fact,) = start().fact("probe", entity="Bob")["results"]
    assert fact["confidence"] > hrr.SIGMAS


def test_a_removed_message_leaves_a_gap_and_a_new_one_comes_at_the_end(store: FactStore) -> None:
    ids = [store.add(f"Ann: number {n}", "general", conversation="s1")[0] for n in range(3)]
    store.remove(ids[1])
    ids.append(store.add("Ann: number 3", "general", conversation="s1")[0])
    places = store.around(ids, 0, 0)
    assert [places[i]["position"] for i in (ids[0], ids[2], ids[3])] == [1, 3, 4]


def test_a_fact_is_found_in_other_spellings_and_forms_also_one_of_an_older_file(
    start: Callable[..., Any],
) -> None:
    agent = start()
    agent.add("Алёна потеряла документы")
    db = Database(agent.home / "memory_store.db")
    db.execute("UPDATE facts_fts SET words = 'Алёна потеряла документы'")
    db.execute("UPDATE entity_names SET key = 'алёна'")
    db.execute("UPDATE entities SET key = 'алёна'")
    db.execute("DELETE FROM schema_migrations WHERE name LIKE 'one_spelling%'")
    agent = start()
    for asked in ("документ", "документов"):
        (fact,) = agent.fact("search", query=asked)["results"]
        assert fact["content"] == "Алёна потеряла документы"
    (fact,) = agent.fact("probe", entity="Алена")["results"]
    assert fact["content"] == "Алёна потеряла документы"


@pytest.mark.parametrize("asked", ["🎂", "🎂?", "when is the 🎂🎉", "ที่นี่"])
def test_signs_that_are_no_letters_are_found(start: Callable[..., Any], asked: str) -> None:
    agent = start()
    agent.add("Ana's day 🎂🎉 is in May ที่นี่")
    agent.add("It rains ☔ in June")
    (fact,) = agent.fact("search", query=asked)["results"]
    assert fact["content"].startswith("Ana")


@pytest.mark.parametrize("asked", ["猫", "猫?", "猫 🎂"])
def test_a_single_character_finds_its_fact(start: Callable[..., Any], asked: str) -> None:
    agent = start()
    agent.add("我家的猫叫小黑")
    (fact,) = agent.fact("search", query=asked)["results"]
    assert fact["content"].startswith("我家的猫")


def test_a_hebrew_word_is_found_with_its_prefix(start: Callable[..., Any]) -> None:
    agent = start()
    agent.add("דוד גר בירושלים")
    (fact,) = agent.fact("search", query="ירושלים")["results"]
    assert fact["content"] == "דוד גר בירושלים"


@given(st.lists(st.text(min_size=1, max_size=60).filter(str.strip), min_size=1, max_size=8))
def test_any_text_is_stored_found_by_its_own_words_and_removed(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    store = FactStore(tmp_path_factory.mktemp("facts") / "f.db", 128, 0.5, lambda: 1.0)
    ids = {store.add(text, "general")[0] for text in clean}
    assert all(store.find(text) in ids for text in clean)
    assert all(store.remove(fact_id) for fact_id in ids)
    assert store.count() == 0
    assert store.db.execute("SELECT count(*) FROM facts_fts").fetchone()[0] == 0
    store.db.close()
