"""Discovery of providers: entry points and folders, read from metadata alone. Nothing is imported.

If several places offer the same name, the order is: bundled with the project, folders below the home, entry points of
others in the order of `GROUPS`. A place that loses is still listed, with the path of the winner. This order is a
precedence, not a security border: whoever can install a package can run code.
"""

from __future__ import annotations

import ast
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import importlib_metadata
from msgspec import Struct
from msgspec.structs import replace

from hermes_core.contract.values import BUILTIN_NAME
from hermes_core.errors import HermesError
from hermes_core.home import FOLDER_PREFIX, HermesHome
from hermes_core.loader.entry_points import (
    DAMAGED_METADATA,
    GROUPS,
    PLUGIN_GROUP,
    ProviderKind,
    installed_entry_points,
    normalise,
)
from hermes_core.loader.foreign import ForeignHost
from hermes_core.loader.sources import module_path, python_files, read_source
from hermes_core.safety.redact import redact

logger = logging.getLogger(__name__)

ProviderState = Literal["active", "idle", "degraded", "failed", "blocked", "shadowed", "unavailable"]

# The project's own providers, each with what it is in one line, also before it is installed.
BUNDLED_ABOUT: dict[str, str] = {
    "holographic": "facts with trust in a local file; no server, no key",
    "honcho": "a model of the person that grows; in the cloud or on your server",
    "mem0": "facts found by meaning; in the cloud, on your server or on this machine",
    "byterover": "Markdown files in your home that the program brv curates",
    "openviking": "conversations and documents on your own server",
    "hindsight": "facts, observations and reflection; in the cloud or on your server",
    "retaindb": "facts from every turn and a file store; in the cloud or on this machine",
    "supermemory": "a graph of memories and a profile of the person; in the cloud",
}

# Each with its distribution. The names are reserved: a stranger's package must not receive the memory that a person
# meant for one of these.
BUNDLED: dict[str, str] = {name: f"hermes-memory-{name}" for name in BUNDLED_ABOUT}

# Installers of published providers put their folders into one of these, below the home.
FOLDERS: tuple[str, ...] = ("plugins", "plugins/memory", "hermes-agent/plugins/memory")

PROJECT_PLUGINS = ".hermes/plugins"
"""The folder of plugins below the working folder. It belongs to whoever wrote the project, so it is off by default."""

PROJECT_PLUGINS_ENV = "HERMES_ENABLE_PROJECT_PLUGINS"
"""The environment variable that switches the plugins of the working folder on."""

# This key in plugin.yaml marks an export to another host. If both hosts share a home, the folder must not
# be loaded here, where its package has an entry point already.
EXPORTED = "exported_for"

_PRECEDENCE = {source: rank for rank, source in enumerate((*FOLDERS, PROJECT_PLUGINS, *GROUPS))}
_HOST = re.compile(r"\s*hermes[-_.]+agent(?![\w.-])", re.IGNORECASE)
_IMPORTS_CORE = re.compile(r"^\s*(?:from|import)\s+hermes_core\b", re.MULTILINE)
_IMPORTS_HOST = re.compile(r"^\s*(?:from|import)\s+agent\.memory_provider\b", re.MULTILINE)
_MENTION = re.compile(r"memory_provider|MemoryProvider|get_tool_schemas")
_IMPORTS_PROVIDER = re.compile(
    r"^\s*from\s+(\w+)[\w.]*\s+import\s.*?\b(?:register|(?!MemoryProvider\b)\w+Provider)\b", re.MULTILINE
)

# ------------------------------------------------------------------------------------------------------------- values


class ExternalTool(NamedTuple):
    """A program that a provider needs beside Python. The command `check` succeeds if the program is there."""

    name: str
    check: str = ""
    install: str = ""


