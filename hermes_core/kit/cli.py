"""Help for the commands of providers and extensions: shared options, the home to work on, questions and printing."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO, TypeVar

import click
from msgspec import Struct, field

from hermes_core.config.schema import checked
from hermes_core.contract.values import Field, Session
from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome
from hermes_core.kit.text import fold_space, plain
from hermes_core.safety.redact import redact_errors, redact_value
from hermes_core.safety.terminal import json_line, printable

__all__ = [
    "OldNames",
    "WholeNumber",
    "command_home",
    "confirm",
    "has_yes",
    "home_session",
    "json_flag",
    "json_option",
    "limit_option",
    "open_provider",
    "print_facts",
    "print_json",
    "print_json_lines",
    "print_rows",
    "wants_json",
    "without_json",
    "words_argument",
    "yes_option",
]

Row = TypeVar("Row")
Callback = TypeVar("Callback", bound=Callable[..., Any])

_DOCUMENT = "hermes_core.document"
"""Key in the context of the document that a command with `--json` prints."""

_YES = "hermes_core.yes"
"""Key in the context: the person gave `--yes`."""

_JSON_HELP = "Print JSON for programs."


class OldNames(click.Option):
    """Option that still answers to earlier names, which help does not show.

    Args:
        old: The earlier names, such as ("--since",).
    """

    def __init__(self, *args: Any, old: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.old = tuple(old)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add the option under all of its names."""
        shown, self.opts = self.opts, [*self.opts, *self.old]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class WholeNumber(click.IntRange):
    """Type of an option or argument: a whole number within bounds, which is checked as a setting is."""

    def __init__(self, minimum: int | None = None, maximum: int | None = None) -> None:
        super().__init__(minimum, maximum)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail with what it must be."""
        try:
            return checked(Field("it", int, minimum=self.min, maximum=self.max), value)
        except ConfigError as exc:
            self.fail(exc.message, param, ctx)


class _Document(Struct):
    """The JSON document of a command: where it goes, what the command printed as text, and if it was printed."""

    stream: TextIO
    text: io.StringIO = field(default_factory=io.StringIO)
    printed: bool = False


def reserve_output(ctx: click.Context, parameter: click.Parameter, chosen: bool) -> bool:
    """Leave standard output to the document until the command ends.

    What else is printed there goes to standard error; if the program gave the command its `--json`, into the document.
    """
    # Several options of one command may have this callback.
    if chosen and not ctx.resilient_parsing and _DOCUMENT not in ctx.meta:
        document = ctx.meta[_DOCUMENT] = _Document(sys.stdout)
        other = sys.stderr if parameter.expose_value else document.text
        ctx.with_resource(contextlib.redirect_stdout(other))
    return chosen


json_option = click.option("--json", "as_json", is_flag=True, callback=reserve_output, help=_JSON_HELP)
json_flag = click.option(
    "--json", "as_json", is_flag=True, expose_value=False, callback=reserve_output, help=_JSON_HELP
)
words_argument = click.argument("words", nargs=-1, required=True)


def without_json(reason: str) -> Callable[[Callback], Callback]:
    """Mark a command as one that has no `--json`, and say why. Without the mark, the program adds the option."""

    def mark(callback: Callback) -> Callback:
        callback.without_json = reason  # type: ignore[attr-defined]
        return callback

    return mark


def wants_json() -> bool:
    """Return True if the command that runs was given `--json`."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and _DOCUMENT in ctx.meta


def end_document(ctx: click.Context) -> None:
    """Print the lines of a command that was given `--json`: as its document, or beside it on standard error."""
    document: _Document | None = ctx.meta.pop(_DOCUMENT, None)
    if document is None:
        return
    if not document.printed:
        print_json({"output": document.text.getvalue().splitlines()})
    elif text := document.text.getvalue():
        click.echo(text, err=True, nl=False)


def _agree(ctx: click.Context, parameter: click.Parameter, chosen: bool) -> None:
    del parameter
    ctx.meta[_YES] = chosen


yes_option = click.option(
    "-y", "--yes", is_flag=True, expose_value=False, callback=_agree, help="Do not ask."
)


def has_yes() -> bool:
    """Return True if the command that runs was given `--yes`."""
    return bool(click.get_current_context().meta.get(_YES))


def confirm(question: str) -> None:
    """Ask, and end the command unless the person agrees. `--yes`, which `yes_option` adds, agrees without a question."""
    if has_yes():
        return
    try:
        click.confirm(question, abort=True, err=wants_json())
    except click.Abort as exc:
        if not isinstance(exc.__context__, EOFError):
            raise
        click.echo(err=wants_json())
        raise click.ClickException(
            "the question was left without an answer; answer it, or give --yes"
        ) from exc


def command_home(context: click.Context) -> HermesHome:
    """Return the home that `--home` and `--profile` before the command name, else the home of the environment.

    Raises `ConfigError` for a profile name that could leave the home.
    """
    options = context.find_root().params
    return HermesHome.resolve(options.get("home"), options.get("profile"))


def limit_option(default: int = 20, maximum: int = 1_000_000) -> Callable[[Any], Any]:
    """Return the option `-n` or `--limit`, which arrives as the argument `limit`."""
    kind = WholeNumber(1, maximum)
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
        click.echo("Nothing was found.", err=True)


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
    text = json.dumps(redact_errors(plain(value)), ensure_ascii=False, indent=None if compact else 2)
    ctx = click.get_current_context(silent=True)
    document: _Document | None = ctx.meta.get(_DOCUMENT) if ctx is not None else None
    if document is not None:
        document.printed = True
    click.echo(json_line(text), file=None if document is None else document.stream)


def print_json_lines(values: Iterable[Any]) -> None:
    """Print a JSON document on a line of its own for each value, as they come."""
    ctx = click.get_current_context(silent=True)
    if ctx is not None and _DOCUMENT in ctx.meta:
        ctx.meta[_DOCUMENT].printed = True  # also if there is no value
    for value in values:
        print_json(value, compact=True)


def _for_people(value: Any) -> str:
    """Return a value for people: an object as its names and values, with nested objects in brackets."""
    if not isinstance(value, Mapping):
        return str(value)
    parts = {n: f"({_for_people(v)})" if isinstance(v, Mapping) else str(v) for n, v in value.items()}
    return ", ".join(f"{name} {part}" for name, part in parts.items())
