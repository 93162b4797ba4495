"""Several external providers as one, the members of a composite: limits, routes of writes, and names of tools.

Each member is a provider of the manager with workers, a breaker and outbox rows of its own, so that a member that hangs
delays or loses nothing of the others.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal, get_args

from hermes_core.config.keys import COMPOSITE, CompositeConfig
from hermes_core.errors import ConfigError

WriteKind = Literal["turns", "notes", "facts", "delegation"]

ALL_KINDS: frozenset[WriteKind] = frozenset(get_args(WriteKind))

# A hook that is not named here, such as `on_session_switch`, reaches every member.
KIND_OF_HOOK: dict[str, WriteKind] = {
    "sync_turn": "turns",
    "on_session_end": "turns",
    "on_pre_compress": "turns",
    "on_memory_write": "notes",
    "on_delegation": "delegation",
}

# Every member costs a thread or two, and a wait in each turn if it hangs.
MAX_MEMBERS = 4

# Tools of all members together: every request to the model carries their schemas.
MAX_TOOLS = 12


def takes(kinds: Collection[WriteKind], hook: str) -> bool:
    """Return True if a provider that gets writes of these kinds gets calls of `hook`.

    >>> takes({"notes"}, "on_memory_write"), takes({"notes"}, "sync_turn"), takes({"notes"}, "on_session_switch")
    (True, False, True)
    """
    kind = KIND_OF_HOOK.get(hook)
    return kind is None or kind in kinds


def member_tool_name(member: str, tool: str) -> str:
    """Return the name that the model sees for a tool of a member.

    >>> member_tool_name("mem0", "search"), member_tool_name("honcho", "honcho_search")
    ('mem0_search', 'honcho_search')
    """
    prefix = re.sub(r"[^A-Za-z0-9_-]", "_", member) + "_"
    return tool if tool.startswith(prefix) else prefix + tool


def routes_of(config: CompositeConfig) -> dict[str, frozenset[WriteKind]]:
    """Return the kinds of writes that each member gets, by its name in config.yaml.

    Raises:
        ConfigError: There is no member, there are too many, or a list names a provider that is no member.
    """
    members = tuple(dict.fromkeys(config.members))
    remedy = "correct the block composite in config.yaml"
    if not 1 <= len(members) <= MAX_MEMBERS or COMPOSITE in members:
        raise ConfigError(
            f"composite.members is {list(members)!r}, and must be one to {MAX_MEMBERS} names of providers",
            remedy,
        )
    lists: dict[WriteKind, tuple[str, ...]] = {}
    for kind in get_args(WriteKind):
        names = getattr(config, kind)
        lists[kind] = members if names is None else names
        if strangers := [name for name in lists[kind] if name not in members]:
            raise ConfigError(
                f"composite.{kind} names {strangers[0]!r}, which is not in composite.members", remedy
            )
    return {name: frozenset(kind for kind, names in lists.items() if name in names) for name in members}
