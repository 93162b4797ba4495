"""The memories of the active provider as records: read page by page, and written one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hermes_core.contract.values import BUILTIN_NAME, MemoryPage, MemoryRecord, Session, parse_outside_id
from hermes_core.errors import BackendRefused, BackendUnavailable, SessionError
from hermes_core.home import HermesHome
from hermes_core.kit.text import storable
from hermes_core.manager.manager import MemoryManager
from hermes_core.memory import Memory
from hermes_core.safety.redact import redact

MAX_PAGES = 100_000
"""Pages of one user after which an export is taken for endless."""


class ProviderMemories:
    """The memories of one provider that a manager holds, by the user whose they are.

    Args:
        name: Name under which the manager has the provider.
    """

    def __init__(self, manager: MemoryManager, home: HermesHome, name: str) -> None:
        self.manager = manager
        self._home = home
        self.name = name

    def session_of(self, owner: str) -> Session:
        """Return a session of a `Session.owner`; "" is the person at home. It is not stored."""
        fields = parse_outside_id(owner) if owner else {}
        whole = {"identity": self._home.profile, "home": str(self._home.path), **fields}
        return Session.from_dict({**whole, "id": "moving"})

    def implements(self, hook: str) -> bool:
        """Return True if the provider has the hook."""
        return self.manager.implements(self.name, hook)

    def records(self, owner: str) -> Iterator[MemoryRecord]:
        """Yield all memories of a user.

        Raises:
            BackendUnavailable: The provider failed, or gives pages without end.
        """
        session, cursor = self.session_of(owner), ""
        for _ in range(MAX_PAGES):
            result = self.manager.ask(self.name, "export_memories", cursor=cursor, session=session)
            if not result.ok:
                raise BackendUnavailable(
                    f"{self.name!r} does not give its memories: {result.error or result.status}",
                    "see that its backend runs: hermes-memory doctor",
                )
            page: MemoryPage = result.value
            yield from page.records
            if not page.cursor:
                return
            cursor = page.cursor
        raise BackendUnavailable(f"{self.name!r} gives pages of memories without end", "tell its author")

    def put(self, record: MemoryRecord, owner: str) -> None:
        """Store a record.

        Raises:
            BackendRefused: The provider does not take this record; the others may be fine.
            BackendUnavailable: The provider failed, or can't be reached.
        """
        session = self.session_of(owner)
        result = self.manager.ask(self.name, "import_memory", record=record, session=session)
        if result.ok:
            return
        fact = f"{self.name!r} did not take {record.text[:60]!r}: {result.error or result.status}"
        if result.status == "failed" and not result.counts:
            raise BackendRefused(fact)
        raise BackendUnavailable(
            fact, "see that its backend runs (hermes-memory doctor), and run the command again"
        )


def as_sent(record: MemoryRecord) -> MemoryRecord:
    """Return a record as it may leave for a provider: without secrets, outer white space, and what no database stores."""
    return replace(record, text=redact(storable(record.text)).strip())


def held_providers(memory: Memory) -> list[str]:
    """Return the names under which the manager has external providers: none, one, or the members of the composite."""
    return [one.name for one in memory.manager.health() if one.name != BUILTIN_NAME]


def owners_of(memory: Memory) -> list[str]:
    """Return every user of whom something is stored, the person at home, "", first."""
    rows = memory.sessions.database.execute(
        "SELECT DISTINCT s.user FROM sessions s WHERE s.user <> ''"
    ).fetchall()
    owners = {str(row["user"]) for row in rows} | memory.curated.writers()
    return ["", *sorted(owner for owner in owners if owner and _is_owner(owner))]


def _is_owner(text: str) -> bool:
    try:
        return bool(parse_outside_id(text))
    except SessionError:
        return False
