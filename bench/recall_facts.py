"""What a turn gets of one's own facts, and of nothing, in stores of any size.

Made-up people tell short facts ("My passport is in the blue drawer.") among the messages of a panel, and ask for them
later ("Where is my passport?"): `own_facts.txt`, a line for each fact with its question. `idle_turns.txt` has turns that
ask nothing of memory: tasks, code, follow-ups and small talk. `changed_facts.txt` has facts that a person tells and later
changes, and pairs of statements that change nothing. `times.txt` has questions that name only a time, and the times;
`times_in_words.txt` has times in many languages. `hints.txt` has statements, and what reminds of them in other words: they are
searched among 1,000 messages, beside the cosine of the same model. The others are asked in the stores of the panel and of a made-up
year of one person with an assistant. Of both files, each second line is held out: what is fitted is fitted on the others.
Languages in `UNSEEN` are held out as a whole.

    python bench/recall_facts.py --panel DIR --locomo FILE [--half held] [--size 5 --size 40] [--semantic]
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

from recall_cache import Cache
from recall_panel import DEPTH, DataSet, measure, read_panel, table
from recall_scores import Conversation, Question
from recall_systems import PANEL_SYSTEMS
from recall_turns import remembered
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hermes_core.recall.calendar_words import find_times
from hermes_core.recall.dates import find_dates
from hermes_core.recall.tokens import count_tokens
from hermes_memory_importers.values import ImportedMessage, ImportedSession, split_turns

FACTS, IDLE, CHANGED, TIMES, WORDS, HINTS = (
    Path(__file__).with_name(f"{name}.txt")
    for name in ("own_facts", "idle_turns", "changed_facts", "times", "times_in_words", "hints")
)
SIZES = (5, 20, 40, 120, 1_000, 10_000)
UNSEEN = ("ru", "zh", "it", "tr")
PARTS = ("facts", "changes", "times", "words", "idle", "hints")
AROUND_HINTS = 1_000
SENTENCES = 10_000
DAY = 86_400.0
BEGIN = 1_688_200_000.0
TALK = ("realtalk", "beam-100k", "locomo", "agent-history")
"""The sets whose messages stand around the facts, in this order if a store needs more."""

Half = Literal["fit", "held", "all"]

_TITLE = re.compile(r"# (\S+) ?(\S*)")


@dataclass(frozen=True)
class Fact:
    """A fact that a person tells, and a question that it answers. `held` facts are used for no fit."""

    text: str
    question: str
    held: bool


@dataclass(frozen=True)
class Person:
    """A made-up person with facts in one language."""

    name: str
    language: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class IdleTurn:
    """A turn that asks nothing of memory. `held` turns are used for no fit."""

    text: str
    kind: str
    language: str
    held: bool


def _blocks(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the two words of each title of a file, and the lines after it."""
    for block in re.split(r"(?m)^(?=# )", path.read_text(encoding="utf-8"))[1:]:
        title, *lines = block.splitlines()
        match = _TITLE.fullmatch(title)
        if match is None:
            raise SystemExit(f"{path.name}: {title!r} is not a title such as '# anna en'")
        yield match[1], match[2], lines


def read_people() -> list[Person]:
    people = []
    for name, language, lines in _blocks(FACTS):
        pairs = (line.split(" | ") for line in lines)
        facts = (
            Fact(text, question, language in UNSEEN or at % 2 == 1)
            for at, (text, question) in enumerate(pairs)
        )
        people.append(Person(name, language, tuple(facts)))
    return people


def read_idle() -> list[IdleTurn]:
    return [
        IdleTurn(text, kind, language, at % 2 == 1)
        for kind, language, lines in _blocks(IDLE)
        for at, line in enumerate(lines)
        for text in _expanded(line)
    ]


def _expanded(line: str) -> Iterator[str]:
    """Yield a line with each choice of the words in `{one|another}`."""
    parts = [part.split("|") for part in re.split(r"[{}]", line)]
    yield from map("".join, itertools.product(*parts))


# ---------------------------------------------------------------- stores


