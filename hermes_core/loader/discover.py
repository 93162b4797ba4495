"""Which providers are there: entry points and folders, from metadata alone. Nothing is imported.

Precedence on one name: bundled with the project, then folders below the home, then entry points of others in the order
of `GROUPS`. What loses is still listed, with both places, unless it is the same package. This is precedence, not a
border of security: whoever can install a package can run code.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hermes_core.home import HermesHome
from hermes_core.loader.entry import BUNDLED, ExternalTool, Found, Kind, normalised, owner_of, required

logger = logging.getLogger(__name__)

GROUPS: dict[str, Kind] = {
    "hermes_core.providers": "native",
    "hermes_agent.memory_providers": "hermes_agent",
    "hermes.memory_provider": "hermes_agent",
    "hermes.memory_providers": "hermes_agent",
    "hermes.memory": "hermes_agent",
    "hermes_agent.plugins": "hermes_agent",
}
"""Entry-point groups in order of precedence. The last one is for plugins of any sort, so a memory provider in it is
recognised by its source text."""

FOLDERS: tuple[str, ...] = ("plugins", "plugins/memory", "hermes-agent/plugins/memory")
"""Where below the home installers put provider folders."""

EXPORTED = "exported_for"
"""Key of plugin.yaml in a folder that hands a provider of ours to another host, which it names; none for this one."""

_PLUGIN_GROUP = "hermes_agent.plugins"
_REGISTERS = re.compile(r"MemoryProvider|memory_provider|\bregister\b")
_NATIVE = re.compile(r"^\s*(?:from|import)\s+hermes_core\b", re.MULTILINE)
_BORROWS = re.compile(
    r"^\s*from\s+(\w+)[\w.]*\s+import\s.*?\b(?:register|(?!MemoryProvider\b)\w+Provider)\b", re.MULTILINE
)
_BROKEN_METADATA = (OSError, ValueError, TypeError, LookupError, AttributeError)


def discover(
    home: HermesHome, entry_points: Iterable[importlib.metadata.EntryPoint] | None = None
) -> list[Found]:
    """Everything that could be loaded, by name and precedence; what is shadowed says by what.

    `entry_points` replaces those of the environment.
    """
    points = installed_entry_points() if entry_points is None else entry_points
    places = [*_folders(home), *_from_entry_points(points)]
    by_name: dict[str, list[Found]] = {}
    for found in sorted(places, key=_rank):
        by_name.setdefault(found.name.casefold(), []).append(found)
    return [found for name in sorted(by_name) for found in _with_shadows(by_name[name])]


def select(found: Sequence[Found], name: str) -> list[Found]:
    """The places to try for `name`, in order: one, or several when a distribution offers the name in several groups.

    A name that no entry point and no folder carries may be that of the distribution. Else it is looked for in the
    source texts, because a provider may call itself otherwise than its folder.
    """
    usable = [place for place in found if not place.shadowed_by]
    exact = [place for place in usable if place.name.casefold() == name.strip().casefold()]
    if exact or not name.strip() or owner_of(name):
        return exact
    distributed = [place for place in usable if normalised(place.distribution) == normalised(name.strip())]
    if distributed:
        return [place for place in distributed if place.name == distributed[0].name]
    says_so = _names_itself(name.strip())
    return [place for place in usable if any(says_so.search(text) for text in _sources(place))]


def _names_itself(name: str) -> re.Pattern[str]:
    """Source that gives something called "name" this value: an assignment, a constant, or a `name` property."""
    literal = rf"""["']{re.escape(name)}["']"""
    assigned = rf"\w*name\w*\s*(?::[^=\n]*)?=\s*{literal}"
    returned = rf"""def\s+name\(self\)[^:]*:\s*(?:\"{{3}}.*?\"{{3}}\s*)?return\s+{literal}"""
    return re.compile(f"{assigned}|{returned}", re.IGNORECASE | re.DOTALL)


def installed_entry_points(
    groups: Collection[str] = GROUPS.keys(),
) -> Iterator[importlib.metadata.EntryPoint]:
    """Entry points of these groups. A distribution with damaged metadata is logged and left out, not all of them."""
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        try:
            points = [point for point in distribution.entry_points if point.group in groups]
            name = normalised(distribution.metadata.get_all("Name", [])[0]) if points else ""
        except _BROKEN_METADATA as exc:
            logger.warning("left out a distribution with damaged metadata: %s: %s", type(exc).__name__, exc)
            continue
        if name not in seen:
            seen.add(name)
            yield from points


def _rank(found: Found) -> int:
    if found.bundled:
        return 0
    if found.is_folder:
        return 1 + FOLDERS.index(found.source)
    return 1 + len(FOLDERS) + list(GROUPS).index(found.source)


def _with_shadows(places: list[Found]) -> Iterator[Found]:
    winner = places[0]
    owner = owner_of(winner.name)
    if owner and not winner.bundled:
        label = owner if owner not in BUNDLED.values() else f"{owner}, to which the name belongs"
        yield from (place.shadowed(label) for place in places)
        return
    winner = next((_named_as(place, winner) for place in places[1:] if _leads_into(place, winner)), winner)
    yield winner
    for place in places[1:]:
        yield place if _alternative(place, winner) else place.shadowed(winner.where)


def _alternative(place: Found, winner: Found) -> bool:
    """Whether both are one distribution's offer of one provider: in two groups, or as a folder as well."""
    return normalised(place.distribution) == normalised(winner.distribution) != ""


def _leads_into(point: Found, folder: Found) -> bool:
    """Whether an entry point names the code of a plugin folder, or that which the folder only imports."""
    if point.is_folder or not folder.is_folder or point.path is None or folder.path is None:
        return False
    code, root = point.path.resolve(), folder.path.resolve()
    one_inside = code.is_relative_to(root) or root.is_relative_to(code)
    return one_inside or point.path in map(_module_path, _borrowed(folder))


def _named_as(point: Found, folder: Found) -> Found:
    """The folder with what the metadata of its package say of it."""
    return replace(
        folder,
        distribution=point.distribution,
        version=folder.version or point.version,
        description=folder.description or point.description,
        requires=folder.requires or point.requires,
    )


# ------------------------------------------------------------------------------------------------------ entry points


def _from_entry_points(points: Iterable[importlib.metadata.EntryPoint]) -> Iterator[Found]:
    seen: set[tuple[str, str, str, str]] = set()
    known = [_described(point) for point in points if point.group in GROUPS]
    ours = {normalised(found.distribution) for found in known if found.kind == "native"} - {""}
    named = {(normalised(found.distribution), found.name) for found in known if found.source != _PLUGIN_GROUP}
    for found in known:
        if found.kind != "native" and normalised(found.distribution) in ours:
            continue  # how the same package enters another host
        key = (normalised(found.distribution), found.source, found.name, found.value)
        if key not in seen:
            seen.add(key)
            if found.source != _PLUGIN_GROUP or (_may_register(found) and not _companion(found, named)):
                yield found


def _companion(found: Found, named: set[tuple[str, str]]) -> bool:
    """Whether a general plugin only goes along with the provider that its distribution names in another group."""
    names = {name for owner, name in named if owner == normalised(found.distribution) != ""}
    return bool(names) and found.name not in names


def _described(point: importlib.metadata.EntryPoint) -> Found:
    distribution, version, summary, requires = _distribution(point)
    return Found(
        name=point.name,
        kind=GROUPS[point.group],
        source=point.group,
        value=point.value,
        distribution=distribution,
        version=version,
        path=_module_path(
            point.value.partition(":")[0].strip()
        ),  # `module` raises where the value names none
        description=summary,
        requires=_without_host(requires),
        bundled=_is_bundled(point, distribution),
    )


def _distribution(point: importlib.metadata.EntryPoint) -> tuple[str, str, str, tuple[str, ...]]:
    """Name, version, summary and requirements without those of extras."""
    dist = point.dist
    if dist is None:
        return "", "", "", ()
    try:
        told = dist.metadata  # parsed anew each time it is asked for
        name, version, summary = (told.get_all(key, [""])[0] for key in ("Name", "Version", "Summary"))
        requires = tuple(need for need in dist.requires or () if "extra ==" not in need)
        return name, version, summary.replace("UNKNOWN", ""), requires
    except _BROKEN_METADATA as exc:
        logger.warning("entry point %r has damaged metadata: %s", point.name, exc)
        return "", "", "", ()


def _is_bundled(point: importlib.metadata.EntryPoint, distribution: str) -> bool:
    return GROUPS[point.group] == "native" and BUNDLED.get(point.name) == normalised(distribution)


def _module_path(module: str) -> Path | None:
    """Folder or file of a module's top package; finding that one runs no code of it."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    locations = list(spec.submodule_search_locations or ())
    return Path(locations[0]) if locations else Path(spec.origin or module)


def _may_register(found: Found) -> bool:
    """Whether the text of a general plugin speaks of memory providers; one that can't be read may."""
    texts = list(_sources(found))
    return not texts or any("memory_provider" in text or "MemoryProvider" in text for text in texts)


# ----------------------------------------------------------------------------------------------------------- folders


def _folders(home: HermesHome) -> Iterator[Found]:
    for source in FOLDERS:
        parent = home.path / source
        try:
            children = sorted(parent.iterdir()) if parent.is_dir() else []
        except OSError as exc:
            logger.warning("can't read the plugin folder %s: %s", parent, exc)
            continue
        for child in children:
            if not child.name.startswith(("_", ".")) and (child / "__init__.py").is_file():
                yield from _from_folder(child, source)


def _from_folder(folder: Path, source: str) -> Iterator[Found]:
    text = _read(folder / "__init__.py")
    native = _NATIVE.search(text) is not None
    if source == FOLDERS[0] and not (native or _REGISTERS.search(text)):
        return
    manifest = _manifest(folder)
    if manifest.get(EXPORTED):
        return
    yield Found(
        name=folder.name,
        kind="native" if native else "hermes_agent",
        source=source,
        version=str(manifest.get("version") or ""),
        path=folder,
        description=str(manifest.get("description") or ""),
        requires=_requirements(manifest),
        tools=_tools(manifest),
    )


def no_provider_in(home: HermesHome, name: str) -> str:
    """What the folder of this name lacks to be a provider; "" where there is none, or one that is left out on purpose."""
    plain = Path(name).name == name and not name.startswith(("_", "."))
    for folder in (home.path / source / name for source in FOLDERS if plain):
        if not folder.is_dir() or _manifest(folder).get(EXPORTED):
            continue
        code = folder / "__init__.py"
        lacks_code = f"{str(folder)!r} has no __init__.py"
        return f"{str(code)!r} registers no memory provider" if code.is_file() else lacks_code
    return ""


def _manifest(folder: Path) -> dict[str, Any]:
    """plugin.yaml as far as it can be read; nothing in it is needed to load a provider."""
    import yaml

    path = folder / "plugin.yaml"
    if not path.is_file():
        return {}
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, yaml.YAMLError) as exc:
        logger.warning("can't read %s: %s", path, " ".join(str(exc).split()))
        return {}
    return data if isinstance(data, dict) else {}


