"""The two Mem0 services: the cloud through its SDK, a server of one's own over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_core.kit import (
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    Settings,
)
from hermes_core.kit.http import Api, base_url, httpx_client
from hermes_core.kit.http import Backend as Named
from hermes_mem0.backend import (
    ID,
    MAX_LISTED,
    MAX_MEMORIES,
    WRITE_TIMEOUT_S,
    Backend,
    Note,
    above,
    erasable,
    known_id,
    note,
    notes,
    sdk,
    translate_error,
    whole_list,
)
from hermes_mem0.oss import InProcess
from hermes_mem0.settings import KEY, mode_of

if TYPE_CHECKING:
    import httpx

STILL_STORED_S = 5.0
"""Seconds after which to look again for what the cloud was sent before a person is forgotten."""


def connect(options: Settings, home: Path) -> Backend:
    """Return the backend that the settings name, after one call that shows that it is there and takes the key."""
    mode = mode_of(options)
    if mode == "selfhosted":
        return Server(options.host, options.server_key or "", options.timeout, options.agent_id)
    if mode == "platform":
        return Platform(options, home)
    return InProcess(options, home)


class Platform:
    """Mem0's cloud through its SDK."""

    def __init__(self, options: Settings, home: Path) -> None:
        self.place = base_url(options.api_url, "'api_url'")
        self._agent = options.agent_id
        self._sdk = sdk(options, home)
        self._backend = Named("Mem0", self.place, "api_url", KEY, bool(options.api_key))
        patience = {"request": [_extend_write_timeout]}
        self._http = httpx_client(
            self.place, timeout=options.timeout, backend=self._backend, event_hooks=patience
        )
        with ExitStack() as opened, self._sdk_errors():
            opened.callback(self._http.close)
            self._mem0 = self._sdk.MemoryClient(api_key=options.api_key, host=self.place, client=self._http)
            opened.pop_all()

    def add(
        self, messages: Sequence[Mapping[str, str]], user: str, metadata: Mapping[str, str], *, infer: bool
    ) -> list[str]:
        """Store. The cloud answers before it has done so."""
        with self._sdk_errors():
            self._mem0.add(
                list(messages), user_id=user, agent_id=self._agent, infer=infer, metadata=dict(metadata)
            )
        return []

    def search(self, query: str, user: str, limit: int, floor: float, *, rerank: bool = False) -> list[Note]:
        filters = {"user_id": user}
        with self._sdk_errors():
            found = self._mem0.search(query, filters=filters, top_k=limit, threshold=floor, rerank=rerank)
        return above(floor, notes(found, self._backend))

    def listed(self, user: str, limit: int) -> list[Note]:
        return self._pages({"user_id": user}, limit)

    def page(self, user: str, cursor: str) -> tuple[list[Note], str]:
        number = int(cursor or 1)
        with self._sdk_errors():
            answer = self._mem0.get_all(filters={"user_id": user}, page=number, page_size=100)
        more = not isinstance(answer, list) and answer.get("next")
        return notes(answer, self._backend), str(number + 1) if more else ""

    def stored(self, user: str, key: str, text: str) -> list[Note]:  # noqa: ARG002  for those who must search
        return self._pages({"AND": [{"user_id": user}, {"metadata": {ID: key}}]}, MAX_MEMORIES)

    def get(self, memory_id: str) -> Note:
        with self._sdk_errors():
            return note(self._mem0.get(known_id(memory_id)), self._backend)

    def update(self, memory_id: str, text: str) -> None:
        with self._sdk_errors():
            self._mem0.update(known_id(memory_id), text=text)

    def delete(self, memory_id: str) -> None:
        with self._sdk_errors():
            self._mem0.delete(known_id(memory_id))

    def erase(self, user: str, session: str) -> tuple[int, tuple[str, ...]]:
        found = erasable(self.listed(user, MAX_LISTED), session)
        if session:
            for one in found:
                self.delete(one.id)
        elif found:
            with self._sdk_errors():
                self._mem0.delete_all(user_id=user)
        # The cloud stores after it has answered: what it was sent last may have arrived meanwhile.
        if erasable(self.listed(user, MAX_LISTED), session):
            raise BackendUnavailable(
                f"Mem0 at {self.place!r} still stores memories of {user!r}", retry_after=STILL_STORED_S
            )
        return len(found), ()

    def close(self) -> None:
        self._http.close()

    def _pages(self, filters: Mapping[str, Any], limit: int) -> list[Note]:
        found: list[Note] = []
        page = 1
        while len(found) < limit:
            with self._sdk_errors():
                answer = self._mem0.get_all(filters=dict(filters), page=page, page_size=min(limit, 100))
            here = notes(answer, self._backend)
            found += here
            if not here or isinstance(answer, list) or not answer.get("next"):
                break
            page += 1
        return found[:limit]

    @contextmanager
    def _sdk_errors(self) -> Iterator[None]:
        """Turn the SDK's errors into the host's. The SDK's constructor lets those of httpx through."""
        import httpx

        try:
            yield
        except (self._sdk.exceptions.MemoryError, httpx.HTTPError, ValueError) as exc:
            raise translate_error(exc, self._backend) from exc
        except (AttributeError, TypeError, LookupError) as exc:  # the SDK trusts the form of an answer
            raise self._backend.unexpected(exc) from exc


