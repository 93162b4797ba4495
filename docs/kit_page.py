"""The pages of names for authors: how each is called and what its docstring says."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from enum import EnumType
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple, get_origin

import extending
from msgspec import NODEFAULT, Struct
from tables import cell, docstring_markdown

from hermes_core import Field, errors, kit
from hermes_core.kit import cli, http, process

KIT: tuple[ModuleType, ...] = (kit, cli, http, process)
"""Modules for authors of providers; `__all__` of each lists its public names."""

MAX_DEFAULT_CHARS = 120


def kit_page() -> Iterator[str]:
    """Yield every public name of the kit itself, and the pages of its modules."""
    yield "# The kit\n"
    yield f"What authors of providers import beside the contract. {kit_pages_sentence()}\n"
    yield from module_section(kit, kit.__all__, "")


def kit_pages_sentence() -> str:
    """Return the sentence with the pages of the modules of the kit."""
    links = [f"[`{module.__name__}`](kit/{module.__name__.rpartition('.')[2]}.md)" for module in KIT[1:]]
    return f"Pages of their own have {', '.join(links[:-1])} and {links[-1]}."


def kit_module_page(module: ModuleType) -> Iterator[str]:
    """Yield every public name of one module of the kit."""
    yield f"# {module.__name__}\n"
    yield "A part of [the kit](../kit.md).\n"
    yield from module_section(module, module.__all__, "../")


def module_section(module: ModuleType, names: Iterable[str], above: str) -> Iterator[str]:
    """Yield a module with its names. `above` leads from the page to the folder of the reference."""
    yield f"## {module.__name__}\n\n{inspect.getdoc(module)}\n"
    for name in names:
        yield from kit_section(name, getattr(module, name), above)


class Part(NamedTuple):
    """A page of names for extensions: its file, its title, its subject, and the first module of it in `extending.DOCUMENTED`."""

    file: str
    title: str
    subject: str
    first: str


PARTS = (
    Part("commands", "Commands and checks", "commands, pages and checks of what is stored", "cli"),
    Part("files", "Settings and files", "settings, and files in a home", "config"),
    Part("texts", "Texts of others", "texts that nobody of the home said", "safety.origin"),
    Part("notes", "Notes and providers", "values of notes, and the loader of providers", "curated.document"),
    Part("past-sessions", "Sessions and recall", "values of sessions, turns and recall", "aio"),
    Part("engines", "Engines", "an engine that stores sessions and notes", "stopping"),
    Part("indexes", "Indexes", "an index that searches messages", "sessions.search.protocol"),
    Part("search", "Search", "what an index reads, and why it found something", "sessions.search.reader"),
)


def modules_of(part: Part) -> dict[str, str]:
    """Return the modules of a part with their names: from its first one to the first one of the next part."""
    modules = list(extending.DOCUMENTED)
    starts = [modules.index(one.first) for one in PARTS] + [len(modules)]
    at = PARTS.index(part)
    return {module: extending.DOCUMENTED[module] for module in modules[starts[at] : starts[at + 1]]}


def extending_part(part: Part) -> Iterator[str]:
    """Yield the documented names of one part."""
    yield f"# Names for extensions: {part.title}\n"
    yield f"For {part.subject}. [Names for extensions](../extending.md) lists all parts.\n"
    for module, names in modules_of(part).items():
        yield from module_section(importlib.import_module(f"hermes_core.{module}"), names.split(), "../")


def extending_page() -> Iterator[str]:
    """Yield the parts of the documented names beside the public modules, then the inner names with their users."""
    yield "# Names for extensions\n"
    yield (
        "An extension imports `hermes_core`, `hermes_core.kit`, `hermes_core.recall`, `hermes_core.errors` "
        "and `hermes_core.contract`, which have pages of their own, and the names below for commands, "
        "pages, checks, engines and indexes. A release note says when one of these changes.\n"
    )
    yield "| for | modules of `hermes_core` |\n|---|---|"
    for part in PARTS:
        page = f"extending/{part.file}.md"
        anchors = {module: f"hermes_core{module.replace('.', '')}" for module in modules_of(part)}
        links = ", ".join(f"[`{module}`]({page}#{anchor})" for module, anchor in anchors.items())
        yield f"| [{part.subject}]({page}) | {links} |"
    yield "\n## Inner names\n"
    yield (
        "The extensions of this project also use the names below. They are released together with the core, so these names "
        "may change in any release: a package of yours that needs one must be tried with each.\n"
    )
    yield "| extension | names in `hermes_core` |\n|---|---|"
    for extension, names in extending.NAMES.items():
        yield f"| {extension} | {', '.join(f'`{name}`' for name in names.split())} |"
    yield ""


def kit_section(name: str, it: Any, above: str) -> Iterator[str]:
    """One name: how it is called, its docstring, and of a class what it has."""
    yield f"### {name}\n"
    if isinstance(getattr(errors, name, None), type):
        yield f"See [errors]({above}errors.md#{name.lower()}).\n"
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
    """Parameters and answer, as a person would write them; nothing of a protocol or an enumeration, which nobody calls."""
    if getattr(function, "_is_protocol", False) or isinstance(function, EnumType):
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
    **{
        f"reference/kit/{module.__name__.rpartition('.')[2]}.md": partial(kit_module_page, module)
        for module in KIT[1:]
    },
    "reference/extending.md": extending_page,
    **{f"reference/extending/{part.file}.md": partial(extending_part, part) for part in PARTS},
}
