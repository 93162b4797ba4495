"""The contract of memory providers, on this one, against each API of the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import ClassVar, Literal

import pytest
from hermes_supermemory import SupermemoryProvider
from hermes_supermemory.settings import KEY

from hermes_memory_testing import ProviderContract
from plugins.supermemory.tests.stand_in import KEY as KNOWN
from plugins.supermemory.tests.stand_in import Supermemory


class TestSupermemory(ProviderContract):
    """Turns and entries are recalled, once each; users have containers of their own. API v5, by the vendor's SDK."""

    name = "supermemory"
    recalled_from = frozenset({"sync_turn", "on_memory_write"})
    isolates_users = True
    secrets: ClassVar[Mapping[str, str]] = {KEY: KNOWN}
    speaks: ClassVar[Literal["v5", "v4"]] = "v5"

    def make_provider(self) -> SupermemoryProvider:
        return SupermemoryProvider()

    @pytest.fixture
    def backend(self) -> Iterator[Supermemory]:
        with Supermemory(self.speaks) as server:
            self.server = server
            yield server
            assert not server.complaints

    @pytest.fixture
    def settings(self, backend: Supermemory) -> Mapping[str, object]:
        return {"base_url": backend.url, "api_timeout": 10.0, "min_score": 0.3}

    def outage(self) -> AbstractContextManager[None]:
        return self.server.outage()

    def lost_answers(self) -> AbstractContextManager[None]:
        return self.server.lost_answers()

    def received(self) -> list[str]:
        return self.server.said

    def test_homes_do_not_see_each_other(self) -> None:
        self.not_claimed("two homes on one account share it; profiles of one home do not")


class TestSupermemoryV4(TestSupermemory):
    """A server that has no v5 yet: found out by the first call."""

    speaks = "v4"
