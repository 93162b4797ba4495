"""RetainDB: facts that a server extracts from every turn, typed memories, and a shared file store."""

from __future__ import annotations

from hermes_retaindb.provider import RetainDBProvider

__all__ = ["RetainDBProvider"]
