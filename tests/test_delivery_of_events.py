"""Each event reaches the provider that it was stored for, and no other one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import Availability, Delegation, Session, SessionSwitch, Turn
from hermes_core.errors import DatabaseUnavailable
from hermes_core.home import HermesHome
from hermes_core.manager.providers import DURABLE_HOOKS
from hermes_core.manager.writes import ANOTHER_ACCOUNT
from hermes_core.memory import Memory, open_memory
from hermes_memory_testing.fakes import RecordingProvider

DIARY = """
'A MemoryProvider that records.'
import os
from hermes_core import Field
from hermes_core.errors import BackendUnavailable
from hermes_memory_testing import RecordingProvider

class Diary(RecordingProvider):
    name = "diary"
    settings = (Field("bank", default="main", identity=True, help="Whose diary"),)

    def sync_turn(self, turn, session):
        if "DIARY_IS_DOWN" in os.environ:
            raise BackendUnavailable("down")
        self.answer("sync_turn", turn=turn, session=session)
"""


def say(memory: Memory, session: Session, text: str) -> Turn:
    memory.begin_turn(session, text)
    return memory.end_turn(session, text, "noted")


def message_of(memory: Memory, session: Session, text: str) -> int:
    return next(m.id for m in memory.sessions.get_messages(session.id) if m.content == text)


def fill_outbox(memory: Memory) -> None:
    """Let the outbox refuse every row from now on."""
    memory.manager.outbox._max_rows = 0


def switches(provider: RecordingProvider) -> list[SessionSwitch]:
    return [call["switch"] for call in provider.of("on_session_switch")]


def test_a_turn_that_waits_stays_with_the_account_that_it_was_said_under(
    hermes_home: HermesHome, install_plugin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = install_plugin("diary", DIARY).parent.parent / "diary.json"
    settings.write_text('{"bank": "of ann"}')
    monkeypatch.setenv("DIARY_IS_DOWN", "1")
    with open_memory(hermes_home, provider="diary") as memory:
        say(memory, memory.start_session("s1"), "said as ann")
    monkeypatch.delenv("DIARY_IS_DOWN")
    settings.write_text('{"bank": "of bob"}')
    with open_memory(hermes_home, provider="diary") as memory:
        say(memory, memory.start_session("s1"), "said as bob")
        assert memory.flush()
        [kept] = memory.manager.outbox.dead_letters()
        assert ("said as ann" in kept.body, kept.error) == (True, ANOTHER_ACCOUNT)
        assert memory.manager.outbox.last_settled("diary") is not None


def test_a_rewind_is_stored_for_the_provider_also_in_a_full_outbox(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        session = memory.start_session("s1")
        turn = say(memory, session, "take this back")
        assert memory.flush()
        fill_outbox(memory)
        memory.rewind(session, message_of(memory, session, "take this back"))
        assert memory.problems() == []
    for _ in range(2):
        with open_memory(hermes_home, provider=provider) as memory:
            memory.start_session("s2")
            assert memory.flush()
    [told] = switches(provider)
    assert (told.old.id, told.reason, told.rewound_turns) == ("s1", "rewind", (turn.id,))


def test_what_was_taken_back_without_the_provider_is_forgotten_when_it_is_there_again(
    hermes_home: HermesHome,
) -> None:
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        session = memory.start_session("s1")
        turn = say(memory, session, "take this back")
        assert memory.flush()
    with open_memory(hermes_home, provider="") as memory:
        memory.rewind(session, message_of(memory, session, "take this back"))
    for _ in range(2):
        with open_memory(hermes_home, provider=provider) as memory:
            memory.start_session("s2")
            assert memory.flush()
    assert [told.rewound_turns for told in switches(provider)] == [(turn.id,)]


def test_what_was_taken_back_with_another_provider_is_forgotten_when_its_own_is_chosen_again(
    hermes_home: HermesHome,
) -> None:
    class Other(RecordingProvider):
        name = "other"

    provider, other = RecordingProvider(), Other()
    with open_memory(hermes_home, provider=provider) as memory:
        session = memory.start_session("s1")
        turns = [say(memory, session, text) for text in ("take this back", "and this")]
        assert memory.flush()
    for text, chosen in (("and this", other), ("take this back", "")):
        with open_memory(hermes_home, provider=chosen) as memory:
            memory.rewind(session, message_of(memory, session, text))
    for chosen in (other, provider, other, provider):
        with open_memory(hermes_home, provider=chosen) as memory:
            memory.start_session("s2")
            assert memory.flush()
    assert [told.rewound_turns for told in switches(provider)] == [(turns[1].id,), (turns[0].id,)]
    # Its own rewind; of the turn that it never had it hears nothing.
    assert len(switches(other)) == 1


def memory_writes(provider: RecordingProvider) -> list[tuple[str, str, str]]:
    told = (call["write"] for call in provider.of("on_memory_write"))
    return [(write.action, write.content, write.previous) for write in told]


def change(home: HermesHome, provider: Any, *changes: tuple[str, str, str]) -> None:
    with open_memory(home, provider=provider) as memory:
        for action, content, old_text in changes:
            assert memory.change_memory(action, "memory", content, old_text)["success"]
        assert memory.flush()


def test_a_provider_that_is_chosen_again_forgets_the_entries_that_went_meanwhile(
    hermes_home: HermesHome,
) -> None:
    class Other(RecordingProvider):
        name = "other"

    provider, other = RecordingProvider(), Other()
    change(hermes_home, provider, *(("add", text, "") for text in ("Likes tea", "Has a cat", "Plays go")))
    change(hermes_home, other, ("remove", "", "Likes tea"), ("replace", "Has a dog", "Has a cat"))
    change(hermes_home, "", ("remove", "", "Has a dog"), ("remove", "", "Plays go"), ("add", "Plays go", ""))
    for _ in range(2):
        change(hermes_home, provider)
    assert memory_writes(provider)[3:] == [("remove", "", "Likes tea"), ("remove", "", "Has a cat")]
    change(hermes_home, other)
    assert memory_writes(other)[2:] == [("remove", "", "Has a dog")]


def test_a_note_that_a_full_outbox_refused_is_stored_and_told_to_no_provider(
    hermes_home: HermesHome,
) -> None:
    class Other(RecordingProvider):
        name = "other"

    provider, other = RecordingProvider(), Other()
    change(hermes_home, provider, ("add", "Has a cat", ""))
    with open_memory(hermes_home, provider=other) as memory:
        fill_outbox(memory)
        assert "is not told of it" in memory.change_memory("add", content="Likes tea")["warning"]
        assert "is not told of it" in memory.change_memory("remove", old_text="Has a cat")["warning"]
        assert memory.curated.entries("memory") == ("Likes tea",)
    for chosen in (provider, other, provider, other):
        change(hermes_home, chosen)
    assert memory_writes(provider) == [("add", "Has a cat", ""), ("remove", "", "Has a cat")]
    assert memory_writes(other) == []


class Absent(RecordingProvider):
    """The same provider while its package is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.results["is_available"] = Availability.no("its SDK is gone")


