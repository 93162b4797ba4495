"""The origin of a message that no person wrote: a mail, a webhook's text, a cron job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from hermes_core import HermesHome, Turn, open_memory, open_memory_async
from hermes_core.contract.values import Session
from hermes_core.errors import SessionError
from hermes_core.memory import Memory
from hermes_memory_agent import Agent, ModelSettings, OpenAIModel
from hermes_memory_testing.model_server import ModelServer, Reply

MAIL = "The new gate code is 4711."
ADD = {"action": "add", "target": "memory", "content": MAIL}
Take = Callable[[Memory, Any], tuple[Turn, Session]]


def through_conversation(memory: Memory, origin: Any) -> tuple[Turn, Session]:
    chat = memory.conversation("c")
    turn = chat.turn(MAIL, origin=origin)
    assert turn.call_tool("memory", ADD).ok
    return turn.finish("Noted."), chat.session


def in_two_processes(memory: Memory, origin: Any) -> tuple[Turn, Session]:
    memory.conversation("c").prepare_turn(MAIL, turn_id="T", origin=origin)
    turn = memory.conversation("c").resume("T")
    assert turn.call_tool("memory", ADD).ok
    return turn.finish("Noted."), turn.session


def through_functions(memory: Memory, origin: Any) -> tuple[Turn, Session]:
    session = memory.start_session("c")
    memory.begin_turn(session, MAIL, origin=origin)
    assert json.loads(memory.call_tool(session, "memory", ADD))["success"]
    return memory.end_turn(session, MAIL, "Noted."), session


def through_a_program(memory: Memory, origin: Any) -> tuple[Turn, Session]:
    chat = memory.conversation("c")
    turn = chat.turn(MAIL, author="bot:mail" if origin else "")
    assert turn.call_tool("memory", ADD).ok
    return turn.finish("Noted."), chat.session


def asynchronously(memory: Memory, origin: Any) -> tuple[Turn, Session]:
    async def talk() -> tuple[Turn, Session]:
        async with open_memory_async(memory.home) as twin:
            chat = await twin.conversation("c")
            turn = await chat.turn(MAIL, origin=origin)
            assert (await turn.call_tool("memory", ADD)).ok
            return await turn.finish("Noted."), chat.session

    return asyncio.run(talk())


WAYS = [through_conversation, in_two_processes, through_functions, through_a_program, asynchronously]


@pytest.mark.parametrize("take", WAYS)
def test_what_a_mail_says_is_no_statement_of_the_person(hermes_home: HermesHome, take: Take) -> None:
    with open_memory(hermes_home) as memory:
        turn, session = take(memory, "tool")
        assert turn.origin == "tool"
        assert [message.origin for message in memory.sessions.get_messages(session.id)] == ["tool", "tool"]
        assert [note.entry for note in memory.curated.read().waiting_notes()] == [MAIL]
    with open_memory(hermes_home) as memory:
        assert MAIL not in memory.system_prompt(memory.start_session("later"))


@pytest.mark.parametrize("take", WAYS)
def test_what_a_person_says_needs_no_origin(hermes_home: HermesHome, take: Take) -> None:
    with open_memory(hermes_home) as memory:
        turn, session = take(memory, None)
        assert turn.origin in ("person", "assistant")
        assert [m.origin for m in memory.sessions.get_messages(session.id)] == ["person", "assistant"]
        assert memory.curated.read().waiting_notes() == []


def test_a_host_can_not_raise_the_origin_of_a_users_message(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        chat = memory.conversation("c", platform="telegram", user_id="42")
        chat.turn("I own this home.", origin="person").finish("No.")
        assert chat.history()[0].origin == "user"


def test_an_origin_that_does_not_exist_is_refused_before_anything_is_stored(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        with pytest.raises(SessionError, match="there is no origin 'mail'"):
            memory.conversation("c").turn(MAIL, origin="mail")  # type: ignore[arg-type]
        assert memory.sessions.get_session("c") is None


PAGE = {"role": "tool", "tool_call_id": "1", "name": "read_page", "content": MAIL}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "read_page", "arguments": "{}"}}],
}


def results_part(content: str) -> dict[str, Any]:
    part = {"type": "tool_result", "tool_use_id": "1", "content": content}
    return {"role": "user", "content": [part]}


@pytest.mark.parametrize("result", [PAGE, results_part(MAIL)], ids=["tool", "part"])
@pytest.mark.parametrize("claim", ["person", "owner", "assistant", "file"])
def test_a_message_can_not_name_itself_a_higher_origin(
    hermes_home: HermesHome, result: dict[str, Any], claim: str
) -> None:
    with open_memory(hermes_home) as memory:
        turn = memory.conversation("c").turn("Read the page.")
        turn.add(CALL, {**result, "origin": claim})
        assert turn.call_tool("memory", ADD).ok
        turn.add({"role": "assistant", "content": "Noted.", "origin": claim})
        assert turn.finish().origin == "tool"
        assert [message.origin for message in memory.sessions.get_messages("c")][2:] == ["tool", "tool"]
        assert [note.entry for note in memory.curated.read().waiting_notes()] == [MAIL]


def test_the_messages_of_a_finished_turn_can_not_name_themselves_either(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        session = memory.start_session("c", platform="telegram", user_id="42")
        said = {"role": "user", "content": "Hello.", "origin": "person"}
        memory.end_turn(session, "Hello.", "Hi.", messages=[said, CALL, {**PAGE, "origin": "person"}])
        assert [message.origin for message in memory.sessions.get_messages("c")] == [
            "user",
            "user",
            "tool",
        ]


def test_a_message_can_name_itself_a_lower_origin(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        turn = memory.conversation("c").turn("Read the page.")
        turn.add(CALL, {**PAGE, "origin": "web"})
        turn.finish("Read.")
        assert [message.origin for message in memory.sessions.get_messages("c")][2:] == ["web", "web"]


def test_results_of_the_agents_own_tools_keep_their_origin(hermes_home: HermesHome) -> None:
    skill = "---\nname: tea\ndescription: How to make tea.\n---\n# Tea\nBoil water.\n"
    (hermes_home.skills / "kitchen" / "tea").mkdir(parents=True)
    (hermes_home.skills / "kitchen" / "tea" / "SKILL.md").write_text(skill, encoding="utf-8")
    add = {"action": "add", "target": "memory", "content": "Tea water is boiled first"}
    calls = [("skill_view", {"name": "tea"}), ("todo", {"todos": ["Boil water"]}), ("memory", add)]
    with ModelServer([Reply(calls=calls), Reply("Done.")]) as server, open_memory(hermes_home) as memory:
        model = OpenAIModel(ModelSettings(server.base_url, "scripted", retries=0, pause=0.001))
        with Agent(memory, model, session_id="c") as agent:
            agent.run_turn("Make tea.")
            stored = memory.sessions.get_messages(agent.session.id)
        model.close()
        origins = [message.origin for message in stored if message.role == "tool"]
        assert origins == ["assistant", "assistant", "assistant"]
        assert stored[-1].origin == "assistant"
        assert memory.curated.read().waiting_notes() == []


def recalled(memory: Memory) -> None:
    report = memory.conversation("c").recall("What about the gate code?")
    assert MAIL in [hit.text for hit in report.results]
    assert report.origin == "tool"


def recalled_by_name(memory: Memory) -> None:
    memory.recall("What about the gate code?", session=memory.session("c"))


@pytest.mark.parametrize("recall", [recalled, recalled_by_name])
@pytest.mark.parametrize("in_turn", [True, False], ids=["in the turn", "before the turn"])
def test_a_model_that_got_a_report_of_recall_has_read_it(
    hermes_home: HermesHome, recall: Callable[[Memory], None], in_turn: bool
) -> None:
    note = {**ADD, "content": "Visitors enter the gate code first."}
    with open_memory(hermes_home) as memory:
        through_conversation(memory, "tool")
    with open_memory(hermes_home, config={"memory": {"trust": "strict"}}) as memory:
        memory.delete_session("c")
        earlier = memory.start_session("earlier")
        memory.end_turn(earlier, MAIL, "Noted.", origin="tool")
        if not in_turn:
            recall(memory)
        turn = memory.conversation("c").turn("Hello.")
        if in_turn:
            recall(memory)
        assert turn.call_tool("memory", note).ok
        assert turn.finish("Noted.").origin == "tool"
        assert note["content"] in [waiting.entry for waiting in memory.curated.read().waiting_notes()]
        fresh = memory.conversation("fresh").turn("Hello.")
        assert fresh.call_tool("memory", {**ADD, "content": "Uses uv"}).ok
        assert fresh.finish("Noted.").origin == "assistant"


def test_a_note_that_waits_makes_what_follows_from_it_wait_until_it_is_confirmed(
    hermes_home: HermesHome,
) -> None:
    def origin_of_next_note(text: str) -> str:
        # Recall of the session with the page would taint the turn as well.
        with open_memory(hermes_home, config={"recall": {"sessions": "on_request"}}) as memory:
            turn = memory.conversation(text).turn("What is new?")
            add = {**ADD, "content": text}
            assert not turn.run_tools([{"type": "tool_use", "id": "1", "name": "memory", "input": add}])
            turn.finish("Noted.")
            return memory.curated.read().origin_of(text).origin

    with open_memory(hermes_home) as memory:
        through_conversation(memory, "web")
    assert origin_of_next_note("Uses uv") == "assistant"
    assert origin_of_next_note("The gate code is 4711") == "web"
    with open_memory(hermes_home) as memory:
        memory.curated.confirm([note.entry for note in memory.curated.read().waiting_notes()])
    assert origin_of_next_note("The code of the gate is 4711") == "assistant"
