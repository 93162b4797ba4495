from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.errors import ImportFailed
from hermes_memory_importers import ImportedSession, SkipLog, read_file, stream_file
from hermes_memory_importers.extension import FORMATS
from hermes_memory_importers.openai import stream_openai

CHAT = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
LINE = {"session": "a", "role": "user", "content": "hi"}
WORDS = st.sampled_from(["user", "assistant", "tool", "all", "text", "a", "b", ""]) | st.text(max_size=3)
NAMES = st.sampled_from(
    [
        "messages",
        "mapping",
        "role",
        "content",
        "session",
        "id",
        "timestamp",
        "tool_calls",
        "a",
        "b",
        "author",
        "metadata",
        "parent",
        "current_node",
        "parts",
        "message",
        "recipient",
        "title",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
NODE = st.fixed_dictionaries(
    {"parent": JSON | WORDS, "message": st.dictionaries(NAMES, JSON | st.dictionaries(NAMES, JSON | WORDS))}
)
TREE = st.fixed_dictionaries(
    {"mapping": st.dictionaries(WORDS, NODE, max_size=3)}, optional={"current_node": JSON}
)


def file(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "chats.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def read_openai(data: Any) -> list[ImportedSession]:
    streamed = stream_openai(data if isinstance(data, list) else [data], SkipLog(strict=True))
    return [replace(session, turns=tuple(turns)) for session, turns in streamed]


def said(session: ImportedSession) -> list[list[str]]:
    return [[f"{m.role}: {m.content}" for m in turn.messages] for turn in session.turns]


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (CHAT, "openai"),
        ([CHAT], "openai"),
        (CHAT["messages"], "openai"),
        (f"{json.dumps(CHAT)}\n\n{json.dumps({'messages': []})}\n", "openai"),
        (LINE, "jsonl"),
        (f"{json.dumps(LINE)}\n{json.dumps(LINE)}\n", "jsonl"),
        (json.dumps(LINE) + "\r\n" + json.dumps(LINE), "jsonl"),
        (
            [{"mapping": {"n": {"message": {"author": {"role": "user"}, "content": {"parts": ["x"]}}}}}],
            "chatgpt",
        ),
    ],
)
def test_the_format_is_found_in_what_the_file_holds(tmp_path: Path, data: object, source: str) -> None:
    assert [session.source for session in read_file(file(tmp_path, data))] == [source]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "the file is empty"),
        ("hello", "line 1: it is no JSON"),
        ('{"a": 1,\n"b"}', "line 2: it is no JSON"),
        ('{"session": "a", "role": "user", "content": "x"}\n{"session"', "line 2: it is no JSON"),
        ([], "no known format: it begins with 'list'"),
        ({"a": 1}, r"no known format: it begins with \['a'\]"),
        ([CHAT, 3], "conversation 2: expected an object, found 3"),
        ([CHAT, {"x": 1}], "conversation 2: expected 'messages' or 'mapping'"),
        ({"messages": [{"role": "robot"}]}, "conversation 1, message 1, role: expected a role"),
        (
            {"messages": [{"role": "user", "content": 3}]},
            "message 1, content: expected text or a list of parts",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "timestamp": "soon"}]},
            "ISO 8601 time, found 'soon'",
        ),
        (
            {"session": "a", "role": "user", "content": "x", "timestamp": 10**400},
            "line 1, timestamp: expected",
        ),
        (
            f"{json.dumps(LINE)}\n{json.dumps({'role': 'user', 'content': 'x'})}",
            "line 2: expected a 'session'",
        ),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5000, "line 1: it can't be read as JSON"),
    ],
)
def test_a_fault_names_file_place_and_what_was_expected(tmp_path: Path, data: object, message: str) -> None:
    with pytest.raises(ImportFailed, match=message) as caught:
        read_file(file(tmp_path, data))
    assert caught.value.message.startswith(repr(str(tmp_path / "chats.json")))
    assert caught.value.remedy