def sessions_of(data: Iterable[DataSet], count: int, seed: int) -> tuple[ImportedSession, ...]:
    """Return sessions of a panel with `count` messages together; refs are made unique. The last one is cut."""
    by_name = {one.name: one for one in data}
    chosen: list[ImportedSession] = []
    for group in (TALK[:2], TALK[2:3], TALK[3:]):
        pool = []
        for name in (name for name in group if name in by_name):
            for conversation in by_name[name].conversations:
                pool += [(f"{name}-{conversation.id}", session) for session in conversation.sessions]
        random.Random(seed).shuffle(pool)
        for prefix, session in pool:
            if count <= 0:
                return tuple(chosen)
            messages = [m for turn in session.turns for m in turn.messages][:count]
            count -= len(messages)
            unique = (replace(m, ref=f"{prefix}-{session.id}-{n}") for n, m in enumerate(messages))
            turns = tuple(split_turns(unique))
            chosen.append(replace(session, id=f"{prefix}-{session.id}", turns=turns))
    return tuple({one.id: one for one in chosen}.values())


def session(name: str, day: float, messages: Sequence[tuple[str, str]]) -> ImportedSession:
    at = BEGIN + day * DAY
    told = [
        ImportedMessage(role, text, "", f"{name}-{n}", at + 60 * n) for n, (role, text) in enumerate(messages)
    ]
    return ImportedSession(name, "cli", "", at, tuple(split_turns(told)))


def store_of(person: Person, talk: Sequence[ImportedSession], half: Half) -> Conversation:
    """Return a store with all facts of a person beside other talk; the questions are those of the half."""
    sessions, questions = [], []
    for number, fact in enumerate(person.facts):
        name = f"{person.name}-{number}"
        reply = [("assistant", "👍")] if number % 2 else []
        sessions.append(session(name, 7.0 * number, [("user", fact.text), *reply]))
        if half in ("all", "held" if fact.held else "fit"):
            questions.append(Question(fact.question, frozenset({f"{name}-0"})))
    return Conversation(person.name, (*talk, *sessions), tuple(questions), len(talk))


@dataclass(frozen=True)
class Diary:
    """The words of a made-up year: nouns and verbs of each topic, and sentences to fill with them."""

    topics: tuple[tuple[str, str], ...]
    qualities: str
    asked: tuple[str, ...]
    answered: tuple[str, ...]


