"""The base class of memory providers, and the check that finds what breaks the contract."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from hermes_core.contract.hooks import HOOK_NAMES, PROJECT, hookimpl
from hermes_core.contract.values import CONTRACT_VERSION, Capabilities, Field
from hermes_core.errors import ProviderInvalid

_MARK = f"{PROJECT}_impl"


class MemoryProvider:
    """Subclass this, set `name`, and override the hooks you want; see `hermes_core.contract.hooks` for each.

    There are no hook bodies here: a hook that a provider does not define costs nothing. An override needs no
    decorator and may leave out parameters it does not use::

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
        for attribute, value in vars(cls).items():
            if attribute in HOOK_NAMES and inspect.isfunction(value) and not hasattr(value, _MARK):
                hookimpl(value)


def contract_faults(provider: object) -> list[str]:
    """What in this provider breaks the contract, a sentence each with what to write instead; empty when it is sound.

    pluggy checks argument names when the object is registered. It does not see the faults found here: they would make
    a hook silent, or fail only when it is called.
    """
    faults = [*_identity_faults(provider)]
    for attribute, function in _methods(provider):
        marked = hasattr(function, _MARK)
        if attribute in HOOK_NAMES:
            if not marked:
                faults.append(
                    f"{attribute}() is not marked: write @hookimpl above it, or subclass MemoryProvider"
                )
            else:
                faults.extend(_signature_faults(attribute, function))
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


def _methods(provider: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public callables defined by the provider's own classes, without running properties."""
    seen: set[str] = set()
    for owner in type(provider).__mro__:
        if owner in (object, MemoryProvider):
            continue
        for attribute, value in vars(owner).items():
            if attribute.startswith("_") or attribute in seen:
                continue
            seen.add(attribute)
            function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if inspect.isfunction(function):
                yield attribute, function


def _signature_faults(attribute: str, function: Callable[..., Any]) -> Iterator[str]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            yield f"{attribute}() takes {parameter.name!r} by keyword only: remove the *"
        elif parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            yield f"{attribute}() takes {str(parameter)!r}, which receives nothing: name the parameters you want"
        elif parameter.default is not parameter.empty:
            yield f"{attribute}() gives {parameter.name!r} a default: remove it, the host always passes it"


def _spelling_faults(attribute: str, marked: bool) -> Iterator[str]:
    close = difflib.get_close_matches(attribute, HOOK_NAMES, n=1, cutoff=0.5 if marked else 0.88)
    if close:
        yield f"{attribute}() is no hook: did you mean {close[0]}()?"
    elif marked:
        yield f"{attribute}() is marked as a hook and there is none of that name"