class ProviderCandidate(Struct, frozen=True):
    """A place from which a provider could be loaded, described by its metadata.

    Attributes:
        name: The value of `memory.provider` that selects it.
        source: The entry-point group, or the folder below the home.
        value: The target of the entry point, "" for a folder.
        path: The file or folder of the code, None if that can't be known without an import.
        bundled: True for a provider of this project.
        shadowed_by: The place that takes precedence, "" if this place counts.
    """

    name: str
    kind: ProviderKind
    source: str
    value: str = ""
    distribution: str = ""
    version: str = ""
    path: Path | None = None
    description: str = ""
    requires: tuple[str, ...] = ()
    tools: tuple[ExternalTool, ...] = ()
    bundled: bool = False
    shadowed_by: str = ""

    @property
    def is_folder(self) -> bool:
        """True for a folder below the home, False for an entry point."""
        return not self.value

    def chosen(self) -> ProviderCandidate:
        """Return the place as `folder:NAME` chooses it.

        A folder that would not be used by its name has that value for a name, so that the provider which the name
        belongs to never gets its writes.
        """
        if not self.shadowed_by:
            return self
        return replace(self, name=f"{FOLDER_PREFIX}{self.name}", shadowed_by="")

    @property
    def where(self) -> str:
        """The place as people read it: distribution, target and path."""
        label = f"{self.distribution or 'entry point'} {self.value}" if self.value else ""
        return f"{label} ({self.path})" if label and self.path else label or str(self.path)


class ProviderEntry(Struct, frozen=True):
    """One line of the list of providers that command line, doctor, MCP and tests read.

    Attributes:
        reason: Why it can't be used, "" for the states `active` and `idle`.
        remedy: What to do about it.
        installed: False for a provider of this project that is not in this environment.
        notes: Which place runs if several have the name, and registrations of a loaded package without effect here.
    """

    name: str
    distribution: str = ""
    version: str = ""
    source: str = ""
    path: str = ""
    kind: ProviderKind = "native"
    state: ProviderState = "idle"
    reason: str = ""
    remedy: str = ""
    description: str = ""
    installed: bool = True
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, candidate: ProviderCandidate, state: ProviderState = "idle", reason: str = "", remedy: str = ""
    ) -> ProviderEntry:
        """Return the line for a candidate."""
        return cls(
            name=candidate.name,
            distribution=candidate.distribution,
            version=candidate.version,
            source=candidate.source,
            path=str(candidate.path or ""),
            kind=candidate.kind,
            state=state,
            reason=reason,
            remedy=remedy,
            description=candidate.description,
        )

    def failed(self, error: HermesError, state: ProviderState = "failed") -> ProviderEntry:
        """Return the same line with the reason and the remedy of `error`."""
        return replace(self, state=state, reason=redact(error.message), remedy=redact(error.remedy))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data with the fields as keys."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def required_distribution(requirement: str) -> str:
    """Return the normalised distribution that a requirement names.

    >>> required_distribution("Mem0_AI[all]>=2; python_version > '3'")
    'mem0-ai'
    """
    return normalise(re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0])


def name_owner(name: str) -> str:
    """Return the distribution to which a reserved provider name belongs, "" for a free name."""
    folded = name.strip().casefold()
    return "hermes-memory-core" if folded == BUILTIN_NAME else BUNDLED.get(folded, "")


# ---------------------------------------------------------------------------------------------------------- discovery


def discover(
    home: HermesHome,
    entry_points: Iterable[importlib_metadata.EntryPoint] | None = None,
    foreign: ForeignHost | None = None,
) -> list[ProviderCandidate]:
    """Return every place that offers a provider, sorted by name and precedence.

    Args:
        entry_points: Used in place of those of the environment.
        foreign: The loader of providers written for Hermes Agent; by default that of the home's extensions.
    """
    foreign = foreign or ForeignHost(home)
    points = installed_entry_points() if entry_points is None else entry_points
    candidates = [*_folder_candidates(home, foreign), *_entry_point_candidates(points)]
    candidates.sort(key=lambda found: -1 if found.bundled else _PRECEDENCE[found.source])
    by_name: dict[str, list[ProviderCandidate]] = {}
    for candidate in candidates:
        by_name.setdefault(candidate.name.casefold(), []).append(candidate)
    return [candidate for name in sorted(by_name) for candidate in _mark_shadowed(by_name[name])]


