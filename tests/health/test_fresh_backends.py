"""A backend that holds nothing yet is a healthy one: doctor, status, the first turn and the first call of each tool."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hermes_core import HermesHome
from plugins.byterover.tests.stand_in import StandInBrv
from plugins.hindsight.tests.stand_in import HindsightServer
from plugins.honcho.tests.stand_in import KEY as HONCHO_KEY
from plugins.honcho.tests.stand_in import HonchoServer
from plugins.mem0.tests.stand_in import KEY as MEM0_KEY
from plugins.mem0.tests.stand_in import Cloud, Models, OwnServer
from plugins.openviking.tests.stand_in import Viking
from plugins.retaindb.tests.stand_in import KEY as RETAINDB_KEY
from plugins.retaindb.tests.stand_in import RetainDB
from plugins.supermemory.tests.stand_in import KEY as SUPERMEMORY_KEY
from plugins.supermemory.tests.stand_in import Supermemory
from tests.fresh import fresh_faults

QUESTION = {"query": "tortoise"}


class Empty(NamedTuple):
    """An empty backend: its stand-in, the settings that name it, its key, and what its tools are asked."""

    provider: str
    server: Callable[[], AbstractContextManager[Any]]
    setting: str
    tools: Mapping[str, Mapping[str, Any]]
    env: Mapping[str, str] = {}
    more: Mapping[str, Any] = {}
    path: str = ""


MEM0_TOOLS = {"mem0_search": QUESTION, "mem0_profile": {}}
BACKENDS = {
    "holographic": Empty("holographic", nullcontext, "", {"fact_store": {"action": "list"}}),
    "honcho": Empty(
        "honcho",
        HonchoServer,
        "baseUrl",
        {"honcho_profile": {}, "honcho_search": QUESTION, "honcho_context": {}, "honcho_reasoning": QUESTION},
        {"HONCHO_API_KEY": HONCHO_KEY},
    ),
    "mem0 cloud": Empty("mem0", Cloud, "api_url", MEM0_TOOLS, {"MEM0_API_KEY": MEM0_KEY}),
    "mem0 server": Empty(
        "mem0", OwnServer, "host", MEM0_TOOLS, {"MEM0_API_KEY": MEM0_KEY}, {"mode": "selfhosted"}
    ),
    "mem0 here": Empty(
        "mem0", Models, "embedder_url", MEM0_TOOLS, more={"mode": "oss", "embedder": "openai"}, path="/v1"
    ),
    "openviking": Empty(
        "openviking",
        Viking,
        "endpoint",
        {"viking_search": QUESTION, "viking_browse": {"action": "list"}},
    ),
    "openviking of last year": Empty(
        "openviking",
        lambda: Viking("0.4.9"),
        "endpoint",
        {"viking_search": QUESTION, "viking_browse": {"action": "list"}},
    ),
    "hindsight": Empty(
        "hindsight",
        HindsightServer,
        "api_url",
        {"hindsight_recall": QUESTION, "hindsight_reflect": QUESTION},
        more={"mode": "local_external"},
    ),
    "retaindb": Empty(
        "retaindb",
        RetainDB,
        "base_url",
        {"retaindb_profile": {}, "retaindb_search": QUESTION, "retaindb_context": QUESTION},
        {"RETAINDB_API_KEY": RETAINDB_KEY},
    ),
    "supermemory v5": Empty(
        "supermemory",
        lambda: Supermemory("v5"),
        "base_url",
        {"supermemory_search": QUESTION, "supermemory_profile": {}},
        {"SUPERMEMORY_API_KEY": SUPERMEMORY_KEY},
    ),
    "supermemory v4": Empty(
        "supermemory",
        lambda: Supermemory("v4"),
        "base_url",
        {"supermemory_search": QUESTION, "supermemory_profile": {}},
        {"SUPERMEMORY_API_KEY": SUPERMEMORY_KEY},
    ),
}


@pytest.mark.parametrize("user_id", ["", "ann"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_backend_is_healthy(hermes_home: HermesHome, backend: str, user_id: str) -> None:
    empty = BACKENDS[backend]
    hermes_home.path.mkdir()
    with empty.server() as server:
        place = {empty.setting: f"{server.url}{empty.path}"} if empty.setting else {}
        hermes_home.provider_json(empty.provider).write_text(json.dumps({**place, **empty.more}))
        if empty.env:
            hermes_home.env_file.touch(mode=0o600)
            hermes_home.env_file.write_text("".join(f"{name}={key}\n" for name, key in empty.env.items()))
        assert fresh_faults(hermes_home, empty.provider, empty.tools, user_id=user_id) == []
        assert not getattr(server, "complaints", ())


def test_an_empty_tree_is_healthy(hermes_home: HermesHome, tmp_path: Path) -> None:
    brv = StandInBrv(tmp_path / "bin")
    hermes_home.path.mkdir()
    hermes_home.provider_json("byterover").write_text(json.dumps({"command": str(brv.path)}))
    tools = {"brv_query": QUESTION, "brv_status": {}}
    assert fresh_faults(hermes_home, "byterover", tools) == []
