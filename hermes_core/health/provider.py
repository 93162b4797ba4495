"""Checks of the selected provider: its settings, its state, the record of its hooks, its outbox, its packages."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple

import importlib_metadata
from msgspec import Struct

from hermes_core.config import Credentials
from hermes_core.contract.hooks import POLICIES
from hermes_core.contract.values import Check, Field, Session
from hermes_core.errors import ConfigError
from hermes_core.health.finding import Finding, backend_remedy, failed, without_remedy
from hermes_core.home import FOLDER_PREFIX, HermesHome
from hermes_core.kit.settings import Settings, load_settings
from hermes_core.loader.discover import ProviderEntry
from hermes_core.loader.entry_points import DAMAGED_METADATA, normalise
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.loader.load import LoadedProvider
from hermes_core.logs import LogFile
from hermes_core.manager.manager import MemoryManager
from hermes_core.manager.stats import START_HOOKS, HookHealth, ProviderHealth
from hermes_core.memory import Memory
from hermes_core.outbox.lines import delivery_holders
from hermes_core.outbox.store import Backlog
from hermes_core.safety.redact import redact, redact_value
from hermes_core.safety.terminal import counted

Origin = Literal["environment", ".env", "file", "default", ""]

# An outage of an hour is normal; a write that waits longer deserves a warning.
LATE_AFTER_S = 3600.0

# Pending writes are tried before the provider is judged: an outage that has ended is no fault.
FLUSH_TIMEOUT_S = 3.0

# Reading the whole log would make status slow. These lines cover several days of one person.
LOG_LINES = 2000


class SettingLine(Struct, frozen=True):
    """A setting with its value as it may be shown (of a secret only the end) and its source, "" if nothing is set."""

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
        """The remedy if it is missing."""
        where = f"put {self.env} into .env" if self.env else f"set {self.name}"
        return f"{where}{f'; get it at {self.url}' if self.url else ''}"


class LastError(Struct, frozen=True):
    """The last error of a provider in the log; `at` is an ISO time."""

    at: str
    hook: str
    error: str


def settings_in(home: HermesHome, loaded: LoadedProvider) -> Settings:
    """Return the settings in force, as the provider reads them itself. Raises `ConfigError` for a wrong value."""
    found = call_foreign(partial(loaded.read_settings, home.path)) if loaded.read_settings else None
    if isinstance(found, ForeignError) and isinstance(found.error, ConfigError):
        raise found.error
    return (
        found if isinstance(found, Settings) else load_settings(loaded.settings, home.path, loaded.entry.name)
    )


def setting_lines(fields: Sequence[Field], settings: Settings, home: HermesHome) -> tuple[SettingLine, ...]:
    """Return a line for each setting that is set or would be asked for, with value and source.

    Advanced settings that are not set, and settings that others make pointless, are left out.
    """
    credentials = Credentials(home)
    missing = {field.name for field in settings.missing}
    lines = []
    for field in fields:
        value, source = settings[field.name], settings.source(field.name)
        if source == "default" and field.name not in missing and (field.advanced or not settings.asks(field)):
            continue
        origin: Origin = ""
        if value not in (None, ""):
            origin = "default" if source == "default" else "file"
            if source == "env":
                origin = "environment" if credentials.source(field.env) == "environment" else ".env"
        shown = _display(value)
        if field.secret and value:
            shown = credentials.masked(field.env) if field.env else "***"
        about = (field.env, field.url, field.help, field.secret)
        lines.append(SettingLine(field.name, shown, origin, *about, field.name in missing))
    return tuple(lines)


def _display(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(redact_value(value), ensure_ascii=False)
    return "" if value is None else redact(str(value))


def selected_health(memory: Memory, name: str = "") -> ProviderHealth | None:
    """Return the manager's report on a selected provider, None if the manager does not hold it.

    Args:
        name: One of `memory.internals.selection.names`; default: the first.
    """
    selected = memory.internals.selection.names
    wanted = (name or next(iter(selected), "")).casefold().removeprefix(FOLDER_PREFIX)
    external = [one for one in memory.manager.health() if one.name != "builtin"]
    alone = external[0] if external and len(selected) < 2 else None
    return next((one for one in external if one.name.casefold() == wanted), alone)


def last_error(home: HermesHome, provider: str) -> LastError | None:
    """Return the last error of this provider that any process has logged."""
    # The newest line first: one process may have logged hundreds.
    for line in reversed(LogFile(home).read(limit=LOG_LINES, level="warning")):
        if line.get("provider") == provider and (line.get("error") or line.get("reason")):
            hook = str(line.get("hook") or line["kind"])
            return LastError(str(line["at"]), hook, str(line.get("error") or line.get("reason")))
    return None


def examine_provider(memory: Memory, entries: Sequence[ProviderEntry]) -> Iterator[Finding]:
    """Check the selected providers and their settings."""
    if not memory.internals.selection.name:
        yield Finding("provider", "ok", "none; notes and past sessions only")
    for name in memory.internals.selection.names:
        yield from _examine_selected(memory, name, entries)


def _examine_selected(memory: Memory, name: str, entries: Sequence[ProviderEntry]) -> Iterator[Finding]:
    what = f"provider {name}"
    entry = next((e for e in entries if e.name.casefold() == name.casefold() and e.state != "shadowed"), None)
    health = selected_health(memory, name)
    if health is None:
        reason = (entry.reason if entry else "") or "it is not loaded"
        yield failed(what, reason, entry.remedy if entry else "")
    else:
        yield _condition(what, health, entry)
        loaded = memory.internals.selection.loaded.get(health.name)
        late = loaded.late_warnings() if loaded else ()
        yield from (Finding(what, "warning", warning) for warning in (*health.warnings, *late))
    published = entry is not None and entry.kind == "hermes_agent"
    if not (published and health and health.state == "active"):
        # A provider written for Hermes Agent may have its settings elsewhere. If it runs, it has what it needs.
        yield from examine_settings(memory, health.name if health else name, published=published)


def _condition(what: str, health: ProviderHealth, entry: ProviderEntry | None) -> Finding:
    version = f" {entry.version}" if entry and entry.version else ""
    if health.state == "active":
        return Finding(
            what, "ok", f"active{version}, {counted(health.calls, 'call')}, {health.failed} failed"
        )
    remedy = f"hermes-memory memory setup {health.name}"
    if health.only_dead_letters:
        remedy = ""
    elif health.remedy:
        return failed(what, f"{health.state}: {without_remedy(health.reason, health.remedy)}", health.remedy)
    elif health.breakers and health.state == "degraded":
        remedy = "see that its backend runs and can be reached; hermes-memory logs shows what it answered"
    elif health.state == "failed" and health.reason.startswith("initialize"):
        remedy = backend_remedy(health.name)
    return failed(what, f"{health.state}: {health.reason}", "" if remedy in health.reason else remedy)


def examine_settings(memory: Memory, name: str, *, published: bool) -> Iterator[Finding]:
    """Report settings that are missing, wrong, unknown, or in a place where they have no effect.

    The file of a `published` provider has a form of its own, so its warnings are left out.
    """
    loaded = memory.internals.selection.loaded.get(name)
    if loaded is None or not loaded.settings:
        return
    fields = loaded.settings
    try:
        settings = settings_in(memory.home, loaded)
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


def examine_catalog(entries: Sequence[ProviderEntry], selected: Sequence[str]) -> Iterator[Finding]:
    """Report plugins that are shadowed by another of the same name, and those that did not load."""
    names = {name.casefold() for name in selected}
    for entry in entries:
        if entry.state == "shadowed":
            yield Finding(f"plugin {entry.name}", "warning", entry.reason, entry.remedy)
        elif entry.state in ("failed", "degraded") and entry.name.casefold() not in names:
            yield Finding(f"plugin {entry.name}", "warning", f"{entry.state}: {entry.reason}", entry.remedy)


def examine_outbox(memory: Memory) -> Iterator[Finding]:
    """Yield what waits for each provider, since when, and how many dead letters there are."""
    outbox = memory.manager.outbox
    for name in memory.internals.selection.names:
        if kept := pending_writes(memory, name):
            remedy = "they are sent with one of the next turns"
            waiting = f"{counted(kept, 'write waits', 'writes wait')} in the provider"
            yield Finding(f"writes of {name}", "note", waiting, remedy)
    if not outbox.exists:
        yield Finding("outbox", "ok", "nothing was ever to be sent")
        return
    backlogs, holders = outbox.backlogs(), delivery_holders(outbox)
    names = memory.internals.selection.names
    active = [health.name for name in names if (health := selected_health(memory, name))]
    for name, backlog in backlogs.items():
        others = [str(holder) for holder in holders.get(name, ()) if not holder.is_own]
        is_active = name in (*active, *names)
        yield _backlog(name, backlog, outbox.refused(name), others, active=is_active)
    if not backlogs:
        settled = max((at for name in active if (at := outbox.last_settled(name))), default=None)
        when = f", last write taken {age(max(0.0, time.time() - settled))} ago" if settled else ""
        yield Finding("outbox", "ok", f"nothing waits{when}")


def _backlog(name: str, backlog: Backlog, refused: int, holders: list[str], *, active: bool) -> Finding:
    what = f"outbox for {name}"
    oldest = f", the oldest for {age(backlog.oldest_age)}" if backlog.oldest_age is not None else ""
    waiting = "; ".join((f"{counted(backlog.depth, 'write waits', 'writes wait')}{oldest}", *holders))
    if backlog.dead_letters:
        dead = counted(backlog.dead_letters, "write is a dead letter", "writes are dead letters")
        remedy = "hermes-memory outbox list says why; then hermes-memory outbox retry, or delete"
        return failed(what, f"{dead}, {waiting}", remedy)
    if refused:
        detail = f"{counted(refused, 'write was', 'writes were')} not accepted, because the outbox was full, so that the provider lacks what they say"
        return Finding(what, "warning", f"{detail}; {waiting}", "")
    if not active:
        remedy = f"hermes-memory memory use {name} sends them"
        return Finding(what, "note", f"{waiting}; it is not the active provider", remedy)
    if backlog.error or (backlog.oldest_age or 0) > LATE_AFTER_S:
        return Finding(what, "warning", waiting, "hermes-memory outbox list shows the last error of each")
    return Finding(what, "ok", waiting)


def age(seconds: float) -> str:
    """Return a span of time for people.

    >>> age(7300)
    '2 h'
    """
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


# ---------------------------------------------------------------------------------------------------------------- hooks


class HookRecord(Struct, frozen=True):
    """The record of a hook: its last success in epoch seconds, and the 95th percentile in the process of that call."""

    hook: str
    calls: int
    last_success: float | None
    p95_ms: float | None

    @property
    def p95(self) -> str:
        """The 95th percentile for people.

        >>> HookRecord("prefetch", 12, 1.0, 1530.0).p95
        'p95 1,530 ms of 12 calls'
        """
        calls = counted(self.calls, "call")
        return (
            f"none of {calls} went well" if self.p95_ms is None else f"p95 {self.p95_ms:,.0f} ms of {calls}"
        )


def hook_records(
    home: HermesHome, provider: str, now: Mapping[str, HookHealth] | None = None
) -> tuple[HookRecord, ...]:
    """Return the record of every hook that was called, by name, without the hooks of every start.

    Other processes write their calls to the log. Raises `StorageError`.

    Args:
        now: The calls of this process.
    """
    found: dict[str, HookRecord] = {}
    for line in LogFile(home).read(limit=LOG_LINES):
        hooks = line.get("hooks")
        if line["kind"] == "provider.hooks" and line.get("provider") == provider and isinstance(hooks, dict):
            for name, entry in hooks.items():
                _add_record(found, str(name), entry if isinstance(entry, dict) else {})
    for name, one in (now or {}).items():
        _add_record(found, name, {"calls": one.calls, "last_success": one.last_success, "p95_ms": one.p95_ms})
    return tuple(found[name] for name in sorted(found.keys() - START_HOOKS))


def examine_hooks(memory: Memory) -> Iterator[Finding]:
    """Report each hook of the selected providers."""
    several = len(memory.internals.selection.names) > 1
    for name in memory.internals.selection.names:
        health = selected_health(memory, name)
        if health is None:
            continue
        for one in hook_records(memory.home, health.name, health.hooks):
            ago = age(max(0.0, time.time() - one.last_success)) if one.last_success else ""
            when = f"last success {ago} ago, " if ago else ""
            what = f"hook {health.name}.{one.hook}" if several else f"hook {one.hook}"
            yield Finding(what, "ok" if ago else "note", f"{when}{one.p95}")


def examine_last_call(home: HermesHome, provider: str) -> Iterator[Finding]:
    """Report a hook whose last call failed, unless a self-test has succeeded since. Status must not hide it."""
    last = last_error(home, provider)
    records = {one.hook: one for one in hook_records(home, provider)}
    policy = POLICIES.get(last.hook) if last else None
    if last is None or last.hook not in records or policy is None or policy.durable:
        return  # a failed write is tried again, and the outbox reports it
    good = [records[name].last_success or 0.0 for name in (last.hook, "check") if name in records]
    if max(good) < _seconds(last.at):
        detail = f"its last {last.hook} failed: {last.error}"
        yield failed(f"provider {provider}", detail, "hermes-memory doctor tries it again")


def _seconds(at: str) -> float:
    """Return a time of the log in epoch seconds, 0 if it is damaged, as after an edit by hand."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0


