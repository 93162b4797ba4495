"""A person is forgotten: the file of their facts, or the facts of their sessions in one store for all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hermes_holographic import HolographicProvider

from hermes_core import HermesHome, MemoryWrite, Query, Session, ToolCall, open_memory
from hermes_core.contract.values import Erasure
from hermes_core.storage.inventory import Inventory
from hermes_memory_testing import driving
from tests.forgetting_cells import ROWS, hold

ADA, BOB = ({"platform": "telegram", "user_id": user} for user in ("ada", "bob"))
TORTOISE = 'Mel Brackwater has the tortoise "Quillfeather"'
PARROT = 'Ann Marrowby has the parrot "Alderney"'


class Facts:
    """A provider in a home, with a fact of Ada, of Bob and of the person at home."""

    def __init__(self, home: HermesHome, provider: HolographicProvider) -> None:
        self.path, self.provider = home.path, provider
        self.ada, self.bob, self.own = (
            Session(name, home=str(home.path), **who) for name, who in (("s1", ADA), ("s2", BOB), ("s3", {}))
        )
        for session, fact in (
            (self.ada, TORTOISE),
            (self.bob, PARROT),
            (self.own, "The tent is in the cellar."),
        ):
            self.add(session, fact)

    def add(self, session: Session, fact: str) -> None:
        call = ToolCall("fact_store", {"action": "add", "content": fact})
        assert "error" not in json.loads(str(self.provider.handle_tool_call(call, session)))

    def knows(self, session: Session, question: str) -> str:
        return self.provider.prefetch(Query(question), session).render()

    def held(self, word: str) -> list[str]:
        """The files of the home with this word."""
        files = (path for path in self.path.rglob("*") if path.is_file())
        return [path.name for path in files if word.encode() in path.read_bytes()]


def in_home(home: HermesHome, **settings: object) -> Iterator[Facts]:
    with driving(HolographicProvider(), home, settings) as driven:
        yield Facts(home, driven.provider)


@pytest.fixture
def facts(hermes_home: HermesHome) -> Iterator[Facts]:
    yield from in_home(hermes_home)


@pytest.fixture
def shared(hermes_home: HermesHome) -> Iterator[Facts]:
    yield from in_home(hermes_home, shared=True)


def test_the_file_of_a_user_goes_and_those_of_others_stay(facts: Facts) -> None:
    erasure = facts.provider.forget_user(facts.ada)
    assert "with its 1 facts" in erasure.deleted[0]
    assert not Path(erasure.deleted[0].split(" with its")[0]).exists()
    assert facts.held("Quillfeather") == []
    assert "Alderney" in facts.knows(facts.bob, "Who has the parrot?")
    assert "cellar" in facts.knows(facts.own, "Where is the tent?")
    assert facts.provider.forget_user(facts.ada) == Erasure()
    assert facts.knows(facts.ada, "Who has the tortoise?") == ""


def test_a_file_that_a_forgotten_user_had_is_not_lost(facts: Facts) -> None:
    inventory = Inventory(facts.path)
    inventory.record()
    facts.provider.forget_user(facts.ada)
    assert inventory.lost() == []
    facts.add(facts.ada, PARROT)
    assert "Alderney" in facts.knows(facts.ada, "Who has the parrot?")


def test_another_program_with_the_file_open_reads_no_fact_any_more(facts: Facts) -> None:
    with driving(HolographicProvider(), HermesHome(facts.path)) as other:
        assert "Quillfeather" in other.provider.prefetch(Query("Who has the tortoise?"), facts.ada).render()
        facts.provider.forget_user(facts.ada)
        assert other.provider.prefetch(Query("Who has the tortoise?"), facts.ada).render() == ""


def test_one_store_for_all_loses_the_facts_of_the_session(shared: Facts) -> None:
    erasure = shared.provider.forget_user(shared.ada)
    assert erasure.deleted[0].startswith("1 facts in ")
    for word in ("Quillfeather", "quillfeather", "Brackwater", "brackwater"):
        assert shared.held(word) == []
    assert "Alderney" in shared.knows(shared.bob, "Who has the parrot?")


def test_a_removed_fact_is_in_no_page_of_the_file(facts: Facts) -> None:
    entry = "The boathouse key hangs behind Ostrander."
    for number, (action, more) in enumerate((("add", {"content": entry}), ("remove", {"previous": entry}))):
        facts.provider.on_memory_write(MemoryWrite(f"w{number}", action, "memory", **more), facts.own)  # type: ignore[arg-type]
    facts.provider.shutdown()
    assert facts.held("Ostrander") == []


@pytest.mark.parametrize("row", ROWS)
def test_each_cell_of_the_table_on_the_page_holds(hermes_home: HermesHome, row: str) -> None:
    provider = HolographicProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        fact = {"action": "add", "content": "The spare boathouse key hangs behind Ostrander in the hall."}
        memory.call_tool(memory.start_session(f"of-{row}", **ADA), "fact_store", fact)

        def knows(name: str, session: Session) -> bool:
            page = memory.manager.ask("holographic", "export_memories", cursor="", session=session)
            texts = " ".join(record.text for record in page.value.records)
            # What a turn says is no fact, unless the model keeps it.
            return name in texts or (name == "Quillfeather" and "Ostrander" in texts)

        hold("holographic", row, memory, knows)
