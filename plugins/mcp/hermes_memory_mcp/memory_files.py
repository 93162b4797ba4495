"""Anthropic's client-side memory tool (`memory_20250818`) on the agent's notes.

`/memories` holds two files, MEMORY.md and USER.md: the entries of the two stores, separated by a line with `§`. No path of
the model reaches a file system: there are three names, and every other is refused. Edits become changes of entries, under
the store's own limits, scan, journal and undo.
"""

from __future__ import annotations

import difflib
import posixpath
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hermes_core import Memory
from hermes_core.contract.values import MemoryTarget, Session
from hermes_core.curated.document import entry_handle, join_entries, split_entries
from hermes_core.curated.edits import Operation
from hermes_core.errors import HermesError, MemoryConflict, ToolInputInvalid
from hermes_core.kit import redact, storable
from hermes_core.safety.origin import Reading, current_reading, lowest
from hermes_memory_mcp.toolset import MAX_INPUT, ToolAnswer, ToolSet

ROOT = "/memories"
FILES: Mapping[str, MemoryTarget] = {f"{ROOT}/MEMORY.md": "memory", f"{ROOT}/USER.md": "user"}

MEMORY_TOOL = {"type": "memory_20250818", "name": "memory"}
"""The tool as a request to Anthropic names it. The model knows the commands."""

_SNIPPET = 4
"""Lines around an edit that the answer shows."""


def anthropic_tools(tool_set: ToolSet) -> list[dict[str, Any]]:
    """Return the tools for Anthropic's messages: theirs for the notes, ours for everything else."""
    ours = [one.for_anthropic() for one in tool_set.definitions() if one.name != MEMORY_TOOL["name"]]
    return [dict(MEMORY_TOOL), *ours]


# Pairs of an entry as the model sees it and as it is stored: a flagged entry is shown as its handle only,
# but an edit must match the stored text.
SeenEntries = Sequence[tuple[str, str]]


