"""A Hindsight server in memory, on loopback: as strict as the published API, which it reads from openapi.json.

Requests with a field, parameter or path that the document does not have are refused and noted; answers are checked against
the document too. What it does follows a real server 1.1: one text a document, arrays of JSON joined on append, a repeated
operation id taken once, 404 for a bank never written to. Facts are the messages themselves, as with a server whose
extraction is set to "chunks".
"""

from __future__ import annotations

import copy
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft202012Validator

from hermes_memory_testing import StandIn
from hermes_memory_testing.http_server import Request

KEY = "hs-key-0123456789"
WHEN = "2026-11-22T09:00:00+00:00"
DISPOSITIONS = ("disposition_skepticism", "disposition_literalism", "disposition_empathy")

_SPEC = json.loads(Path(__file__).with_name("openapi.json").read_text(encoding="utf-8"))


@dataclass
class Bank:
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


class Refusal(Exception):
    """A status that is no success, and its body."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(status, detail)
        self.status, self.detail = status, detail


class HindsightServer(StandIn):
    """The server; `url` once it runs. `key` is asked for when it is not empty.

    `hold`: operations stay pending until `work()`. `model`: whether it can reflect. `fail_extraction`: operations fail.
    """

    def __init__(self, key: str = "", version: str = "1.1.0") -> None:
        self.key, self.version = key, version
        self.hold = self.fail_extraction = False
        self.model = True
        self.banks: dict[str, Bank] = {}
        super().__init__()
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            self.route(method, "*", self.answer)

    # ------------------------------------------------------------ for tests

    def bodies(self, path_end: str) -> list[Any]:
        """JSON bodies of the requests whose path ends so, in order."""
        return [r.json for r in self.requests if unquote(r.path).endswith(path_end)]

    def texts(self, bank: str) -> dict[str, str]:
        """The documents of a bank, by id."""
        return {name: doc["text"] for name, doc in self.banks[bank].documents.items()}

    def said(self) -> list[str]:
        """What people said, out of the documents of their sessions: bank by bank, in order."""
        documents = [doc for bank in self.banks.values() for doc in bank.documents.values()]
        messages = [message for doc in documents for message in _array(doc["text"]) or ()]
        return [m["content"].removeprefix("User: ") for m in messages if m["role"] == "user"]

    def work(self) -> None:
        """Do what was taken and held."""
        for bank in self.banks.values():
            for operation in bank.operations.values():
                self._perform(bank, operation)

    # --------------------------------------------------------------- answer

    def answer(self, request: Request) -> Any:
        """Check the request, do it, check the answer."""
        try:
            template, values = _place(request)
            call = _SPEC["paths"][template][request.method.lower()]
            if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
                raise Refusal(401, "Invalid API key")
            _check_request(call, request)
            data = getattr(self, _NAMES[request.method, template])(request, **values)
        except Refusal as refusal:
            if refusal.status == 422:
                self.complaints.append(f"{request.method} {request.path}: {refusal.detail}")
            return refusal.status, {"detail": refusal.detail}
        wrong = _wrong(call["responses"]["200"]["content"]["application/json"]["schema"], data, strict=False)
        if wrong:
            self.complaints.append(f"the stand-in answers {request.method} {template} wrongly: {wrong}")
        return data

    def version_(self, request: Request) -> Any:
        features = _SPEC["components"]["schemas"]["FeaturesInfo"]["properties"]
        return {"api_version": self.version, "features": dict.fromkeys(features, True)}

    def retain(self, request: Request, bank_id: str) -> Any:
        body = request.json
        if any(not str(item["content"]).strip() for item in body["items"]):
            raise Refusal(422, [{"loc": ["body", "items", 0, "content"], "msg": "content cannot be empty"}])
        bank = self.banks.setdefault(bank_id, Bank())
        operation_id = body.get("operation_id") or str(uuid.uuid4())
        told = {
            "success": True,
            "bank_id": bank_id,
            "items_count": len(body["items"]),
            "async": body["async"],
        }
        if not body["async"]:
            self._learn(bank, body["items"])
            return told
        str(uuid.UUID(operation_id))
        if any(operation_id in other.operations for other in self.banks.values() if other is not bank):
            raise Refusal(409, f"operation_id {operation_id} is already in use")
        if operation_id not in bank.operations:
            operation = {"id": operation_id, "status": "pending", "items": body["items"], "error": None}
            bank.operations[operation_id] = operation
            if not self.hold:
                self._perform(bank, operation)
        return {**told, "operation_id": operation_id}

    def recall(self, request: Request, bank_id: str) -> Any:
        body, asked = request.json, _words(request.json["query"])
        if not re.search(r"\w", body["query"]):
            raise Refusal(422, [{"loc": ["body", "query"], "msg": "query must contain a word character"}])
        found = []
        for name, document in self._bank(bank_id).documents.items():
            if not _tagged(document["tags"], body.get("tags"), body.get("tags_match", "any")):
                continue
            for number, text in enumerate(_facts(document["text"])):
                shared = asked & _words(text)
                if shared and ("world" in (body.get("types") or ["world"])):
                    score = len(shared) / len(asked)
                    found.append(_memory(f"{name}#{number}", text, document, name, score))
        floor = (body.get("min_scores") or {}).get("final") or 0.0
        best = sorted(found, key=lambda memory: -memory["scores"]["final"])
        room, kept = body["max_tokens"], []
        for memory in best:
            room -= len(memory["text"]) // 4
            if memory["scores"]["final"] >= floor and room >= 0:
                kept.append(memory)
        return {"results": kept}

    def reflect(self, request: Request, bank_id: str) -> Any:
        if not self.model:
            raise Refusal(400, "Reflect requires an LLM provider")
        known = [fact for doc in self._bank(bank_id).documents.values() for fact in _facts(doc["text"])]
        return {"text": f"From {len(known)} facts: {' '.join(known)[:200]}"}

    def list_documents(self, request: Request, bank_id: str) -> Any:
        tags, match = request.query.get("tags"), request.query.get("tags_match", ["any_strict"])[0]
        found = [
            {**_head(bank_id, name, doc), "text_length": len(doc["text"])}
            for name, doc in self._bank(bank_id).documents.items()
            if _tagged(doc["tags"], tags, match)
        ]
        return {"items": found, "total": len(found), "limit": 100, "offset": 0}

    def get_document(self, request: Request, bank_id: str, document_id: str) -> Any:
        document = self._bank(bank_id).documents.get(document_id)
        if document is None:
            raise Refusal(404, "Document not found")
        return {**_head(bank_id, document_id, document), "original_text": document["text"]}

    def delete_document(self, request: Request, bank_id: str, document_id: str) -> Any:
        if self._bank(bank_id).documents.pop(document_id, None) is None:
            raise Refusal(404, "Document not found")
        return {"success": True, "message": "deleted", "document_id": document_id, "memory_units_deleted": 1}

    def delete_bank(self, request: Request, bank_id: str) -> Any:
        count = len(self._bank(bank_id).documents)
        del self.banks[bank_id]
        return {"success": True, "message": "deleted", "deleted_count": count}

    def list_operations(self, request: Request, bank_id: str) -> Any:
        wanted = request.query.get("status", [""])[0]
        listed = [
            {
                "id": one["id"],
                "task_type": "retain",
                "items_count": len(one["items"]),
                "created_at": WHEN,
                "status": one["status"],
                "error_message": one["error"],
            }
            for one in reversed(self._bank(bank_id).operations.values())
            if wanted in ("", one["status"])
        ]
        told = {"bank_id": bank_id, "total": len(listed), "limit": 20, "offset": 0}
        return {**told, "operations": listed[: int(request.query.get("limit", ["20"])[0])]}

    def get_operation(self, request: Request, bank_id: str, operation_id: str) -> Any:
        bank = self.banks.get(bank_id, Bank())
        status = bank.operations.get(operation_id, {"status": "not_found"})["status"]
        return {"operation_id": operation_id, "status": status}

    def retry_operation(self, request: Request, bank_id: str, operation_id: str) -> Any:
        operation = self._bank(bank_id).operations.get(operation_id)
        if operation is None:
            raise Refusal(404, f"Operation {operation_id} not found for bank {bank_id}")
        operation["status"] = "pending"
        self._perform(self.banks[bank_id], operation)
        return {"success": True, "message": "queued", "operation_id": operation_id}

    def stats(self, request: Request, bank_id: str) -> Any:
        bank = self._bank(bank_id)
        states = [one["status"] for one in bank.operations.values()]
        facts = sum(len(_facts(doc["text"])) for doc in bank.documents.values())
        return {
            "bank_id": bank_id,
            "total_nodes": facts,
            "total_links": 0,
            "total_documents": len(bank.documents),
            "nodes_by_fact_type": {"world": facts},
            "links_by_link_type": {},
            "links_by_fact_type": {},
            "links_breakdown": {},
            "pending_operations": states.count("pending"),
            "failed_operations": states.count("failed"),
            "operations_by_status": {state: states.count(state) for state in set(states)},
        }

    def update_config(self, request: Request, bank_id: str) -> Any:
        updates = request.json["updates"]
        unknown = updates.keys() - {"reflect_mission", "retain_mission", *DISPOSITIONS}
        if unknown or any(not 1 <= updates[name] <= 5 for name in DISPOSITIONS if name in updates):
            raise Refusal(400, f"Invalid configuration: {sorted(unknown) or updates}")
        bank = self.banks.setdefault(bank_id, Bank())
        bank.config.update(updates)
        return {"bank_id": bank_id, "config": dict(bank.config), "overrides": dict(bank.config)}

    # -------------------------------------------------------------- private

    def _bank(self, bank_id: str) -> Bank:
        if bank_id not in self.banks:
            raise Refusal(404, f"Bank '{bank_id}' not found")
        return self.banks[bank_id]

    def _perform(self, bank: Bank, operation: dict[str, Any]) -> None:
        if operation["status"] != "pending":
            return
        if self.fail_extraction:
            operation.update(status="failed", error="Fact extraction failed")
            return
        self._learn(bank, operation["items"])
        operation.update(status="completed", error=None)

    def _learn(self, bank: Bank, items: list[dict[str, Any]]) -> None:
        for item in items:
            name = item.get("document_id") or str(uuid.uuid4())
            before = bank.documents.get(name) if item.get("update_mode") == "append" else None
            text = _joined(before["text"], item["content"]) if before else item["content"]
            # As the real one: what is appended last decides the tags of all of it.
            bank.documents[name] = {"text": text, "tags": item.get("tags") or [], "item": item}


# ------------------------------------------------------------------ the document

_BANK = "/v1/default/banks/{bank_id}"
_NAMES = {
    ("GET", "/version"): "version_",
    ("DELETE", _BANK): "delete_bank",
    ("POST", f"{_BANK}/memories"): "retain",
    ("POST", f"{_BANK}/memories/recall"): "recall",
    ("POST", f"{_BANK}/reflect"): "reflect",
    ("GET", f"{_BANK}/documents"): "list_documents",
    ("GET", f"{_BANK}/documents/{{document_id}}"): "get_document",
    ("DELETE", f"{_BANK}/documents/{{document_id}}"): "delete_document",
    ("GET", f"{_BANK}/operations"): "list_operations",
    ("GET", f"{_BANK}/operations/{{operation_id}}"): "get_operation",
    ("POST", f"{_BANK}/operations/{{operation_id}}/retry"): "retry_operation",
    ("GET", f"{_BANK}/stats"): "stats",
    ("PATCH", f"{_BANK}/config"): "update_config",
}


def _place(request: Request) -> tuple[str, dict[str, str]]:
    """The path of the document that a request is for, and the values of its parts."""
    for template, calls in _SPEC["paths"].items():
        match = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template), request.path)
        if match and request.method.lower() in calls:
            return template, {name: unquote(value) for name, value in match.groupdict().items()}
    raise Refusal(422, "no such call in the published API")


def _check_request(call: Mapping[str, Any], request: Request) -> None:
    known = {p["name"] for p in call["parameters"] if p["in"] == "query"}
    if unknown := set(request.query) - known:
        raise Refusal(422, f"unknown parameter {sorted(unknown)}")
    if "requestBody" in call:
        schema = call["requestBody"]["content"]["application/json"]["schema"]
        if wrong := _wrong(schema, request.json, strict=True):
            raise Refusal(422, wrong)
    elif request.body:
        raise Refusal(422, "a body where none is expected")


def _wrong(schema: Mapping[str, Any], data: Any, *, strict: bool) -> str:
    components = _STRICT if strict else _SPEC["components"]
    errors = Draft202012Validator({**schema, "components": components}).iter_errors(data)
    return "; ".join(f"{'.'.join(map(str, e.path))}: {e.message[:200]}" for e in errors)


def _closed(schema: Any) -> Any:
    """The schema, with all that it does not name forbidden."""
    if isinstance(schema, list):
        return [_closed(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    if isinstance(closed.get("properties"), dict) and closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


_STRICT = _closed(copy.deepcopy(_SPEC["components"]))


# -------------------------------------------------------------------- behaviour


def _joined(before: str, more: str) -> str:
    parts = [_array(before), _array(more)]
    if all(part is not None for part in parts):
        return json.dumps([*(parts[0] or []), *(parts[1] or [])], ensure_ascii=False)
    return f"{before}\n{more}"


def _array(text: str) -> list[Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, list) else None


def _facts(text: str) -> Iterator[str] | list[str]:
    messages = _array(text)
    return [text] if messages is None else [m["content"] for m in messages if isinstance(m, dict)]


def _head(bank_id: str, name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": name,
        "bank_id": bank_id,
        "content_hash": "",
        "created_at": WHEN,
        "updated_at": WHEN,
        "memory_unit_count": len(list(_facts(document["text"]))),
        "tags": document["tags"],
    }


def _memory(id_: str, text: str, document: Mapping[str, Any], name: str, score: float) -> dict[str, Any]:
    return {
        "id": id_,
        "text": text,
        "type": "world",
        "mentioned_at": document["item"].get("timestamp") or WHEN,
        "document_id": name,
        "metadata": document["item"].get("metadata"),
        "tags": document["tags"],
        "scores": {"final": score, "semantic": score},
    }


def _tagged(has: list[str], wanted: list[str] | None, match: str) -> bool:
    if not wanted:
        return True
    if not has and not match.endswith("_strict"):
        return True
    return set(wanted) <= set(has) if match.startswith("all") else bool(set(wanted) & set(has))


def _words(text: str) -> set[str]:
    """Words of four letters or more; of scripts beyond ASCII each letter."""
    return set(re.findall(r"[a-z0-9]{4,}|[^\W\x00-\x7f]", text.lower())) or {text.lower().strip()}
