"""The rule by which a note is a statement of the person: each of its sentences is a sentence that they wrote.

The rule compares whole sentences in a normal form and knows no negations: what stands before or after the words in
their sentence belongs to it, in any language. `data/speakers.txt` has words for who speaks and for lead-ins. They let
more notes pass that say the same, and none is needed to be safe.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from msgspec import Struct

from hermes_core.recall.tokens import dense_runs
from hermes_core.safety.data_file import data_lines

# Stand for the person and for what is theirs.
_PERSON, _THEIRS = "\ue000", "\ue001"

_QUOTES = re.compile("[\"“”„‟«»‹›「」『』《》`]|(?<!\\w)['‘’‚‛]|['‘’‚‛](?!\\w)|```")
_LINE_OF_OTHERS = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
# A run of marks, of which a question and an ellipsis are no end of a statement. Greek writes its question mark as ";".
_MARKS = re.compile("[.!！。।॥۔։?？؟…]+|(?<=[\u0370-\u03ff\u1f00-\u1fff]);")
_DOUBTFUL_END = re.compile(r"(?<![.\w])(?P<word>\d{1,2}|[^\W\d_]{3,4})\.\s+(?=\S)")
_ASKS = re.compile("[?？؟;]")
_STATEMENT_END = re.compile(r"\.?[!！]+|[.。।॥۔։]")
# Words of others may follow: a colon, the greeting of a letter, a ruled line.
_OPENING = re.compile(r"(?<!\d):(?!//)|:(?!\S)|,[ \t]*\n|^[ \t]*\W{3,}$", re.MULTILINE)
_NOTE_PARTS = re.compile("\n|(?<![\u0370-\u03ff\u1f00-\u1fff]); ")
_BLANKS = re.compile(r"[^\S\n]+")
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
# "！" and "？" stay, because they end a sentence without a blank after them.
_WIDE = {code: chr(code - 0xFEE0) for code in range(0xFF02, 0xFF5F) if code != 0xFF1F} | {
    0x3000: " ",
    0x200C: None,
    0x2019: "'",
}
_DASHES = str.maketrans("‐‑‒–—―", "------")

# A sentence as short as this takes back or limits the sentence before it: "I like tea. Not really."
MAX_AFTERTHOUGHT_WORDS = 3

# Characters of a word in Chinese or Japanese, and in Thai and its neighbours, which write no blanks between words.
_IDEOGRAPHS, _LETTERS = 2, 4

# Characters around a mark that decide if it ends a sentence, and those of a message and of a note that are compared. More
# is pasted.
_LOOK = 80
MAX_MESSAGE_CHARS, MAX_NOTE_CHARS = 20_000, 5000

# A capitalized word as short as this may be an abbreviation such as "Prof.".
MAX_ABBREVIATION = 4

# English, in which a verb ends otherwise with "the user" than with "I".
_ADVERBS = frozenset(
    [
        "never",
        "always",
        "only",
        "usually",
        "often",
        "also",
        "still",
        "rarely",
        "mostly",
        "sometimes",
        "really",
    ]
)
_IRREGULAR = {"is": ("am", "are"), "has": ("have",), "does": ("do",), "was": ("were",)}
_SHORT_FORMS = {
    "can't": "cannot",
    "won't": "will not",
    "n't": " not",
    "'m": " am",
    "'re": " are",
    "'ve": " have",
    "'ll": " will",
    "'d": " would",
}


def is_stated(text: str, said: Iterable[str]) -> bool:
    """Return True if each sentence of `text` is a sentence that the person wrote, in one normal form.

    >>> is_stated("The user likes green tea.", ["Please note: I like green tea!"])
    True
    >>> is_stated("The user likes green tea.", ["I like green tea, she writes."])
    False
    """
    if has_hidden(text) or len(text) > MAX_NOTE_CHARS:
        return False
    parts = [part for line in _NOTE_PARTS.split(_of_same_signs(text)) for part in _parts(line)]
    sentences = {_plain(part) for message in said for part in _statements(message)}
    return bool(parts) and all(states and _is_among(_plain(part), sentences) for part, states in parts)


def has_hidden(text: str) -> bool:
    """Return True if `text` has signs that a reader does not see, other than the joint within Persian words."""
    return not text.isascii() and any(
        unicodedata.category(char) in ("Cf", "Co", "Cn", "Cs") and char != "\u200c" for char in text
    )


def is_refusal(message: str) -> bool:
    """Return True if a message says no and nothing else, in a language of the data.

    >>> is_refusal("No, thanks!"), is_refusal("No milk is left.")
    (True, False)
    """
    return _plain(message.strip().rstrip(".!。！")) in _refusals()


def may_refuse(message: str) -> bool:
    """Return True if a message may object to something: it says no anywhere, or is short."""
    words = _WORD.findall(message.lower())
    return _is_afterthought(message) or not _refusals().isdisjoint(words) or bool(_UNSPACED.search(message))


# ------------------------------------------------------------------ sentences


def _of_same_signs(text: str) -> str:
    """Return a text with quotes, dashes and widths of one kind."""
    text = unicodedata.normalize("NFC", text).replace("：", ": ").translate(_WIDE).translate(_DASHES)
    return _BLANKS.sub(" ", _QUOTES.sub('"', text)).strip()


def _statements(message: str) -> Iterator[str]:
    """Yield the sentences of a message that state something, until words of others may follow."""
    statement, closed = "", False
    text = message[:MAX_MESSAGE_CHARS]
    for part, states in _parts(_of_same_signs(_LINE_OF_OTHERS.sub("", text))):
        if statement and not _is_afterthought(part):
            yield statement
        statement = ""
        if closed:
            return
        # Words in quotes are named, not said.
        statement = part if states and not part.startswith('"') else ""
        yield from _beginning(part)
        closed = bool(_OPENING.search(_without_lead_in(part.lower())))
    if statement and text == message:
        yield statement


def _beginning(part: str) -> Iterator[str]:
    """Yield what stands before a dot that may end a sentence or an abbreviation: "I live in Lund. Can you see it?"

    What follows such a dot is no sentence of its own: "It is false that Dr. Moe is vegan."
    """
    for match in _DOUBTFUL_END.finditer(part):
        beginning, rest = part[: match.end("word")], part[match.end() :]
        doubtful = match["word"][0].isupper() or match["word"].isdigit()
        if doubtful and not rest[0].islower() and '"' not in beginning:
            if not _is_afterthought(_MARKS.split(rest, maxsplit=1)[0]):
                yield beginning
            return


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each sentence without its end, and True if it is no question. An ellipsis and a quotation go on."""
    start = place = quotes = 0
    for match in _MARKS.finditer(text):
        quotes += text.count('"', place, match.start())
        place, after = match.start(), match.end()
        if text.startswith('"', after):  # the end of a quotation
            quotes, place, after = quotes + 1, after + 1, after + 1
        if quotes % 2 == 0 and _ends(
            text[max(start, match.start() - _LOOK) : match.start()], match[0], text[after : after + _LOOK]
        ):
            part, question = text[start : match.start()] + text[match.end() : after], _ASKS.search(match[0])
            if part.strip(' "\n'):
                yield part.strip(), not question
            start = after
    if text[start:].strip(' "\n'):
        yield text[start:].strip(), True


