"""Dates and times in a question: "8 May 2023", "in May", "last week", "before March", "since Easter", "2023年5月"."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, partial

from msgspec import Struct, structs

from hermes_core.recall.calendar_words import BOUNDS, WEEKDAYS, CalendarTime, find_times
from hermes_core.recall.calendar_words import MONTHS as MONTH_NAMES
from hermes_core.recall.tokens import dense_runs, is_stop_word, words

MONTHS = {name: i for i, name in enumerate(MONTH_NAMES, 1)} | {
    name[:3]: i for i, name in enumerate(MONTH_NAMES, 1)
}
MONTHS["sept"] = 9
_WEEKDAYS = {name: i for i, name in enumerate(WEEKDAYS)}
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve"

_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]

_M = "|".join(sorted(MONTHS, key=len, reverse=True))
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
# A digit, or a Chinese numeral.
_N = "[\\d一二三四五六七八九十]"
_PATTERN_TEXTS = (
    rf"(?<!\d){_YEAR}[-/.](?P<number>\d{{1,2}})[-/.]{_DAY}(?!\d)",
    rf"(?<![\d.]){_DAY}\.\s?(?P<number>\d{{1,2}})\.\s?{_YEAR}(?!\d)",
    rf"(?<![\w-]){_YEAR}-(?P<number>0[1-9]|1[0-2])(?![\w-])",
    rf"{_YEAR}\s*年\s*(?:(?P<number>{_N}{{1,2}})\s*月\s*(?:(?P<day>{_N}{{1,3}})\s*日)?)?",
    rf"(?<!{_N})(?P<number>{_N}{{1,2}})\s*月\s*(?:(?P<day>{_N}{{1,3}})\s*日)?",
    rf"\b(?P<ordinal>{'|'.join(_ORDINALS)})\s+of\s+(?P<month>{_M})\b(?:,?\s+{_YEAR})?\b",
    rf"\b{_DAY}(?:\s+of)?\s+(?P<month>{_M})\b\.?(?:,?\s+{_YEAR})?\b",
    rf"\b(?P<month>{_M})\b\.?\s+{_DAY}\b(?!\d)(?:,?\s+{_YEAR}\b)?",
    rf"\b(?P<month>{_M})\b\.?,?\s+{_YEAR}\b",
    # "may" and "march" are also other words, so alone they name a month only after a word of time.
    rf"\b(?:in|during|last|since|until|till|before|after|between|from|to|early|late|mid|of|by|this|next)[\s-]+(?P<month>{_M})\b",
    r"\b(?P<month>January|February|April|June|July|August|September|October|November|December)\b",
    r"\band\s+(?P<month>(?-i:March|May))\b",
    # A year is not a part of a word, a version or an id; only "s" may follow it, as in "the 1990s".
    rf"(?<![a-z\d_/-]){_YEAR}(?:s\b|(?![a-z\d_-]))",
)

_COUNTS = {"a": 1, "an": 1, "half a": 0.5, "half an": 0.5, "couple of": 2, "两": 2, "few": 3, "几": 3}
_COUNTS |= {name: i for i, name in enumerate(_NUMBERS.split(), 1)}
_COUNT = rf"(?P<count>\d+|(?:a\s+)?(?:couple\s+of|few)|{'|'.join(sorted(_COUNTS, key=len, reverse=True))})"
_UNIT = r"(?P<unit>minute|hour|day|week|fortnight|month|year)s?"
_UNITS = {
    "分": "minute", "分钟": "minute", "小时": "hour", "時間": "hour", "天": "day", "日": "day", "周": "week", "星期": "week",
    "週間": "week", "周末": "weekend", "週末": "weekend", "週": "week", "月": "month", "年": "year", "woche": "week", "wochenende": "weekend", "monat": "month",
    "jahr": "year",
}  # fmt: skip
_DAYS_IN = {"minute": 1 / 1440, "hour": 1 / 24, "day": 1, "week": 7, "fortnight": 14, "month": 30, "year": 365}  # fmt: skip
# Days around a time of several weeks ago or more, which nobody counts exactly: at most so many.
_MAX_SLACK = 45
_DAYS_AGO = {
    "day before yesterday": 2, "night before last": 2, "yesterday": 1, "last night": 1, "today": 0, "tonight": 0,
    "this morning": 0, "this afternoon": 0, "this evening": 0,
    "前天": 2, "一昨日": 2, "昨天": 1, "昨日": 1, "昨晚": 1, "今天": 0, "今日": 0, "gestern": 1, "vorgestern": 2, "heute": 0,
}  # fmt: skip
# Month and day; or 0 and days after Easter; or a month, a weekday and its number in the month.
_HOLIDAYS: dict[str, tuple[int, ...]] = {
    "easter": (0, 0), "ostern": (0, 0), "复活节": (0, 0), "good friday": (0, -2), "karfreitag": (0, -2), "easter monday": (0, 1),
    "ostermontag": (0, 1), "ascension day": (0, 39), "pentecost": (0, 49), "whit sunday": (0, 49), "pfingsten": (0, 49),
    "mardi gras": (0, -47), "christmas": (12, 25), "weihnachten": (12, 25), "圣诞节": (12, 25), "christmas eve": (12, 24),
    "heiligabend": (12, 24), "boxing day": (12, 26), "new year's eve": (12, 31), "silvester": (12, 31), "new year": (1, 1),
    "new year's day": (1, 1), "neujahr": (1, 1), "元旦": (1, 1), "halloween": (10, 31), "valentine's day": (2, 14),
    "may day": (5, 1), "国庆节": (10, 1), "thanksgiving": (11, 3, 4), "mother's day": (5, 6, 2), "father's day": (6, 6, 3),
    "labor day": (9, 0, 1),
}  # fmt: skip
# First month of a season on the northern half of the earth.
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}

_BOUND_BEFORE = re.compile(
    rf"(?:\b(?P<bound>{'|'.join(sorted(BOUNDS, key=len, reverse=True))})\s+|(?P<start>自从)\s*)(?:(?:the|last|this)\s+)?$",
    re.I,
)
_BOUND_AFTER = re.compile(
    r"\s*(?:(?P<end>之前|以前)|(?P<past>之后|以后)|(?P<start>以来|起|から(?!\s*\d)|부터))"
)

# Words between the beginning and the end of a span; the first ones also join two times.
_AND = "and|und|y|et|e|и|en|och|og|i"
_TO = "to|until|till|through|bis|al|a|au|à|по|до|tot|til"
_JOINER = re.compile(rf"{_AND}|(?P<to>{_TO}|[-–—])", re.I)
_OPENING = re.compile(
    r"\b(?:between|from|zwischen|von|entre|tra|fra|tussen|między|между|mellan|mellem|mellom)\s+$", re.I
)
_WORD_TO = rf"\s+(?:{_AND}|{_TO}|do)\s+(?:\w{{1,3}}\s+)?|\s*[-–—~到至]\s*|から"
# The other day of "3 to 7 May" and of "May 3-7".
_DAY_BEFORE = re.compile(rf"(?<![\d.:/-])(\d{{1,2}})(?:st|nd|rd|th|er|º|\.)?(?:{_WORD_TO})(?:the\s+)?$", re.I)
_DAY_AFTER = re.compile(rf"(?:{_WORD_TO})(\d{{1,2}})(?:(?:st|nd|rd|th)\b|日)?(?!\w|[:/.]\d|\s+[^\W\d])", re.I)

# Part of a time: its beginning and its end as shares of it, in the order of the groups of `_PART`; the last ones of a month.
_PARTS = (
    (0.0, 1 / 2), (1 / 2, 1.0), (0.0, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 1.0), (0.0, 0.24), (0.77, 1.0), (0.97, 1.0),
)  # fmt: skip
_PART = re.compile(
    r"\b(?:(first\s+half)|(second\s+half)|(early|beginning|start|anfang)|(mid|middle|mitte)|(late|end|ende)|"
    r"(first\s+week)|(last\s+week)|(last\s+day))(?:\s+(?:of|in))?(?:\s+the)?[\s-]+$",
    re.I,
)
# What may stand between two words for one time, as in "May last year", "3 de mayo de 2025" and "先週の金曜日".
_BESIDE = re.compile(r"[\s,]*([^\W\d]{0,3}|dell['’])[\s,]*")

# A date with a time of day, or without separators, as a program writes them.
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]|\d{8}|\d{4}-W\d\d-?\d")

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
        year, month, day = self.year, self.month or 1, self.day or 1
        latest = now - timedelta(seconds=1)
        if not self.year:
            year = latest.year - ((month, day) > (latest.month, latest.day))
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


_W = "|".join(_WEEKDAYS)
_IN = r"\b(?:in|during|since|before|after|until|from|for|of)\s+"


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Return the patterns, compiled at the first use: that takes 10 ms, and most programs never search."""
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in _PATTERN_TEXTS)


