"""A chat that never ends has its session-end work by cadence: so many turns, and a quiet time."""

from __future__ import annotations

from hermes_core.agent.life import SessionLifecycle
from hermes_core.config import AgentConfig
from hermes_core.sessions.meta import key_of, read_meta


def cadence_due(life: SessionLifecycle, settings: AgentConfig) -> bool:
    """Whether a chat that never ends should be told of: so many turns since the last time, and so long a quiet."""
    every, quiet = settings.cadence_turns, settings.cadence_minutes * 60

    def look() -> bool:
        sessions, key = life.memory.sessions, key_of("cadence", life.session.id)
        turns, stored = sessions.turn_count(life.session.id), sessions.get_session(life.session.id)
        silent = life.clock() - stored.last_active if stored is not None else 0.0
        if turns - read_meta(key, sessions.get_meta(key), int, 0) < every or silent < quiet:
            return False
        sessions.set_meta(key, str(turns))
        return True

    if not every or life.skip_memory or not life.session.primary:
        return False
    return life.asked("looking at the cadence", look, False)
