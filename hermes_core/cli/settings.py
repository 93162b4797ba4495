"""The commands `hermes-memory config`."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from typing import Any

import click
import yaml
from msgspec import Struct
from msgspec.structs import replace

from hermes_core.cli import Failure, Group, home_of
from hermes_core.cli.output import (
    edit_text,
    finish,
    print_document,
    print_done,
    print_result,
    print_table,
    wants_json,
    warn,
)
from hermes_core.config import (
    KEYS,
    Config,
    Value,
    config_text,
    is_provider_key,
    known_key,
    load_config,
    save_text,
    set_value,
    stored_keys,
    stored_value,
    unset_value,
)
from hermes_core.config.schema import checked, item_type
from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome
from hermes_core.safety.redact import looks_like_key, redact, redact_value
from hermes_core.safety.terminal import hanging, printable


class Setting(Struct, frozen=True):
    """One key of config.yaml: its value, its default, and whether the file sets it."""

    key: str
    value: Value
    default: Value
    set: bool


def _begun(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    return [key for key in KEYS if key.startswith(begun)]


_key = click.argument("key", shell_complete=_begun)


@click.group("config", cls=Group)
def config() -> None:
    """Read and write the settings in config.yaml."""


@config.command("list")
@click.pass_context
def list_keys(ctx: click.Context) -> None:
    """Show every key, its value, and whether config.yaml sets it.

    A key that the file leaves out has its default.
    """
    home = home_of(ctx)
    loaded, stored = load_config(home), stored_keys(home)
    toolsets = [f"enabled_toolsets.{platform}" for platform in loaded.enabled_toolsets.platforms]
    rows = [Setting(key, _value(loaded, key), _value(Config(), key), key in stored) for key in KEYS]
    rows += [Setting(key, _value(loaded, key), None, set=True) for key in toolsets if key not in KEYS]
    shown = [(row.key, _shown(row.value), "yes" if row.set else "", known_key(row.key).help) for row in rows]
    columns = ("key", "value", "set", "what it does")
    print_result(
        [replace(row, value=_without_secrets(row.value)) for row in rows],
        lambda: print_table(str(home.config_yaml), columns, shown, ""),
    )
    finish(ctx, loaded.warnings)


@config.command("get")
@_key
@click.pass_context
def get_key(ctx: click.Context, key: str) -> None:
    """Print the value of KEY, a list one item a line, a block as YAML; passwords and keys are left out.

    KEY is one of ours, or the dotted name of anything in config.yaml, as memory.NAME.KEY in the block of a provider.
    """
    _require(ctx, key)
    value = _present_value(home_of(ctx), key)
    if isinstance(value, str):
        # The name says that a value without a form of its own is a secret.
        value = _without_secrets({key.rpartition(".")[2]: value}).popitem()[1]
    if wants_json():
        print_document(_without_secrets(value))
        return
    if isinstance(value, dict):
        click.echo(
            printable(yaml.safe_dump(_without_secrets(value), sort_keys=False, allow_unicode=True)), nl=False
        )
        return
    for line in value if isinstance(value, tuple | list) else [value]:
        click.echo(printable(_shown(_without_secrets(line))))


# Else a negative number would be taken for an option.
@config.command("set", context_settings={"ignore_unknown_options": True})
@_key
@click.argument("value")
@click.pass_context
def set_key(ctx: click.Context, key: str, value: str) -> None:
    """Write VALUE for KEY into config.yaml and keep the comments; write a list with commas, or as JSON.

    KEY may be memory.NAME.KEY in the block of a provider. Its VALUE is a number, true, false, JSON or text.
    A running program keeps its old value until its next start.
    """
    _require(ctx, key)
    if not is_provider_key(key) and "://" not in value and looks_like_key(value):
        raise Failure(
            "that value looks like a key, and config.yaml holds none; run: hermes-memory keys set NAME"
        )
    home = home_of(ctx)
    set_value(home, key, _read(key, value))
    name = key.rpartition(".")[2]
    stored = _present_value(home, key)
    if is_provider_key(key) and _without_secrets({name: stored}) != {name: stored}:
        stored = _without_secrets({name: stored})[name]
        warn(
            [
                f"{key} looks like a secret; a provider that reads its key from a variable finds it in {home.env_file}"
            ]
        )
    print_done(f"{key} is {_shown(stored) or 'empty'}", key=key, value=_without_secrets(stored))


@config.command("edit")
@click.pass_context
def edit_file(ctx: click.Context) -> None:
    """Open config.yaml in your editor, $VISUAL or $EDITOR, and check it before it is saved.

    If the file can't be read so, nothing is saved, and the editor opens again if you want.
    """
    home = home_of(ctx)
    before = config_text(home)
    text = unchanged = before.replace("\r\n", "\n")
    while True:
        edited = edit_text(text, ".yaml")
        # click ends the last line if it has no end.
        if edited is None or edited.rstrip("\n") == unchanged.rstrip("\n"):
            print_done("nothing was changed")
            return
        try:
            loaded = save_text(home, edited, before)
        except ConfigError as exc:
            if not sys.stdin.isatty():
                raise
            click.secho(f"error: {hanging(str(exc))}", fg="red", err=True)
            if not click.confirm("Edit it again?", default=True):
                raise Failure("nothing was changed") from None
            text = edited
        else:
            print_done(f"saved {home.config_yaml}")
            finish(ctx, loaded.warnings)
            return


@config.command("unset")
@_key
@click.pass_context
def unset_key(ctx: click.Context, key: str) -> None:
    """Remove KEY from config.yaml, so that its default holds."""
    _require(ctx, key)
    home = home_of(ctx)
    unset_value(home, key)
    if is_provider_key(key):
        print_done(f"{key} is not set", key=key, value=None)
        return
    value = _value(load_config(home), key)
    print_done(f"{key} is {_shown(value) or 'empty'}, the default", key=key, value=_without_secrets(value))


def _require(ctx: click.Context, key: str) -> None:
    """Raise `Failure` for the name of a key or password, and say where those are kept."""
    if key.isupper() and "." not in key:
        place = str(home_of(ctx).env_file)
        raise Failure(
            f"{key} is no setting: write keys and passwords as NAME=value into {place!r}, or run: "
            f"hermes-memory keys set {key}"
        )


def _read(key: str, text: str) -> Value:
    """Return a typed value. Raises `ConfigError` for one that the key does not take."""
    if is_provider_key(key):
        return _plain(text)
    known = known_key(key)
    is_list = item_type(known) is not None and not text.lstrip().startswith("[")
    value: Value = checked(known, [*filter(None, map(str.strip, text.split(",")))] if is_list else text)
    return value


def _plain(text: str) -> Value:
    """Return the number, boolean or JSON document in a text, else the text.

    YAML would read 12:30 as a number of base 60 and 010 as 8.
    """
    if text.lower() in ("true", "yes", "on", "false", "no", "off"):
        return text.lower() in ("true", "yes", "on")
    if re.fullmatch(r"-?(0|[1-9]\d{0,17})(\.\d+)?|[\[{].*", text, re.DOTALL):
        with contextlib.suppress(ValueError):
            value: Value = json.loads(text)
            return value
    return text


def _present_value(home: HermesHome, key: str) -> Any:
    """Return the value of a key of ours, else what config.yaml holds under that name.

    Raises `ConfigError` if there is neither.
    """
    try:
        return _value(load_config(home), key)
    except ConfigError:
        value = stored_value(home, key)
        if value is not None:
            return value
        if is_provider_key(key):
            raise Failure(f"{key} is not set") from None
        raise


def _value(loaded: object, key: str) -> Any:
    """Return the value of a key. Raises `ConfigError` if there is no such key."""
    block, name = known_key(key).name.split(".")
    return getattr(loaded, block).get(name)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return "" if value is None else redact(str(value))


def _without_secrets(value: Value) -> Any:
    """Return the value as JSON data, without the password in an address or any other secret in it."""
    # YAML also has dates.
    plain = json.loads(json.dumps(value, default=str))
    return redact_value(plain)
