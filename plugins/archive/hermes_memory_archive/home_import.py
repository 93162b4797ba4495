"""Import of the archive of a home into any home: checked whole first, merged by id, safe to run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from hermes_core import Memory
from hermes_core.contract.hooks import POLICIES
from hermes_core.contract.values import MemoryRecord, parse_outside_id
from hermes_core.curated.origins import entry_hash
from hermes_core.errors import BackendRefused, BackendUnavailable, HermesError, ImportFailed, SessionError
from hermes_core.kit import file_name_of
from hermes_core.loader.parts import HomeParts
from hermes_core.safety.terminal import counted
from hermes_core.sessions.transfer import check_document, import_session
from hermes_memory_archive.archive import KINDS, Archive, ContentHash
from hermes_memory_archive.memories import ProviderMemories, as_sent, held_providers
from hermes_memory_archive.notes import check_notes, import_notes

MAX_SHOWN = 200
"""Entries and skills that are shown before a person says yes; the number of the others is shown."""


@dataclass(slots=True)
class ArchiveContent:
    """Content of an archive, for the person who decides about it.

    Attributes:
        counts: Number of records by kind, of the wanted users.
        users: The users of sessions, with the number of their sessions; "" is the person at home.
        entries: Notes and items of parts with their origins, as (place, text, origin), at most `MAX_SHOWN`.
        hash: Content hash of all records of the archive.
    """

    counts: Counter[str] = field(default_factory=Counter)
    users: Counter[str] = field(default_factory=Counter)
    entries: list[tuple[str, str, str]] = field(default_factory=list)
    more: int = 0
    hash: str = ""


@dataclass(slots=True)
class HomeImport:
    """Counts of an import by kind. `problems` are sentences about what was not taken."""

    imported: Counter[str] = field(default_factory=Counter)
    present: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def examine(archive: Archive, parts: HomeParts, users: Collection[str] | None = None) -> ArchiveContent:
    """Read and check every record of an archive, and return what it holds.

    Records of a part whose extension is missing can't be checked. They are counted, and never imported.

    Raises:
        ImportFailed: A record is damaged. Nothing was changed.
    """
    content, whole = ArchiveContent(), ContentHash()
    for kind in archive.manifest.counts:
        for number, record in enumerate(archive.records(kind), 1):
            try:
                _check(kind, record, parts)
                whole.add(kind, record)
            except (HermesError, KeyError, TypeError, AttributeError, ValueError) as exc:
                message = exc.message if isinstance(exc, HermesError) else f"{type(exc).__name__}: {exc}"
                raise ImportFailed(
                    f"{str(archive.path)!r}: line {number} of {kind}.jsonl can't be used: {message}",
                    "nothing was changed; export again, or copy the file again",
                ) from exc
            if not _is_wanted(kind, record, users):
                continue
            content.counts[kind] += 1
            if kind == "sessions":
                content.users[str(record["session"].get("user", ""))] += 1
            for entry in _entries(kind, record, parts):
                if len(content.entries) < MAX_SHOWN:
                    content.entries.append(entry)
                else:
                    content.more += 1
    content.hash = whole.hexdigest()
    if content.hash != archive.manifest.hash:
        raise ImportFailed(
            f"{str(archive.path)!r} holds other records than its manifest says: its hash is {content.hash[:16]}",
            "nothing was changed; export again, or copy the file again",
        )
    return content


def import_archive(
    memory: Memory,
    archive: Archive,
    users: Collection[str] | None = None,
    *,
    keep_origins: bool = False,
    on_record: Callable[[], object] = lambda: None,
) -> HomeImport:
    """Store what an archive holds and the home does not have yet. It is safe to run again, also after a kill.

    Call `examine` before. A record that can't be stored is a problem, and the next one is imported.

    Args:
        users: The users that are wanted, "" for the person at home; None for all.
        keep_origins: True if a person says that the archive is their own. Else all that is new here is an import.
        on_record: Called once a record, for a progress bar.
    """
    done = HomeImport()
    for kind in archive.manifest.counts:
        if kind == "memories":
            continue
        if kind not in (*KINDS, *memory.internals.parts.stores):
            if count := archive.manifest.counts[kind]:
                done.left_out.append(f"{kind} ({count:,}): {absence(memory.internals.parts, kind)}")
            continue
        for record in archive.records(kind):
            if _is_wanted(kind, record, users):
                try:
                    _store(memory, kind, record, done, keep_origins=keep_origins)
                except (HermesError, OSError) as exc:
                    done.problems.append(
                        f"{_name(memory.internals.parts, kind, record)} was not imported: {exc}"
                    )
            on_record()
    wanted = (one for one in archive.records("memories") if _is_wanted("memories", one, users))
    _import_memories(memory, wanted, done, on_record)
    return done


def absence(parts: HomeParts, kind: str) -> str:
    """Return why the records of a kind can't be imported here."""
    if (part := parts.known.get(kind)) is not None:
        return f"{parts.fact(part)}; {parts.remedy(part)}"
    return "no extension that is active has such a part; see hermes-memory extensions"


