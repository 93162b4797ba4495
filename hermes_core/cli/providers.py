"""`hermes-memory providers`, and the commands that the active provider brings."""

from __future__ import annotations

import click

from hermes_core.cli import Failure, Group, home_of
from hermes_core.cli.output import finish, json_option, print_json, print_table
from hermes_core.cli.template import new
from hermes_core.home import HermesHome
from hermes_core.loader.hermes_agent.registration import run_host_command
from hermes_core.loader.load import LoadedProvider
from hermes_core.manager.providers import register_commands
from hermes_core.memory import open_memory
from hermes_core.safety.terminal import printable
from hermes_core.setup.candidate import load

_HIDDEN = ("shadowed", "blocked")


@click.group(cls=Group, invoke_without_command=True)
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
        for line in (f"{entry.name}: {note}" for entry in shown for note in entry.notes):
            click.echo(printable(line))
    finish(ctx, problems)


providers.add_command(new)


def provider_commands(home: HermesHome, name: str) -> click.Command:
    """The commands of the active provider under its name. Raises `ProviderError` if it does not load."""
    loaded = load(home, name)
    if loaded.entry.kind == "hermes_agent":
        return _handed_on(loaded, home, name)
    group = Group(name, help=f"Commands of the memory provider {name!r}.")
    told = register_commands(loaded.factory, name, group)
    if told.status in ("failed", "late"):
        raise Failure(f"provider {name!r} has no commands: {told.error}")
    return group


def _handed_on(loaded: LoadedProvider, home: HermesHome, name: str) -> click.Command:
    """A command that hands all words behind it to the argparse parsers of a provider written for Hermes Agent."""

    def run(words: tuple[str, ...]) -> None:
        click.get_current_context().exit(run_host_command(loaded.factory(), home, name, words))

    return click.Command(
        name,
        callback=run,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        add_help_option=False,
    )
