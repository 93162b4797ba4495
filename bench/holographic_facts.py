"""Made-up facts: events of people and projects, statements that contradict each other, and names with a letter wrong."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

EVENTS = (
    "{person} reviewed milestone {n} of {project}",
    "{person} wrote design note {n} for {project}",
    "{person} fixed bug {n} in {project}",
    "{person} presented result {n} of {project}",
)

PLANTED = (
    ("{a} lives in Lisbon", "{a} moved to Oslo"),
    ("{a} works at Initech", "{a} now works for Globex"),
    ("{a} works as a nurse", "{a} works as a teacher"),
    ("{a} prefers tea", "{a} prefers coffee"),
    ("{a} prefers tabs over spaces", "{a} prefers spaces over tabs"),
    ("{a}'s birthday is May 5", "{a}'s birthday is June 6"),
    ("{a}'s favorite color is blue", "{a}'s favourite color is green"),
    ("{a} is vegetarian", "{a} is not vegetarian"),
    ("{a} likes jazz", "{a} doesn't like jazz anymore"),
    ("{a} likes olives", "{a} hates olives"),
    ("{a} is married to Ann", "{a} is married to Sue"),
    ("{a} has 2 children", "{a} has three children"),
    ("{a} is 34 years old", "{a} is 36 years old"),
    ("{a} uses vim for Python", "{a} uses emacs for Python"),
    ("{a} reports to Dana", "{a} reports to Erin"),
    ("{a} was born in 1984", "{a} was born in 1991"),
    ("{a} drives a Volvo", "{a} doesn't drive a Volvo"),
    ("{a} speaks Danish", "{a} does not speak Danish"),
    ("The deadline of {a} is March 3", "The deadline of {a} is April 9"),
    ("{a} is written in Rust", "{a} is written in Go"),
    ("{a} runs on Postgres 14", "{a} runs on Postgres 16"),
    ("{a} costs 20 dollars a month", "{a} costs 30 dollars a month"),
    ("{a} has 5 engineers", "{a} has 7 engineers"),
    ("The owner of {a} is Dana", "The owner of {a} is Erin"),
    ("{a} is due on Friday", "{a} is due on Monday"),
    ("{a} uses port 8080", "{a} uses port 9090"),
    ("{a} is deployed to Frankfurt", "{a} is deployed to Dublin"),
    ("{a} requires Python 3.10", "{a} requires Python 3.12"),
    ("{a} supports Windows", "{a} no longer supports Windows"),
    ("The default branch of {a} is master", "The default branch of {a} is main"),
)
"""A statement and one that contradicts it, said later of the same subject."""

AGREEING = (
    ("{a} lives in Berlin", "{a} lives in Berlin, Germany"),
    ("{a} likes tea", "{a} likes coffee"),
    ("{a} uses Redis", "{a} uses Postgres"),
    ("{a} uses vim for Python", "{a} uses emacs for Lisp"),
    ("{a} speaks Danish", "{a} speaks Polish"),
    ("{a} prefers dark mode", "{a} prefers window seats"),
    ("{a} owns a boat", "{a} owns a dog"),
    ("{a} is tall", "{a} is vegetarian"),
    ("{a} is a nurse", "{a} is a mother of two"),
    ("{a} has 2 children", "{a} has 3 bicycles"),
    ("{a}'s mother is Ann", "{a}'s boss is Sue"),
    ("{a} works at Initech", "{a} works as a nurse"),
    ("{a} was born in 1984", "{a} was born in Lisbon"),
    ("{a} met Ann on Monday", "{a} met Sue on Friday"),
    ("{a} went to Oslo in May", "{a} went to Rome in June"),
    ("{a} does not smoke", "{a} does not drink"),
    ("{a} doesn't like olives", "{a} doesn't like jazz"),
    ("The deadline of {a} is March 3", "The owner of {a} is Dana"),
    ("{a} supports Windows", "{a} supports Linux"),
    ("{a} is written in Rust", "{a} is owned by Dana"),
    ("{a} starts on May 1", "{a} ends on May 9"),
    ("{a}'s car is red", "{a}'s car is a Volvo"),
)
"""Two statements of one subject that are true at once."""


@dataclass(frozen=True)
class Event:
    text: str
    person: str
    project: str


def made_up(chance: random.Random) -> str:
    """A word that can be said, of two to three syllables."""
    syllables = (chance.choice("bcdfghjklmnprstvwz") + chance.choice("aeiou") for _ in range(3))
    return ("".join(syllables) + chance.choice(["", "n", "r", "s", "l"])).capitalize()


def distinct(count: int, seed: int, form: Callable[[random.Random], str]) -> list[str]:
    chance, found = random.Random(seed), dict[str, None]()
    while len(found) < count:
        found[form(chance)] = None
    return list(found)


def people(count: int, seed: int = 1) -> list[str]:
    return distinct(count, seed, lambda chance: f"{made_up(chance)} {made_up(chance)}")


def projects(count: int) -> list[str]:
    return distinct(count, 2, lambda chance: f"Project {made_up(chance)}")


def events(count: int) -> list[Event]:
    """Facts about a person and a project each: about 25 for a person, 50 for a project, at any size."""
    chance = random.Random(0)
    who, what = people(8 + count // 25), projects(4 + count // 50)
    found = []
    for n in range(count):
        person = who[chance.randrange(8 + n // 25)]
        project = what[chance.randrange(4 + n // 50)]
        found.append(
            Event(chance.choice(EVENTS).format(person=person, project=project, n=n), person, project)
        )
    return found


def pairs(templates: Sequence[tuple[str, str]], seed: int, each: int = 2) -> list[tuple[str, str]]:
    names = iter(people(each * len(templates), seed))
    return [(a.format(a=name), b.format(a=name)) for a, b in templates * each for name in [next(names)]]


def typo(name: str, chance: random.Random) -> str:
    """The name with one letter left out, doubled up, replaced, or swapped with the next."""
    at = chance.choice([i for i in range(1, len(name) - 1) if name[i : i + 2].isalpha()])
    match chance.randrange(4):
        case 0:
            wrong = name[:at] + name[at + 1 :]
        case 1:
            wrong = name[:at] + chance.choice(string.ascii_lowercase) + name[at:]
        case 2:
            wrong = name[:at] + chance.choice(string.ascii_lowercase) + name[at + 1 :]
        case _:
            wrong = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    return wrong if wrong != name else typo(name, chance)
