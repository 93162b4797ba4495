"""What status and doctor say of search by vectors."""

from __future__ import annotations

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


@pytest.mark.sqlite_only("search by meaning, which is off on a server")
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
