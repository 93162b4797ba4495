"""JSON over HTTP for providers: one client, one deadline for each call, one meaning for each status.

`Api` talks to a backend through requests. `httpx_client` makes the client for an SDK, with the same limits. A
failed call raises an error that the manager knows; `backend_error` does the same for an SDK's own errors.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from hermes_core.errors import (
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    ConfigError,
    ProviderError,
)
from hermes_core.kit.causes import MAX_DETAIL_CHARS as MAX_DETAIL_CHARS
from hermes_core.kit.causes import Backend, NothingYet, error_detail, is_absent, retry_after_seconds
from hermes_core.kit.text import fold_space
from hermes_core.safety.redact import redact

if TYPE_CHECKING:
    import httpx
    import requests

__all__ = [
    "Api",
    "Backend",
    "Download",
    "NothingYet",
    "backend_error",
    "base_url",
    "error_detail",
    "httpx_client",
    "is_absent",
    "retry_after_seconds",
    "unexpected_answer",
]

# A backend that sends more is broken or hostile, and must not fill the memory of the host.
MAX_ANSWER_BYTES = 64 * 1024 * 1024

_READ_BYTES = 64 * 1024
# Of a page that came in place of an answer. An error quotes less.
_MAX_PAGE_BYTES = 2000
# Of a download. The archive of a renamed repository takes two, and a mirror in front of it one more.
MAX_REDIRECTS = 5

# A client without one of these sends no key.
_KEY_HEADERS = frozenset({"authorization", "x-api-key", "api-key"})

_BUNDLE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_PROXY_SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")


class Download(Struct, frozen=True):
    """A file as the backend sent it: `type` is its media type in lower case, "" if the backend names none."""

    content: bytes
    type: str = ""


class _Answer(Struct, frozen=True):
    """A whole HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def location(self) -> str:
        """Address that a redirect names, "" if the answer is no redirect."""
        return self.headers.get("Location", "") if 300 <= self.status < 400 else ""


