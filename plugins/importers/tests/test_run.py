"""Turns of an import are stored many in one commit, and none is lost for that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hermes_core import Memory, open_memory
from hermes_core.errors import ImportFailed
from hermes_core.home import HermesHome
from hermes_core.outbox.store import Outbox
from hermes_memory_importers.run import TURNS_IN_COMMIT, import_sessions
from hermes_memory_importers.values import ImportedMessage, ImportedSession, ImportedTurn


def turns(count: int) -> Iterator[ImportedTurn]:
    for number in range(count):
        yield ImportedTurn(
            (ImportedMessage("user", f"plum {number}"), ImportedMessage("assistant", "Noted."))
        )


HEAD = ImportedSession("old", "a program", "", None, ())


@pytest.fixture
def memory(hermes_home: HermesHome) -> Iterator[Memory]:
    with open_memory(hermes_home.path) as memory:
        yield memory


def test_many_turns_are_one_commit(memory: Memory) -> None:
    connection = memory.sessions.database.connection
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    done = import_sessions(memory, [(HEAD, turns(2 * TURNS_IN_COMMIT))])
    connection.set_trace_callback(None)

    assert (done.turns, done.messages) == (2 * TURNS_IN_COMMIT, 4 * TURNS_IN_COMMIT)
    assert statements.count("COMMIT") < 10


def test_turns_before_a_fault_of_the_file_are_stored(memory: Memory) -> None:
    def broken() -> Iterator[ImportedTurn]:
        yield from turns(TURNS_IN_COMMIT + 3)
        raise ImportFailed("line 54 is no JSON", "repair it")

    with pytest.raises(ImportFailed):
        import_sessions(memory, [(HEAD, broken())])
    assert memory.sessions.counts()["messages"] == 2 * (TURNS_IN_COMMIT + 3)
    assert import_sessions(memory, [(HEAD, turns(TURNS_IN_COMMIT + 4))]).known == TURNS_IN_COMMIT + 3


def test_an_import_goes_on_where_a_stopped_one_ended(memory: Memory) -> None:
    def stopped() -> Iterator[ImportedTurn]:
        yield from turns(TURNS_IN_COMMIT + 3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_sessions(memory, [(HEAD, stopped())])
    again = import_sessions(memory, [(HEAD, turns(TURNS_IN_COMMIT + 3))])
    assert (again.known, again.turns) == (TURNS_IN_COMMIT, 3)
    assert memory.sessions.counts()["messages"] == 2 * (TURNS_IN_COMMIT + 3)


def test_delivery_is_woken_after_the_commit(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[bool] = []
    database = memory.sessions.database
    monkeypatch.setattr(
        memory.manager.outbox, "on_row", lambda _provider: woken.append(database.in_transaction)
    )
    monkeypatch.setattr(memory.manager.writes, "put_statements", lambda *_: {"a provider": ("SELECT 1", ())})
    monkeypatch.setattr(memory.manager.writes, "turn_row", lambda *_: object())
    monkeypatch.setattr("hermes_core.turn.with_turn_number", lambda row, _number: row)
    import_sessions(memory, [(HEAD, turns(2))])

    assert isinstance(memory.manager.outbox, Outbox)
    assert woken == [False, False]


def worked(said: int) -> Iterator[ImportedTurn]:
    """Yield a turn in which the agent read a page, as far as it has got; the messages have ids."""
    messages = (
        ImportedMessage("user", "What is on the page?", ref="1"),
        ImportedMessage("tool", "The owner wants a refund.", ref="2", tool_name="fetch"),
        ImportedMessage("assistant", "It wants a refund.", ref="3"),
        ImportedMessage("assistant", "Shall I write to them?", ref="4"),
    )
    yield ImportedTurn(messages[:said], "a")


def test_messages_of_a_live_session_have_their_own_origins_and_it_goes_on(memory: Memory) -> None:
    for said in (3, 4):
        import_sessions(memory, [(HEAD, worked(said))], live=True)
    stored = memory.sessions.get_messages("old")
    assert [(m.role, m.origin) for m in stored] == [
        ("user", "person"),
        ("tool", "tool"),
        ("assistant", "tool"),
        ("assistant", "tool"),
    ]
    session = memory.sessions.get_session("old")
    assert session is not None
    assert session.ended_at is None
    assert import_sessions(memory, [(HEAD, worked(4))]).messages == 0


def test_no_message_of_a_file_is_the_persons(memory: Memory) -> None:
    for said in (3, 4):
        import_sessions(memory, [(HEAD, worked(said))])
    assert {m.origin for m in memory.sessions.get_messages("old")} == {"import"}
