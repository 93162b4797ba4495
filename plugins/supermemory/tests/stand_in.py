"""Supermemory on loopback: the published API v5, or v4 and v3 as servers of one's own speak it, and no more.

The tables carry what the OpenAPI document of v5 says of each request: its fields, which are required, their bounds. A
field that it does not name is refused. Memories are made of what is said in a document, one for each line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote

from hermes_memory_testing import StandIn

KEY = "sm_test_key"
NAMESPACE = re.compile(r"[a-zA-Z0-9_:-]{1,100}")
STOP = frozenset(
    [
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
        "me",
        "my",
        "of",
        "our",
        "the",
        "to",
        "user",
        "assistant",
        "what",
        "where",
        "who",
    ]
)

Check = Callable[[Any], bool]


def text(least: int = 0, most: int = 10**9) -> Check:
    return lambda value: isinstance(value, str) and least <= len(value) <= most


def number(least: float, most: float) -> Check:
    return lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
    )


def one_of(*values: str) -> Check:
    return lambda value: value in values


def ids(most: int, longest: int = 10**9) -> Check:
    return lambda value: (
        isinstance(value, list) and 1 <= len(value) <= most and all(map(text(1, longest), value))
    )


def labels(value: Any) -> bool:
    """Metadata of v5: texts, numbers, truth values, lists of texts."""
    return isinstance(value, dict) and all(
        isinstance(v, str | int | float) or (isinstance(v, list) and all(isinstance(e, str) for e in v))
        for v in value.values()
    )


def mapping(value: Any) -> bool:
    return isinstance(value, dict)


DATE = re.compile(r"\d{4}-\d\d-\d\d(T.*)?")
DOCUMENT: dict[str, Check] = {
    "content": text(),
    "id": text(1, 255),
    "supportingContext": text(0, 1500),
    "metadata": labels,
    "group": labels,
    "date": lambda value: isinstance(value, str) and bool(DATE.fullmatch(value)),
    "taskType": one_of("memory", "superrag"),
    "dreaming": one_of("dynamic", "instant"),
}
BODIES: dict[str, tuple[dict[str, Check], set[str]]] = {
    "POST /document": (DOCUMENT, {"content"}),
    "PATCH /document/*": ({name: DOCUMENT[name] for name in DOCUMENT if name != "id"}, set()),
    "DELETE /document": ({"ids": ids(100, 255)}, {"ids"}),
    "POST /search": (
        {
            "query": text(1),
            "filter": mapping,
            "searchMode": one_of("hybrid", "memories", "chunks"),
            "limit": number(1, 100),
            "include": mapping,
            "threshold": number(0, 1),
            "rerank": one_of("none", "order", "aggregate"),
            "rewriteQuery": lambda value: isinstance(value, bool),
        },
        {"query"},
    ),
    "POST /list/documents": (
        {
            "filter": mapping,
            "include": lambda value: (
                isinstance(value, dict)
                and value.keys() <= {"content", "memoryCount", "forgotten"}
                and all(isinstance(one, bool) for one in value.values())
            ),
        },
        set(),
    ),
    "POST /profile": ({"filter": mapping, "buckets": ids(50, 64)}, set()),
    "DELETE /memories": ({"ids": ids(500)}, {"ids"}),
    "DELETE /memories/semantic": (
        {"query": text(1, 2000), "dryRun": lambda value: isinstance(value, bool)},
        {"query", "dryRun"},
    ),
    "POST /v3/documents": (
        {
            "content": text(1),
            "containerTags": ids(1),
            "containerTag": text(1, 100),
            "customId": text(1, 255),
            "entityContext": text(0, 1500),
            "metadata": labels,
        },
        {"content"},
    ),
    "POST /v3/documents/list": (
        {
            "containerTags": ids(100, 100),
            "page": number(1, 10**6),
            "limit": number(1, 100),
            "sort": one_of("createdAt", "updatedAt"),
            "order": one_of("asc", "desc"),
            "includeContent": lambda value: isinstance(value, bool),
        },
        set(),
    ),
    "PATCH /v3/documents/*": ({"content": text(1), "metadata": labels}, set()),
    "POST /v4/search": (
        {
            "q": text(1),
            "containerTag": text(1, 100),
            "limit": number(1, 100),
            "searchMode": one_of("hybrid", "memories", "documents"),
        },
        {"q"},
    ),
    "POST /v4/profile": ({"containerTag": text(1, 100), "q": text(1)}, {"containerTag"}),
    "DELETE /v4/memories": ({"containerTag": text(1, 100), "id": text(1)}, {"containerTag", "id"}),
}


class Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message


@dataclass
class Document:
    """What was sent under one id."""

    ns: str
    id: str
    content: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    context: str = ""
    chunks_only: bool = False


@dataclass
class Memory:
    """One thing that the server learned from a document."""

    id: str
    ns: str
    text: str
    doc: str
    metadata: dict[str, Any]
    forgotten: bool = False


@dataclass
class Supermemory(StandIn):
    """One server. `reading` is how long, in looks at a document, it takes to be read."""

    speaks: Literal["v5", "v4"] = "v5"
    key: str = KEY
    reading: int = 0
    documents: dict[tuple[str, str], Document] = field(default_factory=dict)
    memories: list[Memory] = field(default_factory=list)
    profiles: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._unread: list[Document] = []
        routes = self._v5 if self.speaks == "v5" else self._v4
        other = ("/v3/*", "/v4/*") if self.speaks == "v5" else ("/ns/*",)
        for method in ("GET", "POST", "PATCH", "DELETE"):
            for path in ("/ns/*",) if self.speaks == "v5" else ("/v3/*", "/v4/*"):
                self.route(method, path, self._guarded(routes))
            for path in other:
                self.route(method, path, lambda request: (404, {"error": "Not found"}))

    def known(self, ns: str = "") -> list[str]:
        """What is remembered, in order."""
        return [m.text for m in self.memories if not m.forgotten and ns in ("", m.ns)]

    def sent(self, *paths: str) -> list[Any]:
        """Bodies of the requests whose path ends so."""
        return [request.json for request in self.requests if request.path.endswith(paths)]

    # ------------------------------------------------------------------- routes

    def _guarded(self, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def guarded(request: Any) -> Any:
            try:
                if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
                    raise Refusal(401, "Unauthorized")
                if request.headers.get("x-sm-source") != "hermes":
                    raise Refusal(400, "no source")
                if b"\\u0000" in request.body:
                    raise Refusal(500, "invalid byte sequence for encoding UTF8: 0x00")
                return answer(request)
            except Refusal as refusal:
                return refusal.status, {"error": refusal.message}

        return guarded

    def _body(self, request: Any, name: str) -> dict[str, Any]:
        allowed, required = BODIES[name]
        body = request.json
        if not isinstance(body, dict):
            raise Refusal(400, "the body must be an object")
        unknown, missing = sorted(body.keys() - allowed.keys()), sorted(required - body.keys())
        if unknown or missing:
            self.complaints.append(f"{name}: unknown {unknown}, missing {missing}")
            raise Refusal(400, f"unknown {unknown}, missing {missing}")
        wrong = [key for key, value in body.items() if not allowed[key](value)]
        if wrong:
            issue = {"message": f"invalid {wrong[0]}", "path": wrong}
            raise Refusal(400, str(issue))
        return body

    def _v5(self, request: Any) -> Any:
        _, _, ns, *rest = request.path.split("/")
        ns = unquote(ns)
        if not NAMESPACE.fullmatch(ns):
            raise Refusal(400, f"namespace {ns!r}")
        path = "/".join(rest)
        if not path and request.method == "DELETE":
            gone = [doc for doc in self.documents.values() if doc.ns == ns]
            if not gone:
                raise Refusal(404, "Not found")
            for doc in gone:
                self._remove(doc)
            counts = {"deletedDocumentsCount": len(gone), "deletedMemoriesCount": 0}
            return {"status": "deleted", "namespace": ns, **counts}
        if path.startswith("document/") and request.method in ("GET", "PATCH"):
            doc = self._document(ns, unquote(path.partition("/")[2]))
            if request.method == "GET":
                return self._told(doc)
            self._rewrite(doc, self._body(request, "PATCH /document/*"))
            return {"id": doc.id, "status": "queued"}
        if f"{request.method} /{path}" == "POST /list/documents":
            include = self._body(request, "POST /list/documents").get("include", {})
            asked = {"page": "1", "limit": "10", "order": "desc"}
            asked |= {name: values[-1] for name, values in request.query.items()}
            if asked.keys() - {"page", "limit", "sort", "order"} or not 1 <= int(asked["limit"]) <= 100:
                raise Refusal(400, f"query {asked}")
            rows, pagination = self._listed(ns, int(asked["page"]), int(asked["limit"]), asked["order"])
            shown = [row if include.get("content") else {**row, "content": None} for row in rows]
            return {"documents": shown, "chunks": [], "memories": [], "pagination": pagination}
        answers: dict[str, Callable[[str, dict[str, Any]], Any]] = {
            "POST /document": lambda ns, b: self._add(
                ns, b.get("id", ""), b["content"], b.get("metadata", {}), b.get("supportingContext", "")
            ),
            "DELETE /document": self._delete_all,
            "POST /search": lambda ns, b: {
                "results": [
                    {
                        **hit,
                        "metadata": m,
                        "isLatest": True,
                        "isInference": False,
                        "system": {"updatedAt": WHEN},
                    }
                    for hit, m in self._hits(
                        ns, b["query"], b.get("searchMode", "hybrid"), b.get("limit", 10)
                    )
                    if hit["similarity"] >= b.get("threshold", 0.3)
                ],
                "searchTime": 12,
            },
            "POST /profile": lambda ns, b: {"profile": self._profile(ns)},
            "DELETE /memories": self._forget_all,
            "DELETE /memories/semantic": self._matching,
        }
        name = f"{request.method} /{path}"
        if name not in answers:
            self.complaints.append(name)
            raise Refusal(404, "Not found")
        return answers[name](ns, self._body(request, name))

    def _v4(self, request: Any) -> Any:
        name = f"{request.method} {request.path}"
        if name == "POST /v3/documents/list":
            body = self._body(request, name)
            rows, pagination = self._listed(
                body["containerTags"][0], body["page"], body["limit"], body.get("order", "desc")
            )
            return {"memories": [{**row, "content": None} for row in rows], "pagination": pagination}
        if request.path.startswith("/v3/documents/"):
            doc = self._document("", unquote(request.path.rpartition("/")[2]))
            if request.method == "DELETE":
                self._remove(doc)
                return 204, None
            if request.method == "PATCH":
                self._rewrite(doc, self._body(request, "PATCH /v3/documents/*"))
                return {"id": doc.id, "status": "queued"}
            told = self._told(doc)
            summary = told["content"] and re.sub(r"\[/?turn \w+\]", "", told["content"])
            return told | {
                "content": summary,
                "raw": doc.content,
                "customId": doc.id,
                "containerTags": [doc.ns],
                "createdAt": WHEN,
                "updatedAt": WHEN,
            }
        body = self._body(request, name) if name in BODIES else {}
        if name == "POST /v3/documents":
            ns = body.get("containerTag") or body["containerTags"][0]
            return self._add(
                ns,
                body.get("customId", ""),
                body["content"],
                body.get("metadata", {}),
                body.get("entityContext", ""),
            )
        if name == "POST /v4/search":
            mode = {"documents": "chunks"}.get(body.get("searchMode", ""), body.get("searchMode", "memories"))
            found = self._hits(body["containerTag"], body["q"], mode, body.get("limit", 10))
            hits = [{**hit, "metadata": m, "updatedAt": WHEN} for hit, m in found]
            return {"results": hits, "timing": 3, "total": len(hits)}
        if name == "POST /v4/profile":
            static, dynamic = self.profiles.get(body["containerTag"], ([], []))
            return {"profile": {"static": static, "dynamic": dynamic}}
        if name == "DELETE /v4/memories":
            memory = next(
                (m for m in self.memories if m.id == body["id"] and m.ns == body["containerTag"]), None
            )
            if memory is None or memory.forgotten:
                raise Refusal(404, "Memory not found")
            memory.forgotten = True
            return {"id": memory.id, "forgotten": True}
        self.complaints.append(name)
        raise Refusal(404, "Not found")

    # ------------------------------------------------------------------ content

    def _document(self, ns: str, name: str) -> Document:
        for (where, key), doc in self.documents.items():
            if key == name and ns in ("", where):
                return doc
        raise Refusal(404, "Document not found")

    def _add(self, ns: str, name: str, content: str, metadata: dict[str, Any], context: str) -> Any:
        name = name or f"doc-{len(self.documents) + 1}"
        doc = self.documents.setdefault((ns, name), Document(ns, name))
        doc.content += content
        doc.metadata |= metadata
        doc.context = context
        self.said += re.findall(r"^user: (.*)$", content, re.MULTILINE)
        self._learn(doc, content)
        return {"id": doc.id, "status": "queued"}

    def _learn(self, doc: Document, content: str) -> None:
        """A memory for each line that says something."""
        if self.reading:
            self._unread.append(doc)
            return
        for line in content.splitlines():
            said = re.sub(r"^(user|assistant): ", "", line)
            if said.strip() and not line.startswith("["):
                number = len(self.memories) + 1
                self.memories.append(Memory(f"mem{number}", doc.ns, said, doc.id, dict(doc.metadata)))

    def _rewrite(self, doc: Document, body: dict[str, Any]) -> None:
        if "content" in body:
            self.memories = [m for m in self.memories if (m.ns, m.doc) != (doc.ns, doc.id)]
            doc.content = body["content"]
            self._learn(doc, doc.content)

    def _remove(self, doc: Document) -> None:
        del self.documents[doc.ns, doc.id]
        self.memories = [m for m in self.memories if (m.ns, m.doc) != (doc.ns, doc.id)]

    def _told(self, doc: Document) -> dict[str, Any]:
        status, content = "done", doc.content
        if self.reading and doc in self._unread:
            self.reading -= 1
            status, content = "extracting", None
            if not self.reading:
                self._unread.remove(doc)
                self._learn(doc, doc.content)
        times = {"createdAt": WHEN, "updatedAt": WHEN}
        system = {"status": status, "dreamingStatus": "done", **times}
        about = {"title": None, "type": "text", "summary": None, "content": content, "metadata": doc.metadata}
        return {"id": doc.id, **about, "status": status, "system": system}

    def _listed(
        self, ns: str, page: int, limit: int, order: str
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """A page of the documents, by the time that each was made at."""
        docs = [doc for doc in self.documents.values() if doc.ns == ns]
        docs = docs if order == "asc" else docs[::-1]
        pages = -(-len(docs) // limit)
        pagination = {"currentPage": page, "limit": limit, "totalItems": len(docs), "totalPages": pages}
        return [self._told(doc) for doc in docs[(page - 1) * limit : page * limit]], pagination

    def _delete_all(self, ns: str, body: dict[str, Any]) -> Any:
        gone = [doc for doc in (self.documents.get((ns, name)) for name in body["ids"]) if doc]
        for doc in gone:
            self._remove(doc)
        missing = set(body["ids"]) - {doc.id for doc in gone}
        return {"count": len(gone), "errors": [{"id": name, "error": "not found"} for name in missing]}

    def _forget_all(self, ns: str, body: dict[str, Any]) -> Any:
        gone = [m for m in self.memories if m.ns == ns and m.id in body["ids"] and not m.forgotten]
        for memory in gone:
            memory.forgotten = True
        missing = set(body["ids"]) - {m.id for m in gone}
        errors = [{"id": name, "error": "not found"} for name in missing]
        return {
            "count": len(gone),
            "errors": errors,
            "matches": [{"id": m.id, "memory": m.text} for m in gone],
        }

    def _matching(self, ns: str, body: dict[str, Any]) -> Any:
        found = [hit for hit, _ in self._hits(ns, body["query"], "memories", 50)]
        matches = [{"id": hit["id"], "memory": hit["memory"]} for hit in found]
        if not body["dryRun"]:
            self._forget_all(ns, {"ids": [hit["id"] for hit in found]})
        return {"count": len(matches), "errors": [], "matches": matches}

    def _profile(self, ns: str) -> dict[str, Any]:
        static, dynamic = self.profiles.get(ns, ([], []))
        facts = [
            [{"id": f"p{n}", "memory": fact} for n, fact in enumerate(part)] for part in (static, dynamic)
        ]
        return {"static": facts[0], "dynamic": facts[1], "buckets": {}}

    def _hits(
        self, ns: str, query: str, mode: str, limit: int
    ) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Memories that share a word with the query; passages of documents where no memory of it does."""
        asked = _words(query)
        found: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for memory in self.memories if mode != "chunks" else ():
            if memory.ns == ns and not memory.forgotten:
                hit = {"id": memory.id, "memory": memory.text, "similarity": _fit(asked, memory.text)}
                found.append((hit, memory.metadata))
        for doc in self.documents.values() if mode != "memories" else ():
            learned = any(m.doc == doc.id and m.ns == ns for m in self.memories)
            if doc.ns == ns and doc not in self._unread and not (learned and mode == "hybrid"):
                hit = {"id": f"chunk-{doc.id}", "chunk": doc.content, "similarity": _fit(asked, doc.content)}
                found.append((hit, doc.metadata))
        found = [pair for pair in found if pair[0]["similarity"]]
        return sorted(found, key=lambda pair: -pair[0]["similarity"])[:limit]


WHEN = "2026-03-01T10:00:00.000Z"


def _words(said: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+|[^\W\x00-\x7f]", said.lower())) - STOP


def _fit(asked: set[str], said: str) -> float:
    return len(asked & _words(said)) / max(1, len(asked))
