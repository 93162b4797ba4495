"""An address shows something and changes nothing; a value that no link of ours holds gets an answer that says so."""

from __future__ import annotations

import html
import json
import re
import sqlite3
from contextlib import closing

import pytest

from hermes_core import HermesHome, MemoryProvider
from hermes_core.curated.document import entry_handle
from hermes_core.errors import BackendUnavailable
from hermes_core.memory import Memory
from hermes_memory_ui.answers import MAX_INTEGER
from hermes_memory_ui.views.facts import MAX_FACTS
from plugins.ui.tests.conftest import Serve, ServedPage


@pytest.fixture
def served(serve: Serve) -> ServedPage:
    return serve()


NUMBERS = ("9" * 5000, "0" * 5000, str(MAX_INTEGER + 1), "-1", "1.5", "1e3", "²", "x", "x" * 5000)


@pytest.mark.parametrize(
    "place", ["/turns?before=", "/timeline?before=", "/change?id=", "/outbox/drop?row=", "/recall?id="]
)
def test_a_number_that_can_not_be_read_is_refused(served: ServedPage, place: str) -> None:
    client = served.client()
    path, _, name = place.rstrip("=").partition("?")
    for number in NUMBERS:
        answer = client.get(path, params={name: number})
        assert answer.status_code == 400, number[:20]
        assert f"{name} is" in answer.text
        assert len(answer.text) < 5000


def test_the_first_message_of_a_session_is_a_number_too(served: ServedPage) -> None:
    memory, client = served.memory, served.client()
    memory.end_turn(memory.start_session("talk"), "Hello", "Hello.", warm=False)
    for number in NUMBERS:
        assert client.get("/session", params={"id": "talk", "first": number}).status_code == 400, number[:20]
    assert client.get("/session", params={"id": "talk", "first": str(MAX_INTEGER)}).status_code == 200


@pytest.mark.parametrize("path", ["/change", "/outbox/drop"])
def test_a_number_that_is_missing_is_refused(served: ServedPage, path: str) -> None:
    assert served.client().get(path).status_code == 400


def test_the_largest_number_is_one_that_names_nothing(served: ServedPage) -> None:
    client = served.client()
    assert client.get("/turns", params={"before": str(MAX_INTEGER)}).status_code == 200
    assert client.get("/timeline", params={"before": str(MAX_INTEGER)}).status_code == 200
    assert client.get("/change", params={"id": str(MAX_INTEGER)}).status_code == 404


def test_a_form_with_a_number_that_can_not_be_read_changes_nothing(served: ServedPage) -> None:
    form = {"id": "9" * 5000}
    assert served.client().post("/notes/undo", data=form).status_code == 400


def rows(home: HermesHome) -> list[str]:
    """Return all rows of all databases of a home as statements."""
    lines: list[str] = []
    for path in sorted(home.path.rglob("*.db")):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            lines += connection.iterdump()
    return lines


def test_looking_at_the_facts_changes_none_of_them(hermes_home: HermesHome, serve: Serve) -> None:
    served = serve(provider="holographic")
    memory, client = served.memory, served.client()
    for text in ("Nadia works with Omar in Lisbon", "Omar's favourite colour is blue"):
        answer = memory.call_tool(memory.local_session, "fact_store", {"action": "add", "content": text})
        assert "error" not in json.loads(answer)
    before = rows(hermes_home)
    assert any("Lisbon" in row for row in before)
    for entity in ("", "Omar", "Nadia", "nobody"):
        page = client.get("/facts", params={"entity": entity})
        assert page.status_code == 200
        assert ("Nadia works with Omar in Lisbon" in page.text) == (entity != "nobody")
    assert rows(hermes_home) == before


def test_the_recall_of_a_message_says_what_brought_each_result(serve: Serve) -> None:
    served = serve()
    memory, client = served.memory, served.client()
    chat = memory.start_session("chat")
    for said in (
        "My passport is in the blue drawer.",
        "Tea is <b>good</b>.",
        "My passport is in the safe now.",
    ):
        memory.end_turn(chat, said, "Noted.", warm=False)
    hits = memory.sessions.past.search("tea")
    page = client.get("/recall", params={"q": "Where is my passport?", "id": str(hits[0].message_id)}).text
    assert "the turn gets" in page
    assert f"Message {hits[0].message_id}" in page
    assert "changes message 1" in page
    assert "<b>good</b>" not in page
    assert client.get("/recall").status_code == 200
    assert "starts no provider" in serve(read_only=True).client().get("/recall", params={"q": "tea"}).text


