"""Loads one provider in one guarded step: import, resolve, validate.

Whatever a stranger's module does meanwhile, the caller gets a `Loaded` or a `ProviderError` that says what is wrong
and what to do. Only what was asked for is imported.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from hermes_core.contract.hooks import PROJECT, ProviderHooks
from hermes_core.contract.provider import MemoryProvider, validate_provider
from hermes_core.contract.values import Field
from hermes_core.errors import (
    ProviderBlocked,
    ProviderError,
    ProviderInvalid,
    ProviderNotFound,
)
from hermes_core.home import HermesHome
from hermes_core.loader.discover import discover, no_provider_in, select
from hermes_core.loader.entry import FOLDER_PACKAGE, Found, LoadControl, ProviderEntry, normalised, owner_of
from hermes_core.loader.foreign import Failure, Result, attempt
from hermes_core.loader.patience import Unfinished, within
from hermes_core.loader.reasons import import_error, look_error, no_provider, not_found, still_loading
from hermes_core.loader.registration import Registrations

__all__ = ["LoadControl", "Loaded", "load_provider"]

logger = logging.getLogger(__name__)

LOAD_DEADLINE = 30.0
"""Seconds that a provider's import and constructor may take. A cold start of a large SDK takes ten."""

_MEMBERS = ("name", "is_available", "initialize", "get_tool_schemas")
_lock = threading.Lock()
_loading: ContextVar[bool] = ContextVar("loading_a_provider", default=False)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A provider that can be made: `factory` gives a new object each time, by `entry.name` in every listing.

    `settings` are the fields that it declares; `notes` says what it registered that has no effect here. `settings_of`
    reads those of a home, where the provider does that itself.
    """

    entry: ProviderEntry
    factory: Callable[[], object]
    settings: tuple[Field, ...] = ()
    notes: tuple[str, ...] = ()
    settings_of: Callable[[Path], Any] | None = None


class _OtherName(ProviderNotFound):
    """A place whose source text looked as if it had the name, and that has another."""


def load_provider(
    name: str,
    home: HermesHome,
    control: LoadControl | None = None,
    entry_points: Iterable[importlib.metadata.EntryPoint] | None = None,
    *,
    deadline: float = LOAD_DEADLINE,
) -> Loaded:
    """Load the provider called `name` by its entry point, its folder, its distribution, or itself.

    Without `control` the lists of the home's config.yaml say what may be loaded; `LoadControl()` lets all be.

    Raises `ProviderNotFound`, `ProviderBlocked`, `ProviderUnavailable` (something it needs is missing, or it did not
    load within `deadline` seconds), `ProviderInvalid` (it breaks the contract) or `ProviderError` (its code raised);
    `ConfigError` where those lists can't be read.

    What hangs can't be stopped from outside. It is left behind on a daemon thread, which does not hold the process at
    its end; while it lasts, the same provider is refused at once.
    """
    rules = control or LoadControl.of_home(home)
    found = discover(home, entry_points)
    places = select(found, name)
    if not places:
        raise not_found(name, found, no_provider_in(home, name.strip()))
    failures: list[ProviderError] = []
    for place in places:
        try:
            return _load(place, home, name, rules, deadline)
        except _OtherName:
            continue
        except ProviderError as exc:
            failures.append(exc)
    error = failures[0] if failures else not_found(name, found)
    logger.warning("provider %r was not loaded: %s", name, error)
    raise error


def _load(place: Found, home: HermesHome, name: str, control: LoadControl, deadline: float) -> Loaded:
    refusal = control.refusal(place)
    if refusal:
        raise ProviderBlocked(
            f"provider {place.name!r} is not loaded: {refusal}", "change providers.allow or providers.block"
        )
    # One at a time, for they share one environment; but a provider may load another one while it is loaded.
    turn = nullcontext() if _loading.get() else _lock
    with turn, _surroundings(place, home):
        done = bounded(f"{place.name}: {place.where}", lambda: _made(place, home, name), deadline)
    if isinstance(done, Unfinished):
        raise still_loading(place, done.seconds)
    if isinstance(done, Failure):
        raise done.error if isinstance(done.error, ProviderError) else look_error(place, str(done))
    return done


def bounded(label: str, action: Callable[[], Result], deadline: float) -> Result | Failure | Unfinished:
    """Run foreign code on a thread of its own for at most `deadline` seconds; see `patience`."""
    token = _loading.set(True)
    try:
        return within(deadline, label, lambda: attempt(action))
    finally:
        _loading.reset(token)


def _made(place: Found, home: HermesHome, name: str) -> Loaded:
    """Import, resolve, validate: all that runs the provider's code."""
    value = attempt(lambda: _import(place))
    if isinstance(value, Failure):
        raise import_error(place, value.error, str(value))
    recipe, made = _resolve(place, value)
    _refuse_foreign_name(place, made.provider, name)
    module = value.__name__ if isinstance(value, ModuleType) else place.value.partition(":")[0]
    factory = _Factory(place, home, recipe, made, module)
    asked = getattr(factory.first, "is_available", None)
    if place.kind != "native" and callable(asked):
        attempt(asked)  # many import their SDK in it, which may take as long as any import
    reads = getattr(factory.first, "read_settings", None) if place.kind == "native" else None
    entry, notes = ProviderEntry.of(place), made.registrations.notes()
    return Loaded(entry, factory, fields_of(factory.first), notes, reads)


