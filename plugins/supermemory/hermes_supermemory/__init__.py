"""Supermemory: a graph of memories and a profile of the person, made from every turn."""

from __future__ import annotations

from hermes_supermemory.provider import SupermemoryProvider

__all__ = ["SupermemoryProvider"]
