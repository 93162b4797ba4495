"""What a provider needs beside itself: packages in the versions that it asks for, and programs."""

from __future__ import annotations

import importlib
import importlib.metadata
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement

from hermes_core.errors import SetupFailed
from hermes_core.loader.discover import ExternalTool

INSTALL_TIMEOUT = 900.0
"""Seconds that an installation may take: some providers bring a model's runtime."""

CHECK_TIMEOUT = 5.0


def missing_packages(requires: Iterable[str]) -> list[str]:
    """The requirements that this environment does not meet: absent, or in another version. Markers are honoured.

    >>> missing_packages(["pluggy>=1", "pluggy<0.1", "not-there-at-all", "x; python_version < '3'"])
    ['pluggy<0.1', 'not-there-at-all']
    """
    return [need for need in requires if not _is_met(need)]


def extra_requirements(distribution: str, extras: Collection[str]) -> list[str]:
    """What these extras of an installed distribution ask for; [] for one that is not installed by a package manager."""
    try:
        listed = importlib.metadata.requires(distribution) if distribution and extras else None
    except importlib.metadata.PackageNotFoundError:
        return []
    wanted = [Requirement(need) for need in listed or ()]
    wanted = [one for one in wanted if one.marker and _is_of(one.marker, extras)]
    for one in wanted:
        one.marker = None
    return [str(one) for one in wanted]


def install_command(packages: Sequence[str]) -> list[str]:
    """The command that installs into this very environment: uv where it is there, else pip."""
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable, *packages]
    return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]


def install(packages: Sequence[str]) -> None:
    """Install the requirements. Raises `SetupFailed` with the last words of the installer, or for what is still missing."""
    command = install_command(packages)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise SetupFailed(
            f"can't install {', '.join(packages)}: {exc}", f"run: {shlex.join(command)}"
        ) from exc
    importlib.invalidate_caches()
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        last = " ".join(words[-2:])[:400] if words else f"exit code {done.returncode}"
        raise SetupFailed(f"can't install {', '.join(packages)}: {last}", f"run: {shlex.join(command)}")
    left = missing_packages(packages)
    if left:
        raise SetupFailed(
            f"{', '.join(left)} was installed and is not found", f"look at it: {shlex.join(command)}"
        )


def missing_tools(tools: Iterable[ExternalTool]) -> list[ExternalTool]:
    """The programs whose check does not work here."""
    return [tool for tool in tools if not _is_there(tool)]


def _is_met(need: str) -> bool:
    try:
        requirement = Requirement(need)
    except InvalidRequirement:
        return False
    if requirement.marker and not requirement.marker.evaluate():
        return True
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


def _is_of(marker: Marker, extras: Collection[str]) -> bool:
    """Whether the marker is met by one of the extras, and not without them."""
    return not marker.evaluate({"extra": ""}) and any(marker.evaluate({"extra": one}) for one in extras)


def _is_there(tool: ExternalTool) -> bool:
    command = shlex.split(tool.check) if tool.check else [tool.name]
    if not command or shutil.which(command[0]) is None:
        return False
    if not tool.check:
        return True
    try:
        done = subprocess.run(command, capture_output=True, timeout=CHECK_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
