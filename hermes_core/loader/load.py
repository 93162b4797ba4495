"""Loading of a provider, or of observers, in one guarded step: import, find the object, validate it.

Foreign code may raise, hang or end the program; the caller gets a `LoadedProvider` or a `ProviderError` that says what
is wrong and what to do. Nothing is imported but what was asked for.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import importlib_metadata
from msgspec import Struct

from hermes_core.contract.extensions import ForeignLoader
from hermes_core.contract.hooks import PROJECT
from hermes_core.contract.provider import MemoryProvider, validate_provider
from hermes_core.contract.values import Field
from hermes_core.errors import (
    ProviderBlocked,
    ProviderError,
    ProviderInvalid,
    ProviderNotFound,
    ProviderUnavailable,
    ProviderUnconfigured,
)
from hermes_core.home import FOLDER_PREFIX, HermesHome
from hermes_core.loader.discover import (
    BUNDLED,
    ProviderCandidate,
    ProviderEntry,
    bundled_candidate,
    discover,
    folder_fault,
    name_owner,
    read_manifest,
    required_distribution,
    select,
)
from hermes_core.loader.entry_points import OBSERVER_GROUP, LoadControl, installed_entry_points, normalise
from hermes_core.loader.extensions import Extensions
from hermes_core.loader.extras import NO_EXTRAS, ProviderExtras
from hermes_core.loader.folder_import import FOLDER_PACKAGE, import_folder
from hermes_core.loader.foreign import ForeignHost
from hermes_core.loader.guard import ForeignError, StillRunning, call_foreign, call_with_timeout, loading
from hermes_core.loader.variables import call_with_stored_variables, unset_variables
from hermes_core.packages import OWN_PACKAGES
from hermes_core.shell_words import shell_word

logger = logging.getLogger(__name__)

# For the import and the constructor together: a cold start of a large SDK takes ten seconds.
LOAD_TIMEOUT_S = 30.0

# What a constructor raises because its code is wrong. It raises other exceptions because a setting is missing: ValueError,
# KeyError for a variable, RuntimeError, OSError for a file, or a class of its own.
_CODE_FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, IndexError, MemoryError, NameError),
    *(NotImplementedError, RecursionError, SyntaxError, TypeError, ProviderError),
)

_REQUIRED_MEMBERS = ("name", "is_available", "initialize", "get_tool_schemas")


class LoadedProvider(Struct, frozen=True):
    """A provider that can be constructed.

    Attributes:
        entry: Its line in the list of providers.
        factory: Returns a new provider object at each call.
        settings: The fields that the provider declares.
        warnings: Registrations of its package that have no effect in this host.
        read_settings: Reads the settings of a home, if the provider does that itself.
        late_warnings: Returns what the provider has used since that has no effect in this host.
        extras: What its package brings beside it.
    """

    entry: ProviderEntry
    factory: Callable[[], object]
    settings: tuple[Field, ...] = ()
    warnings: tuple[str, ...] = ()
    read_settings: Callable[[Path], Any] | None = None
    late_warnings: Callable[[], tuple[str, ...]] = tuple
    extras: ProviderExtras = NO_EXTRAS


class _OtherName(ProviderNotFound):
    """A candidate whose source text mentions the wanted name, but whose provider has another name."""


def load_provider(
    name: str,
    home: HermesHome,
    control: LoadControl | None = None,
    entry_points: Iterable[importlib_metadata.EntryPoint] | None = None,
    *,
    timeout: float = LOAD_TIMEOUT_S,
    sessions: object = None,
    extensions: Extensions | None = None,
) -> LoadedProvider:
    """Load the provider that an entry point, a folder, a distribution or the provider itself calls `name`.

    A call that hangs is left behind on a daemon thread; while it lasts, loading the same provider is refused at once.

    Args:
        control: What may be loaded; by default the lists of the home's config.yaml. `LoadControl()` allows all.
        entry_points: Used in place of those of the environment.
        timeout: Seconds for the import and the constructor together.
        sessions: The `SessionStore` of the home, for providers that read the stored sessions. It is not kept alive.
        extensions: The extensions of an open memory; by default those that the home's config.yaml lets in.

    Raises:
        ProviderNotFound: Nothing offers this name.
        ProviderBlocked: `control` forbids it.
        ProviderUnavailable: Something it needs is missing, or the timeout passed.
        ProviderInvalid: It breaks the contract.
        ProviderError: Its code raised.
        ConfigError: The lists of config.yaml can't be read.
    """
    control = control or LoadControl.of_home(home)
    foreign = ForeignHost(home, extensions)
    points = list(installed_entry_points() if entry_points is None else entry_points)
    candidates: list[ProviderCandidate] = []
    if bundled := bundled_candidate(name, points):
        places = [bundled]
    else:
        candidates = discover(home, points, foreign)
        places = select(candidates, name)
    if not places:
        raise not_found(name, candidates, folder_fault(home, name.strip()))
    errors: list[ProviderError] = []
    # A distribution may offer a provider in several groups, of which one may work although another fails.
    for place in places:
        try:
            return _load_candidate(place, home, name, control, timeout, sessions, foreign)
        except _OtherName:
            continue
        except ProviderError as exc:
            errors.append(exc)
    # The first place has precedence, so its error explains most.
    error = errors[0] if errors else not_found(name, candidates)
    logger.warning("provider %r was not loaded: %s", name, error)
    raise error


def load_folder(place: ProviderCandidate, home: HermesHome) -> LoadedProvider:
    """Load the provider of a plugin folder that need not lie in the home yet. Raises as `load_provider` does."""
    return _load_candidate(place, home, place.name, LoadControl(), LOAD_TIMEOUT_S, None, ForeignHost(home))


def load_observers(
    control: LoadControl | None = None,
    entry_points: Iterable[importlib_metadata.EntryPoint] | None = None,
    validate: Callable[[object], None] = lambda _: None,
) -> tuple[list[object], list[str]]:
    """Load the installed observers. Return them, and a sentence for each one that does not load.

    Args:
        control: The allow and block lists of providers, which hold for observers too.
        entry_points: Used in place of those of the environment. Each names an object with hooks marked `@hookimpl`, or
            a class without arguments.
        validate: Raises for an object that is no observer.
    """
    control = control or LoadControl()
    points = installed_entry_points() if entry_points is None else entry_points
    observers: list[object] = []
    problems: list[str] = []
    for point in points:
        if point.group != OBSERVER_GROUP or control.refusal(
            point.name, point.dist.name if point.dist else ""
        ):
            continue

        def load(point: importlib_metadata.EntryPoint = point) -> object:
            value = point.load()
            observer = value() if isinstance(value, type) else value
            validate(observer)
            return observer

        made = call_with_timeout(f"observer {point.name}: {point.value}", load, LOAD_TIMEOUT_S)
        if isinstance(made, ForeignError | StillRunning):
            reason = (
                f"loading it has not ended after {made.seconds:.0f} s"
                if isinstance(made, StillRunning)
                else str(made)
            )
            problems.append(f"observer {point.name!r} is not active: {reason}")
            logger.warning("%s", problems[-1])
        # Two entry points may name one object; its hooks must run once.
        elif not any(made is other for other in observers):
            observers.append(made)
    return observers, problems


def declared_settings(provider: object) -> tuple[Field, ...]:
    """Return the settings that a provider, or a class of providers, declares."""
    declared = call_foreign(getattr, provider, "settings", ())
    fields = call_foreign(tuple, declared)
    return () if isinstance(fields, ForeignError) else tuple([f for f in fields if isinstance(f, Field)])


def _load_candidate(
    place: ProviderCandidate,
    home: HermesHome,
    name: str,
    control: LoadControl,
    timeout: float,
    sessions: object,
    foreign: ForeignHost,
) -> LoadedProvider:
    if refusal := control.refusal(place.name, place.distribution):
        raise ProviderBlocked(
            f"provider {place.name!r} is not loaded: {refusal}", "change providers.allow or providers.block"
        )
    with loading(), ExitStack() as stack:
        if place.kind == "hermes_agent":
            if (error := foreign.require(place.name).refusal(place)) is not None:
                raise error
            stack.enter_context(foreign.require(place.name).surroundings(home.path, sessions))
        loaded = call_with_timeout(
            f"{place.name}: {place.value or place.path}", partial(_load, place, home, name, foreign), timeout
        )
    if isinstance(loaded, StillRunning):
        raise _still_loading(place, loaded.seconds)
    if isinstance(loaded, ForeignError):
        if isinstance(loaded.error, ProviderError):
            raise loaded.error
        raise ProviderError(
            f"looking at provider {place.name!r} from {place.where} raised {loaded}",
            "correct what it speaks of; hermes-memory --debug shows the traceback",
        )
    result: LoadedProvider = loaded
    return result


def _load(place: ProviderCandidate, home: HermesHome, name: str, foreign: ForeignHost) -> LoadedProvider:
    """Import a candidate, find its provider and construct the first one: everything that runs the provider's code."""
    loader = foreign.loader if place.kind == "hermes_agent" else None
    load = partial(_import, place, loader)
    if place.kind == "native":  # the others have all of `.env` in their environment
        load = partial(call_with_stored_variables, home, load)
    value = call_foreign(load)
    if isinstance(value, ForeignError):
        raise _import_error(place, value.error, str(value), loader)
    recipe, made = _find_recipe(place, home, value, loader)
    _check_name(place, made.provider, name)
    module = value.__name__ if isinstance(value, ModuleType) else place.value.partition(":")[0]
    companions = loader.companions(place) if loader is not None else None
    factory = ProviderFactory(place, home, recipe, made, module, foreign, companions)
    # Setup and doctor report what breaks the contract before any manager holds the provider.
    validate_provider(factory.first)
    read_settings = None
    if place.kind == "native":
        read_settings = getattr(factory.first, "read_settings", None)
    elif callable(is_available := getattr(factory.first, "is_available", None)):
        # Many of these providers import their SDK here, which belongs under the timeout of the load.
        call_foreign(is_available)
    registrations = getattr(factory.first, "registrations", None)
    warnings = registrations.warnings() if registrations and place.kind == "hermes_agent" else ()
    return LoadedProvider(
        ProviderEntry.of(place),
        factory,
        declared_settings(factory.first),
        warnings,
        read_settings,
        getattr(factory.first, "late_warnings", tuple) if place.kind == "hermes_agent" else tuple,
        getattr(factory.first, "extras", NO_EXTRAS) if place.kind == "hermes_agent" else NO_EXTRAS,
    )


