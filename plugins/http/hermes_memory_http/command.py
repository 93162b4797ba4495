"""The command `hermes-memory serve`, which the command line imports when it runs."""

from __future__ import annotations

import ipaddress
import multiprocessing
import os
import signal
import socket
import threading
from contextlib import ExitStack, closing

import click
import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from hermes_core import open_memory
from hermes_core.cli import Group
from hermes_core.cli.output import moment, print_document, print_done, print_result, print_table, warn
from hermes_core.errors import ConfigError
from hermes_core.kit.cli import WholeNumber, command_home, without_json
from hermes_core.logs import LogFile, logging_to
from hermes_core.loopback import HOST, listen
from hermes_memory_http.document import openapi_document
from hermes_memory_http.operations import Limits
from hermes_memory_http.server import ServerSettings
from hermes_memory_http.tokens import OF_A_PERSON, OF_A_PROGRAM, TokenStore

DEFAULT_PORT = 8378
SHUTDOWN_TIMEOUT_S = 10
# Longer than proxies and pools of clients keep an idle connection: whoever closes it first breaks a request on its way.
KEEP_ALIVE_S = 75
# A worker that a busy machine keeps from answering is not a hung one.
WORKER_TIMEOUT_S = 60


@click.group("serve", cls=Group, invoke_without_command=True)
@click.option("--host", default=HOST, show_default=True, help="The IP address to listen on.")
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port; 0 takes a free one.",
)
@click.option(
    "--workers", type=WholeNumber(1, 64), default=1, show_default=True, help="The number of processes."
)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME[:PORT]",
    help="Answer under this name too, as a proxy in front passes it on; may be repeated.",
)
@click.option(
    "--max-body",
    type=WholeNumber(1_000, 1_000_000_000),
    default=Limits().body,
    show_default=True,
    help="The most bytes of a request.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.1, 1e6),
    default=Limits().rate,
    show_default=True,
    help="The requests a second that a token may send to a process, and ten times as many at once.",
)
@click.option(
    "--max-open-turns",
    type=WholeNumber(1, 1_000_000),
    default=Limits().open_turns,
    show_default=True,
    help="The most unfinished turns of one person.",
)
@without_json("it serves until it is stopped")
@click.pass_context
def serve(
    ctx: click.Context,
    host: str,
    port: int,
    workers: int,
    names: tuple[str, ...],
    max_body: int,
    rate: float,
    max_open_turns: int,
) -> None:
    """Serve this memory over HTTP to programs in any language.

    Each request needs a token, which `hermes-memory serve token create` makes; only /healthz and /readyz need none. The API
    is described at /openapi.json. Ctrl-C ends the server.
    """
    if ctx.invoked_subcommand is not None:
        return
    home = command_home(ctx)
    with open_memory(home, provider="") as memory:
        has_tokens = bool(TokenStore(memory).list())
        warn(memory.problems())
    with closing(_listener(host, port, has_tokens=has_tokens)) as listener:
        address, bound = listener.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        hosts = {f"{shown}:{bound}", *names, *(f"localhost:{bound}" for _ in "_" if _is_loopback(address))}
        settings = ServerSettings(
            home=home,
            hosts=tuple(sorted(host.lower() for host in hosts)),
            limits=Limits(body=max_body, rate=rate, open_turns=max_open_turns),
        )
        click.echo(f"http://{shown}:{bound}")
        if not has_tokens:
            click.echo("Nobody has a token yet: run hermes-memory serve token create", err=True)
        if not _is_loopback(address):
            warn(["tokens and memory travel in clear text: put a proxy with TLS before this server"])
        run_server(settings, listener, workers)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _listener(host: str, port: int, *, has_tokens: bool) -> socket.socket:
    """Return a listening socket. Raise `ConfigError` for an address that can't be used, or must not be without tokens."""
    if host == HOST:
        return listen(port)
    try:
        address = ipaddress.ip_address(host)
    except ValueError as exc:
        raise ConfigError(f"--host {host!r} is no IP address", "give one, as 127.0.0.1 or 0.0.0.0") from exc
    if not (address.is_loopback or has_tokens):
        raise ConfigError(
            f"--host {host!r} can be reached from other machines, and there is no token",
            "make one with: hermes-memory serve token create",
        )
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as exc:
        raise ConfigError(
            f"can't listen on {host} port {port}: {exc.strerror or exc}", "choose another --host or --port"
        ) from exc


