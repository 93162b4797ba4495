"""What this provider does with turns, entries and tools, on each of the three backends."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import threading
import uuid
import warnings
from pathlib import Path
from typing import Any

import pytest
from hermes_mem0 import Mem0Provider
from hermes_mem0.oss import configuration
from hermes_mem0.settings import NAME, SETTINGS, user_of

from hermes_core import Delegation, HermesHome, Query, Session, SessionSwitch, Turn
from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import BackendUnavailable
from hermes_core.kit import ConfigError, load_settings
from plugins.mem0.tests.conftest import Agent, Start
from plugins.mem0.tests.stand_in import Cloud, Models, OwnServer

TORTOISE = "My tortoise is called Quillfeather."
BOATHOUSE = "The spare boathouse key hangs behind Ostrander."
ASKED = "What is the tortoise called?"

# ---------------------------------------------------------------------------------------------------------------- turns


def test_what_was_said_is_recalled_with_its_session_and_day(agent: Agent) -> None:
    agent.say(TORTOISE, session=agent.session("earlier"), at=1_700_000_000.0)
    (item,) = agent.provider.prefetch(Query(ASKED), agent.session("later")).items
    assert (item.text, item.session_id, item.when) == (TORTOISE, "earlier", "2023-11-14")
    assert item.score


def test_a_turn_that_comes_again_is_kept_once(agent: Agent) -> None:
    for _ in range(3):
        agent.say(TORTOISE)
    assert agent.remembered() == [TORTOISE]


@pytest.mark.parametrize("small", ["ok, thanks!", "/help", ""])
def test_small_talk_asks_nothing(on_cloud: Agent, cloud: Cloud, small: str) -> None:
    before = len(cloud.requests)
    assert on_cloud.recalled(small) == []
    assert len(cloud.requests) == before


def test_small_talk_is_kept_only_where_a_model_looks_for_facts(agent: Agent, request: Any) -> None:
    agent.say("ok, thanks!")
    raw = request.node.callspec.params["agent"] == "in_process"
    assert agent.remembered() == ([] if raw else ["ok, thanks!"])


def test_recall_keeps_to_its_budget(agent: Agent) -> None:
    for number in range(6):
        agent.say(f"{TORTOISE} Number {number} of many.", f"t{number}")
    assert len(agent.recalled(ASKED)) == 6
    assert 1 <= len(agent.recalled(ASKED, budget=40)) <= 3
    assert agent.recalled(ASKED, budget=0) == []


def test_what_fits_too_little_is_not_recalled(start: Start, cloud: Cloud) -> None:
    agent = start(api_url=cloud.url, min_score=0.6)
    agent.say(TORTOISE)
    assert agent.recalled("How is the tortoise called?") == [TORTOISE]
    assert agent.recalled("Would a tortoise like lettuce better than clover?") == []


def test_the_cloud_is_given_both_sides_and_the_metadata(on_cloud: Agent, cloud: Cloud) -> None:
    on_cloud.say(TORTOISE, answer="A fine name.")
    (sent,) = [r.json for r in cloud.requests if r.path == "/v3/memories/add/"]
    assert [m["content"] for m in sent["messages"]] == [TORTOISE, "A fine name."]
    assert sent["metadata"] == {"hermes_id": "t1", "source": "turn", "session": "s1", "channel": "cli"}


def test_without_inference_the_persons_own_words_are_kept(start: Start, cloud: Cloud) -> None:
    agent = start(api_url=cloud.url, infer=False)
    agent.say(TORTOISE)
    assert agent.remembered() == [TORTOISE]


def test_in_this_process_a_language_model_draws_facts_when_there_is_one(start: Start, models: Models) -> None:
    url = f"{models.url}/v1"
    agent = start(mode="oss", embedder="openai", embedder_url=url, llm="openai", llm_url=url)
    for _ in range(2):
        agent.say(TORTOISE)
    assert agent.remembered() == [f"User said: {TORTOISE}"]


def test_turns_that_are_taken_back_are_forgotten(agent: Agent) -> None:
    agent.say(TORTOISE, "t1")
    agent.say(BOATHOUSE, "t2")
    back = SessionSwitch("w1", agent.session(), agent.session("s2"), "rewind", rewound_turns=("t2", "never"))
    for _ in range(2):
        agent.provider.on_session_switch(back)
    assert agent.remembered() == [TORTOISE]


def test_what_a_subagent_found_is_kept_once(agent: Agent) -> None:
    for _ in range(2):
        agent.provider.on_delegation(Delegation("d1", "Find the key.", BOATHOUSE), agent.session())
    (kept,) = agent.remembered()
    assert "Find the key." in kept
    assert BOATHOUSE in kept


# -------------------------------------------------------------------------------------------------------------- entries


def test_entries_are_mirrored_replaced_and_removed(agent: Agent) -> None:
    for _ in range(2):
        agent.write("w1", "add", TORTOISE)
    assert agent.remembered() == [TORTOISE]
    for _ in range(2):
        agent.write("w2", "replace", BOATHOUSE, old_text="tortoise", previous=TORTOISE)
    assert agent.remembered() == [BOATHOUSE]
    for _ in range(2):
        agent.write("w3", "remove", old_text="boathouse", previous=BOATHOUSE)
    assert agent.remembered() == []


def test_an_entry_known_by_a_piece_only_is_found_when_no_other_has_it(agent: Agent) -> None:
    agent.write("w1", "add", TORTOISE, performed=False)
    agent.write("w2", "add", BOATHOUSE, performed=False)
    agent.write("w3", "remove", old_text="is called", performed=False)
    assert agent.remembered() == [BOATHOUSE]
    agent.write("w4", "add", "The boathouse was painted.", performed=False)
    agent.write("w5", "remove", old_text="boathouse", performed=False)
    assert len(agent.remembered()) == 2


def test_an_entry_of_the_person_and_one_of_the_agent_are_two(agent: Agent) -> None:
    agent.write("w1", "add", TORTOISE, target="memory")
    agent.write("w2", "add", TORTOISE, target="user")
    agent.write("w3", "remove", previous=TORTOISE, target="user")
    assert agent.remembered() == [TORTOISE]


# ---------------------------------------------------------------------------------------------------------------- tools


def test_the_three_tools_of_a_profile(agent: Agent) -> None:
    names = [schema["name"] for schema in agent.provider.get_tool_schemas()]
    assert names == ["mem0_profile", "mem0_search", "mem0_conclude"]
    assert agent.tool("mem0_profile") == {"result": "No memories stored yet.", "count": 0}
    assert agent.tool("mem0_search", query="tortoise") == {"result": "No relevant memories found."}
    kept = agent.tool("mem0_conclude", conclusion=TORTOISE)["result"]
    assert kept in ("Fact stored.", "Fact queued for storage.")
    assert agent.tool("mem0_conclude", conclusion=TORTOISE) == {"result": "Fact was stored before."}
    assert agent.tool("mem0_profile") == {"result": f"- {TORTOISE}", "count": 1}
    (found,) = agent.tool("mem0_search", query=ASKED, top_k=900)["results"]
    assert found["memory"] == TORTOISE


def edit_tools(start: Start, request: pytest.FixtureRequest) -> Agent:
    """An agent of the present backend with the other set of tools."""
    settings = json.loads((request.getfixturevalue("tmp_path") / "mem0.json").read_text())
    return start(**settings, tools="edit")


def test_the_five_tools_of_an_editor(agent: Agent, start: Start, request: pytest.FixtureRequest) -> None:
    agent.provider.shutdown()
    agent = edit_tools(start, request)
    names = [schema["name"] for schema in agent.provider.get_tool_schemas()]
    assert names == ["mem0_search", "mem0_add", "mem0_update", "mem0_delete", "mem0_list"]
    agent.tool("mem0_add", content=TORTOISE)
    (listed,) = agent.tool("mem0_list")["results"]
    assert listed["memory"] == TORTOISE
    changed = agent.tool("mem0_update", memory_id=listed["id"], text=BOATHOUSE)
    assert changed == {"result": "Memory updated.", "memory_id": listed["id"]}
    assert agent.remembered() == [BOATHOUSE]
    agent.tool("mem0_add", content=TORTOISE)
    assert agent.remembered() == [TORTOISE, BOATHOUSE]
    assert agent.tool("mem0_delete", memory_id=agent.tool("mem0_search", query=ASKED)["results"][0]["id"])
    assert agent.tool("mem0_delete", memory_id=listed["id"])["result"] == "Memory deleted."
    assert agent.tool("mem0_list") == {"results": [], "count": 0}


@pytest.mark.parametrize("memory_id", ["no-uuid", "../1", str(uuid.UUID(int=9))])
def test_an_id_that_is_not_there_is_a_clean_error(
    agent: Agent, start: Start, request: pytest.FixtureRequest, memory_id: str
) -> None:
    agent.provider.shutdown()
    agent = edit_tools(start, request)
    for tool, more in (("mem0_update", {"text": "x"}), ("mem0_delete", {})):
        answer = agent.tool(tool, memory_id=memory_id, **more)
        assert answer["error"].startswith(f"there is no memory {memory_id!r}")


def test_another_users_memory_is_not_there(
    agent: Agent, start: Start, request: pytest.FixtureRequest
) -> None:
    agent.provider.shutdown()
    agent = edit_tools(start, request)
    ada = agent.session(platform="telegram", user_id="ada")
    agent.tool("mem0_add", session=ada, content=TORTOISE)
    (theirs,) = agent.tool("mem0_list", session=ada)["results"]
    bob = agent.session(platform="telegram", user_id="bob")
    assert "there is no memory" in agent.tool("mem0_delete", session=bob, memory_id=theirs["id"])["error"]
    assert agent.tool("mem0_list", session=bob)["count"] == 0
    assert agent.tool("mem0_list", session=ada)["count"] == 1


@pytest.mark.parametrize(("tool", "field"), [("mem0_conclude", "conclusion"), ("mem0_search", "query")])
def test_blank_text_is_told(on_cloud: Agent, tool: str, field: str) -> None:
    assert "is empty" in on_cloud.tool(tool, **{field: " \n"})["error"]


def test_the_cloud_may_store_later(on_cloud: Agent, cloud: Cloud) -> None:
    cloud.lag = 3
    assert on_cloud.tool("mem0_conclude", conclusion=TORTOISE) == {"result": "Fact queued for storage."}


@pytest.mark.slow
def test_the_self_test_waits_for_the_cloud(on_cloud: Agent, cloud: Cloud) -> None:
    cloud.lag = 2
    assert [check.ok for check in on_cloud.provider.check(on_cloud.session())] == [True, True]
    assert cloud.memories.by_id == {}


# ------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("mode", "recalls", "offers"), [("hybrid", True, 3), ("context", True, 0), ("tools", False, 3)]
)
def test_recall_modes(start: Start, cloud: Cloud, mode: str, recalls: bool, offers: int) -> None:
    agent = start(api_url=cloud.url, recall_mode=mode)
    agent.say(TORTOISE)
    assert agent.recalled(ASKED) == ([TORTOISE] if recalls else [])
    assert len(agent.provider.get_tool_schemas()) == offers
    assert ("mem0_search" in agent.provider.system_prompt_block()) == bool(offers)


def test_users_profiles_and_chats_without_a_user_have_ids_of_their_own(tmp_path: Path) -> None:
    options = load_settings(SETTINGS, tmp_path, NAME, {})
    sessions = [
        Session("s", platform=platform, identity=identity, user_id=user, chat_id=chat)
        for identity in ("default", "work")
        for platform, user, chat in [
            *(("cli", "", ""), ("telegram", "42", "7"), ("telegram", "", "42"), ("discord", "42", "7")),
            *(("telegram", "4 2", "7"), ("telegram", "4_2", "7"), ("telegram", "日本", "7")),
        ]
    ]
    ids = [user_of(options, session) for session in sessions]
    assert len(set(ids)) == len(ids)
    assert ids[0] == "hermes-user"
    assert not any(set(id_) & set(" \t/\\\"'") for id_ in ids)


def test_an_explicit_user_comes_first_and_yesterdays_placeholder_is_none(tmp_path: Path) -> None:
    gateway = Session("s", platform="telegram", user_id="42")
    mel = load_settings(SETTINGS, tmp_path, NAME, {"MEM0_USER_ID": "mel smith"})
    assert user_of(mel, gateway) == "mel-smith"
    unset = load_settings(SETTINGS, tmp_path, NAME, {"MEM0_USER_ID": "hermes-user"})
    assert user_of(unset, gateway).startswith("hermes-user-telegram-42-")


def test_a_host_alone_means_a_server_as_it_always_did(start: Start, server: OwnServer) -> None:
    agent = start(host=server.url)
    agent.say(TORTOISE)
    assert server.memories.texts() == [TORTOISE]


def test_todays_file_of_mode_oss_is_read(start: Start, models: Models, tmp_path: Path) -> None:
    config = {"model": "own", "openai_base_url": f"{models.url}/v1", "api_key": "sk-in-the-file"}
    store = {"provider": "qdrant", "config": {"path": str(tmp_path / "vectors"), "collection_name": "facts"}}
    oss = {
        "llm": {"provider": "OpenAI", "config": {"model": "m", "api_base": f"{models.url}/v1"}},
        "embedder": {"provider": "openai", "config": config},
        "vector_store": store,
    }
    agent = start(mode="oss", user_id="mel", agent_id="hermes", oss=oss)
    agent.say(TORTOISE)
    assert agent.remembered("mel") == [f"User said: {TORTOISE}"]
    assert (tmp_path / "vectors" / "collection" / "facts").is_dir()
    assert agent.provider.capabilities.serial


def test_a_part_of_todays_file_may_say_little(start: Start, models: Models) -> None:
    embedder = {"provider": "openai", "config": {"openai_base_url": f"{models.url}/v1"}}
    agent = start(mode="oss", oss={"embedder": embedder, "vector_store": {"provider": "qdrant"}})
    agent.say(TORTOISE)
    assert agent.remembered() == [TORTOISE]
    assert (agent.home.path / "mem0_qdrant").is_dir()
    assert agent.provider.capabilities.serial


def test_openai_is_asked_for_vectors_of_the_size_that_is_set(tmp_path: Path) -> None:
    options = load_settings(
        SETTINGS, tmp_path, NAME, {}, {"mode": "oss", "embedder": "openai", "embedding_dims": 512}
    )
    assert configuration(options, tmp_path)["embedder"]["config"]["embedding_dims"] == 512


def test_only_a_store_of_files_is_asked_one_thing_at_a_time(
    start: Start, cloud: Cloud, models: Models
) -> None:
    assert not start(api_url=cloud.url).provider.capabilities.serial
    oss = {"mode": "oss", "embedder": "openai", "embedder_url": f"{models.url}/v1"}
    assert start(**oss).provider.capabilities.serial
    Path(HermesHome.resolve().path, "mem0.json").write_text(
        json.dumps({**oss, "vector_url": "http://q:6333"})
    )
    assert not Mem0Provider().capabilities.serial


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "'api_key' is not set"),
        ({"mode": "selfhosted"}, "'host' is not set"),
        ({"mode": "oss"}, "'local' needs the package .*hermes-memory memory setup mem0 installs it"),
        ({"mode": "oss", "embedder": "openai"}, "OPENAI_API_KEY is not set"),
        ({"mode": "oss", "embedder": "ollama"}, "'ollama' needs the package"),
        (
            {"mode": "oss", "embedder": "openai", "embedder_url": "http://x/v1", "vector_store": "faiss"},
            "faiss",
        ),
        (
            {"mode": "oss", "embedder": "openai", "embedder_url": "http://x/v1", "llm": "openai"},
            "OPENAI_API_KEY",
        ),
    ],
    ids=str,
)
def test_what_is_missing_is_told_without_looking_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], words: str
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    for name in ("MEM0_API_KEY", "OPENAI_API_KEY", "MEM0_HOST"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "mem0.json").write_text(json.dumps(settings))
    found = Mem0Provider().is_available()
    assert not found.ok
    assert re.search(words, f"{found.reason}; {found.remedy}")


# ----------------------------------------------------------------------------------------------------- in this process


def test_all_it_keeps_is_in_the_home(in_process: Agent) -> None:
    in_process.say(TORTOISE)
    names = {path.relative_to(in_process.home.path).parts[0] for path in in_process.home.path.rglob("*")}
    assert names == {"mem0.json", "mem0", "mem0_qdrant"}
    assert in_process.provider.backup_paths() == []


def test_a_store_outside_the_home_is_backed_up(
    start: Start, models: Models, tmp_path_factory: pytest.TempPathFactory
) -> None:
    away = tmp_path_factory.mktemp("away")
    url = f"{models.url}/v1"
    agent = start(mode="oss", embedder="openai", embedder_url=url, vector_path=str(away))
    assert agent.provider.backup_paths() == [str(away)]


@pytest.mark.parametrize("change", [{"embedder_model": "another"}, {"embedding_dims": 96}], ids=str)
def test_another_embedder_is_refused_and_nothing_lost(
    in_process: Agent, start: Start, models: Models, change: dict[str, Any]
) -> None:
    in_process.say(TORTOISE)
    in_process.provider.shutdown()
    same = {"mode": "oss", "embedder": "openai", "embedder_url": f"{models.url}/v1"}
    with pytest.raises(ConfigError, match=r"64 dimensions.*nothing was changed.*--set collection=NAME"):
        start(**same, **change)
    assert start(**same).remembered() == [TORTOISE]


def test_another_embedder_may_fill_another_collection(
    in_process: Agent, start: Start, models: Models
) -> None:
    in_process.say(TORTOISE)
    in_process.provider.shutdown()
    url = f"{models.url}/v1"
    agent = start(mode="oss", embedder="openai", embedder_url=url, embedder_model="new", collection="new")
    assert agent.remembered() == []
    agent.say(BOATHOUSE)
    assert agent.remembered() == [BOATHOUSE]


def test_a_collection_of_another_size_from_before_is_refused_too(
    in_process: Agent, start: Start, models: Models
) -> None:
    in_process.say(TORTOISE)
    in_process.provider.shutdown()
    (in_process.home.path / "mem0" / "collections.json").unlink()
    url = f"{models.url}/v1"
    with pytest.raises(ConfigError, match=r"holds vectors of 'another embedder' \(64 dimensions\)"):
        start(mode="oss", embedder="openai", embedder_url=url, embedding_dims=96)
    agent = start(mode="oss", embedder="openai", embedder_url=url)
    assert agent.remembered() == [TORTOISE]


def test_a_server_that_makes_other_vectors_all_of_a_sudden_is_named(
    in_process: Agent, models: Models
) -> None:
    in_process.say(TORTOISE)
    models.dimensions = 96
    for call in (lambda: in_process.say(BOATHOUSE, "t2"), lambda: in_process.recalled(ASKED)):
        with pytest.raises(
            Exception, match=r"vectors that the collection .* can't take.*--set collection=NAME"
        ):
            call()
    models.dimensions = 64
    assert in_process.recalled(ASKED) == [TORTOISE]


# Qdrant leaves its lock file open when it can't lock it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_store_that_another_process_holds_is_told(in_process: Agent, start: Start, models: Models) -> None:
    with pytest.raises(BackendUnavailable, match=r"open in another process.*vector_url"):
        start(mode="oss", embedder="openai", embedder_url=f"{models.url}/v1")
    # The SDK leaves the lock file open that it did not get, which else is collected in some later test.
    gc.collect()
    in_process.provider.shutdown()
    start(mode="oss", embedder="openai", embedder_url=f"{models.url}/v1")


def test_nothing_is_told_to_anybody_unless_asked_for(in_process: Agent) -> None:
    import mem0.memory.telemetry as telemetry

    assert telemetry.MEM0_TELEMETRY is False
    assert telemetry.client_telemetry.posthog is None
    assert not [t.name for t in threading.enumerate() if "posthog" in type(t).__module__]


def test_no_warning_of_the_store_reaches_the_terminal(
    start: Start, models: Models, recwarn: pytest.WarningsRecorder
) -> None:
    from qdrant_client.common.client_warnings import SEEN_MESSAGES

    SEEN_MESSAGES.clear()  # it warns once per process
    warnings.simplefilter("always")
    agent = start(mode="oss", embedder="openai", embedder_url=f"{models.url}/v1")
    agent.provider.client.erase("hermes-user", "")
    assert [str(one.message) for one in recwarn if "index" in str(one.message)] == []


def test_importing_the_package_imports_no_sdk() -> None:
    seen = "import sys, hermes_mem0; print(sorted({'mem0', 'httpx', 'openai', 'qdrant_client'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_two_profiles_on_one_account_share_nothing(start: Start, cloud: Cloud, tmp_path: Path) -> None:
    agent = start(api_url=cloud.url)
    work, play = (agent.session(identity=name) for name in ("work", "play"))
    agent.say(TORTOISE, session=work)
    agent.tool("mem0_conclude", session=work, conclusion=BOATHOUSE)
    assert len(agent.recalled(ASKED, work)) == 1
    for other in (play, agent.session()):
        assert agent.recalled(ASKED, other) == []
        assert agent.tool("mem0_profile", session=other)["count"] == 0


FASTEMBED = """
asked = []

