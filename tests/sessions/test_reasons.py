"""Why a recall has a message or has it not: each reason is what the search itself decided on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from hermes_core import HermesHome, Memory, Recall, open_memory
from hermes_core.contract.hooks import hookimpl
from hermes_core.contract.values import Refused
from hermes_core.recall.rank import MAX_PROACTIVE_HITS
from hermes_core.turn_recall import ExplainedReport

NOW = 1_790_000_000.0
DAY = 86_400.0


@pytest.fixture
def memory(hermes_home: HermesHome) -> Iterator[Memory]:
    with open_memory(hermes_home) as memory:
        yield memory


def tell(memory: Memory, said: str, *, session: str = "chat", at: float = NOW, **fields: Any) -> int:
    """Store a message of a person and return its id."""
    chat = memory.start_session(session, **fields)
    memory.end_turn(chat, said, "Noted.", at=at, warm=False)
    return max(m.id for m in memory.sessions.get_messages(chat.id) if m.role == "user")


def explain(memory: Memory, text: str, *absent: int, **options: Any) -> ExplainedReport:
    report = memory.recall(text, why=True, absent=absent, **{"at": NOW + DAY, **options})
    assert isinstance(report, ExplainedReport)
    return report


def why(memory: Memory, text: str, message_id: int) -> Any:
    return next(hit.why for hit in explain(memory, text).results if hit.message_id == message_id)


def test_words_similar_words_and_words_beside_a_message_are_told_apart(memory: Memory) -> None:
    film = tell(memory, "The film began at eight.")
    after = tell(memory, "Everyone was pleased.")
    reason = why(memory, "When did the movie begin?", film)
    assert (reason.words, reason.similar_words) == (("begin",), ("movie",))
    reason = why(memory, "When did the movie begin?", after)
    assert (reason.words, reason.near_words) == ((), ("movie", "begin"))


def test_a_time_that_brought_a_message_is_named(memory: Memory) -> None:
    at = time.time()  # a session begins at the time of the clock
    picnic = tell(memory, "The picnic was a success.", at=at)
    (hit,) = (
        one for one in explain(memory, "What did I do today?", at=at).results if one.message_id == picnic
    )
    day = datetime.fromtimestamp(at, UTC).astimezone().date().isoformat()
    assert hit.why.times == ((day, day),)
    assert set(hit.why.parts) == {"information"}
    assert f"time {day}" in hit.why.text


def test_a_change_names_both_messages(memory: Memory) -> None:
    old = tell(memory, "My passport is in the blue drawer.")
    new = tell(memory, "My passport is in the safe now.", at=NOW + 60)
    assert why(memory, "Where is my passport?", new).older == (old,)
    assert why(memory, "Where is my passport?", old).newest == new


def test_each_condition_that_a_message_does_not_pass_is_named(memory: Memory) -> None:
    said = tell(memory, "The kettle is broken.")
    here = memory.start_session("chat")
    absent = explain(memory, "kettle", said, session=here).absent[0]
    assert absent.turn == "its conversation is left out: the model sees it"
    assert absent.search == "the search returns it"
    assert "older than" in explain(memory, "kettle", said, after=NOW + 60).absent[0].search
    assert "newer than" in explain(memory, "kettle", said, before=NOW - 60).absent[0].search
    job = tell(memory, "The kettle report is ready.", session="job", platform="cron")
    for number in range(12):
        tell(memory, f"The kettle of room {number} hums.", session=f"s{number}")
    assert explain(memory, "kettle", job, limit=3).absent[0].search == "the source of its session is left out"
    memory.rewind(here, said)
    rewound = explain(memory, "kettle", said).absent[0].turn
    assert rewound.startswith("it was rewound, or it is a copy of an earlier message")


def test_a_message_of_another_user_is_no_message(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        said = tell(memory, "The kettle is broken.", session="theirs", platform="telegram", user_id="1")
        other = memory.start_session("mine", platform="telegram", user_id="2", chat_type="dm")
        absent = explain(memory, "kettle", said, session=other).absent[0]
        assert (absent.turn, absent.search) == ("no message has this id", "no message has this id")


def test_the_ranking_says_its_place_and_its_limit(memory: Memory) -> None:
    ids = [tell(memory, f"The kettle of room {n} hums.", session=f"s{n}") for n in range(4)]
    report = explain(memory, "kettle room 3", *ids, limit=1)
    places = {one.message_id: one.search for one in report.absent if not one.found}
    assert len(places) == 3
    assert all(
        text.startswith("it has place ") and text.endswith("and 1 are returned") for text in places.values()
    )


def test_a_repeat_and_the_question_itself_are_named(memory: Memory) -> None:
    first = tell(memory, "My kettle is in the red cupboard.", session="a")
    again = tell(memory, "My  kettle is in the red cupboard.", session="b", at=NOW + 60)
    asked = tell(memory, "Where is my kettle?", session="c", at=NOW + 120)
    turns = {
        one.message_id: one.turn for one in explain(memory, "Where is my kettle?", first, again, asked).absent
    }
    assert sorted((turns[first], turns[again])) == sorted(
        ("the turn gets it", f"it repeats message {first if 'gets' in turns[first] else again}")
    )
    assert turns[asked] == "it is the question itself"


def test_what_the_model_sees_already_and_what_an_observer_refuses_is_named(hermes_home: HermesHome) -> None:
    class Refusing:
        @hookimpl
        def filter_recall(self, recall: Recall) -> Any:
            return Refused("not at work")

    with open_memory(hermes_home) as memory:
        said = tell(memory, "My kettle is in the red cupboard.", session="a")
        memory.curated.add("memory", "My kettle is in the red cupboard.")
        assert (
            explain(memory, "Where is my kettle?", said).absent[0].turn == "the model sees this text already"
        )
        memory.curated.reset("memory")
    with open_memory(hermes_home, observers=[Refusing()]) as memory:
        assert (
            explain(memory, "Where is my kettle?", said).absent[0].turn
            == "an observer refused it: Refusing: not at work"
        )


def test_a_condition_of_the_question_is_a_reason(memory: Memory) -> None:
    said = tell(memory, "The kettle is broken.")
    assert (
        explain(memory, "kettle NOT broken", said).absent[0].search
        == "it does not fulfil the condition of the question"
    )


def test_a_report_without_reasons_has_none(memory: Memory) -> None:
    tell(memory, "The kettle is broken.")
    report = memory.recall("kettle")
    assert not isinstance(report, ExplainedReport)
    assert not hasattr(report.results[0], "why")


def test_beyond_the_most_that_a_turn_gets_the_place_and_the_number_are_named(memory: Memory) -> None:
    ids = [
        tell(memory, f"My kettle number {n} is red.", session=f"s{n}", at=NOW + n)
        for n in range(MAX_PROACTIVE_HITS + 3)
    ]
    report = explain(memory, "Where is my kettle?", *ids)
    left_out = [one for one in report.absent if not one.given]
    assert len(left_out) == 3
    assert all(one.turn.endswith(f"and {MAX_PROACTIVE_HITS} are returned") for one in left_out)


def test_a_conversation_gets_the_reasons_of_its_own_scope(memory: Memory) -> None:
    said = tell(memory, "My kettle is in the red cupboard.", session="a")
    report = memory.conversation("b").recall("Where is my kettle?", why=True, absent=[said])
    assert isinstance(report, ExplainedReport)
    assert (report.gate.open, report.absent[0].turn) == (True, "the turn gets it")
