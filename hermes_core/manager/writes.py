"""Writes of the manager: calls of durable hooks are stored in the outbox and delivered to the provider from there."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import logging
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from hermes_core.contract.values import Session, SessionSwitch, Turn
from hermes_core.errors import HermesError, OutboxError
from hermes_core.kit.text import without_numbers
from hermes_core.manager.call import CallResult, attempt, describe
from hermes_core.manager.composite import WriteKind, takes
from hermes_core.manager.providers import ProviderHandle, ProviderRegistry
from hermes_core.manager.stats import ManagerConfig, ProviderHealth, dead_letter_reason
from hermes_core.outbox.delivery import Delivery, OutboxWorker
from hermes_core.outbox.rows import (
    DELIVERED_ROW,
    NewRow,
    Row,
    Transcripts,
    decode,
    encode,
    encode_forget,
    encode_switch,
)
from hermes_core.outbox.store import ANY_ACCOUNT, UNKNOWN_ACCOUNT, Outbox
from hermes_core.safety.terminal import counted
from hermes_core.storage.engine import Statement

log = logging.getLogger(__name__)

ANOTHER_ACCOUNT = "recorded for another account; `hermes-memory outbox retry` sends it to the one in use now"

NO_PROVIDERS: Mapping[str, frozenset[WriteKind]] = {}

UNANSWERED_S = 2.5
"""Seconds. If a program waited in vain for at least this long before it ends, the error "no answer" is stored with the
first row. Otherwise, if every process is short, a backend that never answers would look as if it had not been tried yet."""


class Writes:
    """Storage and delivery of the writes of one manager: it puts them into the outbox and runs the outbox workers.

    Writes of sessions without a person (cron, subagents, reviews) are not stored.

    Args:
        selected: The providers of config.yaml with the kinds of writes that they get. Rows are stored for one while it
            is not loaded.
    """

    def __init__(
        self,
        outbox: Outbox,
        registry: ProviderRegistry,
        config: ManagerConfig,
        transcripts: Transcripts | None,
        selected: Mapping[str, frozenset[WriteKind]] = NO_PROVIDERS,
    ) -> None:
        self.outbox = outbox
        self.outbox.on_row = self._wake
        self._registry = registry
        self._config = config
        self._transcripts = transcripts
        self._selected = selected
        self._workers: dict[str, OutboxWorker] = {}
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()  # two turns at once must not make two workers
        self._waited = 0.0

    # --------------------------------------------------------------------- add

    def recipients(self, hook: str) -> dict[str, str]:
        """Return the providers for which a row of `hook` is stored: fingerprint of the account by provider name."""
        external = self._registry.external
        loaded = {handle.selector for handle in external}
        recipients = {}
        for name, kinds in self._selected.items():
            if name not in loaded and takes(kinds, hook) and all(handle.member for handle in external):
                recipients[name] = UNKNOWN_ACCOUNT
        for handle in external:
            if handle.implements(hook) and takes(handle.kinds, hook):
                recipients[handle.name] = handle.fingerprint
        return recipients

    def turn_row(self, turn: Turn, session: Session) -> NewRow | None:
        """Return the redacted row of a turn; None if no provider takes turns.

        Run its `put_statements` in the transaction that stores the turn itself, so that both are one commit.
        """
        if not session.primary or not self.recipients("sync_turn"):
            return None
        return encode("sync_turn", turn, session, self._config.redact)

    def put(self, session: Session, row: NewRow) -> bool:
        """Store a row for each provider that has the hook. Return False if there is none.

        Raises:
            OutboxFull: The outbox has no room for the row.
        """
        recipients = self.recipients(row.hook) if session.primary else {}
        self._waited = 0.0
        for name, fingerprint in recipients.items():
            try:
                self.outbox.put(name, row, fingerprint)
            except HermesError as exc:
                data = {"provider": name, "hook": row.hook, "error": str(exc)}
                self._config.emit("outbox.refused", data)
                raise
        return bool(recipients)

    def put_statements(self, session: Session, row: NewRow) -> dict[str, Statement]:
        """Return the statement that stores a row for each provider that has the hook, by its name.

        A statement returns a row, unless the outbox has the row or no room for it. Call `Outbox.on_row` after the commit.
        """
        recipients = self.recipients(row.hook) if session.primary else {}
        self._waited = 0.0
        return {
            name: self.outbox.put_statement(name, row, fingerprint)
            for name, fingerprint in recipients.items()
        }

    def switch(self, switch: SessionSwitch, without: Collection[str] = ()) -> None:
        """Store a session switch for the provider in use.

        Ask every provider to forget the rewound turns that it may have, but for those in `without`.

        Rows of rewound turns that were not sent are deleted in the same transaction.
        """
        turns = tuple(dict.fromkeys(switch.rewound_turns))
        recipients = self.recipients("on_session_switch") if switch.old.primary else {}
        self._waited = 0.0
        with self.outbox.database.transaction():
            # Another provider that was in use when the turns were sent must hear of the rewind once it is in use again.
            others = self.outbox.providers_of(turns)
            loaded = {handle.name: "" for handle in self._registry.external}
            for name in loaded | recipients | others:
                sent = self.outbox.drop_turns(name, turns)
                in_use = name in recipients
                if name in without:
                    continue
                if in_use or (sent and name not in loaded):
                    row = encode_switch(
                        dataclasses.replace(switch, rewound_turns=tuple(sent)), self._config.redact
                    )
                    # A full outbox takes it all the same: a provider that misses it keeps what the person rewound.
                    account = recipients[name] if in_use else others[name]
                    self.outbox.put(name, row, account, bounded=False)

    def forget_user(self, user: str, session: Session, turns: Sequence[str]) -> None:
        """Ask every provider to forget a user, behind the rows of one of the user's sessions.

        A provider without the hook is asked to forget the turns. One that is not loaded is asked for both, because its
        hooks are not known.
        """
        switch = SessionSwitch(uuid.uuid4().hex, session, session, "rewind", rewound_turns=tuple(turns))
        row = encode_forget(switch.id, user, session)
        external = self._registry.external
        asked = self.recipients("forget_user") if session.primary else {}
        with self.outbox.database.transaction():
            loaded = {handle.name for handle in external}
            others = {name: at for name, at in self.outbox.providers_of(turns).items() if name not in loaded}
            if turns:
                self.switch(switch, {one.name for one in external if one.implements("forget_user")})
            for name, account in {**others, **asked}.items():
                self.outbox.put(name, row, account, bounded=False)

    # ----------------------------------------------------------------- deliver

    def resume(self) -> None:
        """Start to deliver the rows that an earlier process left.

        A second call for the same provider does nothing.
        """
        for handle in self._registry.durable:
            if handle.name not in self._workers:
                self._worker(handle).wake()

    def flush(self, timeout: float, *, retry_start: bool = True) -> bool:
        """Wait until all rows are delivered. Return False after `timeout` seconds, or if no row can be sent now.

        Args:
            retry_start: Retry a start of a provider that has failed, as long as there is time.
        """
        began = time.monotonic()
        until = began + timeout
        if not self.outbox.exists:
            return True
        try:
            sent = [
                self._worker(handle).flush(until - time.monotonic(), retry_start=retry_start)
                for handle in self._registry.durable
            ]
        except HermesError as exc:
            log.error("nothing can be sent: %s", exc)
            return False
        self._waited += time.monotonic() - began
        return all(sent)

    def flush_at_end(self, timeout: float) -> bool:
        """Flush at the end of the program. The seconds that were spent in `flush` since the last write count.

        So a program that has just flushed in vain does not wait a second time. A start that has failed is not retried.
        """
        return self.flush(max(0.0, timeout - self._waited), retry_start=False)

    def stop(self, timeout: float) -> None:
        """Stop delivering, and wait at most `timeout` seconds for the row that each worker sends now."""
        for name, worker in self._workers.items():
            if not worker.stop(timeout) and self._waited >= UNANSWERED_S:
                self._note_unanswered(name)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager within which `problems` looks into an outbox on a server at most once."""
        return self.outbox.reading(handle.name for handle in self._registry.durable)

    def health(self, handle: ProviderHandle) -> ProviderHealth:
        """Return the health of a provider with the counts of the outbox, without its statistics, which take time.

        If rows can't be sent or are dead letters, its reason says so.
        """
        state, reason = handle.condition()
        health = ProviderHealth(handle.name, state, reason)
        if handle not in self._registry.durable or not self.outbox.exists:
            return health
        try:
            backlog = self.outbox.backlog(handle.name)
        except HermesError as exc:
            return dataclasses.replace(health, state="failed", reason=f"its writes can't be stored: {exc}")
        if not (backlog.depth or backlog.dead_letters):
            return health
        worker = self._workers.get(handle.name)
        stuck = (worker.stuck() or worker.trouble) if worker and backlog.depth else ""
        tried = (
            f"{counted(backlog.depth, 'write waits', 'writes wait')}, because a try failed: {backlog.error}"
        )
        # The same error may name other seconds each time.
        known = without_numbers(health.reason)
        if stuck or not backlog.error or without_numbers(backlog.error) in known:
            tried = ""  # there is nothing more to say
        if stuck.startswith("write breaker") and "write breaker" in known:
            stuck = ""
        reasons = (
            health.reason,
            stuck,
            tried,
            dead_letter_reason(backlog.dead_letters),
        )
        reason = "; ".join(dict.fromkeys(filter(None, reasons)))
        return dataclasses.replace(
            health,
            state="degraded" if reason and health.state == "active" else health.state,
            reason=reason,
            depth=backlog.depth,
            oldest_age=backlog.oldest_age,
            dead_letters=backlog.dead_letters,
        )

    # ----------------------------------------------------------------- private

    def _wake(self, provider: str) -> None:
        for handle in self._registry.durable:
            if handle.name == provider:
                self._worker(handle).wake()

    def _note_unanswered(self, name: str) -> None:
        try:
            first = self.outbox.next(name)
            if first is not None and not self.outbox.backlog(name).error:
                error = f"no answer within {round(self._waited, 1):g} s, and then the program ended; is the backend well?"
                self.outbox.failed(first, error, counted=False)
        except (HermesError, sqlite3.Error) as exc:
            log.error("%s: the write under way can't be noted: %s", name, exc)

    def _worker(self, handle: ProviderHandle) -> OutboxWorker:
        with self._lock:
            worker = self._workers.get(handle.name)
            if worker is None:
                receiver = ProviderReceiver(handle, self._config, self._transcripts)
                worker = OutboxWorker(
                    receiver,
                    self.outbox,
                    emit=self._config.emit,
                    context=self._context,
                )
                self._workers[handle.name] = worker
                handle.busy, handle.on_start = worker.sending, worker.provider_started
            return worker


