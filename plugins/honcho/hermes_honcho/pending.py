"""Writes that wait in the home for Honcho: turns in batches, notes, and conclusions from rewound turns to delete.

Nothing here stops a turn: what Honcho can't take now stays in the ledger, and what it refuses stays there alone.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from hermes_core.errors import BackendNotFound, BackendRefused, BackendUnavailable
from hermes_core.kit import clip
from hermes_honcho.client import Client, Line, status_of
from hermes_honcho.ledger import HeldTurn, Ledger, Rewind
from hermes_honcho.recall import Place

log = logging.getLogger(__name__)

MAX_HELD_S = 3600.0
"""Seconds that a turn waits for its batch while no more is said in its session."""

# Honcho tries its embedding model for 7 s in each call.
RETRY_NOTES_S = 600.0
"""Seconds between tries to store notes while Honcho's embedding model is away."""

# Honcho concludes from a message after 30 minutes at most, and later if its model was away.
MIN_REWIND_S, MAX_REWIND_S = 60.0, 2 * 86_400.0
"""Seconds for which conclusions from rewound turns are looked for. Honcho counts a message as pending a moment late."""

KEPT_TOKENS = 4000
"""How far back messages are looked at that a conclusion may come from instead of one that was rewound."""

MORE_THAN_CHANCE = 0.5
"""Share of a conclusion's words that a message must have for the conclusion to come from it."""

_CONCLUSION = re.compile(r"^\[[0-9: -]+\] (.*)$")