def SparseTextEmbedding(model_name):
    asked.append(model_name)
    raise OSError("no network")
"""


@pytest.mark.parametrize("wanted", [False, True])
def test_the_model_of_keyword_search_is_fetched_only_when_it_is_wanted(
    start: Start, models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    (tmp_path / "fastembed.py").write_text(FASTEMBED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "fastembed", raising=False)
    url = f"{models.url}/v1"
    agent = start(mode="oss", embedder="openai", embedder_url=url, keyword_search=wanted)
    agent.say(TORTOISE)
    assert agent.recalled(ASKED) == [TORTOISE]
    asked = getattr(sys.modules.pop("fastembed", None), "asked", [])
    assert asked == (["Qdrant/bm25"] if wanted else [])


def test_a_turn_and_an_imported_memory_keep_their_days(agent: Agent) -> None:
    march = 1_772_356_800.0
    said = Turn("t1", 1, "I moved to Oslo in spring.", "Noted.", at=march + 60, user_at=march)
    agent.provider.sync_turn(said, agent.session())
    agent.provider.import_memory(MemoryRecord("The oars lie in Marrowby.", created_at=march), agent.session())
    found = agent.provider.client.listed(user_of(agent.provider.options, agent.session()), 100)
    assert {note.day for note in found} == {"2026-03-01"}
