"""The line that names notes of a session that wait, and what the person's next message does to them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core import HermesHome, Memory, open_memory
from hermes_core.contract.values import Origin
from hermes_core.conversation import Conversation
from hermes_core.curated.edits import Operation
from hermes_core.noted import SECONDS_PER_DAY
from hermes_core.safety.origin import Reading

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from security_judge import accepted_by_silence

NOTE = "Choir sings in Lund"
OTHER = "What is the capital of Peru, and how far is it?"


@pytest.fixture
def memory(hermes_home: HermesHome) -> Iterator[Memory]:
    with open_memory(hermes_home) as opened:
        yield opened


def _wait(memory: Memory, chat: Conversation, text: str = NOTE) -> None:
    """Store a note that waits, as of a turn that broke off."""
    memory.curated.write("memory", [Operation("add", text)], chat.session, reading=Reading("import"))


def _say(chat: Conversation, text: str, *, origin: Origin | None = None, shows: bool = True) -> str:
    turn = chat.turn(text, shows_line=shows, origin=origin)
    turn.finish("Fine.")
    return turn.noted


def _waits(memory: Memory) -> bool:
    return [note.entry for note in memory.curated.read().waiting_notes()] == [NOTE]


def test_a_note_that_waits_is_named_once_in_the_next_turn_of_its_session(memory: Memory) -> None:
    chat = memory.conversation()
    assert _say(chat, "Hello there, my friend of old.") == ""
    _wait(memory, chat)
    assert _say(memory.conversation(), "I am another session, and new.") == ""
    assert _say(chat, "And how are you these days?") == f'noted: "{NOTE}"; say no to drop it'
    assert _say(chat, OTHER) == ""


def test_a_host_that_shows_no_line_gets_none_and_accepts_nothing(memory: Memory) -> None:
    chat = memory.conversation()
    _wait(memory, chat)
    assert _say(chat, "Hello there, my friend of old.", shows=False) == ""
    assert _say(chat, OTHER, shows=False) == ""
    assert _waits(memory)


def test_a_no_drops_the_notes_of_the_line_and_an_undo_brings_them_back(memory: Memory) -> None:
    chat = memory.conversation()
    _wait(memory, chat)
    _say(chat, "Hello there, my friend of old.")
    assert _say(chat, "Nein, danke!").startswith(f'dropped: "{NOTE}"')
    assert memory.curated.entries("memory") == ()
    memory.curated.undo()
    assert _waits(memory)


def test_an_answer_without_an_objection_accepts_the_note(memory: Memory) -> None:
    chat = memory.conversation()
    _say(chat, "Hello there, my friend of old.")
    _wait(memory, chat)
    _say(chat, "And how are you these days?")
    _say(chat, OTHER)
    note = memory.curated.read().origin_of(NOTE)
    assert (note.origin, note.confirmed) == ("person", "import")


@pytest.mark.parametrize(
    "answer",
    [
        "No, Malmö is what I said just now",
        "Nej, det stämmer inte alls",
        "Hm.",
        "The choir is in Malmö these days",
    ],
)
def test_an_objection_or_a_short_answer_accepts_nothing(memory: Memory, answer: str) -> None:
    chat = memory.conversation()
    _wait(memory, chat)
    _say(chat, "And how are you these days?")
    _say(chat, answer)
    assert _waits(memory)


def test_silence_of_a_program_accepts_nothing(memory: Memory) -> None:
    chat = memory.conversation()
    _wait(memory, chat)
    _say(chat, "And how are you these days?")
    _say(chat, OTHER, origin="tool")
    assert _waits(memory)


def test_silence_accepts_nothing_that_may_be_planted(memory: Memory) -> None:
    # `python bench/security_judge.py` plays 200.
    assert accepted_by_silence(memory, [f"The choir of {number} sings in Lund" for number in range(12)]) == []


def test_a_note_that_has_waited_for_long_is_removed_with_a_word(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_memory(hermes_home) as memory:
        _wait(memory, memory.conversation("old"))
        now = memory.curated.files.clock()
        monkeypatch.setattr(memory.curated.files, "clock", lambda: now + 91 * SECONDS_PER_DAY)
        assert _say(memory.conversation(), "Hello.", shows=False) == ""
        line = _say(memory.conversation(), "Hello there, my friend of old.")
        assert line.startswith(f'waited for 90 days, and expired: "{NOTE}"')
        assert memory.curated.entries("memory") == ()
        memory.curated.undo()
        assert _waits(memory)
