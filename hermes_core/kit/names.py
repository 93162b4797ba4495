"""Names and keys that a backend knows somebody or something by: the same for the same, and no two alike."""

from __future__ import annotations

import dataclasses
import hashlib
import re

from hermes_core.contract.values import Session
from hermes_core.kit.text import storable

LONGEST_READABLE = 40
"""Characters of a name that are for people to read; the rest tells it from all others."""


def key_of(*parts: str, length: int = 32) -> str:
    """A key that the same parts always give: `length` hexadecimal digits, 64 at most.

    >>> key_of("memory", "Likes tea.", length=12)
    '8db87340a701'
    """
    return hashlib.sha256("\0".join(map(storable, parts)).encode()).hexdigest()[:length]


def profile_name(identity: str, separator: str = "-") -> str:
    """What the memory of a profile is called, as Hermes Agent calls it; a name with other signs gets a hash.

    >>> profile_name("default"), profile_name("work", "_"), profile_name("at work")
    ('hermes', 'hermes_work', 'hermes-at-work-7e50d822')
    """
    if identity in ("", "default"):
        return "hermes"
    plain = re.sub(r"[^A-Za-z0-9_-]+", separator, identity)
    own = plain if plain == identity else f"{plain}{separator}{key_of(identity, length=8)}"
    return f"hermes{separator}{own}"


def person_name(session: Session, separator: str = "-") -> str:
    """A name for a user of a gateway, or for a chat without one, that nobody else has; "" for whose home it is.

    It has letters, digits and `separator`: the platform and the id, readable, then a hash that has the profile as well.
    A user has one name in all their chats.

    >>> person_name(Session("s1", platform="telegram", user_id="42"), "_")
    'telegram_42_318da146c455727a'
    """
    who = session.user_id or session.chat_id
    if not who:
        return ""
    whose = dataclasses.replace(session, chat_id="") if session.user_id else session
    readable = re.sub(r"[^A-Za-z0-9]+", separator, f"{session.platform} {who}")[:LONGEST_READABLE]
    return f"{readable.strip(separator)}{separator}{key_of(whose.scope, length=16)}"
