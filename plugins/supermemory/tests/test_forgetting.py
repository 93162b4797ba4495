"""A person is forgotten: the containers of theirs, in both APIs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hermes_supermemory import SupermemoryProvider
from hermes_supermemory.settings import KEY

from hermes_core import HermesHome, open_memory
from hermes_core.contract.values import Erasure
from plugins.supermemory.tests.conftest import Agent
from plugins.supermemory.tests.stand_in import KEY as KNOWN
from plugins.supermemory.tests.stand_in import Supermemory
from tests.forgetting_cells import ROWS, hold

ADA = {"platform": "telegram", "user_id": "ada"}
BOB = {"platform": "telegram", "user_id": "bob"}
TORTOISE, PARROT = "My tortoise is called Quillfeather.", "My parrot is called Alderney."


def test_the_container_of_a_user_goes_and_those_of_others_stay(
    start: Callable[..., Agent], server: Supermemory
) -> None:
    agent = start(server)
    ada, bob = agent.session("s1", **ADA), agent.session("s2", **BOB)
    agent.say(TORTOISE, "t1", session=ada)
    agent.say("The boathouse key hangs behind Ostrander.", "t2", session=agent.session("s3", **ADA))
    agent.say(PARROT, "t3", session=bob)
    (deleted,) = agent.call("forget_user", user=ada.owner, session=ada).deleted
    assert deleted.endswith("with 2 documents")
    assert {doc.content.split("\n")[2] for doc in server.documents.values()} == {f"user: {PARROT}"}
    assert "Alderney" in agent.recall("What is my parrot called?", bob).render()
    assert agent.call("forget_user", user=ada.owner, session=ada) == Erasure()
    agent.say(TORTOISE, "t1", session=ada)
    assert "Quillfeather" in str(server.known()), "a person who comes back is remembered anew"


def test_further_containers_of_the_user_go_too(start: Callable[..., Agent], server: Supermemory) -> None:
    agent = start(server, enable_custom_container_tags=True, custom_containers="garden")
    ada = agent.session("s1", **ADA)
    agent.tool("store", ada, content="The tulips stand in row seven.", container_tag="garden")
    (deleted,) = agent.call("forget_user", user=ada.owner, session=ada).deleted
    assert "garden_telegram" in deleted
    assert server.known() == []


@pytest.mark.parametrize("row", ROWS)
def test_each_cell_of_the_table_on_the_page_holds(
    serve: Callable[..., Supermemory], hermes_home: HermesHome, row: str
) -> None:
    server = serve("v5")
    hermes_home.path.mkdir()
    hermes_home.provider_json("supermemory").write_text(json.dumps({"base_url": server.url}))
    hermes_home.env_file.touch(mode=0o600)
    hermes_home.env_file.write_text(f"{KEY}={KNOWN}\n")
    with open_memory(hermes_home, provider=SupermemoryProvider()) as memory:
        hold("supermemory", row, memory, lambda name, _: any(name in text for text in server.known()))
