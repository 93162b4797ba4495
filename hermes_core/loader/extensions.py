"""The extensions of an environment: discovery by entry point, load control, and guarded calls of their hooks.

Extensions are imported when the first hook is called, or when somebody asks for their state. Each one has a pluggy manager
of its own, so that a hook that raises stops no other extension. What fails becomes a state with a reason,
never an exception at start.
"""

from __future__ import annotations

import difflib
import importlib
import itertools
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Literal, TypeVar, cast

import importlib_metadata
import pluggy
from msgspec import Struct, structs

from hermes_core.config import Config, ExtensionsConfig
from hermes_core.contract.extensions import (
    EXTENSION_GROUP,
    EXTENSION_HOOKS,
    PART_NAME,
    CommandEntry,
    ExtensionHooks,
    HomePart,
    ImporterEntry,
    IndexEntry,
    Named,
    Registrations,
)
from hermes_core.contract.hooks import PROJECT
from hermes_core.errors import ConfigError
from hermes_core.loader.entry_points import LoadControl, installed_entry_points, normalise
from hermes_core.loader.guard import ForeignError, StillRunning, call_foreign, call_with_timeout
from hermes_core.packages import (
    CORE_COMMANDS,
    KNOWN_EXTENSIONS,
    OWN_PACKAGES,
    install_remedy,
    name_and_version,
    program_version,
)

logger = logging.getLogger(__name__)

ExtensionState = Literal["active", "failed", "blocked", "missing"]

_Hooks = tuple[pluggy.PluginManager, tuple[str, ...]]

_Loaded = _Hooks | ForeignError | StillRunning

Entry = TypeVar("Entry", bound=Named)

Row = TypeVar("Row")

_COMMAND_NAME = re.compile(r"[^\W_][\w-]*( [^\W_][\w-]*)?")

_TAKEN_NAMES = frozenset(
    {"sessions", "notes", "memories", "accepted", "rejected", "waiting", "accepted_origins"}
)
_TAKEN_NOUNS = frozenset(
    {"text", "file", "folder", "list", "remove", "user", "json", "help", "session", "note"}
)

IMPORT_TIMEOUT_S = 10.0
"""Seconds for the import of an entry module, which takes a few milliseconds."""

# The attribute in which pluggy's marker leaves the options of a hook implementation.
_MARK = f"{PROJECT}_impl"


