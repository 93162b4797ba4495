"""Installation of packages: our own from a wheel, a checkout or a configured index, others from the person's index."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import importlib_metadata
from msgspec import Struct

from hermes_core.config import load_config
from hermes_core.errors import SetupFailed
from hermes_core.home import HermesHome, expanded
from hermes_core.loader.discover import BUNDLED
from hermes_core.loader.requirements import missing_packages
from hermes_core.packages import OWN_PACKAGES, find_package
from hermes_core.safety.redact import redact
from hermes_core.shell_words import shell_line

# Some providers bring a model's runtime of several hundred megabytes.
INSTALL_TIMEOUT_S = 900.0

# Settings that add further indexes: a package of ours must come from no other place than the configured one.
_INDEX_VARIABLES = (
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_INDEX",
    "UV_INDEX_URL",
)


NO_INSTALLER_REMEDY = f"run: {shell_line((sys.executable, '-m', 'ensurepip'))}; or install uv"


class InstallStep(Struct, frozen=True):
    """Packages that one call of the installer installs.

    Attributes:
        packages: Requirements.
        words: What the installer gets for them: options, paths and requirements.
        origin: Where they come from, for people.
        environment: Variables of the installer's process; None for those of this process.
    """

    packages: tuple[str, ...]
    words: tuple[str, ...]
    origin: str
    environment: Mapping[str, str] | None = None

    @property
    def command(self) -> list[str]:
        """The command that runs this step."""
        first = len(self.words) - len(self.packages)
        return install_command(self.words[first:], self.words[:first])

    def run(self) -> None:
        """Install the packages. Raises `SetupFailed` with the last lines of the installer, or if one is still missing."""
        names, command = ", ".join(self.packages), shell_line(self.command)
        try:
            done = subprocess.run(
                self.command,
                capture_output=True,
                text=True,
                errors="replace",  # pip may write in another encoding than the locale's
                timeout=INSTALL_TIMEOUT_S,
                check=False,
                env=self.environment,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise SetupFailed(
                f"can't install {names}: {redact(str(exc))}", f"run: {redact(command)}"
            ) from exc
        # The import system remembers which files were missing before the installation.
        importlib.invalidate_caches()
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()
            last = " ".join(words[-2:])[:400] if words else f"exit code {done.returncode}"
            raise SetupFailed(f"can't install {names}: {redact(last)}", f"run: {redact(command)}")
        # An installer may succeed and still install into another environment.
        left = missing_packages(self.packages)
        if left:
            raise SetupFailed(
                f"{', '.join(left)} was installed and is not found", f"look at it: {redact(command)}"
            )


def install_steps(home: HermesHome, packages: Sequence[str]) -> list[InstallStep]:
    """Return the steps that install these requirements: our own packages first, each from its place.

    Our own packages are installed without their dependencies; `missing_dependencies` returns those.

    Raises:
        SetupFailed: No configured place has one of our packages.
    """
    own = [need for need in packages if is_own(need)]
    others = tuple(need for need in packages if need not in own)
    steps = _own_steps(home, own) if own else []
    return [*steps, InstallStep(others, others, "your package index")] if others else steps


def is_own(need: str) -> bool:
    """Return True if the requirement names a package of this project."""
    return name_of(need) in OWN_PACKAGES | set(BUNDLED.values())


def name_of(need: str) -> str:
    """Return the normalised name of the distribution that a requirement names; "" if it is none."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        return canonicalize_name(Requirement(need).name)
    except InvalidRequirement:
        return ""


def missing_dependencies(packages: Iterable[str]) -> list[str]:
    """Return what installed packages of these requirements need and this environment lacks."""
    from packaging.requirements import Requirement

    missing: list[str] = []
    for need in map(Requirement, packages):
        try:
            needs = importlib_metadata.requires(need.name) or ()
        except importlib_metadata.PackageNotFoundError:
            continue
        for inner in map(Requirement, needs):
            extras = [{"extra": extra} for extra in ("", *need.extras)]
            if inner.marker and not any(map(inner.marker.evaluate, extras)):
                continue
            inner.marker = None
            missing += missing_packages([str(inner)])
    return list(dict.fromkeys(missing))


def install_command(packages: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """Return the command that installs into this environment: of uv if it is there, else of pip, else of pipx.

    Raises `SetupFailed` if there is none of them.
    """
    words = [*options, *packages]
    # Environments that uv made have no pip.
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable, *words]
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    if pipx := pipx_environment():
        of_pip = [f"--pip-args={shlex.join(options)}"] if options else []
        return [pipx[0], "inject", "--quiet", *of_pip, pipx[1], *packages]
    raise SetupFailed(f"the environment of {sys.executable!r} has no installer", NO_INSTALLER_REMEDY)


def pipx_environment() -> tuple[str, str] | None:
    """Return the program pipx and the name of this environment there; None if pipx did not make it or is not here."""
    pipx, place = shutil.which("pipx"), Path(sys.prefix)
    return (pipx, place.name) if pipx and (place / "pipx_metadata.json").is_file() else None


def own_package(home: HermesHome, need: str) -> Path | None:
    """Return the wheel or the source folder of one of our packages; None if only an index may have it.

    Raises:
        SetupFailed: No configured place has it.
    """
    settings = load_config(home).packages
    folders = [expanded(folder) for folder in settings.find_links]
    if (path := find_package(name_of(need), folders)) or settings.index:
        return path
    places = ", ".join(repr(str(folder)) for folder in folders) or "no folder is configured"
    raise SetupFailed(
        f"{name_of(need)!r} is on no public package index, and no wheel of it was found ({places})",
        "name the folder with the wheels: hermes-memory config set packages.find_links DIR; "
        "`make dist` in a clone makes them",
    )


def _own_steps(home: HermesHome, own: Sequence[str]) -> list[InstallStep]:
    index = load_config(home).packages.index
    steps = []
    for need in own:
        path = own_package(home, need)
        if path is not None:
            origin = f"the wheel {str(path)!r}" if path.suffix == ".whl" else f"the checkout {str(path)!r}"
            steps.append(InstallStep((need,), ("--no-deps", str(path)), origin))
        else:
            environment = {k: v for k, v in os.environ.items() if k not in _INDEX_VARIABLES}
            environment |= {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
            words = ("--no-deps", "--index-url", index, need)
            origin = f"the index {redact(index)!r} of packages.index"
            steps.append(InstallStep((need,), words, origin, environment))
    return steps
