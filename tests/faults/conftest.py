"""What the tests of faults share with those of chaos: the table of `make chaos`."""

from __future__ import annotations

from tests.chaos.conftest import record

__all__ = ["record"]
