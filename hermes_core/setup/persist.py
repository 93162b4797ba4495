"""Saving of answers: secrets to `.env`, settings to the provider's own place. Each is read back before it counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hermes_core.config import Credentials, load_config, set_value
from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError, CredentialError, SetupFailed
from hermes_core.home import HermesHome
from hermes_core.kit.settings import load_settings, save_settings
from hermes_core.safety.redact import redact
from hermes_core.setup.answers import Answers

_OVERRIDDEN = "the environment has another value, which comes first"


@runtime_checkable
class StoresSettings(Protocol):
    """A provider with a store of its own for settings, as providers written for Hermes Agent have."""

    def store_settings(self, values: Mapping[str, Any]) -> None:
        """Store these settings, none of them secret."""


@dataclass(frozen=True, slots=True)
class SavedAnswer:
    """An answer that was written and read back; `note` says why it has no effect, "" if it has."""

    name: str
    place: str
    note: str = ""


def persist(home: HermesHome, name: str, answers: Answers, provider: object) -> list[SavedAnswer]:
    """Write the new answers, secrets first, and return what was saved. Equal values are not written again.

    A provider that stores its settings itself gets them. Those that name a variable also go to `.env`, because such a
    provider may read nothing else.

    Raises:
        CredentialError, ConfigError, StorageError: Something can't be written. The provider is not selected yet.
        SetupFailed: A value does not read back as it was written.
    """
    # Secrets first: a kill in between then leaves settings that still work with the old provider.
    secrets = [_save_variable(home, *one) for one in answers.variables(secret=True).items()]
    if not isinstance(provider, StoresSettings):
        return [*secrets, *_save_settings(home, name, answers)]
    return [*secrets, *_plain_variables(home, answers), *_pass_settings(home, name, answers, provider)]


def select_provider(home: HermesHome, name: str) -> None:
    """Make the provider the active one ("" for built-in only), and read that back. This is the last step of setup."""
    # An equal value is not written, so that the comments and the time of the file stay.
    if load_config(home).memory.provider != name:
        set_value(home, "memory.provider", name)
    if load_config(home).memory.provider != name:
        raise SetupFailed(
            f"memory.provider does not read back as {name!r}", "look at config.yaml, then try again"
        )


def _save_variable(home: HermesHome, variable: str, value: str) -> SavedAnswer:
    # An empty environment, so that the file is read and not a variable of the same name.
    on_disk = Credentials(home, {})
    if on_disk.get(variable) != value:
        on_disk.set(variable, value)
    if on_disk.get(variable) != value:
        raise SetupFailed(f"{variable} does not read back from .env as written", "check the disk")
    here = Credentials(home)
    other = here.source(variable) == "environment" and here.get(variable) != value
    return SavedAnswer(variable, ".env", _OVERRIDDEN if other else "")


def _plain_variables(home: HermesHome, answers: Answers) -> Iterator[SavedAnswer]:
    for variable, value in answers.variables(secret=False).items():
        try:
            yield _save_variable(home, variable, value)
        except CredentialError as exc:
            yield SavedAnswer(variable, "its own settings only", redact(exc.message))


def _save_settings(home: HermesHome, name: str, answers: Answers) -> Iterator[SavedAnswer]:
    if not answers.settings:
        return
    fields, path = _plain(answers), home.provider_json(name)
    if not _reads_back(home, name, answers):
        save_settings(fields, home.path, name, answers.settings)
    if not _reads_back(home, name, answers):
        raise SetupFailed(f"the settings of {name} do not read back from {str(path)!r}", "check the disk")
    now = load_settings(fields, home.path, name)
    for key, value in answers.settings.items():
        yield SavedAnswer(key, path.name, "" if getattr(now, key) == value else _OVERRIDDEN)


def _pass_settings(
    home: HermesHome, name: str, answers: Answers, provider: StoresSettings
) -> Iterator[SavedAnswer]:
    """Pass a provider its settings to store.

    If it writes no file of its name, ours holds the settings too, so that a second run and `status` know them.
    """
    path = home.provider_json(name)
    if not answers.settings or _reads_back(home, name, answers):
        yield from (SavedAnswer(key, path.name) for key in answers.settings)
        return
    # A provider may write the file of its name in a form of its own, which ours must not overwrite.
    ours, before = not path.exists() or bool(_on_disk(home, name, answers)), _version(path)
    provider.store_settings(answers.settings)
    if (ours and _version(path) == before) or _reads_back(home, name, answers):
        yield from _save_settings(home, name, answers)
    else:
        note = "it keeps its settings in a form of its own, so this was not read back"
        yield from (SavedAnswer(key, "its own settings", note) for key in answers.settings)


def _version(path: Path) -> tuple[int, ...]:
    """Return facts that change when the file is written again, () if there is no file."""
    if not path.exists():
        return ()
    now = path.stat()
    return now.st_ino, now.st_mtime_ns, now.st_size


def _plain(answers: Answers) -> list[Field]:
    return [field for field in answers.fields if not field.secret]


def _reads_back(home: HermesHome, name: str, answers: Answers) -> bool:
    found = _on_disk(home, name, answers)
    return all(found.get(key) == value for key, value in answers.settings.items())


def _on_disk(home: HermesHome, name: str, answers: Answers) -> dict[str, Any]:
    """Return the values in the provider's file, without environment and defaults, {} if it can't be read."""
    fields = _plain(answers)
    try:
        found = load_settings(fields, home.path, name, {}, get_secret=lambda _: None)
    except ConfigError:
        return {}
    return {field.name: found[field.name] for field in fields if found.source(field.name) == "file"}
