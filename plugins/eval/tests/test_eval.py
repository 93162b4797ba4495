"""The measurement on one's own sessions: questions from what was said, for three systems, and nothing sent or stored."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.config import Config, set_value
from hermes_memory_eval import measure as measuring
from hermes_memory_eval.baseline import PlainFts5
from hermes_memory_eval.measure import BASELINE, NOTHING, OURS, measure
from hermes_memory_eval.questions import Corpus, Said
from tests.outbox_of import sessions_of

PLACES = ("blue drawer", "garden shed", "cellar", "attic", "kitchen cupboard", "car", "office", "wardrobe")
THINGS = ("passport", "guitar", "raincoat", "telescope", "bicycle", "camera", "toolbox", "umbrella")
TASKS = (
    "Write a short poem about a window.",
    "Translate this sentence to Danish, please.",
    "Sort the list by its second column.",
    "Summarise the article in three lines.",
    "Generate a regular expression for postcodes.",
    "Draw a tiny castle with one window.",
    "Explain recursion to a child of seven.",
    "Convert these temperatures to Fahrenheit now.",
)


def talk(home: HermesHome, **identity: Any) -> None:
    """Store a session for each thing: a fact, a question with its answer, and a message that asks nothing."""
    with open_memory(home, provider="") as memory:
        for number, (thing, place) in enumerate(zip(THINGS, PLACES, strict=True)):
            session = memory.start_session(f"s{number}", **identity)
            for said, answer in (
                (f"My {thing} is in the {place} near the window.", "I will remember that."),
                (
                    f"How much does a used {thing} cost on average?",
                    f"About {number + 20} euros, for a {thing} in order.",
                ),
                (TASKS[number], "Done."),
            ):
                memory.end_turn(session, said, answer, warm=False)


@pytest.fixture
def used_home(hermes_home: HermesHome) -> HermesHome:
    talk(hermes_home)
    return hermes_home


def test_own_facts_are_measured_beside_plain_fts5_and_nothing(used_home: HermesHome) -> None:
    with closing(sessions_of(used_home)) as sessions:
        report = measure(sessions, Config(), wanted=10)
    assert (report.messages, report.sessions) == (48, 8)
    assert [system.system for system in report.systems] == [OURS, BASELINE, NOTHING]
    ours, plain, nothing = ({kind.kind: kind for kind in system.kinds} for system in report.systems)
    assert ours["own facts"].questions == plain["own facts"].questions == 8
    assert ours["own facts"].hit_at_10 == ours["own facts"].in_turn == 1.0
    assert plain["own facts"].hit_at_10 == 1.0
    assert ours["asked before"].questions == 8
    assert ours["asked before"].hit_at_5 == 1.0
    assert {kind.hit_at_10 + kind.in_turn for kind in nothing.values()} == {0.0}
    costs = {system.system: system for system in report.systems}
    assert 0 < costs[OURS].turn_tokens < costs[BASELINE].turn_tokens
    assert costs[NOTHING].turn_tokens == costs[NOTHING].result_tokens == 0
    assert report.idle_turns == 8
    assert costs[OURS].idle_share < costs[BASELINE].idle_share


def test_questions_leave_out_what_they_ask_for(used_home: HermesHome, tmp_path: Path) -> None:
    with closing(sessions_of(used_home)) as sessions:
        said = list(measuring.stored_messages(sessions))
    corpus = Corpus(10, 0)
    with closing(PlainFts5(tmp_path / "plain.db")) as baseline:
        baseline.add(corpus.read(said))
        questions = {question.text: question for question in corpus.questions(baseline)}
    text = {message.id: message.text for message in said}
    asked = questions["My passport?"]
    assert [text[message_id] for message_id in asked.evidence] == [
        "My passport is in the blue drawer near the window."
    ]
    again = questions["How much does a used guitar cost on average?"]
    assert {text[message_id] for message_id in again.evidence} == {"About 21 euros, for a guitar in order."}
    assert {text[message_id] for message_id in again.own} == {"How much does a used guitar cost on average?"}


def test_facts_in_a_script_without_spaces_become_questions(tmp_path: Path) -> None:
    corpus = Corpus(10, 0)
    with closing(PlainFts5(tmp_path / "plain.db")) as baseline:
        baseline.add(corpus.read([Said(1, "s", "user", "我的护照在蓝色的抽屉里。")]))
        (question,) = corpus.questions(baseline)
    assert (question.text, question.evidence) == ("我的护照在？", frozenset([1]))


def test_a_contraction_tells_no_more_than_its_word(tmp_path: Path) -> None:
    corpus = Corpus(10, 0)
    with closing(PlainFts5(tmp_path / "plain.db")) as baseline:
        baseline.add(corpus.read([Said(1, "s", "user", "We’ve a new kitten called Biscuit.")]))
        assert [question.text for question in corpus.questions(baseline)] == ["We’ve a new kitten?"]


def test_a_question_that_many_messages_answer_is_not_asked(tmp_path: Path) -> None:
    corpus = Corpus(10, 0)
    said = [Said(n, "s", "user", f"My passport has the number {n} on page forty.") for n in range(60)]
    with closing(PlainFts5(tmp_path / "plain.db")) as baseline:
        baseline.add(corpus.read(said))
        assert corpus.questions(baseline) == []


def test_the_command_prints_tables_limits_and_draws(
    hermes: Any, used_home: HermesHome, tmp_path: Path
) -> None:
    drawing = tmp_path / "recall.svg"
    shown = hermes("eval", "--questions", 8, "--plot", drawing).stdout
    assert "own facts (8)" in shown
    assert "plain FTS5" in shown
    assert "tokens of a turn that asks" in shown
    assert "What this can't tell" in shown
    assert "A person asks in other words" in " ".join(shown.split())
    picture = ElementTree.parse(drawing).getroot()
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert "own facts: in the turn" in texts
    assert "100.0%" in texts
    assert "exists; name another file" in hermes("eval", "--plot", drawing, code=1).stderr
    hermes("eval", "--questions", 1, "--plot", drawing, "--force")


def test_the_same_seed_asks_the_same_questions(used_home: HermesHome, data: Any) -> None:
    first, second = (data("eval", "--questions", 4, "--seed", 3) for _ in range(2))
    kinds = [[system["kinds"] for system in report["systems"]] for report in (first, second)]
    assert kinds[0] == kinds[1]
    assert first["limits"]


@pytest.mark.sqlite_only("a connection to the server is one")
def test_nothing_is_sent_and_nothing_is_stored(
    used_home: HermesHome, data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(socket.socket):
        def connect(self, address: Any) -> None:
            raise AssertionError(f"connected to {address}")

    set_value(used_home, "recall.embeddings", "http")
    set_value(used_home, "recall.embeddings_url", "http://127.0.0.1:9/v1")
    set_value(used_home, "recall.embeddings_model", "words")
    set_value(used_home, "memory.provider", "mem0")
    before = _rows(used_home)
    monkeypatch.setattr(socket, "socket", Refusing)
    report = data("eval", "--questions", 4)
    assert report["questions"] > 0
    assert not report["by_meaning"]
    assert _rows(used_home) == before


def _rows(home: HermesHome) -> list[str]:
    with closing(sqlite3.connect(f"file:{home.state_db}?mode=ro", uri=True)) as connection:
        tables = ("sessions", "messages", "state_meta", "outbox", "turns")
        known = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        return [
            str(row)
            for table in tables
            if table in known
            for row in connection.execute(f"SELECT * FROM {table}")  # noqa: S608
        ]


def test_other_users_and_programs_are_left_out(used_home: HermesHome) -> None:
    talk_of_others = {"platform": "telegram", "user_id": "1"}
    with open_memory(used_home, provider="") as memory:
        for name, identity in (("theirs", talk_of_others), ("job", {"platform": "cron"})):
            session = memory.start_session(name, **identity)
            memory.end_turn(session, "My secret is under the third stone.", "Noted.", warm=False)
    with closing(sessions_of(used_home)) as sessions:
        assert measure(sessions, Config(), wanted=1).messages == 48


def test_a_measurement_ends_when_its_time_is_over(used_home: HermesHome) -> None:
    with closing(sessions_of(used_home)) as sessions:
        report = measure(sessions, Config(), wanted=10, seconds=0.0)
    assert report.questions + report.idle_turns == 1
    assert report.left_over > 10


def test_a_home_without_sessions_says_what_to_do(hermes: Any) -> None:
    assert "import some: hermes-memory import FILE" in hermes("eval", code=1).stderr


def test_a_home_with_a_word_or_two_says_what_to_do(hermes: Any, hermes_home: HermesHome) -> None:
    with open_memory(hermes_home, provider="") as memory:
        memory.end_turn(memory.start_session("s"), "Hi", "Hello.", warm=False)
    assert "no question can be made from 2 messages" in hermes("eval", code=1).stderr


def test_turns_are_off_where_the_settings_say_so(used_home: HermesHome, data: Any) -> None:
    set_value(used_home, "recall.sessions", "on_request")
    ours = data("eval", "--questions", 4)["systems"][0]
    assert {kind["in_turn"] for kind in ours["kinds"]} == {0.0}
    assert ours["turn_tokens"] == 0
    assert max(kind["hit_at_10"] for kind in ours["kinds"]) == 1.0


def test_it_says_by_meaning_only_if_a_search_was(used_home: HermesHome) -> None:
    class Near:
        def nearest(self, ids: Any) -> float | None:
            return 0.5

    with closing(sessions_of(used_home)) as sessions:
        report = measure(sessions, Config(), wanted=1)
        assert not report.by_meaning
        search = sessions.past.search

        def with_meaning(*words: Any, traces: Any = None, **options: Any) -> Any:
            hits = search(*words, traces=traces, **options)
            for trace in traces or ():
                trace.likeness = Near()
            return hits

        sessions.past.search = with_meaning  # type: ignore[method-assign]
        assert measure(sessions, Config(), wanted=1).by_meaning
