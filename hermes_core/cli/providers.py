"""`hermes-memory providers`, and the commands that the active provider brings."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hermes_core.cli import Failure, Group
from hermes_core.cli.options import home_to_read
from hermes_core.cli.output import finish, print_result, print_table
from hermes_core.home import FOLDER_PREFIX, HermesHome
from hermes_core.kit.text import clip, fold_space
from hermes_core.loader.discover import ProviderEntry
from hermes_core.loader.foreign import ForeignHost
from hermes_core.loader.load import load_provider
from hermes_core.manager.providers import register_commands
from hermes_core.memory import open_memory
from hermes_core.safety.terminal import printable

# Characters of the line about a provider. Authors write whole paragraphs into a description.
MAX_ABOUT_CHARS = 100

_HIDDEN = ("shadowed", "blocked")


@click.group(
    cls=Group,
    invoke_without_command=True,
    lazy={
        "install": "hermes_core.cli.packages:install_packages",
        "uninstall": "hermes_core.cli.packages:uninstall_package",
    },
)
@click.option("--all", "show_all", is_flag=True, help="Also those that are shadowed or blocked.")
@click.pass_context
def providers(ctx: click.Context, show_all: bool) -> None:
    """List the memory providers that are installed, with their state and its reason.

    Only the active provider is imported. Exits with 3 when the configured one does not work.
    """
    if ctx.invoked_subcommand is not None:
        return
    with home_to_read(ctx) as home, open_memory(home) as memory:
        entries, problems = memory.internals.selection.entries(), memory.problems()
    shown = [entry for entry in entries if show_all or entry.state not in _HIDDEN]
    print_result(shown, lambda: _print_entries(shown))
    finish(ctx, problems)


def _print_entries(entries: Sequence[ProviderEntry]) -> None:
    rows = [(e.name, e.state, e.version, about(e), e.source, e.reason) for e in entries]
    columns = ("name", "state", "version", "about", "source", "reason")
    print_table("", columns, rows, "No provider is installed.")
    for line in (f"{entry.name}: {note}" for entry in entries for note in entry.notes):
        click.echo(printable(line))


def about(entry: ProviderEntry) -> str:
    """Return in one line what a provider is, "" if nothing says it."""
    return clip(fold_space(entry.description), MAX_ABOUT_CHARS)


def provider_commands(home: HermesHome, name: str) -> click.Command:
    """Return the commands of the active provider under its name. Raises `ProviderError` if it does not load."""
    loaded = load_provider(name, home)
    name = name.removeprefix(FOLDER_PREFIX)
    if loaded.entry.kind == "hermes_agent":
        command: click.Command = ForeignHost(home).require(name).commands(loaded.factory, name)
        return command
    group = Group(name, help=f"Commands of the memory provider {name!r}.")
    result = register_commands(loaded.factory, name, group)
    if result.status in ("failed", "late"):
        raise Failure(f"provider {name!r} has no commands: {result.error}")
    return group
