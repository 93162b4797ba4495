"""The base class of memory providers, and the validation of a provider."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from hermes_core.contract.hooks import HOOK_NAMES, PROJECT, ProviderHooks, hookimpl
from hermes_core.contract.values import CONTRACT_VERSION, Capabilities, Field
from hermes_core.errors import ProviderInvalid

_MARK = f"{PROJECT}_impl"


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


# Test of each attribute of a `Field`, and the words for what it may be: status, doctor and setup rely on
# it.
_FIELD_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda value: isinstance(value, str), "a str"),
    "type": (
        lambda value: value in (str, int, float, bool, dict, list),
        "str, int, float, bool, dict or list",
    ),
    "env": (lambda value: isinstance(value, str), "a str"),
    "minimum": (_is_number, "a number"),
    "maximum": (_is_number, "a number"),
    "choices": (_is_list, "a tuple of str"),
    "aliases": (_is_list, "a tuple of str"),
    "when": (lambda value: isinstance(value, Mapping), "{another setting: value}"),
}


class MemoryProvider:
    """Base class of providers. Set `name` and define the hooks that you want; see `hermes_core.contract.hooks`.

    There are no hook bodies here: a hook that a provider does not define costs nothing. A method needs no decorator,
    and may leave out parameters that it does not use::

        class Notes(MemoryProvider):
            name = "notes"

            def initialize(self, session):
                self.path = Path(session.home, "notes.txt")

            def sync_turn(self, turn):
                with self.path.open("a") as file:
                    file.write(turn.user + "\\n")
    """

    name: ClassVar[str] = ""
    contract_version: ClassVar[int] = CONTRACT_VERSION
    settings: ClassVar[tuple[Field, ...]] = ()
    capabilities: Capabilities = Capabilities()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Also of base classes: a hook may come from a mixin that is no MemoryProvider itself.
        for attribute, value in [member for owner in cls.__mro__ for member in vars(owner).items()]:
            if attribute in HOOK_NAMES and inspect.isfunction(value) and not hasattr(value, _MARK):
                hookimpl(value)


def contract_faults(provider: object) -> list[str]:
    """Return a sentence for each fault of the provider, with what to write instead.

    pluggy finds few of them when the object is registered. The others would keep a hook from being called, or show
    only when it is called.
    """
    if provider is None:
        return ["it is None: return the provider"]
    if isinstance(provider, type):
        return [f"it is the class itself, not a provider made from it: write {provider.__name__}()"]
    faults = [*_identity_faults(provider), *_settings_faults(provider)]
    for attribute, value in _members(provider):
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        marked = hasattr(function, _MARK)
        if attribute in HOOK_NAMES:
            if not inspect.isfunction(function) or (function is not value and not marked):
                kind = type(value).__name__
                faults.append(f"{attribute} is a {kind}, not a method: write def {attribute}(self, ...)")
            elif not marked:
                faults.append(
                    f"{attribute}() is not marked: write @hookimpl above it, or subclass MemoryProvider"
                )
            else:
                faults.extend(_signature_faults(attribute, function))
        elif not inspect.isfunction(function):
            continue
        elif marked or isinstance(provider, MemoryProvider):
            faults.extend(_spelling_faults(attribute, marked))
    return faults


def validate_provider(provider: object) -> None:
    """Raise `ProviderInvalid` with every fault that `contract_faults` finds."""
    faults = contract_faults(provider)
    if faults:
        raise ProviderInvalid(f"provider {_label(provider)!r} breaks the contract: {'; '.join(faults)}")


def _label(provider: object) -> str:
    return str(getattr(provider, "name", "") or type(provider).__name__)


def _identity_faults(provider: object) -> Iterator[str]:
    name = getattr(provider, "name", "")
    if not isinstance(name, str) or not name.strip():
        yield "it has no name: set name = '...' on the class"
    version = getattr(provider, "contract_version", CONTRACT_VERSION)
    if not isinstance(version, int) or version > CONTRACT_VERSION:
        yield f"it needs contract {version!r} and this is {CONTRACT_VERSION}: upgrade hermes-memory-core"


def _settings_faults(provider: object) -> Iterator[str]:
    # Statically: a property would run the provider's code, which may need settings that are not there yet.
    settings = inspect.getattr_static(provider, "settings", ())
    if isinstance(settings, property):
        return
    listed = settings if isinstance(settings, tuple | list) else None
    wrong = [entry for entry in listed or () if not isinstance(entry, Field)]
    if isinstance(provider, MemoryProvider) and (listed is None or wrong):
        kind = f"is a {type(settings).__name__}" if listed is None else f"holds a {type(wrong[0]).__name__}"
        yield f"settings {kind}: write a tuple of Field(...)"
    for field in listed or ():
        for part, (fits, wanted) in _FIELD_CHECKS.items() if isinstance(field, Field) else ():
            value = getattr(field, part)
            if not fits(value):
                yield f"{part} of setting {field.name!r} is {value!r}: write {wanted}"


def _members(provider: object) -> Iterator[tuple[str, Any]]:
    """Yield the public members of the provider's own classes, without running properties."""
    seen: set[str] = set()
    for owner in type(provider).__mro__:
        if owner in (object, MemoryProvider):
            continue
        for attribute, value in vars(owner).items():
            if not attribute.startswith("_") and attribute not in seen and value is not None:
                seen.add(attribute)
                yield attribute, value


def _signature_faults(attribute: str, function: Callable[..., Any]) -> Iterator[str]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        yield f"{attribute}() yields, so that nothing of it runs: write return, or nothing"
    passed = _hook_parameters(attribute)
    unknown = []
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind is parameter.KEYWORD_ONLY:
            yield f"{attribute}() takes {parameter.name!r} by keyword only: remove the *"
        elif parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            yield f"{attribute}() takes {str(parameter)!r}, which receives nothing: name the parameters you want"
        elif parameter.default is not parameter.empty:
            yield f"{attribute}() gives {parameter.name!r} a default: remove it, the host always passes it"
        elif position > 0 and parameter.name not in passed:
            unknown.append(repr(parameter.name))
    if unknown:
        offer = f"gives {', '.join(passed)}; name those that you want" if passed else "gives nothing"
        yield f"{attribute}() takes {', '.join(unknown)}: the host {offer}"


@cache
def _hook_parameters(hook: str) -> tuple[str, ...]:
    """Return the names of the arguments that the host passes to a hook."""
    return (*inspect.signature(getattr(ProviderHooks, hook)).parameters,)[1:]


def _spelling_faults(attribute: str, marked: bool) -> Iterator[str]:
    # A mark says that a hook is meant. An unmarked method of a provider may have a similar name by chance.
    close = difflib.get_close_matches(attribute, HOOK_NAMES, n=1, cutoff=0.5 if marked else 0.88)
    if close:
        yield f"{attribute}() is no hook: did you mean {close[0]}()?"
    elif marked:
        yield f"{attribute}() is marked as a hook and there is none of that name"
