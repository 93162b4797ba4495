"""The settings of a provider as questions, the answers, and their saving.

Secrets go to `.env`, settings to the provider's own place. Each is read back before it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from hermes_core.config import Credentials, load_config, set_value
from hermes_core.config.keys import COMPOSITE
from hermes_core.config.schema import did_you_mean
from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError, CredentialError, SetupFailed
from hermes_core.home import HermesHome
from hermes_core.kit.settings import load_settings, read_value, save_settings
from hermes_core.safety.redact import redact


class Answers(Struct):
    """The answers so far. `known` are the values in force before, with secrets; `new` are the new values, typed."""

    fields: tuple[Field, ...]
    known: Mapping[str, Any]
    new: dict[str, Any] = {}

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
        other, offered = one.default_from or ("", {})
        return offered.get(_text(self.value(other)), one.default)

    def settle(self) -> None:
        """Store the defaults that follow from other answers, for settings without a value; the provider can't derive them."""
        for one in self.asked():
            if one.default_from and self._lacks(one) and self.default(one) is not None:
                self.give(one.name, self.default(one))

    @property
    def missing(self) -> tuple[Field, ...]:
        """Required settings without a value."""
        return tuple(one for one in self.asked() if one.required and self._lacks(one))

    @property
    def settings(self) -> dict[str, Any]:
        """New values for the provider's file."""
        return {one.name: value for one, value in self._new() if not one.secret}

    def variables(self, *, secret: bool) -> dict[str, str]:
        """Return new values of settings that name a variable, by variable: the secrets, or the others."""
        return {one.env: _text(value) for one, value in self._new() if one.env and one.secret == secret}

    def give(self, name: str, raw: Any) -> None:
        """Store an answer. Raises `ConfigError` for an unknown setting, and for a value that it does not accept."""
        one = next((one for one in self.fields if one.name == name), None)
        if one is None:
            names = [one.name for one in self.fields]
            hint = did_you_mean(name, names, f"its settings are {', '.join(names) or 'none'}")
            raise ConfigError(f"there is no setting {name!r}, {hint}")
        if one in unstorable_secrets(self.fields):
            raise ConfigError(f"{name} is a secret that names no variable, so there is no place to keep it")
        self.new[name] = read_value(one, raw)

    def _new(self) -> list[tuple[Field, Any]]:
        return [(one, self.new[one.name]) for one in self.fields if one.name in self.new]

    def _lacks(self, one: Field) -> bool:
        return self.value(one.name) in (None, "")


def parse_pairs(answers: Answers, pairs: Sequence[str]) -> None:
    """Store `key=value` texts as answers. Raises `SetupFailed`, which names every wrong pair."""
    faults: list[str] = []
    for pair in pairs:
        name, sign, raw = pair.partition("=")
        try:
            if not sign:
                raise ConfigError(f"{pair!r} is no NAME=VALUE")
            answers.give(name, raw)
        except ConfigError as exc:
            faults.append(str(exc))
    if faults:
        raise SetupFailed("; ".join(faults), "nothing was changed")


def require_complete(answers: Answers, provider: str) -> None:
    """Raise `SetupFailed` that names every required setting without a value."""
    listed = [
        f"{one.name}{f' ({one.env})' if one.env else ''}{f', get it at {one.url}' if one.url else ''}"
        for one in answers.missing
    ]
    if listed:
        raise SetupFailed(
            f"{provider} needs settings that have no value: {'; '.join(listed)}",
            "give each with --set NAME=VALUE; no setting was changed",
        )


def unstorable_secrets(fields: Sequence[Field]) -> list[Field]:
    """Return the secrets that name no variable: `.env` can't hold them, and nothing else may."""
    return [one for one in fields if one.secret and not one.env]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -------------------------------------------------------------------------------------------------------------- saving

_OVERRIDDEN = "the environment has another value, which comes first"


@runtime_checkable
class StoresSettings(Protocol):
    """A provider with a store of its own for settings, as providers written for Hermes Agent have."""

    def store_settings(self, values: Mapping[str, Any]) -> None:
        """Store these settings, none of them secret."""


class SavedAnswer(Struct, frozen=True):
    """An answer that was written and read back; `note` says why it has no effect, "" if it has."""

    name: str
    place: str
    note: str = ""


def persist(home: HermesHome, name: str, answers: Answers, provider: object) -> list[SavedAnswer]:
    """Write the new answers, secrets first, and return what was saved. Equal values are not written again.

    A provider that stores its settings itself gets them. Those that name a variable also go to `.env`, because such a
    provider may read nothing else. If it writes no file of its name, ours holds the settings too, so that a second run
    and `status` know them.

    Raises:
        CredentialError, ConfigError, StorageError: Something can't be written. The provider is not selected yet.
        SetupFailed: A value does not read back as it was written.
    """
    # Secrets first: a kill in between then leaves settings that still work with the old provider.
    saved = [_save_variable(home, *one) for one in answers.variables(secret=True).items()]
    own_store = provider if isinstance(provider, StoresSettings) else None
    for variable, value in answers.variables(secret=False).items() if own_store else ():
        try:
            saved.append(_save_variable(home, variable, value))
        except CredentialError as exc:
            saved.append(SavedAnswer(variable, "its own settings only", redact(exc.message)))
    fields, path, settings = (
        [one for one in answers.fields if not one.secret],
        home.provider_json(name),
        answers.settings,
    )

    def on_disk() -> dict[str, Any]:
        """Return the values in the provider's file, without environment and defaults, {} if it can't be read."""
        try:
            found = load_settings(fields, home.path, name, {}, get_secret=lambda _: None)
        except ConfigError:
            return {}
        return {one.name: found[one.name] for one in fields if found.source(one.name) == "file"}

    if not settings.items() <= on_disk().items():
        # A provider may write the file of its name in a form of its own, which ours must not overwrite.
        is_ours, before = not path.exists() or bool(on_disk()), _version(path)
        if own_store:
            own_store.store_settings(settings)
            if not (is_ours and _version(path) == before) and not settings.items() <= on_disk().items():
                note = "it keeps its settings in a form of its own, so this was not read back"
                return saved + [SavedAnswer(key, "its own settings", note) for key in settings]
        save_settings(fields, home.path, name, settings)
    in_force = load_settings(fields, home.path, name).as_dict() if settings else {}
    return saved + [
        SavedAnswer(key, path.name, "" if in_force[key] == value else _OVERRIDDEN)
        for key, value in settings.items()
    ]


def select_provider(home: HermesHome, name: str) -> None:
    """Make the provider the active one ("" for built-in only), and read that back. This is the last step of setup.

    A member of the composite that is active stays a member.
    """
    config = load_config(home)
    if config.memory.provider == COMPOSITE and name in config.composite.members:
        return
    # An equal value is not written, so that the comments and the time of the file stay.
    if config.memory.provider != name:
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


def _version(path: Path) -> tuple[int, ...]:
    """Return facts that change when the file is written again, () if there is no file."""
    if not path.exists():
        return ()
    now = path.stat()
    return now.st_ino, now.st_mtime_ns, now.st_size
