"""The status of a home as one value. Nothing is written and no self-test runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from msgspec import Struct, field

from hermes_core.config.keys import COMPOSITE
from hermes_core.contract.values import MemoryTarget, parse_outside_id
from hermes_core.curated.stored import StoredNotes, Trust
from hermes_core.errors import ConfigError, StorageError
from hermes_core.health.databases import unusable, vector_state
from hermes_core.health.files import examine_files, examine_texts
from hermes_core.health.finding import Finding, HealthCheck, error_finding, run_check, run_checks
from hermes_core.health.provider import (
    HookRecord,
    LastError,
    SettingLine,
    examine_catalog,
    examine_last_call,
    examine_outbox,
    examine_packages,
    examine_provider,
    hook_records,
    last_error,
    pending_writes,
    selected_health,
    setting_lines,
    settings_in,
    start_providers,
)
from hermes_core.home import HermesHome
from hermes_core.loader.discover import ProviderEntry
from hermes_core.manager.stats import ProviderHealth
from hermes_core.memory import Memory, open_memory
from hermes_core.outbox.lines import delivery_holders
from hermes_core.safety.redact import redact
from hermes_core.storage.leases import COMPRESSION_PREFIX, SESSION_PREFIX, lease_holders


class StoreStatus(Struct, frozen=True):
    """The status of MEMORY.md or USER.md.

    Sizes are in characters, None if the file can't be read. `flagged` are the entries hidden from the model, and why.
    """

    enabled: bool
    entries: int | None = 0
    used: int | None = 0
    limit: int | None = 0
    flagged: tuple[str, ...] = ()


class OutboxStatus(Struct, frozen=True):
    """Writes that no backend has yet, None when the outbox can't be read; `oldest_age_s` is in seconds.

    `waiting` also counts the writes that the provider keeps for a batch, which are not in the outbox.
    """

    waiting: int | None = 0
    dead_letters: int | None = 0
    oldest_age_s: float | None = None


class LeaseStatus(Struct, frozen=True):
    """A lease of another program.

    Attributes:
        name: "delivery to PROVIDER", "session ID" or "compression of session ID".
        host: Name of the machine of the program that has it.
        process: Id of that program.
        ended: True if that program is known to have ended, so that the next one waits for the end of its lease.
        seconds: Seconds until the lease ends, if the program does not extend it.
        remark: A sentence about all of this.
    """

    name: str
    host: str
    process: int
    ended: bool
    seconds: float
    remark: str


class IdentityStatus(Struct, frozen=True):
    """Identity of the person at home: `owners` are ids on other platforms; `remark` says what may be wrong, "" if nothing."""

    owners: tuple[str, ...] = ()
    remark: str = ""


class WaitingStatus(Struct, frozen=True):
    """Notes whose origin keeps them out of the system prompt until a person confirms them.

    Attributes:
        count: Notes of the person at home.
        of_users: Number of notes by user; users without one are left out.
    """

    count: int = 0
    of_users: Mapping[str, int] = field(default_factory=dict)


class TrustStatus(Struct, frozen=True):
    """The settings that decide which notes stand in system prompts; `accepted_origins` do without a look of a person."""

    trust: Trust = "guarded"
    accepted_origins: tuple[str, ...] = ()


class ProviderStatus(Struct, frozen=True):
    """The status of the selected provider: its state, settings, last error and hooks.

    `last_taken` is the time in epoch seconds at which it last accepted a write.
    """

    name: str
    state: str
    reason: str = ""
    version: str = ""
    installed: bool = False
    settings: tuple[SettingLine, ...] = ()
    last_error: LastError | None = None
    last_taken: float | None = None
    hooks: tuple[HookRecord, ...] = ()

    @property
    def missing(self) -> tuple[SettingLine, ...]:
        """Required settings without a value."""
        return tuple(line for line in self.settings if line.missing)


class Status(Struct, frozen=True):
    """The status of a home.

    `provider` is the name in config.yaml, "" for built-in only; `selected` is its status, or that of the first member of a
    composite, whose `members` are all of them. `problems` are sentences about what is configured and does not work, each
    with the remedy.
    """

    home: str
    profile: str
    builtin: Mapping[MemoryTarget, StoreStatus] = field(default_factory=dict)
    waiting: WaitingStatus = WaitingStatus()
    trust: TrustStatus = TrustStatus()
    identity: IdentityStatus = IdentityStatus()
    provider: str = ""
    selected: ProviderStatus | None = None
    members: tuple[ProviderStatus, ...] = ()
    outbox: OutboxStatus = OutboxStatus()
    leases: tuple[LeaseStatus, ...] = ()
    sessions: Mapping[str, Any] = field(default_factory=dict)
    health: tuple[ProviderHealth, ...] = ()
    installed: tuple[ProviderEntry, ...] = ()
    config_warnings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def status_of(home: HermesHome) -> Status:
    """Return the status of a home. Raises `ConfigError` for a config.yaml that can't be read."""
    # Checked before the memory opens, since opening creates files and repairs modes.
    broken = [
        *(
            one
            for one in run_check("files", lambda: examine_files(home))
            if one.state in ("warning", "failed")
        ),
        *unusable(home),
    ]
    with open_memory(home) as memory:
        start_providers(memory.manager, memory.local_session)
        return _status(memory, broken)


