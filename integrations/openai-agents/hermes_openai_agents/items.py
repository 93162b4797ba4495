"""Conversion between items of the Responses API and messages in the OpenAI chat form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Item = Any
"""An item of the Responses API, as a dict."""

INPUT_ROLES = frozenset({"user", "system", "developer"})


def messages_of(items: Sequence[Item]) -> list[tuple[dict[str, Any], list[Item]]]:
    """Return chat messages, each with the items that it stands for. Each item stands in the list once, in order.

    An item without a chat form, such as reasoning, goes with the next message, or with the last if there is none.
    """
    pairs: list[tuple[dict[str, Any], list[Item]]] = []
    waiting: list[Item] = []
    for item in items:
        waiting.append(item)
        chat = _chat(item)
        if chat is None:
            continue
        last = pairs[-1][0] if pairs else {}
        if chat["role"] == "user" == last.get("role"):
            last["content"] = _joined(last["content"], chat["content"])
            pairs[-1][1].extend(waiting)
        elif chat.get("tool_calls") and last.get("tool_calls"):
            last["tool_calls"] += chat["tool_calls"]  # parallel calls of one answer
            pairs[-1][1].extend(waiting)
        else:
            pairs.append((chat, waiting))
        waiting = []
    if waiting and pairs:
        pairs[-1][1].extend(waiting)
    elif waiting:
        role = "user" if all(item.get("role") in INPUT_ROLES for item in waiting) else "assistant"
        pairs.append(({"role": role, "content": ""}, waiting))
    return pairs


def items_of(message: dict[str, Any]) -> list[Item]:
    """Return a chat message that another host stored, as items."""
    content = message["content"]
    if message["role"] == "tool":
        call_id = message.get("tool_call_id", "")
        return [{"type": "function_call_output", "call_id": call_id, "output": content}]
    if message["role"] not in ("user", "assistant"):
        return []
    if not isinstance(content, str):
        content = "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    items: list[Item] = [{"role": message["role"], "content": content}] if content else []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        items.append({"type": "function_call", "call_id": call["id"], **function})
    return items


def text_of(item: Item) -> str:
    """Return the text of a message item."""
    content = item.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part.get("text"))


def _chat(item: Item) -> dict[str, Any] | None:
    """Return the chat form of an item; None if it has none."""
    kind, role = item.get("type", "message"), item.get("role")
    if kind == "message" and role == "user":
        content = item.get("content")
        return {"role": role, "content": content if isinstance(content, str) else _parts(content or [])}
    if kind == "message" and role == "assistant":
        return {"role": role, "content": text_of(item)}
    if kind == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind.endswith("call_output"):
        output = item.get("output", "")
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)
        return {"role": "tool", "tool_call_id": item.get("call_id", ""), "content": text}
    return None


def _parts(content: Sequence[Any]) -> list[dict[str, Any]]:
    """Return content parts of the Responses API as parts of the chat form."""
    parts: list[dict[str, Any]] = []
    for part in content:
        if part["type"] == "input_image":
            parts.append({"type": "image_url", "image_url": {"url": part.get("image_url") or ""}})
        elif "text" in part:
            parts.append({"type": "text", "text": part["text"]})
        else:
            parts.append({"type": "file", "file": {"filename": part.get("filename") or ""}})
    return parts


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
