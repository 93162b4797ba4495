"""Mem0's cloud, a Mem0 server of one's own and an OpenAI-compatible model server, on loopback, as strict as the published
interfaces: an unknown field, a wrong key and a missing filter are refused."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from hermes_memory_testing import StandIn
from hermes_memory_testing.http_server import Request

KEY = "m0-2af7c31e5b904d68b1f3a92c7d5e6081"
DIMENSIONS = 64
NOW = "2026-11-21T10:00:00.000000-08:00"

IDENTITY = frozenset({"user_id", "agent_id", "app_id", "run_id"})
ADD = IDENTITY | {
    *(
        "messages",
        "metadata",
        "infer",
        "custom_categories",
        "custom_instructions",
        "agent_custom_instructions",
    ),
    *("timestamp", "expiration_date", "structured_data_schema"),
}
SEARCH = frozenset(
    {"query", "filters", "metadata", "top_k", "rerank", "threshold", "fields", "categories", "show_expired"}
    | {"reference_date", "latest_only", "keyword_search"}
)
LIST = frozenset({"filters", "start_date", "end_date", "categories", "show_expired", "latest_only"})
UPDATE = frozenset({"text", "metadata", "timestamp", "expiration_date"})
EMBED = frozenset({"input", "model", "encoding_format", "dimensions", "user"})

Answer = Any


class Memories:
    """What a Mem0 backend holds: memories by id, in the order in which they came."""

    def __init__(self) -> None:
        self.by_id: dict[str, dict[str, Any]] = {}

    def add(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Each message of the person becomes a memory; without `infer` each message at all does."""
        kept = [m for m in body["messages"] if m["role"] == "user" or not body.get("infer", True)]
        return [self._put(message["content"], body) for message in kept]

    def texts(self) -> list[str]:
        """What is remembered, oldest first."""
        return [memory["memory"] for memory in list(self.by_id.values())]

    def matching(self, filters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Memories that meet filters of the cloud's or the server's form."""
        return [memory for memory in list(self.by_id.values()) if _meets(memory, filters)]

    def search(
        self, query: str, filters: Mapping[str, Any], limit: int, floor: float
    ) -> list[dict[str, Any]]:
        """By the share of the query's words that a memory has."""
        asked = words(query)
        scored = [
            {**one, "score": len(asked & words(one["memory"])) / max(1, len(asked))}
            for one in self.matching(filters)
        ]
        found = [one for one in scored if one["score"] > floor]
        return sorted(found, key=lambda one: -one["score"])[:limit]

    def _put(self, text: str, body: Mapping[str, Any]) -> dict[str, Any]:
        memory = {
            "id": str(uuid.uuid4()),
            "memory": text,
            "user_id": body.get("user_id"),
            "agent_id": body.get("agent_id"),
            "metadata": body.get("metadata") or {},
            "created_at": NOW,
            "updated_at": NOW,
        }
        self.by_id[memory["id"]] = memory
        return memory


class Cloud(StandIn):
    """api.mem0.ai as mem0ai 2.2 talks to it. `lag`: searches and listings that pass before what was added is seen."""

    def __init__(self) -> None:
        super().__init__(check=_cloud_check)
        self.memories = Memories()
        self.lag = 0
        self._queue: list[dict[str, Any]] = []
        routes: dict[tuple[str, str], Callable[[Request], Answer]] = {
            ("GET", "/v1/ping/"): lambda _: {"org_id": "o", "project_id": "p", "user_email": "a@example.com"},
            ("POST", "/v3/memories/add/"): self._add,
            ("POST", "/v3/memories/search/"): self._search,
            ("POST", "/v3/memories/"): self._list,
            ("DELETE", "/v1/memories/"): self._delete_all,
            **{(method, "/v1/memories/*"): self._one for method in ("GET", "PUT", "DELETE")},
        }
        for (method, path), answer in routes.items():
            self.route(method, path, _behind(answer, "authorization", f"Token {KEY}", "Invalid API key"))

    def _add(self, request: Request) -> Answer:
        self._queue.append(request.json)
        if not self.lag:
            self._arrive()
        told = "Memory processing has been queued for background execution"
        return {"message": told, "status": "PENDING", "event_id": str(uuid.uuid4())}

    def _search(self, request: Request) -> Answer:
        body = request.json
        self._arrive()
        found = self.memories.search(
            body["query"], body["filters"], body.get("top_k", 10), body.get("threshold", 0.3)
        )
        return {"results": found}

    def _list(self, request: Request) -> Answer:
        page, size = (int(request.query.get(key, [d])[0]) for key, d in (("page", "1"), ("page_size", "100")))
        self._arrive()
        found = self.memories.matching(request.json["filters"])
        there = len(found) > page * size
        here = found[(page - 1) * size : page * size]
        return {"count": len(found), "next": "more" if there else None, "previous": None, "results": here}

    def _delete_all(self, request: Request) -> Answer:
        return _delete_all(self.memories, request)

    def _one(self, request: Request) -> Answer:
        return _one(self.memories, request, missing=(404, {"detail": "Memory not found!"}), wrong=400)

    def _arrive(self) -> None:
        if self.lag:
            self.lag -= 1
            return
        while self._queue:
            self.memories.add(self._queue.pop(0))


class OwnServer(StandIn):
    """The FastAPI server of Mem0's repository."""

    def __init__(self, key: str = KEY) -> None:
        super().__init__(check=_server_check)
        self.memories = Memories()
        routes: dict[tuple[str, str], Callable[[Request], Answer]] = {
            ("POST", "/memories"): self._add,
            ("GET", "/memories"): self._list,
            ("POST", "/search"): self._search,
            ("DELETE", "/memories"): lambda request: _delete_all(self.memories, request),
            **{(method, "/memories/*"): self._one for method in ("GET", "PUT", "DELETE")},
        }
        refusal = "Authentication required. Provide a Bearer token or X-API-Key header."
        for (method, path), answer in routes.items():
            self.route(method, path, _behind(answer, "x-api-key", key, refusal) if key else answer)

    def _add(self, request: Request) -> Answer:
        if not IDENTITY & request.json.keys():
            return 400, {"detail": "At least one identifier (user_id, agent_id, run_id) is required."}
        added = self.memories.add(request.json)
        return {"results": [{"id": one["id"], "memory": one["memory"], "event": "ADD"} for one in added]}

    def _list(self, request: Request) -> Answer:
        if "user_id" not in request.query:
            return 400, {"detail": "At least one identifier is required."}
        return {"results": self.memories.matching({"user_id": request.query["user_id"][0]})}

    def _search(self, request: Request) -> Answer:
        body = request.json
        return {"results": self.memories.search(body["query"], body["filters"], body.get("top_k", 20), 0.1)}

    def _one(self, request: Request) -> Answer:
        gone = (200, None) if request.method == "GET" else (404, {"detail": "Memory not found"})
        return _one(self.memories, request, missing=gone, wrong=502)


class Models(StandIn):
    """Embeddings and chat as OpenAI serves them. Vectors are of hashed words; the chat finds facts in what `user` says."""

    def __init__(self, key: str = "", dimensions: int = DIMENSIONS) -> None:
        super().__init__(check=_models_check)
        self.dimensions = dimensions
        for path, answer in (("/v1/embeddings", self._embed), ("/v1/chat/completions", self._chat)):
            told = "Incorrect API key provided"
            self.route(
                "POST", path, _behind(answer, "authorization", f"Bearer {key}", told) if key else answer
            )

    def _embed(self, request: Request) -> Answer:
        vectors = [_vector(text, self.dimensions) for text in request.json["input"]]
        data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "data": data, "model": request.json["model"], "usage": usage}

    def _chat(self, request: Request) -> Answer:
        asked = request.json["messages"][-1]["content"].partition("## New Messages")[2].partition("\n## ")[0]
        facts = [f"User said: {line}" for line in re.findall(r"^user: (.+)$", asked, re.MULTILINE)]
        memory = [{"id": str(i), "text": text, "attributed_to": "user"} for i, text in enumerate(facts)]
        message = {"role": "assistant", "content": json.dumps({"memory": memory})}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def words(text: str) -> set[str]:
    """Beginnings of the words of four letters or more; of scripts beyond ASCII each letter."""
    return {word[:4] for word in re.findall(r"[a-z0-9]{4,}|[^\W\x00-\x7f]", text.lower())}


