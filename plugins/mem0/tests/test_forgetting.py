"""A person is forgotten: on the cloud, on a server of one's own, and in the files of this process."""

from __future__ import annotations

import json

import pytest
from hermes_mem0 import Mem0Provider

from hermes_core import HermesHome, Session, SessionSwitch, open_memory
from plugins.mem0.tests.conftest import Agent, Start
from plugins.mem0.tests.stand_in import Models
from tests.forgetting_cells import ROWS, hold

ADA = {"platform": "telegram", "user_id": "ada"}
BOB = {"platform": "telegram", "user_id": "bob"}
SAID, OTHER = "My tortoise is called Quillfeather.", "My parrot is called Alderney."


def said(agent: Agent) -> tuple[Session, Session]:
    """Two sessions of Ada and one of Bob; the first of Ada, and Bob's."""
    first, second = agent.session("s1", **ADA), agent.session("s2", **ADA)
    bob = agent.session("s3", **BOB)
    agent.say(SAID, "t1", session=first)
    agent.say("The boathouse key hangs behind Ostrander.", "t2", session=second)
    agent.say(OTHER, "t3", session=bob)
    return first, bob


def test_all_memories_of_a_user_go_and_those_of_others_stay(agent: Agent) -> None:
    ada, bob = said(agent)
    erasure = agent.call("forget_user", user=ada.owner, session=ada)
    assert "2 memories" in erasure.deleted[0]
    assert agent.recalled("tortoise boathouse", ada) == []
    assert agent.recalled("What is my parrot called?", bob) != []
    assert agent.call("forget_user", user=ada.owner, session=ada).deleted == ()


def test_a_user_id_of_everybody_loses_the_session_alone(start: Start, models: Models) -> None:
    agent = start(mode="oss", embedder="openai", embedder_url=f"{models.url}/v1", user_id="all")
    ada, _ = said(agent)
    assert "1 memory" in agent.call("forget_user", user=ada.owner, session=ada).deleted[0]
    assert len(agent.remembered("all")) == 2
    assert SAID not in agent.remembered("all")


def test_no_file_of_mem0_or_qdrant_holds_a_forgotten_text(in_process: Agent) -> None:
    ada, bob = said(in_process)
    switch = SessionSwitch("x1", ada, ada, "rewind", rewound_turns=("t1",))
    in_process.provider.on_session_switch(switch)
    in_process.call("forget_user", user=ada.owner, session=ada)
    in_process.provider.shutdown()
    held = [
        path.name
        for path in in_process.home.path.rglob("*")
        if path.is_file() and b"Quillfeather" in path.read_bytes()
    ]
    assert held == []
    in_process.provider.initialize(bob)
    assert in_process.recalled("What is my parrot called?", bob) != []


def test_the_history_of_a_server_is_named(on_server: Agent) -> None:
    ada, _ = said(on_server)
    (kept,) = on_server.call("forget_user", user=ada.owner, session=ada).remaining
    assert on_server.provider.client.place in kept


def test_names_that_the_model_found_go_too(start: Start, models: Models) -> None:
    agent = start(
        mode="oss",
        embedder="openai",
        embedder_url=f"{models.url}/v1",
        llm="openai",
        llm_url=f"{models.url}/v1",
    )
    ada, _ = said(agent)
    database = agent.provider.client._mem0.db.connection  # type: ignore[attr-defined]
    assert database.execute("SELECT count(*) FROM messages").fetchone()[0] > 0
    agent.call("forget_user", user=ada.owner, session=ada)
    kept = [row[0] for row in database.execute("SELECT content FROM messages")]
    assert [text for text in kept if "Quillfeather" in text or "Ostrander" in text] == []
    assert [text for text in kept if "Alderney" in text] != []


@pytest.mark.parametrize("row", ROWS)
def test_each_cell_of_the_table_on_the_page_holds(hermes_home: HermesHome, models: Models, row: str) -> None:
    """The SDK and Qdrant are the real ones; the embedder is a stand-in."""
    hermes_home.path.mkdir()
    settings = {"mode": "oss", "embedder": "openai", "embedder_url": f"{models.url}/v1"}
    hermes_home.provider_json("mem0").write_text(json.dumps(settings))
    provider = Mem0Provider()
    with open_memory(hermes_home, provider=provider) as memory:

        def knows(name: str, session: Session) -> bool:
            page = memory.manager.ask("mem0", "export_memories", cursor="", session=session)
            return any(name in record.text for record in page.value.records)

        hold("mem0", row, memory, knows)