def bundled_candidate(
    name: str, entry_points: Iterable[importlib_metadata.EntryPoint]
) -> ProviderCandidate | None:
    """Return the place of a provider of this project, before which no other comes; None if it is not installed."""
    wanted = name.strip().casefold()
    for point in entry_points if wanted in BUNDLED else ():
        if point.name == wanted and GROUPS.get(point.group) == "native":
            candidate = _entry_point_candidate(point)
            if candidate.bundled:
                return candidate
    return None


def select(candidates: Sequence[ProviderCandidate], name: str) -> list[ProviderCandidate]:
    """Return the places to try for `name`, in order. There are several if a distribution uses several groups.

    `folder:NAME` is the plugin folder NAME, also if another place takes precedence. Any other `name` is looked up as the
    name of an entry point or folder, then as a distribution. A provider may call itself otherwise than its folder, so as
    a last resort the source texts are searched for an assignment of the name.
    """
    usable = [place for place in candidates if not place.shadowed_by]
    wanted = name.strip()
    if wanted.startswith(FOLDER_PREFIX):
        folder_name = wanted.removeprefix(FOLDER_PREFIX).casefold()
        folders = [place for place in candidates if place.is_folder and place.name.casefold() == folder_name]
        return [place.chosen() for place in folders[:1]]
    # A reserved name is never searched for elsewhere: no stranger may answer to it.
    exact = [place for place in usable if place.name.casefold() == wanted.casefold()]
    if exact or not wanted or name_owner(name):
        return exact
    distributed = [place for place in usable if normalise(place.distribution) == normalise(wanted)]
    if distributed:
        return [place for place in distributed if place.name == distributed[0].name]
    literal = rf"""["']{re.escape(wanted)}["']"""
    assigned = rf"\w*name\w*\s*(?::[^=\n]*)?=\s*{literal}"
    returned = rf"""def\s+name\(self\)[^:]*:\s*(?:\"{{3}}.*?\"{{3}}\s*)?return\s+{literal}"""
    names_itself = re.compile(f"{assigned}|{returned}", re.IGNORECASE | re.DOTALL)
    return [place for place in usable if any(names_itself.search(text) for text in _source_texts(place))]


def _mark_shadowed(places: list[ProviderCandidate]) -> Iterator[ProviderCandidate]:
    """Yield the places that offer one name, the winner first, the losers marked as shadowed."""
    winner = places[0]
    owner = name_owner(winner.name)
    if owner and not winner.bundled:
        label = owner if owner not in BUNDLED.values() else f"{owner}, to which the name belongs"
        yield from (replace(place, shadowed_by=label) for place in places)
        return
    for point in places[1:]:
        if winner.is_folder and not point.is_folder and _same_code(point, winner):
            # The folder is how this very package installs itself: list it with the metadata of the package.
            winner = replace(
                winner,
                distribution=point.distribution,
                version=winner.version or point.version,
                description=winner.description or point.description,
                requires=winner.requires or point.requires,
            )
            break
    yield winner
    for place in places[1:]:
        same_distribution = normalise(place.distribution) == normalise(winner.distribution) != ""
        yield place if same_distribution else replace(place, shadowed_by=winner.where)


def _same_code(point: ProviderCandidate, folder: ProviderCandidate) -> bool:
    """Return True if an entry point names the code of a plugin folder, or the package that the folder imports."""
    if point.path is None or folder.path is None:
        return False
    # Resolved, since installers put links to a package into plugins/.
    code, root = point.path.resolve(), folder.path.resolve()
    inside = code.is_relative_to(root) or root.is_relative_to(code)
    return inside or point.path in map(module_path, _imported_packages(folder))


# ------------------------------------------------------------------------------------------------------- entry points