def _import(place: ProviderCandidate, loader: ForeignLoader | None) -> Any:
    if not place.is_folder:
        return importlib_metadata.EntryPoint(place.name, place.value, place.source).load()
    assert place.path is not None
    reserved = loader.reserved_modules if loader is not None else ()
    return import_folder(place.path, tuple(map(required_distribution, place.requires)), reserved)


# ------------------------------------------------------------------------------------------------- finding a provider


class _Made(NamedTuple):
    """A provider object, and the `ctx` of `register(ctx)` if that made it."""

    provider: object
    context: Any = None


_Recipe = Callable[[], _Made | None]


class _Context:
    """The `ctx` of `register(ctx)` of a package for this host: it keeps the provider. Nothing else can be registered."""

    def __init__(self) -> None:
        self.provider: object | None = None

    def register_memory_provider(self, provider: object, *_: Any, **__: Any) -> None:
        """Keep the provider. The last one counts."""
        self.provider = provider

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("register_"):
            raise AttributeError(f"this host offers no {name!r} to plugins")
        return lambda *_, **__: None


def _find_recipe(
    place: ProviderCandidate, home: HermesHome, value: Any, loader: ForeignLoader | None
) -> tuple[_Recipe, _Made]:
    """Return the first way in which `value` yields a provider, and the provider that it yielded."""
    errors: list[ForeignError] = []
    for recipe in _recipes(value, loader.context if loader is not None else _Context):
        if place.kind == "native":
            recipe = partial(call_with_stored_variables, home, recipe)
        made = call_foreign(recipe)
        if isinstance(made, ForeignError):
            errors.append(made)
        elif made is not None:
            if errors:
                logger.warning(
                    "provider %r is made of its class, because register() raised %s", place.name, errors[0]
                )
            return recipe, made
    if not errors and loader is not None and place.is_folder and place.path is not None:
        has_register = callable(getattr(value, "register", None))
        if loader.may_register_later(place.path, has_register=has_register):
            variables = _unset_variables(place)
            raise ProviderUnconfigured(
                f"{place.name!r} from {place.where} registered no provider now",
                _settings_remedy(variables),
                variables,
            )
    if errors:
        first = errors[0].error
        if isinstance(first, ModuleNotFoundError) and first.name:
            raise _missing_module_error(place, first.name, loader)
        raise _construction_error(place, errors[0])
    raise _no_provider(place)