def fields_of(provider: object) -> tuple[Field, ...]:
    """The settings that a provider, or a class of them, declares."""
    declared = attempt(lambda: tuple(getattr(provider, "settings", ())))
    return () if isinstance(declared, Failure) else tuple(one for one in declared if isinstance(one, Field))


def _surroundings(place: Found, home: HermesHome) -> AbstractContextManager[None]:
    """What providers written for Hermes Agent expect around them; nothing for our own."""
    if place.kind == "native":
        return nullcontext()
    from hermes_core.loader.hermes_home import environment_of
    from hermes_core.loader.hermes_modules import install_host_modules

    install_host_modules()
    return environment_of(home.path)


# ------------------------------------------------------------------------------------------------------------ import


def _import(place: Found) -> Any:
    if not place.is_folder:
        return importlib.metadata.EntryPoint(place.name, place.value, place.source).load()
    assert place.path is not None
    return _import_folder(place.path)


def _import_folder(folder: Path) -> ModuleType:
    """Import a folder as a package of its own name space, so that its relative imports and sub-packages work."""
    digest = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16]
    name = f"{FOLDER_PACKAGE}.{folder.name.replace('.', '_')}__source_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{str(folder)!r} is not a Python package")
    if FOLDER_PACKAGE not in sys.modules:
        sys.modules[FOLDER_PACKAGE] = ModuleType(FOLDER_PACKAGE, "Packages loaded from folders below a home.")
        vars(sys.modules[FOLDER_PACKAGE])["__path__"] = []
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    done = False
    try:
        spec.loader.exec_module(module)
        done = True
    finally:
        if not done:
            for known in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
                del sys.modules[known]
    return module


# ----------------------------------------------------------------------------------------------------------- resolve


@dataclass(frozen=True, slots=True)
class _Made:
    provider: object
    registrations: Registrations


_Recipe = Callable[[], _Made | None]


def _resolve(place: Found, value: Any) -> tuple[_Recipe, _Made]:
    """The first way in which `value` yields a provider, and what it yielded."""
    failures: list[Failure] = []
    for recipe in _recipes(value):
        made = attempt(recipe)
        if isinstance(made, Failure):
            failures.append(made)
        elif made is not None:
            if failures:
                logger.warning(
                    "provider %r is made of its class, because register() raised %s", place.name, failures[0]
                )
            return recipe, made
    if failures:
        raise ProviderError(
            f"provider {place.name!r} from {place.where} can't be made: {failures[0]}",
            "correct what it speaks of, else upgrade or reinstall it; hermes-memory --debug shows the traceback",
        )
    raise no_provider(place)


def _recipes(value: Any) -> Iterator[_Recipe]:
    """Ways to a provider, in the order in which Hermes Agent tries them."""
    is_module = isinstance(value, ModuleType)
    if isinstance(value, type) and _is_provider(value):
        yield lambda: _Made(value(), Registrations())
    elif not is_module and _is_provider(value):
        yield lambda: _Made(value, Registrations())
    elif callable(getattr(value, "register", None)):
        yield lambda: _register(value.register)
    elif callable(value):
        yield lambda: _register(value)
    if is_module:
        for owner in _provider_classes(value):
            yield lambda owner=owner: _Made(owner(), Registrations())  # type: ignore[misc]


def _register(function: Callable[..., Any]) -> _Made | None:
    """Call `register(ctx)`, or a factory without arguments. What it registered before it raised is kept."""
    registrations = Registrations()
    result = attempt(lambda: _call_register(function, registrations))
    failed = isinstance(result, Failure)
    given = registrations.provider if registrations.provider is not None else result
    if isinstance(given, type) and _is_provider(given):
        given = given()
    if not isinstance(given, Failure) and given is not None and _is_provider(given):
        if failed:
            logger.warning(
                "register() raised after it had registered the provider, which is kept: %s", result
            )
        return _Made(given, registrations)
    if isinstance(result, Failure):
        raise result.error
    if registrations.provider is not None:
        raise ProviderInvalid(f"it registered {_lacking(registrations.provider)}")
    return None


def _call_register(function: Callable[..., Any], registrations: Registrations) -> Any:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return function(registrations)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.default is p.empty for p in positional):
        return function(registrations)
    result = function()
    takes_one = bool(positional) or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return function(registrations) if takes_one and not _is_provider(result) else result


