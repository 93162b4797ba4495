"""What the provider makes of the server: whose memory it is, what is recalled, the tools and the commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hermes_retaindb import RetainDBProvider
from hermes_retaindb.client import Client
from hermes_retaindb.settings import SETTINGS, project_of

from hermes_core import Delegation, HermesHome, MemoryWrite, Query, Session, ToolCall, Turn, open_memory
from hermes_core.cli import main
from hermes_core.contract.values import MemoryRecord
from hermes_core.kit import BackendAuthError, BackendUnavailable, load_settings
from plugins.retaindb.tests.conftest import Agent
from plugins.retaindb.tests.stand_in import KEY, RetainDB

Start = Callable[..., Agent]
FACT = "The tortoise Quillfeather eats clover."
OTHER = "The boathouse key hangs behind Ostrander."


def turn(user: str, assistant: str = "Noted.", id: str = "t1") -> Turn:  # noqa: A002  the field's name
    return Turn(id, 1, user, assistant, at=1_700_000_000.0)


# ------------------------------------------------------------------------ who and where


def test_the_cloud_asks_for_a_key_and_a_server_of_ones_own_does_not(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    assert "RETAINDB_API_KEY" in RetainDBProvider().is_available().remedy
    with pytest.raises(Exception, match="RetainDB Cloud asks for one"):
        RetainDBProvider().initialize(Session("s1", home=str(hermes_home.path)))
    hermes_home.provider_json("retaindb").write_text('{"base_url": "http://127.0.0.1:3111"}')
    assert RetainDBProvider().is_available()


@pytest.mark.parametrize(
    ("home", "project"),
    [("/u/.hermes", "default"), ("/u/.hermes/profiles/coder", "hermes-coder"), ("/srv/bot", "hermes-bot")],
)
def test_each_profile_has_a_project(tmp_path: Path, home: str, project: str) -> None:
    assert project_of(load_settings(SETTINGS, tmp_path, "retaindb", environ={}), Path(home)) == project
    named = load_settings(SETTINGS, tmp_path, "retaindb", environ={"RETAINDB_PROJECT": "acme"})
    assert project_of(named, Path(home)) == "acme"


def test_two_profiles_of_one_account_share_nothing(tmp_path: Path, server: RetainDB) -> None:
    made: dict[str, RetainDBProvider] = {}
    for name, said in (("mel", FACT), ("bob", OTHER)):
        home = tmp_path / ".hermes" / "profiles" / name
        home.mkdir(parents=True)
        (home / "retaindb.json").write_text(json.dumps({"base_url": server.url}))
        (home / ".env").touch(mode=0o600)
        (home / ".env").write_text(f"RETAINDB_API_KEY={KEY}\n")
        made[name] = RetainDBProvider()
        session = Session("s1", identity=name, home=str(home))
        with HermesHome(home, name).asking():
            made[name].initialize(session)
        made[name].sync_turn(turn(said), session)
    for name, mine, theirs in (("mel", FACT, OTHER), ("bob", OTHER, FACT)):
        session = Session("s2", identity=name)
        found = made[name].prefetch(Query("tortoise clover boathouse key", budget=900), session)
        asked = ToolCall("retaindb_context", {"query": "tortoise boathouse"})
        seen = found.render() + made[name].handle_tool_call(asked, session)
        assert mine in seen
        assert theirs not in seen
        made[name].shutdown()


def test_two_users_of_one_messenger_share_nothing(agent: Agent) -> None:
    ada = agent.session("s-ada", platform="telegram", user_id="ada")
    bob = agent.session("s-bob", platform="telegram", user_id="bob")
    agent.provider.sync_turn(turn("My tortoise is called Quillfeather.", id="t1"), ada)
    agent.provider.sync_turn(turn("My tortoise is called Ostrander.", id="t2"), bob)
    for session, mine, theirs in ((ada, "Quillfeather", "Ostrander"), (bob, "Ostrander", "Quillfeather")):
        seen = [
            agent.recalled("What is my tortoise called?", session),
            agent.tool("search", session, query="tortoise"),
            agent.tool("context", session, query="tortoise", reason=True),
            agent.tool("profile", session),
        ]
        assert mine in str(seen[0])
        assert mine in str(seen[1:])
        assert theirs not in str(seen)


def test_users_of_one_name_on_two_platforms_are_two(agent: Agent) -> None:
    first = agent.session(platform="telegram", user_id="7")
    agent.provider.sync_turn(turn(FACT), first)
    assert agent.recalled("tortoise Quillfeather", first) == [FACT]
    assert agent.recalled("tortoise Quillfeather", agent.session(platform="signal", user_id="7")) == []
    group = agent.session(platform="telegram", chat_id="7")
    assert agent.provider.who(group).user == "telegram/7"
    assert not agent.provider.who(group).alone


# ------------------------------------------------------------------------------- recall


@pytest.mark.parametrize("flavour", ["cloud", "server", "local"])
def test_what_one_session_said_is_recalled_in_another(
    start: Start, serve: Callable[..., RetainDB], flavour: str
) -> None:
    agent = start(serve(flavour))
    first, second = agent.session("s1"), agent.session("s2")
    agent.provider.sync_turn(turn(FACT), first)
    agent.provider.on_memory_write(MemoryWrite("w1", "add", "memory", OTHER), first)
    assert FACT in agent.recalled("What does the tortoise Quillfeather eat?", second)[0]
    assert agent.recalled("Where does the boathouse key hang?", second) == [OTHER]
    assert FACT in str(agent.tool("search", second, query="tortoise clover"))
    assert FACT in agent.tool("context", second, query="tortoise clover")["context"]


@pytest.mark.parametrize("flavour", ["cloud", "server", "local"])
def test_an_entry_of_an_earlier_session_is_replaced_and_removed(
    start: Start, serve: Callable[..., RetainDB], flavour: str
) -> None:
    agent = start(serve(flavour))
    agent.provider.on_memory_write(MemoryWrite("w1", "add", "memory", FACT), agent.session("s1"))
    new = "The tortoise Quillfeather eats dandelions."
    agent.provider.on_memory_write(
        MemoryWrite("w2", "replace", "memory", new, "eats clover", FACT), agent.session("s2")
    )
    assert agent.server.known() == [new]
    agent.provider.on_memory_write(
        MemoryWrite("w3", "remove", "memory", "", "eats dandelions", new), agent.session("s3")
    )
    assert agent.server.known() == []


def test_the_self_test_fails_on_a_server_that_recalls_in_the_same_session_only(
    start: Start, serve: Callable[..., RetainDB], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = start(serve("local"))
    monkeypatch.setattr(Client, "_reader", Client._scope)
    [check] = agent.provider.check(agent.session())
    assert not check.ok
    assert "in its own session only" in check.remedy


def test_what_fits_too_little_is_left_out(start: Start, server: RetainDB) -> None:
    agent = start(server, min_score=0.6)
    agent.provider.sync_turn(turn(FACT), agent.session())
    assert agent.recalled("tortoise clover") == [FACT]
    assert agent.recalled("tortoise boathouse garden") == []


def test_recall_names_session_and_day(agent: Agent) -> None:
    agent.provider.sync_turn(turn(FACT), agent.session("s9"))
    [item] = agent.provider.prefetch(Query("tortoise clover"), agent.session()).items
    assert (item.session_id, item.when, item.score) == ("s9", "2023-11-14", 1.0)


def test_small_talk_is_not_searched(agent: Agent) -> None:
    assert agent.recalled("ok, thanks!") == []
    assert agent.server.requests == []


def test_a_turn_is_recalled_while_it_is_being_stored_and_only_if_it_fits(
    start: Start, serve: Callable[..., RetainDB]
) -> None:
    agent = start(serve(lagging=True))
    agent.provider.sync_turn(turn(FACT), agent.session())
    assert FACT in agent.recalled("What do tortoises eat?")[0]
    assert agent.recalled("Where does the boathouse key hang?") == []


def test_a_memory_that_is_stored_is_not_recalled_a_second_time_as_pending(
    start: Start, serve: Callable[..., RetainDB]
) -> None:
    server = serve(lagging=True)
    agent = start(server)
    agent.provider.sync_turn(turn(FACT, id="t1"), agent.session())
    server.settle()
    agent.provider.sync_turn(turn(FACT, id="t2"), agent.session())
    assert agent.recalled("tortoise clover") == [FACT]


def test_local_compares_by_words_and_what_shares_none_is_left_out(
    start: Start, serve: Callable[..., RetainDB]
) -> None:
    agent = start(serve("local"), key="")
    for said, id_ in ((FACT, "t1"), (OTHER, "t2")):
        agent.provider.sync_turn(turn(said, id=id_), agent.session())
    assert agent.recalled("Which tortoise eats clover?") == [f"User asked: {FACT}"]


@pytest.mark.parametrize(
    ("mode", "tools", "recalls"), [("hybrid", 10, 1), ("context", 0, 1), ("tools", 10, 0)]
)
def test_each_mode_does_what_it_says(
    start: Start, server: RetainDB, mode: str, tools: int, recalls: int
) -> None:
    agent = start(server, recall_mode=mode)
    agent.provider.sync_turn(turn(FACT), agent.session())
    with agent.home.asking():
        assert len(agent.provider.get_tool_schemas()) == tools
    assert len(agent.recalled("tortoise clover")) == recalls
    assert ("retaindb_search" in agent.provider.system_prompt_block()) == bool(tools)


@pytest.mark.parametrize(
    ("choice", "key", "files"), [("auto", "k", 5), ("auto", "", 0), ("on", "", 5), ("off", "k", 0)]
)
def test_file_tools_are_offered_where_there_are_files(
    start: Start, serve: Callable[..., RetainDB], choice: str, key: str, files: int
) -> None:
    agent = start(serve(key=key), key=key, file_tools=choice)
    with agent.home.asking():
        names = [schema["name"] for schema in agent.provider.get_tool_schemas()]
    assert len([name for name in names if "file" in name and name != "retaindb_profile"]) == files


# ------------------------------------------------------------------------------- writes


def test_an_entry_is_replaced_once_the_old_one_is_stored(
    start: Start, serve: Callable[..., RetainDB]
) -> None:
    server = serve(lagging=True)
    agent = start(server)
    session = agent.session()
    replace = MemoryWrite("w2", "replace", "user", OTHER, "tortoise", FACT)
    agent.provider.on_memory_write(MemoryWrite("w1", "add", "user", FACT), session)
    with pytest.raises(BackendUnavailable, match="still being stored") as raised:
        agent.provider.on_memory_write(replace, session)
    assert raised.value.retry_after == 2.0
    server.settle()
    for _ in range(2):
        agent.provider.on_memory_write(replace, session)
    server.settle()
    assert server.known() == [OTHER]
    assert server.memories[-1].type == "preference"


@pytest.mark.parametrize("performed", [True, False])
def test_an_entry_is_removed_by_itself_or_by_the_words_the_model_named(agent: Agent, performed: bool) -> None:
    for number, text in enumerate((FACT, OTHER)):
        agent.provider.on_memory_write(MemoryWrite(f"w{number}", "add", "memory", text), agent.session())
    previous = FACT if performed else ""
    remove = MemoryWrite("w9", "remove", "memory", "", "tortoise Quillfeather", previous, performed)
    agent.provider.on_memory_write(remove, agent.session())
    assert agent.server.known() == [OTHER]


@pytest.mark.parametrize("previous", [FACT, ""])
def test_a_replacement_that_comes_twice_keeps_the_new_entry_that_holds_the_same_words(
    agent: Agent, previous: str
) -> None:
    session = agent.session()
    agent.provider.on_memory_write(MemoryWrite("w1", "add", "user", FACT), session)
    replace = MemoryWrite("w2", "replace", "user", f"{FACT} She is nine.", "Quillfeather", previous)
    for _ in range(2):
        agent.provider.on_memory_write(replace, session)
    assert agent.server.known() == [f"{FACT} She is nine."]


def test_removing_an_entry_that_is_gone_forgets_no_other_that_holds_the_words(agent: Agent) -> None:
    agent.provider.on_memory_write(MemoryWrite("w1", "add", "user", FACT), agent.session())
    for previous in ("Quillfeather eats clover.", "Quillfeather"):
        remove = MemoryWrite("w2", "remove", "user", "", "Quillfeather", previous)
        agent.provider.on_memory_write(remove, agent.session())
    assert agent.server.known() == [FACT]


def test_words_that_several_memories_hold_delete_none(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    for number, text in enumerate((FACT, "The tortoise Quillfeather is old.")):
        agent.provider.on_memory_write(MemoryWrite(f"w{number}", "add", "memory", text), agent.session())
    agent.provider.on_memory_write(
        MemoryWrite("w9", "remove", "memory", "", "tortoise Quillfeather"), agent.session()
    )
    assert len(agent.server.known()) == 2
    assert "2 memories hold the text" in caplog.text


def test_what_a_subagent_did_is_kept(agent: Agent) -> None:
    agent.provider.on_delegation(Delegation("d1", "Find the\ntortoise.", "It sleeps."), agent.session())
    assert agent.server.known() == ["Find the tortoise.. It sleeps."]


# -------------------------------------------------------------------------------- tools


def test_the_model_keeps_finds_and_forgets_a_fact(agent: Agent) -> None:
    kept = agent.tool("remember", content=FACT, memory_type="preference", importance=0.9)
    assert kept["stored"] == FACT
    [found] = agent.tool("search", query="tortoise", memory_types=["preference"])["results"]
    assert (found["content"], found["type"]) == (FACT, "preference")
    assert agent.tool("search", query="tortoise", memory_types=["goal"])["count"] == 0
    assert agent.tool("profile")["count"] == 1
    assert agent.tool("forget", memory_id=found["id"]) == {"forgotten": found["id"]}
    assert "there is no memory" in agent.tool("forget", memory_id=found["id"])["error"]


def test_a_fact_that_was_forgotten_is_kept_when_it_is_told_again(agent: Agent) -> None:
    for _ in range(2):
        for _ in range(2):
            agent.tool("remember", content=FACT)
        assert agent.server.known() == [FACT]
        [found] = agent.tool("search", query="tortoise")["results"]
        agent.tool("forget", memory_id=found["id"])
    assert agent.server.known() == []


def test_long_results_are_shown_in_part(agent: Agent) -> None:
    for number in range(150):
        agent.tool("remember", content=f"tortoise {number} " + "clover " * 1_200)
    found = agent.tool("search", query="tortoise clover", top_k=20)
    assert found["count"] == 20
    assert all(result["content"].endswith("clover…") for result in found["results"])
    profile = agent.tool("profile")
    assert (profile["count"], len(profile["memories"])) == (150, 100)
    assert agent.tool("context", query="tortoise")["context"].endswith("…")


def test_context_comes_with_its_hash_and_with_reasons_on_request(agent: Agent) -> None:
    agent.tool("remember", content=FACT)
    first = agent.tool("context", query="tortoise")
    assert first.keys() == {"context", "context_hash"}
    assert agent.tool("context", query="tortoise", known=first["context_hash"])["context"] == ""
    assert agent.tool("context", query="tortoise", reason=True)["answer"].startswith("asked (low)")


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("remember", {"content": " \x00 "}, "content is empty"),
        ("remember", {"content": "x" * 10_001}, "over 10000"),
        ("remember", {"content": "x", "memory_type": "rumour"}, "is 'rumour'"),
        ("search", {"query": ""}, "query is empty"),
        ("context", {"query": "\n"}, "query is empty"),
        ("forget", {"memory_id": ""}, "memory_id is empty"),
        ("forget", {"memory_id": "pending:job-1:0"}, "still being stored"),
        ("forget", {"memory_id": "no-such"}, "there is no memory 'no-such'"),
        ("read_file", {"file_id": ""}, "file_id is empty"),
        ("read_file", {"file_id": "nope"}, "File not found"),
        ("delete_file", {"file_id": "x" * 201}, "file_id is too long"),
        ("upload_file", {"local_path": "/no/such"}, "is no file"),
        ("upload_file", {"local_path": "/tmp"}, "is not below"),
        ("upload_file", {"local_path": "/proc/self/environ"}, "a part of the system"),
        ("upload_file", {"local_path": "~nobody-of-this-name/x"}, "is no file"),
        ("upload_file", {"local_path": "a\x00b"}, "is no file"),
    ],
)
def test_the_model_is_told_what_is_wrong(
    agent: Agent, name: str, arguments: dict[str, Any], error: str
) -> None:
    assert error in agent.tool(name, **arguments)["error"]
    assert agent.server.known() == []


def test_what_the_server_refuses_is_told_to_the_model_and_an_outage_to_the_host(agent: Agent) -> None:
    agent.server.fail(status=422, times=1)
    assert "answered 422" in agent.tool("remember", content=FACT)["error"]
    agent.server.fail(status=503, times=1)
    with pytest.raises(BackendUnavailable):
        agent.tool("remember", content=FACT)


@pytest.mark.needs_disk("no file below /dev is sent")
def test_the_model_uploads_reads_learns_from_and_deletes_a_file(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    note = tmp_path / "note.txt"
    note.write_text("The tortoise sleeps.")
    sent = agent.tool("upload_file", local_path=str(note), remote_path="/notes/n.txt", ingest=True)
    file_id = sent["file"]["id"]
    assert agent.server.known() == ["The tortoise sleeps."]
    assert [file["path"] for file in agent.tool("list_files", prefix="notes")["files"]] == ["/notes/n.txt"]
    read = agent.tool("read_file", file_id=file_id)
    assert (read["content"], read["truncated"], read["rdb_uri"]) == (
        "The tortoise sleeps.",
        False,
        "rdb://f1",
    )
    assert agent.tool("ingest_file", file_id=file_id)["success"]
    assert agent.tool("delete_file", file_id=file_id) == {"deleted": file_id}
    assert agent.tool("list_files")["count"] == 0


@pytest.mark.needs_disk("no file below /dev is sent")
@pytest.mark.parametrize(
    ("content", "read", "truncated"),
    [(b"x" * 40_000, 32_000, True), (b"\xff\xfe", None, None), (b"a\x00b", None, None)],
)
def test_a_long_file_is_cut_and_a_binary_one_is_named(
    agent: Agent,
    tmp_path: Path,
    content: bytes,
    read: int | None,
    truncated: bool | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_bytes(content)
    file_id = agent.tool("upload_file", local_path=str(tmp_path / "f"))["file"]["id"]
    told = agent.tool("read_file", file_id=file_id)
    assert (told["content"] and len(told["content"]), told.get("truncated")) == (read, truncated)


@pytest.mark.needs_disk("no file below /dev is sent")
def test_the_home_is_never_uploaded_also_not_by_a_link(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(agent.home.env_file)
    for path in (agent.home.env_file, tmp_path / "link", agent.home.path / "logs" / ".." / ".env"):
        assert "of the agent's own home" in agent.tool("upload_file", local_path=str(path))["error"]
    assert agent.server.files == {}


@pytest.mark.needs_disk("no file below /dev is sent")
def test_only_files_of_the_working_folder_and_of_named_folders_are_uploaded(
    start: Start, serve: Callable[..., RetainDB], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("work/a.txt", "papers/b.txt", "other/c.txt", "work/prod.env"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    monkeypatch.chdir(tmp_path / "work")
    agent = start(serve(), file_folders=[str(tmp_path / "papers")])
    for name in ("a.txt", "../papers/b.txt", f"file://{tmp_path}/papers/b.txt"):
        assert "file" in agent.tool("upload_file", local_path=name)
    assert "is not below" in agent.tool("upload_file", local_path="../other/c.txt")["error"]
    assert "like a file of keys" in agent.tool("upload_file", local_path="prod.env")["error"]
    assert len(agent.server.files) == 3


@pytest.mark.needs_disk("no file below /dev is sent")
def test_no_file_of_another_profile_is_uploaded(agent: Agent, tmp_path: Path) -> None:
    for name in (".hermes/.env", ".hermes/profiles/home/state.db"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("SECRET=1")
        of_a_profile = agent.session(home=str(tmp_path / ".hermes" / "profiles" / "work"))
        told = agent.tool("upload_file", of_a_profile, local_path=str(tmp_path / name))
        assert "of the agent's own home" in told["error"]
    assert agent.server.files == {}


@pytest.mark.needs_disk("no file below /dev is sent")
def test_users_of_a_messenger_have_files_of_their_own(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("secret")
    ada, bob = (agent.session(platform="telegram", user_id=name) for name in ("ada", "bob"))
    told = agent.tool("upload_file", local_path=str(tmp_path / "f"), remote_path="users/telegram%3Aada/f")
    file_id = told["file"]["id"]
    assert agent.tool("list_files", ada)["count"] == 1
    assert agent.tool("read_file", ada, file_id=file_id)["content"] == "secret"
    for prefix in (None, "../telegram%3Aada", "/users/telegram%3Aada/"):
        assert agent.tool("list_files", bob, prefix=prefix)["count"] == 0
    for name in ("read_file", "ingest_file", "delete_file"):
        assert "there is no file" in agent.tool(name, bob, file_id=file_id)["error"]


@pytest.mark.needs_disk("no file below /dev is sent")
def test_nobody_reads_the_owners_files_by_uploading_them(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".ssh").mkdir()
    for name in ("taxes.txt", ".ssh/id_rsa"):
        (tmp_path / name).write_text("secret")
    guest = agent.session(platform="telegram", user_id="ada")
    assert (
        "somebody else" in agent.tool("upload_file", guest, local_path=str(tmp_path / "taxes.txt"))["error"]
    )
    assert "hidden" in agent.tool("upload_file", local_path=str(tmp_path / ".ssh" / "id_rsa"))["error"]
    outside = agent.tool("upload_file", local_path=str(tmp_path / "taxes.txt"), remote_path="../f")
    assert "remote_path can't be" in outside["error"]
    assert agent.server.files == {}


@pytest.mark.needs_disk("no file below /dev is sent")
def test_a_server_without_files_says_so(
    start: Start, serve: Callable[..., RetainDB], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("x")
    agent = start(serve("local"), key="", file_tools="on")
    assert "keeps no files" in agent.tool("upload_file", local_path=str(tmp_path / "f"))["error"]
    assert "keeps no files" in agent.tool("list_files")["error"]


# ----------------------------------------------------------------------- check, commands


def test_the_self_test_waits_until_the_memory_is_stored_and_leaves_none(
    start: Start, serve: Callable[..., RetainDB]
) -> None:
    agent = start(serve(lagging=True))
    checks = agent.provider.check(agent.session())
    assert [(check.name, check.ok) for check in checks] == [("write and recall", True), ("forget", True)]
    assert agent.server.known() == []


def test_the_self_test_tells_of_a_server_that_drops_what_it_accepts(agent: Agent) -> None:
    agent.server.route("POST", "/v1/memory", lambda request: (202, {"job_id": "j"}))
    [check] = agent.provider.check(agent.session())
    assert not check.ok
    assert agent.server.url in check.detail


def test_the_self_test_tells_of_a_memory_that_is_never_stored(agent: Agent) -> None:
    agent.server.lagging = True
    agent.provider._sleep = lambda _: None
    assert [check.ok for check in agent.provider.check(agent.session())] == [True, False]


def test_a_wrong_key_fails_the_self_test_by_name(start: Start, server: RetainDB) -> None:
    agent = start(server, key="wrong")
    with pytest.raises(BackendAuthError, match="RETAINDB_API_KEY"):
        agent.provider.check(agent.session())


def test_commands_search_list_and_forget(agent: Agent) -> None:
    agent.tool("remember", content=FACT)
    agent.home.config_yaml.write_text("memory:\n  provider: retaindb\n")
    run = ["--home", str(agent.home.path), "retaindb"]
    shown = CliRunner().invoke(main, [*run, "search", "tortoise"])
    assert shown.output == f"m1  [factual] {FACT}\n"
    assert json.loads(CliRunner().invoke(main, [*run, "profile", "--json"]).output)[0]["text"] == FACT
    assert CliRunner().invoke(main, [*run, "forget", "m1"]).output == "deleted m1\n"
    assert CliRunner().invoke(main, [*run, "forget", "m1"]).exit_code == 1
    assert "Nothing was found." in CliRunner().invoke(main, [*run, "profile"]).output


def test_the_agent_introduces_itself_on_request(agent: Agent) -> None:
    agent.home.config_yaml.write_text("memory:\n  provider: retaindb\n")
    run = ["--home", str(agent.home.path), "retaindb", "seed"]
    assert "there is no SOUL.md" in CliRunner().invoke(main, run).output
    agent.home.soul_md.write_text("I am Mel's agent.")
    assert CliRunner().invoke(main, run).output == "told\n"
    assert agent.tool("profile")["agent"]["persona"] == "I am Mel's agent."


# --------------------------------------------------------------------------- with a host


def test_turns_of_an_outage_arrive_in_order_when_the_server_is_back(agent: Agent) -> None:
    said = [f"Tortoise number {number} eats clover." for number in range(5)]
    with open_memory(agent.home, provider="retaindb") as memory:
        session = memory.start_session()
        with agent.server.outage():
            for text in said:
                memory.end_turn(session, text, "Noted.")
            assert not memory.flush(0.2)
        assert memory.flush(20)
    assert agent.server.said == said


def test_both_sides_of_a_turn_have_their_own_time(agent: Agent, server: RetainDB) -> None:
    turn = Turn("t1", 1, "I moved to Oslo.", "Noted.", at=1_772_356_860.0, user_at=1_772_356_800.0)
    agent.provider.sync_turn(turn, agent.session())
    (sent,) = [one.json["messages"] for one in server.requests if "ingest" in one.path]
    assert [one["timestamp"][:19] for one in sent] == ["2026-03-01T09:20:00", "2026-03-01T09:21:00"]


def test_an_imported_memory_keeps_its_time(agent: Agent, server: RetainDB) -> None:
    record = MemoryRecord("The oars lie in Marrowby.", created_at=1_772_356_800.0)
    agent.provider.import_memory(record, agent.session())
    (sent,) = [one.json for one in server.requests if one.path == "/v1/memory"]
    assert sent["document_date"] == "2026-03-01T09:20:00.000Z"
