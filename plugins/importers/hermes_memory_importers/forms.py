"""Comparison of two forms of one session, which share the id of the session and not those of its messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Protocol

from hermes_core.sessions.records import as_json

# A text that one form cut is at least so long. Shorter ones may be two answers that begin alike.
_CUT_CHARS = 40


class FormMessage(Protocol):
    """A message of a file, or a stored one."""

    @property
    def role(self) -> str:
        """The role."""
        ...

    @property
    def content(self) -> str:
        """The text."""
        ...

    @property
    def tool_calls(self) -> Sequence[Mapping[str, Any]]:
        """The calls of tools."""
        ...


def match_messages(messages: Sequence[FormMessage], others: Sequence[FormMessage]) -> list[int | None]:
    """Return for each message the index of the same message in another form of the session, None if that lacks it.

    First the longest common order counts, then equal messages anywhere, since a message that one form lacked may be stored
    at the end. Behind a message that both forms have, a text that begins with the other one is the same message: one form
    may have cut it.
    """
    keys, other_keys = [_key(one) for one in messages], [_key(one) for one in others]
    found: list[int | None] = [None] * len(keys)
    # Nearly always one form is the beginning of the other one. The matcher is slow for texts that come very often.
    start = next(
        (n for n, pair in enumerate(zip(keys, other_keys, strict=False)) if len({*pair}) == 2), len(keys)
    )
    start = min(start, len(other_keys))
    found[:start] = range(start)
    matcher = SequenceMatcher(None, keys[start:], other_keys[start:], autojunk=False)
    for first, second, size in matcher.get_matching_blocks():
        found[start + first : start + first + size] = range(start + second, start + second + size)
    rest: defaultdict[str, list[int]] = defaultdict(list)
    for index in sorted(set(range(len(others))).difference(one for one in found if one is not None)):
        rest[other_keys[index]].append(index)
    for number, key in enumerate(keys):
        if found[number] is None and (same := rest[key]):
            found[number] = same.pop(0)
    free = {index for indices in rest.values() for index in indices}
    after: int | None = -1
    for number, message in enumerate(messages):
        if found[number] is None and after is not None and after + 1 in free:
            other = others[after + 1]
            cut, whole = sorted((message.content.strip(), other.content.strip()), key=len)
            if message.role == other.role and len(cut) >= _CUT_CHARS and whole.startswith(cut):
                found[number] = after + 1
        after = found[number]
    return found


def _key(message: FormMessage) -> str:
    calls = [call.get("function") or call for call in message.tool_calls]
    return as_json([message.role, " ".join(message.content.split()), calls])