class Extension(Struct, frozen=True):
    """One extension, as `hermes-memory extensions` lists it.

    Attributes:
        name: Name of the entry point.
        adds: The hooks that it implements.
        reason: Why it is not active, "" if it is.
        remedy: What to do about it.
        hook: The callers of its hooks; None if it is not active.
        point: Its entry point while it is not imported yet.
    """

    name: str
    distribution: str = ""
    version: str = ""
    state: ExtensionState = "active"
    reason: str = ""
    remedy: str = ""
    adds: tuple[str, ...] = ()
    hook: pluggy.HookRelay | None = None
    point: importlib_metadata.EntryPoint | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data."""
        names = ("name", "distribution", "version", "state", "reason", "remedy", "adds")
        return {name: getattr(self, name) for name in names}


class Extensions:
    """The extensions that a home may use, in the order in which their hooks are called.

    Args:
        known: All extensions, also those that can't be used. Those with an entry point are imported when they are needed.
        warnings: A sentence for each name in the lists of config.yaml that is of no extension.
    """

    def __init__(self, known: Iterable[Extension] = (), warnings: Iterable[str] = ()) -> None:
        self._known = list(known)
        self._warnings = tuple(warnings)
        self._faults: dict[str, str] = {}

    @property
    def found(self) -> tuple[Extension, ...]:
        """All extensions with their states. Those that are not imported yet are imported now."""
        return tuple(self._having(""))

    def problems(self) -> list[str]:
        """Return a sentence for each thing of an extension that does not work. All extensions are imported for it.

        That is an extension that failed to load, a hook that raised, a command that is left out, and a name in the lists
        of config.yaml that is of no extension.
        """
        _ = self.found, self.commands
        return self.met_problems

    @property
    def met_problems(self) -> list[str]:
        """The problems of the extensions that were imported so far."""
        failed = [
            f"the extension {one.name!r} is not active: {one.reason}; {one.remedy}"
            for one in self._known
            if one.state == "failed"
        ]
        return [*failed, *self._warnings, *self._faults.values()]

    def _having(self, hook: str) -> Iterator[Extension]:
        """Yield the extensions that implement a hook; all for "". Those that are not imported yet are imported now."""
        self._known = [
            one if one.point is None else _with_hooks(one, _loaded(one.point)) for one in self._known
        ]
        for one in self._known:
            if not hook or hook in one.adds:
                yield one

    def call(self, hook: str, **arguments: Any) -> Iterator[tuple[Extension, Any]]:
        """Yield each active extension whose `hook` answers, with the answer. Leave out those that raise."""
        for extension in self._having(hook):
            answer = call_foreign(getattr(extension.hook, hook), **arguments)
            if isinstance(answer, ForeignError):
                self._note_fault(extension, hook, answer)
                continue
            # pluggy returns a list with the one answer, or the answer itself for a hook with `firstresult`.
            if isinstance(answer, list):
                answer = next(iter(answer), None)
            if answer is not None:
                yield extension, answer

    def notify(self, hook: str, **arguments: Any) -> None:
        """Call `hook` of each active extension that implements it."""
        for _ in self.call(hook, **arguments):
            pass

    def first(self, hook: str, **arguments: Any) -> Any:
        """Return the first answer that is not None."""
        return next((answer for _, answer in self.call(hook, **arguments)), None)

    @cached_property
    def commands(self) -> Mapping[str, CommandEntry]:
        """The commands of all extensions by name."""
        return self._registered("register_commands", "commands", CommandEntry)

    @cached_property
    def importers(self) -> Mapping[str, ImporterEntry]:
        """The formats of files of all extensions by name."""
        return self._registered("register_importers", "importers", ImporterEntry)

    @cached_property
    def indexes(self) -> Mapping[str, IndexEntry]:
        """The indexes of messages of all extensions by name."""
        return self._registered("register_indexes", "indexes", IndexEntry)

    @cached_property
    def parts(self) -> Mapping[str, HomePart]:
        """The parts of a home that the extensions keep, by name. The first of a name counts."""
        parts: dict[str, HomePart] = {}
        for one, answer in self.call("home_parts"):
            for part in self._rows(one, "home_parts", answer):
                if fault := part_fault(part):
                    self._note(
                        f"{one.name}.home_parts",
                        f"the extension {one.name!r} has a part that is left out: {fault}",
                    )
                    continue
                parts.setdefault(part.name, replace(part, extension=one.name, package=one.distribution))
        return parts

    def findings(self, kind: type[Row], home: Path, config: Config, *, trial: bool) -> list[Row]:
        """Return what the extensions find in a home. One that raises has a sentence in `problems`.

        Args:
            kind: The class of a finding. An answer of another class is left out, and is a problem.
        """
        findings: list[Row] = []
        for extension, answer in self.call("examine", home=home, config=config, trial=trial):
            rows = self._rows(extension, "examine", answer)
            findings += (row for row in rows if isinstance(row, kind))
            if others := [row for row in rows if not isinstance(row, kind)]:
                self._note(
                    f"{extension.name}.examine",
                    f"the extension {extension.name!r} found a {type(others[0]).__name__}, which is no "
                    f"{kind.__name__}",
                )
        return findings

    def _rows(self, extension: Extension, hook: str, answer: Any) -> list[Any]:
        """Return the rows of an answer. A generator runs here, so that it is guarded here."""
        rows: list[Any] | ForeignError = call_foreign(list, answer)
        if isinstance(rows, ForeignError):
            self._note_fault(extension, hook, rows)
            return []
        return rows

    def _note_fault(self, extension: Extension, hook: str, fault: ForeignError) -> None:
        self._note(f"{extension.name}.{hook}", f"the extension {extension.name!r} raised in {hook}: {fault}")

    def _note(self, key: str, sentence: str) -> None:
        self._faults[key] = sentence
        logger.warning("%s", sentence)

    def _registered(self, hook: str, argument: str, kind: type[Entry]) -> dict[str, Entry]:
        """Return what the extensions register.

        An entry that can't be used is left out and reported, as is one with a name that an earlier extension or this
        program has.
        """
        entries: dict[str, Entry] = {}
        for extension in self._having(hook):
            registrations = Registrations[Entry]()
            answer = call_foreign(getattr(extension.hook, hook), **{argument: registrations})
            if isinstance(answer, ForeignError):
                self._note_fault(extension, hook, answer)
            for name, entry in registrations.entries.items():
                label = f"the extension {extension.name!r}"
                if fault := _entry_fault(entry, kind):
                    sentence = f"{label} has in {hook} what is left out: {fault}"
                elif kind is CommandEntry and name in CORE_COMMANDS:
                    sentence = (
                        f"{label} offers the command {name!r}, which is left out: it is one of this program"
                    )
                elif (other := entries.get(name)) is not None:
                    sentence = (
                        f"{label} offers {name!r}, which {getattr(other, 'extension', '')!r} has already"
                    )
                else:
                    entries[name] = cast("Entry", replace(cast("Any", entry), extension=extension.name))
                    continue
                self._note(f"{extension.name}.{hook}.{name}", sentence)
        return entries


def part_fault(part: Any) -> str:
    """Return why a part can't be used, "" if it can.

    Its names are kinds of records, keys of JSON and options. Its patterns must stay in the home, because `forget` and
    `restore` delete what they name.
    """
    if fault := _type_fault(part, HomePart):
        return fault
    if not PART_NAME.fullmatch(part.name) or part.name in _TAKEN_NAMES:
        return f"its name {part.name!r} is taken, or is not of lower-case letters, digits and '-'"
    if not PART_NAME.fullmatch(part.noun) or part.noun in _TAKEN_NOUNS:
        return f"its noun {part.noun!r} is taken, or is not of lower-case letters, digits and '-'"
    if "/" in part.lock:
        return f"its lock {part.lock!r} is not the name of a file"
    for pattern in part.patterns:
        path = PurePosixPath(pattern)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            return f"its pattern {pattern!r} is not of a folder below the home"
    return ""


def _entry_fault(entry: Any, kind: type[Any]) -> str:
    """Return why an entry can't be used, "" if it can."""
    if fault := _type_fault(entry, kind):
        return fault
    if kind is CommandEntry and not _COMMAND_NAME.fullmatch(entry.name):
        return f"{entry.name!r} is not one word of letters, digits and '-', or two with a space between them"
    return ""


