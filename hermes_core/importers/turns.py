"""Where one turn of a conversation ends and the next begins."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_core.importers.values import ImportedMessage, ImportedTurn


def into_turns(messages: Iterable[ImportedMessage]) -> tuple[ImportedTurn, ...]:
    """Cut a conversation where the person speaks after an answer; messages sent in a row stay in one turn."""
    turns: list[list[ImportedMessage]] = []
    for message in messages:
        if not turns or (message.role == "user" and turns[-1][-1].role != "user"):
            turns.append([])
        turns[-1].append(message)
    return tuple(ImportedTurn(tuple(turn)) for turn in turns)
