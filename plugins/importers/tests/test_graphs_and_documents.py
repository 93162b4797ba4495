"""Threads and graphs of Zep and Graphiti, and memories and documents of Supermemory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_memory_importers import ImportedRecord, SkipLog, read_file, stream_file

SAMPLES = Path(__file__).parent / "samples"


def said(path: Path) -> dict[str, list[tuple[str, str, str]]]:
    return {
        one.id: [(m.role, m.speaker, m.content) for turn in one.turns for m in turn.messages]
        for one in read_file(path)
    }


def records(path: Path) -> list[tuple[str, str, str]]:
    found = [one for one in stream_file(path) if isinstance(one, ImportedRecord)]
    return [(one.record.text, one.record.kind, one.source) for one in found]


def test_a_thread_of_zep_has_its_speakers_in_the_shapes_of_all_versions() -> None:
    assert said(SAMPLES / "zep-thread.json") == {
        "zep-t1": [("user", "Ann", "part01"), ("assistant", "Helper", "part02")],
        "zep-t2": [("user", "", "part04"), ("tool", "", "part05")],
        "zep-w1": [("user", "Ann", "part06"), ("assistant", "Helper", "part07")],
    }


def test_the_episodes_of_a_graph_that_are_messages_are_a_thread_and_the_rest_are_memories() -> None:
    assert said(SAMPLES / "zep-graph.json") == {
        "zep-t1": [("user", "Ann", "part06"), ("assistant", "", "part05")]
    }
    assert records(SAMPLES / "zep-graph.json") == [
        ('{"plan": "part07"}', "episode", "zep"),
        ("Ann: part01", "entity", "zep"),
        ("part03", "fact", "zep"),
    ]


def test_an_episode_of_graphiti_says_who_speaks_before_the_words() -> None:
    assert said(SAMPLES / "graphiti.jsonl") == {
        "zep-g1": [
            ("user", "Ann", "part01"),
            ("assistant", "", "part02\nSee: part02"),
            ("user", "", "part03"),
        ]
    }


@pytest.mark.parametrize(
    "value",
    [
        {"uuid": "c", "name": "T", "summary": "", "created_at": "2026-09-01T10:00:00Z", "chat_messages": []},
        {"messages": [{"role": "user", "content": "Hello"}]},
        {"memories": [{"content": "Likes tea."}]},
        {"results": [{"id": "1", "memory": "Likes tea.", "user_id": "ann"}]},
    ],
)
def test_the_files_of_other_programs_are_not_taken(value: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(value))
    found = [one.source if isinstance(one, ImportedRecord) else one[0].source for one in stream_file(path)]
    assert not {"zep", "supermemory"} & set(found)


def test_of_supermemory_the_memories_that_hold_and_the_documents_with_words_arrive() -> None:
    assert [text for text, _, _ in records(SAMPLES / "supermemory.json")] == [
        "part01",
        "Plan: part04",
        "part08",
        "part06",
        "T: part09",
        "part10",
    ]


def test_a_list_with_an_element_of_another_shape_names_its_place(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    whole = {"id": "m", "memory": "Likes tea.", "isLatest": True}
    path.write_text(json.dumps({"memoryEntries": [whole, {"x": 1}, 7]}))
    skips = SkipLog()
    assert len(list(stream_file(path, skips=skips))) == 1
    assert [(skip.fault, skip.first) for skip in skips.all()] == [
        (True, "record 1, memoryEntries 2"),
        (True, "record 1, memoryEntries 3"),
    ]
