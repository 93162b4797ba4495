"""Session files of Claude Code and Codex, and state.db of Hermes Agent."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import HermesHome
from hermes_core.errors import ImportFailed
from hermes_core.memory import open_memory
from hermes_memory_importers import ImportedSession, read_file, stream_file
from hermes_memory_importers.run import import_sessions
from hermes_memory_importers.values import SkipLog
from hermes_memory_testing.fakes import RecordingProvider
from tests.outbox_of import sessions_of


def written(path: Path, records: Sequence[Any]) -> Path:
    lines = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in records)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def streamed(path: Path) -> tuple[list[ImportedSession], dict[str, int]]:
    skipped = SkipLog()
    sessions = [replace(session, turns=tuple(turns)) for session, turns in stream_file(path, skips=skipped)]
    counts = {skip.reason: skip.count for skip in skipped.all()}
    assert skipped.read == skipped.stored + sum(counts.values())
    return sessions, counts


def said(session: ImportedSession) -> list[list[str]]:
    return [[f"{m.role}: {m.content}" for m in turn.messages] for turn in session.turns]


# ---------------------------------------------------------------------- Claude Code


def record(uuid: str, parent: str | None, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **({"id": more.pop("id")} if "id" in more else {})}
    at = "2026-01-02T10:00:00.000Z"
    return {
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s1",
        "type": kind,
        "timestamp": at,
        "isSidechain": False,
        "message": message,
        **more,
    }


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


def use(name: str, call_id: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": call_id, "name": name, "input": {"path": "/å"}}]


def result(call_id: str, words: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": text(words)}]


CLAUDE = [
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    {"type": "summary", "summary": "Of another session", "leafUuid": "elsewhere"},
    {"type": "summary", "summary": "The server", "leafUuid": "a3"},
    record("m0", None, "user", "<local-command-caveat>Caveat</local-command-caveat>", isMeta=True),
    record("c0", "m0", "user", "<command-name>/model</command-name>"),
    record("u1", "c0", "user", "why is the server down?"),
    record("a1", "u1", "assistant", [{"type": "thinking", "thinking": "hm"}], id="msg1"),
    record("a2", "a1", "assistant", use("Read", "t1"), id="msg1"),
    record("a2b", "a2", "assistant", use("Bash", "t2"), id="msg1"),
    record("r1", "a2", "user", result("t1", "disk full")),
    record("r2", "a2b", "user", result("t2", "exit 1")),
    record("a3", "r2", "assistant", text("The disk is full."), id="msg2"),
    record("side", "u1", "user", "look at the disk", isSidechain=True),
    record("u2", "a3", "user", "delete everything"),  # taken back
    record("a4", "u2", "assistant", text("Shall I really?"), id="msg3"),
    record(
        "u3", "a3", "user", [*text("delete the logs"), *text("<system-reminder>be kind</system-reminder>")]
    ),
    {
        "uuid": "q1",
        "parentUuid": "u3",
        "sessionId": "s1",
        "type": "attachment",
        "timestamp": "2026-01-02T10:00:01Z",
        "attachment": {"type": "queued_command", "prompt": "the old ones only", "commandMode": "prompt"},
    },
    record("a5", "q1", "assistant", text("Done."), id="msg4"),
    {"uuid": "b1", "parentUuid": None, "sessionId": "s1", "type": "system", "subtype": "compact_boundary"},
    record("k1", "b1", "user", "This session is being continued", isCompactSummary=True),
    record("e1", "k1", "assistant", text("API Error: 529"), isApiErrorMessage=True),
    record("u4", "lost", "user", "thanks"),
    record("a6", "u4", "assistant", text("You are welcome.")),
    {"type": "mode", "mode": "normal", "sessionId": "s1"},
]


def test_of_claude_code_the_branch_that_was_kept_comes_in_with_its_tools(tmp_path: Path) -> None:
    (session,), skipped = streamed(written(tmp_path / "s1.jsonl", CLAUDE))
    assert said(session) == [
        [
            "user: why is the server down?",
            "assistant: ",
            "assistant: ",
            "tool: disk full",
            "tool: exit 1",
            "assistant: The disk is full.",
        ],
        ["user: delete the logs", "user: the old ones only", "assistant: Done."],
        ["user: thanks", "assistant: You are welcome."],
    ]
    assert (session.id, session.source, session.title) == ("claude-code-s1", "claude-code", "The server")
    assert session.started_at == 1767348000.0
    calls = session.turns[0].messages[1].tool_calls
    function = {"name": "Read", "arguments": '{"path": "/å"}'}
    assert calls == ({"id": "t1", "type": "function", "function": function},)
    assert [m.tool_name for m in session.turns[0].messages if m.role == "tool"] == ["Read", "Bash"]
    assert [turn.id for turn in session.turns] == ["u1", "u3", "u4"]
    assert skipped == {
        "messages of a branch that was left": 2,
        "messages of a subagent": 1,
        "notes and summaries of the program's own": 3,
        "commands, reminders and other text of the program's own": 2,
        "parts of the kind 'thinking'": 1,
        "records of the program's own": 2,
    }


def test_a_title_that_was_given_wins(tmp_path: Path) -> None:
    titles = [{"type": "custom-title", "customTitle": "Mine"}, {"type": "ai-title", "aiTitle": "Guessed"}]
    ((session,), _) = streamed(written(tmp_path / "s1.jsonl", [*CLAUDE, *titles]))
    assert session.title == "Mine"


def test_a_line_that_is_damaged_costs_that_line_only(tmp_path: Path) -> None:
    records: list[Any] = [
        record("u1", None, "user", "first"),
        '{"uuid": "a1", "parentUuid": "u1", "sess',
        record("u2", "a1", "user", "second"),
        "[1]",
        record("u3", "u2", "user", 7),
        record("a3", "u3", "assistant", text("third"), timestamp="soon"),
    ]
    path = written(tmp_path / "s1.jsonl", records)
    (session,), skipped = streamed(path)
    assert said(session) == [["user: first", "user: second"]]
    assert [count for reason, count in skipped.items()] == [1, 1, 1, 1]
    with pytest.raises(ImportFailed, match="line 2: it is no JSON"):
        read_file(path)


def note(uuid: str, parent: str | None, kind: str = "progress", **more: Any) -> dict[str, Any]:
    """A record of Claude Code that is no message, such as that of a hook."""
    return {"uuid": uuid, "parentUuid": parent, "sessionId": "s1", "type": kind, **more}


TASK_NOTE = "<task-notification><task-id>x</task-id></task-notification>"


@pytest.mark.parametrize(
    "between",
    [
        [note("p1", "a2"), note("p2", "p1"), record("u2", "p2", "user", "second")],
        [record("n1", "a2", "user", TASK_NOTE), record("u2", "n1", "user", "second")],
        [
            record("i1", "a2", "user", text("[Request interrupted by user]")),
            record("u2", "i1", "user", "second"),
        ],
        [
            note("q1", "a2", "attachment", attachment={"type": "hook_success"}),
            record("u2", "q1", "user", "second"),
        ],
        [record("m1", "a2", "user", "a skill", isMeta=True), record("u2", "m1", "user", "second")],
    ],
    ids=["hook", "task note", "interruption", "attachment", "meta"],
)
def test_a_fork_that_the_program_makes_costs_no_message(tmp_path: Path, between: list[Any]) -> None:
    records = [
        record("u1", None, "user", "first"),
        record("a1", "u1", "assistant", text("looking"), id="m1"),
        record("a2", "a1", "assistant", use("Bash", "t1"), id="m1"),
        record("r1", "a2", "user", result("t1", "file.txt")),
        record("a3", "r1", "assistant", text("I see file.txt"), id="m2"),
        *between,
        record("a4", "u2", "assistant", text("done"), id="m3"),
    ]
    (session,), skipped = streamed(written(tmp_path / "s1.jsonl", records))
    assert said(session) == [
        ["user: first", "assistant: looking", "assistant: ", "tool: file.txt", "assistant: I see file.txt"],
        ["user: second", "assistant: done"],
    ]
    assert "messages of a branch that was left" not in skipped


def test_of_several_rewinds_each_branch_that_was_left_stays_out(tmp_path: Path) -> None:
    records = [
        record("u1", None, "user", "first"),
        record("a1", "u1", "assistant", text("one")),
        record("u2", "a1", "user", "left"),
        record("h2", "u2", "assistant", text("left too")),
        record("u3", "a1", "user", "left as well"),
        record("u4", "a1", "user", "second"),
        record("a4", "u4", "assistant", text("two")),
        note("p4", "a4"),
        record("u5", "a4", "user", "third"),
    ]
    (session,), skipped = streamed(written(tmp_path / "s1.jsonl", records))
    assert said(session) == [
        ["user: first", "assistant: one"],
        ["user: second", "assistant: two"],
        ["user: third"],
    ]
    assert skipped["messages of a branch that was left"] == 3


@pytest.mark.parametrize(
    "lacking", [["parentUuid"], ["parentUuid", "uuid"], ["parentUuid", "uuid", "timestamp"]]
)
def test_records_without_links_or_ids_keep_every_message(
    hermes_home: HermesHome, tmp_path: Path, lacking: list[str]
) -> None:
    records = [
        record(f"x{number}", None, kind, words)
        for number, (kind, words) in enumerate(
            [("user", "yes"), ("assistant", text("one")), ("user", "yes"), ("assistant", text("two"))]
        )
    ]
    for name in lacking:
        for one in records:
            del one[name]
    path = written(tmp_path / "s1.jsonl", records)
    (session,), _ = streamed(path)
    assert said(session) == [["user: yes", "assistant: one"], ["user: yes", "assistant: two"]]
    with open_memory(hermes_home) as memory:
        done = [import_sessions(memory, stream_file(path)) for _ in range(2)]
        assert [(one.turns, one.known) for one in done] == [(2, 0), (0, 2)]
        assert len(memory.sessions.get_messages("claude-code-s1")) == 4


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ("[Request interrupted by user for tool use]", None),
        ("Caveat: The messages below were generated by the user while running local commands. DO NOT", None),
        ("<ide_opened_file>The user opened a.py</ide_opened_file>", None),
        ("<command-message>x</command-message>\n<command-name>/x</command-name>", None),
        ("<ide_selection>line 1</ide_selection>\nrename it", "rename it"),
        ("rename it<system-reminder>be kind</system-reminder>", "rename it"),
        ("why does <ide_selection> appear?", "why does <ide_selection> appear?"),
    ],
)
def test_what_claude_code_wrote_in_the_persons_name_is_left_out_and_counted(
    tmp_path: Path, sent: str, words: str | None
) -> None:
    records = [record("u0", None, "user", "hello"), record("u1", "u0", "user", sent)]
    (session,), skipped = streamed(written(tmp_path / "s1.jsonl", records))
    assert [m.content.strip() for m in session.turns[0].messages] == ["hello", *([words] if words else [])]
    counted = skipped.get("commands, reminders and other text of the program's own", 0)
    assert counted == (0 if words == sent else 1)


def test_a_message_that_waited_in_the_queue_comes_in_once(tmp_path: Path) -> None:
    def queued(words: str) -> dict[str, Any]:
        operation = {"type": "queue-operation", "operation": "enqueue", "content": words}
        return {**operation, "sessionId": "s1", "timestamp": "2026-01-02T10:00:00Z"}

    records = [
        record("u1", None, "user", "first"),
        queued("sent later"),
        queued("with this"),
        queued(TASK_NOTE),
        queued("taken back"),
        {"type": "queue-operation", "operation": "popAll", "sessionId": "s1"},
        record("a1", "u1", "assistant", text("one")),
        record("u2", "a1", "user", "sent later\nwith this"),
        record("a2", "u2", "assistant", text("two")),
        queued("never taken"),
    ]
    (session,), _ = streamed(written(tmp_path / "s1.jsonl", records))
    assert said(session) == [
        ["user: first", "assistant: one"],
        ["user: sent later\nwith this", "assistant: two"],
        ["user: never taken"],
    ]


# ---------------------------------------------------------------------- Codex


def item(kind: str, **payload: Any) -> dict[str, Any]:
    return {
        "timestamp": "2026-01-02T10:00:00Z",
        "type": "response_item",
        "payload": {"type": kind, **payload},
    }


def spoken(role: str, words: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": words}])


def event(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-02T10:00:00Z", "type": "event_msg", "payload": {"type": kind, **payload}}


META = {
    "timestamp": "2026-01-02T09:59:00Z",
    "type": "session_meta",
    "payload": {"id": "c1", "timestamp": "2026-01-02T09:59:00Z", "cwd": "/srv", "source": "cli"},
}
CODEX = [
    META,
    {**META, "payload": {**META["payload"], "id": "the-one-it-was-forked-off"}},  # type: ignore[dict-item]
    spoken("developer", "<permissions instructions>"),
    spoken("user", "<environment_context>\n<cwd>/srv</cwd></environment_context>"),
    spoken("user", "fix the build"),
    event("user_message", message="fix the build"),
    item("reasoning", summary=[]),
    item("function_call", name="shell", arguments='{"command":["make"]}', call_id="x1"),
    item("function_call_output", call_id="x1", output='{"output":"error: no rule","metadata":{}}'),
    item("local_shell_call", call_id="x2", action={"command": ["ls"]}),
    item("function_call_output", call_id="x2", output=[{"type": "input_text", "text": "Makefile"}]),
    item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="x3"),
    item("custom_tool_call_output", call_id="x3", output="ok"),
    spoken("assistant", "Fixed."),
    spoken("user", "now push it"),
    spoken("assistant", "Pushed to main."),
    spoken("user", "no, I did not mean that"),
    spoken("assistant", "Sorry."),
    event("thread_rolled_back", num_turns=2),
    event("thread_name_updated", thread_name="The build"),
    spoken("user", "leave it local"),
    {"timestamp": "x", "type": "turn_context", "payload": {"model": "m"}},
]


def test_of_codex_what_was_taken_back_stays_out(tmp_path: Path) -> None:
    (session,), skipped = streamed(written(tmp_path / "rollout.jsonl", CODEX))
    assert said(session) == [
        [
            "user: fix the build",
            "assistant: ",
            "tool: error: no rule",
            "assistant: ",
            "tool: Makefile",
            "assistant: ",
            "tool: ok",
            "assistant: Fixed.",
        ],
        ["user: leave it local"],
    ]
    assert (session.id, session.source, session.title) == ("codex-c1", "codex", "The build")
    assert session.started_at == 1767347940.0
    names = [m.tool_name for m in session.turns[0].messages if m.role == "tool"]
    assert names == ["shell", "shell", "apply_patch"]
    assert skipped["messages that were undone"] == 4


def test_bare_items_of_early_codex_versions_are_read(tmp_path: Path) -> None:
    records = [
        {"id": "old", "timestamp": "2025-05-01T00:00:00Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ]
    (session,), _ = streamed(written(tmp_path / "rollout.jsonl", records))
    assert (session.id, said(session)) == ("codex-old", [["user: hi"]])


def test_a_subagent_of_codex_is_no_conversation(tmp_path: Path) -> None:
    meta = {**META, "payload": {"id": "c2", "source": {"subagent": "review"}}}
    sessions, skipped = streamed(written(tmp_path / "r.jsonl", [meta, spoken("user", "review this")]))
    assert (sessions, skipped) == ([], {"sessions of a subagent": 1})


@pytest.mark.parametrize("source", [{"internal": "memory_consolidation"}, {"internal": {"guardian": {}}}])
def test_an_internal_thread_of_codex_is_no_conversation(tmp_path: Path, source: Any) -> None:
    meta = {**META, "payload": {"id": "c2", "source": source}}
    sessions, skipped = streamed(written(tmp_path / "r.jsonl", [meta, spoken("user", "tidy up")]))
    assert (sessions, skipped) == ([], {"internal sessions of Codex": 1})


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ("<recommended_plugins>\nx\n</recommended_plugins>", ""),
        ("<app-context>\nx\n</app-context>", ""),
        ("<codex_internal_context source='x'>\nx\n</codex_internal_context>", ""),
        ("<skills_instructions>\nfoo</skills_instructions>", ""),
        ("# AGENTS.md\nbe nice", ""),
        ("# AGENTS.md instructions for /srv\nbe nice", ""),
        (
            "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nrename it\n",
            "rename it",
        ),
        ("# Files mentioned by the user:\n\n## a.png: /a.png\n\n## My request for Codex:\nlook", "look"),
        ("<context>is this tag right?</context>", "<context>is this tag right?</context>"),
        ("# AGENTS.md is too long", "# AGENTS.md is too long"),
    ],
)
def test_what_codex_wrote_in_the_persons_name_is_left_out_and_counted(
    tmp_path: Path, sent: str, words: str
) -> None:
    (session,), skipped = streamed(
        written(tmp_path / "r.jsonl", [META, spoken("user", sent), spoken("user", "go")])
    )
    assert [m.content for m in session.turns[0].messages] == [*([words] if words else []), "go"]
    assert skipped.get("instructions and other text of the program's own", 0) == (0 if words == sent else 1)


def test_the_frame_of_a_picture_is_no_word_of_the_person(tmp_path: Path) -> None:
    parts = [
        {"type": "input_text", "text": words}
        for words in ("<image name=[Image #1]>", "</image>", "what is it?")
    ]
    (session,), _ = streamed(
        written(tmp_path / "r.jsonl", [META, item("message", role="user", content=parts)])
    )
    assert said(session) == [["user: what is it?"]]


def test_a_message_that_only_an_event_holds_comes_in_once(tmp_path: Path) -> None:
    def completed(kind: str, words: str) -> dict[str, Any]:
        return event("item_completed", item={"type": kind, "content": [{"type": "text", "text": words}]})

    records = [
        META,
        event("user_message", message="fix it"),
        spoken("user", "<environment_context>x</environment_context>"),
        spoken("user", "fix it"),
        completed("AgentMessage", "looking"),
        spoken("assistant", "looking"),
        event("agent_message", message="only an event"),
        completed("AgentMessage", "only an event"),
        event("user_message", message="yes"),
        event("agent_message", message="done"),
        event("user_message", message="yes"),
        event("user_message", message="undone"),
        event("thread_rolled_back", num_turns=1),
    ]
    (session,), skipped = streamed(written(tmp_path / "r.jsonl", records))
    assert said(session) == [
        ["user: fix it", "assistant: looking", "assistant: only an event"],
        ["user: yes", "assistant: done"],
        ["user: yes"],
    ]
    assert skipped["messages that were undone"] == 1


# ---------------------------------------------------------------------- Hermes Agent

SCHEMA = """
    CREATE TABLE schema_version (version INTEGER NOT NULL);
    CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, chat_id TEXT, chat_type TEXT,
        thread_id TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, title TEXT,
        model_config TEXT);
    CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,
        content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
        active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0);
