"""RetainDB on loopback, in its three flavours: what the published API takes, refuses and answers, and no more.

A field that the API does not name is refused here, so that no test passes with one. Searching compares words.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Literal
from urllib.parse import unquote

from hermes_memory_testing import Raw, StandIn

KEY = "rdb-test-key"
Flavour = Literal["cloud", "server", "local"]

SCOPE = {"project", "user_id", "session_id", "agent_id", "task_id"}
FIELDS: dict[str, set[str]] = {
    "POST /v1/memory": SCOPE
    | {"content", "memory_type", "auto_detect", "scope_target", "promotion_mode", "importance", "confidence"}
    | {
        "metadata",
        "entity_mentions",
        "document_date",
        "event_date",
        "namespace",
        "tags",
        "async",
        "write_mode",
    }
    | {"webhook_url"},
    "POST /v1/memories": {"project", "content", "memory_type", "user_id", "session_id", "importance"},
    "POST /v1/memory/search": SCOPE
    | {
        "query",
        "question_date",
        "top_k",
        "memory_types",
        "scope_targets",
        "include_inactive",
        "include_chunks",
    }
    | {"include_relations", "namespace", "tags", "fast_mode", "profile", "include_pending"},
    "POST /v1/memory/ingest/session": SCOPE
    | {"messages", "events", "namespace", "tags", "promotion_mode", "async", "write_mode", "webhook_url"},
    "POST /v1/context/query": {"project", "query", "user_id", "session_id", "agent_id", "include_memories"}
    | {"max_tokens", "top_k", "threshold", "compress", "compression_strategy", "previous_context_hash"},
    "POST /v1/memory/dialectic": {"user_id", "question", "project", "reasoning_level"},
    "ask": {"project", "query", "reasoning_level"},
    "seed": {"project", "content", "source"},
    "ingest": {"user_id", "agent_id"},
}
EVENT = {"kind", "summary", "details", "salience", "timestamp", "filePaths", "toolName", "success"}
KINDS = {"decision", "constraint", "outcome", "failure", "task_update", "file_edit", "tool_result"}
TYPES = {
    *(
        "factual",
        "episodic",
        "semantic",
        "procedural",
        "preference",
        "event",
        "relationship",
        "opinion",
        "goal",
    ),
    *("instruction", "decision", "constraint", "solution", "project_state", "correction", "workflow"),
}
ZULU = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
STOP = frozenset(
    {
        "a",
        "an",
        "and",
        "are",
        "at",
        "called",
        "does",
        "i",
        "in",
        "is",
        "it",
        "my",
        "of",
        "our",
        "the",
        "to",
        "what",
        "where",
    }
)


class Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status, self.code, self.message = status, code, message


@dataclass
class Stored:
    """A memory as the server keeps it."""

    id: str
    project: str
    user: str
    session: str
    content: str
    type: str
    date: str
    active: bool = True


@dataclass
class RetainDB(StandIn):
    """One server. `lagging` keeps what is accepted pending until `settle`; `restricted` refuses synchronous writes."""

    flavour: Flavour = "cloud"
    key: str = KEY
    lagging: bool = False
    restricted: bool = True
    legacy: bool = False
    scores: Literal["similarity", "score"] = "similarity"
    memories: list[Stored] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    content: dict[str, bytes] = field(default_factory=dict)
    seeded: dict[str, str] = field(default_factory=dict)
    leaked: list[Stored] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._waiting: list[tuple[str, list[Stored], str]] = []
        self._answered: dict[tuple[str, str], tuple[str, int, Any]] = {}
        super().__init__()
        for route, answer in self._answers():
            method, path = route.split()
            self.route(method, path, self._guarded(answer))

    def settle(self) -> None:
        """Store what was accepted."""
        for _, memories, _ in self._waiting:
            for memory in memories:
                self._keep(memory)
        self._waiting.clear()

    def known(self) -> list[str]:
        """Contents of the memories that are stored, in order."""
        return [memory.content for memory in self.memories if memory.active]

    # ------------------------------------------------------------------- routes

    def _answers(self) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        older = self._no_route if self.legacy else None
        local = {"status": "ok", "local": True}
        yield "GET /health", (lambda _: local) if self.flavour == "local" else (lambda _: {"status": "ok"})
        yield "POST /v1/memory", older or self._add
        yield "GET /v1/memory/profile/*", older or self._profile
        yield "DELETE /v1/memory/*", older or self._delete
        yield "POST /v1/memory/search", self._search
        yield "POST /v1/context/query", self._context
        yield "POST /v1/memory/ingest/session", self._ingest
        yield "GET /v1/memories", self._list
        extra = self._no_route if self.flavour == "local" else None
        yield "POST /v1/memories", extra or self._add
        yield "DELETE /v1/memories/*", extra or self._delete
        yield "GET /v1/memory/agent/*", extra or self._model
        yield "POST /v1/memory/agent/*", extra or self._seed
        yield "POST /v1/files", extra or self._upload
        yield "GET /v1/files", extra or self._files
        yield "GET /v1/files/*", extra or self._file
        yield "POST /v1/files/*", extra or self._learn
        yield "DELETE /v1/files/*", extra or self._drop
        yield "POST /v1/memory/profile/*", self._ask if self.flavour == "cloud" else self._no_route
        yield "POST /v1/memory/dialectic", self._dialectic if self.flavour == "server" else self._no_route

    def _no_route(self, request: Any) -> Any:
        raise Refusal(404, "NOT_FOUND", "Route not found")

    def _guarded(self, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def guarded(request: Any) -> Any:
            try:
                self._allow(request)
                return answer(request)
            except Refusal as refusal:
                error = {"code": refusal.code, "message": refusal.message}
                return refusal.status, {"success": False, "error": error, "trace_id": "t1"}

        return guarded

    def _allow(self, request: Any) -> None:
        if self.flavour != "local" and self.key:
            given = (request.headers.get("authorization"), request.headers.get("x-api-key"))
            if given not in ((f"Bearer {self.key}", self.key), (f"Bearer {self.key}", None)):
                raise Refusal(401, "UNAUTHORIZED", "Invalid API key")
        if b"\\u0000" in request.body:
            raise Refusal(500, "WRITE_FAILED", "invalid byte sequence for encoding UTF8: 0x00")

    def _body(self, request: Any, name: str = "") -> dict[str, Any]:
        name = name or f"{request.method} {request.path}"
        body = request.json
        if not isinstance(body, dict):
            raise Refusal(400, "VALIDATION_ERROR", "Malformed JSON")
        unknown = sorted(body.keys() - FIELDS[name])
        if unknown:
            self.complaints.append(f"{name}: {unknown[0]}")
            raise Refusal(422, "VALIDATION_ERROR", f"unknown field {unknown[0]!r}")
        return body

    # ------------------------------------------------------------------- memory

    def _add(self, request: Any) -> Any:
        body = self._body(request)
        _length("content", body.get("content"), 1, 10_000)
        if body.get("memory_type", "factual") not in TYPES:
            raise Refusal(400, "VALIDATION_ERROR", "memory_type")
        if not 0 <= body.get("importance", 0.5) <= 1:
            raise Refusal(400, "VALIDATION_ERROR", "importance")
        return self._once(request, body, lambda: self._accept_one(body, request.path))

    def _accept_one(self, body: dict[str, Any], path: str) -> tuple[int, Any]:
        memory = self._made(body, body["content"], body.get("memory_type", "factual"))
        if self.flavour == "local":
            stored = self._keep(memory)
            return 200, {"memory_id": stored.id, "id": stored.id, "stored": True, "memory": {"id": stored.id}}
        if path.endswith("memories") or body.get("write_mode") == "sync":
            if len(memory.content) < 4:
                raise Refusal(
                    422, "VALIDATION_ERROR", "Memory write was rejected by canonical validation policy"
                )
            stored = self._keep(memory)
            return 201, {"success": True, "mode": "sync", "memory_id": stored.id, "memory": {"id": stored.id}}
        return 202, self._accepted([memory], memory.content)

    def _accepted(self, memories: list[Stored], overlay: str) -> dict[str, Any]:
        job = f"job-{len(self.requests)}"
        self._waiting.append((job, memories, overlay))
        if not self.lagging:
            self.settle()
        about = {
            "status_url": f"/v1/memory/jobs/{job}",
            "visibility_sla_ms": 2000,
            "pending_visibility": True,
        }
        return {"success": True, "mode": "async", "job_id": job, **about}

    def _once(self, request: Any, body: dict[str, Any], run: Callable[[], tuple[int, Any]]) -> Any:
        """The answer of before, for an `Idempotency-Key` that comes again. Local knows no such keys."""
        key = request.headers.get("idempotency-key", "")
        if not key or self.flavour == "local":
            return run()
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        if (request.path, key) in self._answered:
            before, status, data = self._answered[request.path, key]
            if before != digest:
                raise Refusal(409, "VALIDATION_ERROR", "Idempotency key reuse with different payload")
            return status, data
        status, data = run()
        self._answered[request.path, key] = (digest, status, data)
        return status, data

    def _ingest(self, request: Any) -> Any:
        body = self._body(request)
        if not isinstance(body.get("session_id"), str) or not isinstance(body.get("messages"), list):
            raise Refusal(400, "VALIDATION_ERROR", "session_id and messages are required")
        if self.flavour != "local" and self.restricted and body.get("write_mode") == "sync":
            raise Refusal(
                403, "SYNC_WRITE_RESTRICTED", "write_mode=sync is restricted to internal/admin tenants"
            )
        made = []
        for message in body["messages"]:
            if set(message) != {"role", "content", "timestamp"} or not ZULU.fullmatch(message["timestamp"]):
                raise Refusal(400, "VALIDATION_ERROR", f"messages: {message!r:.200}")
            if message["role"] == "user":
                self.said.append(message["content"])
                said = message["content"].strip()
                text = f"User asked: {said}" if self.flavour == "local" else message["content"]
                made.append(self._made(body, text, "event", message["timestamp"]))
        for event in body.get("events", ()):
            if set(event) - EVENT or event["kind"] not in KINDS:
                raise Refusal(400, "VALIDATION_ERROR", f"events: {event!r:.200}")
            _length("summary", event["summary"], 1, 1000)
            _length("details", event.get("details", ""), 0, 5000)
            made.append(self._made(body, f"{event['summary']}. {event.get('details', '')}", "solution"))
        if self.flavour == "local":
            for memory in made:
                self._keep(memory)
            return {"memories_created": len(made), "skipped": 0, "memories": []}
        overlay = "\n".join(f"{m['role']}: {m['content']}" for m in body["messages"][-3:])
        return 202, {**self._accepted(made, overlay or "Session"), "messages_queued": len(body["messages"])}

    def _search(self, request: Any) -> Any:
        body = self._body(request)
        _length("query", body.get("query"), 1, 5000)
        top = body.get("top_k", 10)
        if not 1 <= top <= 50:
            raise Refusal(400, "VALIDATION_ERROR", "top_k")
        if set(body.get("memory_types", ())) - TYPES:
            raise Refusal(400, "VALIDATION_ERROR", "memory_types")
        asked = _words(body["query"])
        found = []
        for memory in [*self.memories, *self.leaked]:
            fit = len(asked & _words(memory.content)) / max(1, len(asked))
            project = memory in self.leaked or memory.project == body.get("project")
            wanted = not body.get("memory_types") or memory.type in body["memory_types"]
            others = self.flavour == "local" and not self._of(memory, body)
            if memory.active and project and wanted and not others and (fit or self.flavour == "local"):
                found.append((fit, memory))
        found.sort(key=lambda pair: -pair[0])
        results = [self._result(fit, memory) for fit, memory in found]
        if body.get("include_pending", True) and self.flavour != "local":
            results = [*self._overlay(body), *results]
        return {"results": results[:top], "count": len(results), "trace_id": "t1"}

    def _of(self, memory: Stored, body: dict[str, Any]) -> bool:
        """Return True if a search of Local reads this memory: it filters on the user, and strictly on the session."""
        user, session = body.get("user_id"), body.get("session_id")
        return (not user or memory.user in ("", user)) and (not session or memory.session == session)

    def _overlay(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """What is accepted and not stored, whatever was asked, and said to fit perfectly."""
        return [
            {
                "memory": {
                    "id": f"pending:{job}:0",
                    "content": overlay,
                    "type": "event",
                    "user_id": body.get("user_id"),
                    "session_id": body.get("session_id"),
                },
                "similarity": 1,
            }
            for job, memories, overlay in self._waiting
            if any(
                memory.user == body.get("user_id")
                and memory.project == body.get("project")
                and body.get("session_id") in (None, memory.session)
                for memory in memories
            )
        ]

    def _result(self, fit: float, memory: Stored) -> dict[str, Any]:
        told = self._told(memory)
        if self.flavour == "local":
            return {
                "id": memory.id,
                "score": 4.2 + fit,
                "content": memory.content,
                "memory": told,
                "scores": {"vector": 0.1},
            }
        dates = {"document_date": told.pop("document_date"), "event_date": None}
        return {"memory": {**told, "temporal": dates}, self.scores: fit, "relations": []}

    def _told(self, memory: Stored) -> dict[str, Any]:
        whose = {"user_id": memory.user or None, "session_id": memory.session or None}
        if self.flavour == "local":
            kind = {"memory_type": memory.type, "created_at": memory.date}
        else:
            kind = {"type": memory.type, "scope": "USER", "document_date": memory.date}
        return {"id": memory.id, "content": memory.content, **kind, **whose, "confidence": 0.8}

    def _profile(self, request: Any) -> Any:
        user, project = unquote(request.path.rpartition("/")[2]), request.query["project"][0]
        if set(request.query) - {"project", "include_pending", "memory_types", "limit"}:
            raise Refusal(422, "VALIDATION_ERROR", "unknown parameter")
        found = [
            self._told(m) for m in self.memories if m.active and m.project == project and m.user in (user, "")
        ]
        pending = [
            {**one["memory"], "user_id": None} for one in self._overlay({"user_id": user, "project": project})
        ]
        return {"user_id": user, "memories": [*pending, *found], "count": len(found)}

    def _list(self, request: Any) -> Any:
        user, project = request.query["user_id"][0], request.query["project"][0]
        mine = [m for m in self.memories if m.active and m.project == project and m.user == user]
        return {"memories": [self._told(memory) for memory in mine]}

    def _delete(self, request: Any) -> Any:
        wanted = unquote(request.path.rpartition("/")[2])
        memory = next((m for m in self.memories if m.id == wanted and m.active), None)
        if memory is not None:
            memory.active = False
        if self.flavour == "local":
            return {"deleted": memory.id if memory else None}
        if memory is None:
            raise Refusal(404, "MEMORY_NOT_FOUND", "Memory not found")
        return {"success": True, "message": "Memory deleted", "memory_id": memory.id}

    def _context(self, request: Any) -> Any:
        body = self._body(request)
        if body.get("compression_strategy", "delta") not in ("summarize", "extract", "delta", "adaptive"):
            raise Refusal(400, "VALIDATION_ERROR", "compression_strategy")
        # The server reads what the user said in that session, if the body names one; Local reads as in a search.
        session = body.get("session_id") or ""
        lines = [
            m.content
            for m in self.memories
            if m.active and m.project == body["project"]
            if (self._of(m, body) if self.flavour == "local" else session in ("", m.session))
        ]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        if body.get("compress") and body.get("previous_context_hash") == digest:
            lines = []
        return {
            "results": [],
            "context": "\n".join(lines),
            "meta": {"context_hash": digest, "total": len(lines)},
        }

    # ------------------------------------------------------------------- extras

    def _ask(self, request: Any) -> Any:
        if not request.path.endswith("/ask"):
            raise Refusal(404, "NOT_FOUND", "Route not found")
        body = self._body(request, "ask")
        return {"answer": f"asked ({body['reasoning_level']}): {body['query'][:20]}"}

    def _dialectic(self, request: Any) -> Any:
        body = self._body(request)
        if body["reasoning_level"] not in ("minimal", "low", "medium", "high"):
            raise Refusal(400, "VALIDATION_ERROR", "reasoning_level")
        return {"success": True, "answer": f"reasoned about {body['user_id']}", "supporting_memory_ids": []}

    def _model(self, request: Any) -> Any:
        agent = unquote(request.path.split("/")[4])
        if agent not in self.seeded:
            raise Refusal(404, "NOT_FOUND", "no model of this agent")
        return {"persona": self.seeded[agent], "persistent_instructions": [], "memory_count": 1}

    def _seed(self, request: Any) -> Any:
        self.seeded[unquote(request.path.split("/")[4])] = self._body(request, "seed")["content"]
        return {"success": True}

    def _upload(self, request: Any) -> Any:
        form = _form(request)
        if set(form) - {"file", "path", "scope", "project_id"} or form["scope"][1] not in (
            b"USER",
            b"PROJECT",
            b"ORG",
        ):
            raise Refusal(422, "VALIDATION_ERROR", f"form fields {sorted(form)}")
        name, body = form["file"]
        file = {"id": f"f{len(self.files) + 1}", "path": "/" + form["path"][1].decode(), "name": name}
        file |= {"size": len(body), "scope": form["scope"][1].decode(), "rdb_uri": f"rdb://{file['id']}"}
        self.files[file["id"]], self.content[file["id"]] = file, body
        return 201, {"success": True, "file": file}

    def _files(self, request: Any) -> Any:
        prefix = request.query.get("prefix", [""])[0].lstrip("/")
        limit = int(request.query.get("limit", ["50"])[0])
        if limit > 200 or set(request.query) - {"prefix", "limit", "offset"}:
            raise Refusal(422, "VALIDATION_ERROR", "limit")
        found = [f for f in self.files.values() if f["path"].lstrip("/").startswith(prefix)]
        return {"files": found[:limit], "total": len(found), "limit": limit, "offset": 0}

    def _file(self, request: Any) -> Any:
        file = self._known_file(request)
        if request.path.endswith("/content"):
            return 302, Raw(headers={"Location": f"{self.url}/blob/{file['id']}"})
        return {"success": True, "file": file}

    def _learn(self, request: Any) -> Any:
        file = self._known_file(request)
        body = self._body(request, "ingest")
        self._keep(self._made({**body, "project": "default"}, self.content[file["id"]].decode(), "factual"))
        return {"success": True, "memories_created": 1}

    def _drop(self, request: Any) -> Any:
        del self.files[self._known_file(request)["id"]]
        return {"success": True, "deleted": True}

    def _known_file(self, request: Any) -> dict[str, Any]:
        file = self.files.get(unquote(request.path.split("/")[3]))
        if file is None:
            raise Refusal(404, "NOT_FOUND", "File not found")
        self.route("GET", f"/blob/{file['id']}", lambda _: Raw(self.content[file["id"]]))
        return file

    # ------------------------------------------------------------------ private

    def _made(
        self, body: dict[str, Any], content: str, kind: str, date: str = "2026-03-01T10:00:00Z"
    ) -> Stored:
        whose = (str(body.get("project", "")), str(body.get("user_id", "")), str(body.get("session_id", "")))
        return Stored("", *whose, content, kind, date)

    def _keep(self, memory: Stored) -> Stored:
        """Store a memory; one that is there already is not stored again."""
        for known in self.memories:
            if known.active and self._identity(known) == self._identity(memory):
                return known
        memory.id = f"m{len(self.memories) + 1}"
        self.memories.append(memory)
        return memory

    def _identity(self, memory: Stored) -> tuple[str, ...]:
        """Return what two memories must share to be one. Local asks for the session and not for the user."""
        if self.flavour == "local":
            return memory.project, memory.session, memory.content.lower()
        return memory.project, memory.user, memory.content


def _length(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise Refusal(400, "VALIDATION_ERROR", f"{name} must have {least} to {most} characters")


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+|[^\W\x00-\x7f]", text.lower())) - STOP


def _form(request: Any) -> dict[str, tuple[str, bytes]]:
    """Fields of a multipart body: name to (file name, content)."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    parts = BytesParser(policy=HTTP).parsebytes(head + request.body).iter_parts()
    return {
        part.get_param("name", header="content-disposition"): (
            part.get_filename() or "",
            part.get_payload(decode=True),
        )
        for part in parts
    }
