"""The settings of config.yaml, each with its meaning, and the change of one."""

from __future__ import annotations

from typing import Any

from hermes_core.config import KEYS, Config, load_config, set_value, stored_keys, unset_value
from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError
from hermes_core.kit import redact
from hermes_core.kit.settings import read_value
from hermes_memory_ui.answers import Page, PageRequest, Redirect
from hermes_memory_ui.site import Site

NEXT_START = "Programs that run take it at their next start, this page too."


def show(site: Site, request: PageRequest) -> Page:
    """Show all settings by block, or one of them with the form that changes it."""
    config, stored = load_config(site.memory.home), stored_keys(site.memory.home)
    key = request.query.get("key", "")
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, field in KEYS.items():
        if key in ("", name):
            block = name.partition(".")[0]
            rows.setdefault(block, []).append(_row(name, field, config) | {"set": name in stored})
    if key and not rows:
        raise ConfigError(f"there is no setting {key!r}", "the page of the settings lists all")
    return Page(
        "settings.html", {"blocks": rows, "key": key, "path_of_file": site.memory.home.config_yaml.name}
    )


def save(site: Site, request: PageRequest) -> Redirect:
    """Set one setting, or let it have its default again if the form is empty."""
    require_home(site)
    key, text = request.form.get("key", ""), request.form.get("value", "").strip()
    if key not in KEYS:
        raise ConfigError(f"there is no setting {key!r}", "the page of the settings lists all")
    if text:
        set_value(site.memory.home, key, read_value(KEYS[key], text))
    else:
        unset_value(site.memory.home, key)
    return Redirect("/settings", f"{key} {'is set' if text else 'has its default'}. {NEXT_START}")


def require_home(site: Site) -> None:
    """Raise `ConfigError` on a page of one user: settings and the outbox are those of all users."""
    if site.owner:
        raise ConfigError("this is about all users of the home", "start hermes-memory ui without --user")


def _row(name: str, field: Field, config: Config) -> dict[str, Any]:
    block, _, key = name.partition(".")
    value, default = getattr(config, block).get(key), getattr(Config(), block).get(key)
    return {"name": name, "field": field, "value": shown_value(value), "default": shown_value(default)}


def shown_value(value: object) -> str:
    """Return a value as a person types it, without secrets."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return redact(", ".join(map(str, value)))
    return "" if value is None else redact(str(value))
