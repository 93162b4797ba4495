"""What every provider must keep to, by the host's own manager."""

from __future__ import annotations

import json

from hermes_core import Memory, SessionSwitch
from hermes_core.contract.provider import contract_faults

from {{ cookiecutter.__package }} import {{ cookiecutter.__class }}

SAID = "The tortoise is called Quillfeather."
ASKED = "What is the tortoise called?"


def test_it_keeps_to_the_forms_of_the_contract() -> None:
    assert contract_faults({{ cookiecutter.__class }}()) == []


def test_a_turn_is_recalled_in_a_later_session(memory: Memory) -> None:
    first = memory.start_session()
    memory.end_turn(first, SAID, "Noted.")
    assert memory.flush()
    recalled = memory.begin_turn(ASKED, memory.start_session())
    assert recalled.problems == ()
    assert SAID in recalled.context


def test_a_turn_that_comes_twice_is_kept_once(memory: Memory) -> None:
    session = memory.start_session()
    turn = memory.end_turn(session, SAID, "Noted.")
    memory.manager.sync_all(turn, session)
    assert memory.flush()
    assert memory.begin_turn(ASKED, session).context.count(SAID) == 1


def test_nobody_is_told_what_another_person_said(memory: Memory) -> None:
    mel = memory.start_session(platform="chat", user_id="mel")
    bob = memory.start_session(platform="chat", user_id="bob")
    memory.end_turn(mel, SAID, "Noted.")
    assert memory.flush()
    assert SAID in memory.begin_turn(ASKED, mel).context
    assert memory.begin_turn(ASKED, bob).context == ""


def test_an_entry_of_curated_memory_follows_its_changes(memory: Memory) -> None:
    session = memory.start_session()

    def recalled() -> str:
        assert memory.flush()
        return memory.begin_turn("Where does the boathouse key hang?", session).context

    first, second = "The boathouse key hangs in the shed.", "The boathouse key hangs at home."
    memory.change_memory("add", "memory", first, session=session)
    assert first in recalled()
    memory.change_memory("replace", "memory", second, "boathouse", session=session)
    assert second in recalled()
    assert first not in recalled()
    memory.change_memory("remove", "memory", old_text="boathouse", session=session)
    assert recalled() == ""


def test_a_turn_that_was_taken_back_is_forgotten(memory: Memory) -> None:
    session = memory.start_session()
    turn = memory.end_turn(session, SAID, "Noted.")
    assert memory.flush()
    memory.switch_session(SessionSwitch("w1", session, session, "rewind", rewound_turns=(turn.id,)))
    assert memory.flush()
    assert memory.begin_turn(ASKED, session).context == ""


def test_small_talk_recalls_nothing(memory: Memory) -> None:
    session = memory.start_session()
    memory.end_turn(session, "Thanks, sounds good!", "You are welcome.")
    assert memory.flush()
    assert memory.begin_turn("ok, thanks!", session).context == ""


def test_what_a_model_sends_wrong_comes_back_to_it_as_an_error(memory: Memory) -> None:
    session = memory.start_session()
    for schema in memory.tool_schemas():
        if schema["name"].startswith("{{ cookiecutter.__prefix }}_"):
            assert "error" in json.loads(memory.call_tool(schema["name"], {"nonsense": 1}, session))


def test_texts_of_any_kind_are_taken(memory: Memory) -> None:
    session = memory.start_session()
    texts = ['"Quoted" AND NOT* (this', "nul \x00 inside", "猫の名前はミケ", "half \ud83d", "long " * 100_000]
    for text in texts:
        memory.end_turn(session, text, "Noted.")
    assert memory.flush(30)
    for text in texts:
        assert memory.begin_turn(text, session).problems == ()
    assert "ミケ" in memory.begin_turn("猫の名前は", session).context
