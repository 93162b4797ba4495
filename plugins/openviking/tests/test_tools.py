"""The six tools, as a model calls them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_core.kit import BackendUnavailable
from plugins.openviking.tests.conftest import Agent
from plugins.openviking.tests.stand_in import Viking

KEY = "The boathouse key hangs behind the door."


def test_the_tools_have_the_names_that_are_known(agent: Agent) -> None:
    names = [schema["name"] for schema in agent.provider.get_tool_schemas()]
    assert names == [
        f"viking_{n}" for n in ("search", "read", "browse", "remember", "forget", "add_resource")
    ]


@pytest.mark.parametrize(
    ("category", "folder"),
    [
        ("preference", "preferences"),
        ("entity", "entities"),
        ("event", "events"),
        ("case", "cases"),
        ("pattern", "patterns"),
        (None, "preferences"),
    ],
)
def test_a_fact_is_kept_once_in_the_folder_of_its_kind(
    agent: Agent, server: Viking, category: str, folder: str
) -> None:
    for _ in range(2):
        answer = agent.tool("remember", content=f" {KEY}\n", category=category)
    assert answer["uri"].startswith(f"viking://user/default/peers/hermes/memories/{folder}/")
    assert server.files == {answer["uri"]: KEY}


@pytest.mark.parametrize("content", ["", " \n", "x" * 8001])
def test_nothing_and_far_too_much_are_not_kept(agent: Agent, server: Viking, content: str) -> None:
    assert "error" in agent.tool("remember", content=content)
    assert server.files == {}


def test_a_search_shows_what_there_is_and_where(agent: Agent, server: Viking) -> None:
    uri = agent.tool("remember", content=KEY)["uri"]
    server.files["viking://resources/boats/keys.md"] = f"{KEY} Says the manual."
    found = agent.tool("search", query="Where is the boathouse key?")
    assert found["total"] == 2
    assert found["results"][0] == {
        "uri": uri,
        "type": "memory",
        "category": "preferences",
        "score": found["results"][0]["score"],
        "abstract": KEY,
    }
    assert agent.tool("search", query="boathouse key", scope="viking://")["total"] == 2
    only = agent.tool("search", query="boathouse key", scope="viking://resources/boats")
    assert [hit["type"] for hit in only["results"]] == ["resource"]
    own = agent.tool("search", query="boathouse key", scope=agent.space.root, limit=1)
    assert [hit["uri"] for hit in own["results"]] == [uri]


def test_a_deep_search_is_read_in_the_light_of_the_conversation(agent: Agent, server: Viking) -> None:
    agent.tool("search", query="boathouse", mode="deep")
    assert server.requests[-1].json["session_id"] == "hermes.s1"
    agent.tool("search", query="boathouse", mode="fast")
    assert server.requests[-1].path == "/api/v1/search/find"


def test_a_file_is_read_whole_and_a_folder_in_short(agent: Agent) -> None:
    uri = agent.tool("remember", content=KEY)["uri"]
    folder = uri.rpartition("/")[0]
    assert agent.tool("read", uri=uri, level="abstract")["content"] == KEY
    assert agent.tool("read", uri=folder)["content"] == f"Overview of {folder}"
    assert agent.tool("read", uri=folder, level="full")["level"] == "overview"
    assert agent.tool("read", uri=f"{folder}/.abstract.md")["content"] == f"Abstract of {folder}"


def test_several_are_read_at_once_and_one_that_fails_spoils_nothing(agent: Agent, server: Viking) -> None:
    uri = agent.tool("remember", content=KEY)["uri"]
    server.files["viking://resources/long.md"] = "long " * 2000
    sent = [uri, "viking://resources/nope.md", "viking://resources/long.md", uri]
    answer = agent.tool("read", uris=sent, level="full")
    assert (answer["requested"], answer["returned"], answer["truncated"]) == (4, 3, True)
    first, second, third = answer["results"]
    assert first["content"] == KEY
    assert "404" in second["error"]
    assert (len(third["content"]) <= 2500, third["truncated"]) == (True, True)
    assert "error" in agent.tool("read")


def test_a_look_around_begins_at_the_roots(agent: Agent) -> None:
    uri = agent.tool("remember", content=KEY)["uri"]
    roots = [entry["uri"] for entry in agent.tool("browse", action="list")["entries"]]
    assert roots == [*agent.space.roots]
    tree = agent.tool("browse", action="tree", path=roots[0])["entries"]
    assert (tree[-1]["uri"], tree[-1]["type"]) == (uri, "file")
    assert agent.tool("browse", action="stat", path=uri)["isDir"] is False


def test_a_space_that_nothing_was_written_to_is_empty_and_a_wrong_folder_an_error(agent: Agent) -> None:
    assert agent.tool("browse", action="tree", path=agent.space.memories)["entries"] == []
    assert "404" in agent.tool("browse", action="list", path="viking://resources/nope")["error"]


def test_a_memory_is_forgotten_once(agent: Agent, server: Viking) -> None:
    uri = agent.tool("remember", content=KEY)["uri"]
    short = uri.replace("viking://user/default/", "viking://~/")
    assert agent.tool("forget", uri=short) == {"status": "deleted", "uri": uri}
    assert agent.tool("forget", uri=short) == {"status": "not there", "uri": uri}
    assert server.files == {}
    assert "error" in agent.tool("forget", uri="viking://resources/manual.md")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("search", {"query": "tea", "scope": "{}"}),
        ("read", {"uri": "{}/memories/events/a.md"}),
        ("browse", {"action": "tree", "path": "{}"}),
        ("forget", {"uri": "{}/memories/events/a.md"}),
        ("add_resource", {"url": "https://example.com/a", "parent": "{}/resources"}),
    ],
)
def test_no_tool_reaches_into_the_space_of_another(
    agent: Agent, server: Viking, name: str, arguments: dict[str, str]
) -> None:
    guest = agent.of(platform="telegram", user_id="1")
    server.files[f"{agent.space.memories}/events/a.md"] = "tea"
    before = len(server.requests)
    answer = guest.tool(name, **{key: value.format(agent.space.root) for key, value in arguments.items()})
    assert "not yours" in answer["error"]
    assert len(server.requests) == before


def test_an_address_comes_among_ones_own_documents_unless_told_otherwise(
    agent: Agent, server: Viking
) -> None:
    agent.tool("add_resource", url="https://example.com/a", reason="manual", instruction="read it", wait=True)
    agent.tool("add_resource", url="git@example.com:a/b.git", to="viking://resources/b")
    first, second = server.added
    assert first == {
        "path": "https://example.com/a",
        "parent": agent.space.resources,
        "reason": "manual",
        "instruction": "read it",
        "create_parent": True,
        "wait": False,
    }
    assert (second["path"], second["to"]) == ("git@example.com:a/b.git", "viking://resources/b")
    assert "error" in agent.tool("add_resource", url="https://example.com/a", to="x", parent="y")
    guest = agent.of(platform="telegram", user_id="1")
    assert "error" in guest.tool("add_resource", url="https://example.com/a", to="viking://resources/a")


def test_a_document_that_was_waited_for_says_how_it_went(agent: Agent, server: Viking) -> None:
    assert agent.tool("add_resource", url="https://example.com/a", wait=True)["reading"] == "completed"
    assert agent.tool("add_resource", url="https://example.com/a")["reading"] == "pending"


@pytest.fixture
def files() -> Iterator[Path]:
    """Folder outside the home, and on the disk: no file below /dev is sent, where other folders of tests may be."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("HERMES_TEST_DISK")) as folder:
        yield Path(folder)


