"""A turn as the server takes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hermes_core import Turn
from hermes_core.kit import clip, storable

MAX_MESSAGE_CHARS = 20_000
"""Characters of a message or memory that are sent; what is longer is a pasted document."""

MAX_OUTPUT_CHARS = 2000
"""Characters of a tool's output, and of what it was given."""


def messages_of(turn: Turn, peer: str) -> list[dict[str, Any]]:
    """Return a turn as the server takes it: the person's words, and what the agent did and said, two messages
    at most.

    Results of our own tools are left out: they are memory already.
    """
    said = {"peer_id": peer, "turn_id": turn.id}
    done = [*_tool_parts(turn), *([_part(turn.assistant)] if turn.assistant.strip() else [])]
    messages = []
    if turn.user.strip():
        messages.append({"role": "user", "parts": [_part(turn.user)], **said, **_at(turn.user_at or turn.at)})
    if done:
        messages.append({"role": "assistant", "parts": done, **said, **_at(turn.at)})
    return messages


def _at(seconds: float) -> dict[str, str]:
    return {"created_at": datetime.fromtimestamp(seconds, UTC).isoformat()} if seconds else {}


def _tool_parts(turn: Turn) -> list[dict[str, Any]]:
    calls = {
        str(call.get("id")): call.get("function") or {}
        for message in turn.messages
        for call in message.get("tool_calls") or ()
    }
    parts = []
    for message in turn.messages:
        call = calls.get(str(message.get("tool_call_id")), {})
        tool = storable(str(call.get("name") or message.get("name") or ""))
        if message.get("role") != "tool" or tool.startswith("viking_"):
            continue
        part = {"type": "tool", "tool_id": str(message.get("tool_call_id") or ""), "tool_name": tool}
        output = clip(storable(message.get("content") or ""), MAX_OUTPUT_CHARS)
        given = _arguments(call.get("arguments"))
        parts.append({**part, "tool_input": given, "tool_output": output, "tool_status": "completed"})
    return parts


def _arguments(raw: Any) -> Mapping[str, Any]:
    text = raw if isinstance(raw, str) else json.dumps(raw or {})
    try:
        # NaN, and escapes that stand for half a character, are what no request can carry.
        data = json.loads(storable(json.dumps(json.loads(text), ensure_ascii=False, allow_nan=False)))
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and len(text) <= MAX_OUTPUT_CHARS:
        return data
    return {"arguments": clip(storable(text), MAX_OUTPUT_CHARS)}


def _part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": clip(storable(text), MAX_MESSAGE_CHARS)}


def said_by_agent(text: str, turn_id: str, peer: str) -> dict[str, Any]:
    """Return a message of the agent alone."""
    return {"role": "assistant", "parts": [_part(text)], "peer_id": peer, "turn_id": turn_id}
