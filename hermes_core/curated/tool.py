"""The `memory` tool: its schema for the model, and a call that answers whatever the model sends."""

from __future__ import annotations

import copy
import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from hermes_core.contract.values import MemoryAction, MemoryTarget, Session
from hermes_core.curated.edits import Operation, Refusal
from hermes_core.curated.results import Result
from hermes_core.curated.store import TARGETS, MemoryStore
from hermes_core.errors import HermesError

ACTIONS: tuple[MemoryAction, ...] = get_args(MemoryAction)

_DESCRIPTION = """\
Keep facts that will still matter in later sessions. They are saved to disk at once and appear in your system prompt \
from the next session on.

Targets: 'user' is who the person is (name, role, preferences, how they like to work, corrections they repeat); \
'memory' is your own notes (environment, project conventions, quirks of tools, lessons learned).

Save without being asked when the person states a preference, corrects you, or you learn something stable. Write \
declarative facts ("User prefers short answers"), not orders to yourself ("Always answer shortly"). Do not keep a \
diary: no task progress, finished work, session summaries, issue or commit numbers, to-do lists, or anything that is \
stale within a week; past conversations can be searched. Procedures belong in skills.

Actions: 'add' needs content; 'replace' needs old_text and content; 'remove' needs old_text. old_text is a short \
fragment that occurs in exactly one entry. Space is limited: when the store is full, send 'operations' that remove or \
shorten stale entries and add the new one in a single call; all of them happen or none, and the limit counts at the end.\
"""

_TEXTS: dict[str, dict[str, Any]] = {
    "content": {"type": "string", "description": "The text of the entry. Required for 'add' and 'replace'."},
    "old_text": {
        "type": "string",
        "description": "A fragment of the one entry meant. Required for 'replace' and 'remove'.",
    },
}

MEMORY_SCHEMA: dict[str, Any] = {
    "name": "memory",
    "description": _DESCRIPTION,
    "parameters": {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": list(ACTIONS), "description": "What to do with one entry."},
            "target": {
                "type": "string",
                "enum": list(TARGETS),
                "description": "'memory' for your notes, 'user' for the person's profile.",
            },
            **_TEXTS,
            "operations": {
                "type": "array",
                "description": "Several changes of one target at once, instead of action, content and old_text.",
                "items": {
                    "type": "object",
                    "properties": {"action": {"type": "string", "enum": list(ACTIONS)}, **_TEXTS},
                    "required": ["action"],
                },
            },
        },
        "required": ["target"],
    },
}
"""The tool in the form that models take. `target` alone is required, since the rest depends on the action."""

_OPERATIONS = "operations must be a list of {action, content?, old_text?} objects."


def memory_schema(targets: Sequence[MemoryTarget] = TARGETS) -> dict[str, Any]:
    """The schema for the stores that are switched on."""
    schema = copy.deepcopy(MEMORY_SCHEMA)
    schema["parameters"]["properties"]["target"]["enum"] = list(targets)
    return schema


class MemoryTool:
    """Calls of the `memory` tool on one store, or on none when curated memory is switched off."""

    def __init__(self, store: MemoryStore | None) -> None:
        self._store = store

    def call(self, arguments: object, session: Session) -> str:
        """Do what the model asks; a JSON object as text, whatever `arguments` are."""
        if self._store is None or not self._store.enabled_targets:
            return _json(
                {"error": "Memory is not available. It is switched off in this session.", "success": False}
            )
        try:
            return _json(self._dispatch(self._store, arguments, session))
        except HermesError as exc:
            return _json(self._store.refuse(Refusal(exc.message, remedy=exc.remedy), None, session))

    def _dispatch(self, store: MemoryStore, arguments: object, session: Session) -> Result:
        if not isinstance(arguments, Mapping):
            return store.refuse(
                Refusal(f"Arguments must be an object, not {_brief(arguments)}. Send target and action."),
                None,
                session,
            )
        target = "memory" if arguments.get("target") is None else arguments["target"]
        if not isinstance(target, str) or target not in TARGETS:
            return store.refuse(
                Refusal(f"Invalid target {_brief(target)}. Use 'memory' or 'user'."), None, session
            )
        asked = _asked(arguments)
        if isinstance(asked, Refusal):
            return store.refuse(asked, target if target in store.enabled_targets else None, session)
        if isinstance(asked, list):
            return store.apply_batch(target, asked, session=session)
        if asked.action == "add":
            return store.add(target, asked.content, session=session)
        if asked.action == "replace":
            return store.replace(target, asked.old_text, asked.content, session=session)
        return store.remove(target, asked.old_text, session=session)


def _asked(arguments: Mapping[str, Any]) -> Operation | list[Operation] | Refusal:
    """What the model wants, checked for shape; operations win over a single action."""
    operations = arguments.get("operations")
    if operations is None or (operations in ([], "", {}) and arguments.get("action") is not None):
        return _operation(arguments)
    if not isinstance(operations, list):
        return Refusal(f"{_OPERATIONS} It was {_brief(operations)}.")
    checked: list[Operation] = []
    for index, item in enumerate(operations):
        operation = (
            _operation(item)
            if isinstance(item, Mapping)
            else Refusal(f"{_OPERATIONS} It was {_brief(item)}.")
        )
        if isinstance(operation, Refusal):
            return Refusal(
                f"Operation {index + 1}: {operation.reason} No operations were applied (batch is all-or-nothing).",
                show_entries=operation.show_entries,
            )
        checked.append(operation)
    return checked


def _operation(item: Mapping[str, Any]) -> Operation | Refusal:
    action = item.get("action")
    if not isinstance(action, str) or action not in ACTIONS:
        return Refusal(f"Unknown action {_brief(action)}. Use: {', '.join(ACTIONS)}")
    texts: dict[str, str] = {}
    for key in _TEXTS:
        value = item.get(key)
        if value is not None and not isinstance(value, str):
            return Refusal(f"{key} must be a string, not {_brief(value)}.")
        texts[key] = value or ""
    if action != "remove" and not texts["content"]:
        return Refusal(
            "Content is required for 'add' action."
            if action == "add"
            else "content is required for 'replace' action."
        )
    if action != "add" and not texts["old_text"]:
        return Refusal(
            f"'{action}' needs old_text -- a fragment of the one entry meant, copied from current_entries.",
            show_entries=True,
        )
    return Operation(action, texts["content"], texts["old_text"])


def _brief(value: object) -> str:
    """A value as a message shows it: short, and safe for any depth and any character."""
    return reprlib.repr(value)


def _json(result: Result) -> str:
    return json.dumps(result, ensure_ascii=False)
