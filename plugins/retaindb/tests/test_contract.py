"""The contract of memory providers, on this one, against each flavour of the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import ClassVar

import pytest
from hermes_retaindb import RetainDBProvider
from hermes_retaindb.settings import KEY

from hermes_memory_testing import ProviderContract
from plugins.retaindb.tests.stand_in import KEY as KNOWN
from plugins.retaindb.tests.stand_in import Flavour, RetainDB


class TestRetainDB(ProviderContract):
    """Turns and entries are recalled; users and profiles have memories of their own."""

    name = "retaindb"
    recalled_from = frozenset({"sync_turn", "on_memory_write"})
    isolates_users = True
    exactly_once = False
    secrets: ClassVar[Mapping[str, str]] = {KEY: KNOWN}
    flavour: ClassVar[Flavour] = "cloud"

    def make_provider(self) -> RetainDBProvider:
        return RetainDBProvider()

    @pytest.fixture
    def backend(self) -> Iterator[RetainDB]:
        with RetainDB(self.flavour) as server:
            self.server = server
            yield server
            assert not server.complaints

    @pytest.fixture
    def settings(self, backend: RetainDB, request: pytest.FixtureRequest) -> Mapping[str, object]:
        told = {"base_url": backend.url, "timeout": 10.0}
        # A copy of a home has a project of its own, by its folder's name, unless one is set.
        return {**told, "project": "p"} if "killed_process" in request.node.name else told

    def outage(self) -> AbstractContextManager[None]:
        return self.server.outage()

    def received(self) -> list[str]:
        return self.server.said


class TestRetainDBLocal(TestRetainDB):
    """RetainDB Local: no key, and less of the API."""

    secrets: ClassVar[Mapping[str, str]] = {}
    flavour: ClassVar[Flavour] = "local"
