"""The provider on a real Honcho: PostgreSQL, API and deriver, on loopback.

    HONCHO_SOURCE=folder pytest -m real plugins/honcho/tests/real -s

`HONCHO_SOURCE` names a folder with the public source of Honcho's server, which is in no package registry. The packages
that it needs are installed into a folder of their own. `HONCHO_BASE_URL` names a server that runs already, for the
test of the calls alone.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hermes_honcho import HonchoProvider
from hermes_honcho.client import Client, Line

from hermes_core import HermesHome, MemoryWrite, Session, SessionSwitch, Turn, open_memory
from hermes_core.contract.values import MemoryRecord
from hermes_core.kit import BackendNotFound, poll
from plugins.honcho.tests.conftest import Agent
from plugins.honcho.tests.real import server as real
from tests.forgetting_cells import ROWS, exported, hold
from tests.fresh import fresh_faults

URL = os.environ.get("HONCHO_BASE_URL", "")
SOURCE = os.environ.get("HONCHO_SOURCE", "")
CONCLUDED_S = real.GATE_S + 120.0
QUESTION = "What is my tortoise called?"
TORTOISE = "My tortoise is called Quillfeather."
BANK = "My bank is called Nordbank."
SPECIAL = ("<|endoftext|>", "<|fim_prefix|>")

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not (URL or SOURCE), reason="HONCHO_SOURCE names no folder: Honcho's server is in no package registry"
    ),
]

Start = Callable[..., Agent]


@dataclass
class Machine:
    """The server, and the model behind it; without a model if somebody else runs the server."""

    url: str
    model: real.Model | None


@pytest.fixture(scope="module")
def anywhere() -> Iterator[Machine]:
    """A server: the one that is named, or one that is made from the source."""
    if URL:
        yield Machine(URL, None)
        return
    folder = Path(tempfile.mkdtemp(prefix="hermes-honcho-"))
    folder.chmod(0o755)
    try:
        python = real.install(folder, Path(SOURCE))
        with real.Model() as model:
            postgres = real.Postgres(python.parent, folder)
            honcho = real.Honcho(python, Path(SOURCE), postgres, model, folder)
            try:
                honcho.start()
                # The first call of the dialectic loads its packages, which takes longer than a turn waits.
                client = Client(honcho.url, None, "warm", 300.0, 10.0)
                client.ensure("warm", {"user": (True, False)})
                client.ask("user", "user", "Hello?", "low", timeout=300.0)
                client.close()
                yield Machine(honcho.url, model)
            finally:
                honcho.stop()
                postgres.stop()
    except real.Missing as exc:
        pytest.skip(str(exc))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def machine(anywhere: Machine) -> Iterator[Machine]:
    """A server whose model does what the test says."""
    if anywhere.model is None:
        pytest.skip("HONCHO_BASE_URL names a server whose model is not ours: HONCHO_SOURCE makes one")
    yield anywhere
    anywhere.model.answer = lambda question: "NONE"
    anywhere.model.embeds = True


@pytest.fixture
def model(machine: Machine) -> real.Model:
    assert machine.model is not None
    return machine.model


@pytest.fixture
def place(machine: Machine, hermes_home: HermesHome) -> HermesHome:
    """A home with a workspace of its own."""
    hermes_home.path.mkdir()
    settings = {"baseUrl": machine.url, "workspace": f"w{uuid.uuid4().hex}", "firstTurnDialecticWait": 0}
    hermes_home.provider_json("honcho").write_text(json.dumps(settings))
    return hermes_home


@pytest.fixture
def start(place: HermesHome) -> Iterator[Start]:
    """Start a provider with these settings in its file; any number of times."""
    started: list[HonchoProvider] = []

    def begin(session: str = "s1", **settings: Any) -> Agent:
        path = place.provider_json("honcho")
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
        provider = HonchoProvider()
        started.append(provider)
        chosen = Session(session, home=str(place.path))
        provider.initialize(chosen)
        return Agent(provider, place.path, chosen)

    yield begin
    for provider in started:
        provider.shutdown()


def messages(agent: Agent, session: str = "s1") -> list[str]:
    """What Honcho holds of a session, in order."""
    return [message.content for message in agent.provider.client._session(session).messages(size=100)]


def conclusions(agent: Agent) -> list[str]:
    """What the agent concluded about the person."""
    return [one.text for one in agent.provider.client.conclusions("hermes_agent", "user", limit=100)]


def observation(agent: Agent, *peers: str) -> list[tuple[bool | None, bool | None]]:
    """(observe me, observe others) of these peers in session s1."""
    session = agent.provider.client._session("s1")
    found = [session.get_peer_configuration(peer) for peer in peers]
    return [(one.observe_me, one.observe_others) for one in found]


# ---------------------------------------------------------------------------- empty


@pytest.mark.parametrize("user_id", ["", "ann"])
def test_an_empty_server_is_healthy(place: HermesHome, user_id: str) -> None:
    tools = {
        "honcho_profile": {},
        "honcho_search": {"query": "tortoise"},
        "honcho_context": {},
        "honcho_reasoning": {"query": QUESTION},
        "honcho_conclude": {"list": True},
    }
    assert fresh_faults(place, "honcho", tools, user_id=user_id) == []


def test_both_sides_of_a_turn_have_their_own_time(start: Start) -> None:
    agent, asked = start(), 1_772_356_800.0
    turn = Turn("t1", 1, TORTOISE, "Noted.", at=asked + 60, user_at=asked)
    agent.provider.sync_turn(turn, agent.session)
    stored = agent.provider.client._session("s1").messages(size=100)
    assert [message.created_at.timestamp() for message in stored] == [asked, asked + 60]


# ---------------------------------------------------------------------------- calls


def test_a_real_server_takes_every_call(anywhere: Machine) -> None:
    client = Client(anywhere.url, os.environ.get("HONCHO_API_KEY"), "hermes-test", 60.0, 10.0)
    session, user, turn = f"real-{uuid.uuid4().hex}", f"user-{uuid.uuid4().hex}", uuid.uuid4().hex
    both = {user: (True, False), "hermes": (True, True)}
    for _ in range(2):
        client.ensure(session, both, again=True)
        client.configure(session, both)
    lines = [Line(user, TORTOISE, turn, "user"), Line("hermes", "Noted.", turn, "assistant")]
    for _ in range(2):
        client.store(session, lines, 25_000)
    known = client.context(session, "hermes", user, QUESTION, near=0.8, most=10, tokens=500)
    assert [one.text for one in known.recent] == [line.text for line in lines]
    assert lines[0].text in [one.text for one in client.search("tortoise", 5, seen_by=user)]
    assert (
        client.set_card("hermes", user, ["Has a tortoise"])
        == client.card("hermes", user)
        == ["Has a tortoise"]
    )
    assert client.set_card("hermes", user, []) == []
    (made,) = client.conclude("hermes", user, ["Quillfeather eats dandelions."])
    assert client.conclude("hermes", user, [made.text]) == []
    assert made.id in [one.id for one in client.conclusions("hermes", user, "dandelions")]
    assert "dandelions" in client.view("hermes", user, "what are dandelions for").representation
    assert client.drop("hermes", user, made.id)
    assert not client.drop("hermes", user, made.id)
    assert len(client.rewind(session, [turn])) == 2
    assert client.search("Quillfeather", 5, seen_by=user) == []
    assert client.upload(session, "hermes", "SOUL.md", "I am calm.") == 1
    assert user in client.peers(1000)
    assert min(client.pending(), client.pending(session)) >= 0
    client.delete_session(session)
    client.close()


# --------------------------------------------------------------------------- writes


def test_turns_arrive_whatever_their_words_or_the_notes_are(start: Start, place: HermesHome) -> None:
    place.memories.mkdir()
    place.memory_md.write_text("The tokenizer uses <|endoftext|> as a marker.")
    place.user_md.write_text("Likes tea")
    agent = start(aiPeer="hermes_agent")
    agent.provider.on_memory_write(MemoryWrite("w1", "add", "user", "Has a boat"), agent.session)
    said = [TORTOISE, *(f"It ends with {token} here." for token in SPECIAL), "And more."]
    for text in said:
        agent.say(text)
    agent.say(TORTOISE, turn_id="s1-1")
    stored = [text.replace("<|", "<| ") for text in said]
    assert messages(agent) == [text for one in stored for text in (one, "Noted.")]
    assert set(conclusions(agent)) >= {
        "Likes tea",
        "Has a boat",
        "The tokenizer uses <| endoftext|> as a marker.",
    }
    (made,) = agent.provider.client.conclude("hermes_agent", "user", ["字" * 20_000])
    assert len(made.text) > 2000


def test_without_embeddings_turns_arrive_and_notes_wait(
    start: Start, place: HermesHome, model: real.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.memories.mkdir()
    place.user_md.write_text("Likes tea")
    model.embeds = False
    agent = start(aiPeer="hermes_agent")
    for text in (TORTOISE, "Hello."):
        agent.say(text)
    assert messages(agent) == [TORTOISE, "Noted.", "Hello.", "Noted."]
    assert agent.provider.pending_writes() == 1
    model.embeds = True
    later = start("s2")
    later.say("Hello again.")
    assert later.provider.pending_writes() == 0
    assert conclusions(later) == ["Likes tea"]


def test_turns_of_a_crashed_session_are_sent_with_the_next_turn_of_another(start: Start) -> None:
    crashed = start(writeFrequency="5")
    crashed.say("Remark 1")
    assert (crashed.provider.pending_writes(), messages(crashed)) == (1, [])
    later = start("s2", writeFrequency="turn")
    later.say("Elsewhere")
    assert (later.provider.pending_writes(), messages(later)) == (0, ["Remark 1", "Noted."])


def test_every_speaker_of_a_group_is_stored(start: Start) -> None:
    agent = start()
    group = {"platform": "telegram", "gateway_session_key": "group"}
    for number in range(12):
        person = agent.other(id=f"s{number}", user_id=f"p{number}", **group)
        person.say(f"Speaker {number} has boat {number}.", turn_id=f"t{number}")
    assert len(messages(agent, "group")) == 24


# --------------------------------------------------------------------------- recall


def test_what_the_agent_said_is_found_in_later_sessions(start: Start) -> None:
    agent = start()
    agent.say("When is the release?", "OK, release on Monday, billing later.", at=1_700_000_000.0)
    agent.say("Thanks.", at=1_700_000_100.0)
    later = start("s2")
    later.say("Hello again.")

    def found() -> bool:  # Honcho embeds a message a moment after it has stored it
        return "OK, release on Monday" in later.tool("honcho_search", query="release billing")["result"]

    assert poll(found, 60)


def test_until_honcho_has_concluded_its_reasoning_answers_the_first_message(
    start: Start, model: real.Model
) -> None:
    agent = start(firstTurnDialecticWait=4.0)
    agent.say(TORTOISE)
    model.answer = lambda question: "It is called Quillfeather."
    told = start("s2").ask(QUESTION)
    assert "## Honcho's thoughts on this\nIt is called Quillfeather." in told
    assert poll(lambda: TORTOISE in start("s3", firstTurnDialecticWait=0).ask(QUESTION), CONCLUDED_S, 2)


def test_an_undone_turn_is_told_nobody_also_when_it_is_concluded_from_later(start: Start) -> None:
    agent = start(aiPeer="hermes_agent")
    agent.say(TORTOISE)
    gone = agent.say(BANK)
    undone = SessionSwitch("sw1", agent.session, agent.session, "rewind", False, (gone,))
    agent.provider.on_session_switch(undone)
    assert poll(lambda: BANK in conclusions(agent), CONCLUDED_S, 1)
    later = start("s2")
    told = later.ask("Which bank do I use, and what is my tortoise called?")
    assert (BANK in told, TORTOISE in told) == (False, True)
    later.say("Hello again.")
    assert (BANK in conclusions(later), TORTOISE in conclusions(later)) == (False, True)


def test_the_summary_is_told_however_much_else_is_known(start: Start) -> None:
    agent = start(aiPeer="hermes_agent")
    for number in range(10):
        agent.say(f"Remark {number}")
    facts = [f"Has a tortoise number {number} called Quillfeather of the garden" for number in range(80)]
    agent.provider.client.conclude("hermes_agent", "user", facts)

    def summarized() -> bool:
        return "This conversation so far\nThey spoke of many things." in agent.ask(QUESTION)

    assert poll(summarized, CONCLUDED_S, 2)


def test_reasoning_under_way_keeps_neither_the_next_turn_nor_a_tool_waiting(
    place: HermesHome, model: real.Model
) -> None:
    asked, finish = threading.Event(), threading.Event()

    def slow(question: str) -> str:
        asked.set()
        finish.wait(60)
        return "Loves reptiles."

    model.answer = slow
    with open_memory(place, provider="honcho") as memory:
        session = memory.start_session()
        memory.begin_turn(session, TORTOISE)
        memory.end_turn(session, TORTOISE, "A fine name.")
        assert memory.flush(60)
        assert asked.wait(120)
        assert memory.begin_turn(session, QUESTION).problems == ()
        assert TORTOISE in memory.call_tool(session, "honcho_context", {})
        finish.set()


# ------------------------------------------------------------------------- sessions


def test_a_session_deleted_at_the_server_is_made_again_as_it_was(start: Start, machine: Machine) -> None:
    agent = start(aiPeer="hermes_agent")
    agent.say("Hello.")
    before = observation(agent, "user", "hermes_agent")
    somebody = Client(machine.url, None, agent.provider.client.workspace, 30.0, 10.0)
    somebody.delete_session("s1")
    somebody.close()

    def says() -> bool:
        try:
            agent.say(TORTOISE, turn_id="t2")
        except BackendNotFound:  # until the deriver has deleted it; the outbox waits meanwhile
            return False
        return True

    assert poll(says, CONCLUDED_S, 1)
    assert observation(agent, "user", "hermes_agent") == before == [(True, False), (True, True)]
    assert poll(lambda: TORTOISE in conclusions(agent), CONCLUDED_S, 1)


def test_another_observation_mode_holds_for_sessions_that_are_there(start: Start) -> None:
    agent = start(aiPeer="hermes_agent")
    agent.say("Hello.")
    start(observationMode="unified").say("More.", turn_id="t2")
    assert observation(agent, "user", "hermes_agent") == [(True, False), (False, True)]


def test_a_memory_that_comes_in_keeps_its_time(start: Start) -> None:
    agent = start()
    record = MemoryRecord("The oars lie in Marrowby.", created_at=1_772_356_800.0)
    agent.provider.import_memory(record, agent.session)
    (left,) = agent.provider.export_memories("", agent.session).records
    assert (left.text, left.created_at) == (record.text, record.created_at)


def test_the_self_test_passes(start: Start) -> None:
    agent = start()
    checks = agent.provider.check(agent.session)
    assert [check.name for check in checks if not check.ok] == []


@pytest.mark.parametrize("row", ROWS)
def test_each_cell_of_the_table_on_the_page_holds(place: HermesHome, row: str) -> None:
    provider = HonchoProvider()
    with open_memory(place, provider=provider) as memory:

        def knows(name: str, session: Session) -> bool:
            peer = provider.place(session).user
            provider.pending.sweep()  # as after each later turn
            said = provider.client.search(name, 20, seen_by=peer)
            return any(name in one.text for one in said) or name in exported(memory, "honcho", session)

        hold("honcho", row, memory, knows, patience=CONCLUDED_S)