def _add_record(found: dict[str, HookRecord], name: str, entry: Mapping[str, Any]) -> None:
    """Replace the record of an earlier process, but keep its success if the later process had none."""
    calls, at, p95 = entry.get("calls"), entry.get("last_success"), entry.get("p95_ms")
    at = at if isinstance(at, int | float) else None
    before = found.get(name)
    if before and (at or 0) < (before.last_success or 0):
        at, p95 = before.last_success, before.p95_ms
    p95 = p95 if isinstance(p95, int | float) else None
    found[name] = HookRecord(name, calls if isinstance(calls, int) else 0, at, p95)


# -------------------------------------------------------------------------------------------------- start and self-test


# The user of trials. Nobody else has this id, so what a trial leaves behind is in no person's recall.
TRIAL_USER = "hermes-doctor"


def trial_session(home: HermesHome, session_id: str) -> Session:
    """Return a session in which doctor and setup try a provider.

    It is primary, because providers written for Hermes Agent know no other kind of session with a person, and some
    refuse one. It has a scope of its own, and nothing of it is put into the outbox.
    """
    return Session(session_id, user_id=TRIAL_USER, identity=home.profile, home=str(home.path))


def pending_writes(memory: Memory, name: str) -> int:
    """Return the number of writes that a selected provider keeps and its backend does not have yet."""
    health = selected_health(memory, name)
    if health is None:
        return 0
    outcome = memory.manager.ask(health.name, "pending_writes", session=memory.local_session)
    return int(outcome.value) if outcome.ok else 0


