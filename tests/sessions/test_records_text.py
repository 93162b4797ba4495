"""Content of a message becomes text: parts by their words, everything else by its kind and never by its repr."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hermes_core.sessions.records import columns_of, text_of
from tests.table import table


class Thing:
    def __repr__(self) -> str:
        return "<a thing at 0x7f>"


@table(("content", "text"), [
    ("tea", "tea"), (None, ""), ([], ""), (7, "7"), ([7, "tea"], "7\ntea"),
    ({"type": "text", "text": "tea"}, "tea"),
    ({"type": "input_image", "image_url": "x"}, "[image]"),
    ({"pond": "deep"}, "[part]"),
    ([{"pond": "deep"}, {"type": "text", "text": "tea"}], "[part]\ntea"),
    (SimpleNamespace(type="text", text="tea"), "tea"),
    ([SimpleNamespace(type="image_url")], "[image]"),
    (Thing(), "[Thing]"), ([Thing()], "[Thing]"), (b"tea", "[bytes]"),
])  # fmt: skip
def test_content_becomes_text(content: Any, text: str) -> None:
    assert text_of(content) == text
    assert columns_of({"role": "user", "content": content}, 0.0)["content"] == text


def test_a_part_alone_is_stored_as_a_list_of_one() -> None:
    stored = columns_of({"role": "user", "content": {"type": "text", "text": "tea"}}, 0.0)
    assert stored["parts"] == '[{"type":"text","text":"tea"}]'
