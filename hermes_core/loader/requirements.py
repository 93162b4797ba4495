"""The packages that a provider names, and which of them this environment lacks."""

from __future__ import annotations

from collections.abc import Iterable

import importlib_metadata


def missing_packages(requires: Iterable[str]) -> list[str]:
    """Return the requirements that this environment does not meet. Markers are honoured.

    >>> missing_packages(["pluggy>=1", "pluggy<0.1", "not-there-at-all", "x; python_version < '3'"])
    ['pluggy<0.1', 'not-there-at-all']
    """
    return [need for need in requires if not _is_met(need)]


def _is_met(need: str) -> bool:
    # Here, since most listings ask for no package.
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(need)
    except InvalidRequirement:
        return False
    if requirement.marker and not requirement.marker.evaluate():
        return True
    try:
        version = importlib_metadata.version(requirement.name)
    except importlib_metadata.PackageNotFoundError:
        return False
    # A person who installed a pre-release wants it to count.
    return requirement.specifier.contains(version, prereleases=True)
