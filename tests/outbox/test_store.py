from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_core.contract.values import Message, SessionSwitch, Turn
from hermes_core.errors import DatabaseCorrupt, OutboxError, OutboxFull
from hermes_core.home import HermesHome
from hermes_core.outbox.recovery import open_outbox
from hermes_core.outbox.rows import (
    MAX_TRANSCRIPT,
    NewRow,
    Row,
    Transcript,
    decode,
    encode,
    encode_end,
    encode_switch,
    plain,
)
from hermes_core.outbox.store import ANY_ACCOUNT, REMEMBERED_S, Outbox
from hermes_memory_postgresql.postgres import PostgresDatabase
from hermes_memory_postgresql.schema import MIGRATIONS
from hermes_memory_testing.fakes import Clock, make_session, make_turn
from tests.outbox_of import ON_POSTGRES
from tests.rounds import rounds


@pytest.fixture(params=["postgresql"] if ON_POSTGRES else ["sqlite", "postgresql"])
def open_store(
    request: pytest.FixtureRequest, hermes_home: HermesHome, clock: Clock
) -> Iterator[Callable[..., Outbox]]:
    """Open the test's outbox, on each engine."""
    opened: list[Outbox] = []

    def open_it(**options: Any) -> Outbox:
        if request.param == "sqlite":
            opened.append(open_outbox(hermes_home, wall=clock, **options))
        else:
            url, schema = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")
            database = PostgresDatabase(url, MIGRATIONS, schema=schema)
            opened.append(Outbox(database, wall=clock, **options))
        return opened[-1]

    yield open_it
    for outbox in opened:
        outbox.close()


@pytest.fixture
def outbox(open_store: Callable[..., Outbox]) -> Outbox:
    return open_store(max_rows=10, max_bytes=2000)


@pytest.fixture
def roomy(open_store: Callable[..., Outbox]) -> Outbox:
    """An outbox that never gets full."""
    return open_store()


@pytest.fixture
def outbox_file(hermes_home: HermesHome, clock: Clock) -> Iterator[Outbox]:
    """An outbox in a file."""
    with contextlib.closing(open_outbox(hermes_home, wall=clock)) as outbox:
        yield outbox


def add(outbox: Outbox, provider: str, rows: Sequence[NewRow], fingerprint: str = "") -> int:
    """Put rows, and return how many were new."""
    return sum(outbox.put(provider, row, fingerprint) for row in rows)


def write(event: str, session: str = "s1", body: str = "{}", hook: str = "sync_turn") -> NewRow:
    return NewRow(hook, event, session, body)


def head(outbox: Outbox, skip: tuple[str, ...] = ()) -> Row:
    row = outbox.next("fake", skip_sessions=skip)
    assert row is not None
    return row


def test_rows_come_out_in_the_order_in_which_they_went_in(outbox: Outbox) -> None:
    add(outbox, "fake", [write("a"), write("b", "s2"), write("c")])
    add(outbox, "other", [write("a")])
    assert [row.event for row in outbox.pending("fake")] == ["a", "b", "c"]
    assert head(outbox).event == "a"
    assert head(outbox, ("s1",)).event == "b"
    assert outbox.next("fake", skip_sessions=("s1", "s2")) is None


def test_rows_of_several_providers_stand_in_one_order(roomy: Outbox) -> None:
    roomy.put("fake", write("a"), "account-1")
    add(roomy, "fake", [write("b")])
    roomy.put("other", write("c"))
    roomy.put("fake", write("d", "s2", body="[]"))
    assert [row.event for row in roomy.pending()] == ["a", "b", "c", "d"]
    assert (head(roomy).fingerprint, head(roomy, ("s1",)).body) == ("account-1", "[]")
    assert (roomy.depth, roomy.backlog("fake").depth) == (4, 3)


def test_what_is_put_there_twice_is_sent_once(roomy: Outbox) -> None:
    roomy.put("fake", write("a"))
    roomy.put("fake", write("a"))
    assert roomy.depth == 1
    roomy.delivered(head(roomy))
    roomy.put("fake", write("a"))
    assert roomy.knows("fake", "sync_turn", "a")
    assert roomy.next("fake") is None


@pytest.mark.parametrize(
    "look",
    [
        lambda outbox: outbox.depth,
        lambda outbox: outbox.backlog("fake").oldest_age is not None,
        lambda outbox: outbox.next("fake") is not None,
        lambda outbox: outbox.waits("fake"),
        lambda outbox: outbox.waits("fake", "s1"),
        lambda outbox: outbox.knows("fake", "sync_turn", "a"),
        lambda outbox: outbox.backlog("fake").depth,
        lambda outbox: "fake" in outbox.backlogs(),
        lambda outbox: outbox.drop_session("s1"),
        lambda outbox: not add(outbox, "fake", [write("a")]),
    ],
)
def test_every_look_sees_what_was_just_put_there(roomy: Outbox, look: Callable[[Outbox], object]) -> None:
    roomy.put("fake", write("a"))
    assert look(roomy)


