"""The table of providers that command line, doctor, MCP and tests read: each with its state and the reason for it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hermes_core.contract.values import Availability
from hermes_core.errors import ProviderError, ProviderNotFound, ProviderUnavailable
from hermes_core.home import HermesHome
from hermes_core.loader.discover import discover, no_provider_in, select
from hermes_core.loader.entry import BUNDLED, Found, LoadControl, ProviderEntry
from hermes_core.loader.foreign import Failure, attempt
from hermes_core.loader.load import load_provider
from hermes_core.loader.reasons import ONE_OF_TWO, REGISTERS, hidden_package, name_the_other, not_used
from hermes_core.safety.redact import redact

__all__ = ["LoadControl", "ProviderEntry", "discover_providers"]

_NOT_INSTALLED = "it is not installed"


def discover_providers(
    home: HermesHome,
    *,
    control: LoadControl | None = None,
    active: str = "",
    probe: bool = False,
    entry_points: Iterable[importlib.metadata.EntryPoint] | None = None,
) -> list[ProviderEntry]:
    """Every provider that is here, shadowed ones too, and our own that are not, sorted by name.

    `active` is the configured name; it is listed also when nothing of that name is installed. Nothing is imported,
    unless `probe` asks to load the active one and call its `is_available`. Without `control` the lists of the home's
    config.yaml say which are blocked; they may raise `ConfigError`.
    """
    points = list(entry_points) if entry_points is not None else None
    found = discover(home, points)
    rules = control or LoadControl.of_home(home)
    chosen = select(found, active)[:1] if active else []
    entries = [_entry(place, rules, place in chosen) for place in _one_a_name(found)]
    entries += [
        _not_installed(name) for name in sorted(set(BUNDLED) - {e.name for e in entries if _usable(e)})
    ]
    if active and not chosen and active not in BUNDLED:
        entries.append(_unknown(active, found, no_provider_in(home, active.strip())))
    if active:
        entries = [_configured(entry, active, chosen) for entry in entries]
    if probe and chosen:
        entries = [_probed(e, active, home, rules, points) if e.state == "active" else e for e in entries]
    return sorted(entries, key=lambda entry: (entry.name.casefold(), entry.state == "shadowed"))


def _one_a_name(found: Sequence[Found]) -> list[Found]:
    """All places but the second offers that one distribution makes of one name."""
    seen: set[str] = set()
    kept = []
    for place in found:
        key = place.name.casefold()
        if place.shadowed_by or key not in seen:
            kept.append(place)
        if not place.shadowed_by:
            seen.add(key)
    return kept


def _usable(entry: ProviderEntry) -> bool:
    return entry.state != "shadowed"


def _entry(place: Found, control: LoadControl, active: bool) -> ProviderEntry:
    if place.shadowed_by:
        return ProviderEntry.of(place, "shadowed", not_used(place), ONE_OF_TWO)
    refusal = control.refusal(place)
    if refusal:
        return ProviderEntry.of(place, "blocked", refusal, "change providers.allow or providers.block")
    return ProviderEntry.of(place, "active" if active else "idle")


def _not_installed(name: str) -> ProviderEntry:
    return ProviderEntry(
        name=name,
        distribution=BUNDLED[name],
        source="hermes_core.providers",
        state="unavailable",
        reason=_NOT_INSTALLED,
        remedy=f"run: pip install {BUNDLED[name]}",
        installed=False,
    )


def _unknown(name: str, found: Sequence[Found], lacking: str) -> ProviderEntry:
    reason = lacking or "nothing of that name is installed"
    remedy = (
        REGISTERS if lacking else "install its package, or choose one that 'hermes-memory providers' lists"
    )
    if hidden := hidden_package(name, found):
        reason, remedy = not_used(hidden), name_the_other(hidden)
    return ProviderEntry(
        name=name,
        state="failed",
        reason=f"memory.provider names {name!r} and {reason}",
        remedy=remedy,
        installed=False,
    )


def _configured(entry: ProviderEntry, active: str, chosen: Sequence[Found]) -> ProviderEntry:
    """Say of the configured provider that it is the one, where its state alone does not."""
    names = {place.name for place in chosen} | {active}
    if entry.name in names and entry.reason == _NOT_INSTALLED:
        return replace(entry, reason=f"memory.provider names it, and {_NOT_INSTALLED}")
    return entry


def _probed(
    entry: ProviderEntry,
    active: str,
    home: HermesHome,
    control: LoadControl,
    points: Iterable[importlib.metadata.EntryPoint] | None,
) -> ProviderEntry:
    """The active provider after a try: it loads, and says that it can run here."""
    try:
        provider = load_provider(active, home, control, points).factory()
    except (ProviderUnavailable, ProviderNotFound) as exc:
        return entry.failed(exc, "unavailable")
    except ProviderError as exc:
        return entry.failed(exc)
    ask = getattr(provider, "is_available", None)
    answer = attempt(ask) if callable(ask) else True
    if isinstance(answer, Failure):
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
