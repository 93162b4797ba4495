from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pytest

from tests.conftest import documented_json, install_plugin

__all__ = ["documented_json", "install_plugin"]


@pytest.fixture(scope="session")
def plain_server(postgres_url: str) -> Iterator[tuple[str, str]]:
    """Address and password of a role that can't make the extension pgvector, in a database of its own."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    name = f"plain_{uuid.uuid4().hex}"
    with contextlib.closing(psycopg.connect(postgres_url, autocommit=True)) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
        admin.execute(f"CREATE DATABASE {name} OWNER {name}")
        parameters = {
            key: value for key, value in conninfo_to_dict(postgres_url).items() if key != "password"
        }
        yield make_conninfo(**{**parameters, "user": name, "dbname": name}), name  # type: ignore[arg-type]
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        admin.execute(f"DROP ROLE {name}")
