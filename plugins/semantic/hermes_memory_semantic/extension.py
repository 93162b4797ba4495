"""Entry module of the extension `semantic`."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import IndexEntry


@hookimpl
def register_indexes(indexes: Any) -> None:
    """Register the index of meaning."""
    indexes.add(IndexEntry("semantic", "hermes_memory_semantic.vectors:make_index"))
