"""The server's HTTP API, versions 0.4.9 to 0.5.2, and its errors in the host's words."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hermes_core.kit import BackendAuthError, BackendNotFound, BackendRefused, BackendUnavailable
from hermes_core.kit.http import Api, error_detail
from hermes_openviking.memory_file import is_field
from hermes_openviking.settings import KEY, Server
from hermes_openviking.spaces import Space, below

BATCH = 100
"""Messages that the server takes in one request."""

MATCHES = 256
"""Lines that a search by words gives at most."""

LEAST_WORDS = 0.5
"""Share of a question's words that a text must hold to be its answer, where words are all there is to go by."""

STILL_LEARNING_S = 3.0
"""Seconds after which to ask again whether the server has learned from a session."""

ERASE_TIMEOUT_S = 60.0
"""Seconds for the deletion of a whole space, whose summaries the server makes anew."""

QUICK_TIMEOUT_S = 5.0
"""Seconds to wait for a sign of life."""

_ONLY_PEERS = {"self": {"enabled": False}, "peer": {"enabled": True}}
"""What is learned from a session goes into our peer of the user, where no other profile or person reads."""

_EVERYTHING = 10_000_000
"""Tokens of a session's context: more than any has, so that all of its messages come."""

_MESSAGE_FIELDS = ("role", "parts", "peer_id", "created_at", "turn_id")
_KEEPS_TURN_IDS = (0, 4, 12)
"""The version from which a message keeps the id of its turn."""

_HALVED = (0, 4, 22)
"""The version from which the local index answers (1 + cosine) / 2; before, it answered the cosine itself."""

_CHOOSES = (0, 5)
"""The version from which `context` works as it is asked here."""


class AlreadyThere(BackendRefused):
    """409: what should be made exists."""


class ServerFault(BackendUnavailable):
    """500: the server is up and fails at this. A search does so when there is no embedder."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing found. `level` is 0 for an abstract, 1 for an overview, 2 for a file; the text of a file that is
    `ready` is what the server thinks right to say of it, else its abstract."""

    uri: str
    text: str
    score: float
    level: int = 2
    kind: str = "memory"
    ready: bool = False

    def is_informative(self, folders: Sequence[str]) -> bool:
        """Return whether a folder's summary says more than the files that it summarises."""
        return self.kind != "memory" and self.uri.rpartition("/")[0] not in folders

    @property
    def category(self) -> str:
        """Kind of memory, from its folder: servers no longer say it."""
        _, _, rest = self.uri.partition("/memories/")
        return rest.partition("/")[0].removesuffix(".md") if rest else self.kind


