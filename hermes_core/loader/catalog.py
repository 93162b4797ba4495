"""The list of providers that command line, doctor, MCP and tests read: each with its state and the reason for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import importlib_metadata
from msgspec.structs import replace

from hermes_core.contract.values import Availability
from hermes_core.errors import ProviderError, ProviderNotFound, ProviderUnavailable
from hermes_core.home import FOLDER_PREFIX, HermesHome
from hermes_core.loader.discover import (
    BUNDLED,
    BUNDLED_ABOUT,
    ProviderCandidate,
    ProviderEntry,
    discover,
    folder_fault,
    name_owner,
    select,
)
from hermes_core.loader.entry_points import LoadControl
from hermes_core.loader.extensions import Extensions
from hermes_core.loader.foreign import ForeignHost
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.loader.load import (
    REGISTER_REMEDY,
    SAME_NAME_REMEDY,
    load_provider,
    shadowed_distribution,
    shadowed_reason,
    shadowed_remedy,
)
from hermes_core.loader.requirements import missing_packages
from hermes_core.safety.redact import redact

__all__ = ["LoadControl", "ProviderEntry", "discover_providers"]


def discover_providers(
    home: HermesHome,
    *,
    control: LoadControl | None = None,
    active: Collection[str] = (),
    probe: bool = False,
    entry_points: Iterable[importlib_metadata.EntryPoint] | None = None,
    extensions: Extensions | None = None,
) -> list[ProviderEntry]:
    """Return every provider that is here, shadowed ones too, and our own that are not, sorted by name.

    Nothing is imported without `probe`.

    Args:
        control: What is blocked; by default the lists of the home's config.yaml, which may raise `ConfigError`.
        active: The selected names, as `Config.selected_providers` has them. One is listed also if nothing offers it.
        probe: Load the active providers and call their `is_available`.
        entry_points: Used in place of those of the environment.
        extensions: The extensions of an open memory; by default those that the home's config.yaml lets in.
    """
    # Read twice below, and an iterator gives its items once.
    points = list(entry_points) if entry_points is not None else None
    foreign = ForeignHost(home, extensions)
    candidates = discover(home, points, foreign)
    control = control or LoadControl.of_home(home)
    names = [name for name in ([active] if isinstance(active, str) else active) if name]
    places = {name: place for name in names for place in select(candidates, name)[:1]}
    chosen = list(places.values())
    entries: list[ProviderEntry] = []
    listed: set[str] = set()
    for place in candidates:
        name = place.name.casefold()
        same_folder = [other for other in chosen if place.is_folder and place.path == other.path]
        if place.shadowed_by and same_folder:
            entries.append(_chosen_folder(same_folder[0], control))
        elif place.shadowed_by:
            entries.append(
                ProviderEntry.of(
                    place, "shadowed", shadowed_reason(place), _shadowed_remedy(place, candidates)
                )
            )
        elif name not in listed:  # a distribution may offer one name in several groups
            listed.add(name)
            if refusal := control.refusal(place.name, place.distribution):
                entries.append(
                    ProviderEntry.of(place, "blocked", refusal, "change providers.allow or providers.block")
                )
            else:
                entry = ProviderEntry.of(place, "active" if place in chosen else "idle")
                if place.kind == "hermes_agent":
                    loader = foreign.loader
                    error = foreign.unavailable() if loader is None else loader.refusal(place)
                    if error is not None:
                        entries.append(entry.failed(error, "unavailable"))
                        continue
                entries.append(entry if place in chosen else _with_packages(entry, place))
    configured = {place.name for place in chosen} | set(names)
    for name in sorted(BUNDLED.keys() - {entry.name for entry in entries if entry.state != "shadowed"}):
        entries.append(_missing_bundled(name, configured=name in configured))
    for name in names:
        if name not in places and name not in BUNDLED:
            entries.append(_unknown(name, candidates, folder_fault(home, name.strip())))
    for name, place in places.items() if probe else ():
        entries = [
            _probe(entry, name, home, control, points)
            if entry.state == "active" and entry.name == place.name
            else entry
            for entry in entries
        ]
    return sorted(entries, key=lambda entry: (entry.name.casefold(), entry.state == "shadowed"))


def _with_packages(entry: ProviderEntry, place: ProviderCandidate) -> ProviderEntry:
    """Return the line of a plugin folder as unavailable if packages that it names are not installed."""
    # The installer of a package has seen to what the package needs.
    missing = missing_packages(place.requires) if place.is_folder and not place.distribution else []
    if not missing:
        return entry
    return replace(
        entry,
        state="unavailable",
        reason=f"packages that it needs are not installed: {', '.join(missing)}",
        remedy=f"run: hermes-memory memory setup {place.name}",
    )


def _chosen_folder(place: ProviderCandidate, control: LoadControl) -> ProviderEntry:
    """Return the line of a folder that config.yaml chooses by `folder:NAME` before the provider of that name."""
    if refusal := control.refusal(place.name, place.distribution):
        return ProviderEntry.of(place, "blocked", refusal, "change providers.allow or providers.block")
    name = place.name.removeprefix(FOLDER_PREFIX)
    note = f"memory.provider chooses this folder, so it runs in place of the bundled provider {name!r}"
    return replace(ProviderEntry.of(place, "active"), notes=(note,))


def _shadowed_remedy(place: ProviderCandidate, candidates: Sequence[ProviderCandidate]) -> str:
    """Return what to do about a place that another one of its name comes before."""
    selector = f"{FOLDER_PREFIX}{place.name}"
    if [chosen.path for chosen in select(candidates, selector)] == [place.path] and name_owner(place.name):
        return f"memory.provider: {selector} chooses this folder; or {SAME_NAME_REMEDY}"
    return SAME_NAME_REMEDY


def _missing_bundled(name: str, *, configured: bool) -> ProviderEntry:
    reason = "it is not installed"
    return ProviderEntry(
        name=name,
        distribution=BUNDLED[name],
        description=BUNDLED_ABOUT.get(name, ""),
        source="hermes_core.providers",
        state="unavailable",
        reason=f"memory.provider names it, and {reason}" if configured else reason,
        remedy=f"run: hermes-memory memory setup {name}",
        installed=False,
    )


def _unknown(name: str, candidates: Sequence[ProviderCandidate], fault: str) -> ProviderEntry:
    reason = fault or "nothing of that name is installed"
    remedy = (
        REGISTER_REMEDY
        if fault
        else "install its package, or choose one that 'hermes-memory providers' lists"
    )
    if shadowed := shadowed_distribution(name, candidates):
        reason, remedy = shadowed_reason(shadowed), shadowed_remedy(shadowed)
    return ProviderEntry(
        name=name,
        state="failed",
        reason=f"memory.provider names {name!r} and {reason}",
        remedy=remedy,
        installed=False,
    )


def _probe(
    entry: ProviderEntry,
    active: str,
    home: HermesHome,
    control: LoadControl,
    points: Iterable[importlib_metadata.EntryPoint] | None,
) -> ProviderEntry:
    """Load the active provider, ask whether it can run here, and return its line with the answer."""
    try:
        provider = load_provider(active, home, control, points).factory()
    except (ProviderUnavailable, ProviderNotFound) as exc:
        return entry.failed(exc, "unavailable")
    except ProviderError as exc:
        return entry.failed(exc)
    is_available = getattr(provider, "is_available", None)
    answer = call_foreign(is_available) if callable(is_available) else True
    if isinstance(answer, ForeignError):
        return replace(
            entry,
            state="failed",
            reason=f"is_available() raised {answer}",
            remedy="hermes-memory --debug shows the traceback",
        )
    if isinstance(answer, Availability) and not answer:
        reason, remedy = redact(answer.reason), redact(answer.remedy)
        return replace(entry, state="unavailable", reason=reason, remedy=remedy)
    return entry if answer else replace(entry, state="unavailable", reason="it says that it can't run here")
