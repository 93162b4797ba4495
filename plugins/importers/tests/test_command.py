from __future__ import annotations

import gzip
import importlib
import json
import os
import re
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome, Memory, open_memory
from hermes_core.config import set_value

SAMPLES = Path(__file__).parent / "samples"

LISTS = "[" + "[]," * 2_000_000 + "[]]"
"""JSON of six megabytes, whose values take more than a hundred."""

OPENAI = {
    "messages": [{"role": "user", "content": "I play chess"}, {"role": "assistant", "content": "Nice."}]
}
LOCOMO = {
    "sample_id": "talk-1",
    "conversation": {
        "speaker_a": "Ana",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ana", "dia_id": "D1:1", "text": "I play chess on Mondays"},
            {"speaker": "Ben", "dia_id": "D1:2", "text": "I did not know"},
        ],
    },
}


def test_an_import_may_run_twice(hermes: Any, data: Any, chat: Path) -> None:
    assert hermes("import", chat).stdout == "3 turns (6 messages) of 2 sessions imported\n"
    again = hermes("import", chat).stdout
    assert again == "0 turns (0 messages) of 2 sessions imported, 3 known already\n"
    assert data("import", chat) == {"sessions": 2, "turns": 0, "messages": 0, "known": 3, "skipped": []}
    assert len(data("sessions", "list")) == 2


def test_a_file_that_grew_brings_only_what_is_new(hermes: Any, data: Any, chat: Path) -> None:
    hermes("import", chat)
    with chat.open("a") as file:
        file.write('\n{"session": "s2", "role": "user", "content": "I am back"}')
        file.write('\n{"session": "s2", "role": "assistant", "content": "Welcome."}')
    assert data("import", chat) == {"sessions": 2, "turns": 1, "messages": 2, "known": 3, "skipped": []}


@pytest.mark.parametrize(("name", "content"), [("openai", OPENAI), ("locomo", LOCOMO), ("locomo", [LOCOMO])])
def test_a_format_is_named_or_found(hermes: Any, data: Any, tmp_path: Path, name: str, content: Any) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(content))
    assert data("import", path)["turns"] == 1
    assert data("import", "--format", name, path)["known"] == 1
    assert "chess" in data("recall", "Who plays chess?")["results"][0]["text"]


def test_each_turn_reaches_the_provider_once(
    hermes: Any, data: Any, hermes_home: HermesHome, notes: Path, chat: Path
) -> None:
    (notes / "__init__.py").write_text(
        "from pathlib import Path\n"
        "from hermes_core import MemoryProvider\n"
        "class Notes(MemoryProvider):\n"
        "    name = 'notes'\n"
        "    def sync_turn(self, turn, session):\n"
        "        with Path(session.home, 'taken').open('a') as file:\n"
        "            file.write(turn.user + '\\n')\n"
    )
    set_value(hermes_home, "memory.provider", "notes")
    hermes("import", chat)
    hermes("import", chat)
    taken = (hermes_home.path / "taken").read_text().splitlines()
    assert taken == ["My cat is called Momo", "She is black and white", "Tomorrow I fly to Lisbon"]
    assert data("outbox", "list") == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"hello", "line 1: it is no JSON"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"\x1f\x8b\x08", "it is packed with gzip; unpack it"),
        (b'{"a": 1}', "no known format: it begins with ['a']"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"session": "s", "role": "user", "content": "x"}\n{"session": "s"}', "line 2"),
        (b'{"session": "s", "role": "user", "content": "x"}\nnonsense', "line 2: it is no JSON"),
    ],
)
def test_a_bad_file_is_one_clear_line_and_stores_nothing(
    hermes: Any, data: Any, tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    result = hermes("import", path, code=1)
    assert result.stderr.startswith(f"error: {str(path)!r}: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert data("sessions", "list") == []


def test_times_in_milliseconds_are_times_too(hermes: Any, data: Any, tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(
        '{"session": "s", "role": "user", "content": "My cat is Momo", "timestamp": 1716672060000}'
    )
    hermes("import", path)
    assert data("sessions", "search", "cat")[0]["timestamp"] == 1716672060
    assert "2024-05-2" in hermes("sessions", "list").stdout
    assert "May 2024" in hermes("recall", "What is the cat called?").stdout


@pytest.mark.parametrize("time", [-99999999999, "9999-12-31T23:59:59Z"])
def test_a_time_that_no_calendar_holds_is_refused(hermes: Any, tmp_path: Path, time: Any) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"session": "s", "role": "user", "content": "hi", "timestamp": time}))
    assert "line 1, timestamp: expected seconds" in hermes("import", path, code=1).stderr


