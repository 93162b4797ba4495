"""Figures of a measurement, and how sure they are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean

RESAMPLES = 1000


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return where 95 of 100 means lie if the questions are drawn anew from those that were asked (bootstrap)."""
    chance = random.Random(0)
    means = sorted(fmean(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[RESAMPLES // 40], means[-RESAMPLES // 40]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies; 0 without values."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0