DIARIES = {
    "en": Diary(
        (
            ("soup bread oven onion dough recipe pan sauce rice spices", "bake stir chop simmer season"),
            ("tomatoes soil compost hedge seeds roses lawn shed slugs pots", "water prune plant weed dig"),
            ("function list error loop module parser test query class file", "write fix sort parse import"),
            ("train hotel ticket museum map luggage harbour bus coast visa", "book pack visit change reach"),
            ("knee run stretch pace shoes marathon sleep heart muscle plan", "train rest warm lift breathe"),
            ("boiler roof paint tiles window door lamp drill cable stairs", "repair paint measure hang"),
            ("meeting report manager deadline slides budget client email", "send review plan discuss"),
            ("novel chapter poem author library sea winter hero letter", "read finish borrow recommend"),
        ),
        "good small blue simple long expensive second quick dry large",
        (
            "How do I {verb} the {noun}? I have only {noun2} and {noun3} here.",
            "I want to {verb} my {noun} this weekend, what should I look out for?",
            "Can you explain the difference between {noun} and {noun2}?",
            "The {noun} next to the {noun2} is a problem again. Any idea?",
            "Make me a short plan for the {noun}, please.",
        ),
        (
            "First {verb} the {noun} and check the {noun2}, because most people forget the second point.",
            "A good example is the {noun3}: make it shorter, then {verb2} it again with the other {noun}.",
            "If the {noun2} is too {quality}, write it down and {verb} it tomorrow.",
            "The difference between a {noun} and a {noun2} is mostly how {quality} they are.",
            "Here is a table of what you need: {noun}, {noun2}, {noun3} and about {number} minutes.",
            "That sounds like a {quality} idea, and I am happy to explain the last step in detail.",
            "Finally {verb2} everything in {number} steps, and tell me how the {noun3} turned out.",
        ),
    ),
    "de": Diary(
        (
            ("Suppe Brot Ofen Zwiebel Teig Rezept Pfanne Soße Reis Gewürze", "backen rühren hacken würzen"),
            ("Tomaten Erde Kompost Hecke Samen Rosen Rasen Schnecken", "gießen schneiden pflanzen jäten"),
            ("Funktion Liste Fehler Schleife Modul Parser Test Klasse Datei", "schreiben sortieren einlesen"),
            ("Zug Hotel Fahrkarte Museum Karte Gepäck Hafen Bus Küste", "buchen packen besuchen wechseln"),
            ("Knie Lauf Tempo Schuhe Marathon Schlaf Herz Muskel Plan", "trainieren dehnen atmen heben"),
            ("Heizung Dach Farbe Fliesen Fenster Tür Lampe Kabel Treppe", "streichen messen reparieren"),
            ("Sitzung Bericht Frist Folien Budget Kunde Mail Abteilung", "senden prüfen planen besprechen"),
            (
                "Roman Kapitel Gedicht Autorin Bibliothek Meer Winter Brief",
                "lesen beenden ausleihen empfehlen",
            ),
        ),
        "gut klein blau einfach lang teuer schnell trocken groß anders",
        (
            "Wie kann ich die Sache mit {noun} angehen? Ich habe nur {noun2} und {noun3} hier.",
            "Ich will am Wochenende {noun} {verb}, worauf muss ich achten?",
            "Kannst du den Unterschied zwischen {noun} und {noun2} erklären?",
            "Das Problem mit {noun} neben {noun2} ist wieder da. Was meinst du?",
            "Mach mir bitte einen kurzen Plan für {noun}.",
        ),
        (
            "Zuerst solltest du {noun} {verb} und {noun2} prüfen, weil die meisten den zweiten Punkt vergessen.",
            "Ein gutes Beispiel ist {noun3}: mach es kürzer und versuch es noch einmal mit {noun}.",
            "Wenn {noun2} zu {quality} ist, schreibe es auf und lass es bis morgen liegen.",
            "Der Unterschied zwischen {noun} und {noun2} ist vor allem, wie {quality} sie sind.",
            "Hier ist eine Tabelle mit allem, was du brauchst: {noun}, {noun2}, {noun3} und {number} Minuten.",
            "Das ist eine Idee, die mir gefällt, und ich erkläre dir den letzten Schritt gerne genauer.",
            "Am Ende kannst du alles in {number} Schritten {verb2} und mir sagen, wie es mit {noun3} war.",
        ),
    ),
}


def made_up_year(language: str = "en", seed: int = 1, days: int = 365) -> Conversation:
    """Return a year of one person with an assistant, whose answers are long: about 1,100 messages."""
    chance, diary, name = random.Random(seed), DIARIES[language], f"year-{language}"
    sessions = []
    for day in range(days):
        if chance.random() < 0.5:
            continue
        nouns, verbs = (words.split() for words in chance.choice(diary.topics))

        def fill(text: str, nouns: list[str] = nouns, verbs: list[str] = verbs) -> str:
            noun, noun2, noun3 = chance.sample(nouns, 3)
            verb, verb2 = chance.sample(verbs, 2)
            quality, number = chance.choice(diary.qualities.split()), chance.randint(2, 60)
            return text.format(
                noun=noun, noun2=noun2, noun3=noun3, verb=verb, verb2=verb2, quality=quality, number=number
            )

        messages = []
        for _ in range(chance.randint(1, 5)):
            messages.append(("user", fill(chance.choice(diary.asked))))
            answer = (fill(chance.choice(diary.answered)) for _ in range(chance.randint(4, 9)))
            messages.append(("assistant", " ".join(answer)))
        sessions.append(session(f"{name}-{day}", float(day), messages))
    return Conversation(name, tuple(sessions), ())


# ---------------------------------------------------------------- measurement


