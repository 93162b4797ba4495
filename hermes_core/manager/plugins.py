"""The use of pluggy: validation and registration of providers and observers, and the wrappers around their hooks.

Each provider instance has a separate `PluginManager`, so that a hook call reaches only this instance. Observers that
wrap provider hooks are registered there too. Another `PluginManager` holds all observers, for the observers' hooks.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set
from functools import partial
from types import CodeType, CoroutineType
from typing import Any

import pluggy

from hermes_core.contract.hooks import (
    HOOK_NAMES,
    OBSERVER_HOOK_NAMES,
    PROJECT,
    ObserverHooks,
    ProviderHooks,
    hookimpl,
)
from hermes_core.contract.provider import validate_provider
from hermes_core.contract.values import Capabilities
from hermes_core.errors import ProviderInvalid
from hermes_core.manager.call import attempt, check_result

log = logging.getLogger(__name__)

# Runs the coroutine that a hook returned to its end: (name of the hook, coroutine) -> value.
Finish = Callable[[str, "CoroutineType[Any, Any, Any]"], Any]

ALL_HOOKS = sorted(HOOK_NAMES | OBSERVER_HOOK_NAMES)


class _PluginManager(pluggy.PluginManager):
    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        # pluggy looks for a mark on every attribute; those that Python gives to each object take most of the time.
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)


def _close(_hook: str, coroutine: CoroutineType[Any, Any, Any]) -> None:
    """Close a coroutine without running it. This is the `Finish` of a plugin manager whose hooks are never called."""
    coroutine.close()


def _value_wrapper(hook: str, finish: Finish) -> Callable[[], Generator[None, Any, Any]]:
    """Return a wrapper that runs the coroutine of a hook to its end and checks the type of the value.

    It is the innermost wrapper, so that the wrappers of observers get a checked value and never a coroutine.
    """

    def wrapper() -> Generator[None, Any, Any]:
        value = yield
        if isinstance(value, CoroutineType):
            value = finish(hook, value)
        return check_result(hook, value)

    return wrapper


# Code of the innermost wrapper. A traceback in which it comes last leads to the provider, not to an
# observer.
PROVIDER_FRAME: CodeType = _value_wrapper("", _close).__code__


class _ValueWrappers:
    """Plugin that wraps every hook with the wrapper of `_value_wrapper`."""

    def __init__(self, finish: Finish) -> None:
        for hook in ALL_HOOKS:
            setattr(self, hook, hookimpl(wrapper=True, trylast=True)(_value_wrapper(hook, finish)))


def register_provider(
    provider: object, finish: Finish, observers: Sequence[object] = ()
) -> pluggy.PluginManager:
    """Validate `provider` and return a plugin manager that calls it: `plugins.hook.prefetch(query=..., session=...)`.

    Args:
        finish: Runs the coroutine of an `async def` hook to its end.
        observers: Objects whose hook wrappers surround the calls. The first object is the outermost wrapper,
            unless `tryfirst` or `trylast` change the order.

    Raises:
        ProviderInvalid: `provider` breaks the contract; the message says what to write instead.
    """
    validate_provider(provider)
    plugins = _plugin_manager(observers, finish)
    _register(plugins, provider)
    return plugins


def register_observers(observers: Sequence[object], finish: Finish = _close) -> pluggy.PluginManager:
    """Validate `observers` and return a plugin manager with all of them.

    Raises:
        ProviderInvalid: An object is not an observer, or is contained twice.
    """
    plugins = _plugin_manager(observers, finish)
    for observer in observers:
        if not plugins.get_hookcallers(observer):
            raise ProviderInvalid(
                f"observer {type(observer).__name__!r} has no hook",
                f"mark one of {', '.join(sorted(OBSERVER_HOOK_NAMES))} with @hookimpl",
            )
        for hook in implemented_hooks(plugins, observer) & HOOK_NAMES:
            raise ProviderInvalid(
                f"observer {type(observer).__name__!r} answers {hook}(), which only a provider does",
                "write @hookimpl(wrapper=True) above it and yield once",
            )
    return plugins


def vet_observer(observer: object) -> None:
    """Raise `ProviderInvalid` if `observer` can't be one of the `observers` of a manager."""
    register_observers([observer])


def implemented_hooks(plugins: pluggy.PluginManager, plugin: object) -> frozenset[str]:
    """Return the names of the hooks that `plugin` implements, without the hooks that it only wraps."""
    return frozenset(
        caller.name
        for caller in plugins.get_hookcallers(plugin) or ()
        for impl in caller.get_hookimpls()
        if impl.plugin is plugin and not (impl.wrapper or impl.hookwrapper)
    )


def wrapping(observers: Iterable[object]) -> list[object]:
    """Return the observers that wrap a provider hook: a method with the name of such a hook has a pluggy mark."""
    plugins = _PluginManager(PROJECT)
    return [
        observer
        for observer in observers
        if any(hasattr(observer, hook) and plugins.parse_hookimpl_opts(observer, hook) for hook in HOOK_NAMES)
    ]


