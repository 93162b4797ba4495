"""API v5 by the vendor's SDK, whose errors become those of the host here and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import supermemory
from supermemory.core.api_error import ApiError
from supermemory.core.parse_error import ParsingError

from hermes_core.errors import ProviderError
from hermes_core.kit import BackendNotFound, BackendUnavailable, clip, local_day
from hermes_core.kit.http import Backend, error_detail, httpx_client
from hermes_supermemory.settings import KEY
from hermes_supermemory.values import Document, Hit

MODES: dict[str, Any] = {"documents": "chunks"}
MATCHES = 5
PAGE_SIZE = 25
"""Documents of a page of an export, with their texts."""


class V5:
    """Namespaces at `url`. One try a call; redirects are not followed, they would carry the text elsewhere."""

    def __init__(self, url: str, key: str, timeout: float) -> None:
        self._backend = Backend("Supermemory", url, "base_url", KEY, bool(key))
        self._http = httpx_client(url, timeout=timeout, backend=self._backend)
        self._sdk = supermemory.Supermemory(
            api_key=key or "none",
            base_url=url,
            timeout=timeout,
            max_retries=0,
            default_headers={"x-sm-source": "hermes"},
            http_client=self._http,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def add(self, ns: str, doc: str, text: str, metadata: Mapping[str, Any], context: str, date: str) -> None:
        """Send POST /ns/{ns}/document: a new document, or more of a known one."""
        more: dict[str, Any] = {}
        if context:
            more["supporting_context"] = context
        if date:
            more["date"] = date
        labels = {**metadata, **({"date": date} if date else {})}  # a search gives back these alone
        with _sdk_errors(self._backend):
            _confirmed(self._backend, self._sdk.add(ns, content=text, id=doc, metadata=labels, **more))

    def search(
        self, ns: str, query: str, limit: int, mode: str, floor: float, timeout: float | None
    ) -> list[Hit]:
        """Send POST /ns/{ns}/search."""
        options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        with _sdk_errors(self._backend):
            found = self._sdk.search(
                ns, query=query, limit=limit, search_mode=MODES.get(mode, mode), threshold=floor, **options
            )
        return [one for one in map(_hit_of, _rows(self._backend, found, "results")) if one.text]

    def profile(self, ns: str, timeout: float | None) -> tuple[list[str], list[str]]:
        """Send POST /ns/{ns}/profile."""
        options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        with _sdk_errors(self._backend):
            profile = getattr(self._sdk.profile(ns, **options), "profile", None)
        static, dynamic = (
            [_field(fact, "memory") for fact in _rows(self._backend, profile, n)]
            for n in ("static", "dynamic")
        )
        return [*filter(None, static)], [*filter(None, dynamic)]

    def forget(self, ns: str, memory: str) -> bool:
        """DELETE /ns/{ns}/memories."""
        with _sdk_errors(self._backend):
            return bool(self._sdk.memories.forget(ns, ids=[memory]).count)

    def matching(self, ns: str, query: str) -> list[Hit]:
        """DELETE /ns/{ns}/memories/semantic, as a dry run: nothing is forgotten."""
        with _sdk_errors(self._backend):
            found = self._sdk.memories.forget_matching(ns, query=query, dry_run=True)
        return [Hit(_field(m, "id"), _field(m, "memory")) for m in _rows(self._backend, found, "matches")][
            :MATCHES
        ]

    def document(self, ns: str, doc: str) -> Document | None:
        """GET /ns/{ns}/document/{id}."""
        try:
            with _sdk_errors(self._backend):
                found = _confirmed(self._backend, self._sdk.documents.get(ns, doc))
        except BackendNotFound:
            return None
        return _document_of(found)

    def documents(self, ns: str, page: int) -> tuple[list[Document], bool]:
        """Send POST /ns/{ns}/list/documents."""
        with _sdk_errors(self._backend):
            found = self._sdk.list(
                ns,
                "documents",
                page=page,
                limit=PAGE_SIZE,
                sort="createdAt",
                order="asc",
                include={"content": True, "memory_count": False},
            )
            documents = [
                _document_of(_confirmed(self._backend, row))
                for row in _rows(self._backend, found, "documents")
            ]
            return documents, page < found.pagination.total_pages

    def rewrite(self, ns: str, doc: str, content: str) -> None:
        """Send PATCH /ns/{ns}/document/{id}: this content replaces everything sent before."""
        with _sdk_errors(self._backend):
            _confirmed(self._backend, self._sdk.documents.update(ns, doc, content=content))

    def delete(self, ns: str, doc: str) -> bool:
        """DELETE /ns/{ns}/document. It says of what it can't delete why, in words alone, also of what is not there."""
        with _sdk_errors(self._backend):
            done = self._sdk.documents.delete(ns, ids=[doc])
            count = done.count
        if not count and self.document(ns, doc) is not None:
            reasons = "; ".join(_field(one, "error") for one in getattr(done, "errors", None) or ())
            raise BackendUnavailable(f"Supermemory has not deleted {doc!r}: {clip(reasons, 300)}")
        return bool(count)

    def erase(self, ns: str) -> int:
        """DELETE /ns/{ns}."""
        try:
            with _sdk_errors(self._backend):
                return int(getattr(self._sdk.namespaces.delete(ns), "deleted_documents_count", 0) or 0)
        except BackendNotFound:
            return 0


