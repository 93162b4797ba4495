"""Memories that leave Mem0 and come into it, on each of its three backends."""

from __future__ import annotations

import pytest

from hermes_core import Session
from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import BackendRefused
from plugins.mem0.tests.conftest import Agent

WHOLE = MemoryRecord(
    "  Likes tea,\nand rain. ", "7", 1.5, 2.5, "user_pref", ("drinks",), {"trust": 0.25, "helpful_count": 3}
)


def exported(agent: Agent, session: Session) -> list[MemoryRecord]:
    records, cursor = [], ""
    while True:
        page = agent.provider.export_memories(cursor, session)
        records += page.records
        cursor = page.cursor
        if not cursor:
            return records


def test_a_record_comes_back_word_for_word_with_all_its_fields(agent: Agent) -> None:
    session = agent.session()
    for _ in range(2):
        agent.provider.import_memory(WHOLE, session)
    (back,) = exported(agent, session)
    assert back.digest == WHOLE.digest
    assert back.id != WHOLE.id


def test_every_memory_of_the_user_is_exported_and_no_other(agent: Agent) -> None:
    bob = Session("s2", platform="telegram", user_id="bob", home=agent.session().home)
    for number in range(120):
        agent.provider.import_memory(MemoryRecord(f"Fact number {number}."), agent.session())
    agent.provider.import_memory(MemoryRecord("Bob's own."), bob)
    assert sorted(one.text for one in exported(agent, agent.session())) == sorted(
        f"Fact number {number}." for number in range(120)
    )
    assert [one.text for one in exported(agent, bob)] == ["Bob's own."]


def test_a_text_that_mem0_does_not_take_is_refused(agent: Agent) -> None:
    for text in (" ", "a" * 20_001):
        with pytest.raises(BackendRefused, match="characters"):
            agent.provider.import_memory(MemoryRecord(text), agent.session())
