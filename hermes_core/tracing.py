"""The place at which telemetry, if it is on, runs the methods of the memory and its manager."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Tracer(Protocol):
    """Object that makes a span of a call."""

    def trace(self, method: str, call: functools.partial[Result]) -> Result:
        """Run `call`, a call of the method with this name, and return its result."""
        ...


class Traceable(Protocol):
    """Object with methods that are traced. Its `tracer` is None if telemetry is off."""

    @property
    def tracer(self) -> Tracer | None:
        """Return the tracer."""
        ...


Owner = TypeVar("Owner", bound=Traceable)


def traced(
    method: Callable[Concatenate[Owner, Parameters], Result],
) -> Callable[Concatenate[Owner, Parameters], Result]:
    """Return the method so that the tracer of its object, if it has one, runs each call."""

    @functools.wraps(method)
    def call(self: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if self.tracer is None:
            return method(self, *args, **kwargs)
        return self.tracer.trace(method.__name__, functools.partial(method, self, *args, **kwargs))

    return call
