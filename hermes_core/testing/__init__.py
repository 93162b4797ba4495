"""For authors of providers and hosts: the contract as a test class, fakes, guards and a stand-in server.

Importing this loads none of them; a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.testing.contract import ProviderContract
    from hermes_core.testing.fakes import Clock, RecordingProvider, make_session, make_turn

_HOMES = {
    "Clock": "fakes",
    "ProviderContract": "contract",
    "RecordingProvider": "fakes",
    "make_session": "fakes",
    "make_turn": "fakes",
}

__all__ = ["Clock", "ProviderContract", "RecordingProvider", "make_session", "make_turn"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_core.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hermes_core.testing.{_HOMES[name]}"), name)
