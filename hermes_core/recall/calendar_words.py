"""Words for times in many languages, from the data of the package `dateparser` (the extra `dates`), which is from CLDR.

Only its data is read, which is a dictionary for each language; its parser is not, because it is slow and finds times in
ordinary words. Without the package, there are no such words.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from hermes_core.recall.tokens import dense_runs

# The languages that are read. Words of English, and more of German and Chinese, are in `recall.dates`.
LANGUAGES = (
    "de", "fr", "es", "it", "pt", "nl", "sv", "da", "nb", "fi", "pl", "cs", "hu", "ro", "tr", "ru", "uk", "el", "ja",
    "zh", "ko", "vi", "id",
)  # fmt: skip

UNITS = ("day", "week", "month", "year", "hour", "minute")
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

# Letters of the shortest word that is read alone. Shorter words are abbreviations, or words of another language.
MIN_LETTERS = 4

# First letters of the words of a text, by which the patterns are chosen that may match it: there are seventy, and each
# text of a turn would be searched with all of them.
START_LETTERS = 3

# Endings that languages add to the names of months and weekdays, as in Turkish "martta".
_ENDINGS = {
    "tr": "(?:['’]?[td][ae]n?)?", "fi": "(?:ssa|sta|ta|n|na)?", "hu": "(?:(?:j?[áé])?b[ae]n|ig|n|en|on|ön)?",
    "sv": "s?", "da": "s?", "nb": "s?",
}  # fmt: skip
# Languages whose months need no word before them, because such an ending is enough.
_JOINING = ("tr", "fi", "hu")
# Languages that change the endings of names and units.
_DECLINING = ("pl", "cs", "el")
_CYRILLIC = ("ru", "uk")
# Languages that may leave out the number one: "rok temu".
_WITHOUT_ARTICLES = ("pl", "cs", *_CYRILLIC)

# Words that are something else in another language: French and Dutch yesterday or here, Portuguese weekdays without
# "-feira", which are also ordinals.
_AMBIGUOUS = frozenset(
    ["hier", "segunda", "terça", "quarta", "quinta", "sexta", "domani", "morgen", "mañana", "manhã"]
)
# Short names of months that are words of English: "9 out of 10".
_ENGLISH = ("out", "set", "ago", "pro")
_FRENCH = re.compile(
    r"\b(?:[cdjlmnst]|qu)['’]|\b(?:ai|nous|avons|est|quoi|que|qui|fait|où|quand)\b", re.IGNORECASE
)

# A bound is the word that makes a time the beginning or the end of a span, or the span after it.
BOUNDS = {
    "before": "end", "prior to": "end", "until": "end", "till": "end", "up to": "end", "bis": "end", "hasta": "end",
    "since": "start", "from": "start", "seit": "start", "desde": "start", "depuis": "start", "da": "start", "dal": "start",
    "sinds": "start", "sedan": "start", "siden": "start", "od": "start", "с": "start", "din": "start", "after": "past",
    "nach": "past",
}  # fmt: skip

# Words before the name of a month, and before a name of three letters, which may be another word: "non ho mai visto".
_BEFORE_MONTH = (
    r"(?:in|im|en|em|au|aux|de|du|di|del|nel|a|i|w|we|v|ve|u|в|во|у|през|τον|tháng|bulan|di bulan|în|au mois de|anfang|mitte|ende|"
    rf"{'|'.join(BOUNDS)})"
)
_BEFORE_SHORT = r"(?:in|im|en|(?<![-'’])i|в|з|с|bulan|anfang|mitte|ende|seit|depuis|sinds|sedan|siden|(?:în|din|pe)(?=\s\w{3}\W*(?:\d|$)))"

_DAY = r"\b(?P<day>"
# A number in the patterns of the package, and in ours, which may be a word as well.
_DIGITS = r"(\d++[.,]?\d*+)"
_NUMBER = r"(\d++[.,]?\d*+|[^\W\d_]+(?:['’][^\W\d_]+)?)"


class CalendarTime(Struct, frozen=True):
    """A time that a text names by words, such as one week ago.

    Attributes:
        start: Place of its first character in the text.
        end: Place of the character after its last.
        unit: "day", "week", "month", "year", "weekday" or "date".
        count: Number of units ago; of a weekday its number from 0 for Monday; of a date the month.
        day: Day of a date; 0 for the whole month.
        about: True if the text counts units, as in "three weeks ago".
    """

    start: int
    end: int
    unit: str
    count: int
    day: int = 0
    about: bool = False


def find_times(text: str) -> Iterator[CalendarTime]:
    """Yield the times that a text names by words in one of `LANGUAGES`."""
    lowered = text.lower()
    if len(lowered) != len(text):
        return
    taken: set[int] = set()
    is_french = bool(_FRENCH.search(text))
    has_digit = any(map(str.isdigit, text))
    found = re.findall(r"\w+", lowered)
    starts = {*found, *(word[:START_LETTERS] for word in found)}
    dense = bool(dense_runs(lowered))
    matches = [
        (unit, count, match)
        for unit, count, pattern, needed in _patterns()
        if (has_digit or not pattern.pattern.startswith(_DAY))
        and (
            needed is None or not needed.isdisjoint(starts) or (dense and not (needed and unit == "counted"))
        )
        for match in pattern.finditer(lowered)
    ]
    # The first and longest: "l'altro ieri" is not yesterday.
    for unit, count, match in sorted(matches, key=lambda one: (one[2].start(), -one[2].end())):
        places = range(*match.span())
        if taken.intersection(places) or (match[0] in _AMBIGUOUS and not (match[0] == "hier" and is_french)):
            continue
        groups = match.groupdict()
        day, start = int(groups.get("day") or 0), match.start("name" if groups.get("name") else 0)
        is_count = unit == "counted"
        amount = _amount(next(filter(None, match.groups()), "1")) if is_count else 0
        if day <= 31 and amount is not None:
            taken.update(places)
            unit, count = (UNITS[count], amount) if is_count else (unit, count)
            yield CalendarTime(start, match.end(), unit, count, day, is_count)


def _amount(text: str) -> int | None:
    """Return the number that digits or a word name; None for another word."""
    digits = re.split("[.,]", text)[0]
    return (int(digits) if len(digits) < 6 else None) if digits.isdecimal() else _numbers().get(text)


@cache
def _numbers() -> Mapping[str, int]:
    """Return words for the numbers to 12, from CLDR. A text that counts needs them first: to make them takes 0.4 s."""
    numbers: dict[str, int] = {}
    for language in LANGUAGES:
        with contextlib.suppress(ImportError, ValueError):
            engine = importlib.import_module("unicode_rbnf").RbnfEngine.for_language(language)
            for number in range(12, 0, -1):
                texts = engine.format_number(number).text_by_ruleset.values()
                numbers.update((text.replace("ʼ", "'"), number) for text in texts)
    return numbers


@cache
def _patterns() -> list[tuple[str, int, re.Pattern[str], frozenset[str] | None]]:
    """Return the patterns by unit and count, the most exact first; none if the package is not installed.

    With each pattern come the starts of words of which a text that it matches has one, unless it has dense runs. They are
    None if they are not known.
    """
    if importlib.util.find_spec("dateparser") is None:
        return []  # a pattern without any name would match each number
    counted: dict[tuple[int, str], set[tuple[str, str]]] = defaultdict(set)
    phrases: dict[tuple[str, int], set[str]] = defaultdict(set)
    # Of months: whole names, those that need no word before them, abbreviations, and whole names of three letters.
    months, joined, abbreviations, brief, days = (defaultdict[int, set[str]](set) for _ in range(5))
    for language in LANGUAGES:
        data = _data(language)
        for key, texts in data.get("relative-type-regex", {}).items():
            if (match := re.fullmatch(r"\\1 (\w+) ago", key)) and match[1] in UNITS:
                unit = UNITS.index(match[1])
                units = [name.lower() for name in data[match[1]] if len(name) > 1 or dense_runs(name)]
                for text in map(str.lower, texts):
                    counted[unit, "dense" if dense_runs(text) else ""].update(_counted(text, units))
                    if language in _WITHOUT_ARTICLES:
                        one = (re.sub(r"\(.*\) ", "", form) for form, _ in _counted(text, ()))
                        counted[unit, "one"].update((form, max(form.split(), key=len)) for form in one)
        for key, texts in data.get("relative-type", {}).items():
            if (match := re.fullmatch(r"(\d) (\w+) ago", key)) and match[2] in UNITS:
                is_only = len(texts) == 1 and len(texts[0]) >= MIN_LETTERS - 1
                whole = texts if is_only else filter(_is_whole, texts)
                phrases[match[2], int(match[1])].update(re.sub("^(?:el|le) ", "", text) for text in whole)
        for number, name in enumerate(MONTHS, 1):
            listed = data.get(name, [])
            forms = _forms(listed, language)
            months[number] |= forms
            joined[number].update(form for form in forms if language in _JOINING or " " in form)
            short = {name.lower() for name in listed if len(name) == MIN_LETTERS - 1}.difference(_ENGLISH)
            abbreviations[number].update(map(re.escape, short))
            if max(map(len, listed), default=0) < MIN_LETTERS:
                brief[number].update(re.sub("[йя]$", "[аеийюя]", name) for name in short)
        for number, name in enumerate(WEEKDAYS):
            days[number] |= _forms(data.get(name, ()), language)
    patterns: list[tuple[str, int, str, frozenset[str] | None]]
    patterns = [
        (
            "counted",
            unit,
            _any_count({form for form, _ in forms}),
            frozenset(word for _, word in forms if kind != "dense"),
        )
        for (unit, kind), forms in counted.items()
    ]
    patterns += [
        (unit, count, _any(texts), _starts(texts)) for (unit, count), texts in sorted(phrases.items())
    ]
    for number, names in months.items():
        plain = {name for name in names if not dense_runs(name)}
        after_day = plain | abbreviations[number]
        dated = rf"{_DAY}\d{{1,2}})(?:\.|º|er)?\s+(?:de\s+|di\s+)?(?:{_any(after_day)})"
        patterns.append(("date", number, dated, _starts(after_day)))
        for some, before in ((plain, _BEFORE_MONTH), (brief[number], _BEFORE_SHORT)):
            # A year after it was read before this, and left blank.
            named = rf"\b{before}\s+(?P<name>{_any(some)})(?!-)|(?:{_any(some)})(?=\s{{5}})"
            patterns.append(("date", number, named if some else "", _starts(some)))
        if joined[number]:
            with_day = rf"(?:{_any(joined[number])})(?:\s+(?P<day>\d{{1,2}})(?=[-.]))?"
            patterns.append(("date", number, with_day, _starts(joined[number])))
        if dense := sorted(filter(dense_runs, names), key=len, reverse=True):
            with_day = rf"(?<!\d)(?:{'|'.join(dense)})(?:\s?(?P<day>\d{{1,2}})[日일])?"
            patterns.append(("date", number, with_day, frozenset()))
    patterns += [("weekday", number, _any(names), _starts(names)) for number, names in days.items()]
    return [
        (unit, count, re.compile(pattern), needed) for unit, count, pattern, needed in patterns if pattern
    ]


def _counted(text: str, units: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield patterns for one of "vor 3 Tagen", each with the start of a word that it needs; none for an abbreviation.

    The number is in digits or a word, and the unit has any of its forms.
    """
    words = re.sub(r"\(\\d.*?\)", " ", text).split()
    if not (dense_runs(text) or len(words) > 2 or any(len(word) >= MIN_LETTERS - 1 for word in words)):
        return
    number = _NUMBER + r"\s?" * bool(dense_runs(text))
    for word in words:
        if word in units:
            for unit in units:
                yield text.replace(f" {word}", f" {unit}").replace(_DIGITS, number), unit
            return
    yield text.replace(_DIGITS, number), max(words, key=len)


