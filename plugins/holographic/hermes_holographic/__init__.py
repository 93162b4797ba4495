"""Holographic: facts about people and projects in one local SQLite file, found by words, names and vectors."""

from __future__ import annotations

from hermes_holographic.provider import HolographicProvider

__all__ = ["HolographicProvider"]
