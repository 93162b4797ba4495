"""Sessions of Aider, OpenClaw, Gemini CLI, opencode and Crush, and the prompt histories of Codex and Claude Code."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_core.errors import ImportFailed
from hermes_core.memory import open_memory
from hermes_memory_importers import ImportedSession, SkipLog, read_file, stream_file
from hermes_memory_importers.run import ImportResult, import_sessions
from hermes_memory_testing.fakes import RecordingProvider

SAMPLES = Path(__file__).parent / "samples"

Talk = list[tuple[str, str]]


def talk(session: ImportedSession) -> Talk:
    return [(message.role, message.content) for turn in session.turns for message in turn.messages]


def written(path: Path, *records: Any) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def imported(home: HermesHome, *paths: Path) -> tuple[list[ImportResult], list[tuple[str, str]]]:
    """Import the files; return the results, and the turns that a provider was told."""
    provider = RecordingProvider()
    with open_memory(home, provider=provider) as memory:
        results = [import_sessions(memory, stream_file(path)) for path in paths]
        memory.flush(timeout=30)
    return results, [(call["turn"].user, call["turn"].assistant) for call in provider.of("sync_turn")]


# --------------------------------------------------------------------------------------------------------------- Aider


def aider(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_heading_and_a_quotation_of_the_model_are_not_the_persons(tmp_path: Path) -> None:
    (session,) = read_file(
        aider(
            tmp_path / ".aider.chat.history.md",
            "",
            "# aider chat started at 2026-09-01 10:00:00",
            "",
            "> Aider v0.86.1  ",
            "",
            "#### How do I start?  ",
            "####   with two lines  ",
            "",
            "#### First step",
            "> quoted",
            "# A title",
            "",
            "> Tokens: 1k sent  ",
            "",
            "#### /exit  ",
            "",
            "#### Thanks  ",
        )
    )
    assert talk(session) == [
        ("user", "How do I start?\n  with two lines"),
        ("assistant", "#### First step\n> quoted\n# A title"),
        ("user", "Thanks"),
    ]
    assert (session.source, session.started_at) == ("aider", 1788256800.0)


def test_two_prompts_stay_two_and_lost_blanks_are_read_too(tmp_path: Path) -> None:
    lines = ["# aider chat started at 2026-09-01 10:00:00", "#### one", "", "#### two", "", "ok", "> said"]
    (session,) = read_file(aider(tmp_path / "history.md", *lines))
    assert talk(session) == [("user", "one"), ("user", "two"), ("assistant", "ok")]


def test_a_history_of_aider_that_grew_brings_only_what_is_new(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    path = SAMPLES / ".aider.chat.history.md"
    longer = tmp_path / "longer.md"
    longer.write_text(path.read_text() + "\n#### And now?  \n\nNothing.\n")
    (first, again, grown), told = imported(hermes_home, path, path, longer)
    assert (first.sessions, first.turns, first.messages) == (2, 4, 7)
    assert (again.turns, again.messages, again.known) == (0, 0, 4)
    assert (grown.turns, grown.messages) == (1, 2)
    assert ("And now?", "Nothing.") in told


def test_a_text_that_nobody_knows_has_the_fault_of_json(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="it is no JSON"):
        read_file(aider(tmp_path / "notes.md", "# My notes", "> quoted  "))


# ------------------------------------------------------------------------------------------------------------ OpenClaw


def claw(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [
        {"type": "session", "id": "s1", "timestamp": "2026-09-01T10:00:00Z", "cwd": "/home/ann/.openclaw"}
    ]
    for number, message in enumerate(messages, 1):
        parent = f"m{number - 1}" if number > 1 else None
        records.append({"type": "message", "id": f"m{number}", "parentId": parent, "message": message})
    return records


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Thu 2026-03-05 16:29 GMT+8] hello", "hello"),
        ("[message_id: om_1]\nhello", "hello"),
        ("[WhatsApp +15550123 +2m 2026-01-05 10:00] hello", "hello"),
        ("System: [2026-01-05 10:00] Node connected\n\nhello", "hello"),
        ('Conversation info (untrusted metadata):\n```json\n{"x": 1}\n```\n\nhello\n\nyou', "hello\n\nyou"),
        ('Replied message (untrusted, for context):\n```json\n{"body": "hi"}\n```\n\nhello', "hello"),
        ("hello\n\nContext: \u27e6openclaw:ctx\u27e7\nsomebody else said no", "hello"),
        ("see (untrusted) input: it is bad", "see (untrusted) input: it is bad"),
        ("[cron:ab12 daily] hello", ""),
        ("Read HEARTBEAT.md if it exists (workspace context). Follow it strictly.", ""),
        ("Conversation info (untrusted metadata):\n```json\n{}\n```\n\nSystem: [1] exec finished\n", ""),
    ],
)
def test_the_person_said_what_stands_behind_the_frame_of_openclaw(
    tmp_path: Path, text: str, words: str
) -> None:
    path = written(
        tmp_path / "s1.jsonl",
        *claw({"role": "user", "content": text}, {"role": "assistant", "content": "ok"}),
    )
    (session,) = read_file(path)
    assert talk(session) == ([("user", words)] if words else []) + [("assistant", "ok")]


@pytest.mark.parametrize(
    "text", ["\n" * 200_000 + "hello", "x (untrusted metadata):\n```json\n" * 5_000 + "\nhello"]
)
def test_a_text_that_looks_like_many_frames_takes_no_minutes(tmp_path: Path, text: str) -> None:
    (session,) = read_file(written(tmp_path / "s1.jsonl", *claw({"role": "user", "content": text})))
    assert talk(session)[0][1].endswith("hello")


def test_marks_of_delivery_are_no_words_and_a_silent_answer_is_counted(tmp_path: Path) -> None:
    silent = [{"type": "text", "text": "NO_REPLY"}]
    path = written(
        tmp_path / "s1.jsonl",
        *claw(
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [{"type": "text", "text": "[[reply_to: 7]] hi"}]},
            {"role": "assistant", "content": silent},
        ),
    )
    skips = SkipLog()
    ((_, turns),) = stream_file(path, skips=skips)
    (turn,) = turns
    assert [message.content for message in turn.messages] == ["hello", "hi"]
    skips.close()
    assert sum(skip.count for skip in skips.all()) == 1


# ------------------------------------------------------------------------------------------------- opencode and Crush


def database(path: Path, sample: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((SAMPLES / sample).read_text())
    return path


def test_a_folder_has_the_databases_of_opencode_and_crush(tmp_path: Path) -> None:
    (opencode,) = read_file(database(tmp_path / "opencode.db", "opencode.sql"))
    assert opencode.id == "opencode-ses_1"
    assert talk(opencode)[0] == ("user", "part01")
    assert [m.tool_name for turn in opencode.turns for m in turn.messages if m.role == "tool"] == [
        "bash",
        "write",
    ]
    (crush,) = read_file(database(tmp_path / "crush.db", "crush.sql"))
    assert crush.id == "crush-s1"
    assert talk(crush)[-2:] == [("user", "!ls part09"), ("tool", "part10")]


def test_a_database_of_another_program_is_refused_as_before(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE sessions (id TEXT)")
    with pytest.raises(ImportFailed, match=r"no state\.db of Hermes Agent"):
        read_file(path)


def test_the_files_of_a_session_of_opencode_are_read_with_it(tmp_path: Path) -> None:
    info = {"id": "ses_1", "projectID": "p", "title": "T", "time": {"created": 1788256800000}}
    message = {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1788256801000}}
    part = {"id": "prt_1", "messageID": "msg_1", "sessionID": "ses_1", "type": "text", "text": "hello"}
    places = {
        "session/p/ses_1.json": info,
        "message/ses_1/msg_1.json": message,
        "part/msg_1/prt_1.json": part,
    }
    for name, value in places.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(json.dumps(value))
    found = {name: [talk(one) for one in read_file(tmp_path / name)] for name in places}
    assert found == {
        "session/p/ses_1.json": [[("user", "hello")]],
        "message/ses_1/msg_1.json": [],
        "part/msg_1/prt_1.json": [],
    }


@pytest.mark.parametrize("bare", [False, True])
def test_a_saved_chat_of_gemini_cli_begins_with_the_person(tmp_path: Path, bare: bool) -> None:
    path, saved = tmp_path / "checkpoint-x.json", json.loads((SAMPLES / "gemini-checkpoint.json").read_text())
    path.write_text(json.dumps(saved["history"] if bare else saved))
    (session,) = read_file(path)
    assert session.source == "gemini-cli"
    assert talk(session) == [
        ("assistant", "part02"),
        ("user", "part03"),
        ("assistant", ""),
        ("tool", '{"output": "part06"}'),
        ("assistant", "part07"),
    ]


def test_a_session_of_qwen_code_is_that_of_qwen_code() -> None:
    (session,) = read_file(SAMPLES / "qwen-code.jsonl")
    assert (session.id, session.source) == ("qwen-code-q1", "qwen-code")
    assert talk(session) == [("user", "part01"), ("assistant", "part04"), ("tool", '{"output": "part06"}')]


# -------------------------------------------------------------------------------------------------------- prompt histories


def codex_session(path: Path) -> Path:
    def item(role: str, text: str, second: int) -> dict[str, Any]:
        content = [{"type": "input_text" if role == "user" else "output_text", "text": text}]
        payload = {"type": "message", "role": role, "content": content}
        return {"type": "response_item", "timestamp": f"2026-09-01T10:00:{second:02}Z", "payload": payload}

    return written(
        path,
        {"type": "session_meta", "timestamp": "2026-09-01T10:00:00Z", "payload": {"id": "0196-a"}},
        item("user", "part01", 1),
        item("assistant", "yes", 2),
        item("user", "part02", 3),
        item("assistant", "no", 4),
    )


def stored(home: HermesHome) -> dict[str, list[str]]:
    with open_memory(home) as memory:
        ids = [one.session.id for one in memory.sessions.list_sessions()]
        return {name: [m.content for m in memory.sessions.get_messages(name)] for name in ids}


def test_a_session_has_its_prompts_once_whichever_file_comes_first(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    history = SAMPLES / "codex-history.jsonl"
    session = codex_session(tmp_path / "rollout.jsonl")
    results, told = imported(hermes_home, history, session, history)
    assert [(one.turns, one.known) for one in results] == [(3, 0), (2, 0), (0, 3)]
    assert told == [("part01", "yes"), ("part02", "no")]
    assert stored(hermes_home) == {
        "codex-0196-a": ["part01", "yes", "part02", "no"],
        "codex-0196-b-prompts": ["part03"],
    }


def test_a_prompt_of_the_same_moment_is_no_copy_of_its_session(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    moment = datetime(2026, 9, 1, 10, 0, 1, tzinfo=UTC).timestamp()
    prompt = {"session_id": "0196-a", "ts": int(moment), "text": "part01"}
    history = written(tmp_path / "history.jsonl", prompt)
    imported(hermes_home, history, codex_session(tmp_path / "rollout.jsonl"))
    assert stored(hermes_home) == {"codex-0196-a": ["part01", "yes", "part02", "no"]}


def test_pasted_texts_stand_in_a_prompt_of_claude_code() -> None:
    sessions = read_file(SAMPLES / "claude-code-history.jsonl")
    assert [talk(one) for one in sessions] == [
        [("user", "part01 pasted lines end"), ("user", "/fix-issue part04 is wrong")],
        [("user", "part05")],
    ]


def test_the_history_of_gemini_cli_is_not_taken_for_a_chat() -> None:
    (session,) = read_file(SAMPLES / "gemini-logs.json")
    assert (session.source, session.excerpt_of, talk(session)) == (
        "gemini-cli",
        "gemini-cli-g1",
        [("user", "part01")],
    )
