"""`memory.refresh`: what a running session learns of notes that changed since its prompt was frozen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hermes_core import Memory, open_memory
from hermes_core.home import HermesHome
from hermes_core.turn_recall import MAX_UPDATED_SESSIONS, NoteUpdates
from hermes_memory_testing.fakes import make_session

APPEND = {"memory": {"refresh": "append"}}


@pytest.fixture
def memory(hermes_home: HermesHome) -> Iterator[Memory]:
    with open_memory(hermes_home, config=APPEND) as memory:
        memory.curated.add("user", "Likes tea")
        memory.curated.add("memory", "The server is called elm")
        yield memory


def begun(memory: Memory, text: str = "Hello") -> str:
    """The recall of one turn of the conversation `c`, which is stored."""
    turn = memory.conversation("c").turn(text)
    context = turn.recall.context
    turn.finish("Well.")
    return context


def test_a_changed_note_comes_once_and_the_prompt_stays(memory: Memory) -> None:
    conversation = memory.conversation("c")
    assert begun(memory) == ""
    prompt = conversation.system_prompt
    memory.curated.add("user", "Has a dog called Rex")
    memory.curated.replace("memory", "elm", "The server is called oak")
    context = begun(memory)
    assert "- new: Has a dog called Rex" in context
    assert "- new: The server is called oak" in context
    assert "- removed: The server is called elm" in context
    assert "Likes tea" not in context
    assert conversation.system_prompt == prompt
    assert begun(memory, "What now?") == ""


def test_a_changed_note_comes_again_when_the_message_is_about_it(memory: Memory) -> None:
    begun(memory)
    memory.curated.add("user", "Has a dog called Rex")
    memory.curated.add("user", "养了一只猫")
    assert "Rex" in begun(memory)
    assert "- new: Has a dog called Rex" in begun(memory, "What does the dog eat?")
    assert "- new: 养了一只猫" in begun(memory, "我的猫吃什么？")


def test_another_process_continues_with_what_changed_since_the_prompt(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home, config=APPEND) as memory:
        memory.curated.add("user", "Likes tea")
        begun(memory)
        assert "Likes tea" in memory.conversation("c").system_prompt
    with open_memory(hermes_home, config=APPEND) as memory:
        memory.curated.add("user", "Has a dog")
        context = begun(memory)
    assert "- new: Has a dog" in context
    assert "Likes tea" not in context


def test_a_session_that_begins_after_the_change_has_it_in_its_prompt(memory: Memory) -> None:
    memory.curated.add("user", "Has a dog")
    assert begun(memory) == ""
    assert "Has a dog" in memory.conversation("c").system_prompt
    assert begun(memory) == ""


def test_a_conversation_that_began_without_notes_learns_of_the_first_one(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home, config=APPEND) as memory:
        assert memory.conversation("c").system_prompt == ""
        begun(memory)
        memory.curated.add("user", "Has a dog")
        assert "- new: Has a dog" in begun(memory)
        assert begun(memory, "What now?") == ""


def test_a_change_that_an_unfinished_turn_got_comes_again(memory: Memory) -> None:
    begun(memory)
    assert "Likes tea" in memory.conversation("c").system_prompt
    memory.curated.add("user", "Has a dog")
    turn = memory.conversation("c").turn("What now?")
    assert "- new: Has a dog" in turn.recall.context
    turn.cancel()
    assert "- new: Has a dog" in begun(memory, "What now?")


def test_by_default_a_running_session_learns_nothing(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        begun(memory)
        memory.curated.add("user", "Has a dog")
        assert begun(memory) == ""


def test_what_sessions_have_got_is_remembered_for_a_bounded_number_of_them() -> None:
    updates = NoteUpdates()
    for number in range(MAX_UPDATED_SESSIONS + 5):
        updates.remember(make_session(f"s{number}"), ["Has a dog"])
    assert len(updates._sent) == MAX_UPDATED_SESSIONS
