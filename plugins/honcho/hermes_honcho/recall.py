"""The recall of a turn: what Honcho knows of the person (a look-up), and the answer of its reasoning (made
beforehand).

The first layer takes a moment. The second is a language model at work, so it runs after a turn, for the next one.
Each has a cadence in turns. Nothing else of a conversation is remembered here.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hermes_core.errors import BackendNotFound, BackendRefused, BackendUnavailable
from hermes_core.kit import Settings, clip
from hermes_core.recall import count_tokens
from hermes_honcho.client import Client, View
from hermes_honcho.settings import LEVELS, rounds

log = logging.getLogger(__name__)

MAX_TALKS = 512
"""Conversations whose cadence is remembered."""

LONG, VERY_LONG = 120, 400
"""Characters of a message from which the reasoning thinks one level harder, and two."""

MAX_BACKOFF_TURNS = 8
"""Turns, in cadences, that an idle reasoning is left alone at most."""

ROUNDS_END = 20.0
"""Seconds for all rounds of reasoning; the hook has 30."""

TURN_WAITS, SHORTEST_WAIT = 4.5, 0.2
"""Seconds that a turn's recall may take, within the five of its hook, and what is too short to think in."""

NEVER = float("-inf")
"""The turn of what has to be had anew."""

TOKENS_EACH, FEWEST = 30, 5
"""Tokens of one conclusion, about, and how many are asked for where there is room for fewer."""

# Honcho takes card and image off the tokens that are asked for, and tells a summary of up to 1,000 tokens if that is
# at most 40 % of the rest. A conclusion may be much longer than most are.
LONGEST_CONCLUSIONS, SUMMARY_TOKENS = 4, 2500
"""Factor of the budget, and tokens beside it, with which the summary is told however much else is known."""

NOTHING = "NONE"
FIRST = (
    "Someone writes to an assistant: {message!r}\nWhat of all you know about this person would help to answer well, or "
    "to answer in the way they like? Be brief, state only what you know, and reply {nothing} if that is nothing."
)
CHECKED = (
    "Someone writes to an assistant: {message!r}\nA first answer to what is known about them was: {draft!r}\nWhat in it "
    "is wrong, out of date or beside the point, and what is missing? Give the corrected answer alone, {nothing} if "
    "nothing is left."
)


@dataclass(slots=True)
class Talk:
    """The state of a conversation: its turns, the turn of each layer's last use, and the answer that waits."""

    turn: int = 0
    base: str = ""
    summary: str = ""
    base_turn: float | None = None
    own: str = ""
    own_turn: float | None = None
    answer: str = ""
    answer_turn: int = 0
    asked_turn: int | None = None
    idle: int = 0
    thinking: bool = False


