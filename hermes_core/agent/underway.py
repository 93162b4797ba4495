"""Whether a turn of an agent is under way, and the switch that stops what the agent does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from hermes_core.agent.cancel import Cancel
from hermes_core.errors import SessionError


class TurnGuard:
    """One turn at a time. `cancel` stops it, and the other work of the agent: a switch of its own for each piece of work, or
    one that is shared with agents that stop together.
    """

    def __init__(self, shared: Cancel | None) -> None:
        self.cancel = shared or Cancel()
        self._own = shared is None
        self._busy = threading.Lock()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Within the block a turn is under way. Raises `SessionError` where one is already."""
        if not self._busy.acquire(blocking=False):
            raise _refused()
        try:
            if self._own:  # a new one: what an earlier turn left behind stays stopped
                self.cancel = Cancel()
            yield
        finally:
            self._busy.release()

    def require_none(self) -> None:
        """Raises `SessionError` in the midst of a turn, as from a tool."""
        if self._busy.locked():
            raise _refused()

    def begin_other(self) -> None:
        """Begin work that is no turn: what was stopped before does not stop it, unless it is a part of that."""
        if self._own and not self._busy.locked():
            self.cancel = Cancel()

    def stop(self, seconds: float) -> None:
        """Stop a turn on a thread that is left behind, and wait so long for its end."""
        if self._busy.locked():
            self.cancel.set()
            if self._busy.acquire(timeout=seconds):
                self._busy.release()


def _refused() -> SessionError:
    return SessionError("a turn is under way", "wait for it, or interrupt it")
