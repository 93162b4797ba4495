"""Files that are imported once more: nothing of them is lost, and nothing comes in twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hermes_core import HermesHome
from hermes_core.importers import stream_file
from hermes_core.importers.run import import_sessions
from hermes_core.memory import open_memory


def imported(home: HermesHome, path: Path, written: str) -> list[str]:
    """What is stored of the one conversation after the file was imported, and after it was imported again."""
    path.write_text(written)
    with open_memory(home) as memory:
        for _ in range(2):
            import_sessions(memory, stream_file(path))
        ((session, _),) = stream_file(path)
        return [m.content for m in memory.sessions.get_messages(session.id)]


def lines(*said: str, **more: Any) -> str:
    roles = ("user", "assistant")
    return "\n".join(
        json.dumps({"session": "s", "role": roles[i % 2], "content": text, **more})
        for i, text in enumerate(said)
    )


def chatgpt(*nodes: tuple[str, str]) -> str:
    """A branch of (id, text), the person first."""
    mapping, parent = {}, None
    for i, (name, text) in enumerate(nodes):
        message = {
            "id": name,
            "author": {"role": ("user", "assistant")[i % 2]},
            "content": {"content_type": "text", "parts": [text]},
        }
        mapping[name] = {"id": name, "parent": parent, "message": message}
        parent = name
    return json.dumps([{"conversation_id": "c", "mapping": mapping, "current_node": parent}])


def test_an_answer_that_came_since_is_brought_in(hermes_home: HermesHome, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for said in (("a", "b", "c"), ("a", "b", "c", "d"), ("a", "b", "c", "d", "e", "f")):
        assert imported(hermes_home, path, lines(*said)) == list(said)


def test_messages_that_share_a_ref_are_all_brought_in(hermes_home: HermesHome, tmp_path: Path) -> None:
    said = ["a", "b", "c", "d"]
    assert imported(hermes_home, tmp_path / "a.jsonl", lines(*said, ref="chat")) == said


def test_what_was_written_anew_in_an_older_place_is_brought_in(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    path = tmp_path / "conversations.json"
    first = [("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")]
    assert imported(hermes_home, path, chatgpt(*first[:3])) == ["a", "b", "c"]
    assert imported(hermes_home, path, chatgpt(*first)) == ["a", "b", "c", "d"]
    anew = [*first[:2], ("5", "C"), ("6", "D")]
    assert imported(hermes_home, path, chatgpt(*anew)) == ["a", "b", "c", "d", "C", "D"]
    longer = [*anew, ("7", "e"), ("8", "f")]
    assert imported(hermes_home, path, chatgpt(*longer)) == ["a", "b", "c", "d", "C", "D", "e", "f"]
