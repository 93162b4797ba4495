"""Conversions of the messages of Pydantic AI: to the OpenAI chat form, to JSON, and with recall."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextContent,
    TextPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from hermes_core import TurnRecall

Message = TypeVar("Message", bound=ModelRequest | ModelResponse)

OWN_PARTS = frozenset({"text", "thinking", "tool-call", "compaction"})
"""Parts of an answer that hold no more than its words and the calls of the agent's tools."""


def prompts(messages: Sequence[ModelMessage]) -> list[tuple[int, ModelRequest]]:
    """Return the requests with a message of the person, with their places. Content of tool results is no such message."""
    return [
        (place, message)
        for place, message in enumerate(messages)
        if isinstance(message, ModelRequest)
        and any(isinstance(part, UserPromptPart) for part in message.parts)
        and not any(isinstance(part, ToolReturnPart) for part in message.parts)
    ]


def split_prompt(request: ModelRequest) -> tuple[ModelRequest, UserPromptPart]:
    """Return a request without the person's message, and this message.

    The framework may join the messages that a program passes with the person's. The person's is the last one.
    """
    parts = list(request.parts)
    place = [place for place, part in enumerate(parts) if isinstance(part, UserPromptPart)][-1]
    prompt = parts.pop(place)
    return replace(request, parts=parts), cast(UserPromptPart, prompt)


def with_recall(request: ModelRequest, recall: TurnRecall) -> ModelRequest:
    """Return a copy of a request with recall after the last text of the person."""
    parts = list(request.parts)
    for place, part in reversed(list(enumerate(parts))):
        if isinstance(part, UserPromptPart):
            parts[place] = replace(part, content=_inject(part.content, recall))
            break
    return replace(request, parts=parts)


def _inject(content: str | Sequence[UserContent], recall: TurnRecall) -> Any:
    if isinstance(content, str):
        return recall.inject(content)
    items: list[Any] = list(content)
    texts = [place for place, item in enumerate(items) if isinstance(item, str)]
    if texts:
        items[texts[-1]] = recall.inject(items[texts[-1]])
    elif recall.context:
        items.append(recall.context)
    return items


def without_recall(message: Message, recall: TurnRecall) -> Message:
    """Return a message without recall in the words of the model; the same object if there is none."""
    scrubber = recall.scrubber()  # recall may begin in one part of an answer and end in another
    parts: list[Any] = list(message.parts)
    for place, part in enumerate(parts):
        if isinstance(part, TextPart) and (text := scrubber.feed(part.content)) != part.content:
            parts[place] = replace(part, content=text)
    rest = scrubber.flush()
    last = next((at for at in reversed(range(len(parts))) if isinstance(parts[at], TextPart)), None)
    if rest and last is not None:
        text = parts[last].content + rest
        original: Any = message.parts[last]
        parts[last] = original if text == original.content else replace(original, content=text)
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    copy: Any = replace(message, parts=parts)  # type: ignore[arg-type]  # each class has parts of its own
    return cast(Message, copy)


def as_content(prompt: UserPromptPart) -> str | list[dict[str, Any]]:
    """Return a person's message in the OpenAI chat form: a text, or a list of content parts."""
    items: Iterable[UserContent] = [prompt.content] if isinstance(prompt.content, str) else prompt.content
    parts = [_content_part(item) for item in items if not isinstance(item, CachePoint)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _content_part(item: UserContent) -> dict[str, Any]:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, TextContent):
        return {"type": "text", "text": item.content}
    if isinstance(item, ImageUrl):
        return {"type": "image_url", "image_url": {"url": item.url}}
    if isinstance(item, BinaryContent) and item.is_image:
        return {"type": "image_url", "image_url": {"url": item.data_uri}}
    # Other files stand in the native message only.
    return {"type": item.media_type.partition("/")[0] if isinstance(item, BinaryContent) else item.kind}


def as_chat(message: ModelMessage) -> list[dict[str, Any]]:
    """Return a message in the OpenAI chat form. Feedback of the framework to the model is nobody's message.

    If the model's server did more than answer, the message has the origin of that.
    """
    if isinstance(message, ModelResponse):
        chat: dict[str, Any] = {"role": "assistant", "content": message.text or ""}
        calls = [
            {
                "id": call.tool_call_id,
                "type": "function",
                "function": {"name": call.tool_name, "arguments": call.args_as_json_str()},
            }
            for call in message.tool_calls
        ]
        if not OWN_PARTS.issuperset(part.part_kind for part in message.parts):
            chat["origin"] = "tool"
        return [{**chat, "tool_calls": calls} if calls else chat]
    results: list[dict[str, Any]] = [
        {
            "role": "tool",
            "tool_call_id": part.tool_call_id,
            "name": part.tool_name,
            "content": part.model_response_str(wrap_if_error=False),
        }
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    retries: list[dict[str, Any]] = [  # what a tool says that is to be called again
        {
            "role": "tool",
            "tool_call_id": part.tool_call_id,
            "name": part.tool_name,
            "content": str(part.content),
        }
        for part in message.parts
        if isinstance(part, RetryPromptPart) and part.tool_name
    ]
    prompts = [part for part in message.parts if isinstance(part, UserPromptPart)]
    return [*results, *retries, *({"role": "user", "content": as_content(part)} for part in prompts)]


def as_native(messages: Sequence[ModelMessage]) -> Any:
    """Return messages as JSON data, without the instructions, which each request gets anew."""
    clean = [replace(m, instructions=None) if isinstance(m, ModelRequest) else m for m in messages]
    return ModelMessagesTypeAdapter.dump_python(clean, mode="json")
