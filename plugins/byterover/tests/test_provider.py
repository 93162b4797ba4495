"""What this provider does with hooks and tools, and the rules that are its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hermes_byterover import ByteRoverProvider
from hermes_byterover.provider import readable
from hermes_byterover.tree import Tree, folder_of

from hermes_core import Delegation, HermesHome, MemoryWrite, Session, SessionSwitch, open_memory
from hermes_core.contract.values import MemoryRecord
from hermes_core.kit import BackendAuthError, BackendRefused, BackendUnavailable, ConfigError
from hermes_core.recall import count_tokens
from plugins.byterover.tests.conftest import Agent
from plugins.byterover.tests.stand_in import DOWN, StandInBrv

TORTOISE = "My tortoise is called Quillfeather."
ASKED = "What is my tortoise called?"


def write(agent: Agent, action: Any = "add", content: str = "", **fields: Any) -> None:
    change = MemoryWrite(f"w-{action}-{content}", action, fields.pop("target", "user"), content, **fields)
    agent.provider.on_memory_write(change, agent.session())


# --------------------------------------------------------------------- recall


def test_a_turn_is_recalled_without_a_model(agent: Agent) -> None:
    agent.say(TORTOISE)
    (text,) = agent.recall(ASKED)
    assert (
        text
        == f"Reason said Highlights Conversation of 2027-01-15 08:00 UTC. User: {TORTOISE} Assistant: Noted."
    )
    assert agent.brv.calls("query") == []


def test_small_talk_is_neither_searched_nor_curated(agent: Agent) -> None:
    agent.say("ok, thanks!")
    assert agent.recall("ok, thanks!") == []
    assert agent.brv.calls("search") == agent.brv.calls("curate") == []


def test_what_is_found_below_the_floor_is_not_recalled(start: Callable[..., Agent]) -> None:
    agent = start(min_score=0.8)
    agent.say(TORTOISE)
    assert agent.recall(f"{ASKED} And the parrot?") == []
    assert len(agent.recall(ASKED)) == 1


def test_recall_keeps_to_the_budget(agent: Agent) -> None:
    for number in range(6):
        write(agent, content=f"The tortoise number {number} is called Quillfeather the {number}th.")
    found = agent.recall(ASKED, budget=40)
    assert 0 < count_tokens("\n".join(found)) <= 40


def test_the_index_may_be_old_and_what_was_removed_is_not_recalled(agent: Agent) -> None:
    write(agent, content=TORTOISE)
    agent.brv.fail("old index")
    assert agent.recall(ASKED) == [TORTOISE]
    write(agent, "remove", previous=TORTOISE)
    assert agent.recall(ASKED) == []


def test_what_lies_in_a_linked_tree_is_recalled_though_it_is_not_here(agent: Agent) -> None:
    found = [{"path": "team/a.md", "score": 0.9, "excerpt": "We deploy on Mondays.", "origin": "shared"}]
    answer = {"command": "search", "data": {"results": found}, "success": True}
    agent.brv.fail("search", kind="text", text=json.dumps(answer))
    assert agent.recall("When do we deploy?") == ["We deploy on Mondays."]


def test_a_brv_that_fails_is_not_an_empty_memory(agent: Agent) -> None:
    with agent.brv.outage(), pytest.raises(BackendUnavailable, match="Daemon failed to start"):
        agent.recall(ASKED)


@pytest.mark.parametrize(
    ("mode", "searches", "tools"), [("hybrid", 1, 3), ("context", 1, 0), ("tools", 0, 3)]
)
def test_the_recall_mode_chooses_recall_tools_or_both(
    start: Callable[..., Agent], mode: str, searches: int, tools: int
) -> None:
    agent = start(recall_mode=mode)
    agent.recall(ASKED)
    assert len(agent.brv.calls("search")) == searches
    assert len(agent.provider.get_tool_schemas()) == tools
    assert ("brv_query" in agent.provider.system_prompt_block()) == (tools > 0)
    assert ("by itself" in agent.provider.system_prompt_block()) == (searches > 0)


@pytest.mark.parametrize(
    ("excerpt", "text"),
    [
        ("---\ntitle: x\n---\n\nLikes tea.\n", "Likes tea."),
        ("## Reason\nsaid\n\n---\n\n**Task:**\nKeep", "Reason said Task: Keep"),
        ("---\nno end of it", "no end of it"),
        ("[hermes turn 4f-2] Likes [some] tea.", "Likes [some] tea."),
        ("", ""),
    ],
)
def test_an_excerpt_is_recalled_as_plain_text(excerpt: str, text: str) -> None:
    assert readable(excerpt) == text


# ---------------------------------------------------------------------- writes


def test_a_turn_is_curated_with_its_id_and_time(agent: Agent) -> None:
    agent.say(TORTOISE, "How nice!", turn="4f")
    assert agent.brv.curated() == [
        f"[hermes turn 4f]\nConversation of 2027-01-15 08:00 UTC.\nUser: {TORTOISE}\nAssistant: How nice!"
    ]


def test_without_auto_extract_only_the_agent_curates(start: Callable[..., Agent]) -> None:
    agent = start(auto_extract=False)
    agent.say(TORTOISE)
    agent.provider.on_delegation(Delegation("d1", "Look.", "Found."), agent.session())
    assert agent.brv.curated() == []
    agent.tool("brv_curate", content=TORTOISE)
    assert len(agent.brv.curated()) == 1


def test_what_a_subagent_found_is_curated_once(agent: Agent) -> None:
    for _ in range(2):
        agent.provider.on_delegation(Delegation("d1", "Find the tortoise.", TORTOISE), agent.session())
    assert agent.brv.curated() == [
        f"[hermes delegation d1]\nA subagent finished a task.\nTask: Find the tortoise.\nResult: {TORTOISE}"
    ]


def test_entries_of_curated_memory_are_files_without_a_model(agent: Agent) -> None:
    with agent.brv.outage():
        write(agent, content=TORTOISE)
        write(agent, content=TORTOISE)
    (note,) = (agent.home / "byterover/.brv/context-tree/hermes/user").iterdir()
    assert note.read_text("utf-8").startswith(f'---\ntitle: "{TORTOISE}"\n')
    assert agent.brv.calls("curate") == []


def test_a_replaced_entry_is_replaced_and_a_removed_one_gone(agent: Agent) -> None:
    write(agent, content=TORTOISE)
    write(agent, "replace", "My tortoise is called Hobbes.", previous=TORTOISE)
    assert agent.recall(ASKED) == ["My tortoise is called Hobbes."]
    write(agent, "remove", previous="My tortoise is called Hobbes.")
    write(agent, "remove", previous="Never seen.")
    assert agent.recall(ASKED) == []


def test_an_entry_is_found_by_a_part_of_it_when_no_more_is_known(agent: Agent) -> None:
    write(agent, content=TORTOISE)
    write(agent, content="My parrot is called Hobbes.")
    write(agent, "remove", old_text="is called", performed=False)
    assert len(agent.recall("What is called?")) == 2
    write(agent, "replace", "My tortoise is called Ada.", old_text="Quillfeather", performed=False)
    assert agent.recall(ASKED)[0] == "My tortoise is called Ada."
    assert "Quillfeather" not in " ".join(agent.recall(ASKED))


def test_what_brv_itself_wrote_beside_the_entries_is_never_taken_for_one(agent: Agent) -> None:
    folder = agent.provider.tree(agent.session()).root / "hermes" / "memory"
    folder.mkdir(parents=True)
    for name, text in (
        ("tea.md", b"Quillfeather drinks tea."),
        ("teahouse.md", b"Open."),
        ("odd.md", b"\xff"),
    ):
        (folder / name).write_bytes(text)
    write(agent, "remove", old_text="Quillfeather", target="memory", performed=False)
    assert sorted(path.name for path in folder.iterdir()) == ["odd.md", "tea.md", "teahouse.md"]


def test_an_entry_of_memory_and_one_of_the_user_are_two(agent: Agent) -> None:
    write(agent, content=TORTOISE, target="user")
    write(agent, content=TORTOISE, target="memory")
    write(agent, "remove", previous=TORTOISE, target="memory")
    assert agent.recall(ASKED) == [TORTOISE]


def test_a_turn_that_was_taken_back_is_taken_out(agent: Agent) -> None:
    agent.say(TORTOISE, turn="t1")
    agent.say("My parrot is called Hobbes.", turn="t2")
    session = agent.session()
    rewind = SessionSwitch("s", session, session, "rewind", rewound_turns=("t2", "unknown"))
    for _ in range(2):
        agent.provider.on_session_switch(rewind)
    assert len(agent.recall(ASKED)) == 1
    assert agent.recall("What is my parrot called?")[0].count("Hobbes") == 0
    assert [text.partition("]")[0] for text in agent.brv.curated()][2:] == ["[hermes rewind t2"]


# ------------------------------------------------------------------ boundaries


def test_what_leaves_the_context_is_curated_and_named(agent: Agent) -> None:
    said = [
        {"role": "system", "content": "Be nice."},
        {"role": "user", "content": TORTOISE},
        {"role": "assistant", "content": "ok"},
        {"role": "tool", "content": "secret output"},
    ]
    told = agent.provider.on_pre_compress(said, 0, agent.session())
    assert told.startswith("Saved in ByteRover:\n- conversation/notes/note_")
    assert told.endswith(".md: what was said")
    (text,) = agent.brv.curated()
    assert text.endswith(f"user: {TORTOISE}")
    assert agent.provider.on_pre_compress([{"role": "user", "content": "thanks!"}], 1, agent.session()) == ""


def test_a_compression_that_saves_nothing_says_so(agent: Agent) -> None:
    agent.brv.fail("curation", nothing=True)
    with pytest.raises(BackendRefused):
        agent.provider.on_pre_compress([{"role": "user", "content": TORTOISE}], 0, agent.session())


# ----------------------------------------------------------------------- tools


def test_a_query_answers_with_sources_and_an_unknown_thing_with_one_sentence(agent: Agent) -> None:
    agent.say(TORTOISE)
    answer = agent.tool("brv_query", query=ASKED)
    assert "Quillfeather" in answer["result"]
    assert answer["sources"][0].startswith("conversation/notes/")
    assert agent.tool("brv_query", query="Where is the zeppelin?") == {
        "result": "No relevant memories found."
    }
    assert agent.brv.calls("query")[0]["words"][1:3] == ["--timeout", "48"]


def test_curating_tells_what_changed_and_what_waits_for_review(agent: Agent, caplog: Any) -> None:
    caplog.set_level("INFO")
    agent.brv.fail("curation", pending=True)
    done = agent.tool("brv_curate", content="Deploys go out on Mondays.")
    assert done["result"] == "Memory curated successfully."
    assert done["changes"][0].endswith(".md: what was said")
    assert done["pending_review"] == 1
    assert "brv review approve task-" in caplog.text
    assert agent.tool("brv_status")["status"]["pending_review"] == 1


def test_curating_the_same_again_is_done_already(agent: Agent) -> None:
    first = agent.tool("brv_curate", content="Deploys go out on Mondays.")
    assert agent.tool("brv_curate", content="Deploys go out on Mondays.") == first
    assert len(agent.brv.curated()) == 1


def test_a_note_whose_files_are_gone_is_curated_again(agent: Agent) -> None:
    tree = agent.provider.tree(agent.session())
    for expected in (1, 2):
        for _ in range(2):
            done = agent.tool("brv_curate", content="Deploys go out on Mondays.")
            assert len(agent.brv.curated()) == expected
        (tree.root / done["changes"][0].partition(":")[0]).unlink()


@pytest.mark.parametrize(("name", "argument"), [("brv_query", "query"), ("brv_curate", "content")])
def test_an_empty_argument_is_sent_back(agent: Agent, name: str, argument: str) -> None:
    assert argument in agent.tool(name, **{argument: "  "})["error"]


def test_the_status_tells_version_account_model_and_tree(agent: Agent) -> None:
    assert agent.tool("brv_status") == {
        "status": {
            "version": "3.14.0",
            "account": "not_logged_in",
            "model": "stand-in literal",
            "tree": str(agent.home / "byterover/.brv/context-tree"),
            "pending_review": 0,
        }
    }


# ---------------------------------------------------------------------- places


def test_users_of_a_gateway_have_trees_of_their_own(agent: Agent) -> None:
    ada, bob = {"platform": "telegram", "user_id": "ada"}, {"platform": "telegram", "user_id": "bob"}
    agent.say(TORTOISE, **ada)
    assert len(agent.recall(ASKED, **ada)) == 1
    assert agent.recall(ASKED, **bob) == agent.recall(ASKED) == []


def test_trees_lie_side_by_side_and_ids_are_no_paths(tmp_path: Path) -> None:
    owner = folder_of(Session("s"), tmp_path, "")
    guest = folder_of(Session("s", platform="x", user_id="../../etc"), tmp_path, "")
    assert owner == tmp_path / "byterover"
    assert guest.parent == tmp_path / "byterover-users"
    assert re.fullmatch("x-etc-[0-9a-f]{16}", guest.name)


def test_a_project_further_up_is_not_taken_for_ours(start: Callable[..., Agent], tmp_path: Path) -> None:
    Tree(tmp_path).add("user", "My tortoise is called Nobody.")
    agent = start()
    assert agent.recall(ASKED) == []
    agent.say(TORTOISE)
    assert len(agent.recall(ASKED)) == 1


def test_a_folder_of_the_settings_is_one_tree_for_all(start: Callable[..., Agent], tmp_path: Path) -> None:
    agent = start(folder=str(tmp_path / "ours"))
    agent.say(TORTOISE, platform="telegram", user_id="ada")
    assert len(agent.recall(ASKED)) == 1
    assert agent.provider.backup_paths() == [str(tmp_path / "ours")]
    assert start().provider.backup_paths() == []


# ----------------------------------------------------------------------- setup


def test_without_the_program_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "byterover.json").write_text('{"command": "no-such-brv"}')
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    found = ByteRoverProvider().is_available()
    assert not found
    assert found.reason == "the program 'no-such-brv' is not installed"
    assert "npm install -g byterover-cli" in found.remedy


def test_looking_whether_it_is_there_runs_nothing(agent: Agent) -> None:
    before = len(agent.brv.calls())
    assert agent.provider.is_available()
    assert len(agent.brv.calls()) == before


def test_a_start_without_a_daemon_fails_and_says_so(start: Callable[..., Agent], brv: StandInBrv) -> None:
    brv.fail(kind="error", error=DOWN)
    with pytest.raises(BackendUnavailable, match="Daemon failed to start"):
        start()


def test_a_start_logs_in_once_and_goes_on_with_a_wrong_key(
    start: Callable[..., Agent], brv: StandInBrv, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setenv("BRV_API_KEY", "bad-key")
    agent = start()
    assert "Invalid API key" in caplog.text
    assert "bad-key" not in caplog.text
    failed = [check for check in agent.provider.check(agent.session()) if not check.ok]
    assert [(check.name, check.remedy) for check in failed] == [("account", "check BRV_API_KEY")]
    monkeypatch.setenv("BRV_API_KEY", "good-key")
    for _ in range(2):
        agent = start()
    assert len(brv.calls("login")) == 2
    assert all(check.ok for check in agent.provider.check(agent.session()))


def test_a_start_connects_the_model_of_the_settings_once_and_again_when_they_change(
    start: Callable[..., Agent], brv: StandInBrv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRV_MODEL_API_KEY", "sk-model")
    given = {"model_provider": "openai-compatible", "model_base_url": "http://m/v1", "model": "m1"}
    for _ in range(2):
        start(**given)
    (call,) = brv.calls("providers connect")
    start(**{**given, "model": "m2"})
    assert brv.calls("providers connect")[1]["words"][7:9] == ["--model", "m2"]
    assert call["words"][3:9] == ["--base-url", "http://m/v1", "--api-key", "sk-model", "--model", "m1"]
    with pytest.raises(BackendUnavailable, match="Unknown provider"):
        start(model_provider="nobody")


def test_the_check_names_what_is_missing(agent: Agent) -> None:
    names = ["program", "write and recall", "delete", "model", "account", "review"]
    assert [(check.name, check.ok) for check in agent.provider.check(agent.session())] == [
        (n, True) for n in names
    ]
    agent.brv.fail("providers list", kind="text", text='{"data": {"providers": []}, "success": true}')
    model = agent.provider.check(agent.session())[3]
    assert (model.ok, model.remedy) == (
        False,
        "connect a model: hermes-memory byterover brv providers connect",
    )


def test_without_a_model_turns_wait_and_nothing_is_lost(agent: Agent) -> None:
    agent.brv.fail("curate", kind="error", error="No provider connected. Run ...")
    with open_memory(HermesHome(agent.home), provider="byterover") as memory:
        session = memory.start_session()
        memory.end_turn(session, TORTOISE, "Noted.")
        assert not memory.flush(1.0)
        agent.brv.heal()
        assert memory.flush(20.0)
    assert agent.brv.said() == [TORTOISE]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"recall_mode": "all"}, "recall_mode"),
        ({"query_timeout": 5}, "query_timeout"),
        ({"min_score": 2}, "min_score"),
    ],
)
def test_a_wrong_setting_is_named(start: Callable[..., Agent], settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        start(**settings)


# -------------------------------------------------------------------- commands


@pytest.fixture
def run(agent: Agent) -> Callable[..., Result]:
    group = click.Group("byterover")
    ByteRoverProvider(pause=0.01).register_cli(group)
    root = click.Group("hermes", {"byterover": group}, params=[click.Option(["--home"])])

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(
            root, ["--home", str(agent.home), "byterover", *words], catch_exceptions=False
        )

    return invoke


def test_commands_tell_status_search_and_log(agent: Agent, run: Callable[..., Result]) -> None:
    assert "Nothing was found." in run("search", "tortoise").stderr
    agent.say(TORTOISE, turn="t1")
    agent.brv.fail("curation", nothing=True)
    with pytest.raises(BackendRefused):
        agent.say("My parrot is \x1b[31mred.", turn="t2")
    assert "model: stand-in literal\n" in run("status").stdout
    assert json.loads(run("status", "--json").stdout)["pending_review"] == 0
    assert TORTOISE in run("search", "tortoise").stdout
    assert json.loads(run("search", "tortoise", "-n", "1", "--json").stdout)[0]["score"] == 0.9
    newest, oldest = run("log").stdout.splitlines()
    assert "kept nothing" in newest
    assert newest.endswith("[hermes turn t2]")
    assert "completed  conversation/notes/" in oldest
    assert json.loads(run("log", "-n", "1", "--json").stdout)[0]["status"] == "kept nothing"


def test_brv_itself_runs_with_the_data_of_the_profile(
    agent: Agent, run: Callable[..., Result], capfd: pytest.CaptureFixture[str]
) -> None:
    result = run("brv", "review", "pending", "--format", "json")
    assert result.exit_code == 0
    assert json.loads(capfd.readouterr().out)["data"]["pendingCount"] == 0
    assert agent.brv.calls("review pending")[0]["cwd"] == str(agent.home / "byterover")
    assert agent.brv.calls("review pending")[0]["env"]["BRV_DATA_DIR"] == str(
        agent.home / "byterover-data/brv"
    )
    assert run("brv", "--help").exit_code == 1  # the stand-in's answer to what it does not know
    assert run("brv", "status", "--nosuch").exit_code == 2


def test_the_error_of_a_login_is_told(agent: Agent) -> None:
    with pytest.raises(BackendAuthError):
        agent.provider.client.log_in(agent.home / "byterover", "bad-key", 10.0)


def test_an_imported_note_keeps_its_time(agent: Agent) -> None:
    march = 1_772_356_800.0
    agent.provider.import_memory(MemoryRecord("The oars lie in Marrowby.", created_at=march), agent.session())
    (record,) = agent.provider.export_memories("", agent.session()).records
    assert (record.text, record.created_at) == ("The oars lie in Marrowby.", march)
