"""Conversions of the messages of Strands: to the OpenAI chat form, with recall, and without it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from strands.types.content import Message

from hermes_core import StreamingContextScrubber, TurnRecall

OWN_BLOCKS = frozenset({"text", "toolUse", "toolResult", "reasoningContent", "cachePoint"})
"""Blocks of a message that hold no more than its words and the calls of the agent's tools."""


# Lines with which a graph or a swarm of Strands begins what other agents said, in one message with the person's.
OTHER_AGENTS = (
    "Inputs from previous nodes:",
    "Handoff Message:",
    "Previous agents who worked on this:",
    "Shared knowledge from previous agents:",
)


def is_of_agents(message: Message) -> bool:
    """Return True if a message of the role user holds what other agents of a graph or swarm said."""
    texts = [block["text"] for block in message["content"] if "text" in block]
    return any(line.strip().startswith(OTHER_AGENTS) for text in texts for line in text.splitlines())


def is_prompt(message: Message) -> bool:
    """Return True if a person said this message. A message with results of tools alone is the framework's."""
    return message["role"] == "user" and any("toolResult" not in block for block in message["content"])


def _user_content(blocks: Sequence[Mapping[str, Any]]) -> str | list[dict[str, Any]]:
    parts = [_content_part(block) for block in blocks]
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
    """Return a message in the OpenAI chat form: results of tools each as a message, and the words of who speaks.

    If the answer cites something, or the model's server did more than answer, the message has the origin of that.
    """
    blocks: list[Mapping[str, Any]] = [cast(Mapping[str, Any], block) for block in message["content"]]
    if message["role"] == "user":
        results = [block["toolResult"] for block in blocks if "toolResult" in block]
        chats: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": result["toolUseId"], "content": _result_text(result)}
            for result in results
        ]
        own = [block for block in blocks if "toolResult" not in block]
        return [*chats, {"role": "user", "content": _user_content(own)}] if own else chats
    text = "".join(text for block in blocks for text in _texts(block))
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
    if any("citationsContent" in block for block in blocks):
        chat["origin"] = "web"
    elif not all(OWN_BLOCKS.issuperset(block) for block in blocks):
        chat["origin"] = "tool"
    return [chat] if text or calls or "origin" in chat else []


def serves_tools(config: Any) -> bool:
    """Return True if the settings of a model name tools that its server runs, such as a search of the web."""
    if not isinstance(config, Mapping):
        return False
    return any(
        serves_tools(value) or (str(name).endswith("tools") and isinstance(value, Sequence) and bool(value))
        for name, value in config.items()
    )


def _texts(block: Mapping[str, Any]) -> list[str]:
    cited = block.get("citationsContent", {}).get("content") or ()
    return [part["text"] for part in (block, *cited) if isinstance(part.get("text"), str)]


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


def without_recall(message: Message, recall: TurnRecall) -> Message:
    """Return a message without recall that the model repeats. It may begin in one text and end in another."""
    scrubber = recall.scrubber()
    content: list[Any] = [_scrubbed(block, scrubber) for block in message["content"]]
    if rest := scrubber.flush():
        content.append({"text": rest})
    return {**message, "content": [block for block in content if block.get("text") != ""]}


def _scrubbed(block: Mapping[str, Any], scrubber: StreamingContextScrubber) -> Mapping[str, Any]:
    if isinstance(block.get("text"), str):
        return {**block, "text": scrubber.feed(block["text"])}
    if "citationsContent" in block:
        cited = block["citationsContent"]
        parts = [_scrubbed(part, scrubber) for part in cited.get("content") or ()]
        return {**block, "citationsContent": {**cited, "content": parts}}
    return block