def _is_provider(value: object) -> bool:
    """Whether this class or object has the shape of a provider, ours or that of Hermes Agent. Runs no property."""
    owner = value if isinstance(value, type) else type(value)
    if owner is MemoryProvider or value is None:
        return False
    if issubclass(owner, MemoryProvider) or _has_marks(owner):
        return True
    return not _missing_members(value)


def _missing_members(value: object) -> list[str]:
    return [member for member in _MEMBERS if inspect.getattr_static(value, member, None) is None]


def _lacking(value: object) -> str:
    owner = value if isinstance(value, type) else type(value)
    return f"{owner.__name__}, which lacks {', '.join(_missing_members(value))}"


def _has_marks(owner: type) -> bool:
    return any(
        hasattr(member, f"{PROJECT}_impl")
        for base in owner.__mro__
        for member in vars(base).values()
        if inspect.isfunction(member)
    )


def _is_native(provider: object) -> bool:
    return isinstance(provider, MemoryProvider) or _has_marks(type(provider))


def _provider_classes(module: ModuleType) -> list[type]:
    """Classes of a module that can be a provider: its own before imported ones, no base of another. Its own abstract
    ones come last, for what they say when they are made."""
    found = [v for _, v in sorted(vars(module).items()) if isinstance(v, type) and _is_provider(v)]
    classes = [c for c in found if not inspect.isabstract(c)]
    leaves = [c for c in classes if not any(other is not c and issubclass(other, c) for other in classes)]
    unfinished = [c for c in found if inspect.isabstract(c) and c.__module__ == module.__name__]
    return sorted(leaves, key=lambda owner: not owner.__module__.startswith(module.__name__)) + unfinished


# ---------------------------------------------------------------------------------------------------------- validate


def _refuse_foreign_name(place: Found, provider: object, wanted: str) -> None:
    """A provider may call itself otherwise than its entry point, but not as one of ours."""
    own = attempt(lambda: str(getattr(provider, "name", "")))
    if isinstance(own, Failure):
        raise ProviderInvalid(f"provider {place.name!r} can't say its name: {own}")
    if owner_of(own) and not place.bundled:
        raise ProviderInvalid(
            f"{place.where} calls its provider {own!r}, which belongs to {owner_of(own)}",
            "give it another name",
        )
    names = {place.name.casefold(), own.casefold()}
    if wanted.strip().casefold() not in names and normalised(wanted) != normalised(place.distribution):
        raise _OtherName(f"{place.where} calls its provider {own!r} and not {wanted!r}")


def _validate(provider: object) -> None:
    """Everything that breaks the contract, before a manager sees the provider."""
    validate_provider(provider)
    trial = pluggy.PluginManager(PROJECT)
    trial.add_hookspecs(ProviderHooks)
    try:
        trial.register(provider)
        trial.check_pending()
    except pluggy.PluginValidationError as exc:
        detail = " ".join(str(exc).split())
        raise ProviderInvalid(
            f"provider {getattr(provider, 'name', '')!r} breaks the contract: {detail}"
        ) from exc


class _Factory:
    """Makes providers: the one made to validate first, then new ones."""

    def __init__(self, place: Found, home: HermesHome, recipe: _Recipe, first: _Made, module: str) -> None:
        self._place, self._home, self._recipe, self._module = place, home, recipe, module
        self._lock = threading.Lock()
        self._given: object = first.provider
        self._first = self._finish(first)
        self._waiting: object | None = self._first

    @property
    def first(self) -> object:
        """The provider that was made to validate; only to be looked at."""
        return self._first

    def __call__(self) -> object:
        with self._lock:
            waiting, self._waiting = self._waiting, None
            return waiting if waiting is not None else self._again()

    def _again(self) -> object:
        with _surroundings(self._place, self._home):
            made = attempt(self._recipe)
            if isinstance(made, Failure) or made is None:
                raise ProviderError(f"provider {self._place.name!r} can't be made a second time: {made}")
            if made.provider is self._given and not _is_native(made.provider):
                made = _Made(self._another(made.provider), made.registrations)
            return self._finish(made)

    def _another(self, provider: object) -> object:
        """A second object where the package keeps a single one, so that two sessions don't share it."""
        fresh = attempt(type(provider))
        if not isinstance(fresh, Failure):
            return fresh
        logger.warning("provider %r keeps one object for all sessions: %s", self._place.name, fresh)
        return provider

    def _finish(self, made: _Made) -> object:
        if _is_native(made.provider):
            _validate(made.provider)
            return made.provider
        from hermes_core.loader.hermes_agent import adapt

        adapter = adapt(made.provider, self._place.name, self._home, made.registrations, self._module)
        _validate(adapter)
        return adapter
