"""What a character looks like to a reader: one ASCII symbol, a space, or nothing.

The fence and the threat scan both have to see through full-width forms, look-alike letters of other scripts and
characters that show nothing. The look-alikes are a selection from the Unicode security data (UTS 39, confusables.txt):
those that read as a Latin letter or as one of the signs that a tag is made of.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_LOOKALIKES = {
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
LOOKALIKES = {form: letter for letter, forms in _LOOKALIKES.items() for form in forms}
"""A look-alike character -> the ASCII character that it is read as."""

_INVISIBLE_LETTERS = frozenset(
    "ᅟᅠㅤﾠ឴឵"
)  # Hangul fillers and Khmer inherent vowels: letters by class, blank on the screen
_IGNORABLE_CLASSES = frozenset({"Cf", "Mn", "Me", "Cc", "Cs"})


@lru_cache(maxsize=8192)
def fold(char: str) -> str:
    """What one character reads as: a lower-case ASCII symbol, " " for any white space, "" for nothing, else itself.

    >>> fold("Ｍ"), fold("е"), fold("\\u200b"), fold("語")
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


def is_ignorable(char: str) -> bool:
    """Whether the character shows nothing of its own: formats, marks, controls, fillers, tags, variation selectors."""
    if char.isspace():
        return False
    return (
        unicodedata.category(char) in _IGNORABLE_CLASSES
        or char in _INVISIBLE_LETTERS
        or 0xE0000 <= ord(char) <= 0xE0FFF
    )
