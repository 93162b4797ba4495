"""The notes of a home as JSON data: entries, origins and history of each file, out of one home and into another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

from msgspec.structs import asdict

from hermes_core import HermesHome
from hermes_core.contract.values import MemoryAction, MemoryTarget, Session
from hermes_core.curated.document import join_entries, split_entries
from hermes_core.curated.journal import PORTABLE_COLUMNS, NoteJournal
from hermes_core.curated.note_places import NotePlaces, note_places, owner_of_folder
from hermes_core.curated.origins import UNKNOWN, NoteOrigin, NoteOrigins, entry_hash
from hermes_core.curated.places import NotePlace
from hermes_core.errors import ImportFailed, MemoryConflict
from hermes_core.safety.origin import RANKS, as_origin
from hermes_core.storage.engine import Engine

NAMES: Mapping[str, MemoryTarget] = {"MEMORY.md": "memory", "USER.md": "user", "PROJECT.md": "project"}

_FILE = re.compile(
    r"(?:users/(?P<folder>[\w.%~-]{1,120})/)?(?P<name>MEMORY\.md|USER\.md)"
    # The folder is a `Repository.key`.
    r"|projects/[A-Za-z0-9][A-Za-z0-9.-]{0,39}-[0-9a-f]{12}/(?P<project>PROJECT\.md)",
    re.ASCII,
)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TEXTS = ("file", "target", "action", "before", "after", "fingerprint", "session", "writes")
_WRITE_TEXTS = ("content", "old_text", "previous")

# The end of the year 9999, beyond which no time can be shown.
_MAX_TIME_S = 253_402_300_800
# Largest whole number of SQLite.
_MAX_NUMBER = 2**63 - 1


def export_notes(
    home: HermesHome,
    folders: Callable[[str], bool],
    left_out: Callable[[str], object],
    database: Engine | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a record for each file of notes that has entries or a history.

    These are the files of the person at home, those of all repositories, and those of each user. An edit by hand that is
    in no history yet is taken into it first.

    Args:
        folders: Returns True for the name of a user's folder, "" for the home, that is wanted.
        left_out: Gets a sentence for each file that can't be read.
        database: The database that has the notes; None if they are files of the home.
    """
    places = note_places(home, database)
    with closing(_journal(places)) as journal:
        for key in _keys_of_database(places, folders) if database else _note_keys(home, folders):
            file = _place(home, places, key)
            target = NAMES[file.name]
            if not database and not (
                file.path.exists() or (journal.exists and journal.portable_changes(key))
            ):
                continue
            if _FILE.fullmatch(key) is None:
                left_out(f"the notes {key!r}, whose folder has no name that an import takes")
                continue
            try:
                with journal.opened(target, file, _session(home)) as opened:
                    changes = journal.portable_changes(key)
                    table = _origins(home, places, file).read()
            except MemoryConflict as exc:
                left_out(f"the notes {key!r}: {exc}")
                continue
            texts = {*opened.entries, *(text for change in changes for text in _texts(change))}
            hashes = {entry_hash(text) for text in texts}
            known = dict.fromkeys(hashes, UNKNOWN) if table.fault else table.entries
            if opened.entries or changes:
                yield {
                    "file": key,
                    "target": target,
                    "entries": list(opened.entries),
                    "origins": {key: _plain(known[key]) for key in sorted(hashes) if key in known},
                    "changes": changes,
                }


def _note_keys(home: HermesHome, folders: Callable[[str], bool]) -> Iterator[str]:
    """Yield the keys of all files of notes that a home may have, of the wanted folders."""
    users, projects = (_folders_in(home.memories / name) for name in ("users", "projects"))
    for folder in filter(folders, ["", *users]):
        yield from (f"users/{folder}/{name}" if folder else name for name in ("MEMORY.md", "USER.md"))
        if not folder:
            yield from (f"projects/{project}/PROJECT.md" for project in projects)


def _keys_of_database(places: NotePlaces, folders: Callable[[str], bool]) -> Iterator[str]:
    """Yield the keys of all notes in a database, of the wanted folders."""
    for key in places.keys():  # noqa: SIM118  no dict
        parts = key.split("/")
        if folders(parts[1] if parts[0] == "users" else ""):
            yield key


def _folders_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def check_notes(record: Mapping[str, Any]) -> None:
    """Raise `ImportFailed` if a record is none that `export_notes` wrote."""
    match = _FILE.fullmatch(str(record.get("file")))
    # A folder of dots alone would lead out of the notes.
    dots = match is not None and match["folder"] is not None and not match["folder"].strip(".")
    if match is None or dots or NAMES[match["name"] or match["project"]] != record.get("target"):
        raise ImportFailed(f"{record.get('file')!r} is no file of notes", "export again")
    entries, origins, changes = (record.get(name) for name in ("entries", "origins", "changes"))
    if not isinstance(entries, list) or not all(map(_is_text, entries)):
        raise ImportFailed(f"the entries of {record['file']!r} are no list of texts", "export again")
    if tuple(entries) != split_entries(join_entries(tuple(entries))):
        raise ImportFailed(f"an entry of {record['file']!r} would be read as several", "export again")
    if not isinstance(origins, dict) or not all(
        _HASH.fullmatch(key) and _is_origin(value) for key, value in origins.items()
    ):
        raise ImportFailed(f"the origins of {record['file']!r} can't be read", "export again")
    if not isinstance(changes, list) or not all(_is_change(change, record) for change in changes):
        raise ImportFailed(f"the history of {record['file']!r} can't be read", "export again")


