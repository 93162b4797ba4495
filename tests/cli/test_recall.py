from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_core.config import set_value
from tests.outbox_of import sessions_of

FIELDS = {
    "source",
    "injected",
    "text",
    "session_id",
    "message_id",
    "ref",
    "speaker",
    "when",
    "score",
    "origin",
    "span",
}


def test_recall_shows_what_a_turn_would_be_given_by_source(
    hermes: Any, data: Any, hermes_home: HermesHome, notes: Path, chat: Path
) -> None:
    set_value(hermes_home, "memory.provider", "notes")
    hermes("import", chat)
    hermes("memory", "add", "Likes tea")
    report = data("recall", "What is my cat called?")
    assert report.keys() == {"query", "results", "tokens", "elapsed_ms", "problems", "unread"}
    assert all(result.keys() == FIELDS for result in report["results"])
    first = {result["source"]: result for result in reversed(report["results"])}
    assert first["memory"]["text"] == "Likes tea"
    assert first["provider"]["text"] == "noted: What is my cat called?"
    assert (first["sessions"]["text"], first["sessions"]["ref"]) == ("My cat is called Momo", "m1")
    assert (first["provider"]["injected"], first["sessions"]["injected"]) == (True, True)
    assert report["tokens"] > 0
    shown = hermes("recall", "What is my cat called?").stdout
    assert "past sessions" in shown
    assert "Ana (m1): My cat is called Momo" in shown


def test_a_message_of_megabytes_does_not_flood_the_screen(hermes: Any, data: Any, tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"session": "s", "role": "user", "content": "Momo " + "purrs " * 2000}))
    hermes("import", path)
    assert len(hermes("recall", "Momo").stdout) < 3000
    assert 500 < len(data("recall", "Momo")["results"][0]["text"]) <= 800


@pytest.mark.usefixtures("starts_slowly")
def test_recall_waits_for_a_provider_that_starts_slowly(data: Any, hermes_home: HermesHome) -> None:
    set_value(hermes_home, "memory.provider", "notes")
    report = data("recall", "What is my cat called?")
    assert report["problems"] == []
    assert "noted: What is my cat called?" in [result["text"] for result in report["results"]]


def test_past_sessions_are_given_unasked_when_config_says_so(
    hermes: Any, data: Any, hermes_home: HermesHome, chat: Path
) -> None:
    hermes("import", chat)
    set_value(hermes_home, "recall.sessions", "auto")
    assert data("recall", "What is my cat called?")["results"][0]["injected"]


@pytest.mark.sqlite_only("a damaged or missing file")
def test_a_damaged_store_is_named_with_its_cure_and_the_rest_answers(
    hermes: Any, hermes_home: HermesHome, notes: Path, chat: Path
) -> None:
    set_value(hermes_home, "memory.provider", "notes")
    hermes("import", chat)
    hermes("memory", "add", "Likes tea")
    hermes_home.state_db.write_bytes(b"garbage" * 1000)
    asked = "What is my cat called?"
    batch = json.dumps({"query": asked})
    for answer in (hermes("recall", asked, code=3), hermes("recall", "--batch", typed=batch, code=3)):
        assert "Likes tea" in answer.stdout
        assert f"noted: {asked}" in answer.stdout
        assert f"{str(hermes_home.state_db)!r} is damaged" in answer.stderr
        assert "`hermes-memory sessions repair`" in answer.stderr
    assert "is damaged" in hermes("memory", "add", "Likes rain", code=1).stderr


def test_k_bounds_the_results_of_a_source(hermes: Any, data: Any, chat: Path) -> None:
    hermes("import", chat)
    assert len(data("recall", "-k", "1", "cat")["results"]) == 1
    for wrong in ("0", "-1", "many", "1001"):
        hermes("recall", "-k", wrong, "cat", code=2)