class MemoryFiles:
    """The handler of the tool's calls. A wrong call returns an error, never an exception."""

    def __init__(self, memory: Memory, session: Session) -> None:
        self._memory = memory
        self._session = session = memory.session(session)
        self._store = memory.curated.of(session)
        self._lock = threading.Lock()
        self._commands: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "view": self._view,
            "create": self._create,
            "str_replace": self._str_replace,
            "insert": self._insert,
            "delete": self._delete,
            "rename": self._rename,
        }
        memory.manager.initialize_all(session)

    def call(self, arguments: object) -> ToolAnswer:
        """Run a command, such as `{"command": "view", "path": "/memories"}`."""
        try:
            if not isinstance(arguments, Mapping):
                raise ToolInputInvalid("the input must be an object with a command")
            command = arguments.get("command")
            run = self._commands.get(command) if isinstance(command, str) else None
            if run is None:
                raise ToolInputInvalid(
                    f"there is no command {_short(command)}", f"use {', '.join(self._commands)}"
                )
            with self._lock:
                answer = ToolAnswer(run(arguments))
            # An answer may hold any entry of the two files.
            reading = self._reading()
            origin = lowest(self._store.read().origins(reading.turn), "assistant")
            self._memory.internals.origins.remember_result(self._session, answer.text, origin)
            is_exact = current_reading() is not None
            self._memory.internals.origins.note_write(reading, "", answer.text, is_exact=is_exact)
            self._memory.internals.origins.note_read(self._session, origin)
            return answer
        except HermesError as exc:
            return ToolAnswer(f"Error: {redact(str(exc))}", failed=True)

    # --------------------------------------------------------------- commands

    def _view(self, given: Mapping[str, Any]) -> str:
        path = _path(given, "path")
        if path == ROOT:
            lines = [f"{size}\t{shown}" for size, shown in self._present()]
            return "\n".join(["Here're the files and directories in /memories:", f"0\t{ROOT}", *lines])
        lines = _joined(self._existing(path)).split("\n")
        first, last = _range(given.get("view_range"), len(lines))
        numbered = _numbered(lines, first, last)
        return "\n".join([f"Here's the content of {path} with line numbers:", *numbered])

    def _create(self, given: Mapping[str, Any]) -> str:
        path, text = _path(given, "path"), _text(given, "file_text")
        target = self._target(path)
        if self._store.entries(target):
            raise ToolInputInvalid(f"File {path} already exists", "use str_replace or insert to change it")
        self._save(target, [], text)
        return f"File created successfully at: {path}"

    def _str_replace(self, given: Mapping[str, Any]) -> str:
        path, old, new = _path(given, "path"), _text(given, "old_str"), _text(given, "new_str", default="")
        seen = self._existing(path)
        text = _joined(seen)
        found = text.count(old) if old else 0
        if not found:
            raise ToolInputInvalid(
                f"No replacement was performed, old_str {_short(old)} did not appear verbatim in {path}"
            )
        if found > 1:
            at = [number for number, line in enumerate(text.split("\n"), 1) if old.split("\n")[0] in line]
            raise ToolInputInvalid(
                f"No replacement was performed. Multiple occurrences of old_str {_short(old)} in lines: "
                f"{', '.join(map(str, at))}",
                "make it unique",
            )
        changed = text.replace(old, new)
        self._save(self._target(path), seen, changed)
        return self._edited(path, text[: text.index(old)].count("\n") + 1)

    def _insert(self, given: Mapping[str, Any]) -> str:
        path, text = _path(given, "path"), _text(given, "insert_text")
        seen = self._existing(path)
        lines = _joined(seen).split("\n")
        line = given.get("insert_line")
        if isinstance(line, bool) or not isinstance(line, int) or not 0 <= line <= len(lines):
            raise ToolInputInvalid(
                f"Invalid insert_line parameter: {_short(line)}", f"it must be within [0, {len(lines)}]"
            )
        # The inserted text is an entry of its own; without delimiters it would become part of a neighbour.
        before, after = "\n".join(lines[:line]), "\n".join(lines[line:])
        whole = join_entries([part for part in (before, text, after) if part])
        self._save(self._target(path), seen, whole)
        return self._edited(path, line + 1)

    def _delete(self, given: Mapping[str, Any]) -> str:
        path = _path(given, "path")
        self._existing(path)
        reading = self._reading()
        self._checked(self._store.reset(self._target(path), session=self._session, reading=reading))
        return f"Successfully deleted {path}"

    def _rename(self, given: Mapping[str, Any]) -> str:
        old, new = _path(given, "old_path"), _path(given, "new_path")
        raise ToolInputInvalid(
            f"{old} can't be renamed to {new}",
            "MEMORY.md and USER.md are fixed: delete from one and insert into the other",
        )

    # ------------------------------------------------------------------ store

    def _present(self) -> Iterator[tuple[int, str]]:
        """Yield size and path of each file that is not empty, or why it can't be read."""
        for path, target in FILES.items():
            if target in self._store.enabled_targets:
                try:
                    seen = self._seen(target)
                except MemoryConflict as exc:
                    yield 0, f"{path} ({redact(str(exc))})"
                else:
                    if seen:
                        yield len(_joined(seen).encode()), path

    def _target(self, path: str) -> MemoryTarget:
        if path not in FILES:
            raise ToolInputInvalid(f"{path} is a directory", f"name one of {', '.join(FILES)}")
        target = FILES[path]
        if target not in self._store.enabled_targets:
            raise ToolInputInvalid(f"{path} is switched off")
        return target

    def _seen(self, target: MemoryTarget) -> SeenEntries:
        notes = self._store.read()
        hidden = {flagged.entry: flagged.withheld for flagged in notes.flagged(target)}
        return [(hidden.get(entry, entry), entry) for entry in notes.entries(target)]

    def _existing(self, path: str) -> SeenEntries:
        seen = self._seen(self._target(path))
        if not seen:
            raise ToolInputInvalid(f"The path {path} does not exist", "create it, or view /memories")
        return seen

    def _save(self, target: MemoryTarget, seen: SeenEntries, text: str) -> None:
        """Change the entries in `seen` into those of `text`, all or nothing. Entries that were added since stay."""
        shown, stored = [one for one, _ in seen], [one for _, one in seen]
        operations = operations_between(shown, stored, split_entries(storable(text)))
        if operations:
            self._store.start_turn(self._session)
            reading = self._reading()
            self._checked(self._store.write(target, operations, self._session, batch=True, reading=reading))

    def _reading(self) -> Reading:
        return current_reading() or self._memory.internals.origins.reading_of(self._session)

    def _checked(self, result: Mapping[str, Any]) -> None:
        if not result.get("success"):
            raise ToolInputInvalid(str(result.get("error")), str(result.get("remediation", "")))

    def _edited(self, path: str, line: int) -> str:
        """Return the lines around an edit, numbered."""
        lines = _joined(self._seen(FILES[path])).split("\n")
        first, last = max(1, line - _SNIPPET), min(len(lines), line + _SNIPPET)
        return "\n".join(["The memory file has been edited.", *_numbered(lines, first, last)])


