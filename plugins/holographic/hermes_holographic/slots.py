"""Statements of a sentence, by rules that read English: a subject, one of its attributes, and the value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hermes_core.kit import fold_space
from hermes_core.recall import fold
from hermes_holographic.language import name_key, plain_apostrophe, singular
from hermes_holographic.values import NUMBERS, kind_of

USER = "user"
"""The subject of what people say about themselves."""

_MAX_STATEMENT_CHARS = 240


@dataclass(frozen=True, slots=True)
class Slot:
    """A subject's attribute, folded, and its value as written. Facts with one slot and exclusive values
    contradict each other.
    """

    subject: str
    attribute: str
    value: str


_NOT = r"(?P<no>(?:does not|doesn't|do not|don't|no longer|never|is not|isn't|not) )?"
_SUBJECT = (
    r"(?:(?:currently|now|today),? )?(?P<subject>(?:[^\s,]+ ){1,5}?)(?:now |currently |still |really |also )?"
)

# A subject has one of each at a time.
_ONE_VALUE = {
    "lives in": r"(?:(?:lives?|living|resides?|based) in|(?:moved|relocated)(?: from .+?)? to)",
    "works at": r"(?:works? (?:at|for)|is employed (?:at|by)|joined(?! (?:the|an?|our|my|his|her|their) ))",
    "works in": r"works? in",
    "works as": r"works? as",
    "prefers": r"prefers?",
    "born": r"(?:was |is )?born (?:in|on)",
    "married to": r"(?:is )?married to",
    "reports to": r"reports? to|is (?:managed|led|run) by",
    "owned by": r"is owned by|belongs to",
    "located": r"is (?:located|based|headquartered) (?:in|at|on)",
    "hosted": r"is hosted (?:in|at|on)",
    "written in": r"is (?:written|implemented) in",
    "runs on": r"runs on",
    "deployed to": r"is deployed (?:on|to)|deploys? to",
    "due": r"is (?:due|scheduled|planned|set)(?: on| in| by| for| at)?",
    "starts": r"(?:starts|begins|opens) (?:on|in|at)",
    "ends": r"(?:ends|closes) (?:on|in|at)",
    "ships": r"(?:ships|launches) (?:on|in|at)",
    "named": r"is (?:called|named)",
    "costs": r"costs?",
    "at": r"is (?:at|from)(?= \d)",
    "is number": r"is(?= \d[\d.,]*$)",
    "graduated": r"graduated in(?= \d)",
    "founded": r"(?:was |is )?(?:founded|established|launched|released|started) in(?= \d)",
}
_RELATIONS = [
    (attribute, re.compile(rf"{_SUBJECT}{_NOT}(?:{verb}) (?P<value>.+)", re.IGNORECASE))
    for attribute, verb in _ONE_VALUE.items()
]
_LIKES = re.compile(
    rf"{_SUBJECT}{_NOT}(?:(?P<likes>likes?|loves?|enjoys?)|(?P<hates>hates?|dislikes?)|(?P<uses>uses?)) (?P<value>.+)",
    re.IGNORECASE,
)
_VERSION = re.compile(
    rf"{_SUBJECT}(?P<verb>uses|requires|needs|targets|runs|listens on|is on|is at) (?P<what>(?:[^\W\d]+ )+)v?(?P<value>\d[\d.]*)",
    re.IGNORECASE,
)
_HOLDS = re.compile(
    r"(?P<subject>(?:[^\s,]+ ){1,5}?)is (?P<no>not )?the (?P<attribute>[\w -]{2,40}?) of (?P<owner>.+)",
    re.IGNORECASE,
)
_IS = re.compile(
    rf"{_SUBJECT}(?P<verb>is|are|was|were|can|will)(?P<no>n't|'t|not| not| never| no longer)? (?P<value>.+)"
)
_DOES = re.compile(
    rf"{_SUBJECT}(?:(?P<no>does not|doesn't|do not|don't|no longer|never) (?P<base>[a-z]+)|(?P<verb>[a-z]+s))(?P<value> .+|$)"
)
_DOES_MINE = re.compile(
    r"(?P<subject>I|i|We|we) (?P<no>do not |don't |no longer |never )?(?P<base>[a-z]+)(?P<value> .+|$)"
)
_HAS_NO = re.compile(r"\b(?:has|have) no ")
_BASE = {"ha": "have", "has": "have", "doe": "do", "does": "do", "goe": "go", "goes": "go"}
_THE_IS = re.compile(r"(?:The|the) (?P<subject>[a-z][a-z -]{2,40}) is (?P<no>not )?(?P<value>[A-Z\d].*)")
_CALLED = re.compile(r"^(?:called|named) ", re.IGNORECASE)
_TELLING = re.compile(
    r"^(?:favou?rite|preferred|default|main|primary|native) "
    r"|\b(?:name|username|login|handle|e-?mail|address|domain|url|branch|status|colou?r|time ?zone|language|locale"
    r"|format|role|job|title|profession|diet|pronouns|nationality|religion)$",
    re.IGNORECASE,
)
"""Attributes whose value is told by any word. Of a thing, "my car is ...", words tell how it is, and many are true."""
_COUNT = re.compile(
    rf"{_SUBJECT}(?P<verb>has|have|takes?|weighs?|needs?|requires?|employs?|supports?|contains?|holds?|owns?|is|earns?)"
    rf" (?P<value>\d[\d.,:]*|{'|'.join(NUMBERS)}) (?P<unit>[^\W\d]+)(?P<of>.*)",
    re.IGNORECASE,
)
_POSSESSED = re.compile(
    r"(?:(?P<owner>(?:[^\s,]+ ){0,4}[^\s,]+)'s|(?P<mine>my|our)) (?P<attribute>(?:[^\W\d_][\w-]* ?){1,4}?)"
    r" ?(?:is|are|=|:) (?P<no>not )?(?P<value>.+)",
    re.IGNORECASE,
)
_THE_OF = re.compile(
    r"the (?P<attribute>[\w -]{2,40}?) (?:of|for) (?P<owner>[\w' -]{2,60}?) (?:is|are|=|:) (?P<no>not )?(?P<value>.+)",
    re.IGNORECASE,
)
_QUALIFIED = re.compile(r"(?P<value>.+?) (?P<what>(?:as (?:its|his|her|their|a|an|the)|for) .+)")
_TRAILING = re.compile(r"(?:,? (?:now|currently|today|these days|any ?more|since .+|as of .+))+$")
_FIRST_PERSON = {"i", "we", "user", "the user", "my", "our"}


def slots(sentence: str) -> list[Slot]:
    """Return the statements of one sentence about one subject as slots; empty if no rule reads it.

    >>> slots("Mel lives in Berlin.")
    [Slot(subject='mel', attribute='lives in', value='Berlin'), Slot(subject='mel', attribute='lives in berlin', value='yes')]
    """
    written = fold_space(plain_apostrophe(sentence[:_MAX_STATEMENT_CHARS])).rstrip(" .!")
    if written.endswith("?"):
        return []
    written = _TRAILING.sub("", written)
    for rule in (_possessed, _counted, _versioned, _related, _liked, _held):
        found = [slot for slot in rule(written) if slot.subject and slot.value]
        if found:
            return found
    return _identified(written) or _stated(_HAS_NO.sub("does not have ", written))


def _possessed(text: str) -> list[Slot]:
    match = _POSSESSED.match(text) or _THE_OF.match(text)
    if match is None:
        return []
    groups = match.groupdict()
    owner = USER if groups.get("mine") else _subject(groups["owner"])
    attribute = groups["attribute"].strip()
    value = _CALLED.sub("", groups["value"])
    found = _one_value(owner, attribute, value, bool(groups["no"]))
    if kind_of(value) == "word" and not _TELLING.search(attribute):
        return found[-1:]  # "her car is red" and "her car is electric" are both true
    return found


def _counted(text: str) -> list[Slot]:
    match = _COUNT.match(text)
    if match is None:
        return []
    value = NUMBERS.get(match["value"].lower(), match["value"].rstrip(".,:"))
    verb = "have" if match["verb"] == "has" else singular(match["verb"])
    # Of what is counted, too: 10 mg of one drug say nothing of another.
    attribute = fold(f"{verb} {singular(match['unit'])}{match['of']}")
    return [Slot(_subject(match["subject"]), attribute, value)]


def _related(text: str) -> list[Slot]:
    for attribute, pattern in _RELATIONS:
        match = pattern.match(text)
        if match is not None:
            value = match["value"]
            if attribute == "prefers":
                attribute, value = _preference(value)
            elif attribute == "born":
                attribute = f"born {_born(_value(value))}"
            return _one_value(_subject(match["subject"]), attribute, value, bool(match["no"]))
    return []


def _preference(value: str) -> tuple[str, str]:
    """Return the slots of a preference. Two contradict only about one thing: "... for X", "X over Y", or one
    kind ("dark mode").
    """
    chosen, over, other = _value(value).partition(" over ")
    if over:
        return f"prefers {' or '.join(sorted((fold(chosen), fold(other))))}", chosen
    qualified = _QUALIFIED.fullmatch(chosen)
    if qualified is not None:
        return f"prefers {qualified['what']}", qualified["value"]
    *more, kind = chosen.split() or [""]
    return (f"prefers {kind}", chosen) if more else ("prefers", chosen)


def _liked(text: str) -> list[Slot]:
    match = _LIKES.match(text)
    if match is None:
        return []
    subject, value, no = _subject(match["subject"]), _value(match["value"]), bool(match["no"])
    if not match["uses"]:
        return [Slot(subject, fold(f"likes {value}"), "no" if no != bool(match["hates"]) else "yes")]
    qualified = _QUALIFIED.fullmatch(value)
    if qualified is not None:
        return _one_value(subject, f"uses {qualified['what']}", qualified["value"], no)
    return [Slot(subject, fold(f"use {value}"), "no" if no else "yes")]


def _versioned(text: str) -> list[Slot]:
    """Return the slot of one of several numbers of a thing: "uses port 8080", "requires Python 3.12"."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return []
    return [
        Slot(
            _subject(match["subject"]),
            fold(f"{match['verb']} {match['what'].strip()}"),
            match["value"].rstrip("."),
        )
    ]


