"""The border to code that we did not write: whatever it raises while it is loaded or asked is a value here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Failure:
    """What foreign code raised."""

    error: BaseException

    def __str__(self) -> str:
        text = str(self.error).strip().splitlines()
        return f"{type(self.error).__name__}: {text[0]}" if text else type(self.error).__name__


def attempt(action: Callable[[], Result]) -> Result | Failure:
    """Run foreign code; whatever it raises is a value. Also SystemExit; only the person's interrupt goes through."""
    try:
        return action()
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        logger.debug("a provider's code raised", exc_info=True)
        return Failure(exc)
