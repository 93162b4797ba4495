"""The place at which telemetry, if it is on, runs the methods of the memory and its manager."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Tracer(Protocol):
    """Object that makes a span of a call."""

    def trace(self, method: str, call: functools.partial[Result]) -> Result:
        """Run `call`, a call of the method with this name, and return its result."""
        ...


class Span(Protocol):
    """An open span."""

    def end(self, error_type: str = "") -> None:
        """End the span. A second call does nothing."""


class MemoryTracer(Tracer, Protocol):
    """Tracer of one memory.

    Attributes:
        observers: The observers that the manager of the memory needs for it.
    """

    @property
    def observers(self) -> Sequence[object]:
        """Return the observers."""
        ...

    def watch(self, manager: Any) -> None:
        """Report the state of a `MemoryManager` until it is shut down."""
        ...


class Telemetry(Protocol):
    """Settings of telemetry, which the extension `telemetry` makes. Several memories may share one object."""

    def tracer_of(self, store_id: str, provider: Callable[[], str]) -> MemoryTracer:
        """Return the tracer of a memory.

        Args:
            store_id: Name of the profile, never the id of a user.
            provider: Returns the name of the external provider; "" for none.
        """
        ...


class Traceable(Protocol):
    """Object with methods that are traced. Its tracer is None if telemetry is off."""

    @property
    def _tracer(self) -> Tracer | None:
        """Return the tracer."""
        ...


Owner = TypeVar("Owner", bound=Traceable)


def traced(
    method: Callable[Concatenate[Owner, Parameters], Result],
) -> Callable[Concatenate[Owner, Parameters], Result]:
    """Return the method so that the tracer of its object, if it has one, runs each call."""

    @functools.wraps(method)
    def call(self: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if self._tracer is None:
            return method(self, *args, **kwargs)
        return self._tracer.trace(method.__name__, functools.partial(method, self, *args, **kwargs))

    return call