def test_nothing_is_claimed_of_a_store_that_can_not_be_searched(hermes: Any, hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir(exist_ok=True)
    hermes_home.state_db.write_bytes(b"no database" * 1000)
    answer = hermes("recall", "cat", code=3)
    assert "not everything could be searched" in answer.stdout
    assert "Nothing is remembered" not in answer.stdout


def test_nothing_found_is_no_failure(hermes: Any, data: Any) -> None:
    assert "Nothing is remembered for this message." in hermes("recall", "cat").stdout
    assert data("recall", "cat")["results"] == []
    assert data("recall", "")["results"] == []


def test_search_that_is_switched_off_is_left_out(
    hermes: Any, data: Any, hermes_home: HermesHome, chat: Path
) -> None:
    hermes("import", chat)
    set_value(hermes_home, "sessions.search_enabled", False)
    assert data("recall", "cat")["results"] == []


def test_a_batch_answers_each_line_and_a_bad_one_with_its_error(hermes: Any, chat: Path) -> None:
    hermes("import", chat)
    asked = [
        '{"query": "cat"}',
        "no json",
        "",
        '"Lisbon"',
        '{"k": 3}',
        '{"query": "cat", "k": 0}',
        '{"query": "cat", "k": true}',
        "[" * 5_000,
        '{"query": "\\ud800 cat"}',
        '{"query": "cat", "k": 1}',
    ]
    result = hermes("recall", "--batch", typed="\n".join(asked), code=1)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer.get("query") for answer in answers] == [
        "cat", None, "Lisbon", None, None, None, None, "\ud800 cat", "cat"
    ]  # fmt: skip
    errors = [answer["error"] for answer in answers if "error" in answer]
    assert errors[0].startswith("line 2 is not JSON")
    assert errors[1].startswith("line 5 has no query")
    assert errors[2].startswith("line 6 asks for 0 results")
    assert errors[3].startswith("line 7 asks for True results")
    assert errors[4].startswith("line 8 is not JSON")
    assert len(answers[-1]["results"]) == 1
    assert hermes("recall", "--batch", typed='{"query": "cat"}\n').stdout.count("\n") == 1


def test_a_batch_answers_on_standard_output_also_with_json(hermes: Any, chat: Path) -> None:
    hermes("import", chat)
    result = hermes("recall", "--json", "--batch", typed='{"query": "cat"}\n')
    assert json.loads(result.stdout)["query"] == "cat"
    assert result.stderr == ""


def test_people_get_no_scores_and_no_json_of_tool_calls(hermes: Any, hermes_home: HermesHome) -> None:
    function = {"name": "terminal", "arguments": '{"command": "git push walnut", "dry": true}'}
    with contextlib.closing(sessions_of(hermes_home)) as db:
        db.create_session("s")
        db.append_message("s", "user", "Push the walnut branch")
        db.append_message("s", "assistant", "", tool_calls=[{"id": "1", "function": function}])
    shown = hermes("recall", "walnut push").stdout
    assert 'assistant: terminal(command="git push walnut", dry=true)\n' in shown
    assert "user: Push the walnut branch\n" in shown
    assert not re.search(r">>>|<<<|-?\d\.\d\d ", shown)


def test_bytes_that_are_no_text_cost_a_batch_one_line(hermes: Any) -> None:
    result = hermes("recall", "--batch", typed=b'\xff\xfe\n"cat"\n', code=1)
    assert [("error" in json.loads(line)) for line in result.stdout.splitlines()] == [True, False]


@pytest.mark.parametrize("words", [[], ["cat", "--batch"]])
def test_a_query_or_a_batch_is_needed_and_not_both(hermes: Any, words: list[str]) -> None:
    assert "give a QUERY or --batch, one of the two" in hermes("recall", *words, code=2).stderr


CHATTY = """
from hermes_core import MemoryProvider

print("imported")

class Notes(MemoryProvider):
    name = "notes"

    def initialize(self, session):
        print("initialized")

    def prefetch(self, query):
        print("asked")
        return "noted: " + query.text
"""


