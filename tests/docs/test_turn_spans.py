"""The picture of the spans of a turn: drawn by the script from a real turn, and shown on a page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))

import turn_spans

LABEL = re.compile(r"^\d+ ms$")


def labels_of(svg: str) -> list[str]:
    """Return the texts of a picture without durations, which differ from run to run."""
    texts = [text.strip() for text in ElementTree.fromstring(svg).itertext()]
    return [text for text in texts if text and not LABEL.match(text)]


def test_the_picture_can_be_drawn_anew_and_shows_what_is_checked_in() -> None:
    bars = turn_spans.bars_of(turn_spans.spans_of_a_turn())
    assert [(bar.depth, bar.label) for bar in bars] == [
        (0, "invoke_agent"),
        (1, "search_memory"),
        (2, "search_memory · prefetch"),
        (1, "chat"),
        (1, "create_memory · memory"),
        (1, "chat"),
        (1, "upsert_memory"),
        (0, "upsert_memory · sync_turn"),
    ]
    assert bars[-1].links == (bars[-2].id,)
    drawn = labels_of(turn_spans.picture_of(bars))
    assert drawn == labels_of(turn_spans.PICTURE.read_text(encoding="utf-8"))


def test_the_picture_is_shown_on_a_page() -> None:
    page = (turn_spans.PICTURE.parent / "telemetry.md").read_text(encoding="utf-8")
    assert f"]({turn_spans.PICTURE.name})" in page