@given(JSON | TREE, st.sampled_from([*(entry.name for entry in FORMATS), "jsonl"]))
def test_any_json_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: Any, wanted: str
) -> None:
    path = file(tmp_path_factory.mktemp("any"), data)
    try:
        sessions = read_file(path, wanted)
    except ImportFailed:
        return
    json.dumps([said(session) for session in sessions]).encode()


def test_a_second_reading_gives_the_same_ids_and_a_grown_file_keeps_them(tmp_path: Path) -> None:
    more = {**LINE, "role": "assistant", "content": "more"}
    first = read_file(file(tmp_path, json.dumps(LINE)))
    grown = read_file(file(tmp_path, f"{json.dumps(LINE)}\n{json.dumps(more)}"))
    other = read_file(file(tmp_path, {**LINE, "content": "another conversation that is also called a"}))
    assert first[0].id == grown[0].id != other[0].id
    assert read_file(file(tmp_path, [CHAT, {**CHAT, "id": "x1"}]))[1].id.startswith("openai-x1-")
    assert len(read_file(file(tmp_path, [CHAT, CHAT]))) == 1


def test_openai_parts_tools_and_instructions() -> None:
    call = {"id": "c1", "function": {"name": "search", "arguments": "{}"}}
    (session,) = read_openai(
        {
            "id": 7,
            "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url"}]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "name": "search", "content": "found"},
                {"role": "assistant", "content": "here\ud800"},
            ],
        }
    )
    assert said(session) == [["user: look", "assistant: ", "tool: found", "assistant: here\ufffd"]]
    messages = session.turns[0].messages
    assert (messages[1].tool_calls, messages[2].tool_name) == ((call,), "search")


def node(role: str, text: str, parent: str | None, **more: Any) -> dict[str, Any]:
    content = {"content_type": more.pop("type", "text"), "parts": [text]}
    return {"parent": parent, "message": {"author": {"role": role}, "content": content, **more}}


def test_of_a_chatgpt_tree_the_branch_on_screen_is_read() -> None:
    mapping = {
        "root": {"parent": None, "message": None},
        "s": node("system", "", "root"),
        "u": node("user", "hi", "s", create_time=5.5),
        "a1": node("assistant", "first try", "u"),
        "a2": node("assistant", "second try", "u"),
        "thought": node("assistant", "hm", "a2", type="thoughts"),
        "call": node("assistant", "print(1)", "thought", recipient="python"),
        "hidden": node("assistant", "x", "call", metadata={"is_visually_hidden_from_conversation": True}),
        "end": node("assistant", "done", "hidden"),
    }
    item = {"title": "T", "conversation_id": "c", "mapping": mapping, "current_node": "end"}
    (session,) = read_openai([item])
    assert (session.id, session.title, session.started_at) == ("chatgpt-c", "T", 5.5)
    assert said(session) == [["user: hi", "assistant: second try", "assistant: ", "assistant: done"]]
    assert session.turns[0].messages[2].tool_calls == ({"name": "python", "arguments": "print(1)"},)
    (newest,) = read_openai([{**item, "current_node": None}])
    assert said(newest) == said(session)


def test_of_an_export_of_deepseek_the_words_come_in_without_the_thoughts() -> None:
    def part(parent: str | None, *fragments: tuple[str, str]) -> dict[str, Any]:
        parts = [{"type": kind, "content": text} for kind, text in fragments]
        return {"parent": parent, "message": {"inserted_at": "2026-01-02T10:00:00+08:00", "fragments": parts}}

    mapping = {
        "root": {"parent": None, "message": None},
        "1": part("root", ("REQUEST", "hi")),
        "2": part("1", ("THINK", "hm"), ("RESPONSE", "hello")),
        "3": part("2", ("REQUEST", "bye")),
    }
    item = {"id": "d", "title": "T", "inserted_at": "2026-01-02T10:00:00+08:00", "mapping": mapping}
    skipped = SkipLog()
    ((session, turns),) = stream_openai([item], skipped)
    assert (session.id, session.source, session.started_at) == ("deepseek-d", "deepseek", 1767319200.0)
    assert [m.content for turn in turns for m in turn.messages] == ["hi", "hello", "bye"]
    assert [(skip.reason, skip.count) for skip in skipped.all()] == [("parts of the kind 'THINK'", 1)]


