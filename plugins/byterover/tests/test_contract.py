"""The contract of memory providers, on this one, with a `brv` that keeps to the published protocol."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import ClassVar

import pytest
from hermes_byterover import ByteRoverProvider

from hermes_memory_testing import ProviderContract
from plugins.byterover.tests.stand_in import StandInBrv


class TestByteRover(ProviderContract):
    """Turns are curated, curated memory is mirrored as files, each user has a tree of their own."""

    name = "byterover"
    recalled_from = frozenset({"sync_turn", "on_memory_write"})
    isolates_users = True
    secrets: ClassVar[Mapping[str, str]] = {"BRV_API_KEY": "good-key", "BRV_MODEL_API_KEY": "sk-model-key"}

    def make_provider(self) -> ByteRoverProvider:
        return ByteRoverProvider(pause=0.01)

    @pytest.fixture
    def backend(self, tmp_path_factory: pytest.TempPathFactory) -> StandInBrv:
        self.brv = StandInBrv(tmp_path_factory.mktemp("bin"))
        return self.brv

    @pytest.fixture
    def settings(self, backend: StandInBrv) -> Mapping[str, str]:
        return {"command": str(backend.path)}

    def outage(self) -> AbstractContextManager[None]:
        return self.brv.outage()

    def received(self) -> list[str]:
        return self.brv.said()

    def lost_answers(self) -> AbstractContextManager[None]:
        return self.brv.trouble("curate", kind="lost")
