"""Two gateways and a thousand people: whatever a person is shown, on either gateway, is that person's own.

On SQLite both gateways are processes on one home; on PostgreSQL they are two homes with one server.
"""

from __future__ import annotations

import json
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hermes_core import Memory, open_memory
from hermes_core.contract.values import Session
from hermes_core.sessions.tool import SessionSearchTool
from hermes_memory_agent.sessions import set_default_title
from hermes_memory_archive.home_export import export_home
from hermes_memory_ui.server import PAGES, PageRequest
from hermes_memory_ui.site import Site
from tests.postgres_server import drop_schema

PEOPLE = 1000

# Persons of whom everything is looked at, some of them neighbours.
SAMPLE = (0, 1, 7, 499, 500, 998, 999)

QUESTION = "What is my secret word?"


class Gateways(NamedTuple):
    """The memories of both gateways."""

    first: Memory
    second: Memory


def owner(number: int) -> str:
    return f"telegram:{number}"


def secret(number: int) -> str:
    return f"zebra{number:04}x"


def session_of(number: int, session_id: str = "now") -> Session:
    return Session(id=session_id, platform="telegram", user_id=str(number))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def gateways(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    """Open both gateways, after each person has spoken on one of them."""
    folder, config = tmp_path_factory.mktemp("gateways"), {"recall": {"sessions": "auto"}}
    homes = [folder / "home", folder / "home"]
    if request.param == "postgresql":
        config["storage"] = {
            "url": request.getfixturevalue("postgres_url"),
            "schema": f"gateways_{uuid.uuid4().hex}",
        }
        homes = [folder / "one", folder / "two"]
    with open_memory(homes[0], config=config) as first, open_memory(homes[1], config=config) as second:
        opened = Gateways(first, second)
        for at, memory in enumerate(opened):
            with memory.sessions.transaction():
                for number in range(at, PEOPLE, 2):
                    speak(memory, number)
        yield opened
    if request.param == "postgresql":
        drop_schema(**config["storage"])


def speak(memory: Memory, number: int) -> None:
    """Store a private chat of a person, and what that person says in a group."""
    db = memory.sessions
    for name, said in (("chat", f"My secret word is {secret(number)}."), ("group", "Hello to the group.")):
        session_id = f"{name}-{number}"
        db.create_session(session_id, "telegram", user=owner(number), identity=session_of(number).to_dict())
        messages = [{"role": "user", "content": said}, {"role": "assistant", "content": "Noted."}]
        db.append_turn(session_id, messages, f"t-{session_id}", 1)


def words_of_others(text: str, number: int) -> set[str]:
    """The secret words in a text that are another person's."""
    return {secret(other) for other in range(PEOPLE) if other != number and secret(other) in text}


both = pytest.mark.parametrize("at", [0, 1], ids=["first gateway", "second gateway"])


@both
def test_recall_and_history_are_the_persons_own(gateways: Gateways, at: int) -> None:
    memory = gateways[at]
    for number in SAMPLE:
        turn = memory.conversation(f"new-{at}-{number}", platform="telegram", user_id=str(number)).turn(
            QUESTION
        )
        request = json.dumps(turn.messages)
        turn.cancel()
        assert secret(number) in request
        assert words_of_others(request, number) == set()


@both
def test_the_search_tool_finds_and_reads_the_persons_own_only(gateways: Gateways, at: int) -> None:
    tool = SessionSearchTool(gateways[at].sessions)
    for number in SAMPLE:
        answers = [
            tool.call(arguments, session_of(number))
            for arguments in (
                {"query": QUESTION},
                {"query": "zebra*", "limit": 10},
                {"query": secret(number)},
                {"query": secret(number), "sort": "newest"},
                {},
                {"session_id": f"chat-{number}"},
            )
        ]
        assert words_of_others("".join(answers), number) == set()
        assert all(secret(number) in answer for answer in answers[:4] + answers[5:])


@both
def test_nothing_of_another_person_is_reached_by_its_name(gateways: Gateways, at: int) -> None:
    memory, tool = gateways[at], SessionSearchTool(gateways[at].sessions)
    for number in SAMPLE:
        other = (number + 1) % PEOPLE
        (first, *_) = memory.sessions.get_messages(f"chat-{other}")
        for arguments in (
            {"query": secret(other)},
            {"session_id": f"chat-{other}"},
            {"session_id": f"chat-{other}", "around_message_id": first.id},
            {"session_id": f"chat-{number}", "around_message_id": first.id},
        ):
            answer = tool.call(arguments, session_of(number))
            assert secret(other) not in answer.replace(f'"query": "{secret(other)}"', "")
        handle = memory.conversation(f"chat-{other}", platform="telegram", user_id=str(number))
        assert handle.id != f"chat-{other}"
        assert handle.history() == []
        assert memory.sessions.find_session(f"chat-{other}", user=owner(number)) is None


@both
def test_titles_lists_and_relatives_are_the_persons_own(gateways: Gateways, at: int) -> None:
    memory = gateways[at]
    for number in SAMPLE:
        set_default_title(memory, f"chat-{number}", "My holidays")
        assert memory.sessions.get_session(f"chat-{number}").title == "My holidays"  # type: ignore[union-attr]
        own = {f"chat-{number}", f"group-{number}"}
        assert {entry.session.id for entry in memory.sessions.list_sessions(user=owner(number))} == own
        titled = memory.sessions.find_session("My holidays", title_only=True, user=owner(number))
        assert titled is not None
        assert titled.id == f"chat-{number}"
        child = memory.conversation(
            f"task-{at}-{number}",
            platform="telegram",
            user_id=str(number),
            parent_id=f"chat-{(number + 1) % PEOPLE}",
            agent_context="subagent",
        )
        child.turn("Count to three").finish("3")
        assert memory.sessions.lineage(child.id) == {child.id}
        child.delete()


@both
def test_what_a_person_said_alone_comes_into_no_group_unasked(gateways: Gateways, at: int) -> None:
    memory = gateways[at]
    for number in SAMPLE:
        identity: dict[str, Any] = {"platform": "telegram", "user_id": str(number), "chat_id": "-100"}
        group = memory.conversation(f"in-group-{at}-{number}", chat_type="group", **identity)
        turn = group.turn(QUESTION)
        assert words_of_others(json.dumps(turn.messages), -1) == set()
        turn.cancel()


@both
def test_states_of_hosts_are_the_persons_own(gateways: Gateways, at: int) -> None:
    here, there = gateways[at], gateways[1 - at]
    for number in SAMPLE:
        chat = here.conversation(f"chat-{number}", platform="telegram", user_id=str(number))
        chat.user_state["word"] = secret(number)
        chat.state["word"] = secret(number)
    for number in SAMPLE:
        chat = there.conversation(f"chat-{number}", platform="telegram", user_id=str(number))
        assert (dict(chat.state), dict(chat.user_state)) == ({"word": secret(number)},) * 2
    nobody = there.conversation("chat-0", platform="telegram", user_id="4711")
    assert (dict(nobody.state), dict(nobody.user_state)) == ({}, {})


@both
def test_an_export_of_a_person_holds_nobody_elses_words(gateways: Gateways, at: int, tmp_path: Path) -> None:
    for number in SAMPLE[:3]:
        export_home(gateways[at], tmp_path / f"{number}.zip", [owner(number)])
        with zipfile.ZipFile(tmp_path / f"{number}.zip") as archive:
            text = "".join(archive.read(name).decode("utf-8", "replace") for name in archive.namelist())
        assert secret(number) in text
        assert words_of_others(text, number) == set()


@both
def test_the_page_of_a_person_shows_nobody_elses_words(gateways: Gateways, at: int) -> None:
    number, other = SAMPLE[at], SAMPLE[at] + 1
    site = Site(gateways[at], user=owner(number), read_only=True)
    shown = ""
    for path, view in PAGES.items():
        for query in (
            {},
            {"q": "secret word"},
            {"q": "zebra*"},
            {"id": f"chat-{other}"},
            {"id": f"t-chat-{other}"},
        ):
            response = site.answer(path, view, PageRequest(dict(query)))
            shown += bytes(response.body).decode()
    assert secret(number) in shown
    assert words_of_others(shown, number) == set()
