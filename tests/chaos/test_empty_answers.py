"""Random damage of indexes, vectors, schemas, providers and embeddings: no surface gives an empty answer without a word."""

# ruff: noqa: S608  names of our own tables

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hermes_core import HermesHome, Memory, open_memory
from hermes_core.cli import main
from hermes_core.config.keys import SEMANTIC
from hermes_core.contract.values import Session
from hermes_core.errors import HermesError
from hermes_memory_mcp.toolset import ToolSet
from hermes_memory_ui.answers import PageRequest
from hermes_memory_ui.site import Site
from hermes_memory_ui.views import search as search_page
from plugins.semantic.tests.test_embeddings import Server
from tests.chaos.conftest import Record

pytestmark = pytest.mark.timeout(7200)

DAMAGES = int(os.environ.get("CHAOS_KILLS", "20"))

MESSAGES = 120

# Vectors may be behind by a minute.
LONG_AGO = 1_700_000_000.0

# Its vector is that of TALK in the server of embeddings, and it shares no word with it.
TALK = "We adopted a puppy at the harbour."
BY_MEANING = "Any beagle?"

Damage = Callable[[random.Random, Path], object]

# ---------------------------------------------------------------------- damage


def execute(home: Path, *statements: str, file: str = "state.db") -> None:
    """Run statements on a database of a home, of which the damage of an earlier one may refuse some."""
    with closing(sqlite3.connect(home / file)) as connection:
        connection.create_function("noise", 1, random.Random(len(statements[0])).randbytes)
        for statement in statements:
            with contextlib.suppress(sqlite3.Error):
                connection.execute(statement)
        connection.commit()


def chosen(numbers: random.Random, column: str = "rowid") -> str:
    """A condition on a random part of the rows of a table, often on all."""
    part = numbers.choice((1, 1, 2, 5))
    return f"{column} % {part} = {numbers.randrange(part)}"


def blocks(numbers: random.Random, home: Path, table: str = "messages_fts", file: str = "state.db") -> None:
    """Zero, cut, replace or delete blocks of an index of words."""
    where = f"WHERE {numbers.choice(('id > 10', 'id > 0', 'id <= 10'))} AND {chosen(numbers, 'id')}"
    ways = (
        f"UPDATE {table}_data SET block = zeroblob(length(block)) {where}",
        f"UPDATE {table}_data SET block = substr(block, 1, length(block) / 2) {where}",
        f"UPDATE {table}_data SET block = noise(length(block)) {where}",
        f"DELETE FROM {table}_data {where}",
    )
    execute(home, numbers.choice(ways), file=file)


def bookkeeping(
    numbers: random.Random, home: Path, table: str = "messages_fts", file: str = "state.db"
) -> None:
    """Delete rows of the other tables of an index of words, or all of it."""
    ways = (
        f"DELETE FROM {table}_idx",
        f"DELETE FROM {table}_docsize WHERE {chosen(numbers, 'id')}",
        f"DELETE FROM {table}_config",
        f"INSERT INTO {table} ({table}) VALUES ('delete-all')",
        f"DROP TABLE {table}",
        f"DROP TABLE {table}_{numbers.choice(('data', 'idx', 'docsize', 'config'))}",
    )
    execute(home, numbers.choice(ways), file=file)


def schema(numbers: random.Random, home: Path) -> None:
    """Drop a table, an index or a column, or rename one."""
    tables = ("messages", "sessions", "turns", "state_meta", "schema_migrations", "vectors")
    with closing(sqlite3.connect(home / "state.db")) as connection:
        indexes = [
            row[0]
            for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql <> ''")
        ]
    table = numbers.choice(tables)
    ways = (
        f"DROP TABLE {table}",
        f"DELETE FROM {table}",
        f"ALTER TABLE {table} RENAME TO gone",
        f"DROP INDEX {numbers.choice(indexes)}",
        f"ALTER TABLE messages RENAME COLUMN {numbers.choice(('content', 'position', 'state'))} TO gone",
    )
    execute(home, "PRAGMA foreign_keys = OFF", numbers.choice(ways))