def _any_count(texts: set[str]) -> str:
    """Return a pattern of any of these texts. The number at their beginning is looked for once: there are hundreds."""
    first = {text for text in texts if text.startswith(_NUMBER + " ")}
    rests = "|".join(sorted((text[len(_NUMBER) :] for text in first), key=len, reverse=True))
    return "|".join(filter(None, (rf"\b{_NUMBER}(?:{rests})\b" if rests else "", _any(texts - first))))


def _is_whole(text: str) -> bool:
    """Return True if a phrase is no abbreviation."""
    if dense_runs(text):
        return len(text) > 1
    parts = text.split()
    return any(len(part) >= MIN_LETTERS for part in parts) or (
        len(text) >= MIN_LETTERS - 1 and (len(parts) > 1 or not text.isascii()) and "." not in text
    )


def _forms(names: Any, language: str) -> set[str]:
    """Return patterns of the names of a month or weekday in lower case, with the endings of their cases."""
    whole = {
        name.lower() for name in names if (dense_runs(name) or len(name) >= MIN_LETTERS) and _is_whole(name)
    }
    if language in _CYRILLIC:
        return {rf"{re.escape(re.sub('[аяьйеій]$', '', name))}[а-яі]{{0,2}}" for name in whole}
    if language in _DECLINING:
        return {
            rf"{re.escape(name[:-2])}\w{{1,2}}" if len(name) > MIN_LETTERS else re.escape(name)
            for name in whole
        }
    return {re.escape(name) + _ENDINGS.get(language, "") for name in whole}


