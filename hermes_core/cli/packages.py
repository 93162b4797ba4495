"""`hermes-memory providers install` and `uninstall`: Python packages, in the environment that runs this program."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import importlib_metadata
from msgspec import Struct

from hermes_core.cli import Failure, home_of
from hermes_core.cli.output import json_option, print_document, warn
from hermes_core.cli.setup import install
from hermes_core.cli.shell import complete_provider
from hermes_core.config import load_config
from hermes_core.home import HermesHome, expanded
from hermes_core.kit.cli import confirm, yes_option
from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.discover import BUNDLED, ProviderEntry, discover, select
from hermes_core.loader.entry_points import normalise
from hermes_core.packages import direct_url
from hermes_core.safety.redact import looks_like_key
from hermes_core.safety.terminal import printable
from hermes_core.setup.installer import NO_INSTALLER_REMEDY, is_own, pipx_environment

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Installer(Struct, frozen=True):
    """The program that installs. `command` comes before the verb, `options` after it."""

    name: str
    command: tuple[str, ...]
    options: tuple[str, ...] = ()

    def run(self, verb: str, *words: str) -> bool:
        """Run it with its output on standard error. Return True if it succeeded."""
        if self.name == "pipx":
            verb = {"install": "inject", "uninstall": "uninject"}[verb]
            words = tuple("--force" if word == "--upgrade" else word for word in words)
        done = subprocess.run([*self.command, verb, *self.options, *words], stdout=sys.stderr, check=False)
        return done.returncode == 0


@click.command("install")
@click.argument("packages", nargs=-1, required=True)
@click.option("-e", "--editable", is_flag=True, help="Use the code of a folder in place, to work on it.")
@click.option("-U", "--upgrade", is_flag=True, help="Take the newest version of what is installed already.")
@json_option
@click.pass_context
def install_packages(
    ctx: click.Context, packages: tuple[str, ...], editable: bool, upgrade: bool, as_json: bool
) -> None:
    """Install PACKAGES: names on your package index, our own providers' short names, or paths of folders and wheels.

    Our own packages are on no public index: they come from the checkout or the folder of wheels that this program was
    installed from, or from the places that packages.find_links and packages.index name. pip does it, or uv where there is no pip, in the environment that runs hermes; what it says goes to standard error.
    Then the providers that are available now are listed. The active provider stays the one that it was. Exits with 1
    when the packages could not be installed, and when they offer no memory provider.
    """
    home = home_of(ctx)
    before, hosted = provider_entries(home), _has_hermes_agent()
    if any(
        looks_like_key(name) for name in packages if "/" not in name
    ):  # the installer prints names, and asks an index for them
        raise Failure(
            "one of the packages looks like a key; write the names of packages, and nothing was installed"
        )
    wanted = [_requirement(package) for package in packages]
    for package in filter(is_own, wanted):
        install(home, "this command", [package], ask=sys.stdin.isatty())
    options = ["--upgrade"] if upgrade else []
    others = [package for package in wanted if not is_own(package)]
    named = [word for one in others for word in (["--editable", one] if editable else [one])]
    installer = find_installer()
    if named and not installer.run("install", *options, *named):
        raise Failure(f"{installer.name} did not install {', '.join(wanted)}; it says why above")
    now = _brought(before, provider_entries(home), wanted)
    if not hosted and _has_hermes_agent():
        warn(
            [
                "hermes-agent was installed as a requirement, and the command hermes is now its own; this program is "
                "hermes-memory, and its providers do not need hermes-agent"
            ]
        )
    if as_json:
        print_document(now)
    for entry in () if as_json else now:
        click.echo(printable(f"{entry.name} {entry.version} ({entry.distribution}): {entry.state}"))
    if not now:
        raise Failure(
            f"installed, but no memory provider came with {', '.join(wanted)}; "
            f"{installer.name} uninstall removes it"
        )
    if not as_json and (idle := [entry.name for entry in now if entry.state == "idle"]):
        click.echo(f"hermes-memory memory use {idle[0]} makes it the active one")


@click.command("uninstall")
@click.argument("name", shell_complete=complete_provider)
@yes_option
@click.pass_context
def uninstall_package(ctx: click.Context, name: str) -> None:
    """Remove the package of the provider NAME; its data stays. The active provider is not removed."""
    home = home_of(ctx)
    package = _package_of(home, name)
    offered = sorted(
        {one.name for one in provider_entries(home) if normalise(one.distribution) == normalise(package)}
    )
    for active in load_config(home).selected_providers:
        if {place.name for place in select(discover(home), active)} & set(offered):
            raise Failure(f"{active!r} is the active provider; run 'hermes-memory memory off' first")
    confirm(f"Remove {package} (providers: {', '.join(offered)})?")
    installer = find_installer()
    answer_yes = ["--yes"] if installer.name == "pip" else []
    if not installer.run("uninstall", *answer_yes, package):
        raise Failure(f"{installer.name} did not remove {package}; it says why above")
    click.echo(f"{package} is removed; its data stays where it is")


def find_installer() -> Installer:
    """Return pip of the environment that runs this program, else uv or pipx for it. Raises `Failure` if there is none."""
    # pip comes first because it has the person's own settings (index, proxy).
    if importlib.util.find_spec("pip") is not None:
        command = (sys.executable, "-P", "-m", "pip", "--disable-pip-version-check")
        return Installer("pip", command)
    if uv := shutil.which("uv"):
        return Installer("uv", (uv, "pip"), ("--python", sys.executable))
    if pipx := pipx_environment():
        return Installer("pipx", pipx[:1], pipx[1:])
    raise Failure(f"the environment of {sys.executable!r} has no installer; {NO_INSTALLER_REMEDY}")


def provider_entries(home: HermesHome) -> list[ProviderEntry]:
    """Return the catalog as it is on disk now. Nothing is imported."""
    # The installer ran in another process, so the caches of this one are stale.
    importlib.invalidate_caches()
    return discover_providers(home, active=load_config(home).selected_providers)


def _has_hermes_agent() -> bool:
    importlib.invalidate_caches()
    return next(iter(importlib_metadata.distributions(name="hermes-agent")), None) is not None


def _requirement(package: str) -> str:
    """Return the requirement for the installer: an absolute path, our own provider's distribution, or the text."""
    path = expanded(package)
    is_path = path.exists() and (path.suffix == ".whl" or path.is_dir() or path.name.endswith(".tar.gz"))
    if is_path:
        return str(path.absolute())
    if package.startswith((".", "/", "~")):
        raise Failure(f"{package!r} is not there; give the folder of a package, or a wheel")
    return BUNDLED.get(package.casefold(), package)


