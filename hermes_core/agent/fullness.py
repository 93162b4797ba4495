"""How full the context of a conversation is, and what a try to make it shorter has left; kept with its session, so that
an agent made anew for each message knows what the one before it knew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from hermes_core.agent.answer import Chat
from hermes_core.agent.compression import Count, Limits, Plan, left_out_note, replace_middle, tokens_of
from hermes_core.agent.sessions import kept_back_too
from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.meta import key_of, read_meta

_LEAST_GROWTH = 0.1  # of the context, after which messages that were made shorter are tried again
_WORTH_KEEPING = 2  # a conversation that is not half as long as one that is compressed costs no write


@dataclass(slots=True)
class ContextUsage:
    """How full the context is before a turn, in tokens.

    `told` is what the server counted of the last request and its answer, 0 where it did not. `left` is what the messages
    took after the last try to make them shorter, None before the first. `gone` says which of the stored messages were
    left out without a summary: the index of the first, and how many.
    """

    limits: Limits
    count: Count
    told: int = 0
    left: int | None = None
    gone: tuple[int, int] = (0, 0)
    kept: tuple[str, str] = ("", "")
    """The session, and what is stored with it."""

    def is_due(self, fixed: str, messages: Sequence[Chat], asked: Sequence[Chat]) -> bool:
        """Whether to make room for what is asked; not again for what a try has left, which would cost each turn one."""
        said, new = tokens_of(messages, self.count), tokens_of(asked, self.count)
        if not messages or not self.limits.exceeded(max(self.count(fixed) + said, self.told) + new):
            return False
        return self.left is None or said + new > self.left + self.limits.context_length * _LEAST_GROWTH

    def tried(self, before: Sequence[Chat], after: Sequence[Chat], *, rotated: bool) -> None:
        """They were made shorter, or could not be; `rotated` says that what is left is stored as another session."""
        self.told, self.left = 0, tokens_of(after, self.count)
        self.gone = (0, 0) if rotated else _left_out(before, after, self.gone)

    def forget(self) -> None:
        """Another conversation begins, or a part of this one was taken back."""
        self.told, self.left, self.gone = 0, None, (0, 0)

    def fault(self, fixed: str) -> str:
        """What a person is told where prompt and tools alone leave no room, "" else."""
        size, whole = self.count(fixed), self.limits.context_length
        if not self.limits.exceeded(size):
            return ""
        return (
            f"the system prompt and the tools alone take {size} of the model's {whole} tokens; set model.context_length "
            "to what the model has, enable fewer toolsets, or shorten AGENTS.md"
        )

    # ------------------------------------------------------------- with the session

    def take_up(self, sessions: SessionDB, session_id: str, stored: list[Chat]) -> list[Chat]:
        """Go on where the stored conversation was left, if the model's context is the same; its messages without those that
        were left out.
        """
        key = key_of("fullness", session_id)
        text = sessions.get_meta(key)
        whole, told, left, start, number = read_meta(key, text, _parsed, _NOTHING)
        self.forget()
        self.kept = (session_id, text if text and whole else "")
        if whole != self.limits.context_length or start + number > len(stored):
            return stored
        self.told, self.left, self.gone = told, left, (start, number)
        if not number:
            return stored
        note = left_out_note(stored[start : start + number])
        return kept_back_too(stored, replace_middle(stored, Plan(start, start + number), note))

    def keep(self, sessions: SessionDB, session_id: str) -> None:
        """Store it with the session, where it has changed and says something; and for its search, whether the model sees it
        in part.
        """
        values = (self.limits.context_length, self.told, self.left, *self.gone)
        says = self.left is not None or self.limits.exceeded(self.told * _WORTH_KEEPING)
        text = json.dumps(values) if says else ""
        session, before = self.kept
        if text != (before if session == session_id else ""):
            with sessions.transaction():
                sessions.set_meta(key_of("fullness", session_id), text or json.dumps(_NOTHING))
                sessions.set_meta(key_of("left_out", session_id), "1" if self.gone[1] else "")
        self.kept = (session_id, text)


_Stored = tuple[int, int, int | None, int, int]
_NOTHING: _Stored = (0, 0, None, 0, 0)


def _parsed(text: str) -> _Stored:
    whole, told, left, start, number = json.loads(text)
    numbers = int(whole), int(told), None if left is None else int(left), int(start), int(number)
    if min(numbers[3:]) < 0:
        raise ValueError("less than nothing is left out")
    return numbers


def _left_out(before: Sequence[Chat], after: Sequence[Chat], earlier: tuple[int, int]) -> tuple[int, int]:
    """Which of the stored messages are gone from `after`; of those `before`, one stood for the `earlier` ones."""
    most = min(len(before), len(after))
    start = next((at for at in range(most) if before[at] is not after[at]), most)
    most -= start
    end = next((at for at in range(most) if before[-1 - at] is not after[-1 - at]), most)
    number = len(before) - start - end
    if not number:
        return earlier
    if not earlier[1]:
        return start, number
    return (start, number - 1 + earlier[1]) if start <= earlier[0] < start + number else (0, 0)
