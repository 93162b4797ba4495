"""Views of Hermes Agent's discovery of providers, and of the parts that this host does not have.

A part that is not here can be imported and says why when it is used: packages import many of these for other jobs than
their memory, and their tests drive providers through them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_core import HermesHome, discover_providers, load_provider
from hermes_core.errors import HermesError
from hermes_core.safety.fence import build_memory_context_block as fenced
from hermes_core.safety.scan import first_threat, scan
from hermes_memory_foreign.environment import get_hermes_home, warn_once

logger = logging.getLogger(__name__)

# -------------------------------------------------------------------------------------------------------- plugins.memory


def list_memory_provider_names() -> list[str]:
    """Return the names of the providers that are installed or lie in the home, without importing one."""
    entries = discover_providers(HermesHome(get_hermes_home()))
    return sorted({entry.name for entry in entries if entry.installed and entry.state != "shadowed"})


def discover_memory_providers() -> list[tuple[str, str, bool]]:
    """Return name, description and availability of each provider. Packages that are missing are known without an import."""
    return [
        (entry.name, entry.description, entry.state in ("active", "idle"))
        for entry in discover_providers(HermesHome(get_hermes_home()))
        if entry.installed and entry.state != "shadowed"
    ]


def load_memory_provider(name: str) -> Any:
    """Return a provider object of this name as its package wrote it, None if it does not load; the log says why."""
    try:
        provider = load_provider(str(name), HermesHome(get_hermes_home())).factory()
    except HermesError as exc:
        logger.warning("provider %r does not load: %s", name, exc)
        return None
    return getattr(provider, "wrapped", provider)


def find_provider_dir(name: str) -> Path | None:
    """Return the folder of a provider's code, None if there is none of this name, or it is one file."""
    for entry in discover_providers(HermesHome(get_hermes_home())):
        path = Path(entry.path) if entry.path else None
        if entry.name == name and entry.state != "shadowed" and path is not None and path.is_dir():
            return path
    return None


def discover_plugin_cli_commands() -> list[dict[str, Any]]:
    """Return no command: those of the active provider are subcommands of hermes-memory."""
    return []


def discover_plugins(force: bool = False) -> None:
    """Do nothing: plugins that are no memory providers do not run here."""
    del force  # there is nothing to discover again
    warn_once("discover_plugins() of a provider has no effect here: only memory providers run")


# ------------------------------------------------------------------------------------------------- tools.threat_patterns

_SCOPES = ("all", "context", "strict")
INVISIBLE_CHARS = frozenset(
    "\u200b\u200c\u200d\u2060\u2062\u2063\u2064\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def scan_for_threats(content: str, scope: str = "context") -> list[str]:
    """Return the ids of the threats in a text; `strict` also has the rules for texts of others.

    Raises `ValueError` for an unknown scope.
    """
    return [threat.id for threat in scan(content, untrusted=_is_strict(scope))]


def first_threat_message(content: str, scope: str = "strict") -> str | None:
    """Return the sentence on the first threat in a text, None if it has none. Raises `ValueError` as above."""
    threat = first_threat(content, untrusted=_is_strict(scope))
    return threat.message if threat else None


def _is_strict(scope: str) -> bool:
    if scope not in _SCOPES:
        raise ValueError(f"scope must be one of {', '.join(_SCOPES)}, got {scope!r}")
    return scope == "strict"


# --------------------------------------------------------------------------------------------------- agent.memory_manager


def memory_provider_tools_enabled(
    enabled_toolsets: Any, disabled_toolsets: Any = None, *, memory_tool_present: bool = False
) -> bool:
    """Return True if the toolsets let the tools of a provider in: all do, or one is called `memory`."""
    if "memory" in (disabled_toolsets or ()):
        return False
    return memory_tool_present or enabled_toolsets is None or "memory" in enabled_toolsets


def build_memory_context_block(raw_context: str) -> str:
    """Return recalled text within the fence, "" for blank text."""
    return fenced(raw_context)


# --------------------------------------------------------------------------------------------------- parts that are absent


class HostPartAbsent(RuntimeError):
    """Use of a part of Hermes Agent that this host does not have. The message says what there is instead."""


def absent(name: str, reason: str) -> Callable[..., Any]:
    """Return a class that raises `HostPartAbsent` when it is called or asked for an attribute."""

    class Absent(type):
        def __call__(cls, *_: Any, **__: Any) -> Any:
            raise HostPartAbsent(f"{name} of Hermes Agent is not here: {reason}")

        def __getattr__(cls, attribute: str) -> Any:
            if attribute.startswith("__"):  # asked for by the interpreter and by pickle
                raise AttributeError(attribute)
            raise HostPartAbsent(f"{name}.{attribute} of Hermes Agent is not here: {reason}")

    return Absent(name.rpartition(".")[2], (), {"__doc__": reason})


_HELD = "hermes_core holds the providers itself; open_memory(provider=...) drives one"
_NOTES = "the notes are hermes_core's; a provider gets their changes by on_memory_write()"
_TOOLS = "tools are registered with ctx.register_tool() in register(ctx)"


class _ToolRegistry:
    """The registry of tools, which takes every tool and offers none."""

    def register(self, name: str = "", **_: Any) -> None:
        warn_once(f"registry.register({name!r}) of a provider has no effect here: {_TOOLS}")

    def get_entry(self, name: str) -> None:
        del name  # there is none


VIEWS: dict[str, dict[str, object]] = {
    "plugins.memory": {
        function.__name__: function
        for function in (
            list_memory_provider_names,
            discover_memory_providers,
            load_memory_provider,
            find_provider_dir,
            discover_plugin_cli_commands,
        )
    },
    "tools.threat_patterns": {
        "scan_for_threats": scan_for_threats,
        "first_threat_message": first_threat_message,
        "INVISIBLE_CHARS": INVISIBLE_CHARS,
        "MAX_SCAN_CHARS": 65_536,
    },
    "tools.memory_tool": {
        name: absent(f"tools.memory_tool.{name}", _NOTES)
        for name in ("MemoryStore", "memory_tool", "load_on_disk_store")
    },
}
MANAGER_VIEWS: dict[str, object] = {
    "memory_provider_tools_enabled": memory_provider_tools_enabled,
    "build_memory_context_block": build_memory_context_block,
    **{
        name: absent(f"agent.memory_manager.{name}", _HELD)
        for name in ("MemoryManager", "inject_memory_provider_tools")
    },
}
REGISTRY = _ToolRegistry()
