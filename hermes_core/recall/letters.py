"""What people write in two ways, made one: ё and е, Ά and α, أ and ا, ß and ss; and the forms of a word, by its script.

The letters follow Lucene's normalizers for Arabic, Persian and Indic text. The forms follow the Snowball stemmers, where
a script tells the language; Latin words are left to the `porter` of SQLite, which reads English.
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

_ONE_OF_TWO = {
    "ё": "е",
    "ς": "σ",
    "ß": "ss",
    "æ": "ae",
    "œ": "oe",
    "ø": "o",
    "đ": "d",
    "ł": "l",
    "ħ": "h",
    "’": "'",
    "ʼ": "'",  # of Ukrainian
    "׳": "'",  # of Hebrew
    "ı": "i",  # of Turkish
    "آ": "ا",
    "أ": "ا",
    "إ": "ا",
    "ٱ": "ا",
    "ى": "ي",
    "ة": "ه",
    "ک": "ك",  # a Persian keyboard's, and so the next
    "ی": "ي",
    "ے": "ي",
    "ۀ": "ه",
    "ہ": "ه",
    "ھ": "ه",
    "ँ": "ं",
}
_SILENT = (
    "\u00ad"  # the soft hyphen of pages and PDFs
    "\u200c"  # what joins the parts of a Persian word without joining their letters
    "\u0300-\u036f\u0483-\u0487"  # accents that make no letter of their own with the one before
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # vowels of Hebrew
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed"  # vowels of Arabic, and its stretched line
    "\u093c"  # the dot of Hindi, which is often left out
)
_ACCENTED = "\u0370-\u03ff\u1f00-\u1fff"  # Greek: capitals are written without accents
_DIGITS = "\u0660-\u0669\u06f0-\u06f9\u0966-\u096f"  # of Arabic, Persian, Hindi
_TYPESET = (
    "\uff01-\uff5e\ufb00-\ufb06\ufb1d-\ufdff\ufe70-\ufefc"  # full-width Latin, ligatures, shapes of Arabic
)
_ACCENT = re.compile("[\u0300-\u036f]")
_NASAL = re.compile("[ङञणनम]्(?=[क-ह])")  # हिन्दी and हिंदी
_VARIANT = re.compile(f"[{''.join(_ONE_OF_TWO)}{_SILENT}{_ACCENTED}{_DIGITS}{_TYPESET}]")

_STEMMERS = {
    "[\u0400-\u04ff]{3,}": "Russian",
    "[\u0370-\u03ff]{3,}": "Greek",
    "[\u0621-\u064a\u066e-\u06d3\u06fa-\u06ff]{3,}": "Arabic",
    "[\u0900-\u0963\u0970-\u097f]{3,}": "Hindi",
    "[\u0561-\u0587]{3,}": "Armenian",
    "[\u0b80-\u0bff]{3,}": "Tamil",
}
"""The stemmer for words of a script. Bulgarian is no Russian, nor is Persian Arabic: their words are cut as well, what is
stored and what is asked alike.
"""
_FINAL_HEH, _AND_THE = re.compile("ه$"), re.compile("^[وف]ال(?=...)")
"""The ending that `one_spelling` writes so, of which the stemmer knows the other spelling; and "and the", of which it knows
the second half only.
"""
_LONGEST = 40
"""Letters of the longest word that is cut: what has more is no word, and some stemmers take the square of its length."""

_STEMMED = re.compile("|".join(f"(?P<{language}>{letters})" for letters, language in _STEMMERS.items()))

_PARTS = re.compile("[\u0621-\u06ff]+(?:\u200c[\u0621-\u06ff]+)+")
_PAIR = re.compile("(?<![\u0621-\u06ff])([\u0621-\u06ff]+)(?= ([\u0621-\u06ff]+))")

_HEBREW = re.compile("[\u05d0-\u05ea]{2,}")
_BEFORE_HEBREW = ("ה", "ו", "ב", "ל", "מ", "ש", "כ", "וה", "וב", "ול", "ומ", "שה", "כש")


def one_spelling(text: str) -> str:
    """`text` with one letter for those that stand for each other; in lower case before, and composed.

    >>> one_spelling("ёлка"), one_spelling("αθήνα"), one_spelling("کتاب")
    ('елка', 'αθηνα', 'كتاب')
    """
    if text.isascii():
        return text
    same = _same()
    return _NASAL.sub("ं", _VARIANT.sub(lambda found: same.get(found[0], ""), text))


def unaccented(text: str) -> str:
    """`text` without its accents, as the index holds Latin words and many people write them; folded before.

    >>> unaccented("josé"), unaccented("ガ")
    ('jose', 'ガ')
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", text)))


