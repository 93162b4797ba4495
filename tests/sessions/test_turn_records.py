"""Records of turns are bounded, hold no text that is stored elsewhere, and go with what they are about."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hermes_core import HermesHome, MemoryProvider, Recall, RecallItem
from hermes_core.actions.turns import GONE, explained_turn
from hermes_core.forget import forget_user
from hermes_core.memory import Memory, open_memory
from hermes_core.sessions import turn_records
from hermes_core.sessions.daily_usage import daily_usage
from hermes_core.sessions.maintenance import repair
from hermes_core.sessions.owners import give_to_home
from hermes_core.sessions.turn_records import list_turns, turn_record


class Recalling(MemoryProvider):
    name = "recalling"

    def prefetch(self) -> Recall:
        return Recall(
            tuple(
                RecallItem(f"fact {number} {'x' * 1000 * (number == 0)}", score=0.5) for number in range(30)
            )
        )


@pytest.fixture
def memory(hermes_home: HermesHome) -> Iterator[Memory]:
    with open_memory(hermes_home, provider=Recalling(), config={"recall": {"sessions": "auto"}}) as memory:
        yield memory


def turn(memory: Memory, session_id: str, number: int, **fields: str) -> None:
    session = memory.start_session(session_id, **fields)  # type: ignore[arg-type]
    memory.begin_turn(session, f"kumquat {number}?")
    memory.end_turn(session, f"kumquat {number}?", "Noted.", turn_id=f"{session_id}-{number}", warm=False)


def test_a_record_holds_the_beginnings_of_some_texts_and_counts_all(memory: Memory) -> None:
    turn(memory, "s1", 1)
    stored = turn_record(memory.sessions, "s1-1")
    assert stored is not None
    assert stored.record is not None
    source = stored.record.sources[0]
    assert (source.source, source.outcome) == ("recalling", "fresh")
    assert len(source.items) == turn_records.MAX_ITEMS
    assert source.count > len(source.items)
    assert len(source.items[0].text) == turn_records.MAX_TEXT_CHARS
    assert source.items[0].tokens > 200
    assert stored.record.recall_tokens == source.tokens > 250


def test_the_newest_records_are_kept(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_records, "MAX_RECORDS", 3)
    for number in range(5):
        turn(memory, "s1", number)
    assert [entry.number for entry in list_turns(memory.sessions)] == [5, 4, 3]
    oldest = turn_record(memory.sessions, "s1-0")
    assert oldest is not None
    assert oldest.record is None


def test_a_message_of_a_past_session_is_named_and_not_copied(memory: Memory) -> None:
    turn(memory, "old", 1)
    turn(memory, "new", 2)
    texts = [row[0] for row in memory.sessions.database.execute("SELECT record FROM turn_records")]
    assert "kumquat" not in "".join(texts)
    explained = explained_turn(memory, memory.local_session, "new-2")
    assert explained.record is not None
    past = next(source for source in explained.record.sources if source.source == "sessions")
    assert past.items[0].text == "kumquat 1?"

    memory.delete_session("old")
    explained = explained_turn(memory, memory.local_session, "new-2")
    assert explained.record is not None
    assert {
        item.text
        for source in explained.record.sources
        for item in source.items
        if source.source == "sessions"
    } == {GONE}
    assert [entry.id for entry in list_turns(memory.sessions)] == ["new-2"]


def test_a_turn_of_another_user_is_not_shown(memory: Memory) -> None:
    turn(memory, "theirs", 1, platform="telegram", user_id="42")
    assert list_turns(memory.sessions) == []
    assert [entry.id for entry in list_turns(memory.sessions, user="telegram:42")] == ["theirs-1"]
    with pytest.raises(Exception, match="there is no turn"):
        explained_turn(memory, memory.local_session, "theirs-1")


def test_the_tokens_of_a_day_are_added_up_for_each_user_and_forgotten_with_them(memory: Memory) -> None:
    turn(memory, "mine", 1)
    turn(memory, "mine", 2)
    turn(memory, "theirs", 1, platform="telegram", user_id="42")
    memory.sessions.meta.add_usage(
        "mine", input_tokens=400, cache_read_tokens=100, output_tokens=7, cost_usd=0.1
    )
    memory.sessions.meta.add_usage("mine", input_tokens=400, cache_read_tokens=300)
    (usage,) = daily_usage(memory.sessions.database)
    assert (usage.turns, usage.input_tokens, usage.cache_share, usage.output_tokens) == (2, 800, 0.5, 7)
    assert usage.recall_tokens > 0
    assert daily_usage(memory.sessions.database, user="telegram:42")[0].turns == 1
    forget_user(memory, "telegram:42")
    assert daily_usage(memory.sessions.database, user="telegram:42") == []
    assert len(daily_usage(memory.sessions.database)) == 1


def test_what_was_counted_for_a_user_who_is_the_person_at_home_is_counted_there(memory: Memory) -> None:
    turn(memory, "mine", 1)
    turn(memory, "theirs", 1, platform="telegram", user_id="42")
    give_to_home(memory.sessions, "telegram:42")
    assert [usage.turns for usage in daily_usage(memory.sessions.database)] == [2]
    assert daily_usage(memory.sessions.database, user="telegram:42") == []


@pytest.mark.sqlite_only("a damaged or missing file")
def test_a_repair_saves_records_and_counts(memory: Memory) -> None:
    turn(memory, "s1", 1)
    memory.close()
    result = repair(memory.home.state_db)
    assert (result.saved["turn_records"], result.saved["daily_usage"]) == (1, 1)
    with open_memory(memory.home, provider="") as again:
        assert [entry.id for entry in list_turns(again.sessions)] == ["s1-1"]
        assert daily_usage(again.sessions.database)[0].turns == 1


def test_an_imported_turn_has_no_record(memory: Memory) -> None:
    session = memory.start_session("s1")
    memory.end_turn(session, "Hello", "Hello", turn_id="t1", warm=False)
    stored = turn_record(memory.sessions, "t1")
    assert stored is not None
    assert stored.record is None
    assert [message.content for message in stored.messages] == ["Hello", "Hello"]
    assert daily_usage(memory.sessions.database) == []


def test_a_record_that_can_not_be_read_says_so(memory: Memory) -> None:
    turn(memory, "s1", 1)
    with memory.sessions.transaction() as connection:
        connection.execute("UPDATE turn_records SET record = ?", (json.dumps({"sources": 1}),))
    stored = turn_record(memory.sessions, "s1-1")
    assert stored is not None
    assert stored.record is not None
    assert stored.record.left_out == ("the record of this turn can't be read",)
