"""The connections of the engine: those of psycopg with a limit of time for commits, and with types of our own."""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Loader
from psycopg.types.numeric import Int8Dumper

Result = TypeVar("Result")

# Seconds to wait for a server to take a request to cancel.
CANCEL_TIMEOUT_S = 2


class PostgresConnection(psycopg.Connection[Any]):
    """Connection that asks the server to cancel what it does at `deadline`, a time of `time.monotonic`.

    No timeout of the server covers the wait of a commit for a standby: it ends with an answer of the standby, or with
    such a request.
    """

    deadline: float | None = None

    def wait(self, gen: Generator[Any, Any, Result], *args: Any, **options: Any) -> Result:
        """Run an operation of psycopg, and look for the deadline if there is one."""
        return super().wait(gen if self.deadline is None else self._limited(gen), *args, **options)

    def _limited(self, gen: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        ready = None
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as end:
                result: Result = end.value
                return result
            # psycopg comes here every 0.1 s, also if the server has sent nothing.
            if self.deadline is not None and self.deadline <= time.monotonic():
                self.deadline = None
                # A server that does not answer has lost the connection, as the commit will notice.
                with contextlib.suppress(Exception):
                    self.cancel_safe(timeout=CANCEL_TIMEOUT_S)
            ready = yield wanted

    def adapt(self) -> None:
        """Send each int as bigint, and return each numeric as int or float.

        psycopg would choose the type by the value. An index over a bigint column, of GIN above all, can't be used for a
        comparison with a smaller type.
        """
        self.adapters.register_dumper(int, Int8Dumper)
        self.adapters.register_loader("numeric", _NumberLoader)

    def is_alive(self) -> bool:
        """Return False if the server has closed this connection, which nobody uses, as all are after its restart."""
        if self.closed:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno(), selectors.EVENT_READ)
            # It may also have sent a notice. A message of its end is followed by the end.
            for _ in range(3):
                if not selector.select(0):
                    return True
                try:
                    self.pgconn.consume_input()
                except psycopg.OperationalError:
                    return False
        return False


class _NumberLoader(Loader):
    """Loader of sums and averages, which are numeric in PostgreSQL."""

    def load(self, data: Any) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)
