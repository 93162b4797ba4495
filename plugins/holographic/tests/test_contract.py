"""The contract of memory providers, on this one."""

from __future__ import annotations

from hermes_holographic import HolographicProvider

from hermes_memory_testing import ProviderContract


class TestHolographic(ProviderContract):
    """Facts in local files, one for each user of a home."""

    isolates_users = True

    recalled_from = frozenset({"on_memory_write"})

    def make_provider(self) -> HolographicProvider:
        return HolographicProvider()
