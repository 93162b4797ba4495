"""The manager's fixtures: delivery is tested with the real workers."""

from __future__ import annotations

from tests.manager.conftest import clock, left_behind, open_manager

__all__ = ["clock", "left_behind", "open_manager"]
