"""Threads and stores of LangGraph. What a checkpoint names is read as data, and never imported or called."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from hermes_core.errors import ImportFailed
from hermes_memory_importers import ImportedRecord, SkipLog, read_file, stream_file


def said(path: Path) -> dict[str, list[tuple[str, str]]]:
    return {
        session.id: [(m.role, m.content) for turn in session.turns for m in turn.messages]
        for session in read_file(path)
    }


def records(path: Path) -> list[tuple[str, str, str]]:
    found = [one for one in stream_file(path) if isinstance(one, ImportedRecord)]
    return [(one.record.text, one.record.kind, one.title) for one in found]


def test_a_thread_has_the_messages_of_every_state_on_the_way_to_its_last_one(
    sample_file: Callable[[str], Path],
) -> None:
    path = sample_file("langgraph.sql")
    assert said(path)["langgraph-t1"] == [
        ("user", "part01"),
        ("assistant", ""),
        ("tool", "part03"),
        ("assistant", "part04"),
        ("user", "part06"),
        ("assistant", "part08"),
    ]
    first = read_file(path)[0].turns[0].messages
    assert [m.timestamp for m in first[:2]] == [1788256802.0, 1788256803.0]
    assert (first[1].tool_calls[0]["id"], first[2].tool_name) == ("c1", "weather")


def test_between_the_snapshots_of_a_channel_of_deltas_the_writes_have_the_messages(
    sample_file: Callable[[str], Path],
) -> None:
    assert said(sample_file("langgraph.sql"))["langgraph-t2"] == [("user", "part12"), ("assistant", "part13")]


def test_an_item_of_a_store_is_one_memory_with_the_namespace_as_its_title(
    sample_file: Callable[[str], Path],
) -> None:
    assert records(sample_file("langgraph.sql")) == [
        ("part15", "item", "memories/ann"),
        ("part16", "Memory", "memories/ann"),
        ("food likes: part17; food likes: part18; vegan: yes", "item", "prefs"),
    ]


def test_a_dump_of_postgresql_is_read_as_the_database_is(sample_file: Callable[[str], Path]) -> None:
    path = sample_file("langgraph-dump.sql")
    assert said(path) == {"langgraph-w1": [("user", "part01"), ("assistant", "part02\nof two lines")]}
    assert records(path) == [("part05", "item", "facts")]


def test_a_dump_that_only_postgresql_reads_is_refused_with_the_way_to_make_it_text(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(b"PGDMP\x01\x0e\x00" + bytes(40))
    with pytest.raises(ImportFailed, match="its own format") as caught:
        read_file(path)
    assert "pg_restore" in caught.value.remedy


def checkpoints(path: Path, *values: tuple[str, bytes]) -> Path:
    """Make a database with a checkpoint for each value, one behind the other."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint)"
        )
        for step, (kind, value) in enumerate(values):
            row = ("t", "", f"c{step}", f"c{step - 1}" if step else None, kind, value)
            connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    return path


def packed(*messages: Any) -> tuple[str, bytes]:
    state = {"ts": "2026-09-01T10:00:00+00:00", "channel_values": {"messages": list(messages)}}
    return "msgpack", ormsgpack.packb(state)


def test_a_class_that_a_checkpoint_names_is_not_called(tmp_path: Path) -> None:
    made = tmp_path / "made"
    calls = [ormsgpack.packb(("os", "mkdir", argument, "real")) for argument in (str(made), [str(made)])]
    harmful = [
        ormsgpack.Ext(code, call) for call, codes in zip(calls, ((0, 3), (1,)), strict=True) for code in codes
    ]
    kind, value = packed(*harmful, {"type": "human", "content": "Hello", "id": "m"})
    assert said(checkpoints(tmp_path / "a.db", (kind, value))) == {"langgraph-t": [("user", "Hello")]}
    assert not made.exists()


def test_a_state_that_is_pickled_or_damaged_is_a_fault_and_the_others_are_read(tmp_path: Path) -> None:
    whole = packed({"type": "human", "content": "Hello", "id": "m"})
    path = checkpoints(tmp_path / "a.db", ("pickle", b"cos\nsystem\n"), ("msgpack", b"\xc1"), whole)
    skips = SkipLog()
    ((_, turns),) = stream_file(path, skips=skips)  # type: ignore[misc]
    assert [m.content for turn in turns for m in turn.messages] == ["Hello"]
    assert [(skip.fault, skip.count) for skip in skips.all()] == [(True, 1), (True, 1)]


def test_a_write_that_can_not_be_read_costs_its_step_only(sample_file: Callable[[str], Path]) -> None:
    path = sample_file("langgraph.sql")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE writes SET type = 'pickle'")
        connection.commit()
    skips = SkipLog()
    found = {item[0].id: list(item[1]) for item in stream_file(path, skips=skips) if isinstance(item, tuple)}
    assert "part01" in [m.content for turn in found["langgraph-t1"] for m in turn.messages]
    assert "its form 'pickle' can't be read here" in [skip.reason for skip in skips.all() if skip.fault]


def test_messages_without_ids_and_in_the_older_form_of_json_are_read(tmp_path: Path) -> None:
    old = (
        '{"ts": "2026-09-01T10:00:00+00:00", "channel_values": {"messages": [{"lc": 1, "type": "constructor",'
        ' "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": "Hello"}},'
        ' {"role": "assistant", "content": "Hi"}]}}'
    )
    path = checkpoints(tmp_path / "a.db", ("json", old.encode()))
    assert said(path) == {"langgraph-t": [("user", "Hello"), ("assistant", "Hi")]}
