"""The session store of a home, on the engine that config.yaml names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, cast

from hermes_core.config import STORAGE_PASSWORD, Config, Credentials, load_config
from hermes_core.curated.store import Notes
from hermes_core.curated.stored import NoteSettings
from hermes_core.errors import ConfigError, DatabaseUnavailable, HermesError
from hermes_core.home import HermesHome
from hermes_core.loader.extensions import Extensions, extension_remedy, import_target, load_extensions
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.packages import KNOWN_EXTENSIONS
from hermes_core.safety.redact import redact
from hermes_core.sessions.schema import open_file
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.inventory import STATE_DB, Inventory

if TYPE_CHECKING:
    from hermes_core.sessions.search.protocol import VectorIndex
    from hermes_core.storage.engine import Engine

# How a move to another engine opens a store; "" for all other programs.
Moving = Literal["", "read", "write"]


def open_sessions(
    home: HermesHome,
    config: Config,
    *,
    extensions: Extensions | None = None,
    moving: Moving = "",
) -> SessionStore:
    """Return the store of sessions and the outbox: state.db of the home, or the server of `storage.url`.

    If `storage.url` is set, state.db is neither read nor made. The server is connected with the first statement.

    Args:
        extensions: The extensions of the home, of which one may search by meaning; None to search by words only. They
            are loaded if a server is to be opened.
        moving: "write" to open a store that is moved to another engine, which is refused else; "read" to leave it
            as it is, whatever its state.

    Raises:
        DatabaseUnavailable: `storage.url` is no address, or no active extension opens it.
    """
    make_vectors = _vector_factory(home, config, extensions)
    if not config.storage.url:
        if moving:
            read_only = moving == "read"
            database = open_file(home.state_db, config.sessions.journal_mode, read_only, marked=True)
            return SessionStore(database, read_only=read_only)
        return SessionStore(
            home.state_db,
            journal_mode=config.sessions.journal_mode,
            make_vectors=make_vectors,
        )
    return SessionStore(_open_engine(home, config, extensions, moving), make_vectors=make_vectors)


def _open_engine(home: HermesHome, config: Config, extensions: Extensions | None, moving: Moving) -> Engine:
    """Return the database that `storage.url` names, by the extension that opens it."""
    url = config.storage.url
    extensions = load_extensions(config) if extensions is None else extensions
    target = extensions.first("open_engine", url=url)
    if target is None:
        scheme = url.partition("://")[0]
        name = next((name for name, known in KNOWN_EXTENSIONS.items() if scheme in known.schemes), "")
        raise DatabaseUnavailable(
            f"storage.url is {redact(url)!r}, and no active extension opens it",
            extension_remedy(extensions, name) if name else "write it as postgresql://ROLE@HOST/DATABASE",
        )
    password = Credentials(home).get(STORAGE_PASSWORD) or ""
    try:
        opener = import_target(target)
    except ImportError as exc:
        raise DatabaseUnavailable(
            f"{target!r}, which opens {redact(url)!r}, can't be imported: {exc}", "reinstall its package"
        ) from exc
    database: Engine = opener(config.storage, password=password, moving=moving)
    return database


def _vector_factory(
    home: HermesHome, config: Config, extensions: Extensions | None
) -> Callable[[Engine], VectorIndex | None] | None:
    """Return the factory of the index for search by meaning; None if the settings switch it off.

    It returns None if no extension has an index, and raises `ConfigError` if settings ask for one that is not active.
    """
    if extensions is None or config.recall.semantic == "off" or not config.sessions.search_enabled:
        return None

    def make_vectors(database: Engine) -> VectorIndex | None:
        entry = next(iter(extensions.indexes.values()), None)
        if entry is None and config.recall.embeddings != "http":
            return None
        if entry is None:
            remedy = f"{extension_remedy(extensions, 'semantic')}, or set recall.embeddings to minilm"
            raise ConfigError(
                "recall.embeddings is 'http', and the extension 'semantic' is not active", remedy
            )
        index = call_foreign(lambda: import_target(entry.target)(database, home, config))
        if isinstance(index, ForeignError) and isinstance(index.error, HermesError):
            raise index.error
        if isinstance(index, ForeignError) or not hasattr(index, "ask"):
            fault = index if isinstance(index, ForeignError) else f"{entry.target!r} made {index!r}"
            raise ConfigError(
                f"the extension {entry.extension!r} can't make its index: {fault}",
                extension_remedy(extensions, entry.extension),
            )
        return cast("VectorIndex", index)

    return make_vectors


@contextlib.contextmanager
def open_notes(home: HermesHome) -> Iterator[Notes]:
    """Open the notes of a home for the block.

    Use this in a program that has no `Memory`, such as a provider that reads the notes once.

    Raises:
        DatabaseUnavailable: The database can't be opened.
    """
    config = load_config(home)
    with contextlib.closing(open_sessions(home, config)) as sessions:
        if config.storage.url:
            # Else a server that is down would pass for notes of which each one is damaged.
            sessions.database.execute("SELECT 1")
        yield notes_of_home(home, config, sessions.database)


def notes_of_home(home: HermesHome, config: Config, database: Engine) -> Notes:
    """Return the notes of a home in its database."""
    lost_at = Inventory(home.path).accepted(STATE_DB)
    return Notes(home, database, NoteSettings.of(home, config), lost_at=lost_at)
