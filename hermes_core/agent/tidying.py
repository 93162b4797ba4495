"""Tidying MEMORY.md and USER.md by itself, where `curator.auto` says so: after an answer, in the background, seldom.

A file is due when it changed since it was last looked at, `curator.hours` ago or more. A proposal with faults is left;
one that is sound is applied as one change, which is shown and can be undone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable

from hermes_core.agent.cancel import Cancel, Cancelled
from hermes_core.agent.chat_model import ChatModel
from hermes_core.agent.curator import accept, propose
from hermes_core.agent.review import Background, Review
from hermes_core.contract.values import MemoryTarget, Session
from hermes_core.curated.store import MemoryStore
from hermes_core.errors import CuratedMemoryError, HermesError
from hermes_core.memory import Memory
from hermes_core.sessions.meta import read_meta

log = logging.getLogger(__name__)

LEAST = 2
"""Entries that a file must have before there is anything to tidy."""


class Tidier:
    """Tidies when it is due. One for each agent; `background` is that of its reviews, so that one thing runs at a time."""

    def __init__(
        self,
        memory: Memory,
        model: ChatModel,
        background: Background,
        reviewed: Callable[[Review], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._memory = memory
        self._model = model
        self._background = background
        self._reviewed = reviewed
        self._clock = clock

    def start_if_due(self, session: Session) -> bool:
        """Begin in the background; False when nothing is due or something else runs there."""
        if not self._memory.config.curator.auto or not session.primary:
            return False
        store = self._memory.curated.of(session)
        due = [target for target in store.enabled_targets if self._due(store, target)]

        def work(cancel: Cancel) -> None:
            self._tidy(store, due, session, cancel)

        return bool(due) and self._background.start(work, "agent-curator")

    def _due(self, store: MemoryStore, target: MemoryTarget) -> bool:
        if target in store.problems() or self._memory.manager.suppresses_local_writes(target):
            return False
        entries = store.entries(target)
        at, mark = self._last(store, target)
        quiet = self._clock() - at >= self._memory.config.curator.hours * 3600
        return quiet and len(entries) >= LEAST and mark != _mark(entries)

    def _tidy(
        self, store: MemoryStore, targets: list[MemoryTarget], session: Session, cancel: Cancel
    ) -> None:
        changes, failures = [], []
        for target in targets:
            try:
                changes.append(self._tidy_one(store, target, session, cancel))
            except Cancelled:
                break  # the person left; the file is still due
            except HermesError as exc:
                log.warning("%s was not tidied: %s", target, exc)
                failures.append(f"{target}: {exc}")
        review = Review(tuple(filter(None, changes)), "; ".join(failures))
        if self._reviewed is not None and (review.changes or review.failure):
            self._reviewed(review)

    def _tidy_one(self, store: MemoryStore, target: MemoryTarget, session: Session, cancel: Cancel) -> str:
        """Propose and apply; what changed. A file is looked at once, also when the answer was no use."""
        try:
            found = propose(self._model, store, target, cancel)
            if found.changes_anything and not found.after:
                raise CuratedMemoryError("the proposal would leave nothing", "curate by hand")
            if found.changes_anything:
                accept(store, found, session)
        except CuratedMemoryError:
            self._note(store, target)
            raise
        self._note(store, target)
        if not found.changes_anything:
            return ""
        return f"{target} (tidied): {len(found.before)} entries are {len(found.after)} now"

    def _last(self, store: MemoryStore, target: MemoryTarget) -> tuple[float, str]:
        """When the file was last looked at, and what it held then."""
        key = _key(store, target)
        return read_meta(key, self._memory.sessions.get_meta(key), _parsed, (0.0, ""))

    def _note(self, store: MemoryStore, target: MemoryTarget) -> None:
        value = json.dumps([self._clock(), _mark(store.entries(target))])
        self._memory.sessions.set_meta(_key(store, target), value)


def _parsed(text: str) -> tuple[float, str]:
    at, mark = json.loads(text)
    return float(at), str(mark)


def _key(store: MemoryStore, target: MemoryTarget) -> str:
    return f"tidied:{store.journal_key(target)}"


def _mark(entries: tuple[str, ...]) -> str:
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()
