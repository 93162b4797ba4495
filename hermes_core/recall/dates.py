"""Dates and times in a question: "8 May 2023", "in May", "last week", "2023-05-08", "2023年5月"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache

_MONTHS_IN_ORDER = "january february march april may june july august september october november december"
_MONTH_NAMES = _MONTHS_IN_ORDER.split()
MONTHS = {name: i for i, name in enumerate(_MONTH_NAMES, 1)} | {
    name[:3]: i for i, name in enumerate(_MONTH_NAMES, 1)
}
MONTHS["sept"] = 9

_M = "|".join(sorted(MONTHS, key=len, reverse=True))
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_PATTERN_TEXTS = (
    rf"(?<!\d){_YEAR}[-/.](?P<number>\d{{1,2}})[-/.]{_DAY}(?!\d)",
    rf"(?<![\d.]){_DAY}\.\s?(?P<number>\d{{1,2}})\.\s?{_YEAR}(?!\d)",
    rf"(?<![\w-]){_YEAR}-(?P<number>0[1-9]|1[0-2])(?![\w-])",
    rf"{_YEAR}\s*年\s*(?:(?P<number>\d{{1,2}})\s*月\s*(?:(?P<day>\d{{1,2}})\s*日)?)?",
    r"(?<!\d)(?P<number>\d{1,2})\s*月\s*(?:(?P<day>\d{1,2})\s*日)?",
    rf"\b{_DAY}(?:\s+of)?\s+(?P<month>{_M})\b\.?(?:,?\s+{_YEAR})?\b",
    rf"\b(?P<month>{_M})\b\.?\s+{_DAY}\b(?!\d)(?:,?\s+{_YEAR}\b)?",
    rf"\b(?P<month>{_M})\b\.?,?\s+{_YEAR}\b",
    # "may" and "march" are also other words, so alone they name a month only after a word of time.
    rf"\b(?:in|during|last|since|until|early|late|mid|of|by|this|next)[\s-]+(?P<month>{_M})\b",
    r"\b(?P<month>January|February|April|June|July|August|September|October|November|December)\b",
    # A year is not a part of a word, a version or an id; only "s" may follow it, as in "the 1990s".
    rf"(?<![a-z\d_-]){_YEAR}(?:s\b|(?![a-z\d_-]))",
)
_AGO = re.compile(
    r"\b(?P<count>\d+|an?|one|two|three|four|five|six)\s+(?P<unit>day|week|month|year)s?\s+ago\b", re.I
)
_LAST = re.compile(r"\b(?P<which>last|past|this)\s+(?P<unit>week|month|year)\b", re.I)
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_DAYS_IN = {"day": 1, "week": 7, "month": 30, "year": 365}


@dataclass(frozen=True, slots=True)
class When:
    """A time that a question names: a date, or a span of time.

    Attributes:
        year: Year of the date; 0 for any year.
        month: Month of the date; 0 for any month.
        day: Day of the date; 0 for any day.
        start: Beginning of the span in epoch seconds.
        end: End of the span in epoch seconds; 0 if this is a date.
    """

    year: int = 0
    month: int = 0
    day: int = 0
    start: float = 0.0
    end: float = 0.0

    def closeness(self, moment: datetime) -> float:
        """Return how well `moment` fits this time: 1 for a match, 0.5 if a few days apart, 0 otherwise.

        From 2 days before to 14 days after a named day counts 0.5, because people also report a day's events later.
        """
        if self.end:
            return float(self.start <= moment.timestamp() < self.end)
        if self.day and self.month:
            return self._near(moment)
        return float(self.year in (0, moment.year) and self.month in (0, moment.month))

    def _near(self, moment: datetime) -> float:
        try:
            named = moment.replace(year=self.year or moment.year, month=self.month, day=self.day)
        except ValueError:
            return 0.0
        days = (moment.date() - named.date()).days
        if days == 0:
            return 1.0
        return 0.5 if -2 <= days <= 14 else 0.0


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Return the patterns, compiled at the first use: that takes 10 ms, and most programs never search."""
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in _PATTERN_TEXTS)


def find_dates(text: str, now: float | None = None, zone: tzinfo = UTC) -> tuple[tuple[When, ...], str]:
    """Return the times that `text` names, and `text` without the dates.

    Relative times, as in "last week", are found only if `now` (epoch seconds) is given. `zone` is their time zone.

    >>> find_dates("What happened on 8 May, 2023?")[0]
    (When(year=2023, month=5, day=8, start=0.0, end=0.0),)
    """
    times: list[When] = []
    for pattern in _patterns():
        for match in pattern.finditer(text):
            when = _absolute(match.groupdict())
            if when is not None:
                times.append(when)
                text = text.replace(match[0], " ", 1)
    if now is not None:
        times.extend(_relative(text, datetime.fromtimestamp(now, zone)))
    return tuple(times), text


def _absolute(parts: dict[str, str | None]) -> When | None:
    month = MONTHS.get((parts.get("month") or "").casefold()) or int(parts.get("number") or 0)
    day = int(parts.get("day") or 0)
    if month > 12 or day > 31:
        return None
    return When(int(parts.get("year") or 0), month, day)


def _relative(text: str, now: datetime) -> Iterator[When]:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    lowered = text.casefold()
    for word, back in (("yesterday", 1), ("today", 0), ("昨天", 1), ("昨日", 1), ("今天", 0), ("今日", 0)):
        if word in lowered:
            yield _span(midnight - timedelta(days=back), 1)
    for match in _AGO.finditer(text):
        size = _DAYS_IN[match["unit"].casefold()]
        count = match["count"].casefold()
        days = min(size * (_COUNTS.get(count) or int(count[:6])), 36_500)
        slack = size // 2
        yield _span(midnight - timedelta(days=days + slack), 1 + 2 * slack)
    for match in _LAST.finditer(text):
        yield _last(match["which"].casefold(), match["unit"].casefold(), midnight)


def _last(which: str, unit: str, midnight: datetime) -> When:
    if unit == "week":
        monday = midnight - timedelta(days=midnight.weekday())
        return _span(monday if which == "this" else monday - timedelta(days=7), 7 if which == "last" else 14)
    if unit == "month":
        first = midnight.replace(day=1)
        start = first if which == "this" else (first - timedelta(days=1)).replace(day=1)
        return When(start.year, start.month)
    return When(midnight.year - (which != "this"))


def _span(start: datetime, days: int) -> When:
    return When(start=start.timestamp(), end=(start + timedelta(days=days)).timestamp())
