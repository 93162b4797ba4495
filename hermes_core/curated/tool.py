"""The `memory` tool: its schema, the call with a model's arguments, and the built-in provider that offers the tool."""

from __future__ import annotations

import contextlib
import copy
import json
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

from msgspec.structs import replace

from hermes_core.config.profile import ProfileField
from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import BUILTIN_NAME, MemoryAction, MemoryTarget, Session, ToolCall
from hermes_core.curated.answers import Result
from hermes_core.curated.edits import Operation, Refusal
from hermes_core.curated.store import TARGETS, Notes
from hermes_core.curated.stored import StoredNotes
from hermes_core.errors import HermesError
from hermes_core.safety.origin import Reading, current_reading, report_result

ACTIONS: tuple[MemoryAction, ...] = get_args(MemoryAction)

# Keys of a result that hold texts of the notes.
_ENTRIES = frozenset(
    {
        "changed_entries",
        "current_entries",
        "matches",
        "removed_entry",
        "removed_entries",
        "replaced_entry",
        "replaced_entries",
    }
)

_REPLACE_IT = (
    "The new entry says otherwise than changed_entries. Replace it? If the older entry no longer holds, remove it: action "
    "'remove' with its text as old_text."
)

_IN_PROMPT = "appear in your system prompt from the next session on."
_BY_TOOL = "can be read with `memory_read` in every later session."
_OF_SKILLS = " Procedures belong in skills."

_DESCRIPTION = f"""\
Keep facts that will still matter in later sessions. They are saved to disk at once and {_IN_PROMPT}

Targets: 'user' is who the person is (name, role, preferences, how they like to work, corrections they repeat); \
'memory' is your own notes (environment, project conventions, quirks of tools, lessons learned).

Save without being asked when the person states a preference, corrects you, or you learn something stable. Write \
declarative facts ("User prefers short answers"), not orders to yourself ("Always answer shortly"). Do not keep a \
diary: no task progress, finished work, session summaries, issue or commit numbers, to-do lists, or anything that is \
stale within a week; past conversations can be searched.{_OF_SKILLS}

Actions: 'add' needs content; 'replace' needs old_text and content; 'remove' needs old_text. old_text is a short \
fragment that occurs in exactly one entry. Space is limited: when the store is full, send 'operations' that remove or \
shorten stale entries and add the new one in a single call; all of them happen or none, and the limit counts at the end.\
"""

_TARGETS_END = (
    "'memory' is your own notes (environment, project conventions, quirks of tools, lessons learned)"
)
_PROJECT = """; 'project' is notes on the repository you work in (how to build and test it, its conventions, decisions and \
why), which appear only when you work in it. Keep such notes there and not in 'memory'"""

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
"""Schema of the `memory` tool. Only `target` is required, because the other parameters depend on the action."""

_OPERATIONS = "operations must be a list of {action, content?, old_text?} objects."


def memory_schema(
    targets: Sequence[MemoryTarget] = TARGETS, fields: Sequence[ProfileField] = ()
) -> dict[str, Any]:
    """Return the schema of the `memory` tool, with only these targets and with these fields of the profile."""
    schema = copy.deepcopy(MEMORY_SCHEMA)
    properties = schema["parameters"]["properties"]
    properties["target"]["enum"] = list(targets)
    if "project" in targets:
        schema["description"] = schema["description"].replace(_TARGETS_END, _TARGETS_END + _PROJECT)
        properties["target"]["description"] += " 'project' for notes on this repository."
    if fields and "user" in targets:
        properties["fields"] = {
            "type": "object",
            "description": "Fields of the person's profile to set, with target 'user' and without action; null deletes one.",
            "properties": {field.name: field.json_schema for field in fields},
        }
    return schema