def _ends(before: str, marks: str, rest: str) -> bool:
    """Return True if a mark ends the sentence. The dot of an abbreviation, an ordinal or a name does not."""
    if not (_STATEMENT_END.fullmatch(marks) or _ASKS.search(marks)):
        return False
    following = (rest.split(None, 1) or [""])[0]
    if marks != "." or not following:
        return not rest or rest[0].isspace() or not marks.isascii()
    if not rest[0].isspace():
        return False
    last = re.split(r"[\s\"(]", before)[-1]
    if dense_runs(last) or dense_runs(following[0]):
        return True
    if "." in last or (len(last) == 1 and not last.isdigit()):
        return False
    if "\n" in rest[: rest.index(following)] or following.lower().rstrip(",") in _all_speakers():
        return True
    is_short = len(last) < 3 or (last[:1].isupper() and len(last) <= MAX_ABBREVIATION)
    return not (is_short or following[0].islower())


def _is_afterthought(part: str) -> bool:
    """Return True if a sentence is so short that it may take back the sentence before it."""
    words = _WORD.findall(part)
    if " ".join(words).lower() in _courtesies():
        return False
    if found := _UNSPACED.search(part):
        size = _IDEOGRAPHS if found[0] >= "\u3000" else _LETTERS
        return len("".join(words)) <= size * MAX_AFTERTHOUGHT_WORDS
    return len(words) <= MAX_AFTERTHOUGHT_WORDS


def _plain(sentence: str) -> str:
    """Return a sentence in lower case, with single blanks, without a lead-in and courtesies."""
    text = " ".join(sentence.lower().split())
    text = _without_lead_in(text).strip(" ,")
    if found := _courtesy_pattern().search(text):
        text = text[: found.start()]
    return text if _WORD.search(text) else ""


def _without_lead_in(text: str) -> str:
    for _ in range(3):
        found = _lead_in_pattern().match(text)
        if not found:
            break
        text = text[found.end() :]
    return text


# -------------------------------------------------------------------- speakers


