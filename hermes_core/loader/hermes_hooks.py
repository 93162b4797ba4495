"""Hooks of Hermes Agent's plugin system that a provider's package registers beside it, called at our moments.

A failing one is logged and costs nothing else. What these hooks could tell of the model or change in an answer has no
place here; those are reported as without effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_core.contract.values import Query, Session, SessionSwitch, Turn
from hermes_core.loader.foreign import Failure, attempt
from hermes_core.loader.hermes_calls import as_text, call_as_taken
from hermes_core.loader.hermes_home import call_in
from hermes_core.loader.registration import MOMENTS

logger = logging.getLogger(__name__)

Registered = tuple[str, Callable[..., Any]]


class HostHooks:
    """The hooks that one package registered, as methods that our moments call."""

    def __init__(self, registered: Sequence[Registered], home: Path) -> None:
        self._registered = tuple(registered)
        self._home = home

    @property
    def moments(self) -> set[str]:
        """Our hooks that are needed for these to be called."""
        return {MOMENTS[name] for name, _ in self._registered if name in MOMENTS}

    def started(self, session: Session) -> None:
        """`on_session_start`, when the provider is ready."""
        self._call("on_session_start", session_id=session.id, model="", platform=session.platform)

    def asked(self, query: Query, session: Session) -> str:
        """`pre_llm_call`; what the callbacks want to be added to the person's message, for the fence."""
        answers = self._call(
            "pre_llm_call",
            session_id=session.id,
            user_message=query.text,
            conversation_history=[dict(message) for message in query.recent],
            is_first_turn=not query.recent,
            model="",
            platform=session.platform,
            sender_id="" if session.platform == "cli" else session.user_id,
        )
        return "\n\n".join(filter(None, map(_context, answers)))

    def answered(self, turn: Turn, session: Session) -> None:
        """`post_llm_call`, then `on_session_end`, which that host calls after every turn."""
        facts = {"session_id": session.id, "turn_id": turn.id, "model": "", "platform": session.platform}
        self._call(
            "post_llm_call",
            user_message=turn.user,
            assistant_response=turn.assistant,
            conversation_history=[dict(message) for message in turn.messages],
            **facts,
        )
        self._call("on_session_end", completed=True, interrupted=False, **facts)

    def ended(self, reason: str, session: Session) -> None:
        """`on_session_finalize`."""
        self._call("on_session_finalize", session_id=session.id, platform=session.platform, reason=reason)

    def switched(self, switch: SessionSwitch) -> None:
        """`on_session_reset`, when nothing of the old conversation goes on."""
        if switch.reason in ("new", "reset"):
            self._call(
                "on_session_reset",
                session_id=switch.new.id,
                platform=switch.new.platform,
                reason="new_session",
                old_session_id=switch.old.id,
                new_session_id=switch.new.id,
            )

    def _call(self, wanted: str, **facts: Any) -> list[Any]:
        with call_in(self._home):
            return [*self._answers(wanted, facts)]

    def _answers(self, wanted: str, facts: Mapping[str, Any]) -> Iterator[Any]:
        for name, callback in self._registered:
            if name == wanted:
                answer = attempt(lambda callback=callback: call_as_taken(callback, facts=facts))  # type: ignore[misc]
                if isinstance(answer, Failure):
                    logger.warning("a %s hook of a provider's package raised: %s", wanted, answer)
                else:
                    yield answer


def _context(answer: Any) -> str:
    """What a `pre_llm_call` callback returned: a text, or a mapping with `context`."""
    return as_text(answer.get("context") if isinstance(answer, Mapping) else answer).strip()
