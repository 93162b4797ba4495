"""Content parts of messages: one table of their kinds, of what each holds, and of the origin of that.

The kinds are those of the OpenAI Chat Completions and Responses APIs, Anthropic's Messages API, Gemini's generateContent,
Bedrock's Converse, the AI SDK, LangChain and Pydantic AI. The origin of a text follows from its kind, whatever the role of
the message that holds it. What the table does not know has the lowest origin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from hermes_core.contract.values import Origin

UNKNOWN_ORIGIN: Origin = "tool"
"""Origin of a part or field that the table does not know, and of what a model read that nobody added to its turn."""


class PartKind(Struct, frozen=True):
    """Kind of a content part, or of a field of a message.

    Attributes:
        holds: What the part holds. A text is the words of who speaks, a thought is no part of the answer, media are a
            picture, sound or document, and a mark holds nothing.
        origin: Origin of what the part holds; None for that of who speaks.
        served: True if the model's own server runs the tool of a call or result, and not the host.
    """

    holds: Literal["text", "thought", "media", "call", "result", "mark"]
    origin: Origin | None = None
    served: bool = False


_KINDS: tuple[tuple[PartKind, str], ...] = (
    (PartKind("text"), "text input_text output_text refusal"),
    (
        PartKind("thought"),
        "thinking redacted_thinking reasoning reasoningContent reasoning_recap thought thoughts summary_text",
    ),
    (PartKind("mark"), "cachePoint step-start item_reference compaction mcp_approval_response"),
    (
        PartKind("media", "file"),
        """image_url input_image image image-url input_audio audio audio-url video video_url video-url file input_file
        document document-url text-plain container_upload inlineData inline_data fileData file_data binary uploaded-file""",
    ),
    (
        PartKind("call"),
        """tool_use toolUse tool_call tool-call toolCall functionCall function_call custom_tool_call local_shell_call
        shell_call apply_patch_call computer_call""",
    ),
    (
        PartKind("result", "tool"),
        """tool_result toolResult tool-result tool-return functionResponse function_response function_call_output
        custom_tool_call_output local_shell_call_output shell_call_output apply_patch_call_output computer_call_output""",
    ),
    (
        PartKind("call", "tool", served=True),
        """server_tool_use server_tool_call mcp_tool_use file_search_call code_interpreter_call mcp_call mcp_list_tools
        mcp_approval_request image_generation_call executableCode executable_code builtin-tool-call""",
    ),
    (
        PartKind("result", "tool", served=True),
        """mcp_tool_result code_execution_tool_result bash_code_execution_tool_result
        text_editor_code_execution_tool_result tool_search_tool_result server_tool_result codeExecutionResult
        code_execution_result builtin-tool-return source-document""",
    ),
    (PartKind("call", "web", served=True), "web_search_call"),
    (
        PartKind("result", "web", served=True),
        "web_search_tool_result web_fetch_tool_result search_result source-url",
    ),
    (PartKind("text", "web"), "citationsContent"),
)

PARTS: Mapping[str, PartKind] = {name: kind for kind, names in _KINDS for name in names.split()}
"""Kinds of content parts, by their type or their only key."""

_FIELD_KINDS: tuple[tuple[PartKind, str], ...] = (
    (PartKind("thought"), "reasoning reasoning_content reasoning_details thinking thoughts"),
    (PartKind("media", "file"), "attachments experimental_attachments files images"),
    (
        PartKind("result", "web", served=True),
        """annotations citations citationMetadata citation_metadata groundingMetadata grounding_metadata search_results
        searchResults web_search_results urlContextMetadata url_context_metadata""",
    ),
    (
        PartKind("mark"),
        """role type content_type content parts text refusal transcript audio input_audio tool_calls function_call
        invalid_tool_calls tool_call_id tool_name name author sender source agent agent_name id ref status phase index
        origin native timestamp created created_at at date time model provider usage usage_metadata stop_reason
        stop_sequence finish_reason response_metadata additional_kwargs container object example signature
        thoughtSignature thought_signature thought logprobs cache_control detail metadata provider_specific_fields version""",
    ),
)

FIELDS: Mapping[str, PartKind] = {name: kind for kind, names in _FIELD_KINDS for name in names.split()}
"""Fields of a message or a text beside its words, by their names. A mark is no text that a model reads."""

AUTHOR_FIELDS = ("name", "author", "sender", "source", "agent_name", "agent")
"""Fields of a message that name who wrote it."""

# Fields in which frameworks and servers put more of a message, in forms of their own.
_NATIVE_FIELDS = ("native", "additional_kwargs", "response_metadata", "metadata", "provider_specific_fields")

# A framework's own JSON may name the kind of a part by any of these fields.
_TYPE_FIELDS = ("type", "content_type", "part_kind", "kind")


def named_part(part: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the name of a part's kind, and the object that has its fields; "" for a part without a known name."""
    for field in ("type", "content_type"):
        if isinstance(kind := part.get(field), str) and kind:
            return kind, part
    for key, value in part.items():
        if key in PARTS:
            return key, value if isinstance(value, Mapping) else part
    return "", part