class Api:
    """The HTTP API of a backend.

    A call is tried once and never repeated here, because the manager repeats what may be repeated. Redirects are not
    followed: they would carry the key to another host. Each thread has a session of its own and reuses its connections.

    Args:
        url: Address that all paths begin with.
        name: Name of the backend in errors.
        key: Variable that holds the backend's credentials, for errors.
        setting: Setting that holds the address, for errors.
        headers: Headers of every request.
        timeout: Seconds to connect, and seconds for the whole answer, also if the server sends it byte by byte.
        meaning: Returns the error for the status and body of a failed call, or None to let `Backend.error` decide.
            For a backend that uses a status in its own way. The error gets the remedy of its cause, unless it has one.
        is_model: True for the server of a language model or an embedder.

    Raises:
        ConfigError: `url` is no address, or a proxy or certificate file that the environment names can't be used.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        key: str = "",
        setting: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        meaning: Callable[[int, str], ProviderError | None] | None = None,
        is_model: bool = False,
    ) -> None:
        self.url = base_url(url, name)
        self.name = name
        self._headers = dict(headers or {})
        has_key = any(header.lower() in _KEY_HEADERS for header in self._headers)
        self.backend = Backend(name, self.url, setting, key, has_key or not key, is_model)
        self._timeout = timeout
        self._meaning = meaning
        # requests does not promise that threads may share a session: its cookies and settings have no lock.
        self._of_thread = threading.local()
        self._sessions: list[requests.Session] = []
        _check_environment(self.url)

    def get(self, path: str, **options: Any) -> Any:
        """Send GET `path` and return its JSON; options as in `send`."""
        return self.send("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> Any:
        """Send POST `path` and return its JSON; options as in `send`."""
        return self.send("POST", path, json=json, **options)

    def put(self, path: str, json: Any = None, **options: Any) -> Any:
        """Send PUT `path` and return its JSON; options as in `send`."""
        return self.send("PUT", path, json=json, **options)

    def patch(self, path: str, json: Any = None, **options: Any) -> Any:
        """Send PATCH `path` and return its JSON; options as in `send`."""
        return self.send("PATCH", path, json=json, **options)

    def delete(self, path: str, **options: Any) -> Any:
        """Send DELETE `path` and return its JSON; options as in `send`."""
        return self.send("DELETE", path, **options)

    def send(self, method: str, path: str, *, timeout: float | None = None, **options: Any) -> Any:
        """Send one request and return the JSON of its answer, None for an answer without a body.

        Args:
            method: HTTP method.
            path: Path below `url`.
            timeout: Seconds, in place of the client's.
            options: requests' own: `json`, `params`, `headers`, `files`, `data`. Parameters that are None are not sent.

        Raises:
            BackendUnavailable, BackendAuthError, BackendNotFound, BackendRefused: as `Backend.error` tells them apart.
        """
        answer = self._request(self._session(), method, self._address(path), timeout, options)
        self._raise_for_status(answer)
        if not answer.body.strip():
            return None
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError) as exc:
            raise self.backend.unexpected(answer.text) from exc

    def download(self, path: str, *, timeout: float | None = None) -> Download:
        """Return the file at `path` as it is. Raises as `send` does.

        Up to five redirects are followed, from https to https alone, and to another host without our headers: they
        carry the key. `timeout` limits each of the requests.
        """
        first = address = self._address(path)
        answer = self._request(self._session(), "GET", address, timeout, {})
        for _ in range(MAX_REDIRECTS):
            if not answer.location:
                break
            address = self._redirect_target(address, answer.location)
            if urlsplit(address)[:2] == urlsplit(first)[:2]:
                answer = self._request(self._session(), "GET", address, timeout, {})
            else:
                with _new_session({}) as session:
                    answer = self._request(session, "GET", address, timeout, {})
        if answer.location:
            raise BackendRefused(f"{self.backend.place} redirects a download more than {MAX_REDIRECTS} times")
        self._raise_for_status(answer)
        media, _, _ = answer.headers.get("Content-Type", "").partition(";")
        return Download(answer.body, media.strip().lower())

    def _redirect_target(self, address: str, location: str) -> str:
        """Return the address that a redirect names. Raises `BackendRefused` if a download may not go there."""
        try:
            target = urljoin(address, location)
            parts = urlsplit(target)
            host = parts.hostname
        except ValueError:  # half of an IPv6 address
            host, target = None, location
        else:
            # What comes over http may have been changed on its way, and a person who asked for https trusts it.
            allowed = ("https",) if urlsplit(address).scheme == "https" else ("http", "https")
            if host and parts.scheme in allowed:
                return target
        raise BackendRefused(
            f"{self.backend.place} redirects a download to {redact(target)!r}, which is not followed"
        )

    def close(self) -> None:
        """Close the connections of all threads. A second call does nothing."""
        while self._sessions:
            self._sessions.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _session(self) -> requests.Session:
        """Return the session of this thread."""
        session: requests.Session | None = getattr(self._of_thread, "session", None)
        if session is None:
            session = self._of_thread.session = _new_session(self._headers)
            self._sessions.append(session)
        return session

    def _address(self, path: str) -> str:
        """Return the whole address of a path below ours."""
        segments = re.sub("%2e", ".", path.partition("?")[0], flags=re.IGNORECASE).split("/")
        if {".", ".."} & {*segments}:
            # An id that was put into the path: urllib3 would resolve it, and a DELETE of one would be one of all.
            raise BackendNotFound(f"{self.name} has nothing at {path!r}")
        return f"{self.url}/{path.lstrip('/')}"

    def _request(
        self,
        session: requests.Session,
        method: str,
        address: str,
        timeout: float | None,
        options: dict[str, Any],
    ) -> _Answer:
        """Send one request and read its answer whole."""
        import requests
        import urllib3

        limit = timeout or self._timeout
        for value in (*session.headers.values(), *options.get("headers", {}).values()):
            text = value if isinstance(value, str) else ""
            if text != text.strip() or not text.isascii() or not text.isprintable():
                # requests would quote the header in its error, and the key is in it.
                raise self.backend.unsendable()
        if options.get("params"):
            options["params"] = {n: _as_json_word(v) for n, v in options["params"].items() if v is not None}
        # The timeout of requests is one for each read of the socket. The body is read here, against one deadline.
        deadline = time.monotonic() + limit
        try:
            response = session.request(
                method, address, timeout=limit, stream=True, allow_redirects=False, **options
            )
            try:
                return _Answer(response.status_code, response.headers, _read_body(response.raw, deadline))
            finally:
                response.close()
        except (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError) as exc:
            raise self.backend.late(limit) from exc
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidJSONError) as exc:
            raise BackendRefused(f"{self.name}: {method} {address!r} can't be sent ({exc})") from exc
        except (requests.RequestException, urllib3.exceptions.HTTPError) as exc:
            raise self.backend.error(None, _reason_of(exc)) from exc
        except ValueError as exc:
            raise BackendRefused(f"{self.name}: {method} {address!r} can't be sent ({exc})") from exc

    def _raise_for_status(self, answer: _Answer) -> None:
        if 200 <= answer.status < 300:
            return
        own = self._meaning(answer.status, answer.text) if self._meaning else None
        detail = error_detail(answer.location or answer.text)
        if own is not None:
            raise self.backend.explain(own, answer.status, detail)
        raise self.backend.error(answer.status, detail, answer.headers.get("Retry-After"))


def base_url(url: str, setting: str) -> str:
    """Return the address of a backend without a slash at its end; `setting` names in the error what holds it.

    Raises `ConfigError` if it is no address.

    >>> base_url("https://mem0.example/", "'host'")
    'https://mem0.example'
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return url.rstrip("/")
    except ValueError:
        pass  # half of an IPv6 address
    raise ConfigError(f"{setting}: {redact(url)!r} is no address", "write it as https://host[:port][/path]")


