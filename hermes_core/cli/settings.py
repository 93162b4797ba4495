"""`hermes-memory config`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import click

from hermes_core.cli import Failure, Group, home_of
from hermes_core.cli.output import finish, json_option, print_json, print_table
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
    """One key of config.yaml: what holds for it, its default, and whether the file says it."""

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
    """Show every key, what holds for it, and whether config.yaml says so.

    A key that the file leaves out has its default.
    """
    home = home_of(ctx)
    loaded, stored = load_config(home), stored_keys(home)
    own = [f"enabled_toolsets.{platform}" for platform, _ in loaded.enabled_toolsets.others]
    rows = [Setting(key, _value(loaded, key), KEYS[key].default, key in stored) for key in KEYS]
    rows += [Setting(key, _value(loaded, key), None, set=True) for key in own]
    if as_json:
        print_json([replace(row, value=_without_secrets(row.value)) for row in rows])
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
    """Print what holds for KEY, a list an item a line, without the password in an address."""
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
    """Write VALUE for KEY into config.yaml, comments kept; a list is written with commas.

    What runs keeps what it began with: the value counts from its next start on.
    """
    _require(ctx, key)
    home = home_of(ctx)
    set_value(home, key, _read(key, value))
    click.echo(printable(f"{key} is {_shown(_value(load_config(home), key))}"))


@config.command("unset")
@_key
@click.pass_context
def unset_key(ctx: click.Context, key: str) -> None:
    """Take KEY out of config.yaml, so that its default holds."""
    _require(ctx, key)
    home = home_of(ctx)
    unset_value(home, key)
    click.echo(printable(f"{key} is {_shown(_value(load_config(home), key))}, the default"))


def _require(ctx: click.Context, key: str) -> None:
    """Say where keys and passwords go, before one is looked for among the settings."""
    if key.isupper() and "." not in key:
        place = str(home_of(ctx).env_file)
        raise Failure(f"{key} is no setting: write keys and passwords as NAME=value into {place!r}")


def _read(key: str, text: str) -> Value:
    """Return a value as it is typed; what the key does not take stays text, and `set_value` says what it takes."""
    known = known_key(key)
    if known.item:
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        value: Value = known.convert(text)
    except ValueError:
        return text
    return value


def _value(loaded: object, key: str) -> Any:
    """What holds for a key. Raises `ConfigError` for one that is none."""
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
    """The value without the password in an address, or what else of a secret somebody put into it."""
    return redact_value(list(value) if isinstance(value, tuple) else value)
