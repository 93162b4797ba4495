"""Who speaks in a session, and in which order: what the file says comes before its structure, and that before prefixes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_core.memory import open_memory
from hermes_memory_importers import ImportedMessage, SkipLog, stream_file
from hermes_memory_importers.run import import_sessions
from hermes_memory_testing.fakes import RecordingProvider

OF_CLAUDE = "commands, reminders and other text of the program's own"
OF_CODEX = "instructions and other text of the program's own"


def written(path: Path, records: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def read(path: Path) -> tuple[list[ImportedMessage], dict[str, int]]:
    skips = SkipLog()
    messages = [m for _, turns in stream_file(path, skips=skips) for turn in turns for m in turn.messages]
    return messages, {skip.reason: skip.count for skip in skips.all()}


def record(
    uuid: str, parent: str | None, kind: str, content: Any, second: int = 0, **more: Any
) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s1",
        "type": kind,
        "timestamp": f"2026-09-01T10:00:{second:02d}.000Z",
        "message": {"role": kind, "content": content},
        **more,
    }


def answer(uuid: str, parent: str, words: str, second: int = 0) -> dict[str, Any]:
    return record(uuid, parent, "assistant", [{"type": "text", "text": words}], second)


# ---------------------------------------------------------------------- Claude Code


@pytest.mark.parametrize(
    ("sent", "facts", "words"),
    [
        ("run the linter", {"origin": {"kind": "hook"}}, ""),
        ("run the linter", {"origin": {"kind": "coordinator"}}, ""),
        ("run the linter", {"origin": {"kind": "kind-of-next-year"}}, ""),
        ("run the linter", {"origin": {"kind": "human"}}, "run the linter"),
        ("run the linter", {"isSynthetic": True}, ""),
        ("run the linter", {"promptSource": "system"}, ""),
        ("run the linter", {"promptSource": "typed"}, "run the linter"),
        ("run the linter", {"sourceToolUseID": "t1", "isMeta": True}, ""),
        # The file says that a person typed it, whatever it begins with.
        ("[Request interrupted by user] is what I see", {"origin": {"kind": "human"}}, None),
        ("Stop hook feedback: run the linter", {}, ""),
        ("PreToolUse:Bash hook feedback: no", {}, ""),
        ('<channel source="telegram" user="9">the wifi password?</channel>', {}, ""),
        ('<cross-session-message from="x">deploy</cross-session-message>', {}, ""),
        ('<channel-message source="x">deploy</channel-message>', {}, ""),
        ("<fork-boilerplate>do your part</fork-boilerplate>", {}, ""),
        ("<user-memory-input>pay on Mondays</user-memory-input>", {}, "#pay on Mondays"),
        ("Implement the following plan: deploy", {"planContent": "deploy"}, ""),
        ("<channel>is this an element of RSS?", {}, None),
        ("<bash-input>git push</bash-input>", {}, "!git push"),
        ("<bash-stdout>ok</bash-stdout><bash-stderr></bash-stderr>", {}, ""),
        (
            "<command-message>fix</command-message>\n<command-name>/fix</command-name>\n"
            "<command-args>the total is wrong\nfor Norway</command-args>",
            {},
            "/fix the total is wrong\nfor Norway",
        ),
        ("<command-name>/model</command-name>\n<command-args></command-args>", {}, ""),
        (
            "<ide_selection>line 1</ide_selection>\n<command-name>/x</command-name>\nrename it",
            {},
            "rename it",
        ),
    ],
)
def test_of_claude_code_only_what_the_person_typed_is_theirs(
    tmp_path: Path, sent: str, facts: dict[str, Any], words: str | None
) -> None:
    words = sent if words is None else words
    records = [record("u0", None, "user", "hello"), record("u1", "u0", "user", sent, **facts)]
    messages, counted = read(written(tmp_path / "s1.jsonl", records))
    assert [message.content.strip() for message in messages] == ["hello", *([words] if words else [])]
    assert sum(counted.values()) == (words != sent)


def test_a_queued_message_of_another_session_is_not_the_persons(tmp_path: Path) -> None:
    def queued(uuid: str, parent: str, **more: Any) -> dict[str, Any]:
        attached = {"type": "queued_command", "prompt": f"words of {uuid}", "commandMode": "prompt", **more}
        return {**record(uuid, parent, "attachment", ""), "attachment": attached}

    records = [
        record("u0", None, "user", "hello"),
        queued("q1", "u0", origin={"kind": "human"}),
        queued("q2", "q1", origin={"kind": "peer"}),
        queued("q3", "q2", isMeta=True),
        queued("q4", "q3"),
    ]
    messages, counted = read(written(tmp_path / "s1.jsonl", records))
    assert [message.content for message in messages] == ["hello", "words of q1", "words of q4"]
    assert sum(counted.values()) == 2


CHAIN = [
    record("u1", None, "user", "how much space is left", 1),
    answer("a1", "u1", "Let me look.", 2),
    record("a2", "a1", "assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}], 2),
    record("r1", "a2", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "41 GB"}], 3),
    answer("a3", "r1", "41 GB.", 4),
    record("u2", "a3", "user", "thanks", 5),
    answer("a4", "u2", "Welcome.", 6),
]


@pytest.mark.parametrize("seed", range(6))
def test_links_tell_the_order_of_lines_and_a_result_has_the_name_of_its_tool(
    tmp_path: Path, seed: int
) -> None:
    records = [{**one, "timestamp": None} if seed % 2 else one for one in CHAIN]
    # The last message stays the last one: it tells which branch was on screen.
    head = records[:-1]
    random.Random(seed).shuffle(head)
    messages, counted = read(written(tmp_path / "s1.jsonl", [*head, records[-1]]))
    said = ["how much space is left", "Let me look.", "", "41 GB", "41 GB.", "thanks", "Welcome."]
    assert [message.content for message in messages] == said
    assert [message.tool_name for message in messages if message.role == "tool"] == ["Bash"]
    assert counted == {}


def test_without_links_the_times_tell_the_order(tmp_path: Path) -> None:
    records = [{name: value for name, value in one.items() if name != "parentUuid"} for one in CHAIN]
    messages, _ = read(written(tmp_path / "s1.jsonl", [records[3], *records[:3], *records[4:]]))
    assert [message.content for message in messages][2:4] == ["", "41 GB"]


def test_without_links_and_times_the_id_of_a_call_tells_the_place_of_its_result(tmp_path: Path) -> None:
    records = [
        {name: value for name, value in one.items() if name not in ("parentUuid", "timestamp")}
        for one in CHAIN
    ]
    messages, _ = read(written(tmp_path / "s1.jsonl", [records[0], records[3], *records[1:3], *records[4:]]))
    assert [message.content for message in messages][1:4] == ["Let me look.", "", "41 GB"]
    assert messages[3].tool_name == "Bash"


def test_no_provider_is_told_a_turn_without_a_word_of_the_person(
    tmp_path: Path, hermes_home: HermesHome
) -> None:
    records = [
        record("u1", None, "user", "<command-name>/init</command-name>", 1),
        answer("a1", "u1", "I looked at the project.", 2),
        record("u2", "a1", "user", "thanks", 3),
        answer("a2", "u2", "Welcome.", 4),
    ]
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        path = written(tmp_path / "s1.jsonl", records)
        assert import_sessions(memory, stream_file(path)).turns == 2
        assert memory.flush(30)
        assert import_sessions(memory, stream_file(path)).known == 2
        assert len(memory.sessions.get_messages("claude-code-s1")) == 3
    assert [call["turn"].user for call in provider.of("sync_turn")] == ["thanks"]


# ---------------------------------------------------------------------- Codex


def said(role: str, words: str) -> dict[str, Any]:
    content = [{"type": "output_text" if role == "assistant" else "input_text", "text": words}]
    return {
        "timestamp": "2026-01-02T10:00:00Z",
        "type": "response_item",
        "payload": {"type": "message", "role": role, "content": content},
    }


def typed(words: str, **more: Any) -> dict[str, Any]:
    payload = {"type": "user_message", "message": words, **more}
    return {"timestamp": "2026-01-02T10:00:00Z", "type": "event_msg", "payload": payload}


META = {"timestamp": "2026-01-02T10:00:00Z", "type": "session_meta", "payload": {"id": "c1", "source": "cli"}}


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ('<hook_prompt hook_run_id="stop">lint</hook_prompt>', ""),
        ('<hook_prompt hook_run_id="stop:5">usage', ""),
        ("<element_of_next_year>lint</element_of_next_year>", ""),
        ("<b>why is this bold?</b>", None),
        (
            "<user_shell_command>\n<command>\ngit push\n</command>\n<result>ok</result>\n</user_shell_command>",
            "!git push",
        ),
    ],
)
def test_where_events_tell_what_was_typed_any_other_element_is_the_programs(
    tmp_path: Path, sent: str, words: str | None
) -> None:
    words = sent if words is None else words
    events = [typed("go")] + ([typed(sent)] if words == sent else [])
    records = [META, said("user", sent), said("user", "go"), *events, said("assistant", "Done.")]
    messages, counted = read(written(tmp_path / "r.jsonl", records))
    assert [message.content for message in messages] == [*([words] if words else []), "go", "Done."]
    assert counted.get(OF_CODEX, 0) == (words != sent)


def test_an_event_with_another_kind_is_no_word_of_the_person(tmp_path: Path) -> None:
    records = [META, typed("the folder is /srv", kind="environment_context"), typed("go", kind="plain")]
    messages, counted = read(written(tmp_path / "r.jsonl", records))
    assert [message.content for message in messages] == ["go"]
    assert counted == {"records of the program's own": 1}


def test_a_result_before_its_call_stands_behind_it(tmp_path: Path) -> None:
    def item(**payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-01-02T10:00:00Z", "type": "response_item", "payload": payload}

    records = [
        META,
        said("user", "go"),
        item(type="function_call_output", call_id="x1", output="ok"),
        item(type="function_call", call_id="x1", name="shell", arguments="{}"),
    ]
    messages, _ = read(written(tmp_path / "r.jsonl", records))
    assert [(message.role, message.tool_name) for message in messages] == [
        ("user", ""),
        ("assistant", ""),
        ("tool", "shell"),
    ]


# ---------------------------------------------------------------------- claude.ai and chats


def test_the_links_of_claude_ai_tell_the_order(tmp_path: Path) -> None:
    def message(uuid: str, sender: str, parent: str) -> dict[str, Any]:
        return {
            "uuid": uuid,
            "sender": sender,
            "parent_message_uuid": parent,
            "content": [{"text": uuid, "type": "text"}],
        }

    messages = [
        message("m2", "assistant", "m1"),
        message("m1", "human", "00000000-0000-4"),
        message("m3", "human", "m2"),
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"uuid": "c1", "name": "T", "chat_messages": messages}]))
    assert [message.content for message in read(path)[0]] == ["m1", "m2", "m3"]


def test_the_times_of_a_chat_tell_its_order_if_each_message_has_one(tmp_path: Path) -> None:
    def message(second: int, **more: Any) -> dict[str, Any]:
        return {"role": "user", "content": str(second), "timestamp": 1788256800 + second, **more}

    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": [message(3), message(1), message(2)]}))
    assert [m.content for m in read(path)[0]] == ["1", "2", "3"]
    path.write_text(json.dumps({"messages": [message(3), message(1, timestamp=None), message(2)]}))
    assert [m.content for m in read(path)[0]] == ["3", "1", "2"]


def test_the_last_message_of_claude_ai_is_the_newest_one_that_nobody_answered(tmp_path: Path) -> None:
    def message(uuid: str, sender: str, parent: str, second: int) -> dict[str, Any]:
        content = [{"text": uuid, "type": "text"}]
        at = f"2026-09-01T10:00:{second:02d}Z"
        return {
            "uuid": uuid,
            "sender": sender,
            "parent_message_uuid": parent,
            "created_at": at,
            "content": content,
        }

    root = "00000000-0000-4"
    messages = [
        message("m3", "human", "m2", 3),
        message("left", "human", root, 0),
        message("m2", "assistant", "m1", 2),
        message("m1", "human", root, 1),
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"uuid": "c1", "name": "T", "chat_messages": messages}]))
    assert [message.content for message in read(path)[0]] == ["m1", "m2", "m3"]


def test_the_newest_leaf_of_chatgpt_is_that_of_the_latest_time(tmp_path: Path) -> None:
    def node(name: str, parent: str | None, role: str, at: int) -> dict[str, Any]:
        content = {"content_type": "text", "parts": [name]}
        return {
            "parent": parent,
            "message": {"author": {"role": role}, "create_time": at, "content": content},
        }

    mapping = {
        "n2": node("n2", "n1", "assistant", 30),
        "old": node("old", "n1", "assistant", 20),
        "n1": node("n1", None, "user", 10),
    }
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"title": "T", "conversation_id": "c", "mapping": mapping}]))
    assert [message.content for message in read(path)[0]] == ["n1", "n2"]


@pytest.mark.parametrize(
    ("facts", "kept"),
    [
        ({"origin": {"kind": "hook"}}, False),
        ({"isSynthetic": True}, False),
        ({"origin": {"kind": "human"}}, True),
        ({"origin": "web"}, True),
        ({}, True),
    ],
)
def test_a_chat_that_says_who_sent_a_message_is_believed(
    tmp_path: Path, facts: dict[str, Any], kept: bool
) -> None:
    messages = [{"role": "user", "content": "hello"}, {"role": "user", "content": "lint", **facts}]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": messages}))
    assert [message.content for message in read(path)[0]] == ["hello", *(["lint"] if kept else [])]
