"""One SKILL.md: YAML front matter that says what the skill is, then Markdown that says how to do it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from hermes_core.errors import SkillError

MAX_SKILL = 64 * 1024
"""Characters of one SKILL.md; what is longer belongs into files beside it."""

MAX_DESCRIPTION = 1024

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
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
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
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
    platforms = fields.get("platforms") or ()
    if isinstance(platforms, str):
        platforms = [part.strip() for part in platforms.split(",")]
    if not isinstance(platforms, list | tuple):
        raise SkillError(f"platforms must be a list, is {platforms!r}", "write `platforms: [linux, macos]`")
    return Document(
        checked_name(fields.get("name")),
        _description(fields.get("description")),
        str(fields.get("version") or ""),
        tuple(str(platform).lower() for platform in platforms),
        body,
    )


def checked_name(name: object, what: str = "name") -> str:
    """A skill's or category's name that is safe as a folder; raises `SkillError` for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SkillError(f"{what} must be lower-case letters, digits, '-' and '_', is {name!r}", "rename it")
    return name


def _fields(front: str) -> dict[str, Any]:
    try:
        fields = yaml.safe_load(front)
    except yaml.YAMLError as exc:
        raise SkillError(f"the front matter can't be read: {' '.join(str(exc).split())}", _EXAMPLE) from exc
    if not isinstance(fields, dict):
        raise SkillError(f"the front matter must hold `name: value` lines, is {front[:40]!r}", _EXAMPLE)
    return fields


def _description(value: object) -> str:
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not text:
        raise SkillError(f"description must say when to use the skill, is {value!r}", _EXAMPLE)
    if len(text) > MAX_DESCRIPTION:
        raise SkillError(f"description may have {MAX_DESCRIPTION} characters, has {len(text)}", "shorten it")
    return text