def measure_facts(
    sets: Sequence[DataSet],
    cache: Cache,
    progress: Console,
    *,
    sizes: Sequence[int],
    half: Half,
    semantic: bool,
) -> Iterator[dict[str, Any]]:
    """Yield for each size and language how many questions get their fact, and what else they get.

    `precision` is the mean share of the fact among the messages that a turn gets; of a turn that gets nothing it is 0.
    """
    for size in sizes:
        rows: dict[str, list[tuple[bool, float, int]]] = {}
        for number, person in enumerate(
            track(read_people(), description=f"own facts, {size}", console=progress)
        ):
            talk = sessions_of(sets, size, number if size < 10_000 else 0)
            conversation = store_of(person, talk, half)
            with remembered(conversation, semantic, cache) as memory:
                for question in conversation.questions:
                    report = memory.recall(question.text)
                    refs = [hit.ref for hit in report.results if hit.injected]
                    found = bool(question.evidence & set(refs))
                    if not found or len(refs) > 2:
                        progress.log(f"{size} {question.text} -> {len(refs)}, {'' if found else 'NOT '}found")
                    row = found, found / max(len(refs), 1), report.tokens
                    rows.setdefault(person.language, []).append(row)
        seen = [row for language, of in rows.items() if language not in UNSEEN for row in of]
        unseen = [row for language, of in rows.items() if language in UNSEEN for row in of]
        for name, of in {"en de es fr": seen, " ".join(UNSEEN): unseen, **rows}.items():
            if of:
                yield {
                    "size": size,
                    "languages": name,
                    "questions": len(of),
                    "found": fmean(row[0] for row in of),
                    "precision": fmean(row[1] for row in of),
                    "tokens": median(row[2] for row in of),
                }


def measure_idle(
    sets: Sequence[DataSet], cache: Cache, progress: Console, *, half: Half, semantic: bool, step: int = 1
) -> Iterator[dict[str, Any]]:
    """Yield for each set and kind of turn the share of turns that get anything. `step` asks each step-th turn."""
    turns = [turn for turn in read_idle() if half in ("all", "held" if turn.held else "fit")][::step]
    stores = [
        (data.name, conversation)
        for data in sets
        if data.name != "long-questions"
        # Conversations that share nearly all sessions are one store.
        for conversation in (data.conversations[:1] if data.conversations[0].shared else data.conversations)
    ]
    rows: dict[tuple[str, str], list[int]] = {}
    years = ((f"year-{language}", made_up_year(language)) for language in DIARIES)
    for name, conversation in track([*stores, *years], description="idle turns", console=progress):
        with remembered(conversation, semantic, cache) as memory:
            for turn in turns:
                contexts = memory.begin_turn(memory.local_session, turn.text).contexts
                tokens = sum(count_tokens(part) for _, part in contexts)
                if tokens:
                    progress.log(f"{name} {turn.kind} {turn.text!r} -> {contexts[0][1][:300]}")
                for group in (turn.kind, f"in {turn.language}", "all"):
                    rows.setdefault((name, group), []).append(tokens)
    for (name, group), counts in rows.items():
        share = fmean(count > 0 for count in counts)
        yield {"set": name, "kind": group, "turns": len(counts), "share": share, "tokens": fmean(counts)}


# ---------------------------------------------------------------- changed facts

_VALUES = {
    "en": "place: safe, blue drawer, hall cupboard, office, cellar; thing: doormat, clay pot, bench, stone; "
    "drink: oolong, rooibos, mint, jasmine; day: Monday, Tuesday, Thursday, Friday, Sunday",
    "de": "place: Tresor, Schrank, Flur, Büro, Keller; thing: Tür, Heizung, Lampe, Treppe; "
    "drink: Rooibos, Oolong, Pfefferminze, Jasmin; day: Montag, Dienstag, Donnerstag, Freitag, Sonntag",
    "es": "place: cajón azul, armario, despacho, sótano; thing: maceta, banco, piedra; "
    "drink: rooibos, jazmín, menta, oolong; day: lunes, martes, jueves, viernes, domingo",
    "": "name: Petrov, Marta, Okafor, Lindqvist, Jonas, Priya; doctor: Dr Okafor, Dr Rivas, Dr Brandl, Dr Lemaire; "
    "city: Leeds, Graz, Porto, Toronto, Kassel, Lima, Oslo; firm: Bosch, Siemens, Nordwind, Acme, Helvetia",
}


def _drawn(language: str, chance: random.Random) -> dict[str, object]:
    """Return two different values of each kind, the second under the name of the kind with a 2."""
    values: dict[str, object] = {}
    for group in (*_VALUES[language].split("; "), *_VALUES[""].split("; ")):
        kind, _, names = group.partition(": ")
        values[kind], values[f"{kind}2"] = chance.sample(names.split(", "), 2)
    values["n"], values["n2"] = chance.sample(range(11, 90), 2)
    return values


