"""The scan of what is to become memory: memory stands in the system prompt, so an entry must not be able to command.

The text is read in several ways first (`views`): without disguise, with words respelt, with what is encoded in it; each
reading is held against the table in `patterns`. The whole text is scanned. A clean scan is a signal and no proof: a
sentence can always be put in another way. So the fence, the origin of an entry and the person's say stay in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from hermes_core.safety import views
from hermes_core.safety.patterns import CATEGORIES, RULES, Rule

_WORD = re.compile(r"\w+")
_DEPTH = 2  # an encoding within an encoding is still looked into


@dataclass(frozen=True, slots=True)
class Threat:
    """One reason why a text must not become memory: the rule's id, its category, and what it does, for model and person."""

    id: str
    category: str
    message: str


Scan = Callable[[str], Threat | None]
"""`first_threat`, or what a host has in its place."""


def scan(text: str) -> list[Threat]:
    """Every threat found in `text`, one a rule, in the order of the table; an empty list when there is none."""
    return list({threat.id: threat for threat in _threats(text, _DEPTH)}.values())


def first_threat(text: str) -> Threat | None:
    """The first threat found, None when there is none; stops looking as soon as there is one."""
    return next(_threats(text, _DEPTH), None)


def _threats(text: str, depth: int) -> Iterator[Threat]:
    hidden = views.invisible(text)
    if hidden:
        yield _threat(f"invisible_u{ord(hidden):04x}", "invisible_unicode")
    plain = views.plain(text)
    for reading in (plain, *views.spellings(plain)):
        yield from _found("plain", reading)
    visible = views.flowing(views.visible(text))
    yield from _found("visible", visible)
    if not visible.isascii():
        yield from _found("unlatin", visible)
    for letters in views.letters_only(plain):
        yield from _found("letters", letters)
    if depth:
        for inner in views.decoded(text):
            yield from _threats(inner, depth - 1)


def _found(view: str, text: str) -> Iterator[Threat]:
    words = frozenset(_WORD.findall(text)) if view == "plain" else frozenset()
    for rule, needs in _rules(view):
        if (not needs or not needs.isdisjoint(words)) and _compiled(rule.pattern).search(text):
            yield _threat(rule.id, rule.category)


def _threat(rule: str, category: str) -> Threat:
    return Threat(rule, category, f"this text {CATEGORIES[category]} ({category}: {rule})")


@cache
def _rules(view: str) -> tuple[tuple[Rule, frozenset[str]], ...]:
    return tuple((rule, frozenset(rule.needs.split())) for rule in RULES if rule.view == view)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
