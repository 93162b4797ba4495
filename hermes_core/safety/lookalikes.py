"""Characters as a reader sees them: one ASCII symbol, a space, or nothing.

The fence and the threat scan see through full-width forms, look-alike letters of other scripts and characters that
show nothing. The table is a selection from the Unicode security data (UTS 39, confusables.txt), with letters and
brackets added that language models read as the ASCII symbol although their shapes differ.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# The package confusable-homoglyphs maps only 162 of these 261 characters: it lacks the wide brackets, the dashes and
# Cyrillic letters such as "в" and "т". Its data takes 60 ms to load, and each recall would pay that.
_FORMS = {
    "a": "аɑαᴀ𐊠ꓮᎪΑА",
    "b": "ЬЪьʙВвΒβᏴꓐƅ",
    "c": "сϲᴄСϹꓚⅽᏟ",
    "d": "ԁɗᴅᎠꓓժ",
    "e": "еєҽεᴇℯЕЄΕᎬꓰёЁ",
    "f": "ϝғꜰſꓝẝ",
    "g": "ɡցɢԌᏀꓖ",
    "h": "һհнНΗʜᎻꓧ",
    "i": "іɩιıɪІΙӀїΪᎥꓲΐϊί",
    "j": "јϳᴊЈᎫꓙ",
    "k": "кκᴋКΚᏦꓗ",
    "l": "ӏʟꓡᏞⅼ",
    "m": "мᴍМΜᎷꓟ",
    "n": "пոηɴΝꓠиͷ",
    "o": "оοσօᴏОΟՕꓳөό",
    "p": "рρᴘРΡᏢꓑ",
    "q": "ԛգԚ",
    "r": "гᴦʀᎡꓣя",
    "s": "ѕꜱЅՏᏚꓢʂ",
    "t": "тτᴛТΤᎢꓔ",
    "u": "υսᴜՍꓴцύ",
    "v": "ѵνᴠѴᏙꓦ",
    "w": "ѡԝɯᴡԜᎳꓪω",
    "x": "хχⅹХΧꓫ",
    "y": "уγүʏУΥҮꓬ",
    "z": "ᴢΖᏃꓜʐ",
    "-": "‐‑‒–—―−⁃﹘﹣－˗➖⸺⸻ーｰ",
    "<": "＜﹤‹〈〈⟨❮❬˂ᐸ≺⧼《«⟪𝈶",
    ">": "＞﹥›〉〉⟩❯❭˃ᐳ≻⧽》»⟫𝈷",
    "/": "⁄∕／⧸╱⟋〳ノ",
    "[": "［【〔⟦❲﹇",
    "]": "］】〕⟧❳",
}
LOOKALIKES = {form: letter for letter, forms in _FORMS.items() for form in forms}
"""Look-alike characters, each with the ASCII character that it is read as."""

# Brackets that a model reads as the ASCII bracket when a tag or a note stands behind them. The threat scan does not use
# them: people write most of them as arrows, bullets and quotation marks.
_WIDE_FORMS = {
    "<": "᚜❰⦑⦉⦓⋖⫷⋘≪⪡⪻⥶⩹◀◁◂◃◄🡠🢐⏴",
    ">": "᚛❱⦒⦊⦔⋗⫸⋙≫⪢⪼⥸⩺▶▷▸▹►🡢🢒⏵",
    "[": "⁅⦋⦍⦏⟬〘〖〚❴⎨⌊⌈⎡⎢⎣⸢⹕⹗﹝｢「『⦃｛（﹛﹙",
}
WIDE_LOOKALIKES = LOOKALIKES | {form: sign for sign, forms in _WIDE_FORMS.items() for form in forms}
"""Look-alike characters of `wide_skeleton`, each with the ASCII character that it is read as."""

_LETTER_NAME = re.compile(r"\b([A-Z])(?: WITH .*)?$")

# Hangul fillers and Khmer inherent vowels: Unicode calls them letters, a screen shows nothing.
_INVISIBLE_LETTERS = frozenset("ᅟᅠㅤﾠ឴឵")
_IGNORABLE_CLASSES = frozenset({"Cf", "Mn", "Me", "Cc", "Cs"})


@lru_cache(maxsize=8192)
def skeleton(char: str) -> str:
    """Return the symbol that a reader sees for one character.

    That is a lower-case ASCII symbol, " " for any white space, "" for a character that shows nothing, or the character
    itself if it looks like no ASCII symbol.

    >>> skeleton("Ｍ"), skeleton("е"), skeleton("\\u200b"), skeleton("語")
    ('m', 'e', '', '語')
    """
    if char.isspace():
        return " "
    if char.isascii():
        return char.lower() if char.isprintable() else ""
    if is_ignorable(char):
        return ""
    known = LOOKALIKES.get(char)
    if known is not None:
        return known
    plain = "".join(c for c in unicodedata.normalize("NFKD", char) if not is_ignorable(c))
    symbol = plain.lower() if len(plain) == 1 else char
    return LOOKALIKES.get(symbol, symbol)


@lru_cache(maxsize=8192)
def wide_skeleton(char: str) -> str:
    """Return the symbol that a model may read for one character in the name of a tag.

    Beside the look-alikes of `skeleton`, that is the Latin letter with which the Unicode name of the character ends:
    models read a disguised word by the sound of its letters too. For other text, `skeleton` is the right function.

    >>> wide_skeleton("ㄇ"), wide_skeleton("🅼"), wide_skeleton("⫷"), wide_skeleton("語")
    ('m', 'm', '<', '語')
    """
    plain = unicodedata.normalize("NFKC", char)
    if len(plain) == 1 and plain.isascii() and plain.isalnum():
        return plain.lower()
    symbol = WIDE_LOOKALIKES.get(char) or skeleton(char)
    if symbol.isascii():
        return symbol
    name = _LETTER_NAME.search(unicodedata.name(char, ""))
    return name[1].lower() if name else symbol


def is_ignorable(char: str) -> bool:
    """Return True if the character shows nothing: a format, mark, control, filler, tag or variation selector."""
    if char.isspace():
        return False
    return (
        unicodedata.category(char) in _IGNORABLE_CLASSES
        or char in _INVISIBLE_LETTERS
        or 0xE0000 <= ord(char) <= 0xE0FFF
    )
