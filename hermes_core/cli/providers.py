"""`hermes providers`, and the commands that the active provider brings."""

from __future__ import annotations

import click

from hermes_core.cli import Failure, home_of
from hermes_core.cli.output import finish, json_option, print_json, print_table
from hermes_core.cli.template import new
from hermes_core.home import HermesHome
from hermes_core.loader.load import load_provider
from hermes_core.manager.commands import register_commands
from hermes_core.memory import open_memory

_HIDDEN = ("shadowed", "blocked")


@click.group(invoke_without_command=True)
@click.option("--all", "show_all", is_flag=True, help="Also those that are shadowed or blocked.")
@json_option
@click.pass_context
def providers(ctx: click.Context, show_all: bool, as_json: bool) -> None:
    """List the memory providers that are installed, with their state and its reason.

    Only the active provider is imported. Exits with 3 when the configured one does not work.
    """
    if ctx.invoked_subcommand is not None:
        return
    with open_memory(home_of(ctx)) as memory:
        entries, problems = memory.providers(), memory.problems()
    shown = [entry for entry in entries if show_all or entry.state not in _HIDDEN]
    if as_json:
        print_json(shown)
    else:
        rows = [(e.name, e.state, e.version, e.source, e.reason) for e in shown]
        print_table("", ("name", "state", "version", "source", "reason"), rows, "No provider is installed.")
    finish(ctx, problems)


providers.add_command(new)


def provider_commands(home: HermesHome, name: str) -> click.Group:
    """The commands of the active provider as a group of its name. Raises `ProviderError` if it does not load."""
    group = click.Group(name, help=f"Commands of the memory provider {name!r}.")
    told = register_commands(load_provider(name, home).factory, name, group)
    if told.status in ("failed", "late"):
        raise Failure(f"provider {name!r} has no commands: {told.error}")
    return group
