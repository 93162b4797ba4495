"""A provider on its way to be chosen: what can be chosen, what it lacks, its questions, and a try of the real thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from hermes_core.config import load_config
from hermes_core.contract.values import Field, Session
from hermes_core.errors import ConfigError, HermesError, ProviderUnavailable
from hermes_core.health.finding import Finding, failed
from hermes_core.health.provider import settings_in
from hermes_core.health.roundtrip import check_provider, started
from hermes_core.home import HermesHome
from hermes_core.kit.settings import Settings, load_settings
from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.discover import BUNDLED, ExternalTool, LoadControl, ProviderEntry, discover, select
from hermes_core.loader.load import LoadedProvider, load_provider
from hermes_core.logs import LogFile
from hermes_core.manager.manager import MemoryManager
from hermes_core.memory import account_of
from hermes_core.setup.answers import Answers
from hermes_core.setup.keep import choose
from hermes_core.setup.packages import extra_requirements, missing_packages, missing_tools


@runtime_checkable
class SetsItselfUp(Protocol):
    """A provider that may bring a wizard, as those written for Hermes Agent do; `own_name` is what that may select."""

    has_setup: bool
    own_name: str

    def run_setup(self) -> None:
        """Ask, keep the answers, and select the provider."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a provider lacks before it can be loaded: packages to install, and programs to install by hand."""

    packages: tuple[str, ...] = ()
    tools: tuple[ExternalTool, ...] = ()


def choices(home: HermesHome) -> list[ProviderEntry]:
    """The providers that can be chosen, one a name; ours that are not installed are among them."""
    config = load_config(home)
    control = LoadControl.of(config.providers)
    entries = discover_providers(home, control=control, active=config.memory.provider)
    return [entry for entry in entries if entry.state not in ("shadowed", "blocked") and _choosable(entry)]


def require_available(home: HermesHome, name: str) -> None:
    """Raise `ProviderUnavailable` when the provider of this name says that it can't run here, without starting it.

    No memory is opened, which would hand it what another one was not told yet.
    """
    loaded = load(home, name)
    manager = MemoryManager(home, on_event=LogFile(home).on_event)
    try:
        if not manager.add_provider(
            loaded.factory, name=name, fingerprint=account_of(loaded.settings, name, home)
        ):
            refused = manager.health()[-1]
            reason = f"{name!r} is {refused.state}: {refused.reason}"
            raise ProviderUnavailable(f"{reason}; config.yaml was not changed")
    finally:
        manager.shutdown_all(1.0)


def needs_of(home: HermesHome, name: str) -> Needs:
    """What is missing for this provider, told without loading it."""
    places = select(discover(home), name)
    if not places:
        distribution = BUNDLED.get(name.strip().casefold(), "")
        return Needs((distribution,) if distribution else ())
    return Needs(tuple(missing_packages(places[0].requires)), tuple(missing_tools(places[0].tools)))


def needs_of_answers(loaded: LoadedProvider, answers: Answers) -> tuple[str, ...]:
    """The packages that these answers ask for and this environment lacks."""
    extras = {one.extras.get(str(answers.value(one.name)), "") for one in answers.asked()} - {""}
    return tuple(missing_packages(extra_requirements(loaded.entry.distribution, extras)))


def load(home: HermesHome, name: str) -> LoadedProvider:
    """The provider itself, if config.yaml lets it load. Raises `ProviderError`."""
    return load_provider(name, home)


def questions(home: HermesHome, loaded: LoadedProvider) -> Answers:
    """Its settings with the values that hold now; one whose value is wrong counts as not set, so that it is asked anew.

    A default that follows from another answer is no value yet: that answer may change.
    """
    name = loaded.entry.name
    try:
        found = settings_in(home, loaded)
    except ConfigError:
        return Answers(loaded.settings, {one.name: _sound_value(home, name, one) for one in loaded.settings})
    return Answers(loaded.settings, {one.name: _known(found, one) for one in loaded.settings})


def own_setup(home: HermesHome, loaded: LoadedProvider) -> bool | None:
    """Let a provider that has a wizard of its own (`post_setup` of Hermes Agent) ask its questions.

    None when it has none. Else whether it chose itself at the end; what was active before stays so until it was tried.
    Raises `SetupFailed` when the wizard raises.
    """
    provider = loaded.factory()
    if not isinstance(provider, SetsItselfUp) or not provider.has_setup:
        return None
    before = load_config(home).memory.provider
    try:
        provider.run_setup()
        after = load_config(home).memory.provider
    finally:
        choose(home, before)
    return after.casefold() in (loaded.entry.name.casefold(), provider.own_name.casefold())


def try_out(home: HermesHome, loaded: LoadedProvider) -> list[Finding]:
    """Start the provider through a manager, as a turn would, and run its self-test; the active provider stays as it is."""
    name = loaded.entry.name
    manager = MemoryManager(home, on_event=LogFile(home).on_event)
    session = Session(f"setup-{name}", agent_context="review", identity=home.profile, home=str(home.path))
    try:
        accepted = manager.add_provider(
            loaded.factory, name=name, fingerprint=account_of(loaded.settings, name, home)
        )
        if accepted:
            started(manager, session)
        return [*_condition(manager, name), *(check_provider(manager, name, session) if accepted else [])]
    except HermesError as exc:
        return [failed(f"provider {name}", exc.message, exc.remedy)]
    finally:
        manager.shutdown_all(5.0)


def _condition(manager: MemoryManager, name: str) -> Sequence[Finding]:
    found = next((one for one in manager.health() if one.name == name), None)
    if found is not None and found.state == "active":
        return [Finding(f"provider {name}", "ok", "it starts")]
    if found is not None and found.well_but_parked:
        return [Finding(f"provider {name}", "warning", f"it starts; {found.reason}")]
    reason = f"{found.state}: {found.reason}" if found else "it was not accepted"
    return [failed(f"provider {name}", reason, "correct that, then run setup again")]


def _sound_value(home: HermesHome, name: str, field: Field) -> Any:
    try:
        return _known(load_settings((field,), home.path, name), field)
    except ConfigError:
        return None


def _known(found: Settings, field: Field) -> Any:
    waits = field.default_from is not None and found.source(field.name) == "default"
    return None if waits else found[field.name]


def _choosable(entry: ProviderEntry) -> bool:
    return entry.installed or entry.name in BUNDLED
