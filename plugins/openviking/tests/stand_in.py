"""An OpenViking server as its OpenAPI documents describe it, in memory: versions 0.4.9 and 0.5.2, all three modes.

A request with a field that the version does not know is refused as the real one refuses it, and kept in `complaints`.
Texts are embedded as bags of words. What a session taught is what the person said in it, one memory a message.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from hermes_memory_testing import StandIn
from hermes_memory_testing.http_server import Fault, Request

ROOT_KEY = "root-secret"
KEYS = {"key-of-alice": ("acme", "alice"), "key-of-bob": ("acme", "bob")}

_MESSAGE = {"role", "peer_id", "content", "parts", "created_at", "turn_id"}
_FIND = {
    "query",
    "target_uri",
    "context_type",
    "limit",
    "score_threshold",
    "filter",
    "level",
    "tags",
    "since",
    "until",
}
_SEARCH = {
    *{"search_type", "session_id", "mode", "max_tokens", "purpose", "detail", "quotas", "dedup_turns"},
    *{"exclude_uris", "peer_scope", "other_peer_penalty", "query_expansion", "rewrite", "read_content"},
}
_RESOURCE = {
    "path",
    "temp_file_id",
    "source_name",
    "to",
    "parent",
    "create_parent",
    "reason",
    "instruction",
    "wait",
}

FIELDS: dict[str, dict[str, set[str]]] = {
    "0.5.2": {
        "POST content/write": {"uri", "content", "mode", "wait", "tags", "tag_mode", "edit_source", "acl"},
        "POST search/find": {*_FIND, "read_content", "time_field"},
        "POST search/search": _FIND | _SEARCH,
        "POST search/grep": {
            "uri",
            "pattern",
            "case_insensitive",
            "node_limit",
            "level_limit",
            "exclude_uri",
        },
        "POST sessions": {"session_id", "memory_policy", "auto_commit_policy", "memory_extraction_config"},
        "POST messages/batch": {"messages"},
        "POST commit": {"keep_recent_count", "enable_working_memory", "reset_context", "retention_mode"},
        "POST fs/mv": {"from_uri", "to_uri"},
        "POST resources": {*_RESOURCE, "tags", "acl", "watch_interval", "processing_mode"},
        "GET fs/ls": {"uri", "node_limit", "output", "abs_limit", "offset", "recursive"},
        "GET fs/tree": {"uri", "node_limit", "output", "abs_limit", "offset", "level_limit"},
        "GET fs/stat": {"uri"},
        "GET content/read": {"uri", "offset", "limit", "raw"},
        "GET content/abstract": {"uri"},
        "GET content/overview": {"uri"},
        "DELETE fs": {"uri", "recursive", "wait"},
        "GET context": {"token_budget"},
        "GET tasks": {"task_type", "status", "resource_id", "limit"},
        "GET system/status": set(),
        "GET tasks/*": {"include_events"},
        "DELETE sessions/*": set(),
        "GET sessions": set(),
        "POST temp_upload": set(),
    }
}
FIELDS["0.4.9"] = {
    **FIELDS["0.5.2"],
    "POST content/write": {"uri", "content", "mode", "wait", "timeout"},
    "POST search/find": {*_FIND, "time_field", "agent_id", "agent_uri"},
    "POST search/search": {*_FIND, "session_id", "time_field", "agent_id", "agent_uri"},
    "POST sessions": {"session_id", "memory_policy"},
    "POST commit": {"keep_recent_count"},
    "POST resources": {*_RESOURCE, "timeout", "watch_interval"},
    "GET fs/ls": {"uri", "node_limit", "output", "abs_limit", "recursive"},
    "GET fs/tree": {"uri", "node_limit", "output", "abs_limit", "level_limit"},
    "GET tasks/*": set(),
}
"""Fields of every endpoint that is called, by version: bodies for POST, parameters else."""

_PEER = re.compile(r"[A-Za-z0-9_.@-]{1,255}")


class Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.answer = (
            status,
            {"status": "error", "error": {"code": code, "message": message, "details": {}}},
        )


class Viking(StandIn):
    """The server. `embeds` and `learns` can be taken from it; what it answers to paths that end in `losing` is lost."""

    def __init__(self, version: str = "0.5.2", mode: str = "dev") -> None:
        super().__init__()
        self.version, self.mode = version, mode
        self.embeds = self.learns = True
        self.losing = ""
        self.files: dict[str, str] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.added: list[dict[str, Any]] = []
        self.uploads: list[bytes] = []
        for method in ("GET", "POST", "DELETE"):
            self.route(method, "/api/v1/*", self._api)
        self.route("GET", "/health", self._health)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All messages that arrived and were not taken back, in order, archived ones as well."""
        return [m for s in self.sessions.values() for m in (*s["archived"], *s["messages"])]

    def respond(self, request: Request) -> tuple[int, Any, Fault]:
        """As ever; and some answers never arrive, though what was asked is done."""
        status, data, fault = super().respond(request)
        lost = self.losing and request.method != "GET" and request.path.endswith(self.losing)
        return status, data, replace(fault, drop=True) if lost else fault

    # ---------------------------------------------------------------- front

    def _health(self, request: Request) -> Any:
        if request.headers.get("x-api-key") not in (None, ROOT_KEY, *KEYS):
            return Refusal(401, "UNAUTHENTICATED", "Invalid API key").answer
        return {"status": "ok", "healthy": True, "version": self.version, "auth_mode": self.mode}

    def _api(self, request: Request) -> Any:
        path = unquote(request.path).removeprefix("/api/v1/")
        try:
            user = self._user(request.headers)
            peer = request.headers.get("x-openviking-actor-peer", "")
            if peer and not _PEER.fullmatch(peer):
                raise Refusal(400, "INVALID_ARGUMENT", "peer_id must be alpha_numeric string.")
            return {"status": "ok", "result": self._route(path, request, user, peer), "error": None}
        except Refusal as refusal:
            return refusal.answer

    def _user(self, headers: Mapping[str, str]) -> str:
        key, user = headers.get("x-api-key"), headers.get("x-openviking-user")
        if self.mode == "dev":
            return user or "default"
        if self.mode == "trusted":
            if key != ROOT_KEY:
                raise Refusal(401, "UNAUTHENTICATED", "Missing API Key in trusted mode.")
            if not user or not headers.get("x-openviking-account"):
                raise Refusal(
                    400, "INVALID_ARGUMENT", "Trusted mode requests must include X-OpenViking-User."
                )
            return user
        if key == ROOT_KEY:
            raise Refusal(403, "PERMISSION_DENIED", "ROOT API keys cannot access tenant-scoped data APIs")
        if key not in KEYS:
            raise Refusal(401, "UNAUTHENTICATED", "Invalid API key")
        return KEYS[key][1]

    def _route(self, path: str, request: Request, user: str, peer: str) -> Any:
        parts = path.split("/")
        name, rest = path, ""
        if parts[0] == "sessions" and len(parts) > 1:
            rest, name = parts[1], "/".join(parts[2:]) or "sessions/*"
        elif parts[0] == "tasks" and len(parts) > 1:
            rest, name = parts[1], "tasks/*"
        elif path == "resources/temp_upload":
            name = "temp_upload"
        known = FIELDS[self.version].get(f"{request.method} {name}")
        if known is None:
            self.complaints.append(f"no route for {request.method} {path}")
            raise Refusal(404, "NOT_FOUND", "Not Found")
        given = (
            dict(request.json or {})
            if request.method == "POST"
            else {k: v[0] for k, v in request.query.items()}
        )
        self._only(known, given)
        handler: Callable[..., Any] = getattr(
            self, f"_{request.method.lower()}_{re.sub(r'[^a-z]+', '_', name)}"
        )
        self._allowed(given, user, peer)
        return handler(given, user, peer, rest, request)

    def _only(self, known: set[str], given: Mapping[str, Any]) -> None:
        for field in given.keys() - known:
            self.complaints.append(f"unknown field {field!r}")
            raise Refusal(
                400,
                "INVALID_ARGUMENT",
                f"Invalid request parameters: body.{field}: Extra inputs are not permitted",
            )

    def _allowed(self, given: Mapping[str, Any], user: str, peer: str) -> None:
        """Every URI is whole, safe, and in a space that this user and peer may see."""
        named = [given.get(key) for key in ("uri", "to", "parent", "from_uri", "to_uri")]
        targets = given.get("target_uri") or []
        for uri in filter(None, [*named, *([targets] if isinstance(targets, str) else targets)]):
            parts = uri.removeprefix("viking://").split("/")
            if not uri.startswith("viking://") or parts[0] not in ("user", "resources", "agent"):
                raise Refusal(400, "INVALID_URI", f"Invalid URI: {uri}")
            if ".." in parts:
                raise Refusal(403, "PERMISSION_DENIED", "Unsafe URI traversal segment '..'")
            if parts[0] == "user" and parts[1:2] == ["peers"]:
                self.complaints.append(f"{uri} has no user")
                raise Refusal(400, "INVALID_URI", "peers is a reserved name")
            if self.mode == "api_key" and parts[0] == "user":
                foreign = parts[2:3] == ["peers"] and peer not in ("", *parts[3:4])
                if parts[1] != user or foreign:
                    raise Refusal(403, "PERMISSION_DENIED", f"Access denied for {uri}")

    # ---------------------------------------------------------------- files

    def _get_system_status(self, given: Any, user: str, *_: Any) -> Any:
        return {"initialized": True, "user": user}

    def _post_content_write(self, given: Any, user: str, *_: Any) -> Any:
        uri, exists = given["uri"], given["uri"] in self.files
        if not re.match(rf"viking://(user/{user}/(peers/[^/]+/)?(memories|resources)|resources)/.+", uri):
            raise Refusal(
                400, "INVALID_ARGUMENT", "user-scope writes need a file under memories/ or resources/"
            )
        if given.get("wait") and not self.embeds:
            raise Refusal(500, "INTERNAL", "Internal server error")
        if self.version == "0.4.9" and given["mode"] == "create" and exists:
            raise Refusal(409, "ALREADY_EXISTS", f"File already exists: {uri}")
        self.files[uri] = given["content"]
        return {
            "uri": uri,
            "context_type": "memory",
            "mode": given["mode"],
            "written_bytes": len(given["content"]),
        }

    def _delete_fs(self, given: Any, user: str, peer: str, *_: Any) -> Any:
        if given.get("recursive") == "true":
            if (
                self.mode == "api_key" and peer
            ):  # the folder of all peers is made anew, with the rights of this one
                raise Refusal(
                    403, "PERMISSION_DENIED", f"Access denied for viking://user/{user}/peers/.overview.md"
                )
            below = [uri for uri in self.files if uri.startswith(f"{given['uri']}/")]
            for uri in below:
                del self.files[uri]
            return {"uri": given["uri"], "estimated_deleted_count": len(below)}
        gone = self.files.pop(given["uri"], None)
        return {"uri": given["uri"], "estimated_deleted_count": int(gone is not None and self.embeds)}

    def _get_fs_stat(self, given: Any, *_: Any) -> Any:
        uri = given["uri"]
        folder = self._folder(uri)
        if not folder and uri not in self.files:
            raise Refusal(404, "NOT_FOUND", f"File not found: {uri}")
        return {"name": uri.rpartition("/")[2], "size": 1, "isDir": folder, "modTime": "2026-11-22T03:00:00Z"}

    def _get_fs_tree(self, given: Any, *_: Any) -> Any:
        return self._entries(given["uri"], deep=True)[: int(given.get("node_limit", 1000))]

    def _get_fs_ls(self, given: Any, *_: Any) -> Any:
        return self._entries(given["uri"], deep=False)[: int(given.get("node_limit", 1000))]

    def _entries(self, root: str, *, deep: bool) -> list[dict[str, Any]]:
        if not self._folder(root):
            raise Refusal(404, "NOT_FOUND", f"Directory not found: {root}")
        below = [uri.removeprefix(f"{root}/").split("/") for uri in self.files if uri.startswith(f"{root}/")]
        paths = {"/".join(parts[: n + 1]) for parts in below for n in range(len(parts) if deep else 1)}
        return [
            {
                "uri": f"{root}/{path}",
                "size": 0,
                "isDir": f"{root}/{path}" not in self.files,
                "modTime": "2026-11-22T03:00:00Z",
                "abstract": "",
            }
            for path in sorted(paths)
        ]

    def _folder(self, uri: str) -> bool:
        return uri in ("viking://resources", "viking://agent") or any(
            f.startswith(f"{uri}/") for f in self.files
        )

    def _get_content_read(self, given: Any, *_: Any) -> Any:
        if self._folder(given["uri"]):
            raise Refusal(400, "INVALID_ARGUMENT", f"Directory URI is not readable as a file: {given['uri']}")
        if given["uri"] not in self.files:
            raise Refusal(404, "NOT_FOUND", f"File not found: {given['uri']}")
        return self.files[given["uri"]] if given.get("raw") == "true" else self._shown(given["uri"])

    def _shown(self, uri: str) -> str:
        """Return the text of a file without the fields of a memory, as the server shows and embeds it."""
        fields = r"\s*<!-- MEMORY_FIELDS\s*\n.*?\n-->\s*$" if "/memories/" in uri else r"(?!)"
        return re.sub(fields, "", self.files[uri], flags=re.DOTALL)

    def _get_content_abstract(self, given: Any, *_: Any) -> Any:
        uri = given["uri"] if self._folder(given["uri"]) else given["uri"].rpartition("/")[0]
        if not self._folder(uri):
            raise Refusal(404, "NOT_FOUND", f"Resource not found: {uri}")
        return f"Abstract of {uri}"

    def _get_content_overview(self, given: Any, *rest: Any) -> Any:
        return str(self._get_content_abstract(given, *rest)).replace("Abstract", "Overview")

    # --------------------------------------------------------------- search

    def _post_search_find(self, given: Any, user: str, peer: str, *_: Any) -> Any:
        folders = given.get("target_uri") or [f"viking://user/{user}", "viking://resources"]
        for folder in folders:
            if re.fullmatch(r"viking://user/[^/]+/peers/[^/]+(/(?!memories|resources).*)?", folder):
                raise Refusal(400, "INVALID_ARGUMENT", "Only peer memories and resources are searchable.")
        hits = self._nearest(given, [f for f in self.files if any(f.startswith(f"{t}/") for t in folders)])
        # Every folder has a summary that fits anything a little, as real ones do.
        some = self._scaled(0.01)
        if some > given.get("score_threshold", 0):
            hits += [
                {"uri": f"{f}/.overview.md", "level": 1, "score": some, "abstract": "All."} for f in folders
            ]
        shown: dict[str, list[dict[str, Any]]] = {"memories": [], "resources": [], "skills": []}
        for hit in hits:
            kind = "memory" if "/memories/" in hit["uri"] else "resource"
            shown["memories" if kind == "memory" else "resources"].append({**hit, "context_type": kind})
        return {**shown, "total": len(hits)}

    def _post_search_search(self, given: Any, user: str, peer: str, *rest: Any) -> Any:
        if given.get("mode") != "context":
            return self._post_search_find(given, user, peer, *rest)
        if "target_uri" in given:
            raise Refusal(400, "INVALID_ARGUMENT", "target_uri is not supported in mode='context'")
        seen = [f for f in self.files if f.startswith(f"viking://user/{user}/")]
        if self.mode != "dev":
            seen = [f for f in seen if f"/peers/{peer}/" in f or "/peers/" not in f]
        entries = [{**hit, "text": self._shown(hit["uri"])} for hit in self._nearest(given, seen)]
        return {"entries": entries, "rendered": "", "digest": "", "stats": {}}

    def _nearest(self, given: Any, uris: list[str]) -> list[dict[str, Any]]:
        if not given["query"].strip():
            raise Refusal(400, "INVALID_ARGUMENT", "Search query or image_url must not be empty.")
        if not self.embeds:
            raise Refusal(500, "INTERNAL", "Internal server error")
        hits = [
            {
                "uri": u,
                "level": 2,
                "score": self._scaled(cosine(given["query"], self._shown(u))),
                "abstract": self._shown(u),
            }
            for u in uris
            if self._shown(u).strip()
        ]
        near = [hit for hit in hits if hit["score"] > given.get("score_threshold", 0)]
        return sorted(near, key=lambda hit: -hit["score"])[: given.get("limit", 10)]

    def _scaled(self, value: float) -> float:
        return value if self.version == "0.4.9" else (1 + value) / 2

    def _post_search_grep(self, given: Any, user: str, *_: Any) -> Any:
        uri = given["uri"]
        lines = {f: text.splitlines() for f, text in self.files.items()}
        for name, session in self.sessions.items():
            base = f"viking://user/{user}/sessions/{name}"
            lines[f"{base}/messages.jsonl"] = [json.dumps(m) for m in session["messages"]]
            lines[f"{base}/history/archive_001/messages.jsonl"] = [json.dumps(m) for m in session["archived"]]
        here = {f: text for f, text in lines.items() if f == uri or f.startswith(f"{uri}/")}
        if not here:
            raise Refusal(404, "NOT_FOUND", f"File not found: {uri}")
        flags = re.IGNORECASE if given.get("case_insensitive") else 0
        found = [
            {"line": n, "uri": f, "content": line}
            for f, text in here.items()
            for n, line in enumerate(text, 1)
            if re.search(given["pattern"], line, flags)
        ]
        return {"matches": found[: given.get("node_limit", 256)], "count": len(found)}

    # ------------------------------------------------------------- sessions

    def _post_sessions(self, given: Any, *_: Any) -> Any:
        if given["session_id"] in self.sessions:
            raise Refusal(409, "ALREADY_EXISTS", f"Session {given['session_id']!r} already exists")
        self._session(given["session_id"])["policy"] = given.get("memory_policy")
        return {"session_id": given["session_id"]}

    def _get_sessions(self, _given: Any, user: str, *_: Any) -> Any:
        return [
            {"session_id": name, "uri": f"viking://user/{user}/sessions/{name}"} for name in self.sessions
        ]

    def _session(self, name: str, *, make: bool = True) -> dict[str, Any]:
        if name not in self.sessions and not make:
            raise Refusal(404, "NOT_FOUND", f"Session not found: {name}")
        return self.sessions.setdefault(name, {"policy": None, "messages": [], "archived": []})

    def _post_messages_batch(self, given: Any, _user: str, _peer: str, name: str, _r: Any) -> Any:
        if len(given["messages"]) > 100:
            self.complaints.append("over 100 messages")
            raise Refusal(400, "INVALID_ARGUMENT", "List should have at most 100 items after validation")
        for message in given["messages"]:
            self._only(_MESSAGE, message)
            if message.get("role") not in ("user", "assistant") or not (
                message.get("content") or message.get("parts")
            ):
                raise Refusal(400, "INVALID_ARGUMENT", "Either 'content' or 'parts' must be provided")
            if not _PEER.fullmatch(message.get("peer_id") or "none"):
                raise Refusal(400, "INVALID_ARGUMENT", "Invalid peer_id")
        kept = [
            {k: v for k, v in m.items() if self.version != "0.4.9" or k != "turn_id"}
            for m in given["messages"]
        ]
        session = self._session(name)
        session["messages"] += kept
        return {"session_id": name, "message_count": len(session["messages"]), "added": len(kept)}

    def _get_context(self, _given: Any, _user: str, _peer: str, name: str, _r: Any) -> Any:
        messages = self._session(name, make=False)["messages"]
        return {
            "latest_archive_overview": "",
            "messages": [{"id": f"msg_{n}", **m} for n, m in enumerate(messages)],
        }

    def _delete_sessions_(self, _given: Any, _user: str, _peer: str, name: str, _r: Any) -> Any:
        self._session(name, make=False)
        del self.sessions[name]
        return {"session_id": name}

    def _post_fs_mv(self, given: Any, *_: Any) -> Any:
        old, new = (given[key].rpartition("/")[2] for key in ("from_uri", "to_uri"))
        self.sessions[new] = self._session(old, make=False)
        del self.sessions[old]
        return {"from": given["from_uri"], "to": given["to_uri"]}

    def _post_commit(self, _given: Any, user: str, _peer: str, name: str, _r: Any) -> Any:
        session = self._session(name, make=False)
        if not session["messages"]:
            return {"session_id": name, "status": "skipped", "task_id": None, "reason": "no_messages"}
        task_id = f"task-{len(self.tasks)}"
        said, session["messages"] = session["messages"], []
        session["archived"] += said
        self.tasks[task_id] = {
            "task_id": task_id,
            "task_type": "session_commit",
            "status": "pending",
            "resource_id": name,
            "created_at": float(len(self.tasks)),
            "error": None,
        }
        self.tasks[task_id]["then"] = (user, session["policy"], said)
        return {"session_id": name, "status": "accepted", "task_id": task_id, "archived": True}

    def _get_tasks_(self, _given: Any, _user: str, _peer: str, task_id: str, _r: Any) -> Any:
        if task_id not in self.tasks:
            raise Refusal(404, "NOT_FOUND", "Task not found or expired")
        task = self.tasks[task_id]
        told = {key: value for key, value in task.items() if key != "then"}
        self.finish(task)
        return told

    def _get_tasks(self, given: Any, *_: Any) -> Any:
        tasks = [t for t in self.tasks.values() if t["task_type"] == given.get("task_type", t["task_type"])]
        return [{key: value for key, value in task.items() if key != "then"} for task in tasks]

    def finish(self, task: dict[str, Any]) -> None:
        """Do what a task is for: it is seen as pending once."""
        if task["status"] != "pending":
            return
        task["status"] = "completed" if self.learns else "failed"
        task["error"] = None if self.learns else "the model answered junk"
        user, policy, said = task.pop("then")
        for number, message in enumerate(said if self.learns else ()):
            text = "\n".join(p.get("text", "") for p in message.get("parts", ())).strip()
            own = (policy or {}).get("self", {}).get("enabled", True)
            peer = message.get("peer_id")
            if message["role"] == "user" and text and (peer or own):
                root = f"viking://user/{user}" + (f"/peers/{peer}" if peer else "")
                self.files[f"{root}/memories/events/{task['task_id']}-{number}.md"] = text

    # ------------------------------------------------------------ resources

    def _post_temp_upload(self, _given: Any, _user: str, _peer: str, _rest: str, request: Request) -> Any:
        if "multipart/form-data" not in request.headers.get("content-type", ""):
            raise Refusal(400, "INVALID_ARGUMENT", "body.file: Field required")
        self.uploads.append(request.body)
        return {"temp_file_id": f"upload_{len(self.uploads)}"}

    def _post_resources(self, given: Any, *_: Any) -> Any:
        if re.match(r"https?://(127\.|localhost)", given.get("path", "")):
            raise Refusal(403, "PERMISSION_DENIED", "HTTP server only accepts public remote resource targets")
        if given.get("path", "").startswith("/"):
            raise Refusal(403, "PERMISSION_DENIED", "direct host filesystem paths are not allowed.")
        self.added.append(given)
        name = (given.get("source_name") or given.get("path") or "").rpartition("/")[2].rpartition(".")[
            0
        ] or "x"
        root = given.get("to") or f"{given.get('parent') or 'viking://resources'}/{name}"
        self.files[f"{root}/{name}.md"] = f"Text of {name}."
        task_id = f"task-{len(self.tasks)}"
        self.tasks[task_id] = {
            "task_id": task_id,
            "task_type": "add_resource",
            "status": "completed",
            "error": None,
        }
        return {"status": "success", "root_uri": root, "task_id": task_id}


def cosine(one: str, other: str) -> float:
    """Likeness of two texts as bags of words."""
    a, b = (Counter(re.findall(r"\w+", text.lower())) for text in (one, other))
    norm = math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
    return sum(a[word] * b[word] for word in a) / norm if norm else 0.0
