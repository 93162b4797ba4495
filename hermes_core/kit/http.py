"""JSON over HTTP for providers, with one meaning for every status: what failed becomes an error the manager knows.

httpx does the work; a provider that uses `Api` names it among its dependencies. An SDK's own errors take the same way
through `backend_error`.
"""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from hermes_core.errors import (
    BackendAuthError,
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    ConfigError,
    ProviderError,
)
from hermes_core.kit.text import clip, fold_space
from hermes_core.safety.redact import redact

if TYPE_CHECKING:
    import httpx

TRY_AGAIN = frozenset({408, 425, 429})
"""Statuses that say nothing against the request; so do those from 500 on (RFC 9110, RFC 6585, RFC 8470)."""

LONGEST_DETAIL = 300
"""Characters of a backend's own words that an error quotes."""

_PAGE = 20_000  # characters of an answer that are looked at

_DETAIL_KEYS = ("detail", "message", "error", "error_description", "details", "title", "msg")


@dataclass(frozen=True, slots=True)
class Download:
    """A file as the backend sent it: `type` is its media type in lower case, "" when it says none."""

    content: bytes
    type: str = ""


class Api:
    """The HTTP API of a backend at `url`: one try a call, never a retry, because the manager retries.

    `name` is what errors call the backend and `key` the variable that holds its credentials. `timeout` is in seconds,
    once for connecting and once for the whole answer, also when that drips. Redirects are not followed: they would carry the key elsewhere.
    `meaning` is asked first what an answer that is no success means, by its status and body, for a backend that uses
    a status in its own way; where it returns None, `backend_error` decides.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        meaning: Callable[[int, str], ProviderError | None] | None = None,
    ) -> None:
        self.url = address_of(url, name)
        self.name = name
        self._key = key
        self._timeout = timeout
        self._meaning = meaning
        self._http = client_for(self.url, timeout=timeout, base_url=self.url, headers=dict(headers or {}))

    def get(self, path: str, **options: Any) -> Any:
        """The JSON of GET `path`; options as in `send`."""
        return self.send("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> Any:
        """The JSON that POST `path` answers; options as in `send`."""
        return self.send("POST", path, json=json, **options)

    def put(self, path: str, json: Any = None, **options: Any) -> Any:
        """The JSON that PUT `path` answers; options as in `send`."""
        return self.send("PUT", path, json=json, **options)

    def patch(self, path: str, json: Any = None, **options: Any) -> Any:
        """The JSON that PATCH `path` answers; options as in `send`."""
        return self.send("PATCH", path, json=json, **options)

    def delete(self, path: str, **options: Any) -> Any:
        """The JSON that DELETE `path` answers; options as in `send`."""
        return self.send("DELETE", path, **options)

    def send(self, method: str, path: str, *, timeout: float | None = None, **options: Any) -> Any:
        """One call; its JSON, or None for an answer without a body.

        `options` are httpx's: json, params, headers, files, data, content. None as `json` and parameters that are None
        are not sent. `timeout` replaces the client's. Raises `BackendUnavailable`, `BackendAuthError`,
        `BackendNotFound` or `BackendRefused`.
        """
        if options.get("json") is None:
            options.pop("json", None)
        if options.get("params"):
            options["params"] = {n: v for n, v in options["params"].items() if v is not None}
        return self._read(self._answer(self._http, method, path, timeout or self._timeout, options))

    def download(self, path: str, *, timeout: float | None = None) -> Download:
        """The file at `path`, as it is. One redirect is followed, to another host without our headers: they carry the key.

        Raises as `send` does.
        """
        limit = timeout or self._timeout
        answer = self._answer(self._http, "GET", path, limit, {})
        if answer.has_redirect_location:
            asked = answer.request.url
            target = asked.join(answer.headers["Location"])
            if (target.scheme, target.netloc) == (asked.scheme, asked.netloc):
                answer = self._answer(self._http, "GET", str(target), limit, {})
            else:
                with client_for(str(target), timeout=limit) as stranger:
                    answer = self._answer(stranger, "GET", str(target), limit, {})
        self._refuse_failure(answer)
        media, _, _ = answer.headers.get("Content-Type", "").partition(";")
        return Download(answer.content, media.strip().lower())

    def close(self) -> None:
        """Close the connections. Closing twice is once."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(
        self, client: httpx.Client, method: str, path: str, limit: float, options: dict[str, Any]
    ) -> httpx.Response:
        import httpx

        if {".", ".."} & {*path.partition("?")[0].split("/")}:
            # An id that was put into the path: httpx would resolve it, and a DELETE of one would be one of all.
            raise BackendNotFound(f"{self.name} has nothing at {path!r}")
        try:
            return client.request(method, path, timeout=limit, **options)
        except httpx.TimeoutException as exc:
            raise BackendUnavailable(
                f"{self.name} at {self.url!r} has not answered after {limit:g} s"
            ) from exc
        except httpx.HTTPError as exc:
            where = f"{self.name} at {self.url!r}"
            error = backend_error(None, where, detail=fold_space(str(exc)), key=self._key)
            raise error from (None if isinstance(error, BackendAuthError) else exc)
        except (httpx.InvalidURL, ValueError) as exc:
            raise BackendRefused(f"{self.name}: {method} {path!r} can't be sent ({exc})") from exc

    def _refuse_failure(self, answer: httpx.Response) -> None:
        if not answer.is_success:
            own = self._meaning(answer.status_code, answer.text) if self._meaning else None
            raise own or backend_error(
                answer.status_code,
                f"{self.name} at {self.url!r}",
                detail=detail_of(answer.text),
                key=self._key,
                retry_after=answer.headers.get("Retry-After"),
            )

    def _read(self, answer: httpx.Response) -> Any:
        self._refuse_failure(answer)
        if not answer.content.strip():
            return None
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError) as exc:
            raise strange_answer(f"{self.name} at {self.url!r}", answer.text) from exc


