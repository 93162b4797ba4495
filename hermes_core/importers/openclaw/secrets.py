"""The few secrets that a person may take along, found where OpenClaw keeps them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dotenv import dotenv_values

from hermes_core.importers.openclaw.values import SourceFile

ALLOWED = frozenset(
    {
        "TELEGRAM_BOT_TOKEN",
        "OPENROUTER_API_KEY",
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "ELEVENLABS_API_KEY",
        "VOICE_TOOLS_OPENAI_KEY",
    }
)
"""Names that a migration may write. Everything else is for the person to enter anew."""

_OF_SERVICE = {
    "openrouter": "OPENROUTER_API_KEY",
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "elevenlabs": "ELEVENLABS_API_KEY",
}


def literal_secrets(
    config: Mapping[str, Any], config_name: str, env_file: SourceFile | None, profiles: Sequence[SourceFile]
) -> dict[str, tuple[str, str]]:
    """The allowed secrets by name, each with its value and where it stood; references to elsewhere are left out."""
    found: dict[str, tuple[str, str]] = {}
    places = (*_of_env(env_file), *_of_config(config, config_name), *_of_profiles(profiles))
    for name, value, place in places:
        if name in ALLOWED and isinstance(value, str) and _is_literal(value):
            found.setdefault(name, (value.strip(), place))
    return found


def _is_literal(value: str) -> bool:
    plain = value.strip()
    return bool(plain) and not plain.startswith("$") and plain.isprintable()


def _of_env(file: SourceFile | None) -> Iterator[tuple[str, Any, str]]:
    text = file.text if file else None
    if file and text:
        for name, value in dotenv_values(stream=io.StringIO(text), interpolate=False).items():
            yield name, value, file.path


def _of_config(config: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any, str]]:
    env = _below(config, "env")
    for name, value in {**env, **_below(env, "vars")}.items():
        yield name, value, place
    yield "TELEGRAM_BOT_TOKEN", _below(config, "channels", "telegram").get("botToken"), place
    for service, settings in _below(config, "models", "providers").items():
        if isinstance(settings, dict):
            yield _OF_SERVICE.get(service, ""), settings.get("apiKey"), place
    for path in (
        ("messages", "tts", "elevenlabs"),
        ("messages", "tts", "providers", "elevenlabs"),
        ("talk",),
    ):
        yield "ELEVENLABS_API_KEY", _below(config, *path).get("apiKey"), place
    yield "VOICE_TOOLS_OPENAI_KEY", _below(config, "messages", "tts", "openai").get("apiKey"), place


def _of_profiles(files: Sequence[SourceFile]) -> Iterator[tuple[str, Any, str]]:
    """Keys that OpenClaw's agents log in with."""
    for file in files:
        try:
            data = json.loads(file.text or "{}")
        except (ValueError, RecursionError):
            continue
        for profile in _below(data, "profiles").values() if isinstance(data, dict) else ():
            if isinstance(profile, dict) and profile.get("type") == "api_key":
                yield _OF_SERVICE.get(str(profile.get("provider")), ""), profile.get("key"), file.path


def _below(value: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The mapping under these keys; empty when there is none."""
    found: Any = value
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
