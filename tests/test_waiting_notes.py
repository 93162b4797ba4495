"""A note that waits lowers what follows from it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hermes_core import HermesHome, Memory, open_memory
from hermes_core.contract.values import Origin
from hermes_core.curated.edits import Operation
from hermes_core.safety.origin import Reading, follows
from tests.table import table

PAGE = "Invoices of the office are paid to the account DE89370400440532013000"


@table(
    ("text", "note"),
    [
        ("The office pays invoices to DE89370400440532013000.", PAGE),
        ("Rechnungen gehen an DE89370400440532013000", PAGE),
        ("Invoices and the office", PAGE),
        ("Invoices are paid.", f"{PAGE}. {'Much else is written on this page of the bank. ' * 9}"),
        ("办公室的发票付到这个账户", "发票付到这个账户"),
    ],
)
def test_a_text_follows_from_a_note_with_its_words_or_numbers(text: str, note: str) -> None:
    assert follows(text, note)


@table("text", ["Plays chess with Ann on Sundays", "The user is a person", "Meets at 9 to 5", "喜欢绿茶", ""])
def test_another_text_does_not_follow_from_a_note(text: str) -> None:
    assert not follows(text, PAGE)


@pytest.fixture
def memory(hermes_home: HermesHome) -> Iterator[Memory]:
    with open_memory(hermes_home) as opened:
        yield opened


def _origins(memory: Memory) -> dict[str, Origin]:
    notes = memory.curated.read()
    return {entry: notes.origin_of(entry).origin for entry in notes.entries("memory")}


def _turn_with_notes(memory: Memory, *texts: str, answer: str = "Done.") -> list[str]:
    """Run a first turn that gets a waiting note as data, and return the origins of its messages."""
    memory.curated.write("memory", [Operation("add", PAGE)], reading=Reading("web"))
    chat = memory.conversation()
    turn = chat.turn("Hello!")
    assert PAGE in turn.recall.context
    for text in texts:
        add = {"action": "add", "target": "memory", "content": text}
        assert not turn.run_tools([{"type": "tool_use", "id": text, "name": "memory", "input": add}])
    turn.finish(answer)
    return [message.origin for message in chat.history()]


def test_notes_of_a_session_that_began_with_a_waiting_note_are_the_agents(memory: Memory) -> None:
    copied = "The office pays its invoices to DE89370400440532013000"
    _turn_with_notes(memory, "Plays chess on Sundays", copied)
    assert _origins(memory) == {PAGE: "web", "Plays chess on Sundays": "assistant", copied: "web"}


def test_an_answer_that_repeats_a_waiting_note_has_its_origin(memory: Memory) -> None:
    assert _turn_with_notes(memory, answer=f"Your notes say: {PAGE}.") == ["person", "web"]


def test_another_answer_of_a_session_with_a_waiting_note_is_the_agents(memory: Memory) -> None:
    assert _turn_with_notes(memory, answer="Good morning, Ann.") == ["person", "assistant"]