def _type_fault(value: Any, kind: type[Any]) -> str:
    """Return why a value is none of `kind`, or has a field of another type, "" if all is right."""
    if not isinstance(value, kind):
        return f"{value!r} is no {kind.__name__}"
    for one in fields(value):
        content = getattr(value, one.name)
        if one.type == "str" and not isinstance(content, str):
            return f"{one.name} of {value.name!r} must be a str, got {content!r}"
        if one.name == "patterns" and not (
            isinstance(content, tuple) and all(isinstance(pattern, str) for pattern in content)
        ):
            return f"patterns of {value.name!r} must be a tuple of str, got {content!r}"
    return ""


def load_extensions(
    config: Config, entry_points: Iterable[importlib_metadata.EntryPoint] | None = None
) -> Extensions:
    """Return the extensions that are installed, of which `extensions.allow` and `extensions.block` let some in.

    None is imported yet.

    Args:
        entry_points: The entry points to load; default: those of the environment.
    """
    rules, control = config.extensions, LoadControl.of(config.extensions)
    rank = dict(zip(rules.order, itertools.count(), strict=False))
    rows: list[tuple[int, str, bool, int, Extension, importlib_metadata.EntryPoint]] = []
    for point in installed_entry_points() if entry_points is None else entry_points:
        if point.group == EXTENSION_GROUP:
            distribution, version = name_and_version(point.dist.read_text) if point.dist else ("", "")
            is_stranger = normalise(distribution) not in OWN_PACKAGES
            one = Extension(point.name, distribution, version)
            rows.append((rank.get(point.name, len(rank)), point.name, is_stranger, len(rows), one, point))
    core = program_version() if rows else ""
    owners: dict[str, str] = {}
    known: list[Extension] = []
    for _, _, is_stranger, _, one, point in sorted(rows):  # the fourth differs in all rows
        owner = owners.get(one.name)
        if owner is None and is_stranger and point.dist and one.name in KNOWN_EXTENSIONS:
            owner = KNOWN_EXTENSIONS[one.name].distribution
        if refusal := control.refusal(one.name, one.distribution):
            remedy = "change extensions.allow or extensions.block"
            known.append(structs.replace(one, state="blocked", reason=refusal, remedy=remedy))
            continue
        owners.setdefault(one.name, one.distribution)
        if owner is not None:
            reason = f"its name is the one of an extension of {owner or 'another distribution'}"
            remedy = f"uninstall {one.distribution}, or name it in extensions.block"
            known.append(structs.replace(one, state="failed", reason=reason, remedy=remedy))
        elif not is_stranger and (reason := _other_version(one.version, core)):
            remedy = f"install both from one place; {install_remedy(normalise(one.distribution))}"
            known.append(structs.replace(one, state="failed", reason=reason, remedy=remedy))
        else:
            known.append(structs.replace(one, point=point))
    has_names = rules.allow or rules.block or rules.order
    return Extensions(known, _unknown_names(rules, known) if has_names else ())