class ProviderReceiver:
    """Adapter that lets an outbox worker deliver rows to a provider. It implements the protocol `Receiver`."""

    def __init__(
        self, handle: ProviderHandle, config: ManagerConfig, transcripts: Transcripts | None
    ) -> None:
        self._handle = handle
        self._config = config
        self._transcripts = transcripts
        self.name, self.breaker = handle.name, handle.stats.breakers["write"]
        self.unstartable_sessions = handle.given_up

    @property
    def per_session(self) -> bool:
        """True if each session has a separate instance of the provider."""
        return self._handle.per_session

    def start_again(self, *, at_once: bool = False) -> None:
        """Retry a failed start: that of the first instance if it failed long enough ago, or of all at once."""
        for instance in self._handle.instances() if at_once else (self._handle.first,):
            instance.start_again(at_once=at_once)

    def start_failure(self) -> str:
        """Return the reason why the provider's only instance failed to start; "" if it did not fail.

        For a provider with an instance for each session, return "": see `unstartable_sessions`.
        """
        first = self._handle.first
        return first.reason if first.phase == "failed" and not self._handle.per_session else ""

    def describe(self, error: BaseException) -> str:
        """Return `error` as one line without secrets."""
        return describe(error, self._config.redact)

    def deliver(
        self, row: Row, before_call: Callable[[], None], on_late: Callable[[Delivery], None]
    ) -> Delivery:
        """Call the hook of the row with its arguments, wait until the deadline, and return the result of this try.

        Args:
            before_call: Called directly before the hook. Not called if the hook is not called.
            on_late: Called with the final result if the returned one is "in doubt".
        """
        handle = self._handle
        if not handle.implements(row.hook):
            # The row was stored while the provider was not loaded, so its hooks were not known.
            status = "needless" if row.fingerprint == UNKNOWN_ACCOUNT else "dead"
            return Delivery(status, f"{handle.name} has no {row.hook}()")  # type: ignore[arg-type]
        decoded, error = attempt(decode, row, self._transcripts, self._config.redact)
        if decoded is None:
            # A row that can't be read never can; a transcript that can't be read may be later.
            status = "dead" if isinstance(error, OutboxError) else "failed"
            return Delivery(status, self.describe(error or ValueError(row.hook)))  # type: ignore[arg-type]
        session, arguments = decoded
        instance = handle.instance(session)
        instance.start(session)
        if instance.phase != "ready":
            return Delivery("unready", instance.reason if instance.phase == "failed" else "")
        if row.fingerprint not in (handle.fingerprint, ANY_ACCOUNT, UNKNOWN_ACCOUNT):
            if handle.account_since < row.created_at <= self._config.wall():
                return Delivery("unready")  # a process that still runs wrote the row, and uses its account
            return Delivery("dead", ANOTHER_ACCOUNT)
        late = partial(self._returned_late, row, arguments, on_late)
        before_call()
        token = DELIVERED_ROW.set(row)
        try:
            result = instance.submit(row.hook, arguments, late).wait()
        finally:
            DELIVERED_ROW.reset(token)
            instance.make_private(deep=False)
        return (
            Delivery("in doubt", result.error) if result.in_doubt else self._delivery(row, arguments, result)
        )

    def _returned_late(
        self, row: Row, arguments: Mapping[str, Any], on_late: Callable[[Delivery], None], result: CallResult
    ) -> None:
        on_late(self._delivery(row, arguments, result))

    def _delivery(self, row: Row, arguments: Mapping[str, Any], result: CallResult) -> Delivery:
        if result.ok:
            if row.hook == "on_session_switch" and self._handle.per_session:
                switch = arguments["switch"]
                if switch.new.id != switch.old.id:  # a rewind goes on in its session
                    self._handle.retire(row.session_id)
            if row.hook == "forget_user":
                self._handle.note_erasure(arguments["user"], result.value)
            return Delivery("taken")
        if result.status in ("open", "skipped"):
            return Delivery("not sent", result.error)
        answered = result.status == "failed" and not result.counts
        return Delivery("failed", result.error, answered, result.retry_after or 0.0)
