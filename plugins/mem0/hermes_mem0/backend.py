"""The part that the three ways to Mem0 share: their calls, their answers, and the errors of the package mem0."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace

from hermes_core.errors import ProviderError
from hermes_core.kit import (
    BackendAuthError,
    BackendNotFound,
    BackendRefused,
    Settings,
    clip,
    fold_space,
    import_with,
    local_day,
)
from hermes_core.kit.http import MAX_DETAIL_CHARS, error_detail
from hermes_core.kit.http import Backend as Named

MEM0 = Named("Mem0")

ID = "hermes_id"
"""Metadata key of the turn, delegation or entry that a memory comes from: what a second delivery is known by."""

SAID = "said_at"
"""Metadata key of when a turn was said, which may be long before Mem0 is told."""

RECORD = "hermes_record"
"""Metadata key of what another provider knew of an imported memory, as `kit.pack_record` writes it."""

MAX_MEMORIES = 1000
"""Memories that one listing asks for at most; the cloud gives them in pages of 100."""

MAX_LISTED = 50_000
"""Memories of one person among which those of a turn are looked for, where nothing narrows the listing."""

WRITE_TIMEOUT_S = 50.0
"""Seconds for a write: a server of one's own asks its language model before it answers. Below the hook's 60."""

_MEANS: dict[str, type[ProviderError]] = {
    "AuthenticationError": BackendAuthError,
    "MemoryNotFoundError": BackendNotFound,
    "ValidationError": BackendRefused,
    "MemoryQuotaExceededError": BackendRefused,
    "ConfigurationError": BackendRefused,
    "DependencyError": BackendRefused,
    "ImportError": BackendRefused,
    "ValueError": BackendRefused,
}
"""What an error without an HTTP status means, by the name of its class or a base of it; any other: try again later."""


# Without a handler of its own, what the SDK has to say would be printed on the person's terminal.
logging.getLogger("mem0").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Note:
    """One memory. `key` is what `ID` holds, `when` an ISO time, as is `said` for a turn that nobody has corrected since;
    `score` is None where nothing was asked for."""

    id: str
    text: str
    user: str = ""
    score: float | None = None
    key: str = ""
    session: str = ""
    when: str = ""
    said: str = ""
    made: str = ""
    record: str = ""

    @property
    def day(self) -> str:
        """The date for people and models."""
        return local_day(self.said or self.when)


class Backend(Protocol):
    """The provider's calls to Mem0.

    Every call is one try within a bounded time. It raises `BackendUnavailable`, `BackendAuthError`, or
    `BackendRefused` with its `BackendNotFound`.
    """

    place: str

    def add(
        self, messages: Sequence[Mapping[str, str]], user: str, metadata: Mapping[str, str], *, infer: bool
    ) -> list[str]:
        """Store what was said, or the facts in it; the ids, [] when Mem0 does the work later."""
        ...

    def search(self, query: str, user: str, limit: int, floor: float, *, rerank: bool = False) -> list[Note]:
        """Return memories of `user` that fit, best first, none with a score below `floor`."""
        ...

    def listed(self, user: str, limit: int) -> list[Note]:
        """Return memories of `user` in Mem0's order."""
        ...

    def page(self, user: str, cursor: str) -> tuple[list[Note], str]:
        """Return a page of all memories of `user`, and where the next one begins; "" behind the last."""
        ...

    def stored(self, user: str, key: str, text: str) -> list[Note]:
        """Return the memories that came from `key`. A backend without such a filter searches for `text`,
        the stored words.
        """
        ...

    def get(self, memory_id: str) -> Note:
        """Return one memory. Raises `BackendNotFound`."""
        ...

    def update(self, memory_id: str, text: str) -> None:
        """Give a memory another text."""
        ...

    def delete(self, memory_id: str) -> None:
        """Forget one memory. Raises `BackendNotFound`."""
        ...

    def erase(self, user: str, session: str) -> tuple[int, tuple[str, ...]]:
        """Forget all memories of `user`, or those of one session of theirs, and what the SDK keeps of them.

        Return their number, and a sentence for what Mem0 keeps all the same.

        Args:
            session: "" for all of them. Else a session: the user is also that of other people.
        """
        ...

    def close(self) -> None:
        """Close connections and files."""
        ...


def sdk(options: Settings, home: Path) -> Any:
    """Import the package mem0. Without these variables it would write to ~/.mem0 and send telemetry."""
    told = {"MEM0_TELEMETRY": str(bool(options.telemetry)), "MEM0_DIR": str(home / "mem0")}
    return import_with("mem0", told)


