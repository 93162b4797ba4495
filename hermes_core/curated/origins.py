"""A note with its origin, and the file of origins that lies beside exported notes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from hermes_core.contract.values import Origin
from hermes_core.errors import MemoryConflict
from hermes_core.safety.origin import as_origin
from hermes_core.storage.files import read_utf8, write_atomic

ORIGINS = "origins.json"
"""Name of the file of origins beside exported notes. An entry that it does not name is the person's."""


def entry_hash(entry: str) -> str:
    """Return the SHA-256 of an entry, by which decisions about it are recorded."""
    return hashlib.sha256(entry.encode("utf-8", "surrogatepass")).hexdigest()


class NoteOrigin(Struct, frozen=True):
    """Origin of one entry.

    Attributes:
        origin: Who or what the text comes from.
        at: Time of the write in epoch seconds; 0 if unknown.
        session: Id of the session in which it was written.
        confirmed: Origin before a person confirmed this text; "" if nobody had to.
        pinned: True if only a person may change or remove the entry.
    """

    origin: Origin = "person"
    at: float = 0.0
    session: str = ""
    confirmed: str = ""
    pinned: bool = False


PERSON = NoteOrigin()
UNKNOWN = NoteOrigin("import")

NEW = -1
"""`Note.change` of an entry that is new: it gets the id of its change when it is stored."""


class Note(Struct, frozen=True):
    """One entry of the notes.

    Attributes:
        change: Id of the change that wrote it; 0 if it was there before the history.
    """

    text: str
    origin: NoteOrigin = PERSON
    change: int = 0


def plain_origin(origin: NoteOrigin) -> dict[str, object]:
    """Return an origin as JSON data, without what has its default."""
    return {name: value for name, value in asdict(origin).items() if value}


def origin_from_plain(value: Mapping[str, object]) -> NoteOrigin:
    """Return the origin that `plain_origin` wrote. What is no such value has its default, an unknown origin is an import."""
    at = value.get("at", 0.0)
    return NoteOrigin(
        as_origin(value.get("origin")),
        float(at) if isinstance(at, int | float) else 0.0,
        str(value.get("session", "")),
        str(value.get("confirmed", "")),
        value.get("pinned") is True,
    )


def write_origins(folder: Path, notes: Iterable[Note], *, anew: bool) -> None:
    """Write the origins of exported notes beside them.

    Args:
        anew: True for the first file of a folder; False to add to what was written.

    Raises:
        StorageError: The file can't be written.
    """
    path = folder / ORIGINS
    if anew:
        path.unlink(missing_ok=True)
    new = {
        entry_hash(note.text): plain_origin(note.origin)
        for note in notes
        if plain_origin(note.origin).keys() - {"at", "session"} != {"origin"}
        or note.origin.origin != "person"
    }
    if new:
        entries = {key: plain_origin(origin) for key, origin in read_origins(folder).items()} | new
        write_atomic(path, (json.dumps({"version": 1, "entries": entries}, indent=1) + "\n").encode())


def read_origins(folder: Path) -> dict[str, NoteOrigin]:
    """Return the origins that lie beside exported notes, by `entry_hash`; an empty dict without a file.

    Raises:
        MemoryConflict: The file can't be read. No note may pass for a person's because of this.
    """
    path = folder / ORIGINS
    text = read_utf8(path, MemoryConflict)
    try:
        return {
            str(key): origin_from_plain(value)
            for key, value in (json.loads(text)["entries"] if text.strip() else {}).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise MemoryConflict(
            f"{str(path)!r} is damaged ({type(exc).__name__}: {exc})", "export again"
        ) from exc
