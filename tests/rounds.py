"""How often a test with the marker `shortened`, or one of hypothesis, repeats what it does: `make chaos` has all rounds."""

from __future__ import annotations

import os

ALL = "CHAOS_KILLS" in os.environ
"""True in `make chaos`."""


def rounds(full: int) -> int:
    """Return the number of rounds of a test that does one thing again and again.

    Args:
        full: Number of rounds in `make chaos`, of which the suite has a fifth, but at least two.
    """
    return full if ALL else max(2, full // 5)
