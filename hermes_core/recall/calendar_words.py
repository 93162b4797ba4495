"""Words for times in many languages, from the data of the package `dateparser` (the extra `dates`), which is from CLDR.

Only its data is read, which is a dictionary for each language; its parser is not, because it is slow and finds times in
ordinary words. Without the package, there are no such words.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
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

UNITS = ("day", "week", "month", "year")
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
    "tr": "(?:['’]?[td][ae]n?)?", "fi": "(?:ssa|sta|ta|n|na)?", "hu": "(?:ban|ben|ig|n|en|on|ön)?",
    "sv": "s?", "da": "s?", "nb": "s?",
}  # fmt: skip
# Languages whose months need no word before them, because such an ending is enough.
_JOINING = ("tr", "fi", "hu")
# Languages that change the endings of names and units.
_DECLINING = ("pl", "cs", "el")
_CYRILLIC = ("ru", "uk")

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

# Words before the name of a month.
_BEFORE_MONTH = (
    r"(?:in|im|en|em|au|aux|de|du|di|del|a|i|w|we|v|ve|u|в|во|у|през|τον|tháng|bulan|di bulan|în|au mois de)"
)

_DAY = r"\b(?P<day>"


class CalendarTime(Struct, frozen=True):
    """A time that a text names by words, such as one week ago.

    Attributes:
        start: Place of its first character in the text.
        end: Place of the character after its last.
        unit: "day", "week", "month", "year", "weekday" or "date".
        count: Number of units ago; of a weekday its number from 0 for Monday; of a date the month.
        day: Day of a date; 0 for the whole month.
        year: Year of a date; 0 if not named.
        about: True if the text counts units, as in "three weeks ago".
    """

    start: int
    end: int
    unit: str
    count: int
    day: int = 0
    year: int = 0
    about: bool = False


def find_times(text: str) -> Iterator[CalendarTime]:
    """Yield the times that a text names by words in one of `LANGUAGES`."""
    lowered = text.lower()
    if len(lowered) != len(text):
        return
    taken: set[int] = set()
    is_french = bool(_FRENCH.search(text))
    has_digit = any(map(str.isdigit, text))
    starts = {word[:START_LETTERS] for word in re.findall(r"\w+", lowered)}
    dense = bool(dense_runs(lowered))
    found = [
        (unit, count, match)
        for unit, count, pattern, needed in _patterns()
        if (has_digit or (unit != "counted" and not pattern.pattern.startswith(_DAY)))
        and (dense or needed is None or not needed.isdisjoint(starts))
        for match in pattern.finditer(lowered)
    ]
    # The longest first: "l'altro ieri" is not yesterday.
    for unit, count, match in sorted(found, key=lambda one: one[2].start() - one[2].end()):
        places = range(*match.span())
        if taken.intersection(places) or (match[0] in _AMBIGUOUS and not (match[0] == "hier" and is_french)):
            continue
        groups = match.groupdict()
        day, year = int(groups.get("day") or 0), int(groups.get("year") or 0)
        if unit == "counted":
            number = re.split("[.,]", next(filter(None, match.groups())))[0]
            if len(number) < 6:
                taken.update(places)
                yield CalendarTime(*match.span(), UNITS[count], int(number), about=True)
        elif day <= 31:
            taken.update(places)
            yield CalendarTime(*match.span(), unit, count, day, year)


@cache
def _patterns() -> list[tuple[str, int, re.Pattern[str], frozenset[str] | None]]:
    """Return the patterns by unit and count, the most exact first; none if the package is not installed.

    With each pattern come the starts of words of which a text that it matches has one, unless it has dense runs. They are
    None if they are not known.
    """
    if importlib.util.find_spec("dateparser") is None:
        return []  # a pattern without any name would match each number
    counted: dict[int, set[str]] = {}
    phrases: dict[tuple[str, int], set[str]] = {}
    months: dict[int, set[str]] = {}
    joined: dict[int, set[str]] = {}
    short_months: dict[int, set[str]] = {}
    days: dict[int, set[str]] = {}
    for language in LANGUAGES:
        data = _data(language)
        for key, texts in data.get("relative-type-regex", {}).items():
            if (match := re.fullmatch(r"\\1 (\w+) ago", key)) and match[1] in UNITS:
                found = {_with_any_ending(text.lower(), language) for text in texts}
                counted.setdefault(UNITS.index(match[1]), set()).update(found)
        for key, texts in data.get("relative-type", {}).items():
            if (match := re.fullmatch(r"(\d) (\w+) ago", key)) and match[2] in UNITS:
                phrases.setdefault((match[2], int(match[1])), set()).update(filter(_is_whole, texts))
        for number, name in enumerate(MONTHS, 1):
            forms = _forms(data.get(name, ()), language)
            months.setdefault(number, set()).update(forms)
            joined.setdefault(number, set()).update(forms if language in _JOINING else ())
            short = (
                re.escape(text.lower())
                for text in data.get(name, ())
                if len(text) == MIN_LETTERS - 1 and text.lower() not in _ENGLISH
            )
            short_months.setdefault(number, set()).update(short)
        for number, name in enumerate(WEEKDAYS):
            days.setdefault(number, set()).update(_forms(data.get(name, ()), language))
    patterns: list[tuple[str, int, str, frozenset[str] | None]]
    patterns = [("counted", unit, "|".join(_counted(texts)), None) for unit, texts in counted.items()]
    patterns += [
        (unit, count, _any(texts), _starts(texts)) for (unit, count), texts in sorted(phrases.items())
    ]
    year = r"(?:,?\s+(?:de\s+|del\s+)?(?P<year>(?:19|20)\d\d))?"
    for number, names in months.items():
        name = _any({name for name in names if not dense_runs(name)})
        after_day = _any({name for name in names | short_months[number] if not dense_runs(name)})
        dated = rf"\b(?P<day>\d{{1,2}})(?:\.|º|er)?\s+(?:de\s+|di\s+)?(?:{after_day}){year}"
        patterns.append(("date", number, dated, _starts(names | short_months[number])))
        patterns.append(("date", number, rf"\b{_BEFORE_MONTH}\s+(?:{name}){year}", _starts(names)))
        patterns.append(("date", number, _any(joined[number]), _starts(joined[number])))
        if dense := sorted(filter(dense_runs, names), key=len, reverse=True):
            patterns.append(
                (
                    "date",
                    number,
                    rf"(?<!\d)(?:{'|'.join(dense)})(?:\s?(?P<day>\d{{1,2}})[日일])?",
                    frozenset(),
                )
            )
    patterns += [("weekday", number, _any(names), _starts(names)) for number, names in days.items()]
    return [
        (unit, count, re.compile(pattern), needed) for unit, count, pattern, needed in patterns if pattern
    ]


def _counted(texts: set[str]) -> Iterator[str]:
    """Yield patterns of "vor 3 Tagen", without abbreviations."""
    for text in sorted(texts, key=len, reverse=True):
        rest = re.sub(r"\(\\d.*?\)", "", text)
        if dense_runs(rest) or any(len(word) >= MIN_LETTERS - 1 for word in rest.split()):
            yield text


def _with_any_ending(pattern: str, language: str) -> str:
    """Return a pattern of "5 days ago" in which the unit may have any ending, for languages with many of them."""
    if language not in (*_CYRILLIC, *_DECLINING):
        return pattern
    number, space, rest = pattern.rpartition("+) ")
    unit, _, ago = rest.partition(" ")
    return f"{number}{space}{unit[:2]}\\w{{0,6}} {ago}" if space and ago and len(unit) > 1 else pattern


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
