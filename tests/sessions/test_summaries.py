from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from hermes_core.contract.values import Session
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.summaries import SHARE_BEFORE, summarise_all, window_of
from hermes_core.sessions.tool import SESSION_SEARCH_SCHEMA, SessionSearchTool

FILL = "lorem ipsum dolor sit amet " * 20_000


@pytest.mark.parametrize(
    "said", ["the WALNUT  table\nwants oil", "the table of walnut wants much oil", "a table, oil; 核桃木"]
)
def test_the_window_lies_where_the_question_is_answered(said: str) -> None:
    query = "the walnut table wants oil?" if "核" not in said else "核桃木"
    text = f"{FILL} walnut {FILL}{said}{FILL} table {FILL}"
    window = window_of(text, query, 10_000)
    assert len(window) == 10_000 + 2 * len("...")
    assert abs(window.index(said) - 10_000 * SHARE_BEFORE) < 100


def test_a_short_text_is_given_whole_and_one_without_the_words_from_its_beginning() -> None:
    assert window_of("short", "absent") == "short"
    assert window_of("begin" + FILL, "absent", 1_000).startswith("begin")
    assert len(window_of("x" * 5_000, "", 1_000)) == 1_003


def test_of_several_places_the_window_takes_the_one_with_most_around_it() -> None:
    text = f"walnut {FILL} walnut walnut walnut {FILL}"
    assert window_of(text, "walnut", 1_000).count("walnut") == 3


def test_no_more_run_at_once_than_allowed_and_the_order_stays() -> None:
    running, most, lock = 0, 0, threading.Lock()
    several = threading.Event()  # each summary lasts until two run at once

    def summarise(text: str, _query: str) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running > 1:
                several.set()
        several.wait(30)
        with lock:
            running -= 1
        return text.upper()

    assert summarise_all(list("abcdefgh"), "q", summarise, at_once=99) == list("ABCDEFGH")
    assert 1 < most <= 5


def test_one_that_fails_or_hangs_costs_its_own_summary_only() -> None:
    release = threading.Event()

    def summarise(text: str, _query: str) -> Any:
        if text == "hangs":
            release.wait(30)
        if text == "fails":
            raise RuntimeError("no model")
        return None if text == "empty" else "sum"

    began = time.monotonic()
    assert summarise_all(["hangs", "fails", "empty", "good"], "q", summarise, seconds=2.0) == [
        "",
        "",
        "",
        "sum",
    ]
    assert time.monotonic() - began < 20
    release.set()


def answer(db: SessionStore, summarise: Any, **given: Any) -> dict[str, Any]:
    tool = SessionSearchTool(db, summarise=summarise)
    found: dict[str, Any] = json.loads(tool.call(given, Session("now")))
    return found


def test_a_summary_stands_for_the_messages_and_without_one_they_are_shown(db: SessionStore) -> None:
    for topic in ("oak", "elm"):
        db.create_session(topic)
        db.append_message(topic, "user", f"the {topic} table wants oil")

    def summarise(text: str, query: str) -> str:
        if "elm" in text:
            raise RuntimeError("no model")
        return f"{query}: {text}\x1b[31m"

    found = answer(db, summarise, query="table oil", summary=True)
    by_id = {result["session_id"]: result for result in found["results"]}
    assert by_id["oak"]["summary"] == "table oil: user: the oak table wants oil"
    assert "messages" not in by_id["oak"]
    assert "summary" not in by_id["elm"]
    assert by_id["elm"]["messages"][0]["content"] == "the elm table wants oil"


def test_nothing_is_summed_up_unless_it_is_asked_for_and_there_is_a_model(db: SessionStore) -> None:
    db.create_session("oak")
    db.append_message("oak", "user", "the oak table wants oil")
    asked: list[str] = []
    for summarise, given in ((None, {"summary": True}), (lambda text, _: asked.append(text), {})):
        (result,) = answer(db, summarise, query="oak", **given)["results"]
        assert "summary" not in result
    assert asked == []
    assert SessionSearchTool(db).schema == SESSION_SEARCH_SCHEMA
    offered = SessionSearchTool(db, summarise=lambda text, _: text).schema["parameters"]["properties"]
    assert offered.keys() - SESSION_SEARCH_SCHEMA["parameters"]["properties"].keys() == {"summary"}
