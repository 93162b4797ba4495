"""What must not be lost: durable calls go to the outbox of the home and from there, one drainer a provider, on."""

from __future__ import annotations

import contextvars
import dataclasses
import itertools
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable

from hermes_core.contract.values import Session, SessionSwitch, Turn
from hermes_core.errors import HermesError
from hermes_core.home import HermesHome
from hermes_core.manager.delivery import OutboxWorker
from hermes_core.manager.outbox import Outbox
from hermes_core.manager.payload import Transcripts, Write, pack, pack_switch
from hermes_core.manager.providers import ProviderHandle, ProviderRegistry
from hermes_core.manager.stats import ManagerConfig, ProviderHealth, parked_reason

log = logging.getLogger(__name__)

RECOVERY_CHUNK = 200
"""Turns that a recovery stores in one transaction."""

UNANSWERED = 2.5
"""Seconds of waiting in vain after which a write under way at the end counts as a try that failed: where every process is
short, a backend that never answers would look like one that nobody has asked yet."""


class Writes:
    """The durable half of the manager. Writes of sessions without a person (cron, subagents, reviews) are left out."""

    def __init__(
        self,
        home: HermesHome,
        roster: ProviderRegistry,
        terms: ManagerConfig,
        transcripts: Transcripts | None,
    ) -> None:
        self.outbox = Outbox(home, wall=terms.wall)
        self._folder = home.path
        self._roster = roster
        self._terms = terms
        self._transcripts = transcripts
        self._drainers: dict[str, OutboxWorker] = {}
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._waited = 0.0

    def resume(self) -> None:
        """Go on with what an earlier process left, once a provider."""
        for held in self._durable():
            if held.name in self._drainers:
                continue
            try:
                self.outbox.attach(held.name)
            except HermesError as exc:
                # A start goes on without; each write will raise, and health shows it.
                log.error("%s: nothing can be sent: %s", held.name, exc)
            else:
                self._drainer(held).wake()

    def store(self, hook: str, session: Session, write: Callable[[], Write]) -> None:
        """Put one call on disk for each provider that has the hook. Raises `OutboxFull` or `DatabaseUnavailable`."""
        takers = self._roster.takers(hook) if session.primary else ()
        if not takers:
            return
        self._waited = 0.0
        row = write()
        for held in takers:
            try:
                self.outbox.put(held.name, row, held.fingerprint)
            except HermesError as exc:
                held.stats.last_error = self._terms.redact(f"{hook}: {exc}")
                data = {"provider": held.name, "hook": hook, "error": str(exc)}
                self._terms.emit("outbox.refused", data)
                raise
            self._drainer(held).wake()

    def switch(self, switch: SessionSwitch, turns: Iterable[str], account: str | None) -> bool:
        """Drop unsent rows of `turns` and put the switch in line, in one transaction; whether there is a provider.

        What waits for a provider that is not in use now is dropped as well: it may be one day.
        """
        taken_back = list(dict.fromkeys([*switch.rewound_turns, *turns]))
        in_use, self._waited = self._durable(), 0.0
        if taken_back and self.outbox.path.exists():
            for name in self.outbox.backlogs().keys() - {held.name for held in in_use}:
                self.outbox.drop_turns(name, taken_back)
        for held in in_use if switch.old.primary else []:
            told = held.implements("on_session_switch")
            if told or taken_back:
                row = self._switch_row(switch) if told else None
                self.outbox.drop_turns(held.name, taken_back, row, *self._recorded(held, account))
                self._drainer(held).wake()
        return bool(in_use)

    def drop_session(self, session_id: str, turns: Iterable[str]) -> int:
        """Drop what waits of a session that is deleted, or is yet to come of its turns; how many rows waited."""
        return self.outbox.drop_session(session_id, turns) if self.outbox.path.exists() else 0

    def recover(self, turns: Iterable[tuple[Turn, Session]], account: str | None) -> int:
        """Store the turns that the outbox does not know; how many."""
        added = 0
        rest = iter(turns)
        while chunk := list(itertools.islice(rest, RECOVERY_CHUNK)):
            for held in self._roster.takers("sync_turn"):
                writes = [
                    pack("sync_turn", turn, session, self._terms.redact)
                    for turn, session in chunk
                    if session.primary and not self.outbox.knows(held.name, "sync_turn", turn.id)
                ]
                recorded = self._recorded(held, account)
                added += self.outbox.append(held.name, writes, *recorded) if writes else 0
                self._drainer(held).wake()
        return added

    def recover_since(self) -> float:
        """The time from which on the ids of what was settled are known, in seconds since the epoch."""
        found = (self.outbox.recover_since(held.name) for held in self._durable())
        return min(found, default=self._terms.wall())

    def flush(self, timeout: float) -> bool:
        """Wait until nothing waits. False after `timeout` seconds, or when nothing can move."""
        began = time.monotonic()
        until = began + timeout
        if not self.outbox.path.exists():
            return True
        try:
            sent = [self._drainer(held).flush(until - time.monotonic()) for held in self._durable()]
        except HermesError as exc:
            log.error("nothing can be sent: %s", exc)
            return False
        self._waited += time.monotonic() - began
        return all(sent)

    def flush_at_end(self, timeout: float) -> bool:
        """The same, less what was waited since the last write: who waited in vain for it does not wait again."""
        return self.flush(max(0.0, timeout - self._waited))

    def stop(self, timeout: float) -> None:
        """Send nothing more."""
        for name, drainer in self._drainers.items():
            if not drainer.stop(timeout) and self._waited >= UNANSWERED:
                self._note_unanswered(name)

    def with_backlog(self, held: ProviderHandle, health: ProviderHealth) -> ProviderHealth:
        """`health` and what waits in the outbox; waiting for no good reason is a trouble."""
        if not held.durable or not self.outbox.path.exists():
            return health
        try:
            backlog = self.outbox.backlog(held.name)
        except HermesError as exc:
            return dataclasses.replace(
                health, state="failed", reason=self._terms.redact(f"its writes can't be stored: {exc}")
            )
        drainer = self._drainers.get(held.name)
        stuck = (drainer.stuck() or drainer.trouble) if drainer and backlog.depth else ""
        parked = parked_reason(backlog.parked)
        tried = f"{backlog.depth} write(s) wait, because a try failed: {backlog.error}"
        if stuck or not backlog.error or backlog.error in health.reason:
            tried = ""  # there is nothing more to say
        trouble = "; ".join(dict.fromkeys(filter(None, [health.reason, stuck, tried, parked])))
        return dataclasses.replace(
            health,
            state="degraded" if trouble and health.state == "active" else health.state,
            reason=trouble,
            depth=backlog.depth,
            oldest_age=backlog.oldest_age,
            parked=backlog.parked,
        )

    def _note_unanswered(self, name: str) -> None:
        try:
            first = self.outbox.next(name)
            if first is not None and not self.outbox.backlog(name).error:
                error = f"no answer within {round(self._waited, 1):g} s, and then the program ended; is the backend well?"
                self.outbox.failed(first, error, counted=False)
        except (HermesError, sqlite3.Error) as exc:
            log.error("%s: what is under way can't be noted: %s", name, exc)

    def _durable(self) -> list[ProviderHandle]:
        return [held for held in self._roster.external if held.durable]

    def _recorded(self, held: ProviderHandle, account: str | None) -> tuple[str, float]:
        """The account of a row, that in use for None, and when it was made: what is handed on for another one is from before
        ours, and no row of a process that lives and has that account.
        """
        now = self._terms.wall()
        if account in (None, held.fingerprint):
            return held.fingerprint, now
        return str(account), held.account_since or now

    def _switch_row(self, switch: SessionSwitch) -> Callable[[list[str]], Write]:
        def row(sent: list[str]) -> Write:
            return pack_switch(dataclasses.replace(switch, rewound_turns=tuple(sent)), self._terms.redact)

        return row

    def _drainer(self, held: ProviderHandle) -> OutboxWorker:
        found = self._drainers.get(held.name)
        if found is not None:
            return found
        with self._lock:
            found = self._drainers.get(held.name)
            if found is None:
                found = OutboxWorker(
                    held, self.outbox, self._terms, self._folder, self._transcripts, self._context
                )
                self._drainers[held.name] = found
                held.busy, held.on_start = found.sending, found.provider_started
            return found
