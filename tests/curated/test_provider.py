from __future__ import annotations

import json
from collections.abc import Callable

from hermes_core import HermesHome, MemoryProvider, Session, ToolCall
from hermes_core.contract.provider import contract_faults
from hermes_core.curated.store import Notes
from hermes_core.curated.tool import CuratedProvider

MakeStore = Callable[..., Notes]


def test_it_is_a_provider_like_any_other(store: Notes) -> None:
    provider = CuratedProvider(store)
    assert isinstance(provider, MemoryProvider)
    assert provider.name == "builtin"
    assert contract_faults(provider) == []


def test_the_prompt_block_shows_the_disk_at_the_time_of_the_call(store: Notes, session: Session) -> None:
    provider = CuratedProvider(store)
    assert provider.system_prompt_block(session) == ""
    store.add("memory", "Uses ruff")
    store.add("user", "Mel")
    block = provider.system_prompt_block(session)
    assert block.index("Uses ruff") < block.index("\n\n") < block.index("USER PROFILE (") < block.index("Mel")


def test_the_tool_is_offered_for_the_stores_that_are_on(make_store: MakeStore) -> None:
    [schema] = CuratedProvider(make_store(memory_enabled=False)).get_tool_schemas()
    assert schema["parameters"]["properties"]["target"]["enum"] == ["user"]
    off = make_store(memory_enabled=False, user_profile_enabled=False)
    assert CuratedProvider(off).get_tool_schemas() == []


def test_a_tool_call_writes_and_a_new_turn_renews_its_patience(
    store: Notes, session: Session, hermes_home: HermesHome
) -> None:
    provider = CuratedProvider(store)
    nonsense = ToolCall("memory", {"action": "remove", "target": "memory", "old_text": "x"})
    for _ in range(4):
        stopped = provider.handle_tool_call(nonsense, session)
    assert json.loads(stopped)["done"]
    provider.on_turn_start(session)
    assert "done" not in json.loads(provider.handle_tool_call(nonsense, session))
    provider.handle_tool_call(
        ToolCall("memory", {"action": "add", "target": "user", "content": "Mel"}), session
    )
    assert hermes_home.user_md.read_text() == "Mel"
