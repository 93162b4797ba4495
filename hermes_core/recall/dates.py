"""Dates and times in a question: "8 May 2023", "in May", "last week", "before March", "since Easter", "2023年5月"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache

from msgspec import Struct, structs

from hermes_core.recall.calendar_words import find_times
from hermes_core.recall.tokens import dense_runs, is_stop_word, words

_MONTHS_IN_ORDER = "january february march april may june july august september october november december"
_MONTH_NAMES = _MONTHS_IN_ORDER.split()
MONTHS = {name: i for i, name in enumerate(_MONTH_NAMES, 1)} | {
    name[:3]: i for i, name in enumerate(_MONTH_NAMES, 1)
}
MONTHS["sept"] = 9
_WEEKDAYS = {
    name: i
    for i, name in enumerate(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])
}

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
    rf"\b(?:in|during|last|since|until|till|before|after|between|from|to|early|late|mid|of|by|this|next)[\s-]+(?P<month>{_M})\b",
    r"\b(?P<month>January|February|April|June|July|August|September|October|November|December)\b",
    r"\band\s+(?P<month>(?-i:March|May))\b",
    # A year is not a part of a word, a version or an id; only "s" may follow it, as in "the 1990s".
    rf"(?<![a-z\d_-]){_YEAR}(?:s\b|(?![a-z\d_-]))",
)

_COUNTS = {"a": 1, "an": 1, "couple of": 2, "few": 3} | {
    name: i
    for i, name in enumerate(
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"], 1
    )
}
_COUNTS |= {name: i for i, name in enumerate("一二三四五六七八九十", 1)} | {"两": 2, "几": 3}
_COUNT = rf"(?P<count>\d+|(?:a\s+)?(?:couple\s+of|few)|{'|'.join(sorted(_COUNTS, key=len, reverse=True))})"
_UNIT = r"(?P<unit>day|week|month|year)s?"
_DAYS_IN = {
    "day": 1,
    "week": 7,
    "month": 30,
    "year": 365,
    "天": 1,
    "日": 1,
    "周": 7,
    "星期": 7,
    "月": 30,
    "年": 365,
}
_DAYS_AGO = {
    "day before yesterday": 2, "yesterday": 1, "last night": 1, "today": 0, "tonight": 0, "this morning": 0,
    "前天": 2, "一昨日": 2, "昨天": 1, "昨日": 1, "昨晚": 1, "今天": 0, "今日": 0, "gestern": 1, "vorgestern": 2, "heute": 0,
}  # fmt: skip
# Month and day of the first of some days. Easter moves, and is computed.
_HOLIDAYS = {
    "easter": (0, 0), "ostern": (0, 0), "复活节": (0, 0), "christmas": (12, 25), "weihnachten": (12, 25),
    "圣诞节": (12, 25), "new year's eve": (12, 31), "new year": (1, 1), "元旦": (1, 1), "halloween": (10, 31),
    "valentine's day": (2, 14),
}  # fmt: skip
# First month of a season on the northern half of the earth.
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}

# A bound is the word that makes a time the beginning or the end of a span.
_BOUNDS = {
    "before": "end", "prior to": "end", "until": "end", "till": "end", "up to": "end", "bis": "end",
    "since": "start", "from": "start", "seit": "start", "自从": "start", "after": "past", "nach": "past",
}  # fmt: skip
_BOUND_BEFORE = re.compile(
    rf"(?:\b(?P<bound>{'|'.join(sorted(_BOUNDS, key=len, reverse=True))})\s+|自从\s*)(?:the\s+)?$", re.I
)
_BOUND_AFTER = re.compile(r"\s*(?:(?P<end>之前|以前)|(?P<past>之后|以后)|(?P<start>以来|起))")

# A date with a time of day, or without separators, as a program writes them.
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]|\d{8}|\d{4}-W")

# End of a span that has no end.
FAR_FUTURE = 32_503_680_000.0


class When(Struct, frozen=True):
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

    def span(self, now: datetime) -> tuple[float, float] | None:
        """Return beginning and end in epoch seconds; None for a day that does not exist.

        A day or month without a year is the last one that began before `now`.
        """
        if self.end:
            return self.start, self.end
        year, month, day = self.year or now.year, self.month or 1, self.day or 1
        if not self.year and (month, day) > (now.month, now.day):
            year -= 1
        try:
            start = datetime(year, month, day, tzinfo=now.tzinfo)
            if self.day:
                end = start + timedelta(days=1)
            elif self.month:
                end = (start + timedelta(days=31)).replace(day=1)
            else:
                end = start.replace(year=year + 1)
            return start.timestamp(), end.timestamp()
        except (ValueError, OverflowError):
            return None


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Return the patterns, compiled at the first use: that takes 10 ms, and most programs never search."""
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in _PATTERN_TEXTS)


