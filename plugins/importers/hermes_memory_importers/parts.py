"""Messages in the shapes of chat APIs: OpenAI's chats and responses, Anthropic, Gemini, and those of frameworks.

`safety.parts.PARTS` says what each part of a message is. A part that it does not know is counted by its kind, so that
nothing of a file vanishes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hermes_core.safety.parts import FIELDS, PARTS, named_part
from hermes_memory_importers.stream import expected, read_list, read_object, read_role, read_text, whole_text
from hermes_memory_importers.values import ImportedMessage, SkipLog

NO_WORDS = "instructions, and messages without a word"
"""Reason for a message without any part."""

OF_PROGRAM = "commands, reminders and other text of the program's own"
"""Reason for a text that a program wrote in the name of the person."""

_ENDS: tuple[tuple[Literal["call", "result"], tuple[str, ...]], ...] = (
    ("call", ("_call", "tool_use")),
    ("result", ("_call_output", "tool_result")),
)
"""Ends of the kinds of parts with a call, and with a result, that the table does not know."""

_WORDS = ("text", "refusal", "transcript", "logs")
"""Fields of a part that hold its words."""

_SERVED = ("output", "outputs", "results", "error")
"""Fields of a call that hold its result, if the model's own server ran the tool."""

_ROLES = {"ai": "assistant", "human": "user", "model": "assistant"}
"""Other names of roles."""

BESIDE = (
    *(name for name, kind in FIELDS.items() if kind.holds in ("media", "thought")),
    "codex_reasoning_items",
)
"""Fields beside the content of a message, which are left out."""

