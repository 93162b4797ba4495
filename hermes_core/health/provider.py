"""The selected provider: where each setting comes from, what is missing, how it has been doing, what waits for it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from hermes_core.config import Credentials
from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError
from hermes_core.health.finding import Finding, backend_cure, failed
from hermes_core.home import HermesHome
from hermes_core.kit.settings import Settings, load_settings
from hermes_core.loader.discover import ProviderEntry
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.loader.load import LoadedProvider
from hermes_core.logs import LogFile
from hermes_core.manager.outbox import Backlog
from hermes_core.manager.stats import ProviderHealth
from hermes_core.memory import Memory
from hermes_core.safety.redact import redact, redact_value

Origin = Literal["environment", ".env", "file", "default", ""]

LATE = 3600.0
"""Seconds after which a write that waits is worth a word."""

LOG_LINES = 2000
"""Lines of the log that are searched for the last error."""


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting as it stands. `value` is fit to be shown: of a secret only its end; `source` is "" when nothing is set."""

    name: str
    value: str
    source: Origin
    env: str = ""
    url: str = ""
    help: str = ""
    secret: bool = False
    missing: bool = False

    @property
    def remedy(self) -> str:
        """What to do when it is missing."""
        where = f"put {self.env} into .env" if self.env else f"set {self.name}"
        return f"{where}{f'; get it at {self.url}' if self.url else ''}"


@dataclass(frozen=True, slots=True)
class LastError:
    """What went wrong last, as the log has it; `at` is an ISO time."""

    at: str
    hook: str
    error: str


def settings_in(home: HermesHome, loaded: LoadedProvider) -> Settings:
    """The settings of a provider that hold in a home, as it reads them itself. Raises `ConfigError` for a wrong value."""
    found = call_foreign(partial(loaded.read_settings, home.path)) if loaded.read_settings else None
    if isinstance(found, ForeignError) and isinstance(found.error, ConfigError):
        raise found.error
    return (
        found if isinstance(found, Settings) else load_settings(loaded.settings, home.path, loaded.entry.name)
    )


def setting_lines(fields: Sequence[Field], settings: Settings, home: HermesHome) -> tuple[SettingLine, ...]:
    """The settings of a provider that are given or could be asked for, with value and source.

    Advanced ones that are not set, and those that the others make pointless, are left out.
    """
    credentials = Credentials(home)
    missing = {field.name for field in settings.missing}
    shown = [field for field in fields if _is_worth_a_line(field, settings)]
    return tuple(_line(field, settings, credentials, missing) for field in shown)


def _is_worth_a_line(field: Field, settings: Settings) -> bool:
    if settings.source(field.name) != "default" or field in settings.missing:
        return True
    return not field.advanced and settings.asks(field)


def _line(field: Field, settings: Settings, credentials: Credentials, missing: set[str]) -> SettingLine:
    value = settings[field.name]
    source: Origin = ""
    if value not in (None, ""):
        source = _origin(field, settings, credentials)
    shown = _shown(value)
    if field.secret and value:
        shown = credentials.masked(field.env) if field.env else "***"
    return SettingLine(
        field.name, shown, source, field.env, field.url, field.help, field.secret, field.name in missing
    )


def _origin(field: Field, settings: Settings, credentials: Credentials) -> Origin:
    source = settings.source(field.name)
    if source == "env":
        return "environment" if credentials.source(field.env) == "environment" else ".env"
    return "default" if source == "default" else "file"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(redact_value(value), ensure_ascii=False)
    return "" if value is None else redact(str(value))


def health_of(memory: Memory) -> ProviderHealth | None:
    """The manager's word on the selected provider; None when it was not held at all."""
    names = {memory.selected.casefold()} - {""}
    external = [one for one in memory.manager.health() if one.name != "builtin"]
    return next((one for one in external if one.name.casefold() in names), external[0] if external else None)


def last_error(home: HermesHome, provider: str) -> LastError | None:
    """The last failure of this provider that any process has logged."""
    for line in reversed(LogFile(home).read(limit=LOG_LINES, level="warning")):
        if line.get("provider") == provider and (line.get("error") or line.get("reason")):
            hook = str(line.get("hook") or line["kind"])
            return LastError(str(line["at"]), hook, str(line.get("error") or line.get("reason")))
    return None


