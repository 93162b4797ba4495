from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.engine import Engine
from hermes_memory_semantic.embeddings import EmbeddingServer, HttpEncoder
from hermes_memory_semantic.vectors import VectorIndex
from tests.cli.conftest import hermes
from tests.outbox_of import ON_POSTGRES
from tests.sessions.conftest import server_database

__all__ = ["hermes"]

OpenStore = Callable[..., SessionStore]

# Tests that are about the file of SQLite.
OF_THE_FILE = {
    "test_vectors_of_another_model_are_made_anew",
    "test_a_kill_in_the_middle_loses_nothing",
    "test_read_only_searches_by_words",
    "test_a_repaired_store_makes_its_vectors_anew",
    "test_a_search_that_was_interrupted_while_the_model_was_loaded_can_be_made_again",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and getattr(item, "originalname", "") in OF_THE_FILE:
            item.add_marker(pytest.mark.sqlite_only("the file of the sessions"))


def vector_factory(server: EmbeddingServer | None = None) -> Callable[[Engine], VectorIndex]:
    """Return the factory of an index by the local model, or by a server of embeddings."""
    return lambda database: VectorIndex(database, HttpEncoder(server) if server is not None else None)


@pytest.fixture
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Open the test's store as often as asked, with vectors if not asked otherwise."""
    kind = getattr(request, "param", "postgresql" if ON_POSTGRES else "sqlite")
    stores: list[SessionStore] = []
    url = request.getfixturevalue("postgres_url") if kind == "postgresql" else ""
    schema = request.getfixturevalue("postgres_schema") if url else ""

    def open_it(server: EmbeddingServer | None = None, *, by_meaning: bool = True) -> SessionStore:
        place = server_database(url, schema) if url else tmp_path / "state.db"
        stores.append(SessionStore(place, make_vectors=vector_factory(server) if by_meaning else None))
        return stores[-1]

    yield open_it
    for store in stores:
        store.close()
