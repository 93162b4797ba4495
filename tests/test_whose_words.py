"""Readers of the public API in a memory that serves users: a call that names nobody gives nobody's words.

The readers are taken from the classes themselves, so that a new one is called here without being listed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes_core import AsyncMemory, Conversation, HermesHome, Memory, Notes, Session, open_memory
from hermes_core.aio import AsyncPastSessions, AsyncSessions
from hermes_core.errors import SessionError
from hermes_core.sessions.past_sessions import PastSessions
from hermes_core.sessions.session_meta import SessionMeta
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.turn_store import TurnStore
from tests.outbox_of import ON_POSTGRES
from tests.table import table

WORDS = {"ann": "ZEBRA", "bob": "WALRUS"}
QUESTION = "Where does the kumquat tree stand?"

WRITERS = {
    Memory: "begin_turn call_tool change_memory close conversation delete_session end_idle end_session end_turn flush rewind "
    "start_session",
    SessionStore: "append_message append_turn close create_session delete_if_unused delete_session end_session reopen_session "
    "rewind transaction vectors_later with_index",
    PastSessions: "",
    TurnStore: "compact",
    SessionMeta: "add_usage freeze_memory_prompt set set_default_title set_mark set_system_prompt set_title",
    Notes: "add confirm edit pin refuse remove replace reset restore set_profile settle start_turn tell_removals undo write",
}
"""Methods that store something or end something, by class. All others are readers."""


@dataclass
class House:
    """A memory in which two people from outside and the person at home have spoken."""

    open: Callable[[], Memory]
    memory: Memory

    def conversation(self, user: str, session_id: str = "") -> Conversation:
        return self.memory.conversation(session_id, platform="telegram", user_id=user)


@pytest.fixture(params=["sqlite", "postgresql"] if not ON_POSTGRES else ["postgresql"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    config: dict[str, Any] = {"recall": {"sessions": "auto"}}
    if request.param == "postgresql":
        url, schema = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")
        config["storage"] = {"url": url, "schema": schema}

    def open_it() -> Memory:
        return open_memory(tmp_path / "home", config=config)

    with open_it() as memory:
        house = House(open_it, memory)
        for user, word in WORDS.items():
            chat = house.conversation(user, f"chat-{user}")
            chat.turn(f"The kumquat tree of {word} stands in the yard.").finish(f"{word} has a kumquat tree.")
            memory.change_memory("add", "user", f"Grows kumquats, says {word}", session=chat.session)
            memory.sessions.meta.set_title(chat.id, f"Kumquats of {word}")
        home = memory.conversation("chat-home")
        home.turn("My own kumquat tree stands on the roof.", turn_id="turn-home").finish("On the ROOF.")
        yield house


def seen(value: Any) -> set[str]:
    """Return whose words stand in what a reader gave."""
    if inspect.isgenerator(value):
        value = list(value)
    if hasattr(value, "messages") and callable(value.messages):
        value = value.messages()
    text = repr(value)
    return {user for user, word in WORDS.items() if word in text}


def readers(cls: type) -> list[str]:
    functions = {name for name, value in inspect.getmembers(cls) if inspect.isfunction(value)}
    return sorted(name for name in functions if not name.startswith("_") and name not in WRITERS[cls].split())


def called(house: House, cls: type, name: str) -> Any:
    """Call a reader with the arguments that it needs, of the person at home, and no scope besides."""
    memory, home = house.memory, house.memory.conversation("chat-home")
    message = memory.sessions.get_messages("chat-home")[0]
    target = {
        Memory: memory,
        SessionStore: memory.sessions,
        PastSessions: memory.sessions.past,
        TurnStore: memory.sessions.turns,
        SessionMeta: memory.sessions.meta,
        Notes: memory.curated,
    }[cls]
    values = {
        "change": 1,
        "hits": memory.sessions.past.search("kumquat", user=""),
        "key": "x",
        "mark": "pinned",
        "message_id": message.id,
        "method": None,
        "owner": "",
        "prompt": "",
        "query": QUESTION,
        "ref": "x",
        "session": home.session,
        "session_id": home.id,
        "settings": memory.curated.settings,
        "target": "user",
        "text": "last week" if name == "read_moment" else QUESTION,
        "title": "Kumquats",
        "turn_id": "turn-home",
        "turns": 1,
        "user": "",
    }
    method = getattr(target, name)
    needed = {
        key: values[key]
        for key, parameter in inspect.signature(method).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
    return method(**needed)


def scoped_readers(cls: type) -> list[str]:
    return [name for name in readers(cls) if "everybody" in inspect.signature(getattr(cls, name)).parameters]


@table("cls", WRITERS)
def test_no_reader_gives_words_of_users_to_a_call_that_names_nobody(cls: type, house: House) -> None:
    refused = []
    for name in readers(cls):
        try:
            assert seen(called(house, cls, name)) == set(), name
        except SessionError as exc:
            refused += [name] if "everybody=True" in exc.remedy else []
    assert refused == scoped_readers(cls)


def unscoped(memory: Memory) -> dict[str, Callable[..., Any]]:
    """Return the readers that may give the words of several people, as calls that take a scope."""
    past, turns = memory.sessions.past, memory.sessions.turns
    return {
        "recall": lambda **scope: memory.recall(QUESTION, **scope),
        "search": lambda **scope: past.search(QUESTION, **scope),
        "list_sessions": lambda **scope: memory.sessions.list_sessions(**scope),
        "find_session": lambda **scope: [
            memory.sessions.find_session(f"Kumquats of {word}", **scope) for word in WORDS.values()
        ],
        "complete": lambda **scope: list(turns.complete(**scope)),
    }


def test_the_store_decides_so_that_a_restart_opens_nothing(house: House) -> None:
    assert sorted(unscoped(house.memory)) == sorted(name for cls in WRITERS for name in scoped_readers(cls))
    house.memory.close()
    with house.open() as memory:  # nobody from outside has begun a session in this one
        for name, read in unscoped(memory).items():
            with pytest.raises(SessionError, match="everybody=True"):
                pytest.fail(f"{name}: {read()}")


def test_everybody_has_to_be_asked_for_and_is_everybody(house: House) -> None:
    for name, read in unscoped(house.memory).items():
        assert seen(read(everybody=True)) == {"ann", "bob"}, name


@table("user", WORDS)
def test_a_scope_gives_the_words_of_one_person(user: str, house: House) -> None:
    chat = house.conversation(user, f"chat-{user}")
    scopes = {"recall": {"session": chat.session}, "complete": {"session_id": chat.id}}
    for name, read in unscoped(house.memory).items():
        assert seen(read(**scopes.get(name, {"user": chat.session.owner}))) == {user}, name
    assert seen(house.memory.sessions.past.search(QUESTION, session=chat.id)) == {user}


def test_no_sessions_are_no_scope(house: House) -> None:
    with pytest.raises(SessionError, match="everybody=True"):
        house.memory.sessions.past.search(QUESTION, session=[])


@table("user", WORDS)
def test_a_conversation_reads_what_its_person_said(user: str, house: House) -> None:
    chat = house.conversation(user)
    for found in (chat.search(QUESTION), chat.recall(QUESTION), chat.sessions()):
        assert seen(found) == {user}


def test_a_conversation_at_home_reads_what_was_said_at_home(house: House) -> None:
    chat = house.memory.conversation()
    for found in (chat.search(QUESTION), chat.recall(QUESTION), chat.sessions()):
        assert seen(found) == set()
    assert "roof" in repr(chat.search(QUESTION))
    assert [entry.session.id for entry in chat.sessions()] == ["chat-home"]


def test_a_home_that_only_its_person_uses_needs_no_scope(tmp_path: Path) -> None:
    with open_memory(tmp_path) as memory:
        memory.conversation("chat-home").turn("The kumquat tree stands on the roof.").finish("Good.")
        for name in ("recall", "search", "list_sessions", "complete"):
            assert "kumquat" in repr(unscoped(memory)[name]()), name


def test_the_awaitable_twins_keep_the_same_rule(house: House) -> None:
    async def test() -> None:
        memory = AsyncMemory(house.memory)
        sessions = memory.sessions
        readers: list[Callable[..., Any]] = [
            lambda **scope: memory.recall(QUESTION, **scope),
            lambda **scope: sessions.past.search(QUESTION, **scope),
            lambda **scope: sessions.list_sessions(**scope),
            lambda **scope: sessions.find_session("Kumquats of ZEBRA", **scope),
        ]
        twins = (AsyncMemory, AsyncSessions, AsyncPastSessions)
        public = [
            value for twin in twins for value in vars(twin).values() if inspect.iscoroutinefunction(value)
        ]
        assert len(readers) == sum("everybody" in inspect.signature(value).parameters for value in public)
        for read in readers:
            with pytest.raises(SessionError, match="everybody=True"):
                await read()
            assert "ann" in seen(await read(everybody=True))
        chat = await memory.conversation(platform="telegram", user_id="ann")
        for found in (await chat.search(QUESTION), await chat.recall(QUESTION), await chat.sessions()):
            assert seen(found) == {"ann"}

    asyncio.run(test())


@pytest.mark.parametrize("session_id", ["", " ", "\0"])
def test_a_session_without_a_usable_id_reads_its_users_words(
    hermes_home: HermesHome, session_id: str
) -> None:
    with open_memory(hermes_home, provider="") as memory:
        memory.conversation("s1").turn("my harbour is foggy").finish("ok")
        memory.conversation("s2", platform="telegram", user_id="7").turn("a harbour in Spain").finish("ok")
        home = memory.recall("harbour", session=Session(session_id))
        guest = memory.recall("harbour", session=Session(session_id, platform="telegram", user_id="7"))
    assert {hit.session_id for hit in home.results} == {"s1"}
    assert {hit.session_id for hit in guest.results} == {"s2"}
