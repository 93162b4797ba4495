"""Pinned notes: only a person changes or removes them, and they stand first."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs

from hermes_core import Memory, open_memory
from hermes_core.cli import main
from hermes_core.home import HermesHome
from hermes_memory_ui.answers import PageRequest
from hermes_memory_ui.site import Site
from hermes_memory_ui.views import notes

NOTES = ("Uses uv.", "Lives in Lund.", "Prefers short answers.")


@pytest.fixture
def memory(hermes_home: HermesHome) -> Any:
    with open_memory(hermes_home) as opened:
        for text in NOTES:
            opened.curated.add("memory", text)
        assert opened.curated.pin("memory", "Lund")["success"]
        yield opened


def call(memory: Memory, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(memory.call_tool(memory.session("s"), "memory", arguments))
    return answer


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "remove", "old_text": "Lund"},
        {"action": "replace", "old_text": "Lund", "content": "Lives in Malmo."},
        {"operations": [{"action": "remove", "old_text": "uv"}, {"action": "remove", "old_text": "Lund"}]},
    ],
)
def test_a_model_can_not_change_or_remove_a_pinned_note(memory: Memory, arguments: dict[str, Any]) -> None:
    answer = call(memory, target="memory", **arguments)
    assert "the person pinned the entry" in answer["error"]
    assert memory.curated.entries("memory") == NOTES
    command = answer["remediation"].partition("hermes-memory ")[2].replace("'a part of it'", "Lund").split()
    assert CliRunner().invoke(main, [*command]).exit_code == 0
    assert memory.curated.pin("memory", "Lund")["success"]
    assert call(memory, target="memory", action="add", content="Has a boat.")["success"]
    assert call(memory, target="memory", action="remove", old_text="uv")["success"]


def test_a_person_changes_it_and_it_stays_pinned(memory: Memory) -> None:
    assert memory.change_memory("replace", "memory", "Lives in Malmo.", "Lund", by_person=True)["success"]
    assert "pinned" in call(memory, target="memory", action="remove", old_text="Malmo")["error"]
    assert memory.curated.undo()["success"]
    assert "pinned" in call(memory, target="memory", action="remove", old_text="Lund")["error"]
    assert memory.curated.pin("memory", "Lund", on=False)["success"]
    assert call(memory, target="memory", action="remove", old_text="Lund")["success"]


def test_pinned_notes_stand_first_and_stay_pinned_when_confirmed_or_written_again(memory: Memory) -> None:
    assert [note.text for note in memory.curated.read().in_order("memory")] == [
        "Lives in Lund.",
        "Uses uv.",
        "Prefers short answers.",
    ]
    text = memory.curated.read().snapshot().render()
    assert text.index("Lives in Lund.") < text.index("Uses uv.")
    memory.curated.confirm(["Lives in Lund."])
    assert memory.curated.read().in_order("memory")[0].text == "Lives in Lund."
    verified = memory.curated.changes.verify()
    assert verified is not None
    assert verified.faults == ()


@pytest.mark.parametrize(
    ("target", "text"), [("memory", "nothing like it"), ("other", "Lund"), ("memory", "")]
)
def test_a_note_that_is_not_there_is_not_pinned(memory: Memory, target: Any, text: str) -> None:
    assert memory.curated.pin(target, text)["error"]


def test_the_command_and_the_page_pin_and_unpin(memory: Memory, hermes_home: HermesHome) -> None:
    done = CliRunner().invoke(main, ["memory", "pin", "uv"])
    assert (done.exit_code, done.stdout) == (0, "Entry pinned: only you can change or remove it.\n")
    shown = CliRunner().invoke(main, ["memory", "show", "--origin"]).stdout
    assert shown.count("pinned") == 2
    assert CliRunner().invoke(main, ["memory", "pin", "Ghent"]).exit_code == 1
    site = Site(memory)
    for on, pinned in (("1", True), ("", False)):
        (handle,) = (note.handle for note in notes_of(site) if note.entry == "Prefers short answers.")
        notes.pin(site, PageRequest({}, {"target": "memory", "handle": handle, "on": on}))
        assert next(note.pinned for note in notes_of(site) if note.handle == handle) == pinned
    assert CliRunner().invoke(main, ["memory", "pin", "uv", "--off"]).exit_code == 0
    assert memory.curated.read().in_order("memory")[0].text == "Lives in Lund."


def notes_of(site: Site) -> list[Any]:
    page = notes.show(site, PageRequest({}))
    return [note for file in page.values["files"] for note in file.notes]


def test_equal_text_of_another_form_does_not_take_a_pinned_note_with_it(
    memory: Memory, hermes_home: HermesHome
) -> None:
    composed, decomposed = "Drinks caf\u00e9 noir.", "Drinks cafe\u0301 noir."
    hermes_home.memory_md.write_text(f"{composed}\n§\n{decomposed}", "utf-8")
    assert memory.curated.pin("memory", composed)["success"]
    handle = next(note.handle for note in notes_of(Site(memory)) if note.entry == decomposed)
    answer = call(memory, target="memory", action="remove", old_text=handle)
    assert "the person pinned the entry" in answer["error"]
    assert memory.curated.entries("memory") == (composed, decomposed)


def test_a_pin_stays_on_a_note_that_a_person_edits_in_the_file(memory: Memory) -> None:
    base = memory.curated.entries("memory")
    text = "\n§\n".join(entry.replace("Lund", "Malmo") for entry in base)
    assert memory.curated.edit("memory", text, base)["success"]
    assert "pinned" in call(memory, target="memory", action="remove", old_text="Malmo")["error"]
    assert memory.curated.read().in_order("memory")[0].text == "Lives in Malmo."


def test_a_pinned_note_is_not_taken_from_a_provider_that_keeps_the_notes(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = structs.replace(memory.curated.files.hooks, suppresses=lambda target: True)
    monkeypatch.setattr(memory.curated.files, "hooks", hooks)
    for arguments in ({"action": "remove"}, {"action": "replace", "content": "Lives in Malmo."}):
        answer = call(memory, target="memory", old_text="Lund", **arguments)
        assert "the person pinned the entry" in answer["error"]
    answer = call(memory, target="memory", action="remove", old_text="uv")
    assert "pinned" not in answer.get("error", "")
