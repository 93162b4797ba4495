"""Each promise of the threat model names tests, and these exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "threat-model.md").read_text()


def test_each_promise_names_tests_that_exist() -> None:
    section = PAGE.partition("## Promises and their tests")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 10
    for row in rows:
        names = re.findall(r"`((?:plugins/[\w-]+/)?tests/[\w/]+\.py)::(\w+)`", row)
        assert names, row
        for file, name in names:
            source = (ROOT / file).read_text()
            assert re.search(rf"^(?:async )?def {name}\(", source, re.M), f"{file}::{name}"


def test_the_figures_of_the_scan_are_those_of_the_texts() -> None:
    import json

    from hermes_core.safety.scan import first_threat

    texts = json.loads((ROOT / "bench" / "scan_unseen.json").read_text())
    for style, words in (("direct", "direct attacks"), ("quiet", "quiet attacks")):
        attacks = [entry["text"] for entry in texts["attacks"] if entry["style"] == style]
        flagged = sum(first_threat(text) is not None for text in attacks)
        assert re.search(rf"\| {words} [^|]*\| {len(attacks)} \| {flagged} \|", PAGE)
    assert not [entry["text"] for entry in texts["benign"] if first_threat(entry["text"])]
