"""Threat scan of text that becomes memory.

Memory stands in the system prompt, so an entry must not be able to give orders. The scan reads a text in several ways
(without disguise, with respelt words, with decoded parts) and tries the rules of `threat_rules` on each reading. It always
covers the whole text. The scan is one signal and no barrier: a sentence can always be worded in another way. What may
stand in a prompt depends on the origin of a text, and a person can overrule the scan.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice

from msgspec import Struct

from hermes_core.safety.lookalikes import is_ignorable, skeleton
from hermes_core.safety.threat_rules import CATEGORIES, RULES, Rule
from hermes_core.safety.word_match import Chain, matches, parse_chain, segments

_DEPTH = 2  # an encoding within an encoding is decoded too


class Threat(Struct, frozen=True):
    """Reason why a text must not become memory. `message` is a sentence for the model and the person."""

    id: str
    category: str
    message: str


Scan = Callable[[str], Threat | None]
"""Type of `first_threat`; a host may pass a scan of its own."""


def scan(text: str, *, untrusted: bool = False) -> list[Threat]:
    """Return every threat in `text`, at most one for each rule, in the order in which the readings show them.

    Args:
        text: Text of a note, a skill or a file.
        untrusted: Also try the rules that are meant only for notes of untrusted origin.
    """
    return list({threat.id: threat for threat in _threats(text, untrusted, _DEPTH)}.values())


def first_threat(text: str, *, untrusted: bool = False) -> Threat | None:
    """Return the first threat in `text`, or None. Stops at the first match. `untrusted`: as in `scan`."""
    return next(_threats(text, untrusted, _DEPTH), None)


def _threats(text: str, untrusted: bool, depth: int) -> Iterator[Threat]:
    """Yield the threats of every reading of `text`, also of texts encoded in it, `depth` levels deep."""
    for at in islice(invisible_characters(text), 1):
        yield _threat(f"invisible_u{ord(text[at]):04x}", "invisible_unicode")
    plain = _without_disguise(text)
    # A negation may stand on the line before, so sentences are read with wrapped lines joined.
    flat = _joined_lines(plain)
    yield from _matches(flat, untrusted)
    if flat != plain:
        yield from _pattern_matches(plain, "plain", untrusted)
    shell = _without_quotes(plain)
    if shell != plain:
        yield from _matches(_joined_lines(shell), untrusted)
    for reading in _respellings(flat, text):
        yield from _matches(reading, untrusted, code=False)
    for letters in _letters_only(plain):
        yield from _pattern_matches(letters, "letters", untrusted)
    # The limit keeps a text that encodes itself many times from making the scan slow.
    room = _MAX_DECODED_CHARS
    for inner in _decoded(text) if depth else ():
        room -= len(inner)
        if room < 0:
            break
        yield from _threats(inner, untrusted, depth - 1)


def _matches(text: str, untrusted: bool, *, code: bool = True) -> Iterator[Threat]:
    """Yield the threats of one reading; without `code`, only those of rules on sentences."""
    if code:
        yield from _pattern_matches(text, "plain", untrusted)
    sentences, lines = segments(text)
    # Most segments hold the lists of no rule: one look at the names of a segment decides.
    for span, parts in (("sentence", sentences), ("line", lines if code else ())):
        rules = _chains(span, untrusted)
        for part in parts:
            names = part.positions.keys()
            for needs, rule, chain, unless in rules:
                if needs <= names and matches(chain, part, unless, rule.back, rule.not_before):
                    yield _threat(rule.id, rule.category)


def _pattern_matches(text: str, view: str, untrusted: bool) -> Iterator[Threat]:
    for rule, pattern in _patterns(view, untrusted):
        if pattern.search(text):
            yield _threat(rule.id, rule.category)


def _threat(rule: str, category: str) -> Threat:
    return Threat(rule, category, f"this text {CATEGORIES[category]} ({category}: {rule})")


@cache
def _chains(span: str, untrusted: bool) -> tuple[tuple[frozenset[str], Rule, Chain, tuple[str, ...]], ...]:
    """Return the rules on this part of a text, each with the names of its lists, its chain, and what voids it."""
    rules = (rule for rule in RULES if rule.words and rule.span == span and (untrusted or not rule.untrusted))
    return tuple(
        (frozenset(rule.words.split()[::2]), rule, parse_chain(rule.words), tuple(rule.unless.split()))
        for rule in rules
    )


@cache
def _patterns(view: str, untrusted: bool) -> tuple[tuple[Rule, re.Pattern[str]], ...]:
    rules = (
        rule for rule in RULES if rule.pattern and rule.view == view and (untrusted or not rule.untrusted)
    )
    return tuple((rule, re.compile(rule.pattern)) for rule in rules)


# ------------------------------------------------------------------ readings

_MAX_DECODED_CHARS = 65_536
# Characters that show nothing are only written for a reason in these neighbourhoods, see `_hides`.
_JOINING_LETTER = re.compile(
    r"[\u0600-\u08ff\u0900-\u0dff\u0e00-\u109f\u1780-\u18af\u1a20-\u1aaf\ua840-\ua8df\ufb50-\ufefc]"
)
_UNSPACED_LETTER = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u4e00-\u9fff]")
_PICTURE = re.compile(
    r"[\u2190-\u2bff\u3030-\u303d\u3297-\u3299\U0001f000-\U0001faff\ufe0f\u20e3\u00a9-\u00ae]"
)
_ALWAYS_HIDING = re.compile(r"[\u202d\u202e\u2061-\u2065\u206a-\u206f\ufff9-\ufffb\u3164\uffa0\u115f\u1160]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")
_EMBEDDINGS = frozenset("\u202a\u202b\u202c\u2066\u2067\u2068\u2069")
_BETWEEN_LETTERS = frozenset("\u034f\u2060\u180e\ufeff")


def invisible_characters(text: str) -> Iterator[int]:
    """Yield the index of each invisible character that correct spelling does not explain.

    Correct spelling has joiners between letters of joining scripts and in emoji, direction marks in right-to-left text,
    variation selectors after a picture or a Han letter, and tags in the flags of regions.
    """
    if text.isascii():
        yield from (match.start() for match in _CONTROL.finditer(text))
        return
    right_to_left = any(unicodedata.bidirectional(char) in ("R", "AL") for char in text)
    flag = False
    for at, char in enumerate(text):
        flag = char == "\U0001f3f4" or (flag and _is_tag(char))
        if char > "\u02ff" or char < " " or "\x7f" <= char < "\xa0":
            before = text[at - 1] if at else ""
            if _hides(char, before, text[at + 1 : at + 2], right_to_left, flag):
                yield at


def _hides(char: str, before: str, after: str, right_to_left: bool, flag: bool) -> bool:
    """Return True unless the neighbours, the direction of the text or a flag explain the character."""
    if char < " " or "\x7f" <= char < "\xa0":
        return char not in "\t\n\r\f\v\x85"
    if _ALWAYS_HIDING.match(char):
        return True
    if char in "\u200c\u200d":  # joiners
        return not (_JOINING_LETTER.match(before) or (_PICTURE.match(before) and _PICTURE.match(after)))
    if char == "\u200b":  # a zero width space
        return not (_UNSPACED_LETTER.match(before) or _UNSPACED_LETTER.match(after))
    if char in _EMBEDDINGS:
        return not right_to_left
    if char in _BETWEEN_LETTERS:
        return bool(before) and before.isascii() and before.isalnum() and after.isascii() and after.isalnum()
    if "\ufe00" <= char <= "\ufe0f":  # variation selectors; one behind another hides data
        return (
            not before
            or before.isspace()
            or "\ufe00" <= before <= "\ufe0f"
            or (before.isascii() and after.isascii() and after.isalpha())
        )
    if 0xE0100 <= ord(char) <= 0xE01EF:  # variation selectors of Han letters
        return not (before and "CJK" in unicodedata.name(before, ""))
    return _is_tag(char) and not flag


def _is_tag(char: str) -> bool:
    return 0xE0000 <= ord(char) <= 0xE007F


# Digits and signs that stand for letters, as in "1gn0re". A word is translated only if it has a letter as well as such
# a sign: otherwise numbers and prices would be read as words.
_LEET = str.maketrans("0134578@$!|€", "oieastbasile")
_LEET_WORD = (
    r"(?<![\w@$!])(?=[\w@$!|]{0,24}[a-z])(?=[\w@$!|]{0,24}[0134578@$!|])[a-z0134578@$!|]{3,24}(?![\w@$])"
)
# The shell ignores empty quotes and single backslashes inside a word: `cu""rl`, `c\\url`.
_QUOTE_SPLIT = r"(?<=[\w./~])(?:\"\"|''|\\(?=[a-z_]))(?=[\w./])"
_SHELL_SPACE = r"\$\{?ifs\}?(?:\$\d)?"
# Letters with a sign between each two, as in "i g n o r e", and words joined by one sign, as in "ignore_all_rules".
_SPACED = r"(?<!\w)(?:\w[ ._*~|/+-]){3,200}\w(?!\w)"
_JOINED = r"(?<![\w.-])(?!test_)[a-z]{1,20}([_·-])[a-z]{1,20}(?:\1[a-z]{1,20}){3,60}(?![\w(])"
_NOT_A_LETTER = r"[^a-z]+"
_INDENT = r"\n[ \t]{1,8}(?=\w)"
_WRAPPED = r"(?<=[\w,])[ \t\r]*\n[ \t>]{0,8}(?=-?\w)"
_EMPHASIS = r"(?<!\w)[*_]{1,3}(?=\w)|(?<=[^\W_])[*_]{1,3}(?!\w)"

_LONG_WORD = r"[a-z]{5,14}"
_KEY_WORDS = "ignore disregard forget previous prior earlier instructions instruction system prompt rules guidelines override reveal"


_TURNED = (*_KEY_WORDS.split()[:6], "instruction", "system", "user", "password", "send", "tell")


def _shape(word: str) -> tuple[str, str]:
    """Return a key that stays equal if inner letters of a word change places, since such a word is still read."""
    return word[0] + word[-1], "".join(sorted(word))


_SCRAMBLED = {_shape(word): word for word in _KEY_WORDS.split()}


def _without_disguise(text: str) -> str:
    """Return `text` in lower case with compatibility forms, look-alikes, marks and invisible characters resolved.

    The indent of lines that begin with a word is removed, so that only a newline separates words across two lines.
    """
    if not text.isascii():
        text = "".join(map(_plain_letter, unicodedata.normalize("NFKC", text)))
    return re.sub(_INDENT, "\n", text.lower())


def _plain_letter(char: str) -> str:
    """Return the skeleton of a letter; line separators stay, since rules look at the beginning of lines."""
    if char.isascii():
        return char.lower()
    if char.isspace():
        return char if char in "\u2028\u2029" else " "
    return skeleton(char)


def _visible(text: str) -> str:
    """Return `text` in lower case and in its own script, without invisible characters."""
    normal = unicodedata.normalize("NFKC", text).lower()
    return (
        normal
        if normal.isascii()
        else "".join(c for c in normal if unicodedata.category(c) in ("Mn", "Mc") or not is_ignorable(c))
    )


def _joined_lines(text: str) -> str:
    """Return the text with wrapped lines joined and Markdown emphasis removed."""
    return re.sub(r"[ \t]{2,}", " ", re.sub(_EMPHASIS, "", re.sub(_WRAPPED, " ", text)))


def _without_quotes(text: str) -> str:
    """Return the text as a shell reads it: without empty quotes and backslashes inside words."""
    if '""' in text or "''" in text or "\\" in text or "ifs" in text:
        return re.sub(_SHELL_SPACE, " ", re.sub(_QUOTE_SPLIT, "", text))
    return text


def _respellings(plain: str, text: str) -> Iterator[str]:
    """Yield readings that differ from `plain`: its own script, digits for letters, scrambled, joined, spaced or turned."""
    if not text.isascii():
        yield _joined_lines(_visible(text))
    respelt = re.sub(_LEET_WORD, lambda match: match[0].translate(_LEET), plain)
    if respelt != plain:
        yield respelt
    unscrambled = re.sub(_LONG_WORD, lambda match: _SCRAMBLED.get(_shape(match[0]), match[0]), plain)
    if unscrambled != plain:
        yield unscrambled
    parted = re.sub(_JOINED, lambda match: match[0].replace(match[1], " "), plain)
    if parted != plain:
        yield parted
    joined = re.sub(_SPACED, lambda match: re.sub(r"[\W_]", "", match[0]), plain)
    if joined != plain:
        yield re.sub(r"\s+", " ", joined)
    for turned in (plain[::-1], codecs.encode(plain, "rot13")):
        if any(word in turned for word in _TURNED):
            yield turned


def _letters_only(text: str) -> Iterator[str]:
    """Yield only the letters of the text: forwards, backwards, by rot13, and with digits read as letters."""
    letters = re.sub(_NOT_A_LETTER, "", text)
    yield letters
    yield letters[::-1]
    yield codecs.encode(letters, "rot13")
    respelt = re.sub(_NOT_A_LETTER, "", text.translate(_LEET))
    if respelt != letters:
        yield respelt


_BASE64 = r"[A-Za-z0-9+/_-]{16,}={0,2}"
_BASE32 = r"\b(?:[A-Z2-7]{16,}|[a-z2-7]{16,})={0,6}"
_HEX = r"(?:[0-9a-fA-F]{2}){8,}|(?:(?:\\x|0x|%)[0-9a-fA-F]{2}[\s,]?){6,}|(?:[0-9a-fA-F]{2}[ :]){8,}[0-9a-fA-F]{2}"
_ESCAPES = r"(?:\\u[0-9a-fA-F]{4}){4,}|(?:&#x?[0-9a-fA-F]{1,6};?){4,}"
_NUMBERS = r"(?:\b\d{2,3}[,;\s]{1,2}){7,}\d{2,3}\b|(?:[01]{8}\s?){6,}"
_CODE = r"(?i)&#x([0-9a-f]+)|&#(\d+)|\\u([0-9a-f]{4})"


def _decoded(text: str) -> Iterator[str]:
    """Yield texts that are encoded in `text`: base64, base32, hexadecimal, escapes, character codes, hidden tags."""
    for match in re.finditer(_BASE64, text):
        yield from _readable(_from_base64(match[0]))
    for match in re.finditer(_BASE32, text):
        yield from _readable(_from_base32(match[0]))
    for match in re.finditer(_HEX, text):
        yield from _readable(bytes.fromhex(re.sub(r"\\x|0x|[^0-9a-fA-F]", "", match[0])))
    for match in re.finditer(_ESCAPES, text):
        yield "".join(_from_code(code) for code in re.finditer(_CODE, match[0]))
    for match in re.finditer(_NUMBERS, text):
        yield from _readable(_from_numbers(match[0]))
    hidden = "".join(filter(None, map(_smuggled, text))) if not text.isascii() else ""
    if len(hidden) > 3:
        yield hidden


def _from_base64(word: str) -> bytes:
    word = word.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(word[: len(word) - (len(word) % 4 == 1)] + "=" * (-len(word) % 4))
    except (binascii.Error, ValueError):
        return b""


def _from_base32(word: str) -> bytes:
    word = word.rstrip("=")
    word = word[: len(word) - (len(word) % 8 in (1, 3, 6))]
    try:
        return base64.b32decode(word + "=" * (-len(word) % 8), casefold=True)
    except binascii.Error:
        return b""


def _from_code(code: re.Match[str]) -> str:
    number = int(code[1] or code[3], 16) if code[1] or code[3] else int(code[2])
    return chr(number) if number <= 0x10FFFF else ""


def _from_numbers(digits: str) -> bytes:
    if set(digits) <= set("01 \t\n"):
        bits = re.sub(r"\s", "", digits)
        return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))
    numbers = [int(number) for number in re.findall(r"\d+", digits)]
    return bytes(numbers) if all(number < 256 for number in numbers) else b""


def _readable(raw: bytes) -> Iterator[str]:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return
    if len(text) >= 6 and all(char.isprintable() or char in "\n\t\r" for char in text):
        yield text


def _smuggled(char: str) -> str:
    """Return the character that a tag character or a variation selector encodes, or ""."""
    code = ord(char)
    if 0xE0020 <= code <= 0xE007E:
        return chr(code - 0xE0000)
    if 0xE0100 <= code <= 0xE01EF:
        return chr(code - 0xE0100 + 16)
    return ""
