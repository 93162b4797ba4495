"""Mem0: its cloud, a server of one's own, or Mem0 in this process."""

from __future__ import annotations

from hermes_mem0.provider import Mem0Provider

__all__ = ["Mem0Provider"]
