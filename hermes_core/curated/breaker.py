"""Stops a model that keeps trying the same failing write within one turn."""

from __future__ import annotations

import threading
from collections import OrderedDict

from hermes_core.contract.values import Session

FAILURES_PER_TURN = 3
"""Refusals that a session gets in one turn with advice; after these it is told to stop."""

_SESSIONS_KEPT = 1024


class RetryBreaker:
    """Counts refusals by session; a success or a new turn starts anew. Safe for threads."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._lock = threading.Lock()

    def failed(self, session: Session, reason: str) -> str:
        """Count a refusal; what to tell the model instead of its advice once there were too many, else ""."""
        key = _key(session)
        with self._lock:
            count = self._counts.pop(key, 0) + 1
            self._counts[key] = count
            while len(self._counts) > _SESSIONS_KEPT:
                self._counts.popitem(last=False)
        if count <= FAILURES_PER_TURN:
            return ""
        return (
            f"Memory consolidation failed {count} times this turn. Stop calling this tool now, answer the person, "
            f"and leave memory as it is; nothing was changed. The last reason: {reason}"
        )

    def reset(self, session: Session) -> None:
        """Forget the refusals of this session."""
        with self._lock:
            self._counts.pop(_key(session), None)


def _key(session: Session) -> tuple[str, str]:
    # A background review shares the id of the session that it looks at, not its patience.
    return session.id, session.agent_context
