"""An empty Honcho is a healthy one."""

from __future__ import annotations

import pytest

from hermes_core import HermesHome
from plugins.honcho.tests.stand_in import HonchoServer
from tests.fresh import fresh_faults

TOOLS = {
    "honcho_profile": {},
    "honcho_search": {"query": "tortoise"},
    "honcho_context": {},
    "honcho_reasoning": {"query": "What is the tortoise called?"},
    "honcho_conclude": {"list": True},
}


@pytest.mark.parametrize("user_id", ["", "ann"])
def test_an_empty_server_is_healthy(home: HermesHome, server: HonchoServer, user_id: str) -> None:
    assert fresh_faults(home, "honcho", TOOLS, user_id=user_id) == []
