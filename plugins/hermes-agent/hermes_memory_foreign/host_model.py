"""Views of Hermes Agent's model calls: `call_llm` and `ctx.llm` ask the auxiliary model of config.yaml, else its model.

The provider can't choose the model, the server or the key: all of these are the person's.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hermes_core import HermesHome
from hermes_core.config import Config, Credentials, load_config
from hermes_core.errors import ConfigError
from hermes_core.kit.http import Api
from hermes_memory_foreign.environment import get_hermes_home, warn_once

# Arguments by which Hermes Agent lets a caller choose another model or server.
_ROUTING = ("provider", "model", "base_url", "api_key", "api_mode", "main_runtime", "reasoning_config")


class ModelAnswer(SimpleNamespace):
    """The JSON of an answer with its keys as attributes. A missing key is None, as in the client of OpenAI."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def model_dump(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        return {key: _plain(value) for key, value in vars(self).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, ModelAnswer):
        return value.model_dump()
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _home() -> HermesHome:
    return HermesHome(get_hermes_home())


def has_model() -> bool:
    """Return True if config.yaml of the current home names a model, False also if it can't be read."""
    try:
        config = load_config(_home())
    except ConfigError:  # doctor and status report it
        return False
    return bool(config.auxiliary.name or config.model.name)


def call_llm(
    task: str | None = None,
    *,
    messages: Sequence[Mapping[str, Any]],
    temperature: float | None = None,
    max_tokens: int | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    timeout: float | None = None,
    extra_body: Mapping[str, Any] | None = None,
    **others: Any,
) -> ModelAnswer:
    """Ask the auxiliary model, and return its answer in the form of OpenAI's chat completions.

    Raises:
        ConfigError: config.yaml names no model.
        ProviderError: The server gave no answer.
    """
    del task  # one auxiliary model does all tasks
    ignored = [name for name in (*_ROUTING, "stream") if others.get(name)]
    if ignored:
        warn_once(
            f"call_llm({', '.join(f'{name}=' for name in ignored)}) of a provider has no effect here: "
            "the model is that of config.yaml, and its answer is not streamed"
        )
    home = _home()
    config = load_config(home)
    url, name, key = _server(config, Credentials(home))
    body: dict[str, Any] = {
        "model": name,
        "messages": [dict(message) for message in messages],
        "stream": False,
    }
    chosen = {"temperature": temperature, "max_tokens": max_tokens, "tools": list(tools) if tools else None}
    body |= {option: value for option, value in chosen.items() if value is not None}
    body |= dict(extra_body or {})
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limit = timeout or config.model.timeout
    with Api(url, name="the auxiliary model", key=key, headers=headers, timeout=limit) as api:
        answer = api.post("chat/completions", body)
    reply: ModelAnswer = json.loads(json.dumps(answer or {}), object_hook=lambda data: ModelAnswer(**data))
    return reply


def _server(config: Config, credentials: Credentials) -> tuple[str, str, str]:
    """Return address, name and key of the auxiliary model, of the main model if there is none."""
    model, auxiliary = config.model, config.auxiliary
    name = auxiliary.name or model.name
    if not name:
        raise ConfigError(
            "the provider asks a model, and config.yaml names none", "set auxiliary.name or model.name"
        )
    own = auxiliary if auxiliary.name else model
    variable = model.api_key_env if own.api_key_env is None else own.api_key_env
    return own.base_url or model.base_url, name, (credentials.get(variable) or "") if variable else ""


async def async_call_llm(*args: Any, **kwargs: Any) -> ModelAnswer:
    """Ask as `call_llm` does, without blocking the event loop."""
    return await asyncio.to_thread(call_llm, *args, **kwargs)


def extract_content_or_reasoning(response: Any) -> str:
    """Return the text of an answer; its reasoning if it has no text."""
    choices = getattr(response, "choices", None) or ()
    message = getattr(choices[0], "message", None) if choices else None
    for part in ("content", "reasoning_content", "reasoning"):
        text = getattr(message, part, None)
        if isinstance(text, str) and text.strip():
            return text.strip()
    return ""


# -------------------------------------------------------------------------------------------------- agent.plugin_llm


@dataclass
class PluginLlmTextInput:
    """A text in the input of a structured request."""

    text: str
    type: str = "text"


@dataclass
class PluginLlmImageInput:
    """A picture in the input of a structured request, as bytes or as an address."""

    data: bytes | None = None
    url: str | None = None
    mime_type: str = "image/png"
    file_name: str = ""
    type: str = "image"


@dataclass
class PluginLlmUsage:
    """Tokens of a request."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None


@dataclass
class PluginLlmCompleteResult:
    """The answer to a request."""

    text: str
    provider: str
    model: str
    agent_id: str
    usage: PluginLlmUsage = field(default_factory=PluginLlmUsage)
    audit: dict[str, Any] = field(default_factory=dict)


@dataclass
class PluginLlmStructuredResult(PluginLlmCompleteResult):
    """The answer to a structured request. `parsed` is None if the answer is no JSON; `content_type` tells."""

    parsed: Any = None
    content_type: str = "text"


class PluginLlmTrustError(PermissionError):
    """Refusal of a request that names another model, agent or profile than the person's."""


