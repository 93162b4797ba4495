"""The rule of every importer: what a file holds is stored, or counted with its reason; results follow their calls."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import importlib_metadata
import pytest

from hermes_core import HermesHome, hookimpl
from hermes_core.config import Config
from hermes_core.contract.extensions import EXTENSION_GROUP, ImporterEntry
from hermes_core.loader.extensions import Extensions, load_extensions
from hermes_core.memory import open_memory
from hermes_memory_importers import (
    ImportedMessage,
    ImportedSession,
    SkipLog,
    read_message,
    read_parts,
    read_records,
    split_turns,
    stream_file,
)
from hermes_memory_importers.forms import match_messages
from hermes_memory_importers.run import import_sessions
from hermes_memory_testing.fakes import RecordingProvider


def lines(tmp_path: Path, *records: Any) -> Path:
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(f"{json.dumps({'session': 's', **record})}\n" for record in records))
    return path


def read(path: Path, extensions: Extensions | None = None) -> tuple[list[ImportedMessage], dict[str, int]]:
    skips = SkipLog()
    sessions = stream_file(path, "auto", skips, extensions or Extensions())
    messages = [message for _, turns in sessions for turn in turns for message in turn.messages]
    skips.close()
    counts = {skip.reason: skip.count for skip in skips.all()}
    assert skips.read == skips.stored + sum(counts.values())
    return messages, counts


TEXT = {"type": "text", "text": "look"}


@pytest.mark.parametrize(
    ("part", "stored", "reason"),
    [
        ({"type": "image_url", "image_url": {"url": "x"}}, "", "parts of the kind 'image_url'"),
        ({"type": "image", "source": {"data": "x"}}, "", "parts of the kind 'image'"),
        ({"type": "thinking", "thinking": "hm"}, "", "parts of the kind 'thinking'"),
        ({"type": "reasoning", "text": "hm"}, "", "parts of the kind 'reasoning'"),
        ({"inlineData": {"data": "x"}}, "", "parts of the kind 'inlineData'"),
        ({"text": "hm", "thought": True}, "", "parts of the kind 'text'"),
        ({"type": "kind_of_next_year", "data": "x"}, "", "parts of the kind 'kind_of_next_year'"),
        ({"type": ["odd"]}, "", "parts of the kind 'unknown'"),
        ({"type": "refusal", "refusal": "I can't."}, "I can't.", ""),
        ({"type": "output_text", "text": "done"}, "done", ""),
        ({"type": "text", "text": {"value": "done", "annotations": []}}, "done", ""),
        ({"type": "input_audio", "transcript": "done"}, "done", ""),
        ("done", "done", ""),
        ({"type": "text", "text": " "}, "", ""),
        (5, "", "parts of the kind 'int'"),
    ],
)
def test_a_part_is_stored_or_counted_by_its_kind(tmp_path: Path, part: Any, stored: str, reason: str) -> None:
    path = lines(tmp_path, {"role": "user", "content": [TEXT, part]})
    messages, counts = read(path)
    assert [message.content for message in messages] == ["\n".join(filter(None, ["look", stored]))]
    assert counts == ({reason: 1} if reason else {})


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
            {"type": "tool_result", "tool_use_id": "c"},
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "c"},
        ),
        (
            {"type": "tool-call", "toolCallId": "c", "toolName": "f", "args": {"a": 1}},
            {"type": "tool-result", "toolCallId": "c"},
        ),
        (
            {"type": "server_tool_use", "id": "c", "name": "f", "input": {"a": 1}},
            {"type": "web_search_tool_result", "tool_use_id": "c"},
        ),
        ({"functionCall": {"id": "c", "name": "f", "args": {"a": 1}}}, None),
    ],
)
def test_calls_and_results_are_those_of_tools_in_every_shape(tmp_path: Path, call: Any, result: Any) -> None:
    found = (
        {"functionResponse": {"id": "c", "response": "42"}} if result is None else {**result, "content": "42"}
    )
    records = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [call]}]
    messages, counts = read(lines(tmp_path, *records, {"role": "user", "content": [found]}))
    assert counts == {}
    assert [(message.role, message.content) for message in messages] == [
        ("user", "go"),
        ("assistant", ""),
        ("tool", "42"),
    ]
    function = {"name": "f", "arguments": '{"a": 1}'}
    assert messages[1].tool_calls == ({"id": "c", "type": "function", "function": function},)
    assert (messages[2].tool_name, messages[2].tool_call_id) == ("f", "c")


def test_fields_beside_the_content_are_stored_or_counted(tmp_path: Path) -> None:
    messages, counts = read(
        lines(
            tmp_path,
            {"role": "assistant", "content": None, "refusal": "I can't.", "reasoning_content": "hm"},
            {"role": "assistant", "content": None, "audio": {"transcript": "hello"}},
            {"role": "assistant", "content": "<think>hm</think>\nyes"},
            {"role": "user", "content": "look", "images": ["a", "b"]},
            {"role": "tool", "content": "", "tool_call_id": "c"},
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": None},
        )
    )
    assert [message.content for message in messages] == ["I can't.", "hello", "yes", "look"]
    assert counts == {
        "parts of the kind 'images'": 2,
        "instructions, and messages without a word": 2,
        "parts of the kind 'reasoning_content'": 1,
        "parts of the kind 'thinking'": 1,
        "results of tools without a word": 1,
    }


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ({"id": "c1", "function": 5}, "expected an object"),
        ({"id": ["c1"], "function": {"name": "x", "arguments": "{}"}}, "expected text"),
        ({"id": "c1", "function": {"name": {"x": 1}, "arguments": "{}"}}, "expected text"),
    ],
    ids=["function", "id", "name"],
)
def test_a_call_of_no_known_shape_costs_its_message_only(
    tmp_path: Path, hermes_home: HermesHome, call: Any, reason: str
) -> None:
    path = tmp_path / "chat.json"
    messages = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
        {"role": "assistant", "content": "In the attic."},
    ]
    path.write_text(json.dumps([{"id": "1", "messages": messages}]))
    skips = SkipLog()
    with open_memory(hermes_home) as memory:
        done = import_sessions(memory, stream_file(path, skips=skips))
    assert done.messages == 2
    assert [skip.reason.partition(",")[0] for skip in skips.all() if skip.fault] == [reason]


def test_a_result_stands_behind_its_call_with_the_name_of_the_tool(tmp_path: Path) -> None:
    call = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
    records = [
        {"role": "user", "content": "go"},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "tool", "tool_call_id": "lost", "content": "7"},
        {"role": "assistant", "content": "wait", "tool_calls": [call]},
        {"role": "user", "content": "and?"},
        {"role": "tool", "tool_call_id": "c1", "content": "43"},
    ]
    messages, _ = read(lines(tmp_path, *records))
    assert [message.content for message in messages] == ["go", "7", "wait", "42", "and?", "43"]
    assert [message.tool_name for message in messages if message.role == "tool"] == ["", "f", "f"]


def test_a_call_without_an_id_names_only_results(tmp_path: Path) -> None:
    messages, _ = read(
        lines(
            tmp_path,
            {"role": "user", "content": "What is here?"},
            {"role": "assistant", "content": [{"functionCall": {"name": "ls", "args": {}}}]},
            {"role": "tool", "content": "a.py"},
            {"role": "assistant", "content": "A file."},
        )
    )
    assert [message.tool_name for message in messages] == ["", "", "ls", ""]


def items(tmp_path: Path, *records: Any) -> tuple[list[ImportedMessage], dict[str, int]]:
    path = tmp_path / "items.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return read(path, load_extensions(Config()))


def test_a_file_of_messages_may_begin_with_a_record_of_another_kind(tmp_path: Path) -> None:
    messages, counts = items(
        tmp_path,
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"role": "user", "content": "hello"},
        {"type": "web_search_call", "id": "w", "action": {"query": "q"}},
        {"role": "assistant", "content": "hi"},
    )
    assert [message.content for message in messages] == ["hello", "", "hi"]
    assert counts == {"parts of the kind 'reasoning'": 1}


@pytest.mark.parametrize(
    ("item", "arguments", "result"),
    [
        ({"type": "mcp_call", "name": "f", "arguments": "{}", "output": "done"}, "{}", "done"),
        (
            {"type": "code_interpreter_call", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
            "1+1",
            "2",
        ),
        (
            {"type": "file_search_call", "queries": ["q"], "results": [{"file_id": "f", "text": "found"}]},
            '["q"]',
            "found",
        ),
    ],
)
def test_a_call_that_the_models_server_ran_holds_its_result(
    tmp_path: Path, item: dict[str, Any], arguments: str, result: str
) -> None:
    messages, counts = items(tmp_path, {"role": "user", "content": "hello"}, item)
    assert [message.content for message in messages] == ["hello", "", result]
    assert messages[1].tool_calls[0]["function"]["arguments"] == arguments
    assert counts == {}


def test_the_output_of_a_shell_is_a_result(tmp_path: Path) -> None:
    output = {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a.py", "stderr": ""}]}
    messages, counts = items(tmp_path, {"type": "shell_call", "call_id": "c", "action": {}}, output)
    assert ("a.py" in messages[1].content, counts) == (True, {})


def test_a_result_that_is_an_object_is_stored_as_json(tmp_path: Path) -> None:
    messages, counts = read(lines(tmp_path, {"role": "tool", "name": "f", "content": {"ok": True}}))
    assert ([message.content for message in messages], counts) == (['{"ok": true}'], {})


def test_a_result_that_begins_a_session_stands_behind_its_call(tmp_path: Path) -> None:
    call = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
    records = [
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "wait", "tool_calls": [call]},
    ]
    messages, _ = read(lines(tmp_path, *records))
    assert [message.content for message in messages] == ["go", "wait", "42"]


def test_a_result_waits_a_hundred_messages_for_its_call_and_then_stays() -> None:
    call = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
    result = ImportedMessage("tool", "42", tool_call_id="c1")
    said = [ImportedMessage("user", str(number)) for number in range(200)]
    for distance, place in ((50, 51), (150, 0)):
        asked = ImportedMessage("assistant", "", tool_calls=(call,))
        turns = split_turns([result, *said[:distance], asked])
        assert [message.role for turn in turns for message in turn.messages].index("tool") == place


def test_parts_of_the_ai_sdk_hold_a_call_with_its_result(tmp_path: Path) -> None:
    parts = [
        {"type": "tool-weather", "toolCallId": "a", "input": {"b": 1}, "output": {"c": 2}},
        {"type": "dynamic-tool", "toolName": "f", "toolCallId": "d", "input": {}, "errorText": "no"},
        {
            "type": "tool-invocation",
            "toolInvocation": {"toolCallId": "e", "toolName": "g", "args": {}, "result": "ok"},
        },
        {"type": "text", "text": "done"},
    ]
    messages, counts = read(lines(tmp_path, {"role": "assistant", "content": parts}))
    assert [(m.role, m.content, m.tool_name) for m in messages if not m.tool_calls] == [
        ("tool", '{"c": 2}', "weather"),
        ("tool", "no", "f"),
        ("tool", "ok", "g"),
        ("assistant", "done", ""),
    ]
    assert counts == {}


def test_lines_that_all_have_a_time_come_in_that_order(tmp_path: Path) -> None:
    records = [{"role": "user", "content": str(at), "timestamp": at} for at in (3, 1, 2)]
    assert [message.content for message in read(lines(tmp_path, *records))[0]] == ["1", "2", "3"]
    del records[0]["timestamp"]
    assert [message.content for message in read(lines(tmp_path, *records))[0]] == ["3", "1", "2"]


def test_no_provider_is_told_a_turn_without_the_person(tmp_path: Path, hermes_home: HermesHome) -> None:
    path = lines(
        tmp_path,
        {"role": "assistant", "content": "Good morning"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
    )
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        for known in (0, 2):
            assert import_sessions(memory, stream_file(path, "auto", None, Extensions())).known == known
        assert memory.flush(30)
        (session,) = memory.sessions.list_sessions()
        assert len(memory.sessions.get_messages(session.session.id)) == 3
    assert [call["turn"].user for call in provider.of("sync_turn")] == ["hello"]


def test_fields_that_json_lines_do_not_have_are_those_of_an_unknown_program(tmp_path: Path) -> None:
    _, counts = read(lines(tmp_path, {"role": "user", "content": "hi", "mood": "good", "channel": None}))
    assert counts == {"fields of an unknown program in the shape of JSON Lines: mood": 1}


# ---------------------------------------------------------------------- importers of others


def read_careless(path: Path, skips: SkipLog) -> Any:
    """Yield a session of every second value, without a word about the others."""
    for number, value in enumerate(read_records(path, skips)):
        if number % 2 == 0:
            message = ImportedMessage("user", value["words"])
            yield ImportedSession(f"x-{number}", "x", "", None), split_turns([message])


def score_careless(path: Path, head: bytes, value: Any) -> int:
    return 2 if isinstance(value, dict) and value.get("special") else 0


def score_shape(path: Path, head: bytes, value: Any) -> int:
    return 1 if isinstance(value, dict) and "words" in value else 0


def read_shape(path: Path, skips: SkipLog) -> Any:
    raise AssertionError("read by the less specific one")


class Two:
    """An extension with an importer of a shape, and one of a program that writes it."""

    @hookimpl
    def register_importers(self, importers: Any) -> None:
        importers.add(ImporterEntry("shape", "a shape", "two:read_shape", "two:score_shape"))
        importers.add(ImporterEntry("careless", "a program", "two:read_careless", "two:score_careless"))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Extensions:
    module = ModuleType("two")
    for function in (read_careless, score_careless, score_shape, read_shape):
        setattr(module, function.__name__, function)
    module.plugin = Two()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "two", module)
    return load_extensions(Config(), [importlib_metadata.EntryPoint("two", "two:plugin", EXTENSION_GROUP)])


@pytest.mark.parametrize("form", ["lines", "list"])
def test_the_most_specific_importer_reads_a_file_that_it_recognises_further_on(
    tmp_path: Path, two: Extensions, form: str
) -> None:
    records = [{"words": "a"}, {"words": "b"}, {"words": "c", "special": True}]
    path = tmp_path / "file.json"
    path.write_text(json.dumps(records) if form == "list" else "\n".join(map(json.dumps, records)))
    messages, counts = read(path, two)
    assert [message.content for message in messages] == ["a", "c"]
    # What an importer drops without a word is counted all the same.
    assert counts == {"parts that the importer of this format does not know": 1}


def test_what_a_function_for_the_persons_words_removes_is_counted() -> None:
    skips = SkipLog()
    skips.read = 1
    parts = read_parts(["[note] hello", "[note]"], "here", skips)
    found = read_message(
        "user", parts, "here", skips, words=lambda text: text.removeprefix("[note]"), reason="notes"
    )
    assert [message.content for message in found] == [" hello"]
    assert [(skip.reason, skip.count) for skip in skips.all()] == [("notes", 2)]
    assert skips.read == 3


# ---------------------------------------------------------------------- two forms of a session


def said(*texts: str) -> list[ImportedMessage]:
    return [ImportedMessage("user", text) for text in texts]


LONG = "a sentence that is so long that nobody writes it twice by chance"


@pytest.mark.parametrize(
    ("messages", "others", "found"),
    [
        ("abc", "abc", [0, 1, 2]),
        ("abc", "ac", [0, None, 1]),
        ("ac", "abc", [0, 2]),
        ("abc", "acb", [0, 2, 1]),  # the message that one form lacked was stored at the end
        ("aa", "a", [0, None]),
        ("", "a", []),
        (["a", LONG, "b"], ["a", LONG[:45], "b"], [0, 1, 2]),
        (["a", LONG[:45]], ["a", LONG], [0, 1]),
        (["a", "yes"], ["a", "yes, later"], [0, None]),
        (["a  b"], ["a\nb"], [0]),
    ],
)
def test_the_messages_of_two_forms_are_matched(messages: Any, others: Any, found: list[int | None]) -> None:
    assert match_messages(said(*messages), said(*others)) == found


def test_messages_of_another_role_or_with_other_calls_are_others() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    one = [ImportedMessage("assistant", "a"), ImportedMessage("assistant", "", tool_calls=(call,))]
    other = [
        ImportedMessage("user", "a"),
        ImportedMessage("assistant", "", tool_calls=({**call, "id": "2"},)),
    ]
    assert match_messages(one, other) == [None, 1]