class Talks:
    """The conversations under way, the oldest forgotten first."""

    def __init__(self) -> None:
        self._talks: OrderedDict[str, Talk] = OrderedDict()

    def of(self, session_id: str) -> Talk:
        """Return the talk of this session."""
        # Recall, tools and the reasoning beside them come here at once, also for the same session: each step is whole
        # by itself, and none takes a talk out for a moment.
        talk = self._talks.setdefault(session_id, Talk())
        with suppress(KeyError):  # another thread has forgotten it meanwhile
            self._talks.move_to_end(session_id)
        if len(self._talks) > MAX_TALKS:
            self._talks.popitem(last=False)
        return talk

    def move(self, old: str, new: str) -> None:
        """Move the talk to another session."""
        talk = self._talks.pop(old, None) if old != new else None
        if talk is not None:
            self._talks.setdefault(new, talk)

    def outdated(self) -> None:
        """Drop what earlier turns fetched: a rewind has removed something that it may contain."""
        for talk in list(self._talks.values()):
            if talk.base_turn is not None:
                talk.base_turn = talk.own_turn = NEVER
                talk.base = talk.summary = talk.own = talk.answer = ""

    def forget(self, session_id: str) -> None:
        """Drop the talk of a session that is over."""
        self._talks.pop(session_id, None)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a session's memory: the session in Honcho, its peers, and the observer of the person.

    `self_image` allows Honcho's knowledge about the agent here; `owner` says that the home is this person's.
    """

    name: str
    user: str
    ai: str
    observer: str
    self_image: bool
    owner: bool

    def observer_of(self, peer: str) -> str:
        """Return the observer of a peer: the agent sees itself; all others are seen as the person is, by
        the agent or by themselves.
        """
        return peer if peer == self.ai or self.observer == self.user else self.observer


@dataclass
class Layers:
    """Both layers of recall for one workspace."""

    client: Client
    options: Settings
    clock: Callable[[], float] = time.monotonic
    sieve: Callable[[str], str] = str
    talks: Talks = field(default_factory=Talks)

    def recall(self, talk: Talk, message: str, place: Place, budget: int) -> str:
        """Return the text for this turn in at most `budget` tokens, "" if nothing is known."""
        until = self.clock() + TURN_WAITS
        base, summary = self._base(talk, message, place, budget)
        answer = self._ready(talk)
        wait = min(self.options.firstTurnDialecticWait, until - self.clock())
        # Until Honcho has concluded something, which takes half an hour, its reasoning is all that can answer.
        unanswered = talk.asked_turn is None or not (base or answer)
        if unanswered and not talk.thinking and self._thinks(talk) and wait > SHORTEST_WAIT:
            self._first_answer(talk, message, place, wait)
            answer = self._ready(talk)
        talk.answer = ""
        return fit([base, summary, answer], self._budget(budget))

    def prepare(self, talk: Talk, message: str, place: Place, budget: int) -> str:
        """Ask the reasoning for the next turn if it is time, and return a text for the case that the next
        look-up fails.
        """
        if talk.base_turn is None:
            talk.base, talk.summary = self._look(message, place, budget, hurry=False)
        if place.self_image and self._due(talk, talk.own_turn):
            own = self.client.view(place.ai, place.ai, message, near=self.options.searchMaxDistance)
            talk.own, talk.own_turn = "\n\n".join(_own(own)), talk.turn
        if self._thinks(talk):
            self._think(talk, message, place)
        known = "\n\n".join(filter(None, (talk.base, talk.own)))
        return fit([known, talk.summary, self._ready(talk)], self._budget(budget))

    # ------------------------------------------------------------- what is known

    def _base(self, talk: Talk, message: str, place: Place, budget: int) -> tuple[str, str]:
        first = talk.base_turn is None
        if first and not self.options.firstTurnBaseWait and talk.turn <= 1:
            return talk.base, talk.summary
        if not first and self.options.injectionFrequency == "first-turn":
            return "", ""
        if self._due(talk, talk.base_turn):
            talk.base, talk.summary = self._look(message, place, budget, hurry=True)
            talk.base_turn = talk.turn
        return "\n\n".join(filter(None, (talk.base, talk.own))), talk.summary

    def _due(self, talk: Talk, last: float | None) -> bool:
        cadence = self.options.contextCadence
        return last is None or cadence == 1 or bool(talk.turn - last >= cadence)

    def _look(self, message: str, place: Place, budget: int, *, hurry: bool) -> tuple[str, str]:
        """Return what is known of the person, and the summary of the conversation."""
        room = self._budget(budget)
        most = max(FEWEST, min(room // TOKENS_EACH, 100))
        near = self.options.searchMaxDistance
        known = self.client.context(
            place.name,
            place.observer,
            place.user,
            message,
            near=near,
            most=most,
            tokens=LONGEST_CONCLUSIONS * max(room, 1) + SUMMARY_TOKENS,
            hurry=hurry,
        )
        # The surest first: those remain if the budget is small.
        facts = _titled(
            (f"## Card of {place.user}", _bullets(known.card)),
            (f"## What Honcho knows about {place.user}", self.sieve(known.representation)),
        )
        return "\n\n".join(facts), "".join(_titled(("## This conversation so far", known.summary)))

    # -------------------------------------------------------------- what it thinks

    def _thinks(self, talk: Talk) -> bool:
        """Return True if the reasoning is due: by its cadence, and less often while it has nothing to say."""
        wait = self.options.dialecticCadence * min(1 + talk.idle, MAX_BACKOFF_TURNS)
        return talk.asked_turn is None or bool(talk.turn - talk.asked_turn >= wait)

    def _ready(self, talk: Talk) -> str:
        """Return the answer that waits, unless the talk has moved on."""
        if talk.turn - talk.answer_turn > 2 * self.options.dialecticCadence:
            talk.answer = ""
        return f"## Honcho's thoughts on this\n{talk.answer}" if talk.answer else ""

    def _first_answer(self, talk: Talk, message: str, place: Place, wait: float) -> None:
        try:
            self._keep(talk, talk.turn, self._ask(FIRST, message, "", rounds(self.options)[0], place, wait))
        except (BackendUnavailable, BackendRefused) as exc:
            # It thinks longer than a turn can wait, or not at all; `prepare` asks again after the turn. Of a person
            # of whom Honcho has no peer yet it knows nothing.
            log.debug("the first turn goes on without Honcho's reasoning: %s", exc)

    def _think(self, talk: Talk, message: str, place: Place) -> None:
        """Run all rounds of reasoning. If the model behind it is broken, recall goes on without."""
        until, draft = self.clock() + ROUNDS_END, ""
        # The next turn may begin meanwhile: the answer belongs to this one.
        turn, talk.thinking = talk.turn, True
        try:
            for level in rounds(self.options):
                wait = min(self.options.timeout, until - self.clock())
                if wait > SHORTEST_WAIT:
                    draft = self._ask(CHECKED if draft else FIRST, message, draft, level, place, wait)
        except BackendNotFound as exc:
            log.debug("Honcho has no peer to think about yet: %s", exc)
        except (BackendUnavailable, BackendRefused) as exc:
            log.warning("Honcho's reasoning fails: %s", exc)
        finally:
            talk.thinking = False
        self._keep(talk, turn, draft)

    def _ask(self, form: str, message: str, draft: str, level: str, place: Place, wait: float) -> str:
        most = self.options.dialecticMaxInputChars
        room = most - len(form) - len(draft) - 100
        question = form.format(message=clip(message, max(room, 100)), draft=draft, nothing=NOTHING)
        chosen = level if self.options.dialecticDepthLevels else self.level(level, message)
        return self.client.ask(place.observer, place.user, question[:most], chosen, timeout=wait)

    def _keep(self, talk: Talk, turn: int, answer: str) -> None:
        text = "" if answer.strip(" .").upper() == NOTHING else answer
        talk.asked_turn = turn
        talk.idle = 0 if text else talk.idle + 1
        talk.answer, talk.answer_turn = clip(text, self.options.dialecticMaxChars), turn

    def level(self, base: str, message: str) -> str:
        """Return the level for a message: longer messages get more reasoning, up to the cap."""
        harder = (
            (len(message) >= LONG) + (len(message) >= VERY_LONG) if self.options.reasoningHeuristic else 0
        )
        cap = LEVELS.index(self.options.reasoningLevelCap)
        return LEVELS[min(LEVELS.index(base) + harder, cap)]

    def _budget(self, budget: int) -> int:
        return min(budget, self.options.contextTokens or budget)


def _own(known: View) -> list[str]:
    """Return the known facts about the agent itself."""
    return _titled(
        ("## Your own card", _bullets(known.card)), ("## What Honcho knows about you", known.representation)
    )


def _bullets(card: Sequence[str]) -> str:
    return "\n".join(f"- {fact}" for fact in card)


def _titled(*sections: tuple[str, str]) -> list[str]:
    return [f"{title}\n{text.strip()}" for title, text in sections if text.strip()]


def fit(parts: Sequence[str], budget: int) -> str:
    """Return the parts in order, cut to `budget` tokens in all.

    The first part gives way. Each of `n` parts after it keeps up to one share in `n + 2` of the budget.

    >>> fit(["what is known", ""], 100)
    'what is known'
    """
    told = [part for part in parts if part]
    if not told:
        return ""
    share = budget // (len(told) + 1) if len(told) > 1 else budget
    later = [cut(part, share) for part in told[1:]]
    # One token for each blank line between two parts.
    first = cut(told[0], budget - sum(count_tokens(part) + 1 for part in later))
    return "\n\n".join(filter(None, (first, *later)))


def cut(text: str, budget: int) -> str:
    """Return `text` in at most `budget` tokens, cut between words."""
    room = budget * 4
    while budget > 0 and count_tokens(text) > budget:
        text = clip(text, room)
        room = room * 3 // 4
    return text if budget > 0 else ""