def measure_changes(
    sets: Sequence[DataSet], cache: Cache, progress: Console, *, half: Half, semantic: bool, copies: int = 11
) -> Iterator[dict[str, Any]]:
    """Yield for each language how often a changed fact comes in its newest form, and how often others are marked.

    Each store holds one pair of each line among 120 other messages; there are `copies` stores with other values.
    """
    rows: dict[tuple[str, str], list[tuple[bool, bool, bool]]] = {}
    blocks = [block for block in _blocks(CHANGED) for _ in range(copies)]
    for number, (kind, language, lines) in enumerate(
        track(blocks, description="changed facts", console=progress)
    ):
        chance = random.Random(number)
        sessions, questions = [], []
        for at, line in enumerate(lines):
            if half not in ("all", "held" if at % 2 else "fit"):
                continue
            drawn = _drawn(language, chance)
            older, newer, question = (text.format(**drawn) for text in line.split(" | "))
            sessions += [
                session(f"{kind}-{at}-{day}", day + at, [("user", text), ("assistant", "👍")])
                for day, text in ((0.0, older), (100.0, newer))
            ]
            questions.append((question, f"{kind}-{at}-0.0-0", f"{kind}-{at}-100.0-0"))
        talk = sessions_of(sets, 120, number)
        sessions.sort(key=lambda one: one.started_at or 0.0)
        conversation = Conversation(kind, (*talk, *sessions), (), len(talk))
        with remembered(conversation, semantic, cache) as memory:
            for question, older, newer in questions:
                hits = [hit for hit in memory.recall(question).results if hit.source == "sessions"]
                refs = [hit.ref for hit in hits]
                order = newer in refs and (older not in refs or refs.index(newer) < refs.index(older))
                marked = any(hit.when.startswith("said before") for hit in hits)
                given = any(hit.injected and hit.ref == newer for hit in hits)
                if (kind == "bait" and marked) or (kind == "changed" and not (given and order)):
                    texts = [f"{hit.when}: {hit.text}" for hit in hits]
                    progress.log(f"{kind} {question}: given {given}, order {order}, marked {marked}, {texts}")
                for group in (language, "all"):
                    rows.setdefault((kind, group), []).append((given, order, marked))
    for (kind, language), of in rows.items():
        shares = (fmean(row[at] for row in of) for at in range(3))
        named = dict(zip(("given", "first", "marked"), shares, strict=True))
        yield {"kind": kind, "language": language, "pairs": len(of), **named}


# ---------------------------------------------------------------- times

NOW = datetime(2026, 6, 17, 12, tzinfo=UTC)


def _span_of(rule: str, *, exact: bool = False) -> tuple[datetime, datetime]:
    """Return the time that a rule of `times.txt` names, such as `week-1`, `weekday=0` or `date=14.5`.

    A number of days or weeks ago may mean the days around it, as people use it, unless it is `exact`.
    """
    midnight = NOW.replace(hour=0)
    unit, sign, value = re.split("([-=])", rule)
    if unit == "date":
        day, month = map(int, value.split("."))
        return midnight.replace(month=month, day=day), midnight.replace(month=month, day=day + 1)
    number = int(value)
    if unit == "month" and sign == "=":
        first = midnight.replace(year=NOW.year - (number > NOW.month), month=number, day=1)
        return first, (first + timedelta(days=31)).replace(day=1)
    if unit == "weekday":
        start = midnight - timedelta(days=(midnight.weekday() - number - 1) % 7 + 1)
        return start, start + timedelta(days=1)
    if unit == "day" and exact:
        return midnight - timedelta(days=number), midnight - timedelta(days=number - 1)
    if unit == "day":
        return midnight - timedelta(days=number + number // 3), midnight - timedelta(
            days=number - 1 - number // 3
        )
    if unit == "week":
        monday = midnight - timedelta(days=NOW.weekday() + 7 * number)
        return monday - timedelta(days=3 * (number > 1)), monday + timedelta(days=7 + 3 * (number > 1))
    if unit == "month":
        first = (midnight.replace(day=1) - timedelta(days=1)).replace(day=1)
        return first, midnight.replace(day=1)
    return midnight.replace(year=NOW.year - 1, month=1, day=1), midnight.replace(month=1, day=1)


