"""The command `hermes-memory ui`, which the command line imports when it runs."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

import click

from hermes_core import open_memory
from hermes_core.kit.cli import WholeNumber, command_home, without_json
from hermes_core.loopback import listen
from hermes_core.safety.terminal import hanging
from hermes_memory_ui.access import Access
from hermes_memory_ui.server import http_page_server, serve_page
from hermes_memory_ui.site import Site

# What is not sent by then stays in the outbox.
CLOSE_TIMEOUT_S = 3.0


@click.command("ui")
@click.option(
    "--port", type=WholeNumber(0, 65535), default=0, help="The port on 127.0.0.1 (default: a free one)."
)
@click.option(
    "--read-only", is_flag=True, help="Show everything and change nothing; the provider is not started."
)
@click.option(
    "--user", default="", metavar="PLATFORM:ID", help="For this user of a gateway; needs memory.per_user."
)
@without_json("it serves a page until it is stopped")
@click.pass_context
def ui_command(ctx: click.Context, port: int, read_only: bool, user: str) -> None:
    """Show this memory in a browser on this machine, and let a person change it there.

    The address that is printed works once: it admits the browser that opens it first. The page shows the
    memory of one user: of the person at this machine, or of --user. Ctrl-C ends it.
    """
    memory = open_memory(command_home(ctx), provider="" if read_only else None)
    try:
        with listen(port) as listener:
            access = Access(listener.getsockname()[1])
            site = Site(memory, user=user, root=access.root, read_only=read_only)
            for problem in memory.problems():
                click.secho(f"warning: {hanging(problem)}", fg="yellow", err=True)
            # uvicorn handles the signal while it serves. Before and after, it ends the command like Ctrl-C.
            signal.signal(signal.SIGTERM, _stop)
            site.start()
            click.echo(access.url)
            click.echo("Open this address in a browser on this machine; Ctrl-C ends the page.", err=True)
            serve_page(http_page_server(site, access), listener)
    finally:
        memory.close(CLOSE_TIMEOUT_S)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt
