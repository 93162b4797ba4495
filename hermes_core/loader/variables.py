"""Environment variables that a provider's code reads while it is made, before a host can pass settings to it."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterator
from typing import TypeVar

from hermes_core.config import Credentials
from hermes_core.home import HermesHome
from hermes_core.loader.guard import ForeignError, call_foreign

Result = TypeVar("Result")

# Of a message in words, as "POND_KEY is not set". Other words in capitals are names of errors.
_VARIABLE = re.compile(
    r"\b[A-Z][A-Z0-9_]*_(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?|URL|URI|HOST|ENDPOINT|USER|ACCOUNT|DSN)\b"
)


def unset_variables(error: BaseException) -> list[str]:
    """Return the environment variables that an exception asks for, as `os.environ["POND_KEY"]` does."""
    names = [name for cause in _causes(error) for name in _names(cause)]
    return [name for name in dict.fromkeys(names) if not os.environ.get(name)]


def call_with_stored_variables(home: HermesHome, function: Callable[[], Result]) -> Result:
    """Call `function`. If it asks for variables that only `.env` has, lend them to it and call it again."""
    lent: list[str] = []
    try:
        while isinstance(result := call_foreign(function), ForeignError):
            stored = Credentials(home).for_environment()
            names = [name for name in unset_variables(result.error) if stored.get(name)]
            if not names:
                raise result.error
            os.environ.update({name: stored[name] for name in names})
            lent += names
        return result
    finally:
        for name in lent:
            os.environ.pop(name, None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        yield current
        seen.append(current)
        current = current.__cause__ or current.__context__


def _names(error: BaseException) -> list[str]:
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        if frames and frames[-1].f_globals.get("__name__") == "os":
            return [error.args[0]]
    return _VARIABLE.findall(str(error))
