"""YAML as a text: read as data, and changed in one place, with every other byte as it was."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from hermes_core.errors import ConfigError

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Other programs mark values with tags of their own, as Home Assistant does with `!secret`; they stay as written.
_LenientLoader: Any = type("_LenientLoader", (Loader,), {})
_LenientLoader.add_multi_constructor("!", lambda _loader, _suffix, node: yaml.serialize(node))
# PyYAML lets these errors out for a value that only looks like a date or a number: `2024-02-30`, `0x_`.
_CONVERSION_ERRORS = (ValueError, LookupError, AttributeError, RecursionError)

_ABSENT = object()
_ANCHOR = re.compile(r"&(\S+)\s*")
_COLON = re.compile(r"\s*:(?:[ \t]+[&!]\S+)*")
_DOCUMENT_START = re.compile(r"^---(?=\s|\Z).*(?:\n|\Z)", re.MULTILINE)


class _Dumper(yaml.SafeDumper):
    """A writer of a value on one line."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  (PyYAML's signature)
        return True


def _represented(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Only in double quotes is a line break written as `\n`.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, '"' if "\n" in text else None)


_Dumper.add_representer(str, _represented)


@contextlib.contextmanager
def yaml_errors(line: int = 0) -> Iterator[None]:
    """Turn PyYAML's errors into ours with the line; `line` is the place if PyYAML names none."""
    try:
        yield
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        place = f" line {mark.line + 1}" if mark else ""
        raise ConfigError(
            f"config.yaml{place}: {exc.problem or exc.context}", "correct the YAML there"
        ) from exc
    except (yaml.YAMLError, *_CONVERSION_ERRORS) as exc:
        place = f" line {line}" if line else ""
        reason = " ".join(str(exc).split())
        raise ConfigError(f"config.yaml{place} can't be read: {reason}", "correct the YAML") from exc


def read_data(text: str) -> Any:
    """Return what a text of YAML holds, also in blocks of other programs. Raises `ConfigError`."""
    with yaml_errors():
        return yaml.load(text, _LenientLoader)


def with_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with this value at the path of keys; blocks that are missing are added.

    Raises:
        ConfigError: The text can't be read, a key of the path holds no block, or another value would change too, as a
            block that is shared by an anchor.
    """
    held = read_data(text)
    expected = _changed(held, path, value)
    if expected == held:
        return text
    # At the end of a file without a last line end, a line below a text of several lines would give that text one.
    for on_top in (False, True):
        new = _set(text, path, value, on_top)
        if _reads_as(new, expected):
            return new
    raise _harmful(path)


def without_value(text: str, path: Sequence[str]) -> str:
    """Return the text without the key at the end of the path. Raises `ConfigError` as `with_value` does."""
    expected = _changed(read_data(text), path, _ABSENT)
    # Of a key that is written twice, the last one counts, so all have to go.
    while (shorter := _removed(text, path)) != text:
        text = shorter
    if _reads_as(text, expected):
        return text
    raise _harmful(path)


def _reads_as(text: str, expected: Any) -> bool:
    with contextlib.suppress(ConfigError):
        return bool((read_data(text) or {}) == (expected or {}))
    return False


def _harmful(path: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"{'.'.join(path)} can't be changed in config.yaml without harming other values", "edit it by hand"
    )


def _changed(data: Any, path: Sequence[str], value: Any, above: str = "") -> Any:
    """Return a copy of the data with the change at the path."""
    if data is not None and not isinstance(data, Mapping):
        if value is _ABSENT:
            return data
        key = ".".join((above, *path))
        raise ConfigError(f"{above} is {data!r} and no block, so {key} has no place", f"unset {above} first")
    changed, (name, *rest) = dict(data or {}), path
    # YAML reads a bare 8080 as a number.
    name = next((key for key in changed if str(key) == name), name)
    if rest and (name in changed or value is not _ABSENT):
        changed[name] = _changed(changed.get(name), rest, value, f"{above}.{name}".lstrip("."))
    elif value is not _ABSENT:
        changed[name] = value
    elif name in changed:
        del changed[name]
    return changed if changed or isinstance(data, dict) else data


def _set(text: str, path: Sequence[str], value: Any, on_top: bool) -> str:
    node = root = _root(text)
    key, in_flow, held = None, False, read_data(text)
    for depth, name in enumerate(path):
        pair = _pair(node, name)
        if pair is None:
            return _added(text, root, key, node, path[depth:], value, in_flow, on_top)
        in_flow = bool(node.flow_style)
        key, node = pair
        if depth + 1 < len(path) and _is_alias(key, node):
            alias = _alias_at(text, key.end_mark.index)
            start, end = alias.start_mark.index, alias.end_mark.index
            own = _dumped(_nested(path[depth + 1 :], value))
            return _spliced(text, start, end, f"{{<<: {text[start:end]}, {own[1:-1]}}}")
        held = next((below for at, below in held.items() if str(at) == name), None)
    return _replaced(text, key, node, held, value, in_flow)


def _root(text: str) -> Any:
    with yaml_errors():
        return Loader(text).get_single_node()


def _pair(node: Any, name: str) -> tuple[Any, Any] | None:
    """Return the nodes of a key and of its value. The last one counts if a key is written twice."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((pair for pair in reversed(node.value) if str(pair[0].value) == name), None)


