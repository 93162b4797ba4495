"""For authors of providers and hosts: the contract as a test class, fakes, guards and a stand-in server.

Importing this loads none of them; a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_memory_testing.contract import ProviderContract
    from hermes_memory_testing.fakes import (
        Clock,
        Driven,
        EveryHook,
        HangingProvider,
        RaisingProvider,
        RecordingManager,
        RecordingProvider,
        WrongTypesProvider,
        driving,
        make_session,
        make_turn,
    )
    from hermes_memory_testing.guards import Before, closed_network
    from hermes_memory_testing.http_server import Raw, StandIn, only_fields

_HOMES = {
    "Before": "guards",
    "Clock": "fakes",
    "Driven": "fakes",
    "EveryHook": "fakes",
    "HangingProvider": "fakes",
    "ProviderContract": "contract",
    "RaisingProvider": "fakes",
    "Raw": "http_server",
    "RecordingManager": "fakes",
    "RecordingProvider": "fakes",
    "StandIn": "http_server",
    "WrongTypesProvider": "fakes",
    "closed_network": "guards",
    "driving": "fakes",
    "make_session": "fakes",
    "make_turn": "fakes",
    "only_fields": "http_server",
}

__all__ = [
    "Before",
    "Clock",
    "Driven",
    "EveryHook",
    "HangingProvider",
    "ProviderContract",
    "RaisingProvider",
    "Raw",
    "RecordingManager",
    "RecordingProvider",
    "StandIn",
    "WrongTypesProvider",
    "closed_network",
    "driving",
    "make_session",
    "make_turn",
    "only_fields",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_memory_testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hermes_memory_testing.{_HOMES[name]}"), name)
