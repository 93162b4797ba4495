"""The round trips of a turn to a PostgreSQL server, counted in the protocol by a proxy between program and server."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from hermes_core import Memory, OpenTurn, open_memory
from hermes_core.sessions.search import lookup
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_postgresql.engine import PostgresEngine
from hermes_memory_semantic import dense
from hermes_memory_semantic.vectors import VectorIndex
from hermes_memory_testing.fakes import RecordingProvider
from tests.table import table

MAX_PER_TURN = 6
MAX_PER_SEARCH = 5

# A turn of a conversation whose session is stored, without its search: what it needs is read at once, the unfinished turn
# is stored, and its recall is stored while the history is read.
MAX_PER_BEGIN = 3
# What the turn needs is read at once; then the session is locked, and all is stored with the commit.
MAX_PER_FINISH = 3

QUESTIONS = (
    "Where does my kumquat tree stand, and since when?",
    "kumquat AND (Ghana OR 部署) NOT Lisbon",
    "what did I say about the tree in November 2026?",
    "部署在哪里",
    "Good morning!",
)


class CountingProxy:
    """A proxy that counts how often the server says that it is ready for the next request."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._by_connection: list[int] = []
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def trips(self) -> int:
        """Answered requests of all connections, without the ones that open a connection."""
        with self._lock:
            return sum(max(count - 1, 0) for count in self._by_connection)

    def close(self) -> None:
        for part in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                part.shutdown(socket.SHUT_RDWR)
            part.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                for part in (
                    client,
                    server,
                ):  # as the program and the server do, or small packets wait for one another
                    part.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [client, server]
                self._by_connection.append(0)
                at = len(self._by_connection) - 1
                threading.Thread(target=self._copy, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client, at), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        target.close()

    def _answer(self, server: socket.socket, client: socket.socket, at: int) -> None:
        """Copy the messages of the server: a letter, four bytes of length with themselves, and the rest."""
        waiting = b""
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                waiting += data
                while len(waiting) >= 5 and len(waiting) > (size := int.from_bytes(waiting[1:5], "big")):
                    with self._lock:
                        self._by_connection[at] += waiting[:1] == b"Z"
                    waiting = waiting[size + 1 :]
                client.sendall(data)
        client.close()


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[CountingProxy]:
    from psycopg.conninfo import conninfo_to_dict

    port = int(conninfo_to_dict(postgres_url)["port"] or 0)
    with contextlib.closing(CountingProxy(port)) as counting:
        yield counting


@pytest.fixture
def memory(proxy: CountingProxy, postgres_url: str, postgres_schema: str, tmp_path: Path) -> Iterator[Memory]:
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(postgres_url)
    url = f"postgresql://{parts['user']}@127.0.0.1:{proxy.port}/{parts['dbname']}?sslmode=disable"
    config = {
        "storage": {"url": url, "schema": postgres_schema},
        "recall": {"sessions": "auto"},
    }
    with open_memory(tmp_path / "home", config=config) as opened:
        for number in range(30):
            chat = opened.conversation(f"old-{number % 5}", user_id="ann", platform="telegram")
            chat.turn(f"My kumquat tree number {number} stands in Ghana, 部署 {number}.").finish(
                "I will remember it."
            )
        yield opened


def wait_until_quiet(proxy: CountingProxy) -> None:
    """Wait until a worker that has sent everything asks for nothing more."""
    before = None
    while before != proxy.trips:
        before = proxy.trips
        time.sleep(0.3)


def count(proxy: CountingProxy, call: Callable[[], object]) -> int:
    before = proxy.trips
    call()
    return proxy.trips - before


def storage_of(memory: Memory) -> dict[str, str]:
    return {"url": memory.config.storage.url, "schema": memory.config.storage.schema}