def test_a_turn_that_was_just_put_there_can_be_taken_back(roomy: Outbox) -> None:
    roomy.put("fake", write("a"))
    roomy.put("fake", write("b"))
    assert roomy.drop_turns("fake", ["b"]) == []
    assert [row.event for row in roomy.pending()] == ["a"]


def test_an_id_is_stored_once_per_provider_and_hook(outbox: Outbox) -> None:
    assert add(outbox, "fake", [write("a"), write("a")]) == 1
    assert add(outbox, "fake", [write("a")]) == 0
    assert add(outbox, "fake", [write("a", hook="on_memory_write")]) == 1
    assert add(outbox, "other", [write("a")]) == 1


def test_a_settled_id_is_known_and_not_taken_again(outbox: Outbox) -> None:
    add(outbox, "fake", [write("a")])
    outbox.delivered(head(outbox))
    assert outbox.depth == 0
    assert outbox.knows("fake", "sync_turn", "a")
    assert add(outbox, "fake", [write("a")]) == 0


def test_settled_ids_are_forgotten_after_thirty_days(outbox: Outbox, clock: Clock) -> None:
    for event, wait in (("a", 0.0), ("b", REMEMBERED_S - 1), ("c", 2.0)):
        clock.advance(wait)
        outbox.put("fake", write(event))
        outbox.delivered(head(outbox))
    assert [outbox.knows("fake", "sync_turn", event) for event in "abc"] == [False, True, True]


def test_a_full_outbox_refuses_the_new_write_and_keeps_the_old(outbox: Outbox) -> None:
    add(outbox, "fake", [write(str(n)) for n in range(10)])
    with pytest.raises(OutboxFull, match="was not accepted"):
        add(outbox, "fake", [write("one more")])
    assert outbox.refused("fake") == 1
    assert [row.event for row in outbox.pending()] == [str(n) for n in range(10)]
    outbox.delivered(head(outbox))
    outbox.put("fake", write("one more"))
    assert outbox.depth == 10


def test_the_outbox_is_bounded_in_bytes_too(outbox: Outbox) -> None:
    add(outbox, "fake", [write("big", body="x" * 1900)])
    with pytest.raises(OutboxFull):
        add(outbox, "fake", [write("next", body="x" * 200)])


def test_a_write_that_is_known_is_no_reason_to_refuse(outbox: Outbox) -> None:
    add(outbox, "fake", [write(str(n)) for n in range(10)])
    assert add(outbox, "fake", [write("3")]) == 0


def test_a_failed_try_is_noted_and_counted_only_when_it_counts(outbox: Outbox) -> None:
    add(outbox, "fake", [write("a")])
    outbox.failed(head(outbox), "down", counted=False)
    outbox.failed(head(outbox), "bad", counted=True)
    assert (head(outbox).attempts, head(outbox).error) == (1, "bad")


def test_a_parked_row_waits_for_a_person(outbox: Outbox) -> None:
    add(outbox, "fake", [write("a"), write("b")], "account-1")
    outbox.bury(head(outbox), "too long")
    assert [(row.event, row.error, row.state) for row in outbox.dead_letters()] == [
        ("a", "too long", "dead letter")
    ]
    assert head(outbox).event == "b"
    assert outbox.knows("fake", "sync_turn", "a")
    assert outbox.retry([999]) == 0
    assert outbox.retry([outbox.dead_letters()[0].number]) == 1
    assert (head(outbox).event, head(outbox).attempts, head(outbox).fingerprint) == ("a", 0, ANY_ACCOUNT)


def test_a_dropped_row_is_never_taken_again(outbox: Outbox) -> None:
    add(outbox, "fake", [write("a"), write("b")])
    outbox.bury(head(outbox), "too long")
    assert outbox.drop() == 1
    assert add(outbox, "fake", [write("a")]) == 0
    assert [row.event for row in outbox.pending()] == ["b"]


def test_rewound_turns_are_dropped_and_those_that_may_have_been_sent_are_named(outbox: Outbox) -> None:
    add(outbox, "fake", [write("gone")])
    outbox.delivered(head(outbox))
    add(outbox, "fake", [write(event) for event in ("first", "second", "third")])
    assert outbox.providers_of(["second", "unknown"]) == {"fake": ""}
    assert outbox.drop_turns("fake", ["gone", "first", "second"]) == ["gone", "first"]
    assert [row.event for row in outbox.pending()] == ["third"]
    assert add(outbox, "fake", [write("second")]) == 0


