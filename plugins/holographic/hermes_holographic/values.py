"""Values of attributes, and the pairs that exclude each other, by rules that read English."""

from __future__ import annotations

import re

from hermes_core.recall import fold

_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBERS = {word: str(number) for number, word in enumerate(_WORDS.split())}

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DATE = re.compile(
    rf"(?:\d{{1,2}}(?:st|nd|rd|th|\.)?(?: of)? )?(?:{_MONTH}|(?:mon|tues|wednes|thurs|fri|satur|sun)days?)\b"
    r"|\d{4}-\d\d",
    re.IGNORECASE,
)
_NUMBER = re.compile(rf"[$€£¥~]?\d|(?:{'|'.join(NUMBERS)})\b", re.IGNORECASE)
_A = re.compile(r"an? ", re.IGNORECASE)
_PLACED = re.compile(
    r"(?P<place>in|on|at|with|from|for|about|by|near|to|under|over) (?P<rest>.+)", re.IGNORECASE
)
_NARROWED = re.compile(
    r" (?:on|for|at|in|to|from|by|per|until|during|after|before|between|when|if|because|while|every|each"
    r"|once|twice|only|except|as) .*",
    re.IGNORECASE,
)
_SINCE = re.compile(rf" in (?:{_MONTH}|(?:{_MONTH} )?\d{{4}})$", re.IGNORECASE)


def exclude(left: str, right: str) -> bool:
    """Return whether two values of a slot can't both hold: they have one kind and are narrowed down in the same way.

    >>> exclude("Berlin", "Tokyo"), exclude("Berlin", "Berlin, Germany"), exclude("Berlin", "a houseboat")
    (True, False, False)
    >>> exclude("9", "10"), exclude("9", "10 on Sundays")
    (True, False)
    """
    (kind, told, narrowed), (other, others, also) = _read(left), _read(right)
    return (kind, narrowed) == (other, also) and not (told <= others or others <= told)


def kind_of(value: str) -> str:
    """Return the kind of a value: a date, a number, a name, one of a sort, or a word, each also with its preposition.

    >>> [kind_of(value) for value in ("May 5", "six", "Oslo", "a nurse", "blue", "in Oslo")]
    ['date', 'number', 'name', 'a', 'word', 'in name']
    """
    if placed := _PLACED.match(value):
        return f"{fold(placed['place'])} {kind_of(placed['rest'])}"
    if _DATE.match(value):
        return "date"
    if _NUMBER.match(value):
        return "number"
    if _A.match(value):
        return "a"
    return "name" if any(letter.isupper() for letter in value.split(" ")[0]) else "word"


def _read(value: str) -> tuple[str, frozenset[str], list[str]]:
    """Return the kind of a value, its main words, and the words that narrow it down."""
    if placed := _PLACED.match(value):
        kind, told, narrowed = _read(placed["rest"])
        return f"{fold(placed['place'])} {kind}", told, narrowed
    kind = kind_of(value)
    if kind not in ("date", "number"):
        value = _SINCE.sub("", value)  # since when it holds
    narrowing = _NARROWED.search(value)
    head = value[: narrowing.start()] if narrowing else value
    words, narrowed = fold(head).replace(",", " ").split(), fold(value[len(head) :]).split()
    if kind == "number":  # of one unit
        narrowed += [word for word in words if not _NUMBER.match(word)]
        words = [word for word in words if _NUMBER.match(word)]
    if "'s " in head:
        kind = "somebody's"
    return kind, frozenset(words), narrowed