def httpx_client(url: str, *, timeout: float, backend: Backend | None = None, **options: Any) -> httpx.Client:
    """Return an httpx client for an SDK that takes one.

    httpx limits the time of each read. Here `timeout` limits the whole answer, also if the server sends it byte by
    byte, and 64 MiB limit its size. An SDK's errors quote JSON bodies alone: that of a redirect names its target, and
    that of an error page is the page's text.

    Args:
        url: Address that the SDK talks to.
        timeout: Seconds, unless the SDK gives a request another timeout.
        backend: If given, a web page in place of an answer raises its error `unexpected`.
        options: httpx's own.

    Raises:
        ConfigError: httpx is not installed, or a proxy or certificate file that the environment names can't be used.
    """
    try:
        import httpx  # comes with the SDK: the kit does not depend on it
    except ModuleNotFoundError as exc:
        raise ConfigError(
            f"the module {exc.name!r} is not installed",
            f"pip install {exc.name}; a provider that uses it names it among its dependencies",
        ) from exc

    def note_start(request: httpx.Request) -> None:
        request.extensions["started"] = time.monotonic()

    def read_whole(response: httpx.Response) -> None:
        request = response.request
        limit = request.extensions.get("timeout", {}).get("read")
        body = bytearray()
        for part in response.iter_bytes():
            body += part
            if limit is not None and time.monotonic() > request.extensions["started"] + limit:
                raise httpx.ReadTimeout("the answer is too slow", request=request)
            if len(body) > MAX_ANSWER_BYTES:
                raise httpx.ReadError(f"over {MAX_ANSWER_BYTES} bytes", request=request)
        is_page = response.headers.get("Content-Type", "").startswith("text/html")
        if response.has_redirect_location:
            body[:] = json.dumps({"message": response.headers["Location"]}).encode()
        elif is_page and response.is_error:
            page = body[:_MAX_PAGE_BYTES].decode("utf-8", "replace")
            body[:] = json.dumps({"message": page}).encode()
        elif is_page and backend is not None:
            raise backend.unexpected(body[:_MAX_PAGE_BYTES].decode("utf-8", "replace"))
        response._content = bytes(body)  # as httpx's own `read` does

    hooks = options.pop("event_hooks", {})
    # Loading the certificates takes 20 ms, in vain for a server without TLS; an empty context trusts nobody.
    trust = not url.lower().startswith("http://") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return httpx.Client(
            timeout=timeout,
            verify=trust,
            event_hooks={
                "request": [*hooks.get("request", ()), note_start],
                "response": [read_whole, *hooks.get("response", ())],
            },
            **options,
        )
    except (ImportError, ValueError, OSError) as exc:
        raise _unusable_environment(str(exc)) from exc


