"""The OpenAPI document, made out of the operations and the types of their hints."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, get_args

import msgspec

from hermes_core.packages import program_version
from hermes_memory_http import values
from hermes_memory_http.operations import OPERATIONS, Operation
from hermes_memory_http.refusals import PROBLEM_TYPE, Problem
from hermes_memory_http.tokens import Scope

_OF_ALL = (400, 401, 403, 404, 405, 421, 422, 429, 500, 503)
_OF_BODIES = (408, 413, 415)
_OF_TURNS = (409,)

_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)

_EVENTS = (
    "Server-sent events. `text`: data is an object with `text`, the next piece that the person may see. `finished`: the "
    "turn (FinishedTurn). `end`: an empty object. `problem`: the problem (Problem) that ended the stream."
)

_USER = {
    "name": "user",
    "in": "query",
    "description": "The person, as PLATFORM:USER_ID or PLATFORM/CHAT_ID. Needed with the token of a program that serves "
    "several persons; a person's own token names the person.",
    "schema": {"type": "string"},
}


def openapi_document() -> dict[str, Any]:
    """Return the document, as OpenAPI 3.1."""
    types = [one.body for one in OPERATIONS if one.body] + [
        one.answer for one in OPERATIONS if not one.is_stream
    ]
    types += [values.Health, values.FinishedTurn, Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {
        "/healthz": {
            "get": _open("get_health", "Return ok if this process answers.", schema_of[values.Health])
        },
        "/readyz": {
            "get": _open(
                "get_readiness", "Return ready if this process can use the store.", schema_of[values.Health]
            )
        },
        "/openapi.json": {
            "get": {
                "operationId": "get_document",
                "summary": "Return this document.",
                "responses": {"200": _content("application/json", {"type": "object"}), **_problems(*_OF_ALL)},
            }
        },
    }
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hermes-memory",
            "version": program_version() or "0",
            "description": "The memory of an AI agent: conversations, turns with recall, tools, notes and reviews.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {name: _described(schema) for name, schema in components.items()},
            "parameters": {"user": _USER},
            "responses": {
                "Problem": {
                    "description": "What is wrong, and what to do.",
                    "content": {PROBLEM_TYPE: {"schema": schema_of[Problem]}},
                }
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": f"A token of `hermes-memory serve token create`, with scopes of {', '.join(get_args(Scope))}.",
                }
            },
        },
    }


def _open(name: str, summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return an operation that needs no token."""
    return {
        "operationId": name,
        "summary": summary,
        "security": [],
        "responses": {"200": _content("application/json", schema), **_problems(403, 405, 421, 500, 503)},
    }


def _operation(one: Operation, schema_of: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", one.path)
    parts = [field for field in msgspec.structs.fields(values.PathParts) if field.name in names]
    parameters = [
        {"name": part.name, "in": "path", "required": True, "schema": _schema(part.type)} for part in parts
    ]
    is_of_turn = one.scope != "read" or "turn" in names
    statuses = (*_OF_ALL, *(_OF_BODIES if one.body else ()), *(_OF_TURNS if is_of_turn else ()))
    answer = (
        _content("text/event-stream", {"type": "string"}, _EVENTS)
        if one.is_stream
        else _content("application/json", schema_of[one.answer])
    )
    document: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "description": "\n\n".join(filter(None, [one.description, f"Scope: {one.scope}."])),
        "parameters": [*parameters, {"$ref": "#/components/parameters/user"}, *_query(one.query)],
        "responses": {"200": answer | _links(one), **_problems(*statuses)},
    }
    if one.body:
        document["requestBody"] = {"required": True, **_body("application/json", schema_of[one.body])}
    elif one.is_stream:
        document["requestBody"] = {"required": True, **_body("text/plain", {"type": "string"})}
    return document


def _query(kind: type[values.RequestBody] | None) -> Iterator[dict[str, Any]]:
    """Yield the parameters of a query."""
    for field in msgspec.structs.fields(kind) if kind else ():
        (schema,), _ = msgspec.json.schema_components([field.type])
        default = {} if field.required else {"default": field.default}
        yield {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "schema": schema | default,
        }


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a class with the descriptions of its attributes, which stand in the docstring, at these."""
    text, _, attributes = inspect.cleandoc(schema.get("description", "")).partition("\n\nAttributes:\n")
    properties = {name: dict(kind) for name, kind in schema.get("properties", {}).items()}
    for name, description in _ATTRIBUTE.findall(attributes):
        if name in properties:
            properties[name].setdefault("description", " ".join(description.split()))
    return schema | {"description": text, "properties": properties}


def _schema(kind: Any) -> dict[str, Any]:
    """Return the schema of a type without components."""
    (schema,), _ = msgspec.json.schema_components([kind])
    return schema


def _links(one: Operation) -> dict[str, Any]:
    """Return how the answer that opens a turn leads to the operations on its conversation and on the turn."""
    if one.answer is not values.OpenedTurn or one.method != "POST":
        return {}
    parts = {"conversation": "$response.body#/conversation", "turn": "$response.body#/id"}
    links = {}
    for other in OPERATIONS:
        names = re.findall(r"{(\w+)}", other.path)
        if "conversation" in names and other is not one:
            links[other.name] = {
                "operationId": other.name,
                "parameters": {name: parts[name] for name in names},
            }
    return {"links": links} if links else {}


def _content(media: str, schema: dict[str, Any], description: str = "The answer.") -> dict[str, Any]:
    return {"description": description, **_body(media, schema)}


def _body(media: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {media: {"schema": schema}}}


def _problems(*statuses: int) -> dict[str, Any]:
    assert all(map(HTTPStatus, statuses))
    return {str(status): {"$ref": "#/components/responses/Problem"} for status in sorted(statuses)}