def _recipes(value: Any, context: Callable[[], Any]) -> Iterator[_Recipe]:
    """Yield the ways to construct a provider, in the order in which Hermes Agent tries them."""
    is_module = isinstance(value, ModuleType)
    if not is_module and _is_provider(value):
        yield lambda: _Made(value() if isinstance(value, type) else value)
    elif callable(getattr(value, "register", None)):
        yield partial(_call_register, value.register, context)
    elif callable(value):
        yield partial(_call_register, value, context)
    if is_module:
        for owner in _provider_classes(value):
            yield lambda owner=owner: _Made(owner())  # type: ignore[misc]
        # A lazy export fails if the package of its class is missing, which is the reason that a person needs.
        for name in sorted(set(dir(value)) - vars(value).keys()):
            if name.endswith("MemoryProvider"):
                yield lambda name=name: getattr(value, name) and None  # type: ignore[misc]


def _call_register(function: Callable[..., Any], context: Callable[[], Any]) -> _Made | None:
    """Call `register(ctx)`, or a factory without arguments, and return the provider that it registered or returned."""
    ctx = context()

    def call() -> Any:
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return function(ctx)
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if any(p.default is p.empty for p in positional):
            return function(ctx)
        # Without required parameters it is a factory, unless it returns no provider and takes a ctx after all.
        returned = function()
        takes_one = bool(positional) or any(p.kind is p.VAR_POSITIONAL for p in parameters)
        return function(ctx) if takes_one and not _is_provider(returned) else returned

    result = call_foreign(call)
    provider = ctx.provider if ctx.provider is not None else result
    # Some packages register the class instead of an object.
    if isinstance(provider, type) and _is_provider(provider):
        provider = provider()
    if not isinstance(provider, ForeignError) and _is_provider(provider):
        if isinstance(result, ForeignError):
            logger.warning(
                "register() raised after it had registered the provider, which is kept: %s", result
            )
        return _Made(provider, ctx)
    if isinstance(result, ForeignError):
        raise result.error
    if ctx.provider is not None:
        owner = type(provider) if not isinstance(provider, type) else provider
        lacks = ", ".join(_missing_members(provider))
        raise ProviderInvalid(f"it registered {owner.__name__}, which lacks {lacks}")
    return None


