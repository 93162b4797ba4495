"""Results of a provider written for Hermes Agent: known forms are read, every other value is refused.

A refused value is a fault of the provider, with its type and the form that is expected. It never becomes text: a prompt
would hold `<object at 0x...>` or JSON that nobody wrote for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes_core.errors import ProviderInvalid

MAX_OBSERVATIONS = 16
MAX_OBSERVATION_BYTES = 16 * 1024
MAX_OBSERVATIONS_BYTES = 64 * 1024
MAX_OBSERVATION_FIELD_CHARS = 128
_RESULT = "MemoryPrefetchResult"


@dataclass(frozen=True)
class MemoryObservation:
    """Observation beside a recall. `payload` is data in the form of JSON, for programs and not for the prompt."""

    source_kind: str
    schema: str
    version: int
    payload: Any
    provider: str = ""


@dataclass(frozen=True)
class MemoryPrefetchResult:
    """Result of `prefetch` that has observations beside its text. The observations become a tuple."""

    context: str = ""
    observations: list[MemoryObservation] | tuple[MemoryObservation, ...] = ()

    def __post_init__(self) -> None:
        held = () if self.observations is None else self.observations
        if not isinstance(held, list | tuple):
            raise TypeError("observations must be a list or a tuple")
        object.__setattr__(self, "observations", tuple(held))


def text_of_result(value: Any, method: str) -> str:
    """Return the text that a method returned, "" for None. Raises `ProviderInvalid` for any other type."""
    if value is None or isinstance(value, str):
        return value or ""
    raise _refused(method, value, "a str")


def tool_text(value: Any, method: str) -> str:
    """Return the result of a tool as text: JSON for a value that consists of JSON, "" for None.

    Raises `ProviderInvalid` for any other value.
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dict | list | bool | int | float):
        try:
            return json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError) as exc:
            refused = f"{_named(method)} returned a {type(value).__name__} that is no JSON ({exc})"
            raise ProviderInvalid(refused, "return a str of JSON") from exc
    raise _refused(method, value, "a str of JSON")


def recall_of_result(value: Any, provider: str) -> tuple[str, list[MemoryObservation], list[str]]:
    """Return the text of a `prefetch`, its sound observations, and a sentence for each that is left out.

    A text, a `MemoryPrefetchResult` and a mapping with its keys are known; the class may be Hermes Agent's own or a copy
    that the package defines for hosts without it.

    Raises `ProviderInvalid` for any other value.
    """
    if value is None or isinstance(value, str):
        return value or "", [], []
    if isinstance(value, Mapping) and "context" in value:
        context, held = value["context"], value.get("observations")
    elif type(value).__name__ == _RESULT and hasattr(value, "context"):
        context, held = value.context, getattr(value, "observations", None)
    else:
        raise _refused("prefetch", value, f"a str or a {_RESULT}")
    if not isinstance(context, str):
        raise ProviderInvalid(
            f"prefetch() returned a context that is a {type(context).__name__}", "make it a str"
        )
    observations, faults = _observations(held, provider)
    return context, observations, faults


def context_of_hook(value: Any) -> str:
    """Return what a `pre_llm_call` callback adds to the context: a text, or a mapping with the key "context".

    Raises `ProviderInvalid` for any other value.
    """
    context = value.get("context") if isinstance(value, Mapping) else value
    return text_of_result(context, "a pre_llm_call callback")


def _observations(held: Any, provider: str) -> tuple[list[MemoryObservation], list[str]]:
    if held is None:
        return [], []
    if not isinstance(held, list | tuple):
        return [], [f"the observations are a {type(held).__name__}; return a list of MemoryObservation"]
    sound: list[MemoryObservation] = []
    faults: list[str] = []
    room = MAX_OBSERVATIONS_BYTES
    for number, one in enumerate(held, 1):
        if len(sound) == MAX_OBSERVATIONS:
            faults.append(f"{len(held) - number + 1} observations are over the limit of {MAX_OBSERVATIONS}")
            break
        observation = _observation(one, provider)
        size = MAX_OBSERVATION_BYTES + 1 if isinstance(observation, str) else _size(observation)
        if isinstance(observation, str):
            faults.append(f"observation {number} is left out: {observation}")
        elif size > min(room, MAX_OBSERVATION_BYTES):
            faults.append(f"observation {number} is left out: it is too large, or no JSON")
        else:
            room -= size
            sound.append(observation)
    return sound, faults


def _observation(one: Any, provider: str) -> MemoryObservation | str:
    """Return an observation, or a sentence that says what is wrong with it."""
    read: Callable[..., Any] = (
        one.get if isinstance(one, Mapping) else lambda key, default=None: getattr(one, key, default)
    )
    kind, schema, version = (read(key) for key in ("source_kind", "schema", "version"))
    for name, text in (("source_kind", kind), ("schema", schema)):
        if not isinstance(text, str) or not 0 < len(text) <= MAX_OBSERVATION_FIELD_CHARS:
            return f"its {name} is no text of 1 to {MAX_OBSERVATION_FIELD_CHARS} characters"
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        return "its version is no number from 1"
    if read("provider", "") not in ("", provider):
        return "it names another provider"
    return MemoryObservation(kind, schema, version, read("payload"), provider)


def _size(observation: MemoryObservation) -> int:
    """Return the bytes of a payload as JSON, more than any limit if it is none."""
    try:
        return len(json.dumps(observation.payload, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError):
        return MAX_OBSERVATIONS_BYTES + 1


def _refused(method: str, value: Any, wanted: str) -> ProviderInvalid:
    return ProviderInvalid(f"{_named(method)} returned a {type(value).__name__}", f"return {wanted}")


def _named(method: str) -> str:
    return method if " " in method else f"{method}()"
