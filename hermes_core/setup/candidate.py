"""Steps of setup for one provider: the choices, its requirements, its questions, its own wizard, a real try."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from hermes_core.config import load_config
from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError, HermesError, ProviderUnavailable
from hermes_core.health.finding import Finding, failed
from hermes_core.health.provider import check_provider, settings_in, start_providers, trial_session
from hermes_core.home import FOLDER_PREFIX, HermesHome
from hermes_core.kit.settings import Settings, load_settings
from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.discover import BUNDLED, FOLDERS, ExternalTool, ProviderEntry, discover, select
from hermes_core.loader.load import LoadedProvider, load_provider
from hermes_core.loader.requirements import missing_packages
from hermes_core.logs import LogFile
from hermes_core.manager.manager import MemoryManager
from hermes_core.outbox.recovery import outbox_of_home
from hermes_core.selection import account_of
from hermes_core.sessions.home_store import open_sessions
from hermes_core.setup.answers import Answers, select_provider
from hermes_core.setup.installer import missing_dependencies


@runtime_checkable
class HasWizard(Protocol):
    """A provider that may bring a wizard, as providers for Hermes Agent do, which may select it as `own_name`."""

    has_setup: bool
    own_name: str

    def run_setup(self) -> None:
        """Ask, save the answers, and select the provider."""


class MissingRequirements(Struct, frozen=True):
    """The packages and programs that a provider lacks. Programs are installed by hand."""

    packages: tuple[str, ...] = ()
    tools: tuple[ExternalTool, ...] = ()


def choices(home: HermesHome) -> list[ProviderEntry]:
    """Return the providers that can be selected, one for each name, with our own that are not installed.

    A plugin folder with the name of one of ours is offered as `folder:NAME`.
    """
    entries = [
        replace(entry, name=f"{FOLDER_PREFIX}{entry.name}", state="idle", reason="", remedy="")
        if entry.state == "shadowed" and entry.source in FOLDERS and entry.name in BUNDLED
        else entry
        for entry in discover_providers(home, active=load_config(home).selected_providers)
    ]
    return [
        entry
        for entry in entries
        if entry.state not in ("shadowed", "blocked") and (entry.installed or entry.name in BUNDLED)
    ]


def require_available(home: HermesHome, name: str) -> None:
    """Raise `ProviderUnavailable` if the provider says that it can't run here. It is not started.

    Opening the memory would deliver writes to it that wait for another provider.
    """
    loaded = load_provider(name, home)
    # Its shutdown would deliver what waits.
    waits = "the provider is not chosen yet"
    with open_candidate(home, loaded, held_back=waits, shutdown_timeout=1.0) as (manager, accepted):
        if not accepted:
            refused = manager.health()[-1]
            reason = f"{name!r} is {refused.state}: {refused.reason}"
            raise ProviderUnavailable(f"{reason}; config.yaml was not changed")


@contextlib.contextmanager
def open_candidate(
    home: HermesHome, loaded: LoadedProvider, *, held_back: str = "", shutdown_timeout: float
) -> Iterator[tuple[MemoryManager, bool]]:
    """Give a provider to a manager of its own over the home's outbox, beside the one that config.yaml selects.

    Yield the manager, and False if it did not accept the provider.

    Args:
        held_back: Why nothing that waits in the outbox is delivered; "" to deliver it.
        shutdown_timeout: Seconds for the provider's shutdown.
    """
    name = loaded.entry.name
    with contextlib.closing(open_sessions(home, load_config(home))) as sessions:
        outbox = outbox_of_home(home, sessions.database)
        manager = MemoryManager(
            home, outbox=outbox, transcripts=sessions.transcript, on_event=LogFile(home).on_event
        )
        manager.outbox.held_back = held_back or manager.outbox.held_back
        try:
            fingerprint = account_of(loaded.settings, name, home)
            yield manager, manager.add_provider(loaded.factory, name=name, fingerprint=fingerprint)
        finally:
            manager.shutdown_all(shutdown_timeout)


def missing_requirements(home: HermesHome, name: str) -> MissingRequirements:
    """Return the missing requirements of a provider without loading it."""
    places = select(discover(home), name)
    if not places:
        distribution = BUNDLED.get(name.strip().casefold(), "")
        return MissingRequirements((distribution,) if distribution else ())
    return MissingRequirements(
        tuple(missing_packages(places[0].requires)), tuple(missing_tools(places[0].tools))
    )


def missing_extras(loaded: LoadedProvider, answers: Answers) -> tuple[str, ...]:
    """Return the missing packages that these answers require."""
    extras = {one.extras.get(str(answers.value(one.name)), "") for one in answers.asked()} - {""}
    name = loaded.entry.distribution
    return tuple(missing_dependencies([f"{name}[{','.join(sorted(extras))}]"])) if name and extras else ()


def questions(home: HermesHome, loaded: LoadedProvider) -> Answers:
    """Return the settings with their present values. A setting with a wrong value counts as not set and is asked again.

    A default that follows from another answer is no value yet, because that answer may change.
    """
    name = loaded.entry.name
    try:
        found = settings_in(home, loaded)
    except ConfigError:
        # One wrong value must not hide the others, so each setting is read by itself.
        return Answers(loaded.settings, {one.name: _sound_value(home, name, one) for one in loaded.settings})
    return Answers(loaded.settings, {one.name: _known(found, one) for one in loaded.settings})


def run_wizard(home: HermesHome, loaded: LoadedProvider) -> bool | None:
    """Run the wizard of a provider that has one (`post_setup` of Hermes Agent).

    Return None if it has none, else whether the wizard selected the provider. The provider that was active before stays
    active until the new one was tried. Raises `SetupFailed` if the wizard raises.
    """
    provider = loaded.factory()
    if not isinstance(provider, HasWizard) or not provider.has_setup:
        return None
    # The wizard selects the provider itself, but a provider that does not work must not stay selected.
    before = load_config(home).memory.provider
    try:
        provider.run_setup()
        after = load_config(home).memory.provider
    finally:
        select_provider(home, before)
    return after.casefold() in (loaded.entry.name.casefold(), provider.own_name.casefold())


def try_out(home: HermesHome, loaded: LoadedProvider) -> list[Finding]:
    """Start the provider through a manager, as a turn does, and run its self-test. The active provider stays active."""
    name = loaded.entry.name
    session = trial_session(home, f"setup-{name}")
    try:
        with open_candidate(home, loaded, shutdown_timeout=5.0) as (manager, accepted):
            if accepted:
                start_providers(manager, session)
            return [
                *_condition(manager, name),
                *(check_provider(manager, name, session) if accepted else []),
            ]
    except HermesError as exc:
        return [failed(f"provider {name}", exc.message, exc.remedy)]


def _condition(manager: MemoryManager, name: str) -> Sequence[Finding]:
    found = next((one for one in manager.health() if one.name == name), None)
    if found is not None and found.state == "active":
        return [Finding(f"provider {name}", "ok", "it starts")]
    if found is not None and found.only_dead_letters:
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


# -------------------------------------------------------------------------------------------------------- requirements

CHECK_TIMEOUT_S = 5.0


def missing_tools(tools: Iterable[ExternalTool]) -> list[ExternalTool]:
    """Return the programs whose check fails here."""
    return [tool for tool in tools if not _is_there(tool)]


def _is_there(tool: ExternalTool) -> bool:
    command = shlex.split(tool.check, posix=os.name != "nt") if tool.check else [tool.name]
    if not command or shutil.which(command[0]) is None:
        return False
    if not tool.check:
        return True
    try:
        done = subprocess.run(command, capture_output=True, timeout=CHECK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
