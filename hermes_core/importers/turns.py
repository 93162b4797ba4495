"""Where one turn of a conversation ends and the next begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hermes_core.importers.values import ImportedMessage, ImportedTurn


def into_turns(messages: Iterable[ImportedMessage]) -> tuple[ImportedTurn, ...]:
    """Cut a conversation where the person speaks after an answer; messages sent in a row stay in one turn."""
    return tuple(each_turn(messages))


def each_turn(messages: Iterable[ImportedMessage], *, named: bool = False) -> Iterator[ImportedTurn]:
    """The same, a turn at a time; each is `named` after the `ref` of its first message if that is asked for."""
    turn: list[ImportedMessage] = []
    for message in messages:
        if turn and message.role == "user" and turn[-1].role != "user":
            yield ImportedTurn(tuple(turn), turn[0].ref if named else "")
            turn = []
        turn.append(message)
    if turn:
        yield ImportedTurn(tuple(turn), turn[0].ref if named else "")
