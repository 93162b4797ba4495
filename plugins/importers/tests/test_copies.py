"""Conversations that a program copied under a new id: each message comes in once, and the provider hears it once."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_core.memory import open_memory
from hermes_memory_importers import stream_file
from hermes_memory_importers.run import import_sessions
from hermes_memory_testing.fakes import RecordingProvider
from plugins.importers.tests.test_transcripts import Peer

Words = Sequence[str]


def claude(path: Path, session_id: str, words: Words, *, copies: bool = True) -> Path:
    """A session of Claude Code, each word said at a time of its own: its copies in other sessions have that time too."""
    records = [
        {
            "type": ("user", "assistant")[number % 2],
            "uuid": f"{word}-{number}" if copies else f"{session_id}-{number}",
            "parentUuid": None if not number else f"{words[number - 1]}-{number - 1}",
            "sessionId": session_id,
            "timestamp": f"2026-01-02T10:00:{number:02}.{sum(map(ord, word)) % 1000:03}Z",
            "message": {
                "role": ("user", "assistant")[number % 2],
                "content": [{"type": "text", "text": word}],
            },
        }
        for number, word in enumerate(words)
    ]
    if not copies:
        for record in records:
            del record["parentUuid"]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def codex(path: Path, session_id: str, words: Words, parent: str = "") -> Path:
    """A session of Codex. A fork has the items of its parent with the time of the fork."""
    meta: dict[str, Any] = {"id": session_id, "timestamp": "2026-01-02T10:00:00Z"}
    records = [{"type": "session_meta", "payload": meta | ({"forked_from_id": parent} if parent else {})}]
    records += [{"type": "session_meta", "payload": {**meta, "id": parent}}] if parent else []
    for number, word in enumerate(words):
        role, kind = (("user", "input_text"), ("assistant", "output_text"))[number % 2]
        content = [{"type": kind, "text": word}]
        records.append(
            {"type": "response_item", "payload": {"type": "message", "role": role, "content": content}}
        )
    lines = [
        {"timestamp": f"2026-01-02T10:{len(parent):02}:{at:02}Z", **one} for at, one in enumerate(records)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def imported(home: HermesHome, paths: Sequence[Path]) -> tuple[list[list[str]], Counter[str]]:
    """The conversations that are stored after the import of all files, twice, and what the provider heard of the person."""
    provider = RecordingProvider()
    with open_memory(home, provider=provider) as memory:
        for path in (*paths, *paths):
            import_sessions(memory, stream_file(path))
        assert memory.flush(30)
        listed = memory.sessions.list_sessions(limit=100)
        stored = [[m.content for m in memory.sessions.get_messages(entry.session.id)] for entry in listed]
    return sorted(stored), Counter(call["turn"].user for call in provider.of("sync_turn"))


ORDERS = list(itertools.permutations(range(2)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("copies", [True, False], ids=["same uuids", "new uuids"])
def test_a_resumed_session_of_claude_code_is_one_conversation(
    hermes_home: HermesHome, tmp_path: Path, order: tuple[int, ...], copies: bool
) -> None:
    files = [
        claude(tmp_path / "1.jsonl", "s1", ["where?", "here", "why?", "so"], copies=copies),
        claude(tmp_path / "2.jsonl", "s2", ["where?", "here", "why?", "so", "and now?", "go"], copies=copies),
    ]
    stored, heard = imported(hermes_home, [files[at] for at in order])
    assert stored == [["where?", "here", "why?", "so", "and now?", "go"]]
    assert heard == {"where?": 1, "why?": 1, "and now?": 1}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_forks_of_claude_code_each_message_comes_in_once(
    hermes_home: HermesHome, tmp_path: Path, order: tuple[int, ...]
) -> None:
    files = [
        claude(tmp_path / "1.jsonl", "s1", ["where?", "here", "left?", "no"]),
        claude(tmp_path / "2.jsonl", "s2", ["where?", "here", "right?", "yes", "sure?", "yes!"]),
        claude(tmp_path / "3.jsonl", "s3", ["where?", "here", "right?", "yes", "done?", "yes."]),
    ]
    stored, heard = imported(hermes_home, [files[at] for at in order])
    assert len(stored) == 3
    messages = Counter(itertools.chain.from_iterable(stored))
    assert messages == dict.fromkeys(
        ["where?", "here", "left?", "no", "right?", "yes", "sure?", "yes!", "done?", "yes."], 1
    )
    assert heard == dict.fromkeys(["where?", "left?", "right?", "sure?", "done?"], 1)


@pytest.mark.parametrize("order", ORDERS)
def test_of_a_fork_of_codex_the_copied_beginning_comes_in_once(
    hermes_home: HermesHome, tmp_path: Path, order: tuple[int, ...]
) -> None:
    files = [
        codex(tmp_path / "1.jsonl", "c1", ["where?", "here", "left?", "no"]),
        codex(tmp_path / "2.jsonl", "c2", ["where?", "here", "right?", "yes"], "c1"),
    ]
    stored, heard = imported(hermes_home, [files[at] for at in order])
    assert Counter(itertools.chain.from_iterable(stored)) == dict.fromkeys(
        ["where?", "here", "left?", "no", "right?", "yes"], 1
    )
    assert heard == dict.fromkeys(["where?", "left?", "right?"], 1)


def test_a_fork_that_adds_nothing_is_not_a_conversation_of_its_own(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    files = [
        codex(tmp_path / f"{name}.jsonl", name, ["where?", "here"], parent)
        for name, parent in (("c1", ""), ("c2", "c1"))
    ]
    stored, heard = imported(hermes_home, files)
    assert stored == [["where?", "here"]]
    assert heard == {"where?": 1}
    with open_memory(hermes_home) as memory:
        (entry,) = memory.sessions.list_sessions()
        assert (entry.session.id, entry.session.relation, entry.session.parent_id) == ("codex-c1", "", "")


def test_two_forks_of_a_session_that_is_not_there_share_their_beginning(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    files = [
        codex(tmp_path / f"{name}.jsonl", name, ["where do we meet tonight?", "here", name, "yes"], "gone")
        for name in ("c2", "c3")
    ]
    stored, heard = imported(hermes_home, files)
    assert stored == [["c3", "yes"], ["where do we meet tonight?", "here", "c2", "yes"]]
    assert heard == dict.fromkeys(["where do we meet tonight?", "c2", "c3"], 1)


def test_a_fork_that_continues_another_answer_to_the_same_prompt_keeps_it(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    files = [
        claude(tmp_path / "1.jsonl", "s1", ["where?", "here"]),
        claude(tmp_path / "2.jsonl", "s2", ["where?", "there", "why?", "so"]),
    ]
    stored, heard = imported(hermes_home, files)
    assert stored == [["there", "why?", "so"], ["where?", "here"]]
    assert heard == {"where?": 1, "why?": 1}


def test_the_same_words_at_another_time_are_another_conversation(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    one = claude(tmp_path / "1.jsonl", "s1", ["where?", "here"])
    two = claude(tmp_path / "2.jsonl", "s2", ["where?", "here"])
    two.write_text(two.read_text().replace("2026-01-02", "2026-01-03"))
    stored, heard = imported(hermes_home, [one, two])
    assert stored == [["where?", "here"], ["where?", "here"]]
    assert heard == {"where?": 2}


def test_a_branch_of_hermes_agent_holds_what_came_after_its_parent(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    peer = Peer(tmp_path / "state.db")
    peer.session("p", end_reason="branched")
    peer.session("c", parent_session_id="p", started_at=300.0)
    for session_id, at, words in (
        ("p", 100.0, ["where?", "here"]),
        ("c", 300.0, ["where?", "here", "why?", "so"]),
    ):
        for number, word in enumerate(words):
            peer.message(session_id, ("user", "assistant")[number % 2], word, timestamp=at)
    peer.connection.close()
    stored, heard = imported(hermes_home, [peer.path])
    assert stored == [["where?", "here"], ["why?", "so"]]
    assert heard == {"where?": 1, "why?": 1}
