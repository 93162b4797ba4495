"""What all agents on one memory share, so that one may be made for each message and dropped: the place for the work behind
their answers, and the skills of the home.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from hermes_core.agent.review import Background
from hermes_core.agent.toolsets import open_skills
from hermes_core.memory import Memory


class Shared:
    """`background` runs one review at a time, `skills` is None where they are switched off; both end with the memory."""

    def __init__(self, memory: Memory) -> None:
        self.background = Background()
        self.skills = open_skills(memory)
        if self.skills is not None:
            memory.at_close.callback(self.skills.close)
        memory.at_close.callback(self.background.stop)


_lock = threading.Lock()
_shared: WeakKeyDictionary[Memory, Shared] = WeakKeyDictionary()


def shared_of(memory: Memory) -> Shared:
    """What the agents on this memory share, made for the first of them."""
    with _lock:
        if memory not in _shared:
            _shared[memory] = Shared(memory)
        return _shared[memory]
