"""What crosses a boundary: an agent between two turns, and one passage of it from a session to the next."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from hermes_core.agent.answer import Chat
from hermes_core.agent.cancel import Cancel
from hermes_core.agent.compression import Compressor
from hermes_core.contract.values import EndReason, Session, SessionSwitch, SwitchReason
from hermes_core.errors import HermesError
from hermes_core.memory import Memory

log = logging.getLogger(__name__)

Value = TypeVar("Value")

Event = Literal[
    "start",
    "open",
    "new",
    "reset",
    "resume",
    "branch",
    "rewind",
    "compress",
    "cadence",
    "commit",
    "evict",
    "close",
    "shutdown",
    "crash",
]


@dataclass(slots=True)
class SessionLifecycle:
    """What an agent is between two turns: its session, the conversation as the model gets it, its system prompt.

    `write_prompt` builds a new system prompt, `flush` lets the model save what it should before messages leave it, and
    says whether it came to the end of that.

    `history` holds what the stored session held up to its message `taken_up`; behind that only what this agent said
    since, in the turns with the ids `turns`, while other processes may have stored more.
    """

    memory: Memory
    session: Session
    compressor: Compressor
    write_prompt: Callable[[Session], str]
    flush: Callable[[Session, Sequence[Chat], Cancel, float], bool]
    model_name: str = ""
    source: str = ""
    skip_memory: bool = False
    history: list[Chat] = field(default_factory=list)
    taken_up: int = 0
    turns: set[str] = field(default_factory=set)
    prompt: str = ""
    problems: list[str] = field(default_factory=list)
    clock: Callable[[], float] = time.time

    def attempt(self, what: str, action: Callable[[], object]) -> bool:
        """Do it; a failure of memory is logged and noted, never raised. Whether it went well."""
        try:
            action()
        except HermesError as exc:
            log.warning("%s failed: %s", what, exc)
            self.problems.append(f"{what} failed: {exc}")
            return False
        return True

    def asked(self, what: str, ask: Callable[[], Value], without: Value) -> Value:
        """What `ask` gives, or `without` it where memory fails, as in `attempt`."""
        answers = [without]
        self.attempt(what, lambda: answers.append(ask()))
        return answers[-1]


@dataclass(slots=True)
class Passage:
    """One boundary being crossed, from `old` (None at the beginning) to `new`; the rest is what its steps need.

    `until` is when the process is to have ended, by the monotonic clock.
    """

    event: Event
    old: Session | None
    new: Session
    messages: list[Chat] | None = None
    rewind_to: int | None = None
    cancel: Cancel = field(default_factory=Cancel)
    memory_context: str = ""
    switch: SessionSwitch | None = None
    stopped: bool = False
    failed: bool = False
    until: float = math.inf

    @property
    def ending(self) -> Session:
        """The session that ends, where one does."""
        return self.old or self.new

    @property
    def end_reason(self) -> EndReason:
        """What state.db and providers are told about the end."""
        return _END_REASONS.get(self.event, "close")

    @property
    def switch_reason(self) -> SwitchReason:
        """What providers are told about the switch."""
        return _SWITCH_REASONS.get(self.event, "new")


_END_REASONS: Mapping[str, EndReason] = {
    "new": "new",
    "reset": "reset",
    "resume": "resume",
    "branch": "branch",
    "compress": "compression",
    "cadence": "cadence",
    "commit": "cadence",
    "evict": "evict",
    "crash": "crash",
}
_SWITCH_REASONS: Mapping[str, SwitchReason] = {
    "new": "new",
    "reset": "reset",
    "resume": "resume",
    "branch": "branch",
    "rewind": "rewind",
    "compress": "compression",
}