@pytest.mark.parametrize(
    ("words", "typed"),
    [(("recall", "cats", "--json"), None), (("recall", "--batch"), '"cats"\n')],
)
def test_what_a_provider_prints_is_not_in_the_json(
    hermes: Any, hermes_home: HermesHome, notes: Path, words: tuple[str, ...], typed: str | None
) -> None:
    (notes / "__init__.py").write_text(CHATTY)
    set_value(hermes_home, "memory.provider", "notes")
    result = hermes(*words, typed=typed)
    assert json.loads(result.stdout)["results"][0]["text"] == "noted: cats"
    assert result.stderr == "imported\ninitialized\nasked\n"


def test_recall_says_what_brought_each_result_and_what_the_gate_decided_on(
    hermes: Any, data: Any, chat: Path
) -> None:
    hermes("import", chat)
    hermes("memory", "add", "Likes tea")
    report = data("recall", "--why", "What is my cat called?")
    note, best, *_ = report["results"]
    assert note["why"]["text"] == "a note: no question decides on it"
    assert best["why"]["words"] == ["cat", "called"]
    assert best["why"]["rank"] == 1
    assert best["why"]["weight"] >= best["why"]["least"] > 0
    assert sum(best["why"]["parts"].values()) == pytest.approx(best["score"], abs=0.01)
    gate = report["gate"]
    assert (gate["open"], gate["message_id"]) == (True, best["message_id"])
    assert gate["evidence"] == pytest.approx(sum(gate["parts"].values()), abs=0.01)
    assert gate["given"] == sum(one["injected"] for one in report["results"] if one["source"] == "sessions")
    shown = hermes("recall", "--why", "What is my cat called?").stdout
    assert f"given; message {best['message_id']}: words cat, called" in shown
    assert f"message {best['message_id']} was judged: words" in shown
    line = json.loads(hermes("recall", "--why", "--batch", typed='"cat"').stdout)
    assert line["gate"]["text"]


def test_recall_says_why_a_message_is_not_there(hermes: Any, data: Any, chat: Path) -> None:
    hermes("import", chat)
    asked = "recall", "What is my cat called?"
    by_text = {one["text"]: one for one in data(*asked)["results"]}
    flight = data("recall", "Lisbon")["results"][0]["message_id"]
    cat = by_text["My cat is called Momo"]["message_id"]
    report = data(*asked, "--why-not", flight, "--why-not", cat, "--why-not", 999)
    away, there, unknown = report["absent"]
    assert (away["message_id"], away["given"], away["found"]) == (flight, False, False)
    assert away["search"] == away["turn"] == "it has no word of the question"
    assert (there["given"], there["turn"]) == (True, "the turn gets it")
    assert unknown["turn"] == unknown["search"] == "no message has this id"
    assert "in the turn: it has no word of the question" in hermes(*asked, "--why-not", flight).stdout
    closed = data("recall", "Write a poem about a cat on a boat in the rain", "--why-not", cat)
    assert not closed["gate"]["open"]
    assert "the evidence of the best message is -" in closed["gate"]["text"]
    assert closed["absent"][0]["turn"] == "the gate is closed"
    hermes(*asked, "--why-not", "cat", code=2)


def test_the_gate_says_that_the_settings_close_it(
    hermes: Any, data: Any, hermes_home: HermesHome, chat: Path
) -> None:
    hermes("import", chat)
    set_value(hermes_home, "recall.sessions", "on_request")
    report = data("recall", "cat", "--why", "--why-not", 1)
    assert report["gate"]["text"] == "recall.sessions is on_request"
    assert report["absent"][0]["turn"] == "recall.sessions is on_request"
    assert report["absent"][0]["search"] == "the search returns it"
    set_value(hermes_home, "sessions.search_enabled", False)
    assert data("recall", "cat", "--why")["gate"]["text"] == "sessions.search_enabled is false"
