"""Requirements of a provider: packages in the right versions, and programs."""

from __future__ import annotations

import importlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import importlib_metadata

if TYPE_CHECKING:
    from packaging.markers import Marker

from hermes_core.errors import SetupFailed
from hermes_core.loader.discover import ExternalTool

# Some providers bring a model's runtime of several hundred megabytes.
INSTALL_TIMEOUT_S = 900.0

CHECK_TIMEOUT_S = 5.0


def missing_packages(requires: Iterable[str]) -> list[str]:
    """Return the requirements that this environment does not meet. Markers are honoured.

    >>> missing_packages(["pluggy>=1", "pluggy<0.1", "not-there-at-all", "x; python_version < '3'"])
    ['pluggy<0.1', 'not-there-at-all']
    """
    return [need for need in requires if not _is_met(need)]


def extra_requirements(distribution: str, extras: Collection[str]) -> list[str]:
    """Return the requirements of these extras, [] if the distribution is not installed as a package."""
    from packaging.requirements import Requirement

    try:
        listed = importlib_metadata.requires(distribution) if distribution and extras else None
    except importlib_metadata.PackageNotFoundError:
        return []
    wanted = [Requirement(need) for need in listed or ()]
    wanted = [one for one in wanted if one.marker and _is_of(one.marker, extras)]
    for one in wanted:
        one.marker = None
    return [str(one) for one in wanted]


def install_command(packages: Sequence[str]) -> list[str]:
    """Return the command that installs into this environment: uv if it is there, else pip."""
    uv = shutil.which("uv")
    # Environments that uv made have no pip.
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable, *packages]
    return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]


def install_packages(packages: Sequence[str]) -> None:
    """Install the requirements. Raises `SetupFailed` with the last lines of the installer, or if one is still missing."""
    command = install_command(packages)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise SetupFailed(
            f"can't install {', '.join(packages)}: {exc}", f"run: {shlex.join(command)}"
        ) from exc
    # The import system remembers which files were missing before the installation.
    importlib.invalidate_caches()
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        last = " ".join(words[-2:])[:400] if words else f"exit code {done.returncode}"
        raise SetupFailed(f"can't install {', '.join(packages)}: {last}", f"run: {shlex.join(command)}")
    # An installer may succeed and still install into another environment.
    left = missing_packages(packages)
    if left:
        raise SetupFailed(
            f"{', '.join(left)} was installed and is not found", f"look at it: {shlex.join(command)}"
        )


def missing_tools(tools: Iterable[ExternalTool]) -> list[ExternalTool]:
    """Return the programs whose check fails here."""
    return [tool for tool in tools if not _is_there(tool)]


def _is_met(need: str) -> bool:
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


def _is_of(marker: Marker, extras: Collection[str]) -> bool:
    """Return True if one of the extras meets the marker, and no extra does not."""
    return not marker.evaluate({"extra": ""}) and any(marker.evaluate({"extra": one}) for one in extras)


def _is_there(tool: ExternalTool) -> bool:
    command = shlex.split(tool.check) if tool.check else [tool.name]
    if not command or shutil.which(command[0]) is None:
        return False
    if not tool.check:
        return True
    try:
        done = subprocess.run(command, capture_output=True, timeout=CHECK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