def _status(memory: Memory, broken: list[Finding]) -> Status:
    entries = memory.internals.selection.entries()
    unusable_names = {one.what for one in broken if one.failed}
    findings = [
        *broken,
        *run_check("provider", lambda: _last_call(memory)),
        *run_checks(SHARED_CHECKS, OpenHome(memory, entries)),
        *memory.internals.extensions.findings(Finding, memory.home.path, memory.config, trial=False),
    ]
    outbox = OutboxStatus(None, None)
    leases: tuple[LeaseStatus, ...] = ()
    sessions: dict[str, Any] = {"search_enabled": memory.config.sessions.search_enabled}
    if "state.db" not in unusable_names:
        try:
            sessions |= {**memory.sessions.counts(), "by_meaning": vector_state(memory)}
        except StorageError as exc:
            findings.append(error_finding("state.db", exc))
        else:  # the outbox stands in the same file, whose fault is said once
            findings += run_check("outbox", lambda: examine_outbox(memory))
            with contextlib.suppress(StorageError):  # `examine_outbox` tells
                outbox, leases = _outbox(memory), tuple(_leases(memory))
    problems, notes = memory.problems(), memory.curated.read()
    providers = tuple(_provider(memory, name, entries) for name in memory.internals.selection.names)
    untold = [one for one in findings if not any(one.detail in text for text in problems)]
    return Status(
        str(memory.home.path),
        memory.home.profile,
        {target: _store(notes, target) for target in memory.curated.files.targets},
        waiting_status(memory),
        TrustStatus(memory.config.memory.trust, memory.config.memory.accepted_origins),
        IdentityStatus(memory.config.identity.owners, memory.problem_log.of_sharing()),
        memory.internals.selection.name,
        next(iter(providers), None),
        providers if memory.internals.selection.name == COMPOSITE else (),
        outbox,
        leases,
        sessions,
        memory.manager.health(),
        tuple(entries),
        memory.config.warnings,
        _sentences(findings, failed=False),
        (*problems, *_sentences(untold, failed=True)),
    )


class OpenHome(NamedTuple):
    """A home to examine: its open memory, and the providers that are installed."""

    memory: Memory
    entries: Sequence[ProviderEntry]


SHARED_CHECKS: tuple[HealthCheck[OpenHome], ...] = (
    HealthCheck("text", lambda home: examine_texts(home.memory.home)),
    HealthCheck("provider", lambda home: examine_provider(home.memory, home.entries)),
    HealthCheck("plugins", lambda home: examine_catalog(home.entries, home.memory.internals.selection.names)),
    HealthCheck("packages", lambda home: examine_packages(entry.distribution for entry in home.entries)),
)
"""The checks of an open memory that `memory status` and `doctor` share."""


