"""`hermes-memory completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hermes_core.cli import home_of
from hermes_core.errors import HermesError
from hermes_core.loader.catalog import discover_providers


def providers(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """The names of providers that begin so, for `shell_complete`; our own also where they are not installed."""
    del parameter
    try:
        return [entry.name for entry in discover_providers(home_of(ctx)) if entry.name.startswith(begun)]
    except HermesError:
        return []


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands in SHELL.

    For bash, add `eval "$(hermes-memory completion bash)"` to ~/.bashrc; for zsh the same with zsh to ~/.zshrc; for fish, run
    `hermes-memory completion fish > ~/.config/fish/completions/hermes-memory.fish`.
    """
    program = ctx.find_root().info_name or "hermes-memory"
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"no completion for {shell!r}")
    click.echo(script(ctx.find_root().command, {}, program, variable).source())
