"""What status, problems and doctor say of search by meaning."""

from __future__ import annotations

import pytest

from hermes_core import open_memory
from hermes_core.config import SEMANTIC
from hermes_core.health.databases import examine_vectors, vector_state
from hermes_core.home import HermesHome
from hermes_memory_semantic import dense


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
        assert vector_state(memory) == "by words only until messages are stored"
        assert [finding.state for finding in examine_vectors(memory)] == ["ok"]
        dense.encoder()  # without `wake` no thread loads it
        monkeypatch.setattr(vectors, "wake", lambda: None)
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