def test_a_message_of_chatgpt_that_can_not_be_read_costs_that_message_only() -> None:
    mapping = {
        "u": node("user", "hi", None),
        "odd": node("critic", "hm", "u"),
        "empty": {"parent": "odd", "message": {"author": {"role": "assistant"}, "content": None}},
        "late": node("assistant", "when", "empty", create_time="soon"),
        "typed": node("assistant", "kind", "late", type=["text"]),
        "end": node("assistant", "hello", "typed"),
    }
    skipped = SkipLog()
    ((_, turns),) = stream_openai([{"id": "c", "mapping": mapping, "current_node": "end"}], skipped)

    assert [m.content for turn in turns for m in turn.messages] == ["hi", "hello"]
    assert [(skip.first, skip.fault) for skip in skipped.all()] == [
        ("conversation 1, node odd, role", True),
        ("conversation 1, node empty, content", True),
        ("conversation 1, node late, create_time", True),
        ("conversation 1, node typed, content_type", True),
    ]


def test_a_tree_that_is_none_is_refused() -> None:
    mapping = {"a": node("user", "x", "b"), "b": node("assistant", "y", "a")}
    with pytest.raises(ImportFailed, match="its own ancestor"):
        read_openai([{"mapping": mapping, "current_node": "a"}])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_file_that_is_refused_is_closed_while_the_exception_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([{"role": "admin", "name": "Ann"}]))
    with pytest.raises(ImportFailed, match="no known format") as kept:
        read_file(path)
    files = [entry.resolve() for entry in Path("/proc/self/fd").iterdir()]
    assert path.resolve() not in files
    assert kept.value.__traceback__ is not None


def test_an_unknown_program_in_the_shape_of_a_chat_is_said_to_be_that(tmp_path: Path) -> None:
    skips = SkipLog()
    chat = {**CHAT, "workspace": "w", "theme": None}
    ((session, _),) = stream_file(file(tmp_path, chat), skips=skips)
    assert session.source == "openai"
    assert [(skip.reason, skip.count, skip.fault) for skip in skips.all()] == [
        ("fields of an unknown program in the shape of OpenAI's chats: workspace", 1, False)
    ]
    skips = SkipLog()
    assert list(stream_file(file(tmp_path, CHAT), skips=skips))
    assert skips.all() == []


def test_an_item_that_can_not_be_read_costs_that_item_only(tmp_path: Path) -> None:
    messages = [*CHAT["messages"], {"content": "who says this?"}, {"role": "robot", "content": "beep"}]
    skips = SkipLog()
    ((_, turns),) = stream_file(file(tmp_path, {"messages": messages}), skips=skips)
    assert [message.content for turn in turns for message in turn.messages] == ["hi", "hello"]
    assert sum(skip.count for skip in skips.all() if skip.fault) == 2


def test_a_program_with_a_shape_of_its_own_is_recognised_behind_lines_of_a_chat(tmp_path: Path) -> None:
    record = {"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "content": "hi"}}
    path = file(tmp_path, "\n".join(map(json.dumps, [{"role": "user", "content": "x"}, record])))
    assert [session.source for session in read_file(path)] == ["claude-code"]


def test_a_list_that_begins_with_nothing_loses_nothing_else(tmp_path: Path) -> None:
    skips = SkipLog()
    ((_, turns),) = stream_file(file(tmp_path, [None, CHAT]), skips=skips)
    assert [message.content for turn in turns for message in turn.messages] == ["hi", "hello"]
    assert [(skip.reason, skip.fault) for skip in skips.all()] == [("expected an object, found None", True)]


@pytest.mark.parametrize("fact", ["title", "create_time"])
def test_a_fact_that_can_not_be_read_costs_no_message(tmp_path: Path, fact: str) -> None:
    skips = SkipLog()
    ((_, turns),) = stream_file(file(tmp_path, {**CHAT, fact: ["odd"]}), skips=skips)
    assert [message.content for turn in turns for message in turn.messages] == ["hi", "hello"]
    assert [skip.fault for skip in skips.all()] == [True]
