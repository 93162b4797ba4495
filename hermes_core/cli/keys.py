"""The commands `hermes-memory keys`. No command prints a value."""

from __future__ import annotations

import re
import sys

import click
from msgspec import Struct

from hermes_core.cli import Failure, Group, home_of
from hermes_core.cli.output import finish, print_done, print_result, print_table, warn
from hermes_core.config import Credentials
from hermes_core.kit.cli import json_flag
from hermes_core.safety.redact import looks_like_key

# Larger than any key; a person who pipes a wrong file gets an error and not a copy of it in .env.
MAX_VALUE_BYTES = 64 * 1024

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE_END = re.compile(r"\r?\n\Z")


class StoredKey(Struct, frozen=True):
    """The name of a key in .env; `source` is "environment" if a variable of the environment comes before it."""

    name: str
    source: str


@click.group("keys", cls=Group)
def keys() -> None:
    """Keep keys and passwords in .env. No command prints a value."""


# A value that begins with "-" must not be repeated in an error about an unknown option.
@keys.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("value", nargs=-1, type=click.UNPROCESSED, metavar="")
@click.option("--force", is_flag=True, help="Also write a name that controls programs, such as HTTPS_PROXY.")
@json_flag
@click.pass_context
def set_secret(ctx: click.Context, name: str, value: tuple[str, ...], force: bool) -> None:
    """Write the value of NAME into .env; it is typed at a prompt, or read from standard input.

    The file has mode 0600. A running program keeps the old value until its next start.
    """
    if value or "=" in name:
        word = name.partition("=")[0]
        raise Failure(
            "the value must not be on the command line, where other programs and the history of the shell see it; run: "
            f"hermes-memory keys set {word if value == () and _is_name(word) and not looks_like_key(word) else 'NAME'}"
        )
    _require_name(name)
    secret = _typed(name) if _is_terminal() else _piped(name)
    if not secret:
        raise Failure(f"the value of {name} is empty; to take it out, run: hermes-memory keys remove {name}")
    if secret != secret.strip():
        warn([f"the value of {name} begins or ends with a space, and is kept so"])
    credentials = Credentials(home_of(ctx))
    credentials.set(name, secret, force=force)
    print_done(f"{name} is set in {credentials.path}", name=name, path=str(credentials.path))
    _warn_of_environment(credentials, name, secret)


@keys.command("list")
@click.pass_context
def list_secrets(ctx: click.Context) -> None:
    """Show the names in .env, and which of them the environment replaces."""
    credentials = Credentials(home_of(ctx))
    rows = [StoredKey(name, credentials.source(name)) for name in credentials.names()]
    shown = [(row.name, "the environment" if row.source == "environment" else ".env") for row in rows]
    path, columns = str(credentials.path), ("name", "read from")
    print_result(rows, lambda: print_table(path, columns, shown, f"No key is in {path}."))
    finish(ctx, [f"line {line} of {credentials.path} sets nothing" for line in credentials.unread_lines()])


@keys.command("remove")
@click.argument("name")
@click.pass_context
def remove_secret(ctx: click.Context, name: str) -> None:
    """Take NAME out of .env. A running program keeps the value until its next start."""
    _require_name(name)
    credentials = Credentials(home_of(ctx))
    if not credentials.remove(name):
        raise Failure(f"{name} is not in {credentials.path}; hermes-memory keys list shows the names")
    print_done(f"{name} is taken out of {credentials.path}", name=name, path=str(credentials.path))
    if credentials.source(name) == "environment":
        warn([f"{name} is still set in the environment: unset it there too"])


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _require_name(name: str) -> None:
    """Raise `Failure` for what can't be a name. The text is not repeated: people mix up name and value."""
    if not _is_name(name):
        raise Failure("that can't name a key; write letters, digits and '_', as in OPENAI_API_KEY")
    if looks_like_key(name):
        raise Failure("that looks like a key and not like its name; write the name, as in OPENAI_API_KEY")


def _typed(name: str) -> str:
    try:
        secret: str = click.prompt(
            f"Value of {name} (it is not shown)", hide_input=True, default="", show_default=False
        )
    except click.Abort:
        raise Failure("cancelled; nothing was changed") from None
    return secret


def _piped(name: str) -> str:
    """Return standard input without the line end that `echo` and editors add."""
    data = sys.stdin.buffer.read(MAX_VALUE_BYTES + 1)
    if len(data) > MAX_VALUE_BYTES:
        raise Failure(f"the value of {name} has over {MAX_VALUE_BYTES:,} bytes; pipe the key alone")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Failure(f"the value of {name} is not UTF-8 text; pipe the key alone") from None
    return _LINE_END.sub("", text)


def _warn_of_environment(credentials: Credentials, name: str, secret: str) -> None:
    if credentials.source(name) == "environment" and credentials.get(name) != secret:
        warn([f"the environment also sets {name}, to another value, and comes before .env: unset it there"])
