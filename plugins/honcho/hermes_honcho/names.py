"""Names of people and conversations in Honcho. Pure: no two people, and no two conversations, share a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hermes_core import Session
from hermes_core.kit import Settings, key_of, profile_name

MAX_NAME_CHARS = 100
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_HASHED = re.compile(r"-[0-9a-f]{8}$")


@dataclass(frozen=True, slots=True)
class Who:
    """The two peers of a conversation. `owner`: the person whose home this is, and not one of many users of a gateway."""

    user: str
    ai: str
    owner: bool = True


def clean(text: str) -> str:
    """Return `text` as a name that Honcho takes. A changed name ends with a hash of the original.

    >>> clean("my-project"), clean("agent:main:irc")
    ('my-project', 'agent-main-irc-de58c50e')
    """
    name = _FOREIGN.sub("-", text)
    # A name that ends like one of ours is changed too, or it could be chosen to be taken for another.
    if name == text and 0 < len(name) <= MAX_NAME_CHARS and not _HASHED.search(name):
        return name
    return f"{name[: MAX_NAME_CHARS - 9].strip('-') or 'x'}-{key_of(text, length=8)}"


def workspace(options: Settings, profile: str) -> str:
    """Return the workspace of a profile. Each profile has its own unless the settings name one."""
    if options.workspace:
        return clean(options.workspace)
    return clean(profile_name(profile, "_"))


def who(options: Settings, session: Session) -> Who:
    """Return the peers of `session`: the home's person, a user of a gateway, or a chat without users, by alias
    or else by platform and id.
    """
    you = clean(options.peerName or "user")
    ai = clean(options.aiPeer) if options.aiPeer else workspace(options, session.identity)
    if ai == you:
        ai = f"{you}-ai"
    if not session.owner or options.pinUserPeer:
        return Who(you, ai)
    person = session.user_id or f"chat:{session.chat_id or session.owner}"
    aliases = options.userPeerAliases or {}
    alias = aliases.get(f"{session.platform}:{person}") or aliases.get(person)
    if alias:
        return Who(clean(str(alias)), ai, clean(str(alias)) == you)
    prefix = options.runtimePeerPrefix
    # The user b-c of the platform a is not the user c of the platform a-b.
    joined = ":" if "-" in session.platform else "-"
    name = clean(f"{session.platform}{joined}{person}" if prefix is None else f"{prefix}{person}")
    # An id may look like a name that stands for someone else, or like a chat.
    taken = {you, ai, *(clean(str(other)) for other in aliases.values())}
    posing = name in taken or session.user_id.startswith("chat:")
    return Who(clean(f"{name}:{person}") if posing else name, ai, owner=False)


def session_name(
    options: Settings,
    session: Session,
    folder: Path,
    is_free: Callable[[str, Path], bool] | None = None,
) -> str:
    """Return the name of the session in Honcho: of the gateway's chat, else of the host's session, the folder,
    the repository, or one for all.

    Args:
        is_free: Returns False if the name belongs to another folder, which has the same name elsewhere.
    """
    peers = who(options, session)
    if session.gateway_session_key:
        name = clean(session.gateway_session_key)
    elif (mapped := (options.sessions or {}).get(str(folder))) is not None:
        name = _shared(clean(str(mapped)), peers)
    elif options.sessionStrategy == "per-session":
        name = clean(session.id)
    elif options.sessionStrategy == "global":
        name = _shared(workspace(options, session.identity), peers)
    else:
        place = _root(folder) if options.sessionStrategy == "per-repo" else folder
        name = clean(place.name or "root")
        if is_free is not None and not is_free(name, place):
            name = clean(f"{name}:{place}")
        name = _shared(name, peers)
    return clean(f"{peers.user}-{name}") if options.sessionPeerPrefix else name


def by_folder(options: Settings) -> bool:
    """Return whether the name depends on the working folder of the process."""
    return bool(options.sessions) or options.sessionStrategy in ("per-directory", "per-repo")


def _shared(name: str, peers: Who) -> str:
    """Return a name without the person in it; each user of a gateway has one."""
    return name if peers.owner else clean(f"{name}:{peers.user}")


def _root(folder: Path) -> Path:
    """Return the repository that contains the folder, else the folder."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)
