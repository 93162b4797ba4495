"""The problems of a memory: each configured part that does not work, as a sentence."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from hermes_core.config import Config
from hermes_core.contract.values import Session
from hermes_core.curated.store import Notes
from hermes_core.curated.stored import StoredNotes
from hermes_core.errors import MemoryConflict, OutboxError, ProviderError, StorageError
from hermes_core.kit.text import without_numbers
from hermes_core.loader.extensions import Extensions, unmet_keys
from hermes_core.loader.load import LoadedProvider
from hermes_core.loader.parts import HomeParts
from hermes_core.manager.manager import MemoryManager
from hermes_core.safety.redact import redact
from hermes_core.sessions.owners import stored_users
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.inventory import Inventory
from hermes_core.storage.verdicts import Verdicts

log = logging.getLogger(__name__)

Value = TypeVar("Value")


def distinct(problems: Iterable[str]) -> list[str]:
    """Return sentences without those that differ from an earlier one in their numbers alone, such as seconds left.

    >>> distinct(["the breaker is open for 12 s more", "the breaker is open for 11 s more"])
    ['the breaker is open for 12 s more']
    """
    kept: dict[str, str] = {}
    for problem in problems:
        kept.setdefault(without_numbers(problem), problem)
    return [*kept.values()]


class ProblemLog:
    """The parts of a memory that do not work, and the failures that its methods met.

    Attributes:
        failures: A sentence by the name of the part that failed last. A part that works again is dropped.
        load_errors: Errors of providers that could not be loaded, by name.
        extension_problems: Sentences of extensions by any name; "" for none.

    Args:
        config: The configuration of the home.
        loaded: The loaded providers by name.
        observer_problems: A sentence for each observer that could not be loaded.
    """

    def __init__(
        self,
        config: Config,
        *,
        sessions: SessionStore,
        curated: Notes,
        manager: MemoryManager,
        extensions: Extensions,
        parts: HomeParts,
        inventory: Inventory,
        verdicts: Verdicts,
        loaded: Mapping[str, LoadedProvider],
        load_errors: dict[str, ProviderError],
        observer_problems: Sequence[str],
    ) -> None:
        self.failures: dict[str, str] = {}
        self.load_errors = load_errors
        self._config, self._sessions, self._curated, self._manager = config, sessions, curated, manager
        self._extensions, self._parts, self._inventory = extensions, parts, inventory
        self._verdicts, self._loaded = verdicts, loaded
        self._observer_problems = observer_problems
        self.extension_problems: dict[str, str] = {}
        self._warned = False
        # What config.yaml sets in vain stays so until the memory is opened anew.
        self._unmet = unmet_keys(config, extensions)
        if unused := config.recall.unused_setting(search_enabled=config.sessions.search_enabled):
            self._unmet.append(unused)

    @contextlib.contextmanager
    def tolerate(self, what: str, *errors: type[Exception]) -> Iterator[None]:
        """Let `all_of` report an error of the block, which does not leave it.

        Args:
            what: Name of what the block does, for the log.
            errors: Classes of the errors.
        """
        try:
            yield
        except errors as exc:
            log.error("%s: %s", what, exc)
            self.failures[what] = str(exc)
        else:
            self.failures.pop(what, None)

    def read(self, what: str, read: Callable[[], Value], default: Value) -> Value:
        """Return the result of `read`. If a database can't be read, return `default` and let `all_of` report it.

        Args:
            what: Name of the data, for the log. The next read of this name that succeeds takes the report back.
        """
        value = default
        with self.tolerate(what, OutboxError, StorageError):
            value = read()
        return value  # noqa: RET504 - the default after an error

    def enqueue(self, put: Callable[[], object]) -> None:
        """Call `put`, which puts a row into the outbox.

        If the outbox refuses the row, go on, and let `outbox` report it.
        """
        try:
            put()
        except OutboxError as exc:
            log.error("a write was not accepted for the provider: %s", exc)
            self.failures["outbox"] = f"the last write was not accepted for the provider: {exc}"
        else:
            self.failures.pop("outbox", None)

    @property
    def met(self) -> list[str]:
        """The failures that methods of the memory met last, without a look at its parts."""
        return list(map(redact, self.failures.values()))

    @property
    def outbox(self) -> str:
        """A sentence that tells why the last write could not be put into the outbox; "" if it could."""
        return redact(self.failures.get("outbox", ""))

    def all_of(self, session: Session) -> list[str]:
        """Return all problems. `session` is a result of `Memory.session`, of the user whose notes are checked."""
        # Functions that the providers used and that have no effect in this host.
        late = [warning for loaded in self._loaded.values() for warning in loaded.late_warnings()]
        return distinct([*map(redact, late), *self.of_turn(self._curated.of(session).read())])

    def of_turn(self, notes: StoredNotes, owner: str | None = None, met: Sequence[str] = ()) -> list[str]:
        """Return the problems that every turn repeats until they are gone.

        Args:
            notes: The notes of the session.
            owner: `Session.owner` of the turn; None outside of a turn, so that all extensions are looked at, and the
                search index.
            met: Sentences about this turn.
        """
        lost = []
        for store in self._inventory.lost():
            # If the sessions and notes are on a server, their earlier files may be moved away.
            if not (self._config.storage.url and store.is_replaced_by_server):
                lost.append(str(store))
        problems = list(map(str, self.load_errors.values()))
        # A look at all extensions imports them, which a turn does not wait for.
        extensions = self._extensions.problems() if owner is None else self._extensions.met_problems
        problems += [*lost, *self._observer_problems, *extensions, *self._parts.problems()]
        problems += self._unmet
        past = self._sessions.past
        search = self.read("search index", lambda: past.prove() if owner is None else past.problem, "")
        failures = (*self.failures.values(), *self.extension_problems.values())
        for failure in dict.fromkeys((*failures, self._manager.outbox.held_back)):
            # A lost state.db is reported once, although everything that reads it fails.
            if failure and not any(store in failure for store in lost):
                problems.append(failure)
        problems += filter(None, (search, past.vector_fault, past.rerank_fault))
        # A damaged state.db is reported once, although all notes stand in it as well.
        for problem in map(str, notes.problems.values()):
            if not any(earlier in problem for earlier in problems):
                problems.append(problem)
        problems += notes.base_problems()
        if fault := self._verdicts.fault:
            problems.append(str(fault))
        for problem in self._manager.problems():
            # A damaged state.db is reported once, although the provider's writes stand in it as well.
            if not any(earlier in problem for earlier in problems):
                problems.append(problem)
        # What a search met, and what is known of its index, is one problem.
        problems += [problem for problem in met if not any(problem in earlier for earlier in problems)]
        # They reach the person, other programs and models; an error may quote an address with a password.
        return distinct(map(redact, problems))

    def of_sharing(self, owner: str = "") -> str:
        """Return a sentence if people of this home may see too little or too much of each other's notes, else "".

        Args:
            owner: `Session.owner` of a user who may have no stored session yet.
        """
        if self._config.memory.per_user:
            if self._config.identity.owners or not self._has_own_texts():
                return ""
            return (
                "the notes and skills of this home are for the person at this machine only, who has no id on other "
                "platforms yet; if you write there too, name yourself: hermes-memory identity add telegram:123 "
                "(hermes-memory identity list shows who wrote)"
            )
        users = {
            *self.read("users", lambda: stored_users(self._sessions.database, limit=2), list[str]()),
            *filter(None, [owner]),
        }
        at_home = self.read(
            "sessions at home", lambda: bool(self._sessions.list_sessions(user="", limit=1)), False
        )
        if len(users) + at_home < 2:
            return ""
        return (
            "memory.per_user is false, so all users of this home see and change the same notes and skills; "
            "hermes-memory config set memory.per_user true gives each of them their own"
        )

    def of_first_turn(self, session: Session) -> list[str]:
        """Return `of_sharing` in the first turn of somebody outside, and nothing later in this process."""
        if not session.owner or self._warned:
            return []
        problem = self.of_sharing(session.owner)
        self._warned = bool(problem)
        return [problem] if problem else []

    def _has_own_texts(self) -> bool:
        """Return True if the person at home has notes, or items of a part such as skills."""
        with contextlib.suppress(MemoryConflict):
            stored = self._curated.read()
            if any(stored.entries(target) for target in stored.files):
                return True
        return self._parts.has_items_at_home()