def _held(text: str) -> list[Slot]:
    """Return the slot of a role with one holder: "Dana is the owner of Orion"."""
    match = _HOLDS.fullmatch(text)
    if match is None:
        return []
    return _one_value(_subject(match["owner"]), match["attribute"], match["subject"], bool(match["no"]))


def _identified(written: str) -> list[Slot]:
    """Return the slot of the only thing of its kind: "the database is PostgreSQL", unlike "the database is fast"."""
    match = _THE_IS.fullmatch(written)
    return (
        []
        if match is None
        else _one_value(_subject(match["subject"]), "is", match["value"], bool(match["no"]))
    )


def _stated(written: str) -> list[Slot]:
    """Return a slot for any claim that may be denied: what a subject is, can or does, word for word. A verb has
    no capital letter.
    """
    match = _IS.match(written) or _DOES_MINE.match(written) or _DOES.match(written)
    if match is None:
        return []
    groups = match.groupdict()
    verb = singular(groups.get("base") or groups["verb"])
    verb = _BASE.get(verb, verb)
    subject, said = _subject(match["subject"]), f"{verb} {_value(fold(match['value']))}".strip()
    return [Slot(subject, said, "no" if match["no"] else "yes")] if subject else []


def _born(value: str) -> str:
    """Return the slots of a birth, in a year, on a day or at a place: three attributes."""
    if re.fullmatch(r"\d{4}", value):
        return "year"
    return "day" if kind_of(value) in ("date", "number") else "place"


def _one_value(subject: str, attribute: str, value: str, no: bool) -> list[Slot]:
    # Of "favourite" and "favorite", "colour" and "color", each is the other's spelling.
    attribute = fold(attribute).strip().replace("our", "or")
    exact = Slot(subject, f"{attribute} {fold(_value(value))}", "no" if no else "yes")
    return [exact] if no else [Slot(subject, attribute, _bare(value)), exact]


def _subject(text: str) -> str:
    text = fold(text).strip()
    return USER if text in _FIRST_PERSON else name_key(text)


def _value(text: str) -> str:
    return re.sub(r"^(?:a|an) ", "", _bare(text), flags=re.IGNORECASE)


def _bare(text: str) -> str:
    text = _TRAILING.sub("", text.strip(" .,;:!\"'"))
    return re.sub(r"^the ", "", text, flags=re.IGNORECASE)