@cache
def _relative_patterns() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of times that count from now; each has the groups that `_relative` reads."""
    texts = (
        rf"\b(?P<days>{'|'.join(name for name in _DAYS_AGO if name.isascii())})\b",
        rf"(?P<days>{'|'.join(name for name in _DAYS_AGO if not name.isascii())})",
        rf"\b{_COUNT}\s+{_UNIT}\s+ago\b",
        r"(?P<count>\d+|[一二三四五六七八九十两几])个?(?P<unit>天|日|周|星期|月|年)前",
        rf"\b(?:last|past|previous)\s+(?P<recent>){_COUNT}\s+{_UNIT}\b",
        r"\b(?P<which>last|past|previous|this)\s+(?P<unit>weekend|week|month|year)\b",
        r"\b(?P<which>letzte|diese)[nrsm]?\s+(?P<unit>woche|monat|jahr)\b",
        r"(?P<which>上个?|这个?|本)(?P<unit>周末|周|星期|月)|(?P<which2>去|今)(?P<unit2>年)",
        rf"\b(?:last|past|on|since|before|after|until|till|from)\s+(?P<weekday>{'|'.join(_WEEKDAYS)})\b",
        # "in Spring" may be a framework.
        rf"\b(?:(?:last|this|since|before|after|until)\s+|(?:in|during)\s+the\s+)(?P<season>{'|'.join(_SEASONS)})\b",
        rf"\b(?P<holiday>{'|'.join(name for name in _HOLIDAYS if name.isascii())})\b",
        rf"(?P<holiday>{'|'.join(name for name in _HOLIDAYS if not name.isascii())})",
        r"\b(?:on|since|before|after|until|till|from)\s+the\s+(?P<monthday>\d{1,2})(?:st|nd|rd|th)\b(?!\s+\w*\s*(?:time|century))",
    )
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in texts)


def find_dates(text: str, now: float | None = None, zone: tzinfo = UTC) -> tuple[tuple[When, ...], str]:
    """Return the times that `text` names, and `text` without the dates.

    Relative times, as in "last week", and bounds, as in "before March", are read only if `now` (epoch seconds) is given.
    `zone` is their time zone.

    >>> find_dates("What happened on 8 May, 2023?")[0]
    (When(year=2023, month=5, day=8, start=0.0, end=0.0),)
    """
    times, undated, _ = read_times(text, now, zone)
    return times, undated


def read_times(text: str, now: float | None, zone: tzinfo) -> tuple[tuple[When, ...], str, str]:
    """Return the times that `text` names, `text` without the dates, and `text` without any words for times."""
    at = None if now is None else datetime.fromtimestamp(now, zone)
    places: list[tuple[int, int, When]] = []
    covered = text
    for pattern in _patterns():
        for match in pattern.finditer(covered):
            when = _absolute(match.groupdict())
            if when is not None:
                places.append((*match.span(), when))
                covered = _without(covered, *match.span())
    undated = covered
    if at is not None:
        # Matches overlap: a bound belongs to the match, and "last 3 weeks" is no "last week".
        for pattern in _relative_patterns():
            for match in pattern.finditer(covered):
                when = _relative(match, at)
                if when is not None:
                    places.append((*match.span(), when))
                    covered = _without(covered, *match.span())
        for first, last, when in _in_other_words(covered, at):
            places.append((first, last, when))
            covered = _without(covered, first, last)
        if places:
            places = list(_with_bounds(text, sorted(places, key=lambda place: place[:2]), at))
    return tuple([when for _, _, when in places]), undated, covered


# Words by which a question asks for anything that was done or said, in the languages in which times are read.
_ANYTHING = re.compile(
    r"\b(?:do|did|does|done|doing|happen\w*|summari[sz]e\w*|summary|recap\w*|review|talk\w*|discuss\w*|say|said|going on|news|"
    r"overview|anything|everything|mach\w*|gemacht|tat\w*|getan|passier\w*|geschah|geschehen|war los|fass\w*|zusammen\w*|gesprochen|"
    r"besprochen|geredet|erzähl\w*|gesagt|hice|hicimos|hizo|hecho|pasó|ocurrió|resum\w*|hablamos|hablé|dije|fait\w*|fais\w*|passé\w*|"
    r"arrivé\w*|résum\w*|parl\w*|dit|fatto|fatta|successo|riassum\w*|detto|fiz|fizemos|aconteceu|falamos|gedaan|gebeurd\w*|"
    r"samenvat\w*|gezegd|gesproken|делал\w*|сделал\w*|случил\w*|произошло|было|говорил\w*|обсуждал\w*|итог\w*|перескаж\w*|подытож\w*|"
    r"robił\w*|zrobił\w*|stało|działo|yaptım|yaptık|oldu|konuştuk|gjorde|hände|skedde|skjedde|tein|teimme|tapahtui|dělal\w*|stalo)\b"
    r"|做|发生|干|说|聊|总结|何|した|話|まとめ|무엇|했|요약",
    re.IGNORECASE,
)

# Letters of a word that may stand beside them in any language, as in "was habe ich", and characters of dense scripts.
MAX_SMALL_WORD = 4
_SMALL = re.compile(
    r"\b(?:what|when|there|were|about|have|been|please|with|worüber|haben|hatte\w*|wurde\w*|bitte|über|quelles?|avons|avez|"
    r"cosas|cosa|abbiamo|która|когда|какие|расскажи)\b|[我我们你们的了过什么事情哪些在是有吗呢都请一下？はがをのにでましたか私たち다을를나는우리]",
    re.IGNORECASE,
)


def asks_for_anything(rest: str) -> bool:
    """Return True if a question asks for anything of the times that it names.

    Args:
        rest: The question without the words for times.

    >>> asks_for_anything("What did I do ?"), asks_for_anything("What did I buy at the market ?")
    (True, False)
    """
    left = _SMALL.sub(" ", _ANYTHING.sub(" ", rest))
    pieces = (piece for word in words(left) if not is_stop_word(word) for piece in re.split("['’]", word))
    small = all(len(piece) <= MAX_SMALL_WORD for piece in pieces)
    return bool(_ANYTHING.search(rest)) and not dense_runs(left) and small


def time_bounds(text: str, now: float, zone: tzinfo) -> tuple[float, float] | None:
    """Return beginning and end, in epoch seconds, of the time that a text names; None if it names no single time.

    >>> time_bounds("March 2024", 0.0, UTC)
    (1709251200.0, 1711929600.0)
    """
    at = datetime.fromtimestamp(now, zone)
    # A word such as "in" lets "may" and "Friday" name a time.
    for phrase in (text, f"in {text}", f"on {text}", f"on the {text}"):
        times, _ = find_dates(phrase, now, zone)
        if len(times) == 1:
            return times[0].span(at)
    return None


# Characters of a time that a person or a model names.
MAX_MOMENT_CHARS = 100


def read_moment(text: str, now: float, zone: tzinfo, *, end: bool = False) -> float:
    """Return a time in epoch seconds from an ISO date or time, or from words such as "last week" or "March".

    Raises `ValueError` for text that names no time.

    Args:
        text: The time.
        now: The current time in epoch seconds.
        zone: Time zone of a text that names none.
        end: True to return the end of a day, week or month that the text names, False for its beginning.
    """
    text = text.strip()
    if len(text) > MAX_MOMENT_CHARS:
        raise ValueError(f"{text[:40]!r}... is not a date: it has {len(text):,} characters")
    bounds = None if _ISO_TIME.match(text) else time_bounds(text, now, zone)
    if bounds is not None:
        return bounds[end]
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (OverflowError, ValueError) as exc:
        raise ValueError(f"{text!r} is not a date") from exc


_FIRST = re.compile(
    r"\bwhen\b[^.?!]*\bfirst\b|\b(?:for\s+)?the\s+first\s+time\b|\bfirst\s+(?:mention|talk|hear|meet|met|said|say)"
    r"|\bearliest\b|\bzum\s+ersten\s+mal\b|\bpremière\s+fois\b|\bprimera\s+vez\b|\bвпервые\b|第一次|最早|首次|初めて",
    re.I,
)


def asks_for_first(question: str) -> bool:
    """Return True if a question asks for the first of several times.

    >>> asks_for_first("When did I first ride a horse?"), asks_for_first("What was on the first page?")
    (True, False)
    """
    return bool(_FIRST.search(question))


def _without(text: str, first: int, last: int) -> str:
    """Return a text of the same length with spaces from `first` to `last`."""
    return text[:first] + " " * (last - first) + text[last:]


def _absolute(parts: dict[str, str | None]) -> When | None:
    month = MONTHS.get((parts.get("month") or "").casefold()) or int(parts.get("number") or 0)
    day = int(parts.get("day") or 0)
    if month > 12 or day > 31:
        return None
    return When(int(parts.get("year") or 0), month, day)


def _with_bounds(
    text: str, places: list[tuple[int, int, When]], now: datetime
) -> Iterator[tuple[int, int, When]]:
    """Yield the times, those after "before", "since" or between two times as spans."""
    skip = False
    for number, (first, last, when) in enumerate(places):
        if skip:
            skip = False
            continue
        span, following = when.span(now), places[number + 1] if number + 1 < len(places) else None
        if span is None:
            yield first, last, when
            continue
        if following is not None and _joins(text, places[number], following):
            # "from May to July 2023" names the year once.
            year = when.year or following[2].year
            joined = _joined(structs.replace(when, year=year), following[2], now)
            if joined is not None:
                skip = True
                yield first, following[1], joined
                continue
        yield first, last, _bounded(when, span, _bound(text, first, last))


def _joins(text: str, place: tuple[int, int, When], following: tuple[int, int, When]) -> bool:
    """Return True if the text says "between" or "from" the first time "and" or "to" the second."""
    named = re.search(r"\b(?:between|from|zwischen|von)\s+$", text[: place[0]], re.I)
    inside = text[place[0] : place[1]].casefold().startswith(("between", "from"))
    words = text[place[1] : following[1]].split()
    return (
        bool(named or inside)
        and bool(words)
        and words[0].casefold() in ("and", "to", "until", "till", "bis", "und", "-", "–")
    )


def _joined(when: When, other: When, now: datetime) -> When | None:
    """Return the span from the beginning of a time to the end of another; None if that is no span."""
    first, last = when.span(now), other.span(now)
    if first is not None and last is not None and first[0] >= last[1] and when.month > other.month:
        first = structs.replace(when, year=other.year - 1).span(now)
    return When(start=first[0], end=last[1]) if first and last and first[0] < last[1] else None


def _bound(text: str, first: int, last: int) -> str:
    """Return what a word beside a time makes of it: "start", "end" or "past" (after its end); "" without such a word."""
    if (behind := _BOUND_AFTER.match(text, last)) is not None:
        return str(behind.lastgroup)
    inside = text[first:last].split(maxsplit=1)[0].casefold() if text[first:last].strip() else ""
    if inside in _BOUNDS:
        return _BOUNDS[inside]
    before = _BOUND_BEFORE.search(text[:first])
    if before is None:
        return ""
    return _BOUNDS[" ".join((before["bound"] or "自从").casefold().split())]


def _bounded(when: When, span: tuple[float, float], bound: str) -> When:
    if bound == "end":
        # Epoch second 0 as an end would mean a date.
        return When(start=0.0, end=max(span[0], 1.0))
    if bound:
        return When(start=span[0] if bound == "start" else span[1], end=FAR_FUTURE)
    return when


def _relative(match: re.Match[str], now: datetime) -> When | None:
    """Return the time of a match of one of `_relative_patterns`; None for a day that does not exist."""
    parts = {name: value.casefold() for name, value in match.groupdict().items() if value is not None}
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if "days" in parts:
        return _day(midnight - timedelta(days=_DAYS_AGO[parts["days"]]))
    if "count" in parts:
        size = _DAYS_IN[parts["unit"]]
        count = " ".join(parts["count"].removeprefix("a ").split())
        days = min(size * (_COUNTS.get(count) or int(count[:6])), 36_500)
        if "recent" in parts:
            return _days(midnight - timedelta(days=days), days + 1)
        return _days_ago(midnight, days // size, size)
    if "weekday" in parts:
        back = (midnight.weekday() - _WEEKDAYS[parts["weekday"]] - 1) % 7 + 1
        return _day(midnight - timedelta(days=back))
    if "monthday" in parts:
        return _last_monthday(int(parts["monthday"]), midnight)
    if "season" in parts:
        return _last_season(_SEASONS[parts["season"]], midnight)
    if "holiday" in parts:
        return _last_holiday(parts["holiday"], midnight)
    which, unit = parts.get("which") or parts["which2"], parts.get("unit") or parts["unit2"]
    return _last(
        which in ("this", "diese", "这", "这个", "本", "今"), _UNITS.get(unit, unit), midnight, which
    )


_UNITS = {
    "周末": "weekend", "周": "week", "星期": "week", "月": "month", "年": "year",
    "woche": "week", "monat": "month", "jahr": "year",
}  # fmt: skip


def _last(is_this: bool, unit: str, midnight: datetime, which: str) -> When:
    if unit in ("week", "weekend"):
        monday = midnight - timedelta(days=midnight.weekday())
        start = monday if is_this else monday - timedelta(days=7)
        if unit == "weekend":
            return _days(start + timedelta(days=5), 2)
        return _days(start, 14 if which == "past" else 7)
    if unit == "month":
        first = midnight.replace(day=1)
        start = first if is_this else (first - timedelta(days=1)).replace(day=1)
        return When(start.year, start.month)
    return When(midnight.year - (not is_this))


def _in_other_words(text: str, now: datetime) -> Iterator[tuple[int, int, When]]:
    """Yield start, end and time of each time that a text names in one of the languages of `calendar_words`."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    for time in find_times(text):
        if time.unit == "date":
            when = When(time.year, time.count, time.day)
        elif time.unit == "weekday":
            when = _day(midnight - timedelta(days=(midnight.weekday() - time.count - 1) % 7 + 1))
        elif time.about or time.unit == "day":
            when = _days_ago(midnight, time.count, _DAYS_IN[time.unit])
        elif time.unit == "week" and time.count > 1:
            when = _days(midnight - timedelta(days=midnight.weekday() + 7 * time.count), 7)
        elif time.count > 1:
            continue
        else:
            when = _last(time.count == 0, time.unit, midnight, "last")
        yield time.start, time.end, when


