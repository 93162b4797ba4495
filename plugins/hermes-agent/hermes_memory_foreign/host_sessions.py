"""Views of Hermes Agent's session database and of its session context.

`SessionDB` reads what the memory stores and writes nothing. It shows the sessions of one owner: the user whose session
calls the provider, else the person whose home it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hermes_memory_foreign.environment import (
    current_session,
    described_session,
    get_hermes_home,
    lent_sessions,
    warn_once,
)
from hermes_memory_foreign.host_tools import refuse_options

# Sessions are written by the memory alone; a provider that writes them too would store every message twice.
_WRITES = frozenset(
    {
        "create_session",
        "ensure_session",
        "end_session",
        "reopen_session",
        "append_message",
        "replace_messages",
    }
    | {
        "archive_and_compact",
        "set_session_title",
        "set_auto_title_if_empty",
        "set_meta",
        "update_token_counts",
    }
    | {
        "rewind_to_message",
        "restore_rewound",
        "delete_session",
        "prune_sessions",
        "optimize_fts",
        "rebuild_fts",
    }
    | {"vacuum", "import_sessions", "update_system_prompt", "update_session_cwd"}
)


class SessionDB:
    """The stored sessions of one owner, as rows of Hermes Agent."""

    def __init__(self, db_path: str | os.PathLike[str] | None = None, read_only: bool = True) -> None:
        del read_only  # it always is
        self._home = Path(db_path).parent if db_path else get_hermes_home()
        self.db_path = self._home / "state.db"

    def __enter__(self) -> SessionDB:
        return self

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None:
        """Do nothing: the memory owns the database."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in _WRITES:
            raise AttributeError(f"the view of the sessions has no {name!r}")
        return lambda *_, **__: warn_once(
            f"SessionDB.{name}() of a provider has no effect here: the memory writes the sessions", self._home
        )

    def get_session(self, session_id: str) -> dict[str, Any] | None:
        """Return a session, None if this owner has none of that id."""
        session = self._store.get_session(str(session_id))
        return _session_row(session) if session is not None and session.user == self._owner else None

    def get_session_title(self, session_id: str) -> str | None:
        """Return the title of a session, None if it has none."""
        row = self.get_session(session_id)
        return row["title"] if row else None

    def get_session_title_source(self, session_id: str) -> str | None:
        """Return "user" for a session with a title: only people give titles here."""
        return "user" if self.get_session_title(session_id) else None

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """Return the id that begins with the text, None if none or several do."""
        session = self._store.find_session(str(session_id_or_prefix), user=self._owner)
        return session.id if session else None

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Return conversations, the last active first, each with the beginning of its first message."""
        # What these ask for is how conversations are listed here.
        for name in ("project_compression_tips", "order_by_last_active", "compact_rows"):
            options.pop(name, None)
        refuse_options("list_sessions_rich", options)
        listed = self._store.list_sessions(
            source=source,
            exclude_sources=tuple(exclude_sources or ()),
            user=self._owner,
            limit=limit,
            offset=offset,
        )
        return [
            {**_session_row(item.session), "preview": item.preview, "_lineage_root_id": item.root_id}
            for item in listed
        ]

    def get_messages(
        self, session_id: str, include_inactive: bool = False, limit: int | None = None, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Return the messages of a session, oldest first, without rewound ones."""
        refuse_options("get_messages", {"include_inactive": include_inactive})
        if self.get_session(session_id) is None:
            return []
        messages = self._store.get_messages(str(session_id), limit=limit, offset=offset)
        return [_message_row(message) for message in messages]

    def get_messages_as_conversation(self, session_id: str, **options: Any) -> list[dict[str, Any]]:
        """Return the messages of a session in the chat form of OpenAI."""
        options.pop("repair_alternation", None)  # stored turns alternate
        refuse_options("get_messages_as_conversation", options)
        if self.get_session(session_id) is None:
            return []
        return [message.as_chat() for message in self._store.get_messages(str(session_id))]

    def search_messages(
        self,
        query: str,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        sort: str | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Return the messages that answer a query best, with a snippet in place of the text.

        Args:
            sort: "newest" or "oldest" first, among the best; by default the best first.
        """
        refuse_options("search_messages", options)
        hits = self._store.past.search(
            str(query),
            role=role_filter,
            source=source_filter,
            exclude_sources=tuple(exclude_sources or ()),
            user=self._owner,
            limit=limit + offset,
        )
        if sort in ("newest", "oldest"):
            hits = sorted(hits, key=lambda hit: hit.timestamp, reverse=sort == "newest")
        return [
            {
                "id": hit.message_id,
                "session_id": hit.session_id,
                "role": hit.role,
                "snippet": hit.snippet,
                "timestamp": hit.timestamp,
                "tool_name": hit.tool_name or None,
                "source": hit.source,
                "model": hit.model,
                "session_started": hit.session_started,
                "context": [],
            }
            for hit in hits[offset:]
        ]

    def session_count(self, source: str | None = None) -> int:
        """Return the number of conversations."""
        return len(self._store.list_sessions(source=source, user=self._owner, limit=1_000_000))

    def message_count(self, session_id: str | None = None) -> int:
        """Return the number of messages, of one session or of all conversations."""
        if session_id is not None:
            row = self.get_session(session_id)
            return row["message_count"] if row else 0
        listed = self._store.list_sessions(user=self._owner, limit=1_000_000)
        return sum(item.session.message_count for item in listed)

    def get_meta(self, key: str) -> None:
        """Return None: the memory keeps no values for providers."""
        del key

    @property
    def _store(self) -> Any:
        store = lent_sessions(self._home)
        if store is None:
            raise RuntimeError(
                f"the sessions of {str(self._home)!r} are not open here; they are while a memory of this home is"
            )
        return store

    @property
    def _owner(self) -> str:
        session = current_session()
        return session.owner if session is not None else ""


class AsyncSessionDB:
    """A `SessionDB` whose methods are coroutines."""

    def __init__(self, db: SessionDB) -> None:
        self._db = db

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._db, name)
        if not callable(value):
            return value

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(value, *args, **kwargs)

        return call


def _session_row(session: Any) -> dict[str, Any]:
    return {
        "id": session.id,
        "source": session.source,
        "user_id": session.user or None,
        "parent_session_id": session.parent_id or None,
        "title": session.title or None,
        "model": session.model or None,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "end_reason": session.end_reason or None,
        "message_count": session.message_count,
        "tool_call_count": session.tool_call_count,
        "last_active": session.last_active,
        "cwd": session.cwd or None,
    }


def _message_row(message: Any) -> dict[str, Any]:
    return {
        "id": message.id,
        "session_id": message.session_id,
        "role": message.role,
        "content": message.content,
        "timestamp": message.timestamp,
        "tool_name": message.tool_name or None,
        "tool_call_id": message.tool_call_id or None,
        "tool_calls": list(message.tool_calls) or None,
        "active": 1,
        "compacted": 0,
    }


def apply_wal_with_fallback(connection: sqlite3.Connection, *, db_label: str = "state.db") -> str:
    """Switch a database to the write-ahead log, or to the older journal if its file system carries none."""
    try:
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    except sqlite3.OperationalError as exc:
        if "locked" in str(exc).lower() or "busy" in str(exc).lower():
            raise
        mode = connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0]
        warn_once(f"{db_label} uses journal_mode={mode}, because its file system refused WAL: {exc}")
    return str(mode).lower()


# ---------------------------------------------------------------------------------------------- gateway.session_context

# Each variable with the field of our session that holds its value.
_VARIABLES = {
    "HERMES_SESSION_ID": "id",
    "HERMES_SESSION_PLATFORM": "platform",
    "HERMES_SESSION_SOURCE": "platform",
    "HERMES_SESSION_CHAT_ID": "chat_id",
    "HERMES_SESSION_CHAT_TYPE": "chat_type",
    "HERMES_SESSION_CHAT_NAME": "chat_name",
    "HERMES_SESSION_THREAD_ID": "thread_id",
    "HERMES_SESSION_USER_ID": "user_id",
    "HERMES_SESSION_USER_ID_ALT": "user_id_alt",
    "HERMES_SESSION_USER_NAME": "user_name",
    "HERMES_SESSION_KEY": "gateway_session_key",
    "HERMES_SESSION_PROFILE": "identity",
}
_NOT_MESSAGING = frozenset({"", "cli", "tui", "api_server", "gateway", "local", "tool", "webhook", "desktop"})


def get_session_env(name: str, default: str = "") -> str:
    """Return a fact about the session of the current call by the name of its variable, else the variable."""
    session, fact = current_session(), _VARIABLES.get(name)
    if session is not None and fact:
        return getattr(described_session(session), fact, "") or default
    return os.environ.get(name, default)


def session_is_messaging_surface() -> bool:
    """Return True if a messenger carries the session of the current call."""
    return get_session_env("HERMES_SESSION_PLATFORM").lower() not in _NOT_MESSAGING


def _no_effect(name: str) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> list[Any]:
        warn_once(f"{name}() of a provider has no effect here: the host of the session sets its context")
        return []

    call.__name__ = name
    return call


# ------------------------------------------------------------------------------------------- agent.delegation_context


def is_delegated_child_context() -> bool:
    """Return True if the session of the current call is that of a subagent."""
    session = current_session()
    return session is not None and session.agent_context == "subagent"


@contextlib.contextmanager
def _unchanged_context(session_id: str | None = None) -> Iterator[None]:
    del session_id
    warn_once("delegated_child_context() of a provider has no effect here: the host marks its subagents")
    yield


VIEWS: dict[str, dict[str, object]] = {
    "hermes_state": {
        "SessionDB": SessionDB,
        "AsyncSessionDB": AsyncSessionDB,
        "apply_wal_with_fallback": apply_wal_with_fallback,
    },
    "gateway.session_context": {
        "get_session_env": get_session_env,
        "session_is_messaging_surface": session_is_messaging_surface,
        "session_context_engaged": lambda: current_session() is not None,
        # No turn can be continued after its end by a provider.
        "async_delivery_supported": lambda: False,
        **{
            name: _no_effect(name)
            for name in (
                "set_session_vars",
                "clear_session_vars",
                "reset_session_vars",
                "set_current_session_id",
                "declare_stateless_channel",
            )
        },
    },
    "agent.delegation_context": {
        "is_delegated_child_context": is_delegated_child_context,
        "is_delegated_child_process_context": is_delegated_child_context,
        "delegated_child_context": _unchanged_context,
    },
}
