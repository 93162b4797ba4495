"""A store of skills in a temporary home, with a folder of a team beside it that is only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.engine import Engine
from hermes_memory_agent.skills.store import SkillStore
from hermes_memory_postgresql.engine import PostgresEngine


def skill(name: str = "deploy", description: str = "Deploy the site.", **fields: str) -> str:
    front = {"name": name, "description": description, **fields}
    return "---\n" + "".join(f"{key}: {value}\n" for key, value in front.items()) + "---\n1. Run it.\n"


def write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """The database of the home, which is a file or, for tests that ask for it, on a server."""
    if getattr(request, "param", "sqlite") == "sqlite":
        with closing(SessionStore(tmp_path / "state.db")) as sessions:
            yield sessions.database
        return
    url, schema = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")
    with closing(PostgresEngine(url, schema=schema)) as engine:
        yield engine


@pytest.fixture
def store(tmp_path: Path, database: Engine) -> SkillStore:
    (tmp_path / "team").mkdir()
    return SkillStore(tmp_path / "skills", database, ["team"], platform="linux")
