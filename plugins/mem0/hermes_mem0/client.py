"""The two Mem0 services, and the shape that all three backends share. Every error of theirs becomes the host's here."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from hermes_core import HermesError
from hermes_core.kit import (
    BackendAuthError,
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    Settings,
    clip,
    fold_space,
    import_with,
)
from hermes_core.kit.http import LONGEST_DETAIL, Api, backend_error, detail_of, strange_answer
from hermes_mem0.settings import KEY, mode_of

if TYPE_CHECKING:
    import httpx

ID = "hermes_id"
"""Metadata key of the turn, delegation or entry that a memory comes from: what a second delivery is known by."""

MOST = 1000
"""Memories that one listing asks for at most; the cloud gives them in pages of 100."""

PATIENCE = 50.0
"""Seconds for a write: a server of one's own asks its language model before it answers. Below the hook's 60."""

_MEANS: dict[str, type[HermesError]] = {
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
    """One memory. `key` is what `ID` holds, `when` an ISO time; `score` is None where nothing was asked for."""

    id: str
    text: str
    user: str = ""
    score: float | None = None
    key: str = ""
    session: str = ""
    when: str = ""


class Backend(Protocol):
    """What the provider asks of Mem0. Raises `BackendUnavailable`, `BackendAuthError`, `BackendRefused` and its
    `BackendNotFound`; every call is one try within a bounded time."""

    place: str

    def add(
        self, messages: Sequence[Mapping[str, str]], user: str, metadata: Mapping[str, str], *, infer: bool
    ) -> list[str]:
        """Store what was said, or the facts in it; the ids, [] when Mem0 does the work later."""
        ...

    def search(self, query: str, user: str, limit: int, floor: float, *, rerank: bool = False) -> list[Note]:
        """Memories of `user` that fit, best first, none that scores below `floor`."""
        ...

    def listed(self, user: str, limit: int) -> list[Note]:
        """Memories of `user`, as Mem0 orders them."""
        ...

    def stored(self, user: str, key: str, text: str) -> list[Note]:
        """Memories that came from `key`. `text` is what was said, for a backend that can only be searched."""
        ...

    def get(self, memory_id: str) -> Note:
        """One memory. Raises `BackendNotFound`."""
        ...

    def update(self, memory_id: str, text: str) -> None:
        """Give a memory another text."""
        ...

    def delete(self, memory_id: str) -> None:
        """Forget one memory. Raises `BackendNotFound`."""
        ...

    def close(self) -> None:
        """Close connections and files."""
        ...


def connect(options: Settings, home: Path) -> Backend:
    """The backend that the settings name, asked once whether it is there and takes the key."""
    mode = mode_of(options)
    if mode == "selfhosted":
        return Server(options.host, options.server_key or "", options.timeout, options.agent_id)
    if mode == "platform":
        return Platform(options, home)
    from hermes_mem0.oss import InProcess

    return InProcess(options, home)


def sdk(options: Settings, home: Path) -> Any:
    """The package mem0. It reads the environment when it is imported, and would write to ~/.mem0 and call home."""
    told = {"MEM0_TELEMETRY": str(bool(options.telemetry)), "MEM0_DIR": str(home / "mem0")}
    return import_with("mem0", told)


class Platform:
    """Mem0's cloud through its SDK."""

    def __init__(self, options: Settings, home: Path) -> None:
        import httpx

        self.place = options.api_url
        self._agent = options.agent_id
        self._sdk = sdk(options, home)
        self._http = httpx.Client(timeout=options.timeout, event_hooks={"request": [_be_patient]})
        with ExitStack() as opened, self._mapped():
            opened.callback(self._http.close)
            self._mem0 = self._sdk.MemoryClient(
                api_key=options.api_key, host=options.api_url, client=self._http
            )
            opened.pop_all()

    def add(
        self, messages: Sequence[Mapping[str, str]], user: str, metadata: Mapping[str, str], *, infer: bool
    ) -> list[str]:
        """Store. The cloud answers before it has done so."""
        with self._mapped():
            self._mem0.add(
                list(messages), user_id=user, agent_id=self._agent, infer=infer, metadata=dict(metadata)
            )
        return []

    def search(self, query: str, user: str, limit: int, floor: float, *, rerank: bool = False) -> list[Note]:
        filters = {"user_id": user}
        with self._mapped():
            found = self._mem0.search(query, filters=filters, top_k=limit, threshold=floor, rerank=rerank)
        return above(floor, notes(found))

    def listed(self, user: str, limit: int) -> list[Note]:
        return self._pages({"user_id": user}, limit)

    def stored(self, user: str, key: str, text: str) -> list[Note]:  # noqa: ARG002  for those who must search
        return self._pages({"AND": [{"user_id": user}, {"metadata": {ID: key}}]}, MOST)

    def get(self, memory_id: str) -> Note:
        with self._mapped():
            return note(self._mem0.get(memory_id))

    def update(self, memory_id: str, text: str) -> None:
        with self._mapped():
            self._mem0.update(memory_id, text=text)

    def delete(self, memory_id: str) -> None:
        with self._mapped():
            self._mem0.delete(memory_id)

    def close(self) -> None:
        self._http.close()

    def _pages(self, filters: Mapping[str, Any], limit: int) -> list[Note]:
        found: list[Note] = []
        page = 1
        while len(found) < limit:
            with self._mapped():
                answer = self._mem0.get_all(filters=dict(filters), page=page, page_size=min(limit, 100))
            found += notes(answer)
            if not answer.get("next"):
                break
            page += 1
        return found[:limit]

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """The SDK's errors in the host's words. Its constructor lets those of httpx through."""
        import httpx

        try:
            yield
        except (self._sdk.exceptions.MemoryError, httpx.HTTPError, ValueError) as exc:
            raise translated(exc, f"Mem0 at {self.place!r}", KEY) from exc


