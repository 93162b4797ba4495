"""Summaries of found sessions, each made for the question, by whoever can: a callable that the agent hands in.

A session is cut to the part that the question is about before it is handed out. Whatever goes wrong, or takes too long,
leaves that session without a summary, and the caller shows what was said instead.
"""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial

from hermes_core.recall.tokens import dense_runs, is_stop_word, words
from hermes_core.sessions.records import StoredMessage
from hermes_core.stopping import stopped, wait_unless_stopped

log = logging.getLogger(__name__)

Summarise = Callable[[str, str], str]
"""Text of a session and the question; returns what of it answers. Called on threads of our own, several at once."""

WINDOW = 100_000
"""Characters of a session that are handed out."""

BEFORE = 0.25
"""Share of the window that lies before what it was chosen for."""

NEAR = 200
"""Characters within which all the words of a question count as one place."""

AT_ONCE, MOST_AT_ONCE = 3, 5
SECONDS = 90.0
"""For all the sessions of one question together."""

MOST_SUMMARY = 4_000


def transcript_text(messages: Sequence[StoredMessage]) -> str:
    """A session as a text, a paragraph a message."""
    return "\n\n".join(f"{m.speaker or m.role}: {m.content}" for m in messages if m.content)


def window_of(text: str, query: str, size: int = WINDOW) -> str:
    """The part of `text` in which most of what the query says stands: the whole of it, else its words side by side,
    else any of its words. Cut ends are marked with "...".
    """
    if len(text) <= size:
        return text
    places = _phrase(text, query) or _together(text, query) or _words(text, query) or [0]
    start = max(places, key=lambda at: _within(places, at - int(size * BEFORE), size))
    start = min(max(start - int(size * BEFORE), 0), len(text) - size)
    end = start + size
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")


def summaries(
    texts: Sequence[str],
    query: str,
    summarise: Summarise,
    *,
    at_once: int = AT_ONCE,
    seconds: float = SECONDS,
) -> list[str]:
    """A summary of each text, "" where there is none in time, or before this is stopped. Never raises."""
    tasks: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    found, done = [""] * len(texts), threading.Semaphore(0)
    late = threading.Event()
    for task in enumerate(texts):
        tasks.put(task)

    def work() -> None:
        while not late.is_set():
            try:
                index, text = tasks.get_nowait()
            except queue.Empty:
                return
            found[index] = _summary(summarise, window_of(text, query), query)
            done.release()

    for _ in range(min(max(at_once, 1), MOST_AT_ONCE, len(texts))):
        # A daemon: one that hangs must not keep the process from ending.
        run = copy_context().run
        threading.Thread(target=run, args=(work,), name="session-summary", daemon=True).start()
    until = time.monotonic() + seconds
    try:
        for _ in texts:
            if not wait_unless_stopped(partial(done.acquire, True), until - time.monotonic()):
                if not stopped():
                    log.warning("summaries of %s sessions took more than %g s", found.count(""), seconds)
                break
    finally:
        late.set()
    return list(found)


def _summary(summarise: Summarise, text: str, query: str) -> str:
    """The border to the host's callable: whatever it raises costs this one summary, and is logged."""
    try:
        return str(summarise(text, query) or "").strip()[:MOST_SUMMARY]
    except Exception:
        log.warning("a session could not be summarised", exc_info=True)
        return ""


def _phrase(text: str, query: str) -> list[int]:
    phrase = query.strip().strip("\"'`?!.")
    return _places(text, [r"\s+".join(map(re.escape, phrase.split()))]) if phrase else []


def _together(text: str, query: str) -> list[int]:
    """Where the rarest word of the query stands with each of the others near it."""
    places = [_places(text, [re.escape(word)]) for word in _terms(query)]
    if len(places) < 2 or not all(places):
        return []
    rarest, *others = sorted(places, key=len)
    return [at for at in rarest if all(_within(other, at - NEAR, 2 * NEAR) for other in others)]


def _words(text: str, query: str) -> list[int]:
    return _places(text, [re.escape(word) for word in _terms(query)])


def _terms(query: str) -> list[str]:
    """The words of a query that can tell one place from another, and its runs of text without spaces."""
    said = [word for word in words(query) if not is_stop_word(word)]
    return list(dict.fromkeys([*said, *dense_runs(query)]))


def _places(text: str, patterns: Sequence[str]) -> list[int]:
    if not patterns:
        return []
    return [match.start() for match in re.finditer("|".join(patterns), text, re.IGNORECASE)]


def _within(places: Sequence[int], start: int, length: int) -> int:
    """How many of the places, which are in order, lie in a stretch."""
    return bisect_left(places, start + length) - bisect_left(places, start)
