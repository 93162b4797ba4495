"""Two machines, each with a home of its own, on one PostgreSQL server; and what happens while the server is down."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hermes_core
from hermes_core import Capabilities, Memory, MemoryProvider, open_memory
from hermes_core.config import Credentials, load_config, parse_config, set_value
from hermes_core.errors import ConfigError, DatabaseUnavailable
from hermes_core.health.databases import examine_databases
from hermes_core.health.doctor import examine_extensions
from hermes_core.home import HermesHome
from hermes_core.packages import install_remedy
from hermes_core.sessions.home_store import open_sessions
from hermes_memory_agent import Agent
from hermes_memory_agent.cancel import Cancel, Cancelled
from hermes_memory_agent.locks import compression_lock
from hermes_memory_postgresql.postgres import PostgresDatabase
from hermes_memory_testing.fakes import RecordingProvider
from tests.manager.conftest import until
from tests.postgres_server import PostgresServer
from tests.rounds import rounds
from tests.test_failure_modes import Says

OpenMachine = Callable[..., Memory]


@pytest.fixture
def open_machine(postgres_url: str, postgres_schema: str, tmp_path: Path) -> Iterator[OpenMachine]:
    """Open the memory of a machine by its name."""
    opened: list[Memory] = []

    def open_it(name: str, url: str = postgres_url, **options: Any) -> Memory:
        storage = {"url": url, "schema": postgres_schema, **options.pop("storage", {})}
        config = {"storage": storage, "recall": {"sessions": "auto"}, "memory": options.pop("memory", {})}
        opened.append(open_memory(tmp_path / name, config=config, **options))
        return opened[-1]

    yield open_it
    for memory in opened:
        memory.close()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    with contextlib.closing(PostgresServer()) as started:
        yield started


# ------------------------------------------------------------------ two machines


def test_what_is_said_on_one_machine_is_known_on_the_other(open_machine: OpenMachine) -> None:
    one, two = open_machine("one"), open_machine("two")
    chat = one.conversation("chat", user_id="ann", platform="telegram")
    turn = chat.turn("My kumquat tree stands in Ghana.")
    turn.finish("I will remember the kumquat tree.")
    session = two.conversation("other", user_id="ann", platform="telegram")
    recalled = session.turn("Where does my kumquat tree stand?").recall.context
    assert "Ghana" in recalled
    going_on = two.conversation("chat", user_id="ann", platform="telegram")
    texts = [str(message["content"]) for message in going_on.turn("And now?").messages]
    assert any("stands in Ghana" in text for text in texts)


def test_nobody_sees_what_another_person_said(open_machine: OpenMachine) -> None:
    one, two = open_machine("one"), open_machine("two")
    for memory, name in ((one, "ann"), (two, "bob")):
        turn = memory.conversation(f"chat-{name}", user_id=name, platform="telegram").turn(
            f"{name} grows kumquats"
        )
        turn.finish("Good.")
    seen = (
        one.conversation("new", user_id="bob", platform="telegram").turn("Who grows kumquats?").recall.context
    )
    assert "ann" not in seen
    same_id = two.conversation("chat-ann", user_id="bob", platform="telegram").turn("What did I say?")
    assert not any("ann grows" in str(message["content"]) for message in same_id.messages)


def test_each_turn_reaches_the_provider_once_from_whichever_machine(open_machine: OpenMachine) -> None:
    providers = [RecordingProvider(), RecordingProvider()]
    machines = [open_machine(f"m{at}", provider=provider) for at, provider in enumerate(providers)]
    for number in range(6):
        chat = machines[number % 2].conversation(f"chat-{number % 3}")
        chat.turn(f"question {number}").finish(f"answer {number}")
    assert until(lambda: all(memory.flush() for memory in machines))
    sent = sorted(call["turn"].user for provider in providers for call in provider.of("sync_turn"))
    assert sent == [f"question {number}" for number in range(6)]


def test_no_database_file_is_made_beside_the_server(open_machine: OpenMachine) -> None:
    memory = open_machine("one")
    memory.conversation("chat").turn("hello").finish("hi")
    memory.flush()
    assert not [path.name for path in memory.home.path.glob("state.db*")]
    assert not [path.name for path in memory.home.path.glob("outbox.db*")]


@pytest.mark.names_engines("machines on one server")
def test_a_file_from_before_is_not_read_and_may_be_moved_away(
    open_machine: OpenMachine, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "one"
    with open_memory(home, config={"recall": {"sessions": "auto"}}) as memory:
        memory.conversation("old").turn("My old kumquat").finish("yes")
    memory = open_machine("one")
    assert memory.sessions.counts()["sessions"] == 0
    monkeypatch.setenv("HERMES_STORAGE", postgres_url)
    details = {finding.what: finding.detail for finding in examine_databases(memory.home)}
    assert "not read" in details["state.db"]
    details = {finding.what: finding.detail for finding in examine_extensions(memory.home)}
    assert details["server"].startswith("PostgreSQL ")
    memory.home.state_db.rename(tmp_path / "kept.db")
    assert memory.problems() == []
    assert "state.db" not in {finding.what for finding in examine_databases(memory.home)}


# ------------------------------------------------------------------ notes


def test_notes_of_one_machine_stand_in_the_prompt_of_the_other(open_machine: OpenMachine) -> None:
    one, two = open_machine("one"), open_machine("two")
    one.change_memory("add", content="Uses ruff", by_person=True)
    ann = one.session("s", user_id="ann", platform="telegram")
    one.change_memory("add", "user", "Is called Ann", session=ann, by_person=True)
    assert "Uses ruff" in two.system_prompt(two.start_session("new"))
    shown = two.system_prompt(two.start_session("other", user_id="ann", platform="telegram"))
    assert "Is called Ann" in shown
    assert "Uses ruff" not in shown
    assert two.home.memory_md.read_text("utf-8") == "Uses ruff"  # a view of its own
    assert not list(one.home.path.rglob("*.db"))


def test_a_running_session_learns_of_a_note_that_another_machine_wrote(open_machine: OpenMachine) -> None:
    one = open_machine("one", memory={"refresh": "append"})
    two = open_machine("two")
    chat = one.conversation("chat")
    chat.turn("Hello").finish("Hi.")
    prompt = chat.system_prompt
    two.change_memory("add", content="Grows a kumquat", by_person=True)
    turn = chat.turn("What do I grow?")
    assert "Grows a kumquat" in turn.recall.context
    assert chat.system_prompt == prompt


def test_a_note_for_the_provider_is_in_the_outbox_with_its_change(open_machine: OpenMachine) -> None:
    provider = RecordingProvider()
    memory = open_machine("one", provider=provider)
    memory.manager.initialize_all(memory.local_session)
    memory.change_memory("add", content="Uses ruff", by_person=True)
    assert until(lambda: memory.flush())
    assert [call["write"].content for call in provider.of("on_memory_write")] == ["Uses ruff"]


def test_the_notes_cost_a_turn_at_most_two_reads_of_the_server(
    open_machine: OpenMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_machine("one")
    memory.change_memory("add", content="Uses ruff", by_person=True)
    chat = memory.conversation("chat")
    chat.turn("Hello").finish("Hi.")
    reads: list[str] = []
    send = PostgresDatabase.send
    execute = PostgresDatabase.execute

    def count_send(self: PostgresDatabase, connection: Any, statements: Any, before: Any = ()) -> Any:
        reads.extend(sql for sql, _ in statements if "FROM notes" in sql)
        return send(self, connection, statements, before)

    def count_execute(self: PostgresDatabase, sql: str, parameters: Any = ()) -> Any:
        if "FROM notes" in sql or "FROM note_" in sql:
            reads.append(sql)
        return execute(self, sql, parameters)

    monkeypatch.setattr(PostgresDatabase, "send", count_send)
    monkeypatch.setattr(PostgresDatabase, "execute", count_execute)
    chat.turn("And now?").finish("Nothing.")
    assert len(reads) <= 2, reads


@pytest.mark.shortened
def test_of_a_thousand_people_nobody_sees_another_s_notes_sessions_or_recall(
    open_machine: OpenMachine,
) -> None:
    gateways = [open_machine("one"), open_machine("two")]
    names = [f"p{number:04}" for number in range(rounds(1000))]
    for number, name in enumerate(names):
        memory = gateways[number % 2]
        chat = memory.conversation(f"chat-{name}", user_id=name, platform="telegram")
        chat.turn(f"My kumquat is called {name}-tree").finish("Good.")
        notes = memory.curated.of(chat.session)
        assert notes.add("user", f"Is called {name}-person", session=chat.session)["success"]
    for number, name in enumerate(names):
        memory = gateways[(number + 1) % 2]  # the gateway that the person did not talk to
        session = memory.session(f"new-{name}", user_id=name, platform="telegram")
        own = memory.curated.of(memory.session(session))
        assert own.entries("user") == (f"Is called {name}-person",)
        assert own.history(limit=5)[0].after == (f"Is called {name}-person",)
        if number % 20:
            continue
        prompt = memory.system_prompt(memory.start_session(session))
        turn = memory.conversation(f"new-{name}", user_id=name, platform="telegram").turn(
            "How is my kumquat called?"
        )
        listed = [
            stored.session.id for stored in memory.sessions.list_sessions(user=f"telegram:{name}", limit=10)
        ]
        found = [
            hit.text for hit in memory.sessions.past.search("kumquat", user=f"telegram:{name}", limit=50)
        ]
        everything = f"{prompt} {turn.recall.context} {listed} {found}"
        assert f"{name}-person" in prompt
        assert f"{name}-tree" in turn.recall.context
        assert set(re.findall(r"p\d{4}", everything)) == {name}
    assert len(gateways[0].curated.places.owners()) == len(names)


# ------------------------------------------------------------------ while the server is down


def test_while_the_server_is_down_a_note_is_not_acknowledged_and_the_turn_says_what_is_missing(
    server: PostgresServer, open_machine: OpenMachine
) -> None:
    memory = open_machine("one", server.url)
    memory.change_memory("add", content="Uses ruff", by_person=True)
    server.stop()
    session = memory.session("chat")
    answer = json.loads(memory.call_tool(session, "memory", {"action": "add", "content": "Uses mypy"}))
    assert not answer["success"]
    assert "can't reach" in answer["error"]
    assert "start the server" in answer["remediation"]
    assert "Uses ruff" not in memory.system_prompt(session)
    problems = memory.begin_turn(session, "Hello").problems
    assert any("can't reach" in problem for problem in problems)
    server.start()
    assert memory.curated.entries("memory") == ("Uses ruff",)
    assert "Uses ruff" in memory.system_prompt(memory.start_session("next"))


def test_a_running_session_keeps_its_notes_and_its_trust_while_the_server_is_down(
    server: PostgresServer, open_machine: OpenMachine
) -> None:
    memory = open_machine("one", server.url)
    memory.change_memory("add", content="Uses ruff", by_person=True)
    session = memory.start_session("chat")
    prompt = memory.system_prompt(session)
    assert "Uses ruff" in prompt
    server.stop()
    assert memory.system_prompt(session) == prompt
    recalled = memory.begin_turn(session, "Which linter is it?")
    assert "removed" not in recalled.context
    assert memory.system_prompt(session) == prompt
    server.start()
    assert memory.internals.origins.reading_of(session).origin == "person"
    assert memory.system_prompt(session) == prompt


def test_a_prompt_that_was_built_during_an_outage_gets_the_notes_when_the_server_is_back(
    server: PostgresServer, open_machine: OpenMachine
) -> None:
    memory = open_machine("one", server.url)
    memory.change_memory("add", content="Uses ruff", by_person=True)
    memory.change_memory("add", "user", content="Likes kumquats", by_person=True)
    server.stop()
    session = memory.session("chat")
    memory.manager.initialize_all(session)
    agent = Agent(memory, Says("First.", "Second."), session_id="other")
    assert agent.run_turn("one").text == "First."
    prompt = memory.system_prompt(session)
    assert "Uses ruff" not in prompt
    assert "can't be read at the moment" in prompt
    assert memory.system_prompt(session) == prompt
    server.start()
    prompt = memory.system_prompt(session)
    assert "Uses ruff" in prompt
    assert "Likes kumquats" in prompt
    assert "can't be read at the moment" not in prompt
    assert agent.run_turn("two").text == "Second."
    assert "Uses ruff" in memory.sessions.meta.system_prompt(agent.session.id)
    agent.close()
    assert memory.internals.origins.reading_of(session).origin == "person"


# ------------------------------------------------------------------ one program in a session


def test_only_one_machine_compresses_a_session(open_machine: OpenMachine) -> None:
    one, two = open_machine("one"), open_machine("two")
    cancel = Cancel()
    with compression_lock(one, "chat", cancel) as lease:
        assert lease is not None
        cancel.set()
        with pytest.raises(Cancelled), compression_lock(two, "chat", cancel):
            pass
        with one.sessions.transaction():
            lease.hold()
    with compression_lock(two, "chat", Cancel()):
        pass


def test_while_the_server_is_down_no_turn_is_taken_for_stored(
    server: PostgresServer, open_machine: OpenMachine
) -> None:
    memory = open_machine("one", server.url)
    chat = memory.conversation("chat")
    chat.turn("before").finish("yes")
    server.stop()
    with pytest.raises(DatabaseUnavailable) as failure:
        chat.turn("during").finish("no")
    assert "start the server" in failure.value.remedy
    server.start()
    chat.turn("after").finish("yes")
    said = [message.content for message in memory.sessions.get_messages("chat")]
    assert said == ["before", "yes", "after", "yes"]
    assert [path.name for path in memory.home.path.glob("*.db")] == []


def test_the_agent_answers_and_says_that_nothing_was_kept(
    server: PostgresServer, open_machine: OpenMachine
) -> None:
    memory = open_machine("one", server.url)
    agent = Agent(memory, Says("First.", "Second.", "Third."), session_id="chat")
    assert agent.run_turn("one").problems == ()
    server.stop()
    result = agent.run_turn("two")
    assert (result.outcome, result.text) == ("answered", "Second.")
    assert any(
        "storing the turn failed" in problem and "can't reach" in problem for problem in result.problems
    )
    server.start()
    assert agent.run_turn("three").text == "Third."
    turns = [turn.turn.user for turn in memory.sessions.turns.complete(session_id=agent.session.id)]
    assert "one" in turns
    assert "two" not in turns
    agent.close()


def test_a_server_that_was_never_there_is_told_and_no_file_takes_its_place(open_machine: OpenMachine) -> None:
    memory = open_machine("one", "postgresql://hermes@127.0.0.1:1/hermes")
    with pytest.raises(DatabaseUnavailable, match="can't reach"):
        memory.conversation("chat").turn("hello").finish("hi")
    assert any("can't reach" in problem for problem in memory.problems())
    assert [path.name for path in memory.home.path.glob("*.db")] == []


# ------------------------------------------------------------------ providers with files


class Shelf(MemoryProvider):
    """A provider that keeps files of its own."""

    name = "shelf"
    capabilities = Capabilities(local=True)

    def initialize(self, session: Any) -> None:
        pass

    def sync_turn(self, turn: Any) -> None:
        pass


@pytest.mark.names_engines("machines on one server")
def test_a_provider_with_files_is_refused_unless_one_machine_has_it(open_machine: OpenMachine) -> None:
    refused = open_machine("one", provider=Shelf)
    assert any("keeps files on this machine" in problem for problem in refused.problems())
    assert any("storage.local_host" in problem for problem in refused.problems())
    elsewhere = open_machine("two", provider=Shelf, storage={"local_host": "another-machine"})
    assert any("runs on 'another-machine' only" in problem for problem in elsewhere.problems())
    here = open_machine("three", provider=Shelf, storage={"local_host": socket.gethostname()})
    assert here.problems() == []


def test_turns_of_other_machines_wait_for_the_one_with_the_provider(open_machine: OpenMachine) -> None:
    provider = RecordingProvider()
    provider.capabilities = Capabilities(local=True)  # type: ignore[misc]
    machine = socket.gethostname()
    other = open_machine("other", provider=provider, storage={"local_host": "another-machine"})
    other.conversation("chat").turn("hello").finish("hi")
    assert [row.hook for row in other.manager.outbox.pending("fake")] == ["sync_turn"]
    assert provider.of("sync_turn") == []
    here = open_machine("here", provider=provider, storage={"local_host": machine})
    here.manager.initialize_all(here.local_session)
    assert until(lambda: here.flush())
    assert [call["turn"].user for call in provider.of("sync_turn")] == ["hello"]


def test_at_home_a_provider_with_files_is_welcome(tmp_path: Path) -> None:
    with open_memory(tmp_path / "home", provider=Shelf) as memory:
        assert memory.problems() == []


# ------------------------------------------------------------------ configuration


@pytest.mark.parametrize(
    "text",
    [
        "storage:\n  url: postgresql://hermes:secret-7@db/hermes\n",
        "storage: postgresql://hermes:secret-7@db/hermes\n",
        "storage: postgresql://db/hermes?user=hermes&password=secret-7\n",
        "storage:\n  url: host=db user=hermes password=secret-7\n",
        'storage:\n  url: "host=db password = secret-7"\n',
    ],
)
def test_a_password_in_the_file_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigError) as failure:
        parse_config(text)
    assert "HERMES_STORAGE_PASSWORD" in failure.value.remedy
    assert "PGPASSFILE" in failure.value.remedy
    assert "secret-7" not in str(failure.value)


def test_a_password_is_refused_wherever_the_address_is_given(hermes_home: HermesHome) -> None:
    url = "postgresql://hermes:secret-7@db/hermes"
    for give in (
        lambda: set_value(hermes_home, "storage.url", url),
        lambda: load_config(hermes_home, {"HERMES_STORAGE": url}),
        lambda: open_memory(hermes_home, config={"storage": {"url": url}}),
    ):
        with pytest.raises(ConfigError, match="holds a password") as failure:
            give()
        assert "secret-7" not in str(failure.value)
    assert not hermes_home.config_yaml.exists()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://hermes@db1,db2/hermes?target_session_attrs=read-write",
        "postgresql://db:5433/hermes?passfile=/run/pgpass",
        "service=hermes",
    ],
)
def test_the_address_alone_may_stand_for_the_block(url: str) -> None:
    assert parse_config(f"storage: {url}\n").storage.url == url
    assert parse_config(f"storage:\n  url: {url}\n  pool: 3\n").storage.pool == 3


def test_the_environment_names_the_server_of_a_container(hermes_home: HermesHome) -> None:
    url = "postgresql://hermes@db/hermes"
    assert load_config(hermes_home, {"HERMES_STORAGE": url}).storage.url == url
    assert load_config(hermes_home, {}).storage.url == ""


def test_the_password_comes_from_the_env_file(
    hermes_home: HermesHome, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.delenv("HERMES_STORAGE_PASSWORD", raising=False)
    with contextlib.closing(psycopg.connect(server.url, autocommit=True)) as admin:
        admin.execute("CREATE ROLE agent LOGIN PASSWORD 'secret-7'")
        admin.execute("CREATE DATABASE shared OWNER agent")
    rules = server.data / "pg_hba.conf"
    rules.write_text("host all agent 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    server.stop()
    server.start()
    url = f"postgresql://agent@127.0.0.1:{server.port}/shared"
    config = load_config(hermes_home, {"HERMES_STORAGE": url})
    without = open_sessions(hermes_home, config)
    with pytest.raises(DatabaseUnavailable) as failure:
        without.create_session("s1")
    assert "HERMES_STORAGE_PASSWORD" in failure.value.remedy
    Credentials(hermes_home).set("HERMES_STORAGE_PASSWORD", "secret-7")
    # A role without special rights makes schema, extension and tables.
    with contextlib.closing(open_sessions(hermes_home, config)) as sessions:
        sessions.create_session("s1")
        sessions.append_message("s1", "user", "kumquat")
        assert [hit.text for hit in sessions.past.search("kumquats")] == ["kumquat"]


def test_the_store_of_a_home_is_opened_in_one_place() -> None:
    root = Path(hermes_core.__file__).parent
    # Checks of the file itself, and the place that reads the configuration.
    known = {"cli/sessions.py", "health/databases.py", "sessions/home_store.py"}
    opening = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(
            r"SessionStore\(\s*\w*\.?(home\.)?state_db|SessionStore\(path\)", path.read_text(encoding="utf-8")
        )
    }
    assert opening == known


def test_a_driver_that_is_missing_is_named(hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DatabaseUnavailable, match="psycopg can't be imported") as raised:
        open_memory(hermes_home, config={"storage": {"url": "postgresql://db/hermes"}})
    assert raised.value.remedy == install_remedy("hermes-memory-postgresql")


def test_a_note_that_is_pinned_on_one_machine_stays_on_the_other(open_machine: OpenMachine) -> None:
    one, two = open_machine("one"), open_machine("two")
    for text in ("Uses uv.", "Lives in Lund."):
        one.curated.add("memory", text)
    assert one.curated.pin("memory", "Lund")["success"]
    assert [note.text for note in two.curated.read().in_order("memory")] == ["Lives in Lund.", "Uses uv."]
    arguments = {"action": "remove", "target": "memory", "old_text": "Lund"}
    assert "pinned" in two.call_tool(two.session("s"), "memory", arguments)
    assert two.curated.pin("memory", "Lund", on=False)["success"]
    assert "Entry removed" in one.call_tool(one.session("s"), "memory", arguments)
