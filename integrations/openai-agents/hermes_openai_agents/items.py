"""Conversion between items of the Responses API and messages in the OpenAI chat form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Item = Any
"""An item of the Responses API, as a dict."""

INPUT_ROLES = frozenset({"user", "system", "developer"})

OWN_ITEMS = frozenset({"message", "reasoning", "item_reference", "compaction"})
"""Items without a chat form that hold nothing which the model read."""


def messages_of(items: Sequence[Item]) -> list[tuple[dict[str, Any], list[Item]]]:
    """Return chat messages, each with the items that it stands for. Each item stands in the list once, in order.

    An item without a chat form, such as reasoning, goes with the next message, or with the last if there is none. If it is
    of a tool of the model's server, the message has the origin of that.
    """
    pairs: list[tuple[dict[str, Any], list[Item]]] = []
    waiting: list[Item] = []
    for item in items:
        waiting.append(item)
        chat = _chat(item)
        if chat is None:
            continue
        last = pairs[-1][0] if pairs else {}
        if chat.get("tool_calls") and last.get("tool_calls"):
            last["tool_calls"] += chat["tool_calls"]  # parallel calls of one answer
            pairs[-1][1].extend(waiting)
        else:
            pairs.append((chat, waiting))
        _lower(pairs[-1][0], waiting)
        waiting = []
    if waiting and pairs:
        _lower(pairs[-1][0], waiting)
        pairs[-1][1].extend(waiting)
    elif waiting:
        role = "user" if all(item.get("role") in INPUT_ROLES for item in waiting) else "assistant"
        pairs.append(({"role": role, "content": ""}, waiting))
    return pairs


def _lower(message: dict[str, Any], items: Sequence[Item]) -> None:
    kinds = {item.get("type") or "message" for item in items if _chat(item) is None}
    if not OWN_ITEMS.issuperset(kinds):
        message["origin"] = "tool"


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


def texts_of(item: Item) -> list[str]:
    """Return the texts of a message item."""
    content = item.get("content") or ""
    if isinstance(content, str):
        return [content]
    return [text for part in content if (text := part.get("text") or part.get("refusal"))]


def _chat(item: Item) -> dict[str, Any] | None:
    """Return the chat form of an item; None if it has none."""
    kind, role, call_id = item.get("type") or "message", item.get("role"), item.get("call_id") or ""
    if kind == "message" and role == "user":
        content = item.get("content")
        return {"role": role, "content": content if isinstance(content, str) else _parts(content)}
    if kind == "message" and role == "assistant":
        return {"role": role, "content": "\n".join(texts_of(item))}
    if kind.endswith("_call") and call_id:
        arguments = item.get("arguments") or item.get("input") or item.get("action") or {}
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False, default=str)
        function = {"name": item.get("name") or kind, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind.endswith("_call_output"):
        output = item.get("output") or ""
        if not isinstance(output, str):
            parts = output if isinstance(output, list) else [output]
            # Pictures and files stand in the item only: the text is searched and delivered.
            output = "\n".join(part.get("text") or f"[{part.get('type', 'data')}]" for part in parts)
        return {"role": "tool", "tool_call_id": call_id, "content": output}
    return None


def _parts(content: Any) -> list[dict[str, Any]]:
    """Return the content of a person's message as parts of the chat form."""
    parts: list[dict[str, Any]] = []
    for part in [{"text": content}] if isinstance(content, str) else content or ():
        if "text" in part:
            parts.append({"type": "text", "text": part["text"]})
        elif part.get("type") == "input_image":
            parts.append({"type": "image_url", "image_url": {"url": part.get("image_url") or ""}})
        elif part.get("type") == "input_file":
            parts.append({"type": "file", "file": {"filename": part.get("filename") or ""}})
        else:
            parts.append(dict(part))
    return parts
