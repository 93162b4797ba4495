"""The settings of a provider as questions, and the answers. Nothing is read or written here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError, SetupFailed
from hermes_core.kit.settings import read_value


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
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"its settings are {', '.join(names) or 'none'}"
    return f"there is no setting {name!r}, {hint}"
