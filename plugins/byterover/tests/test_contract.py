"""The contract of memory providers, on this one, with a `brv` that keeps to the published protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import pytest
from hermes_byterover import ByteRoverProvider

from hermes_core.testing import ProviderContract
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
    def backend(self, tmp_path: Path) -> Iterator[StandInBrv]:
        self.brv = StandInBrv(tmp_path / "bin")
        yield self.brv

    @pytest.fixture
    def settings(self, backend: StandInBrv) -> Mapping[str, str]:
        return {"command": str(backend.path)}

    def outage(self) -> AbstractContextManager[None]:
        return self.brv.outage()