def _check(kind: str, record: Mapping[str, Any], parts: HomeParts) -> None:
    if kind == "sessions":
        check_document(record)
    elif kind == "notes":
        check_notes(record)
    elif kind == "memories":
        owner = record["owner"]
        if owner and not parse_outside_id(owner):
            raise SessionError(f"{owner!r} is no user", "export again")
        MemoryRecord.from_dict(record["record"])
    elif (part := parts.stores.get(kind)) is not None:
        part.check_record(record)


def _is_wanted(kind: str, record: Mapping[str, Any], users: Collection[str] | None) -> bool:
    if users is None:
        return True
    if kind == "sessions":
        return record["session"].get("user", "") in users
    if kind == "memories":
        return record["owner"] in users
    folder = _folder_of(str(record["file"])) if kind == "notes" else str(record.get("folder", ""))
    return folder in {file_name_of(user) if user else "" for user in users}


def _folder_of(file: str) -> str:
    return file.split("/")[1] if file.startswith("users/") else ""


def _entries(kind: str, record: Mapping[str, Any], parts: HomeParts) -> Iterator[tuple[str, str, str]]:
    if kind == "notes":
        for entry in record["entries"]:
            known = record["origins"].get(entry_hash(entry), {})
            yield record["file"], entry, known.get("origin", "person")
    elif kind in parts.stores:
        yield parts.known[kind].noun, record["path"], record["origin"]


def _store(
    memory: Memory, kind: str, record: Mapping[str, Any], done: HomeImport, *, keep_origins: bool
) -> None:
    if kind == "notes":
        entries, changes = import_notes(memory, record, keep_origins=keep_origins)
        done.imported["entries"] += entries
        (done.imported if entries or changes else done.present)[kind] += 1
        return
    result: str
    if kind == "sessions":
        result = import_session(memory.sessions, record, keep_origins=keep_origins)
    else:
        part = memory.internals.parts.stores[kind]
        result = part.import_record(memory.sessions.database, record, keep_origins=keep_origins)
    if result == "different":
        done.problems.append(
            f"{_name(memory.internals.parts, kind, record)} is here with another content and stays as it is"
        )
    else:
        (done.imported if result == "imported" else done.present)[kind] += 1


def _name(parts: HomeParts, kind: str, record: Mapping[str, Any]) -> str:
    if kind == "sessions":
        return f"session {record['session'].get('id')!r}"
    if kind == "notes":
        return f"the notes {record['file']!r}"
    return f"the {parts.known[kind].noun} {record['path']!r}"


def _import_memories(
    memory: Memory, records: Iterator[dict[str, Any]], done: HomeImport, on_record: Callable[[], object]
) -> None:
    first = next(records, None)
    if first is None:
        return
    names = held_providers(memory)
    sides = [ProviderMemories(memory.manager, memory.home, name) for name in names]
    takers = [side for side in sides if side.implements("import_memory")]
    # Of the members of a composite, the one that the memories came from.
    provider = next((side for side in takers if side.name == first["provider"]), next(iter(takers), None))
    if provider is None:
        count = 1 + sum(1 for _ in records)
        who = f"{' and '.join(map(repr, names))} takes none" if names else "no provider is chosen"
        done.left_out.append(f"{counted(count, 'memory', 'memories')} of {first['provider']!r}: {who}")
        return
    memory.manager.initialize_all(memory.local_session, wait=POLICIES["initialize"].deadline)
    known: dict[str, set[str]] = {}
    try:
        for value in chain([first], records):
            owner, record = value["owner"], as_sent(MemoryRecord.from_dict(value["record"]))
            if owner not in known:
                listed = provider.records(owner) if provider.implements("export_memories") else ()
                known[owner] = {one.key for one in listed}
            if record.key in known[owner]:
                done.present["memories"] += 1
            else:
                try:
                    provider.put(record, owner)
                    known[owner].add(record.key)
                    done.imported["memories"] += 1
                except BackendRefused as exc:
                    done.problems.append(str(exc))
            on_record()
    except BackendUnavailable as exc:
        done.problems.append(f"{exc}; run the import again to go on there")