def wrappers_of(plugins: pluggy.PluginManager, observers: Iterable[object]) -> dict[CodeType, str]:
    """Return the name of the observer for the code object of each of its hook wrappers; {} if no hook is wrapped."""
    names = {
        impl.function.__code__: type(observer).__name__
        for observer in observers
        for caller in plugins.get_hookcallers(observer) or ()
        for impl in caller.get_hookimpls()
        if impl.plugin is observer and (impl.wrapper or impl.hookwrapper)
    }
    return {**names, PROVIDER_FRAME: ""} if names else {}


def _plugin_manager(observers: Sequence[object], finish: Finish) -> pluggy.PluginManager:
    plugins = _PluginManager(PROJECT)
    plugins.add_hookspecs(ProviderHooks)
    plugins.add_hookspecs(ObserverHooks)
    # pluggy calls what was registered last first, and the last `trylast` wrapper is the innermost.
    for observer in reversed(observers):
        _register(plugins, observer)
    plugins.register(_ValueWrappers(finish))
    return plugins


def _register(plugins: pluggy.PluginManager, plugin: object) -> None:
    name = type(plugin).__name__
    if plugins.is_registered(plugin):
        raise ProviderInvalid(f"{name!r} was added twice", "add it once")
    try:
        plugins.register(plugin, f"{name}#{len(plugins.get_plugins())}")
        plugins.check_pending()
    except pluggy.PluginValidationError as exc:
        unknown = [
            f"{caller.name}() is no hook{_meant(caller.name)}"
            for caller in plugins.get_hookcallers(plugin) or ()
            if not caller.has_spec()
        ]
        fault = "; ".join(unknown) or " ".join(str(exc).split())
        raise ProviderInvalid(f"{name!r} breaks the contract: {fault}") from exc


def _meant(name: str) -> str:
    close = difflib.get_close_matches(name, ALL_HOOKS, n=1, cutoff=0.5)
    return f": did you mean {close[0]}()?" if close else ""


class Monitor:
    """A pair of functions that are called before and after every hook call of all providers.

    Both have the arguments of the functions that pluggy's `add_hookcall_monitoring` takes.
    """

    def __init__(self, before: Callable[..., None], after: Callable[..., None]) -> None:
        self._before = before
        self._after = after
        self._undo: list[Callable[[], None]] = []

    def attach(self, plugins: pluggy.PluginManager) -> None:
        """Call both functions around the hook calls of `plugins`.

        An error in a function is logged and affects no hook call.
        """

        guarded = partial(self._run, self._before), partial(self._run, self._after)
        self._undo.append(plugins.add_hookcall_monitoring(*guarded))

    def detach(self) -> None:
        """Remove both functions from all plugin managers."""
        for undo in self._undo:
            undo()
        self._undo.clear()

    @staticmethod
    def _run(function: Callable[..., None], *call: Any) -> None:
        _, error = attempt(function, *call)
        if error is not None:
            log.warning("a monitor of hook calls raised %r", error)


_TARGETS = frozenset({"memory", "user"})
# Test of each capability, and the words for what it may be: a wrong kind would silently mean something
# else.
_CAPABILITIES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "tool_names": (lambda v: v is None or isinstance(v, Set | list | tuple), "a frozenset of names, or None"),
    "tool_aliases": (lambda v: isinstance(v, Mapping), "{older name: name of the tool}"),
    "suppresses_local_writes": (
        lambda v: isinstance(v, bool) or (isinstance(v, Mapping) and v.keys() <= _TARGETS),
        "True, False or {'memory': bool, 'user': bool}",
    ),
    "serial": (lambda v: isinstance(v, bool), "True or False"),
    "concurrent": (
        lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 1,
        "the number of reads that may run at once, 1 or more",
    ),
    "slow_prefetch": (lambda v: isinstance(v, bool), "True or False"),
    "scope": (lambda v: v in ("process", "session"), "'process' or 'session'"),
}


def capabilities_of(provider: object) -> Capabilities:
    """Return the capabilities that the provider declares; the defaults if it declares none.

    Raises:
        ProviderInvalid: The provider's `capabilities` are not a `Capabilities` object, or a field has a wrong
            value.
    """
    declared: Any = getattr(provider, "capabilities", None)
    if declared is None:
        return Capabilities()
    if not isinstance(declared, Capabilities):
        raise ProviderInvalid(f"capabilities is a {type(declared).__name__}", "set it to Capabilities(...)")
    for name, (fits, wanted) in _CAPABILITIES.items():
        value = getattr(declared, name)
        if not fits(value):
            raise ProviderInvalid(f"{name} of its capabilities is {value!r}", f"set it to {wanted}")
    return declared
