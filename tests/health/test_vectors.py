"""What status and doctor say of search by vectors."""

from __future__ import annotations

import pytest

from hermes_core import open_memory
from hermes_core.config import SEMANTIC, set_value
from hermes_core.health.databases import examine_vectors, vector_state
from hermes_core.home import HermesHome
from hermes_core.loader import extensions
from hermes_core.packages import find_package


def test_it_is_off_when_the_settings_say_so(hermes_home: HermesHome) -> None:
    set_value(hermes_home, "recall.semantic", "off")
    with open_memory(hermes_home) as memory:
        assert vector_state(memory) == "off"
        assert [finding.state for finding in examine_vectors(memory)] == ["ok"]


WITHOUT_PACKAGE = "extensions:\n  block: [semantic]\n"


def test_without_the_package_the_search_is_by_words(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")
    hermes_home.path.mkdir(exist_ok=True)
    hermes_home.config_yaml.write_text(WITHOUT_PACKAGE)
    with open_memory(hermes_home) as memory:
        assert vector_state(memory) == "not installed"
        (finding,) = examine_vectors(memory)
        assert (finding.state, finding.detail.partition(";")[0]) == ("ok", "not installed")
        assert "extensions.block" in finding.detail
        assert not any("meaning" in problem for problem in memory.problems())
        memory.sessions.create_session("s1")
        memory.sessions.append_message("s1", "user", "We adopted a puppy.")
        assert [hit.text for hit in memory.sessions.past.search("puppy")] == ["We adopted a puppy."]


def test_settings_that_need_the_package_name_it(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")
    # As in an environment in which it is not installed.
    monkeypatch.setattr(extensions, "installed_entry_points", tuple)
    monkeypatch.setattr("hermes_core.memory.installed_entry_points", tuple)
    with open_memory(hermes_home, config={"recall": {"embeddings": "http"}}) as memory:
        assert vector_state(memory) == "does not work"
        (finding,) = examine_vectors(memory)
        assert finding.state == "failed"
        says = [problem for problem in memory.problems() if "recall.embeddings is 'http'" in problem]
        assert len(says) == 1
        assert "the extension 'semantic' is not active" in says[0]
        assert str(find_package("hermes-memory-semantic")) in says[0]


@pytest.mark.sqlite_only("columns of the file")
def test_vectors_go_with_their_messages_without_the_package(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir(exist_ok=True)
    hermes_home.config_yaml.write_text(WITHOUT_PACKAGE)
    with open_memory(hermes_home) as memory:
        db = memory.sessions
        db.create_session("s1")
        ids = [db.append_message("s1", "user", text) for text in ("a puppy", "the rent")]
        with db.transaction() as connection:
            connection.executemany(
                "INSERT INTO vectors (message_id, piece, first, last, model, own, words) VALUES (?, 0, 0, 1, 'm', x'', x'')",
                [(number,) for number in ids],
            )
        db.rewind("s1", ids[1])
        assert [row[0] for row in db.database.execute("SELECT message_id FROM vectors")] == ids[:1]
        db.delete_session("s1")
        assert db.database.execute("SELECT 1 FROM vectors").fetchone() is None


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
