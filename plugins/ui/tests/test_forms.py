"""A form field holds the text as it is stored: the form sends it back. A text that is only shown has escapes for the eye."""

from __future__ import annotations

import html
import re

import httpx
import pytest

from hermes_core import HermesHome
from plugins.ui.tests.conftest import Serve

# Marks of direction, which notes in Hebrew or Arabic hold; a C1 and a C0 control; and characters that HTML escapes.
HIDDEN = 'שלום\u200f (ok) \u200eabc\u200e \u202bx\u202c \u2067y\u2069 \x85 \x1b[31m \u061c &amp; "q" \'<b>'

TEXTAREA = re.compile(r'<textarea name="content" rows="4" required dir="auto">\n?(.*?)</textarea>', re.DOTALL)


def hidden_values(page: str, name: str) -> set[str]:
    """Return the values of the hidden fields of this name, as a browser reads them."""
    values = re.findall(rf'<input type="hidden" name="{name}" value="([^"]*)">', page)
    return {html.unescape(value) for value in values}


def post(client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    """Send a form as a browser does, and follow where it leads."""
    return client.post(path, data=fields, follow_redirects=True)


def test_a_note_that_is_edited_and_saved_keeps_its_hidden_characters(
    hermes_home: HermesHome, serve: Serve
) -> None:
    hermes_home.memories.mkdir(parents=True)
    hermes_home.memory_md.write_text(HIDDEN, encoding="utf-8", newline="")
    page = serve().client().get("/").text
    field = TEXTAREA.search(page)
    assert field is not None
    assert html.unescape(field[1]) == HIDDEN
    assert "שלום\\u200f (ok) \\u200eabc" in page  # and the note that is shown has escapes


def test_a_note_that_is_refused_is_offered_again_as_it_was_written(serve: Serve) -> None:
    served = serve()
    client = served.client()
    draft = "\nשלום\u200f " + "x" * 10_000
    answer = post(client, "/notes/add", target="memory", content=draft)
    page = answer.text
    # A browser drops the line end right after the tag.
    assert f">\n{draft}</textarea>" in page


@pytest.mark.parametrize("session_id", ["עברית\u200f-1", "chat\x85 <\"&'>"])
def test_a_session_whose_id_has_hidden_characters_is_renamed_and_deleted(
    serve: Serve, session_id: str
) -> None:
    served = serve()
    session = served.memory.start_session(session_id)
    served.memory.end_turn(session, "Hello", "Hello.", warm=False)
    client = served.client()
    page = client.get("/session", params={"id": session_id}).text
    assert hidden_values(page, "id") == {session_id}
    post(client, "/session/rename", id=session_id, title="שלום\u200f tea")
    title = served.memory.sessions.get_session(session_id).title  # type: ignore[union-attr]
    page = client.get("/session", params={"id": session_id}).text
    assert f'name="title" dir="auto" value="{html.escape(title)}"' in page
    page = client.get("/session/delete", params={"id": session_id}).text
    (named,) = hidden_values(page, "id")
    assert post(client, "/session/delete/confirmed", id=named).status_code == 200
    assert served.memory.sessions.get_session(session_id) is None


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_deletion_speaks_of_the_file_only_if_there_is_one(
    serve: Serve, request: pytest.FixtureRequest, engine: str
) -> None:
    names = {"url": "postgres_url", "schema": "postgres_schema"} if engine == "postgresql" else {}
    storage = {key: request.getfixturevalue(name) for key, name in names.items()}
    served = serve(config={"storage": storage} if storage else {})
    session = served.memory.start_session("s1")
    served.memory.end_turn(session, "Hello", "Hello.", warm=False)
    client = served.client()
    answer = post(client, "/session/delete/confirmed", id="s1")
    page = answer.text
    assert "1 session deleted" in page
    in_file = not served.memory.sessions.database.shared
    assert ("the file holds their text" in page) == in_file


def test_a_search_field_keeps_what_was_asked(serve: Serve) -> None:
    page = serve().client().get("/search", params={"q": "שלום\u200f"}).text
    assert 'name="q" value="שלום\u200f"' in page
