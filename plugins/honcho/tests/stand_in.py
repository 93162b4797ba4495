"""A Honcho server on loopback that answers as server 3.0.12 does: paths, status codes, bodies, limits, order of work.

In one point it is stricter: a field, filter or parameter that the API does not have is refused and kept in
`complaints`, where the server ignores it. The language model is missing: a conclusion is a message, word for word, and
`answer` is what the dialectic says. Vectors are bags of words.

The deriver works between two requests, as the real one works beside them: `settle` runs it. With `flush` False it has
the gate of the server's defaults: 512 tokens of one sender in one session, or 30 minutes, which `pass_time` lets pass.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hermes_memory_testing import StandIn

KEY = "hch-v3-stand-in-key-0123456789"
NAME = re.compile(r"[a-zA-Z0-9_-]{1,512}")
LEVELS = ("minimal", "low", "medium", "high", "max")

MESSAGE_FILTERS = frozenset(
    {"workspace_id", "session_id", "peer_id", "token_count", "created_at", "metadata"}
)
CONCLUSION_FILTERS = frozenset({"id", "session_id", "workspace_id", "observer_id", "observed_id", "level"})
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


MAX_OBSERVERS = 10
MAX_TOKENS = 8192
GATE_TOKENS, GATE_AGE = 512, timedelta(minutes=30)
MESSAGE_TOKENS = re.compile(r"<\|endof(?:text|prompt)\|>")
"""Special tokens of the tokenizer that counts messages and conclusions: refused."""

EMBEDDING_TOKENS = re.compile(r"<\|(?:endof(?:text|prompt)|fim_(?:prefix|middle|suffix))\|>")
"""Special tokens of the tokenizer of the embedding model, which raises on them."""


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
        self.queue: list[dict[str, Any]] = []
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
        self.flush = True
        self.embeds = True
        self.deletes = True
        self.elapsed = timedelta(0)
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
        """Every conclusion of every workspace, in order of arrival, when the deriver has done its work."""
        self.settle()
        return [c["content"] for w in self.workspaces.values() for c in w.conclusions]

    def settle(self) -> None:
        """Let the deriver do the work that is due: delete sessions, and conclude from messages past the gate."""
        for w in self.workspaces.values():
            for session in [s["id"] for s in w.sessions.values() if not s["is_active"] and self.deletes]:
                self._deleted(w, session)
            units: dict[tuple[str, str], list[dict[str, Any]]] = {}
            for item in w.queue:
                units.setdefault((item["session_id"], item["peer_id"]), []).append(item)
            for unit in units.values():
                due = self.flush or sum(item["token_count"] for item in unit) >= GATE_TOKENS
                if due or self._now() - unit[0]["enqueued"] >= GATE_AGE:
                    for item in unit:
                        w.queue.remove(item)
                        for observer in item["observers"]:
                            self._conclude(w, item["text"], observer, item["peer_id"], item["session_id"])

    def pass_time(self, delta: timedelta) -> None:
        """Let time pass for the server's clock, and the deriver do what is due then."""
        self.elapsed += delta
        self.settle()

    def _now(self) -> datetime:
        return datetime.now(UTC) + self.elapsed

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
            self._authorize(request.headers.get("authorization"))
            self.settle()
            if request.body and request.json is None and b"multipart" not in self._kind(request):
                raise wrong("json_invalid", ["body"], "JSON decode error")
            return self._routed(request)
        except Refusal as refusal:
            if refusal.complaint:
                self.complaints.append(f"{request.method} {request.path}: {refusal.detail}")
            return refusal.status, {"detail": refusal.detail}

    def _authorize(self, header: str | None) -> None:
        if self.key is not None and header is None:
            raise Refusal(401, "No access token provided")
        if self.key is not None and header != f"Bearer {self.key}":
            raise Refusal(401, "Invalid JWT")

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
                if name not in self.workspaces and not path.endswith("/search"):
                    raise Refusal(404, f"Workspace {name} not found")
                query = {key: values[0] for key, values in request.query.items()}
                return handler(self, name, self.workspaces.get(name) or Workspace(), parts, request, query)
        raise Refusal(404, "Not Found", complaint=True)

    def _made(self) -> dict[str, Any]:
        return {"metadata": {}, "configuration": {}, "created_at": self._now().isoformat()}

    def _id(self) -> str:
        self._number += 1
        return f"id{self._number:019d}"

    # --------------------------------------------------------- sessions and peers

    def session(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        body = fields(request.json, "id", "metadata", "configuration", "peers", "scopes")
        existed = named(body["id"]) in w.sessions
        peers = {
            peer: fields(config, "observe_me", "observe_others")
            for peer, config in (body.get("peers") or {}).items()
        }
        self._session(name, w, body["id"], peers)
        return (200 if existed else 201), w.sessions[body["id"]]

    def _session(self, name: str, w: Workspace, session: str, peers: dict[str, dict[str, Any]]) -> None:
        """Make the session if it is not there, and let the peers join: anew, but as they were configured first."""
        if session in w.sessions and not w.sessions[session]["is_active"]:
            raise Refusal(404, f"Session {session} not found in workspace {name}")
        present = w.members.get(named(session), {})
        self._count_observers(session, {**peers, **present}, peers)
        new = {"id": session, "is_active": True, "workspace_id": name, **self._made()}
        w.sessions.setdefault(session, new)
        for peer, config in peers.items():
            self._peer(name, w, peer)
            member = w.members.setdefault(session, {}).setdefault(
                peer, {"observe_me": None, "observe_others": None, **config}
            )
            member["joined"] = self._now()
        w.members.setdefault(session, {})

    def _count_observers(self, session: str, members: dict[str, Any], new: dict[str, Any]) -> None:
        """Refuse an eleventh observer, counted as the server does: as configured in this call, and as before."""
        count = sum(
            bool({**member, **new.get(peer, {})}.get("observe_others")) for peer, member in members.items()
        )
        if count > MAX_OBSERVERS and any(config.get("observe_others") for config in new.values()):
            says = (
                f"Cannot create session {session} with {count} observers. Maximum allowed is {MAX_OBSERVERS}"
            )
            raise Refusal(
                400, f"{says} observers per session. Observers are peers with 'observe_others' set to true."
            )

    def _peer(self, name: str, w: Workspace, peer: str) -> None:
        w.peers.setdefault(named(peer), {"id": peer, "workspace_id": name, **self._made()})

    def member(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        session, peer = parts
        config = w.members.get(session, {}).get(peer)
        if config is None or not w.sessions[session]["is_active"]:
            raise Refusal(404, f"Session peer {peer} not found in session {session} in workspace {name}")
        if request.method == "GET":
            return {key: config[key] for key in ("observe_me", "observe_others")}
        change = fields(request.json, "observe_me", "observe_others")
        self._count_observers(session, w.members[session], {peer: change})
        config.update(change)
        return 204, None

    def delete_session(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        if parts[0] not in w.sessions or not w.sessions[parts[0]]["is_active"]:
            raise Refusal(404, f"Session {parts[0]} not found in workspace {name}")
        w.sessions[parts[0]]["is_active"] = False
        return 202, {"message": "Session deleted successfully"}

    def _deleted(self, w: Workspace, session: str) -> None:
        """What the deriver does with a session that was to be deleted."""
        del w.sessions[session], w.members[session]
        w.summaries.pop(session, None)
        for name in ("messages", "conclusions", "queue"):
            setattr(w, name, [one for one in getattr(w, name) if one["session_id"] != session])

    def session_peers(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        members = [w.peers[peer] for peer in w.members[existing(w, parts[0])]]
        return {"items": members, "total": len(members), "page": 1, "size": 50, "pages": 1}

    def peer_sessions(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        own = [s for s in w.sessions.values() if parts[0] in w.members[s["id"]]]
        return page(own, request, query, LIST_FILTERS)

    def sessions(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        return page([s for s in w.sessions.values() if s["is_active"]], request, query, LIST_FILTERS)

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
            if MESSAGE_TOKENS.search(one["content"]):
                where = ["body", "messages", number]
                raise Refusal(
                    422,
                    [{"type": "value_error", "loc": where, "msg": "Value error, disallowed special token"}],
                )
        if any(EMBEDDING_TOKENS.search(one["content"]) for one in given):
            raise Refusal(500, "An unexpected error occurred")
        return 201, self._add(name, w, named(parts[0]), given)

    def _add(
        self, name: str, w: Workspace, session: str, given: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        self._session(name, w, session, {one["peer_id"]: {} for one in given})
        made = []
        for one in given:
            content = one["content"].replace("\x00", "")
            message = {
                "id": self._id(),
                "content": content,
                "peer_id": one["peer_id"],
                "session_id": session,
                "workspace_id": name,
                "metadata": one.get("metadata") or {},
                "created_at": one.get("created_at") or self._now().isoformat(),
                "token_count": tokens(content),
            }
            made.append(message)
            w.messages.append(message)
            self._enqueue(w, message)
        return made

    def _enqueue(self, w: Workspace, message: dict[str, Any]) -> None:
        """Put a message before the deriver, for the observers that the session has now."""
        author, members = message["peer_id"], w.members[message["session_id"]]
        observe_me = members[author]["observe_me"]
        if not self.derives or observe_me is False:
            return
        observers = [author, *(p for p, c in members.items() if p != author and c["observe_others"])]
        keys = ("session_id", "peer_id", "token_count")
        text = message["content"].strip()[:300]
        if text:
            item = {"observers": observers, "text": text, "enqueued": self._now()}
            w.queue.append({**{key: message[key] for key in keys}, **item})

    def messages(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        own = [m for m in w.messages if m["session_id"] == parts[0]]
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
        if EMBEDDING_TOKENS.search(text):
            raise Refusal(500, "An unexpected error occurred")
        return 201, self._add(name, w, named(parts[0]), [{"content": c, "peer_id": peer} for c in chunks])

    def search(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        body = fields(request.json, "query", "filters", "limit", "scope")
        bounded(body.get("limit", 10), 1, 100, "limit")
        self._embed(body["query"])
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
            found = [m for m in found if m["session_id"] == parts[0]]
        return [message for _, message in nearest(found, body["query"])][: body.get("limit", 10)]

    def _embed(self, text: str) -> None:
        """Refuse a query that the embedding model can't take, or every one while it is away."""
        if EMBEDDING_TOKENS.search(text) or tokens(text) > MAX_TOKENS:
            raise Refusal(422, f"Query exceeds maximum token limit of {MAX_TOKENS}.")
        if not self.embeds:
            raise Refusal(500, "An unexpected error occurred")

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
            if EMBEDDING_TOKENS.search(one["content"]) or tokens(one["content"]) > MAX_TOKENS:
                says = "Value error, Content exceeds maximum embedding token limit of 8192"
                raise Refusal(422, [{"type": "value_error", "loc": ["body", "conclusions"], "msg": says}])
            for peer in (one["observer_id"], one["observed_id"]):
                if peer not in w.peers:
                    raise Refusal(404, f"Peer {peer} not found in workspace {name}")
            if one.get("session_id") is not None:
                existing(w, one["session_id"])
        if not self.embeds:
            raise Refusal(500, "An unexpected error occurred")
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
            "created_at": self._now().isoformat(),
        }
        w.conclusions.append(made)
        return made

    def conclusions(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        return page(reversed(w.conclusions), request, query, CONCLUSION_FILTERS)

    def query(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        body = fields(request.json, "query", "top_k", "distance", "filters")
        bounded(body.get("top_k", 10), 1, 100, "top_k")
        filters = body.get("filters") or {}
        if not {"observer_id", "observed_id"} <= filters.keys():
            raise Refusal(422, "observer and observed must be specified for semantic search.", complaint=True)
        self._embed(body["query"])
        own = [c for c in w.conclusions if fits(c, filters, CONCLUSION_FILTERS)]
        near = [c for distance, c in nearest(own, body["query"]) if distance <= (body.get("distance") or 2)]
        return near[: body.get("top_k", 10)]

    def forget(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        kept = [c for c in w.conclusions if c["id"] != parts[0]]
        if len(kept) == len(w.conclusions):
            raise Refusal(404, f"Document {parts[0]} not found or does not belong to workspace {name}")
        w.conclusions = kept
        return 204, None

    def context(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        parameters(query, CONTEXT)
        session, target, observer = parts[0], query.get("peer_target"), query.get("peer_perspective")
        if observer and not target:
            raise Refusal(422, "peer_target must be provided if peer_perspective is provided", complaint=True)
        if target and target not in w.peers:
            raise Refusal(404, f"Peer {target} not found in workspace {name}")
        knows = self._known(w, observer or target, target, query) if target else (None, None)
        room = int(query.get("tokens", 100_000)) - tokens(knows[0] or "") - tokens("\n".join(knows[1] or ()))
        own = [m for m in w.messages if m["session_id"] == session]
        summary = w.summaries.get(session) if query.get("summary", "true") == "true" else None
        told = {
            "content": summary,
            "message_id": own[-1]["id"] if own else "",
            "summary_type": "short",
            "created_at": self._now().isoformat(),
            "token_count": tokens(summary or ""),
        }
        if not summary or told["token_count"] > int(room * 0.4):
            told = {}
        room -= told.get("token_count", 0)
        recent: list[dict[str, Any]] = []
        for message in reversed(own):
            room -= message["token_count"]
            if room < 0:
                break
            recent.insert(0, message)
        return {
            "id": session,
            "messages": recent,
            "summary": told or None,
            "peer_representation": knows[0],
            "peer_card": knows[1],
        }

    def peer_context(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        parameters(query, (CONTEXT - {"tokens", "summary", "peer_target", "peer_perspective"}) | {"target"})
        target = query.get("target", parts[0])
        text, card = self._known(w, parts[0], target, query)
        return {"peer_id": parts[0], "target_id": target, "representation": text, "peer_card": card}

    def _known(self, w: Workspace, observer: str, observed: str, query: dict[str, str]) -> tuple[Any, Any]:
        """Representation and card: what is near the question, and of what is left of the number the newest."""
        most = bounded(int(query.get("max_conclusions", 25)), 1, 100, "max_conclusions")
        own = [c for c in w.conclusions if (c["observer_id"], c["observed_id"]) == (observer, observed)]
        found: list[dict[str, Any]] = []
        room = most
        if asked := query.get("search_query", ""):
            near = bounded(float(query.get("search_max_distance", 1)), 0, 1, "search_max_distance")
            top = min(bounded(int(query.get("search_top_k", most // 3)), 1, 100, "search_top_k"), most)
            room = most - top
            embeds = self.embeds and not EMBEDDING_TOKENS.search(asked) and tokens(asked) <= MAX_TOKENS
            if embeds:
                found = [c for distance, c in nearest(own, asked) if distance <= near][:top]
        found += [c for c in reversed(own) if c not in found][:room]
        lines = [f"[{c['created_at'][:19].replace('T', ' ')}] {c['content']}" for c in found]
        text = "\n".join(["## Explicit Observations\n", *lines]) if lines else ""
        return text, w.cards.get((observer, observed))

    def card(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        parameters(query, frozenset({"target"}))
        pair = (parts[0], query.get("target", parts[0]))
        if request.method == "PUT":
            self._peer(name, w, pair[0])
            w.cards[pair] = fields(request.json, "peer_card")["peer_card"]
        return {"peer_card": w.cards.get(pair)}

    def chat(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        body = fields(request.json, *CHAT)
        if not 1 <= len(body["query"]) <= 10_000:
            raise wrong("string_too_long", ["body", "query"], "String should have at most 10000 characters")
        if body.get("reasoning_level", "low") not in LEVELS or body.get("stream"):
            raise wrong(
                "literal_error", ["body", "reasoning_level"], "Input should be 'minimal', ... or 'max'"
            )
        if body.get("target", parts[0]) not in {parts[0], *w.peers}:
            raise Refusal(404, f"Peer {body['target']} not found in workspace {name}")
        if body.get("session_id") is not None:
            existing(w, body["session_id"])
        self._peer(name, w, parts[0])
        self.asked.append({"peer": parts[0], **body})
        return {"content": self.answer(body["query"]) or None}

    def queue(self, name: str, w: Workspace, parts: list[str], request: Any, query: Any) -> Any:
        parameters(query, frozenset({"observer_id", "sender_id", "session_id"}))
        session = query.get("session_id")
        waiting = sum(session in (None, item["session_id"]) for item in w.queue)
        done = sum(session in (None, message["session_id"]) for message in w.messages) - waiting
        units = {"total_work_units": done + waiting, "completed_work_units": done}
        return {**units, "in_progress_work_units": 0, "pending_work_units": waiting, "sessions": None}


ROUTES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("POST", "/sessions", HonchoServer.session),
    ("POST", "/sessions/list", HonchoServer.sessions),
    ("DELETE", "/sessions/([^/]+)", HonchoServer.delete_session),
    ("GET", "/sessions/([^/]+)/peers", HonchoServer.session_peers),
    ("GET", "/sessions/([^/]+)/peers/([^/]+)/config", HonchoServer.member),
    ("PUT", "/sessions/([^/]+)/peers/([^/]+)/config", HonchoServer.member),
    ("POST", "/peers/([^/]+)/sessions", HonchoServer.peer_sessions),
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
    if session not in w.sessions or not w.sessions[session]["is_active"]:
        raise Refusal(404, f"Session {session} not found")
    return session


def joined_before(w: Workspace, peer: str, message: dict[str, Any]) -> bool:
    """Whether the peer was in the session when the message was made, by the message's own time."""
    member = w.members[message["session_id"]].get(peer)
    return member is not None and datetime.fromisoformat(message["created_at"]) >= member["joined"]


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
    if isinstance(wanted, list):
        return value in wanted
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


def words(text: str) -> Counter[str]:
    """Words of three letters or more; of scripts beyond ASCII each letter."""
    return Counter(re.findall(r"[a-z0-9]{3,}|[^\W\x00-\x7f]", text.lower()))


def nearest(items: Sequence[dict[str, Any]], question: str) -> list[tuple[float, dict[str, Any]]]:
    """All items with their cosine distance from the question, the nearest first, and of equal ones the newest."""
    asked = words(question)
    pairs = [(1 - cosine(asked, words(item["content"])), item) for item in reversed(items)]
    return sorted(pairs, key=lambda pair: pair[0])


def cosine(one: Counter[str], other: Counter[str]) -> float:
    length = math.sqrt(sum(n * n for n in one.values())) * math.sqrt(sum(n * n for n in other.values()))
    return sum(n * other[word] for word, n in one.items()) / length if length else 0.0


def tokens(text: str) -> int:
    """About what the server's tokenizer counts: four ASCII characters, one ideograph, a third of an emoji."""
    ascii_chars = sum(char < "\x80" for char in text)
    emoji = sum(char >= "\U0001f000" for char in text)
    return -(-ascii_chars // 4) + 3 * emoji + (len(text) - ascii_chars - emoji)


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
