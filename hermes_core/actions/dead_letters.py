"""Actions on writes that a provider has not taken: try them again, or delete them."""

from __future__ import annotations

from collections.abc import Sequence

from hermes_core.errors import OutboxError
from hermes_core.memory import Memory
from hermes_core.safety.terminal import counted


def chosen_rows(memory: Memory, rows: Sequence[int], *, waiting: bool = False) -> tuple[int, ...]:
    """Return the numbers of these rows, or of all dead letters if `rows` is empty.

    Args:
        waiting: True if rows that wait may be named too.

    Raises:
        OutboxError: One of the rows does not exist. Nothing was done to the others.
    """
    outbox = memory.manager.outbox
    if not rows:
        return tuple(row.number for row in outbox.dead_letters())
    existing = {row.number for row in outbox.rows(rows) if waiting or row.state == "dead letter"}
    if missing := [str(row) for row in rows if row not in existing]:
        kind = "row" if waiting else "dead letter"
        raise OutboxError(f"no {kind} {', '.join(missing)}", "hermes-memory outbox list shows them")
    return tuple(rows)


def retry_rows(memory: Memory, rows: Sequence[int]) -> tuple[str, list[str]]:
    """Try dead letters again. Return a sentence about the rows, and one for each that is a dead letter again."""
    outbox = memory.manager.outbox
    count = outbox.retry(rows)
    memory.flush()
    present = outbox.rows(rows)
    waiting = any(row.state == "pending" for row in present)
    again = [
        f"row {row.number} is a dead letter again: {row.error}"
        for row in present
        if row.state == "dead letter"
    ]
    return f"{counted(count, 'row')} to be tried again{'; some are still waiting' if waiting else ''}", again


def delete_rows(memory: Memory, rows: Sequence[int]) -> str:
    """Delete rows, so that the provider never sees them. Return a sentence about it."""
    return f"{counted(memory.manager.outbox.drop(rows), 'row')} deleted"
