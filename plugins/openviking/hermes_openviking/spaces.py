"""The part of OpenViking's tree that belongs to one person's agent, and the URIs that the agent may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hermes_core import Session
from hermes_core.kit import ToolInputInvalid, key_of, person_name, profile_name

SHARED_FOLDERS = ("viking://resources", "viking://agent")
"""What the account keeps for everybody: documents and skills. Read, and never written for a user of a gateway."""

CATEGORIES: Mapping[str, str] = {
    "preference": "preferences",
    "entity": "entities",
    "event": "events",
    "case": "cases",
    "pattern": "patterns",
}
"""What a memory may be, and its folder."""

SUMMARIES = {"/.abstract.md": "abstract", "/.overview.md": "overview"}
"""Names that a search gives for a folder's own text, and the level at which that is read."""

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,100}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ODD = re.compile(r"[\x00-\x1f\x7f?#\\]|(^|/)\.{1,2}(/|$)")


@dataclass(frozen=True, slots=True)
class Space:
    """One person's part: the OpenViking user that the key stands for, and a peer of it that is ours alone.

    `owner` says that the person is at the terminal and may add to what everybody reads; `whole` that the user's
    own memories, which other programs write, are read too.
    """

    user: str
    peer: str
    owner: bool = True
    whole: bool = False

    @property
    def root(self) -> str:
        """URI of the space."""
        return f"viking://user/{self.user}/peers/{self.peer}"

    @property
    def memories(self) -> str:
        """URI of its memories."""
        return f"{self.root}/memories"

    @property
    def resources(self) -> str:
        """URI of its documents."""
        return f"{self.root}/resources"

    @property
    def theirs(self) -> tuple[str, ...]:
        """The user's own memories and documents, where they are read too."""
        return tuple(f"viking://user/{self.user}/{kind}" for kind in ("memories", "resources") if self.whole)

    @property
    def roots(self) -> tuple[str, ...]:
        """Folders that the person's tools may look into."""
        return (self.root, *self.theirs, *SHARED_FOLDERS)

    def recalled(self, documents: bool) -> list[str]:
        """Return the folders that a recall searches."""
        folders = [self.memories, *self.theirs[:1]]
        return [*folders, self.resources, *self.theirs[1:], SHARED_FOLDERS[0]] if documents else folders

    def searched(self, uri: str) -> list[str]:
        """Return the folders to search for `uri`. The server can't search a whole space, so its parts are searched."""
        return [self.memories, self.resources] if uri == self.root else [uri]

    def resolve(self, uri: str) -> str:
        """Return the whole URI that `uri` means, with `viking://~` and older short forms filled in.

        Raises `ToolInputInvalid` if it is no such URI, or belongs to somebody else.
        """
        text = uri.strip().rstrip("/")
        if not text.startswith("viking://") or _ODD.search(text.removeprefix("viking://")):
            raise ToolInputInvalid(f"{uri!r} is no viking:// URI", f"send one below {self.root}")
        for short, long in (
            ("viking://~", f"viking://user/{self.user}"),
            ("viking://user/peers", f"viking://user/{self.user}/peers"),
            ("viking://user/memories", self.memories),
        ):
            if text == short or text.startswith(f"{short}/"):
                text = long + text.removeprefix(short)
        if not any(below(text, root) for root in self.roots):
            raise ToolInputInvalid(f"{uri!r} is not yours to use", f"look below {', '.join(self.roots)}")
        return text

    def forgettable(self, uri: str) -> str:
        """Return the whole URI of a memory of ours that may be deleted. Raises `ToolInputInvalid` for anything else."""
        text = self.resolve(uri)
        name = text.rpartition("/")[2]
        if not below(text, self.memories) or not name.endswith(".md") or name.startswith("."):
            raise ToolInputInvalid(f"{uri!r} is no memory of yours", f"send a .md file below {self.memories}")
        return text

    def destination(self, uri: str) -> str:
        """Return the whole URI for a new document. Raises `ToolInputInvalid` for a place that is not ours."""
        text = self.resolve(uri)
        if below(text, self.resources) or (self.owner and below(text, SHARED_FOLDERS[0])):
            return text
        places = [self.resources, *SHARED_FOLDERS[:1]] if self.owner else [self.resources]
        raise ToolInputInvalid(
            f"no document can be put at {uri!r}", f"send a place below {' or '.join(places)}"
        )

    def conversation(self, session_id: str) -> str:
        """Return the id of a session on the server, unique among all its profiles and people."""
        safe = session_id if _ID.fullmatch(session_id) else f"x{key_of(session_id)}"
        return f"{self.peer}.{safe}"

    def file(self, folder: str, content: str, prefix: str = "") -> str:
        """Return the URI of the memory with this `content`. Equal texts have equal URIs, so that a repeat
        changes nothing.
        """
        return f"{self.memories}/{folder}/{prefix}{key_of(content, length=24)}.md"


def space_of(session: Session, user: str, agent: str, whole: bool) -> Space:
    """Return the space of a session's person. Profiles, and people of a gateway, never share one."""
    peer = agent or profile_name(session.identity)
    if not _NAME.fullmatch(peer) or peer.startswith(".") or peer.count("@") > 1:
        peer = f"hermes-{key_of(peer, length=16)}"
    guest = person_name(session)
    if guest:
        peer = f"{peer}-{guest}"
    default = session.identity == "default" and not guest
    return Space(user, peer, owner=not guest, whole=whole and default)


def below(uri: str, root: str) -> bool:
    """Return whether `uri` is `root` or is inside it."""
    return uri == root or uri.startswith(f"{root}/")