def _entry_point_candidates(points: Iterable[importlib_metadata.EntryPoint]) -> Iterator[ProviderCandidate]:
    known = [_entry_point_candidate(point) for point in points if point.group in GROUPS]
    native = {normalise(found.distribution) for found in known if found.kind == "native"} - {""}
    # A distribution that names its provider in a group for providers has other plugins in the general group.
    named: dict[str, set[str]] = {}
    for found in known:
        if found.source != PLUGIN_GROUP and found.distribution:
            named.setdefault(normalise(found.distribution), set()).add(found.name)
    seen: set[tuple[str, str, str, str]] = set()
    for found in known:
        owner = normalise(found.distribution)
        key = (owner, found.source, found.name, found.value)
        if key in seen or (found.kind != "native" and owner in native):
            continue  # a native package enters Hermes Agent through its other entry points
        seen.add(key)
        if found.source == PLUGIN_GROUP and (
            found.name not in named.get(owner, {found.name}) or not _may_register(found)
        ):
            continue
        yield found


def _may_register(plugin: ProviderCandidate) -> bool:
    """Return True if the source of a plugin speaks of a provider, or can't be read."""
    texts = list(_source_texts(plugin))
    return not texts or any("memory_provider" in text or "MemoryProvider" in text for text in texts)


def _entry_point_candidate(point: importlib_metadata.EntryPoint) -> ProviderCandidate:
    name = version = summary = ""
    requires: tuple[str, ...] = ()
    if point.dist is not None:
        try:
            metadata = point.dist.metadata  # parsed anew at each access, as `dist.requires` does
            name, version = metadata.get_all("Name", [""])[0], metadata.get_all("Version", [""])[0]
            summary = metadata.get_all("Summary", [""])[0].replace("UNKNOWN", "")
            needs = metadata.get_all("Requires-Dist") or point.dist.requires or []
            requires = _without_host(need for need in needs if "extra ==" not in need)
        except DAMAGED_METADATA as exc:
            logger.warning("entry point %r has damaged metadata: %s", point.name, exc)
            name = version = summary = ""
    kind = GROUPS[point.group]
    bundled = kind == "native" and BUNDLED.get(point.name) == normalise(name)
    return ProviderCandidate(
        name=point.name,
        kind=kind,
        source=point.group,
        value=point.value,
        distribution=name,
        version=version,
        # EntryPoint.module raises if the value names no module, which is reported when the provider is loaded.
        path=module_path(point.value.partition(":")[0].strip()),
        description=BUNDLED_ABOUT.get(point.name, summary) if bundled else summary,
        requires=requires,
        bundled=bundled,
    )


# ------------------------------------------------------------------------------------------------------------ folders


def _first_sentence(source: str) -> str:
    """Return the first line of a module's docstring, "" if it has none or is no Python."""
    try:
        return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].strip()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _folder_candidates(home: HermesHome, foreign: ForeignHost) -> Iterator[ProviderCandidate]:
    def holds_provider(folder: Path, manifest: Mapping[str, Any]) -> bool:
        if foreign.loader is None:
            return mentions_provider(folder, manifest)
        return foreign.loader.holds_provider(folder, manifest)

    for source, parent in _plugin_folders(home):
        try:
            children = sorted(parent.iterdir()) if parent.is_dir() else []
        except OSError as exc:
            logger.warning("can't read the plugin folder %s: %s", parent, exc)
            continue
        for folder in children:
            if not folder.name.startswith(("_", ".")):
                candidate = folder_candidate(folder, source, holds_provider)
                if candidate is not None:
                    yield candidate


