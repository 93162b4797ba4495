from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome, Memory, Session, open_memory
from hermes_core.actions import notes as notes_of_people
from hermes_core.cli import memory as memory_commands
from hermes_core.config import set_value
from hermes_core.loader.discover import BUNDLED_ABOUT
from tests.outbox_of import end_pauses, outbox_of, turn_rows

NEEDS_A_BACKEND = """
from pathlib import Path
from hermes_core import MemoryProvider
from hermes_core.errors import BackendUnavailable

class Notes(MemoryProvider):
    name = "notes"

    def on_memory_write(self, write, session):
        backend = Path(session.home, "backend")
        if not backend.exists():
            raise BackendUnavailable("the backend is down")
        (backend / write.content).touch()
"""


KEEPS_TURNS = """
from hermes_core import MemoryProvider

class Notes(MemoryProvider):
    name = "notes"

    def sync_turn(self, turn):
        pass

    def pending_writes(self):
        return 3
"""


def test_the_listing_says_what_is_there_and_how_it_is(
    hermes: Any, data: Any, hermes_home: HermesHome, notes: Path, absent: str
) -> None:
    states = {entry["name"]: entry["state"] for entry in data("providers")}
    assert states["notes"] == states["holographic"] == "idle"
    hermes("memory", "use", "notes")
    chosen = next(one for one in data("providers") if one["name"] == "notes")
    assert (chosen["state"], chosen["reason"]) == ("active", "")
    assert states[absent] == "unavailable"
    shown = hermes("providers").stdout
    assert "it is not installed" in shown
    set_value(hermes_home, "memory.provider", "notes")
    set_value(hermes_home, "providers.block", ["holographic"])
    (entry,) = [entry for entry in data("providers") if entry["name"] == "notes"]
    assert entry["path"] == str(notes)
    names = {entry["name"] for entry in data("providers")}
    assert "holographic" not in names
    blocked = {e["name"]: e["reason"] for e in data("providers", "--all") if e["state"] == "blocked"}
    assert blocked == {"holographic": "'holographic' is on the block list"}


def test_the_listing_says_in_one_line_what_each_provider_is(hermes: Any, notes: Path) -> None:
    source = (notes / "__init__.py").read_text()
    (notes / "__init__.py").write_text(f'"""Notes on paper.\n\nMore of it.\n"""\n{source}')
    lines = {line.split()[0]: line for line in hermes("providers").stdout.splitlines()}
    for name, about in BUNDLED_ABOUT.items():
        assert about in lines[name]
    assert "Notes on paper." in lines["notes"]
    assert "More of it" not in lines["notes"]
    long = "A description\nof " + "many words " * 50
    (notes / "plugin.yaml").write_text(f"description: {json.dumps(long)}")
    (line,) = [line for line in hermes("providers").stdout.splitlines() if line.startswith("notes")]
    assert "A description of many words" in line
    assert "…" in line


def test_a_blocked_provider_that_is_chosen_is_a_problem(
    hermes: Any, hermes_home: HermesHome, notes: Path
) -> None:
    set_value(hermes_home, "memory.provider", "notes")
    set_value(hermes_home, "providers.allow", [])
    assert "is not on the allow list" in hermes("providers", code=3).stderr
    assert "is not on the allow list" in hermes("memory", "use", "notes", code=1).stderr


@pytest.mark.parametrize(
    "words", [("memory", "use", "notes"), ("memory", "setup", "notes", "--yes"), ("notes",)]
)
def test_no_command_runs_code_of_a_provider_that_is_blocked(
    hermes: Any, hermes_home: HermesHome, notes: Path, words: tuple[str, ...]
) -> None:
    ran = hermes_home.path / "ran"
    with (notes / "__init__.py").open("a") as file:
        file.write(f"\nopen({str(ran)!r}, 'w').close()\n")
    set_value(hermes_home, "memory.provider", "notes")
    set_value(hermes_home, "providers.block", ["notes"])
    assert "'notes' is on the block list; change providers.allow" in hermes(*words, code=1).stderr
    assert not ran.exists()


