"""The Hindsight server through its SDK. Everything of the SDK stands here, and its errors in the host's words.

Written as coroutines because the SDK is: its session of aiohttp belongs to the loop that made it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from hermes_core import HermesError
from hermes_core.kit import BackendRefused, storable
from hermes_core.kit.http import Backend, NothingYet, base_url, error_detail
from hermes_hindsight.settings import KEY

Answer = TypeVar("Answer")

MAX_CALL_S = 55.0
"""Seconds; the host gives a write or a tool 60."""

IN_ORDER = (0, 9, 2)
"""First server that takes an operation id and works off one document's in order; an older one loses some of a burst."""

APPENDS = (0, 5, 0)
"""First server that appends to a document; an older one would replace it."""

UNDER_WAY = frozenset({"pending", "processing"})
"""States of an operation that may still change its document."""


class Client:
    """A server at `url`. One try a call, because the host retries; `timeout` is in seconds.

    `unreachable` is called when nobody answers at all, before the error is raised.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        timeout: float = MAX_CALL_S,
        unreachable: Callable[[], None] = lambda: None,
    ) -> None:
        from hindsight_client import Hindsight

        self.url = base_url(url, "'api_url'")
        self.backend = Backend("Hindsight", self.url, "api_url", KEY, bool(api_key))
        self.timeout = min(timeout, MAX_CALL_S)
        self._unreachable = unreachable
        self._in_order: bool | None = None
        self._sdk = Hindsight(
            self.url,
            api_key=api_key or None,
            timeout=MAX_CALL_S,
            max_attempts=1,
            user_agent="hermes-memory",
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._sdk.aclose()  # type: ignore[no-untyped-call]

    # -------------------------------------------------------------- memories

    async def retain(
        self, bank: str, item: Mapping[str, Any], *, document: str, operation: str | None = None
    ) -> None:
        """Keep `item` in a document: `{content, tags, ...}`, "replace" or "append" as its `update_mode`.

        With an `operation`, a UUID, the server takes it at once, works later, and takes it only once under that id.
        Without, it is done when this returns.
        """
        await self._ask(
            self._sdk.aretain_batch(
                _segment(bank),
                [{**item, "content": storable(item["content"])}],
                document_id=_segment(document),
                retain_async=operation is not None,
                operation_id=operation,
            )
        )

    async def recall(
        self, bank: str, query: str, *, within: float | None = None, **options: Any
    ) -> Sequence[Any]:
        """Return memories that fit, best first: objects with `text`, `type`, `scores`, ... A new bank has none."""
        with NothingYet():
            found = await self._ask(self._sdk.arecall(_segment(bank), storable(query), **options), within)
            return list(found.results)
        return []

    async def reflect(self, bank: str, query: str, *, within: float | None = None, **options: Any) -> str:
        """Return the server's own answer from its memories, "" for a new bank. A server without a model refuses it."""
        with NothingYet():
            answer = await self._ask(self._sdk.areflect(_segment(bank), storable(query), **options), within)
            return str(answer.text)
        return ""

    # -------------------------------------------------- documents, operations

    async def document(self, bank: str, document: str) -> str | None:
        """Return the text of a document, None if there is none."""
        with NothingYet():
            got = await self._ask(self._sdk.documents.get_document(_segment(bank), _segment(document)))
            return str(got.original_text or "")
        return None

    async def documents(self, bank: str, tags: Sequence[str]) -> list[str]:
        """Return the ids of the documents with all these tags."""
        with NothingYet():
            listed = await self._ask(
                self._sdk.documents.list_documents(
                    _segment(bank), tags=list(tags), tags_match="all_strict", limit=1000
                )
            )
            return [item.id for item in listed.items]
        return []

    async def page(self, bank: str, offset: int, limit: int) -> tuple[list[Any], int]:
        """Return some documents of a bank, objects with `id` and times, and the number of all."""
        with NothingYet():
            listed = await self._ask(
                self._sdk.documents.list_documents(_segment(bank), limit=limit, offset=offset)
            )
            return list(listed.items), int(listed.total)
        return [], 0

    async def forget(self, bank: str, document: str) -> None:
        """Delete a document with all that was learned from it. One that is not there is no error."""
        with NothingYet():
            await self._ask(self._sdk.documents.delete_document(_segment(bank), _segment(document)))

    async def forget_bank(self, bank: str) -> None:
        """Delete a bank with all that is in it. One that is not there is no error."""
        with NothingYet():
            await self._ask(self._sdk.adelete_bank(_segment(bank)))

    async def is_busy(self, bank: str) -> bool:
        """Return whether the server still works on data that a bank was sent."""
        return any([await self.operations(bank, state, 1) for state in sorted(UNDER_WAY)])

    async def is_processing(self, bank: str, operation: str) -> bool:
        """Return whether the server still works on the data with this id."""
        with NothingYet():
            got = await self._ask(self._sdk.operations.get_operation_status(_segment(bank), operation))
            return got.status in UNDER_WAY
        return False

    async def operations(self, bank: str, status: str | None = None, limit: int = 20) -> Sequence[Any]:
        """Return the server's operations on what it received, the newest first."""
        with NothingYet():
            listed = await self._ask(
                self._sdk.operations.list_operations(
                    _segment(bank), status=status, limit=limit, exclude_parents=True
                )
            )
            return list(listed.operations)
        return []

    async def retry(self, bank: str, operation: str) -> None:
        """Run a failed operation of the server again."""
        await self._ask(self._sdk.operations.retry_operation(_segment(bank), operation))

    # ---------------------------------------------------------- server, bank

    async def version(self) -> str:
        """Return the version of the server."""
        return await self._ask(self._version())

    async def in_order(self) -> bool:
        """Return whether the server keeps the order of background work, see `IN_ORDER`. It is asked once."""
        if self._in_order is None:
            told = await self.version()
            version = tuple(int(part) for part in re.findall(r"\d+", told)[:3]) or IN_ORDER
            if version < APPENDS:
                raise BackendRefused(f"Hindsight {told} can't append to a document", "upgrade the server")
            self._in_order = version >= IN_ORDER
        return self._in_order

    async def stats(self, bank: str) -> Any:
        """Return counts of a bank, None for a new one."""
        with NothingYet():
            return await self._ask(self._sdk.banks.get_agent_stats(_segment(bank)))
        return None

    async def configure(self, bank: str, config: Mapping[str, Any]) -> None:
        """Set mission and dispositions of a bank, making it if need be."""
        await self._ask(self._sdk.aupdate_bank_config(_segment(bank), **config))

    # ---------------------------------------------------------------- errors

    async def _version(self) -> str:
        # Read by hand: the SDK's own reading refuses what servers before it answer.
        from hindsight_client_api.exceptions import ApiException

        answer = await self._sdk.monitoring.get_version_without_preload_content()
        body = await answer.read()
        if answer.status != 200:
            refused = ApiException(status=answer.status, body=body.decode("utf-8", "replace"))
            refused.headers = answer.headers
            raise refused
        return str(json.loads(body)["api_version"])

    async def _ask(self, answer: Awaitable[Answer], within: float | None = None) -> Answer:
        import aiohttp
        from hindsight_client_api.exceptions import OpenApiException

        self._refuse_redirect()
        limit = min(within or self.timeout, self.timeout)
        try:
            async with asyncio.timeout(limit):
                answered = await answer
        except TimeoutError as exc:
            raise self.backend.late(limit) from exc
        except (OpenApiException, aiohttp.ClientError, OSError) as exc:
            error = translate_error(exc, self.backend)
            if isinstance(exc, aiohttp.ClientConnectionError):
                self._unreachable()
            raise error from exc
        except (ValueError, TypeError, AttributeError, LookupError) as exc:
            # json and pydantic, inside the SDK, on a body that is not what was promised.
            raise self.backend.unexpected(exc) from exc
        if answered is None:
            raise self.backend.unexpected(None)
        return answered

    def _refuse_redirect(self) -> None:
        """Refuse redirects. The SDK would send the text to another server, or turn a write into a read."""
        import aiohttp

        session = self._sdk.documents.api_client.rest_client.pool_manager
        if not session.trace_configs:
            watch = aiohttp.TraceConfig()
            watch.on_request_redirect.append(self._moved)
            watch.freeze()
            session.trace_configs.append(watch)

    async def _moved(self, session: object, context: object, request: Any) -> None:  # noqa: ARG002  aiohttp's form
        answer = request.response
        answer.close()
        raise self.backend.error(answer.status, error_detail(answer.headers.get("Location", "")))