def address_of(url: str, what: str) -> str:
    """The address without a slash at its end, for a backend over HTTP; `what` in the error is the setting that holds it.

    Raises `ConfigError` for what is no address.

    >>> address_of("https://mem0.example/", "'host'")
    'https://mem0.example'
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return url.rstrip("/")
    except ValueError:
        pass  # half of an IPv6 address
    raise ConfigError(f"{what}: {url!r} is no address", "write it as https://host[:port][/path]")


def client_for(url: str, *, timeout: float, **options: Any) -> httpx.Client:
    """An httpx client for what is at `url`, also for an SDK that takes one: `timeout` bounds the whole of an answer, also
    when that drips, and 64 MiB are the most of it. A redirect says in its body where it leads. `options` are httpx's.
    """
    try:
        from hermes_core.kit.bounded import Bounded
    except ModuleNotFoundError as exc:
        raise ConfigError(
            f"the module {exc.name!r} is not installed",
            f"pip install {exc.name}; a provider that uses it names it among its dependencies",
        ) from exc

    # Loading the certificates takes 20 ms, in vain for a server without TLS; without any, nobody else is trusted.
    trust = not url.lower().startswith("http://") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return Bounded(timeout=timeout, verify=trust, **options)
    except (ImportError, ValueError, OSError) as exc:
        raise ConfigError(
            f"no HTTP client can be made: {fold_space(str(exc))}",
            "correct ALL_PROXY, HTTP_PROXY, HTTPS_PROXY or SSL_CERT_FILE in the environment",
        ) from exc


def backend_error(
    status: int | None,
    backend: str,
    *,
    detail: str = "",
    key: str = "",
    retry_after: str | float | None = None,
) -> ProviderError:
    """The error to raise for an HTTP status that is no success; None stands for no answer at all.

    `backend` names who answered, `key` the variable of its credentials. `retry_after` is the header as it came:
    seconds or a date (RFC 9110, 10.2.3).

    >>> backend_error(404, "Mem0", detail="no such memory")
    BackendNotFound("Mem0 answered 404: 'no such memory'", 'is this its address, or was it deleted there?')
    """
    if status is None and "Illegal header value" in detail:
        # The HTTP client quotes the header, and the key is in it.
        said = f"{backend} can't be asked: a header holds what none can"
        return BackendAuthError(said, f"look for line breaks and spaces in {key or 'its credentials'}")
    if status is None:
        said = f" ({detail})" if detail else ""
        return BackendUnavailable(f"{backend} can't be reached{said}", "is it running?")
    said = f"{backend} answered {status}" + (f": {detail!r}" if detail else "")
    if status in (401, 403):
        return BackendAuthError(said, f"check {key}" if key else "check its credentials")
    if status == 402:
        return BackendAuthError(said, "the plan's limit is used up")
    if status in TRY_AGAIN or status >= 500:
        return BackendUnavailable(said, retry_after=seconds_of(retry_after))
    if status in (404, 410):
        return BackendNotFound(said, "is this its address, or was it deleted there?")
    if 300 <= status < 400:
        return BackendUnavailable(said, "the address has moved; set the one that it names")
    return BackendRefused(said)


def strange_answer(backend: str, answer: object) -> BackendUnavailable:
    """The error for an answer that has another form than `backend` gives it: something else may be at its address.

    >>> strange_answer("Mem0", "<html>").message
    "Mem0 answered something else than its API says: '<html>'"
    """
    return BackendUnavailable(
        f"{backend} answered something else than its API says: {clip(fold_space(str(answer)), 80)!r}",
        "is this its address, and not that of a proxy or a login page?",
    )


def detail_of(body: str) -> str:
    """The backend's own words in an error body, in one short line: those of the usual JSON fields, else the text.

    >>> detail_of('{"detail": [{"loc": ["body", "id"], "msg": "field required"}]}')
    'body.id: field required'
    """
    try:
        words = _words(json.loads(body))
    except (ValueError, RecursionError):
        words = body
    return clip(redact(fold_space(words[:_PAGE])), LONGEST_DETAIL)  # half a key does not look like one


def seconds_of(retry_after: str | float | None) -> float | None:
    """A Retry-After header in seconds from now; None when there is none, or none that can be read.

    >>> seconds_of("120"), seconds_of("soon"), seconds_of("inf")
    (120.0, None, None)
    """
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(str(retry_after))
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _words(data: Any) -> str:
    if isinstance(data, Mapping):
        if "loc" in data and "msg" in data and isinstance(data["loc"], list):
            return f"{'.'.join(map(str, data['loc']))}: {data['msg']}"
        for key in _DETAIL_KEYS:
            if data.get(key):
                return _words(data[key])
        return json.dumps(data, ensure_ascii=False)
    if isinstance(data, list):
        return "; ".join(map(_words, data))
    return str(data)
