"""API v4 and v3 over HTTP, as servers of one's own speak them; the SDK speaks them no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from hermes_core.kit import BackendNotFound, local_day
from hermes_core.kit.http import Api, Backend
from hermes_supermemory.settings import KEY
from hermes_supermemory.values import Document, Hit

MATCHES = 5
PAGE_SIZE = 25
"""Documents of a page of an export, each of which is a request."""


class V4:
    """Containers at `url`."""

    def __init__(self, url: str, key: str, timeout: float) -> None:
        headers = {"x-sm-source": "hermes", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._api = Api(
            url, name="Supermemory", key=KEY, setting="base_url", headers=headers, timeout=timeout
        )
        self._backend = self._api.backend

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def add(self, ns: str, doc: str, text: str, metadata: Mapping[str, Any], context: str, date: str) -> None:
        """Send POST /v3/documents. Content under a known `customId` is appended. The server sets the date itself."""
        body: dict[str, Any] = {"content": text, "containerTags": [ns], "customId": doc}
        body |= {"metadata": {**metadata, **({"date": date} if date else {})}}
        _confirmed(
            self._backend,
            self._api.post("/v3/documents", body | ({"entityContext": context} if context else {})),
        )

    def search(
        self,
        ns: str,
        query: str,
        limit: int,
        mode: str,
        floor: float,  # noqa: ARG002  the answer is cut by the caller
        timeout: float | None,
    ) -> list[Hit]:
        """Send POST /v4/search."""
        body = {"q": query, "containerTag": ns, "limit": limit, "searchMode": mode}
        found = self._api.post("/v4/search", body, timeout=timeout)
        return [one for one in map(_hit_of, _rows(self._backend, found, "results")) if one.text]

    def profile(self, ns: str, timeout: float | None) -> tuple[list[str], list[str]]:
        """Send POST /v4/profile."""
        found = self._api.post("/v4/profile", {"containerTag": ns}, timeout=timeout)
        profile = found.get("profile") if isinstance(found, dict) else None
        static, dynamic = (_texts(_rows(self._backend, profile, name)) for name in ("static", "dynamic"))
        return static, dynamic

    def forget(self, ns: str, memory: str) -> bool:
        """DELETE /v4/memories."""
        try:
            done = self._api.delete("/v4/memories", json={"containerTag": ns, "id": memory})
        except BackendNotFound:
            return False
        return bool(isinstance(done, dict) and done.get("forgotten"))

    def matching(self, ns: str, query: str) -> list[Hit]:
        """Send POST /v4/search, among memories."""
        return self.search(ns, query, MATCHES, "memories", 0.0, None)

    def document(self, ns: str, doc: str) -> Document | None:  # noqa: ARG002  ids are the account's here
        """GET /v3/documents/{id}."""
        try:
            known = _confirmed(self._backend, self._api.get(f"/v3/documents/{quote(doc, safe='')}"))
        except BackendNotFound:
            return None
        # `content` is what was read, `raw` what was sent.
        sent, metadata = str(known.get("raw") or known.get("content") or ""), known.get("metadata")
        labels = metadata if isinstance(metadata, dict) else {}
        times = (str(known.get(name) or "") for name in ("createdAt", "updatedAt"))
        return Document(str(known["id"]), sent, str(known.get("status") or ""), labels, *times)

    def documents(self, ns: str, page: int) -> tuple[list[Document], bool]:
        """Send POST /v3/documents/list, and GET each document: the list has its text as it was read, not as it was sent."""
        body = {
            "containerTags": [ns],
            "page": page,
            "limit": PAGE_SIZE,
            "sort": "createdAt",
            "order": "asc",
        }
        answer = self._api.post("/v3/documents/list", body)
        found = [
            self.document(ns, str(row["id"]))
            for row in (_confirmed(self._backend, one) for one in _rows(self._backend, answer, "memories"))
        ]
        return [one for one in found if one is not None], has_more(
            self._backend, answer.get("pagination"), page
        )

    def rewrite(self, ns: str, doc: str, content: str) -> None:  # noqa: ARG002  as above
        """Send PATCH /v3/documents/{id}."""
        _confirmed(
            self._backend, self._api.patch(f"/v3/documents/{quote(doc, safe='')}", {"content": content})
        )

    def delete(self, ns: str, doc: str) -> bool:  # noqa: ARG002  as above
        """DELETE /v3/documents/{id}."""
        try:
            self._api.delete(f"/v3/documents/{quote(doc, safe='')}")
        except BackendNotFound:
            return False
        return True

    def erase(self, ns: str) -> int:
        """Send DELETE /v3/documents/{id} for each document; what was learned of it goes with it."""
        deleted: set[str] = set()
        body = {"containerTags": [ns], "page": 1, "limit": PAGE_SIZE}
        while True:
            rows = _rows(self._backend, self._api.post("/v3/documents/list", body), "memories")
            ids = {str(_confirmed(self._backend, row)["id"]) for row in rows} - deleted
            if not ids:
                return len(deleted)
            for doc in ids:
                self.delete(ns, doc)
            deleted |= ids


def has_more(backend: Backend, pagination: Any, page: int) -> bool:
    """Return True if a page of this number has a next one."""
    total = pagination.get("totalPages") if isinstance(pagination, dict) else None
    if not isinstance(total, int | float):
        raise backend.unexpected(pagination)
    return page < total


def _hit_of(row: Any) -> Hit:
    known: dict[str, Any] = row if isinstance(row, dict) else {}
    metadata, score = known.get("metadata"), known.get("similarity")
    labels = metadata if isinstance(metadata, dict) else {}
    return Hit(
        id=str(known.get("id") or ""),
        text=str(known.get("memory") or known.get("chunk") or ""),
        score=float(score) if isinstance(score, int | float) else 0.0,
        when=local_day(str(labels.get("date") or known.get("updatedAt") or "")),
        session=str(labels.get("session_id") or ""),
    )


def _confirmed(backend: Backend, document: Any) -> dict[str, Any]:
    """Return the server's answer about a document. Another program at the address may answer 200 to everything."""
    if not isinstance(document, dict) or not document.get("id"):
        raise backend.unexpected(document)
    return document


def _rows(backend: Backend, answer: Any, name: str) -> list[Any]:
    rows = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise backend.unexpected(answer)
    return rows


def _texts(rows: list[Any]) -> list[str]:
    """Return the facts of a profile: texts in v4, objects with a memory from servers between v4 and v5."""
    texts = [row.get("memory") if isinstance(row, dict) else row for row in rows]
    return [text for text in texts if isinstance(text, str) and text]
