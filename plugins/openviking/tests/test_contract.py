"""The contract of memory providers, on this one, against versions of last year and of today."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

import pytest
from hermes_openviking import OpenVikingProvider
from hermes_openviking.settings import KEY

from hermes_memory_testing import ProviderContract
from plugins.openviking.tests.stand_in import Viking


class Contract(ProviderContract):
    """Curated memory is recalled word for word; of sessions the server recalls what it learned."""

    __test__ = False

    name = "openviking"
    recalled_from = frozenset({"on_memory_write"})
    isolates_users = True
    version: ClassVar[str] = "0.5.2"
    mode: ClassVar[str] = "dev"

    def make_provider(self) -> OpenVikingProvider:
        return OpenVikingProvider()

    @pytest.fixture
    def backend(self) -> Iterator[Viking]:
        with Viking(self.version, self.mode) as server:
            self.server = server
            yield server
        assert server.complaints == []

    @pytest.fixture
    def settings(self, backend: Viking) -> Mapping[str, str]:
        return {"endpoint": backend.url}

    def outage(self) -> AbstractContextManager[object]:
        return self.server.outage()

    @contextmanager
    def lost_answers(self) -> Iterator[None]:
        self.server.losing = "/messages/batch"
        yield
        self.server.losing = ""

    def received(self) -> list[str]:
        """What people said, in the order in which it arrived."""
        said = [message for message in self.server.messages if message["role"] == "user"]
        return [message["parts"][0]["text"] for message in said]

    def test_homes_do_not_see_each_other(self) -> None:
        self.not_claimed("two homes with one account and one profile's name share it; profiles do not")


class TestOpenViking(Contract):
    """Today's server, with a user's key."""

    __test__ = True
    mode = "api_key"
    secrets: ClassVar[Mapping[str, str]] = {KEY: "key-of-alice"}


class TestOpenVikingOfLastYear(Contract):
    """Last year's server, on one's own machine, without keys."""

    __test__ = True
    version = "0.4.9"