class _Speaker(Struct, frozen=True):
    """Words of one language.

    Attributes:
        language: Its code.
        person: Pattern of the words with which the person speaks of themselves.
        theirs: Pattern of the words for what is theirs.
        user: Pattern of the words with which a note names the person.
        of_user: Pattern of the words for what is the user's.
    """

    language: str
    person: re.Pattern[str]
    theirs: re.Pattern[str]
    user: re.Pattern[str]
    of_user: re.Pattern[str]

    def of_said(self, sentence: str) -> str:
        """Return a sentence of the person with signs for "I" and "my"."""
        return self.person.sub(_PERSON, self.theirs.sub(_THEIRS, self._long(sentence)))

    def of_note(self, sentence: str) -> str:
        """Return a sentence of a note with signs for "I", "my", "the user" and "the user's"."""
        return self.of_said(self.user.sub(_PERSON, self.of_user.sub(_THEIRS, self._long(sentence))))

    def _long(self, sentence: str) -> str:
        for short, long in _SHORT_FORMS.items() if self.language == "en" else ():
            sentence = sentence.replace(short, long)
        return sentence


def _is_among(note: str, sentences: set[str]) -> bool:
    """Return True if a sentence of a note is one of the person's, also with "the user" for "I"."""
    if not note:
        return False
    if note in sentences:
        return True
    for speaker in _speakers():
        forms = {speaker.of_note(note)}
        if speaker.language == "en":
            forms |= set(_english_forms(*forms))
        elif not speaker.user.search(note) and not speaker.of_user.search(note):
            continue
        if any(speaker.of_said(sentence) in forms for sentence in sentences):
            return True
    return False


def _english_forms(note: str) -> Iterator[str]:
    """Yield what the person may have said if an English note leaves "the user" out or says "likes" for "like"."""
    if note.startswith(_PERSON):  # "takes their coffee black"
        note = note.replace(" their ", f" {_THEIRS} ")
    yield f"{_THEIRS} {note}"
    yield f"{_PERSON} am {note}"
    yield f"{_PERSON} are {note}"
    words = note.removeprefix(f"{_PERSON} ").split()
    place = 1 if len(words) > 1 and words[0] in _ADVERBS else 0
    verb = words[place] if words else ""
    bases = [*_IRREGULAR.get(verb, ()), *([verb[:-1]] if verb.endswith("s") else [])]
    bases += [verb[:-2]] if verb.endswith("es") else []
    bases += [f"{verb[:-3]}y"] if verb.endswith("ies") else []
    for base in (verb, *bases):
        yield " ".join([_PERSON, *words[:place], base, *words[place + 1 :]])


@cache
def _rows() -> list[list[list[str]]]:
    """Return a list of phrases for each cell of each line of the data."""
    rows = (line.split("\t") for line in data_lines("speakers.txt"))
    return [
        [
            [language],
            *([part.split() for part in f"{person}/".split("/")][:2]),
            *([_phrases(part) for part in f"{user}/".split("/")][:2]),
            _phrases(lead_ins),
            _phrases(courtesies),
            _phrases(no),
        ]
        for language, person, user, lead_ins, courtesies, no in rows
    ]


def _phrases(cell: str) -> list[str]:
    return [phrase.strip() for phrase in cell.split(",") if phrase.strip()]


@cache
def _speakers() -> list[_Speaker]:
    return [_Speaker(row[0][0], *map(_any_of, row[1:5])) for row in _rows()]


def _any_of(phrases: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern of these phrases as whole words, except in scripts without blanks between words."""
    parts = [
        re.escape(phrase)
        if _UNSPACED.search(phrase)
        else rf"(?<![^\s\"(,]){re.escape(phrase)}(?![^\s\",.)'-])"
        for phrase in sorted(phrases, key=len, reverse=True)
    ]
    return re.compile("|".join(parts) or r"(?!)")


@cache
def _all_speakers() -> frozenset[str]:
    return frozenset(word for row in _rows() for word in (*row[1], *row[2]))


@cache
def _courtesies() -> frozenset[str]:
    return frozenset(phrase for row in _rows() for phrase in row[6])


@cache
def _refusals() -> frozenset[str]:
    return frozenset(word for row in _rows() for word in row[7])


@cache
def _courtesy_pattern() -> re.Pattern[str]:
    return re.compile(rf"[\s,]+(?:{'|'.join(map(re.escape, _courtesies()))})$|(?:谢谢|ขอบคุณ)$")


@cache
def _lead_in_pattern() -> re.Pattern[str]:
    parts = []
    for phrase in sorted({phrase for row in _rows() for phrase in row[5]}, key=len, reverse=True):
        words = r",?\s*".join(map(re.escape, phrase.rstrip(":+").split()))
        if phrase.endswith("+"):
            parts.append(rf"{words}[\s:,、]*")
        else:
            parts.append(words + (r"\s*[:,、]\s*" if phrase.endswith(":") else r"(?:\s*[:,]\s*|\s+)"))
    return re.compile("|".join(parts))