class Server:
    """A Mem0 server of one's own; the SDK's client can't talk to it, because it asks for paths of the cloud only."""

    def __init__(self, url: str, key: str, timeout: float, agent: str) -> None:
        self.place = url
        self._agent = agent
        headers = {"X-API-Key": key} if key else {}
        self._api = Api(url, name="the Mem0 server", key=KEY, headers=headers, timeout=timeout)
        with ExitStack() as opened:
            opened.callback(self._api.close)
            self._say_hello()
            opened.pop_all()

    def add(
        self, messages: Sequence[Mapping[str, str]], user: str, metadata: Mapping[str, str], *, infer: bool
    ) -> list[str]:
        """Store. The server answers when it has asked its language model."""
        body = {
            "messages": list(messages),
            "user_id": user,
            "agent_id": self._agent,
            "metadata": dict(metadata),
            "infer": infer,
        }
        return [one.id for one in notes(self._api.post("/memories", body, timeout=PATIENCE))]

    def search(self, query: str, user: str, limit: int, floor: float, *, rerank: bool = False) -> list[Note]:  # noqa: ARG002  the cloud's
        body = {"query": query, "filters": {"user_id": user}, "top_k": limit}
        return above(floor, notes(self._api.post("/search", body)))[:limit]

    def listed(self, user: str, limit: int) -> list[Note]:
        return notes(self._api.get("/memories", params={"user_id": user, "top_k": limit}))[:limit]

    def stored(self, user: str, key: str, text: str) -> list[Note]:
        """Look up by metadata, which only a search can be narrowed to."""
        if not text.strip():
            return [one for one in self.listed(user, MOST) if one.key == key]
        body = {"query": text, "filters": {"user_id": user, ID: key}, "top_k": 50}
        return [one for one in notes(self._api.post("/search", body)) if one.key == key]

    def get(self, memory_id: str) -> Note:
        """Read one; the server answers null for one that is not there."""
        found = self._api.get(f"/memories/{quote(memory_id, safe='')}")
        if found is None:
            raise backend_error(404, "the Mem0 server", detail="no such memory")
        return note(found)

    def _say_hello(self) -> None:
        try:
            self.listed("hermes-hello", 1)
        except BackendNotFound as exc:
            raise BackendRefused(
                f"there is no Mem0 server at {self.place!r}: {exc.message}",
                "set host to its address; Mem0's cloud is mode platform",
            ) from exc

    def update(self, memory_id: str, text: str) -> None:
        self._api.put(f"/memories/{quote(memory_id, safe='')}", {"text": text}, timeout=PATIENCE)

    def delete(self, memory_id: str) -> None:
        self._api.delete(f"/memories/{quote(memory_id, safe='')}")

    def close(self) -> None:
        self._api.close()


