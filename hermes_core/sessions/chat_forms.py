"""Messages in the forms of model APIs, as the messages in the OpenAI chat form that the store keeps, and back.

The kinds of content parts are those of `safety.parts.PARTS`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

from hermes_core.errors import SessionError
from hermes_core.safety.parts import FIELDS, PARTS, named_part

ChatForm = Literal["openai", "anthropic"]
"""The form in which a model's API takes messages."""


class SDKMessage(Protocol):
    """A message as an object of a model's SDK."""

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, Any]:
        """Return the message as JSON data."""


MessageInput = str | Mapping[str, Any] | SDKMessage | Sequence[str | Mapping[str, Any] | SDKMessage]
"""A text, a message, a list of content parts, or a list of messages, in any form of `safety.parts`."""

_ROLES = {"model": "assistant", "ai": "assistant", "human": "user", "function": "tool"}
# A search result is no item of an answer: a host gives it as a part of a message.
_ITEMS = frozenset(
    {"message", *(name for name, kind in PARTS.items() if kind.holds in ("call", "result"))}
    - {"search_result"}
)
_NOT_SENT = frozenset(
    {"native", "origin", "thoughts", "reasoning", *(name for name, kind in FIELDS.items() if kind.served)}
)
_REFUSED = "give a text, content parts, or a message such as {'role': 'user', 'content': 'text'} or an SDK's object of one"


def chat_messages(value: object, role: str) -> list[dict[str, Any]]:
    """Return a value that a host gives as messages in the OpenAI chat form.

    Args:
        value: A text; a list of content parts; a message as mapping or as an SDK's object with `model_dump`; a whole answer of
            the Chat Completions or Responses API, or of Ollama, or a choice of one; or a list of messages or of items of the
            Responses API.
        role: Role of a text and of content parts.

    Raises:
        SessionError: The value is none of these.

    >>> call = {"type": "tool_use", "id": "t1", "name": "memory", "input": {"a": 1}}
    >>> chat_messages([call], "assistant")[0]["tool_calls"]
    [{'id': 't1', 'type': 'function', 'function': {'name': 'memory', 'arguments': '{"a": 1}'}}]
    """
    value = _plain(value)
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, Mapping):
        choices = value.get("choices")
        first = _plain(choices[0]) if isinstance(choices, list | tuple) and choices else value
        is_whole = isinstance(first, Mapping) and not first.keys() & {"role", "type"}
        message = _plain(first.get("message")) if is_whole else None
        if isinstance(message, Mapping):  # some servers name the sources of an answer beside it
            return chat_messages({key: value[key] for key in value if _cites(key)} | dict(message), role)
        if isinstance(output := value.get("output"), list | tuple) and "type" not in value:
            return chat_messages(output, role)
        return _of_message(value)
    if isinstance(value, Sequence) and value and not isinstance(value, bytes | bytearray):
        entries = [_plain(entry) for entry in value]
        if any(_is_message(entry) for entry in entries):
            return _merged(message for entry in entries for message in _of_message(entry))
        if all(
            isinstance(entry, str) or (isinstance(entry, Mapping) and named_part(entry)[0])
            for entry in entries
        ):
            return _of_message({"role": role, "content": entries})
    raise _refusal(value)


def in_form(messages: Sequence[Mapping[str, Any]], form: ChatForm) -> list[dict[str, Any]]:
    """Return messages in the OpenAI chat form as another API takes them.

    Anthropic's form has no system messages: its API takes the system prompt beside the messages.

    Raises:
        SessionError: There is no such form.
    """
    if form == "openai":
        return [_for_request(message) for message in messages]
    if form != "anthropic":
        raise SessionError(
            f"there is no form {form!r} of messages", f"use one of {', '.join(get_args(ChatForm))}"
        )
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _anthropic_blocks(message)
        if turns and turns[-1]["role"] == role:  # the API takes the results of several calls in one message
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _plain(value: Any) -> Any:
    """Return an SDK's object as the JSON data that it stands for."""
    dump = None if isinstance(value, type) else getattr(value, "model_dump", None)
    return dump(mode="json", exclude_none=True) if callable(dump) else value


