"""The notes of a home as JSON data: entries, origins and history of each file, out of one home and into another."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from msgspec import structs

from hermes_core import Memory, Notes
from hermes_core.contract.values import MemoryAction, MemoryTarget, Session, parse_outside_id
from hermes_core.curated.document import join_entries, split_entries
from hermes_core.curated.history import PORTABLE_COLUMNS
from hermes_core.curated.origins import (
    UNKNOWN,
    Note,
    NoteOrigin,
    note_key,
    origin_from_plain,
    plain_origin,
)
from hermes_core.errors import ImportFailed
from hermes_core.kit import file_name_of
from hermes_core.safety.origin import RANKS

_TARGETS: tuple[MemoryTarget, ...] = get_args(MemoryTarget)
# The folder is a `Repository.key`.
_PROJECT = re.compile(r"projects/([A-Za-z0-9][A-Za-z0-9.-]{0,39}-[0-9a-f]{12})/PROJECT\.md", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TEXTS = ("file", "target", "action", "before", "after", "gone", "session", "writes")
_WRITE_TEXTS = ("content", "old_text", "previous")

# The end of the year 9999, beyond which no time can be shown.
_MAX_TIME_S = 253_402_300_800
# Largest whole number of SQLite.
_MAX_NUMBER = 2**63 - 1


def export_notes(
    memory: Memory, folders: Callable[[str], bool], left_out: Callable[[str], object]
) -> Iterator[dict[str, Any]]:
    """Yield a record for each file of notes that has entries or a history.

    These are the files of the person at home, those of all repositories, and those of each user. An edit by hand that is
    in no history yet is taken into it first.

    Args:
        folders: Returns True for the name of a user's folder, "" for the home, that is wanted.
        left_out: Gets a sentence for each file that can't be read.
    """
    for owner, target, notes in _files(memory, folders):
        key, stored = notes.files.key(target), notes.read()
        if _owner_fault(owner, target, key):
            left_out(f"the notes {key!r}, whose folder has no name that an import takes")
        elif fault := stored.problems.get(target):
            left_out(f"the notes {key!r}: {fault}")
        elif (found := stored.files[target].notes) or notes.changes.portable(key):
            yield {
                "file": key,
                "owner": owner,
                "target": target,
                "entries": [note.text for note in found],
                # Of equal entries the first one counts, as everywhere.
                "origins": {note_key(note.text): plain_origin(note.origin) for note in reversed(found)},
                "changes": notes.changes.portable(key),
            }


def _files(memory: Memory, folders: Callable[[str], bool]) -> Iterator[tuple[str, MemoryTarget, Notes]]:
    """Yield the owner, the target and the notes of each file of the wanted folders."""
    notes = _all_notes(memory)
    for owner in ["", *notes.places.owners()]:
        if folders(file_name_of(owner) if owner else ""):
            own = _notes_of(notes, owner)
            yield from ((owner, target, own) for target in _TARGETS if target != "project")
            for key in () if owner else notes.places.repositories():
                yield owner, "project", notes.of_repository(key)


def _all_notes(memory: Memory) -> Notes:
    """Return the notes of a home with the files that are switched off, and with each user's own."""
    return memory.curated.with_settings(
        structs.replace(memory.curated.settings, per_user=True, enabled=_TARGETS)
    )


def _notes_of(notes: Notes, owner: str) -> Notes:
    return notes.of(Session.from_dict({"id": "archive", **parse_outside_id(owner)})) if owner else notes


def check_notes(record: Mapping[str, Any]) -> None:
    """Raise `ImportFailed` if a record is none that `export_notes` wrote."""
    if fault := _owner_fault(record.get("owner"), record.get("target"), record.get("file")):
        raise ImportFailed(fault, "export again")
    entries, origins, changes = (record.get(name) for name in ("entries", "origins", "changes"))
    if not isinstance(entries, list) or not all(map(_is_text, entries)):
        raise ImportFailed(f"the entries of {record['file']!r} are no list of texts", "export again")
    if tuple(entries) != split_entries(join_entries(tuple(entries))):
        raise ImportFailed(f"an entry of {record['file']!r} would be read as several", "export again")
    if not _are_origins(origins):
        raise ImportFailed(f"the origins of {record['file']!r} can't be read", "export again")
    if not isinstance(changes, list) or not all(_is_change(change, record) for change in changes):
        raise ImportFailed(f"the history of {record['file']!r} can't be read", "export again")


def _owner_fault(owner: object, target: object, file: object) -> str:
    """Return why this is not the path of notes of this owner and target; "" if it is. Raises `SessionError` if `owner` is none."""
    if target == "project":
        is_path = owner == "" and _PROJECT.fullmatch(str(file)) is not None
    else:
        is_path = target in _TARGETS and _is_text(owner)
        folder = (
            f"users/{file_name_of(str(owner))}/" if owner and is_path and parse_outside_id(str(owner)) else ""
        )
        is_path = is_path and file == f"{folder}{str(target).upper()}.md"
    return "" if is_path else f"{file!r} is no file of notes"


def import_notes(memory: Memory, record: Mapping[str, Any], *, keep_origins: bool) -> tuple[int, int]:
    """Take entries, origins and history of a record into the file of its name. Return the numbers of new entries and changes.

    Entries that are there already stay, and new ones stand behind them. The limit of the file does not apply. Nothing is
    sent to a provider.

    Args:
        record: What `export_notes` yielded and `check_notes` accepted.
        keep_origins: True if a person says that the record is their own. Else every text that is new here is an import.

    Raises:
        MemoryConflict: The file can't be used.
        StorageError: The notes can't be stored.
    """
    notes, target = _all_notes(memory), record["target"]
    project = _PROJECT.fullmatch(record["file"])
    notes = notes.of_repository(project[1]) if project else _notes_of(notes, record["owner"])
    here = _known_origins(notes, target)
    imported = NoteOrigin("import", time.time())

    def origin_of(text: str, origins: Mapping[str, Any], default: NoteOrigin) -> NoteOrigin:
        """Return the origin of a text. A text that is here, or was, keeps its own."""
        key = note_key(text)
        if key in here or not keep_origins:
            return here.get(key, imported)
        return origin_from_plain(origins[key]) if key in origins else default

    changes = []
    for change in record["changes"]:
        removed = Counter(split_entries(change["before"])) - Counter(split_entries(change["after"]))
        origins = json.loads(change["gone"])
        gone = {note_key(text): plain_origin(origin_of(text, origins, UNKNOWN)) for text in removed}
        changes.append({**change, "gone": json.dumps(gone)})
    new = dict.fromkeys(record["entries"])
    added = [Note(text, origin_of(text, record["origins"], NoteOrigin())) for text in new]
    return notes.files.take_in(target, added, changes)


def _known_origins(notes: Notes, target: MemoryTarget) -> dict[str, NoteOrigin]:
    """Return the origins of all texts that are or were in a file, by `note_key`."""
    stored = notes.read()
    if fault := stored.problems.get(target):
        raise fault
    known = dict[str, NoteOrigin]()
    for change in notes.changes.portable(notes.files.key(target)):
        known |= {key: origin_from_plain(value) for key, value in json.loads(change["gone"]).items()}
    return known | {note_key(note.text): note.origin for note in stored.files[target].notes}


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


def _are_origins(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _HASH.fullmatch(key) and _is_origin(origin) for key, origin in value.items()
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
        session, writes, gone = (json.loads(change[name]) for name in ("session", "writes", "gone"))
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(session, dict)
        and isinstance(session.get("id"), str)
        and isinstance(writes, list)
        and all(map(_is_write, writes))
        and _are_origins(gone)
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
