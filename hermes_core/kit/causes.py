"""Causes of a backend's failures: how each is recognised, and one remedy for each.

A provider names its backend once, as a `Backend`. Its errors then say what to do about this cause, with the address and
the name of the setting.
"""

from __future__ import annotations

import errno
import json
import math
import re
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from hermes_core.errors import (
    BackendAuthError,
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    ProviderError,
)
from hermes_core.kit.text import clip, fold_space
from hermes_core.safety.redact import redact

Error = TypeVar("Error", bound=ProviderError)

# An error is one line in status, in the log and in a turn's problems; a web server's error page is not.
MAX_DETAIL_CHARS = 300

# Of an error body that are searched for a message: redacting megabytes would take seconds.
_MAX_PARSED_CHARS = 20_000

# These do not blame the request, as those from 500 on (RFC 9110, RFC 6585, RFC 8470): the same call may work later.
TEMPORARY_STATUSES = frozenset({408, 425, 429})

# With these a proxy or a login page keeps a request from the server. A server's own page about a request has another.
_PAGE_STATUSES = frozenset({200, 203, 401, 403, 405, 406, 451})

_DETAIL_KEYS = ("detail", "message", "error", "error_description", "details", "title", "msg")

REMEDIES: Mapping[str, str] = {
    "key missing": "check {key}: it is empty, and {place} asks for a key",
    "key refused": "check {key}: the key is wrong, expired or revoked at {place}",
    "no rights": "give the key in {key} the rights for this at {place}, or set another one",
    "quota": "the plan's limit is used up: raise it at {place} for the account of {key}, or wait until it is renewed",
    "wait": "wait {wait}: {place}, of {setting}, limits its requests; the next try comes by itself",
    "certificate": "name the file of the authority that signed the certificate of {place} in SSL_CERT_FILE, or correct "
    "the host in {setting}",
    "scheme": "correct http:// or https:// and the port in {setting}: {place} speaks the other one of the two",
    "port": "is it running? start it, or correct host and port of {place} in {setting}",
    "host": "correct the host of {place} in {setting}, or see that this machine is online",
    "closed": "is it running well? see the log of {place}, and whether {setting} needs https:// in place of http://",
    "late": "see whether {place} has too much to do, or whether {setting} names a host that never answers",
    "page": "is this its address, and not that of a proxy or a login page? a web page answers at {place}: sign in there, name "
    "the host in NO_PROXY, or correct {setting}",
    "gateway": "start the server behind the proxy at {place}, or correct {setting}",
    "stranger": "is this its address, and not that of a proxy or a login page? another program answers at {place}: correct "
    "{setting}",
    "no route": "is this its address, or was it deleted there? {place} has no such path: correct {setting} if another program "
    "answers there",
    "absent": "is this its address, or was it deleted there? {setting} names {place}",
    "moved": "the address has moved; set {setting} to the one that {place} names",
    "model": "see the settings of the language model and the embedder behind {name}: {place}, of {setting}, got no good "
    "answer from one of them",
    "disk": "free space on the disk of {place}, of {setting}, or make it writable",
    "fault": "see the log of {place}, of {setting}: its server failed",
    "request": "see what {place}, of {setting}, refuses; it or this package may be too old for the other",
}
"""The table: what to do, by cause. `{place}` is the backend with its address, `{setting}` and `{key}` name settings."""

