"""Conversions of the messages of Agent Framework: to the OpenAI chat form, with recall, and without it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from typing import Any

from agent_framework import Content, Message

from hermes_core import TurnRecall, sanitize_context


def is_prompt(message: Message) -> bool:
    """Return True if a person said this message. An answer to a request for approval is no such message."""
    kinds = {content.type for content in message.contents}
    return message.role == "user" and bool(kinds & {"text", "data", "uri"})


def as_content(messages: Iterable[Message]) -> str | list[dict[str, Any]]:
    """Return messages of a person as one in the OpenAI chat form: a text, or a list of content parts."""
    parts = [_content_part(content) for message in messages for content in message.contents]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _content_part(content: Content) -> dict[str, Any]:
    if content.type == "text":
        return {"type": "text", "text": content.text or ""}
    if content.type in ("data", "uri") and (content.media_type or "").startswith("image/"):
        return {"type": "image_url", "image_url": {"url": content.uri}}
    return {"type": content.type}


def as_chat(message: Message) -> list[dict[str, Any]]:
    """Return a message in the OpenAI chat form. A message without text, calls and results has none."""
    results: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": content.call_id, "content": str(content.result)}
        for content in message.contents
        if content.type == "function_result"
    ]
    if results or message.role != "assistant":
        return results
    # A call that waits for approval stands in the request for it, and beside it perhaps.
    candidates = [
        content if content.type == "function_call" else content.function_call for content in message.contents
    ]
    calls = {call.call_id: call for call in candidates if call is not None and call.type == "function_call"}
    chat: dict[str, Any] = {"role": "assistant", "content": message.text}
    if calls:
        chat["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for call in calls.values()
        ]
    return [chat] if calls or message.text else []


def _arguments(call: Content) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments or {})


def with_recall(message: Message, recall: TurnRecall) -> Message:
    """Return a copy of a person's message with recall after its last text."""
    contents = list(message.contents)
    texts = [place for place, content in enumerate(contents) if content.type == "text"]
    if texts:
        contents[texts[-1]] = with_text(contents[texts[-1]], recall.inject(contents[texts[-1]].text or ""))
    elif recall.context:
        contents.append(Content.from_text(recall.context))
    return with_contents(message, contents)


def without_recall(messages: Sequence[Message]) -> list[Message]:
    """Return messages without recall that the model repeats in its texts."""
    return [
        with_contents(message, [_clean(content) for content in message.contents])
        if message.role == "assistant"
        else message
        for message in messages
    ]


def _clean(content: Content) -> Content:
    if content.type != "text" or not content.text:
        return content
    text = sanitize_context(content.text)
    return content if text == content.text else with_text(content, text)


def with_text(content: Content, text: str) -> Content:
    """Return a copy of a text with other words."""
    clone = copy.copy(content)
    clone.text = text
    return clone


def with_contents(message: Message, contents: Sequence[Content]) -> Message:
    """Return a copy of a message with other contents."""
    clone = copy.copy(message)
    clone.contents = list(contents)
    return clone