def _is_alias(key: Any, node: Any) -> bool:
    """Return True if a value is named before its key."""
    return key is not None and node.start_mark.index < key.end_mark.index


# --------------------------------------------------------------------------------------------------- changes of the text


def _added(
    text: str,
    root: Any,
    key: Any,
    node: Any,
    path: Sequence[str],
    value: Any,
    in_flow: bool,
    on_top: bool,
) -> str:
    """Return the text with a key that the mapping `node`, or the empty place of `key`, does not have yet."""
    nested = _nested(path, value)
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        at, comma = node.end_mark.index - 1, ""
        if node.value:
            last_key, last = node.value[-1]
            at, comma = _end(text, last_key.end_mark.index, last), ", "
        return _spliced(text, at, at, comma + _dumped(nested)[1:-1])
    if in_flow:
        return _replaced(text, key, node, None, nested, in_flow)
    column = 0
    if isinstance(node, yaml.MappingNode):
        last_key, last = node.value[-1]
        first = node.value[0][0].start_mark
        column = first.column
        below = text.rfind("\n", 0, first.index) + 1 if on_top else _end(text, last_key.end_mark.index, last)
    elif key is not None:
        start, end = node.start_mark.index, node.end_mark.index
        if text[start:end].lower() in ("null", "~"):
            text = _spliced(text, len(text[:start].rstrip(" ")), end, "")
        column = key.start_mark.column + _step(root)
        below = key.end_mark.index
    else:
        marker = _DOCUMENT_START.search(text)
        below = marker.end() if marker else 0
    if not on_top and text:
        below = _after_comments(text, _next_line(text, below) if below else 0, column)
    lines = _lines(path[0], nested[path[0]], column, _step(root))
    # A file that holds only comments begins with a description of itself.
    return _with_lines(text, below, ["", *lines] if root is None and text[:below].strip("-\n ") else lines)


def _lines(name: str, value: Any, column: int, step: int) -> list[str]:
    """Return the lines of a key; a block has a line for each of its own."""
    start = f"{' ' * column}{_dumped(name)}:"
    if not isinstance(value, dict) or not value:
        return [f"{start} {_dumped(value)}"]
    return [start, *(line for at, below in value.items() for line in _lines(at, below, column + step, step))]


