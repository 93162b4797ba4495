from __future__ import annotations

from typing import Any

import pytest

from hermes_memory_testing.contract.inputs import sample, schema_faults

GOOD: dict[str, Any] = {
    "name": "notes_search",
    "description": "Search notes.",
    "parameters": {
        "type": "object",
        "properties": {
            "words": {"type": "string"},
            "kind": {"type": "string", "enum": ["fact", "event"]},
            "limit": {"type": ["integer", "null"], "minimum": 2},
            "tags": {"type": "array", "items": {"type": "string"}},
            "span": {"type": "object", "properties": {"since": {"type": "number"}}},
            "loose": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
        "required": ["words"],
    },
}


def with_parameters(**changes: Any) -> dict[str, Any]:
    return {**GOOD, "parameters": {**GOOD["parameters"], **changes}}


def test_a_sound_schema_has_no_fault() -> None:
    assert schema_faults(GOOD) == []


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({**GOOD, "name": "notes search"}, "the name 'notes search'"),
        ({**GOOD, "name": "x" * 65}, "the name 'xxx"),
        ({**GOOD, "description": " "}, "notes_search has no description"),
        ({**GOOD, "parameters": {"type": "array"}}, "not of type 'object'"),
        ({**GOOD, "extra": {1, 2}}, "can't be written as JSON"),
        (with_parameters(oneOf=[]), "has 'oneOf' at the top"),
        (with_parameters(required=["tag"]), "requires ['tag']"),
        (with_parameters(required="words"), "requires 'words'"),
        (with_parameters(properties=[]), "are no object"),
        (with_parameters(properties={"words": {"type": "text"}}), "the unknown type 'text'"),
        (with_parameters(properties={"words": {}}), "notes_search.words has no type"),
        (with_parameters(properties={"words": {"type": "array"}}), "does not say what its items are"),
        (with_parameters(properties={"words": {"type": "string", "enum": []}}), "no list of values"),
        (with_parameters(properties={"words": "string"}), "is no schema"),
    ],
)
def test_what_models_refuse_is_named(schema: dict[str, Any], fault: str) -> None:
    assert any(fault in found for found in schema_faults(schema))


def test_a_sample_fits_its_schema() -> None:
    assert sample(GOOD["parameters"], "tea") == {
        "words": "tea",
        "kind": "fact",
        "limit": 2,
        "tags": ["tea"],
        "span": {"since": 1},
        "loose": True,
    }
