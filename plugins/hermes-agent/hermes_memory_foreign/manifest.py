"""What plugin.yaml and an entry of a catalog say of a plugin: the host and systems it runs on, and what it declares."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

CONTRACT_VERSION = "0.21.6"
"""The version of Hermes Agent whose contract is spoken here."""

CONTRACT_DATE = "2026.11.20"

CONTRACT_MONTH = "2026-11"
"""The month of that contract, for which `contracts/` has the data."""

_SYSTEMS = {
    **dict.fromkeys(("linux", "gnu/linux"), "linux"),
    **dict.fromkeys(("macos", "darwin", "mac", "osx"), "darwin"),
    **dict.fromkeys(("windows", "win32", "win"), "win32"),
}
# Lists of names that a plugin declares, in plugin.yaml itself or below `capabilities`.
_DECLARED = {
    "tools": ("provides_tools",),
    "hooks": ("provides_hooks", "hooks"),
    "middleware": ("provides_middleware",),
    "variables": ("requires_env",),
}


def refusal_of(manifest: Mapping[str, Any]) -> str:
    """Return why a plugin can't run in this host or on this system, as the end of a sentence; "" if it can.

    >>> refusal_of({"requires_hermes": ">=99"})
    'needs Hermes Agent >=99, and the contract spoken here is that of 0.21.6'
    """
    wanted = str(manifest.get("requires_hermes") or "").strip()
    try:
        # A development version of the host counts as the release that it becomes.
        fits = not wanted or SpecifierSet(wanted).contains(CONTRACT_VERSION, prereleases=True)
    except InvalidSpecifier:
        fits = True  # `manifest_notes` names it
    if not fits:
        return f"needs Hermes Agent {wanted}, and the contract spoken here is that of {CONTRACT_VERSION}"
    systems = _names(manifest.get("platforms"))
    if systems and sys.platform not in [_SYSTEMS.get(name.lower(), name.lower()) for name in systems]:
        return f"runs on {', '.join(systems)}, and this is {sys.platform}"
    return ""


def declared_words(manifest: Mapping[str, Any]) -> str:
    """Return the tools, hooks, variables and capabilities that a plugin declares, "" if it declares none."""
    words = [
        f"{label} {', '.join(names)}"
        for label, names in ((label, declared(manifest, label)) for label in _DECLARED)
        if names
    ]
    if held := _names(manifest.get("capabilities")):
        words.append(f"capabilities {', '.join(held)}")
    return "; ".join(words)


def declared(manifest: Mapping[str, Any], label: str) -> list[str]:
    """Return the declared names of one kind: tools, hooks, middleware or variables."""
    within = manifest.get("capabilities")
    places = [manifest, within] if isinstance(within, Mapping) else [manifest]
    names = [name for place in places for key in _DECLARED[label] for name in _names(place.get(key))]
    return list(dict.fromkeys(names))


def manifest_notes(manifest: Mapping[str, Any], tools: list[str], hooks: list[str]) -> tuple[str, ...]:
    """Return a sentence for each part of plugin.yaml that does not fit what the plugin registered.

    Args:
        tools: Names of the tools that it registered.
        hooks: Names of the plugin hooks that it registered.
    """
    notes = []
    if wanted := str(manifest.get("requires_hermes") or ""):
        try:
            SpecifierSet(wanted)
        except InvalidSpecifier:
            notes.append(f"requires_hermes of plugin.yaml is no version range: {wanted!r}")
    for label, registered in (("tools", tools), ("hooks", hooks)):
        known = declared(manifest, label)
        # A manifest without such a list declares nothing, as those of the first version.
        if known and (undeclared := [name for name in dict.fromkeys(registered) if name not in known]):
            notes.append(f"it registers {label} that plugin.yaml does not declare: {', '.join(undeclared)}")
    return tuple(notes)


def _names(listed: Any) -> list[str]:
    """Return a list of names, each a text or a mapping with `name` or `id`."""
    if not isinstance(listed, list | tuple):
        return []
    named = [one.get("name") or one.get("id") if isinstance(one, Mapping) else one for one in listed]
    return [name for name in named if isinstance(name, str) and name]
