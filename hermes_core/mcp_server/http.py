"""The MCP server over streamable HTTP: on this machine only, and only for whoever has the token."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket

import anyio
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hermes_core.config import Credentials
from hermes_core.errors import ConfigError
from hermes_core.mcp_server.server import build_server
from hermes_core.mcp_server.surface import MAX_INPUT, Surface

HOST = "127.0.0.1"
PATH = "/mcp"
TOKEN_NAME = "MCP_TOKEN"
PATIENCE = 1
"""Seconds that calls under way have to end when the server is told to stop."""

MAX_BODY = 8 * MAX_INPUT
"""Bytes of a request: the largest arguments, in any script and escaped."""


def token_of(credentials: Credentials) -> str:
    """The token that clients must send; made and written to `.env` when there is none."""
    token = credentials.get(TOKEN_NAME)
    if token is None:
        token = secrets.token_urlsafe(32)
        credentials.set(TOKEN_NAME, token)
    return token


def listen(port: int) -> socket.socket:
    """A socket on the loopback interface; port 0 takes a free one. Raises `ConfigError` when it is in use."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()  # so that whoever reads the address can connect at once
    except OSError as exc:
        listener.close()
        raise ConfigError(
            f"can't listen on {HOST}:{port}: {exc.strerror or exc}", "choose another --port"
        ) from exc
    return listener


def address_of(listener: socket.socket) -> str:
    """The URL that clients connect to."""
    return f"http://{HOST}:{listener.getsockname()[1]}{PATH}"


def http_server(surface: Surface, token: str) -> uvicorn.Server:
    """A server for clients that send `Authorization: Bearer TOKEN`."""
    app = build_server(surface).streamable_http_app(
        streamable_http_path=PATH, host=HOST, json_response=True, max_request_body_size=MAX_BODY
    )
    config = uvicorn.Config(
        TokenRequired(app, token),
        log_level="warning",
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=PATIENCE,
    )
    return uvicorn.Server(config)


def serve_http(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until the process is interrupted, or the server is told to stop."""

    async def serve() -> None:
        await server.serve(sockets=[listener])

    anyio.run(serve)


class TokenRequired:
    """Lets requests with the token through and answers 401 to all others."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and not self._admits(scope):
            refusal = JSONResponse(
                {"error": f"send the header Authorization: Bearer with {TOKEN_NAME} of .env"},
                status_code=401,
                headers={"www-authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:  # the server was told to stop, and its patience is over
            stopping = JSONResponse({"error": "the server is stopping"}, status_code=503)
            await stopping(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)