def _provider_classes(module: ModuleType) -> list[type]:
    """Return the classes of a module that can be a provider.

    The module's own classes come before imported ones; a base class of another is left out. Abstract classes come last,
    only for the error that constructing them raises.
    """
    # Some packages export their classes lazily, with a `__getattr__` and a `__dir__` that names them.
    names = sorted({*vars(module), *dir(module)})
    values = [call_foreign(getattr, module, name, None) for name in names]
    classes = [value for value in values if isinstance(value, type) and _is_provider(value)]
    concrete = [c for c in classes if not inspect.isabstract(c)]
    leaves = [c for c in concrete if not any(other is not c and issubclass(other, c) for other in concrete)]
    abstract = [c for c in classes if inspect.isabstract(c) and c.__module__ == module.__name__]
    return sorted(leaves, key=lambda owner: not owner.__module__.startswith(module.__name__)) + abstract


def _is_provider(value: object) -> bool:
    """Return True for a class or object with the shape of a provider, ours or Hermes Agent's. No property is run."""
    owner = value if isinstance(value, type) else type(value)
    if owner is MemoryProvider or value is None:
        return False
    return _is_native(owner) or not _missing_members(value)


def _is_native(owner: type) -> bool:
    """Return True for a subclass of `MemoryProvider`, and for a class with methods marked `@hookimpl`."""
    return issubclass(owner, MemoryProvider) or any(
        hasattr(member, f"{PROJECT}_impl")
        for base in owner.__mro__
        for member in vars(base).values()
        if inspect.isfunction(member)
    )


