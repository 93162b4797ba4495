"""Memories on their way between providers."""

from __future__ import annotations

import pytest

from hermes_core.contract.values import MemoryPage, MemoryRecord
from hermes_core.kit import pack_record, page_of, unpack_record

WHOLE = MemoryRecord(
    "Likes tea", "7", 1.5, 2.5, "user_pref", ("drinks", "daily"), {"trust": 0.25, "new": True}
)


def test_a_packed_record_comes_back_whole_under_the_id_of_the_other_backend() -> None:
    back = unpack_record(pack_record(WHOLE), MemoryRecord("Likes tea", "m1", created_at=9.0))
    assert back == MemoryRecord(
        "Likes tea", "m1", 1.5, 2.5, "user_pref", ("drinks", "daily"), {"trust": 0.25, "new": True}
    )
    assert back.digest == WHOLE.digest


@pytest.mark.parametrize(
    "packed", ["", "no JSON", "[1]", "3", '{"tags": 3}', '{"details": {"a": []}}', "[" * 100_000]
)
def test_a_memory_of_the_backend_itself_stays_as_the_backend_knows_it(packed: str) -> None:
    own = MemoryRecord("Likes tea", "m1", 3.0)
    assert unpack_record(packed, own) is own


def test_a_key_names_the_text_and_a_digest_the_rest_as_well() -> None:
    other = MemoryRecord("Likes tea", "8")
    assert WHOLE.key == other.key != MemoryRecord("likes tea").key
    assert WHOLE.digest != other.digest == MemoryRecord("Likes tea", "9").digest
    assert MemoryRecord("\ud800").key


def test_pages_hold_each_record_once() -> None:
    records = [MemoryRecord(str(number)) for number in range(5)]
    seen, cursor = [], ""
    while True:
        page = page_of(records, cursor, 2)
        seen += page.records
        cursor = page.cursor
        if not cursor:
            break
    assert seen == records
    assert page_of([], "") == MemoryPage()
    assert page_of(records, "no number", 9).records == tuple(records)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"text": 3},
        {"text": "a", "tags": "b"},
        {"text": "a", "details": {"x": None}},
        {"text": "a", "created_at": "now"},
        {"text": "a", "updated_at": True},
    ],
)
def test_a_record_of_a_wrong_form_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="record"):
        MemoryRecord.from_dict(data)


def test_a_record_survives_json() -> None:
    assert MemoryRecord.from_dict({**WHOLE.to_dict(), "later": 1}) == WHOLE
