"""JSON as people write it into openclaw.json: comments, trailing commas, bare keys, single quotes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hermes_core.errors import ImportFailed

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)"""
    r"""|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<mark>[{}\[\]:,])"""
    r"""|(?P<word>[\w$.+-]+)""",
    re.DOTALL,
)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {"true", "false", "null"}


def parse_relaxed_json(text: str) -> Any:
    """The value that the text says; raises `ImportFailed` with the place of what can't be read.

    >>> parse_relaxed_json("{agents: {list: ['a',],}, /* old */ n: 1} // end")
    {'agents': {'list': ['a']}, 'n': 1}
    """
    try:
        return json.loads("".join(_strict(text)))
    except json.JSONDecodeError as exc:
        raise ImportFailed(f"it is not JSON: {exc.msg}", "correct the file") from exc
    except ValueError as exc:
        raise ImportFailed("a number in it is too long", "correct the file") from exc
    except RecursionError as exc:
        raise ImportFailed("it is nested too deeply", "correct the file") from exc


def _strict(text: str) -> Iterator[str]:
    """The tokens of strict JSON; a comma waits until something follows that needs it."""
    comma = ""
    for token in _tokens(text):
        if token == ",":
            comma = token
            continue
        if token not in "}]":
            yield comma
        comma = ""
        yield token
    yield comma


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            line = text.count("\n", 0, at) + 1
            raise ImportFailed(f"line {line} can't be read: {text[at : at + 20]!r}", "correct the file")
        at = match.end()
        if match["string"]:
            yield _string(match["string"])
        elif match["mark"]:
            yield match["mark"]
        elif match["word"]:
            word = match["word"]
            yield word if word in _WORDS or _NUMBER.fullmatch(word) else json.dumps(word)


def _string(quoted: str) -> str:
    """A string of strict JSON for one in either quotes."""
    if quoted[0] == '"':
        return quoted.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    inner = re.sub(
        r"\\(.)|\"", lambda m: "'" if m[1] == "'" else '\\"' if m[0] == '"' else m[0], quoted[1:-1]
    )
    return '"' + inner.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r") + '"'
