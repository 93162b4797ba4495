"""Memories of Mem0, MCP and Letta as records, and conversations of Letta, the OpenAI Agents SDK and llm."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core import HermesHome
from hermes_core.errors import ImportFailed
from hermes_core.importers import ImportedRecord, SkipLog, read_file, stream_file
from hermes_core.importers.run import import_sessions
from hermes_core.memory import open_memory

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """The folder of the samples, with a database for each script."""
    for script in SAMPLES.glob("*.sql"):
        with closing(sqlite3.connect(tmp_path / f"{script.stem}.db")) as connection:
            connection.executescript(script.read_text())
    return tmp_path


def records(path: Path) -> list[tuple[str, str, float]]:
    found = [one for one in stream_file(path) if isinstance(one, ImportedRecord)]
    return [(one.source, one.record.text, one.record.created_at) for one in found]


def test_memories_of_mem0_keep_their_words_and_times(sample: Path) -> None:
    assert records(SAMPLES / "mem0.json") == [
        ("mem0", "part01", 1788282000.0),
        ("mem0", "part02", 1788256800.0),
    ]
    assert records(sample / "mem0-history.db") == [("mem0", "likes part01", 1788256801.0)]


def test_a_graph_of_mcp_is_a_sentence_for_each_line() -> None:
    assert [text for _, text, _ in records(SAMPLES / "mcp-memory.jsonl")] == [
        "Ann (person): keeps part01; likes tea",
        "part02 (place)",
        "Ann lives in part03",
    ]


def test_an_agent_of_letta_speaks_by_its_tool_and_the_person_in_a_frame() -> None:
    (session,) = read_file(SAMPLES / "letta.json")
    assert [(m.role, m.content, m.tool_name) for turn in session.turns for m in turn.messages] == [
        ("user", "part03", ""),
        ("assistant", "", ""),
        ("tool", "part06", "archival_memory_search"),
        ("assistant", "part07", ""),
    ]
    assert (session.title, session.source) == ("Sam", "letta")
    assert records(SAMPLES / "letta.json") == [("letta", "human: Name: part08", 0.0)]
    (old,) = read_file(SAMPLES / "letta-old.json")
    assert [m.content for turn in old.turns for m in turn.messages] == ["part02", "part03"]


def test_a_session_of_the_agents_sdk_has_its_calls_in_order(sample: Path) -> None:
    (session,) = read_file(sample / "openai-agents.db")
    assert session.id == "openai-agents-user_7"
    assert [(m.role, m.content) for turn in session.turns for m in turn.messages] == [
        ("user", "part01"),
        ("assistant", ""),
        ("tool", "part04"),
        ("assistant", "part05"),
    ]


def test_a_prompt_of_llm_without_a_conversation_is_one_of_its_own(sample: Path) -> None:
    assert [(one.id, one.title, len(one.turns)) for one in read_file(sample / "llm.db")] == [
        ("llm-01c", "A walk", 2),
        ("llm-03r", "", 1),
    ]


def test_a_conversation_of_cursor_has_the_order_of_its_headers(sample: Path) -> None:
    newer, older = read_file(sample / "cursor.db")
    assert [(m.role, m.content, m.tool_name) for turn in newer.turns for m in turn.messages] == [
        ("user", "part01", ""),
        ("assistant", "", ""),
        ("tool", "part05", "read_file"),
        ("assistant", "part06", ""),
    ]
    assert (newer.id, newer.title, older.id) == ("cursor-c1", "Fix it", "cursor-c2")


def test_a_note_of_basic_memory_is_a_record_for_each_fact(tmp_path: Path) -> None:
    found = [one for one in stream_file(SAMPLES / "basic-memory.md") if isinstance(one, ImportedRecord)]
    assert [(one.record.text, one.record.kind, one.record.tags) for one in found] == [
        ("Coffee: Pour over takes part02 #brewing (at home)", "method", ("brewing",)),
        ("Coffee: No part03", "preference", ()),
        ("Coffee: relates to part04", "relation", ()),
        ("Coffee: It began in part01, and two lines\nare one paragraph.", "note", ()),
        ("Coffee: Later: Buy part05.", "note", ()),
    ]
    plain = tmp_path / "plain.md"
    plain.write_text("---\ntitle: A page\n---\n\nNothing of a memory.\n")
    with pytest.raises(ImportFailed, match="it is no JSON"):
        read_file(plain)


def test_a_second_import_of_all_samples_adds_nothing(sample: Path, hermes_home: HermesHome) -> None:
    names = ("mem0.json", "mcp-memory.jsonl", "letta.json")
    paths = [*(SAMPLES / name for name in names), sample / "openai-agents.db", sample / "llm.db"]
    with open_memory(hermes_home) as memory:
        first = [import_sessions(memory, stream_file(path, skips=SkipLog())) for path in paths]
        again = [import_sessions(memory, stream_file(path, skips=SkipLog())) for path in paths]
    assert [(one.turns, one.memories) for one in first] == [(0, 2), (0, 3), (1, 1), (1, 0), (3, 0)]
    assert [(one.turns, one.messages, one.memories) for one in again] == [(0, 0, 0)] * 5
