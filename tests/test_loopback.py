"""The listening socket of the page, the MCP server and others."""

from __future__ import annotations

import socket

import pytest

from hermes_core.errors import ConfigError
from hermes_core.loopback import listen


@pytest.mark.parametrize("exclusive", [None, socket.SO_KEEPALIVE], ids=["POSIX", "Windows"])
def test_no_second_server_takes_the_port(monkeypatch: pytest.MonkeyPatch, exclusive: int | None) -> None:
    """Only Windows has the option, for which another one stands in here. There SO_REUSEADDR would share the port."""
    if exclusive is not None:
        monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", exclusive, raising=False)
    with listen(0) as listener:
        is_set = {
            option: bool(listener.getsockopt(socket.SOL_SOCKET, option))
            for option in (socket.SO_REUSEADDR, socket.SO_KEEPALIVE)
        }
        assert is_set == {socket.SO_REUSEADDR: exclusive is None, socket.SO_KEEPALIVE: exclusive is not None}
        with pytest.raises(ConfigError, match="can't listen"):
            listen(listener.getsockname()[1])