def notes(answer: Any) -> list[Note]:
    """The memories of an answer: a list, or one under "results"."""
    found = answer.get("results") if isinstance(answer, Mapping) else answer
    if not isinstance(found, list):
        raise strange_answer("Mem0", answer)
    return [note(one) for one in found]


def note(item: Any) -> Note:
    """One memory as all three backends write it."""
    if not isinstance(item, Mapping) or not item.get("id"):
        raise strange_answer("Mem0", item)
    about = item.get("metadata")
    about = about if isinstance(about, Mapping) else {}
    score = item.get("score")
    return Note(
        str(item["id"]),
        str(item.get("memory") or ""),
        str(item.get("user_id") or ""),
        float(score) if isinstance(score, int | float) else None,
        str(about.get(ID) or ""),
        str(about.get("session") or ""),
        str(item.get("updated_at") or item.get("created_at") or ""),
    )


def above(floor: float, found: Sequence[Note]) -> list[Note]:
    """Those that score `floor` at least, or that have no score."""
    return [one for one in found if one.text and (one.score is None or one.score >= floor)]


def translated(error: BaseException, backend: str, key: str = "") -> HermesError:
    """An error of the SDK, or of what it stands on, in the host's words: by the HTTP status behind it, else by its class.

    Mem0 hides the answer of the service that it asked behind errors of its own, and in places behind a ValueError.
    """
    said = clip(fold_space(str(error)), LONGEST_DETAIL)
    link: BaseException | None = error
    while link is not None:
        answer = getattr(link, "response", None)
        status = getattr(link if answer is None else answer, "status_code", None)
        if isinstance(status, int) and status > 0:
            said = said if answer is None else detail_of(answer.text)
            wish = None if answer is None else answer.headers.get("Retry-After")
            return backend_error(status, _asked(link, backend), detail=said, key=key, retry_after=wish)
        if _address(link):
            return backend_error(None, _asked(link, backend), detail=said)
        link = link.__cause__ or link.__context__
    if isinstance(error, json.JSONDecodeError):
        return strange_answer(backend, said)
    if isinstance(error, ValueError) and "not found" in said:
        return BackendNotFound(said)
    names = [one.__name__ for one in type(error).__mro__]
    meant = next((_MEANS[name] for name in names if name in _MEANS), BackendUnavailable)
    return meant(f"{backend}: {said}")


def _asked(error: BaseException, backend: str) -> str:
    """Who was asked: `backend`, or a model's server that it asked in turn."""
    address = _address(error)
    return backend if address in backend else f"the model server at {address!r}"


def _address(error: BaseException) -> str:
    """The address that an HTTP client's error is about, "" for any other error."""
    request = vars(error).get("request") or vars(error).get("_request")
    url = getattr(request, "url", None)
    return f"{url.scheme}://{url.netloc.decode()}" if url is not None else ""


def _be_patient(request: httpx.Request) -> None:
    """Writes have more time than recall."""
    if request.url.path.endswith("/memories/add/"):
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), PATIENCE / 2)
