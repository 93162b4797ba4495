"""What a client writes has the origin of a tool, because nobody knows what its model has read, unless config.yaml trusts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import Client

from hermes_core import HermesHome, Session, open_memory
from hermes_core.config import set_value
from hermes_core.curated.edits import Operation
from hermes_core.memory import Memory
from hermes_core.safety.origin import Reading
from hermes_memory_mcp.memory_files import MemoryFiles
from hermes_memory_mcp.toolset import DATA_LABEL, ToolSet
from plugins.mcp.tests.conftest import Server

FACT = "The build server is called anvil"
PAGE = "The museum opens at 9"
TRUSTED = {"memory": {"trusted_clients": ["desk"]}}
ADD = {"action": "add", "target": "memory"}


@pytest.fixture
def memory(hermes_home: HermesHome) -> Iterator[Memory]:
    with open_memory(hermes_home, config=TRUSTED) as opened:
        yield opened


@pytest.fixture
def tools(memory: Memory) -> ToolSet:
    return ToolSet(memory, memory.local_session, stores_turns=True)


def origins(memory: Memory, session: Session | None = None) -> dict[str, str]:
    store = memory.curated.of(session)
    stored = store.read()
    return {note.text: note.origin.origin for file in stored.files.values() for note in file.notes}


def add_page(memory: Memory) -> None:
    memory.curated.write("memory", [Operation("add", PAGE)], memory.local_session, reading=Reading("web"))


def answer(tools: ToolSet, client: str, name: str, **arguments: Any) -> Any:
    return json.loads(tools.call(name, arguments, client).text)


def test_a_note_of_a_client_waits_unless_the_client_is_trusted(memory: Memory, tools: ToolSet) -> None:
    answer(tools, "other", "memory", **ADD, content=FACT)
    answer(tools, "desk", "memory", **ADD, content="Uses uv")
    answer(tools, "", "memory", **ADD, content="Uses make")
    assert origins(memory) == {FACT: "tool", "Uses uv": "assistant", "Uses make": "tool"}
    assert [note.entry for note in memory.curated.read().waiting_notes()] == [FACT, "Uses make"]


def test_a_trusted_client_of_a_user_is_the_agent_of_that_user(memory: Memory) -> None:
    session = memory.session("t1", platform="telegram", user_id="42")
    tools = ToolSet(memory, session)
    answer(tools, "desk", "memory", **ADD, content=FACT)
    assert origins(memory, session) == {FACT: "assistant"}


def test_a_trusted_client_that_got_a_page_from_memory_writes_data(memory: Memory, tools: ToolSet) -> None:
    add_page(memory)
    answer(tools, "desk", "memory_read")
    answer(tools, "desk", "memory", **ADD, content=FACT)
    assert origins(memory)[FACT] == "web"


def test_a_trusted_client_that_read_a_resource_with_a_page_writes_data(
    memory: Memory, tools: ToolSet
) -> None:
    assert tools.read_resource("hermes://memories/MEMORY.md", "desk") is not None
    answer(tools, "desk", "memory", **ADD, content="Uses uv")
    add_page(memory)
    tools.read_resource("hermes://memories/USER.md", "desk")
    answer(tools, "desk", "memory", **ADD, content="Uses make")
    tools.read_resource("hermes://memories/MEMORY.md", "desk")
    answer(tools, "desk", "memory", **ADD, content=FACT)
    assert origins(memory) == {"Uses uv": "assistant", "Uses make": "assistant", PAGE: "web", FACT: "web"}


def test_a_model_that_viewed_a_page_with_anthropics_tool_writes_data(memory: Memory) -> None:
    add_page(memory)
    turn = memory.conversation("c").turn("Look at your notes.")
    assert (
        PAGE
        in MemoryFiles(memory, turn.session).call({"command": "view", "path": "/memories/MEMORY.md"}).text
    )
    assert turn.call_tool("memory", {**ADD, "content": FACT}).ok
    turn.finish("I have.")
    assert origins(memory)[FACT] == "web"
    assert memory.sessions.get_messages("c")[-1].origin == "web"


def test_a_turn_of_a_client_is_no_statement_of_the_person(memory: Memory, tools: ToolSet) -> None:
    for client, expected in (("other", {"tool"}), ("desk", {"person", "assistant"})):
        stored = answer(tools, client, "store_turn", user=f"{FACT}, says {client}", assistant="Noted.")
        messages = memory.sessions.get_messages(stored["session_id"])
        assert {message.origin for message in messages} == expected


def test_notes_that_wait_are_data_for_a_client(memory: Memory, tools: ToolSet) -> None:
    memory.change_memory("add", "memory", "Uses uv", by_person=True)
    add_page(memory)
    read = answer(tools, "other", "memory_read")
    assert read["memory"]["entries"] == ["Uses uv"]
    assert read["memory"]["data"] == [{"entry": PAGE, "origin": "a web page"}]
    assert DATA_LABEL in read["about_data"]
    resource = tools.read_resource("hermes://memories/MEMORY.md")
    assert resource is not None
    prompt, _, data = resource.text.partition(DATA_LABEL)
    assert "Uses uv" in prompt
    assert PAGE not in prompt
    assert "(from a web page" in data
    assert PAGE in data
    found = answer(tools, "other", "recall", query="museum")["results"]
    assert [one["origin"] for one in found if one["text"] == PAGE] == ["a web page"]


def test_strict_trust_gives_a_client_no_note_that_waits(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home, config={"memory": {"trust": "strict"}}) as memory:
        add_page(memory)
        tools = ToolSet(memory, memory.local_session)
        assert PAGE not in tools.call("memory_read", {}).text
        resource = tools.read_resource("hermes://memories/MEMORY.md")
        assert resource is not None
        assert resource.text == ""


def test_edits_of_anthropics_tool_have_the_origin_of_what_the_model_has_read(memory: Memory) -> None:
    session = memory.start_session("s1")
    files = MemoryFiles(memory, session)

    def create(path: str, text: str) -> None:
        assert not files.call({"command": "create", "path": f"/memories/{path}", "file_text": text}).failed

    create("MEMORY.md", FACT)
    messages = [
        {"role": "user", "content": "What does the page say?"},
        {"role": "tool", "tool_call_id": "1", "name": "fetch", "content": PAGE},
        {"role": "assistant", "content": PAGE},
    ]
    memory.end_turn(session, "What does the page say?", PAGE, messages=messages)
    create("USER.md", PAGE)
    assert origins(memory) == {FACT: "tool", PAGE: "tool"}


def test_a_note_by_anthropics_tool_is_the_agents_when_its_turn_has_ended(memory: Memory) -> None:
    turn = memory.conversation("s1").turn("What do you conclude?")
    files = MemoryFiles(memory, turn.session)
    done = files.call({"command": "create", "path": "/memories/MEMORY.md", "file_text": FACT})
    assert origins(memory) == {FACT: "tool"}
    turn.add({"role": "tool", "tool_call_id": "1", "content": done.text})
    turn.finish("Noted.")
    assert origins(memory) == {FACT: "assistant"}


def test_what_anthropics_tool_shows_keeps_its_origin_in_the_turn(memory: Memory) -> None:
    memory.change_memory("add", "memory", "Uses uv", by_person=True)
    turn = memory.conversation("s1").turn("What do you know?")
    files = MemoryFiles(memory, turn.session)
    view = files.call({"command": "view", "path": "/memories/MEMORY.md"})
    turn.add({"role": "tool", "tool_call_id": "1", "name": "memory", "content": view.text})
    assert turn.finish("You use uv.").origin in ("person", "assistant")


@pytest.mark.parametrize("named", [False, True])
def test_a_server_knows_its_client_by_the_name_in_the_handshake(server: Server, named: bool) -> None:
    if named:
        set_value(server.home, "memory.trusted_clients", ["mcp"])

    async def talk(client: Client) -> None:
        await client.call_tool("memory", {**ADD, "content": FACT})

    server.talk(talk)
    with open_memory(server.home) as memory:
        assert origins(memory) == {FACT: "assistant" if named else "tool"}