def measure_times(cache: Cache, progress: Console, *, half: Half, semantic: bool) -> Iterator[dict[str, Any]]:
    """Yield for each language how often a question that names only a time gets a message of it, and others.

    The store holds three years. Times in which nothing was said are not asked for.
    """
    year = made_up_year(days=int((NOW.timestamp() - BEGIN) / DAY))
    ref_times = {m.ref: m.timestamp or 0.0 for _, m in year.messages()}
    with remembered(year, semantic, cache) as memory:
        for language, _, lines in track(_blocks(TIMES), description="times", console=progress):
            rows: list[tuple[bool, bool]] = []
            for at, line in enumerate(lines[1:]):
                if half not in ("all", "held" if at % 2 else "fit"):
                    continue
                rule, words = line.split(": ")
                start, end = (moment.timestamp() for moment in _span_of(rule))
                if not any(start <= moment < end for moment in ref_times.values()):
                    continue
                for frame in lines[0].split(" | "):
                    question = frame.format(time=words)
                    report = memory.recall(question, at=NOW.timestamp())
                    hits = [ref_times[hit.ref] for hit in report.results if hit.ref in ref_times][:DEPTH]
                    inside = [start <= moment < end for moment in hits]
                    if not inside or not all(inside):
                        progress.log(f"{question}: {sum(inside)} of {len(inside)} inside")
                    rows.append((any(inside), not all(inside)))
            found, outside = (fmean(row[at] for row in rows) for at in range(2))
            yield {"language": language, "questions": len(rows), "found": found, "outside": outside}


def measure_words(sets: Sequence[DataSet], progress: Console) -> Iterator[dict[str, Any]]:
    """Yield for each language how many times are read right; last, how many sentences of a panel name a time.

    Most sentences name none, and times in English or Chinese are not counted, because these languages are read without
    the data of other languages.
    """
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        language, *items = line.split(" | ")
        right = []
        for words, _, rule in (item.partition("=") for item in items):
            start, end = (moment.timestamp() for moment in _span_of(rule, exact=True))
            spans = [when.span(NOW) for when in find_dates(f"x {words} x", NOW.timestamp())[0]]
            right.append(spans == [(start, end)])
            if not right[-1]:
                progress.log(f"{language}: {words}")
        yield {"language": language, "times": len(right), "right": fmean(right)}
    texts = (m.content for data in sets for c in data.conversations[:3] for _, m in c.messages())
    sentences = [part for text in texts for part in re.split(r"(?<=[.!?])\s+|\n", text) if part.isascii()]
    sample = random.Random(0).sample(sentences, min(SENTENCES, len(sentences)))
    named = [next(find_times(text), None) for text in sample]
    for time, text in zip(named, sample, strict=True):
        if time is not None:
            progress.log(f"sentence: {text[time.start : time.end]!r} in {text[:80]!r}")
    yield {"language": "sentences that name a time", "times": len(named), "right": fmean(map(bool, named))}


# ---------------------------------------------------------------- hints


def hint_set(sets: Sequence[DataSet], half: Half) -> DataSet:
    """Return all statements of `hints.txt` among other messages, and the hints of a half as questions.

    The other messages lose the names of their speakers, because the statements have none.
    """
    talk = [
        replace(
            one,
            turns=tuple(
                replace(turn, messages=tuple(replace(m, speaker="") for m in turn.messages))
                for turn in one.turns
            ),
        )
        for one in sessions_of(sets, AROUND_HINTS, 0)
    ]
    sessions, questions = [], []
    for subject, _, lines in _blocks(HINTS):
        for at, line in enumerate(lines):
            statement, hint = line.split(" | ")
            name = f"{subject}-{at}"
            reply = [("assistant", "👍")] if len(sessions) % 2 else []
            sessions.append(session(name, 7.0 * len(sessions) % 360, [("user", statement), *reply]))
            if half in ("all", "held" if at % 2 else "fit"):
                questions.append(Question(hint, frozenset({f"{name}-0"})))
    return DataSet(f"hints-{half}", (Conversation("hints", (*talk, *sessions), tuple(questions), len(talk)),))


# ---------------------------------------------------------------- output


def word_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    grid = Table(title="Times in words, % read right")
    for column in ("language", "times", "%"):
        grid.add_column(column)
    for row in rows:
        grid.add_row(row["language"], str(row["times"]), f"{100 * row['right']:.2f}")
    return grid


