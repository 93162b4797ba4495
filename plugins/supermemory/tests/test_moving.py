"""Memories that leave Supermemory and come into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_core import MemoryWrite, Session, Turn
from hermes_core.contract.values import MemoryRecord
from hermes_core.kit import BackendRefused, BackendUnavailable
from plugins.supermemory.tests.conftest import Agent
from plugins.supermemory.tests.stand_in import Supermemory

Start = Callable[..., Agent]
Serve = Callable[..., Supermemory]
FACT = "The tortoise Quillfeather eats clover."


@pytest.fixture(params=["v5", "v4"])
def agent(start: Start, serve: Serve, request: pytest.FixtureRequest) -> Agent:
    """A provider on a server of each API."""
    return start(serve(request.param))


def exported(agent: Agent, session: Session | None = None) -> list[MemoryRecord]:
    """Return all records of a user."""
    records: list[MemoryRecord] = []
    cursor = ""
    while True:
        page = agent.provider.export_memories(cursor, session or agent.session())
        records += page.records
        if not page.cursor:
            return records
        cursor = page.cursor


def test_turns_entries_and_stored_notes_leave_word_for_word(agent: Agent) -> None:
    session = agent.session()
    agent.provider.sync_turn(Turn("t1", 1, "Where is the key?", "Behind\n\nOstrander."), session)
    agent.provider.sync_turn(Turn("t2", 2, "And the boat?", "At sea."), session)
    agent.provider.on_memory_write(MemoryWrite("w1", "add", "memory", "The key hangs  there."), session)
    agent.tool("store", content=FACT)
    assert [record.text for record in exported(agent)] == [
        "user: Where is the key?\nassistant: Behind\n\nOstrander.",
        "user: And the boat?\nassistant: At sea.",
        "The key hangs  there.",
        FACT,
    ]
    assert all(record.created_at and record.updated_at for record in exported(agent))


def test_an_imported_memory_comes_back_with_all_that_came_with_it(agent: Agent) -> None:
    record = MemoryRecord(
        FACT, "mem0-17", 1.7e9, 1.71e9, kind="pet", tags=("a", "b"), details={"trust": 0.75, "by": "Mel"}
    )
    for _ in range(2):
        agent.provider.import_memory(record, agent.session())
    (copy,) = exported(agent)
    assert copy.to_dict() == {**record.to_dict(), "id": copy.id}
    assert agent.tool("search", query="tortoise")["results"][0]["content"] == FACT


def test_more_documents_than_a_page_leave_once_each(agent: Agent) -> None:
    for number in range(60):
        agent.provider.import_memory(MemoryRecord(f"fact {number}"), agent.session())
    assert [record.text for record in exported(agent)] == [f"fact {number}" for number in range(60)]


def test_each_user_exports_their_own_and_the_containers_of_the_list_with_it(
    start: Start, serve: Serve
) -> None:
    agent = start(serve(), enable_custom_container_tags=True, custom_containers="work, home")
    ada = agent.session(platform="telegram", user_id="ada")
    agent.tool("store", content=FACT)
    agent.tool("store", content="The desk is oak.", container_tag="work")
    agent.tool("store", ada, content="Ada sails.", container_tag="home")
    assert [record.text for record in exported(agent)] == [FACT, "The desk is oak."]
    assert [record.text for record in exported(agent, ada)] == ["Ada sails."]


@pytest.mark.parametrize("text", ["", "   ", "x" * 30_001])
def test_a_text_that_no_document_can_hold_is_refused(agent: Agent, text: str) -> None:
    with pytest.raises(BackendRefused, match="characters"):
        agent.provider.import_memory(MemoryRecord(text), agent.session())
    assert agent.server.documents == {}


@pytest.mark.parametrize(("looks", "is_read"), [(4, True), (10_000, False)])
def test_an_export_waits_for_documents_that_are_being_read(
    start: Start, serve: Serve, looks: int, is_read: bool
) -> None:
    agent = start(serve(reading=looks))
    agent.provider.import_memory(MemoryRecord(FACT), agent.session())
    if is_read:
        assert [record.text for record in exported(agent)] == [FACT]
    else:
        with pytest.raises(BackendUnavailable, match="still reads documents"):
            exported(agent)


@pytest.mark.parametrize("answer", [{}, {"documents": None, "memories": None}, [], "yes"])
def test_an_answer_that_is_no_list_is_an_error(start: Start, serve: Serve, answer: Any) -> None:
    for speaks in ("v5", "v4"):
        server = serve(speaks)
        agent = start(server, api=speaks)
        path = "/ns/*" if speaks == "v5" else "/v3/*"
        server.route("POST", path, lambda request: answer)
        with pytest.raises(BackendUnavailable):
            exported(agent)
