"""One definition of a tool, in the forms that OpenAI's, Anthropic's and MCP's clients want."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as a client is told of it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    read_only: bool = False

    @classmethod
    def of(cls, schema: Mapping[str, Any], *, read_only: bool = False) -> Definition:
        """The definition that a `{"name", "description", "parameters"}` of ours says."""
        parameters = schema.get("parameters") or {"type": "object", "properties": {}}
        return cls(str(schema["name"]), str(schema.get("description", "")), parameters, read_only)

    def for_openai(self) -> dict[str, Any]:
        """The form of chat completions."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self._schema(),
            },
        }

    def for_anthropic(self) -> dict[str, Any]:
        """The form of Anthropic's messages."""
        return {"name": self.name, "description": self.description, "input_schema": self._schema()}

    def for_mcp(self) -> dict[str, Any]:
        """The form of MCP's tools/list."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self._schema(),
            "annotations": {"readOnlyHint": self.read_only},
        }

    def _schema(self) -> dict[str, Any]:
        return copy.deepcopy(dict(self.parameters))