def start_providers(manager: MemoryManager, session: Session) -> None:
    """Start the providers, wait for them up to the deadline of `initialize`, and send pending writes.

    A provider that loads a model of its own takes a while. Closing the memory does not wait for the writes again.
    """
    manager.initialize_all(session, wait=math.inf)
    # An outage may have ended; a write that is accepted now is no finding.
    manager.flush(FLUSH_TIMEOUT_S)


def check_provider(manager: MemoryManager, name: str, session: Session) -> list[Finding]:
    """Run the provider's self-test and return a finding for each line of it, a note if it has none."""
    outcome = manager.ask(name, "check", session=session)
    what = f"self-test of {name}"
    if outcome.ok:
        lines: Sequence[Check] = outcome.value
        return [_check_finding(what, line) for line in lines] or [Finding(what, "note", "it tested nothing")]
    if outcome.status == "skipped" and not outcome.error:
        return [Finding(what, "note", "it brings none, so only its start and recall are tried")]
    return [failed(what, f"{outcome.status}: {outcome.detail}", outcome.remedy or backend_remedy(name))]


def _check_finding(what: str, line: Check) -> Finding:
    detail = f"{line.name}: {line.detail}" if line.detail else line.name
    return Finding(what, "ok", detail) if line.ok else failed(what, detail, line.remedy)


# ------------------------------------------------------------------------------------------------------------- packages


class InstalledPackage(NamedTuple):
    """A place where a distribution is installed."""

    version: str
    path: str


def examine_packages(distributions: Iterable[str] = ()) -> Iterator[Finding]:
    """Report this package and `distributions` that are installed in two versions or more.

    Which version an import gets is then a matter of luck.
    """
    for name in sorted({"hermes-memory-core", *map(normalise, distributions)} - {""}):
        found = list(importlib_metadata.distributions(name=name))
        if len(found) < 2:
            continue  # reading a version parses the metadata, which takes most of the time of this check
        places = []
        for distribution in found:
            with contextlib.suppress(*DAMAGED_METADATA):  # the loader reports damaged metadata
                places.append(InstalledPackage(distribution.version, str(distribution.locate_file(""))))
        places = list(dict.fromkeys(places))
        if len({place.version for place in places}) > 1:
            yield Finding(
                f"package {name}",
                "warning",
                f"{len(places)} versions are installed: "
                + ", ".join(f"{place.version} in {place.path}" for place in places),
                f"python -m pip uninstall {name} until it says that nothing is installed, then install it once",
            )
