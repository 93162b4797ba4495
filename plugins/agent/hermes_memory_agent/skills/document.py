"""Content of a SKILL.md: YAML front matter that describes the skill, then the steps in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from hermes_core.errors import SkillError
from hermes_core.home import folder_fault
from hermes_core.kit import clip

MAX_SKILL_CHARS = 64 * 1024
"""Limit of one SKILL.md; longer text belongs into files beside it."""

MAX_DESCRIPTION_CHARS = 1024
MAX_NAME_CHARS = 64

MAX_BRACKETS = 200
"""Brackets in front matter that is read as YAML."""

OPERATING_SYSTEMS = {"darwin": "macos", "osx": "macos", "win32": "windows"}
"""Other names of platforms, in Python and among people."""

# A name is also a folder's name: no dot, no slash, no case that some file systems ignore.
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_LINE = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*)|\Z)")
_BLOCK_MARK = re.compile(r"\A[>|][+-]?\s+")
_QUOTE = "put a value that holds `: ` in quotes, and indent with spaces"
_ESCAPE = "write the letter itself, or the value in single quotes"
_EXAMPLE = "begin it with `---`, `name: ...`, `description: ...`, `---`"


@dataclass(frozen=True, slots=True)
class SkillDocument:
    """Front matter and text of a skill. Empty `platforms` means all."""

    name: str
    description: str
    version: str = ""
    platforms: tuple[str, ...] = ()
    body: str = ""


def parse_skill(text: str) -> SkillDocument:
    """Read a SKILL.md that the agent writes. Raises `SkillError` that names what is missing or wrong."""
    text = normalize_lines(text)
    if len(text) > MAX_SKILL_CHARS:
        raise SkillError(
            f"a skill may have {MAX_SKILL_CHARS} characters, this has {len(text)}",
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
    return SkillDocument(
        check_name(fields.get("name")),
        _description(fields.get("description")),
        version,
        _platforms(fields.get("platforms", "")),
        body,
    )


def read_skill(text: str, folder: str) -> SkillDocument:
    """Read a SKILL.md as people write it for other programs.

    - Front matter that is no YAML, often because of an unquoted `: `, is read as `key: value` lines.
    - Without front matter, or if `name` is a name for people, `folder` is the name.
    - Without a description, the first line of prose is the description. A long description is cut.

    Raises `SkillError` if there is no text and no description, if `platforms` can't be read, or if the folder's name shows nothing.

    >>> read_skill("# Agent Browser\\n\\nDrive a browser: click and type.", "agent-browser").description
    'Drive a browser: click and type.'
    """
    text = normalize_lines(text)
    match = _FRONT.match(text)
    fields = _lenient_fields(match[1]) if match else {}
    body = text[match.end() if match else 0 :].strip()
    name, description, version = fields.get("name"), fields.get("description"), fields.get("version")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        name = _folder_name(folder)
    description = " ".join(description.split()) if isinstance(description, str) else ""
    if not body and not description:  # some skills say all in their description, or in files beside them
        raise SkillError("the skill has no description and no text after its front matter", "write the steps")
    return SkillDocument(
        name,
        clip(description or _first_prose(body) or name, MAX_DESCRIPTION_CHARS),
        version if isinstance(version, str) else "",
        _platforms(fields.get("platforms", "")),
        body,
    )


def _folder_name(folder: str) -> str:
    name = " ".join("".join(c if c.isprintable() else " " for c in folder).split())[:MAX_NAME_CHARS]
    if not name:
        raise SkillError(f"the folder's name {folder!r} shows nothing", "rename it")
    return name


def _first_prose(body: str) -> str:
    """Return the first line that is no heading, code fence or other mark; "" if there is none."""
    for line in body.splitlines():
        if re.match(r"\s*(?:[-*>]\s+)?\w", line):
            return " ".join(line.strip(" \t-*>").split())
    return ""


def normalize_lines(text: str) -> str:
    """Return the text without a byte order mark, with `\\n` at the end of its lines, whichever editor saved it.

    >>> normalize_lines("\\ufeffone\\r\\ntwo")
    'one\\ntwo'
    """
    return re.sub(r"(?<!\r)\r+\n", "\n", text.removeprefix("\ufeff"))


def check_name(name: object, what: str = "name") -> str:
    """Return the name of a skill or category if it is safe as a folder's name; raise `SkillError` if not."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = f", is {name[:80]!r}" if isinstance(name, str) else ""
        raise SkillError(
            f"{what} must be lower-case letters, digits, '-' and '_', at most 64{shown}", "rename it"
        )
    if fault := folder_fault(name):
        raise SkillError(f"{what} can't be {name!r}: {fault}", "rename it")
    return name


@lru_cache(maxsize=1000)  # every look at one skill reads all skills of the home
def _fields(front: str) -> Mapping[str, Any]:
    try:
        # BaseLoader reads every value as a text: wrong dates, tags and numbers would raise many kinds of errors.
        fields = yaml.load(front, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as exc:
        raise SkillError(f"the front matter can't be read: {_fault(exc)}", _QUOTE) from exc
    except (ValueError, OverflowError) as exc:  # yaml lets errors of `chr` pass
        raise SkillError(
            "the front matter can't be read: an escape such as \\UFFFFFFFF stands for no letter", _ESCAPE
        ) from exc
    if not isinstance(fields, dict):
        raise SkillError(f"the front matter must hold `name: value` lines, is {front[:40]!r}", _EXAMPLE)
    return {name: value for name, value in fields.items() if value not in ("null", "~")}


@lru_cache(maxsize=1000)
def _lenient_fields(front: str) -> Mapping[str, Any]:
    # A YAML parser takes a second for some thousand brackets, and every look at one skill reads all skills.
    if front.count("[") + front.count("{") <= MAX_BRACKETS:
        try:
            return _fields(front)
        except SkillError:
            pass
    fields: dict[str, str] = {}
    key = ""
    for line in front.split("\n"):
        match = _LINE.match(line)
        if match:
            key, fields[match[1]] = match[1], match[2] or ""
        elif key and line[:1] in (" ", "\t"):  # the next line of a folded value
            fields[key] = f"{fields[key]} {line.strip()}"
    return {key: _BLOCK_MARK.sub("", value.strip()).strip("\"'[] \t") for key, value in fields.items()}


def _fault(exc: Exception) -> str:
    """Return what YAML reports, with the line in the file. The front matter begins in line 2."""
    if isinstance(exc, yaml.MarkedYAMLError) and exc.problem_mark is not None:
        return f"line {exc.problem_mark.line + 2}: {exc.problem or exc.context}"
    return " ".join(str(exc).split())


def _platforms(value: object) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise SkillError("platforms must be a list of names", "write `platforms: [linux, macos]`")
    names = (name.strip().lower() for name in listed)
    return tuple(OPERATING_SYSTEMS.get(name, name) for name in names if name)


def _description(value: object) -> str:
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not text:
        raise SkillError("description must be a text that says when to use the skill", _EXAMPLE)
    if len(text) > MAX_DESCRIPTION_CHARS:
        raise SkillError(
            f"description may have {MAX_DESCRIPTION_CHARS} characters, has {len(text)}", "shorten it"
        )
    return text