def stemmed(text: str) -> str:
    """`text` with its words cut to their stems, where their script tells of which language; folded before.

    >>> stemmed("документы сервера"), stemmed("المدرسه")
    ('документ сервер', 'مدرس')
    """
    return text if text.isascii() else _STEMMED.sub(_stem_of, text)


def hebrew_forms(word: str) -> tuple[str, ...]:
    """A Hebrew word with "the", "and", "in" and their like, which are written as one word with it, and without; else none.

    >>> "בירושלים" in hebrew_forms("ירושלים"), "ירושלים" in hebrew_forms("בירושלים")
    (True, True)
    """
    if not _HEBREW.fullmatch(word):
        return ()
    bare = [word.removeprefix(before) for before in _BEFORE_HEBREW if word.startswith(before)]
    return (*(before + word for before in _BEFORE_HEBREW), *(form for form in bare if len(form) > 2))


def persian_forms(text: str) -> dict[str, str]:
    """Words that Persian writes as one, with or without the sign between their parts, or as two: one of them to the other.

    >>> persian_forms("می\u200cروم"), persian_forms("می روم")
    ({'میروم': 'می روم'}, {'می': 'میروم'})
    """
    apart = {found.replace("\u200c", ""): found.replace("\u200c", " ") for found in _PARTS.findall(text)}
    return {one: one + other for one, other in _PAIR.findall(text)} | apart


def _stem_of(found: re.Match[str]) -> str:
    word, language = found[0], found.lastgroup
    return _stem(language, word) if language and len(word) <= _LONGEST else word


@lru_cache(maxsize=20_000)
def _stem(language: str, word: str) -> str:
    if language == "Arabic":
        word = _AND_THE.sub("ال", _FINAL_HEH.sub("ة", word))
    # One of its own for each word: it keeps what it cuts on itself, and threads cut at the same time.
    return one_spelling(_stemmer(language)().stemWord(word))


@cache
def _stemmer(language: str) -> Callable[[], Any]:
    # By its module: the package takes PyStemmer where that is installed, whose stems may be of another version.
    module = importlib.import_module(f"snowballstemmer.{language.lower()}_stemmer")
    made: Callable[[], Any] = getattr(module, f"{language}Stemmer")
    return made


@cache
def _same() -> dict[str, str]:
    """Each variant and the letter that stands for it; of what is silent, nothing."""
    same = dict(_ONE_OF_TWO)
    for letter in _within(_ACCENTED):
        base = "".join(
            part for part in unicodedata.normalize("NFD", letter) if not unicodedata.combining(part)
        )
        same[letter] = same.get(base, base)
    same |= {digit: str(unicodedata.decimal(digit)) for digit in _within(_DIGITS)}
    for letter in _within(_TYPESET):
        plain = unicodedata.normalize("NFKC", letter).lower()
        same[letter] = _VARIANT.sub(lambda found: same.get(found[0], ""), plain)
    return same


def _within(ranges: str) -> Iterator[str]:
    """The characters of a class of a pattern."""
    for first, last in re.findall("(.)-(.)", ranges):
        yield from map(chr, range(ord(first), ord(last) + 1))
