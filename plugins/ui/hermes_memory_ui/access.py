"""Access to the page: for the browser that opened the printed address, and no other program, page or machine.

The printed address holds a token that works once. It leads to a path that holds a secret, below which the whole page is,
and sets a cookie for this path. Each request needs both. The cookie alone would not do: browsers know no ports of cookies,
so a server of another user of this machine, on another port, would get it. The path goes to no other port. The path alone
would not do either: it stands in the history of the browser and on the screen.

A page of another site may still make the browser send requests to this machine, or point its own name at it. It does not
know the path, and the headers Host and Origin are checked as well.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermes_core.loopback import HOST

TOKEN_PARAMETER = "token"

COOKIE = "hermes_memory"

# Browsers leave the port of the scheme out of the headers Host and Origin.
HTTP_PORT = 80

# No script, style, frame or request that is not a file of ours. Inline scripts and styles are refused too, so a stored
# text that came through as HTML could still do nothing.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

HEADERS: Mapping[str, str] = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Not `no-referrer`: browsers would then send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

_REFUSAL = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Refused</title><h1>Refused</h1><p>{reason}</p></html>'


class Access:
    """The secrets of one run of the page, and the checks of each request.

    Attributes:
        token: The token in the printed address. It works once: until a browser comes back with the path and the cookie.
        root: The path below which the page is. It holds a secret.
    """

    def __init__(self, port: int) -> None:
        self.token, self.root = secrets.token_urlsafe(32), f"/{secrets.token_urlsafe(32)}"
        self._secret = secrets.token_urlsafe(32)
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        if port == HTTP_PORT:
            self._hosts |= {HOST, "localhost"}
        self._port, self._used = port, False

    @property
    def url(self) -> str:
        """The address that the person opens."""
        return f"http://{HOST}:{self._port}/?{TOKEN_PARAMETER}={self.token}"

    def refusal(self, method: str, headers: Headers) -> str:
        """Return why a request is refused before anything else is looked at; "" if it is not."""
        if headers.get("host", "") not in self._hosts:
            return "This page answers only under the address that hermes-memory ui printed."
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return "This request comes from another site."
        if method not in ("GET", "HEAD") and origin is None:
            return "This request does not say from which site it comes."
        if method not in ("GET", "HEAD") and headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return "This request comes from another site."
        return ""

    def knows(self, path: str, headers: Headers) -> bool:
        """Return True if a request has the path and the cookie. The token is used up when they first come back."""
        root, slash, _ = path.removeprefix("/").partition("/")
        pairs = (pair.partition("=") for line in headers.getlist("cookie") for pair in line.split(";"))
        values = [value.strip() for name, _, value in pairs if name.strip() == COOKIE]
        known = (
            bool(slash) and _equal(f"/{root}", self.root) and any(_equal(one, self._secret) for one in values)
        )
        self._used = self._used or known
        return known

    def sign_in(self, token: str) -> Response:
        """Return the answer to the address with a token: the cookie and the way to the page, or a refusal."""
        if not _equal(token, self.token):
            return refused(
                "The token in this address is wrong. Open the address that hermes-memory ui printed."
            )
        if self._used:
            return refused(
                "This address was used already: it works once. The browser that opened it first has the page in its "
                "history. For a new address, end hermes-memory ui with Ctrl-C and start it again."
            )
        # A browser that stored no cookie may try again. Only the last cookie works, so only one browser gets in.
        self._secret = secrets.token_urlsafe(32)
        response = RedirectResponse(f"{self.root}/", 303)
        response.set_cookie(COOKIE, self._secret, httponly=True, samesite="strict", path=f"{self.root}/")
        return response


class AccessRequired:
    """An ASGI wrapper that refuses requests which `Access` does not admit, and adds the security headers to all answers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._answer(scope)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the answer to a request that does not reach the page; None if it does."""
        headers, method = Headers(scope=scope), scope["method"]
        if reason := self._access.refusal(method, headers):
            return refused(reason)
        token = QueryParams(scope["query_string"]).get(TOKEN_PARAMETER, "")
        if token and scope["path"] == "/" and method == "GET":
            return self._access.sign_in(token)
        if not self._access.knows(scope["path"], headers):
            return refused("Open the address that hermes-memory ui printed: it holds a token.")
        scope["root_path"] = self._access.root
        return None


def refused(reason: str) -> Response:
    """Return the answer to a refused request. `reason` is a sentence of ours, never a text of the request."""
    return HTMLResponse(_REFUSAL.format(reason=reason), 403)


def _equal(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), secret.encode())
