"""The person's message has the time of `turn`, and the answer that of `finish`, in the store and at the provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from hermes_core import HermesHome, Memory, MemoryProvider, Turn, open_memory
from hermes_memory_importers.formats import stream_file
from hermes_memory_importers.run import import_sessions

ASKED, ANSWERED = 1_772_323_200.0, 1_772_323_290.5  # 1 March 2026, and 90 seconds later


class Diary(MemoryProvider):
    name = "diary"

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def sync_turn(self, turn: Turn) -> None:
        self.turns.append(turn)


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
def memory(hermes_home: HermesHome, diary: Diary) -> Iterator[Memory]:
    with open_memory(hermes_home, provider=diary) as opened:
        yield opened


def times(memory: Memory, session_id: str) -> list[tuple[str, float]]:
    return [(m.role, m.timestamp) for m in memory.sessions.get_messages(session_id)]


def test_both_messages_have_their_own_time(memory: Memory, diary: Diary) -> None:
    chat = memory.conversation()
    turn = chat.turn("I moved to Oslo.", at=ASKED)
    turn.add({"role": "assistant", "content": "Let me see."})
    done = turn.finish("Noted.", at=ANSWERED)
    assert (done.user_at, done.at) == (ASKED, ANSWERED)
    stored = times(memory, chat.id)
    assert (stored[0], stored[-1]) == (("user", ASKED), ("assistant", ANSWERED))
    assert memory.manager.flush(30.0)
    (told,) = diary.turns
    assert (told.user_at, told.at) == (ASKED, ANSWERED)
    assert told.said == (("user", "I moved to Oslo.", ASKED), ("assistant", "Noted.", ANSWERED))
    assert all("timestamp" not in message for message in turn.messages), "a model's API takes no such field"


def test_another_process_that_finishes_the_turn_keeps_its_time(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as first:
        chat = first.conversation("s1")
        chat.turn("I moved to Oslo.", turn_id="t1", at=ASKED)
    with open_memory(hermes_home) as second:
        turn = second.conversation("s1").resume("t1")
        turn.finish("Noted.", at=ANSWERED)
        assert times(second, "s1") == [("user", ASKED), ("assistant", ANSWERED)]


def test_without_times_the_message_is_earlier_than_the_answer(memory: Memory) -> None:
    turn = memory.conversation().turn("I moved to Oslo.")
    done = turn.finish("Noted.")
    assert 0 < done.user_at <= done.at


def test_a_message_is_never_later_than_its_answer(memory: Memory) -> None:
    done = memory.conversation().turn("I moved to Oslo.").finish("Noted.", at=ANSWERED)
    assert (done.user_at, done.at) == (ANSWERED, ANSWERED)


def test_the_calls_without_handles_do_the_same(memory: Memory) -> None:
    session = memory.session("s1")
    memory.sessions.create_session("s1", "cli")
    memory.begin_turn(session, "I moved to Oslo.", at=ASKED)
    done = memory.end_turn(session, "I moved to Oslo.", "Noted.", at=ANSWERED)
    assert (done.user_at, done.at) == (ASKED, ANSWERED)
    assert times(memory, "s1") == [("user", ASKED), ("assistant", ANSWERED)]


def test_imported_messages_arrive_at_their_own_times_with_their_zone(
    memory: Memory, diary: Diary, tmp_path: Path
) -> None:
    told = ["2026-03-01T00:30:00+09:00", "2026-03-01T00:31:15+09:00"]
    lines = [
        {"session": "s", "role": role, "content": f"{role} at night", "timestamp": at}
        for role, at in zip(("user", "assistant"), told, strict=True)
    ]
    file = tmp_path / "chat.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    import_sessions(memory, stream_file(file))
    moments = [datetime.fromisoformat(at).timestamp() for at in told]
    (session,) = memory.sessions.list_sessions(limit=10)
    assert [at for _, at in times(memory, session.session.id)] == moments
    assert memory.manager.flush(30.0)
    assert [(turn.user_at, turn.at) for turn in diary.turns] == [tuple(moments)]