def operations_between(shown: Sequence[str], stored: Sequence[str], wanted: Sequence[str]) -> list[Operation]:
    """Return the operations that turn the stored entries, `shown` to the model in their places, into the wanted ones."""
    removed: list[Operation] = []
    replaced: list[Operation] = []
    added: list[Operation] = []

    def before(place: int) -> str:
        entry = wanted[place - 1] if place else ""
        return stored[shown.index(entry)] if entry in shown else entry

    matcher = difflib.SequenceMatcher(None, shown, wanted, autojunk=False)
    for _, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        # An entry that only moved stays where it is: the store has an order of its own.
        old = [stored[place] for place in range(old_from, old_to) if shown[place] not in wanted]
        new = [place for place in range(new_from, new_to) if wanted[place] not in shown]
        pairs = min(len(old), len(new))
        replaced += [
            Operation("replace", wanted[new[place]], entry_handle(old[place])) for place in range(pairs)
        ]
        removed += [Operation("remove", "", entry_handle(entry)) for entry in old[pairs:]]
        added += [Operation("add", wanted[place], after=before(place)) for place in new[pairs:]]
    return [*removed, *replaced, *added]


def _joined(seen: SeenEntries) -> str:
    return join_entries([shown for shown, _ in seen])


def _path(given: Mapping[str, Any], key: str) -> str:
    """One of the three paths there are. Raises `ToolInputInvalid` for every other, however it is written."""
    raw = given.get(key)
    if not isinstance(raw, str) or not raw:
        raise ToolInputInvalid(f"{key} is missing", f"send a path such as {next(iter(FILES))}")
    plain = raw.rstrip("/") if len(raw) < 200 else ""
    if plain == ROOT or plain in FILES:
        return plain
    if ".." in raw or "%" in raw or "\\" in raw or "\0" in raw or not raw.startswith(f"{ROOT}/"):
        raise ToolInputInvalid(
            f"Path {_short(raw)} leads out of {ROOT}", f"{ROOT} holds MEMORY.md and USER.md"
        )
    name = _short(posixpath.basename(raw))
    raise ToolInputInvalid(
        f"{name} can't be in {ROOT}",
        "it holds MEMORY.md (your notes) and USER.md (the person) and nothing else: write the fact into one of them",
    )


def _text(given: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = given.get(key, default)
    if not isinstance(value, str):
        raise ToolInputInvalid(f"{key} must be a string", "send text")
    if len(value) > MAX_INPUT:
        raise ToolInputInvalid(f"{key} has {len(value):,} characters, over {MAX_INPUT:,}", "send less")
    return value


def _range(value: object, count: int) -> tuple[int, int]:
    """First and last line to show; -1 as the last means the end."""
    if value is None:
        return 1, count
    if not isinstance(value, list) or len(value) != 2 or not all(type(one) is int for one in value):
        raise ToolInputInvalid(f"Invalid view_range parameter: {_short(value)}", "send [first, last]")
    first, last = value
    last = count if last == -1 else min(last, count)
    if not 1 <= first <= last:
        raise ToolInputInvalid(
            f"Invalid view_range parameter: {_short(value)}", f"it must be within [1, {count}]"
        )
    return first, last


def _numbered(lines: Sequence[str], first: int, last: int) -> list[str]:
    return [f"{number:6}\t{lines[number - 1]}" for number in range(first, last + 1)]


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 100 else f"{text[:99]}…"
