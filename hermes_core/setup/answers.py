"""The settings of a provider as questions, the answers, and their saving.

Secrets go to `.env`, settings to the provider's own place. Each is read back before it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hermes_core.config import Credentials, load_config, set_value
from hermes_core.config.keys import COMPOSITE
from hermes_core.config.schema import did_you_mean
from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError, CredentialError, SetupFailed
from hermes_core.home import HermesHome
from hermes_core.kit.settings import load_settings, read_value, save_settings
from hermes_core.safety.redact import redact


@dataclass
class Answers:
    """The answers so far. `known` are the values in force before, with secrets; `new` are the new values, typed."""

    fields: tuple[Field, ...]
    known: Mapping[str, Any]
    new: dict[str, Any] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """Return the new value of a setting, else the known one."""
        return self.new.get(name, self.known.get(name))

    def asked(self) -> Iterator[Field]:
        """Yield the settings to ask for, in their order, without advanced ones and those whose `when` is not met."""
        for one in self.fields:
            if not one.advanced and all(self.value(name) == wanted for name, wanted in one.when.items()):
                yield one

    def default(self, one: Field) -> Any:
        """Return the default of a setting, which may follow from another answer."""
        if one.default_from is not None:
            other, offered = one.default_from
            return offered.get(_text(self.value(other)), one.default)
        return one.default

    def settle(self) -> None:
        """Store the defaults that follow from other answers, for settings without a value; the provider can't derive them."""
        for one in self.asked():
            if (
                one.default_from is not None
                and self.value(one.name) in (None, "")
                and self.default(one) is not None
            ):
                self.give(one.name, self.default(one))

    @property
    def missing(self) -> tuple[Field, ...]:
        """Required settings without a value."""
        return tuple(one for one in self.asked() if one.required and self.value(one.name) in (None, ""))

    @property
    def settings(self) -> dict[str, Any]:
        """New values for the provider's file."""
        return {name: value for name, value in self.new.items() if not self.field_of(name).secret}

    def variables(self, *, secret: bool) -> dict[str, str]:
        """Return new values of settings that name a variable, by variable: the secrets, or the others."""
        chosen = [(self.field_of(name), value) for name, value in self.new.items()]
        return {one.env: _text(value) for one, value in chosen if one.env and one.secret == secret}

    def give(self, name: str, raw: Any) -> None:
        """Store an answer. Raises `ConfigError` for a value that the setting does not accept."""
        self.new[name] = read_value(self.field_of(name), raw)

    def field_of(self, name: str) -> Field:
        """Return the declaration of a setting."""
        return next(one for one in self.fields if one.name == name)


def parse_pairs(answers: Answers, pairs: Sequence[str]) -> None:
    """Store `key=value` texts as answers. Raises `SetupFailed`, which names every wrong pair."""
    faults: list[str] = []
    names = [one.name for one in answers.fields]
    for pair in pairs:
        name, sign, raw = pair.partition("=")
        if not sign or name not in names:
            faults.append(_unknown(pair, name, sign, names))
            continue
        if _is_unstorable(answers.field_of(name)):
            faults.append(f"{name} is a secret that names no variable, so there is no place to keep it")
            continue
        try:
            answers.give(name, raw)
        except ConfigError as exc:
            faults.append(str(exc))
    if faults:
        raise SetupFailed("; ".join(faults), "nothing was changed")


def require_complete(answers: Answers, provider: str) -> None:
    """Raise `SetupFailed` that names every required setting without a value."""
    if answers.missing:
        listed = "; ".join(map(_need, answers.missing))
        raise SetupFailed(
            f"{provider} needs settings that have no value: {listed}",
            "give each with --set NAME=VALUE; no setting was changed",
        )


def unstorable_secrets(fields: Sequence[Field]) -> list[Field]:
    """Return the secrets that name no variable: `.env` can't hold them, and nothing else may."""
    return [one for one in fields if _is_unstorable(one)]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_unstorable(one: Field) -> bool:
    return one.secret and not one.env


def _need(one: Field) -> str:
    where = f" ({one.env})" if one.env else ""
    return f"{one.name}{where}{f', get it at {one.url}' if one.url else ''}"


def _unknown(pair: str, name: str, sign: str, names: Sequence[str]) -> str:
    if not sign:
        return f"{pair!r} is no NAME=VALUE"
    others = f"its settings are {', '.join(names) or 'none'}"
    return f"there is no setting {name!r}, {did_you_mean(name, names, others)}"


# -------------------------------------------------------------------------------------------------------------- saving

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
    """Make the provider the active one ("" for built-in only), and read that back. This is the last step of setup.

    A member of the composite that is active stays a member.
    """
    config = load_config(home)
    if config.memory.provider == COMPOSITE and name in config.composite.members:
        return
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