def _for_request(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without what no server takes: notes of frameworks, origins, thoughts and citations."""
    kept = {key: value for key, value in message.items() if key not in _NOT_SENT}
    if isinstance(content := kept.get("content"), list):
        kept["content"] = [
            {key: value for key, value in part.items() if key not in _NOT_SENT}
            if isinstance(part, Mapping)
            else part
            for part in content
        ]
    return kept


def _cites(field: str) -> bool:
    """Return True if a field names what the model's server read for the text beside it."""
    return field in FIELDS and FIELDS[field].served


def _refusal(value: object) -> SessionError:
    return SessionError(f"a {type(value).__name__} was given that is no message with a role", _REFUSED)


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and bool(
        value.get("role") or _text_at(value, "type") in (*_ITEMS, *_ROLES)
    )


def _text_at(value: Mapping[str, Any], key: str) -> str:
    text = value.get(key)
    return text if isinstance(text, str) else ""


def _of_message(value: Any) -> list[dict[str, Any]]:
    """Return a message or an item of any form as messages in the OpenAI chat form."""
    if not isinstance(value, Mapping):
        raise _refusal(value)
    role, kind = _text_at(value, "role"), _text_at(value, "type")
    role = role or (kind if kind in _ROLES else "")
    if not role and kind in (*_ITEMS, "reasoning"):
        return _of_parts({"role": "assistant"}, [value])
    if not role:
        raise _refusal(value)
    message = {**value, "role": _ROLES.get(role, role)}
    if message["role"] == "tool":
        for key in ("tool_call_id", "name", "tool_name"):
            if message.get(key) is not None:
                message[key] = str(message[key])
    if "parts" in message and "content" not in message:  # Gemini
        message["content"] = message.pop("parts")
    if kind in ("message", *_ROLES):
        message.pop("type")
    calls = message.pop("tool_calls", None) or ()
    if not isinstance(calls, list | tuple):
        raise _refusal(calls)
    if calls:
        message["tool_calls"] = [_call(_plain(call)) for call in calls]
    content = [content] if isinstance(content := message.get("content"), Mapping) else content
    if content is None or isinstance(content, str):
        return [message]
    if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        raise SessionError(f"the content of a message is a {type(content).__name__}", _REFUSED)
    return _of_parts(message, [_plain(part) for part in content])


def _of_parts(message: dict[str, Any], parts: Sequence[Any]) -> list[dict[str, Any]]:
    """Return a message with these content parts: calls of tools beside the content, and results as messages of their own."""
    kept: list[dict[str, Any]] = []
    calls, thoughts, results = (
        list(message.get("tool_calls", ())),
        list[dict[str, Any]](),
        list[dict[str, Any]](),
    )
    for part in parts:
        if isinstance(part, str):
            kept.append({"type": "text", "text": part})
            continue
        name, held = named_part(part) if isinstance(part, Mapping) else ("", None)
        if held is None or not name:
            raise SessionError(f"a content part is a {type(part).__name__} of no known type", _REFUSED)
        kind = PARTS.get(name)
        match "served" if kind is None or kind.served else kind.holds:
            case "text" if held.get("thought"):  # Gemini
                thoughts.append({"type": "thinking", "thinking": str(held.get("text") or "")})
            case "text":
                given = next((held[key] for key in ("text", "refusal") if key in held), None)
                if given is None and name == "citationsContent":  # Bedrock
                    given = "".join(str(one.get("text", "")) for one in held.get("content") or ())
                # The Assistants API gives an object with the text and its citations.
                text, beside = (given.get("value"), given) if isinstance(given, Mapping) else (given, {})
                extras = {key: value for key, value in {**beside, **held}.items() if value and _cites(key)}
                kept.append({"type": "text", "text": str(text or ""), **extras})
            case "thought":
                thoughts.append({"type": name, **held})
            case "call":
                calls.append(_call(held))
            case "result":
                results.append(_result(held))
            case "media":
                kept.append(_media(name, held))
            case _ if name == "message":
                return _of_message({"role": "assistant", **held})
            case _:
                kept.append(dict(held) if "type" in held else {"type": name, **held})
    rest: dict[str, Any] = {
        key: value for key, value in message.items() if key not in ("content", "tool_calls")
    }
    plain = all(part.keys() == {"type", "text"} and part["type"] == "text" for part in kept)
    if message["role"] == "tool" and not results:
        return [{**message, "content": kept}]
    if not (calls or thoughts or results):
        return [{**rest, "content": kept}]
    rest["content"] = "\n".join(part["text"] for part in kept) if plain else kept
    if calls:
        rest["tool_calls"] = calls
    if thoughts:
        rest["thoughts"] = thoughts
        rest["reasoning"] = rest.get("reasoning") or "\n".join(filter(None, map(_thought_text, thoughts)))
    return [*results, *([rest] if kept or calls or thoughts else [])]


def _media(name: str, held: Mapping[str, Any]) -> dict[str, Any]:
    """Return a picture, sound or document in the OpenAI chat form, as far as it has one."""
    given = held.get("source")
    source = given if isinstance(given, Mapping) else held
    kind = str(source.get("media_type") or source.get("mimeType") or source.get("mime_type") or "")
    if (
        name in ("image", "inlineData", "inline_data")
        and isinstance(data := source.get("data"), str)
        and kind[:6] == "image/"
    ):
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
    if name == "image" and isinstance(url := source.get("url"), str):
        return {"type": "image_url", "image_url": {"url": url}}
    return dict(held) if "type" in held else {"type": name, **held}


def _thought_text(part: Mapping[str, Any]) -> str:
    """Return the readable text of a thought; "" for an encrypted one."""
    if isinstance(text := part.get("thinking") or part.get("text"), str):
        return text
    inner = part.get("summary") or part.get("reasoningText") or ()
    inner = [inner] if isinstance(inner, Mapping) else inner
    return "\n".join(str(entry.get("text", "")) for entry in inner if isinstance(entry, Mapping))


def _call(call: Any) -> dict[str, Any]:
    """Return the call of a tool in the OpenAI chat form."""
    if not isinstance(call, Mapping):
        raise _refusal(call)
    inner = next((call[key] for key in ("function", "custom") if isinstance(call.get(key), Mapping)), call)
    given: Any = next((inner[key] for key in ("arguments", "input", "args") if key in inner), {})
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    call_id = next((call[key] for key in ("call_id", "id", "toolUseId") if call.get(key)), "")
    name = inner.get("name") or str(call.get("type", "")).removesuffix("_call")
    return {"id": str(call_id), "type": "function", "function": {"name": str(name), "arguments": arguments}}


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a tool as a message in the OpenAI chat form."""
    given: Any = next((result[key] for key in ("content", "output", "response") if key in result), "")
    ids = ("tool_use_id", "call_id", "toolUseId", "tool_call_id", "id")
    message = {"role": "tool", "tool_call_id": str(next((result[key] for key in ids if result.get(key)), ""))}
    if name := result.get("name"):
        message["name"] = str(name)
    if isinstance(given, Sequence) and not isinstance(given, str):
        given = [_plain(part) for part in given]
        if all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in given):
            return {**message, "content": "\n".join(part["text"] for part in given)}
    return {**message, "content": given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)}


def _merged(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with the pieces of one answer joined: the Responses API gives text, thoughts and calls as items."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        last = joined[-1] if joined else {}
        if not (message["role"] == last.get("role") == "assistant"):
            joined.append(message)
            continue
        contents = [one["content"] for one in (last, message) if one.get("content")]
        if len(contents) == 2:
            contents = [[part for content in contents for part in _as_parts(content)]]
        last["content"] = contents[0] if contents else ""
        for key in ("tool_calls", "thoughts"):
            if both := [*last.get(key, ()), *message.get(key, ())]:
                last[key] = both
        if message.get("reasoning"):
            last["reasoning"] = "\n".join(filter(None, [last.get("reasoning"), message["reasoning"]]))
    return joined


def _as_parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _anthropic_blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the content of a message in the OpenAI chat form as Anthropic's blocks."""
    parts = [
        _anthropic_block(part) for part in _as_parts(message.get("content") or "") if part.get("text") != ""
    ]
    if message["role"] == "tool":
        return [{"type": "tool_result", "tool_use_id": message.get("tool_call_id", ""), "content": parts}]
    thoughts = [part for part in message.get("thoughts", ()) if part.get("signature") or part.get("data")]
    calls = [
        {
            "type": "tool_use",
            "id": call.get("id", ""),
            "name": call["function"]["name"],
            "input": _object(call["function"].get("arguments")),
        }
        for call in message.get("tool_calls", ())
    ]
    return [*thoughts, *parts, *calls]


def _object(arguments: Any) -> Any:
    """Return the arguments of a call as an object; {} for broken JSON, which Anthropic's API does not take."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {}


def _anthropic_block(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "image_url":
        url = part.get("image_url")
        url = str(url.get("url", "") if isinstance(url, Mapping) else url)
        head, comma, data = url.partition(";base64,")
        if head.startswith("data:") and comma:
            source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
        else:
            source = {"type": "url", "url": url}
        return {"type": "image", "source": source}
    if part.get("type") == "text":
        return {"type": "text", "text": part["text"]}
    return dict(part)
