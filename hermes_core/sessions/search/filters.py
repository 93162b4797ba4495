"""Filters of a search: which messages and which sessions, and the SQL of these conditions for both engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes_core.sessions.records import MEMORY_TOOLS, SYSTEM_ROLES
from hermes_core.storage.engine import Engine

# An SQL condition and its parameters.
Condition = tuple[str, list[Any]]

# What a message is that does not fulfil an SQL condition, the condition, and its parameters.
_Requirement = tuple[str, str, Sequence[Any]]

_NO_SYSTEM_ROLE = f"m.role NOT IN {tuple(sorted(SYSTEM_ROLES))}"
_NO_RESULT_OF_MEMORY = f"NOT (m.role = 'tool' AND m.tool_name IN {MEMORY_TOOLS})"

# Only messages without text are read for their calls: they stand behind the text, perhaps on other pages.
_NO_CALL_OF_MEMORY = """NOT (m.content = '' AND CASE WHEN m.tool_calls LIKE '[%' THEN NOT EXISTS (
    SELECT 1 FROM {calls} c WHERE c.name NOT IN {memory}) ELSE false END)"""


class Filters(Struct, frozen=True):
    """Filters of messages. An empty tuple and None filter nothing.

    Attributes:
        roles: Roles of the messages.
        sources: Sources of their sessions.
        sessions: Ids of their sessions.
        exclude_sources: Sources of sessions to leave out.
        exclude_sessions: Ids of sessions to leave out.
        since: First time in epoch seconds.
        until: Time in epoch seconds before which the messages are.
        user: Owner of the sessions.
    """

    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    exclude_sources: tuple[str, ...] = ()
    exclude_sessions: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    user: str | None = None

    @property
    def needs_sessions(self) -> bool:
        """True if the conditions read columns of sessions."""
        named = (self.sources, self.sessions, self.exclude_sources, self.exclude_sessions)
        return any(named) or self.user is not None

    def scope(self) -> Filters:
        """Return only the filters of sessions, which also apply to the neighbours of a message.

        Left out are excluded sessions: they are those of the current conversation, a small part of the store.
        """
        return Filters(
            sources=self.sources,
            sessions=self.sessions,
            exclude_sources=self.exclude_sources,
            user=self.user,
        )


def message_condition(database: Engine, filters: Filters) -> Condition:
    """Return the filters as a condition on messages `m` and sessions `s`.

    Instructions of a host, and the calls and results of the tools of memory, pass only if a role is asked for.
    """
    of_sessions = _of_sessions(database, filters) if filters.needs_sessions else ()
    return _joined(chain(_of_messages(database, filters), of_sessions))


def session_condition(database: Engine, filters: Filters) -> Condition:
    """Return the filters of sessions as a condition on sessions `s`."""
    return _joined(_of_sessions(database, filters))


def faults(database: Engine, filters: Filters, message_id: int) -> list[str] | None:
    """Return why a message does not pass the filters; None if no message of their owner has this id."""
    required = [*_of_messages(database, filters), *_of_sessions(database, replace(filters, user=None))]
    fulfilled = ", ".join(f"CASE WHEN {condition} THEN 1 ELSE 0 END" for _, condition, _ in required)
    row = database.execute(
        f"""SELECT {fulfilled} FROM messages m JOIN sessions s ON s.key = m.session_key
            WHERE m.id = ? AND (CAST(? AS text) IS NULL OR s.user = ?)""",
        (*chain.from_iterable(values for _, _, values in required), message_id, filters.user, filters.user),
    ).fetchone()
    if row is None:
        return None
    return [fault for (fault, _, _), passes in zip(required, row, strict=True) if not passes]


def _joined(required: Iterable[_Requirement]) -> Condition:
    known = list(required)
    values = chain.from_iterable(values for _, _, values in known)
    return " AND ".join(condition for _, condition, _ in known), list(values)


def _of_messages(database: Engine, filters: Filters) -> Iterator[_Requirement]:
    yield "it was rewound, or it is a copy of an earlier message", "m.state < 2", ()
    if not filters.roles:
        yield "it is an instruction of a host", _NO_SYSTEM_ROLE, ()
    if "tool" not in filters.roles:
        calls = database.dialect.calls.format("m.tool_calls")
        no_call = _NO_CALL_OF_MEMORY.format(calls=calls, memory=MEMORY_TOOLS)
        for condition in (_NO_RESULT_OF_MEMORY, no_call):
            yield "it is the call or the result of a tool of memory", condition, ()
    if filters.roles:
        yield "its role is not searched", *database.dialect.among("m.role", filters.roles)
    if filters.since is not None:
        yield "it is older than the time that is searched", "m.timestamp >= ?", (filters.since,)
    if filters.until is not None:
        yield "it is newer than the time that is searched", "m.timestamp < ?", (filters.until,)


def _of_sessions(database: Engine, filters: Filters) -> Iterator[_Requirement]:
    yield "its session is empty", "s.message_count > 0", ()
    for fault, column, values, form in (
        ("the source of its session is not searched", "s.source", filters.sources, "{}"),
        ("its session is not searched", "s.id", filters.sessions, "{}"),
        ("the source of its session is left out", "s.source", filters.exclude_sources, "NOT ({})"),
        ("its conversation is left out: the model sees it", "s.id", filters.exclude_sessions, "NOT ({})"),
    ):
        if values:
            condition, names = database.dialect.among(column, values)
            yield fault, form.format(condition), names
    if filters.user is not None:
        yield "it belongs to another user", "s.user = ?", (filters.user,)
