"""Tools `skill_view` and `skill_manage`: schemas, checks of the model's arguments, answers as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from hermes_core.contract.values import Origin, Session
from hermes_core.errors import HermesError, SkillError
from hermes_core.kit import redact
from hermes_core.safety.fence import clean_result
from hermes_core.safety.origin import current_reading, report_result
from hermes_memory_agent.skills.store import Skill, SkillStore

SKILL_VIEW_SCHEMA: dict[str, Any] = {
    "name": "skill_view",
    "description": (
        "Read a skill before you follow it. Without a name: the list of all skills. "
        "With `file`: a file that lies beside the skill."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Name of the skill, as in the index."},
            "file": {
                "type": "string",
                "description": "A file inside the skill's folder, such as references/api.md.",
            },
        },
    },
}

SKILL_MANAGE_SCHEMA: dict[str, Any] = {
    "name": "skill_manage",
    "description": (
        "Write down how a task is done, for the next time. create: after a task that took five or more tool calls, or "
        "that went wrong before it went right. patch: at once, when a skill that you follow proves wrong or out of "
        "date. delete: when it is of no use any more. Facts belong into memory, not here."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["create", "patch", "delete"]},
            "name": {"type": "string", "description": "Lower-case letters, digits, '-' and '_'."},
            "category": {
                "type": "string",
                "description": "create: the folder it belongs to, such as github.",
            },
            "content": {
                "type": "string",
                "description": (
                    "create: the whole SKILL.md. It begins with `---`, name, description (when to use it), version, "
                    "`---`; then the steps, the pitfalls, and how to check the result."
                ),
            },
            "old_text": {
                "type": "string",
                "description": "patch: the place to replace, copied exactly, unique.",
            },
            "new_text": {"type": "string", "description": "patch: what stands there instead."},
        },
        "required": ["action", "name"],
    },
}


_WAITS = "The skill is saved. It is in no list of skills until the person confirms it: hermes-memory review."


class SkillTools:
    """The two tools on one store."""

    def __init__(self, store: SkillStore) -> None:
        self._store = store
        self._tools: dict[str, Callable[[Mapping[str, Any], Session], dict[str, Any]]] = {
            "skill_view": self._view,
            "skill_manage": self._manage,
        }

    def call(self, name: str, arguments: Mapping[str, Any], session: Session) -> str:
        """Run a tool and return JSON for the model. A failure is an `error` in it, with the remedy."""
        try:
            result = self._tools[name](arguments, session)
        except HermesError as exc:
            result = {"success": False, "error": redact(str(exc))}
        return json.dumps(clean_result(result), ensure_ascii=False)

    def _view(self, arguments: Mapping[str, Any], session: Session) -> dict[str, Any]:
        del session
        name = _text(arguments, "name", "")
        if not name:
            listed = [
                {"name": skill.name, "category": skill.category, "description": skill.document.description}
                for skill in self._store.skills()
            ]
            report_result(map(_origin_read, self._store.skills()))
            return {"success": True, "skills": listed}
        report_result([_origin_read(self._store.get(name))])
        return {
            "success": True,
            "name": name,
            "content": self._store.view_safely(name, _text(arguments, "file", "")),
        }

    def _manage(self, arguments: Mapping[str, Any], session: Session) -> dict[str, Any]:
        name, action = _text(arguments, "name"), _text(arguments, "action")
        if action == "create":
            category = _text(arguments, "category", "general")
            content = _text(arguments, "content")
            origin = self._store.origin_of(session, content, current_reading())
            change = self._store.create(name, category, content, session.id, origin)
        elif action == "patch":
            old, new = _text(arguments, "old_text"), _text(arguments, "new_text")
            origin = self._store.origin_of(session, new, current_reading(), name)
            change = self._store.patch(name, old, new, session.id, origin)
        elif action == "delete":
            change = self._store.delete(name, session.id)
        else:
            raise SkillError(f"action {action!r} is not one of create, patch, delete")
        result = {"success": True, "action": action, "name": name, "change": change}
        waits = action != "delete" and self._store.get(name).waits
        return result | {"note": _WAITS} if waits else result


def _text(arguments: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = arguments.get(key)
    if default is not None and value in (
        None,
        "",
    ):  # models send None or "" for a parameter that they leave out
        return default
    if not isinstance(value, str) or (not value and key != "new_text"):
        raise SkillError(f"{key} must be a text, is {value!r}", f"send {key}")
    return value


def _origin_read(skill: Skill) -> Origin:
    """Return the origin of a skill as a text that the model reads: a skill that the person put there may command it."""
    return "assistant" if skill.origin == "file" else skill.origin
