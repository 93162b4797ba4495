"""Changes of a JSON file of settings as text: all that stands there, comments and spaces included, stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hermes_core.errors import ConfigError

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"')
_WORD = re.compile(r"(?:true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=[\s,\]}/]|\Z)")


class _Item(NamedTuple):
    """A member of an object or an element of a list: its key ("" in a list), and the places of its value."""

    key: str
    start: int
    value: int
    end: int


class _Scan(NamedTuple):
    """The items of an object or a list, and the place of its closing bracket."""

    items: list[_Item]
    close: int


Insertion = tuple[int, str]
"""A place in a text, and what is inserted there."""


def hook_insertions(text: str, entries: Mapping[str, Mapping[str, Any]]) -> list[Insertion]:
    """Return what to insert, one after the other, so that each entry stands at the end of the list `hooks.EVENT`.

    Raises:
        ConfigError: The text is no JSON object, or something in it is not what it should be.
    """
    insertions = []
    for event, entry in entries.items():  # a fault is shown as it stands in the file
        _insertion(text, event, entry)
    for event, entry in entries.items():
        insertions.append(_insertion(text, event, entry))
        text = inserted(text, insertions[-1:])
    return insertions


def inserted(text: str, insertions: Iterable[Insertion]) -> str:
    """Return the text with insertions."""
    for at, added in insertions:
        text = text[:at] + added + text[at:]
    return text


def taken_back(text: str, insertions: Sequence[Insertion]) -> str:
    """Return the text without insertions that it has."""
    for at, added in reversed(insertions):
        text = text[:at] + text[at + len(added) :]
    return text


def cut_out(text: str, insertions: Sequence[Insertion]) -> str | None:
    """Return a text that was changed since without the insertions; None if one of them is not there once."""
    for _, added in reversed(insertions):
        if text.count(added) != 1:
            return None
        text = text.replace(added, "")
    return text


def _insertion(text: str, event: str, entry: Mapping[str, Any]) -> Insertion:
    whole = _scan_whole(text)
    hooks = _member(whole, "hooks")
    if hooks is None:
        return _at_end(whole, f'"hooks": {_block({event: [entry]}, 1)}', 1)
    inside = _scan(text, hooks.value, "{")
    listed = _member(inside, event)
    if listed is None:
        return _at_end(inside, f"{json.dumps(event)}: {_block([entry], 2)}", 2)
    return _at_end(_scan(text, listed.value, "["), _block(entry, 3), 3)


def hook_commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield the event and the command of each hook."""
    for event, command, _ in _hooks(text):
        yield event, command


def without_hooks(text: str, command: str) -> str:
    """Return the text without the hooks whose command contains `command`, and without the lists that are empty then."""
    while (places := next((places for _, own, places in _hooks(text) if command in own), None)) is not None:
        # The outermost item that holds nothing but the hook.
        scan, number = next((place for place in places if len(place[0].items) > 1), places[-1])
        text = _cut(text, scan, number)
    return text


def _hooks(text: str) -> Iterator[tuple[str, str, list[tuple[_Scan, int]]]]:
    """Yield the event and the command of each hook, and the places that it is in: scan and number, the inmost first."""
    whole = _scan_whole(text)
    hooks = _member(whole, "hooks")
    if hooks is None:
        return
    inside = _scan(text, hooks.value, "{")
    outer = (whole, whole.items.index(hooks))
    for number, event in enumerate(inside.items):
        for listed, place, item in _elements(text, event):
            places = [(listed, place), (inside, number), outer]
            if (command := _command(text, item)) is not None:
                yield event.key, command, places
            for group, at, hook in _elements(text, _member_at(text, item, "hooks")):
                if (command := _command(text, hook)) is not None:
                    yield event.key, command, [(group, at), *places]


def _elements(text: str, item: _Item | None) -> Iterator[tuple[_Scan, int, _Item]]:
    """Yield the elements of a list, each with the scan and its number; nothing for any other value."""
    if item is not None and text[item.value] == "[":
        scan = _scan(text, item.value, "[")
        yield from ((scan, number, element) for number, element in enumerate(scan.items))


def _member_at(text: str, item: _Item, key: str) -> _Item | None:
    """Return the member of an object; None for any other value."""
    return _member(_scan(text, item.value, "{"), key) if text[item.value] == "{" else None


def _command(text: str, item: _Item) -> str | None:
    member = _member_at(text, item, "command")
    if member is None or text[member.value] != '"':
        return None
    return str(json.loads(text[member.value : member.end], strict=False))


def _at_end(scan: _Scan, added: str, depth: int) -> Insertion:
    """Return the insertion of an item at the end of an object or a list."""
    pad = "\n" + "  " * depth
    if scan.items:
        return scan.items[-1].end, f",{pad}{added}"
    return scan.close, pad + added + pad[:-2]


def _cut(text: str, scan: _Scan, number: int) -> str:
    """Return the text without an item, and without the comma that separates it."""
    item = scan.items[number]
    if number:
        return text[: scan.items[number - 1].end] + text[item.end :]
    if len(scan.items) > 1:
        return text[: item.start] + text[scan.items[1].start :]
    return text[: item.start].rstrip() + text[scan.close :]


def _block(value: Any, depth: int) -> str:
    return json.dumps(value, indent=2).replace("\n", "\n" + "  " * depth)


def _member(scan: _Scan, key: str) -> _Item | None:
    # Of two members of one name the later one counts.
    return next((item for item in reversed(scan.items) if item.key == key), None)


def _scan_whole(text: str) -> _Scan:
    """Return the items of the object that is the whole text. Raises `ConfigError` if it is none."""
    try:
        whole = _scan(text, _skip(text, 1 if text.startswith("\ufeff") else 0), "{")
    except RecursionError:
        raise ConfigError("it is nested too deeply", "correct the file first") from None
    if (end := _skip(text, whole.close + 1)) < len(text):
        raise _fault(text, end, "the end of the file")
    return whole


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _scan(text: str, at: int, opening: str) -> _Scan:
    """Return the items of the object or list that begins at `at`. Raises `ConfigError` if there is none."""
    if text[at : at + 1] != opening:
        raise _fault(text, at, "an object" if opening == "{" else "a list")
    items: list[_Item] = []
    closing = "}" if opening == "{" else "]"
    at = _skip(text, at + 1)
    while text[at : at + 1] != closing:
        start, key = at, ""
        if opening == "{":
            match = _STRING.match(text, at)
            if match is None:
                raise _fault(text, at, "a name in quotes")
            key, at = str(json.loads(match.group(), strict=False)), _skip(text, match.end())
            if text[at : at + 1] != ":":
                raise _fault(text, at, "a colon")
            at = _skip(text, at + 1)
        end = _end(text, at)
        items.append(_Item(key, start, at, end))
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _fault(text, at, f"a comma or {closing}")
    return _Scan(items, at)


def _end(text: str, at: int) -> int:
    """Return the place behind the value that begins at `at`."""
    opening = text[at : at + 1]
    if opening in ("{", "["):
        return _scan(text, at, opening).close + 1
    match = _STRING.match(text, at) or _WORD.match(text, at)
    if match is None:
        raise _fault(text, at, "a value")
    return match.end()


def _fault(text: str, at: int, what: str) -> ConfigError:
    line = text.count("\n", 0, at) + 1
    rest = repr(text[at : at + 20]) if at < len(text) else "the end"
    return ConfigError(f"line {line}: expected {what}, found {rest}", "correct the file first")
