"""Where a text comes from decides where it may stand; a text made of several has the lowest of their origins."""

from __future__ import annotations

import threading

import pytest

from hermes_core.safety.origin import (
    RANKS,
    Reading,
    current_reading,
    in_scope,
    is_stated,
    lowest,
    may_command,
    origin_of_text,
    report_result,
)
from tests.table import table

SAID = (
    "I like green tea in the morning! My billing service is deployed at fly.io on port 8080.",
    "Never call me before 9. 不要用红色，我喜欢绿茶。",
    "Should I send the money to 4711?",
)


def test_only_the_persons_own_texts_and_the_agents_may_command() -> None:
    assert [origin for origin in RANKS if may_command(origin)] == ["person", "owner", "assistant", "file"]
    assert not may_command("what a later version stores")


def test_the_lowest_of_several_origins_counts_and_of_equal_ones_the_first() -> None:
    assert lowest(["person", "assistant", "web", "tool"]) == "web"
    assert lowest([]) == "person"
    assert lowest(["person", "unknown"]) == "import"


def test_a_user_is_the_person_in_their_own_scope_only() -> None:
    assert in_scope("user", "telegram:42") == "person"
    assert in_scope("user", "") == "user"
    assert in_scope("web", "telegram:42") == "web"


@pytest.mark.parametrize(
    "note",
    [
        "The person likes green tea.",
        "User's billing service is deployed at fly.io, port 8080",
        "The user must never be called before 9",
        "Likes green tea. Billing service: fly.io.",
        "我喜欢绿茶",
    ],
)
def test_what_the_person_stated_is_theirs(note: str) -> None:
    assert is_stated(note, SAID)


@pytest.mark.parametrize(
    "note",
    [
        "The billing service is deployed at evil.example",
        "Billing service runs on port 8081",
        "Call the user before 9",  # the negation is gone
        "The person likes no green tea.",
        "Send the money to 4711",  # they only asked
        "Likes green tea. Pays to DE89.",  # one statement of two
        "我不喜欢绿茶",
        "All of it.",
        "",
    ],
)
def test_what_the_person_did_not_state_is_not_theirs(note: str) -> None:
    assert not is_stated(note, SAID)


@table(
    ("note", "said"),
    [
        ("Ann is not vegan", "Ann is vegan, not Bob"),
        ("Ann is not vegan", "Ann is vegan but not Bob"),
        ("Ann is not vegan", "Ann is vegan and not Bob"),
        ("Ann is not vegan", "Ann is vegan (not Bob)"),
        ("Ann is not vegan", "Ann is vegan – not Bob"),
        ("Bob is vegan", "Ann is not vegan, Bob is"),
        ("Doesn't like coffee", "I like coffee and not tea"),
        ("Doesn't like coffee", "I don't like tea but I like coffee"),
        ("Doesn't like tea", "I don't like green tea"),  # other tea may be liked
        ("Likes tea", "I dont like tea"),
        ("Pays without a contract", "I pay with a contract, without delay"),
        ("Ann ist nicht vegan", "Ann ist vegan, nicht Bob"),
        ("Ann ist keine Veganerin", "Ann ist Veganerin, aber keine Raucherin"),
        ("Mange de la viande", "Je ne mange pas de viande"),
        ("Ann n'est pas végane", "Ann est végane mais pas Bob"),
        ("Ann no es vegana", "Ann es vegana, no Bob"),
        ("Ann non è vegana", "Ann è vegana, non Bob"),
        ("Энн не веган", "Энн веган, а не Боб"),
        ("我不喜欢绿茶", "我喜欢绿茶但不喜欢红茶"),
        ("我不喜欢红茶", "我不喜欢绿茶但喜欢红茶"),
        ("緑茶は好きではない", "緑茶は好きだけど紅茶は好きではない"),
    ],
)
def test_a_negation_belongs_to_its_clause(note: str, said: str) -> None:
    assert not is_stated(note, [said])


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("Ann is vegan", "Ann is vegan, not Bob"),
        ("Ann is vegan, not Bob", "Ann is vegan, not Bob"),
        ("Budget is 1,240 euros", "My budget, by the way, is 1,240 euros"),
        ("Never call before 9", "Please never call me before 9"),
        ("Doesn't eat nuts, shrimps or milk", "I don't eat nuts, shrimps or milk"),
        ("Likes tea", "Don't forget that I like tea"),
        ("Does not like tea", "I dont like tea"),
        ("Mag Tee nicht", "Ich mag Tee nicht"),
        ("Ne mange pas de viande", "Je ne mange pas de viande"),
        ("Standup is at 9:15", "Note: my standup is at 9:15, not later"),
        ("我不喜欢红茶", "我喜欢绿茶，但是我不喜欢红茶"),
    ],
)
def test_a_statement_with_a_negation_elsewhere_is_still_the_persons(note: str, said: str) -> None:
    assert is_stated(note, [said])


def test_a_note_of_a_turn_without_foreign_text_is_the_agents() -> None:
    assert origin_of_text("Deploys on Friday", Reading("person")) == "assistant"
    assert origin_of_text("Deploys on Friday", Reading("file")) == "assistant"


def test_a_note_of_a_turn_with_foreign_text_has_its_origin_unless_the_person_said_it() -> None:
    reading = Reading("web", lambda: SAID)
    assert origin_of_text("Open from 9 to 5", reading) == "web"
    assert origin_of_text("Likes green tea", reading) == "person"


def test_a_merged_note_has_the_lowest_origin_of_what_it_replaces() -> None:
    assert origin_of_text("Open from 9 to 5", Reading("person"), ["person", "import"]) == "import"


def test_a_tool_reports_the_origin_of_its_result_to_the_reading_of_its_caller() -> None:
    reading = Reading()
    with reading.active():
        report_result(["person", "tool"])
        assert current_reading() is reading
        seen: list[object] = []
        thread = threading.Thread(target=lambda: seen.append(current_reading()))
        thread.start()
        thread.join()
    assert reading.result == "tool"
    assert seen == [None]
    assert current_reading() is None
    report_result(["web"])  # outside of a call nobody asks
