"""`hermes-memory review`: what waits is shown, confirmed by its exact text, or removed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.cli import review
from hermes_core.config import load_config
from hermes_core.contract.values import Session
from hermes_core.curated.edits import Operation
from hermes_core.memory import Memory
from hermes_core.safety.origin import Reading
from hermes_memory_agent.skills.store import open_skills

PAGE = "The museum opens at 9"
TELEGRAM = Session("t1", platform="telegram", user_id="42")


@pytest.fixture
def memory(hermes_home: HermesHome) -> Iterator[Memory]:
    with open_memory(hermes_home) as opened:
        yield opened


def note(
    memory: Memory, text: str, origin: Any = "web", session: Session | None = None, old: str = ""
) -> None:
    who = memory.session(session) if session else memory.local_session
    operation = Operation("replace", text, old) if old else Operation("add", text)
    assert memory.curated.of(who).write("memory", [operation], who, reading=Reading(origin))["success"]
    memory.internals.inventory.record()  # as the tool does


def prompt(home: HermesHome, session: Session | None = None) -> str:
    with open_memory(home) as opened:
        who = session or Session("later")
        return opened.system_prompt(
            opened.start_session(uuid.uuid4().hex, platform=who.platform, user_id=who.user_id)
        )


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command asks as in a terminal."""
    monkeypatch.setattr(review, "is_interactive", lambda: True)


def test_without_a_terminal_it_lists_and_changes_nothing(
    hermes: Any, data: Any, memory: Memory, hermes_home: HermesHome
) -> None:
    assert hermes("review").stdout == "Nothing waits.\n"
    note(memory, PAGE)
    shown = hermes("review", typed="a\na\na\n").stdout
    assert PAGE in shown
    assert "from a web page" in shown
    assert [one["entry"] for one in data("review")["waiting"]] == [PAGE]
    assert PAGE not in prompt(hermes_home)


def test_an_accepted_note_stands_in_the_prompt(
    hermes: Any, data: Any, memory: Memory, hermes_home: HermesHome
) -> None:
    note(memory, PAGE)
    note(memory, "The pool opens at 7")
    handle = data("review")["waiting"][0]["handle"]
    assert f"accepted {handle}" in hermes("review", "--accept", handle).stdout
    assert PAGE in prompt(hermes_home)
    assert "The pool" not in prompt(hermes_home)
    done = data("review", "--accept-all")
    assert (len(done["accepted"]), done["waiting"]) == (1, [])
    assert "The pool" in prompt(hermes_home)


def test_a_rejected_note_is_gone_and_waits_again_after_undo(
    hermes: Any, data: Any, memory: Memory, hermes_home: HermesHome
) -> None:
    note(memory, PAGE)
    done = data("review", "--reject", data("review")["waiting"][0]["handle"])
    assert (len(done["rejected"]), done["waiting"]) == (1, [])
    assert data("memory", "show")["memory"] == []
    hermes("memory", "undo")
    assert [one["entry"] for one in data("review")["waiting"]] == [PAGE]
    assert PAGE not in prompt(hermes_home)


def test_rejecting_a_note_that_looks_like_a_handle_removes_no_other(
    hermes: Any, data: Any, memory: Memory
) -> None:
    hermes("memory", "add", "Likes tea")
    note(memory, "entry:d73e14c0")
    data("review", "--reject", data("review")["waiting"][0]["handle"])
    assert data("memory", "show")["memory"] == ["Likes tea"]


def test_a_confirmation_is_of_the_exact_text(
    hermes: Any, data: Any, memory: Memory, hermes_home: HermesHome
) -> None:
    note(memory, PAGE)
    handle = data("review")["waiting"][0]["handle"]
    note(memory, "The museum opens at 10", old=PAGE)
    assert "no waiting note is" in hermes("review", "--accept", handle, code=1).stderr
    hermes("review", "--accept-all")
    note(memory, "The museum opens at 11", old="The museum opens at 10")
    waiting = data("review")["waiting"]
    assert [(one["entry"], one["previous"]) for one in waiting] == [
        ("The museum opens at 11", "The museum opens at 10")
    ]
    assert "opens at" not in prompt(hermes_home)
    shown = hermes("review").stdout
    assert "- The museum opens at 10" in shown
    assert "+ The museum opens at 11" in shown


def test_a_terminal_is_asked_about_each_note(
    hermes: Any, data: Any, memory: Memory, hermes_home: HermesHome, terminal: None
) -> None:
    for text in (PAGE, "The pool opens at 7", "The zoo opens at 8", "The park opens at 6"):
        note(memory, text)
    hermes("review", typed="a\nr\ns\nq\n")
    assert [one["entry"] for one in data("review")["waiting"]] == [
        "The zoo opens at 8",
        "The park opens at 6",
    ]
    assert PAGE in prompt(hermes_home)
    assert data("memory", "show")["memory"] == [PAGE, "The zoo opens at 8", "The park opens at 6"]


