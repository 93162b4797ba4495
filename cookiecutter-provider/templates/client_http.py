"""The service's HTTP API, and its errors in the host's words.

The paths and fields are those of the stand-in in examples/stand_in.py. Put those of your service here.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from hermes_core.kit.http import Api

from {{ cookiecutter.__package }}.settings import KEY, NAME


{% include ["note.py", "templates/note.py"] %}

class Client:
    """The service at `url`. Raises `BackendUnavailable`, `BackendAuthError` or `BackendRefused`, as `Api` does for each
    status, and retries nothing: the host does, with a breaker."""

    def __init__(self, url: str, api_key: str, timeout: float) -> None:
        self.place = url
        headers = {"Authorization": f"Bearer {api_key}"}
        self._api = Api(url, name=NAME, key=KEY, headers=headers, timeout=timeout)

    def put(self, note: Note) -> None:
        """Store a note, in place of the one with its key."""
        body = {"owner": note.owner, "text": note.text, "at": note.at}
        self._api.put(f"/v1/notes/{quote(note.key, safe='')}", body)

    def search(self, question: str, owner: str | None, limit: int) -> list[Note]:
        """Notes that fit the question, best first; None as `owner` means everybody's."""
        params: dict[str, str | int] = {"question": question, "limit": limit}
        if owner is not None:
            params["owner"] = owner
        found = self._api.post("/v1/search", params)
        return [Note(**note) for note in found["notes"]]

    def forget(self, key: str) -> None:
        """Delete the note with this key; none is as well."""
        self._api.delete(f"/v1/notes/{quote(key, safe='')}")

    def close(self) -> None:
        """Close the connections."""
        self._api.close()
