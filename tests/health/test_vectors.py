"""What status and doctor say of search by vectors."""

from __future__ import annotations

import re

import pytest

from hermes_core import open_memory
from hermes_core.config import SEMANTIC, set_value
from hermes_core.health.databases import examine_vectors, vector_state
from hermes_core.home import HermesHome
from hermes_core.recall import dense


def test_it_is_off_when_the_settings_say_so(hermes_home: HermesHome) -> None:
    set_value(hermes_home, "recall.semantic", "off")
    with open_memory(hermes_home) as memory:
        assert vector_state(memory) == "off"
        assert [finding.state for finding in examine_vectors(memory)] == ["ok"]


def test_without_the_extra_it_is_not_installed(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")
    monkeypatch.setattr(dense, "installed", lambda: False)
    with open_memory(hermes_home) as memory:
        assert vector_state(memory) == "not installed"


def test_it_says_how_a_server_stores_the_vectors(
    hermes_home: HermesHome, postgres_url: str, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numpy")
    monkeypatch.setenv(SEMANTIC, "auto")
    server = {"embeddings": "http", "embeddings_url": "http://127.0.0.1:9/v1", "embeddings_model": "m"}
    config = {"storage": {"url": postgres_url, "schema": postgres_schema}, "recall": server}
    with open_memory(hermes_home, config=config) as memory:
        vectors = memory.sessions.vectors
        assert vectors is not None
        memory.sessions.create_session("s1")
        memory.sessions.append_message("s1", "user", "We adopted a puppy.")
        state = vector_state(memory)
        assert re.fullmatch(r"on by m, (pgvector 0\.\d+\.\d+|bytea), 1 message to read", state), state
        assert "127.0.0.1:9" in examine_vectors(memory)[0].detail


@pytest.mark.sqlite_only("a row of the file")
@pytest.mark.skipif(not dense.installed(), reason="needs the extra [semantic]")
def test_messages_that_wait_for_their_vectors_are_counted(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")
    with open_memory(hermes_home) as memory:
        vectors = memory.sessions.vectors
        assert vectors is not None
        dense.encoder()  # without `wake` no thread loads it
        monkeypatch.setattr(vectors, "wake", lambda: None)
        memory.sessions.create_session("s1")
        memory.sessions.append_message("s1", "user", "We adopted a puppy.")
        assert vector_state(memory) == "on, 1 message to read"
        vectors.build()
        assert vector_state(memory) == "on"


@pytest.mark.parametrize(
    ("recall", "says"),
    [
        ({"embeddings": "http"}, "recall.semantic is 'off'"),
        ({"embeddings": "http", "embeddings_url": "http://127.0.0.1:9/v1"}, "recall.semantic is 'off'"),
        ({"embeddings_url": "http://127.0.0.1:9/v1"}, "recall.embeddings_url is 'http://127.0.0.1:9/v1'"),
        ({"embeddings_model": "bge-m3"}, "recall.embeddings_model is 'bge-m3'"),
    ],
)
def test_settings_of_embeddings_without_effect_are_named(
    hermes_home: HermesHome, recall: dict[str, str], says: str
) -> None:
    with open_memory(hermes_home, config={"recall": recall}) as memory:
        (warning, state) = examine_vectors(memory)
        assert warning.state == "warning"
        assert says in warning.detail
        assert state.state == "ok"
        assert any(says in problem for problem in memory.problems())
    with open_memory(hermes_home) as memory:
        assert [finding.state for finding in examine_vectors(memory)] == ["ok"]
        assert not any("without effect" in problem for problem in memory.problems())


def test_a_server_of_embeddings_without_a_search_is_named(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")
    config = {"recall": {"embeddings": "http"}, "sessions": {"search_enabled": False}}
    with open_memory(hermes_home, config=config) as memory:
        assert any("because sessions.search_enabled is False" in problem for problem in memory.problems())
