from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from hermes_core.sessions import maintenance
from hermes_core.sessions.maintenance import repair
from hermes_core.sessions.search.reasons import SearchTrace, hit_reason
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_semantic import dense
from hermes_memory_semantic.vectors import VectorIndex
from plugins.semantic.tests.conftest import OpenStore

pytestmark = [
    pytest.mark.skipif(not dense.installed(), reason="needs the local model"),
    pytest.mark.slow,
]

TALK = [
    "We adopted a puppy from the shelter on Sunday.",
    "The quarterly report is due on Friday.",
    "My flight to Lisbon leaves at seven.",
    "I have been feeling down since the divorce.",
    "The recipe needs two cups of flour.",
]


@pytest.fixture
def opened(open_store: OpenStore) -> Callable[[], SessionStore]:
    """Opens the test's store with vectors, as often as asked."""
    return open_store


def meaning_of(db: SessionStore) -> VectorIndex:
    assert db.past.vectors is not None
    return db.past.vectors


def filled(db: SessionStore, session: str = "s1") -> SessionStore:
    db.create_session(session)
    for number, text in enumerate(TALK):
        db.append_turn(
            session,
            [{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}],
            f"{session}-{number}",
            number + 1,
        )
    meaning_of(db).build()
    return db


def rows(db: SessionStore, sql: str = "SELECT count(*) FROM vectors") -> int:
    return int(db.database.execute(sql).fetchone()[0])


@pytest.mark.parametrize(
    ("question", "wanted"),
    [("new dog in the family?", 0), ("a depressed mood", 3), ("trip to Portugal", 2), ("baking a cake", 4)],
)
def test_a_message_is_found_that_shares_no_word_with_the_question(
    opened: Callable[[], SessionStore], question: str, wanted: int
) -> None:
    assert filled(opened()).past.search(question)[0].text == TALK[wanted]


def test_the_reason_of_such_a_message_is_its_meaning(opened: Callable[[], SessionStore]) -> None:
    traces: list[SearchTrace] = []
    (best, *_) = filled(opened()).past.search("a depressed mood", traces=traces)
    reason = hit_reason(traces, best.message_id)
    assert reason is not None
    assert reason.words == ()
    assert reason.meaning is not None
    assert 0 < reason.meaning < 1
    assert reason.parts["meaning"] > 0
    assert f"meaning cosine {reason.meaning:.2f}" in reason.text


def test_a_hint_finds_what_it_reminds_of_before_messages_with_words_of_the_hint(
    opened: Callable[[], SessionStore],
) -> None:
    reminded = {
        "The doctor wrote a prescription for amoxicillin.": "Penicillin gave me a rash all over.",
        "Somebody cut the lock of my bike in front of the station.": "I insured the bicycle for theft.",
    }
    chance = [
        "The doctor on television has a red beard.",
        "My cousin wrote a long novel about a lighthouse.",
        "I got a prescription for new glasses.",
        "The station was closed because of the parade.",
        "We stood in front of the museum for an hour.",
        "I had to cut the speech in half.",
    ]
    with closing(filled(opened())) as db:
        for number, text in enumerate([*reminded.values(), *chance * 3]):
            db.create_session(f"h{number}")
            db.append_message(f"h{number}", "user", text)
        meaning_of(db).build()
        for hint, memory in reminded.items():
            assert memory in [hit.text for hit in db.past.search(hint, limit=3)], hint
        # A question whose words a message has is answered by words as well.
        assert db.past.search("Who has a red beard?")[0].text == chance[0]