def _requirements(manifest: dict[str, Any]) -> tuple[str, ...]:
    listed = manifest.get("pip_dependencies") or manifest.get("python_dependencies")
    return _without_host(map(str, listed)) if isinstance(listed, list) else ()


def _without_host(requires: Iterable[str]) -> tuple[str, ...]:
    """Return all requirements but Hermes Agent, whose modules this package offers itself."""
    return tuple(need for need in requires if required(need) != "hermes-agent")


def _tools(manifest: dict[str, Any]) -> tuple[ExternalTool, ...]:
    listed = manifest.get("external_dependencies")
    items = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return tuple(
        ExternalTool(*(str(one.get(key) or "") for key in ("name", "check", "install")))
        for one in items
        if one.get("name")
    )


def _sources(found: Found) -> Iterator[str]:
    """Source texts of a provider, and of the installed packages that a plugin folder only imports it from."""
    if found.path is None:
        return
    yield from _texts(found.path)
    for path in filter(None, map(_module_path, sorted(_borrowed(found)))):
        yield from _texts(path)


def _borrowed(found: Found) -> set[str]:
    """The packages that a plugin folder imports a provider from."""
    text = _read(found.path / "__init__.py") if found.is_folder and found.path else ""
    return set(_BORROWS.findall(text))


def _texts(path: Path) -> Iterator[str]:
    """Python sources below a folder, or of one file, without tests."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    for file in files:
        if "tests" not in file.parts and file.suffix == ".py":
            yield _read(file)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as exc:
        logger.warning("can't read %s: %s", path, exc)
        return ""
