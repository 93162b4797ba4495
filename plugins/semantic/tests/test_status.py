"""What status, problems and doctor say of search by meaning."""

from __future__ import annotations

import json

import pytest

from hermes_core import open_memory
from hermes_core.config import SEMANTIC
from hermes_core.health.databases import examine_vectors, vector_state
from hermes_core.home import HermesHome
from hermes_memory_semantic import dense
from hermes_memory_semantic.vectors import VectorIndex
from tests.cli.conftest import Hermes

THINGS = ("passport", "guitar", "raincoat", "telescope", "bicycle", "camera", "toolbox", "umbrella")
PLACES = ("blue drawer", "garden shed", "cellar", "attic", "kitchen cupboard", "car", "office", "wardrobe")


def test_it_says_how_a_server_stores_the_vectors(
    hermes_home: HermesHome, postgres_url: str, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numpy")
    monkeypatch.setenv(SEMANTIC, "auto")
    server = {"embeddings": "http", "embeddings_url": "http://127.0.0.1:9/v1", "embeddings_model": "m"}
    config = {"storage": {"url": postgres_url, "schema": postgres_schema}, "recall": server}
    with open_memory(hermes_home, config=config) as memory:
        vectors = memory.sessions.past.vectors
        assert vectors is not None
        memory.sessions.create_session("s1")
        memory.sessions.append_message("s1", "user", "We adopted a puppy.")
        state = vector_state(memory)
        assert state == "by words only: 1 message to read, at once by `hermes-memory sessions rebuild`"
        assert "127.0.0.1:9" in examine_vectors(memory)[0].detail


@pytest.mark.sqlite_only("a row of the file")
@pytest.mark.skipif(not dense.installed(), reason="needs the local model")
def test_messages_that_wait_for_their_vectors_are_counted(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")
    with open_memory(hermes_home) as memory:
        vectors = memory.sessions.past.vectors
        assert vectors is not None
        dense.encoder()  # without `wake` no thread loads it
        monkeypatch.setattr(vectors, "wake", lambda: None)
        assert vector_state(memory) == "by words only until messages are stored"
        assert [finding.state for finding in examine_vectors(memory)] == ["ok"]
        memory.sessions.create_session("s1")
        memory.sessions.append_message("s1", "user", "We adopted a puppy.")
        assert memory.sessions.past.search("a baby hound at home") == []
        assert vector_state(memory) == (
            "by words only: 1 message to read, at once by `hermes-memory sessions rebuild`"
        )
        (finding,) = examine_vectors(memory)
        assert (finding.state, "hermes-memory sessions rebuild" in finding.remedy) == ("note", True)
        vectors.build()
        assert vector_state(memory) == "on"
        assert [hit.text for hit in memory.sessions.past.search("a baby hound at home")] == [
            "We adopted a puppy."
        ]
        with memory.sessions.transaction():
            for number in range(19):
                memory.sessions.append_message("s1", "user", f"Plum {number}.")
        vectors.build()
        memory.sessions.append_message("s1", "user", "A fig.")
        assert vector_state(memory) == "on, 1 message to read"


def test_a_package_that_is_missing_is_a_fault(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")
    monkeypatch.setattr(dense, "installed", lambda: False)
    with open_memory(hermes_home) as memory:
        assert vector_state(memory) == "does not work"
        (finding,) = examine_vectors(memory)
        assert finding.state == "failed"
        assert any("a package that it needs is not installed" in problem for problem in memory.problems())


@pytest.mark.sqlite_only("a row of the file")
@pytest.mark.skipif(not dense.installed(), reason="needs the local model")
def test_commands_that_search_say_how_an_old_home_gets_its_vectors(
    hermes: Hermes, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEMANTIC, "off")
    with open_memory(hermes_home) as memory:
        for thing, place in zip(THINGS, PLACES, strict=True):
            said = f"My {thing} is in the {place} near the window."
            memory.end_turn(memory.start_session(), said, "I will remember that.")
    monkeypatch.setenv(SEMANTIC, "auto")
    monkeypatch.setattr(VectorIndex, "wake", lambda _: None)
    commands = (
        ["sessions", "search", "guitar"],
        ["recall", "my guitar?"],
        ["recall", "--batch"],
        ["eval", "--questions", "2"],
    )
    lines = '{"query": "my guitar?"}\n{"query": "my bicycle?"}\n'
    says = "Search by meaning does not know 16 messages yet; `hermes-memory sessions rebuild` reads them now."
    for words in commands:
        assert hermes(*words, typed=lines).stderr.count(says) == 1, words
    assert json.loads(hermes("recall", "my guitar?", "--json").stdout)["unread"] == 16
    assert json.loads(hermes("eval", "--questions", "2", "--json").stdout)["unread"] == 16
    monkeypatch.undo()
    monkeypatch.setenv(SEMANTIC, "auto")
    monkeypatch.setenv("HERMES_HOME", str(hermes_home.path))
    hermes("sessions", "rebuild")
    for words in commands:
        assert "rebuild" not in hermes(*words, typed=lines).stderr, words