def pages(numbers: random.Random, home: Path) -> None:
    """Zero or replace pages of the file."""
    path = home / "state.db"
    content = bytearray(path.read_bytes())
    for _ in range(numbers.choice((1, 3, 20))):
        at = numbers.randrange(1, len(content) // 4096) * 4096
        content[at : at + 4096] = numbers.choice((bytes(4096), numbers.randbytes(4096)))
    path.write_bytes(content)


def vectors(numbers: random.Random, home: Path) -> None:
    """Delete, zero, cut or rename vectors, or forget which messages have some."""
    ways = (
        f"DELETE FROM vectors WHERE {chosen(numbers, 'message_id')}",
        "UPDATE vectors SET own = zeroblob(length(own))",
        "UPDATE vectors SET own = x'01'",
        "UPDATE vectors SET model = 'another'",
        "DELETE FROM vectors",
        "DROP TABLE vectors",
        "ALTER TABLE vectors RENAME COLUMN own TO gone",
    )
    forgotten = ("DELETE FROM state_meta WHERE key LIKE 'meaning%'",)
    execute(home, numbers.choice(ways), *(forgotten if numbers.random() < 0.3 else ()))


def facts(numbers: random.Random, home: Path) -> None:
    """Damage the index of words of the provider's facts."""
    numbers.choice((blocks, bookkeeping))(numbers, home, "facts_fts", "memory_store.db")


def embeddings(numbers: random.Random, server: Server) -> None:
    """Let the server of embeddings fail in one of many ways."""
    server.statuses = []
    server.answer = server.embed
    ways: tuple[Callable[[], object], ...] = (
        lambda: setattr(server, "statuses", [numbers.choice((401, 404, 429, 500, 503))] * 50),
        lambda: setattr(server, "answer", lambda _: {"data": []}),
        lambda: setattr(server, "answer", lambda _: "<html>log in</html>"),
        lambda: setattr(
            server, "answer", lambda texts: {"data": [{"index": 0, "embedding": []} for _ in texts]}
        ),
        lambda: setattr(
            server, "answer", lambda texts: {"data": [{"index": 0, "embedding": [0.0] * 8} for _ in texts]}
        ),
    )
    numbers.choice(ways)()


# ---------------------------------------------------------------------- surfaces


class Said(Exception):
    """Words about what does not work, instead of an answer."""


def run(home: Path, *words: str) -> str:
    result = CliRunner().invoke(main, ["--home", str(home), *words])
    if result.exit_code == 3:
        assert result.stderr
        raise Said(result.stderr)
    if result.exit_code:
        assert result.stderr, result.exception
        raise Said(result.stderr)
    return result.stdout


def with_memory(home: Path, ask: Callable[[Memory], str]) -> str:
    with open_memory(home) as memory:
        return ask(memory)


def answered(document: Any) -> str:
    """The results of an answer; raise what it says of faults."""
    words = [document.get(name) for name in ("warning", "error", "problems")]
    if any(words):
        raise Said(str(words))
    return json.dumps(document["results"])


def page_of(memory: Memory, question: str) -> str:
    answer = Site(memory).answer("/search", search_page.show, PageRequest({"q": question}))
    body = answer.body if isinstance(answer.body, str) else answer.body.decode()
    if 'role="alert"' in body:
        raise Said("the page says so")
    return body[body.index('id="results"') :]


def turn_of(memory: Memory, question: str) -> str:
    turn = memory.conversation("asking").turn(question)
    if turn.problems:
        raise Said(str(turn.problems))
    return str(turn.messages[-1])


def tool_of(memory: Memory, question: str) -> str:
    return answered(json.loads(memory.call_tool(Session("asking"), "session_search", {"query": question})))


def client_of(tool: str) -> Callable[[Memory, str], str]:
    return lambda memory, question: answered(
        json.loads(ToolSet(memory, memory.local_session).call(tool, {"query": question}).text)
    )


SURFACES: Mapping[str, Callable[[Path, str], str]] = {
    "command": lambda home, question: run(home, "sessions", "search", question),
    "json": lambda home, question: run(home, "sessions", "search", question, "--json"),
    "recall": lambda home, question: run(home, "recall", question, "--json"),
    "tool": lambda home, question: with_memory(home, lambda memory: tool_of(memory, question)),
    "turn": lambda home, question: with_memory(home, lambda memory: turn_of(memory, question)),
    "page": lambda home, question: with_memory(home, lambda memory: page_of(memory, question)),
    "client": lambda home, question: with_memory(
        home, lambda memory: client_of("session_search")(memory, question)
    ),
    "client's recall": lambda home, question: with_memory(
        home, lambda memory: client_of("recall")(memory, question)
    ),
}


def ask(home: Path, surface: str, question: str, *wanted: str) -> str:
    """Return "found", "said", or what was answered instead."""
    try:
        answer = SURFACES[surface](home, question)
    except (Said, HermesError):
        return "said"
    return "found" if any(text in answer for text in wanted) else answer or "nothing"


# ---------------------------------------------------------------------- the homes


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with closing(Server()) as running:
        yield running


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Path:
    """A home with messages, vectors by a server, and facts of the provider."""
    folder = tmp_path_factory.mktemp("whole")
    recall = {"embeddings": "http", "embeddings_url": server.url, "embeddings_model": "subjects"}
    home = HermesHome.resolve(folder / "home")
    home.path.mkdir()
    (home.path / "config.yaml").write_text(
        json.dumps({"recall": {**recall, "sessions": "auto"}, "memory": {"provider": "holographic"}})
    )
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as opened:
        patch.setenv(SEMANTIC, "auto")
        memory = opened.enter_context(open_memory(home))
        db = memory.sessions
        db.create_session("old")
        with db.transaction():
            for number in range(MESSAGES):
                db.append_message(
                    "old", "user", f"The password of locker{number} is zebra{number}.", timestamp=LONG_AGO
                )
            db.append_message("old", "user", TALK, timestamp=LONG_AGO)
        for number in range(30):
            memory.call_tool(
                Session("old"), "fact_store", {"action": "add", "content": f"Kumquat{number} grows in Ghana."}
            )
        assert db.past.vectors is not None
        db.past.vectors.build()
    return home.path


@pytest.fixture(autouse=True)
def by_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")


@pytest.fixture
def copied(whole: Path, tmp_path: Path, server: Server) -> Iterator[Callable[[int], Path]]:
    """Copies the whole home, and deletes the copy before."""
    server.answer, server.statuses = server.embed, []

    def copy(number: int) -> Path:
        if number:
            shutil.rmtree(tmp_path / str(number - 1))
        return Path(shutil.copytree(whole, tmp_path / str(number)))

    yield copy
    server.answer, server.statuses = server.embed, []


def fact_of(memory: Memory, question: str) -> str:
    answer = memory.call_tool(memory.local_session, "fact_store", {"action": "search", "query": question})
    document = json.loads(answer)
    if "error" in document:
        raise Said(answer)
    return answer


def rounds_of(kind: str, count: int) -> Iterator[tuple[int, random.Random]]:
    for number in range(count):
        yield number, random.Random(f"{kind} {number}")


def test_the_whole_home_answers_on_each_surface(copied: Callable[[int], Path]) -> None:
    home = copied(0)
    for surface in SURFACES:
        assert ask(home, surface, "What is the password of locker17?", "zebra17") == "found", surface
        if surface != "turn":  # nothing close enough in meaning for a turn
            assert ask(home, surface, BY_MEANING, TALK) == "found", surface
    assert "Kumquat7 " in with_memory(home, lambda memory: fact_of(memory, "Kumquat7"))


@pytest.mark.slow
@pytest.mark.shortened
@pytest.mark.parametrize("kind", ["blocks", "bookkeeping", "schema", "pages"])
def test_damage_of_the_index_and_the_schema_is_said(
    copied: Callable[[int], Path], kind: str, record: Record
) -> None:
    damage: Damage = {"blocks": blocks, "bookkeeping": bookkeeping, "schema": schema, "pages": pages}[kind]
    silent, outcomes = [], {"found": 0, "said": 0}
    for number, numbers in rounds_of(kind, DAMAGES // 5):
        home = copied(number)
        damage(numbers, home)
        surface, locker = numbers.choice(list(SURFACES)), numbers.randrange(MESSAGES)
        outcome = ask(home, surface, f"What is the password of locker{locker}?", f"zebra{locker}")
        if outcome in outcomes:
            outcomes[outcome] += 1
        else:
            silent.append((number, surface, outcome[:200]))
    record(f"damage of {kind}", **outcomes, silent=len(silent))
    assert silent == []


@pytest.mark.slow
@pytest.mark.shortened
def test_damage_of_vectors_and_of_their_server_is_said(
    copied: Callable[[int], Path], server: Server, record: Record
) -> None:
    # An answer that is not empty may lack what has lost its vector.
    silent, outcomes = [], {"found": 0, "said": 0, "other": 0}
    for number, numbers in rounds_of("meaning", DAMAGES // 10):
        home = copied(number)
        server.answer, server.statuses = server.embed, []
        if numbers.random() < 0.5:
            vectors(numbers, home)
        else:
            embeddings(numbers, server)
        surface = numbers.choice([surface for surface in SURFACES if surface != "turn"])
        outcome = ask(home, surface, BY_MEANING, TALK)
        if "The password of locker" in outcome:
            outcome = "other"
        if outcome in outcomes:
            outcomes[outcome] += 1
        else:
            silent.append((number, surface, outcome[:200]))
    record("damage of vectors and embeddings", **outcomes, silent=len(silent))
    assert silent == []


@pytest.mark.slow
@pytest.mark.shortened
def test_damage_of_a_providers_index_is_said(copied: Callable[[int], Path], record: Record) -> None:
    silent, outcomes = [], {"found": 0, "said": 0}
    for number, numbers in rounds_of("facts", DAMAGES // 10):
        home = copied(number)
        facts(numbers, home)
        fact = f"Kumquat{numbers.randrange(30)}"
        try:
            answer = with_memory(home, lambda memory, fact=fact: fact_of(memory, fact))
        except (Said, HermesError):
            outcomes["said"] += 1
        else:
            if f"{fact} " in answer:
                outcomes["found"] += 1
            else:
                silent.append((number, answer[:200]))
    record("damage of a provider's index", **outcomes, silent=len(silent))
    assert silent == []
