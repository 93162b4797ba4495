"""`hermes-memory plugins export`: a folder with which Hermes Agent runs a provider of ours."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import click
import yaml

from hermes_core import HermesHome
from hermes_core.cli import Failure, home_of
from hermes_core.cli.output import print_done
from hermes_core.cli.shell import complete_provider
from hermes_core.home import expanded, folder_fault
from hermes_core.kit import write_atomic
from hermes_core.loader.discover import BUNDLED, EXPORTED, ProviderCandidate, discover, select
from hermes_core.loader.entry_points import normalise
from hermes_core.packages import OWN_PACKAGES, install_words
from hermes_core.storage.files import ensure_folder
from hermes_memory_foreign.export import host_name

HOST = "hermes-agent"
EXTENSION = "hermes-memory-hermes-agent"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

_ENTRY = '''\
"""The MemoryProvider "{name}" of hermes_core, for Hermes Agent. Written by `hermes-memory plugins export {name}`."""

import logging


def register(ctx):
    """Enter Hermes Agent; without the package there is a line in its log and no provider."""
    try:
        from hermes_core import register_in_hermes_agent
    except ImportError as exc:
        logging.getLogger(__name__).warning("%s; in this environment run: %s", exc, {install!r})
        return
    register_in_hermes_agent(ctx, "{name}", host_name="{called}")
'''

_COMMANDS = '''\
"""`hermes {called} ...` of Hermes Agent: the provider's own commands. Written by `hermes-memory plugins export {name}`."""


def register_cli(subparser):
    """Add the commands."""
    from hermes_core.cli.export import hand_on_commands

    hand_on_commands(subparser, "{name}", "{called}")
'''


@click.command()
@click.argument("name", shell_complete=complete_provider)
@click.option(
    "--to",
    "home",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="The home of Hermes Agent (default: the HERMES_HOME in use).",
)
@click.option("--as", "called", metavar="NAME", default="", help="Its name there (default: core-NAME).")
@click.pass_context
def export(ctx: click.Context, name: str, home: str | None, called: str) -> None:
    """Let Hermes Agent use the provider NAME: write the folder `plugins/core-NAME` into its home.

    The folder holds no code of the provider: its package must be installed in the environment of Hermes Agent too, and
    `memory.provider` of its config.yaml must name it. A folder that was exported before is written anew; any other is
    left alone.
    """
    place = _place(home_of(ctx), name)
    title = called or host_name(place.name)
    if not _NAME.fullmatch(title) or folder_fault(title):
        raise Failure(f"{title!r} can't be a provider's name; use letters, digits, '-' and '_'")
    if title in BUNDLED:
        raise Failure(f"Hermes Agent has a provider {title!r} of its own, which it would use; choose another")
    root = expanded(home).absolute() if home else home_of(ctx).path
    folder = root / "plugins" / title
    if folder.exists() and not _is_export(folder):
        raise Failure(f"{str(folder)!r} is there and is no export; remove it, or choose a name with --as")
    ensure_folder(folder)
    for file, text in _files(place, title):
        write_atomic(folder / file, text.encode())
    lines = (
        f"wrote {folder}",
        f"in the environment of Hermes Agent: {_install_command(place)}",
        f"in {root / 'config.yaml'}: memory.provider: {title}",
    )
    print_done("\n".join(lines), path=folder)


def forward_commands(parser: argparse.ArgumentParser, name: str, called: str) -> None:
    """Let the parser of Hermes Agent forward the arguments after the provider's name to the provider's own commands."""

    def run(options: argparse.Namespace) -> None:
        from hermes_core.cli.providers import provider_commands
        from hermes_memory_foreign.export import host_home

        home = host_home()
        with home.asking():
            provider_commands(home, name).main(options.words, prog_name=f"hermes {called}")

    parser.add_argument("words", nargs=argparse.REMAINDER, help="a command and its options")
    parser.set_defaults(func=run)


def _place(home: HermesHome, name: str) -> ProviderCandidate:
    """Return the installed package of one of our providers. Raises `Failure` if it can't be exported."""
    found = select(discover(home), name)
    if not found:
        raise Failure(f"no installed provider is called {name!r}; 'hermes-memory providers' lists them")
    place = found[0]
    if place.kind != "native":
        raise Failure(f"{name!r} was written for Hermes Agent; install it there as its page says")
    if not place.distribution:
        raise Failure(
            f"{name!r} is a folder; make it a package, so that Hermes Agent's environment can have it"
        )
    return place


def _is_export(folder: Path) -> bool:
    try:
        manifest = yaml.safe_load((folder / "plugin.yaml").read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, yaml.YAMLError):
        return False
    return isinstance(manifest, dict) and manifest.get(EXPORTED) == HOST


def _files(place: ProviderCandidate, called: str) -> Iterator[tuple[str, str]]:
    words = {"name": place.name, "called": called, "install": _install_command(place)}
    manifest = {
        "name": called,
        "kind": "exclusive",  # one of its kind is active, chosen by memory.provider
        "version": place.version,
        "description": place.description,
        # Hermes Agent would ask a public index for a package that is on none.
        "pip_dependencies": [] if _is_own(place) else [place.distribution],
        EXPORTED: HOST,
    }
    yield "__init__.py", _ENTRY.format(**words)
    yield "cli.py", _COMMANDS.format(**words)
    yield "plugin.yaml", yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True)


def _is_own(place: ProviderCandidate) -> bool:
    return normalise(place.distribution) in OWN_PACKAGES


def _install_command(place: ProviderCandidate) -> str:
    """Return the command that installs the provider, this program and this extension into another environment."""
    words = install_words(normalise(place.distribution)) if _is_own(place) else place.distribution
    core = install_words("hermes-memory-core")
    return f"pip install {core} {install_words(EXTENSION)} {words}"