def test_what_changed_is_marked_in_a_search_among_facts_and_beside_a_new_note(serve: Serve) -> None:
    served = serve(provider="holographic")
    memory, client = served.memory, served.client()
    facts = ("Mein Reisepass liegt in der Schublade.", "Mein Reisepass liegt jetzt im Safe.")
    for number, text in enumerate(facts):
        memory.end_turn(memory.start_session(f"s{number}"), text, "Gut.", at=1e9 + number, warm=False)
        memory.call_tool(memory.local_session, "fact_store", {"action": "add", "content": text})
    newest = max(hit.message_id for hit in memory.sessions.past.search("Reisepass", role="user"))
    found = client.get("/search", params={"q": "Wo liegt mein Reisepass?"}).text
    assert found.count(f"said before; message {newest} changes it") == 1
    assert client.get("/facts").text.count("superseded by") == 1
    form = {"target": "user"}
    client.post("/notes/add", data={**form, "content": "User lives in Graz"}, follow_redirects=True)
    answer = client.post(
        "/notes/add", data={**form, "content": "User lives in Vienna"}, follow_redirects=True
    )
    assert "It says otherwise than: User lives in Graz. Remove what no longer holds." in answer.text


def add_fact(memory: Memory, text: str) -> str:
    """Store a fact, and return its number."""
    answer = memory.call_tool(memory.local_session, "fact_store", {"action": "add", "content": text})
    return str(json.loads(answer)["fact_id"])


def test_an_edit_of_a_fact_that_is_refused_says_why_and_keeps_what_was_typed(serve: Serve) -> None:
    served = serve(provider="holographic")
    client = served.client()
    number = add_fact(served.memory, "Omar lives in Lisbon")
    add_fact(served.memory, "Nadia lives in Graz")
    form = {"id": number, "handle": entry_handle("Omar lives in Lisbon")}
    for text, reason in (("Nadia lives in Graz", "says that already"), ("x" * 5000, "over 4000")):
        page = client.post("/fact/edit", data=form | {"content": text}, follow_redirects=True).text
        assert reason in page
        assert f">\n{text}</textarea>" in page
    outdated = form | {"handle": entry_handle("Omar lives in Rome"), "content": "Omar lives in Porto"}
    answer = client.post("/fact/edit", data=outdated)
    assert answer.status_code == 422
    assert "was changed since it was shown" in answer.text
    assert client.post("/fact/delete/confirmed", data=outdated).status_code == 422
    assert "Omar lives in Lisbon" in client.get("/facts").text


def test_a_fact_that_a_note_says_is_changed_in_the_note(serve: Serve) -> None:
    served = serve(provider="holographic")
    served.memory.change_memory("add", "user", "Nadia is allergic to cashews.", by_person=True)
    assert served.memory.flush(30)
    page = served.client().get("/fact", params={"id": "1"}).text
    assert "A note says this too" in page
    assert "/fact/edit" not in page


class ReadOnlyFacts(MemoryProvider):
    """A provider whose facts can't be changed."""

    name = "archive"

    def get_tool_schemas(self) -> list[dict[str, object]]:
        action = {"type": "string", "enum": ["list", "search", "contradict"]}
        parameters = {"type": "object", "properties": {"action": action}}
        return [{"name": "fact_store", "description": "Facts.", "parameters": parameters}]

    def handle_tool_call(self) -> str:
        row = {"fact_id": 7, "content": "Omar lives in Lisbon", "trust_score": 0.5, "category": "general"}
        row |= {
            "retrieval_count": 0,
            "helpful_count": 1,
            "created_at": 1e9,
            "updated_at": 1e9,
            "confirmed_at": 1e9,
        }
        return json.dumps({"facts": [row]})


def test_a_provider_whose_facts_can_not_be_changed_gets_no_form(serve: Serve) -> None:
    page = serve(provider=ReadOnlyFacts()).client().get("/fact", params={"id": "7"}).text
    assert "Omar lives in Lisbon" in page
    assert "<textarea" not in page
    assert "/fact/delete" not in page


class FactsAway(ReadOnlyFacts):
    """A provider whose server is down."""

    def handle_tool_call(self) -> str:
        raise BackendUnavailable("nobody answers at http://127.0.0.1:9", "start the server")


@pytest.mark.parametrize("path", ["/fact?id=7", "/search?q=Omar", "/search?q=Omar&kind=facts", "/facts"])
def test_facts_that_can_not_be_read_are_not_called_gone(serve: Serve, path: str) -> None:
    page = serve(provider=FactsAway()).client().get(path).text
    assert page.count("nobody answers") == 1
    for nothing in ("it may be gone", "Nothing answers this", "No facts"):
        assert nothing not in page


def test_a_fact_behind_the_listed_ones_is_shown_from_a_search_and_from_an_entity(serve: Serve) -> None:
    served = serve(provider="holographic")
    client = served.client()
    for number in range(MAX_FACTS + 5):
        add_fact(served.memory, f"Ann owns the boat Petrel{number}")
    facts = [
        fact
        for query in ({"entity": "Ann"}, {})
        for fact in client.get("/facts", params=query).text.split("<tr>")
    ]
    links = {
        html.unescape(link) for text in facts for link in re.findall(r'href="[^"]*(/fact\?[^"]*)"', text)
    }
    links |= {
        html.unescape(link)
        for number in (0, 1, MAX_FACTS + 4)
        for link in re.findall(
            r'href="[^"]*(/fact\?[^"]*)"', client.get("/search", params={"q": f"Petrel{number}"}).text
        )
    }
    assert len(links) > MAX_FACTS
    assert {client.get(link).status_code for link in links} == {200}
