from __future__ import annotations

from typing import Any

import pytest

from hermes_core.errors import ImportFailed
from hermes_memory_importers.locomo import parse_time, read_locomo


def sample(**extra: Any) -> dict[str, Any]:
    return {
        "sample_id": "talk-1",
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Ben",
            "session_2": [{"speaker": "Ben", "dia_id": "D2:1", "text": "Back again"}],
            "session_2_date_time": "10:00 am on 1 June, 2023",
            "session_1": [
                {"speaker": "Ada", "dia_id": "D1:1", "text": "Hi"},
                {"speaker": "Ada", "dia_id": "D1:2", "text": "Look", "blip_caption": "a red kite"},
                {"speaker": "Ben", "dia_id": "D1:3", "text": "Nice"},
                {"speaker": "Ada", "dia_id": "D1:4", "text": "Bye"},
            ],
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_3_date_time": "1:00 pm on 9 June, 2023",
            **extra,
        },
    }


def test_each_session_becomes_one_with_an_id_of_its_own() -> None:
    first, second = read_locomo([sample()])

    assert (first.id, second.id) == ("locomo-talk-1-session-1", "locomo-talk-1-session-2")
    assert (first.source, first.started_at) == ("locomo", 1_683_554_160.0)


def test_lines_of_one_speaker_join_a_turn_and_stay_single() -> None:
    first = read_locomo(sample())[0]

    assert [[m.ref for m in turn.messages] for turn in first.turns] == [["D1:1", "D1:2", "D1:3"], ["D1:4"]]


def test_a_message_has_its_role_speaker_reference_picture_and_time() -> None:
    messages = [m for turn in read_locomo(sample())[0].turns for m in turn.messages]

    assert [m.role for m in messages] == ["user", "user", "assistant", "user"]
    assert (messages[1].speaker, messages[1].content) == ("Ada", "Look [shares a red kite]")
    times = [m.timestamp for m in messages if m.timestamp is not None]
    assert len(times) == 4
    assert times == sorted(set(times))


def test_a_session_that_the_other_one_opens_begins_with_the_assistant() -> None:
    second = read_locomo(sample())[1]

    assert [m.role for m in second.turns[0].messages] == ["assistant"]


def test_conversations_without_an_id_stay_apart_and_keep_theirs_while_they_grow() -> None:
    one, two = sample(), sample(session_1=[{"speaker": "Ada", "dia_id": "D1:1", "text": "Of zebras"}])
    del one["sample_id"], two["sample_id"]
    first, _, other, _ = (session.id for session in read_locomo([one, two]))
    one["conversation"]["session_1"].append({"speaker": "Ben", "text": "And more"})

    assert first == read_locomo(one)[0].id != other


def test_sessions_are_known_by_their_number_however_it_is_written() -> None:
    line = {"speaker": "Ada", "text": "Hi"}
    times = {"session_04_date_time": "1:00 pm on 9 June, 2023"}
    odd = {"session_04": [line], f"session_{'9' * 5000}": [line], **times}
    sessions = read_locomo(sample(**odd))

    assert [session.id for session in sessions][2:] == ["locomo-talk-1-session-04"]
    assert sessions[2].started_at is not None


@pytest.mark.parametrize("data", [None, [], {}, "text", [1], [{"conversation": {}}], {"messages": []}])
def test_what_is_not_of_this_format_is_refused(data: object) -> None:
    with pytest.raises(ImportFailed, match="not a LoCoMo file"):
        read_locomo(data)


@pytest.mark.parametrize("line", [5, {"text": 5}])
def test_a_broken_line_is_named(line: object) -> None:
    with pytest.raises(ImportFailed, match="5"):
        read_locomo(sample(session_1=[line]))


def test_the_example_of_a_time_is_true() -> None:
    assert parse_time("1:56 pm on 8 May, 2023") == 1683554160.0


def test_a_time_that_cannot_be_read_is_left_out() -> None:
    assert parse_time("some day") is None
    assert read_locomo(sample(session_1_date_time="some day"))[0].started_at is None
