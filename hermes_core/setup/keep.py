"""Keeps the answers: secrets in `.env`, settings in the provider's own place, each read back before it counts as saved."""

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

_OVERRULED = "the environment has another value, which comes first"


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

    A provider that keeps its settings itself gets them, and those that name a variable in `.env` too, because such a
    provider may read nothing else. Raises `CredentialError`, `ConfigError` or `StorageError` with the provider still not
    chosen, and `SetupFailed` when something does not read back as it was written.
    """
    secrets = [_keep_variable(home, *one) for one in answers.variables(secret=True).items()]
    if not isinstance(provider, KeepsItself):
        return [*secrets, *_keep_settings(home, name, answers)]
    return [*secrets, *_plain_variables(home, answers), *_hand_over(home, name, answers, provider)]


def choose(home: HermesHome, name: str) -> None:
    """Make the provider ("" for built-in only) the active one, and read that back. The last step of all."""
    if load_config(home).memory.provider != name:
        set_value(home, "memory.provider", name)
    if load_config(home).memory.provider != name:
        raise SetupFailed(
            f"memory.provider does not read back as {name!r}", "look at config.yaml, then try again"
        )


def _keep_variable(home: HermesHome, variable: str, value: str) -> Saved:
    on_disk = Credentials(home, {})
    if on_disk.get(variable) != value:
        on_disk.set(variable, value)
    if on_disk.get(variable) != value:
        raise SetupFailed(f"{variable} does not read back from .env as written", "check the disk")
    here = Credentials(home)
    other = here.source(variable) == "environment" and here.get(variable) != value
    return Saved(variable, ".env", _OVERRULED if other else "")


def _plain_variables(home: HermesHome, answers: Answers) -> Iterator[Saved]:
    for variable, value in answers.variables(secret=False).items():
        try:
            yield _keep_variable(home, variable, value)
        except CredentialError as exc:
            yield Saved(variable, "its own settings only", redact(exc.message))


def _keep_settings(home: HermesHome, name: str, answers: Answers) -> Iterator[Saved]:
    if not answers.settings:
        return
    fields, path = _plain(answers), home.provider_json(name)
    if not _reads_back(home, name, answers):
        save_settings(fields, home.path, name, answers.settings)
    if not _reads_back(home, name, answers):
        raise SetupFailed(f"the settings of {name} do not read back from {str(path)!r}", "check the disk")
    now = load_settings(fields, home.path, name)
    for key, value in answers.settings.items():
        yield Saved(key, path.name, "" if getattr(now, key) == value else _OVERRULED)


def _hand_over(home: HermesHome, name: str, answers: Answers, provider: KeepsItself) -> Iterator[Saved]:
    """Give a provider its settings to keep. Where it writes no file of its name, ours holds them too, so that a second run
    and `status` know them."""
    path = home.provider_json(name)
    if not answers.settings or _reads_back(home, name, answers):
        yield from (Saved(key, path.name) for key in answers.settings)
        return
    ours, before = not path.exists() or bool(_on_disk(home, name, answers)), _version(path)
    provider.store_settings(answers.settings)
    if (ours and _version(path) == before) or _reads_back(home, name, answers):
        yield from _keep_settings(home, name, answers)
    else:
        note = "it keeps its settings in a form of its own, so this was not read back"
        yield from (Saved(key, "its own settings", note) for key in answers.settings)


def _version(path: Path) -> tuple[int, ...]:
    """What differs once a file was written again; () where there is none."""
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
    """What the provider's file says, environment and defaults left aside; {} when it can't be read as settings."""
    fields = _plain(answers)
    try:
        found = load_settings(fields, home.path, name, {}, get_secret=lambda _: None)
    except ConfigError:
        return {}
    return {field.name: found[field.name] for field in fields if found.source(field.name) == "file"}