def _any(texts: set[str]) -> str:
    """Return a pattern of any of these texts, as whole words."""
    ordered = sorted(texts, key=len, reverse=True)
    return "|".join(text if dense_runs(text) else rf"\b{text}\b" for text in ordered)


def _starts(texts: set[str]) -> frozenset[str] | None:
    """Return the starts of the words with which these texts begin; None if one may begin within a word."""
    starts = set()
    for text in texts:
        if dense_runs(text):
            continue
        start = "".join(re.findall(r"^\w+", text))[:START_LETTERS]
        if len(start) < START_LETTERS and not (
            start and text[len(start) :].lstrip("\\")[:1] in ("", " ", "'", "’", "-")
        ):
            return None
        starts.add(start)
    return frozenset(starts)


def _data(language: str) -> Mapping[str, Any]:
    """Return the words of a language; none if the package is not installed."""
    spec = importlib.util.find_spec("dateparser")
    if spec is None or spec.origin is None:
        return {}
    path = Path(spec.origin).parent / "data" / "date_translation_data" / f"{language}.py"
    module = importlib.util.spec_from_file_location(f"_dateparser_{language}", path)
    if module is None or module.loader is None or not path.is_file():
        return {}
    loaded = importlib.util.module_from_spec(module)
    module.loader.exec_module(loaded)
    info: Mapping[str, Any] = loaded.info
    return info