@table("question", QUESTIONS)
def test_a_turn_and_its_recall_take_few_round_trips(
    memory: Memory, proxy: CountingProxy, question: str
) -> None:
    session = memory.start_session(f"new {question}", user_id="ann", platform="telegram")
    memory.begin_turn(session, "Hello")  # asks also who shares the notes
    memory.end_turn(session, "Hello", "Hello!")
    for _ in range(2):
        begin = count(proxy, lambda: memory.begin_turn(session, question))
        end = count(proxy, lambda: memory.end_turn(session, question, "In Ghana."))
        search = count(
            proxy, lambda: memory.sessions.past.search(question, user="telegram:ann", proactive=True)
        )
        assert search <= MAX_PER_SEARCH
        # The session with its turns, its notes, and the recall.
        assert begin <= 2 + MAX_PER_SEARCH
        assert begin + end <= MAX_PER_TURN + MAX_PER_SEARCH, (begin, end)


@pytest.mark.skipif(not dense.installed(), reason="needs the local model")
@pytest.mark.parametrize("common", [5, 400], ids=["common words", "rare words"])
@table("question", [*QUESTIONS, "Does the kumquat tree of Ghana stand, and do I remember it?"])
def test_a_search_by_meaning_takes_few_round_trips(
    memory: Memory, proxy: CountingProxy, monkeypatch: pytest.MonkeyPatch, question: str, common: int
) -> None:
    monkeypatch.setattr(lookup, "MAX_RARE_MESSAGES", common)
    storage = memory.config.storage
    database = PostgresEngine(storage.url, schema=storage.schema)
    with contextlib.closing(SessionStore(database, make_vectors=VectorIndex)) as db:
        assert db.past.vectors is not None
        db.past.vectors.build()
        db.past.search(question, user="telegram:ann")  # reads also how the server keeps vectors
        wait_until_quiet(proxy)
        for proactive in (False, True):
            search = partial(db.past.search, question, user="telegram:ann", proactive=proactive)
            assert count(proxy, search) <= MAX_PER_SEARCH
            assert database._questions() == []
        assert not db.past.vectors.fault


def test_a_turn_that_a_provider_gets_takes_as_few(
    proxy: CountingProxy, memory: Memory, tmp_path: Path
) -> None:
    provider = RecordingProvider()
    with open_memory(tmp_path / "other", config={"storage": storage_of(memory)}, provider=provider) as other:
        session = other.start_session("new", user_id="ann", platform="telegram")
        other.manager.outbox.on_row = lambda _provider: None  # no worker sends meanwhile
        other.begin_turn(session, QUESTIONS[0])
        end = count(proxy, lambda: other.end_turn(session, QUESTIONS[0], "In Ghana."))
    assert end <= MAX_PER_TURN - 1


@pytest.mark.parametrize("with_provider", [False, True])
@table("question", QUESTIONS)
def test_a_turn_of_a_conversation_takes_few_round_trips(
    memory: Memory, proxy: CountingProxy, tmp_path: Path, question: str, with_provider: bool
) -> None:
    provider = RecordingProvider() if with_provider else None
    config = {"storage": storage_of(memory), "recall": {"sessions": "auto"}}
    with open_memory(tmp_path / "other", config=config, provider=provider) as other:
        chat = other.conversation(f"new {question}", user_id="ann", platform="telegram")
        chat.turn(question).finish("In Ghana.")  # stores the session and its prompt
        other.flush(10)
        other.manager.outbox.on_row = lambda _provider: None  # no worker sends meanwhile
        wait_until_quiet(proxy)
        turns: list[OpenTurn] = []
        for _ in range(3):
            begin = count(proxy, lambda: turns.append(chat.turn(question)))
            finish = count(proxy, lambda: turns[-1].finish("In Ghana."))
            assert begin <= MAX_PER_BEGIN + MAX_PER_SEARCH
            assert finish <= MAX_PER_FINISH
            assert MAX_PER_BEGIN + MAX_PER_FINISH == MAX_PER_TURN
        assert len(chat.history()) == 8


def test_a_change_by_another_program_reaches_the_next_turn(memory: Memory) -> None:
    chat = memory.conversation("new", user_id="ann", platform="telegram")
    chat.turn("Good morning!").finish("Good morning.")
    with open_memory(memory.home, config={"storage": storage_of(memory)}) as other:
        same = other.conversation("new", user_id="ann", platform="telegram")
        same.turn("And the tree?").finish("In Ghana.")
    turn = chat.turn("What do I grow?")
    assert [message["content"] for message in turn.messages[-3:-1]] == ["And the tree?", "In Ghana."]