def test_a_deleted_session_leaves_nothing_that_waits(outbox: Outbox) -> None:
    add(outbox, "fake", [write("a"), write("b", "s2")])
    assert outbox.drop_session("s1") == 1
    assert [row.event for row in outbox.pending()] == ["b"]


def test_a_deleted_session_leaves_the_word_to_forget_what_was_taken_back(outbox: Outbox) -> None:
    switches = {
        "rewind": '{"value": {"rewound_turns": ["t1"]}}',
        "resume": '{"value": {"rewound_turns": []}}',
        "older": '{"value": {}}',
        "damaged": "{",
    }
    for event, body in switches.items():
        add(outbox, "fake", [write(event, body=body, hook="on_session_switch")])
    assert outbox.drop_session("s1") == 3
    assert [row.event for row in outbox.pending()] == ["rewind"]


def test_the_backlog_tells_depth_age_and_parked(outbox: Outbox, clock: Clock) -> None:
    add(outbox, "fake", [write("a")])
    clock.advance(5)
    add(outbox, "fake", [write("b"), write("c")])
    outbox.bury(outbox.pending()[1], "bad")
    backlog = outbox.backlog("fake")
    assert (backlog.depth, backlog.oldest_age, backlog.dead_letters) == (2, 5.0, 1)
    assert outbox.depth == 2


def test_the_backlog_tells_why_the_first_try_of_what_waits_failed(outbox: Outbox) -> None:
    add(outbox, "fake", [write("a"), write("b"), write("c", "s2")])
    add(outbox, "other", [write("a")])
    assert outbox.backlog("fake").error == ""
    for row, error in zip(outbox.pending("fake"), ("down", "", "late"), strict=True):
        outbox.failed(row, error, counted=False)
    assert outbox.backlog("fake").error == "down"
    assert outbox.backlog("other").error == ""
    outbox.delivered(head(outbox))
    assert outbox.backlog("fake").error == "late"
    outbox.bury(outbox.pending("fake")[1], "bad")
    assert outbox.backlog("fake").error == ""


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_the_file_is_private_and_synced(outbox_file: Outbox) -> None:
    add(outbox_file, "fake", [write("a")])
    assert stat.S_IMODE(Path(outbox_file.database.label).stat().st_mode) == 0o600
    assert outbox_file.database.connection.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert outbox_file.database.connection.execute("PRAGMA secure_delete").fetchone()[0] == 1


def test_what_was_sent_is_not_left_in_the_file(outbox_file: Outbox) -> None:
    outbox_file.put("fake", write("a", body="a-very-private-sentence"))
    outbox_file.delivered(head(outbox_file))
    outbox_file.close()
    assert b"a-very-private-sentence" not in Path(outbox_file.database.label).read_bytes()


def test_two_threads_append_without_losing_any(hermes_home: HermesHome) -> None:
    outbox = open_outbox(hermes_home)

    def append(prefix: str) -> None:
        for n in range(50):
            outbox.put("fake", write(f"{prefix}{n}", prefix))
            assert outbox.waits("fake", prefix)

    threads = [threading.Thread(target=append, args=(prefix,)) for prefix in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row.event for row in outbox.pending() if row.session_id == "a"] == [f"a{n}" for n in range(50)]
    assert outbox.depth == 100
    outbox.close()


@settings(
    max_examples=rounds(50), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.tuples(st.sampled_from("aaadpr"), st.integers(1, 1000)), max_size=40))
def test_a_write_is_refused_exactly_when_there_is_no_room(
    tmp_path: Path, steps: list[tuple[str, int]]
) -> None:
    home = HermesHome(Path(tempfile.mkdtemp(dir=tmp_path)))
    outbox = open_outbox(home, max_rows=200, max_bytes=20_000)
    add(outbox, "fake", [write(f"before {n}", body="x" * 70) for n in range(190)])
    for number, (step, size) in enumerate(steps):
        kept = [*outbox.pending(), *outbox.dead_letters()]
        room = len(kept) < 200 and sum(len(row.body) for row in kept) + size <= 20_000
        if step == "a":
            try:
                outbox.put("fake", write(str(number), body="x" * size))
            except OutboxFull:
                assert not room
            else:
                assert room
        elif step == "d":
            outbox.delivered(head(outbox))
        elif step == "p":
            outbox.bury(head(outbox), "bad")
        else:
            outbox.drop()
    outbox.close()