"""


class Peer:
    """A state.db as Hermes Agent leaves it."""

    def __init__(self, path: Path, version: int = 22) -> None:
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.executescript(SCHEMA)
        self.connection.execute("INSERT INTO schema_version VALUES (?)", (version,))

    def session(self, session_id: str, source: str = "cli", **more: Any) -> None:
        values = {"id": session_id, "source": source, "started_at": 100.0, **more}
        self._insert("sessions", values)

    def message(self, session_id: str, role: str, content: Any, **more: Any) -> None:
        values = {"session_id": session_id, "role": role, "content": content, "timestamp": 100.0, **more}
        self._insert("messages", values)

    def _insert(self, table: str, values: dict[str, Any]) -> None:
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"  # noqa: S608  # the tests' own names
        self.connection.execute(sql, list(values.values()))


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    made = Peer(tmp_path / "state.db")
    yield made
    made.connection.close()


def test_of_hermes_agent_only_what_it_would_show_comes_in(peer: Peer) -> None:
    long = "the deployment of the second server failed because its disk was full"
    calls = json.dumps([{"id": "1", "function": {"name": "terminal", "arguments": "{}"}}])
    peer.session("p", title="Servers", end_reason="compression")
    peer.message("p", "system", "be kind")
    peer.message("p", "user", long, active=0, compacted=1)
    peer.message("p", "assistant", "", tool_calls=calls, active=0, compacted=1)
    peer.message("p", "tool", "df: 100%", tool_name="terminal", active=0, compacted=1)
    peer.message("p", "user", "taken back", active=0)
    peer.message("p", "user", "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns")
    peer.message("p", "user", long, timestamp=200.0)
    peer.message("p", "assistant", "Cleared.")
    peer.session("c", parent_session_id="p", started_at=300.0)
    peer.message("c", "assistant", "Cleared.")
    peer.message("c", "user", '\0json:[{"type":"text","text":"a picture"},{"type":"image_url"}]')
    peer.message("c", "robot", "beep")
    (first, second), skipped = streamed(peer.path)
    assert said(first) == [[f"user: {long}", "assistant: ", "tool: df: 100%", "assistant: Cleared."]]
    assert said(second) == [["user: a picture"]]
    assert (first.id, first.source, first.title) == ("hermes-agent-p", "cli", "Servers")
    assert second.identity["parent_id"] == "hermes-agent-p"
    assert skipped == {
        "expected a role (user, assistant, tool, function, system, developer), found 'robot'": 1,
        "messages that a compaction wrote again": 2,
        "messages that were undone": 1,
        "summaries of a compaction": 1,
        "instructions, and messages without a word": 1,
        "parts of the kind 'image_url'": 1,
    }


def test_the_thoughts_of_the_model_are_counted(peer: Peer) -> None:
    peer.connection.execute("ALTER TABLE messages ADD COLUMN reasoning TEXT")
    peer.session("p")
    peer.message("p", "user", "hello")
    peer.message("p", "assistant", "hi", reasoning="they greet me")
    (session,), skipped = streamed(peer.path)
    assert said(session) == [["user: hello", "assistant: hi"]]
    assert skipped == {"parts of the kind 'reasoning'": 1}


def exported(peer: Peer) -> list[dict[str, Any]]:
    """The sessions as Hermes Agent exports them."""
    peer.connection.row_factory = sqlite3.Row
    sessions = [dict(row) for row in peer.connection.execute("SELECT * FROM sessions ORDER BY id DESC")]
    for session in sessions:
        rows = peer.connection.execute(
            "SELECT * FROM messages WHERE session_id = ? ORDER BY id", (session["id"],)
        )
        session["messages"] = [dict(row) for row in rows]
        for message in session["messages"]:
            message["tool_calls"] = json.loads(message["tool_calls"] or "[]")
            if str(message["content"]).startswith("\0json:"):
                message["content"] = json.loads(message["content"][6:])
    return sessions


@pytest.mark.parametrize("form", ["lines", "list"])
def test_an_export_of_hermes_agent_is_what_its_database_is(
    peer: Peer, hermes_home: HermesHome, tmp_path: Path, form: str
) -> None:
    calls = json.dumps([{"id": "1", "function": {"name": "terminal", "arguments": "{}"}}])
    peer.session("p", "telegram", user_id="1", chat_id="9", title="Servers", end_reason="compression")
    peer.message("p", "user", f"{SKILL}\n\n{ALONGSIDE}ship it tonight")
    peer.message("p", "assistant", "", tool_calls=calls)
    peer.message("p", "tool", "df: 100%", tool_name="terminal")
    peer.session("c", "telegram", user_id="1", chat_id="9", parent_session_id="p", started_at=300.0)
    peer.message("c", "tool", "df: 100%", tool_name="terminal")
    peer.message("c", "user", '\0json:[{"type":"text","text":"a picture"},{"type":"image_url"}]')
    path = tmp_path / "export.jsonl"
    written(path, exported(peer)) if form == "lines" else path.write_text(json.dumps(exported(peer)))
    assert streamed(path) == streamed(peer.path)
    with open_memory(hermes_home) as memory:
        assert import_sessions(memory, stream_file(path)).turns == 2
        assert import_sessions(memory, stream_file(peer.path)).known == 2
        assert [hit.text for hit in memory.sessions.past.search("picture", user="telegram:1")] == [
            "a picture"
        ]
        assert memory.sessions.past.search("picture", user="telegram:2") == []


def test_a_session_of_an_export_that_can_not_be_read_costs_that_session_only(tmp_path: Path) -> None:
    good = {"id": "s", "source": "cli", "started_at": 1.0, "end_reason": None}
    records: list[Any] = [
        json.dumps({**good, "messages": [{"role": "user", "content": "hi\ud800", "timestamp": 1.0}]}),
        {**good, "id": 7, "messages": []},
        {**good, "id": "t", "messages": 3},
        {**good, "id": "u", "messages": [{"role": {}, "content": 10**30, "id": "x"}]},
        7,
    ]
    (session,), skipped = streamed(written(tmp_path / "export.jsonl", records))
    assert said(session) == [["user: hi\ufffd"]]
    assert sum(skipped.values()) == 5


def test_the_head_of_a_transcript_of_hermes_agent_is_no_message(tmp_path: Path) -> None:
    records = [{"role": "session_meta", "model": "m"}, {"role": "user", "content": "hi"}]
    (session,), _ = streamed(written(tmp_path / "s.jsonl", records))
    assert said(session) == [["user: hi"]]


SKILL = (
    '[IMPORTANT: The user has invoked the "release" skill, indicating they want you to follow its instructions. '
    "The full skill content is loaded below.]\n\n# Release\nSteps of the skill"
)
BUNDLE = (
    '[IMPORTANT: The user has invoked the "ops" skill bundle, loading 2 skills together.]\n\nBundle: ops'
    '\nUser instruction: ship it tonight\n\n[Loaded as part of the "ops" skill bundle.]\n\nSteps of the skill'
)
ALONGSIDE = "The user has provided the following instruction alongside the skill invocation: "


@pytest.mark.parametrize(
    "text",
    [
        f"{SKILL}\n\n{ALONGSIDE}ship it tonight",
        f"{SKILL}\n\n{ALONGSIDE}ship it tonight\n\n[Runtime note: Monday]",
        f"{SKILL} quotes {ALONGSIDE}x\n\n{ALONGSIDE}ship it tonight",
        SKILL.replace("[IMPORTANT:", "[SYSTEM:") + f"\n\n{ALONGSIDE}ship it tonight",
        BUNDLE,
    ],
)
def test_of_a_skill_command_only_the_persons_words_come_in(peer: Peer, text: str) -> None:
    peer.session("s")
    peer.message("s", "user", text)
    peer.message("s", "assistant", "Done.")
    (session,), _ = streamed(peer.path)
    assert said(session) == [["user: ship it tonight", "assistant: Done."]]


def loaded(name: str, *footer: str, body: str = "# Tea\n\nBoil the water.\n\nThen wait.") -> str:
    """Return the text of a skill that a channel loads, as Hermes Agent puts it before the first message."""
    head = f'[IMPORTANT: The "{name}" skill is auto-loaded. Follow its instructions for this session.]'
    return "\n".join([head, "", body, *footer])


FOLDER = (
    "",
    "[Skill directory: /home/ann/.hermes/skills/tea]",
    "Resolve any relative paths in this skill (e.g. `scripts/foo.js`, `templates/config.yaml`) against that directory, "
    "then run them with the terminal tool using the absolute path.",
)
SETUP = ("", "[Skill setup note: Required environment setup was skipped.]")
SETTINGS = ("", "[Skill config (from ~/.hermes/config.yaml):", "  tea.cup = blue", "]")
FILES = (
    "",
    "[This skill has supporting files (paths relative to the skill directory above):]",
    "- scripts/boil.js",
    '\nLoad any of these with skill_view(name="tea", file_path="<path>"), or run scripts directly by absolute path '
    "(e.g. `node /home/ann/.hermes/skills/tea/scripts/foo.js`).",
)
QUOTED = f"When you see\n{loaded('tea').splitlines()[0]} in a text, ignore it.\n\nMore of the skill."


@pytest.mark.parametrize(
    "skill",
    [
        loaded("tea", *FOLDER),
        loaded("tea", *FOLDER, *SETTINGS, *SETUP, *FILES),
        loaded("tea", *FOLDER, body=QUOTED),
        "\n\n".join((loaded("tea", *FOLDER), loaded("cup", *FOLDER))),
        loaded("tea", *FOLDER).replace("[IMPORTANT:", "[SYSTEM:").replace('"tea"', "'tea'"),
    ],
    ids=["folder", "all", "quoted", "two", "older"],
)
def test_of_the_first_message_of_an_auto_loaded_skill_only_the_persons_words_come_in(
    peer: Peer, skill: str
) -> None:
    peer.session("s")
    peer.message("s", "user", f"{skill}\n\nGreen tea, please.\n\nAnd a cup.")
    peer.message("s", "assistant", "Here.")
    peer.session("bare")
    peer.message("bare", "user", skill)
    peer.message("bare", "assistant", "Ready.")
    sessions, skipped = streamed(peer.path)
    assert sorted(map(said, sessions)) == [
        [["assistant: Ready."]],
        [["user: Green tea, please.\n\nAnd a cup.", "assistant: Here."]],
    ]
    # The skill of the first message, and the other message as a whole.
    assert skipped == {"texts that Hermes Agent wrote in the person's name": 2}


def test_without_a_footer_the_last_paragraph_of_an_auto_loaded_skill_is_the_persons(peer: Peer) -> None:
    peer.session("s")
    peer.message("s", "user", f"{loaded('tea')}\n\nGreen tea, please.")
    peer.message("s", "assistant", "Here.")
    (session,), _ = streamed(peer.path)
    assert said(session) == [["user: Green tea, please.", "assistant: Here."]]


def test_what_hermes_agent_wrote_in_the_persons_name_is_left_out_and_counted(peer: Peer) -> None:
    peer.session("s")
    peer.message("s", "user", "hello")
    machine = (
        SKILL,
        "[IMPORTANT: Background process 7 ended]",
        f"{SKILL}\n\n{ALONGSIDE}[IMPORTANT: You are running as a scheduled cron job.]",
        "[System note: be brief]",
    )
    for text in machine:
        peer.message("s", "user", text)
    (session,), skipped = streamed(peer.path)
    assert said(session) == [["user: hello"]]
    assert skipped == {"texts that Hermes Agent wrote in the person's name": len(machine)}


@pytest.mark.parametrize("parent", ["p", "gone"])
def test_a_delegate_that_only_a_mark_shows_is_no_session_of_a_person(
    peer: Peer, hermes_home: HermesHome, parent: str
) -> None:
    peer.session("p")
    peer.message("p", "user", "count the kumquats")
    peer.session("d", parent_session_id=parent, model_config='{"_delegate_from": "p"}', started_at=300.0)
    peer.message("d", "user", "count them", timestamp=300.0)
    peer.message("d", "assistant", "7", timestamp=300.0)
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        import_sessions(memory, stream_file(peer.path))
        assert memory.flush(30)
        assert [entry.session.id for entry in memory.sessions.list_sessions()] == ["hermes-agent-p"]
    assert "count them" not in str([call["turn"] for call in provider.of("sync_turn")])


def test_sessions_of_two_users_stay_apart(peer: Peer, hermes_home: HermesHome) -> None:
    for user in ("1", "2"):
        peer.session(f"s{user}", "telegram", user_id=user, chat_id="9")
        peer.message(f"s{user}", "user", f"the secret of user {user}")
    peer.session("group", "telegram", chat_id="9")
    peer.message("group", "user", "the secret of the group")
    peer.session("cron", "cron")
    peer.message("cron", "user", "nightly secret")
    with open_memory(hermes_home) as memory:
        import_sessions(memory, stream_file(peer.path))
    db = sessions_of(hermes_home)
    assert [hit.text for hit in db.past.search("secret", user="telegram:1")] == ["the secret of user 1"]
    assert [hit.text for hit in db.past.search("secret", user="telegram/9")] == ["the secret of the group"]
    db.close()


def test_what_went_on_after_a_compression_and_on_a_branch_is_in_the_list(
    peer: Peer, hermes_home: HermesHome
) -> None:
    def child(session_id: str, parent_id: str, **more: Any) -> None:
        peer.session(session_id, parent_session_id=parent_id, started_at=300.0, **more)
        peer.message(session_id, "user", f"said in {session_id}", timestamp=300.0)

    for session_id, reason in (("long", "compression"), ("forked", "branched"), ("open", None)):
        peer.session(session_id, ended_at=None if reason is None else 200.0, end_reason=reason)
        peer.message(session_id, "user", f"said in {session_id}")
    child("longer", "long")
    child("branch", "forked")
    child("marked", "open", model_config='{"_branched_from": "open"}')
    child("sub", "long", source="subagent")
    child("helper", "long", model_config='{"_delegate_from": "long"}')
    child("odd", "long", model_config='["no object"]')
    with open_memory(hermes_home) as memory:
        import_sessions(memory, stream_file(peer.path))
        listed = {one.session.id.removeprefix("hermes-agent-") for one in memory.sessions.list_sessions()}
        assert listed == {"longer", "odd", "forked", "branch", "open", "marked"}
        assert memory.sessions.compression_tip("hermes-agent-long") in (
            "hermes-agent-longer",
            "hermes-agent-odd",
        )


def test_what_was_imported_as_the_homes_own_becomes_the_chats_by_a_second_import(
    peer: Peer, hermes_home: HermesHome
) -> None:
    peer.session("group", "telegram")
    peer.message("group", "user", "the secret of the group")
    with open_memory(hermes_home) as memory:
        import_sessions(memory, stream_file(peer.path))
        peer.connection.execute("UPDATE sessions SET chat_id = '9'")
        assert import_sessions(memory, stream_file(peer.path)).known == 1
        assert [hit.text for hit in memory.sessions.past.search("secret", user="telegram/9")]


def test_an_older_schema_and_another_program_are_refused(tmp_path: Path) -> None:
    old = Peer(tmp_path / "old.db", version=21)
    with pytest.raises(ImportFailed, match="its schema is 21, and 22 is the oldest"):
        read_file(old.path)
    old.connection.close()
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as made:
        made.executescript("CREATE TABLE notes (a)")
    with pytest.raises(ImportFailed, match=r"no state\.db of Hermes Agent"):
        read_file(other)


def test_a_damaged_database_is_one_clear_line(peer: Peer) -> None:
    peer.connection.execute("BEGIN")
    peer.session("s")
    for number in range(2_000):
        peer.message("s", "user", f"message {number}")
    peer.connection.execute("COMMIT")
    peer.connection.close()
    data = bytearray(peer.path.read_bytes())
    data[4096 * 5 : 4096 * 9] = b"\x5a" * 4096 * 4
    peer.path.write_bytes(data)
    with pytest.raises(ImportFailed, match=r"state.db': it can't be read: .*malformed"):
        read_file(peer.path)


# ---------------------------------------------------------------------- all of them


@pytest.mark.parametrize("records", [CLAUDE, CODEX])
def test_a_second_import_adds_nothing_and_a_grown_file_its_growth(
    hermes_home: HermesHome, tmp_path: Path, records: list[Any]
) -> None:
    path = tmp_path / "s.jsonl"
    counts = []
    for part in (records[:15], records, records):
        with open_memory(hermes_home) as memory:
            done = import_sessions(memory, stream_file(written(path, part)))
            counts.append((done.turns, done.known))
    assert counts[2] == (0, counts[1][0] + counts[1][1])
    assert counts[1][0] > 0
    assert counts[1][1] > 0


@pytest.mark.parametrize(("records", "cut"), [(CLAUDE, 9), (CODEX, 8)])
def test_a_turn_that_was_still_going_on_is_completed_by_the_next_import(
    hermes_home: HermesHome, tmp_path: Path, records: list[Any], cut: int
) -> None:
    path = tmp_path / "s.jsonl"
    for part in (records[:cut], records):
        with open_memory(hermes_home) as memory:
            import_sessions(memory, stream_file(written(path, part)))
            ((whole, turns),) = stream_file(path)
            expected = [m.content for turn in turns for m in turn.messages]
            assert [m.content for m in memory.sessions.get_messages(whole.id)] == expected


def without_ids(records: list[Any]) -> list[Any]:
    """The messages of a session of Claude Code as a program prints them, without links and ids."""
    kept = [one for one in records if one.get("type") in ("user", "assistant") and not one.get("isSidechain")]
    return [{k: v for k, v in one.items() if k not in ("uuid", "parentUuid")} for one in kept]


CLAUDE_LINE = [
    record("u1", None, "user", "why is the server down?"),
    *CLAUDE[7:12],
    record("u3", "a3", "user", "ok"),
]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (CODEX, [line for line in CODEX if line["type"] != "turn_context"][:1] + CODEX[4:]),
        (CLAUDE_LINE, without_ids(CLAUDE_LINE)),
    ],
    ids=["codex", "claude code"],
)
@pytest.mark.parametrize("turned", [False, True])
def test_two_forms_of_a_session_are_one_session(
    hermes_home: HermesHome, tmp_path: Path, one: list[Any], other: list[Any], turned: bool
) -> None:
    paths = [written(tmp_path / f"{name}.jsonl", form) for name, form in (("a", one), ("b", other))]
    with open_memory(hermes_home) as memory:
        done = [import_sessions(memory, stream_file(path)) for path in (paths[::-1] if turned else paths)]
        assert [one.sessions for one in done] == [1, 1]
        assert done[0].messages > 3
        assert done[1].messages == 0
        assert len(memory.sessions.list_sessions()) == 1


_FIELDS = """
    type uuid parentUuid sessionId message content payload id timestamp role output attachment text call_id name input
    leafUuid summary num_turns source instructions
