"""The values of Supermemory, equal in both of its APIs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory, or a passage of a document, that was found. `score` is the fit to the query from 0 to 1."""

    id: str
    text: str
    score: float = 0.0
    when: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """The data that was sent under one id. `content` is empty while the server is still reading it."""

    id: str
    content: str = ""
    status: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    updated: str = ""

    @property
    def is_read(self) -> bool:
        """True if the server is done with it, also if it failed. A server that gives no status is done with its text."""
        return self.status in ("done", "failed", *([""] if self.content else ()))