def foreign_origins(message: Mapping[str, Any]) -> list[Origin]:
    """Return the origins of all that a message holds beside the words of who speaks.

    >>> foreign_origins({"role": "user", "content": [{"type": "text", "text": "See."}, {"type": "image"}]})
    ['file']
    >>> foreign_origins({"role": "assistant", "content": "It opens at 9.", "citations": ["https://example.org"]})
    ['web']
    """
    content = message.get("content", message.get("parts"))
    native = [message.get(name) for name in _NATIVE_FIELDS]
    found = [*_of_content(content), *_of_fields(message), *_of_native(native)]
    return list(dict.fromkeys(found))


def author_of(message: Mapping[str, Any]) -> str:
    """Return the name of who wrote a message, as the message says it; "" if it does not."""
    for field in AUTHOR_FIELDS:
        value = message.get(field)
        value = value.get("name") if isinstance(value, Mapping) else value
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def _of_content(content: Any) -> Iterator[Origin]:
    for part in content if isinstance(content, list | tuple) else [content]:
        if part is None or isinstance(part, str):
            continue
        if not isinstance(part, Mapping):
            yield UNKNOWN_ORIGIN
            continue
        name, held = named_part(part)
        kind = PARTS.get(name)
        if kind is None:
            yield UNKNOWN_ORIGIN
        elif kind.origin is not None:
            yield kind.origin
        elif kind.holds == "text":
            yield from _of_fields(held)
            if isinstance(held.get("text"), Mapping):
                yield from _of_fields({**held["text"], "value": None})


def _of_fields(fields: Mapping[str, Any]) -> Iterator[Origin]:
    for name, value in fields.items():
        if value and isinstance(value, str | list | tuple | Mapping):
            kind = FIELDS.get(name)
            origin = UNKNOWN_ORIGIN if kind is None else kind.origin
            if origin is not None:
                yield origin


def _of_native(value: Any) -> Iterator[Origin]:
    """Yield the origins of the parts that a message in the form of a framework has, which its chat form may lack."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list | tuple):
            waiting += one
        elif isinstance(one, Mapping):
            names = [one.get(field) for field in _TYPE_FIELDS]
            held = {name: inner for name, inner in one.items() if inner and isinstance(inner, list | Mapping)}
            kinds = [PARTS[name] for name in (*names, *held) if isinstance(name, str) and name in PARTS]
            kinds += [FIELDS[name] for name in held if name in FIELDS]
            # A result of the host's own tool is a message of its own in the chat form.
            yield from (
                kind.origin for kind in kinds if kind.origin and (kind.served or kind.holds == "media")
            )
            waiting += held.values()
