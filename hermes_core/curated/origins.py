"""A note with its origin, and the file of origins that lies beside exported notes."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from hermes_core.contract.values import Origin
from hermes_core.errors import MemoryConflict
from hermes_core.safety.origin import as_origin
from hermes_core.storage.files import read_utf8

ORIGINS = "origins.json"
"""Name of the file of origins beside exported notes. An entry that it does not name is the person's."""


def entry_hash(entry: str) -> str:
    """Return the SHA-256 of an entry, by which decisions about it are recorded. It may hold half a surrogate pair."""
    return hashlib.sha256(entry.encode("utf-8", "surrogatepass")).hexdigest()


def normal_form(entry: str) -> str:
    """Return an entry as all editors leave it: composed characters, and one space for each run of blanks and line ends."""
    return " ".join(unicodedata.normalize("NFC", entry).split())


def note_key(entry: str) -> str:
    """Return the hash by which a note is the same one after an editor or a sync program has tidied its file."""
    return entry_hash(normal_form(entry))


class NoteOrigin(Struct, frozen=True):
    """Origin of one entry.

    Attributes:
        origin: Who or what the text comes from.
        at: Time of the write in epoch seconds; 0 if unknown.
        session: Id of the session in which it was written.
        confirmed: Origin before a person confirmed this text; "" if nobody had to.
        pinned: True if only a person may change or remove the entry.
        turn: Id of the turn in which a model wrote the text, until that turn has ended well. What its model read is not
            known before, so that the origin is the lowest until then.
    """

    origin: Origin = "person"
    at: float = 0.0
    session: str = ""
    confirmed: str = ""
    pinned: bool = False
    turn: str = ""


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
        str(value.get("turn", "")),
    )


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