def test_while_most_messages_are_unread_all_are_searched_by_words(
    opened: Callable[[], SessionStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = opened()
    monkeypatch.setattr(meaning_of(db), "wake", lambda: None)
    filled(db)
    db.create_session("later")
    for number in range(len(TALK)):
        db.append_message("later", "user", f"Something else altogether, number {number}")
    assert db.past.search("a depressed mood") == []
    meaning_of(db).build()
    assert db.past.search("a depressed mood")[0].text == TALK[3]
    db.append_message("later", "user", "One more")
    assert db.past.search("a depressed mood")[0].text == TALK[3]


def test_what_nobody_spoke_of_is_not_found_by_meaning(opened: Callable[[], SessionStore]) -> None:
    assert filled(opened()).past.search("asdfghjkl") == []


@pytest.mark.parametrize("question", ["弟は何が怖いですか？", "docker 部署失败", "भाई"])
def test_a_question_that_the_model_can_not_read_is_answered_by_words_alone(
    opened: Callable[[], SessionStore], tmp_path: Path, question: str
) -> None:
    said = ["弟は犬が怖いです。", "服务器部署失败了。", "भाई को कुत्तों से डर लगता है।"]
    by_words = SessionStore(tmp_path / "words.db")
    found = []
    for db in (by_words, filled(opened())):
        db.create_session("other")
        for text in said:
            db.append_message("other", "user", text)
        if db.past.vectors:
            db.past.vectors.build()
        found.append([hit.text for hit in db.past.search(question) if hit.text in said])
    by_words.close()
    assert found[0] == found[1]
    assert meaning_of(db).likeness(question) is None


def test_a_word_near_one_of_the_message_before_counts_for_the_answer(
    opened: Callable[[], SessionStore],
) -> None:
    db = filled(opened())
    meaning, ids = meaning_of(db), list(range(1, 2 * len(TALK) + 1))
    likeness = meaning.likeness("new dog in the family?")
    assert likeness is not None
    near = meaning.closeness(likeness, ids)
    assert sorted(near, key=lambda one: -near[one])[:2] == [1, 2]
    assert meaning.closeness(likeness, []) == {}


def test_of_a_pasted_document_only_the_beginning_is_read() -> None:
    begun, whole = dense.encoder().encode(["a cat", "a cat" + " " * dense.MAX_TEXT_CHARS + "and a dog"])

    assert (whole.whole == begun.whole).all()


def test_names_and_words_that_tell_nothing_are_not_compared(opened: Callable[[], SessionStore]) -> None:
    meaning = meaning_of(filled(opened()))
    without, with_name = meaning.likeness("Did Ann fly?", ["Ann", "fly"]), meaning.likeness("Did Ann fly?")
    assert without is not None
    assert with_name is not None
    assert (len(without.words), len(with_name.words)) == (0, 2)
    assert meaning.closeness(without, [1, 2]) == {}


def test_without_the_switch_nothing_is_made_and_no_thread_runs(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    db = SessionStore(tmp_path / "state.db")
    db.create_session("s1")
    db.append_message("s1", "user", TALK[0])
    assert db.past.vectors is None
    assert set(threading.enumerate()) <= before  # one of a test before may end meanwhile
    assert rows(db) == 0
    db.close()


def test_vectors_are_made_in_the_background_and_the_thread_ends_with_the_store(
    opened: Callable[[], SessionStore],
) -> None:
    db = opened()
    db.create_session("s1")
    db.append_message("s1", "user", TALK[0])
    made = threading.Event()
    for _ in range(400):
        if not meaning_of(db).missing():
            break
        made.wait(0.05)
    assert rows(db) == 1
    db.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "hermes-meaning"]


FILLER = "\n".join(f"step {number} of the nightly export wrote {number * 37} rows" for number in range(20))
FAR = f"{FILLER}\nThe veterinarian vaccinated both kittens this afternoon.\n{FILLER[:300]}"


@pytest.mark.parametrize("role", ["tool", "user", "assistant"])
def test_what_stands_far_inside_a_long_message_is_found_by_meaning(
    opened: Callable[[], SessionStore], role: str
) -> None:
    db = filled(opened())
    db.append_turn("s1", [{"role": role, "content": FAR, "tool_name": "run"}], "s1-9", 9)
    meaning_of(db).build()

    first = db.past.search("Did the cats get their shots at the vet?")[:2]

    # Another message about a pet may be as close.
    found = next(hit for hit in first if hit.text == FAR)
    assert found.role == role
    assert "veterinarian" in found.excerpt


def test_a_long_message_has_few_vectors_with_their_places(opened: Callable[[], SessionStore]) -> None:
    db = opened()
    db.create_session("s1")
    text = "The export wrote many rows of invoices. " * 500
    db.append_turn("s1", [{"role": "tool", "content": text, "tool_name": "run"}], "t1", 1)

    meaning_of(db).build()

    spans = db.database.execute("SELECT first, last FROM vectors ORDER BY piece").fetchall()
    assert len(spans) == 4
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    assert all(0 < last - first <= 400 for first, last in spans)
    (words,) = db.database.execute("SELECT sum(length(words)) FROM vectors").fetchone()
    assert words + len(spans) * dense.DIMENSION < 25_000


def test_results_of_the_tools_of_memory_get_no_vectors(opened: Callable[[], SessionStore]) -> None:
    db = opened()
    db.create_session("s1")
    found = [{"role": "tool", "content": "The puppy is from the shelter.", "tool_name": "session_search"}]
    db.append_turn("s1", found, "t1", 1)

    assert meaning_of(db).missing() == 0
    assert meaning_of(db).build() == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "short",
        "x" * 5000,
        "A line.\n" * 300,
        "部署失败" * 400,
        "a b " * 101,
        "\n\n\n" * 500 + "end",
    ],
)
def test_pieces_are_bounded_and_in_order(text: str) -> None:
    spans = dense.cut(text)

    assert len(spans) <= dense.MAX_PIECES
    assert all(0 < last - first <= dense.PIECE_CHARS for first, last in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    if text.strip():
        assert text[spans[-1][0] :].strip()
        assert (
            len(text) > dense.MAX_PIECES * dense.PIECE_CHARS
            or "".join(text[first:last] for first, last in spans).split() == text.split()
        )


def test_a_deleted_session_takes_its_vectors_along(opened: Callable[[], SessionStore]) -> None:
    db = filled(filled(opened()), "s2")
    db.delete_session("s1")
    assert rows(db) == 2 * len(TALK)
    assert {hit.session_id for hit in db.past.search("new dog in the family?")} == {"s2"}


def test_what_was_taken_back_is_not_found_by_meaning(opened: Callable[[], SessionStore]) -> None:
    db = filled(opened())
    db.rewind("s1", 1)
    assert db.past.search("new dog in the family?") == []


def test_vectors_of_another_model_are_made_anew(opened: Callable[[], SessionStore]) -> None:
    db = filled(opened())
    with closing(sqlite3.connect(db.database.path, isolation_level=None)) as connection:
        connection.execute("UPDATE vectors SET model = 'older', own = x'00', words = x'00'")
        connection.execute("DELETE FROM state_meta WHERE key LIKE 'meaning:%'")
    db.close()
    again = opened()
    assert meaning_of(again).build() == 2 * len(TALK)
    assert rows(again, "SELECT count(*) FROM vectors WHERE model = 'older'") == 0
    assert again.past.search("new dog in the family?")[0].text == TALK[0]


def test_a_search_has_missing_vectors_made(opened: Callable[[], SessionStore], open_store: OpenStore) -> None:
    plain = open_store(by_meaning=False)
    plain.create_session("s1")
    plain.append_message("s1", "user", TALK[0])
    plain.close()
    db = opened()
    db.past.search("anything")
    pause = threading.Event()
    for _ in range(400):
        if not meaning_of(db).missing():
            break
        pause.wait(0.05)
    assert rows(db) == 1


def test_messages_that_another_process_stores_are_found_by_meaning(
    opened: Callable[[], SessionStore],
) -> None:
    one, other = filled(opened()), opened()
    assert other.past.search("new dog in the family?")
    one.append_message("s1", "user", "Our cat had kittens.")
    meaning_of(one).build()
    assert "Our cat had kittens." in [hit.text for hit in other.past.search("feline offspring", limit=3)]


def test_two_builders_make_each_vector_once(
    opened: Callable[[], SessionStore], open_store: OpenStore
) -> None:
    plain = open_store(by_meaning=False)
    plain.create_session("s1")
    for number in range(200):
        plain.append_message("s1", "user", f"Message number {number}.")
    plain.close()
    counts: list[int] = []
    builders = [
        threading.Thread(target=lambda: counts.append(meaning_of(opened()).build())) for _ in range(2)
    ]
    for thread in builders:
        thread.start()
    for thread in builders:
        thread.join()
    assert sum(counts) == 200


BUILDING = """
import sys
from pathlib import Path
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_semantic.vectors import VectorIndex
db = SessionStore(Path(sys.argv[1]), make_vectors=VectorIndex)
db.past.vectors.build(lambda done: print(done, flush=True))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_kill_in_the_middle_loses_nothing(opened: Callable[[], SessionStore], tmp_path: Path) -> None:
    plain = SessionStore(tmp_path / "state.db")
    plain.create_session("s1")
    for number in range(200):
        plain.append_message("s1", "user", f"Message number {number}.")
    plain.close()
    command = [sys.executable, "-c", BUILDING, str(tmp_path / "state.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        made = int(builder.stdout.readline())
        os.kill(builder.pid, signal.SIGKILL)
    db = opened()
    assert db.check() == []
    assert 0 < meaning_of(db).build() <= 200 - made
    assert rows(db) == 200


def test_read_only_searches_by_words(opened: Callable[[], SessionStore], tmp_path: Path) -> None:
    filled(opened()).close()
    db = SessionStore(tmp_path / "state.db", read_only=True, make_vectors=VectorIndex)
    assert [hit.text for hit in db.past.search("Lisbon")][:1] == [TALK[2]]
    db.close()


def test_a_broken_package_is_said_once_and_search_goes_on_by_words(
    opened: Callable[[], SessionStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    filled(opened()).close()
    broken = tmp_path / "model.onnx"
    broken.write_bytes(b"no model")
    monkeypatch.setattr(dense, "_weights", lambda: broken)
    dense._encoder.cache_clear()
    db = opened()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert db.past.search("Lisbon")[0].text == TALK[2]
    assert "is not the file that it should be" in meaning_of(db).fault
    assert len([one for one in caplog.records if "by meaning" in one.message]) == 1
    assert not meaning_of(db).works()


def test_a_fault_that_has_passed_is_not_told_any_more(
    opened: Callable[[], SessionStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = opened()
    meaning, encoder = meaning_of(db), dense.encoder
    meaning.close()  # its thread: what is made here is made by `build`

    def fails() -> dense.Encoder:
        raise OSError("too many open files")

    monkeypatch.setattr(dense, "encoder", fails)
    db.create_session("s1")
    db.append_message("s1", "user", TALK[0])
    with pytest.raises(OSError, match="too many"):
        meaning.build()
    assert "too many open files" in meaning.fault

    monkeypatch.setattr(dense, "encoder", encoder)
    db.append_message("s1", "user", TALK[1])
    meaning.build()
    assert meaning.fault == ""


def test_a_repaired_store_makes_its_vectors_anew(opened: Callable[[], SessionStore]) -> None:
    filled(opened()).close()
    db = opened()
    path = db.database.path
    db.close()
    repair(path)
    again = opened()
    assert rows(again) == 0
    assert meaning_of(again).build() == 2 * len(TALK)


def test_a_rebuild_makes_all_vectors_anew(opened: Callable[[], SessionStore]) -> None:
    db = filled(opened())
    db.append_message(db.list_sessions()[0].session.id, "tool", "3 rows written")
    told: list[tuple[int, int]] = []
    count = 2 * len(TALK) + 1
    assert maintenance.rebuild_vectors(db, lambda done, total: told.append((done, total))) == count
    assert told[-1] == (count, count)
    assert rows(db) == count
    assert db.past.search("new dog in the family?")[0].text == TALK[0]


def test_numpy_is_not_loaded_by_two_threads_at_once(opened: Callable[[], SessionStore]) -> None:
    meaning, found = meaning_of(filled(opened())), threading.Event()
    searching = threading.Thread(target=lambda: meaning.likeness("puppy") and found.set())
    with dense.LOADING_LOCK:
        searching.start()
        assert not found.wait(0.1)
    assert found.wait(60)
    searching.join()


LEFT_OPEN = """
import sys, time
from pathlib import Path
from hermes_memory_semantic import dense
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_semantic.vectors import VectorIndex

def slow():
    begun.touch()
    time.sleep(0.3)
    Path(sys.argv[1], "ended").touch()
    raise OSError("no model today")

begun = Path(sys.argv[1], "begun")
dense.encoder = slow
db = SessionStore(Path(sys.argv[1], "state.db"), make_vectors=VectorIndex)
db.create_session("s1")
db.append_message("s1", "user", "We adopted a puppy.")
while not begun.exists():
    time.sleep(0.01)
"""


def test_a_process_that_closes_nothing_ends_after_the_step_under_way(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", LEFT_OPEN, str(tmp_path)], timeout=60)
    assert (ended.returncode, (tmp_path / "ended").exists()) == (0, True)


def test_the_model_leaves_no_trace_of_its_makers_in_the_home_of_the_person(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environ |= {"HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    reading = "from hermes_memory_semantic import dense; dense.encoder().encode(['a puppy'])"

    subprocess.run([sys.executable, "-c", reading], env=environ, check=True, timeout=60)

    assert not list(tmp_path.iterdir())


INTERRUPTED = """
import signal, sys
from pathlib import Path
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_semantic.vectors import VectorIndex

class Interrupting:
    '''Presses Ctrl-C in the middle of the import of numpy, once.'''

    def find_spec(self, name, path=None, target=None):
        if name.startswith("numpy.lib") and "poly" in name and self in sys.meta_path:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
db = SessionStore(Path(sys.argv[1]), make_vectors=VectorIndex)
try:
    db.past.search("new dog in the family?")
except KeyboardInterrupt:
    print("interrupted")
print(db.past.search("new dog in the family?")[0].text)
db.close()
"""


def test_a_search_that_was_interrupted_while_the_model_was_loaded_can_be_made_again(
    opened: Callable[[], SessionStore],
) -> None:
    db = filled(opened())
    db.close()
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(db.database.path)],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert (ended.stdout, ended.stderr) == (f"interrupted\n{TALK[0]}\n", "")
