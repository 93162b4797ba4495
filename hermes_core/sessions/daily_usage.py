"""The tokens of each day of each user: what recall added to requests, and what the model's server counted."""

from __future__ import annotations

from msgspec import Struct

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
    """

    day: str
    turns: int = 0
    recall_tokens: int = 0
    prompt_tokens: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0

    @property
    def cache_share(self) -> float | None:
        """The share of the input that the server had in its cache, from 0 to 1; None if nothing was counted."""
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else None


def add_daily_usage(connection: Connection, owner: str, at: float, **amounts: float) -> None:
    """Add amounts to the counters of a user's day. The names are those of `DailyUsage`."""
    for sql, parameters in usage_statements(owner, at, **amounts):
        connection.execute(sql, parameters)


def usage_statements(owner: str, at: float, **amounts: float) -> list[Statement]:
    """Return the statement of `add_daily_usage`; none for a time that has no date."""
    moment = local_time(at)
    if moment is None:
        return []
    columns = ", ".join(amounts)
    sums = ", ".join(f"{name} = daily_usage.{name} + excluded.{name}" for name in amounts)
    marks = ", ".join("?" * len(amounts))
    sql = f"""INSERT INTO daily_usage ("user", day, {columns}) VALUES (?, ?, {marks})
              ON CONFLICT ("user", day) DO UPDATE SET {sums}"""
    values = (sqlite_text(owner), f"{moment:%Y-%m-%d}", *(int(amount) for amount in amounts.values()))
    return [(sql, values)]


def daily_usage(connection: Reader, *, user: str = "", days: int = 30) -> list[DailyUsage]:
    """Return the usage of the last days on which something was counted, oldest first."""
    rows = connection.execute(
        """SELECT day, turns, recall_tokens, prompt_tokens, input_tokens, cache_read_tokens, output_tokens
           FROM daily_usage WHERE "user" = ? ORDER BY day DESC LIMIT ?""",
        (sqlite_text(user), days),
    )
    return [DailyUsage(*row) for row in rows.fetchall()][::-1]


def give_daily_usage(connection: Connection, user: str) -> None:
    """Add what was counted for a user to what was counted for the person at home."""
    rows = connection.execute(
        """DELETE FROM daily_usage WHERE "user" = ?
           RETURNING day, turns, recall_tokens, prompt_tokens, input_tokens, cache_read_tokens, output_tokens""",
        (user,),
    ).fetchall()
    names = ("turns", "recall_tokens", "prompt_tokens", "input_tokens", "cache_read_tokens", "output_tokens")
    sums = ", ".join(f"{name} = daily_usage.{name} + excluded.{name}" for name in names)
    connection.executemany(
        f"""INSERT INTO daily_usage ("user", day, {", ".join(names)}) VALUES ('', ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT ("user", day) DO UPDATE SET {sums}""",
        [tuple(row) for row in rows],
    )
