"""Filters of a search: which messages and which sessions, and the SQL of these conditions for both engines."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hermes_core.sessions.records import MEMORY_TOOLS, SYSTEM_ROLES
from hermes_core.storage.engine import Engine

# An SQL condition and its parameters.
Condition = tuple[str, list[Any]]

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
    conditions: list[str] = ["m.state < 2"]
    parameters: list[Any] = []
    if not filters.roles:
        conditions.append(_NO_SYSTEM_ROLE)
    if "tool" not in filters.roles:
        calls = database.dialect.calls.format("m.tool_calls")
        conditions += [_NO_RESULT_OF_MEMORY, _NO_CALL_OF_MEMORY.format(calls=calls, memory=MEMORY_TOOLS)]
    if filters.roles:
        condition, roles = database.dialect.among("m.role", filters.roles)
        conditions.append(condition)
        parameters += roles
    for operator, moment in ((">=", filters.since), ("<", filters.until)):
        if moment is not None:
            conditions.append(f"m.timestamp {operator} ?")
            parameters.append(moment)
    if filters.needs_sessions:
        condition, of_sessions = session_condition(database, filters)
        conditions.append(condition)
        parameters += of_sessions
    return " AND ".join(conditions), parameters


def session_condition(database: Engine, filters: Filters) -> Condition:
    """Return the filters of sessions as a condition on sessions `s`."""
    conditions: list[str] = ["s.message_count > 0"]
    parameters: list[Any] = []
    for column, values, form in (
        ("s.source", filters.sources, "{}"),
        ("s.id", filters.sessions, "{}"),
        ("s.source", filters.exclude_sources, "NOT ({})"),
        ("s.id", filters.exclude_sessions, "NOT ({})"),
    ):
        if values:
            condition, names = database.dialect.among(column, values)
            conditions.append(form.format(condition))
            parameters += names
    if filters.user is not None:
        conditions.append("s.user = ?")
        parameters.append(filters.user)
    return " AND ".join(conditions), parameters
