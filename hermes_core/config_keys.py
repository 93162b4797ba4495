"""What config.yaml may hold: one class a block, one field a key with its type, default, range and help.

Validation, `hermes_core.config.set_value` and the reference page all read this one table, `KEYS`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

LOAD_PROVIDERS = "HERMES_LOAD_PROVIDERS"
"""Environment variable: a comma list of the only providers that may load; set and empty, none may."""

_METADATA = "key"

Value = bool | int | float | str | list[str] | None


@dataclass(frozen=True, slots=True)
class Key:
    """One key of config.yaml. `kind` is bool, int, float, str or list (of strings); `default` None means "not set"."""

    name: str
    kind: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    def fault(self, value: object) -> str:
        """What is wrong with `value` for this key, as the end of a sentence; "" when nothing is."""
        if value is None:
            return ""
        if not self._is_kind(value):
            return f"must be {_KINDS[self.kind]}, is {value!r}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}, is {value!r}"
        if isinstance(value, int | float):
            return self._range_fault(value)
        return ""

    def _is_kind(self, value: object) -> bool:
        if self.kind is list:
            return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        if isinstance(value, bool) or self.kind is bool:
            return self.kind is bool and isinstance(value, bool)
        return isinstance(value, (int, float) if self.kind is float else self.kind)

    def _range_fault(self, value: float) -> str:
        if not math.isfinite(value):
            return f"must be a finite number, is {value!r}"
        if self.minimum is not None and value < self.minimum:
            return f"must be at least {self.minimum:g}, is {value!r}"
        if self.maximum is not None and value > self.maximum:
            return f"must be at most {self.maximum:g}, is {value!r}"
        return ""


_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "an int",
    float: "a number",
    str: "a string",
    list: "a list of strings",
}


def _key(default: Any, help: str, *, kind: type | None = None, **limits: Any) -> Any:  # noqa: A002 (reads as it is)
    """A field that is also a key of config.yaml; its full name is filled in by `_table`."""
    key = Key("", kind or type(default), default, help, **limits)
    return dataclasses.field(default=default, metadata={_METADATA: key})


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """The `memory:` block: curated memory and the one external provider."""

    memory_enabled: bool = _key(True, "Keep the agent's notes, MEMORY.md.")
    user_profile_enabled: bool = _key(True, "Keep the profile of the person, USER.md.")
    memory_char_limit: int = _key(2200, "Size of MEMORY.md in characters, delimiters included.", minimum=1)
    user_char_limit: int = _key(1375, "Size of USER.md in characters, delimiters included.", minimum=1)
    provider: str = _key("", "Name of the external provider; empty for curated memory alone.")
    nudge_interval: int = _key(10, "Turns between two reminders to review memory; 0 for none.", minimum=0)
    flush_min_turns: int = _key(
        6, "Turns of the person that a session needs before its memory is flushed; 0 for never.", minimum=0
    )


@dataclass(frozen=True, slots=True)
class RecallConfig:
    """The `recall:` block: what a turn is given before the model sees it."""

    sessions: Literal["on_request", "auto"] = _key(
        "on_request",
        "Past sessions: only when the model asks for them, or in every turn.",
        choices=("on_request", "auto"),
    )
    budget: int = _key(1500, "Tokens that recall may take in one turn.", minimum=0)
    deadline: float = _key(
        5.0, "Seconds that a turn waits for an external provider's recall.", minimum=0.05, maximum=600
    )


@dataclass(frozen=True, slots=True)
class SessionsConfig:
    """The `sessions:` block: the store of past conversations."""

    search_enabled: bool = _key(True, "Offer the model the tool `session_search`.")
    journal_mode: Literal["auto", "wal", "delete"] = _key(
        "auto",
        "SQLite journal of state.db; `auto` asks the file system whether it carries a write-ahead log.",
        choices=("auto", "wal", "delete"),
    )


@dataclass(frozen=True, slots=True)
class ProvidersConfig:
    """The `providers:` block: which packages may be loaded at all, by provider or distribution name."""

    allow: tuple[str, ...] | None = _key(
        None,
        f"Load these and no others; an empty list loads none. {LOAD_PROVIDERS} (a comma list) comes first.",
        kind=list,
    )
    block: tuple[str, ...] = _key((), "Never load these.", kind=list)


@dataclass(frozen=True, slots=True)
class Config:
    """All of config.yaml that is ours. `warnings` name what was written there and has no effect, a sentence each."""

    memory: MemoryConfig = MemoryConfig()
    recall: RecallConfig = RecallConfig()
    sessions: SessionsConfig = SessionsConfig()
    providers: ProvidersConfig = ProvidersConfig()
    warnings: tuple[str, ...] = ()


BLOCKS: dict[str, type] = {
    "memory": MemoryConfig,
    "recall": RecallConfig,
    "sessions": SessionsConfig,
    "providers": ProvidersConfig,
}
"""Class of every block of ours, by its name in config.yaml."""


def _table() -> dict[str, Key]:
    return {
        f"{block}.{field.name}": dataclasses.replace(field.metadata[_METADATA], name=f"{block}.{field.name}")
        for block, cls in BLOCKS.items()
        for field in dataclasses.fields(cls)
    }


KEYS: dict[str, Key] = _table()
"""Every key that config.yaml may hold for us, by its dotted name."""
