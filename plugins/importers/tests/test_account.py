"""Every part of every sample is stored, or counted with its reason.

A sample holds one word `part` with a number for each of its parts: a text, a call, a result, a picture, a record of the
program's own. What the importer stored and what it counted is compared with these words, which no importer knows.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core.importers import SkipLog, stream_file

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted(str(path.relative_to(SAMPLES)) for path in SAMPLES.rglob("*") if path.is_file())

_PART = re.compile(r"part\d\d")


def parts_of(text: str) -> Counter[str]:
    return Counter(_PART.findall(text))


@pytest.mark.parametrize("name", FILES)
def test_parts_in_are_parts_stored_and_parts_counted(name: str, tmp_path: Path) -> None:
    path, skips = SAMPLES / name, SkipLog()
    text = path.read_text(encoding="utf-8")
    held = parts_of(text)
    if path.suffix == ".sql":
        path = tmp_path / "sample.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(text)
    stored = Counter[str]()
    for _, turns in stream_file(path, skips=skips):
        for turn in turns:
            for message in turn.messages:
                stored += parts_of(f"{message.content} {json.dumps(message.tool_calls)}")
    skips.close()
    counted = sum(skip.count for skip in skips.all())
    assert held, "a sample names its parts"
    assert len(held) == len(held.keys() & stored.keys()) + counted, skips.all()
    assert skips.read == skips.stored + counted
    assert "parts that the importer of this format does not know" not in {skip.reason for skip in skips.all()}
