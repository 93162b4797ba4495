"""A note is the same one whatever an editor, a sync program or a copy of its file makes of its form."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Callable
from typing import Any

from hermes_core import HermesHome, Memory, open_memory
from hermes_core.contract.values import Session
from hermes_core.curated.edits import Operation
from hermes_core.safety.origin import Reading
from tests.table import table

OWN = "The café is open on Mondays."
WAITING = "Invoices go to Évora,\nas the page  says."
LAST = "Tea is green."


def start(home: HermesHome) -> None:
    """Store a waiting note between two of the person."""
    with open_memory(home) as memory:
        memory.curated.add("memory", OWN)
        memory.curated.write("memory", [Operation("add", WAITING)], reading=Reading("web"))
        memory.curated.add("memory", LAST)


def prompt_of(memory: Memory) -> str:
    return memory.system_prompt(memory.start_session())


TIDIES = (
    lambda text: unicodedata.normalize("NFD", text),
    lambda text: text.replace("\n", "\r\n"),
    lambda text: text.replace("  ", " "),
    lambda text: text.replace("page  says", "page says  "),
    lambda text: text.replace("Évora,\nas", "Évora, as"),
    lambda text: text.replace("Évora,\n", "Évora,\n\n"),
    lambda text: text + "\n\n",
    lambda text: text.replace(" the", "\u00a0the").replace("The ", "The\t"),
)


@table("tidy", TIDIES)
def test_a_tidied_file_makes_nothing_the_persons(tmp_path_factory: Any, tidy: Callable[[str], str]) -> None:
    home = HermesHome(tmp_path_factory.mktemp("home"))
    start(home)
    text = home.memory_md.read_text("utf-8")
    assert tidy(text) != text
    home.memory_md.write_text(tidy(text), encoding="utf-8", newline="")
    with open_memory(home) as memory:
        assert [note.origin.origin for note in memory.curated.read().waiting_notes()] == ["web"]
        assert "Évora" not in unicodedata.normalize("NFC", prompt_of(memory))
        assert "open on Mondays" in prompt_of(memory)


CHANGES = (
    (WAITING, WAITING.replace("page", "letter")),
    (WAITING, "Another thing."),
    (f"{WAITING}\n§\n{LAST}", f"{WAITING}\n{LAST}"),
    (f"{OWN}\n§\n{WAITING}", f"{OWN}\n{WAITING}"),
    (WAITING, WAITING.replace(",\n", "\n§\n")),
    (OWN, f"{OWN} It moved."),
    (LAST, "Tea is black."),
)


@table(["old", "new"], CHANGES)
def test_a_changed_note_beside_a_waiting_one_waits(tmp_path_factory: Any, old: str, new: str) -> None:
    home = HermesHome(tmp_path_factory.mktemp("home"))
    start(home)
    text = home.memory_md.read_text("utf-8")
    assert old in text
    home.memory_md.write_text(text.replace(old, new), encoding="utf-8")
    with open_memory(home) as memory:
        waiting = " ".join(note.entry for note in memory.curated.read().waiting_notes())
        assert all(part.strip() in waiting for part in new.split("§") if part.strip() not in (OWN, LAST))
        assert new.splitlines()[0] not in prompt_of(memory)


def test_a_new_note_beside_a_waiting_one_is_the_persons(hermes_home: HermesHome) -> None:
    start(hermes_home)
    text = hermes_home.memory_md.read_text("utf-8")
    for added in (
        f"The person sings.\n§\n{text}",
        text.replace(f"\n§\n{LAST}", f"\n§\nThe person swims.\n§\n{LAST}"),
    ):
        hermes_home.memory_md.write_text(added, encoding="utf-8")
        with open_memory(hermes_home) as memory:
            assert [note.entry for note in memory.curated.read().waiting_notes()] == [WAITING]
    with hermes_home.memory_md.open("a", encoding="utf-8") as file:
        file.write("\n§\nThe person runs.\n")
    with open_memory(hermes_home) as memory:
        assert [note.entry for note in memory.curated.read().waiting_notes()] == [WAITING]
        assert "The person runs." in prompt_of(memory)


def test_files_that_are_copied_alone_keep_what_waits(hermes_home: HermesHome, tmp_path: Any) -> None:
    start(hermes_home)
    other = HermesHome(tmp_path / "other")
    other.memory_md.parent.mkdir(parents=True)
    shutil.copy(hermes_home.memory_md, other.memory_md)
    with open_memory(other) as memory:
        assert [note.entry for note in memory.curated.read().waiting_notes()] == [WAITING]
        assert OWN in prompt_of(memory)
        assert "Évora" not in prompt_of(memory)
        # It is asked about once.
        memory.curated.confirm([WAITING])
        assert "Évora" in prompt_of(memory)
    assert "hermes-memory review" not in other.memory_md.read_text("utf-8")
    with open_memory(other) as memory:
        assert memory.curated.read().waiting_notes() == []


def test_a_file_without_waiting_notes_is_plain(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        memory.curated.add("memory", OWN)
    assert hermes_home.memory_md.read_text("utf-8") == OWN


def test_removing_a_note_takes_its_confirmation_back(hermes_home: HermesHome) -> None:
    page = Reading("web")
    start(hermes_home)
    with open_memory(hermes_home) as memory:
        notes, session = memory.curated, Session("s")
        notes.confirm([WAITING])
        assert notes.read().waiting_notes() == []
        notes.write("memory", [Operation("remove", "", WAITING)], session, reading=page)
        notes.write("memory", [Operation("add", WAITING)], session, reading=page)
        assert [note.entry for note in notes.read().waiting_notes()] == [WAITING]
        notes.confirm([WAITING])
        notes.remove("memory", WAITING)
        notes.undo()
        assert [note.entry for note in notes.read().waiting_notes()] == [WAITING]