_DISK = re.compile(
    r"no space left|disk (?:is |quota |i/o )?(?:full|exceeded|error)|\bENOSPC\b|read-only file ?system|readonly database|"
    r"read-only database|could not extend|insufficient storage|out of disk",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"\bembed\w*|\bLLMs?\b|language model|\bmodel\b.{0,40}\b(?:not found|unavailable|failed|error|connected|configured)|"
    r"\b(?:no|the|its|chat|inference) model\b|\bmodel server|chat completion|\bopenai\b|\banthropic\b|\bollama\b|"
    r"\bgemini\b|\bopenrouter\b|\bvllm\b|\brerank\w*|\bcross-encoder|no provider connected",
    re.IGNORECASE,
)
_LIMIT = re.compile(r"rate.?limit|too many requests|quota exceeded|\b429\b", re.IGNORECASE)
_WAIT = re.compile(r"(?:retry|try again|wait)\D{0,20}?(\d+(?:\.\d+)?) ?s(?:ec|\b)", re.IGNORECASE)
_PAGE = re.compile(r"^\W*<(?:!doctype html|html|head|body|title|h1)\b", re.IGNORECASE)
_PAGE_WITHIN = re.compile(r"<!doctype html|<html\b|text/html", re.IGNORECASE)
_LOGIN = re.compile(r"log-?in|sign-?in|\bsso\b|\bsaml|oauth|\bauth\b|captive|portal", re.IGNORECASE)
# A server that has no such route says so in one of these ways; one that has the route names what it lacks.
_NO_ROUTE = re.compile(
    r"^\W*(?:404|error|:|\s)*(?:(?:page |file )?not found|no (?:such )?(?:route|endpoint|handler)\b.*|cannot "
    r"(?:get|post|put|patch|delete)\b.*|(?:route|endpoint|path|url)\b.*not found.*|unknown (?:route|endpoint|path|url)\b.*"
    r"|the requested url .*)?\W*$",
    re.IGNORECASE,
)

_NETWORK: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (cause, re.compile(pattern, re.IGNORECASE))
    for cause, pattern in (
        ("certificate", r"certificate.?verify.?failed|CertificateError|hostname mismatch|certificate has expired|self.signed"),
        (
            "scheme",
            r"wrong.version.number|record.layer.failure|unknown.protocol|http.request\b.*ssl|https?.proxy.request|illegal "
            r"status line|BadStatusLine|bad status line|invalid http|http request to an https|sent to https port|"
            r"bad http version|EXPECTED_.*HTTP",
        ),
        ("page", r"ProxyError|\bproxy\b.*(?:refused|failed|error|40\d)|tunnel connection failed|\b407\b"),
        (
            "host",
            r"name or service not known|nodename nor servname|getaddrinfo|name resolution|no address associated|"
            r"failed to resolve|name does not resolve|network is unreachable|no route to host|\bDNS\b",
        ),
        ("late", r"time[d ]*out|timeout"),
        ("port", r"connection refused|actively refused|connect call failed|errno 111|all connection attempts failed"),
        ("disk", _DISK.pattern),
        (
            "closed",
            r"without (?:sending a |any )?response|server disconnected|connection reset|reset by peer|connection aborted|"
            r"connection closed|broken pipe|eof occurred|unexpected.eof|incomplete",
        ),
    )
)  # fmt: skip


