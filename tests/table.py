"""Cases of one table as one test, which names those that fail. Each test costs every worker its collection."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def table(
    names: str | Sequence[str], rows: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on each row of a table, in place of `pytest.mark.parametrize`.

    Only for a test whose rows share its fixtures without harm: one that changes nothing.

    Args:
        names: Names of the parameters, as for `parametrize`.
        rows: Their values: of one parameter, or a tuple for several.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [_values(row, len(parameters)) for row in rows]
    assert cases, "a table without rows"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(**fixtures: Any) -> None:
            failures = []
            for values in cases:
                try:
                    test(**dict(zip(parameters, values, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as exc:  # noqa: BLE001  as pytest does
                    failures.append(f"{', '.join(map(repr, values))}: {type(exc).__name__}: {exc}")
            if failures:
                pytest.fail(f"{len(failures)} of {len(cases)} rows:\n" + "\n".join(failures), pytrace=False)

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate


def _values(row: Any, count: int) -> tuple[Any, ...]:
    """Return the values of a row: one value, a tuple of several, or those of `pytest.param`."""
    if isinstance(row, type(pytest.param())):
        return tuple(row.values)
    return (row,) if count == 1 else tuple(row)