def waiting_status(memory: Memory) -> WaitingStatus:
    """Return how many notes wait, of the person at home and of each user."""
    of_users = {}
    owners: list[str] = []
    with contextlib.suppress(StorageError):  # a finding tells of a server that is down
        owners = memory.curated.places.owners() if memory.config.memory.per_user else []
    for owner in owners:
        session = memory.session(replace(memory.local_session, **parse_outside_id(owner)))  # type: ignore[arg-type]
        if session.owner and (count := len(memory.curated.of(session).read().waiting_notes())):
            of_users[owner] = count
    return WaitingStatus(len(memory.curated.read().waiting_notes()), of_users)


def _provider(memory: Memory, selected: str, entries: list[ProviderEntry]) -> ProviderStatus:
    health = selected_health(memory, selected)
    name = health.name if health else selected
    entry = next((e for e in entries if e.name.casefold() == name.casefold() and e.state != "shadowed"), None)
    lines: tuple[SettingLine, ...] = ()
    try:
        if loaded := memory.internals.selection.loaded.get(name):
            lines = setting_lines(loaded.settings, settings_in(memory.home, loaded), memory.home)
    except ConfigError:
        pass  # `examine_provider` tells which value is wrong
    reason = health.reason if health else (entry.reason if entry else "")
    last = last_error(memory.home, name)
    return ProviderStatus(
        name,
        health.state if health else (entry.state if entry else "failed"),
        reason,
        entry.version if entry else "",
        entry.installed if entry else False,
        lines,
        None if last and last.error in reason else last,
        _last_taken(memory, name),
        hook_records(memory.home, name, health.hooks if health else None),
    )


def _last_call(memory: Memory) -> Iterator[Finding]:
    for name in memory.internals.selection.names:
        health = selected_health(memory, name)
        if health is not None and health.state == "active":
            yield from examine_last_call(memory.home, health.name)


def _outbox(memory: Memory) -> OutboxStatus:
    outbox = memory.manager.outbox
    unsent = sum(pending_writes(memory, name) for name in memory.internals.selection.names)
    if not outbox.exists:
        return OutboxStatus(unsent)
    backlogs = outbox.backlogs().values()
    return OutboxStatus(
        sum(backlog.depth for backlog in backlogs) + unsent,
        sum(backlog.dead_letters for backlog in backlogs),
        max((backlog.oldest_age for backlog in backlogs if backlog.oldest_age is not None), default=None),
    )


def _leases(memory: Memory) -> Iterator[LeaseStatus]:
    """Yield the leases of other programs on deliveries and sessions."""
    holders = [
        (f"delivery to {provider}", holder)
        for provider, several in delivery_holders(memory.manager.outbox).items()
        for holder in several
    ]
    for name, holder in lease_holders(memory.sessions.database).items():
        for prefix, words in ((SESSION_PREFIX, "session "), (COMPRESSION_PREFIX, "compression of session ")):
            if name.startswith(prefix):
                holders.append((f"{words}{name.removeprefix(prefix)}", holder))
    for name, one in holders:
        if not one.is_own:
            yield LeaseStatus(name, one.host, one.process, one.has_ended, one.seconds, str(one))


def _last_taken(memory: Memory, provider: str) -> float | None:
    outbox = memory.manager.outbox
    try:
        return outbox.last_settled(provider) if outbox.exists else None
    except StorageError:
        return None  # `unusable` tells


def _store(notes: StoredNotes, target: MemoryTarget) -> StoreStatus:
    if target not in notes.files:
        return StoreStatus(False)
    if conflict := notes.problems.get(target):
        return StoreStatus(True, None, None, None, (redact(conflict.message),))
    used, limit = notes.usage(target)
    flagged = tuple(f"{one.handle}: {one.reason}" for one in notes.flagged(target))
    return StoreStatus(True, len(notes.entries(target)), used, limit, flagged)


def _sentences(findings: list[Finding], *, failed: bool) -> tuple[str, ...]:
    wanted = ("failed",) if failed else ("warning",)
    return tuple(
        f"{one.what}: {one.detail}{f'; {one.remedy}' if one.remedy else ''}"
        for one in findings
        if one.state in wanted
    )
