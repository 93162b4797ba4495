"""Exports that are imported once more, of programs that make up new ids or rewrite an older place."""

from __future__ import annotations

import json
from pathlib import Path

from hermes_core import HermesHome
from plugins.importers.tests.test_duplicates import LONG, chat, imported, said, stored


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


def test_an_export_that_mints_ids_comes_in_once(hermes_home: HermesHome, tmp_path: Path) -> None:
    chats = [chat("x1", [LONG, "In the garage."]), chat("x2", [LONG, "At Ann's.", "Thanks"])]
    again = [chat("y2", [LONG, "At Ann's.", "Thanks", "Yes"]), chat("y1", [LONG, "In the garage."])]
    older = [chat("z1", [LONG]), chat("z2", [LONG, "At Ann's."])]
    assert stored(hermes_home, tmp_path, chats, again, older, jsonl=False) == said(again)


def test_a_conversation_that_is_twice_in_a_file_comes_in_once(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    first = [chat("x", [LONG, "b"])]
    later = [chat("y", [LONG, "b", "c"]), chat("y", [LONG, "b", "c", "d"])]
    assert stored(hermes_home, tmp_path, first, later, jsonl=False) == said(later[1:])
