"""How often a test kills a program: `make chaos` has all rounds, the suite a fifth of them."""

from __future__ import annotations

import os


def rounds(full: int) -> int:
    """Return the number of rounds of a test that has the marker `kills`.

    Args:
        full: Number of rounds in `make chaos`, of which the suite has a fifth, but at least two.
    """
    return full if "CHAOS_KILLS" in os.environ else max(2, full // 5)
