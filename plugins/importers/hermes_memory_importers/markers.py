"""Marks of ChatGPT within a text: citations, entities, pictures. Each is replaced by what the file says it stands for.

A mark is between two characters of the private use area, with a kind and its values: `cite`, `entity`, `url`. Older texts
have citations in brackets. The metadata of the message says what stands in their places on the screen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

START, _END, _NEXT = "\ue200", "\ue201", "\ue202"
_MARK = re.compile(rf"{START}([^{START}{_END}]*){_END}")
_BRACKETS = re.compile("\u3010[^\u3010\u3011\n]{1,80}\u2020[^\u3010\u3011\n]{0,200}\u3011")
# Further characters of this kind only mark the span that a citation is about.
_STRAY = re.compile("[\ue200-\ue20f]")


def without_marks(text: str, metadata: Mapping[str, Any]) -> tuple[str, int]:
    """Return the text as it stood on the screen, and the number of marks of which the file says nothing."""
    if not (_STRAY.search(text) or _BRACKETS.search(text)):
        return text, 0
    # A longer mark may hold a shorter one.
    for mark, shown in sorted(_references(metadata), key=lambda pair: -len(pair[0])):
        text = _replaced(text, mark, shown)
    for start, end, shown in _citations(metadata):
        # Another mark before this one may have moved it.
        if _BRACKETS.fullmatch(mark := text[start:end]):
            text = _replaced(text, mark, shown)
    unknown = 0
    for pattern in (_MARK, _BRACKETS):
        while match := pattern.search(text):
            shown = _name(match[1]) if pattern is _MARK else ""
            unknown += not shown
            text = _replaced(text, match[0], shown)
    return _STRAY.sub("", text), unknown


def _replaced(text: str, mark: str, shown: str) -> str:
    """Return the text with something else in the place of a mark. A mark that shows nothing leaves no two blanks."""
    before, found, after = text.partition(mark)
    if not found:
        return text
    if not shown and (not after or after[0] in " \t\n.,;:!?)"):
        before = before.rstrip(" \t")
    return before + shown + after


def _references(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each mark that the metadata names, and what stands for it."""
    for reference in _objects(metadata.get("content_references")):
        mark = reference.get("matched_text")
        # The list of all sources has a blank for its mark.
        if isinstance(mark, str) and (_STRAY.search(mark) or _BRACKETS.search(mark)):
            yield mark, _shown(reference)


def _shown(reference: Mapping[str, Any]) -> str:
    """Return what a reference shows: its text, else links to its pages, else its name."""
    alt = reference.get("alt")
    if isinstance(alt, str) and alt.strip():
        return alt
    items = (*_objects(reference.get("items")), *_objects(reference.get("sources")), reference)
    links = (_link(item) for item in items)
    shown = ", ".join(dict.fromkeys(filter(None, links)))
    return f"({shown})" if shown else ""


def _link(item: Mapping[str, Any]) -> str:
    named = (item.get(field) for field in ("title", "name", "attribution"))
    title = next((text for text in named if isinstance(text, str) and text.strip()), "")
    url = item.get("url")
    return f"[{title or url}]({url})" if isinstance(url, str) and url else title


def _citations(metadata: Mapping[str, Any]) -> list[tuple[int, int, str]]:
    """Return the places of citations in brackets, the last one first, and what stands for them."""
    found = []
    for citation in _objects(metadata.get("citations")):
        start, end = citation.get("start_ix"), citation.get("end_ix")
        source = citation.get("metadata")
        if isinstance(start, int) and isinstance(end, int) and isinstance(source, Mapping):
            shown = _link(source)
            found.append((start, end, f"({shown})" if shown else ""))
    return sorted(found, reverse=True)


def _name(mark: str) -> str:
    """Return the words that a mark itself holds: the name of an entity, the text of a link; "" for none."""
    kind, *values = mark.split(_NEXT)
    if kind == "url" and values:
        return f"[{values[0]}]({values[1]})" if len(values) > 1 else values[0]
    try:
        data = json.loads(values[0]) if values else None
    except ValueError:
        return ""
    if isinstance(data, list):
        # The kind of the entity, its name, and what tells it from others of this name.
        names = [one for one in data if isinstance(one, str) and one.strip()]
        return (names[1] if len(names) > 1 else names[0]) if names else ""
    name = data.get("name") if isinstance(data, Mapping) else None
    return name if isinstance(name, str) else ""


def _objects(value: object) -> Sequence[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
