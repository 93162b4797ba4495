"""One spelling for letters that people write in two ways (ё and е, Ά and α, أ and ا, ß and ss), and stems of words.

The choice of letters follows Lucene's normalizers for Arabic, Persian and Indic text. Words are stemmed with Snowball:
those in Latin letters as English, others if their script shows the language.
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
_ACCENTS = re.compile("(?<=[A-Za-z])[\u0300-\u036f]+")
_NASAL = re.compile("[ङञणनम]्(?=[क-ह])")  # हिन्दी and हिंदी

# The stemmer for words of a script. It stems Bulgarian words like Russian words, and Persian words like Arabic words;
# that does no harm, because stored texts and questions are stemmed in the same way.
_STEMMERS = {
    "[\u0400-\u04ff]{3,}": "Russian",
    "[\u0370-\u03ff]{3,}": "Greek",
    "[\u0621-\u064a\u066e-\u06d3\u06fa-\u06ff]{3,}": "Arabic",
    "[\u0900-\u0963\u0970-\u097f]{3,}": "Hindi",
    "[\u0561-\u0587]{3,}": "Armenian",
    "[\u0b80-\u0bff]{3,}": "Tamil",
}
# An ending that the Arabic stemmer expects in another spelling than that of `one_spelling`; and the prefix "and the",
# of which it knows only "the".
_FINAL_HEH, _AND_THE = re.compile("ه$"), re.compile("^[وف]ال(?=...)")
# Letters of the longest word that is stemmed: the time of some stemmers grows with the square of the length, and a
# longer text is no word.
_MAX_STEMMED_CHARS = 40

# All endings of words that the rules for English change. Those rules take 20 us a word, and half of the words of a text
# have no such ending.
_ENGLISH_ENDINGS = (
    *("s", "ed", "ing", "y", "e", "al", "ful", "ll", "er", "or", "ic", "ant", "ent", "ion", "ism"),
    *("ogist", "li", "ogi", "iti", "nci"),
)

_PARTS = re.compile("[\u0621-\u06ff]+(?:\u200c[\u0621-\u06ff]+)+")
_PAIR = re.compile("(?<![\u0621-\u06ff])([\u0621-\u06ff]+)(?= ([\u0621-\u06ff]+))")

_HEBREW = re.compile("[\u05d0-\u05ea]{2,}")
_BEFORE_HEBREW = ("ה", "ו", "ב", "ל", "מ", "ש", "כ", "וה", "וב", "ול", "ומ", "שה", "כש")


def one_spelling(text: str) -> str:
    """Return `text` with one spelling for letters that people write in two ways, and without silent marks.

    `text` must be in lower case and in Unicode's composed form (NFC).

    >>> one_spelling("ёлка"), one_spelling("αθήνα"), one_spelling("کتاب")
    ('елка', 'αθηνα', 'كتاب')
    """
    if text.isascii():
        return text
    same = _same()
    return _NASAL.sub("ं", _variant_pattern().sub(lambda match: same.get(match[0], ""), text))


def unaccented(text: str) -> str:
    """Return `text` with its Latin letters without accents. `text` is a result of `tokens.fold`.

    >>> unaccented("josé"), unaccented("йод")
    ('jose', 'йод')
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))


def stem_words(text: str) -> str:
    """Return `text` with words replaced by their stems if their script shows the language.

    `text` is a result of `tokens.fold`.

    >>> stem_words("документы сервера"), stem_words("المدرسه")
    ('документ сервер', 'مدرس')
    """
    return text if text.isascii() else _stemmed_pattern().sub(_stem_of, text)


def english_stem(word: str) -> str:
    """Return the stem of a word in lower case, by the rules of Snowball; a word with digits as it is.

    >>> english_stem("databases"), english_stem("b2s")
    ('databas', 'b2s')
    """
    if word.endswith(_ENGLISH_ENDINGS) and word.isalpha() and 2 < len(word) <= _MAX_STEMMED_CHARS:
        return _stem("English", word)
    return word


def hebrew_forms(word: str) -> tuple[str, ...]:
    """Return the forms of a Hebrew word with and without the prefixes for "the", "and", "in" and similar words.

    Return no forms for a word of another language.

    >>> "בירושלים" in hebrew_forms("ירושלים"), "ירושלים" in hebrew_forms("בירושלים")
    (True, True)
    """
    if not _HEBREW.fullmatch(word):
        return ()
    bare = [word.removeprefix(before) for before in _BEFORE_HEBREW if word.startswith(before)]
    return (*(before + word for before in _BEFORE_HEBREW), *(form for form in bare if len(form) > 2))


def persian_forms(text: str) -> dict[str, str]:
    """Return a mapping from the Persian words of `text` to their other spelling.

    Some words can be written as one word with an invisible joiner, or as two words.

    >>> persian_forms("می\u200cروم"), persian_forms("می روم")
    ({'میروم': 'می روم'}, {'می': 'میروم'})
    """
    apart = {word.replace("\u200c", ""): word.replace("\u200c", " ") for word in _PARTS.findall(text)}
    return {first: first + second for first, second in _PAIR.findall(text)} | apart


def _stem_of(match: re.Match[str]) -> str:
    word, language = match[0], match.lastgroup
    return _stem(language, word) if language and len(word) <= _MAX_STEMMED_CHARS else word


@lru_cache(maxsize=20_000)
def _stem(language: str, word: str) -> str:
    if language == "Arabic":
        word = _AND_THE.sub("ال", _FINAL_HEH.sub("ة", word))
    # A new stemmer for each word: it keeps the word on itself, and several threads stem at the same time.
    return one_spelling(_stemmer(language)().stemWord(word))


@cache
def _stemmer(language: str) -> Callable[[], Any]:
    # By its module: the package itself prefers PyStemmer if that is installed, whose stems may be of another version.
    module = importlib.import_module(f"snowballstemmer.{language.lower()}_stemmer")
    stemmer: Callable[[], Any] = getattr(module, f"{language}Stemmer")
    return stemmer


@cache
def _same() -> dict[str, str]:
    """Return a mapping from each variant of a letter to the letter that replaces it.

    Silent marks have no entry, so `one_spelling` removes them.
    """
    same = dict(_ONE_OF_TWO)
    for letter in _within(_ACCENTED):
        base = "".join(
            part for part in unicodedata.normalize("NFD", letter) if not unicodedata.combining(part)
        )
        same[letter] = same.get(base, base)
    same |= {digit: str(unicodedata.decimal(digit)) for digit in _within(_DIGITS)}
    for letter in _within(_TYPESET):
        plain = unicodedata.normalize("NFKC", letter).lower()
        same[letter] = _variant_pattern().sub(lambda match: same.get(match[0], ""), plain)
    return same


# Compiled when they are first used, because most programs never search.


@cache
def _variant_pattern() -> re.Pattern[str]:
    return re.compile(f"[{''.join(_ONE_OF_TWO)}{_SILENT}{_ACCENTED}{_DIGITS}{_TYPESET}]")


@cache
def _stemmed_pattern() -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{language}>{letters})" for letters, language in _STEMMERS.items()))


def _within(ranges: str) -> Iterator[str]:
    """Yield the characters of ranges such as "a-z0-9"."""
    for first, last in re.findall("(.)-(.)", ranges):
        yield from map(chr, range(ord(first), ord(last) + 1))