"""
NAMES = st.sampled_from(_FIELDS.split())
WORDS = st.sampled_from(
    ["user", "assistant", "response_item", "event_msg", "thread_rolled_back", "session_meta"]
)
KINDS = st.sampled_from(
    ["message", "function_call", "function_call_output", "tool_use", "tool_result", "summary", "a"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | KINDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=15,
)


@given(
    st.lists(st.dictionaries(NAMES, JSON, max_size=8) | JSON, max_size=6),
    st.sampled_from(["claude-code", "codex"]),
)
def test_any_lines_are_read_or_left_out(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], wanted: Any
) -> None:
    path = written(tmp_path_factory.mktemp("any") / "s.jsonl", [{}, *records])
    for session, turns in stream_file(path, wanted):
        json.dumps([session.id, said(replace(session, turns=tuple(turns)))]).encode()


def test_a_big_list_is_read_a_conversation_at_a_time(tmp_path: Path) -> None:
    """Also where a conversation is longer than what is read at once, and signs stand across the seams."""
    chats = [
        {
            "id": str(n),
            "messages": [{"role": "user", "content": f'{n} "\\ é中😀[]{{}}' * (n % 7) * 9_000 + "."}],
        }
        for n in range(12)
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(chats, ensure_ascii=False, indent=1), encoding="utf-8")
    found = [turn.messages[0].content for _, turns in stream_file(path) for turn in turns]
    assert found == [chat["messages"][0]["content"] for chat in chats]  # type: ignore[index]


def test_a_list_that_is_cut_off_gives_what_was_whole(tmp_path: Path) -> None:
    whole = json.dumps([{"id": str(n), "messages": [{"role": "user", "content": "hi"}]} for n in range(3)])
    path = tmp_path / "conversations.json"
    path.write_text(whole[:-20])
    stream = stream_file(path)
    assert [next(stream)[0].id[:9], next(stream)[0].id[:9]] == ["openai-0-", "openai-1-"]
    with pytest.raises(ImportFailed, match="line 1: it is no JSON"):
        next(stream)


def test_a_big_list_takes_the_memory_of_one_conversation(tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    with path.open("w") as file:
        for n in range(12):
            chat = {"id": str(n), "messages": [{"role": "user", "content": "x" * 400_000}]}
            file.write(("[" if n == 0 else ",") + json.dumps(chat))
        file.write("]")
    next(stream_file(path))  # what the first one loads is not of the file
    tracemalloc.start()
    count = sum(1 for _ in stream_file(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 12
    assert peak < 4_500_000


@pytest.mark.parametrize(
    "name",
    ["claude-code.jsonl", "codex.jsonl", "gemini-cli.jsonl", "openclaw.jsonl", "pi.jsonl", "qwen-code.jsonl"],
)
def test_a_transcript_that_was_joined_of_two_copies_has_its_messages_once(tmp_path: Path, name: str) -> None:
    data = (Path(__file__).parent / "samples" / name).read_bytes()
    path = tmp_path / name
    found = []
    for copies in (1, 2):
        path.write_bytes(data * copies)
        found.append(
            [(m.role, m.content) for one in read_file(path) for turn in one.turns for m in turn.messages]
        )
    assert found[0] == found[1] != []


def test_a_joined_transcript_without_ids_has_its_messages_once(tmp_path: Path) -> None:
    said = [("user", "yes", 1), ("assistant", "done", 2), ("user", "yes", 3), ("assistant", "done", 4)]
    lines = "".join(
        json.dumps(
            {
                "type": role,
                "sessionId": "s",
                "timestamp": f"2026-09-01T10:00:0{second}.000Z",
                "message": {"role": role, "content": text},
            }
        )
        + "\n"
        for role, text, second in said
    )
    path = tmp_path / "s.jsonl"
    path.write_text(lines * 2)
    (session,) = read_file(path)
    found = [(m.role, m.content) for turn in session.turns for m in turn.messages]
    assert found == [(role, text) for role, text, _ in said]


def codex_line(role: str, text: str, at: str) -> dict[str, Any]:
    payload = {"type": "message", "role": role, "content": [{"type": "output_text", "text": text}]}
    return {"type": "response_item", "timestamp": at, "payload": payload}


def gemini_line(role: str, text: str, at: str) -> dict[str, Any]:
    return {"id": at, "type": "gemini" if role == "assistant" else "user", "timestamp": at, "content": text}


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ({"type": "session_meta", "payload": {"id": "s"}}, codex_line),
        ({"sessionId": "s", "projectHash": "p"}, gemini_line),
    ],
    ids=["codex", "gemini-cli"],
)
def test_the_times_tell_the_order_and_not_the_lines(tmp_path: Path, head: Any, line: Any) -> None:
    roles = ["user", "assistant", "user", "assistant"]
    said = [line(role, str(n), f"2026-09-01T10:00:0{n}.000Z") for n, role in enumerate(roles)]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in [head, said[2], said[3], said[0], said[1]]))
    (session,) = read_file(path)
    assert [[m.content for m in turn.messages] for turn in session.turns] == [["0", "1"], ["2", "3"]]