@cache
def _relative_patterns() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of times that count from now; each has the groups that `_relative` reads."""
    texts = (
        rf"\b(?P<days>{'|'.join(name for name in _DAYS_AGO if name.isascii())})(?:\s+(?:morning|afternoon|evening|night))?\b",
        rf"(?P<days>{'|'.join(name for name in _DAYS_AGO if not name.isascii())})",
        rf"\b{_COUNT}\s+{_UNIT}\s+ago\b",
        rf"(?P<count>\d+|{_N}+|[两几])[个ヶか]?(?P<unit>{'|'.join(n for n in _UNITS if n[0] > 'z' and _UNITS[n] != 'weekend')})前",
        rf"\b(?:last|past|previous)\s+(?P<recent>){_COUNT}\s+{_UNIT}\b",
        r"\bthe\s+(?P<unit>weekend|week|month|quarter|year)\s+(?P<which>before\s+last)\b",
        # The weekday after it is read by its own name.
        r"(?P<which>上上个?|上个?|这个?|本)(?=(?P<unit>周|星期)[一二三四五六日天])",
        r"(?P<which>上上个?|上个?|这个?|本|先々|先|今)(?P<unit>[周週]末|周|週|星期|月)|(?P<which2>去|今|前)(?P<unit2>年)",
        r"\b(?P<which>(?:vor)?letzte|diese)[nrsm]?\s+(?P<unit>woche|monat|jahr|wochenende)(?:e?s)?\b",
        r"\b(?:(?:last|past|over\s+the|at\s+the|on\s+the|during\s+the|am|since\s+the)\s+)(?P<weekend>weekend|wochenende)\b",
        rf"\b(?:{_W}),?\s+the\s+(?P<monthday>\d{{1,2}})(?:st|nd|rd|th)\b",
        rf"\b(?:last|past|this|on|since|before|after|until|till|from)\s+(?P<weekday>{_W})\b",
        rf"(?<!every )\b(?P<weekday>{_W})(?:\s+(?:morning|afternoon|evening|night)\b|(?=,?\s+(?:the\s+\d|(?:of\s+)?(?:last|this)\s+week)))",
        r"\b(?P<which>last|past|previous|this)\s+(?P<unit>weekend|week|month|quarter|year)\b(?!\s+of\b)",
        # "in Spring" may be a framework.
        rf"\b(?:(?:(?P<which>last)|this|since|before|after|until)\s+|(?:in|during)\s+the\s+)(?P<season>{'|'.join(_SEASONS)})\b",
        rf"\b(?P<season>{'|'.join(_SEASONS)})(?=\s+(?:of\s+)?(?:19|20)\d\d\b)",
        rf"\bQ(?P<quarter>[1-4])\b(?=\s+(?:of\s+)?(?:19|20)\d\d\b)|{_IN}(?:the\s+)?(?:Q(?P<quarter2>[1-4])|(?P<nth>{'|'.join(_ORDINALS[:4])})\s+quarter)"
        r"\b(?!\s+of\s+(?!(?:19|20)\d\d|last\s+year|this\s+year))",
        rf"(?:{_IN}(?:calendar\s+)?week|\b[KC]W)\s*(?P<week>\d{{1,2}})\b(?!\s+of\s+(?!(?:19|20)\d\d))|(?<!\w)(?P<isoyear>(?:19|20)\d\d)-W(?P<week2>\d\d)\b",
        rf"\b(?P<holiday>{'|'.join(sorted((name for name in _HOLIDAYS if name.isascii()), key=len, reverse=True))})\b",
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
    at = datetime.fromtimestamp(now or 0.0, zone)
    places: list[_Place] = []
    covered = text
    for pattern in _patterns():
        for match in pattern.finditer(covered):
            when = _absolute(match.groupdict())
            if when is not None:
                places.append((_named_at(match), match.end(), partial(_same, when)))
                covered = _without(covered, *match.span())
    undated = covered
    if now is None:
        return tuple([when for _, _, read in places if (when := read(at))]), undated, covered
    # Matches overlap: "last 3 weeks" is no "last week".
    for pattern in _relative_patterns():
        for match in pattern.finditer(text):
            if covered[match.start() : match.end()] == match[0]:
                places.append((_named_at(match), match.end(), partial(_relative, match)))
                covered = _without(covered, *match.span())
    for time in find_times(covered):
        places.append((time.start, time.end, partial(_calendar_time, time)))
        covered = _without(covered, time.start, time.end)
    found = list(_with_bounds(text, _merged(text, sorted(places, key=lambda place: place[:2]), at), at))
    for first, last, _ in found:
        covered = _without(covered, first, last)
    return tuple([when for _, _, when in found]), undated, covered


# A time in a text: its start and end there, and a function that returns the time as it is meant at another time, such as the
# last Friday before it.
_Place = tuple[int, int, Callable[[datetime], "When | None"]]


def _same(when: When, _now: datetime) -> When:
    return when


def _named_at(match: re.Match[str]) -> int:
    """Return where the name of a time begins, after a word such as "since"."""
    return min(match.start(name) for name, value in match.groupdict().items() if value is not None)


def _merged(text: str, places: list[_Place], now: datetime) -> list[tuple[int, int, When]]:
    """Return the times, with those that one phrase names together as one: "May last year", "Friday last week"."""
    merged: list[tuple[int, int, When]] = []
    last: _Place | None = None
    for start, end, read in places:
        when = read(now)
        if when is None:
            continue
        beside = last and _BESIDE.fullmatch(text, last[1], start)
        joint = None
        if last and beside and not _JOINER.fullmatch(beside[1]):
            place = (start, end, read)
            joint = _within(last, place, now) or _within(place, last, now)
        if last and joint:
            start, when, read = last[0], joint, partial(_same, joint)
            merged.pop()
        merged.append((start, end, when))
        last = (start, end, read)
    return [_part(text, *one, now) for one in merged]


def _within(inner: _Place, outer: _Place, now: datetime) -> When | None:
    """Return the last time of one name that lies within the time of another one; None if none does."""
    whole = outer[2](now)
    span = whole and whole.span(now)
    if not span or not 0 < span[1] < FAR_FUTURE:
        return None
    end = datetime.fromtimestamp(span[1], now.tzinfo)
    when = inner[2](end)
    found = when and when.span(end)
    if not (when and found and span[0] <= found[0] and found[1] <= span[1]):
        return None
    if when.month:
        return structs.replace(when, year=datetime.fromtimestamp(found[0], now.tzinfo).year)
    return When(start=found[0], end=found[1])


def _part(text: str, first: int, last: int, when: When, now: datetime) -> tuple[int, int, When]:
    """Return a time, or the part of it that words before it name, as in "the first half of May"."""
    part, span = _PART.search(text, 0, first), when.span(now)
    if part is None or span is None:
        return first, last, when
    start, days = datetime.fromtimestamp(span[0], now.tzinfo), round((span[1] - span[0]) / 86_400)
    bounds = [start + timedelta(days=int(days * share)) for share in _PARTS[(part.lastindex or 1) - 1]]
    if days >= 365:  # a half of a year begins with a month
        bounds = [(bound + timedelta(days=14)).replace(day=1) for bound in bounds]
    return part.start(), last, When(start=bounds[0].timestamp(), end=bounds[1].timestamp())


# Words by which a question asks for anything that was done or said, in the languages in which times are read.
_ANYTHING = re.compile(
    r"\b(?:do|did|does|done|doing|happen\w*|summari[sz]e\w*|summary|recap\w*|review|talk\w*|chat\w*|discuss\w*|say|said|going on|went on|"
    r"up to|news?|topics?|overview|anything|everything|how (?:was|were)|tell me about|mach\w*|gemacht|tat\w*|getan|passier\w*|geschah|"
    r"geschehen|was (?:war|stand|lief)|alles|fass\w*|zusammen\w*|gesprochen|besprochen|geredet|erzähl\w*|gesagt|hice|hicimos|hizo|hecho|pasó|"
    r"ocurrió|resum\w*|hablamos|hablé|dije|cont(?:é|amos)|fait\w*|fais\w*|passé\w*|arrivé\w*|résum\w*|racont\w*|parl\w*|dit|fatto|fatta|"
    r"successo|riassum\w*|detto|fiz|fizemos|aconteceu|falamos|gedaan|gebeurd\w*|gehad|samen\w*|gezegd|gesproken|gjorde|hände|skedde|prata\w*|"
    r"skjedde|snakke\w*|lavede|talte|skete|tein|teimme|tapahtui|puhu\w*|z?robił\w*|stało|działo|rozmawia\w*|dělal\w*|stalo|mluvil\w*|csinál\w*|"
    r"történt|beszélt\w*|făcut|vorbit|întâmplat|yaptım|yaptık|oldu|konuştuk|с?делал\w*|случил\w*|произошло|было|говорил\w*|обсуждал\w*|"
    r"итог\w*|перескаж\w*|подытож\w*|робив|робила|сталося|έκανα|κάναμε|συνέβη|μιλήσαμε|làm|nói|xảy|lakukan|bicarakan|terjadi)\b"
    r"|做|发生|干|说|聊|谈|讨论|总结|何|した|話|まとめ|무엇|뭐|했|이야기|요약",
    re.IGNORECASE,
)
# Words by which a question asks for something else: for what is to be done, or for a person or a thing with a name.
_NOT_ANYTHING = re.compile(
    r"\b(?i:should|shall|can|could|will|would|do you|soll\w*|kann\w*)\b|(?<=\w )(?!I\b)[A-ZÀ-Þ]\w+"
)

# Letters of a word that may stand beside them in any language, as in "was habe ich", and characters of dense scripts.
MAX_SMALL_WORD = 4
_SMALL = re.compile(
    r"\b(?:what|when|there|were|about|have|been|please|with|since|important|remind|worüber|haben|hatte\w*|wurde\w*|bitte|über|letzte\w*|quelles?|"
    r"avons|avez|derni\w+|cosas|cosa|pasad\w+|abbiamo|scors\w+|sobre|passad\w+|hebben|która|когда|какие|расскажи|despre|chúng|mistä)\b"
    r"|[\u3041-\u3096我们你的了过什么事情哪些在是有吗呢都请一下？私다을를나는우리지에야기무슨]",
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
    return bool(_ANYTHING.search(rest)) and not dense_runs(left) and small and not _NOT_ANYTHING.search(rest)


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
    month = MONTHS.get((parts.get("month") or "").casefold()) or _number(parts.get("number") or "0")
    ordinal = parts.get("ordinal")
    day = _ORDINALS.index(ordinal.casefold()) + 1 if ordinal else _number(parts.get("day") or "0")
    if month > 12 or day > 31:
        return None
    return When(int(parts.get("year") or 0), month, day)


def _number(text: str) -> int:
    """Return the value of a number in digits or in Chinese numerals up to 99."""
    tens, ten, ones = text.partition("十")
    value, last = (int("".join(str(int(unicodedata.numeric(c))) for c in part) or 0) for part in (tens, ones))
    return 10 * (value or 1) + last if ten else value


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
        before, after = _DAY_BEFORE.search(text, 0, first), _DAY_AFTER.match(text, last)
        if when.day and (before or after):
            days = [structs.replace(when, day=int(one[1])) for one in (before, after) if one]
            spans = [one for one in (span, *(day.span(now) for day in days if day.day < 32)) if one]
            joined = When(start=min(spans)[0], end=max(spans)[1])
            if joined.end - joined.start < 32 * 86_400:
                yield before.start() if before else first, after.end() if after else last, joined
                continue
        yield first, last, _bounded(when, span, _bound(text, first, last))


def _joins(text: str, place: tuple[int, int, When], following: tuple[int, int, When]) -> bool:
    """Return True if the text says "between" the first time "and" the second, or the first time "to" the second."""
    joiner = _JOINER.fullmatch((text[place[1] : following[0]].split() or [""])[0])
    return bool(joiner and (joiner["to"] or _OPENING.search(text, 0, place[0])))


def _joined(when: When, other: When, now: datetime) -> When | None:
    """Return the span from the beginning of a time to the end of another; None if that is no span."""
    first, last = when.span(now), other.span(now)
    if first is not None and last is not None and first[0] >= last[1] and when.month > other.month:
        first = structs.replace(when, year=other.year - 1).span(now)
    return When(start=first[0], end=last[1]) if first and last and first[0] < last[1] else None


def _bound(text: str, first: int, last: int) -> str:
    """Return what a word beside a time makes of it: "start", "end" or "past" (after its end); "" without such a word."""
    beside = _BOUND_AFTER.match(text, last) or _BOUND_BEFORE.search(text, 0, first)
    if beside is None:
        return ""
    return BOUNDS.get(" ".join((beside.groupdict().get("bound") or "").casefold().split())) or str(
        beside.lastgroup
    )


def _bounded(when: When, span: tuple[float, float], bound: str) -> When:
    if bound == "end":
        # Epoch second 0 as an end would mean a date.
        return When(start=0.0, end=max(span[0], 1.0))
    if bound:
        return When(start=span[0] if bound == "start" else span[1], end=FAR_FUTURE)
    return when


def _relative(match: re.Match[str], now: datetime) -> When | None:
    """Return the time of a match of one of `_relative_patterns`; None for a day that does not exist."""
    parts = {
        name.rstrip("2"): value.casefold() for name, value in match.groupdict().items() if value is not None
    }
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if "days" in parts:
        return _day(midnight - timedelta(days=_DAYS_AGO[parts["days"]]))
    unit = _UNITS.get(parts.get("unit", ""), parts.get("unit", ""))
    if "count" in parts:
        text = " ".join(parts["count"].removeprefix("a ").split())
        count = _COUNTS.get(text) or _number(text[:6])
        if "recent" not in parts:
            return _ago(now, count, unit)
        days = min(_DAYS_IN[unit] * count, 36_500)
        return _days((midnight if days >= 1 else now) - timedelta(days=days), days + 1)
    if "weekday" in parts:
        return _day(_last_weekday(_WEEKDAYS[parts["weekday"]], midnight))
    if "weekend" in parts:
        return _days(_last_weekday(5, midnight), 2)
    if "monthday" in parts:
        return _last_monthday(int(parts["monthday"]), midnight)
    if "season" in parts:
        return _three_months(_SEASONS[parts["season"]], midnight, is_over="which" in parts)
    if "quarter" in parts or "nth" in parts:
        quarter = int(parts.get("quarter") or _ORDINALS.index(parts["nth"]) + 1)
        return _three_months(3 * quarter - 2, midnight)
    if "week" in parts:
        week = partial(_iso_week, int(parts["week"]), midnight.tzinfo)
        start = week(int(parts["isoyear"])) if "isoyear" in parts else _last_start(week, midnight)
        return _days(start, 7) if start else None
    if "holiday" in parts:
        start = _last_start(partial(_holiday, parts["holiday"], midnight.tzinfo), midnight)
        return _day(start) if start else None
    return _last(parts["which"], unit, midnight)


def _last(which: str, unit: str, midnight: datetime) -> When:
    """Return this or the last calendar week, weekend, month, quarter or year, or the one before it ("before last")."""
    if which.startswith(("before", "vor", "上上", "先々", "前")):
        last = _last("", unit, midnight).span(midnight)
        return _last("", unit, datetime.fromtimestamp(last[0], midnight.tzinfo)) if last else When()
    is_this = which in ("this", "diese", "这", "这个", "本", "今")
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
    if unit == "quarter":
        return _three_months(((midnight.month - 1) // 3 - (not is_this)) % 4 * 3 + 1, midnight)
    return When(midnight.year - (not is_this))


def _calendar_time(time: CalendarTime, now: datetime) -> When | None:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if time.unit == "date":
        return When(0, time.count, time.day)
    if time.unit == "weekday":
        return _day(_last_weekday(time.count, midnight))
    if time.about or time.unit == "day":
        return _ago(now, time.count, time.unit)
    return _last(("this", "last", "before last")[time.count], time.unit, midnight) if time.count < 3 else None


def _ago(now: datetime, count: float, unit: str) -> When:
    """Return the time of so many units ago, with the time around it."""
    days = min(_DAYS_IN[unit] * count, 36_500)
    if days < 1 and unit in ("minute", "hour"):
        moment = now - timedelta(days=days)
        return When(
            start=(moment - timedelta(days=days / 2)).timestamp(),
            end=(moment + timedelta(days=days / 2)).timestamp(),
        )
    slack = min(int(_DAYS_IN[unit]) // 2, _MAX_SLACK)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return _days(midnight - timedelta(days=int(days) + slack), 1 + 2 * slack)


def _last_weekday(weekday: int, midnight: datetime) -> datetime:
    return midnight - timedelta(days=(midnight.weekday() - weekday - 1) % 7 + 1)


def _last_monthday(day: int, midnight: datetime) -> When | None:
    """Return the last day with this number in its month that is not after today; None for 0 and numbers above 31."""
    days = (midnight - timedelta(days=back) for back in range(62))  # of two months at least one has 31 days
    return next((_day(moment) for moment in days if moment.day == day), None)


def _last_start(start_in: Callable[[int], datetime | None], latest: datetime) -> datetime | None:
    """Return the last start of a time that comes once a year and is not after `latest`."""
    starts = map(start_in, range(latest.year, latest.year - 3, -1))
    return next((start for start in starts if start and start <= latest), None)


def _three_months(month: int, midnight: datetime, *, is_over: bool = False) -> When:
    """Return the last three months from such a month on that have begun, or that are over."""
    # Three months have 89 to 92 days.
    latest = midnight - timedelta(days=92 if is_over else 1)
    start = _last_start(lambda year: midnight.replace(year=year, month=month, day=1), latest) or midnight
    return When(start=start.timestamp(), end=(start + timedelta(days=95)).replace(day=1).timestamp())


def _iso_week(week: int, zone: tzinfo | None, year: int) -> datetime | None:
    with contextlib.suppress(ValueError):
        return datetime.fromisocalendar(year, week, 1).replace(tzinfo=zone)
    return None


def _holiday(name: str, zone: tzinfo | None, year: int) -> datetime:
    month, day, *number = _HOLIDAYS[name]
    if not month:
        return datetime(year, *_easter(year), tzinfo=zone) + timedelta(days=day)
    first = datetime(year, month, 1, tzinfo=zone)
    return first + timedelta(days=(day - first.weekday()) % 7 + 7 * (number[0] - 1) if number else day - 1)


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


def _days(start: datetime, count: float) -> When:
    return structs.replace(When(), start=start.timestamp(), end=(start + timedelta(days=count)).timestamp())