def import_notes(
    home: HermesHome, record: Mapping[str, Any], *, keep_origins: bool, database: Engine | None = None
) -> tuple[int, int]:
    """Take entries, origins and history of a record into the file of its name. Return the numbers of new entries and changes.

    Entries that are there already stay, and new ones stand behind them. The limit of the file does not apply. Nothing is
    sent to a provider.

    Args:
        keep_origins: True if a person says that the record is their own. Else every text that is new here is an import.
        database: The database that has the notes; None if they are files of the home.

    Raises:
        MemoryConflict: The file can't be used.
        StorageError: The file can't be written.
    """
    places = note_places(home, database)
    file = _place(home, places, record["file"])
    target: MemoryTarget = record["target"]
    with closing(_journal(places)) as journal, journal.opened(target, file, _session(home)) as opened:
        here = {
            *opened.entries,
            *(t for change in journal.portable_changes(file.key) for t in _texts(change)),
        }
        known = set(map(entry_hash, here))
        if keep_origins:
            origins = {key: _origin(value) for key, value in record["origins"].items()}
        else:
            texts = {*record["entries"], *(text for change in record["changes"] for text in _texts(change))}
            origins = {entry_hash(text): NoteOrigin("import", journal.now()) for text in texts}
        # Before the file: after a crash no text may pass for a person's. A text that is here keeps its origin.
        _origins(home, places, file).merge({key: value for key, value in origins.items() if key not in known})
        new = [entry for entry in dict.fromkeys(record["entries"]) if entry not in opened.entries]
        changes = journal.import_changes(opened, record["changes"], (*opened.entries, *new))
    return len(new), changes


def _journal(places: NotePlaces) -> NoteJournal:
    return NoteJournal(places.journal, lock_timeout=10.0)


def _place(home: HermesHome, places: NotePlaces, key: str) -> NotePlace:
    """Return the place with this key."""
    parts = key.split("/")
    owner = owner_of_folder(parts[1]) or parts[1] if parts[0] == "users" else ""
    return places.place(home.memories / key, owner, NAMES[parts[-1]])


def _session(home: HermesHome) -> Session:
    return Session("import", home=str(home.path), identity=home.profile)


def _origins(home: HermesHome, places: NotePlaces, file: NotePlace) -> NoteOrigins:
    # The notes on repositories are the person's, whose origins are in one file.
    return places.origins(home.memories if file.name == "PROJECT.md" else file.path.parent)


def _texts(change: Mapping[str, Any]) -> set[str]:
    return {*split_entries(change["before"]), *split_entries(change["after"])}


def _plain(origin: NoteOrigin) -> dict[str, Any]:
    return {name: value for name, value in asdict(origin).items() if value}


def _origin(value: Mapping[str, Any]) -> NoteOrigin:
    return NoteOrigin(
        as_origin(value["origin"]),
        float(value.get("at", 0.0)),
        str(value.get("session", "")),
        str(value.get("confirmed", "")),
        value.get("pinned") is True,
    )


def _is_text(value: object) -> bool:
    """Return True for a text that a file and a database can store. JSON can spell half a surrogate pair."""
    if not isinstance(value, str):
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_time(value: object) -> bool:
    # A comparison with NaN is false.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_TIME_S


def _is_number(value: object) -> bool:
    return isinstance(value, int) and -_MAX_NUMBER <= value <= _MAX_NUMBER


def _is_origin(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("origin"), str)
        and value["origin"] in RANKS
        and _is_time(value.get("at", 0))
        and all(_is_text(value.get(name, "")) for name in ("session", "confirmed"))
    )


def _is_change(change: object, record: Mapping[str, Any]) -> bool:
    if (
        not isinstance(change, Mapping)
        or not set(PORTABLE_COLUMNS) <= change.keys()
        or not all(_is_text(change[name]) for name in _TEXTS)
        or not (_is_time(change["at"]) and _is_number(change["undone"]))
        or not all(change.get(name) is None or _is_number(change[name]) for name in ("number", "undoes"))
        or (change["file"], change["target"]) != (record["file"], record["target"])
    ):
        return False
    try:
        session, writes = json.loads(change["session"]), json.loads(change["writes"])
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(session, dict)
        and isinstance(session.get("id"), str)
        and isinstance(writes, list)
        and all(map(_is_write, writes))
    )


def _is_write(write: object) -> bool:
    return (
        isinstance(write, Mapping)
        and isinstance(write.get("id"), str)
        and write.get("action") in get_args(MemoryAction)
        and write.get("target") in get_args(MemoryTarget)
        and all(isinstance(write.get(name, ""), str) for name in _WRITE_TEXTS)
        and isinstance(write.get("performed", True), bool)
        and isinstance(write.get("metadata", {}), Mapping)
    )
