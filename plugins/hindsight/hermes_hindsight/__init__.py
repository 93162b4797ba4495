"""Hindsight: facts, observations and reflection, kept by a Hindsight server."""

from __future__ import annotations

from hermes_hindsight.provider import HindsightProvider

__all__ = ["HindsightProvider"]
