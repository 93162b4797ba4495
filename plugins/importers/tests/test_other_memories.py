"""Memories of Mem0, MCP and Letta as records, and conversations of Letta, the OpenAI Agents SDK and llm."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core import HermesHome
from hermes_core.errors import ImportFailed
from hermes_core.memory import open_memory
from hermes_memory_importers import ImportedRecord, SkipLog, read_file, stream_file
from hermes_memory_importers.run import import_sessions

SAMPLES = Path(__file__).parent / "samples"


def records(path: Path) -> list[tuple[str, str, float]]:
    found = [one for one in stream_file(path) if isinstance(one, ImportedRecord)]
    return [(one.source, one.record.text, one.record.created_at) for one in found]


def test_memories_of_mem0_keep_their_words_and_times(sample_file: Callable[[str], Path]) -> None:
    assert records(SAMPLES / "mem0.json") == [
        ("mem0", "part01", 1788282000.0),
        ("mem0", "part02", 1788256800.0),
    ]
    assert records(sample_file("mem0-history.sql")) == [("mem0", "likes part01", 1788256800.0)]
    assert records(sample_file("mem0-qdrant.sql")) == [("mem0", "part01", 1788256800.0)]


def test_the_last_messages_of_mem0_are_a_session_of_their_scope(sample_file: Callable[[str], Path]) -> None:
    (session,) = read_file(sample_file("mem0-history.sql"))
    assert session.id == "mem0-user_id=ann"
    assert [(m.role, m.speaker, m.content) for turn in session.turns for m in turn.messages] == [
        ("user", "Ann", "part03"),
        ("assistant", "", "part04"),
    ]


def test_relations_of_mem0_are_records_and_an_expired_memory_is_counted() -> None:
    path, skips = SAMPLES / "mem0-graph.json", SkipLog()
    found = [one.record.text for one in stream_file(path, skips=skips) if isinstance(one, ImportedRecord)]
    assert found == ["part01", "ann likes to eat part03", "part04 knows ann"]
    assert [(skip.count, skip.reason) for skip in skips.all()] == [(1, "memories that have expired")]


def test_the_graph_that_the_memory_server_answers_is_read_as_its_file_is() -> None:
    assert [text for _, text, _ in records(SAMPLES / "mcp-graph.json")] == [
        "Ann (person): part01",
        "part02 (city)",
        "Ann lives in part03",
    ]


def test_a_profile_and_a_search_of_supermemory_are_those_of_supermemory() -> None:
    assert [(source, text) for source, text, _ in records(SAMPLES / "supermemory-profile.json")] == [
        ("supermemory", "part03"),
        ("supermemory", "part01"),
        ("supermemory", "part02"),
    ]


class Harmful:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return Path.mkdir, (self.folder,)


def test_nothing_that_a_point_of_qdrant_names_is_called_and_a_damaged_one_is_a_fault(tmp_path: Path) -> None:
    path, made = tmp_path / "storage.sqlite", tmp_path / "made"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE points (id TEXT, point BLOB)")
        points = [pickle.dumps(Harmful(made)), b"\x80\x04}", b"", pickle.dumps({"payload": 1})]
        connection.executemany("INSERT INTO points VALUES ('', ?)", ((point,) for point in points))
        connection.commit()
    skips = SkipLog()
    assert list(stream_file(path, skips=skips)) == []
    assert [(skip.fault, skip.count) for skip in skips.all()] == [(True, 4)]
    assert not made.exists()


def test_a_graph_of_mcp_is_a_sentence_for_each_line() -> None:
    assert [text for _, text, _ in records(SAMPLES / "mcp-memory.jsonl")] == [
        "Ann (person): keeps part01; likes tea",
        "part02 (place)",
        "Ann lives in part03",
    ]


@pytest.mark.parametrize(
    "name", ["mem0.json", "mcp-graph.json", "supermemory-profile.json", "zep-graph.json"]
)
def test_a_list_that_nobody_reads_is_counted(tmp_path: Path, name: str) -> None:
    answer = json.loads((SAMPLES / name).read_text())
    answer = answer[0] if isinstance(answer, list) else answer
    path, skips = tmp_path / name, SkipLog()
    path.write_text(json.dumps({**answer, "list_of_next_year": [{"text": "a"}, {"text": "b"}]}))
    assert len(list(stream_file(path, skips=skips))) > 0
    counts = {skip.reason: skip.count for skip in skips.all()}
    assert counts["elements of the list 'list_of_next_year'"] == 2


def test_the_passages_of_an_agent_file_are_records_and_its_files_are_counted() -> None:
    path, skips = SAMPLES / "letta-archive.json", SkipLog()
    found = [one.record.text for one in stream_file(path, skips=skips) if isinstance(one, ImportedRecord)]
    assert found == ["part03"]
    assert [(skip.count, skip.reason) for skip in skips.all()] == [(1, "attached files")]


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


def test_the_server_of_letta_has_a_session_for_each_conversation_of_an_agent(
    sample_file: Callable[[str], Path],
) -> None:
    first, second = read_file(sample_file("letta-server.sql"))
    assert [(m.role, m.content, m.tool_name) for turn in first.turns for m in turn.messages] == [
        ("user", "part02", ""),
        ("assistant", "", ""),
        ("tool", "part05", "archival_memory_search"),
        ("assistant", "part07", ""),
        ("assistant", "", ""),
        ("tool", "part11", "run"),
    ]
    assert (first.id, first.title, second.id) == ("letta-agent-1", "Sam", "letta-agent-1-conv-1")
    assert [m.content for turn in second.turns for m in turn.messages] == ["part14", "part15"]
    assert records(sample_file("letta-server.sql")) == [
        ("letta", "human: Name: part17", 0.0),
        ("letta", "part19", 1788256800.0),
    ]


def test_a_dump_of_lettas_postgresql_gives_what_its_sqlite_gives(
    sample_file: Callable[[str], Path], tmp_path: Path
) -> None:
    database, dump = sample_file("letta-server.sql"), tmp_path / "letta.sql"
    dump.write_text(dump_of(database), encoding="utf-8")
    assert read_file(dump) == read_file(database)
    assert records(dump) == records(database)


def dump_of(database: Path) -> str:
    """Return the tables of a database as PostgreSQL dumps them: true and false are letters, and a backslash is doubled."""

    def written(value: object, kind: str) -> str:
        if value is None:
            return "\\N"
        shown = "ft"[int(str(value))] if kind == "BOOLEAN" else str(value)
        return shown.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")

    lines = ["--", "-- PostgreSQL database dump", "--", ""]
    with closing(sqlite3.connect(database)) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
            lines.append(f"COPY public.{table} ({', '.join(name for name, _ in columns)}) FROM stdin;")
            for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608  (a table of the sample)
                lines.append(
                    "\t".join(written(value, kind) for value, (_, kind) in zip(row, columns, strict=True))
                )
            lines += ["\\.", "", ""]
    return "\n".join(lines)


def test_a_session_of_the_agents_sdk_has_its_calls_in_order(sample_file: Callable[[str], Path]) -> None:
    (session,) = read_file(sample_file("openai-agents.sql"))
    assert session.id == "openai-agents-user_7"
    assert [(m.role, m.content) for turn in session.turns for m in turn.messages] == [
        ("user", "part01"),
        ("assistant", ""),
        ("tool", "part04"),
        ("assistant", "part05"),
    ]


def test_a_prompt_of_llm_without_a_conversation_is_one_of_its_own(sample_file: Callable[[str], Path]) -> None:
    assert [(one.id, one.title, len(one.turns)) for one in read_file(sample_file("llm.sql"))] == [
        ("llm-01c", "A walk", 2),
        ("llm-03r", "", 1),
    ]


def stored_turns(home: HermesHome, path: Path) -> dict[str, list[str]]:
    """Import a file, and return the words of each session that is stored."""
    with open_memory(home) as memory:
        import_sessions(memory, stream_file(path))
        ids = [one.session.id for one in memory.sessions.list_sessions()]
        return {
            one: [m.content for m in memory.sessions.get_messages(one) if m.content] for one in sorted(ids)
        }


def test_a_thread_of_llm_has_its_last_messages_and_a_fork_only_its_own(
    sample_file: Callable[[str], Path], hermes_home: HermesHome
) -> None:
    assert stored_turns(hermes_home, sample_file("llm-threads.sql")) == {
        "llm-01a": ["part01", "part03", "part06", "part09", "part08"],
        "llm-02a": ["part10", "part11", "part12", "part16", "part17"],
        "llm-03a": ["part22", "part23"],
        "llm-04a": ["part20", "part21"],
    }


def test_a_branch_of_the_agents_sdk_is_a_branch_with_the_messages_behind_the_fork(
    sample_file: Callable[[str], Path], hermes_home: HermesHome
) -> None:
    assert stored_turns(hermes_home, sample_file("openai-agents-branches.sql")) == {
        "openai-agents-user_8": ["part01", "part02", "part03", "part04"],
        "openai-agents-user_8-other": ["part05", "part06"],
    }


def test_a_broken_message_of_cursor_costs_itself_only(tmp_path: Path) -> None:
    path, skips = tmp_path / "state.vscdb", SkipLog()
    headers = [{"bubbleId": name} for name in "123"]
    rows = {
        "composerData:a": json.dumps({"name": "N", "fullConversationHeadersOnly": headers}),
        "bubbleId:a:1": json.dumps({"type": 1, "bubbleId": "1", "text": "hello"}),
        "bubbleId:a:2": "{torn",
        "bubbleId:a:3": json.dumps({"type": 2, "bubbleId": "3", "text": "hi"}),
    }
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE cursorDiskKV (key TEXT, value BLOB)")
        connection.executemany("INSERT INTO cursorDiskKV VALUES (?, ?)", rows.items())
        connection.commit()
    ((_, turns),) = (item for item in stream_file(path, skips=skips) if isinstance(item, tuple))
    assert [message.content for turn in turns for message in turn.messages] == ["hello", "hi"]
    assert [(skip.count, skip.fault) for skip in skips.all()] == [(1, True)]


def test_a_conversation_of_cursor_has_the_order_of_its_headers(sample_file: Callable[[str], Path]) -> None:
    newer, older = read_file(sample_file("cursor.sql"))
    assert [(m.role, m.content, m.tool_name) for turn in newer.turns for m in turn.messages] == [
        ("user", "part01", ""),
        ("assistant", "", ""),
        ("tool", "part05", "read_file"),
        ("assistant", "part06", ""),
    ]
    assert (newer.id, newer.title, older.id) == ("cursor-c1", "Fix it", "cursor-c2")


def test_a_note_of_basic_memory_needs_no_permalink() -> None:
    assert records(SAMPLES / "basic-memory-plain.md") == [("basic-memory", "Tea: part01 #brew", 0.0)]


def test_a_note_of_basic_memory_is_a_record_for_each_fact(tmp_path: Path) -> None:
    found = [one for one in stream_file(SAMPLES / "basic-memory.md") if isinstance(one, ImportedRecord)]
    assert [(one.record.text, one.record.kind, one.record.tags) for one in found] == [
        ("Coffee: Pour over takes part02 #brewing (at home)", "method", ("brewing",)),
        ("Coffee: No part03", "preference", ()),
        ("Coffee: relates to part04", "relation", ()),
        ("Coffee: based on part06 (a talk)", "relation", ()),
        ("Coffee: It began in part01, and two lines\nare one paragraph.", "note", ()),
        ("Coffee: Later: Buy part05.", "note", ()),
        ("Coffee: Later: - [ ] Try part07", "note", ()),
    ]
    assert {one.record.created_at for one in found} == {1788256800.0}
    plain = tmp_path / "plain.md"
    plain.write_text("---\ntitle: A page\n---\n\nNothing of a memory.\n")
    with pytest.raises(ImportFailed, match="it is no JSON"):
        read_file(plain)


def test_a_second_import_of_all_samples_adds_nothing(
    sample_file: Callable[[str], Path], hermes_home: HermesHome
) -> None:
    names = ("mem0.json", "mcp-memory.jsonl", "letta.json")
    paths = [*(SAMPLES / name for name in names), sample_file("openai-agents.sql"), sample_file("llm.sql")]
    with open_memory(hermes_home) as memory:
        first = [import_sessions(memory, stream_file(path, skips=SkipLog())) for path in paths]
        again = [import_sessions(memory, stream_file(path, skips=SkipLog())) for path in paths]
    assert [(one.turns, one.memories) for one in first] == [(0, 2), (0, 3), (1, 1), (1, 0), (3, 0)]
    assert [(one.turns, one.messages, one.memories) for one in again] == [(0, 0, 0)] * 5