def test_a_file_of_the_machine_is_handed_over_by_its_owner(
    agent: Agent,
    server: Viking,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = files / "pump.md"
    monkeypatch.chdir(file.parent)
    file.write_text("# Pump")
    for url in (str(file), f"file://{file}"):
        agent.tool("add_resource", url=url)
    assert [given["source_name"] for given in server.added] == ["pump.md", "pump.md"]
    assert b"# Pump" in server.uploads[0]
    guest = agent.of(platform="telegram", user_id="1")
    assert "error" in guest.tool("add_resource", url=str(file))
    assert len(server.uploads) == 2


def test_files_that_hold_keys_or_are_too_large_or_none_are_not_handed_over(
    agent: Agent,
    server: Viking,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(files)
    hidden = files / ".ssh" / "id_rsa"
    hidden.parent.mkdir()
    hidden.write_text("key")
    link = files / "innocent.md"
    link.symlink_to(hidden)
    of_ours = Path(agent.session.home, "config.yaml")
    of_ours.write_text("x")
    large = files / "large.bin"
    with large.open("wb") as file:
        file.truncate(20 * 1024 * 1024 + 1)
    for path in (hidden, link, of_ours, large, files, files / "none.md", Path("pump.md")):
        for url in (str(path), f"file://{path}", f"FILE://{path}"):
            assert "error" in agent.tool("add_resource", url=url), url
    assert server.uploads == []


@pytest.mark.parametrize(
    "url",
    [
        "{0}/outside.md",
        "file://{0}/outside.md",
        "file:{0}/outside.md",
        "fi\tle://{0}/outside.md",
        "local://{0}/outside.md",
        "/proc/self/environ",
        "file:///proc/self/environ",
        "git@{0}/outside.md",
    ],
)
def test_no_file_outside_the_working_folder_and_the_named_folders_is_added(
    today: Viking,
    start: Callable[..., Agent],
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
) -> None:
    for name in ("work/a.md", "papers/b.md", "outside.md"):
        (files / name).parent.mkdir(exist_ok=True)
        (files / name).write_text("x")
    monkeypatch.chdir(files / "work")
    agent = start(today, file_folders=[str(files / "papers")])
    assert "error" in agent.tool("add_resource", url=url.format(files))
    assert today.added == []
    for path in ("a.md", "../papers/b.md"):
        assert agent.tool("add_resource", url=path)["status"] == "added"


def test_a_tool_without_a_server_fails_and_says_so(today: Viking, start: Callable[..., Agent]) -> None:
    agent = start(today)
    with today.outage(), pytest.raises(BackendUnavailable):
        agent.tool("search", query="tea")