def test_the_wrong_format_is_named(hermes: Any, chat: Path) -> None:
    assert "this is not a LoCoMo file" in hermes("import", "--format", "locomo", chat, code=1).stderr
    assert "is not one of" in hermes("import", "--format", "pdf", chat, code=2).stderr


def test_without_the_package_the_command_is_named_with_the_way_to_install_it(
    hermes: Any, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_core.loader.extensions.installed_entry_points", lambda: iter(()))
    refused = hermes("import", chat, code=None)
    assert refused.exit_code != 0
    assert "hermes-memory-importers" in refused.stderr
    assert re.search(r"run: .* install \S*plugins/importers", refused.stderr)


def test_files_of_no_known_format_in_a_folder_are_counted(hermes: Any, chat: Path, tmp_path: Path) -> None:
    chats = tmp_path / "chats"
    chats.mkdir()
    (chats / "other.json").write_text('{"a": 1}')
    (chats / "line.jsonl").write_bytes(chat.read_bytes())
    several = " ".join(hermes("import", chats).stdout.split())
    assert "3 turns (6 messages) of 2 sessions in 2 files imported" in several
    assert "1 x files of no known format" in several


def test_a_file_may_come_on_standard_input(hermes: Any, chat: Path) -> None:
    assert hermes("import", "-", typed=chat.read_bytes()).stdout.startswith("3 turns (6 messages)")
    assert "is no JSON" in hermes("import", "-", typed="hello", code=1).stderr


@pytest.mark.skipif(os.name == "nt", reason="pipes have no path there")
def test_a_file_may_be_a_pipe(hermes: Any, chat: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(chat.read_bytes()))
    writer.start()
    assert hermes("import", pipe).stdout.startswith("3 turns (6 messages)")
    writer.join()


def test_a_line_that_was_left_out_is_told_with_its_place(hermes: Any, tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(f"{json.dumps(OPENAI)}\nnonsense\n")
    assert "1 x it is no JSON, expecting value (at line 2)" in hermes("import", path, code=3).stderr


def test_a_file_that_is_cut_off_gives_what_was_whole_and_says_so(hermes: Any, tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([OPENAI, {"id": "other", **OPENAI}])[:-20])
    done = hermes("import", path, code=3)
    assert done.stdout.startswith("1 turn (2 messages) of 1 session imported\n")
    assert "read up to here: " in done.stderr
    assert "line 1: it is no JSON" in done.stderr


def test_an_archive_is_to_be_unpacked(hermes: Any, tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps([OPENAI]))
    assert "unpack it" in hermes("import", path, code=1).stderr


@pytest.mark.parametrize("words", [[], ["/no/such/file"], ["/no/such/*.jsonl"]])
def test_a_file_is_needed(hermes: Any, words: list[str]) -> None:
    assert "see: hermes-memory import --help" in hermes("import", *words, code=2).stderr


def claude_session(session_id: str, *words: str, **more: Any) -> str:
    kinds = ("user", "assistant")
    records = [
        {
            "type": kinds[number % 2],
            "uuid": f"{session_id}-{number}",
            "parentUuid": f"{session_id}-{number - 1}" if number else None,
            "sessionId": session_id,
            "timestamp": f"2026-01-02T10:00:0{number}Z",
            "message": {"role": kinds[number % 2], "content": [{"type": "text", "text": text}]},
            **more,
        }
        for number, text in enumerate(words)
    ]
    return "".join(f"{json.dumps(record)}\n" for record in records)


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """A folder as Claude Code leaves it: sessions in folders, with files of other kinds beside them."""
    folder = tmp_path / "projects"
    for name, text in (
        ("a/s1.jsonl", claude_session("s1", "My cat is called Momo", "Noted.")),
        ("b/s2.jsonl", claude_session("s2", "I fly to Lisbon", "When?", "Tomorrow", "Fine.")),
        ("b/s2/agent-1.jsonl", claude_session("s2", "look", "seen", isSidechain=True)),
        ("b/settings.json", '{"theme": "dark", "type": "x", "sessionId": "y"}'),
        ("b/empty.jsonl", ""),
        ("b/notes.md", "# Notes"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_folder_brings_every_conversation_below_it(hermes: Any, data: Any, projects: Path) -> None:
    done = hermes("import", projects).stdout
    assert done.startswith("3 turns (6 messages) of 2 sessions in 5 files imported\n")
    assert f"2 x files of no known format (first at {projects / 'b/empty.jsonl'})" in " ".join(done.split())
    assert f"2 x messages of a subagent (first at {projects / 'b/s2/agent-1.jsonl'}: line 1)" in " ".join(
        done.split()
    )
    assert data("import", projects)["known"] == 3


def test_a_pattern_and_several_files_bring_each_file_once(hermes: Any, projects: Path) -> None:
    done = hermes("import", projects / "*" / "*.jsonl", projects / "a" / "s1.jsonl", projects / "a").stdout
    assert done.startswith("3 turns (6 messages) of 2 sessions in 3 files imported\n")


def test_a_wrong_file_among_several_costs_that_file_only(hermes: Any, projects: Path) -> None:
    wrong = projects / "a" / "r.jsonl"
    wrong.write_bytes(b"\xff\xfe")
    done = hermes("import", projects, code=3)
    assert done.stdout.startswith("3 turns (6 messages) of 2 sessions")
    assert f"{str(wrong)!r}: byte 0 is not UTF-8 text" in " ".join(done.stderr.split())


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_packed_file_is_read_and_its_damage_said(hermes: Any, tmp_path: Path, suffix: str) -> None:
    import zstandard

    text = claude_session("s1", "My cat is called Momo", "Noted.").encode()
    packed = (
        gzip.compress(text)
        if suffix == ".gz"
        else zstandard.compress(text[:200]) + zstandard.compress(text[200:])
    )
    folder = tmp_path / "packed"
    folder.mkdir()
    path = folder / f"s1.jsonl{suffix}"
    path.write_bytes(packed)
    assert hermes("import", path).stdout == "1 turn (2 messages) of 1 session imported\n"
    assert hermes("import", folder).stdout.startswith(
        "0 turns (0 messages) of 1 session in 1 file imported, 1 known"
    )
    path.write_bytes(packed[:-5])
    # The second frame begins within the first line, of which nothing is whole.
    assert "the packed file is cut off" in hermes("import", path, code=3 if suffix == ".gz" else 1).stderr


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_packed_file_that_would_fill_the_disk_is_refused(
    hermes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    import zstandard

    # The package has a function of the same name.
    monkeypatch.setattr(importlib.import_module("hermes_memory_importers.unpack"), "FREE_BYTES", 1000)
    text = b" " * 20_000_000
    path = tmp_path / f"s1.jsonl{suffix}"
    path.write_bytes(gzip.compress(text) if suffix == ".gz" else zstandard.compress(text))
    error = " ".join(hermes("import", path, code=1).stderr.split())
    assert "bytes would become more than" in error
    assert "packed with" not in error


@pytest.mark.parametrize("text", [f"[{LISTS}]", f'{{"messages": {LISTS}}}\n{{}}\n'])
def test_a_file_whose_values_would_fill_the_memory_is_refused(hermes: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "chat.json"
    path.write_text(text)
    assert "2,000,000" in " ".join(hermes("import", path, code=1).stderr.split())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            claude_session("s1", "look", "seen", isSidechain=True),
            "2 x messages of a subagent (first at line 1)",
        ),
        (
            claude_session("s1", "note", isMeta=True),
            "1 x notes and summaries of the program's own (at line 1)",
        ),
        ('{"messages": []}', "1 x conversations without a word (at conversation 1)"),
        (
            '{"session": "s", "role": "system", "content": "be kind"}',
            "1 x instructions, and messages without a word (at line 1)",
        ),
        (
            '{"timestamp": "2026-01-02", "type": "session_meta", "payload": {"id": "c1"}}',
            "no conversation is there in",
        ),
    ],
)
def test_an_import_that_brings_nothing_says_why_and_where(
    hermes: Any, hermes_home: HermesHome, tmp_path: Path, content: str, reason: str
) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_text(content)
    done = hermes("import", path, code=3)
    assert f"nothing was imported: {reason}" in " ".join(done.stderr.split())
    assert not hermes_home.state_db.exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "nothing was imported: no conversation is there" in hermes("import", empty, code=3).stderr


@pytest.mark.parametrize(
    "content",
    [
        {"conversation": [{"from": "me", "text": "hi"}]},
        {"conversation": "hi"},
        {"mapping": {"a": {"x": 1}}},
        {"messages": ["hi", "hello"]},
        {"messages": [{"type": "user", "content": "hi"}, {"type": "gemini", "content": "hello"}]},
        {"role": "admin", "name": "Ann"},
        {"type": "click", "payload": {"x": 1}},
        {"type": "message", "sessionId": "s", "text": "hi"},
        {"chat_messages": "none"},
    ],
)
def test_a_shape_that_is_not_recognised_is_unknown(hermes: Any, tmp_path: Path, content: Any) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(content))
    for form in (content, [content]):
        path.write_text(json.dumps(form))
        assert "no known format: it begins with" in hermes("import", path, code=1).stderr


def test_a_long_import_writes_lines_of_its_progress_where_no_terminal_is(
    hermes: Any, chat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_core.cli.progress.DEFAULT_LINE_STEPS", 2)
    monkeypatch.setattr("hermes_core.cli.progress.LINE_STEPS", {"files": 1})
    assert hermes("import", chat).stderr == "importing: 2 turns\n"
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.jsonl").write_text(
            f'{{"session": "{name}", "role": "user", "content": "Hi {name}"}}'
        )
    assert hermes("import", folder).stderr.splitlines() == [
        "importing: 1 of 2 files",
        "importing: 2 turns",
        "importing: 2 of 2 files",
    ]


def test_a_short_import_writes_nothing_beside_its_result(hermes: Any, chat: Path) -> None:
    assert hermes("import", chat).stderr == ""


class _Vectors:
    """An index of meaning that notes when it is asked to make vectors."""

    fault = mismatch = ""

    def __init__(self, steps: list[str]) -> None:
        self._steps = steps

    def wake(self) -> None:
        self._steps.append("wake")

    def missing(self) -> int:
        return 3

    def build(self, progress: Any) -> int:
        self._steps.append("build")
        progress(3)
        return 3

    def close(self) -> None:
        pass


def test_the_vectors_of_an_import_come_after_it(
    hermes: Any, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr("hermes_core.sessions.past_sessions.PastSessions.vectors", _Vectors(steps))
    end_turn = Memory.end_turn

    def noted(self: Memory, *args: Any, **kwargs: Any) -> Any:
        steps.append("turn")
        return end_turn(self, *args, **kwargs)

    monkeypatch.setattr(Memory, "end_turn", noted)
    hermes("import", chat)
    assert steps[:4] == ["turn", "turn", "turn", "build"]
    assert "wake" in steps[4:]


def test_a_file_may_be_that_of_a_user_of_a_gateway(hermes: Any, chat: Path, hermes_home: HermesHome) -> None:
    hermes_home.config_yaml.parent.mkdir(parents=True, exist_ok=True)
    hermes_home.config_yaml.write_text("memory: {per_user: true}")
    ann, bob = ("--user", "telegram:1"), ("--user", "telegram:2")
    assert "3 turns (6 messages)" in hermes("import", chat, *ann).stdout
    assert "3 known already" in hermes("import", chat, *ann).stdout
    refused = hermes("import", chat, *bob, code=1).stderr
    assert "belongs to another user" in refused
    assert len(refused.splitlines()) == 1
    assert "2 memories imported" in hermes("import", SAMPLES / "mem0.json", *bob).stdout
    assert "2 memories imported" in hermes("import", SAMPLES / "mem0.json", "--user", "home").stdout
    with open_memory(hermes_home) as memory:
        of = {user: memory.session("", platform="telegram", user_id=user) for user in "12"}
        found = {user: memory.sessions.list_sessions(user=one.owner) for user, one in of.items()}
        assert {user: len(sessions) for user, sessions in found.items()} == {"1": 2, "2": 0}
        assert memory.sessions.list_sessions(user="") == []
        waiting = {user: len(memory.curated.of(one).entries("user")) for user, one in of.items()}
        assert (waiting, len(memory.curated.entries("user"))) == ({"1": 0, "2": 2}, 2)


def test_what_a_program_saved_that_is_no_note_is_a_message_of_its_person(
    hermes: Any, tmp_path: Path, hermes_home: HermesHome
) -> None:
    hermes_home.config_yaml.parent.mkdir(parents=True, exist_ok=True)
    hermes_home.config_yaml.write_text("memory: {per_user: true}")
    path = tmp_path / "mem0.json"
    path.write_text((SAMPLES / "mem0.json").read_text().replace("part01", "a long story " * 1000))
    for user in ("home", "telegram:1"):
        assert "2 memories imported" in hermes("import", path, "--user", user).stdout
    with open_memory(hermes_home) as memory:
        for owner in ("", memory.session("", platform="telegram", user_id="1").owner):
            assert len(memory.sessions.list_sessions(user=owner)) == 1


@pytest.mark.parametrize(
    ("words", "reason", "code"),
    [
        (["--user", "ann"], "'ann' is no id of a user or chat", 1),
        (["--user", "app:1", "--user", "app:2"], "give --user once", 2),
        (["--keep-origins"], "are for one archive that export wrote", 2),
    ],
)
def test_words_that_do_not_go_with_a_file_are_refused(
    hermes: Any, chat: Path, hermes_home: HermesHome, words: list[str], reason: str, code: int
) -> None:
    assert reason in hermes("import", chat, *words, code=code).stderr
    assert not hermes_home.state_db.exists()
