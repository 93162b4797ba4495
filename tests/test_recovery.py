"""What state.db holds and outbox.db does not know, after a kill or a refusal, reaches whom it was meant for, and nobody else."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import Session, SessionSwitch, Turn
from hermes_core.errors import DatabaseUnavailable
from hermes_core.home import HermesHome
from hermes_core.manager.delivery import ANOTHER_ACCOUNT
from hermes_core.manager.outbox import Outbox
from hermes_core.memory import Memory, open_memory
from hermes_core.recovery import owe
from hermes_core.testing.fakes import RecordingProvider

DIARY = """
'A MemoryProvider that records.'
from hermes_core import Field
from hermes_core.testing import RecordingProvider

class Diary(RecordingProvider):
    name = "diary"
    settings = (Field("bank", default="main", identity=True, help="Whose diary"),)
"""


def say(memory: Memory, session: Session, text: str) -> Turn:
    memory.begin_turn(text, session)
    return memory.end_turn(session, text, "noted")


def message_of(memory: Memory, session: Session, text: str) -> int:
    return next(m.id for m in memory.sessions.get_messages(session.id) if m.content == text)


def fill_outbox(memory: Memory) -> None:
    """From now on the outbox takes nothing, as if the process were killed before it did."""
    memory.manager._writes.outbox.close()
    memory.manager._writes.outbox = Outbox(memory.home, max_rows=0)


def switches(provider: RecordingProvider) -> list[SessionSwitch]:
    return [call["switch"] for call in provider.of("on_session_switch")]


def test_a_turn_that_is_recovered_stays_with_the_account_that_it_was_said_under(
    hermes_home: HermesHome, install_plugin: Callable[..., Any]
) -> None:
    settings = install_plugin("diary", DIARY).parent.parent / "diary.json"
    settings.write_text('{"bank": "of ann"}')
    with open_memory(hermes_home, provider="diary") as memory:
        session = memory.start_session("s1")
        fill_outbox(memory)
        say(memory, session, "said as ann")
    settings.write_text('{"bank": "of bob"}')
    with open_memory(hermes_home, provider="diary") as memory:
        say(memory, memory.start_session("s1"), "said as bob")
        assert memory.flush()
        [kept] = memory.manager.outbox.parked()
        assert ("said as ann" in kept.body, kept.error) == (True, ANOTHER_ACCOUNT)
        assert memory.manager.outbox.last_settled("diary") is not None


def test_what_was_taken_back_while_the_outbox_was_full_is_forgotten_when_it_has_room(
    hermes_home: HermesHome,
) -> None:
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        session = memory.start_session("s1")
        turn = say(memory, session, "take this back")
        assert memory.flush()
        fill_outbox(memory)
        memory.rewind(session, message_of(memory, session, "take this back"))
    assert switches(provider) == []
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
    assert len(switches(other)) == 2


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


def test_a_note_that_a_provider_refused_waits_for_it_while_none_is_chosen(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        fill_outbox(memory)
        assert "not told yet" in memory.change_memory("add", content="Likes tea")["warning"]
    change(hermes_home, "", ("add", "Has a cat", ""))
    change(hermes_home, provider)
    assert memory_writes(provider) == [("add", "Likes tea", "")]


def test_a_note_that_one_provider_refused_is_not_told_to_another(hermes_home: HermesHome) -> None:
    class Other(RecordingProvider):
        name = "other"

    provider, other = RecordingProvider(), Other()
    change(hermes_home, provider, ("add", "Has a cat", ""))
    with open_memory(hermes_home, provider=other) as memory:
        fill_outbox(memory)
        assert "not told yet" in memory.change_memory("add", content="Likes tea")["warning"]
        assert "not told yet" in memory.change_memory("remove", old_text="Has a cat")["warning"]
    for chosen in (provider, other, provider, other):
        change(hermes_home, chosen)
    assert memory_writes(provider) == [("add", "Has a cat", ""), ("remove", "", "Has a cat")]
    assert [content for _, content, _ in memory_writes(other)] == ["Likes tea", ""]


def test_a_switch_that_one_provider_missed_is_not_told_to_another(hermes_home: HermesHome) -> None:
    class Other(RecordingProvider):
        name = "other"

    one, other = Session("s1"), Session("s2")
    provider = Other()
    with open_memory(hermes_home, provider=provider) as memory:
        memory.start_session("s3")
        owe(memory.sessions, memory.manager, "fake", SessionSwitch("x1", one, other, "new"))
        owe(memory.sessions, memory.manager, "other", SessionSwitch("x2", one, other, "reset"))
    with open_memory(hermes_home, provider=provider) as memory:
        memory.start_session("s3")
        assert memory.flush()
    assert [told.id for told in switches(provider)] == ["x2"]


def test_a_provider_that_takes_no_turns_is_told_of_a_switch_that_it_missed(hermes_home: HermesHome) -> None:
    class Follower(MemoryProvider):
        name = "follower"

        def on_session_switch(self, switch: SessionSwitch) -> None:
            told.append(switch.id)

    told: list[str] = []
    with open_memory(hermes_home, provider=Follower()) as memory:
        memory.start_session("s1")
        owe(
            memory.sessions,
            memory.manager,
            "follower",
            SessionSwitch("x1", Session("s1"), Session("s2"), "new"),
        )
    for _ in range(2):
        with open_memory(hermes_home, provider=Follower()) as memory:
            memory.start_session("s2")
            assert memory.flush()
    assert told == ["x1"]


@pytest.mark.parametrize(
    "damage", ["", "{", "7", "null", '{"at": 1}', '[{"at": 1e12}]', "[[1]]", '[["a", 2]]']
)
def test_what_is_noted_beside_the_sessions_may_be_damaged(
    hermes_home: HermesHome, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        session = memory.start_session("s1")
        say(memory, session, "first")
        owe(memory.sessions, memory.manager, "fake", SessionSwitch("x1", session, session, "new"))
        assert memory.flush()
    with contextlib.closing(sqlite3.connect(hermes_home.state_db)) as disk, disk:
        disk.execute("UPDATE state_meta SET value = ?", (damage,))
    with open_memory(hermes_home, provider=provider) as memory:
        session = memory.start_session("s1")
        say(memory, session, "second")
        assert memory.flush()
        memory.rewind(session, message_of(memory, session, "second"))
        assert memory.flush()
        assert memory.problems() == []
    assert "'switches_to_tell' in state.db can't be read" in caplog.text
    assert [call["turn"].user for call in provider.of("sync_turn")] == ["first", "second"]


def test_where_it_is_damaged_for_whom_turns_were_the_provider_gets_none_that_it_may_not(
    hermes_home: HermesHome,
) -> None:
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        say(memory, memory.start_session("s1"), "for the provider")
    with open_memory(hermes_home, provider="") as memory:
        say(memory, memory.start_session("s1"), "between us")
        memory.sessions.set_meta("recipients_of_turns", "{")
    with open_memory(hermes_home, provider=provider) as memory:
        say(memory, memory.start_session("s1"), "for it again")
        assert memory.flush()
    assert [call["turn"].user for call in provider.of("sync_turn")] == ["for the provider", "for it again"]


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
