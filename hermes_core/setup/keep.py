"""Keeps the answers: secrets in `.env`, settings in the provider's own place, each read back before it counts as saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from hermes_core.config import load_config, set_value
from hermes_core.credentials import Credentials
from hermes_core.errors import ConfigError, SetupFailed
from hermes_core.home import HermesHome
from hermes_core.kit.settings import load_settings, save_settings
from hermes_core.setup.answers import Answers


@runtime_checkable
class KeepsItself(Protocol):
    """A provider with a store of its own for settings, as those written for Hermes Agent have."""

    def store_settings(self, values: Mapping[str, Any]) -> None:
        """Keep these settings, none of them secret."""


@dataclass(frozen=True, slots=True)
class Saved:
    """One answer that was written and read back; `note` says what stands in its way, "" for nothing."""

    name: str
    place: str
    note: str = ""


def keep(home: HermesHome, name: str, answers: Answers, provider: object) -> list[Saved]:
    """Write what is new, secrets first. Equal values are not written again.

    Raises `CredentialError`, `ConfigError` or `StorageError` with the provider still not chosen, and `SetupFailed`
    when something does not read back as it was written.
    """
    return [*_keep_secrets(home, answers), *_keep_settings(home, name, answers, provider)]


def choose(home: HermesHome, name: str) -> None:
    """Make the provider ("" for built-in only) the active one, and read that back. The last step of all."""
    if load_config(home).memory.provider != name:
        set_value(home, "memory.provider", name)
    if load_config(home).memory.provider != name:
        raise SetupFailed(
            f"memory.provider does not read back as {name!r}", "look at config.yaml, then try again"
        )


def _keep_secrets(home: HermesHome, answers: Answers) -> Iterator[Saved]:
    on_disk = Credentials(home, {})
    credentials = Credentials(home)
    for variable, value in answers.secrets.items():
        if on_disk.get(variable) != value:
            on_disk.set(variable, value)
        if Credentials(home, {}).get(variable) != value:
            raise SetupFailed(f"{variable} does not read back from .env as written", "check the disk")
        shadowed = credentials.source(variable) == "environment" and credentials.get(variable) != value
        yield Saved(
            variable, ".env", "the environment has another value, which comes first" if shadowed else ""
        )


def _keep_settings(home: HermesHome, name: str, answers: Answers, provider: object) -> Iterator[Saved]:
    values = answers.settings
    if not values:
        return
    fields = [field for field in answers.fields if not field.secret]
    path = home.provider_json(name)
    if isinstance(provider, KeepsItself):
        provider.store_settings(values)
    if not isinstance(provider, KeepsItself) or not _reads_back(home, name, answers):
        if any(_on_disk(home, name, answers).get(key) != value for key, value in values.items()):
            save_settings(fields, home.path, name, values)
        if not _reads_back(home, name, answers):
            raise SetupFailed(
                f"the settings of {name} do not read back from {str(path)!r} as written", "check the disk"
            )
    now = load_settings(fields, home.path, name)
    for key, value in values.items():
        other = getattr(now, key) != value
        note = "the environment has another value, which comes first" if other else ""
        yield Saved(key, path.name, note)


def _reads_back(home: HermesHome, name: str, answers: Answers) -> bool:
    found = _on_disk(home, name, answers)
    return all(found.get(key) == value for key, value in answers.settings.items())


def _on_disk(home: HermesHome, name: str, answers: Answers) -> dict[str, Any]:
    """What the provider's file says, environment and defaults left aside; {} when it can't be read as settings."""
    fields = [field for field in answers.fields if not field.secret]
    try:
        found = load_settings(fields, home.path, name, {}, get_secret=lambda _: None)
    except ConfigError:
        return {}
    return {field.name: getattr(found, field.name) for field in fields if found.source(field.name) == "file"}