def backend_error(
    status: int | None,
    backend: str,
    *,
    detail: str = "",
    key: str = "",
    retry_after: str | float | None = None,
) -> ProviderError:
    """Return the error to raise for the HTTP status of a failed call. `Backend.error` also names a setting.

    Args:
        status: HTTP status, None if there was no answer.
        backend: Name of the backend in the message.
        detail: The backend's own words.
        key: Variable that holds the backend's credentials.
        retry_after: Value of the header: seconds or a date (RFC 9110, 10.2.3).

    >>> backend_error(404, "Mem0", detail="no such memory").message
    "Mem0 answered 404: 'no such memory'"
    """
    return Backend(backend, key=key).error(status, detail, retry_after)


def unexpected_answer(backend: str, answer: object) -> BackendUnavailable:
    """Return the error for an answer in another form than the API of `backend` has. `Backend.unexpected` also names a
    setting.

    >>> unexpected_answer("Mem0", "<html>").message
    "Mem0 answered something else than its API says: '<html>'"
    """
    return Backend(backend).unexpected(answer)


def _new_session(headers: Mapping[str, str]) -> requests.Session:
    import requests

    session = requests.Session()
    session.headers.update(headers)
    # Without an `auth` of its own, requests sends a password for this host from ~/.netrc in place of the key.
    session.auth = _leave_unchanged
    # requests reads its own two variables by itself; this one is OpenSSL's, which programs of Python know better.
    session.verify = os.environ.get("SSL_CERT_FILE") or True
    return session


def _leave_unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _read_body(raw: Any, deadline: float) -> bytes:
    """Read a body until its end. Raises `TimeoutError` after the deadline and `ProtocolError` if it is too large."""
    import urllib3

    body = bytearray()
    # `read1` returns what has arrived. `iter_content` waits for a whole block, and the timeout of the socket starts
    # anew with each byte: a server that sends one byte a second would hold us for hours.
    while part := raw.read1(_READ_BYTES, decode_content=True):
        body += part
        if time.monotonic() > deadline:
            raise TimeoutError
        if len(body) > MAX_ANSWER_BYTES:
            raise urllib3.exceptions.ProtocolError(f"over {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _check_environment(url: str) -> None:
    """Raise `ConfigError` if the proxy or the certificates that the environment names for `url` can't be used."""
    from requests.utils import get_environ_proxies, select_proxy

    proxy = select_proxy(url, get_environ_proxies(url)) or ""
    scheme, separator, _ = proxy.partition("://")
    if separator and scheme not in _PROXY_SCHEMES:
        raise _unusable_environment(f"{scheme!r} is no scheme of a proxy")
    bundle = next(filter(None, map(os.environ.get, _BUNDLE_VARIABLES)), "")
    if bundle and url.lower().startswith("https://"):
        try:
            if os.path.isdir(bundle):  # noqa: PTH112
                ssl.create_default_context(capath=bundle)
            else:
                ssl.create_default_context(cafile=bundle)
        except OSError as exc:
            raise _unusable_environment(f"{bundle!r} holds no certificates ({exc})") from exc


def _unusable_environment(reason: str) -> ConfigError:
    return ConfigError(
        f"no HTTP client can be made: {redact(fold_space(reason))}",
        f"correct ALL_PROXY, HTTP_PROXY, HTTPS_PROXY or {' or '.join(_BUNDLE_VARIABLES)} in the environment",
    )


def _reason_of(error: BaseException) -> str:
    """Return the text of the innermost cause. The outer texts quote the address with its query, which is private."""
    while True:
        causes = (getattr(error, "reason", None), *error.args, error.__cause__)
        inner = next((cause for cause in causes if isinstance(cause, BaseException)), None)
        if inner is None:
            return redact(fold_space(str(error)))
        error = inner


def _as_json_word(value: Any) -> Any:
    """Return "true" or "false" for a truth value, which requests would write as Python does."""
    return str(value).lower() if isinstance(value, bool) else value
