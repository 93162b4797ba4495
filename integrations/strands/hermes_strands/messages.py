"""Conversions of the messages of Strands: to the OpenAI chat form, with recall, and without it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from strands.types.content import ContentBlock, Message

from hermes_core import TurnRecall, sanitize_context


def is_prompt(message: Message) -> bool:
    """Return True if a person said this message. A message with results of tools is the framework's."""
    return message["role"] == "user" and not any("toolResult" in block for block in message["content"])


def as_content(messages: Sequence[Message]) -> str | list[dict[str, Any]]:
    """Return messages of a person as one in the OpenAI chat form: a text, or a list of content parts."""
    parts = [_content_part(block) for message in messages for block in message["content"]]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _content_part(block: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in block:
        return {"type": "text", "text": block["text"]}
    source = block.get("image", {}).get("source", {})
    if "bytes" in source:
        data = base64.b64encode(source["bytes"]).decode("ascii")
        return {
            "type": "image_url",
            "image_url": {"url": f"data:image/{block['image']['format']};base64,{data}"},
        }
    return {"type": next(iter(block), "empty")}


def as_chat(message: Message) -> list[dict[str, Any]]:
    """Return a message in the OpenAI chat form; [] if it has neither text, nor calls, nor results."""
    blocks: list[Mapping[str, Any]] = [cast(Mapping[str, Any], block) for block in message["content"]]
    if message["role"] == "user":
        results = [block["toolResult"] for block in blocks if "toolResult" in block]
        return [
            {"role": "tool", "tool_call_id": result["toolUseId"], "content": _result_text(result)}
            for result in results
        ]
    text = "".join(block["text"] for block in blocks if "text" in block)
    calls = [
        {
            "id": block["toolUse"]["toolUseId"],
            "type": "function",
            "function": {
                "name": block["toolUse"]["name"],
                "arguments": json.dumps(block["toolUse"]["input"]),
            },
        }
        for block in blocks
        if "toolUse" in block
    ]
    chat: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        chat["tool_calls"] = calls
    return [chat] if text or calls else []


def _result_text(result: Mapping[str, Any]) -> str:
    texts = [
        block["text"] if "text" in block else json.dumps(block.get("json"), default=str)
        for block in result["content"]
        if "text" in block or "json" in block
    ]
    return "\n".join(texts)


def with_recall(message: Message, recall: TurnRecall) -> Message:
    """Return a copy of a person's message with recall after its last text."""
    blocks = list(message["content"])
    places = [place for place, block in enumerate(blocks) if "text" in block]
    if places:
        blocks[places[-1]] = {**blocks[places[-1]], "text": recall.inject(blocks[places[-1]]["text"])}
    elif recall.context:
        blocks.append({"text": recall.context})
    return {**message, "content": blocks}


def without_recall(message: Message) -> Message:
    """Return a message without recall that the model repeats in its texts."""
    return {**message, "content": [_clean(block) for block in message["content"]]}


def _clean(block: ContentBlock) -> ContentBlock:
    return {**block, "text": sanitize_context(block["text"])} if "text" in block else block
