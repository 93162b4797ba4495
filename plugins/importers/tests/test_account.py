"""Every part of every sample is stored, or counted with its reason.

A sample holds one word `part` with a number for each of its parts: a text, a call, a result, a picture, a record of the
program's own. What the importer stored and what it counted is compared with these words, which no importer knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core.errors import ImportFailed
from hermes_memory_importers import ImportedRecord, SkipLog, stream_file

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted(str(path.relative_to(SAMPLES)) for path in SAMPLES.rglob("*") if path.is_file())

TRIES = int(os.environ.get("HERMES_TEST_TRIES", "12"))

_PART = re.compile(r"part\d\d")


# A value that is no text, in a script for SQLite or in a dump of PostgreSQL.
_BYTES = re.compile(r"(?:X'|\\x)((?:[0-9a-f]{2})+)")


def parts_of(text: str) -> Counter[str]:
    held = [bytes.fromhex(raw).decode("latin-1") for raw in _BYTES.findall(text)]
    return Counter(_PART.findall(" ".join([text, *held])))


@pytest.mark.parametrize("name", FILES)
def test_parts_in_are_parts_stored_and_parts_counted(name: str, sample_file: Callable[[str], Path]) -> None:
    path, skips = sample_file(name), SkipLog()
    held = parts_of((SAMPLES / name).read_text(encoding="utf-8"))
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
        [None, "", "words", 7, 1e308, True, [], {}, ["words"], {"type": "x"}, [{"type": "text", "text": "a"}]]
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
        except ImportFailed as exc:
            if "' raised " in exc.message:  # a fault of the importer, not of the file
                raise
            continue
        counted = sum(skip.count for skip in skips.all())
        assert skips.read == skips.stored + counted, (data, skips.all())


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".sql")])
def test_a_database_that_is_damaged_is_read_as_far_as_it_can_be_or_refused(
    name: str, sample_file: Callable[[str], Path], tmp_path: Path
) -> None:
    chance, whole = random.Random(name), sample_file(name).read_bytes()
    path = tmp_path / f"damaged-{sample_file(name).name}"
    for _ in range(TRIES):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 5, 50])):
            data[chance.randrange(16, len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.randrange(17, len(data))] if chance.random() < 0.3 else data)
        with contextlib.suppress(ImportFailed):
            for item in stream_file(path):
                if not isinstance(item, ImportedRecord):
                    list(item[1])
