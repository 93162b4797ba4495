"""Times from other programs: in seconds, milliseconds or finer, or not valid at all."""

from __future__ import annotations

from datetime import UTC, datetime

# The years 1 to 9999, less a day at each end, so that a moment has a date in every zone.
_FIRST, _LAST = -62_135_510_400.0, 253_402_214_400.0

_FINER = (1e3, 1e6, 1e9)
_MILLISECONDS_OF_1973 = 1e11


def epoch_seconds(value: object) -> float | None:
    """Return a time in epoch seconds, None for a value that is no time.

    A number that would be past the year 5000 was counted in milliseconds, microseconds or nanoseconds.

    >>> epoch_seconds(1716672060), epoch_seconds(1716672060000), epoch_seconds("soon"), epoch_seconds(1e300)
    (1716672060.0, 1716672060.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    if seconds < _MILLISECONDS_OF_1973:
        return seconds if seconds > _FIRST else None
    for unit in _FINER:
        if seconds / unit < _MILLISECONDS_OF_1973:
            return seconds / unit
    return None


def local_time(seconds: float) -> datetime | None:
    """Return a time in the zone of this machine, None for one that no calendar holds.

    >>> local_time(1e300) is None
    True
    """
    if not _FIRST < seconds < _LAST:
        return None
    return datetime.fromtimestamp(seconds, UTC).astimezone()