def _missing_members(value: object) -> list[str]:
    # getattr_static, since a property of a foreign object may run any code.
    return [member for member in _REQUIRED_MEMBERS if inspect.getattr_static(value, member, None) is None]


def _check_name(place: ProviderCandidate, provider: object, wanted: str) -> None:
    """Refuse a provider with a reserved name, or that does not have the name which was searched for."""
    named = call_foreign(getattr, provider, "name", "")
    name = named if isinstance(named, ForeignError) else call_foreign(str, named)
    if isinstance(name, ForeignError):
        raise ProviderInvalid(f"provider {place.name!r} can't say its name: {name}")
    owner = name_owner(name)
    # `folder:NAME` is the person's own decision for a folder with the name of a bundled provider.
    on_purpose = place.name.startswith(FOLDER_PREFIX) and owner in BUNDLED.values()
    if owner and not place.bundled and not on_purpose:
        raise ProviderInvalid(
            f"{place.where} calls its provider {name!r}, which belongs to {owner}", "give it another name"
        )
    names = {place.name.casefold(), name.casefold()}
    if place.is_folder:
        names.add(f"{FOLDER_PREFIX}{place.name}".casefold())
    if wanted.strip().casefold() not in names and normalise(wanted) != normalise(place.distribution):
        raise _OtherName(f"{place.where} calls its provider {name!r} and not {wanted!r}")


class ProviderFactory:
    """A maker of provider objects: it returns the one that was made to validate first, then new ones."""

    def __init__(
        self,
        place: ProviderCandidate,
        home: HermesHome,
        recipe: _Recipe,
        made: _Made,
        module: str,
        foreign: ForeignHost,
        companions: Any = None,
    ) -> None:
        self._place, self._home, self._recipe, self._module = place, home, recipe, module
        self._foreign, self._companions = foreign, companions
        self._lock = threading.Lock()
        self._original = made.provider
        self.first = self._adapted(made)
        """The provider that was made to validate. Read its settings here; never initialise it."""
        self._unused: object | None = self.first

    def __call__(self) -> object:
        """Return a provider that nobody else has. Raises `ProviderError` if it can't be made."""
        with self._lock:  # sessions start on several threads, and each needs an object of its own
            provider, self._unused = self._unused, None
            if provider is not None:
                return provider
            if self._place.kind == "native":
                return self._make_another()
            with self._foreign.require(self._place.name).surroundings(self._home.path, None):
                return self._make_another()

    def _make_another(self) -> object:
        made = call_foreign(self._recipe)
        if isinstance(made, ForeignError) or made is None:
            raise ProviderError(f"provider {self._place.name!r} can't be made a second time: {made}")
        if made.provider is self._original and not _is_native(type(made.provider)):
            # The package keeps a single object; two sessions must not share its state.
            fresh = call_foreign(type(made.provider))
            if isinstance(fresh, ForeignError):
                logger.warning("provider %r keeps one object for all sessions: %s", self._place.name, fresh)
            else:
                made = _Made(fresh, made.context)
        return self._adapted(made)

    def _adapted(self, made: _Made) -> object:
        provider = made.provider
        if not _is_native(type(provider)):
            loader = self._foreign.require(self._place.name)
            known = (made.context, self._companions)
            contexts = [ctx for ctx in known if ctx is not None and not isinstance(ctx, _Context)]
            provider = loader.adapt(provider, self._place, self._home, contexts, self._module)
        return provider