def test_fifty_notes_are_reviewed_by_where_they_come_from(
    hermes: Any, data: Any, memory: Memory, hermes_home: HermesHome, terminal: None
) -> None:
    for number in range(48):
        note(memory, f"Page fact {number}", session=Session(f"s{number % 3}"))
    note(memory, "From a tool", "tool")
    note(memory, "From another tool", "tool")
    shown = hermes("review", typed="A\nr\nA\nR\na\ns\n").stdout
    assert "16 from a web page, session s0:" in shown
    assert [one["entry"] for one in data("review")["waiting"]] == ["From another tool"]
    kept = data("memory", "show")["memory"]
    assert len(kept) == 16 + 15 + 2
    assert "Page fact 0" in prompt(hermes_home)
    assert "Page fact 1" not in kept  # the first of the second group


def test_notes_that_have_waited_for_long_expire_with_a_word(
    hermes: Any, data: Any, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = memory.curated.files.clock()
    monkeypatch.setattr(memory.curated.files, "clock", lambda: now - 91 * 86400)
    note(memory, PAGE)
    assert "waited for 90 days, and expired" in hermes("review").stdout
    assert data("memory", "show")["memory"] == []
    hermes("memory", "undo")
    assert data("memory", "show")["memory"] == [PAGE]


def test_an_origin_can_be_accepted_always(
    hermes: Any, data: Any, memory: Memory, hermes_home: HermesHome, terminal: None
) -> None:
    note(memory, PAGE)
    note(memory, "The pool opens at 7")
    note(memory, "Imported", "import")
    hermes("review", typed="l\ns\n")
    assert load_config(hermes_home).memory.accepted_origins == ("web",)
    assert [one["entry"] for one in data("review")["waiting"]] == ["Imported"]
    assert PAGE in prompt(hermes_home)


def test_hidden_characters_are_shown(hermes: Any, memory: Memory) -> None:
    note(memory, "Likes tea\u00ad and \u2028cake")
    assert "Likes tea\\u00ad and \\u2028cake" in hermes("review").stdout


def test_notes_of_a_user_are_reviewed_by_name(
    hermes: Any, data: Any, memory: Memory, hermes_home: HermesHome
) -> None:
    note(memory, PAGE, session=TELEGRAM)
    shown = hermes("review").stdout
    assert shown.startswith("Nothing waits.\n")
    assert (
        "1 note from a web page waits in the memory of telegram:42: hermes-memory review --user telegram:42"
        in shown
    )
    hermes("review", "--user", "telegram:42", "--accept-all")
    assert PAGE in prompt(hermes_home, TELEGRAM)
    assert PAGE not in prompt(hermes_home)


def test_each_decision_is_in_the_record(
    hermes: Any, data: Any, memory: Memory, hermes_home: HermesHome
) -> None:
    note(memory, PAGE)
    note(memory, "The pool opens at 7")
    first, second = (one["handle"] for one in data("review")["waiting"])
    hermes("review", "--accept", first, "--reject", second)
    rows = memory.sessions.database.execute("SELECT kind FROM note_events ORDER BY id")
    kinds = [row["kind"] for row in rows]
    assert sorted(kinds[-3:]) == ["confirm", "reject", "remove"]
    hermes("verify")


SKILL = "---\nname: deploy\ndescription: Deploy the site\n---\nRun make deploy.\n"


def test_skills_are_confirmed_by_their_exact_text(
    hermes: Any, data: Any, memory: Memory, hermes_home: HermesHome
) -> None:
    skills = open_skills(hermes_home, memory.config, memory.sessions.database)
    skills.create("deploy", "ops", SKILL, origin="web")
    assert "ops/deploy" not in skills.index()
    (waiting,) = data("review")["skills"]
    assert (waiting["name"], waiting["origin"], waiting["text"]) == ("deploy", "web", SKILL)
    assert "Run make deploy." in hermes("review").stdout
    skills.patch("deploy", "make deploy", "make all", origin="web")
    hermes("review", "--accept", waiting["handle"], code=1)
    assert "ops/deploy" not in skills.index()
    hermes("review", "--accept-all")
    assert "ops/deploy" in skills.index()
    skills.patch("deploy", "make all", "make site", origin="web")
    hermes("review", "--reject", data("review")["skills"][0]["handle"])
    assert skills.skills() == []


def test_an_origin_is_accepted_always_without_a_terminal(hermes: Any, data: Any, memory: Memory) -> None:
    note(memory, PAGE)
    note(memory, "Imported", "import")
    done = data("review", "--always", "web")
    assert (done["accepted_origins"], [one["entry"] for one in done["waiting"]]) == (["web"], ["Imported"])