class Server:
    """A Mem0 server of one's own; the SDK's client can't talk to it, because it asks for paths of the cloud only."""

    def __init__(self, url: str, key: str, timeout: float, agent: str) -> None:
        self.place = url
        self._agent = agent
        headers = {"X-API-Key": key} if key else {}
        self._api = Api(
            url, name="the Mem0 server", key=KEY, setting="host", headers=headers, timeout=timeout
        )
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
        return [
            one.id
            for one in notes(self._api.post("/memories", body, timeout=WRITE_TIMEOUT_S), self._api.backend)
        ]

    def search(self, query: str, user: str, limit: int, floor: float, *, rerank: bool = False) -> list[Note]:  # noqa: ARG002  the cloud's
        body = {"query": query, "filters": {"user_id": user}, "top_k": limit}
        return above(floor, notes(self._api.post("/search", body), self._api.backend))[:limit]

    def listed(self, user: str, limit: int) -> list[Note]:
        return notes(self._api.get("/memories", params={"user_id": user, "top_k": limit}), self._api.backend)[
            :limit
        ]

    def page(self, user: str, cursor: str) -> tuple[list[Note], str]:  # noqa: ARG002  there is one page
        return whole_list(self.listed(user, MAX_LISTED))

    def stored(self, user: str, key: str, text: str) -> list[Note]:
        """Look up by metadata, which only a search can be narrowed to."""
        if not text.strip():
            return [one for one in self.listed(user, MAX_LISTED) if one.key == key]
        body = {"query": text, "filters": {"user_id": user, ID: key}, "top_k": 50}
        return [one for one in notes(self._api.post("/search", body), self._api.backend) if one.key == key]

    def get(self, memory_id: str) -> Note:
        """Read one; the server answers null for one that is not there."""
        found = self._api.get(f"/memories/{known_id(memory_id)}")
        if found is None:
            raise self._api.backend.error(404, "no such memory")
        return note(found, self._api.backend)

    def _say_hello(self) -> None:
        try:
            self.listed("hermes-hello", 1)
        except BackendNotFound as exc:
            raise BackendRefused(
                f"there is no Mem0 server at {self.place!r}: {exc.message}",
                f"set host to its address, in place of {self.place!r}; Mem0's cloud is mode platform",
            ) from exc

    def update(self, memory_id: str, text: str) -> None:
        self._api.put(f"/memories/{known_id(memory_id)}", {"text": text}, timeout=WRITE_TIMEOUT_S)

    def delete(self, memory_id: str) -> None:
        self._api.delete(f"/memories/{known_id(memory_id)}")

    def erase(self, user: str, session: str) -> tuple[int, tuple[str, ...]]:
        found = erasable(self.listed(user, MAX_LISTED), session)
        if found and not session:
            self._api.delete("/memories", params={"user_id": user}, timeout=WRITE_TIMEOUT_S)
        for one in found if session else ():
            self.delete(one.id)
        kept = (
            f"the server at {self.place!r} keeps the text of each deleted memory of {user!r} in its history"
            " (HISTORY_DB_PATH there, by default history/history.db): delete those rows, or the file"
        )
        return len(found), (kept,) if found else ()

    def close(self) -> None:
        self._api.close()


def _extend_write_timeout(request: httpx.Request) -> None:
    """Give a write more time than a recall."""
    if request.url.path.endswith("/memories/add/"):
        request.extensions["timeout"] = dict.fromkeys(
            ("connect", "read", "write", "pool"), WRITE_TIMEOUT_S / 2
        )
