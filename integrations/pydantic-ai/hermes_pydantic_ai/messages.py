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
    TextContent,
    TextPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from hermes_core import TurnRecall, sanitize_context

Message = TypeVar("Message", bound=ModelRequest | ModelResponse)


def prompts(messages: Sequence[ModelMessage]) -> list[tuple[int, ModelRequest]]:
    """Return the requests with a message of the person, with their places. Content of tool results is no such message."""
    return [
        (place, message)
        for place, message in enumerate(messages)
        if isinstance(message, ModelRequest)
        and any(isinstance(part, UserPromptPart) for part in message.parts)
        and not any(isinstance(part, ToolReturnPart) for part in message.parts)
    ]


def prompt_of(request: ModelRequest) -> list[UserContent]:
    """Return the contents of the person's message in a request."""
    contents = [part.content for part in request.parts if isinstance(part, UserPromptPart)]
    return [item for content in contents for item in ([content] if isinstance(content, str) else content)]


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


def without_recall(message: Message) -> Message:
    """Return a message without recall in the words of the person or the model; the same object if there is none."""
    parts: list[Any] = [_clean_part(part) for part in message.parts]
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    copy: Any = replace(message, parts=parts)  # type: ignore[arg-type]  # each class has parts of its own
    return cast(Message, copy)


def _clean_part(part: Any) -> Any:
    if isinstance(part, TextPart):
        content: Any = sanitize_context(part.content)
    elif isinstance(part, UserPromptPart) and isinstance(part.content, str):
        content = sanitize_context(part.content)
    elif isinstance(part, UserPromptPart):
        content = [_clean_item(item) for item in part.content]
    else:
        return part
    return part if content == part.content else replace(part, content=content)


def _clean_item(item: UserContent) -> UserContent:
    if isinstance(item, str):
        return sanitize_context(item)
    return replace(item, content=sanitize_context(item.content)) if isinstance(item, TextContent) else item


def as_content(items: Iterable[UserContent]) -> str | list[dict[str, Any]]:
    """Return a person's message in the OpenAI chat form: a text, or a list of content parts."""
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
    """Return a message in the OpenAI chat form. Feedback of the framework to the model is nobody's message."""
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
    prompt = prompt_of(message)
    return [*results, {"role": "user", "content": as_content(prompt)}] if prompt else results


def as_native(messages: Sequence[ModelMessage]) -> Any:
    """Return messages as JSON data, without the instructions, which each request gets anew."""
    clean = [replace(m, instructions=None) if isinstance(m, ModelRequest) else m for m in messages]
    return ModelMessagesTypeAdapter.dump_python(clean, mode="json")
