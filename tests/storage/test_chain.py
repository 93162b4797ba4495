"""The record of events shows each change of the past, and stays whole when its history is pruned."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hermes_core.curated.tables import NOTE_TABLES
from hermes_core.storage.chain import EventChain, text_digest
from hermes_core.storage.sqlite import Database, create_tables

LIMIT = 4


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "x.db", [("notes", partial(create_tables, tables=NOTE_TABLES))])
    yield opened
    opened.close()


@pytest.fixture
def chain(database: Database) -> EventChain:
    return EventChain(database, LIMIT, clock=lambda: 1_800_000_000.0)


def fill(chain: EventChain, count: int = 3) -> dict[int, str]:
    contents = {change: text_digest("text", change) for change in range(1, count + 1)}
    for change, digest in contents.items():
        chain.append("add", "MEMORY.md", {"content": digest}, change)
    return contents


def test_a_record_that_nobody_changed_is_whole(chain: EventChain) -> None:
    contents = fill(chain)
    report = chain.check(contents)
    assert (report.events, report.faults) == (4, ())  # the first event begins the record
    assert report.head == chain.events()[-1].hash


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("UPDATE note_events SET at = 5.0 WHERE id = 3", "event 3 "),
        ("UPDATE note_events SET kind = 'remove' WHERE id = 3", "event 3 "),
        ("UPDATE note_events SET change = 1 WHERE id = 3", "event 3 "),
        ("UPDATE note_events SET subject = 'USER.md' WHERE id = 3", "event 3 "),
        ("UPDATE note_events SET details = replace(details, 'content', 'contents') WHERE id = 3", "event 3 "),
        ("UPDATE note_events SET digest = hash WHERE id = 3", "event 3 "),
        ("DELETE FROM note_events WHERE id = 2", "event 3 "),
        ("DELETE FROM note_events WHERE id = 4", "change 3 "),
    ],
)
def test_a_changed_event_is_named(chain: EventChain, database: Database, sql: str, fault: str) -> None:
    contents = fill(chain)
    database.execute(sql)
    assert any(line.startswith(fault) for line in chain.check(contents).faults)


def test_a_change_that_is_another_text_missing_or_unrecorded_is_named(chain: EventChain) -> None:
    contents = fill(chain)
    (fault,) = chain.check({**contents, 2: text_digest("text", "another")}).faults
    assert "change 2 in the history is another text" in fault
    (fault,) = chain.check({1: contents[1], 3: contents[3]}).faults
    assert "change 2 is missing" in fault
    assert chain.check({**contents, 4: "x"}).faults == ("change 4 is in the history and was never recorded",)


def test_changes_that_the_history_keeps_no_more_are_no_fault(chain: EventChain) -> None:
    contents = fill(chain, LIMIT + 2)
    assert chain.check({change: contents[change] for change in (3, 4, 5, 6)}).faults == ()


def test_erased_events_hold_nothing_and_leave_the_record_whole(chain: EventChain) -> None:
    contents = fill(chain)
    chain.erase("MEMORY.md")
    chain.append("add", "USER.md", {"content": text_digest("text", 4)}, 4)
    report = chain.check({3: contents[3], 4: text_digest("text", 4)})
    assert (report.erased, report.faults) == (3, ())
    assert [event.subject for event in chain.events()] == ["", "", "", "", "USER.md"]


def test_an_accepted_record_is_checked_from_there_on(chain: EventChain, database: Database) -> None:
    contents = fill(chain)
    database.execute("UPDATE note_events SET kind = 'remove' WHERE id = 3")
    chain.accept(3)
    assert chain.check(contents).faults == ()
    chain.append("add", "MEMORY.md", {"content": "x"}, 4)
    assert chain.check({**contents, 4: "y"}).faults
