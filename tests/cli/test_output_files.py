"""The files that exports and backups write: nothing is replaced without a word, and no planted link is followed."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from hermes_core import HermesHome, open_memory

Hermes = Callable[..., Result]

COMMANDS = {
    "export": ("export",),
    "backup": ("backup",),
    "sessions": ("sessions", "export", "--all", "--output"),
}


@pytest.fixture
def filled(hermes_home: HermesHome) -> HermesHome:
    with open_memory(hermes_home) as memory:
        memory.end_turn(memory.start_session("s1"), "I like tea.", "Noted.")
        memory.curated.add("memory", "Uses uv.")
    return hermes_home


@pytest.fixture(params=COMMANDS)
def words(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return COMMANDS[request.param]


def test_a_file_that_exists_is_replaced_only_with_force(
    hermes: Hermes, filled: HermesHome, tmp_path: Path, words: tuple[str, ...]
) -> None:
    file, link = tmp_path / "out.zip", tmp_path / "link.zip"
    file.write_text("mine")
    link.symlink_to(tmp_path / "nowhere")
    for path in (file, link):
        error = hermes(*words, path, code=1).stderr
        assert "exists" in error
        assert "--force" in error
    assert file.read_text() == "mine"
    hermes(*words, file, "--force")
    assert file.read_bytes() != b"mine"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["state.db", "memories/MEMORY.md", "new.zip", "profiles/x/state.db"])
def test_no_file_of_the_home_is_replaced(
    hermes: Hermes, filled: HermesHome, tmp_path: Path, words: tuple[str, ...], name: str
) -> None:
    (tmp_path / "other-name").symlink_to(filled.path)
    for path in (filled.path / name, tmp_path / "other-name" / name):
        before = path.read_bytes() if path.exists() else None
        assert "lies in the home" in hermes(*words, path, "--force", code=1).stderr.replace("\n ", "")
        assert (path.read_bytes() if path.exists() else None) == before
    link = tmp_path / "out.zip"
    link.symlink_to(filled.path / name)
    hermes(*words, link, "--force", code=1)


def test_a_file_in_the_folder_of_backups_may_be_written(
    hermes: Hermes, filled: HermesHome, words: tuple[str, ...]
) -> None:
    file = filled.path / "backups/mine.zip"
    hermes(*words, file)
    assert file.exists()
    hermes(*words, file, code=1)
    hermes(*words, file, "--force")


@pytest.mark.sqlite_only("state.db is the file that must not be replaced")
def test_a_profile_does_not_replace_files_of_the_home_above_it(
    hermes: Hermes, filled: HermesHome, words: tuple[str, ...]
) -> None:
    with open_memory(HermesHome(filled.path / "profiles/work", "work")) as memory:
        memory.end_turn(memory.start_session("w1"), "Hello.", "Hi.")
    before = filled.state_db.read_bytes()
    hermes("--profile", "work", *words, filled.state_db, "--force", code=1)
    assert filled.state_db.read_bytes() == before


def test_a_planted_link_is_not_followed_and_a_left_over_file_does_not_stop_a_run(
    hermes: Hermes, filled: HermesHome, tmp_path: Path, words: tuple[str, ...]
) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    precious.chmod(0o644)
    file = tmp_path / "ex.zip"
    (tmp_path / ".ex.zip.partial").symlink_to(precious)
    hermes(*words, file)
    assert precious.read_text() == "mine"
    assert not file.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if ".partial" in path.name] == [".ex.zip.partial"]


def test_an_export_of_no_session_leaves_the_file_alone(
    hermes: Hermes, filled: HermesHome, tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("mine")
    hermes("sessions", "export", "--user", "nobody", "--output", file, "--force", code=1)
    assert file.read_text() == "mine"
