"""RetainDB's HTTP API, as the cloud, the open-source server and RetainDB Local speak it.

Each flavour leaves out some of it. What every flavour has falls back on the older routes under /v1/memories; what is
extra (reasoning, the agent's model of itself, files) is asked for once, and left alone where it is not there.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hermes_core.kit import (
    BackendNotFound,
    BackendUnavailable,
    clip,
    epoch_time,
    key_of,
    local_day,
    query_text,
    storable,
    utc_time,
)
from hermes_core.kit.http import Api, Backend, Download
from hermes_retaindb.settings import KEY

MAX_MEMORY_CHARS = 10_000
MAX_MESSAGE_CHARS = 32_000
MAX_SUMMARY_CHARS = 1_000
MAX_DETAILS_CHARS = 5_000
MAX_HITS = 50

STILL_WRITING_S = 2.0
"""Seconds after which the servers promise that an accepted memory is stored."""

PENDING = "pending:"
"""How the id of a memory begins that is accepted and not stored yet. It can't be deleted."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Owner, session and agent of a memory. `alone` is False if other users share the project.

    A memory is written with its session and read without one, as in `Client.search`.
    """

    user: str
    session: str
    agent: str = "hermes"
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory. `score` is the fit to the query from 0 to 1; `unscored` says that the server did not measure it."""

    id: str
    text: str
    type: str = ""
    user: str = ""
    session: str = ""
    when: str = ""
    score: float = 0.0
    unscored: bool = False
    at: float = 0.0

    @property
    def pending(self) -> bool:
        """True if it is accepted and not stored yet. The server returns pending memories with every answer."""
        return self.id.startswith(PENDING)


