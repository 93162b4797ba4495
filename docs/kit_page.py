"""The pages of names for authors: how each is called and what its docstring says."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import Any, get_origin

from msgspec import NODEFAULT, Struct
from tables import cell, docstring_markdown

from hermes_core import Field, errors, extending, kit
from hermes_core.kit import cli, http, process

KIT: tuple[ModuleType, ...] = (kit, cli, http, process)
"""Modules for authors of providers; `__all__` of each lists its public names."""

MAX_DEFAULT_CHARS = 120


def kit_page() -> Iterator[str]:
    """Every public name, module by module."""
    yield "# The kit\n"
    for module in KIT:
        yield f"## {module.__name__}\n\n{inspect.getdoc(module)}\n"
        for name in module.__all__:
            yield from kit_section(name, getattr(module, name))


def extending_page() -> Iterator[str]:
    """The documented names beside the public modules, then the inner ones with their users."""
    yield "# Names for extensions\n"
    yield (
        "An extension imports `hermes_core`, `hermes_core.kit`, `hermes_core.recall`, `hermes_core.errors`, "
        "`hermes_core.contract` and `hermes_core.importers`, which have pages of their own, and the names below for commands, "
        "pages, checks, engines and indexes. A release note says when one of these changes.\n"
    )
    for module, names in extending.DOCUMENTED.items():
        described = importlib.import_module(f"hermes_core.{module}")
        yield f"## hermes_core.{module}\n\n{inspect.getdoc(described)}\n"
        for name in names.split():
            yield from kit_section(name, getattr(described, name))
    yield "## Inner names\n"
    yield (
        "The extensions of this project also use the names below. They are released together with the core, so these names "
        "may change in any release: a package of yours that needs one must be tried with each.\n"
    )
    yield "| extension | names in `hermes_core` |\n|---|---|"
    for extension, names in extending.NAMES.items():
        yield f"| {extension} | {', '.join(f'`{name}`' for name in names.split())} |"
    yield ""


def kit_section(name: str, it: Any) -> Iterator[str]:
    """One name: how it is called, its docstring, and of a class what it has."""
    yield f"### {name}\n"
    if isinstance(getattr(errors, name, None), type):
        yield f"See [errors](errors.md#{name.lower()}).\n"
        return
    if isinstance(it, Field):
        yield f"The `Field` `{it.name}`. {it.help}\n"
        return
    if isinstance(it, ContextVar):
        yield "A `ContextVar`.\n"
        return
    if not callable(it) or get_origin(it) is not None or isinstance(it, types.GenericAlias):
        yield f"`{it!r}`\n"
        return
    yield f"`{name}{call_of(it)}`\n\n{docstring_markdown(inspect.getdoc(it) or '')}\n"
    members = [(n, m) for n, m in vars(it).items() if not n.startswith("_")] if inspect.isclass(it) else []
    told = [(n, inspect.getdoc(m)) for n, m in members if isinstance(m, property) or inspect.isfunction(m)]
    if told:
        yield "| | |\n|---|---|"
        yield from (f"| `{n}` | {cell((doc or '').partition(chr(10) * 2)[0])} |" for n, doc in told)
        yield ""


def call_of(function: Callable[..., Any]) -> str:
    """Parameters and answer, as a person would write them; nothing of a protocol, which nobody calls."""
    if getattr(function, "_is_protocol", False):
        return ""
    try:
        signature = _signature(function)
    except ValueError:
        return ""
    shown, starred = [], False
    for p in signature.parameters.values():
        if p.name == "self":
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        # The fields of a Struct have types and no text.
        kind = p.annotation.__name__ if isinstance(p.annotation, type) else p.annotation
        annotation = "" if p.annotation is p.empty else f": {kind}"
        shown.append(f"{star}{p.name}{annotation}{default_of(p)}")
    answer = (
        ""
        if signature.return_annotation in (None, "None", inspect.Signature.empty)
        else signature.return_annotation
    )
    return f"({', '.join(shown)})" + (f" -> {answer}" if answer else "")


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature; of a Struct with the texts of its types, some of which stand for names of a type checker only."""
    if not (isinstance(function, type) and issubclass(function, Struct)):
        return inspect.signature(function)
    texts = {
        name: text
        for cls in reversed(function.__mro__)
        for name, text in vars(cls).get("__annotations__", {}).items()
    }
    names, defaults = function.__struct_fields__, function.__struct_defaults__
    empty = inspect.Parameter.empty
    shown = [empty] * (len(names) - len(defaults)) + [
        empty if default is NODEFAULT else getattr(default, "factory", lambda one=default: one)()
        for default in defaults
    ]
    return inspect.Signature(
        [
            inspect.Parameter(
                name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=texts[name]
            )
            for name, default in zip(names, shown, strict=True)
        ]
    )


def default_of(parameter: inspect.Parameter) -> str:
    """The default of a parameter, "..." for one that is long or differs with each run."""
    if parameter.default is parameter.empty:
        return ""
    text = getattr(parameter.default, "__name__", None) or repr(parameter.default)
    return " = ..." if len(text) > MAX_DEFAULT_CHARS or " at 0x" in text else f" = {text}"


PAGES: dict[str, Callable[[], Iterable[str]]] = {
    "reference/kit.md": kit_page,
    "reference/extending.md": extending_page,
}