def examine_provider(memory: Memory, entries: Sequence[ProviderEntry]) -> Iterator[Finding]:
    """The selected provider and its settings."""
    name = memory.selected
    if not name:
        yield Finding("provider", "ok", "built-in memory only")
        return
    what = f"provider {name}"
    entry = next((e for e in entries if e.name.casefold() == name.casefold() and e.state != "shadowed"), None)
    health = health_of(memory)
    if health is None:
        reason = (entry.reason if entry else "") or "it is not loaded"
        yield failed(what, reason, entry.remedy if entry else "")
    else:
        yield _condition(what, health, entry, memory)
        yield from (Finding(what, "warning", warning) for warning in health.warnings)
    published = entry is not None and entry.kind == "hermes_agent"
    if not (published and health and health.state == "active"):
        # A published provider may have its settings elsewhere: when it runs, it has what it needs.
        yield from examine_settings(memory, health.name if health else name, published=published)


def _condition(what: str, health: ProviderHealth, entry: ProviderEntry | None, memory: Memory) -> Finding:
    version = f" {entry.version}" if entry and entry.version else ""
    if health.state == "active":
        return Finding(what, "ok", f"active{version}, {health.calls} calls, {health.failed} failed")
    remedy = f"hermes-memory memory setup {memory.selected}"
    if health.well_but_parked:
        remedy = ""
    elif health.breakers and health.state == "degraded":
        remedy = "see that its backend runs and can be reached; hermes-memory logs shows what it answered"
    elif health.state == "failed" and health.reason.startswith("initialize"):
        remedy = backend_cure(memory.selected)
    return failed(what, f"{health.state}: {health.reason}", "" if remedy in health.reason else remedy)


def examine_settings(memory: Memory, name: str, *, published: bool) -> Iterator[Finding]:
    """Settings that are missing, wrong, unknown, or in a place where they have no effect.

    The file of a `published` provider is in a form of its own, so what is strange in it is not told.
    """
    if memory.loaded is None or not memory.loaded.settings:
        return
    fields = memory.loaded.settings
    try:
        settings = settings_in(memory.home, memory.loaded)
    except ConfigError as exc:
        yield failed(f"settings of {name}", exc.message, exc.remedy)
        return
    lines = setting_lines(fields, settings, memory.home)
    for line in lines:
        if line.missing:
            yield failed(f"setting {line.name}", "it is required and not set", line.remedy)
    for warning in () if published else settings.warnings:
        yield Finding(f"settings of {name}", "warning", warning)
    if not settings.missing:
        given = sum(line.source not in ("", "default") for line in lines)
        yield Finding(f"settings of {name}", "ok", f"{given} set, {len(fields) - given} by default")


def examine_catalog(entries: Sequence[ProviderEntry], selected: str) -> Iterator[Finding]:
    """Plugins that are hidden by another of the same name, and those that did not load."""
    for entry in entries:
        if entry.state == "shadowed":
            yield Finding(f"plugin {entry.name}", "warning", entry.reason, entry.remedy)
        elif entry.state in ("failed", "degraded") and entry.name.casefold() != selected.casefold():
            yield Finding(f"plugin {entry.name}", "warning", f"{entry.state}: {entry.reason}", entry.remedy)


def examine_outbox(memory: Memory) -> Iterator[Finding]:
    """What waits for each provider, since when, and what is parked."""
    outbox = memory.manager.outbox
    if not outbox.path.exists():
        yield Finding("outbox", "ok", "nothing was ever to be sent")
        return
    backlogs = outbox.backlogs()
    active = health_of(memory)
    for name, backlog in backlogs.items():
        yield _backlog(name, backlog, name == memory.selected)
    if not backlogs:
        settled = outbox.last_settled(active.name) if active else None
        when = f", last write taken {age(max(0.0, time.time() - settled))} ago" if settled else ""
        yield Finding("outbox", "ok", f"nothing waits{when}")


def _backlog(name: str, backlog: Backlog, active: bool) -> Finding:
    what = f"outbox for {name}"
    oldest = f", the oldest for {age(backlog.oldest_age)}" if backlog.oldest_age is not None else ""
    waiting = f"{backlog.depth} write(s) wait{oldest}"
    if backlog.parked:
        return failed(
            what,
            f"{backlog.parked} write(s) are parked, {waiting}",
            "hermes-memory outbox list says why; then hermes-memory outbox retry, or drop",
        )
    if not active:
        return Finding(
            what,
            "note",
            f"{waiting}; it is not the active provider",
            f"hermes-memory memory use {name} sends them",
        )
    if backlog.error or (backlog.oldest_age or 0) > LATE:
        return Finding(what, "warning", waiting, "hermes-memory outbox list shows the last error of each")
    return Finding(what, "ok", waiting)


def age(seconds: float) -> str:
    """A span of time for people.

    >>> age(7300)
    '2 h'
    """
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