# Some models write their thoughts before the answer.
_THINK = re.compile(
    r"\s*<(think|thinking|thought|reasoning|reasoning_scratchpad)>.*?(</\1>\s*|\Z)", re.DOTALL | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a message: a text, a tool call, or the result of a call.

    Attributes:
        text: The text, or the result.
        call: The call, in the form of chat APIs.
        name: Name of the tool of a result, if the part has it.
        call_id: Id of the call of a result.
    """

    kind: Literal["text", "call", "result"]
    text: str = ""
    call: Mapping[str, object] | None = None
    name: str = ""
    call_id: str = ""


def tool_call(call_id: str, name: str, arguments: object) -> dict[str, object]:
    """Return a tool call in the form of chat APIs. Arguments that are no text become JSON."""
    text = arguments if isinstance(arguments, str) else _json(arguments or {})
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def read_parts(value: object, where: str, skips: SkipLog) -> Iterator[Part]:
    """Yield the parts of a message's content: a text, null, an object, or a list of these.

    A blank text is no part. A part of another kind is counted.
    """
    if not isinstance(value, str | dict | list | None):
        raise expected(where, "text or a list of parts", value)
    for raw in value if isinstance(value, list) else [value]:
        if raw is None or isinstance(raw, str):
            yield from [Part("text", whole_text(raw))] if raw and raw.strip() else []
            continue
        if not isinstance(raw, dict):
            skips.note_part(f"parts of the kind {type(raw).__name__!r}", where)
            continue
        kind, part = named_part(raw)
        kind = kind or ("unknown" if "type" in part else next(iter(part), "unknown"))
        if kind == "tool-invocation" and isinstance(part.get("toolInvocation"), dict):
            part, kind = part["toolInvocation"], "dynamic-tool"
        words = next((text for name in _WORDS if isinstance(text := _plain(part.get(name)), str)), None)
        holds = (
            PARTS[kind].holds if kind in PARTS else next((h for h, end in _ENDS if kind.endswith(end)), "")
        )
        # The AI SDK: a kind `tool-NAME` holds a call and its result.
        if not holds and "toolCallId" in part and kind.startswith(("tool-", "dynamic-")):
            yield from _call_with_result(part, kind.removeprefix("tool-"), where)
        elif holds == "call":
            yield Part("call", call=_call(part, kind, where))
            if isinstance(part.get("result"), str):
                skips.note_part(f"results of the kind {kind[:40]!r}", where)  # a picture that the model made
            elif any(part.get(name) for name in _SERVED):
                yield Part("result", _result(part, _SERVED, where, skips), None, *_name(part, where))
        elif holds == "result":
            text = _result(part, ("content", "output", "result", "response"), where, skips)
            yield Part("result", text, None, *_name(part, where))
        elif words is None or holds == "thought" or part.get("thought") is True:
            skips.note_part(f"parts of the kind {kind[:40]!r}", where)
        elif words.strip():
            yield Part("text", whole_text(words))


def read_content(value: object, where: str, skips: SkipLog) -> str:
    """Return the text of a message: a string, null, or a list of parts. Parts without text are counted."""
    if isinstance(value, str):
        return whole_text(value)
    if not isinstance(value, list | None):
        raise expected(where, "text or a list of parts", value)
    texts = []
    for part in read_parts(value, where, skips):
        if part.kind == "text":
            texts.append(part.text)
        else:
            skips.note_part(f"{part.kind}s of tools within a text", where)
    return "\n".join(texts)


def read_message(
    role: str,
    parts: Iterable[Part],
    where: str,
    skips: SkipLog,
    *,
    ref: str = "",
    at: float | None = None,
    speaker: str = "",
    words: Callable[[str], str] = str,
    reason: str = OF_PROGRAM,
) -> list[ImportedMessage]:
    """Return the messages that a record holds: its text with its calls, and each result of a tool.

    The parts are counted instead of the record.

    Args:
        role: Role of the text and the calls.
        ref: Id of the record. The first message has it, and the others have it with a number.
        at: Time of the record in epoch seconds.
        words: Function that returns the words of the person in a text. What it leaves out is counted.
        reason: Reason for what `words` leaves out.
    """
    before = skips.read
    found: list[ImportedMessage] = []
    texts: list[str] = []
    calls: list[dict[str, object]] = []

    def add(kind: str, text: str, part: Part | None = None) -> None:
        if not (text.strip() or calls):
            return
        found.append(
            ImportedMessage(
                kind,
                text,
                speaker if part is None else "",
                f"{ref}/{len(found)}" if ref and found else ref,
                at,
                "" if part is None else part.name,
                () if part else tuple(calls),
                "" if part is None else part.call_id,
            )
        )

    def flush() -> None:
        add(role, "\n".join(texts))
        texts.clear()
        calls.clear()

    for part in parts:
        if part.kind == "text":
            text = words(part.text) if role == "user" else _THINK.sub("", part.text, count=1)
            if text != part.text:
                skips.note_part(reason if role == "user" else "parts of the kind 'thinking'", where)
            texts += [text] if text.strip() else []
        elif part.kind == "call":
            calls.append(dict(part.call or {}))
        else:
            flush()
            add("tool", part.text, part)
            if not part.text.strip():
                skips.note_part("results of tools without a word", where)
    flush()
    if not found and skips.read == before:
        skips.note_part(NO_WORDS, where)
    skips.open(sum(message.parts for message in found))
    return found


def read_chat_message(
    value: Mapping[str, Any],
    where: str,
    skips: SkipLog,
    *,
    ref: str = "",
    at: float | None = None,
    speaker: str = "",
    words: Callable[[str], str] = str,
    reason: str = OF_PROGRAM,
) -> list[ImportedMessage]:
    """Return the messages of an object with `role` and `content`, or of an item with a call or a result.

    The arguments are those of `read_message`. The `name` of a message is its speaker, or the tool of a result.
    """
    if "role" not in value and "content" not in value and isinstance(value.get("type"), str):
        return read_message("assistant", read_parts([value], where, skips), where, skips, ref=ref, at=at)
    role = read_role(_ROLES.get(str(value.get("role")), value.get("role")), f"{where}, role")
    name = read_text(value.get("name") or value.get("tool_name"), f"{where}, name")
    if not role:
        skips.note(NO_WORDS, where)
        return []
    parts = _chat_parts(value, role, name, where, skips)
    if role == "user" and (sender := sender_of(value)) not in ("", "human"):
        parts = without_text(parts, sender, where, skips)
    speaker = speaker or ("" if role == "tool" else name)
    return read_message(
        role, parts, where, skips, ref=ref, at=at, speaker=speaker, words=words, reason=reason
    )


def sender_of(value: Mapping[str, Any]) -> str:
    """Return who sent a message of the person, as the record says it.

    It is "" if the record does not say it, and "human" for the person; any other kind is a program, a channel or another
    session.
    """
    origin = value.get("origin")
    kind = origin.get("kind") if isinstance(origin, dict) else ""
    if isinstance(kind, str) and kind:
        return "human" if kind in ("human", "person", "user") else kind
    return "a program" if value.get("isSynthetic") is True or value.get("synthetic") is True else ""


def without_text(parts: Iterable[Part], sender: str, where: str, skips: SkipLog) -> Iterator[Part]:
    """Yield the parts without the texts, which are counted as those of this sender."""
    for part in parts:
        if part.kind == "text":
            skips.note_part(f"messages of the origin {sender[:40]!r}", where)
        else:
            yield part


def _chat_parts(value: Mapping[str, Any], role: str, name: str, where: str, skips: SkipLog) -> Iterator[Part]:
    content = value.get("content", value.get("parts"))
    if role == "tool":
        call_id = read_text(value.get("tool_call_id"), f"{where}, tool_call_id")
        result = _result({"content": content}, ("content",), f"{where}, content", skips)
        yield Part("result", result, None, name, call_id)
        return
    yield from read_parts(content, f"{where}, content", skips)
    audio = value.get("audio")
    for text in (value.get("refusal"), audio.get("transcript") if isinstance(audio, dict) else None):
        yield from [Part("text", whole_text(text))] if isinstance(text, str) and text.strip() else []
    for call in read_list(value.get("tool_calls") or [], f"{where}, tool_calls"):
        yield Part("call", call=_chat_call(call, f"{where}, tool_calls"))
    if isinstance(legacy := value.get("function_call"), dict):
        yield Part("call", call=_call(legacy, "function_call", where))
    for field in BESIDE:
        if beside := value.get(field):
            count = len(beside) if isinstance(beside, list) else 1
            skips.note_part(f"parts of the kind {field!r}", where, count)


def _chat_call(value: object, where: str) -> dict[str, object]:
    """Return a call in the form of chat APIs as it is. Raises `ImportFailed` for one whose id or name is no text."""
    call = read_object(value, where)
    function = call.get("function")
    inner = call if function is None else read_object(function, f"{where}, function")
    for holder, key in ((call, "id"), (inner, "name")):
        read_text(holder.get(key), f"{where}, {key}")
    return dict(call)


def _call_with_result(part: Mapping[str, Any], name: str, where: str) -> Iterator[Part]:
    """Yield the call and the result that a part of the AI SDK holds, whose kind is named after the tool."""
    yield Part("call", call=_call(part, name, where))
    given = next((part[field] for field in ("output", "result", "errorText") if part.get(field)), "")
    text = given if isinstance(given, str) else _json(given)
    if text.strip():
        yield Part("result", whole_text(text), None, "", _name(part, where)[1])


def _result(part: Mapping[str, Any], fields: Sequence[str], where: str, skips: SkipLog) -> str:
    """Return the text of the first of these fields that the result has. An object that is no part becomes JSON."""
    found = next((one for name in fields if (one := part.get(name))), None)
    if isinstance(found, list):
        found = [one if not isinstance(one, dict) or named_part(one)[0] else _json(one) for one in found]
    return read_content(_json(found) if isinstance(found, dict) else found, where, skips)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: object) -> object:
    """Return the text of a part, which may be an object with `value`."""
    return value.get("value") if isinstance(value, dict) else value


def _call(part: Mapping[str, Any], kind: str, where: str) -> dict[str, object]:
    name, call_id = _name(part, where)
    given = (part.get(field) for field in ("input", "arguments", "args", "action", "code", "queries"))
    arguments = next((one for one in given if one is not None), None)
    return tool_call(call_id, name or kind.removesuffix("_call"), arguments)


def _name(part: Mapping[str, Any], where: str) -> tuple[str, str]:
    """Return the name of a tool and the id of a call."""
    name = part.get("name") or part.get("toolName") or part.get("tool_name")
    ids = ("tool_use_id", "call_id", "toolCallId", "tool_call_id", "id")
    call_id = next((one for field in ids if (one := part.get(field))), None)
    return read_text(name, f"{where}, name"), read_text(call_id, f"{where}, id")
