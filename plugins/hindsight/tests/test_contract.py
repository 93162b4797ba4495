"""The contract of memory providers, on this one: through the real SDK, against a server as strict as the published API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

import pytest
from hermes_hindsight import HindsightProvider

from hermes_memory_testing import ProviderContract
from plugins.hindsight.tests.stand_in import KEY, HindsightServer


class TestHindsight(ProviderContract):
    """Turns and curated memory are recalled, and each user has a bank."""

    name = "hindsight"
    recalled_from = frozenset({"sync_turn", "on_memory_write"})
    isolates_users = True
    secrets: ClassVar[Mapping[str, str]] = {"HINDSIGHT_API_KEY": KEY}

    def make_provider(self) -> HindsightProvider:
        return HindsightProvider()

    @pytest.fixture
    def backend(self) -> Iterator[HindsightServer]:
        with HindsightServer(KEY) as self.server:
            yield self.server
        assert self.server.complaints == []

    @pytest.fixture
    def settings(self, backend: HindsightServer) -> Mapping[str, str]:
        return {"mode": "local_external", "api_url": backend.url}

    def outage(self) -> AbstractContextManager[None]:
        return self.server.outage()

    @contextmanager
    def lost_answers(self) -> Iterator[None]:
        # Not those of GET /version, without which nothing is sent.
        self.server.fail("POST", "*", cut=True)
        try:
            yield
        finally:
            self.server.heal()

    def received(self) -> list[str]:
        return self.server.said()

    def test_homes_do_not_see_each_other(self) -> None:
        self.not_claimed("two homes on one server share its banks; profiles and users of one home do not")
