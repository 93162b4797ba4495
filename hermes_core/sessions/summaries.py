"""Summaries of sessions that a search found. A function of the agent writes each summary for the question.

A long session is cut to the part that the question is about. If a summary fails or takes too long, the caller shows the
session's messages instead.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

from hermes_core.manager.call import CallResult, attempt
from hermes_core.manager.worker import PendingCall, Worker
from hermes_core.recall.tokens import dense_runs, is_stop_word, words
from hermes_core.safety.templates import without_turns
from hermes_core.sessions.records import StoredMessage
from hermes_core.stopping import stopped

log = logging.getLogger(__name__)

# A function of a session's text and the question that returns a summary. Several threads call it at the same time.
Summarise = Callable[[str, str], str]

# A session is cut to this many characters before it is summarised: about 25,000 tokens of English, which a small
# model's context (32k) holds with room for the answer.
WINDOW_CHARS = 100_000

# Share of the window that lies before the place in the text for which the window was chosen.
SHARE_BEFORE = 0.25

# Words of a question count as occurring together within this distance, about two sentences.
NEAR_CHARS = 200

DEFAULT_THREADS, MAX_THREADS = 3, 5

# Seconds for all sessions of one question together: the person waits for the answer of the tool.
TIMEOUT_S = 90.0

MAX_SUMMARY_CHARS = 4_000


def transcript_text(messages: Sequence[StoredMessage]) -> str:
    """Return messages as one text with a paragraph for each message, which begins with its speaker or role."""
    said = (without_turns(f"{m.speaker or m.role}: {m.content}") for m in messages if m.content)
    return "\n\n".join(said)


def window_of(text: str, query: str, size: int = WINDOW_CHARS) -> str:
    """Return the part of `text`, at most `size` characters, that a query is about. Mark cut ends with "...".

    That is the part where the whole query occurs most often. If the query doesn't occur, take the part where all its
    words most often occur near each other, and else the part with most of its words.
    """
    if len(text) <= size:
        return text
    places = _phrase(text, query) or _together(text, query) or _words(text, query) or [0]
    start = max(places, key=lambda at: _within(places, at - int(size * SHARE_BEFORE), size))
    start = min(max(start - int(size * SHARE_BEFORE), 0), len(text) - size)
    end = start + size
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")


def summarise_all(
    texts: Sequence[str],
    query: str,
    summarise: Summarise,
    *,
    at_once: int = DEFAULT_THREADS,
    seconds: float = TIMEOUT_S,
) -> list[str]:
    """Return a summary of each text; "" if the summary fails or is late, or the turn is stopped. Never raise.

    Args:
        texts: The texts.
        query: The question for which the texts are summarised.
        summarise: Function of a text and the question that returns a summary.
        at_once: Number of summaries that are made at the same time.
        seconds: Seconds for all summaries together.
    """

    deadline = time.monotonic() + seconds
    slots = threading.Semaphore(min(max(at_once, 1), MAX_THREADS))

    def summarised(text: str) -> CallResult:
        # The wait for a slot has a timeout, because a summary that hangs keeps its slot.
        if not slots.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return CallResult("late")
        try:
            value, error = attempt(summarise, window_of(text, query), query)
        finally:
            slots.release()
        if error is not None:  # it costs this summary only
            log.warning("a session could not be summarised", exc_info=error)
        return CallResult("ok", str(value or "").strip()[:MAX_SUMMARY_CHARS])

    workers = [Worker("session-summary", time.monotonic) for _ in texts]
    calls = [PendingCall("summarise", partial(summarised, text), seconds) for text in texts]
    for worker, call in zip(workers, calls, strict=True):
        if refusal := worker.submit(call):
            call.refuse(refusal)
    results = [call.wait(max(0.0, deadline - time.monotonic())) for call in calls]
    for worker in workers:
        worker.stop(0)
    late = sum(not result.ok for result in results)
    if late and not stopped():
        log.warning("summaries of %s sessions took more than %g s", late, seconds)
    return [result.value if result.ok else "" for result in results]


def _phrase(text: str, query: str) -> list[int]:
    phrase = query.strip().strip("\"'`?!.")
    return _places(text, [r"\s+".join(map(re.escape, phrase.split()))]) if phrase else []


def _together(text: str, query: str) -> list[int]:
    """Return the places of the query's rarest word that have all other words of the query near them."""
    places = [_places(text, [re.escape(word)]) for word in _terms(query)]
    if len(places) < 2 or not all(places):
        return []
    rarest, *others = sorted(places, key=len)
    return [at for at in rarest if all(_within(other, at - NEAR_CHARS, 2 * NEAR_CHARS) for other in others)]


def _words(text: str, query: str) -> list[int]:
    return _places(text, [re.escape(word) for word in _terms(query)])


def _terms(query: str) -> list[str]:
    """Return the words of a query without stop words, and its dense runs."""
    terms = [word for word in words(query) if not is_stop_word(word)]
    return list(dict.fromkeys([*terms, *dense_runs(query)]))


def _places(text: str, patterns: Sequence[str]) -> list[int]:
    if not patterns:
        return []
    return [match.start() for match in re.finditer("|".join(patterns), text, re.IGNORECASE)]


def _within(places: Sequence[int], start: int, length: int) -> int:
    """Return how many of the sorted `places` are between `start` and `start + length`."""
    return bisect_left(places, start + length) - bisect_left(places, start)
