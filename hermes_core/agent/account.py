"""What the next agent in a session has to know of the conversation, and its messages don't tell."""

from __future__ import annotations

from hermes_core.agent.fullness import ContextUsage
from hermes_core.agent.life import Event, SessionLifecycle
from hermes_core.agent.review import Reviewer


def save_context_usage(
    life: SessionLifecycle, fullness: ContextUsage, reviewer: Reviewer, event: Event
) -> None:
    """Of how full the context is and how many turns no review has seen: store what `event` has changed, and take up the
    rest from the session that the agent is in now.
    """
    sessions = life.memory.sessions
    if event in ("compress", "rewind"):
        fullness.keep(sessions, life.session.id)
    if event == "branch":
        reviewer.note(life.session)
    if event != "compress":
        life.history = fullness.take_up(sessions, life.session.id, life.history)
        reviewer.hydrate(life.session, life.history)
