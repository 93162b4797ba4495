"""The vendor's SDK, imported when it is first used, and its errors in the host's words.

`example_sdk` stands in for it: import yours in its place, here and in `installed`, and delete that file.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hermes_core.kit import BackendAuthError, BackendRefused, BackendUnavailable

from {{ cookiecutter.__package }}.settings import KEY


def installed() -> bool:
    """Whether the SDK is there; looked for, not imported."""
    return importlib.util.find_spec("{{ cookiecutter.__package }}.example_sdk") is not None


{% include ["note.py", "templates/note.py"] %}

class Client:
    """One project of the service. The example keeps it in `folder`; yours will want an address instead."""

    def __init__(self, api_key: str, project: str, folder: Path) -> None:
        from {{ cookiecutter.__package }} import example_sdk as sdk

        self.place = f"project {project}"
        self._sdk = sdk
        with self._mapped():
            self._service = sdk.Notebook(api_key, project, folder)

    def put(self, note: Note) -> None:
        """Store a note, in place of the one with its key."""
        with self._mapped():
            self._service.save(note.key, text=note.text, owner=note.owner, at=note.at)

    def search(self, question: str, owner: str | None, limit: int) -> list[Note]:
        """Notes that fit the question, best first; None as `owner` means everybody's."""
        with self._mapped():
            found = self._service.find(question, owner=owner, limit=limit)
        return [Note(page.id, page.owner, page.text, page.at, page.score) for page in found]

    def forget(self, key: str) -> None:
        """Delete the note with this key; none is as well."""
        with self._mapped():
            self._service.delete(key)

    def close(self) -> None:
        """End the SDK's own business."""
        self._service.close()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """The one place where the vendor's errors become the host's."""
        try:
            yield
        except self._sdk.WrongKey as exc:
            raise BackendAuthError(f"the service refuses the key: {exc}", f"set {KEY}") from exc
        except self._sdk.BadRequest as exc:
            raise BackendRefused(f"the service refuses the request: {exc}") from exc
        except self._sdk.NotebookError as exc:
            raise BackendUnavailable(f"the service does not answer: {exc}") from exc