def _brought(
    before: Sequence[ProviderEntry], after: Iterable[ProviderEntry], wanted: Sequence[str]
) -> list[ProviderEntry]:
    """Return the providers that are new or of another version, and those of the requested packages."""
    known = {(entry.name, entry.distribution, entry.version) for entry in before if entry.installed}
    named = {normalise(match[0]) for one in wanted if (match := _NAME.match(one))}
    places = {Path(one).as_uri() for one in wanted if Path(one).is_absolute()}
    return [
        entry
        for entry in after
        if entry.installed
        and (
            (entry.name, entry.distribution, entry.version) not in known
            or normalise(entry.distribution) in named
            or direct_url(entry.distribution).get("url", "") in places
        )
    ]


def _package_of(home: HermesHome, name: str) -> str:
    """Return the distribution of a provider, also if its own name is given. Raises `Failure` if there is none."""
    installed = [entry for entry in provider_entries(home) if entry.installed]
    by_name = [entry for entry in installed if entry.name.casefold() == name.casefold()]
    found = by_name or [entry for entry in installed if normalise(entry.distribution) == normalise(name)]
    if not found:
        raise Failure(f"no installed provider is called {name!r}; 'hermes-memory providers' shows them")
    if not found[0].distribution:
        raise Failure(
            f"{name!r} is the folder {found[0].path} and no package; run: hermes-memory plugins remove {name}"
        )
    return found[0].distribution