def test_events_wait_for_the_chosen_provider_while_it_is_not_loaded_and_reach_no_other(
    hermes_home: HermesHome,
) -> None:
    class Other(RecordingProvider):
        name = "other"

    with open_memory(hermes_home, provider=Absent()) as memory:
        session = memory.start_session("s1")
        turn = say(memory, session, "said meanwhile")
        memory.manager.on_delegation(Delegation("d1", "task", "result"), session)
        memory.end_session(session, "new")
        memory.manager.on_session_switch(SessionSwitch("x1", session, Session("s2"), "new"))
    provider, other = RecordingProvider(), Other()
    for chosen in (other, provider, provider):
        with open_memory(hermes_home, provider=chosen) as memory:
            memory.start_session("s2")
            assert memory.flush()
    assert not DURABLE_HOOKS.intersection(other.hooks)
    durable = [hook for hook in provider.hooks if hook in DURABLE_HOOKS]
    assert durable == ["sync_turn", "on_delegation", "on_session_end", "on_session_switch"]
    assert provider.of("sync_turn")[0]["turn"].id == turn.id


def test_a_hook_that_the_provider_turns_out_not_to_have_leaves_no_dead_letter(
    hermes_home: HermesHome,
) -> None:
    class Follower(MemoryProvider):
        name = "fake"

        def on_session_switch(self, switch: SessionSwitch) -> None:
            told.append(switch.id)

    told: list[str] = []
    with open_memory(hermes_home, provider=Absent()) as memory:
        session = memory.start_session("s1")
        say(memory, session, "for a provider that takes no turns")
        memory.manager.on_session_switch(SessionSwitch("x1", session, Session("s2"), "new"))
    with open_memory(hermes_home, provider=Follower()) as memory:
        memory.start_session("s2")
        assert memory.flush()
        assert memory.manager.outbox.dead_letters() == []
    assert told == ["x1"]


def test_a_session_whose_end_can_not_be_stored_is_told_of_and_can_be_ended_again(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise DatabaseUnavailable("the disk is gone", "look for it")

    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        session = memory.start_session("s1")
        say(memory, session, "bye")
        with monkeypatch.context() as patch:
            patch.setattr(memory.sessions, "end_session", broken)
            with pytest.raises(DatabaseUnavailable):
                memory.end_session(session)
        memory.end_session(session)
        assert memory.flush()
    assert provider.hooks.count("on_session_end") == 1
