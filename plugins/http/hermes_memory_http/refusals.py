"""Problem details (RFC 9457): what a client gets for a refused request, with the remedy that the error has everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from msgspec import Struct
from starlette.responses import Response

from hermes_core.errors import (
    ConfigError,
    CuratedMemoryError,
    HermesError,
    ModelError,
    OutboxError,
    ProviderError,
    SessionError,
    StorageError,
)
from hermes_core.kit import redact

ERRORS_PAGE = "https://github.com/hermes-memory/hermes-memory/blob/main/docs/reference/errors.md"
PROBLEM_TYPE = "application/problem+json"

# The first class that fits decides.
_STATUSES: tuple[tuple[type[HermesError], int], ...] = (
    (SessionError, 422),
    (CuratedMemoryError, 422),
    (StorageError, 503),
    (OutboxError, 503),
    (ProviderError, 503),
    (ModelError, 503),
    (ConfigError, 503),
)

RETRY_AFTER_S = 2


class Problem(Struct, frozen=True):
    """A refused request.

    Attributes:
        type: Address of the page on this kind of error; "about:blank" if the status says all.
        title: Name of the error.
        status: The HTTP status.
        detail: What is wrong, with the value.
        remedy: What to do.
    """

    type: str
    title: str
    status: int
    detail: str
    remedy: str


class RequestRefused(HermesError):
    """A request that this server refuses before the memory sees it.

    Attributes:
        status: The HTTP status.
        headers: Further headers of the answer.
    """

    def __init__(
        self, status: int, message: str, remedy: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, remedy)
        self.status, self.headers = status, dict(headers or {})


def problem_of(error: HermesError) -> Problem:
    """Return the details of an expected failure, without secrets."""
    detail, remedy = redact(error.message), redact(error.remedy)
    if isinstance(error, RequestRefused):
        return Problem("about:blank", HTTPStatus(error.status).phrase, error.status, detail, remedy)
    name = type(error).__name__
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    return Problem(f"{ERRORS_PAGE}#{name.lower()}", name, status, detail, remedy)


def refusal(error: HermesError) -> Response:
    """Return the answer to a request that failed."""
    problem = problem_of(error)
    headers = error.headers if isinstance(error, RequestRefused) else {}
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers = {"retry-after": str(RETRY_AFTER_S), **headers}
    return Response(msgspec.json.encode(problem), problem.status, headers, PROBLEM_TYPE)
