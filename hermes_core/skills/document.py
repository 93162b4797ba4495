"""One SKILL.md: YAML front matter that says what the skill is, then Markdown that says how to do it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from hermes_core.errors import SkillError

MAX_SKILL = 64 * 1024
"""Characters of one SKILL.md; what is longer belongs into files beside it."""

MAX_DESCRIPTION = 1024

OPERATING_SYSTEMS = {"darwin": "macos", "osx": "macos", "win32": "windows"}
"""Platforms by the other names that Python and people have for them."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_QUOTE = "put a value that holds `: ` in quotes, and indent with spaces"
_ESCAPE = "write the letter itself, or the value in single quotes"
_EXAMPLE = "begin it with `---`, `name: ...`, `description: ...`, `---`"


@dataclass(frozen=True, slots=True)
class Document:
    """A skill's front matter and its text. `platforms` empty means all."""

    name: str
    description: str
    version: str = ""
    platforms: tuple[str, ...] = ()
    body: str = ""


def parse(text: str) -> Document:
    """Read a SKILL.md; raises `SkillError` with what is missing or wrong."""
    text = normal(text)
    if len(text) > MAX_SKILL:
        raise SkillError(
            f"a skill may have {MAX_SKILL} characters, this has {len(text)}",
            "put details into files beside it",
        )
    match = _FRONT.match(text)
    if match is None:
        raise SkillError("a skill needs front matter", _EXAMPLE)
    fields = _fields(match[1])
    body = text[match.end() :].strip()
    if not body:
        raise SkillError("the skill has no text after its front matter", "write the steps")
    version = fields.get("version", "")
    if not isinstance(version, str):
        raise SkillError("version must be a text", "write `version: 1.0.0`")
    return Document(
        checked_name(fields.get("name")),
        _description(fields.get("description")),
        version,
        _platforms(fields.get("platforms", "")),
        body,
    )


def normal(text: str) -> str:
    """The text without a byte order mark, its lines ended as on Linux: what a SKILL.md says, whoever saved it.

    >>> normal("\\ufeffone\\r\\ntwo")
    'one\\ntwo'
    """
    return re.sub(r"(?<!\r)\r+\n", "\n", text.removeprefix("\ufeff"))


def checked_name(name: object, what: str = "name") -> str:
    """A skill's or category's name that is safe as a folder; raises `SkillError` for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        given = f", is {name[:80]!r}" if isinstance(name, str) else ""
        raise SkillError(
            f"{what} must be lower-case letters, digits, '-' and '_', at most 64{given}", "rename it"
        )
    return name


@lru_cache(maxsize=1000)  # all skills of a home are read for each look at one of them
def _fields(front: str) -> Mapping[str, Any]:
    try:
        # Texts alone: a date that is none, a tag or a number of another notation raise all sorts of errors.
        fields = yaml.load(front, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as exc:
        raise SkillError(f"the front matter can't be read: {_fault(exc)}", _QUOTE) from exc
    except (ValueError, OverflowError) as exc:  # what `chr` raises, let out by yaml
        raise SkillError(
            "the front matter can't be read: an escape such as \\UFFFFFFFF stands for no letter", _ESCAPE
        ) from exc
    if not isinstance(fields, dict):
        raise SkillError(f"the front matter must hold `name: value` lines, is {front[:40]!r}", _EXAMPLE)
    return {name: value for name, value in fields.items() if value not in ("null", "~")}


def _fault(exc: Exception) -> str:
    """What YAML stumbled over, with the line in the file, whose first is `---`."""
    if isinstance(exc, yaml.MarkedYAMLError) and exc.problem_mark is not None:
        return f"line {exc.problem_mark.line + 2}: {exc.problem or exc.context}"
    return " ".join(str(exc).split())


def _platforms(value: object) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise SkillError("platforms must be a list of names", "write `platforms: [linux, macos]`")
    names = (one.strip().lower() for one in listed)
    return tuple(OPERATING_SYSTEMS.get(name, name) for name in names if name)


def _description(value: object) -> str:
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not text:
        raise SkillError("description must be a text that says when to use the skill", _EXAMPLE)
    if len(text) > MAX_DESCRIPTION:
        raise SkillError(f"description may have {MAX_DESCRIPTION} characters, has {len(text)}", "shorten it")
    return text
