"""Conversions of the messages of Agent Framework: to the OpenAI chat form, with recall, and without it."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from agent_framework import Content, Message

from hermes_core import StreamingContextScrubber, TurnRecall

OWN_CONTENTS = frozenset(
    {
        "text",
        "text_reasoning",
        "function_call",
        "function_result",
        "function_approval_request",
        "function_approval_response",
        "oauth_consent_request",
        "error",
        "usage",
    }
)
"""Contents of a message that hold no more than its words and the calls of the agent's tools."""


def is_prompt(message: Message) -> bool:
    """Return True if a person said this message. An answer to a request for approval is no such message."""
    kinds = {content.type for content in message.contents}
    return message.role == "user" and bool(kinds & {"text", "data", "uri"})


def is_summary(message: Message) -> bool:
    """Return True if the framework made this message of earlier ones, which stood in an earlier request."""
    group = message.additional_properties.get("_group")
    return isinstance(group, dict) and "_summary_of_message_ids" in group


def _user_chat(message: Message) -> dict[str, Any]:
    parts = [_content_part(content) for content in message.contents]
    is_text = all(part["type"] == "text" for part in parts)
    content: Any = "\n".join(part["text"] for part in parts) if is_text else parts
    author = {"name": message.author_name} if message.author_name else {}
    return {"role": "user", "content": content, **author}


def _content_part(content: Content) -> dict[str, Any]:
    if content.type == "text":
        return {"type": "text", "text": content.text or ""}
    if content.type in ("data", "uri") and (content.media_type or "").startswith("image/"):
        return {"type": "image_url", "image_url": {"url": content.uri}}
    return {"type": content.type}


def as_chat(message: Message) -> list[dict[str, Any]]:
    """Return a message in the OpenAI chat form. A message without text, calls and results has none.

    If the model's server ran tools of its own, or the answer cites something, the message has the origin of that.
    """
    if is_prompt(message):
        return [_user_chat(message)]
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
    if any(content.annotations for content in message.contents):
        chat["origin"] = "web"
    elif not OWN_CONTENTS.issuperset(content.type for content in message.contents):
        chat["origin"] = "tool"
    if message.author_name:
        chat["name"] = message.author_name
    return [chat] if calls or message.text or "origin" in chat else []


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


def without_recall(messages: Sequence[Message], recall: TurnRecall) -> list[Message]:
    """Return messages without recall that the model repeats in its texts."""
    return [_clean(message, recall) if message.role == "assistant" else message for message in messages]


def _clean(message: Message, recall: TurnRecall) -> Message:
    # Recall may begin in one text and end in another.
    scrubber = recall.scrubber()
    contents = [scrubbed(content, scrubber) for content in message.contents]
    if rest := scrubber.flush():
        contents.append(Content.from_text(rest))
    return with_contents(message, contents)


def scrubbed(content: Content, scrubber: StreamingContextScrubber) -> Content:
    """Return a content with what may be shown of its text."""
    if content.type != "text":
        return content
    text = scrubber.feed(content.text or "")
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
