"""A stored session, read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hermes_core.contract.values import Message
from hermes_core.sessions.records import StoredMessage


class StoredTranscript:
    """Reads a stored session when asked, so that what was rewound since is not in it."""

    def __init__(self, read: Callable[[], Sequence[StoredMessage]]) -> None:
        self._read = read

    def messages(self) -> Sequence[Message]:
        """All messages up to the one that was recorded, oldest first; none when the session was deleted."""
        return [message.as_text() for message in self._read()]