class Client:
    """RetainDB at `url`. Raises `BackendUnavailable`, `BackendAuthError`, `BackendNotFound` or `BackendRefused`."""

    def __init__(self, url: str, key: str, project: str, timeout: float) -> None:
        headers = {"x-sdk-runtime": "hermes-plugin"}
        if key:
            headers |= {"Authorization": f"Bearer {key}", "X-API-Key": key}
        self.project = project
        self._api = Api(url, name="RetainDB", key=KEY, setting="base_url", headers=headers, timeout=timeout)
        self._backend = self._api.backend
        self._absent: set[str] = set()
        self._era = uuid.uuid4().hex

    @property
    def place(self) -> str:
        """Address and project, for people."""
        return f"{self._api.url}, project {self.project!r}"

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    # --------------------------------------------------------------------- read

    def search(
        self,
        query: str,
        who: Scope,
        limit: int,
        types: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> list[Memory]:
        """Return memories of all sessions that fit the query, best first, with those that are not stored yet."""
        body = {
            **self._reader(who),
            "query": query_text(query),
            # Memories of others are dropped below: more are asked for, and most where there surely are others.
            "top_k": min(3 * limit, MAX_HITS) if who.alone else MAX_HITS,
            "include_pending": True,
            **({"memory_types": list(types)} if types else {}),
        }
        found = self._api.post("/v1/memory/search", body, timeout=timeout)
        return _owned(map(_hit, _list(self._backend, found, "results")), who)[:limit]

    def profile(self, who: Scope) -> list[Memory]:
        """Return the memories of a user."""
        params = {"project": self.project, "include_pending": "true"}
        try:
            found = self._api.get(f"/v1/memory/profile/{quote(who.user, safe='')}", params=params)
        except BackendNotFound:
            params = {"project": self.project, "user_id": who.user, "limit": "200"}
            found = self._api.get("/v1/memories", params=params)
        return _owned((_hit({"memory": memory}) for memory in _list(self._backend, found, "memories")), who)

    def context(self, query: str, who: Scope, max_tokens: int, known: str = "") -> tuple[str, str]:
        """Return a text that RetainDB composed, and its hash. With `known`, an earlier hash, the text has
        only the news since then.
        """
        body = {
            **self._reader(who),
            "query": query_text(query),
            "include_memories": True,
            "max_tokens": max_tokens,
        }
        if known:
            body |= {"compress": True, "compression_strategy": "delta", "previous_context_hash": known}
        found = self._api.post("/v1/context/query", body)
        meta = _field(self._backend, found, "meta", dict) or {}
        return _field(self._backend, found, "context", str) or "", str(meta.get("context_hash") or "")

    def reason(self, question: str, who: Scope) -> str | None:
        """Return RetainDB's own answer about a user, made by a language model; None if it has no such route."""
        text = query_text(question)
        effort = "low" if len(text) < 120 else "medium" if len(text) < 400 else "high"
        rest = {"project": self.project, "reasoning_level": effort}
        user = quote(who.user, safe="")
        ask = {"query": text, **rest}
        found = self._optional("ask", lambda: self._api.post(f"/v1/memory/profile/{user}/ask", ask))
        if found is None:
            dialectic = {"user_id": who.user, "question": text, **rest}
            found = self._optional("dialectic", lambda: self._api.post("/v1/memory/dialectic", dialectic))
        return None if found is None else _field(self._backend, found, "answer", str) or ""

    def agent(self, who: Scope) -> Any:
        """Return RetainDB's model of the agent: persona, instructions, style; None if it has no such route."""
        path = f"/v1/memory/agent/{quote(who.agent, safe='')}/model"
        return self._optional("model", lambda: self._api.get(path, params={"project": self.project}))

    # -------------------------------------------------------------------- write

    def add(
        self, text: str, who: Scope, kind: str, importance: float, event: str = "", at: float = 0.0
    ) -> str:
        """Have a memory stored; the id of the job, or of the memory where it is stored at once.

        Written twice with one `event` (or, without it, with the same content, and nothing forgotten in between) within a
        day, it is stored once. `at` is the time at which it was said, if that is not now.
        """
        body = {
            **self._scope(who),
            "content": clip(storable(text), MAX_MEMORY_CHARS),
            "memory_type": kind,
            "importance": importance,
            # Otherwise a server may keep a memory of little importance for its own session.
            "scope_target": "USER",
        }
        headers = {"Idempotency-Key": _key(event or self._era, body)}
        dated = {"document_date": utc_time(at)} if at else {}
        try:
            done = self._api.post("/v1/memory", {**body, **dated, "write_mode": "async"}, headers=headers)
        except BackendNotFound:
            del body["scope_target"]  # the older route does not know it
            done = self._api.post("/v1/memories", body, headers=headers)
        ids = (
            _field(self._backend, _confirmed(self._backend, done), name, str)
            for name in ("memory_id", "job_id", "id")
        )
        return next(filter(None, ids), "")

    def ingest(
        self,
        who: Scope,
        messages: Iterable[tuple[str, str]],
        at: float,
        event: str,
        *,
        user_at: float = 0.0,
    ) -> None:
        """Have memories extracted from messages, (role, text) each. `event` is the same on every try.

        They were said at `at`, those of the user at `user_at` if it is given.
        """
        times = {"user": utc_time(user_at or at)}
        said = [
            {
                "role": role,
                "content": clip(storable(text), MAX_MESSAGE_CHARS),
                "timestamp": times.get(role, utc_time(at)),
            }
            for role, text in messages
            if storable(text).strip()
        ]
        if said:
            self._ingest(event, {**self._scope(who), "messages": said, "write_mode": "async"})

    def ingest_outcome(self, who: Scope, summary: str, details: str, event: str) -> None:
        """Have memories extracted from what came of a task."""
        told = {
            "kind": "outcome",
            "summary": clip(storable(summary), MAX_SUMMARY_CHARS) or "-",
            "details": clip(storable(details), MAX_DETAILS_CHARS),
        }
        body = {**self._scope(who), "messages": [], "events": [told], "write_mode": "async"}
        self._ingest(event, body)

    def forget(self, memory: str) -> bool:
        """Delete a memory; False when there is none of this id."""
        for root in ("/v1/memory", "/v1/memories"):
            try:
                done = self._api.delete(f"{root}/{quote(memory, safe='')}")
            except BackendNotFound:
                continue
            if done is not None and not (isinstance(done, dict) and {"deleted", "success"} & done.keys()):
                raise self._backend.unexpected(done)
            # The keys of before would give the answers of before, and store nothing.
            self._era = uuid.uuid4().hex
            return done is None or bool(done.get("deleted", True))
        return False

    def forget_all(self, who: Scope) -> int:
        """Delete all memories of a user, and return their number. Servers list at most 200 of them at a time.

        Raises `BackendUnavailable` while the server still stores some.
        """
        deleted: set[str] = set()
        while found := self.profile(who):
            stored = {memory.id for memory in found if not memory.pending} - deleted
            if not stored:
                raise BackendUnavailable(
                    f"RetainDB at {self._api.url!r} still stores what {who.user!r} said",
                    retry_after=STILL_WRITING_S,
                )
            for memory in stored:
                self.forget(memory)
            deleted |= stored
        return len(deleted)

    def keeps_deleted(self, who: Scope) -> str:
        """Return a sentence on what this server keeps of deleted memories: none of them overwrites a text."""
        health = self._optional("health", lambda: self._api.get("/health"))
        if isinstance(health, dict) and health.get("local"):
            return (
                f"RetainDB Local at {self._api.url!r} marks deleted memories and keeps their text in its file"
                " (~/.retaindb/local-store.json, unless RETAINDB_HOME or RETAINDB_STORE is set there): stop it, remove"
                f' the memories of user_id {who.user!r} that have "active": false, and start it again'
            )
        return (
            f"RetainDB at {self._api.url!r} marks deleted memories of {who.user!r} and keeps their text in its database"
            " until an administrator purges it: POST /v1/admin/memory/cleanup"
        )

    def seed(self, soul: str, who: Scope) -> bool:
        """Tell RetainDB who the agent is; False where it keeps no model of agents."""
        path = f"/v1/memory/agent/{quote(who.agent, safe='')}/seed"
        body = {"project": self.project, "content": storable(soul), "source": "soul_md"}
        return self._optional("seed", lambda: self._api.post(path, body, timeout=20.0) or {}) is not None

    # -------------------------------------------------------------------- files

    def upload(self, name: str, content: bytes, path: str, scope: str) -> dict[str, Any] | None:
        """Put a file into the store; None where there is none."""
        form = {"path": path, "scope": scope, "project_id": self.project}
        files = {"file": (storable(name), content)}
        done = self._optional(
            "files", lambda: self._api.post("/v1/files", data=form, files=files, timeout=30.0)
        )
        return None if done is None else _field(self._backend, done, "file", dict) or {}

    def files(self, prefix: str, limit: int) -> list[dict[str, Any]] | None:
        """Return files whose path begins with `prefix`, None if there is no store."""
        params = {"prefix": prefix or None, "limit": str(limit)}
        found = self._optional("files", lambda: self._api.get("/v1/files", params=params))
        return None if found is None else _list(self._backend, found, "files")

    def file(self, file_id: str) -> dict[str, Any]:
        """Return the facts about one file."""
        found = self._api.get(f"/v1/files/{quote(file_id, safe='')}")
        return _field(self._backend, found, "file", dict) or {}

    def content(self, file_id: str) -> Download:
        """Return the contents of a file."""
        return self._api.download(f"/v1/files/{quote(file_id, safe='')}/content", timeout=30.0)

    def ingest_file(self, file_id: str, who: Scope) -> dict[str, Any]:
        """Have memories extracted from a file."""
        body = {"user_id": who.user, "agent_id": who.agent}
        path = f"/v1/files/{quote(file_id, safe='')}/ingest"
        learned = self._api.post(path, body, timeout=55.0)
        return learned if isinstance(learned, dict) else {}

    def delete_file(self, file_id: str) -> None:
        """Take a file out of the store."""
        self._api.delete(f"/v1/files/{quote(file_id, safe='')}")

    # ------------------------------------------------------------------ private

    def _ingest(self, event: str, body: dict[str, Any]) -> None:
        headers = {"Idempotency-Key": _key(event, body)}
        _confirmed(self._backend, self._api.post("/v1/memory/ingest/session", body, headers=headers))

    def _reader(self, who: Scope) -> dict[str, Any]:
        """Return whose memories a search reads. With a session, RetainDB Local returns memories of that session only."""
        return {"project": self.project, "user_id": who.user}

    def _scope(self, who: Scope) -> dict[str, Any]:
        """Return whose memory is written, and in which session it was said."""
        return {"project": self.project, "user_id": who.user, "session_id": who.session}

    def _optional(self, feature: str, call: Callable[[], Any]) -> Any:
        """Return the answer of a route that not every server has; None without it, which is tried once."""
        if feature in self._absent:
            return None
        try:
            return call()
        except BackendNotFound:
            self._absent.add(feature)
            return None


def _hit(found: Mapping[str, Any]) -> Memory:
    """Return a result of any server as one value: some nest the memory, some name the score differently, Local
    returns parts of a memory.
    """
    memory = _part(found, "memory") or found
    temporal, parts = _part(memory, "temporal"), _part(found, "scores")
    whens = (temporal.get("event_date"), temporal.get("document_date"), memory.get("created_at"))
    name, when = str(memory.get("id") or ""), str(next(filter(None, whens), ""))
    score = parts.get("vector", found.get("similarity", found.get("score")))
    measured = isinstance(score, int | float) and not name.startswith(PENDING)
    return Memory(
        id=name,
        text=str(memory.get("content") or ""),
        type=str(memory.get("type") or memory.get("memory_type") or ""),
        user=str(memory.get("user_id") or ""),
        session=str(memory.get("session_id") or ""),
        when=local_day(when),
        score=float(score) if measured else 0.0,
        unscored=bool(parts) or not measured,
        at=epoch_time(when),
    )


def _part(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}


def _owned(found: Iterable[Memory], who: Scope) -> list[Memory]:
    """Return the memories of this user. Servers add memories that the project shares, and cached ones of other
    people.
    """
    mine = (who.user, "") if who.alone else (who.user,)
    return [m for m in found if m.text.strip() and (m.user in mine or (m.pending and not m.user))]


def _list(backend: Backend, found: Any, name: str) -> list[dict[str, Any]]:
    entries = _field(backend, found, name, list)
    if entries is None:
        raise backend.unexpected(found)
    return [entry for entry in entries if isinstance(entry, dict)]


def _confirmed(backend: Backend, done: Any) -> Any:
    """Return the answer to a write if it confirms the write. Another program at the address may answer 200 to
    everything.
    """
    told = _field(backend, done, "success", bool)
    if told is None:  # RetainDB Local says what became of it alone
        told = any(done.get(name) is not None for name in ("memory_id", "job_id", "id", "memories_created"))
    if not told:
        raise backend.unexpected(done)
    return done


def _field(backend: Backend, found: Any, name: str, kind: type) -> Any:
    """Return a field of an answer, None if it is missing. Raises `BackendUnavailable` for an answer that no
    RetainDB gives.
    """
    value = found.get(name) if isinstance(found, dict) else found
    if not found or not isinstance(found, dict) or (value is not None and not isinstance(value, kind)):
        raise backend.unexpected(found)
    return value


def _key(event: str, body: Mapping[str, Any]) -> str:
    """Return a key for one write. The servers refuse a known key with another body, so the key covers the body."""
    return f"hermes-{key_of(json.dumps([event, body], sort_keys=True), length=40)}"
