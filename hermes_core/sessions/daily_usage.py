"""The tokens of each day of each user: what recall added to requests, and what the model's server counted."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import force_setattr

from hermes_core.sessions.records import local_time, sqlite_text
from hermes_core.storage.engine import Connection, Reader, Statement

# Counters of a session that are counted for each day as well.
DAILY_COLUMNS = ("input_tokens", "cache_read_tokens", "output_tokens")


class DailyUsage(Struct, frozen=True):
    """The tokens of one day of one user.

    Attributes:
        day: The day as 2026-01-31, in the zone of the machine.
        turns: Number of turns that began with recall.
        recall_tokens: Estimated tokens of the recall, which stood in the requests of these turns.
        prompt_tokens: Estimated tokens of the memory in the system prompt, once for each turn.
        input_tokens: Tokens of all requests, as the model's server counted them.
        cache_read_tokens: Those of them that the server had in its cache.
        output_tokens: Tokens of all answers.
        cache_share: Share of the input that the server had in its cache, from 0 to 1; None if nothing was counted.
    """

    day: str
    turns: int = 0
    recall_tokens: int = 0
    prompt_tokens: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    cache_share: float | None = None

    def __post_init__(self) -> None:
        if self.input_tokens:
            force_setattr(self, "cache_share", self.cache_read_tokens / self.input_tokens)


_COUNTERS = ("turns", "recall_tokens", "prompt_tokens", "input_tokens", "cache_read_tokens", "output_tokens")
_COLUMNS = ", ".join(("day", *_COUNTERS))


def add_daily_usage(connection: Connection, owner: str, at: float, **amounts: float) -> None:
    """Add amounts to the counters of a user's day. The names are those of `DailyUsage`."""
    for sql, parameters in usage_statements(owner, at, **amounts):
        connection.execute(sql, parameters)


def usage_statements(owner: str, at: float, **amounts: float) -> list[Statement]:
    """Return the statement of `add_daily_usage`; none for a time that has no date."""
    moment = local_time(at)
    return [] if moment is None else [_added(owner, f"{moment:%Y-%m-%d}", amounts)]


def _added(owner: str, day: str, amounts: Mapping[str, float]) -> Statement:
    columns = ", ".join(amounts)
    sums = ", ".join(f"{name} = daily_usage.{name} + excluded.{name}" for name in amounts)
    marks = ", ".join("?" * len(amounts))
    sql = f"""INSERT INTO daily_usage ("user", day, {columns}) VALUES (?, ?, {marks})
              ON CONFLICT ("user", day) DO UPDATE SET {sums}"""
    return sql, (sqlite_text(owner), day, *map(int, amounts.values()))


def daily_usage(connection: Reader, *, user: str = "", days: int = 30) -> list[DailyUsage]:
    """Return the usage of the last days on which something was counted, oldest first."""
    sql = f'SELECT {_COLUMNS} FROM daily_usage WHERE "user" = ? ORDER BY day DESC LIMIT ?'
    rows = connection.execute(sql, (sqlite_text(user), days))
    return [DailyUsage(*row) for row in rows.fetchall()][::-1]


def give_daily_usage(connection: Connection, user: str) -> None:
    """Add what was counted for a user to what was counted for the person at home."""
    sql = f'DELETE FROM daily_usage WHERE "user" = ? RETURNING {_COLUMNS}'
    for day, *amounts in connection.execute(sql, (user,)).fetchall():
        connection.execute(*_added("", day, dict(zip(_COUNTERS, amounts, strict=True))))
