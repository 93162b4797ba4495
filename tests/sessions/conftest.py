from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core.sessions.db import SessionDB


@pytest.fixture
def db(tmp_path: Path) -> Iterator[SessionDB]:
    """A store of the test's own, with one session named s1."""
    store = SessionDB(tmp_path / "state.db")
    store.create_session("s1")
    yield store
    store.close()
