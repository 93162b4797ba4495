"""The export of claude.ai: conversations.json, a list of conversations of which each holds a tree of messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.errors import ImportFailed
from hermes_memory_importers import ImportedSession, read_file, stream_file
from hermes_memory_importers.values import SkipLog

ROOT = "00000000-0000-4000-8000-000000000000"
STARTED = "2026-05-01T10:00:00.552627Z"


def message(uuid: str, sender: str, text: str, parent: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "sender": sender,
        "text": text,
        "content": [{"type": "text", "text": text, "citations": []}],
        "created_at": STARTED,
        "updated_at": STARTED,
        "attachments": [],
        "files": [],
        **({"parent_message_uuid": parent} if parent else {}),
        **more,
    }


def conversation(*messages: Any, **more: Any) -> dict[str, Any]:
    return {
        "uuid": "c1",
        "name": "The tent",
        "summary": "",
        "created_at": STARTED,
        "updated_at": STARTED,
        "account": {"uuid": "me"},
        "chat_messages": list(messages),
        **more,
    }


def read(tmp_path: Path, *conversations: Any) -> list[ImportedSession]:
    return read_file(written(tmp_path, list(conversations)))


def written(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def said(session: ImportedSession) -> list[str]:
    return [f"{message.role}: {message.content}" for turn in session.turns for message in turn.messages]


def left_out(tmp_path: Path, *conversations: Any) -> tuple[list[str], list[tuple[str, str, bool]]]:
    """What comes in of the first conversation, and what does not: reason, place, whether it is a fault."""
    skipped = SkipLog()
    streamed = [
        [f"{message.role}: {message.content}" for turn in turns for message in turn.messages]
        for _, turns in stream_file(written(tmp_path, list(conversations)), skips=skipped)
    ]
    return streamed[0] if streamed else [], [(skip.reason, skip.first, skip.fault) for skip in skipped.all()]


ASKED = message("m1", "human", "Where is the tent?", ROOT)
TOLD = message("m2", "assistant", "In Ilona's garage.", "m1")


def test_a_conversation_comes_in_with_its_name_its_time_and_the_ids_of_its_messages(tmp_path: Path) -> None:
    (session,) = read(tmp_path, conversation(ASKED, TOLD))

    assert (session.id, session.source, session.title) == ("claude-ai-c1", "claude-ai", "The tent")
    assert session.started_at == pytest.approx(1777629600.552627)
    assert said(session) == ["user: Where is the tent?", "assistant: In Ilona's garage."]
    assert [turn.id for turn in session.turns] == ["m1"]
    assert [m.ref for m in session.turns[0].messages] == ["m1", "m2"]


def test_a_single_conversation_that_a_browser_saved_is_read_as_well(tmp_path: Path) -> None:
    path = written(tmp_path, conversation(ASKED, TOLD))
    assert [session.id for session in read_file(path)] == ["claude-ai-c1"]
    assert [session.id for session in read_file(path, "claude-ai")] == ["claude-ai-c1"]


def test_of_a_question_that_was_edited_only_the_branch_that_was_kept_comes_in(tmp_path: Path) -> None:
    edited = message("m3", "human", "Where is the stove?", ROOT)
    answer = message("m4", "assistant", "With the tent.", "m3")
    whole = conversation(ASKED, TOLD, edited, answer)

    newest, notes = left_out(tmp_path, whole)
    assert newest == ["user: Where is the stove?", "assistant: With the tent."]
    assert notes == [("messages of a branch that was left", "conversation 1, message 1", False)]

    (shown,) = read(tmp_path, {**whole, "current_leaf_message_uuid": "m2"})
    assert said(shown) == ["user: Where is the tent?", "assistant: In Ilona's garage."]


def test_older_exports_name_no_parents(tmp_path: Path) -> None:
    plain = [{key: m[key] for key in ("uuid", "sender", "text", "created_at")} for m in (ASKED, TOLD)]
    (session,) = read(tmp_path, conversation(*plain))
    assert said(session) == ["user: Where is the tent?", "assistant: In Ilona's garage."]


def test_a_message_whose_parent_is_not_in_the_file_follows_the_one_before_it(tmp_path: Path) -> None:
    (session,) = read(tmp_path, conversation(ASKED, message("m2", "assistant", "In the garage.", "gone")))
    assert said(session) == ["user: Where is the tent?", "assistant: In the garage."]


def test_tools_stand_where_they_were_used_and_reasoning_stays_out(tmp_path: Path) -> None:
    blocks = [
        {"type": "thinking", "thinking": "They camp."},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "t1", "name": "web_search", "input": {"query": "tent"}},
        {
            "type": "tool_result",
            "tool_use_id": "t1",
            "name": "web_search",
            "content": [{"type": "text", "text": "A tent."}],
        },
        {"type": "text", "text": "It is a tent."},
        {"type": "token_budget"},
    ]
    used = message("m2", "assistant", "Let me look. It is a tent.", "m1", content=blocks)

    (session,) = read(tmp_path, conversation(ASKED, used))
    (turn,) = session.turns
    assert said(session)[1:] == ["assistant: Let me look.", "tool: A tent.", "assistant: It is a tent."]
    assert turn.messages[1].tool_calls == (
        {
            "id": "t1",
            "type": "function",
            "function": {"name": "web_search", "arguments": '{"query": "tent"}'},
        },
    )
    assert turn.messages[2].tool_name == "web_search"
    assert len({m.ref for m in turn.messages}) == 4
    _, notes = left_out(tmp_path, conversation(ASKED, used))
    assert {reason for reason, _, _ in notes} == {
        "parts of the kind 'thinking'",
        "parts of the kind 'token_budget'",
    }


def test_a_long_paste_which_is_kept_as_an_attachment_was_said_by_the_person(tmp_path: Path) -> None:
    pasted = message("m1", "human", "", ROOT, content=[])
    pasted["attachments"] = [
        {"file_name": "", "file_type": "txt", "extracted_content": "The tent is Ilona's."}
    ]
    document = message("m1", "human", "Read this.", ROOT)
    document["attachments"] = [
        {"file_name": "book.pdf", "file_type": "pdf", "extracted_content": "Chapter one"}
    ]

    (session,) = read(tmp_path, conversation(pasted, TOLD))
    assert said(session)[0] == "user: The tent is Ilona's."
    words, notes = left_out(tmp_path, conversation(document, TOLD))
    assert words[0] == "user: Read this."
    assert notes == [("attached files", "conversation 1, message 1", False)]


def test_a_message_that_can_not_be_read_costs_that_message_only(tmp_path: Path) -> None:
    odd = [message("x", "robot", "hm", "m1"), 3, message("y", "human", "late", "x", created_at="soon")]
    words, notes = left_out(tmp_path, conversation(ASKED, *odd, message("m2", "assistant", "Yes.", "y")))

    assert words == ["user: Where is the tent?", "assistant: Yes."]
    assert {(place, fault) for _, place, fault in notes} == {
        ("conversation 1, message 2, sender", True),
        ("conversation 1, message 3", True),
        ("conversation 1, message 4, created_at", True),
    }
    with pytest.raises(ImportFailed, match="message 2, sender: expected human or assistant, found 'robot'"):
        read(tmp_path, conversation(ASKED, odd[0]))


def test_a_conversation_without_a_word_is_counted_and_one_that_is_none_is_a_fault(tmp_path: Path) -> None:
    _, notes = left_out(tmp_path, conversation(), conversation(uuid=None), 3)
    assert notes == [
        ("expected an id, found None", "conversation 2, uuid", True),
        ("expected an object, found 3", "conversation 3", True),
        ("conversations without a word", "conversation 1", False),
    ]


def test_a_message_that_is_its_own_ancestor_is_read_once(tmp_path: Path) -> None:
    (session,) = read(
        tmp_path, conversation(message("a", "human", "x", "b"), message("b", "assistant", "y", "a"))
    )
    assert said(session) == ["user: x", "assistant: y"]


WORDS = st.sampled_from(["human", "assistant", "text", "tool_use", "tool_result", "a", "b", ROOT, ""])
NAMES = st.sampled_from(
    ["uuid", "sender", "text", "content", "type", "parent_message_uuid", "attachments", "input", "id", "name"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(NAMES, JSON | WORDS, max_size=8) | JSON, max_size=4), JSON)
def test_whatever_stands_in_the_file_it_is_read_or_named(messages: list[Any], leaf: Any) -> None:
    from hermes_memory_importers.claude_ai import stream_claude_ai

    skipped = SkipLog()
    item = {"uuid": "c", "chat_messages": messages, "current_leaf_message_uuid": leaf}
    for _, turns in stream_claude_ai([item], skipped):
        assert all(m.content.strip() or m.tool_calls for turn in turns for m in turn.messages)


def test_a_part_that_is_no_object_costs_itself_only(tmp_path: Path) -> None:
    parts = [5, {"type": "text", "text": "Where is the tent?"}]
    (session,) = read(tmp_path, conversation(message("m1", "human", "", content=parts)))
    assert said(session) == ["user: Where is the tent?"]