class PluginLlm:
    """The `ctx.llm` of a plugin."""

    def __init__(self, plugin_id: str = "", **_: Any) -> None:
        self.plugin_id = plugin_id

    def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        provider: str | None = None,
        model: str | None = None,
        agent_id: str | None = None,
        profile: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> PluginLlmCompleteResult:
        """Answer a conversation. Raises `PluginLlmTrustError` if another model, agent or profile is asked for."""
        self._refuse_choice(provider=provider, model=model, agent_id=agent_id, profile=profile)
        reply = call_llm(messages=messages, temperature=temperature, max_tokens=max_tokens, timeout=timeout)
        return PluginLlmCompleteResult(**self._result(reply))

    def complete_structured(
        self,
        *,
        instructions: str,
        input: Iterable[Any] = (),  # noqa: A002  the host's name for it
        json_schema: Any = None,
        json_mode: bool = False,
        schema_name: str | None = None,
        system_prompt: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        agent_id: str | None = None,
        profile: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> PluginLlmStructuredResult:
        """Answer instructions about an input with JSON if a schema or `json_mode` asks for it.

        Raises `PluginLlmTrustError` as `complete` does.
        """
        self._refuse_choice(provider=provider, model=model, agent_id=agent_id, profile=profile)
        wants_json = json_mode or json_schema is not None
        system = [system_prompt or "", "Answer with one JSON object and nothing else." if wants_json else ""]
        task = [instructions.strip()]
        if schema_name:
            task.append(f"Name of the schema: {schema_name}")
        if json_schema is not None:
            task.append(f"JSON schema:\n{json.dumps(json_schema, ensure_ascii=False, default=str)}")
        parts = [{"type": "text", "text": "\n\n".join(task)}, *map(_part, input)]
        texts = [str(part["text"]) for part in parts if part["type"] == "text"]
        # Many servers take parts only if there is a picture among them.
        content: Any = "\n\n".join(texts) if len(texts) == len(parts) else parts
        messages = [{"role": "user", "content": content}]
        if any(system):
            messages.insert(0, {"role": "system", "content": "\n\n".join(filter(None, system))})
        reply = call_llm(messages=messages, temperature=temperature, max_tokens=max_tokens, timeout=timeout)
        result = self._result(reply)
        parsed = _json_in(result["text"]) if wants_json else None
        return PluginLlmStructuredResult(
            **result, parsed=parsed, content_type="text" if parsed is None else "json"
        )

    async def acomplete(self, *args: Any, **kwargs: Any) -> PluginLlmCompleteResult:
        """Answer as `complete` does, without blocking the event loop."""
        return await asyncio.to_thread(self.complete, *args, **kwargs)

    async def acomplete_structured(self, **kwargs: Any) -> PluginLlmStructuredResult:
        """Answer as `complete_structured` does, without blocking the event loop."""
        return await asyncio.to_thread(self.complete_structured, **kwargs)

    def _refuse_choice(self, **choice: str | None) -> None:
        chosen = [name for name, value in choice.items() if value]
        if chosen:
            raise PluginLlmTrustError(
                f"plugin {self.plugin_id!r} may not choose {', '.join(chosen)}: the model is that of config.yaml"
            )

    def _result(self, reply: ModelAnswer) -> dict[str, Any]:
        usage = reply.usage or ModelAnswer()
        return {
            "text": extract_content_or_reasoning(reply),
            "provider": "config.yaml",
            "model": str(reply.model or ""),
            "agent_id": "default",
            "usage": PluginLlmUsage(
                usage.prompt_tokens or 0, usage.completion_tokens or 0, usage.total_tokens or 0
            ),
            "audit": {"plugin_id": self.plugin_id},
        }


def _part(block: Any) -> dict[str, Any]:
    """Return an input as a part of a chat message. Raises `ValueError` for anything but a text or a picture."""
    read: Callable[[str], Any] = block.get if isinstance(block, Mapping) else _attributes(block)
    if read("type") == "text" and isinstance(read("text"), str):
        return {"type": "text", "text": read("text")}
    if read("type") == "image" and (read("data") or read("url")):
        data, kind = read("data"), read("mime_type") or "image/png"
        url = read("url") or f"data:{kind};base64,{base64.b64encode(data).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}
    raise ValueError(f"an input must be a text or an image block, got {block!r}")


def _attributes(block: Any) -> Callable[[str], Any]:
    """Return a function that reads an attribute of `block`, None if it has none of that name."""
    return lambda name: getattr(block, name, None)


def _json_in(text: str) -> Any:
    """Return the JSON of an answer, also from a fenced block, None if there is none."""
    start, end = text.find("{"), text.rfind("}")
    try:
        return json.loads(text[start : end + 1] if 0 <= start < end else text)
    except (ValueError, RecursionError):
        return None


VIEWS: dict[str, dict[str, object]] = {
    "agent.auxiliary_client": {
        "call_llm": call_llm,
        "async_call_llm": async_call_llm,
        "extract_content_or_reasoning": extract_content_or_reasoning,
    },
    "agent.plugin_llm": {
        owner.__name__: owner
        for owner in (
            PluginLlm,
            PluginLlmTextInput,
            PluginLlmImageInput,
            PluginLlmUsage,
            PluginLlmCompleteResult,
            PluginLlmStructuredResult,
            PluginLlmTrustError,
        )
    },
}
