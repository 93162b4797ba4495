"""A Honcho server on loopback, as strict as its published API (v3, server 3.x): paths, status codes, bodies, limits.

A field, filter or parameter that the API does not have is refused and kept in `complaints`. The language model is
missing: a conclusion is drawn at once from each message, word for word; `answer` is what the dialectic says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hermes_core.testing import StandIn

KEY = "hch-v3-stand-in-key-0123456789"
NAME = re.compile(r"[a-zA-Z0-9_-]{1,512}")
LEVELS = ("minimal", "low", "medium", "high", "max")

MESSAGE_FILTERS = frozenset(
    {"workspace_id", "session_id", "peer_id", "token_count", "created_at", "metadata"}
)
CONCLUSION_FILTERS = frozenset(
    {"id", "session_id", "workspace_id", "observer_id", "observed_id", "level", "source_ids", "times_derived"}
)
LIST_FILTERS = frozenset({"id", "created_at", "is_active", "workspace_id", "metadata"})
PAGE = frozenset({"page", "size", "reverse"})
CONTEXT = frozenset(
    {
        "tokens",
        "summary",
        "search_query",
        "peer_target",
        "peer_perspective",
        "limit_to_session",
        "search_top_k",
    }
    | {"search_max_distance", "include_most_frequent", "max_conclusions"}
)
CHAT = frozenset(
    {"query", "stream", "target", "session_id", "reasoning_level", "response_format", "include_evidence"}
)


class Refusal(Exception):
    """An answer that is no success; `complaint` marks what no client should ever send."""

    def __init__(self, status: int, detail: Any, *, complaint: bool = False) -> None:
        super().__init__(str(detail))
        self.status, self.detail, self.complaint = status, detail, complaint


def wrong(kind: str, place: Sequence[Any], says: str) -> Refusal:
    """What FastAPI answers to a body or query that does not fit."""
    return Refusal(422, [{"type": kind, "loc": list(place), "msg": says, "input": None}], complaint=True)


class Workspace:
    """What one workspace holds."""

    def __init__(self) -> None:
        self.peers: dict[str, dict[str, Any]] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        self.members: dict[str, dict[str, dict[str, Any]]] = {}
        self.messages: list[dict[str, Any]] = []
        self.conclusions: list[dict[str, Any]] = []
        self.cards: dict[tuple[str, str], list[str]] = {}
        self.summaries: dict[str, str] = {}


class HonchoServer(StandIn):
    """The server. `key` None: it asks for none, as a self-hosted one without AUTH_USE_AUTH."""

    def __init__(self, key: str | None = KEY) -> None:
        super().__init__()
        self.key = key
        self.workspaces: dict[str, Workspace] = {}
        self.answer: Callable[[str], str | None] = lambda query: None
        self.derives = True
        self.asked: list[dict[str, Any]] = []
        self._number = 0
        for method in ("GET", "POST", "PUT", "DELETE"):
            self.route(method, "/v3/*", self._reply)

    # ---------------------------------------------------------------- looking in

    @property
    def the(self) -> Workspace:
        """The only workspace there is."""
        (workspace,) = self.workspaces.values()
        return workspace

    def texts(self) -> list[str]:
        """Every stored message of every workspace, in order of arrival."""
        return [m["content"] for w in self.workspaces.values() for m in w.messages]

    def concluded(self) -> list[str]:
        """Every conclusion of every workspace, in order of arrival."""
        return [c["content"] for w in self.workspaces.values() for c in w.conclusions]

    @staticmethod
    def refusal(status: int, detail: str) -> Exception:
        """What `answer` raises to let the dialectic fail."""
        return Refusal(status, detail)

    def calls(self, method: str, end: str) -> int:
        """How many requests of this method had a path with this end."""
        return sum(r.method == method and r.path.endswith(end) for r in self.requests)

    # ------------------------------------------------------------------ dispatch

    def _reply(self, request: Any) -> Any:
        try:
            if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
                raise Refusal(401, "Invalid JWT")
            if request.body and request.json is None and b"multipart" not in self._kind(request):
                raise wrong("json_invalid", ["body"], "JSON decode error")
            return self._routed(request)
        except Refusal as refusal:
            if refusal.complaint:
                self.complaints.append(f"{request.method} {request.path}: {refusal.detail}")
            return refusal.status, {"detail": refusal.detail}

    def _kind(self, request: Any) -> bytes:
        return str(request.headers.get("content-type", "")).encode()

    def _routed(self, request: Any) -> Any:
        path = request.path.removeprefix("/v3")
        if (request.method, path) == ("POST", "/workspaces"):
            body = fields(request.json, "id", "metadata", "configuration")
            existed = named(body["id"]) in self.workspaces
            self.workspaces.setdefault(body["id"], Workspace())
            return (200 if existed else 201), {"id": body["id"], **self._made()}
        for method, pattern, handler in ROUTES:
            found = re.fullmatch(f"/workspaces/([^/]+){pattern}", path)
            if found and method == request.method:
                name, *parts = found.groups()
                if name not in self.workspaces:
                    raise Refusal(404, f"Workspace {name} not found")
                query = {key: values[0] for key, values in request.query.items()}
                return handler(self, name, self.workspaces[name], parts, request, query)
        raise Refusal(404, "Not Found", complaint=True)

    def _made(self) -> dict[str, Any]:
        return {"metadata": {}, "configuration": {}, "created_at": datetime.now(UTC).isoformat()}

    def _id(self) -> str:
        self._number += 1
        return f"id{self._number:019d}"

    # --------------------------------------------------------- sessions and peers

    def session(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        body = fields(request.json, "id", "metadata", "configuration", "peers", "scopes")
        existed = named(body["id"]) in w.sessions
        self._session(name, w, body["id"])
        for peer, config in (body.get("peers") or {}).items():
            self._join(name, w, body["id"], peer, fields(config, "observe_me", "observe_others"))
        return (200 if existed else 201), w.sessions[body["id"]]

    def _session(self, name: str, w: Workspace, session: str) -> None:
        new = {"id": session, "is_active": True, "workspace_id": name, **self._made()}
        w.sessions.setdefault(named(session), new)
        w.members.setdefault(session, {})

    def _join(self, name: str, w: Workspace, session: str, peer: str, config: dict[str, Any]) -> None:
        w.peers.setdefault(named(peer), {"id": peer, "workspace_id": name, **self._made()})
        w.members[session].setdefault(peer, {"joined": datetime.now(UTC)}).update(config)

    def delete_session(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        session = existing(w, parts[0])
        del w.sessions[session], w.members[session]
        w.messages = [m for m in w.messages if m["session_id"] != session]
        w.conclusions = [c for c in w.conclusions if c["session_id"] != session]
        return 202, {"message": "Session deletion has been queued"}

    def sessions(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        return page(w.sessions.values(), request, query, LIST_FILTERS)

    def peers(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        return page(w.peers.values(), request, query, LIST_FILTERS)

    # ------------------------------------------------------------------- messages

    def add_messages(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        given = fields(request.json, "messages")["messages"]
        if not isinstance(given, list) or not 1 <= len(given) <= 100:
            raise wrong(
                "too_long", ["body", "messages"], "List should have at most 100 items after validation"
            )
        for number, one in enumerate(given):
            fields(one, "content", "peer_id", "metadata", "configuration", "created_at")
            if len(one["content"]) > 25_000:
                where = ["body", "messages", number, "content"]
                raise wrong("string_too_long", where, "String should have at most 25000 characters")
            if "\x00" in one["content"]:
                raise Refusal(500, "An unexpected error occurred", complaint=True)
        return 201, [self._add(name, w, named(parts[0]), one) for one in given]

    def _add(self, name: str, w: Workspace, session: str, one: dict[str, Any]) -> dict[str, Any]:
        self._session(name, w, session)
        if one["peer_id"] not in w.members[session]:
            self._join(name, w, session, one["peer_id"], {})
        message = {
            "id": self._id(),
            "content": one["content"],
            "peer_id": one["peer_id"],
            "session_id": session,
            "workspace_id": name,
            "metadata": one.get("metadata") or {},
            "created_at": one.get("created_at") or datetime.now(UTC).isoformat(),
            "token_count": len(one["content"]) // 4,
        }
        w.messages.append(message)
        if self.derives and w.members[session][one["peer_id"]].get("observe_me", True):
            self._derive(w, message)
        return message

    def _derive(self, w: Workspace, message: dict[str, Any]) -> None:
        author, session = message["peer_id"], message["session_id"]
        observers = [p for p, c in w.members[session].items() if p == author or c.get("observe_others")]
        text = message["content"].strip()[:300]
        for observer in observers if text else ():
            self._conclude(w, text, observer, author, session)

    def messages(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        session = existing(w, parts[0])
        own = [m for m in w.messages if m["session_id"] == session]
        return page(own, request, query, MESSAGE_FILTERS)

    def update_message(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        for message in w.messages:
            if (message["session_id"], message["id"]) == tuple(parts):
                message["metadata"] = fields(request.json, "metadata")["metadata"]
                return message
        raise Refusal(404, "Message not found")

    def upload(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        form = multipart(request)
        unknown = form.keys() - {"peer_id", "metadata", "configuration", "created_at", "file"}
        if unknown:
            raise wrong("extra_forbidden", ["body", min(unknown)], "Extra inputs are not permitted")
        text = form["file"].decode()
        chunks = [text[at : at + 25_000] for at in range(0, len(text), 25_000)]
        peer = form["peer_id"].decode()
        made = [self._add(name, w, named(parts[0]), {"content": c, "peer_id": peer}) for c in chunks]
        return 201, made

    def search(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        body = fields(request.json, "query", "filters", "limit", "scope")
        bounded(body.get("limit", 10), 1, 100, "limit")
        filters = dict(body.get("filters") or {})
        seen_by = filters.pop("peer_perspective", None)
        if seen_by is not None and len(parts):
            raise wrong("filter", ["body", "filters"], "peer_perspective requires a workspace scope")
        found = [m for m in w.messages if fits(m, filters, MESSAGE_FILTERS)]
        if seen_by is not None:
            found = [m for m in found if joined_before(w, seen_by, m)]
        if parts and request.path.split("/")[-3] == "peers":
            found = [m for m in found if m["peer_id"] == parts[0]]
        elif parts:
            found = [m for m in found if m["session_id"] == existing(w, parts[0])]
        return like(found, body["query"])[: body.get("limit", 10)]

    # ----------------------------------------------------------------- knowledge

    def conclude(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        given = fields(request.json, "conclusions")["conclusions"]
        if not 1 <= len(given) <= 100:
            raise wrong("too_long", ["body", "conclusions"], "List should have at most 100 items")
        for one in given:
            fields(one, "content", "observer_id", "observed_id", "session_id")
            if not 1 <= len(one["content"]) <= 65_535:
                raise wrong(
                    "string_too_short", ["body", "conclusions"], "String should have 1 to 65535 characters"
                )
            for peer in (one["observer_id"], one["observed_id"]):
                if peer not in w.peers:
                    raise Refusal(404, f"Peer {peer} not found in workspace {name}")
            if one.get("session_id") is not None:
                existing(w, one["session_id"])
        return 201, [
            self._conclude(w, c["content"], c["observer_id"], c["observed_id"], c.get("session_id"))
            for c in given
        ]

    def _conclude(self, w: Workspace, text: str, observer: str, observed: str, session: str | None) -> Any:
        made = {
            "id": self._id(),
            "content": text,
            "observer_id": observer,
            "observed_id": observed,
            "session_id": session,
            "level": "explicit",
            "source_ids": None,
            "times_derived": 1,
            "created_at": datetime.now(UTC).isoformat(),
        }
        w.conclusions.append(made)
        return made

    def conclusions(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        return page(reversed(w.conclusions), request, query, CONCLUSION_FILTERS)

    def query(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        body = fields(request.json, "query", "top_k", "distance", "filters")
        bounded(body.get("top_k", 10), 1, 100, "top_k")
        found = [c for c in w.conclusions if fits(c, body.get("filters") or {}, CONCLUSION_FILTERS)]
        return like(found, body["query"])[: body.get("top_k", 10)]

    def forget(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        kept = [c for c in w.conclusions if c["id"] != parts[0]]
        if len(kept) == len(w.conclusions):
            raise Refusal(404, f"Document {parts[0]} not found or does not belong to workspace {name}")
        w.conclusions = kept
        return 204, None

    def context(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        parameters(query, CONTEXT)
        session = existing(w, parts[0])
        target, observer = query.get("peer_target"), query.get("peer_perspective")
        if (observer or query.get("search_query")) and not target:
            raise Refusal(422, "peer_target is required", complaint=True)
        knows = self._known(w, observer or target, target, query) if target else (None, None)
        summary = w.summaries.get(session)
        own = [m for m in w.messages if m["session_id"] == session]
        told = {
            "content": summary,
            "message_id": own[-1]["id"] if own else "",
            "summary_type": "short",
            "created_at": datetime.now(UTC).isoformat(),
            "token_count": len(summary or "") // 4,
        }
        return {
            "id": session,
            "messages": own[-20:],
            "summary": told if summary and query.get("summary") == "true" else None,
            "peer_representation": knows[0],
            "peer_card": knows[1],
        }

    def peer_context(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        parameters(query, (CONTEXT - {"tokens", "summary", "peer_target", "peer_perspective"}) | {"target"})
        target = query.get("target", parts[0])
        if not {parts[0], target} <= w.peers.keys():
            raise Refusal(404, "Peer not found")
        text, card = self._known(w, parts[0], target, query)
        return {"peer_id": parts[0], "target_id": target, "representation": text, "peer_card": card}

    def _known(self, w: Workspace, observer: str, observed: str, query: dict[str, str]) -> tuple[Any, Any]:
        """Representation and card: what fits the question, filled up with the newest."""
        bounded(float(query.get("search_max_distance", 1)), 0, 1, "search_max_distance")
        top = bounded(int(query.get("search_top_k", 5)), 1, 100, "search_top_k")
        most = bounded(int(query.get("max_conclusions", 25)), 1, 100, "max_conclusions")
        own = [c for c in w.conclusions if (c["observer_id"], c["observed_id"]) == (observer, observed)]
        found = like(own, query.get("search_query", ""))[:top]
        found += [c for c in reversed(own) if c not in found]
        lines = [f"[{c['created_at'][:19].replace('T', ' ')}] {c['content']}" for c in found[:most]]
        text = "\n".join(["## Explicit Observations\n", *lines]) if lines else ""
        return text, w.cards.get((observer, observed))

    def card(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        parameters(query, frozenset({"target"}))
        pair = (parts[0], query.get("target", parts[0]))
        if request.method == "PUT":
            w.cards[pair] = fields(request.json, "peer_card")["peer_card"]
            if pair[0] not in w.peers:
                raise Refusal(404, f"Peer {pair[0]} not found")
        return {"peer_card": w.cards.get(pair)}

    def chat(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        body = fields(request.json, *CHAT)
        if not 1 <= len(body["query"]) <= 10_000:
            raise wrong("string_too_long", ["body", "query"], "String should have at most 10000 characters")
        if body.get("reasoning_level", "low") not in LEVELS or body.get("stream"):
            raise wrong(
                "literal_error", ["body", "reasoning_level"], "Input should be 'minimal', ... or 'max'"
            )
        self.asked.append({"peer": parts[0], **body})
        return {"content": self.answer(body["query"]) or None}

    def queue(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        parameters(query, frozenset({"observer_id", "sender_id", "session_id"}))
        done = len(w.messages)
        units = {"total_work_units": done, "completed_work_units": done}
        return {**units, "in_progress_work_units": 0, "pending_work_units": 0, "sessions": None}


ROUTES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("POST", "/sessions", HonchoServer.session),
    ("POST", "/sessions/list", HonchoServer.sessions),
    ("DELETE", "/sessions/([^/]+)", HonchoServer.delete_session),
    ("POST", "/peers/list", HonchoServer.peers),
    ("POST", "/sessions/([^/]+)/messages", HonchoServer.add_messages),
    ("POST", "/sessions/([^/]+)/messages/list", HonchoServer.messages),
    ("POST", "/sessions/([^/]+)/messages/upload", HonchoServer.upload),
    ("PUT", "/sessions/([^/]+)/messages/([^/]+)", HonchoServer.update_message),
    ("POST", "/search", HonchoServer.search),
    ("POST", "/peers/([^/]+)/search", HonchoServer.search),
    ("POST", "/sessions/([^/]+)/search", HonchoServer.search),
    ("POST", "/conclusions", HonchoServer.conclude),
    ("POST", "/conclusions/list", HonchoServer.conclusions),
    ("POST", "/conclusions/query", HonchoServer.query),
    ("DELETE", "/conclusions/([^/]+)", HonchoServer.forget),
    ("GET", "/sessions/([^/]+)/context", HonchoServer.context),
    ("GET", "/peers/([^/]+)/context", HonchoServer.peer_context),
    ("GET", "/peers/([^/]+)/card", HonchoServer.card),
    ("PUT", "/peers/([^/]+)/card", HonchoServer.card),
    ("POST", "/peers/([^/]+)/chat", HonchoServer.chat),
    ("GET", "/queue/status", HonchoServer.queue),
)


def fields(body: Any, *known: str) -> dict[str, Any]:
    """The body, if it is an object of these fields; the first is required when there are others."""
    if not isinstance(body, dict):
        raise wrong("model_type", ["body"], "Input should be a valid dictionary")
    unknown = sorted(body.keys() - set(known))
    if unknown:
        raise wrong("extra_forbidden", ["body", unknown[0]], "Extra inputs are not permitted")
    if known[0] in ("id", "messages", "conclusions", "content") and known[0] not in body:
        raise wrong("missing", ["body", known[0]], "Field required")
    return body


def parameters(query: dict[str, str], known: frozenset[str]) -> None:
    unknown = sorted(query.keys() - known)
    if unknown:
        raise wrong("extra_forbidden", ["query", unknown[0]], "Extra inputs are not permitted")


def named(name: Any) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise wrong("string_pattern_mismatch", ["body", "id"], "String should match '^[a-zA-Z0-9_-]+$'")
    return name


def bounded(value: float, low: int, high: int, name: str) -> Any:
    if not low <= value <= high:
        raise wrong("less_than_equal", ["query", name], f"Input should be {low} to {high}")
    return value


def existing(w: Workspace, session: str) -> str:
    if session not in w.sessions:
        raise Refusal(404, f"Session {session} not found")
    return session


def joined_before(w: Workspace, peer: str, message: dict[str, Any]) -> bool:
    """Whether the peer was in the session when the message was made, by the message's own time."""
    member = w.members[message["session_id"]].get(peer)
    return member is not None and datetime.fromisoformat(message["created_at"]) >= member[
        "joined"
    ] - timedelta(0)


