"""A listening socket that only programs of this machine reach."""

from __future__ import annotations

import socket

from hermes_core.errors import ConfigError

HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """Return a listening socket on the loopback interface; port 0 takes a free port. Raises `ConfigError` if it is in use."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # On Windows SO_REUSEADDR lets a second server take the port, and the other option refuses that.
    option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
    listener.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()  # a client that reads the address can connect at once
    except OSError as exc:
        listener.close()
        raise ConfigError(
            f"can't listen on {HOST}:{port}: {exc.strerror or exc}", "choose another --port"
        ) from exc
    return listener