def translate_error(error: Exception, backend: Backend | str) -> HermesError:
    """Return an error of the SDK, or of the HTTP client below it, as the host's error; `backend` may be an address."""
    import aiohttp
    from aiohttp.http_exceptions import HttpProcessingError
    from hindsight_client_api.exceptions import ApiException

    if isinstance(backend, str):
        backend = Backend("Hindsight", backend, "api_url", KEY)
    headers = getattr(error, "headers", None) or {}
    if isinstance(error, ApiException) and error.status:
        return backend.error(error.status, error_detail(error.body or ""), headers.get("Retry-After"))
    if isinstance(error, aiohttp.ClientResponseError) and isinstance(error.__cause__, HttpProcessingError):
        # What can't be read as HTTP has the status 400 there, and the server refused nothing.
        said = str(error.__cause__)
        return backend.unexpected(said)
    if isinstance(error, aiohttp.ClientResponseError) and error.status:
        return backend.error(error.status, "", headers.get("Retry-After"))
    if isinstance(error, aiohttp.InvalidURL):
        return BackendRefused(f"{backend.name}: {error} is no address", "correct api_url")
    if isinstance(error, aiohttp.ClientError | OSError):
        return backend.error(None, str(error) or type(error).__name__)
    return backend.unexpected(error)


def _segment(name: str) -> str:
    """`name` as a part of a path: the SDK escapes all but dots, and ".." would lead to another call."""
    clean = storable(name)
    return f"_{clean}" if set(clean) <= {"."} else clean