def mentions_provider(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Return True if a source of a plugin folder mentions a memory provider. The loader of its host knows better."""
    del manifest
    return any(_MENTION.search(read_source(file)) for file in python_files(folder))


def folder_candidate(
    folder: Path,
    source: str = FOLDERS[0],
    holds_provider: Callable[[Path, Mapping[str, Any]], bool] = mentions_provider,
) -> ProviderCandidate | None:
    """Return a plugin folder as a candidate, None if its source shows that it is no memory provider.

    Args:
        source: The folder below the home in which it lies.
        holds_provider: Returns False if a folder of Hermes Agent, with this plugin.yaml, holds another sort of plugin.
    """
    if not (folder / "__init__.py").is_file():
        return None
    manifest = read_manifest(folder)
    if manifest.get(EXPORTED):
        return None
    text = read_source(folder / "__init__.py")
    native = _is_native(folder, text)
    if not native and not holds_provider(folder, manifest):
        return None
    tools = manifest.get("external_dependencies")
    return ProviderCandidate(
        name=folder.name,
        kind="native" if native else "hermes_agent",
        source=source,
        version=str(manifest.get("version") or ""),
        path=folder,
        description=str(manifest.get("description") or _first_sentence(text)),
        requires=_without_host(_required_packages(folder, manifest)),
        tools=tuple(
            ExternalTool(*(str(tool.get(key) or "") for key in ("name", "check", "install")))
            for tool in (tools if isinstance(tools, list) else ())
            if isinstance(tool, dict) and tool.get("name")
        ),
    )


def _is_native(folder: Path, entry: str) -> bool:
    """Return True if a plugin folder is written for this package, which its `__init__.py` or another file imports.

    A folder that imports the base class of Hermes Agent may import this package beside it, so `__init__.py` decides.
    """
    if _IMPORTS_CORE.search(entry):
        return True
    texts = [read_source(file) for file in python_files(folder)]
    return any(map(_IMPORTS_CORE.search, texts)) and not any(map(_IMPORTS_HOST.search, texts))


def _required_packages(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Return the packages that plugin.yaml names, else those of a pyproject.toml beside it."""
    for key in ("pip_dependencies", "python_dependencies"):
        if isinstance(named := manifest.get(key), list) and named:
            return [str(need) for need in named]
    import tomllib

    try:
        data = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8-sig"))
        return [str(need) for need in data.get("project", {}).get("dependencies", ())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, AttributeError, TypeError) as exc:
        logger.warning("can't read the dependencies in %s: %s", folder / "pyproject.toml", exc)
        return []


def _plugin_folders(home: HermesHome) -> Iterator[tuple[str, Path]]:
    """Yield the folders that hold plugin folders, each with its name as a source."""
    for source in FOLDERS:
        yield source, home.path / source
    if os.environ.get(PROJECT_PLUGINS_ENV, "").strip().lower() in ("1", "true", "yes", "on"):
        project = Path.cwd() / PROJECT_PLUGINS
        if project != home.path / FOLDERS[0]:
            yield PROJECT_PLUGINS, project


def folder_fault(home: HermesHome, name: str) -> str:
    """Return what the plugin folder `name` lacks to be a provider, "" if there is no such folder or it is an export."""
    name = name.removeprefix(FOLDER_PREFIX)
    is_name = Path(name).name == name and not name.startswith(("_", "."))
    for folder in (parent / name for _, parent in _plugin_folders(home) if is_name):
        if folder.is_dir() and not read_manifest(folder).get(EXPORTED):
            code = folder / "__init__.py"
            return (
                f"{str(code)!r} registers no memory provider"
                if code.is_file()
                else f"{str(folder)!r} has no __init__.py"
            )
    return ""


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the content of plugin.yaml, {} if it can't be read: a provider loads without it."""
    import yaml  # loading yaml takes longer than listing, and most homes have no plugin folder

    path = folder / "plugin.yaml"
    if not path.is_file():
        return {}
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, yaml.YAMLError) as exc:
        logger.warning("can't read %s: %s", path, " ".join(str(exc).split()))
        return {}
    return data if isinstance(data, dict) else {}


def _without_host(requires: Iterable[str]) -> tuple[str, ...]:
    """Return the requirements without hermes-agent.

    This project stands in for it, and installing it would replace the command `hermes`.
    """
    return tuple([need for need in requires if not _HOST.match(need)])


def _imported_packages(folder: ProviderCandidate) -> set[str]:
    """Return the packages from which a plugin folder imports its provider."""
    text = read_source(folder.path / "__init__.py") if folder.is_folder and folder.path else ""
    return set(_IMPORTS_PROVIDER.findall(text))


def _source_texts(candidate: ProviderCandidate) -> Iterator[str]:
    """Yield the Python sources of a candidate, without tests, and of the packages from which its folder imports it."""
    if candidate.path is None:
        return
    for path in (candidate.path, *map(module_path, sorted(_imported_packages(candidate)))):
        if path is None:
            continue
        yield from map(read_source, python_files(path))
