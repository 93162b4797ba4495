"""The page of the operations of `hermes-memory serve`, and its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tables import cell, docstring_markdown, schema_type

from hermes_memory_http.document import openapi_document


def http_page() -> Iterator[str]:
    """Yield the operations with their parameters, and the objects that they take and return."""
    document = openapi_document()
    yield "# The API over HTTP\n"
    yield (
        "What [`hermes-memory serve`](../how-to/serve-over-http.md) answers. [openapi.json](openapi.json) is the same for programs: the "
        "server has it at `/openapi.json`, and `hermes-memory serve openapi` prints it. Each operation below `/v1` takes the query "
        "parameter `user`, which a program's token needs. Keys may be added; none is renamed or given another meaning.\n"
    )
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            yield f"## {method.upper()} {path}\n\n{one['summary']}\n"
            if text := one.get("description"):
                yield f"{text}\n"
            yield from _values(one)
    yield "## Objects\n\nWhat operations take and return is on [a page of its own](http/objects.md).\n"


def objects_page() -> Iterator[str]:
    """Yield the objects that the operations take and return."""
    document = openapi_document()
    yield "# Objects of the API over HTTP\n"
    yield "What [the operations](../http.md) take and return.\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"## {name}\n\n{docstring_markdown(schema.get('description', ''))}\n"
        yield "| field | type | |\n|---|---|---|"
        for field, kind in schema.get("properties", {}).items():
            needed = "always" if field in schema.get("required", ()) else "optional"
            yield f"| `{field}` | {_type(kind, '')} | {cell('; '.join(filter(None, [needed, kind.get('description', '')])))} |"
        yield ""


def openapi_json() -> Iterator[str]:
    """Yield the document."""
    yield json.dumps(openapi_document(), indent=1)


def _values(one: dict[str, Any]) -> Iterator[str]:
    """Yield what an operation takes and returns."""
    rows = [(p["name"], p["in"], p) for p in one.get("parameters", ()) if "name" in p]
    if rows:
        yield "| parameter | in | type |\n|---|---|---|"
        yield from (f"| `{name}` | {place} | {_type(p['schema'])} |" for name, place, p in rows)
        yield ""
    bodies = one.get("requestBody", {}).get("content", {})
    for what, content in (("Body", bodies), ("Answer", one["responses"]["200"]["content"])):
        for media, value in content.items():
            yield f"{what}: {_type(value['schema'])}{'' if media == 'application/json' else f', {media}'}.\n"


def _type(kind: dict[str, Any], page: str = "http/objects.md") -> str:
    """Return the type of a value, with links to the objects on their page."""
    if reference := kind.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}]({page}#{name.lower()})"
    if choices := kind.get("anyOf"):
        return " or ".join(_type(choice, page) for choice in choices)
    if kind.get("type") == "array":
        items = kind.get("items") or {"anyOf": kind.get("prefixItems", [{}])}
        return f"list of {_type(items, page)}"
    return cell(schema_type(kind))


PAGES: dict[str, Callable[[], Iterable[str]]] = {
    "reference/http.md": http_page,
    "reference/http/objects.md": objects_page,
    "reference/openapi.json": openapi_json,
}
