"""The six tools of the model. Their docstrings are what it reads."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from hermes_core import Session
from hermes_core.kit import (
    BackendNotFound,
    BackendProvider,
    BackendRefused,
    Range,
    ToolInputInvalid,
    clip,
    query_text,
    read_file_to_send,
    tool,
)
from hermes_core.recall import analyse
from hermes_openviking.client import Client, Hit, ServerFault
from hermes_openviking.spaces import CATEGORIES, SUMMARIES, Space, space_of

log = logging.getLogger(__name__)

LIMITS = {"abstract": 1200, "overview": 4000, "full": 8000}
"""Characters of one reading."""

LIMIT_OF_SEVERAL = 2500
"""Characters of each, when several are read at once."""

TOGETHER = 3
ENTRIES = 50
EVERYWHERE = "viking://"

LARGEST_FILE = 20 * 1024 * 1024
"""Bytes of a file on this machine that the model may add."""

# Addresses that the server fetches: web pages and git repositories.
_WEB = re.compile(r"(?:https?|git|ssh|git\+(?:https?|ssh))://|git@[\w.-]+:", re.IGNORECASE)

Level = Literal["abstract", "overview", "full"]


class Tools(BackendProvider[Client]):
    """The tools, in the space of the person that a call comes from."""

    def space(self, session: Session) -> Space:
        """Return the space of the session's person."""
        client = self.client
        return space_of(session, client.user, client.agent, self.options.recall_user_memory)

    def found(
        self, space: Space, query: str, folders: Sequence[str], limit: int, **options: Any
    ) -> list[Hit]:
        """Return what is nearest in meaning; on a server without an embedder, what has the same words."""
        try:
            return self.client.find(space, query, folders, limit, **options)
        except ServerFault as exc:
            log.info("%s; it is searched by words", exc)
            words = {term.text for term in analyse(query).terms}
            return self.client.find_words(space, words, folders, limit, timeout=options.get("timeout"))

    @tool("viking_search")
    def search(
        self,
        query: str,
        session: Session,
        mode: Annotated[
            Literal["auto", "fast", "deep"], "deep reads it in the light of this conversation, and is slow"
        ] = "auto",
        scope: Annotated[str | None, "a folder to look in; all of yours unless given"] = None,
        limit: Annotated[int, Range(1, 50)] = 10,
    ) -> dict[str, Any]:
        """Search memories and documents by meaning. Gives URIs for viking_read, best first."""
        space = self.space(session)
        everywhere = not scope or scope.strip() == EVERYWHERE
        folders = space.recalled(documents=True) if everywhere else space.searched(space.resolve(str(scope)))
        conversation = space.conversation(session.id) if mode == "deep" else ""
        hits = self.found(space, query_text(query, 2000), folders, limit, conversation=conversation)
        return {"results": [_shown(hit) for hit in hits], "total": len(hits)}

    @tool("viking_read")
    def read(
        self,
        session: Session,
        uri: Annotated[str | None, "one URI"] = None,
        uris: Annotated[list[str] | None, "or up to three"] = None,
        level: Annotated[
            Level, "abstract and overview are short, for folders; full is a file's text"
        ] = "overview",
    ) -> dict[str, Any]:
        """Read what a viking:// URI holds. A file is always read as it is."""
        space = self.space(session)
        if uri:
            return self._reading(space, uri, level, LIMITS[level])
        if not uris:
            raise ToolInputInvalid("uri is missing", "send uri, or uris")
        limit = min(LIMITS[level], LIMIT_OF_SEVERAL)
        results = [self._reading_or_error(space, each, level, limit) for each in uris[:TOGETHER]]
        told = {"requested": len(uris), "returned": len(results), "truncated": len(uris) > TOGETHER}
        return {"level": level, "results": results, **told}

    @tool("viking_browse")
    def browse(
        self,
        action: Annotated[
            Literal["tree", "list", "stat"], "list a folder, its whole tree, or facts about one URI"
        ],
        session: Session,
        path: Annotated[str, "viking:// shows where to begin"] = EVERYWHERE,
    ) -> dict[str, Any]:
        """Look around in memories and documents."""
        space = self.space(session)
        if path.strip() == EVERYWHERE:
            roots = [{"name": _name(root), "uri": root, "type": "dir"} for root in space.roots]
            return {"path": EVERYWHERE, "entries": roots}
        uri = space.resolve(path)
        if action == "stat":
            return {"path": uri, **self.client.stat(space, uri)}
        try:
            rows = self.client.entries(space, uri, action == "tree", ENTRIES)[:ENTRIES]
        except BackendNotFound:
            if uri not in (space.root, space.memories, space.resources):
                raise
            rows = []  # nothing was written there yet
        return {"path": uri, "entries": [_entry(row) for row in rows]}

    @tool("viking_remember")
    def remember(
        self,
        content: Annotated[str, "one fact that stands alone"],
        session: Session,
        category: Literal["preference", "entity", "event", "case", "pattern"] = "preference",
    ) -> dict[str, Any]:
        """Keep a fact for later conversations, now and word for word."""
        text = content.strip()
        if len(text) > LIMITS["full"]:
            raise ToolInputInvalid(f"content has {len(text)} characters", f"send at most {LIMITS['full']}")
        space = self.space(session)
        uri = space.file(CATEGORIES[category], text)
        self.client.put(space, uri, text)
        return {"status": "stored", "uri": uri}

    @tool("viking_forget")
    def forget(
        self, uri: Annotated[str, "of a memory, from a search: a .md file"], session: Session
    ) -> dict[str, Any]:
        """Delete one memory for good."""
        space = self.space(session)
        whole = space.forgettable(uri)
        try:
            self.client.stat(space, whole)
        except BackendNotFound:
            return {"status": "not there", "uri": whole}
        self.client.forget(space, whole)
        return {"status": "deleted", "uri": whole}

    @tool("viking_add_resource")
    def add_resource(
        self,
        url: Annotated[str, "web address, git repository, or a file of the working folder"],
        session: Session,
        reason: Annotated[str, "what it is good for"] = "",
        to: Annotated[str | None, "URI that it gets"] = None,
        parent: Annotated[str | None, "or the folder it comes into"] = None,
        instruction: Annotated[str, "how to read it"] = "",
        wait: Annotated[bool, "wait until it can be searched"] = False,
        timeout: Annotated[float, Range(1, 50), "seconds"] = 45.0,
    ) -> dict[str, Any]:
        """Add a document to the library: the server fetches, splits and summarises it."""
        if to and parent:
            raise ToolInputInvalid("to and parent are both given", "send one of them")
        client, space = self.client, self.space(session)
        place = (
            {"to": space.destination(to)} if to else {"parent": space.destination(parent or space.resources)}
        )
        said = {key: value for key, value in (("reason", reason), ("instruction", instruction)) if value}
        source = self._source(space, url.strip(), session)
        added = client.add(space, {**source, **place, **said, "create_parent": True})
        answer = {"status": "added", "root_uri": added.get("root_uri", "")}
        task_id = str(added.get("task_id") or "")
        if not task_id:
            return answer
        task = client.follow(space, task_id, timeout) if wait else {"status": "pending"}
        return {
            **answer,
            "reading": task.get("status"),
            **({"error": task["error"]} if task.get("error") else {}),
        }

    # ------------------------------------------------------------------ private

    def _reading(self, space: Space, uri: str, level: str, limit: int) -> dict[str, Any]:
        client = self.client
        whole = space.resolve(uri)
        for ending, meant in SUMMARIES.items():
            if whole.endswith(ending):
                whole, level = whole.removesuffix(ending), meant
        # Of a file the server would give its folder's summary; of a folder it has no full text.
        folder = bool(client.stat(space, whole).get("isDir"))
        how = {"full": "overview"}.get(level, level) if folder else "read"
        text = client.read(space, whole, how)
        told = {"uri": uri, "resolved_uri": whole, "level": "full" if how == "read" else how}
        return {**told, "content": clip(text, limit), "truncated": len(text) > limit}

    def _reading_or_error(self, space: Space, uri: str, level: str, limit: int) -> dict[str, Any]:
        try:
            return self._reading(space, uri, level, limit)
        except (BackendRefused, ToolInputInvalid) as exc:
            return {"uri": uri, "error": str(exc)}

    def _source(self, space: Space, url: str, session: Session) -> dict[str, Any]:
        """Return what to add: an address for the server to fetch, or an uploaded file of this machine."""
        # No other scheme: a server on this machine would take file:// for a file of its own.
        if _WEB.match(url):
            return {"path": url}
        file = read_file_to_send(url, session, LARGEST_FILE, self.options.file_folders)
        return {"temp_file_id": self.client.upload(space, file.name, file.content), "source_name": file.name}


def _shown(hit: Hit) -> dict[str, Any]:
    shown = {"uri": hit.uri, "type": hit.kind, "score": round(hit.score, 3), "abstract": clip(hit.text, 500)}
    return {**shown, "category": hit.category} if hit.kind == "memory" else shown


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    uri = str(row.get("uri", ""))
    kind = "dir" if row.get("isDir") else "file"
    return {
        "name": _name(uri),
        "uri": uri,
        "type": kind,
        "abstract": clip(str(row.get("abstract") or ""), 300),
    }


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]