def _unknown_names(rules: ExtensionsConfig, known: Iterable[Extension]) -> list[str]:
    """Return a sentence for each name in the lists of config.yaml that is of no extension."""
    lists = {"allow": rules.allow or (), "block": rules.block, "order": rules.order}
    names = {*KNOWN_EXTENSIONS, *OWN_PACKAGES, *(one.name.casefold() for one in known)}
    names |= {normalise(one.distribution) for one in known} - {""}
    sentences = []
    for key, words in lists.items():
        for word in words:
            if not {word.strip().casefold(), normalise(word.strip())} & names:
                close = difflib.get_close_matches(word.casefold(), names, n=1)
                hint = f"did you mean {close[0]!r}?" if close else "see 'hermes-memory extensions'"
                sentences.append(f"extensions.{key} names {word!r}, and no extension has that name; {hint}")
    return sentences


def missing_extensions(extensions: Extensions) -> list[Extension]:
    """Return the extensions of this project that are not installed."""
    installed = {one.name for one in extensions.found}
    return [
        Extension(
            name,
            known.distribution,
            state="missing",
            reason="it is not installed",
            remedy=install_remedy(known.distribution),
        )
        for name, known in KNOWN_EXTENSIONS.items()
        if name not in installed
    ]


def extension_remedy(extensions: Extensions, name: str) -> str:
    """Return what to do about an extension that is needed and is not active, or lacks a package that it needs."""
    for one in (*extensions.found, *missing_extensions(extensions)):
        if one.name == name:
            package = normalise(one.distribution)
            return one.remedy or (
                install_remedy(package) if package in OWN_PACKAGES else f"reinstall {package}"
            )
    return "see 'hermes-memory extensions'"


def unmet_keys(config: Config, extensions: Extensions) -> list[str]:
    """Return a sentence for each key that config.yaml sets and that has no effect, because its extension is not active."""
    unmet = []
    for name, known in KNOWN_EXTENSIONS.items():
        for key in known.keys:
            if key in config.configured and not any(
                one.name == name and one.state == "active" for one in extensions.found
            ):
                unmet.append(f"{key} is set, and it is {inactive_reason(extensions, name)}")
    return unmet