class Client:
    """An OpenViking server. One try a call; raises `BackendUnavailable`, `BackendAuthError` or `BackendRefused`."""

    def __init__(self, server: Server, timeout: float) -> None:
        headers = {"X-OpenViking-Account": server.account, "X-OpenViking-User": server.user}
        if server.api_key:
            headers |= {"X-API-Key": server.api_key, "Authorization": f"Bearer {server.api_key}"}
        self._api = Api(
            server.endpoint,
            name="OpenViking",
            key=KEY,
            setting="endpoint",
            headers=headers,
            timeout=timeout,
            meaning=_error_of_status,
        )
        self._quick = min(timeout, QUICK_TIMEOUT_S)
        self.url, self.agent = self._api.url, server.agent
        self.version = self.mode = self.user = ""

    def connect(self) -> None:
        """Ask which version answers, how it knows us, and as which user; without that no URI can be written."""
        health = self._api.get("/health", timeout=self._quick)
        if not isinstance(health, dict) or not health.get("healthy", health.get("status") == "ok"):
            raise self._api.backend.unexpected(f"health {health!r}")
        self.version, self.mode = str(health.get("version", "")), str(health.get("auth_mode", ""))
        self.user = str(self._call("", "GET", "/system/status").get("user") or "")
        if not self.user:
            raise BackendUnavailable(
                f"OpenViking at {self.url!r} does not say who we are", "is it initialized?"
            )

    def answers(self) -> bool:
        """Return whether a server is there and healthy."""
        try:
            return bool(self._api.get("/health", timeout=self._quick))
        except BackendUnavailable:
            return False

    @property
    def has_context(self) -> bool:
        """True if the server selects and shortens by itself, as `context` asks."""
        return self._since(_CHOOSES)

    # ------------------------------------------------------------------- memory

    def put(self, space: Space, uri: str, content: str, *, wait: bool = False) -> None:
        """Make a memory. Its URI holds its text's hash, so that one that exists is this one."""
        body = {"uri": uri, "content": content, "mode": "create", "wait": wait}
        try:
            self._call(space.peer, "POST", "/content/write", json=body)
        except AlreadyThere:
            pass

    def forget(self, space: Space, uri: str, *, wait: bool = False) -> None:
        """Delete a memory; one that is not there is deleted."""
        try:
            self._call(space.peer, "DELETE", "/fs", params={"uri": uri, "wait": str(wait).lower()})
        except BackendNotFound:
            pass

    def find(
        self,
        space: Space,
        query: str,
        folders: Sequence[str],
        limit: int,
        *,
        floor: float = 0.0,
        conversation: str = "",
        timeout: float | None = None,
    ) -> list[Hit]:
        """Return what is nearest in meaning, best first; `floor` is a cosine.

        Only the embedder is used, unless a `conversation` lets a language model interpret the search.
        """
        body: dict[str, Any] = {"query": query, "target_uri": list(folders), "limit": limit * 3}
        body["score_threshold"] = self._score(floor)
        if conversation:
            body["session_id"] = conversation
        path = "/search/search" if conversation else "/search/find"
        found = self._call(space.peer, "POST", path, json=body, timeout=timeout)
        rows = [row for kind in ("memories", "resources", "skills") for row in found.get(kind) or ()]
        hits = [_hit(row) for row in rows if any(below(row["uri"], folder) for folder in folders)]
        # A folder's listing of its memories says nothing that they do not say themselves, nor does the library's title.
        own = [hit for hit in hits if hit.text and (hit.level == 2 or hit.is_informative(folders))]
        return sorted(own, key=lambda hit: -hit.score)[:limit]

    def context(
        self,
        space: Space,
        query: str,
        folders: Sequence[str],
        limit: int,
        *,
        floor: float,
        tokens: int,
        timeout: float | None = None,
    ) -> list[Hit]:
        """Return what the server itself would give a model, within `tokens`.

        A server in mode dev separates nobody and also returns other peers' memories; they are left out here.
        """
        body = {
            "query": query,
            "mode": "context",
            "limit": limit,
            "max_tokens": min(max(tokens, 64), 32_000),
            "score_threshold": self._score(floor),
            "peer_scope": "actor",
            "query_expansion": "off",
            "rewrite": "off",
        }
        found = self._call(space.peer, "POST", "/search/search", json=body, timeout=timeout)
        rows = [row for row in found.get("entries") or () if any(below(row["uri"], each) for each in folders)]
        return [
            Hit(str(r["uri"]), str(r["text"]), float(r.get("score") or 0), kind=_kind(r["uri"]), ready=True)
            for r in rows
            if r.get("text") and not _is_listing(r["uri"])
        ]

    def find_words(
        self,
        space: Space,
        words: Collection[str],
        folders: Sequence[str],
        limit: int,
        *,
        timeout: float | None = None,
    ) -> list[Hit]:
        """Return what has most of these words, best first: a search for a server without an embedder."""
        texts: dict[str, dict[str, None]] = {}
        for folder in folders:
            found = (
                self.grep(space, folder, "|".join(map(re.escape, words)), timeout=timeout) if words else []
            )
            for uri, line in found:
                if not _is_listing(uri) and not is_field(line):
                    texts.setdefault(uri, {})[line] = None
        hits = []
        for uri, lines in texts.items():
            text = "\n".join(lines)
            share = sum(word in text.casefold() for word in words) / len(words)
            if share >= LEAST_WORDS:
                hits.append(Hit(uri, text, round(share, 3), kind=_kind(uri)))
        return sorted(hits, key=lambda hit: -hit.score)[:limit]

    def grep(
        self, space: Space, uri: str, pattern: str, *, timeout: float | None = None
    ) -> list[tuple[str, str]]:
        """Return URI and line of all matches of a pattern, also on a server without an embedder; nothing
        for a missing folder.
        """
        try:
            return self._grep(space, uri, pattern, timeout)
        except BackendNotFound:
            return []

    # --------------------------------------------------------------------- tree

    def stat(self, space: Space, uri: str) -> dict[str, Any]:
        """Return facts about a file or folder: `isDir`, `size`, `modTime`."""
        return dict(self._call(space.peer, "GET", "/fs/stat", params={"uri": uri}))

    def entries(self, space: Space, uri: str, deep: bool, limit: int) -> list[dict[str, Any]]:
        """Return the entries of a folder, with all below it if `deep`."""
        params = {"uri": uri, "node_limit": limit}
        return list(self._call(space.peer, "GET", "/fs/tree" if deep else "/fs/ls", params=params))

    def read(
        self,
        space: Space,
        uri: str,
        level: str = "read",
        *,
        raw: bool = False,
        timeout: float | None = None,
    ) -> str:
        """Return a file's text (`read`), `raw` with the fields of a memory, or a folder's `abstract` or `overview`."""
        params = {"uri": uri, **({"raw": "true"} if raw else {})}
        return str(self._call(space.peer, "GET", f"/content/{level}", params=params, timeout=timeout))

    def upload(self, space: Space, name: str, data: bytes) -> str:
        """Send a file for `add`, and return its temporary id."""
        answer = self._call(space.peer, "POST", "/resources/temp_upload", files={"file": (name, data)})
        return str(answer["temp_file_id"])

    def add(self, space: Space, source: Mapping[str, Any]) -> dict[str, Any]:
        """Add a document: `path` or `temp_file_id`, and where to; its `root_uri`, and the `task_id` that reads it."""
        return dict(self._call(space.peer, "POST", "/resources", json={**source, "wait": False}))

    # ----------------------------------------------------------------- sessions

    def add_turn(self, space: Space, conversation: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Add a turn's messages, unless the session, or what was archived of it, holds that turn already."""
        try:
            if self._holds(space, conversation, messages[0]):
                return
        except BackendNotFound:
            self._open(space, conversation)
        self._append(space, conversation, messages)

    def commit(self, space: Space, conversation: str) -> str:
        """Move the session's messages to the archive and let the server learn from them. Return the task,
        "" if nothing is new.
        """
        try:
            path = f"/sessions/{quote(conversation)}/commit"
            done = self._call(space.peer, "POST", path, json={"keep_recent_count": 0})
        except BackendNotFound:
            return ""
        return str(done.get("task_id") or "")

    def take_back(self, space: Space, conversation: str, turns: Collection[str]) -> None:
        """Leave these turns out of a session, as long as nothing was learned from them.

        Messages can't be deleted one by one. The session is moved aside, made anew without them, and the old one deleted
        last, so that a try that was cut short is finished by the next.
        """
        aside = f"{conversation}.rewound"
        messages = self._messages(space, aside)
        if messages is None:
            messages = self._messages(space, conversation) or []
            if not any(message.get("turn_id") in turns for message in messages):
                return
            base = f"viking://user/{self.user}/sessions"
            body = {"from_uri": f"{base}/{conversation}", "to_uri": f"{base}/{aside}"}
            self._call(space.peer, "POST", "/fs/mv", json=body)
        kept = [message for message in messages if message.get("turn_id") not in turns]
        there = len(self._messages(space, conversation) or ())
        if kept[there:]:
            self._open(space, conversation)
            self._append(space, conversation, kept[there:])
        self._call(space.peer, "DELETE", f"/sessions/{quote(aside)}")

    def erase(self, space: Space) -> tuple[int, int]:
        """Delete the space with its sessions and their archives; return the number of sessions, and of files.

        Raises `BackendUnavailable` while the server still learns from one of the sessions: it would write the memories
        behind the deletion.
        """
        if any(task.get("status") in ("pending", "running") for task in self.extractions(space)):
            raise BackendUnavailable(
                f"OpenViking at {self.url!r} still learns from a session of {space.peer!r}",
                retry_after=STILL_LEARNING_S,
            )
        listed = self._call("", "GET", "/sessions")
        names = [
            str(one["session_id"]) for one in listed if str(one["session_id"]).startswith(f"{space.peer}.")
        ]
        for name in names:
            self._call("", "DELETE", f"/sessions/{quote(name, safe='')}")
        # As the user, and not as the peer: it brings the folder of all peers up to date, which no peer may read.
        params = {"uri": space.root, "recursive": "true", "wait": "true"}
        try:
            done = self._call("", "DELETE", "/fs", params=params, timeout=ERASE_TIMEOUT_S)
        except BackendNotFound:
            return len(names), 0
        return len(names), int(done.get("estimated_deleted_count") or 0)

    def task(self, space: Space, task_id: str) -> dict[str, Any]:
        """Return the state of a task: `status` pending, running, completed or failed, and `error`."""
        try:
            return dict(self._call(space.peer, "GET", f"/tasks/{quote(task_id, safe='')}"))
        except BackendRefused as exc:
            return {"status": "unknown", "error": str(exc)}

    def follow(self, space: Space, task_id: str, seconds: float) -> dict[str, Any]:
        """Return the state of a task after up to `seconds` of waiting for its end."""
        until = time.monotonic() + seconds
        while (task := self.task(space, task_id)).get("status") in ("pending", "running"):
            if time.monotonic() > until:
                break
            time.sleep(0.25)
        return task

    def extractions(self, space: Space) -> list[dict[str, Any]]:
        """Return the last 20 tasks that learned from a session of this space, newest first, while the
        server remembers them.
        """
        found = self._call(space.peer, "GET", "/tasks", params={"task_type": "session_commit", "limit": 100})
        own = [task for task in found if str(task.get("resource_id", "")).startswith(f"{space.peer}.")]
        return sorted(own, key=lambda task: -float(task.get("created_at") or 0))[:20]

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    # ------------------------------------------------------------------ private

    def _holds(self, space: Space, conversation: str, first: Mapping[str, Any]) -> bool:
        """Return whether the session has these messages. Raises `BackendNotFound` if there is no such session.

        If turn ids are not stored, a message of the same time and text counts as the same.
        """
        uri = f"viking://user/{self.user}/sessions/{conversation}"
        kept = "turn_id" if self._since(_KEEPS_TURN_IDS) else "created_at"
        mark = first.get(kept) or first["turn_id"]
        lines = self._grep(space, uri, re.escape(mark))
        return any(_same(line, first) for _, line in lines)

    def _grep(
        self, space: Space, uri: str, pattern: str, timeout: float | None = None
    ) -> list[tuple[str, str]]:
        body = {"uri": uri, "pattern": pattern, "case_insensitive": True, "node_limit": MATCHES}
        matches = self._call(space.peer, "POST", "/search/grep", json=body, timeout=timeout)["matches"]
        return [(str(match["uri"]), str(match["content"])) for match in matches]

    def _open(self, space: Space, conversation: str) -> None:
        body = {"session_id": conversation, "memory_policy": _ONLY_PEERS}
        try:
            self._call(space.peer, "POST", "/sessions", json=body)
        except AlreadyThere:
            pass

    def _append(self, space: Space, conversation: str, messages: Sequence[Mapping[str, Any]]) -> None:
        path = f"/sessions/{quote(conversation)}/messages/batch"
        for start in range(0, len(messages), BATCH):
            some = [
                {key: m[key] for key in _MESSAGE_FIELDS if m.get(key)}
                for m in messages[start : start + BATCH]
            ]
            self._call(space.peer, "POST", path, json={"messages": some})

    def _messages(self, space: Space, conversation: str) -> list[dict[str, Any]] | None:
        """Return messages that are not archived yet, None if there is no such session."""
        path = f"/sessions/{quote(conversation)}/context"
        try:
            return list(self._call(space.peer, "GET", path, params={"token_budget": _EVERYTHING})["messages"])
        except BackendNotFound:
            return None

    def _score(self, cosine: float) -> float:
        """Return a cosine on the server's own scale."""
        return (1 + cosine) / 2 if self._since(_HALVED) else cosine

    def _since(self, version: tuple[int, ...]) -> bool:
        """Return whether the server is of this version or later. A version that names no release counts as new."""
        numbers = tuple(map(int, re.findall(r"\d+", self.version)[:3]))
        return not numbers or numbers >= version

    def _call(self, peer: str, method: str, path: str, **options: Any) -> Any:
        """Send a request and return the `result` of its answer."""
        headers = {"X-OpenViking-Actor-Peer": peer} if peer else {}
        answer = self._api.send(method, f"/api/v1{path}", headers=headers, **options)
        if not isinstance(answer, dict) or "result" not in answer:
            raise self._api.backend.unexpected(answer)
        return answer["result"]


def _error_of_status(status: int, body: str) -> BackendRefused | BackendUnavailable | BackendAuthError | None:
    """Return the error for a status. 403 is about the URI or address in the request, unless the key is a root
    key, which has no memory of its own.
    """
    said = f"OpenViking answered {status}: {error_detail(body)!r}"
    if status == 403 and "ROOT API key" in body:
        return BackendAuthError(said, f"put a user's key into {KEY}")
    if status == 400 and "Trusted mode requests" in body:
        return BackendAuthError(said, "set account and user")
    meanings = {403: BackendRefused, 409: AlreadyThere, 500: ServerFault}
    return meanings[status](said) if status in meanings else None


def _hit(row: Mapping[str, Any]) -> Hit:
    text = str(row.get("abstract") or row.get("overview") or "")
    kind = str(row.get("context_type") or "memory")
    return Hit(str(row["uri"]), text, float(row.get("score") or 0), int(row.get("level", 2)), kind)


def _is_listing(uri: str) -> bool:
    """Return whether it is the server's text about a folder of memories, which only repeats their names."""
    return uri.rpartition("/")[2].startswith(".") and _kind(uri) == "memory"


def _kind(uri: str) -> str:
    return "memory" if "/memories/" in uri else "resource"


def _same(line: str, message: Mapping[str, Any]) -> bool:
    """Return whether a line of a session's file is this message."""
    try:
        found = json.loads(line)
    except ValueError:
        return False
    if "turn_id" in found:
        return bool(found["turn_id"] == message.get("turn_id"))
    return all(found.get(key) == message.get(key) for key in ("role", "created_at", "parts"))
