"""Figures become a picture once they are told, so that nothing is lost where it can't be drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ParamSpec

Given = ParamSpec("Given")


def draw(plot: Callable[Given, None], *given: Given.args, **options: Given.kwargs) -> None:
    """Call `plot`, which imports matplotlib; where that is missing, end the program with one line that says so."""
    try:
        plot(*given, **options)
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != "matplotlib":
            raise
        sys.exit("the plot was not drawn: matplotlib is missing; pip install matplotlib, or --group bench")