def fits(item: dict[str, Any], filters: dict[str, Any], known: frozenset[str]) -> bool:
    """Whether an item passes a filter as the documentation of filters has them."""
    for key, wanted in filters.items():
        if key in ("AND", "OR", "NOT"):
            each = [fits(item, one, known) for one in wanted]
            if not {"AND": all, "OR": any, "NOT": lambda found: not any(found)}[key](each):
                return False
        elif key not in known:
            raise Refusal(422, f"Column '{key}' is not allowed to be filtered on", complaint=True)
        elif not compares(item.get(key), wanted):
            return False
    return True


def compares(value: Any, wanted: Any) -> bool:
    if isinstance(value, dict):
        return all(value.get(key) == one for key, one in wanted.items())
    if not isinstance(wanted, dict):
        return bool(wanted == "*" or value == wanted)
    tests: dict[str, Callable[[Any], bool]] = {
        "in": lambda w: value in w,
        "gte": lambda w: value >= w,
        "lte": lambda w: value <= w,
        "ne": lambda w: value != w,
    }
    return all(tests[operator](operand) for operator, operand in wanted.items())


def page(items: Iterable[dict[str, Any]], request: Any, query: dict[str, str], known: frozenset[str]) -> Any:
    parameters(query, PAGE)
    filters = fields(request.json, "filters")["filters"] if request.json is not None else {}
    found = [item for item in items if fits(item, filters, known)]
    if query.get("reverse") == "true":
        found.reverse()
    number, size = int(query.get("page", 1)), bounded(int(query.get("size", 50)), 1, 100, "size")
    pages = -(-len(found) // size)
    shown = found[(number - 1) * size : number * size]
    return {"items": shown, "total": len(found), "page": number, "size": size, "pages": pages}


def words(text: str) -> set[str]:
    """Words of four letters or more; of scripts beyond ASCII each letter."""
    return set(re.findall(r"[a-z0-9]{4,}|[^\W\x00-\x7f]", text.lower()))


def like(items: Sequence[dict[str, Any]], question: str) -> list[dict[str, Any]]:
    """Items that share words with the question, the most first: what stands in for vectors."""
    asked = words(question)
    scored = [(len(asked & words(item["content"])), item) for item in items]
    return [item for score, item in sorted(scored, key=lambda pair: -pair[0]) if score]


def multipart(request: Any) -> dict[str, bytes]:
    """The parts of a form by name."""
    boundary = request.headers["content-type"].split("boundary=")[1].encode()
    parts = {}
    for raw in request.body.split(b"--" + boundary)[1:-1]:
        head, _, value = raw.strip(b"\r\n").partition(b"\r\n\r\n")
        found = re.search(rb'name="([^"]+)"', head)
        assert found is not None
        parts[found.group(1).decode()] = value
    return parts
