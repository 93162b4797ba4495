"""The service's HTTP API, and its errors in the host's words.

The paths and fields are those of the stand-in in examples/stand_in.py. Put those of your service here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
from hermes_core.kit import BackendAuthError, BackendRefused, BackendUnavailable

from {{ cookiecutter.__package }}.settings import KEY

TRY_LATER = (408, 425, 429)
"""Statuses that say nothing against the request; so do those from 500 on."""


{% include ["note.py", "templates/note.py"] %}

class Client:
    """The service at `url`. Raises `BackendUnavailable`, `BackendAuthError` or `BackendRefused`, and retries nothing:
    the host does, with a breaker."""

    def __init__(self, url: str, api_key: str, timeout: float) -> None:
        self.place = url
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {api_key}"}, timeout=timeout
        )

    def put(self, note: Note) -> None:
        """Store a note, in place of the one with its key."""
        body = {"scope": note.scope, "text": note.text, "at": note.at}
        self._send("PUT", f"/v1/notes/{quote(note.key, safe='')}", json=body)

    def search(self, question: str, scope: str | None, limit: int) -> list[Note]:
        """Notes that fit the question, best first; None as `scope` means everybody's."""
        params: dict[str, str | int] = {"question": question, "limit": limit}
        if scope is not None:
            params["scope"] = scope
        found = self._send("POST", "/v1/search", json=params)
        return [Note(**note) for note in found["notes"]]

    def forget(self, key: str) -> None:
        """Delete the note with this key; none is as well."""
        self._send("DELETE", f"/v1/notes/{quote(key, safe='')}")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, method: str, path: str, **options: Any) -> Any:
        """The JSON of the answer."""
        try:
            answer = self._http.request(method, path, **options)
        except httpx.TransportError as exc:
            raise BackendUnavailable(f"{self.place!r} does not answer ({exc})", "is it running?") from exc
        status = answer.status_code
        if status in (401, 403):
            raise BackendAuthError(f"{self.place!r} refuses the key", f"set {KEY}")
        if status in TRY_LATER or status >= 500:
            raise BackendUnavailable(f"{self.place!r} answered {status}")
        if status >= 400:
            raise BackendRefused(f"{self.place!r} answered {status}: {answer.text[:200]}")
        return answer.json()