def test_damage_is_named_whatever_the_outbox_is_asked(outbox_file: Outbox) -> None:
    add(outbox_file, "fake", [write("a")])
    outbox_file.delivered(head(outbox_file))
    outbox_file.close()
    with contextlib.closing(sqlite3.connect(outbox_file.database.label)) as connection:
        roots = "SELECT rootpage FROM sqlite_master WHERE tbl_name = 'outbox_settled'"
        pages = [row[0] for row in connection.execute(roots)]
    with Path(outbox_file.database.label).open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
    damaged = open_outbox(HermesHome(Path(outbox_file.database.label).parent))
    for ask in (
        lambda: damaged.knows("fake", "sync_turn", "a"),
        lambda: add(damaged, "fake", [write("a")]),
        lambda: damaged.last_settled("fake"),
    ):
        with pytest.raises(DatabaseCorrupt, match="is damaged"):
            ask()
    damaged.close()


# ------------------------------------------------------------------ payload


def clean(value: Any) -> Any:
    """Redaction as a test sees it."""
    if isinstance(value, str):
        return value.replace("sk-secret", "[redacted]")
    if isinstance(value, dict):
        return {key: clean(entry) for key, entry in value.items()}
    return [clean(entry) for entry in value] if isinstance(value, list) else value


TEXT = st.text(max_size=30)


MESSAGE = st.dictionaries(
    st.sampled_from(["role", "content", "name", "tool_calls", "timestamp"]),
    TEXT
    | st.none()
    | st.floats(allow_nan=False)
    | st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2),
    max_size=3,
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """Turns of whose messages some repeat the two texts, as nearly all do."""
    user, assistant = draw(TEXT), draw(TEXT)
    said = [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    messages = tuple(draw(st.just(said) | st.lists(MESSAGE | st.sampled_from(said), max_size=4)))
    number, at = draw(st.integers()), draw(st.floats(allow_nan=False, allow_infinity=False))
    return Turn(draw(TEXT), number, user, assistant, messages, draw(TEXT), at)  # type: ignore[arg-type]


@given(turns(), st.builds(make_session, TEXT, user_name=TEXT))
def test_a_turn_comes_back_as_it_was(turn: Any, session: Any) -> None:
    row = encode("sync_turn", turn, session, lambda value: value)
    again, arguments = decode(row, None, lambda value: value)
    assert (again, arguments["turn"]) == (session, turn)


@pytest.mark.parametrize(
    "odd",
    [
        {"user": None},
        {"user": ["a part", {"text": "another"}]},
        {"assistant": 7},
        {"author": None},
        {"number": None},
        {"at": 1763823423},
        {"at": float("inf")},
        {"messages": (["no", "message"], "nor this")},
    ],
    ids=str,
)
def test_no_turn_is_lost_because_a_part_is_of_another_type(odd: dict[str, Any]) -> None:
    turn = dataclasses.replace(make_turn("t1"), **odd)
    row = encode("sync_turn", turn, make_session("s1"), clean)
    assert decode(row, None, clean)[1]["turn"] == turn


def test_no_turn_is_lost_because_a_content_refuses_to_be_compared() -> None:
    class Array:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth of an array is ambiguous")

        def __str__(self) -> str:
            return "[1 2]"

    question: Any = Message(role="user", content=Array())
    turn = dataclasses.replace(
        make_turn("t1"), messages=(question, Message(role="assistant", content="sum?"))
    )
    row = encode("sync_turn", turn, make_session("s1"), clean)
    assert decode(row, None, clean)[1]["turn"].messages[0]["content"] == "[1 2]"


def test_a_write_waits_from_the_moment_it_was_stored(roomy: Outbox) -> None:
    assert not roomy.waits("fake")
    roomy.put("fake", write("a"))
    assert [roomy.waits("fake"), roomy.waits("fake", "s1")] == [True, True]
    assert not any([roomy.waits("other"), roomy.waits("fake", "s2")])
    roomy.delivered(head(roomy))
    assert not roomy.waits("fake")


def test_a_row_is_redacted_but_keeps_its_ids() -> None:
    turn = make_turn("turn-sk-secret", "my key is sk-secret")
    row = encode("sync_turn", turn, make_session("s-sk-secret"), clean)
    assert row.event == "turn-sk-secret"
    session, arguments = decode(row, None, clean)
    assert (session.id, arguments["turn"].id) == ("s-sk-secret", "turn-sk-secret")
    assert arguments["turn"].user == "my key is [redacted]"
    assert "my key is sk-secret" not in row.body


def test_a_switch_comes_back_with_both_sessions() -> None:
    switch = SessionSwitch("x", make_session("a"), make_session("b"), "rewind", rewound_turns=("t1",))
    row = encode_switch(switch, clean)
    assert row.session_id == "a"
    assert decode(row, None, clean)[1]["switch"] == switch


def test_an_end_by_reference_is_read_when_it_is_delivered() -> None:
    row = encode_end("e", make_session("a"), "close", 7, None, clean)
    asked: list[tuple[str, int | None]] = []

    def transcripts(session_id: str, last: int | None) -> Transcript:
        asked.append((session_id, last))
        return Transcript(lambda: [Message(role="user", content="key sk-secret")])

    arguments = decode(row, transcripts, clean)[1]
    assert arguments["reader"].messages() == ({"role": "user", "content": "key [redacted]"},)
    assert (asked, arguments["reason"]) == ([("a", 7)], "close")


def test_an_end_with_messages_carries_them_compressed() -> None:
    messages = [Message(role="user", content="the same words " * 20) for _ in range(100)]
    row = encode_end("e", make_session(), "close", None, messages, clean)
    assert len(row.body) < 3000
    reader = decode(row, None, clean)[1]["reader"]
    assert list(reader.messages()) == messages


def test_of_a_transcript_that_is_too_long_the_newest_messages_are_kept() -> None:
    messages = [Message(role="user", content=f"{n} " + "x" * 1_000_000) for n in range(6)]
    row = encode_end("e", make_session(), "close", None, messages, clean)
    kept = decode(row, None, clean)[1]["reader"].messages()
    assert [message["content"][0] for message in kept] == ["3", "4", "5"]
    assert sum(len(message["content"]) for message in kept) < MAX_TRANSCRIPT


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '{"schema": 1}', '{"schema": 1, "session": {}, "value": {}}']
)
def test_a_row_that_cannot_be_read_says_so(body: str) -> None:
    with pytest.raises(OutboxError, match="can't be read"):
        decode(write("e", body=body), None, clean)


