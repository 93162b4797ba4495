"""What a provider's own commands need to know of the command line that they were added to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_core.home import HermesHome

if TYPE_CHECKING:
    import click


def command_home(context: click.Context) -> HermesHome:
    """The home that `--home` and `--profile` before the command name, else the environment.

    Raises `ConfigError` for a profile name that could leave the home.
    """
    options = context.find_root().params
    return HermesHome.resolve(options.get("home"), options.get("profile"))