def time_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    grid = Table(title="Questions that name only a time, %")
    for column in ("language", "questions", "something of it", "anything from outside"):
        grid.add_column(column)
    for row in rows:
        shares = (f"{100 * row[name]:.1f}" for name in ("found", "outside"))
        grid.add_row(row["language"], str(row["questions"]), *shares)
    return grid


def change_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    grid = Table(title="Facts that changed, and pairs that change nothing, %")
    for column in ("kind", "language", "pairs", "turn gets the newest", "newest above older", "marked"):
        grid.add_column(column)
    for row in rows:
        shares = (f"{100 * row[name]:.1f}" for name in ("given", "first", "marked"))
        grid.add_row(row["kind"], row["language"], str(row["pairs"]), *shares)
    return grid


def fact_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    grid = Table(title="Questions about one's own facts")
    for column in ("messages", "languages", "questions", "found %", "precision", "median tokens"):
        grid.add_column(column)
    for row in rows:
        found, precision = f"{100 * row['found']:.1f}", f"{row['precision']:.2f}"
        cells = row["size"], row["languages"], row["questions"], found, precision, row["tokens"]
        grid.add_row(*map(str, cells))
    return grid


def idle_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    grid = Table(title="Turns that ask nothing and get anything, % (mean tokens)")
    sets = list(dict.fromkeys(row["set"] for row in rows))
    for column in ("kind", *sets):
        grid.add_column(column)
    for kind in dict.fromkeys(row["kind"] for row in rows):
        cells = {row["set"]: row for row in rows if row["kind"] == kind}
        grid.add_row(
            kind, *(f"{100 * cells[name]['share']:.1f} ({cells[name]['tokens']:.0f})" for name in sets)
        )
    return grid


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    progress = Console(stderr=True, quiet=not options.verbose)
    sets = read_panel(options.panel, options.locomo)
    with Cache(options.cache) as cache:
        given = {"half": options.half, "semantic": options.semantic}
        figures: dict[str, list[dict[str, Any]]] = {}
        if "facts" in options.part:
            sizes = options.size or SIZES
            figures["facts"] = list(measure_facts(sets, cache, progress, sizes=sizes, **given))
        if "idle" in options.part:
            chosen = [data for data in sets if not options.set or data.name in options.set]
            figures["idle"] = list(measure_idle(chosen, cache, progress, step=options.step, **given))
        if "changes" in options.part:
            figures["changes"] = list(measure_changes(sets, cache, progress, **given))
        if "words" in options.part:
            figures["words"] = list(measure_words(sets, progress))
        if "times" in options.part:
            figures["times"] = list(measure_times(cache, progress, **given))
        if "hints" in options.part:
            systems = {name: PANEL_SYSTEMS[name] for name in ("ours", "ours-semantic", "minilm-cosine")}
            figures["hints"] = list(measure([hint_set(sets, options.half)], systems, cache, progress))
    if options.json:
        print(json.dumps(figures, indent=2))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 190)
    if "facts" in figures:
        console.print(fact_table(figures["facts"]))
    if "changes" in figures:
        console.print(change_table(figures["changes"]))
    if "words" in figures:
        console.print(word_table(figures["words"]))
    if "times" in figures:
        console.print(time_table(figures["times"]))
    if "idle" in figures:
        console.print(idle_table(figures["idle"]))
    if "hints" in figures:
        console.print(table(figures["hints"]))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--panel", type=Path, required=True, metavar="DIR", help="a folder of data sets")
    add("--locomo", type=Path, action="append", default=[], metavar="FILE", help="LoCoMo, for the panel")
    add("--part", action="append", choices=PARTS, help="default: all")
    add("--size", type=int, action="append", help=f"messages of other talk; default: {SIZES}")
    add("--set", action="append", metavar="NAME", help="a set for turns that ask nothing; default: all")
    add("--half", choices=("fit", "held", "all"), default="all", help="lines of the files")
    add("--step", type=int, default=1, help="ask each STEPth turn that asks nothing")
    add("--semantic", action="store_true", help="with vectors")
    add("--cache", type=Path, metavar="DIR", help="keep stores and vectors here")
    add("--verbose", action="store_true", help="print each turn that gets what it should not")
    add("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args(arguments)
    options.part = options.part or PARTS
    return options


if __name__ == "__main__":
    raise SystemExit(main())