def _vector(text: str, dimensions: int) -> list[float]:
    vector = [0.0] * dimensions
    for word in words(text):
        vector[int(hashlib.sha256(word.encode()).hexdigest(), 16) % dimensions] += 1.0
    return vector if any(vector) else [1e-6] * dimensions


def _meets(memory: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    for key, wanted in filters.items():
        if key == "AND":
            if not all(_meets(memory, one) for one in wanted):
                return False
        elif key == "metadata":
            if any(memory["metadata"].get(name) != value for name, value in wanted.items()):
                return False
        elif memory.get(key, memory["metadata"].get(key)) != wanted:
            return False
    return True


def _delete_all(memories: Memories, request: Request) -> Answer:
    if "user_id" not in request.query:
        return 400, {"detail": "At least one identifier is required."}
    for one in memories.matching({"user_id": request.query["user_id"][0]}):
        del memories.by_id[one["id"]]
    return {"message": "Memories deleted successfully!"}


def _one(memories: Memories, request: Request, *, missing: Answer, wrong: int) -> Answer:
    """Read, change or delete the memory that the path names."""
    name = request.path.rstrip("/").rpartition("/")[2]
    try:
        uuid.UUID(name)
    except ValueError:
        return wrong, {"detail": f"'{name}' is not a valid UUID"}
    if name not in memories.by_id:
        return missing
    if request.method == "DELETE":
        del memories.by_id[name]
        return {"message": "Memory deleted successfully!"}
    if request.method == "PUT":
        memories.by_id[name]["memory"] = request.json["text"]
        return {"message": "Memory updated successfully!"}
    return memories.by_id[name]


def _behind(
    answer: Callable[[Request], Answer], header: str, value: str, refusal: str
) -> Callable[[Request], Answer]:
    """`answer` for those with the key."""

    def guarded(request: Request) -> Answer:
        return answer(request) if request.headers.get(header) == value else (401, {"detail": refusal})

    return guarded


def _cloud_check(request: Request) -> str:
    body = request.json if isinstance(request.json, dict) else {}
    known = {"/v3/memories/add/": ADD, "/v3/memories/search/": SEARCH, "/v3/memories/": LIST}
    fields = known.get(request.path, UPDATE)
    if unknown := sorted(body.keys() - fields):
        return f"unknown field {unknown[0]!r} in {request.path}"
    if fields in (SEARCH, LIST) and not body.get("filters"):
        return "filters are required"
    if fields is ADD and not IDENTITY & body.keys():
        return "one of user_id, agent_id, app_id, run_id is required"
    return _bad_messages(body)


def _server_check(request: Request) -> str:
    body = request.json if isinstance(request.json, dict) else {}
    known = {
        "/memories": frozenset({"messages", "user_id", "agent_id", "run_id", "metadata", "infer"}),
        "/search": frozenset({"query", "filters", "top_k", "threshold", "user_id", "agent_id", "run_id"}),
    }
    if unknown := sorted(body.keys() - known.get(request.path, frozenset({"text", "metadata"}))):
        return f"unknown field {unknown[0]!r} in {request.path}"
    if unknown := sorted(request.query.keys() - {"user_id", "agent_id", "run_id", "top_k"}):
        return f"unknown parameter {unknown[0]!r} in {request.path}"
    return _bad_messages(body)


def _models_check(request: Request) -> str:
    body = request.json if isinstance(request.json, dict) else {}
    if request.path == "/v1/embeddings" and (unknown := sorted(body.keys() - EMBED)):
        return f"unknown field {unknown[0]!r} in {request.path}"
    texts = body.get("input", ["-"])
    return "" if texts and all(isinstance(t, str) and t for t in texts) else "input is empty"


def _bad_messages(body: Mapping[str, Any]) -> str:
    for message in body.get("messages", ()):
        if message.keys() != {"role", "content"} or not str(message["content"]).strip():
            return f"{message!r} is no message"
    return ""