# ------------------------------------------------------------------------------------------------------------ messages

REGISTER_REMEDY = "write register(ctx), which calls ctx.register_memory_provider(...), into its __init__.py"
"""The remedy for a folder that is no provider yet."""

SAME_NAME_REMEDY = "rename or remove one of the two"
"""The remedy for two providers of one name."""

_MODULE_AND_NAME = re.compile(r"[\w.]+(\s*:\s*[\w.]+)?\s*(\[.*\])?\s*")


def _import_error(
    place: ProviderCandidate, error: BaseException, text: str, loader: ForeignLoader | None
) -> ProviderError:
    """Return the error for an exception that importing `place` raised; `text` is the exception in one line."""
    if not place.is_folder and _MODULE_AND_NAME.fullmatch(place.value) is None:
        return ProviderInvalid(
            f"the entry point of provider {place.name!r} is {place.value!r}, which names no module",
            "write package.module:Class, without hyphens, spaces or slashes",
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _missing_module_error(place, error.name, loader)
    if isinstance(error, SystemExit):
        return ProviderError(
            f"provider {place.name!r} ends the program when it is imported ({text})",
            f"report it to its author, or remove {place.where}",
        )
    message = f"importing provider {place.name!r} from {place.where} raised {text}"
    if not _is_fault(error) and unset_variables(error):
        variables = _unset_variables(place, error)
        return ProviderUnconfigured(message, _settings_remedy(variables), variables)
    return ProviderError(
        message,
        "upgrade or reinstall it; hermes-memory --debug shows the traceback",
    )


def _construction_error(place: ProviderCandidate, error: ForeignError) -> ProviderError:
    """Return the error for a `register` or a constructor that raised."""
    message = f"provider {place.name!r} from {place.where} can't be made: {error}"
    # Native providers declare their settings, so that few raise for another reason than a fault.
    if _is_fault(error.error) or (place.kind == "native" and not unset_variables(error.error)):
        return ProviderError(
            message,
            "correct what it speaks of, else upgrade or reinstall it; hermes-memory --debug shows the traceback",
        )
    variables = _unset_variables(place, error.error)
    return ProviderUnconfigured(message, _settings_remedy(variables), variables)


def _is_fault(error: BaseException) -> bool:
    return not isinstance(error, Exception) or isinstance(error, _CODE_FAULTS)


def _settings_remedy(variables: Iterable[str]) -> str:
    """Return what to do about a provider that waits for settings."""
    commands = [f"hermes-memory keys set {name}" for name in variables]
    if commands:
        return f"run: {', '.join(commands)}"
    return "set what its documentation names, in its file, or as a variable: hermes-memory keys set NAME"


def _unset_variables(place: ProviderCandidate, error: BaseException | None = None) -> tuple[str, ...]:
    """Return the environment variables that plugin.yaml requires or an error names, and that are not set."""
    manifest = read_manifest(place.path) if place.is_folder and place.path else {}
    required = manifest.get("requires_env")
    entries = required if isinstance(required, list) else []
    names = [str(entry.get("name", "") if isinstance(entry, dict) else entry) for entry in entries]
    names += unset_variables(error) if error is not None else []
    return tuple(name for name in dict.fromkeys(names) if name and not os.environ.get(name))


def _missing_module_error(
    place: ProviderCandidate, missing: str, loader: ForeignLoader | None
) -> ProviderError:
    top = missing.partition(".")[0]
    if missing.startswith(f"{FOLDER_PACKAGE}."):
        return ProviderUnavailable(
            f"provider {place.name!r} needs {'.' + missing.split('.', 2)[2]!r}, which is not in its folder",
            f"copy all of it to {str(place.path)!r} again",
        )
    if not place.is_folder and top == place.value.partition(":")[0].strip().partition(".")[0]:
        return ProviderUnavailable(
            f"provider {place.name!r} names the module {missing!r}, which is not there",
            f"reinstall {place.distribution} from where you have it"
            if normalise(place.distribution) in OWN_PACKAGES
            else f"reinstall it: pip install --force-reinstall {place.distribution}",
        )
    requires = {need.partition(";")[0].strip(): required_distribution(need) for need in place.requires}
    declared = [need for need, name in requires.items() if name == normalise(top)]
    beside = place.path and any(map(Path.exists, (place.path / top, place.path / f"{top}.py")))
    if place.is_folder and beside and not declared:
        return ProviderError(
            f"provider {place.name!r} imports {missing!r} of its own folder by a name that it makes at run time",
            f"ask its author to write: from . import {top}",
        )
    if loader is not None and not declared and (error := loader.missing_module(place.name, missing)):
        return error
    # This package is installed: it prints the message.
    others = [need for need, name in requires.items() if name not in OWN_PACKAGES]
    packages = " ".join(map(shell_word, declared or others))
    # Setup shows what plugin.yaml names, and installs it after a question.
    setup = f"run: hermes-memory memory setup {place.name}" if place.is_folder and packages else ""
    return ProviderUnavailable(
        f"provider {place.name!r} needs the module {missing!r}, which is not installed",
        setup or f"pip install {packages or normalise(top)}",
    )


def _no_provider(place: ProviderCandidate) -> ProviderError:
    """Return the error for an import that is no provider and registered none."""
    remedy = (
        "subclass hermes_core.MemoryProvider, or mark its hooks with hermes_core.hookimpl"
        if place.kind == "native"
        else "write register(ctx), which calls ctx.register_memory_provider(...), if it is yours; else it is a plugin of "
        "another sort, or it lacks what it needs here: hermes-memory --debug shows what it says"
    )
    return ProviderInvalid(f"{place.name!r} from {place.where} registered no provider", remedy)


def not_found(name: str, candidates: Sequence[ProviderCandidate], fault: str = "") -> ProviderError:
    """Return the error for a name that nothing offers. `fault` is what a folder of that name lacks."""
    if name in BUNDLED:
        taken = [place for place in candidates if place.name.casefold() == name.strip().casefold()]
        note = f" ({taken[0].where} may not use the name)" if taken else ""
        return ProviderNotFound(
            f"provider {name!r} is not installed{note}", f"run: hermes-memory memory setup {name}"
        )
    if name_owner(name):
        return ProviderNotFound(f"{name!r} is the curated memory itself", "it is always on; name another one")
    if shadowed := shadowed_distribution(name, candidates):
        return ProviderNotFound(shadowed_reason(shadowed), shadowed_remedy(shadowed))
    if fault:
        return ProviderNotFound(f"no provider is called {name!r}: {fault}", REGISTER_REMEDY)
    if name.strip().startswith(FOLDER_PREFIX):
        return ProviderNotFound(
            f"there is no plugin folder for {name!r}",
            "see 'hermes-memory plugins list' for those that are there",
        )
    close = get_close_matches(name, {place.name for place in candidates} | set(BUNDLED), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ProviderNotFound(
        f"no provider called {name!r} is installed",
        f"{hint}see 'hermes-memory providers --all' for those that are",
    )


def shadowed_distribution(name: str, candidates: Sequence[ProviderCandidate]) -> ProviderCandidate | None:
    """Return the shadowed candidate of the distribution `name`, None if there is none."""
    wanted = normalise(name.strip())
    return next(
        (
            place
            for place in candidates
            if place.shadowed_by and normalise(place.distribution) == wanted != ""
        ),
        None,
    )


def shadowed_reason(place: ProviderCandidate) -> str:
    """Return why a shadowed candidate is not used."""
    return f"{place.where} is not used: {place.shadowed_by} comes first"


def shadowed_remedy(place: ProviderCandidate) -> str:
    """Return what to do if the distribution of a shadowed candidate was named."""
    return f"name {place.name!r} for that one, or {SAME_NAME_REMEDY}"


def _still_loading(place: ProviderCandidate, seconds: float) -> ProviderError:
    """Return the error for an import or constructor that does not return."""
    return ProviderUnavailable(
        f"loading provider {place.name!r} from {place.where} has not ended after {seconds:.0f} s and is left behind",
        "see what it waits for (network, a lock), then start this program again",
    )
