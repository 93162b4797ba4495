"""Marks of ChatGPT within a text, and what claude.ai and ChatGPT keep beside conversations: memories and projects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_core.memory import open_memory
from hermes_memory_importers import ImportedRecord, SkipLog, read_file, stream_file
from hermes_memory_importers.markers import without_marks
from hermes_memory_importers.run import ImportResult, import_sessions
from hermes_memory_testing.fakes import RecordingProvider

SAMPLES = Path(__file__).parent / "samples"

CITE = "\ue200cite\ue202turn0search1\ue202turn0news4\ue201"
ENTITY = '\ue200entity\ue202["city","Oslo","Norway"]\ue201'


def reference(mark: str, **fields: Any) -> dict[str, Any]:
    return {"content_references": [{"matched_text": mark, **fields}]}


@pytest.mark.parametrize(
    ("text", "metadata", "shown"),
    [
        (f"Rain. {CITE} More.", reference(CITE, alt="([a](https://a))"), "Rain. ([a](https://a)) More."),
        (f"Rain {CITE}.", reference(CITE, alt=None, type="hidden"), "Rain."),
        (
            f"Rain. {CITE}",
            reference(CITE, items=[{"title": "A", "url": "https://a"}, {"title": "B", "url": "https://b"}]),
            "Rain. ([A](https://a), [B](https://b))",
        ),
        (f"In {ENTITY} soon.", {}, "In Oslo soon."),
        (f"In {ENTITY} soon.", reference(ENTITY, alt="Oslo (city)"), "In Oslo (city) soon."),
        ("See \ue200url\ue202the page\ue202https://a\ue201.", {}, "See [the page](https://a)."),
        ("A \ue203marked span\ue204 stays.", {}, "A marked span stays."),
        (
            "As said\u30104:0\u2020plan.pdf\u3011.",
            reference("\u30104:0\u2020plan.pdf\u3011", name="plan.pdf"),
            "As said(plan.pdf).",
        ),
        (
            "As said \u30101\u2020source\u3011",
            {"citations": [{"start_ix": 8, "end_ix": 18, "metadata": {"title": "A", "url": "https://a"}}]},
            "As said ([A](https://a))",
        ),
        ("Two words, no mark", reference(" ", type="sources_footnote", alt="[x]"), "Two words, no mark"),
        ("A list \u3010bold\u3011 and blanks !", {}, "A list \u3010bold\u3011 and blanks !"),
    ],
)
def test_a_mark_is_replaced_by_what_the_file_says(text: str, metadata: dict[str, Any], shown: str) -> None:
    assert without_marks(text, metadata) == (shown, 0)


def test_two_marks_of_one_kind_have_their_own_references() -> None:
    metadata = {
        "content_references": [{"matched_text": CITE, "alt": "(a)"}, {"matched_text": CITE, "alt": "(b)"}]
    }
    assert without_marks(f"x {CITE} y {CITE}", metadata) == ("x (a) y (b)", 0)


def test_a_mark_of_which_nothing_is_said_goes_and_is_counted(tmp_path: Path) -> None:
    text = f'Rain. {CITE} \ue200image_group\ue202{{"query":["rain"]}}\ue201More\ue200'
    assert without_marks(text, {}) == ("Rain. More", 2)
    nodes = {
        "a": {"id": "a", "parent": None, "message": None},
        "b": {
            "id": "b",
            "parent": "a",
            "message": {
                "id": "b",
                "author": {"role": "assistant"},
                "content": {"content_type": "text", "parts": [text]},
            },
        },
    }
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"conversation_id": "c", "current_node": "b", "mapping": nodes}]))
    skips = SkipLog()
    ((_, turns),) = stream_file(path, skips=skips)  # type: ignore[misc]
    assert [m.content for turn in turns for m in turn.messages] == ["Rain. More"]
    assert [skip.count for skip in skips.all()] == [2]


# ------------------------------------------------------------------------------------------------- memories, projects


def records(name: str) -> list[ImportedRecord]:
    return [one for one in stream_file(SAMPLES / name) if isinstance(one, ImportedRecord)]


def test_memories_and_projects_are_records_and_no_conversations() -> None:
    assert [(one.record.text, one.record.kind, one.title) for one in records("claude-memories.json")] == [
        ("Work context: Ann keeps bees in part01.", "saved memory", ""),
        ("Tools: - part02", "saved memory", ""),
        ("part03", "project", "project p1"),
    ]
    assert [one.record.text for one in records("claude-projects.json")] == [
        "Project Garden: part01",
        "Instructions of project Garden: part02",
        "plan.md of project Garden: part03",
    ]
    assert [(one.record.text, one.record.created_at) for one in records("chatgpt-memories.json")] == [
        ("part01", 1788256800.0),
        ("part02", 0.0),
    ]
    assert read_file(SAMPLES / "claude-memories.json") == []


def test_what_every_conversation_of_chatgpt_repeats_is_one_record(tmp_path: Path) -> None:
    one = json.loads((SAMPLES / "chatgpt-memory.json").read_text())
    two = [*one, {**one[0], "conversation_id": "c2"}]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(two))
    found = [item for item in stream_file(path) if isinstance(item, ImportedRecord)]
    assert [(item.record.text, item.record.kind) for item in found] == [
        ("Name: part03", "custom instructions"),
        ("Likes part01.", "saved memory"),
        ("Has a cat called part02.", "saved memory"),
        ("User keeps part06.", "saved memory"),
    ]


def brought(home: HermesHome, path: Path, provider: Any = None) -> tuple[ImportResult, list[str]]:
    problems: list[str] = []
    with open_memory(home, provider=provider) as memory:
        done = import_sessions(memory, stream_file(path), problems=problems)
        memory.flush(timeout=30)
    return done, problems


def test_without_a_provider_a_memory_waits_as_a_note_and_is_data_of_an_import(
    hermes_home: HermesHome,
) -> None:
    done, _ = brought(hermes_home, SAMPLES / "claude-memories.json")
    assert (done.memories, done.notes, done.sessions) == (3, 3, 0)
    again, _ = brought(hermes_home, SAMPLES / "claude-memories.json")
    assert (again.memories, again.known) == (0, 3)
    with open_memory(hermes_home) as memory:
        waiting = {note.entry for note in memory.curated.read().waiting_notes()}
        assert waiting == {"Work context: Ann keeps bees in part01.", "Tools: - part02", "part03"}
        (asked,) = memory.conversation().turn("Hello").messages
        assert asked["role"] == "user"
        assert "<memory-context>" in asked["content"].partition("(from an import")[0]


def test_a_note_that_was_rejected_does_not_come_back(hermes_home: HermesHome) -> None:
    brought(hermes_home, SAMPLES / "claude-memories.json")
    with open_memory(hermes_home) as memory:
        memory.curated.remove("user", "Tools: - part02")
    done, _ = brought(hermes_home, SAMPLES / "claude-memories.json")
    assert (done.memories, done.known) == (0, 3)


def test_a_memory_that_is_no_note_is_found_by_a_search(hermes_home: HermesHome, tmp_path: Path) -> None:
    path = tmp_path / "projects.json"
    text = "The shed has a quokka. " * 400
    path.write_text(
        json.dumps([{"uuid": "p", "name": "Garden", "docs": [{"filename": "a.md", "content": text}]}])
    )
    for expected in ((1, 0, 0), (0, 0, 1)):
        done, _ = brought(hermes_home, path)
        assert (done.memories, done.notes, done.known) == expected
    with open_memory(hermes_home) as memory:
        (hit, *_) = memory.sessions.past.search("quokka")
        (message,) = memory.sessions.get_messages(hit.session_id)
        assert (message.role, message.origin, message.speaker) == ("assistant", "import", "project Garden")


def test_a_provider_that_takes_memories_gets_them_word_for_word(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    done, problems = brought(hermes_home, SAMPLES / "chatgpt-memories.json", provider)
    assert (done.memories, done.notes, problems) == (2, 0, [])
    assert [call["record"].text for call in provider.of("import_memory")] == ["part01", "part02"]
    assert provider.of("sync_turn") == []


def test_what_the_provider_refuses_is_kept_here_and_said(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    provider.results["import_memory"] = ValueError("too full")
    done, problems = brought(hermes_home, SAMPLES / "chatgpt-memories.json", provider)
    assert (done.memories, done.notes) == (2, 2)
    assert "did not take 'part01'" in problems[0]