def whole_list(found: list[Note]) -> tuple[list[Note], str]:
    """Return a listing as the one page that it is. Raises `BackendRefused` if it may have been cut."""
    if len(found) >= MAX_LISTED:
        raise BackendRefused(
            f"there are more than {MAX_LISTED:,} memories of one user, and a listing gives no more",
            "use Mem0's own export",
        )
    return found, ""


def notes(answer: Any, asked: Named = MEM0) -> list[Note]:
    """Return the memories of an answer of `asked`: a list, or the list under "results"."""
    found = answer.get("results") if isinstance(answer, Mapping) else answer
    if not isinstance(found, list):
        raise asked.unexpected(answer)
    return [note(one, asked) for one in found]


def note(item: Any, asked: Named = MEM0) -> Note:
    """Return one memory, which all three backends write in one form."""
    if not isinstance(item, Mapping) or not item.get("id"):
        raise asked.unexpected(item)
    about = item.get("metadata")
    about = about if isinstance(about, Mapping) else {}
    score = item.get("score")
    made, changed = str(item.get("created_at") or ""), str(item.get("updated_at") or "")
    return Note(
        str(item["id"]),
        str(item.get("memory") or ""),
        str(item.get("user_id") or ""),
        float(score) if isinstance(score, int | float) else None,
        str(about.get(ID) or ""),
        str(about.get("session") or ""),
        changed or made,
        str(about.get(SAID) or "") if changed[:10] in ("", made[:10]) else "",
        made,
        str(about.get(RECORD) or ""),
    )


def known_id(memory_id: str) -> str:
    """Return the id as part of a path. Raises `BackendNotFound` for a text that is none: "." would lead to all
    memories.
    """
    try:
        return str(uuid.UUID(memory_id))
    except ValueError:
        raise BackendNotFound(f"there is no memory {memory_id!r}") from None


def erasable(found: Sequence[Note], session: str) -> list[Note]:
    """Return the memories of one session, or all of them if `session` is ""."""
    return [one for one in found if session in ("", one.session)]


def above(floor: float, found: Sequence[Note]) -> list[Note]:
    """Return the memories with a score of at least `floor`, or without a score."""
    return [one for one in found if one.text and (one.score is None or one.score >= floor)]


def translate_error(error: BaseException, backend: Named | str, model: Named | None = None) -> ProviderError:
    """Return an error of the SDK, or of a library below it, as the host's error.

    The HTTP status behind it decides, else its class. Mem0 hides the answer of the service behind errors of its
    own, and in some places behind a ValueError.

    Args:
        backend: The service, or the store of the process; its name is enough.
        model: The settings of the models that this process asks itself; None if the service asks them.
    """
    backend = Named(backend) if isinstance(backend, str) else backend
    said = clip(fold_space(str(error)), MAX_DETAIL_CHARS)
    link: BaseException | None = error
    while link is not None:
        answer = getattr(link, "response", None)
        status = getattr(link if answer is None else answer, "status_code", None)
        asked = _asked(link, backend, model)
        if isinstance(status, int) and status > 0:
            said = said if answer is None else error_detail(answer.text)
            wish = None if answer is None else answer.headers.get("Retry-After")
            return asked.error(status, said, wish)
        if _address(link):
            return asked.error(None, str(link.__cause__ or said))
        link = link.__cause__ or link.__context__
    if isinstance(error, json.JSONDecodeError):
        return (model or backend).unexpected(said)
    if "org_id and project_id" in said:  # no answer to the key, but JSON
        return backend.unexpected(said)
    names = [one.__name__ for one in type(error).__mro__]
    if model is not None and ("LLMError" in names or "EmbeddingError" in names):
        return model.unexpected(said)
    if isinstance(error, ValueError) and "not found" in said:
        return BackendNotFound(said)
    meant = next((_MEANS[name] for name in names if name in _MEANS), None)
    if meant is None:
        return backend.error(None, said)
    return backend.explain(meant(f"{backend.place}: {said}"), 400, said)


def _asked(error: BaseException, backend: Named, model: Named | None) -> Named:
    """Return the service that was asked: `backend`, or a model's server that was asked in turn."""
    address = _address(error)
    if address in backend.url:
        return backend
    return replace(model or backend, name="the model server", url=address, is_model=True)


def _address(error: BaseException) -> str:
    """Return the address in an HTTP client's error, "" for any other error."""
    request = vars(error).get("request") or vars(error).get("_request")
    url = getattr(request, "url", None)
    return f"{url.scheme}://{url.netloc.decode()}" if url is not None else ""
