"""PROJECT.md: notes on the repository of the working folder, kept in the home."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core import Memory, open_memory
from hermes_core.curated.project import Repository, repository_of
from hermes_core.health.doctor import _examine_curated
from hermes_core.health.finding import Finding
from hermes_core.home import HermesHome
from hermes_core.origins import session_turn
from hermes_core.storage.engine import Engine
from hermes_memory_postgresql.engine import PostgresEngine
from hermes_memory_testing.fakes import RecordingProvider

AUTO = {"memory": {"project": "auto"}}


def repository(folder: Path, origin: str = "") -> Path:
    """A repository as `git init` makes it; here without the program, which a machine may lack."""
    git = folder / ".git"
    git.mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    remote = (
        f'[remote "origin"]\n\turl = {origin}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
        if origin
        else ""
    )
    (git / "config").write_text(f'[core]\n\tbare = false\n{remote}[branch "main"]\n\tremote = origin\n')
    return folder


def opened(home: HermesHome, folder: Path, **options: Any) -> Memory:
    return open_memory(home, config=AUTO, folder=folder, **options)


# --------------------------------------------------------------------------------------------------------- repository


@pytest.mark.parametrize(
    "origin",
    [
        "https://github.com/ann/pond.git",
        "https://ann:secret@GitHub.com/ann/pond",
        "git@github.com:ann/pond.git",
        "github.com:ann/pond/",
        "ssh://git@github.com:22/ann/pond.git",
    ],
)
def test_all_clones_of_a_repository_are_one_repository(tmp_path: Path, origin: str) -> None:
    found = repository_of(repository(tmp_path / "clone", origin))
    assert found == Repository("pond", "github.com/ann/pond")
    assert found is not None
    assert found.key.startswith("pond-")


def test_a_folder_inside_and_a_worktree_belong_to_the_repository(tmp_path: Path) -> None:
    top = repository(tmp_path / "pond", "git@github.com:ann/pond.git")
    (top / "src" / "deep").mkdir(parents=True)
    assert repository_of(top / "src" / "deep") == repository_of(top)
    admin = top / ".git" / "worktrees" / "w"
    admin.mkdir(parents=True)
    (admin / "HEAD").write_text("ref: refs/heads/w\n")
    (admin / "commondir").write_text("../..\n")
    worktree = tmp_path / "w"
    worktree.mkdir()
    (worktree / ".git").write_text(f"gitdir: {admin}\n")
    assert repository_of(worktree) == repository_of(top)


def test_a_repository_without_a_remote_is_its_folder(tmp_path: Path) -> None:
    top = repository(tmp_path / "Mein Projekt!")
    found = repository_of(top)
    assert found == Repository("Mein Projekt!", str(top.resolve()))
    assert found is not None
    assert found.key.startswith("Mein-Projekt-")


@pytest.mark.parametrize(
    "config", ["", "no section\n", "\0\xff", '[remote "origin"\n', '[remote "origin"]\nurl\n']
)
def test_settings_of_git_that_say_nothing_are_no_error(tmp_path: Path, config: str) -> None:
    top = repository(tmp_path / "pond")
    (top / ".git" / "config").write_text(config, "utf-8")
    found = repository_of(top)
    assert found is not None
    assert found.identity == str(top.resolve())


def test_a_relative_remote_belongs_to_its_folder_and_a_port_to_its_server(tmp_path: Path) -> None:
    identities = set()
    for number, origin in enumerate(
        ["../bare.git", "../bare.git", "http://localhost:3000/a/b", "http://localhost:4000/a/b"]
    ):
        found = repository_of(repository(tmp_path / str(number) / "pond", origin))
        assert found is not None
        identities.add(found.identity)
    assert len(identities) == 4


def test_a_damaged_worktree_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").write_bytes(b"gitdir: /a\0b\n")
    assert repository_of(tmp_path) is None


def test_other_folders_are_in_no_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert repository_of(tmp_path) is None
    assert repository_of(tmp_path / "gone") is None
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert repository_of(tmp_path / "loop") is None


# -------------------------------------------------------------------------------------------------------------- notes


def call(memory: Memory, **arguments: Any) -> dict[str, Any]:
    session = memory.session("s")
    text = memory.call_tool(session, "memory", arguments)
    # As at the end of the turn.
    result = {"role": "tool", "content": text, "origin": "assistant"}
    memory.internals.origins.settle(session, [session_turn(session)], [result])
    answer: dict[str, Any] = json.loads(text)
    return answer


def test_notes_on_a_repository_are_in_the_prompts_of_its_clones_alone(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    pond = repository(tmp_path / "pond", "git@github.com:ann/pond.git")
    with opened(hermes_home, pond) as memory:
        assert call(memory, action="add", target="project", content="Build with make")["success"]
        assert call(memory, action="add", target="memory", content="The server is elm")["success"]
    clone = repository(tmp_path / "clone", "https://github.com/ann/pond")
    with opened(hermes_home, clone) as memory:
        prompt = memory.system_prompt(memory.start_session("t"))
        assert "Build with make" in prompt
        assert "PROJECT (notes on the repository of the working folder)" in prompt
    for folder in (repository(tmp_path / "lake"), tmp_path):
        with opened(hermes_home, folder) as memory:
            prompt = memory.system_prompt(memory.start_session("u"))
            assert "Build with make" not in prompt
            assert "The server is elm" in prompt


def test_the_file_is_in_the_home_and_can_be_undone(hermes_home: HermesHome, tmp_path: Path) -> None:
    pond = repository(tmp_path / "pond")
    with opened(hermes_home, pond) as memory:
        call(memory, action="add", target="project", content="Build with make")
        (file,) = hermes_home.path.glob("memories/projects/*/PROJECT.md")
        assert file.read_text("utf-8") == "Build with make"
        assert [version.target for version in memory.curated.history()] == ["project"]
        assert memory.curated.undo()["success"]
        assert memory.curated.entries("project") == ()
        assert sorted(path.name for path in pond.iterdir()) == [".git"]


def test_the_file_has_a_limit_of_its_own(hermes_home: HermesHome, tmp_path: Path) -> None:
    with opened(hermes_home, repository(tmp_path / "pond")) as memory:
        answer = call(memory, action="add", target="project", content="x" * 2201)
        assert not answer["success"]
        assert "2,200" in answer["error"]


def test_without_a_repository_the_tool_does_not_know_the_target(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    for config, folder in (({}, repository(tmp_path / "pond")), (AUTO, tmp_path)):
        with open_memory(hermes_home, config=config, folder=folder) as memory:
            (schema,) = (one for one in memory.tool_schemas() if one["name"] == "memory")
            assert schema["parameters"]["properties"]["target"]["enum"] == ["memory", "user"]
            answer = call(memory, action="add", target="project", content="x")
            assert answer["error"] == "Invalid target 'project'. Use 'memory' or 'user'."


def test_users_of_a_gateway_have_no_notes_on_the_repository(hermes_home: HermesHome, tmp_path: Path) -> None:
    with opened(hermes_home, repository(tmp_path / "pond")) as memory:
        call(memory, action="add", target="project", content="Build with make")
        guest = memory.session("g", platform="telegram", user_id="7")
        assert "Build with make" not in memory.system_prompt(guest)
        answer = json.loads(
            memory.call_tool(guest, "memory", {"action": "add", "target": "project", "content": "x"})
        )
        assert not answer["success"]


def test_a_provider_gets_them_as_notes_with_the_target_beside(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    provider = RecordingProvider()
    with opened(hermes_home, repository(tmp_path / "pond"), provider=provider) as memory:
        call(memory, action="add", target="project", content="Build with make")
        assert provider.wait_for("on_memory_write")
        (write,) = (arguments["write"] for arguments in provider.of("on_memory_write"))
        assert (write.target, write.metadata["target"]) == ("memory", "project")


# ------------------------------------------------------------------------------------------------ a changed identity


def set_origin(top: Path, remotes: str) -> None:
    """Replace the remotes in the settings of a repository."""
    (top / ".git" / "config").write_text(f"[core]\n\tbare = false\n{remotes}")


def remote(name: str, url: str) -> str:
    return f'[remote "{name}"]\n\turl = {url}\n'


POND = "git@github.com:ann/pond.git"
CHANGES = {
    "remote added": ("", lambda top: set_origin(top, remote("origin", POND))),
    "remote renamed": (POND, lambda top: set_origin(top, remote("upstream", POND))),
    "remote removed": (POND, lambda top: set_origin(top, "")),
    "another address": (POND, lambda top: set_origin(top, remote("origin", "https://example.org/ben/pool"))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_notes_stay_when_the_identity_of_the_repository_changes(
    hermes_home: HermesHome, tmp_path: Path, change: str
) -> None:
    origin, alter = CHANGES[change]
    top = repository(tmp_path / "pond", origin)
    with opened(hermes_home, top) as memory:
        call(memory, action="add", target="project", content="Build with make")
    alter(top)
    for _ in range(2):
        with opened(hermes_home, top) as memory:
            assert memory.curated.entries("project") == ("Build with make",)
            assert call(memory, action="add", target="project", content=f"Note {_}")["success"]
            assert memory.curated.undo()["success"]
            verified = memory.curated.changes.verify()
    assert verified is not None
    assert verified.faults == ()


@pytest.mark.parametrize("origin", ["", "https://example.org/ben/pool"])
def test_the_doctor_names_notes_of_an_earlier_address_if_the_new_one_has_notes(
    hermes_home: HermesHome, tmp_path: Path, origin: str
) -> None:
    with opened(hermes_home, repository(tmp_path / "clone", POND)) as memory:
        call(memory, action="add", target="project", content="Note of the clone")
    top = repository(tmp_path / "pond", origin)
    with opened(hermes_home, top) as memory:
        call(memory, action="add", target="project", content="Build with make")
        assert memory.curated.files.project is not None
        earlier = hermes_home.project_md_of(memory.curated.files.project.key)
        assert earlier_findings(memory) == []
    set_origin(top, remote("origin", POND))
    for _ in range(2):
        with opened(hermes_home, top) as memory:
            assert memory.curated.entries("project") == ("Note of the clone",)
            (finding,) = earlier_findings(memory)
            assert str(earlier) in finding.detail
            assert "memory edit" in finding.remedy
    earlier.write_text("")
    with opened(hermes_home, top) as memory:
        assert earlier_findings(memory) == []


def earlier_findings(memory: Memory) -> list[Finding]:
    return [one for one in _examine_curated(memory) if "earlier notes" in one.detail]


def test_notes_follow_a_folder_that_was_moved_and_not_one_that_was_copied(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    top = repository(tmp_path / "pond")
    with opened(hermes_home, top) as memory:
        call(memory, action="add", target="project", content="Build with make")
    with opened(hermes_home, Path(shutil.copytree(top, tmp_path / "copy"))) as memory:
        assert memory.curated.entries("project") == ()
    moved = top.rename(tmp_path / "lake")
    with opened(hermes_home, moved) as memory:
        assert memory.curated.entries("project") == ("Build with make",)
    set_origin(moved, remote("origin", POND))
    with opened(hermes_home, moved) as memory:
        assert memory.curated.entries("project") == ("Build with make",)
    # Another clone of the address has them too.
    with opened(hermes_home, repository(tmp_path / "clone", POND)) as memory:
        assert memory.curated.entries("project") == ("Build with make",)


def test_another_repository_in_the_same_folder_has_notes_of_its_own(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    top = repository(tmp_path / "work", POND)
    with opened(hermes_home, top) as memory:
        call(memory, action="add", target="project", content="Build with make")
    top.rename(tmp_path / "old")
    with opened(hermes_home, repository(tmp_path / "work", "https://example.org/ben/pool")) as memory:
        assert memory.curated.entries("project") == ()


def test_a_fork_has_other_notes_than_the_repository_that_it_also_names(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    with opened(hermes_home, repository(tmp_path / "pond", POND)) as memory:
        call(memory, action="add", target="project", content="Build with make")
    fork = repository(tmp_path / "fork")
    set_origin(fork, remote("origin", "git@github.com:ben/pond.git") + remote("upstream", POND))
    with opened(hermes_home, fork) as memory:
        assert memory.curated.entries("project") == ()


def test_a_worktree_without_a_remote_and_its_repository_are_one(tmp_path: Path) -> None:
    top = repository(tmp_path / "pond")
    admin = top / ".git" / "worktrees" / "w"
    admin.mkdir(parents=True)
    (admin / "HEAD").write_text("ref: refs/heads/w\n")
    (admin / "commondir").write_text("../..\n")
    worktree = tmp_path / "w"
    worktree.mkdir()
    (worktree / ".git").write_text(f"gitdir: {admin}\n")
    assert repository_of(worktree) == repository_of(top)


def test_a_session_that_goes_on_in_another_repository_gets_the_notes_on_that(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    pond, lake = (repository(tmp_path / name) for name in ("pond", "lake"))
    for top in (pond, lake):
        with opened(hermes_home, top) as memory:
            call(memory, action="add", target="project", content=f"Build {top.name} with make")
    with opened(hermes_home, pond) as memory:
        session = memory.start_session("t")
        first = memory.system_prompt(session)
        assert "Build pond" in first
        call(memory, action="add", target="project", content="Later")
        assert memory.system_prompt(session) == first
    with opened(hermes_home, lake) as memory:
        assert "Build pond" not in memory.system_prompt(session)
        assert "Build lake" in memory.system_prompt(session)
    with opened(hermes_home, tmp_path) as memory:
        assert "Build lake" not in memory.system_prompt(session)


# ------------------------------------------------------------------ two machines on one server


@pytest.fixture
def machine(postgres_url: str, postgres_schema: str, tmp_path: Path) -> Callable[..., Memory]:
    """Open the memory of a machine, by its name, in a working folder."""

    def open_it(name: str, folder: Path) -> Memory:
        storage = {"url": postgres_url, "schema": postgres_schema}
        return open_memory(tmp_path / name, config={**AUTO, "storage": storage}, folder=folder)

    return open_it


@pytest.fixture
def database(postgres_url: str, postgres_schema: str) -> Iterator[Engine]:
    with contextlib.closing(PostgresEngine(postgres_url, schema=postgres_schema)) as opened:
        yield opened


def keep(memory: Memory, note: str) -> None:
    assert call(memory, action="add", target="project", content=note)["success"]


def notes_of(memory: Memory) -> tuple[str, ...]:
    return memory.curated.entries("project")


def test_clones_on_two_machines_share_their_notes_after_a_new_address(
    machine: Callable[..., Memory], tmp_path: Path
) -> None:
    folders = [repository(tmp_path / place / "pond", POND) for place in ("a", "b")]
    with machine("one", folders[0]) as one, machine("two", folders[1]) as two:
        keep(one, "Build with make")
        assert notes_of(two) == ("Build with make",)
    for folder in folders:
        set_origin(folder, remote("origin", "https://example.org/ben/lake"))
    with machine("two", folders[1]) as two:  # the one that wrote nothing comes first
        assert notes_of(two) == ("Build with make",)
        keep(two, "Test with make test")
    fresh = repository(tmp_path / "c" / "lake", "git@example.org:ben/lake.git")
    for name, folder in (("one", folders[0]), ("three", fresh)):
        with machine(name, folder) as memory:
            assert notes_of(memory) == ("Build with make", "Test with make test")


def test_the_keys_outlive_the_home_of_a_machine(machine: Callable[..., Memory], tmp_path: Path) -> None:
    top = repository(tmp_path / "pond")
    with machine("one", top) as one:
        keep(one, "Build with make")
    set_origin(top, remote("origin", POND))
    moved = top.rename(tmp_path / "lake")
    with machine("new home", moved) as one:
        assert notes_of(one) == ("Build with make",)


def test_a_path_of_another_machine_is_not_the_earlier_identity_of_a_clone(
    machine: Callable[..., Memory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = repository(tmp_path / "work")
    with machine("one", top) as one:
        keep(one, "Build with make")
    monkeypatch.setattr(socket, "gethostname", lambda: "another-machine")
    set_origin(top, remote("origin", POND))
    with machine("two", top) as two:
        assert notes_of(two) == ()


def test_a_write_is_refused_if_another_machine_has_the_notes_under_another_key_meanwhile(
    machine: Callable[..., Memory], tmp_path: Path
) -> None:
    folders = [repository(tmp_path / place / "pond", POND) for place in ("a", "b")]
    with machine("one", folders[0]) as one, machine("two", folders[1]):
        set_origin(folders[1], remote("origin", "https://example.org/ben/lake"))
        with machine("two", folders[1]) as two:
            keep(one, "Build with make")
            refused = call(two, action="add", target="project", content="Test with make test")
            assert "under an earlier address" in refused["error"]
        with machine("two", folders[1]) as two:
            assert notes_of(two) == ("Build with make",)
            keep(two, "Test with make test")
        assert notes_of(one) == ("Build with make", "Test with make test")


def test_the_doctor_names_rows_of_an_earlier_address(machine: Callable[..., Memory], tmp_path: Path) -> None:
    with machine("one", repository(tmp_path / "a" / "pond", POND)) as one:
        keep(one, "Note of the clone")
    top = repository(tmp_path / "b" / "pond")
    with machine("two", top) as two:
        keep(two, "Build with make")
        assert earlier_findings(two) == []
    set_origin(top, remote("origin", POND))
    with machine("two", top) as two:
        assert notes_of(two) == ("Note of the clone",)
        (finding,) = earlier_findings(two)
        assert "projects/pond-" in finding.detail
        assert "memory edit" in finding.remedy


def test_an_address_that_a_server_can_not_store_is_no_error(
    machine: Callable[..., Memory], tmp_path: Path
) -> None:
    top = repository(tmp_path / "pond\udcff", "git@example.org:ann/po\\0nd\0.git")
    for note in ("Build with make", "Test with make test"):
        with machine("one", top) as one:
            keep(one, note)
            assert len(notes_of(one)) == 1 + (note[0] == "T")