def run_server(settings: ServerSettings, listener: socket.socket, workers: int) -> None:
    """Serve until a signal comes. Several processes share the socket, and one that dies is replaced."""
    config = uvicorn.Config(
        settings if workers == 1 else Worker(settings),
        factory=True,
        workers=workers,
        log_level="warning",
        access_log=False,
        # Its records go the way of all others, into the log of the home, where they are redacted.
        log_config=None,
        ws="none",
        server_header=False,
        # A client could write these headers itself.
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        timeout_worker_healthcheck=WORKER_TIMEOUT_S,
    )
    if workers == 1:
        uvicorn.Server(config).run(sockets=[listener])
    else:
        Supervisor(config, sockets=[listener]).run()


class Supervisor(Multiprocess):
    """The supervisor of several processes. It notices at once that one has died."""

    def keep_subprocess_alive(self) -> None:
        """Replace processes that do not answer."""
        # A process that dies while it is asked closes the last copy of its end. Ours would keep the supervisor waiting for
        # an answer, WORKER_TIMEOUT_S long, deaf to signals.
        for process in self.processes:
            process.child_conn.close()
        super().keep_subprocess_alive()


class Worker:
    """The application of a process among several."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings, self._log = settings, ExitStack()

    def __call__(self) -> ASGIApp:
        """Return the application. The process ends with the one that started it, whose socket it would hold otherwise."""
        parent = multiprocessing.parent_process()
        assert parent is not None

        def follow() -> None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=follow, name="hermes-http-parent", daemon=True).start()
        self._log.enter_context(logging_to(LogFile(self._settings.home)))
        return self._settings()


@serve.group("token", cls=Group)
def token() -> None:
    """Make, list and revoke the tokens of programs and of persons."""


@token.command("create")
@click.argument("name")
@click.option("--user", default="", metavar="PLATFORM:ID", help="The one person whose memory it opens.")
@click.option("--any-user", is_flag=True, help="For a program that names a person in each request.")
@click.option(
    "--person-at-home",
    is_flag=True,
    help="For the person at this machine, who may search everybody's sessions.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([*dict.fromkeys((*OF_A_PERSON, *OF_A_PROGRAM))]),
    help="A permission; may be repeated (default: read and write).",
)
@click.pass_context
def create(
    ctx: click.Context, name: str, user: str, any_user: bool, person_at_home: bool, scopes: tuple[str, ...]
) -> None:
    """Make a token and print it. It is shown only now: the home has its hash.

    NAME is the program or device that gets it. `--scope` review lets the holder write, confirm and reject notes as the
    person, forget lets it delete all of the person, and admin both of any user.
    """
    if sum((bool(user), any_user, person_at_home)) != 1:
        raise click.UsageError(
            "say whose memory it opens: --user PLATFORM:ID, --any-user or --person-at-home"
        )
    with open_memory(command_home(ctx), provider="") as memory:
        made, text = TokenStore(memory).create(name, None if any_user else user, scopes)
    facts = {"token": text, "id": made.id, "name": made.name, "user": made.user, "scopes": list(made.scopes)}
    print_result(facts, lambda: click.echo(text))
    click.echo(f"{made.id} is for {made.whose}, to {' and '.join(made.scopes)}.", err=True)


@token.command("list")
@click.pass_context
def list_tokens(ctx: click.Context) -> None:
    """List the tokens, without their secret part."""
    home, tokens = command_home(ctx), []
    if home.path.exists():  # a command that reads makes no home
        with open_memory(home, provider="") as memory:
            tokens = TokenStore(memory).list()
    rows = [(t.id, t.name, t.whose, " ".join(t.scopes), moment(t.created_at)) for t in tokens]
    facts = [
        {"id": t.id, "name": t.name, "user": t.user, "scopes": list(t.scopes), "created_at": t.created_at}
        for t in tokens
    ]
    print_result(
        {"tokens": facts},
        lambda: print_table(
            "Tokens", ("id", "name", "person", "scopes", "made"), rows, "There are no tokens."
        ),
    )


@token.command("revoke")
@click.argument("token_id", metavar="ID")
@click.pass_context
def revoke(ctx: click.Context, token_id: str) -> None:
    """Revoke a token. The next request with it is refused, at every process."""
    with open_memory(command_home(ctx), provider="") as memory:
        revoked = TokenStore(memory).revoke(token_id)
    print_done(f"token {revoked.id} of {revoked.name} is revoked", id=revoked.id)


@serve.command("openapi")
def openapi() -> None:
    """Print the OpenAPI document of the API."""
    print_document(openapi_document())