def test_the_environment_limits_what_is_loaded(
    hermes: Any, hermes_home: HermesHome, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_value(hermes_home, "memory.provider", "notes")
    monkeypatch.setenv("HERMES_LOAD_PROVIDERS", "")
    assert "is not on the allow list" in hermes("memory", "status", code=3).stderr
    monkeypatch.setenv("HERMES_LOAD_PROVIDERS", "Notes")
    hermes("memory", "status")


# --------------------------------------------------------------------------------------------------------- outbox


def test_an_empty_outbox(hermes: Any, data: Any) -> None:
    assert hermes("outbox", "list").stdout == "Nothing waits: every write was taken.\n"
    assert data("outbox", "list") == []
    assert hermes("outbox", "retry", "--all").stdout == "0 rows to be tried again\n"
    assert hermes("outbox", "delete", "--all", "--yes").stdout == "0 rows deleted\n"


@pytest.mark.parametrize(
    "words", [["retry"], ["delete", "--yes"], ["retry", "1", "--all"], ["drop", "one"], ["dance"]]
)
def test_rows_are_named_or_all(hermes: Any, words: list[str]) -> None:
    assert "see: hermes-memory outbox" in hermes("outbox", *words, code=2).stderr


def test_status_counts_what_a_provider_keeps_for_a_batch(
    hermes: Any, data: Any, hermes_home: HermesHome, notes: Path
) -> None:
    (notes / "__init__.py").write_text(KEEPS_TURNS)
    set_value(hermes_home, "memory.provider", "notes")
    assert data("memory", "status")["outbox"]["waiting"] == 3
    assert "3 waiting" in hermes("memory", "status").stdout
    assert "3 writes wait in the provider" in hermes("doctor").stdout


@pytest.mark.slow
def test_a_write_waits_while_the_backend_is_down_and_goes_out_once_it_is_back(
    hermes: Any, data: Any, hermes_home: HermesHome, notes: Path
) -> None:
    (notes / "__init__.py").write_text(NEEDS_A_BACKEND)
    set_value(hermes_home, "memory.provider", "notes")
    added = hermes("memory", "add", "Likes tea", code=3)
    assert added.stdout.startswith("Entry added.")
    assert "is degraded: 1 write waits, because a try failed: the backend is down" in added.stderr
    status = hermes("memory", "status", code=3)
    assert "the backend is down" in status.stderr
    assert "outbox for notes: 1 write waits" in status.stdout
    assert "hermes-memory outbox list shows the last error of each" in status.stdout
    (row,) = data("outbox", "list")
    assert (row["provider"], row["hook"], row["state"]) == ("notes", "on_memory_write", "pending")
    assert "the backend is down" in hermes("outbox", "list").stdout
    (hermes_home.path / "backend").mkdir()
    end_pauses(hermes_home)
    assert data("memory", "status")["outbox"]["waiting"] == 0
    hermes("memory", "add", "Plays chess")
    assert data("outbox", "list") == []
    assert sorted(path.name for path in (hermes_home.path / "backend").iterdir()) == [
        "Likes tea",
        "Plays chess",
    ]


@pytest.mark.parametrize(
    "words", [("memory", "add", "Plays go"), ("memory", "undo"), ("memory", "reset", "--yes")]
)
def test_a_change_that_the_provider_has_not_answered_yet_says_so(
    hermes: Any,
    hermes_home: HermesHome,
    notes: Path,
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    def deliver(opened: Memory, session: Session) -> str:
        late = original(opened, session)
        gate.set()  # so that the command does not wait for the provider at its end
        return late

    hermes("memory", "add", "Likes tea")
    original = notes_of_people.deliver
    for module in (notes_of_people, memory_commands):  # each has the function under a name of its own
        monkeypatch.setattr(module, "deliver", deliver)
    slow = "\n    def on_memory_write(self, write):\n        import gate_of_test\n\n        gate_of_test.opened.wait()\n"
    (notes / "__init__.py").write_text((notes / "__init__.py").read_text() + slow)
    set_value(hermes_home, "memory.provider", "notes")
    monkeypatch.setattr("hermes_core.actions.notes.DELIVERY_TIMEOUT_S", 0.1)
    told = hermes(*words).stderr
    assert (
        told == "warning: 'notes' has not taken it within 0.1 s; it waits in the outbox and is sent later\n"
    )
    for thread in threading.enumerate():  # the late result must be stored while the home is there
        if thread.name == "hermes-notes-outbox":
            thread.join(30.0)
            assert not thread.is_alive()


@pytest.fixture
def dead_letters(hermes_home: HermesHome) -> None:
    """Two rows that were taken out of the line."""
    with outbox_of(hermes_home) as outbox:
        for row in turn_rows("t1", "t2"):
            outbox.put("notes", row)
        for stored in outbox.pending():
            outbox.bury(stored, "it is \x1b[31m poison")


@pytest.mark.usefixtures("dead_letters")
@pytest.mark.parametrize(("command", "told"), [("retry", "no dead letter 7"), ("drop", "no row 7")])
def test_a_row_that_is_not_there_is_named_before_anything_is_done(
    hermes: Any, data: Any, command: str, told: str
) -> None:
    assert (
        f"{told}; hermes-memory outbox list shows them" in hermes("outbox", command, "1", "7", code=1).stderr
    )
    assert [row["state"] for row in data("outbox", "list")] == ["dead letter", "dead letter"]


@pytest.mark.usefixtures("dead_letters")
def test_parked_rows_are_shown_with_their_error_and_dropped_by_number(hermes: Any, data: Any) -> None:
    shown = hermes("outbox", "list").stdout
    assert "dead letter" in shown
    assert "\x1b" not in shown
    assert hermes("outbox", "delete", "1", typed="n\n", code=1).stderr == "Aborted!\n"
    assert hermes("outbox", "delete", "1", "--yes").stdout == "1 row deleted\n"
    assert [row["number"] for row in data("outbox", "list")] == [2]
    assert hermes("outbox", "retry", "2").stdout.startswith("1 row to be tried again")
    assert data("outbox", "list")[0]["state"] == "pending"


@pytest.mark.usefixtures("dead_letters")
def test_a_long_outage_is_listed_in_part_what_waits_for_a_person_first(
    hermes: Any, data: Any, hermes_home: HermesHome
) -> None:
    with outbox_of(hermes_home) as outbox, outbox.database.transaction():
        for row in turn_rows(*(f"w{number}" for number in range(30))):
            outbox.put("notes", row)
    assert len(data("outbox", "list")) == 20
    assert [row["event"] for row in data("outbox", "list", "--limit", 3)] == ["t1", "t2", "w0"]
    assert hermes("outbox", "list", "--limit", 3).stdout.endswith("\n29 more; --limit shows them\n")
    assert "more" not in hermes("outbox", "list", "--limit", 32).stdout


@pytest.mark.usefixtures("dead_letters")
def test_a_row_that_waits_is_dropped_by_number_and_not_with_all(hermes: Any, data: Any) -> None:
    hermes("outbox", "retry", "1")  # no provider is chosen: it waits
    assert hermes("outbox", "delete", "--all", "--yes").stdout == "1 row deleted\n"
    assert [(row["number"], row["state"]) for row in data("outbox", "list")] == [(1, "pending")]
    assert hermes("outbox", "delete", "1", "--yes").stdout == "1 row deleted\n"
    assert data("outbox", "list") == []


@pytest.mark.usefixtures("dead_letters")
def test_a_row_that_becomes_a_dead_letter_during_the_question_is_not_dropped(
    hermes: Any, data: Any, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirm(*_: Any, **__: Any) -> None:
        with outbox_of(hermes_home) as outbox:
            outbox.put("notes", *turn_rows("t3"))
            outbox.bury(outbox.pending()[0], "late")

    monkeypatch.setattr("click.confirm", confirm)
    assert hermes("outbox", "delete", "--all").stdout == "2 rows deleted\n"
    assert [row["number"] for row in data("outbox", "list")] == [3]


@pytest.mark.usefixtures("dead_letters")
def test_a_retry_says_what_is_not_taken_this_time_either(
    hermes: Any, hermes_home: HermesHome, notes: Path
) -> None:
    with (notes / "__init__.py").open("a") as file:
        file.write("\n    def sync_turn(self, turn):\n        pass\n")
    assert hermes("outbox", "retry", "1").stdout.endswith("; some are still waiting\n")
    set_value(hermes_home, "memory.provider", "notes")
    # What the fixture stored is no turn that anybody could read.
    assert "row 2 is a dead letter again: " in hermes("outbox", "retry", "2", code=3).stderr


def test_a_folder_with_a_bundled_name_is_set_up_and_reported_as_that(
    hermes: Any, data: Any, hermes_home: HermesHome, notes: Path
) -> None:
    code = notes.with_name("supermemory")
    notes.rename(code)
    source = (code / "__init__.py").read_text()
    (code / "__init__.py").write_text(source.replace('"notes"', '"supermemory"'))
    hermes("memory", "setup", "folder:supermemory", "--yes")
    assert data("memory", "status")["provider"] == "folder:supermemory"
    assert "folder:supermemory" in hermes("doctor").stdout
    active = [entry["name"] for entry in data("providers") if entry["state"] == "active"]
    assert active == ["folder:supermemory"]
    assert hermes("supermemory", "count").stdout == "three notes\n"
    with open_memory(hermes_home, provider="folder:supermemory") as opened:
        assert "noted: tea" in str(opened.recall("tea"))
