"""Schemas of tools: the subset of JSON Schema that model APIs accept, and arguments that fit one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hermes_core.contract.values import LONGEST_TOOL_NAME, TOOL_NAME

_TYPES = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})
_NOT_AT_TOP = ("anyOf", "oneOf", "allOf", "not", "enum", "$ref")


def schema_faults(schema: Mapping[str, Any]) -> list[str]:
    """What model APIs would refuse in one tool schema, a sentence each; empty when it is sound."""
    name = schema.get("name", "")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        return [f"the name {name!r} is not 1 to {LONGEST_TOOL_NAME} letters, digits, '_' and '-'"]
    faults = []
    if not str(schema.get("description", "")).strip():
        faults.append(f"{name} has no description")
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as exc:
        return [*faults, f"{name} can't be written as JSON: {exc}"]
    parameters = schema.get("parameters")
    if not isinstance(parameters, Mapping) or parameters.get("type") != "object":
        return [*faults, f"the parameters of {name} are not of type 'object'"]
    faults += [
        f"{name} has {word!r} at the top of its parameters" for word in _NOT_AT_TOP if word in parameters
    ]
    return [*faults, *_object_faults(name, parameters)]


def _object_faults(where: str, schema: Mapping[str, Any]) -> Iterator[str]:
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        yield f"the properties of {where} are no object"
        return
    required = schema.get("required", [])
    if not isinstance(required, list) or not set(map(str, required)) <= set(properties):
        yield f"{where} requires {required!r}, which is not a list of its properties"
    for key, value in properties.items():
        yield from _value_faults(f"{where}.{key}", value)


def _value_faults(where: str, schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        yield f"{where} is no schema"
        return
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if kind is None and not {"anyOf", "oneOf", "allOf", "enum", "$ref", "const"} & schema.keys():
        yield f"{where} has no type"
    elif kind is not None and not set(map(str, kinds)) <= _TYPES:
        yield f"{where} is of the unknown type {kind!r}"
    if "enum" in schema and not (isinstance(schema["enum"], list) and schema["enum"]):
        yield f"the enum of {where} is no list of values"
    if "array" in kinds and not isinstance(schema.get("items"), Mapping):
        yield f"the array {where} does not say what its items are"
    elif "array" in kinds:
        yield from _value_faults(f"{where}[]", schema["items"])
    if "object" in kinds:
        yield from _object_faults(where, schema)


def sample(parameters: Mapping[str, Any], text: str = "a tortoise called Quillfeather") -> dict[str, Any]:
    """Arguments that fit a sound schema: every property, strings without a fixed choice are `text`.

    >>> sample({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}})
    {'n': 3}
    """
    properties = parameters.get("properties", {})
    return {name: _value(schema, text) for name, schema in properties.items()}


def samples(parameters: Mapping[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """Arguments by which each choice that a sound schema offers is taken once, with every text and what is required.

    >>> [*samples({"type": "object", "properties": {"do": {"enum": ["add", "find"]}, "q": {"type": "string"}}}, "tea")]
    [{'q': 'tea', 'do': 'add'}, {'q': 'tea', 'do': 'find'}]
    """
    properties = parameters.get("properties", {})
    needed = {name for name, of in properties.items() if of.get("type") == "string" and "enum" not in of}
    needed |= {*parameters.get("required", ())}
    plain = {name: value for name, value in sample(parameters, text).items() if name in needed}
    choices = [{name: one} for name, of in properties.items() for one in of.get("enum", ())]
    yield from ({**plain, **choice} for choice in choices or [{}])


def _value(schema: Mapping[str, Any], text: str) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return _value(schema[word][0], text)
    kind = schema.get("type")
    first = kind[0] if isinstance(kind, list) and kind else kind
    if first in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", 1))
    if first == "array":
        return [_value(schema.get("items", {}), text)]
    if first == "object":
        return sample(schema, text)
    return {"boolean": True, "null": None}.get(str(first), text)
