"""The store of a home: where it is, what is in it, and which files of earlier stores no program reads."""

from __future__ import annotations

import contextlib

from msgspec import Struct

from hermes_core.config import Config, load_config
from hermes_core.home import HermesHome
from hermes_core.loader.extensions import Extensions
from hermes_core.sessions.home_store import open_sessions
from hermes_core.sessions.schema import STORED_TABLES
from hermes_core.storage.moved import StoreMark, read_mark


class StorageStatus(Struct, frozen=True):
    """The store that config.yaml names, and the other ones that the home knows of.

    Attributes:
        store: The path of a file, or the address of a server.
        engine: "sqlite" or "postgresql".
        schema: The schema on the server; "" for a file.
        rows: Rows by table.
        mark: Why the store takes no writes; "" if it does.
        unused: Files of earlier stores in the home, with what they are.
    """

    store: str
    engine: str
    schema: str
    rows: dict[str, int]
    mark: str
    unused: dict[str, str]


def storage_status(home: HermesHome, extensions: Extensions | None = None) -> StorageStatus:
    """Return where the store of a home is and how many rows each table has. Raise `ConfigError`."""
    config = load_config(home)
    with contextlib.closing(open_sessions(home, config, extensions=extensions, moving="write")) as store:
        database = store.database
        mark = read_mark(database)
        rows: dict[str, int] = {}
        if database.exists:
            names = [table.name for table in STORED_TABLES]
            counts = database.read([(f"SELECT count(*) FROM {name}", ()) for name in names])  # noqa: S608  names of ours
            rows = {name: int(count[0][0]) for name, count in zip(names, counts, strict=True)}
        return StorageStatus(
            database.label,
            config.storage.url.partition(":")[0] or "sqlite",
            config.storage.schema if config.storage.url else "",
            rows,
            _mark_sentence(mark) if mark else "",
            unused_stores(home, config),
        )


def unused_stores(home: HermesHome, config: Config) -> dict[str, str]:
    """Return the files of stores in the home that no program reads, with the reason."""
    unused = {
        str(path): "moved aside by a later move"
        for path in sorted(home.path.glob(f"{home.state_db.name}.moved-*"))
    }
    if config.storage.url and home.state_db.exists():
        unused[str(home.state_db)] = "not read, because storage.url names a server"
    return unused


def _mark_sentence(mark: StoreMark) -> str:
    if mark.role == "target":
        return f"the move from {mark.other} has not ended"
    return f"it {'was' if mark.complete else 'is being'} moved to {mark.other}"
