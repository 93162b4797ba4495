"""The contract of memory providers, on this one: on the cloud, on a server of one's own, and in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import pytest
from hermes_mem0 import Mem0Provider

from hermes_memory_testing import ProviderContract
from plugins.mem0.tests.stand_in import KEY, Cloud, Models, OwnServer


class Mem0Contract(ProviderContract):
    """Turns and curated memory are recalled, and each user has memories of their own."""

    __test__ = False
    name = "mem0"
    recalled_from = frozenset({"sync_turn", "on_memory_write"})
    isolates_users = True

    def make_provider(self) -> Mem0Provider:
        return Mem0Provider()

    def outage(self) -> AbstractContextManager[None]:
        return self.server.outage()

    def lost_answers(self) -> AbstractContextManager[None]:
        return self.server.lost_answers()


class TestMem0Cloud(Mem0Contract):
    """`MemoryClient` of the SDK."""

    __test__ = True
    secrets: ClassVar[Mapping[str, str]] = {"MEM0_API_KEY": KEY}

    @pytest.fixture
    def backend(self) -> Iterator[Cloud]:
        with Cloud() as self.server:
            yield self.server
        assert self.server.complaints == []

    @pytest.fixture
    def settings(self, backend: Cloud) -> Mapping[str, Any]:
        return {"api_url": backend.url}

    def received(self) -> list[str]:
        return self.server.memories.texts()

    def test_homes_do_not_see_each_other(self) -> None:
        self.not_claimed("two homes on one account share it; profiles of one home do not")


class TestMem0Server(Mem0Contract):
    """The server of Mem0's repository."""

    __test__ = True
    secrets: ClassVar[Mapping[str, str]] = {"MEM0_API_KEY": KEY}

    @pytest.fixture
    def backend(self) -> Iterator[OwnServer]:
        with OwnServer() as self.server:
            yield self.server
        assert self.server.complaints == []

    @pytest.fixture
    def settings(self, backend: OwnServer) -> Mapping[str, Any]:
        return {"mode": "selfhosted", "host": backend.url}

    def received(self) -> list[str]:
        return self.server.memories.texts()

    def test_homes_do_not_see_each_other(self) -> None:
        self.not_claimed("two homes on one server share it; profiles of one home do not")


class TestMem0InProcess(Mem0Contract):
    """`mem0.Memory` over Qdrant's files, with an embedding server on loopback."""

    __test__ = True

    @pytest.fixture
    def backend(self) -> Iterator[Models]:
        with Models() as self.server:
            yield self.server
        assert self.server.complaints == []

    @pytest.fixture
    def settings(self, backend: Models) -> Mapping[str, Any]:
        return {"mode": "oss", "embedder": "openai", "embedder_url": f"{backend.url}/v1"}

    def received(self) -> list[str]:
        provider: Mem0Provider = self._runs[-1].provider
        found = provider.client.listed("hermes-user", 1000)
        return [one.text for one in sorted(found, key=lambda one: one.when)]

    def test_tools_in_an_outage_say_so(self) -> None:
        self.not_claimed("what is down is the embedder, and listing needs none")

    def test_two_processes_keep_what_the_other_stored(self) -> None:
        self.not_claimed("Qdrant's files are open in one process at a time, and the second is told so")