@contextmanager
def _sdk_errors(backend: Backend | str) -> Iterator[None]:
    """Turn every error of the SDK into the host's; the name of a backend is enough."""
    backend = Backend(backend) if isinstance(backend, str) else backend
    try:
        yield
    except supermemory.APITimeoutError as exc:
        raise backend.error(None, "timed out") from exc
    except supermemory.APIConnectionError as exc:
        if isinstance(exc.__cause__, ProviderError):  # of our HTTP client
            raise exc.__cause__ from None
        raise backend.error(None, str(exc.__cause__ or exc)) from exc
    except (supermemory.SupermemoryError, ApiError, ParsingError) as exc:
        raise _error_of(backend, exc) from exc
    except (AttributeError, TypeError, ValueError) as exc:
        # What the SDK trips over when an answer has another shape than its models.
        raise backend.unexpected(exc) from exc


def _error_of(backend: Backend, error: Exception) -> Exception:
    """Return the host's error for an answer that the SDK made an error of."""
    status = getattr(error, "status_code", None)
    if status is None:
        return backend.error(None, str(error))
    body = getattr(error, "body", None)
    detail = error_detail(body if isinstance(body, str) else json.dumps(body, default=str))
    if status < 300:
        return backend.unexpected(detail)
    headers = getattr(error, "headers", None) or {}
    after = next((value for header, value in headers.items() if header.lower() == "retry-after"), None)
    return backend.error(status, detail, after)


def _hit_of(row: Any) -> Hit:
    metadata = getattr(row, "metadata", None)
    labels = metadata if isinstance(metadata, dict) else {}
    score = getattr(row, "similarity", None)
    return Hit(
        id=_field(row, "id"),
        text=_field(row, "memory") or _field(row, "chunk"),
        score=float(score) if isinstance(score, int | float) else 0.0,
        when=local_day(str(labels.get("date") or _field(getattr(row, "system", None), "updated_at"))),
        session=str(labels.get("session_id") or ""),
    )


def _document_of(answer: Any) -> Document:
    metadata, system = getattr(answer, "metadata", None), getattr(answer, "system", None)
    known = metadata if isinstance(metadata, dict) else {}
    times = (_field(system, name) for name in ("created_at", "updated_at"))
    return Document(_field(answer, "id"), _field(answer, "content"), _field(system, "status"), known, *times)


def _confirmed(backend: Backend, document: Any) -> Any:
    """Return the server's answer about a document. Another program at the address may answer 200 to everything."""
    if not _field(document, "id"):
        raise backend.unexpected(document)
    return document


def _rows(backend: Backend, answer: Any, name: str) -> list[Any]:
    """Return a list in an answer. The SDK checks none, so a missing or malformed one arrives as it is."""
    rows = getattr(answer, name, None)
    if not isinstance(rows, list):
        raise backend.unexpected(answer)
    return rows


def _field(answer: Any, name: str) -> str:
    value = getattr(answer, name, None)
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str) else ""
