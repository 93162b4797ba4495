"""Which provider answers which tool of the model."""

from __future__ import annotations

import json
import logging
from typing import Any

from hermes_core.contract.values import LONGEST_TOOL_NAME, TOOL_NAME
from hermes_core.manager.held import ProviderHandle

log = logging.getLogger(__name__)

RESERVED = frozenset(
    [
        *("memory", "session_search", "todo", "delegate_task", "skills_list", "skill_view", "skill_manage"),
        *("web_search", "web_extract", "terminal", "process", "read_terminal", "close_terminal", "read_file"),
        *("write_file", "patch", "search_files", "vision_analyze", "image_generate", "text_to_speech"),
        *("clarify", "execute_code", "cronjob", "computer_use"),
        *(f"browser_{what}" for what in ("navigate", "snapshot", "click", "type", "scroll", "back", "press")),
        *(f"browser_{what}" for what in ("get_images", "vision", "console", "cdp", "dialog")),
        *(f"ha_{what}" for what in ("list_entities", "get_state", "list_services", "call_service")),
        *(
            f"kanban_{what}"
            for what in ("show", "list", "complete", "block", "heartbeat", "comment", "create")
        ),
        *(f"kanban_{what}" for what in ("link", "unblock", "attach", "attach_url", "attachments")),
    ]
)
"""Names that hosts use for their own tools. One of a provider would hide the host's."""


def schema_fault(schema: dict[str, Any]) -> str:
    """Why a model's server would refuse every request that holds this tool, not only its use; "" when it would not."""
    if not TOOL_NAME.fullmatch(schema["name"]):
        return f"a model's tools have names of up to {LONGEST_TOOL_NAME} letters, digits, _ and -"
    kind = schema["parameters"].get("type", "object")
    if kind != "object":
        return f"its parameters are of type {kind!r}, not an object"
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as exc:
        return f"its schema can't be written as JSON ({exc})"
    return ""


class ToolIndex:
    """Tool name to provider. The first provider that offers a name keeps it; refusals are noted on the provider."""

    def __init__(self) -> None:
        self._owners: dict[str, ProviderHandle] = {}
        self._schemas: dict[str, dict[str, Any]] = {}
        self._aliases: dict[str, str] = {}

    def add(self, held: ProviderHandle) -> None:
        """Take the tools that `held` offers, and the older names that it answers to."""
        for schema in held.schemas:
            name = schema["name"]
            if fault := schema_fault(schema):
                _refuse(held, f"tool {name!r} is left out: {fault}")
            elif name in RESERVED and not held.builtin:
                _refuse(held, f"tool {name!r} is refused: the host uses that name")
            elif name in self._owners:
                _refuse(held, f"tool {name!r} is refused: {self._owners[name].name!r} offers it")
            else:
                self._owners[name] = held
                self._schemas[name] = schema
        for alias, name in held.first.capabilities.tool_aliases.items():
            if alias not in RESERVED and alias not in self._owners and self._owners.get(name) is held:
                self._aliases.setdefault(alias, name)

    def owner(self, name: object) -> ProviderHandle | None:
        """The provider of this tool."""
        return self._owners.get(name) if isinstance(name, str) else None

    def current(self, name: Any) -> Any:
        """The name that a tool has now, for one that it had."""
        return self._aliases.get(name, name) if isinstance(name, str) and name not in self._owners else name

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """All tools, in the order in which their providers were added; a copy."""
        return [dict(schema) for schema in self._schemas.values()]

    @property
    def names(self) -> set[str]:
        """The names of all tools."""
        return set(self._owners)


def _refuse(held: ProviderHandle, warning: str) -> None:
    log.warning("%s: %s", held.name, warning)
    held.warnings.append(warning)
