"""The command `hermes-memory mcp`, which the command line imports when it runs."""

from __future__ import annotations

import functools
import os
import signal
import uuid

import click
from click.core import ParameterSource

from hermes_core import Memory, open_memory
from hermes_core.config import Credentials
from hermes_core.kit.cli import WholeNumber, command_home, without_json
from hermes_core.loopback import listen
from hermes_core.safety.terminal import hanging
from hermes_memory_mcp.server import (
    http_server,
    run_in_thread,
    serve_http,
    serve_stdio,
    server_url,
    token_of,
)
from hermes_memory_mcp.toolset import ToolSet

# Clients kill a server two seconds after they closed its input. Writes that are not sent by then stay in
# the outbox.
CLOSE_TIMEOUT_S = 1.5


@click.command("mcp")
@click.option(
    "--http", is_flag=True, help="Serve over HTTP on this machine instead of standard input and output."
)
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=8377,
    show_default=True,
    help="The port for --http; 0 takes a free one.",
)
@click.option(
    "--user",
    "user_id",
    default="",
    help="Whose memory it is, if several people use this home; the person at home by default.",
)
@click.option("--platform", default="mcp", show_default=True, help="The platform on which --user is known.")
@without_json("its standard output belongs to the client")
@click.pass_context
def mcp_command(ctx: click.Context, http: bool, port: int, user_id: str, platform: str) -> None:
    """Serve this memory to MCP clients: Claude Desktop, editors, other agents.

    Tools: memory_read, recall, store_turn, memory, session_search and those of the active provider. Over HTTP a client must send
    the token that stands as MCP_TOKEN in .env; it is made at the first start.
    """
    if not http and ctx.get_parameter_source("port") is not ParameterSource.DEFAULT:
        raise click.UsageError("--port belongs to --http")
    streams = None if http else _standard_streams()
    memory = open_memory(command_home(ctx))
    try:
        _serve(memory, user_id, platform, port, streams)
    finally:
        memory.close(CLOSE_TIMEOUT_S)


def _standard_streams() -> tuple[int, int]:
    """Reserve standard input and output for the client, and return their descriptors.

    Providers, their libraries and child processes then read nothing and print to standard error.
    """
    streams = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return streams


def _serve(memory: Memory, user_id: str, platform: str, port: int, streams: tuple[int, int] | None) -> None:
    session = memory.session(f"mcp-{uuid.uuid4().hex}", platform=platform, user_id=user_id)
    tool_set = ToolSet(memory, session, stores_turns=True)
    for problem in memory.problems():
        click.secho(f"warning: {hanging(problem)}", fg="yellow", err=True)
    if streams is None:
        _serve_http(memory, tool_set, port)
    else:
        _exit_on_signals(memory)
        serve_stdio(tool_set, *streams)


def _exit_on_signals(memory: Memory) -> None:
    """Close the memory and exit at SIGTERM and Ctrl-C. An ignored signal stays ignored.

    A handler runs between two steps of the main thread, which may hold a lock of the memory, so the memory is closed on
    another thread. os._exit is needed because nothing else ends the thread that reads standard input.
    """
    numbers = [n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) is not signal.SIG_IGN]

    def close(number: int) -> None:
        try:
            memory.close(CLOSE_TIMEOUT_S)
        finally:
            os._exit(128 + number)

    def handle(number: int, frame: object) -> None:
        del frame
        for ignored in numbers:
            signal.signal(ignored, signal.SIG_IGN)
        run_in_thread(functools.partial(close, number), daemon=False)

    for number in numbers:
        signal.signal(number, handle)


def _serve_http(memory: Memory, tool_set: ToolSet, port: int) -> None:
    credentials = Credentials(memory.home)
    token = token_of(credentials)
    listener = listen(port)
    server = http_server(tool_set, token)
    # uvicorn handles the signal while it serves and raises it again at the end. Before and after, the server only notes
    # it: an exception from a handler is lost if it is raised inside a finaliser.
    signal.signal(signal.SIGTERM, server.handle_exit)
    click.echo(f"{server_url(listener)} (token: MCP_TOKEN in {credentials.path})", err=True)
    serve_http(server, listener)
