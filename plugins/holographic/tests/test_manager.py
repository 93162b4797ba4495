"""The provider as a host runs it: found by its entry point, held by the manager, fed through the outbox."""

from __future__ import annotations

import json
from pathlib import Path

from hermes_core import HermesHome, MemoryManager, MemoryWrite, Query, Session, ToolCall, load_provider


def test_a_host_loads_it_by_name_and_remembers_through_it(tmp_path: Path) -> None:
    home, session = HermesHome(tmp_path), Session("s1", home=str(tmp_path))
    manager = MemoryManager(home)
    manager.add_provider(load_provider("holographic", home).factory)
    manager.initialize_all(session)
    manager.on_memory_write(MemoryWrite("w1", "add", "memory", "The server stands in Oslo"), session)
    call = ToolCall("fact_store", {"action": "add", "content": "Bob lives in Tokyo"})
    assert json.loads(manager.handle_tool_call(call, session))["status"] == "added"
    assert manager.flush(30)
    questions = ("Where does Bob live?", "In which city is the server?", "ok, thanks!")
    recalled = [manager.prefetch_all(Query(text, budget=15), session).contexts for text in questions]
    manager.shutdown_all()
    assert [[text.split("] ")[1] for _, text in contexts] for contexts in recalled] == [
        ["Bob lives in Tokyo"],
        ["The server stands in Oslo"],
        [],
    ]
