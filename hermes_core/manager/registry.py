"""pluggy's part: a provider's hooks are validated when it enters and then called one provider at a time."""

from __future__ import annotations

import difflib
import itertools
import threading
from collections.abc import Callable, Mapping, Set
from typing import Any

import pluggy

from hermes_core.contract.hooks import OBSERVER_HOOK_NAMES, PROJECT, ObserverHooks, ProviderHooks
from hermes_core.contract.provider import validate_provider
from hermes_core.contract.values import Capabilities
from hermes_core.errors import ProviderInvalid
from hermes_core.manager.call import Hook

OBSERVER_NAMES = sorted(OBSERVER_HOOK_NAMES)


class _Plugins(pluggy.PluginManager):
    """pluggy's, but for names that Python gives to each object: to look for a mark on them takes as long as all else."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)


class Registry:
    """One pluggy `PluginManager`. It validates and keeps the books; its own fan-out can't isolate one provider."""

    def __init__(self) -> None:
        self._plugins = _Plugins(PROJECT)
        self._plugins.add_hookspecs(ProviderHooks)
        self._plugins.add_hookspecs(ObserverHooks)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def enter_provider(self, provider: object) -> dict[str, Hook]:
        """Register `provider` and return the hooks that it implements. Raises `ProviderInvalid`, nothing registered."""
        validate_provider(provider)
        return self._enter(provider)

    def enter_observer(self, observer: object) -> dict[str, Hook]:
        """Register `observer` and return its hooks. Raises `ProviderInvalid`, nothing registered."""
        hooks = self._enter(observer)
        if not hooks.keys() & OBSERVER_HOOK_NAMES:
            self.leave(observer)
            raise ProviderInvalid(
                f"observer {type(observer).__name__!r} has no hook",
                f"mark one of {', '.join(OBSERVER_NAMES)} with @hookimpl",
            )
        return hooks

    def leave(self, plugin: object) -> None:
        """Forget a plugin that was entered."""
        with self._lock:
            if self._plugins.is_registered(plugin):
                self._plugins.unregister(plugin)

    def _enter(self, plugin: object) -> dict[str, Hook]:
        with self._lock:
            try:
                self._plugins.register(plugin, f"{type(plugin).__name__}#{next(self._numbers)}")
                self._plugins.check_pending()
            except pluggy.PluginValidationError as exc:
                unknown = self._unknown(plugin)
                if self._plugins.is_registered(plugin):
                    self._plugins.unregister(plugin)
                told = unknown or " ".join(str(exc).split())
                raise ProviderInvalid(f"{type(plugin).__name__!r} breaks the contract: {told}") from exc
            except ValueError as exc:
                raise ProviderInvalid(f"{type(plugin).__name__!r} was added twice", "add it once") from exc
            return self._hooks_of(plugin)

    def _unknown(self, plugin: object) -> str:
        """Names marked as hooks that no specification has, with the nearest that exists."""
        faults = []
        for caller in self._plugins.get_hookcallers(plugin) or ():
            if not caller.has_spec():
                close = difflib.get_close_matches(caller.name, OBSERVER_NAMES, n=1, cutoff=0.5)
                meant = f": did you mean {close[0]}()?" if close else ""
                faults.append(f"{caller.name}() is no hook{meant}")
        return "; ".join(faults)

    def _hooks_of(self, plugin: object) -> dict[str, Hook]:
        return {
            caller.name: Hook(caller.name, impl.function, tuple(impl.argnames))
            for caller in self._plugins.get_hookcallers(plugin) or ()
            for impl in caller.get_hookimpls()
            if impl.plugin is plugin
        }


_TARGETS = frozenset({"memory", "user"})
_CAPABILITIES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "tool_names": (lambda v: v is None or isinstance(v, Set | list | tuple), "a frozenset of names, or None"),
    "tool_aliases": (lambda v: isinstance(v, Mapping), "{older name: name of the tool}"),
    "suppresses_local_writes": (
        lambda v: isinstance(v, bool) or (isinstance(v, Mapping) and v.keys() <= _TARGETS),
        "True, False or {'memory': bool, 'user': bool}",
    ),
    "serial": (lambda v: isinstance(v, bool), "True or False"),
    "scope": (lambda v: v in ("process", "session"), "'process' or 'session'"),
}
"""What each capability may be, and how to say so: one of another kind would be taken for something else, silently."""


def capabilities_of(provider: object) -> Capabilities:
    """What the provider declares; a plain object declares nothing. Raises `ProviderInvalid` for what is none."""
    found: Any = getattr(provider, "capabilities", None)
    if found is None:
        return Capabilities()
    if not isinstance(found, Capabilities):
        raise ProviderInvalid(f"capabilities is a {type(found).__name__}", "set it to Capabilities(...)")
    for name, (fits, wanted) in _CAPABILITIES.items():
        value = getattr(found, name)
        if not fits(value):
            raise ProviderInvalid(f"{name} of its capabilities is {value!r}", f"set it to {wanted}")
    return found
