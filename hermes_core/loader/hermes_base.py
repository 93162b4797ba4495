"""What providers written for Hermes Agent import from `agent.memory_provider`: their base class and its companions."""

from __future__ import annotations

import contextvars
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

HOST_BASE_MODULE = "agent.memory_provider"
INDICATOR_GLYPH = "\N{BRAIN}"
PRE_COMPRESS_CHECKPOINT_API_VERSION = 2

_TRIVIAL_WORDS = (
    "yes|no|ok|okay|sure|thanks|thank you|y|n|yep|nope|yeah|nah|hi|hey|hello|yo|sup|continue|go ahead|do it|proceed"
    "|got it|cool|nice|great|done|next|lgtm|k"
)
TRIVIAL_PROMPT_RE = re.compile(
    rf"\s*(?:(?:{_TRIVIAL_WORDS})(?:[^\w]|_)*|/.*|)\s*\Z", re.IGNORECASE | re.DOTALL
)


def is_trivial_prompt(text: str | None) -> bool:
    """Whether recall is pointless for this message: empty, a slash command, a greeting or an assent."""
    return text is None or TRIVIAL_PROMPT_RE.match(text) is not None


@dataclass(frozen=True)
class RecallStatus:
    """What a provider says of its last prefetch; count 0 means content without a count."""

    provider_label: str
    count: int
    glyph: str = INDICATOR_GLYPH


class _Defaults:
    """What a provider does not override does nothing."""

    pre_compress_checkpoint_api_version = 1

    def initialize_for_inspection(self, session_id: str, **kwargs: Any) -> None:
        self.initialize(session_id, **kwargs)  # type: ignore[attr-defined]

    def unavailable_reason(self) -> str:
        return ""

    def recall_status(self) -> RecallStatus | None:
        return None

    def system_prompt_block(self) -> str:
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002 - a default of the contract
        return ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None: ...

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None: ...

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        raise NotImplementedError(f"Provider {getattr(self, 'name', '?')} does not handle tool {tool_name}")

    def shutdown(self) -> None: ...

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None: ...

    def on_session_end(self, messages: list[dict[str, Any]]) -> None: ...

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None: ...

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:  # noqa: ARG002
        return ""

    def on_delegation(self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any) -> None: ...

    def get_config_schema(self) -> list[dict[str, Any]]:
        return []

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None: ...

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None: ...

    def backup_paths(self) -> list[str]:
        return []


class HostMemoryProvider(_Defaults, ABC):
    """The base class that these providers subclass: four abstract members, harmless defaults for the rest."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def is_available(self) -> bool: ...

    @abstractmethod
    def initialize(self, session_id: str, **kwargs: Any) -> None: ...

    @abstractmethod
    def get_tool_schemas(self) -> list[dict[str, Any]]: ...


HostMemoryProvider.__name__ = HostMemoryProvider.__qualname__ = "MemoryProvider"
HostMemoryProvider.__module__ = _Defaults.__module__ = HOST_BASE_MODULE


def ctx_bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, running in a copy of the context that is current now."""
    context = contextvars.copy_context()
    return lambda *args, **kwargs: context.copy().run(function, *args, **kwargs)


def spawn_context_thread(
    target: Callable[..., Any],
    *,
    name: str,
    daemon: bool = True,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> threading.Thread:
    """A thread, not yet started, that runs `target` in the caller's context."""
    return threading.Thread(
        target=ctx_bound(target), name=name, daemon=daemon, args=args, kwargs=dict(kwargs or {})
    )
