"""The commands `hermes-memory config`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import click

from hermes_core.cli import Failure, Group, home_of
from hermes_core.cli.output import finish, json_option, print_document, print_table
from hermes_core.config import (
    KEYS,
    ToolsetsConfig,
    Value,
    known_key,
    load_config,
    set_value,
    stored_keys,
    unset_value,
)
from hermes_core.safety.redact import redact, redact_value
from hermes_core.safety.terminal import printable


@dataclass(frozen=True, slots=True)
class Setting:
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
@json_option
@click.pass_context
def list_keys(ctx: click.Context, as_json: bool) -> None:
    """Show every key, its value, and whether config.yaml sets it.

    A key that the file leaves out has its default.
    """
    home = home_of(ctx)
    loaded, stored = load_config(home), stored_keys(home)
    own = [f"enabled_toolsets.{platform}" for platform, _ in loaded.enabled_toolsets.others]
    rows = [Setting(key, _value(loaded, key), KEYS[key].default, key in stored) for key in KEYS]
    rows += [Setting(key, _value(loaded, key), None, set=True) for key in own]
    if as_json:
        print_document([replace(row, value=_without_secrets(row.value)) for row in rows])
    else:
        print_table(
            str(home.config_yaml),
            ("key", "value", "set", "what it does"),
            [(row.key, _shown(row.value), "yes" if row.set else "", known_key(row.key).help) for row in rows],
            "",
        )
    finish(ctx, loaded.warnings)


@config.command("get")
@_key
@click.pass_context
def get_key(ctx: click.Context, key: str) -> None:
    """Print the value of KEY, a list one item a line, without the password in an address."""
    _require(ctx, key)
    value = _value(load_config(home_of(ctx)), key)
    for line in value if isinstance(value, tuple) else [value]:
        click.echo(printable(_shown(line)))


# Else a negative number would be taken for an option.
@config.command("set", context_settings={"ignore_unknown_options": True})
@_key
@click.argument("value")
@click.pass_context
def set_key(ctx: click.Context, key: str, value: str) -> None:
    """Write VALUE for KEY into config.yaml and keep the comments; write a list with commas.

    A running program keeps its old value until its next start.
    """
    _require(ctx, key)
    home = home_of(ctx)
    set_value(home, key, _read(key, value))
    click.echo(printable(f"{key} is {_shown(_value(load_config(home), key))}"))


@config.command("unset")
@_key
@click.pass_context
def unset_key(ctx: click.Context, key: str) -> None:
    """Remove KEY from config.yaml, so that its default holds."""
    _require(ctx, key)
    home = home_of(ctx)
    unset_value(home, key)
    click.echo(printable(f"{key} is {_shown(_value(load_config(home), key))}, the default"))


def _require(ctx: click.Context, key: str) -> None:
    """Raise `Failure` for the name of a key or password, and say where those are kept."""
    if key.isupper() and "." not in key:
        place = str(home_of(ctx).env_file)
        raise Failure(f"{key} is no setting: write keys and passwords as NAME=value into {place!r}")


def _read(key: str, text: str) -> Value:
    """Return a typed value. Text that the key does not take stays text, and `set_value` refuses it."""
    known = known_key(key)
    if known.item:
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        value: Value = known.convert(text)
    except ValueError:
        return text
    return value


def _value(loaded: object, key: str) -> Any:
    """Return the value of a key. Raises `ConfigError` if there is no such key."""
    block, name = known_key(key).name.split(".")
    held = getattr(loaded, block)
    return held.of(name) if isinstance(held, ToolsetsConfig) else getattr(held, name)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return "" if value is None else redact(str(value))


def _without_secrets(value: Value) -> Any:
    """Return the value without the password in an address, or any other secret in it."""
    return redact_value(list(value) if isinstance(value, tuple) else value)
