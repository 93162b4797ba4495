"""After a person is forgotten, every place is searched for what is left of them."""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
import zipfile
from contextlib import closing
from typing import Any

import pytest

from hermes_core import Recall, RecallItem, open_memory
from hermes_core.actions.leftovers import CHUNK_BYTES, OTHERS, Fragments
from hermes_core.actions.people import forget_person, report_sentences
from hermes_core.contract.values import MemoryPage, MemoryRecord
from hermes_core.forget import ForgetReport
from hermes_core.home import HermesHome
from hermes_core.memory import Memory
from hermes_memory_testing.fakes import RecordingProvider

USER, SAID = "telegram:42", "My locker code is 90210, and the heron sleeps."


class Remembering(RecordingProvider):
    """A provider that says that it forgot, and recalls what it knows."""

    def __init__(self, *known: str) -> None:
        super().__init__()
        self.known = known

    def answer(self, hook: str, **arguments: Any) -> Any:
        super().answer(hook, **arguments)
        if hook == "prefetch":
            return Recall(tuple(RecallItem(text) for text in self.known))
        return self._default(hook, arguments)


def say(memory: Memory, text: str, user: str = "42", session_id: str = "hers") -> None:
    session = memory.start_session(session_id, platform="telegram", user_id=user)
    memory.end_turn(session, text, "Noted.", warm=False)


def forgotten(home: HermesHome, provider: Any = "", *texts: str) -> ForgetReport:
    with open_memory(home, provider=provider) as memory:
        for text in texts or (SAID,):
            say(memory, text)
        return forget_person(memory, USER)[0]


def hits(report: ForgetReport) -> dict[str, tuple[int, bool]]:
    return {one.place: (one.hits, one.promised) for one in report.places if one.hits}


def test_a_home_without_copies_is_clean_and_names_where_it_looked(hermes_home: HermesHome) -> None:
    report = forgotten(hermes_home)
    assert hits(report) == {}
    assert report.complete
    assert "state.db" in {one.place for one in report.places}
    assert any(line.startswith(f"no text of {USER} was found in ") for line in report_sentences(report))


@pytest.mark.parametrize(
    ("place", "promised"),
    [
        ("logs/hermes.log.1", False),
        ("backups/old.sqlite", False),
        ("state.db.damaged-2026/state.db", False),
        ("memories/USER.md.bak.1", False),
        ("migration/openclaw/x.json", False),
        ("chat_history", False),
        ("mem0/history.db", True),
        ("cache/anything.bin", True),
        ("retaindb_queue.db", True),
    ],
)
def test_a_file_with_a_text_is_named(hermes_home: HermesHome, place: str, promised: bool) -> None:
    path = hermes_home.path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\0\1" + json.dumps({"a": SAID, "b": SAID}).encode())
    report = forgotten(hermes_home)
    assert hits(report) == {place: (2, promised)}
    assert report.complete == (not promised)
    assert any(line.startswith(f"{place} holds 2 texts of {USER}") for line in report_sentences(report))


def test_a_text_in_an_archive_is_found(hermes_home: HermesHome) -> None:
    folder = hermes_home.path / "backups"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("state.db", SAID)
    with tarfile.open(folder / "b.tar.gz", "w:gz") as archive_of_tar:
        info = tarfile.TarInfo("x")
        info.size = len(SAID)
        archive_of_tar.addfile(info, io.BytesIO(SAID.encode()))
    report = forgotten(hermes_home)
    assert hits(report) == {"backups/a.zip": (1, False), "backups/b.tar.gz": (1, False)}


def test_a_database_of_another_program_is_searched_in_all_its_pages(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir(exist_ok=True)
    with closing(sqlite3.connect(hermes_home.path / "points.sqlite")) as database:
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("CREATE TABLE points (text TEXT)")
        database.execute("INSERT INTO points VALUES (?)", (SAID,))
        database.commit()
        database.execute("DELETE FROM points")
        database.commit()
    assert hits(forgotten(hermes_home)) == {"points.sqlite": (1, True)}


def test_a_provider_that_still_tells_it_is_named(hermes_home: HermesHome) -> None:
    report = forgotten(
        hermes_home, Remembering("The code of the locker of the person is 90210; a heron sleeps.")
    )
    assert hits(report) == {"provider fake": (1, True)}
    assert not report.complete


def test_a_provider_that_exports_it_is_named(hermes_home: HermesHome) -> None:
    provider = Remembering()
    provider._default = lambda hook, arguments: (  # type: ignore[method-assign]
        MemoryPage((MemoryRecord(SAID),))
        if hook == "export_memories"
        else RecordingProvider._default(provider, hook, arguments)
    )
    assert hits(forgotten(hermes_home, provider)) == {"provider fake": (1, True)}


def test_a_provider_that_repeats_the_question_tells_nothing(hermes_home: HermesHome) -> None:
    assert forgotten(hermes_home, RecordingProvider()).complete


def test_a_provider_that_can_not_be_asked_is_not_clean(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    provider.results["export_memories"] = RuntimeError("it is broken")
    report = forgotten(hermes_home, provider)
    (place,) = (one for one in report.places if one.error)
    assert (place.place, report.complete) == ("provider fake", False)
    assert "it is broken" in place.error


def test_what_others_said_too_is_theirs(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home, provider="") as memory:
        say(memory, SAID, "43", "his")
        say(memory, SAID)
        report, _ = forget_person(memory, USER)
    assert hits(report) == {OTHERS: (1, False)}
    assert report.complete


def test_notes_that_were_removed_and_delivered_leave_no_text_in_the_store(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home, provider=RecordingProvider()) as memory:
        say(memory, SAID)
        session = memory.session("hers", platform="telegram", user_id="42")
        memory.change_memory("add", "user", "keeps a turtle in the boathouse", session=session)
        assert memory.flush(10)
        report, _ = forget_person(memory, USER)
    assert hits(report) == {}
    assert b"turtle" not in (hermes_home.path / "state.db").read_bytes()


def test_a_file_that_can_not_be_read_is_not_clean(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir(exist_ok=True)
    (hermes_home.path / "broken.zip").write_bytes(b"PK no archive")
    report = forgotten(hermes_home)
    assert [(one.place, one.promised) for one in report.places if one.error] == [("broken.zip", False)]


@pytest.mark.parametrize(
    "text",
    [
        SAID,
        'He said "the heron sleeps" and left.',
        "Größe der Hütte: vierzig Fuß am Ufer",
        "鷺は船小屋の屋根で眠っていると言った",
        "line one of it\nline two is longer than one\n",
    ],
)
def test_a_text_is_found_as_it_is_and_in_json_and_across_chunks(text: str) -> None:
    fragments = Fragments([text])
    for written in (
        text.encode(),
        json.dumps(text).encode(),
        json.dumps({"a": [text]}, ensure_ascii=False).encode(),
    ):
        for before in (b"", b"x" * (CHUNK_BYTES - 20)):
            assert sum(fragments.find_in(io.BytesIO(before + written + b" tail")).values()) == 1


def test_thousands_of_texts_are_searched_for_at_once() -> None:
    texts = [f"The remark number {number} of the person." for number in range(3000)]
    data = " ".join(texts[::2]).encode() * 3
    found = Fragments(texts).find(data)
    assert len(found) == 1500
    assert set(found.values()) == {3}


def test_words_that_everybody_says_are_not_searched_for() -> None:
    assert Fragments(["ok", "thanks!", "yes", ""]).texts == ()
