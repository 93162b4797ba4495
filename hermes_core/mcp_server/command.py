"""`hermes-memory mcp`: a command of the command line, which finds it by name and imports it when it runs."""

from __future__ import annotations

import os
import signal
import threading
import uuid

import click
from click.core import ParameterSource

from hermes_core.config import Credentials
from hermes_core.contract.values import Session
from hermes_core.errors import ConfigError
from hermes_core.kit.cli import command_home
from hermes_core.mcp_server.surface import Surface
from hermes_core.memory import Memory, open_memory
from hermes_core.safety.terminal import hanging

CLOSE_TIMEOUT = 1.5
"""Seconds for providers to end. Clients kill a server that has not ended two seconds after they closed its input; what
was not sent by then stays in the outbox."""


@click.command("mcp")
@click.option(
    "--http", is_flag=True, help="Serve over HTTP on this machine instead of standard input and output."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8377,
    show_default=True,
    help="The port for --http; 0 takes a free one.",
)
@click.option(
    "--user", "user_id", default="", help="Whose memory it is, where several people share this home."
)
@click.option("--platform", default="mcp", show_default=True, help="The platform on which --user is known.")
@click.pass_context
def mcp_command(ctx: click.Context, http: bool, port: int, user_id: str, platform: str) -> None:
    """Serve this memory to MCP clients: Claude Desktop, editors, other agents.

    Tools: memory_read, recall, memory, session_search and those of the active provider. Over HTTP a client must send
    the token that stands as MCP_TOKEN in .env; it is made at the first start.
    """
    if not http and ctx.get_parameter_source("port") is not ParameterSource.DEFAULT:
        raise click.UsageError("--port belongs to --http")
    _need_sdk()
    streams = None if http else _standard_streams()
    memory = open_memory(command_home(ctx))
    try:
        _serve(memory, user_id, platform, port, streams)
    finally:
        memory.close(CLOSE_TIMEOUT)


def _standard_streams() -> tuple[int, int]:
    """Standard input and output for the client alone: a provider, its libraries and children find nothing to read, and
    what they print goes to standard error.
    """
    streams = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return streams


def _serve(memory: Memory, user_id: str, platform: str, port: int, streams: tuple[int, int] | None) -> None:
    session = Session(
        id=f"mcp-{uuid.uuid4().hex}",
        platform=platform,
        user_id=user_id,
        identity=memory.home.profile,
        home=str(memory.home.path),
    )
    surface = Surface(memory, session)
    for problem in memory.problems():
        click.secho(f"warning: {hanging(problem)}", fg="yellow", err=True)
    if streams is None:
        _serve_http(memory, surface, port)
    else:
        from hermes_core.mcp_server.server import serve_stdio

        _leave_at_signals(memory)
        serve_stdio(surface, *streams)


def _leave_at_signals(memory: Memory) -> None:
    """Close the memory and leave at SIGTERM and Ctrl-C, beside the thread that waits for standard input, which nothing
    else would end. One that is ignored stays so.
    """
    numbers = [n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) is not signal.SIG_IGN]

    def close(number: int) -> None:
        try:
            memory.close(CLOSE_TIMEOUT)
        finally:
            os._exit(128 + number)

    def told(number: int, frame: object) -> None:
        del frame
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        threading.Thread(target=close, args=(number,)).start()

    for one in numbers:
        signal.signal(one, told)


def _serve_http(memory: Memory, surface: Surface, port: int) -> None:
    from hermes_core.mcp_server.http import address_of, http_server, listen, serve_http, token_of

    credentials = Credentials(memory.home)
    token = token_of(credentials)
    listener = listen(port)
    server = http_server(surface, token)
    # uvicorn takes the signal while it serves, and raises it again when it has ended. Before and after, the server keeps
    # it in mind: an exception from a handler is lost where it falls into the finaliser of some object.
    signal.signal(signal.SIGTERM, server.handle_exit)
    click.echo(f"{address_of(listener)} (token: MCP_TOKEN in {credentials.path})", err=True)
    serve_http(server, listener)


def _need_sdk() -> None:
    """Raises `ConfigError` when the SDK is not there, or is one that speaks another interface."""
    try:
        import hermes_core.mcp_server.http  # noqa: F401
    except ImportError as exc:
        raise ConfigError(
            f"the MCP server needs the package 'mcp', version 2 or newer ({exc.name or exc} is missing)",
            "pip install 'hermes-memory-core[mcp]'",
        ) from exc
