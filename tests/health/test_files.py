"""Findings about files and folders, each with its cure, and what --fix does about them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core.config import Config, Credentials
from hermes_core.health.files import examine_files, holder
from hermes_core.health.finding import Finding
from hermes_core.home import HermesHome
from hermes_core.loader.parts import HomeParts
from hermes_core.logs import LogFile

HOLD = """
import sys, threading
from filelock import FileLock
lock = FileLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
threading.Event().wait(60)  # until the test kills it
"""


def look(home: HermesHome) -> dict[str, Finding]:
    return {found.what: found for found in examine_files(home)}


def fix(home: HermesHome) -> dict[str, Finding]:
    return {what: found.repaired() for what, found in look(home).items() if found.safe_to_fix}


@pytest.fixture
def held(hermes_home: HermesHome) -> Iterator[tuple[Path, int]]:
    """A lock that another process holds, and that process."""
    path = hermes_home.memories / "MEMORY.md.lock"
    path.parent.mkdir(parents=True, mode=0o700)
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    assert child.stdout.readline() == "held\n"
    yield path, child.pid
    child.kill()
    child.communicate()


def test_a_good_home_has_nothing_to_repair_and_is_left_as_it_was(hermes_home: HermesHome) -> None:
    Credentials(hermes_home).set("A_KEY", "x")
    before = sorted(path.name for path in hermes_home.path.rglob("*"))
    found = look(hermes_home)
    assert {one.state for one in found.values()} == {"ok"}
    assert sorted(path.name for path in hermes_home.path.rglob("*")) == sorted([*before, "memories"])


@pytest.mark.parametrize("name", ["memories", "logs"])
def test_a_file_in_place_of_a_folder_is_named_with_the_way_out(hermes_home: HermesHome, name: str) -> None:
    hermes_home.path.mkdir()
    (hermes_home.path / name).write_text("x")
    found = look(hermes_home)[f"folder {name}"]
    assert found.failed
    assert found.remedy.startswith("move it away: mv ")


def test_lines_of_env_that_give_no_value_are_named_without_what_they_hold(hermes_home: HermesHome) -> None:
    good = "# keys\n\nA_KEY=a#1\nexport B_KEY='b'  # mine\nEMPTY=\n"
    hermes_home.path.mkdir(exist_ok=True)
    hermes_home.env_file.write_text(good)
    assert ".env" not in look(hermes_home)
    hermes_home.env_file.write_text(good + '\nC_KEY: c-0123\nD_KEY="d-0123\nd-0123\n')
    found = look(hermes_home)[".env"]
    assert (found.state, found.detail) == (
        "warning",
        "lines 7, 8, 9 are not of the form NAME=VALUE and give nothing",
    )
    assert "0123" not in f"{found}"


def test_a_folder_in_place_of_a_file_is_named_with_the_way_out(hermes_home: HermesHome) -> None:
    hermes_home.memory_md.mkdir(parents=True)
    assert look(hermes_home)["MEMORY.md"].failed


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cant_be_written_is_named(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    hermes_home.path.chmod(0o500)
    try:
        assert "check who owns the folder" in look(hermes_home)["home"].remedy
    finally:
        hermes_home.path.chmod(0o700)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_log_that_cant_be_written_is_named(hermes_home: HermesHome) -> None:
    LogFile(hermes_home).write("info", "x", {})
    hermes_home.log_file.chmod(0o400)
    assert "what goes wrong is not noted" in look(hermes_home)["log"].detail


@pytest.mark.skipif(os.name == "nt", reason="modes are of POSIX")
def test_what_others_may_read_is_named_and_fixed(hermes_home: HermesHome) -> None:
    Credentials(hermes_home).set("A_KEY", "x")
    hermes_home.env_file.chmod(0o644)
    hermes_home.path.chmod(0o755)
    found = look(hermes_home)
    assert "0644" in found["permissions of .env"].detail
    assert {one.state for one in fix(hermes_home).values()} == {"fixed"}
    assert stat.S_IMODE(hermes_home.env_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(hermes_home.path.stat().st_mode) == 0o700


def test_a_lock_that_hangs_names_the_process(hermes_home: HermesHome, held: tuple[Path, int]) -> None:
    path, pid = held
    found = look(hermes_home)["lock memories/MEMORY.md.lock"]
    assert found.failed
    if sys.platform == "linux":
        assert str(pid) in holder(path)
        assert found.remedy == f"stop it if it hangs: kill {pid}"


def test_a_lock_that_cant_be_taken_is_freed(hermes_home: HermesHome) -> None:
    hermes_home.memories.mkdir(parents=True, mode=0o700)
    lock = hermes_home.memories / "MEMORY.md.lock"
    lock.mkdir()
    assert look(hermes_home)["lock memories/MEMORY.md.lock"].failed
    assert fix(hermes_home)["lock memories/MEMORY.md.lock"].state == "fixed"
    assert not lock.exists()


def test_locks_and_temporary_files_that_were_left_are_removed_and_fresh_ones_stay(
    hermes_home: HermesHome,
) -> None:
    hermes_home.path.mkdir(mode=0o700)
    skill = hermes_home.skills / "work" / "deploy"
    skill.mkdir(parents=True, mode=0o700)
    old = [hermes_home.path / name for name in ("gone.json.lock", ".config.yaml.abc.tmp")]
    old.append(skill / ".SKILL.md.abc.tmp")
    fresh = [hermes_home.path / name for name in ("new.json.lock", ".config.yaml.def.tmp")]
    for path in (*old, *fresh):
        path.touch(mode=0o600)
    for path in old:
        os.utime(path, (0, 0))
    HomeParts(hermes_home, Config()).record()
    fix(hermes_home)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in fresh)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root gives files away")
def test_what_root_made_in_the_home_of_another_is_named_with_the_cure(hermes_home: HermesHome) -> None:
    assert "owner" not in look(hermes_home)
    for path in (hermes_home.path, *hermes_home.path.rglob("*")):
        os.chown(path, 12345, -1)
    (hermes_home.path / "config.yaml").write_text("")
    (hermes_home.path / "config.yaml").chmod(0o644)  # as a system's configuration has it
    assert "owner" not in look(hermes_home)
    (hermes_home.path / "config.yaml").chmod(0o600)
    found = look(hermes_home)["owner"]
    assert found.detail.startswith("config.yaml, and perhaps more, was made by user 0: 12345")
    assert found.remedy.startswith("chown -R 12345 ")
