"""The memory over time: its growth, what it adds to requests, and the share of turns that got recall."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hermes_core.contract.values import MemoryTarget
from hermes_core.sessions.daily_usage import daily_usage
from hermes_core.sessions.records import local_time
from hermes_core.sessions.turn_records import list_turns
from hermes_memory_ui.answers import Page, PageRequest
from hermes_memory_ui.drawings import bars
from hermes_memory_ui.site import Site

DAYS = 30

MAX_CHANGES = 100
"""Changes of the notes of which the chart of their growth is made."""

MAX_TURNS = 300
"""Turns whose recall is counted."""

Values = Sequence[tuple[str, float]]


def show(site: Site, request: PageRequest) -> Page:
    """Show the last days with turns, and the last changes of the notes."""
    del request
    usages = daily_usage(site.memory.sessions.database, user=site.owner, days=DAYS)
    injected = [(usage.day, float(usage.recall_tokens + usage.prompt_tokens)) for usage in usages]
    shares = [(usage.day, 100 * usage.cache_share) for usage in usages if usage.cache_share is not None]
    turns = [(usage.day, float(usage.turns)) for usage in usages]
    charts = (
        ("Notes", "note", _notes(site), 0, "All notes at the end of each day on which one changed."),
        ("Turns with memory", "turn", turns, 0, "Turns that asked for recall."),
        ("Turns that got recall", "%", _recalled(site), 100, f"Of the newest {MAX_TURNS} turns."),
        (
            "Tokens of memory in requests",
            "token",
            injected,
            0,
            "Estimates: the recall of each turn, and the memory in its prompt.",
        ),
        ("Share of the input from the cache", "%", shares, 100, "As the model's server counted it."),
    )
    return Page(
        "costs.html",
        {
            "usages": usages[::-1],
            "charts": [
                (title, bars(f"{title}, by day", values[-DAYS:], unit, top=top), about)
                for title, unit, values, top, about in charts
                if values
            ],
        },
    )


def _day(at: float) -> str:
    moment = local_time(at)
    return f"{moment:%Y-%m-%d}" if moment else ""


def _notes(site: Site) -> Values:
    """Return how many notes there were at the end of each day on which one changed."""
    counts: dict[MemoryTarget, int] = {}
    days: dict[str, float] = {}
    for version in reversed(site.notes.history(limit=MAX_CHANGES)):
        counts[version.target] = len(version.after)
        days[_day(version.at)] = float(sum(counts.values()))
    return list(days.items())


def _recalled(site: Site) -> Values:
    """Return the share of the turns of each day that got recall, in percent."""
    turns = list_turns(site.memory.sessions, user=site.owner, limit=MAX_TURNS)[::-1]
    every = Counter(_day(turn.at) for turn in turns)
    given = Counter(_day(turn.at) for turn in turns if turn.recall_tokens)
    return [(day, 100 * given[day] / count) for day, count in every.items()]
