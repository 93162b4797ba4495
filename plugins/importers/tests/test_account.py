"""Every part of every sample is stored, or counted with its reason.

A sample holds one word `part` with a number for each of its parts: a text, a call, a result, a picture, a record of the
program's own. What the importer stored and what it counted is compared with these words, which no importer knows.
"""

from __future__ import annotations

import json
import os
import random
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core.errors import ImportFailed
from hermes_core.importers import ImportedRecord, SkipLog, stream_file

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted(str(path.relative_to(SAMPLES)) for path in SAMPLES.rglob("*") if path.is_file())

TRIES = int(os.environ.get("HERMES_TEST_TRIES", "12"))

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
    for item in stream_file(path, skips=skips):
        if isinstance(item, ImportedRecord):
            stored += parts_of(item.record.text)
            continue
        for turn in item[1]:
            for message in turn.messages:
                stored += parts_of(f"{message.content} {json.dumps(message.tool_calls)}")
    skips.close()
    counted = sum(skip.count for skip in skips.all())
    assert held, "a sample names its parts"
    assert len(held) == len(held.keys() & stored.keys()) + counted, skips.all()
    assert skips.read == skips.stored + counted
    assert "parts that the importer of this format does not know" not in {skip.reason for skip in skips.all()}


def changed(value: object, chance: random.Random) -> object:
    """Return a JSON value with one of its values replaced, left out or doubled."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        if chance.random() < 0.2:
            return {name: one for name, one in value.items() if name != key}
        return {**value, key: changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        place = chance.randrange(len(value))
        rest = [*value[:place], changed(value[place], chance), *value[place + 1 :]]
        return chance.choice(
            [rest, rest, rest, rest[:place] + rest[place + 1 :], [*rest, rest[place]], rest[::-1]]
        )
    return chance.choice(
        [None, "", "words", 7, True, [], {}, ["words"], {"type": "x"}, [{"type": "text", "text": "a"}]]
    )


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith((".sql", ".md"))])
def test_the_account_holds_for_files_that_are_damaged(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    text = (SAMPLES / name).read_text(encoding="utf-8")
    lines = name.endswith("l")
    held = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
    path = tmp_path / Path(name).name
    for _ in range(TRIES):
        data = changed(held, chance)
        for _ in range(chance.randrange(3)):
            data = changed(data, chance)
        if lines and isinstance(data, list):
            path.write_text("".join(f"{json.dumps(record)}\n" for record in data))
        else:
            path.write_text(json.dumps(data))
        skips = SkipLog()
        try:
            for item in stream_file(path, skips=skips):
                if not isinstance(item, ImportedRecord):
                    list(item[1])
        except ImportFailed:
            continue
        counted = sum(skip.count for skip in skips.all())
        assert skips.read == skips.stored + counted, (data, skips.all())