def inactive_reason(extensions: Extensions, name: str) -> str:
    """Return where something of an extension of this project is and why it can't be used, with what to do.

    It completes a sentence that begins with the name of a command or a format and "is".
    """
    if (one := next((one for one in extensions.found if one.name == name), None)) is not None:
        return f"of the extension {name!r}, which is {one.state}: {one.reason}; {one.remedy}"
    distribution = KNOWN_EXTENSIONS[name].distribution
    return f"in the package {distribution}, which is not installed; {install_remedy(distribution)}"


def import_target(target: str) -> Any:
    """Return the object that "module:attribute" names. Raise `ImportError` if it can't be had, whatever its module raises."""
    module, _, attribute = str(target).partition(":")
    loaded = call_foreign(lambda: getattr(importlib.import_module(module), attribute))
    if not isinstance(loaded, ForeignError):
        return loaded
    if isinstance(loaded.error, ImportError):
        raise loaded.error
    raise ImportError(f"{target!r} can't be imported: {loaded}") from loaded.error


def _loaded(point: importlib_metadata.EntryPoint) -> _Loaded:
    """Import an extension. Return its hooks, or what its import raised or that it hangs."""
    known = _registered.get(point.value)
    if known is not None and known[0] is sys.modules.get(point.value):
        return known[1]
    return call_with_timeout(f"extension {point.value}", partial(_register, point), IMPORT_TIMEOUT_S)


def _with_hooks(extension: Extension, loaded: _Loaded) -> Extension:
    """Return the extension with its hooks, or with the reason for which it can't be used."""
    failed = structs.replace(extension, point=None, state="failed")
    if isinstance(loaded, StillRunning):
        reason = f"importing it has not ended after {loaded.seconds:.0f} s and is left behind"
        return structs.replace(
            failed, reason=reason, remedy="see what it waits for, or name it in extensions.block"
        )
    if isinstance(loaded, ForeignError):
        if isinstance(loaded.error, ConfigError):
            return structs.replace(failed, reason=loaded.error.message, remedy=loaded.error.remedy)
        remedy = "upgrade or reinstall it; hermes-memory --debug shows the traceback"
        return structs.replace(failed, reason=str(loaded), remedy=remedy)
    manager, adds = loaded
    return structs.replace(extension, point=None, adds=adds, hook=manager.hook)


def _other_version(version: str, core: str) -> str:
    """Return why an extension of this project is of another release than the core, "" if it is not."""
    release = ".".join(version.split(".")[:2])
    if release == ".".join(core.split(".")[:2]):
        return ""
    return (
        f"version {version} is for hermes-memory-core {release}, and this is {core}"
        if version
        else "its metadata has no version"
    )


# Modules that were registered in this process, since each memory that is opened needs some of them.
_registered: dict[str, tuple[ModuleType, _Hooks]] = {}


def _register(point: importlib_metadata.EntryPoint) -> _Hooks:
    """Import an extension. Return a pluggy manager with it, and the names of its hooks.

    Raises `ConfigError` for a wrong mark.
    """
    value = point.load()
    plugin = value() if isinstance(value, type) else value
    marked = [attribute for attribute in dir(plugin) if hasattr(getattr(plugin, attribute, None), _MARK)]
    for attribute in marked:
        if attribute not in EXTENSION_HOOKS:
            close = difflib.get_close_matches(attribute, EXTENSION_HOOKS, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}()?" if close else f"there are {', '.join(EXTENSION_HOOKS)}"
            raise ConfigError(f"{attribute}() is no hook of an extension", hint)
    if not marked:
        raise ConfigError("it has no function that is marked @hookimpl", "mark the hooks that it implements")
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(ExtensionHooks)
    try:
        manager.register(plugin, point.name)
    except pluggy.PluginValidationError as exc:
        # The reason stands after the lines that name the plugin, the hook and the definition.
        raise ConfigError(" ".join(str(exc).split()), "correct the parameters of the hook") from exc
    hooks = manager, tuple(hook for hook in EXTENSION_HOOKS if hook in marked)
    if isinstance(value, ModuleType):
        _registered[point.value] = value, hooks
    return hooks
