"""Help for the commands of a provider: shared options, the home to work on, and printing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from hermes_core.contract.values import Session
from hermes_core.home import HermesHome
from hermes_core.kit.text import fold_space
from hermes_core.safety.redact import redact_errors, redact_value
from hermes_core.safety.terminal import json_line, printable

__all__ = [
    "command_home",
    "home_session",
    "json_option",
    "limit_option",
    "open_provider",
    "print_facts",
    "print_json",
    "print_rows",
    "words_argument",
]

Row = TypeVar("Row")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
words_argument = click.argument("words", nargs=-1, required=True)


def command_home(context: click.Context) -> HermesHome:
    """Return the home that `--home` and `--profile` before the command name, else the home of the environment.

    Raises `ConfigError` for a profile name that could leave the home.
    """
    options = context.find_root().params
    return HermesHome.resolve(options.get("home"), options.get("profile"))


def limit_option(default: int = 20, maximum: int = 1_000_000) -> Callable[[Any], Any]:
    """Return the option `-n` or `--limit`, which arrives as the argument `limit`."""
    kind = click.IntRange(1, maximum)
    return click.option(
        "-n", "--limit", type=kind, default=default, show_default=True, help="At most this many."
    )


def home_session(context: click.Context) -> Session:
    """Return a session of the person whose home the command line names."""
    home = command_home(context)
    return Session("command-line", identity=home.profile, home=str(home.path))


def open_provider(context: click.Context) -> Session:
    """Open the provider in `context.obj` until the command ends, and return a session of the home's person."""
    context.obj.open(command_home(context).path)
    context.call_on_close(context.obj.shutdown)
    return home_session(context)


def print_rows(rows: Sequence[Row], as_json: bool, line: Callable[[Row], str]) -> None:
    """Print one line for each row, safe for a terminal, or all rows as JSON. Without rows, say so on standard error."""
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(printable(line(row)))
    if not rows:
        click.echo("nothing found", err=True)


def print_facts(facts: Mapping[str, Any], as_json: bool) -> None:
    """Print names and values, one a line or as JSON, without secrets: a value may be an address with a password."""
    facts = {name: redact_value(value) for name, value in facts.items()}
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        click.echo(printable(f"{name.replace('_', ' ')}: {fold_space(_for_people(value))}"))


def print_json(value: Any, *, compact: bool = False) -> None:
    """Print one JSON document on standard output; a dataclass becomes an object, and no script is escaped."""
    text = json.dumps(redact_errors(_plain(value)), ensure_ascii=False, indent=None if compact else 2)
    click.echo(json_line(text))


def _for_people(value: Any) -> str:
    """Return a value for people: an object as its names and values, with nested objects in brackets."""
    if not isinstance(value, Mapping):
        return str(value)
    parts = {n: f"({_for_people(v)})" if isinstance(v, Mapping) else str(v) for n, v in value.items()}
    return ", ".join(f"{name} {part}" for name, part in parts.items())


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
