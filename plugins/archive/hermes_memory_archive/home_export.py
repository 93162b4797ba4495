"""Export of a home: sessions, notes, skills and the memories of the provider as records of one archive."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from hermes_core import Memory
from hermes_core.contract.hooks import POLICIES
from hermes_core.errors import HermesError
from hermes_core.kit import file_name_of
from hermes_core.packages import program_version
from hermes_core.sessions.transfer import session_document
from hermes_core.storage.output_file import refuse_existing
from hermes_memory_archive.archive import MAX_LINE_BYTES, ArchiveWriter, ContentHash, Manifest, kinds_with
from hermes_memory_archive.memories import UNSEEN, ProviderMemories, as_sent, held_providers, owners_of
from hermes_memory_archive.notes import export_notes

OnRecord = Callable[[], object]

NEVER = "settings, keys, SOUL.md, verdicts.json and logs: `hermes-memory backup` holds them"
UNSENT = {
    "outbox_rows": "writes that wait for a provider",
    "open_turns": "unfinished turns",
    "host_state": "values that a host keeps",
}


class HomeRecords:
    """The records of a home by kind, and what no record can hold.

    Args:
        users: The users that are wanted, "" for the person at home; None for all.
    """

    def __init__(self, memory: Memory, users: Collection[str] | None = None) -> None:
        self.left_out: list[str] = []
        self._memory = memory
        self._users = users
        self._folders = None if users is None else {file_name_of(user) if user else "" for user in users}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of records that this home has."""
        return kinds_with(self._memory.internals.parts.stores)

    def of(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the records of a kind."""
        if kind == "sessions":
            yield from self._sessions()
        elif kind == "notes":
            yield from export_notes(self._memory, self._wants_folder, self.left_out.append)
        elif kind == "memories":
            yield from self._memories()
        else:
            part = self._memory.internals.parts.stores[kind]
            database = self._memory.sessions.database
            yield from part.export_records(database, self._wants_folder, self.left_out.append)

    def count_left_out(self) -> None:
        """Add a sentence for each thing that a home has and no export holds."""
        database = self._memory.sessions.database
        for table, words in UNSENT.items():
            (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608  constants
            if count:
                self.left_out.append(f"{count} {words}")
        self.left_out += self._memory.internals.parts.problems()
        self.left_out.append(NEVER)

    def _wants_folder(self, folder: str) -> bool:
        return self._folders is None or folder in self._folders

    def _sessions(self) -> Iterator[dict[str, Any]]:
        rows = self._memory.sessions.database.execute(
            "SELECT s.id, s.user FROM sessions s ORDER BY s.started_at, s.key"
        )
        for row in rows.fetchall():
            if self._users is None or row["user"] in self._users:
                yield session_document(self._memory.sessions, row["id"])

    def _memories(self) -> Iterator[dict[str, Any]]:
        """Yield the memories of each active provider. One that fails is left out with the reason."""
        memory = self._memory
        for name in held_providers(memory):
            provider = ProviderMemories(memory.manager, memory.home, name)
            if not provider.implements("export_memories"):
                self.left_out.append(
                    f"the memories of {name!r}, which can't list them; the turns that it got are in the sessions"
                )
                continue
            if self._users is None:
                self.left_out.append(UNSEEN.format(name=name))
            memory.manager.initialize_all(memory.local_session, wait=POLICIES["initialize"].deadline)
            for owner in owners_of(memory) if self._users is None else sorted(self._users):
                try:
                    for record in provider.records(owner):
                        yield {"provider": name, "owner": owner, "record": as_sent(record).to_dict()}
                except HermesError as exc:
                    whose = owner or "the person at home"
                    self.left_out.append(f"memories of {name!r} for {whose}, from here on: {exc}")


def export_home(
    memory: Memory,
    path: Path,
    users: Collection[str] | None = None,
    on_record: OnRecord = lambda: None,
    clock: Callable[[], float] = time.time,
    *,
    force: bool = False,
) -> Manifest:
    """Write the archive of a home, whole or not at all, and return its manifest.

    Args:
        users: The users that are wanted, "" for the person at home; None for all.
        on_record: Called once a record, for a progress bar.
        force: True to replace a file that exists at `path`.

    Raises:
        StorageError: The file exists, or can't be written, or a store of the home can't be read.
    """
    refuse_existing(path, "give force=True", force=force)
    records = HomeRecords(memory, users)
    with ArchiveWriter(path, records.kinds) as archive:
        for kind in records.kinds:
            for record in records.of(kind):
                if not archive.add(kind, record):
                    name = (
                        record["session"]["id"]
                        if kind == "sessions"
                        else record.get("file", record.get("path", kind))
                    )
                    size = f"{MAX_LINE_BYTES // 2**20} MiB"
                    records.left_out.append(
                        f"{kind} {name!r}, larger than {size}: `hermes-memory sessions export`"
                    )
                on_record()
        records.count_left_out()
        return archive.finish(tuple(records.left_out), clock(), program_version())


def describe_home(
    memory: Memory, users: Collection[str] | None = None, on_record: OnRecord = lambda: None
) -> Manifest:
    """Return what `export_home` would write, without a file: counts and content hash."""
    records, content = HomeRecords(memory, users), ContentHash()
    counts = dict.fromkeys(records.kinds, 0)
    for kind in records.kinds:
        for record in records.of(kind):
            content.add(kind, record)
            counts[kind] += 1
            on_record()
    records.count_left_out()
    return Manifest(counts, content.hexdigest(), tuple(records.left_out))