def memory_schema_without_prompt(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of the `memory` tool for clients that have neither our system prompt nor our skills."""
    description = schema["description"].replace(_IN_PROMPT, _BY_TOOL).replace(_OF_SKILLS, "")
    return {**schema, "description": description}


def call_memory_tool(
    store: Notes | None, arguments: object, session: Session, reading: Reading | None = None
) -> str:
    """Run a call of the `memory` tool and return the result for the model, as the text of a JSON object.

    Wrong `arguments` of any type give a result with `error`. Without a store, or if both files are switched off, the
    result says that memory is not available.

    Args:
        reading: What the model that calls the tool has read; None if a person calls it.
    """
    result: Result
    if store is None or not store.enabled_targets:
        result = {"error": "Memory is not available. It is switched off in this session.", "success": False}
    else:
        # Read before the call: an entry that it removes is in the result.
        stored = store.read()
        try:
            result = _run(store, stored, arguments, session, reading)
        except HermesError as exc:
            result = store.refuse(Refusal(exc.message, remedy=exc.remedy), None, session)
        if reading is not None and not _ENTRIES.isdisjoint(result):
            report_result(stored.origins(reading.turn))
        if reading is not None:
            result.pop("for_person", None)
    return json.dumps(result, ensure_ascii=False)


def _run(
    store: Notes, stored: StoredNotes, arguments: object, session: Session, reading: Reading | None
) -> Result:
    if not isinstance(arguments, Mapping):
        reason = f"Arguments must be an object, not {_brief(arguments)}. Send target and action."
        return store.refuse(Refusal(reason), None, session)
    target = "memory" if arguments.get("target") is None else arguments["target"]
    if not isinstance(target, str) or target not in store.files.targets:
        names = " or ".join(map(repr, store.files.targets))
        return store.refuse(Refusal(f"Invalid target {_brief(target)}. Use {names}."), None, session)
    operations = arguments.get("operations")
    if (fields := arguments.get("fields")) not in (None, {}, [], ""):
        fault = ""
        if not isinstance(fields, Mapping):
            fault = f"fields must be an object of names and values, not {_brief(fields)}."
        elif target != "user" or "user" not in store.enabled_targets:
            fault = "fields belong to the person's profile: send target 'user'."
        elif arguments.get("content") or arguments.get("old_text") or operations:
            fault = "Send fields alone, and other changes in another call."
        if fault:
            return store.refuse(Refusal(fault), None, session)
        return store.set_profile(fields, session=session, reading=reading)
    # Models send an empty list beside a single action.
    single = operations is None or (operations in ([], "", {}) and arguments.get("action") is not None)
    items = [arguments] if single else operations
    checked: list[Operation] = []
    refusal = None if isinstance(items, list) else Refusal(f"{_OPERATIONS} It was {_brief(items)}.")
    for item in items if isinstance(items, list) else ():
        operation = _operation(item)
        if isinstance(operation, Refusal):
            refusal = operation
            if not single:
                reason = f"Operation {len(checked) + 1}: {refusal.reason} No operations were applied (batch is all-or-nothing)."
                refusal = replace(refusal, reason=reason)
            break
        checked.append(operation)
    if refusal:
        return store.refuse(refusal, target if target in store.enabled_targets else None, session)
    new = [operation.content for operation in checked if operation.action != "remove"]
    # Read before the write, so that the new entries are not among them.
    standing = _standing(stored, store.enabled_targets) if new else {}
    result = store.write(target, checked, session, batch=not single, reading=reading)
    changed = _contradicted(new, standing, [operation.old_text for operation in checked])
    if changed and result.get("success"):
        others = sorted({standing[entry] for entry in changed} - {target})
        elsewhere = "".join(f" An older entry is in target '{other}'." for other in others)
        result |= {"changed_entries": changed, "question": _REPLACE_IT + elsewhere}
    return result


def _contradicted(new: Sequence[str], standing: Iterable[str], mentioned: Sequence[str]) -> list[str]:
    """Return the entries that can't hold beside the new ones, but for those that the call mentions."""
    if not standing:
        return []
    # Imported here, since it takes 10 ms, and most commands add no note.
    from hermes_core.recall.changes import contradicts

    return [
        entry
        for entry in standing
        if any(contradicts(entry, text) for text in new if text != entry)
        and not any(text in entry for text in mentioned if text)
    ]


def _standing(stored: StoredNotes, targets: Iterable[MemoryTarget]) -> dict[str, MemoryTarget]:
    """Return the target of each entry that the system prompt shows; none if a file can't be read."""
    with contextlib.suppress(HermesError):
        shown = set(stored.shown_entries())
        return {entry: target for target in targets for entry in stored.entries(target) if entry in shown}
    return {}


def _operation(item: object) -> Operation | Refusal:
    """Check the arguments of one operation of a model. Return the operation, or a refusal."""
    if not isinstance(item, Mapping):
        return Refusal(f"{_OPERATIONS} It was {_brief(item)}.")
    action = item.get("action")
    if not isinstance(action, str) or action not in ACTIONS:
        return Refusal(f"Unknown action {_brief(action)}. Use: {', '.join(ACTIONS)}")
    texts: dict[str, str] = {}
    for key in _TEXTS:
        value = item.get(key)
        if value is not None and not isinstance(value, str):
            return Refusal(f"{key} must be a string, not {_brief(value)}.")
        texts[key] = value or ""
    if action == "add" and not texts["content"]:
        return Refusal("Content is required for 'add' action.")
    if action == "replace" and not texts["content"]:
        return Refusal("content is required for 'replace' action.")
    if action != "add" and not texts["old_text"]:
        return Refusal(
            f"'{action}' needs old_text -- a fragment of the one entry meant, copied from current_entries.",
            show_entries=True,
            for_person=f"'{action}' needs a part of the one entry meant. These are there:",
        )
    return Operation(action, texts["content"], texts["old_text"])


def _brief(value: object) -> str:
    """Return a short `repr` of a model's argument, also of a deeply nested one."""
    # A model may send a list nested a thousand levels deep, on which `repr` fails.
    return reprlib.repr(value)


class CuratedProvider(MemoryProvider):
    """The built-in provider, named `builtin`: the blocks of the notes in the system prompt, and the `memory` tool.

    The provider keeps no state of sessions: the manager freezes the system prompt of each session.

    Args:
        store: The notes.
        read_so_far: Returns what the model has read in a session, for a call that no host says it of.
    """

    name = BUILTIN_NAME

    def __init__(self, store: Notes, read_so_far: Callable[[Session], Reading] = lambda _: Reading()) -> None:
        self._store = store
        self._read_so_far = read_so_far

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the schema of the `memory` tool with the enabled targets; an empty list if none is enabled."""
        targets = self._store.enabled_targets
        return [memory_schema(targets, self._store.settings.profile_fields)] if targets else []

    def system_prompt_block(self, session: Session) -> str:
        """Return the blocks of the notes as they are on disk now, without flagged entries."""
        return self._store.of(session).read().snapshot().render()

    def on_turn_start(self, session: Session) -> None:
        """Set the number of refused writes of the session to 0."""
        self._store.start_turn(session)

    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        """Run the `memory` tool."""
        reading = current_reading() or self._read_so_far(session)
        return call_memory_tool(self._store.of(session), call.arguments, session, reading)