class Backend(Struct, frozen=True):
    """A backend as its errors name it. Its methods return the error to raise.

    Args:
        name: Name of the product.
        url: Its address; "" if `name` says where it is.
        setting: Setting that holds the address.
        key: Variable of `.env` that holds the credentials.
        has_key: False if that variable is empty.
        is_model: True for the server of a language model or an embedder, which has no model behind it.
    """

    name: str
    url: str = ""
    setting: str = ""
    key: str = ""
    has_key: bool = True
    is_model: bool = False

    @property
    def place(self) -> str:
        """Name and address."""
        return f"{self.name} at {redact(self.url)!r}" if self.url else self.name

    def remedy(self, cause: str, wait: float | None = None) -> str:
        """Return the row of `REMEDIES` for this backend. `wait` are the seconds that it asks for."""
        return REMEDIES[cause].format(
            name=self.name,
            place=self.place,
            setting=repr(self.setting) if self.setting else "its settings",
            key=self.key or "its credentials",
            wait="a moment" if wait is None else f"{math.ceil(wait)} s",
        )

    def error(
        self, status: int | None, detail: str = "", retry_after: str | float | None = None
    ) -> ProviderError:
        """Return the error for the HTTP status of a failed call.

        Args:
            status: HTTP status, None if there was no answer.
            detail: The backend's own words, or those of the network.
            retry_after: Value of the header: seconds or a date (RFC 9110, 10.2.3).
        """
        if status is None:
            if "Illegal header value" in detail:
                return self.unsendable()  # httpx quotes the header, and the key is in it
            said, cause = f" ({detail})" if detail else "", _network_cause(detail)
            fault = "has not answered in time" if cause == "late" else "can't be reached"
            return self._made(BackendUnavailable, f"{self.place} {fault}{said}", cause)
        wait = retry_after_seconds(retry_after)
        if wait is None and (asked := _WAIT.search(detail)):
            wait = float(asked[1])
        cause = self._cause_of(status, detail, wait)
        message = f"{self.place} answered {status}" + (f": {detail!r}" if detail else "")
        kind = _kind_of(status, cause)
        error = self._made(kind, message, cause, wait)
        if isinstance(error, BackendUnavailable) and wait is not None:
            error.retry_after, error.args = wait, (error.message, error.remedy, wait)
        return error

    def unexpected(self, answer: object) -> BackendUnavailable:
        """Return the error for an answer in another form than the API has."""
        text = fold_space(str(answer))
        cause = "page" if _PAGE_WITHIN.search(text) else "model" if self.is_model else "stranger"
        message = f"{self.place} answered something else than its API says: {clip(redact(text), 80)!r}"
        return self._made(BackendUnavailable, message, cause)

    def late(self, seconds: float) -> BackendUnavailable:
        """Return the error for a call without an answer after so many seconds."""
        return self._made(BackendUnavailable, f"{self.place} has not answered after {seconds:g} s", "late")

    def explain(self, error: ProviderError, status: int, detail: str = "") -> ProviderError:
        """Give an error that the caller made the remedy of its cause, unless it has one."""
        if not error.remedy:
            cause = self._cause_of(status, detail, None)
            _mark(error, cause, self.remedy(cause))
        return error

    def unsendable(self) -> BackendAuthError:
        """Return the error for a header that can't be sent. Its text is left out, because the key is in it."""
        return BackendAuthError(
            f"{self.place} can't be asked: a header holds what none can",
            f"look for line breaks and spaces in {self.key or 'its credentials'}",
        )

    def _made(self, kind: type[Error], message: str, cause: str, wait: float | None = None) -> Error:
        error = kind(message)
        _mark(error, cause, self.remedy(cause, wait))
        return error

    def _cause_of(self, status: int, detail: str, wait: float | None) -> str:
        """Return the cause of a failed call. What the backend says counts more than the status that it chose."""
        page = bool(_PAGE.search(detail))
        if status == 507 or (status >= 500 and _DISK.search(detail)):
            return "disk"
        if status in (407, 511) or (page and status in _PAGE_STATUSES):
            return "page"
        if _network_cause(detail, "") == "scheme":
            return "scheme"
        if 300 <= status < 400:
            if _LOGIN.search(detail):
                return "page"
            return "scheme" if detail == f"https{self.url.removeprefix('http')}" else "moved"
        if status == 429 or (status >= 500 and (wait is not None or _LIMIT.search(detail))):
            return "wait"
        if not self.is_model and status not in (402, 403, 404, 410) and _MODEL.search(detail):
            return "model"
        if status == 401:
            return "key refused" if self.has_key else "key missing"
        if status == 403:
            return "no rights" if self.has_key else "key missing"
        if status == 402:
            return "quota"
        if status in (404, 410):
            return "no route" if page or _NO_ROUTE.search(detail) else "absent"
        if status in (408, 425):
            return "late"
        if status in (502, 503, 504):
            return "gateway" if page or status != 503 else "fault"
        return "fault" if status >= 500 else "request"


def _kind_of(status: int, cause: str) -> type[ProviderError]:
    """Return the class of an error. A write that a wrong address refuses waits until the address is corrected."""
    if status in (401, 402, 403):
        return BackendUnavailable if cause == "page" else BackendAuthError
    if status in (404, 410):
        return BackendNotFound
    temporary = status in TEMPORARY_STATUSES or status >= 500 or status < 400
    return BackendUnavailable if temporary or cause in ("page", "scheme") else BackendRefused


