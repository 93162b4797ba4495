"""The contract of memory providers, on this one, through Honcho's SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import pytest
from hermes_honcho import HonchoProvider
from hermes_honcho.settings import KEY

from hermes_memory_testing import ProviderContract
from plugins.honcho.tests.stand_in import KEY as KNOWN
from plugins.honcho.tests.stand_in import HonchoServer


class TestHoncho(ProviderContract):
    """Turns and curated memory are recalled, and each user has a memory of their own."""

    name = "honcho"
    secrets: ClassVar[Mapping[str, str]] = {KEY: KNOWN}
    recalled_from = frozenset({"sync_turn", "on_memory_write"})
    isolates_users = True

    def make_provider(self) -> HonchoProvider:
        return HonchoProvider()

    @pytest.fixture
    def backend(self) -> Iterator[HonchoServer]:
        with HonchoServer() as server:
            self.server = server
            yield server
            assert server.complaints == []

    @pytest.fixture
    def settings(self, backend: HonchoServer) -> Mapping[str, Any]:
        return {"baseUrl": backend.url}

    def test_homes_do_not_see_each_other(self) -> None:
        self.not_claimed("two homes with one key share it; profiles of one home do not")

    def outage(self) -> AbstractContextManager[object]:
        return self.server.outage()

    def lost_answers(self) -> AbstractContextManager[object]:
        return self.server.lost_answers()

    def received(self) -> Sequence[str]:
        stored = [m for w in self.server.workspaces.values() for m in w.messages]
        return [m["content"] for m in stored if m["peer_id"] == "user"]
