"""What hypothesis tries is judged by what it does, never by the clock: a busy machine fails no test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.engine import sitecustomize
from tests.postgres_server import drop_schema, server_url

settings.register_profile(
    "behaviour", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("behaviour")

pytest_plugins = []
if os.environ.get("HERMES_TEST_ENGINE") == "postgresql":
    pytest_plugins.append("tests.engine.plugin")
    sitecustomize.install()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The address of a PostgreSQL server, which all tests of this process share."""
    if os.name == "nt" and "HERMES_TEST_POSTGRES" not in os.environ:
        pytest.skip("a server is started on POSIX systems only; HERMES_TEST_POSTGRES names another one")
    with server_url() as url:
        yield url


@pytest.fixture
def postgres_schema(postgres_url: str) -> Iterator[str]:
    """The name of a schema of the test's own, which is dropped afterwards."""
    schema = f"test_{uuid.uuid4().hex}"
    yield schema
    drop_schema(postgres_url, schema)