def test_a_row_of_a_later_version_waits_for_the_upgrade() -> None:
    with pytest.raises(OutboxError, match="upgrade"):
        decode(write("e", body='{"schema": 2, "session": {"id": "a"}, "value": {}}'), None, clean)


def test_what_json_cannot_carry_becomes_text() -> None:
    assert plain({1: (object, {2}), "e": sqlite3.Error("x")}) == {"1": [str(object), [2]], "e": "x"}


def test_a_program_that_runs_beside_a_newer_one_reads_rows_that_have_a_column_more(
    outbox_file: Outbox, hermes_home: HermesHome
) -> None:
    add(outbox_file, "fake", [write("a"), write("b", "s2")])
    with contextlib.closing(sqlite3.connect(outbox_file.database.label)) as newer:
        newer.execute("ALTER TABLE outbox_rows ADD COLUMN urgent INTEGER NOT NULL DEFAULT 0")
    assert [row.event for row in outbox_file.pending()] == ["a", "b"]
    assert outbox_file.rows([head(outbox_file).number])
    assert outbox_file.drop_session("s2") == 1
    outbox_file.drop_turns("fake", ["a"])
    assert outbox_file.pending() == []


def test_the_file_is_made_small_again_after_an_outage_while_others_use_it(
    hermes_home: HermesHome, clock: Clock
) -> None:
    with (
        contextlib.closing(open_outbox(hermes_home, wall=clock)) as other,
        contextlib.closing(open_outbox(hermes_home, wall=clock)) as ours,
    ):
        add(ours, "fake", [write(f"t{number}", body="x" * 10_000) for number in range(2_000)])
        ours.put("fake", write("last"))
        assert len(other.pending()) == 2_001
        ours.drop(range(1_999))
        full = hermes_home.outbox_db.stat().st_size
        ours.close()
        assert hermes_home.outbox_db.stat().st_size < full / 10
        assert [row.event for row in other.pending()] == ["t1998", "t1999", "last"]
        other.put("fake", write("later"))
        assert other.depth == 4


def test_a_file_that_another_writes_to_is_left_as_it_is_at_the_end(
    hermes_home: HermesHome, clock: Clock
) -> None:
    outbox = open_outbox(hermes_home, wall=clock)
    add(outbox, "fake", [write(f"t{number}", body="x" * 10_000) for number in range(2_000)])
    outbox.drop(range(1, 2_001))
    with contextlib.closing(sqlite3.connect(hermes_home.outbox_db, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        outbox.close()
        assert time.monotonic() - began < 20  # a writer waits 30 s for the lock at other times