def _mark(error: ProviderError, cause: str, remedy: str) -> None:
    error.cause, error.remedy = cause, remedy
    # pickle makes a copy by calling the class with these.
    error.args = (error.message, remedy, *error.args[2:])


def _network_cause(detail: str, otherwise: str = "port") -> str:
    return next((cause for cause, pattern in _NETWORK if pattern.search(detail)), otherwise)


def foreign_remedy(error: BaseException) -> str:
    """Return the remedy for an error that another library raised, "" if its cause can't be told.

    HTTP clients put the answer or its status on their errors, and the system's words of the network into the text.
    """
    link: BaseException | None = error
    while link is not None:
        answer = getattr(link, "response", None)
        numbers = (getattr(one, name, None) for one in (answer, link) for name in ("status_code", "status"))
        status = next((one for one in numbers if isinstance(one, int) and 300 <= one < 600), None)
        request = getattr(answer, "request", None) or vars(link).get("request") or vars(link).get("_request")
        backend = Backend("its backend", _origin(getattr(request, "url", "")))
        if status is not None:
            headers, text = getattr(answer, "headers", None), getattr(answer, "text", "")
            wish = headers.get("Retry-After") if isinstance(headers, Mapping) else None
            detail = error_detail(text if isinstance(text, str) else str(link))
            return backend.error(status, detail, wish).remedy
        if isinstance(link, OSError) and link.errno == errno.ENOSPC:
            return backend.remedy("disk")
        if cause := _network_cause(str(link), ""):
            return backend.remedy(cause) if isinstance(link, OSError) or request is not None else ""
        link = link.__cause__ or link.__context__
    return ""


def _origin(url: object) -> str:
    """Return scheme, host and port of an address: its path and its query are private."""
    parts = urlsplit(str(url or ""))
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def is_absent(error: BaseException) -> bool:
    """Return True if the backend lacks the thing that a request names, and False if it has no such route at all.

    A backend that nothing was written to yet answers so. A wrong address has no route.
    """
    return isinstance(error, BackendNotFound) and error.cause != "no route"


class NothingYet:
    """A block that is left without an error if the backend lacks the thing that is asked for: nothing was stored there yet.

    Args:
        said: Words that the error must have, in lower case, if the backend always uses them.
    """

    def __init__(self, said: str = "") -> None:
        self._said = said

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return error is not None and is_absent(error) and self._said in str(error).lower()


def error_detail(body: str) -> str:
    """Return the message in an error body as one short line: the usual JSON fields, else the text.

    >>> error_detail('{"detail": [{"loc": ["body", "id"], "msg": "field required"}]}')
    'body.id: field required'
    """
    try:
        words = _message_in(json.loads(body))
    except (ValueError, RecursionError):
        words = body
    return clip(
        redact(fold_space(words[:_MAX_PARSED_CHARS])), MAX_DETAIL_CHARS
    )  # half a key does not look like one


def retry_after_seconds(retry_after: str | float | None) -> float | None:
    """Return the seconds that a Retry-After header asks to wait, None if there is none or it can't be read.

    >>> retry_after_seconds("120"), retry_after_seconds("soon"), retry_after_seconds("inf")
    (120.0, None, None)
    """
    text = str(retry_after)
    try:
        seconds = float(text)
    except ValueError:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - time.time()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _message_in(data: Any) -> str:
    """Return the message in decoded JSON, wherever an API of today puts it."""
    if isinstance(data, Mapping):
        if "loc" in data and "msg" in data and isinstance(data["loc"], list):
            return f"{'.'.join(map(str, data['loc']))}: {data['msg']}"
        for key in _DETAIL_KEYS:
            if data.get(key):
                return _message_in(data[key])
        return json.dumps(data, ensure_ascii=False)
    if isinstance(data, list):
        return "; ".join(map(_message_in, data))
    return str(data)
