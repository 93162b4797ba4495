"""`hermes-memory extensions`: the packages that add commands, importers, engines, indexes or checks."""

from __future__ import annotations

import difflib
import sys

import click

from hermes_core.cli import Failure, Group, extensions_of, home_of
from hermes_core.cli.output import finish, json_option, print_document, print_table
from hermes_core.cli.setup import install
from hermes_core.config import load_config
from hermes_core.loader.extensions import missing_extensions
from hermes_core.packages import KNOWN_EXTENSIONS


@click.group("extensions", cls=Group, invoke_without_command=True)
@json_option
@click.pass_context
def extensions(ctx: click.Context, as_json: bool) -> None:
    """List the extensions: name, version, what each adds, its state and the reason for it.

    Those of this project that are not installed are listed too. Exits with 3 if one that is installed does not work, if
    one of its commands is left out, and if a list in config.yaml names none that is there.
    """
    if ctx.invoked_subcommand is not None:
        return
    load_config(home_of(ctx))  # raises if the lists in config.yaml can't be read
    loaded = extensions_of(ctx)
    entries = sorted([*loaded.found, *missing_extensions(loaded)], key=lambda entry: entry.name)
    if as_json:
        print_document([entry.to_dict() for entry in entries])
    else:
        rows = [
            (entry.name, entry.version, _additions(entry.name, entry.adds), entry.state, _reason(entry))
            for entry in entries
        ]
        print_table("", ("name", "version", "adds", "state", "reason"), rows, "No extension is installed.")
    finish(ctx, loaded.problems())


@extensions.command("install")
@click.argument("name")
@click.pass_context
def install_extension(ctx: click.Context, name: str) -> None:
    """Install the extension NAME of this project from the place that this program was installed from."""
    known = KNOWN_EXTENSIONS.get(name.casefold().removeprefix("hermes-memory-"))
    if known is None:
        close = difflib.get_close_matches(name, KNOWN_EXTENSIONS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(KNOWN_EXTENSIONS))}"
        raise Failure(f"{name!r} is no extension of this project; {hint}")
    install(home_of(ctx), f"the extension {name!r}", [known.distribution], ask=sys.stdin.isatty())
    click.echo(f"{known.distribution} is installed")


def _additions(name: str, hooks: tuple[str, ...]) -> str:
    """Return what an extension adds in words: the line that we know of it, else the names of its hooks."""
    known = KNOWN_EXTENSIONS.get(name)
    return known.about if known else ", ".join(hooks)


def _reason(entry: object) -> str:
    parts = (getattr(entry, "reason", ""), getattr(entry, "remedy", ""))
    return "; ".join(part for part in parts if part)
