"""The memories of the active provider as records: read page by page, and written one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import unquote

from hermes_core import HermesHome, Memory, MemoryManager
from hermes_core.contract.values import BUILTIN_NAME, MemoryPage, MemoryRecord, Session, parse_outside_id
from hermes_core.errors import BackendRefused, BackendUnavailable, HermesError, SessionError
from hermes_core.kit import file_name_of, redact, storable

MAX_PAGES = 100_000
"""Pages of one user after which an export is taken for endless."""

HOME = "the person at home"


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


UNSEEN = (
    "users of whom only {name!r} knows can't be seen: it can't list its users, and without a session, note or waiting "
    "write of theirs here they are not asked for; name each of them with --user"
)
"""Sentence for people: a copy of "all" memories has those of the users that `owners_of` returns."""


def owners_of(memory: Memory) -> list[str]:
    """Return every user of whom something is stored, the person at home, "", first.

    Of a session also the user whom its identity names is returned: `identity.owners` may have changed since, and then
    the provider has memories under the old name. Users of whom only a provider knows are not among them.
    """
    database = memory.sessions.database
    owners = memory.curated.changes.writers() | set(memory.curated.places.owners())
    for row in database.execute("SELECT s.user, s.identity FROM sessions s").fetchall():
        owners.add(str(row["user"]))
        if session := session_from(row["identity"]):
            owners |= {session.owner, session.outside_id}
    for row in database.execute("SELECT DISTINCT owner FROM host_state WHERE scope = 'user'").fetchall():
        owners.add(str(row["owner"]))
    for row in database.execute("SELECT body FROM outbox_rows").fetchall():
        if session := session_of_row(row["body"]):
            owners.add(session.owner)
    owners |= set(_owners_with_files(memory.home))
    return ["", *sorted(owner for owner in owners if owner and _is_owner(owner))]


def _owners_with_files(home: HermesHome) -> Iterator[str]:
    """Yield the users for whom a provider keeps a file in a folder `NAME.users`, named by `file_name_of`."""
    for path in home.path.glob("*.users/*"):
        owner = unquote(path.stem[:-17])
        if file_name_of(owner) == path.stem:
            yield owner


def disputed_sessions(memory: Memory) -> dict[str, str]:
    """Return a sentence for each session with turns whose stored user is not the user whom its identity names.

    An archive that somebody altered may hold such a session, and a provider would get its turns as those of a person
    who did not say them. A session without an identity, as imports make it, is its stored user's.
    """
    rows = memory.sessions.database.execute(
        """SELECT s.id, s.user, s.identity FROM sessions s
        WHERE EXISTS (SELECT 1 FROM turns t WHERE t.session_key = s.key AND t.state = 0) ORDER BY s.key"""
    )
    sentences = {}
    for row in rows.fetchall():
        session = session_from(row["identity"])
        if session is None or (row["user"] and not _is_owner(row["user"])):
            sentences[row["id"]] = f"session {row['id']!r} is not moved: its user or identity can't be read"
        elif row["identity"] not in ("", "{}") and session.primary and session.owner != row["user"]:
            sentences[row["id"]] = (
                f"session {row['id']!r} is not moved: it is stored for {row['user'] or HOME!r}, and its identity names "
                f"{session.owner or HOME!r}"
            )
    return sentences


def session_from(identity: object) -> Session | None:
    """Return the session of a stored identity, as JSON text or its data; None if it is none."""
    try:
        data = json.loads(identity or "{}") if isinstance(identity, str) else identity
        return Session.from_dict({"id": "moving", **data}) if isinstance(data, dict) else None
    except (HermesError, TypeError, ValueError):
        return None


def session_of_row(body: str) -> Session | None:
    """Return the session of a waiting write; None if the write can't be read."""
    try:
        data = json.loads(body)
    except ValueError:
        return None
    return session_from(data.get("session")) if isinstance(data, dict) else None


def _is_owner(text: str) -> bool:
    try:
        return bool(parse_outside_id(text))
    except SessionError:
        return False