class PendingWrites:
    """The writes of one home that Honcho does not have yet.

    Args:
        send: Stores messages in the session of a place.
        clock: Returns seconds since the epoch.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        send: Callable[[Place, Sequence[Line]], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._ledger, self._send, self._clock = client, ledger, send, clock
        self._opened_at = clock()
        self._notes_at = 0.0

    # ----------------------------------------------------------------- turns

    def hold(self, key: str, lines: Sequence[Line], place: Place, session_id: str, batch: int) -> None:
        """Keep a turn, and send all of its session when there are `batch`; 0 is never."""
        waiting = self._ledger.hold(key, session_id, json.dumps(dataclasses.asdict(place)), lines)
        if batch and waiting >= batch:
            self.flush(session_id)

    def flush(self, session_id: str) -> None:
        """Send the turns of a session that wait. A turn that Honcho refuses stays alone."""
        turns = self._ledger.held(session_id)
        if not turns:
            return
        try:
            self._deliver(turns)
        except BackendNotFound:
            raise
        except BackendRefused:
            for turn in turns:
                try:
                    self._deliver([turn])
                except BackendNotFound:
                    raise
                except BackendRefused as exc:
                    log.error("Honcho refuses turn %r of session %r: %s", turn.turn, session_id, exc)
                    self._ledger.refuse_turn(turn.turn, str(exc))

    def _deliver(self, turns: Sequence[HeldTurn]) -> None:
        place = Place(**json.loads(turns[0].place))
        self._send(place, [line for turn in turns for line in turn.lines])
        self._ledger.release([turn.turn for turn in turns])

    def flush_idle(self, current: str) -> None:
        """Send the turns of sessions that crashed or fell silent, but not of the `current` session."""
        before = max(self._opened_at, self._clock() - MAX_HELD_S)
        for session_id in self._ledger.idle_sessions(before):
            if session_id != current:
                try:
                    self.flush(session_id)
                except (BackendRefused, BackendUnavailable) as exc:
                    log.warning("turns of session %r wait on for Honcho: %s", session_id, exc)

    # ----------------------------------------------------------------- notes

    def conclude(self, observer: str, observed: str, text: str) -> None:
        """Store a note as a conclusion, or keep it while Honcho's embedding model is away.

        Messages need no embedding, so that the turns behind the note go on.
        """
        try:
            self._client.conclude(observer, observed, [text])
        except BackendUnavailable as exc:
            if status_of(exc) != 500:
                raise
            log.warning("a note waits for Honcho's embedding model: %s", exc)
            self._ledger.add_note(observer, observed, text)
            self._notes_at = self._clock() + RETRY_NOTES_S

    def retract(self, observer: str, observed: str, text: str, *, whole: bool) -> None:
        """Delete a note: among those that wait, and at Honcho."""
        own = [one for one in self._ledger.notes() if (one.observer, one.observed) == (observer, observed)]
        same = [one for one in own if one.text == text]
        if not same and not whole:
            holding = [one for one in own if text in one.text]
            same = holding if len(holding) == 1 else []
        if same:
            self._ledger.drop_notes([one.number for one in same])
        self._client.retract(observer, observed, text, whole=whole)

    def deliver_notes(self) -> None:
        """Store the notes that wait. Those that Honcho refuses stay alone."""
        if self._clock() < self._notes_at:
            return
        waiting: dict[tuple[str, str], dict[str, int]] = {}
        for note in self._ledger.notes():
            waiting.setdefault((note.observer, note.observed), {})[note.text] = note.number
        for (observer, observed), numbers in waiting.items():
            try:
                _, refused = store_each(self._client, observer, observed, [*numbers])
            except (BackendNotFound, BackendUnavailable) as exc:
                log.warning("notes wait for Honcho's embedding model: %s", exc)
                self._notes_at = self._clock() + RETRY_NOTES_S
                return
            for text, error in refused.items():
                log.error("Honcho refuses the note %r: %s", clip(text, 80), error)
                self._ledger.refuse_note(numbers[text], error)
            self._ledger.drop_notes([number for text, number in numbers.items() if text not in refused])

    # --------------------------------------------------------------- rewinds

    def rewind(self, place: Place, session_id: str, turns: Sequence[str]) -> None:
        """Mark the messages of rewound turns, and delete what was concluded from them.

        Honcho deletes no single message, concludes up to 30 minutes later, and does not say where a conclusion comes
        from: the message that shares most words with it counts as its source. The rewind is remembered until Honcho
        has concluded from all that it was sent.
        """
        for observer, observed, conclusion in self._ledger.take_conclusions(session_id, turns):
            self._client.drop(observer, observed, conclusion)
        taken = self._client.rewind(place.name, turns)
        if not taken:
            return
        kept = self._client.context(place.name, place.observer, place.user, tokens=KEPT_TOKENS).recent
        since = min(message.at for message in taken)
        self._ledger.add_rewind(
            place.name, since.timestamp(), [one.text for one in taken], [one.text for one in kept]
        )
        self.sweep()

    def sweep(self) -> None:
        """Delete conclusions that Honcho drew from rewound turns meanwhile."""
        for rewind in self._ledger.rewinds():
            # Asked before the conclusions: what is concluded in between is found by the next sweep.
            over = not self._client.pending(rewind.session)
            for one in self._client.concluded_since(
                rewind.session, datetime.fromtimestamp(rewind.since, UTC)
            ):
                if _comes_from(one.text, rewind):
                    self._client.drop(one.who, one.about, one.id)
            age = self._clock() - rewind.noted_at
            if (over and age > MIN_REWIND_S) or age > MAX_REWIND_S:
                self._ledger.drop_rewind(rewind.number)

    def sieve(self, representation: str) -> str:
        """Return the representation without conclusions from rewound turns that no sweep has deleted yet."""
        rewinds = self._ledger.rewinds() if representation else []
        if not rewinds:
            return representation
        lines = [line for line in representation.splitlines() if not _is_rewound(line, rewinds)]
        titles_only = all(not line or line.startswith("## ") for line in lines)
        return "" if titles_only else "\n".join(lines)

    # ------------------------------------------------------------- after a write

    def catch_up(self, session_id: str) -> None:
        """Do what waits, after a write of this session has arrived. Never raises: the write is stored."""
        self.deliver_notes()
        self.flush_idle(session_id)
        try:
            self.sweep()
        except (BackendRefused, BackendUnavailable) as exc:
            log.warning("conclusions from rewound turns are looked for later: %s", exc)


def store_each(
    client: Client, observer: str, observed: str, texts: Sequence[str]
) -> tuple[int, dict[str, str]]:
    """Store conclusions, each alone if Honcho refuses them together; return how many were new, and why others failed."""
    try:
        return len(client.conclude(observer, observed, texts)), {}
    except BackendNotFound:
        raise
    except BackendRefused as exc:
        if len(texts) == 1:
            return 0, {texts[0]: str(exc)}
    new = 0
    refused: dict[str, str] = {}
    for text in texts:
        count, fault = store_each(client, observer, observed, [text])
        new, refused = new + count, {**refused, **fault}
    return new, refused


def _is_rewound(line: str, rewinds: Iterable[Rewind]) -> bool:
    found = _CONCLUSION.match(line)
    return found is not None and any(_comes_from(found[1], rewind) for rewind in rewinds)


def _comes_from(text: str, rewind: Rewind) -> bool:
    near = _nearness(text, rewind.taken)
    return near > MORE_THAN_CHANCE and near > _nearness(text, rewind.kept)


def _nearness(text: str, messages: Sequence[str]) -> float:
    """Return the largest share of the text's words that one of the messages has."""
    own = _words(text)
    return max((len(own & _words(one)) / len(own) for one in messages), default=0.0) if own else 0.0


def _words(text: str) -> set[str]:
    """Return the words that two texts can have in common: three letters or more; beyond ASCII each letter."""
    return set(re.findall(r"[a-z0-9]{3,}|[^\W\x00-\x7f]", text.lower()))