def _nested(path: Sequence[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _replaced(text: str, key: Any, node: Any, held: Any, value: Any, in_flow: bool) -> str:
    """Return the text with another value of a key. An item of a list that stays keeps its line."""
    start, end = node.start_mark.index, _end(text, key.end_mark.index, node)
    is_alias = _is_alias(key, node)
    is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style and not is_alias
    if is_block and isinstance(node, yaml.SequenceNode) and isinstance(value, list) and value:
        return _with_items(text, node, held, value)
    if is_alias:
        start = _alias_at(text, key.end_mark.index).start_mark.index
    elif is_block:
        start = _after_colon(text, key)
    style = getattr(node, "style", None)
    quote = style if style in ('"', "'") and isinstance(value, str) and "\n" not in value else None
    new = _dumped(value, quote, in_flow=in_flow)
    if text[start - 1] not in " \t\n":
        new = f" {new}"
    moved = _with_anchor_moved(text, start, end)
    if moved == text and not is_block and (anchor := _ANCHOR.match(text, start, end)):
        new = anchor[0] + new
    return _spliced(moved, start, end, new)


def _with_anchor_moved(text: str, start: int, end: int) -> str:
    """Return the text with the value that stands here also where the file names it again below."""
    anchor = _ANCHOR.match(text, start, end)
    again = _alias_at(text, end, anchor[1]) if anchor else None
    return _spliced(text, again.start_mark.index, again.end_mark.index, text[start:end]) if again else text


def _with_items(text: str, node: Any, held: Sequence[Any], items: Sequence[Any]) -> str:
    """Return the text with other items in a list that has a line for each."""
    most = min(len(held), len(items))
    first = next((at for at in range(most) if held[at] != items[at]), most)
    last = next((at for at in range(most - first) if held[-1 - at] != items[-1 - at]), most - first)
    starts: list[int] = []
    at = node.start_mark.index
    for item in node.value:
        mark = item.start_mark if item.start_mark.index >= at else _alias_at(text, at).start_mark
        starts.append(text.rfind("\n", 0, mark.index) + 1)
        at = _end(text, at, item)
    starts.append(_next_line(text, at))
    start, end = starts[first], starts[len(held) - last]
    indentation = text[starts[0] : text.index("-", starts[0])]
    lines = [f"{indentation}- {_dumped(item)}" for item in items[first : len(items) - last]]
    return _with_lines(_spliced(text, start, end, ""), start, lines)


def _removed(text: str, path: Sequence[str]) -> str:
    """Return the text without the last line of this key, the same text if there is none."""
    chain: list[tuple[Any, Any]] = [(None, _root(text))]
    for name in path:
        pair = _pair(chain[-1][1], name)
        if pair is None or _is_alias(*chain[-1]):
            return text
        chain.append(pair)
    (above, parent), (key, value) = chain[-2:]
    end = _end(text, key.end_mark.index, value)
    if not _is_alias(key, value):
        text = _with_anchor_moved(text, value.start_mark.index, end)
    at = next(at for at, (other, _) in enumerate(parent.value) if other is key)
    if parent.flow_style:
        if at:
            before_key, before = parent.value[at - 1]
            return _spliced(text, _end(text, before_key.end_mark.index, before), end, "")
        rest = parent.value[1:]
        return _spliced(text, key.start_mark.index, rest[0][0].start_mark.index if rest else end, "")
    text = _spliced(text, text.rfind("\n", 0, key.start_mark.index) + 1, _next_line(text, end), "")
    if len(parent.value) == 1 and above is not None:
        place = _after_colon(text, above)
        text = _spliced(text, place, place, " {}")
    return text


# ------------------------------------------------------------------------------------------------------ places and lines


def _end(text: str, after: int, node: Any) -> int:
    """Return the index behind the last character of a value, without the comments and blank lines below it.

    Args:
        text: The whole text.
        after: Index before the value. A value that was named before it is written as an alias.
        node: The value.
    """
    if node.start_mark.index < after:
        return int(_alias_at(text, after).end_mark.index)
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        if isinstance(node, yaml.MappingNode):
            key, value = node.value[-1]
            return _end(text, key.end_mark.index, value)
        at = node.start_mark.index
        for item in node.value:
            at = _end(text, at, item)
        return at
    written = text[node.start_mark.index : node.end_mark.index]
    if getattr(node, "style", None) in ("|", ">") and "+" not in written.partition("\n")[0]:
        written = written.rstrip()
    return int(node.start_mark.index) + len(written)


def _alias_at(text: str, after: int, name: str | None = None) -> Any:
    """Return the event of the first alias behind this index, None if there is none."""
    return next(
        (
            event
            for event in yaml.parse(text, Loader)
            if isinstance(event, yaml.AliasEvent)
            and event.start_mark
            and event.start_mark.index >= after
            and name in (None, event.anchor)
        ),
        None,
    )


def _after_colon(text: str, key: Any) -> int:
    """Return the index behind the colon of a key, and behind the anchor or tag of a block."""
    match = _COLON.match(text, key.end_mark.index)
    return match.end() if match else int(key.end_mark.index)


def _after_comments(text: str, at: int, column: int) -> int:
    """Return the beginning of the line below the comments that belong to a block of this indentation."""
    line = at
    while line < len(text):
        following = _next_line(text, line + 1)
        words = text[line:following].lstrip()
        if words.startswith("#") and following - line - len(words) >= column:
            at = following
        elif words:
            break
        line = following
    return at


def _next_line(text: str, at: int) -> int:
    """Return the beginning of the line below this place; the place itself if it is one."""
    if at and text[at - 1] == "\n":
        return at
    return text.find("\n", at) + 1 or len(text)


def _step(root: Any) -> int:
    """Return the number of columns by which the file indents a block."""
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            columns = value.value[0][0].start_mark.column - key.start_mark.column
            if columns > 0:
                return int(columns)
    return 2


def _with_lines(text: str, at: int, lines: Sequence[str]) -> str:
    """Return the text with lines at the beginning of a line, in the line ends of the file."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    new = "".join(line + line_end for line in lines)
    if at and text[at - 1] != "\n":
        # The last line of the file has no end, and the new last line gets none.
        new = line_end + new.removesuffix(line_end)
    return _spliced(text, at, at, new)


def _spliced(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]


def _dumped(value: Any, quote: str | None = None, *, in_flow: bool = False) -> str:
    """Return a value as YAML on one line. In braces, more of the strings need quotes."""
    in_flow = in_flow or isinstance(value, Mapping | list | tuple)
    listed: str = yaml.dump(
        [value],
        Dumper=_Dumper,
        default_style=quote,
        default_flow_style=in_flow,
        width=math.inf,
        allow_unicode=True,
        sort_keys=False,
    )
    return listed[1:-2] if in_flow else listed[2:-1]