def _days_ago(midnight: datetime, count: int, size: int) -> When:
    """Return the time of so many days, weeks, months or years ago, with the days around it."""
    days, slack = min(size * count, 36_500), size // 2
    return _days(midnight - timedelta(days=days + slack), 1 + 2 * slack)


def _last_monthday(day: int, midnight: datetime) -> When | None:
    """Return the last day with this number in its month that is not after today; None for 0 and numbers above 31."""
    if not 1 <= day <= 31:
        return None
    month = midnight.replace(day=1)
    while True:
        try:
            named = month.replace(day=day)
        except ValueError:  # a month without such a day
            named = midnight + timedelta(days=1)
        if named <= midnight:
            return _day(named)
        month = (month - timedelta(days=1)).replace(day=1)


def _last_season(month: int, midnight: datetime) -> When:
    start = midnight.replace(month=month, day=1)
    if start > midnight:
        start = start.replace(year=start.year - 1)
    return When(start=start.timestamp(), end=(start + timedelta(days=91)).timestamp())


def _last_holiday(name: str, midnight: datetime) -> When:
    """Return the last such day that is not after today."""
    month, day = _HOLIDAYS[name]

    def of(year: int) -> datetime:
        named_month, named_day = (month, day) if month else _easter(year)
        return midnight.replace(year=year, month=named_month, day=named_day)

    named = of(midnight.year)
    return _day(named if named <= midnight else of(midnight.year - 1))


def _easter(year: int) -> tuple[int, int]:
    """Return month and day of Easter Sunday by the Gregorian rule, in the form of Gauss and Butcher."""
    golden, century = year % 19, year // 100
    moon = (19 * golden + century - century // 4 - (8 * century + 13) // 25 + 15) % 30
    moon -= moon // 28 * (1 - 29 // (moon + 1) * ((21 - golden) // 11))
    weekday = (year + year // 4 + moon + 2 - century + century // 4) % 7
    offset = moon - weekday
    month = 3 + (offset + 40) // 44
    return month, offset + 28 - 31 * (month // 4)


def _day(start: datetime) -> When:
    return _days(start, 1)


def _days(start: datetime, count: int) -> When:
    return structs.replace(When(), start=start.timestamp(), end=(start + timedelta(days=count)).timestamp())
