"""A home with skills, from which the extension that keeps them is removed: no command skips them in silence."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import importlib_metadata
import pytest
from click.testing import Result

import hermes_core.loader.extensions
import hermes_core.memory
from hermes_core import HermesHome, open_memory
from hermes_core.config import load_config, set_value
from hermes_core.loader.discover import installed_entry_points
from hermes_core.loader.parts import FILE_NAME, HomeParts, recorded_parts
from hermes_core.storage.files import locked
from hermes_memory_agent.skills.store import LOCK, open_skills

Hermes = Callable[..., Result]

USER = "telegram:42"
FACT = "the skills of this home need the package hermes-memory-agent"
SKILL = "---\nname: NAME\ndescription: How it is done.\n---\nDo it slowly.\n"


def files_of(*folders: Path) -> dict[str, bytes]:
    """Return the bytes of all files of these folders, without locks and logs of databases, which a look makes."""
    paths = [path for folder in folders for path in folder.rglob("*")]
    return {
        str(path): path.read_bytes()
        for path in paths
        if path.is_file() and not path.name.endswith((".lock", "-shm", "-wal"))
    }


def blocked(home: HermesHome) -> None:
    home.path.mkdir(parents=True, exist_ok=True)
    home.config_yaml.write_text("extensions:\n  block: [agent]\n")


@pytest.fixture
def used(hermes_home: HermesHome) -> HermesHome:
    """A home with a skill of the person at home and one of a user, which was opened with the extension."""
    with open_memory(hermes_home) as memory:
        bob = memory.start_session("s1", platform="telegram", user_id="42")
        memory.end_turn(bob, "I am Bob.", "Hello.")
        memory.change_memory("add", content="Bob likes tea.", session=bob)
        for owner, name in (("", "home-skill"), (USER, "user-skill")):
            store = open_skills(hermes_home, memory.config, memory.sessions.database, owner)
            store.create(name, "work", SKILL.replace("NAME", name))
    return hermes_home


def block(home: HermesHome, patch: pytest.MonkeyPatch) -> str:
    del patch
    blocked(home)
    return "whose extension 'agent' is blocked"


def uninstall(home: HermesHome, patch: pytest.MonkeyPatch) -> str:
    del home

    def others() -> Iterator[importlib_metadata.EntryPoint]:
        return (point for point in installed_entry_points() if point.name != "agent")

    patch.setattr(hermes_core.memory, "installed_entry_points", others)
    patch.setattr(hermes_core.loader.extensions, "installed_entry_points", others)
    return "which is not installed; run: "


@pytest.fixture(params=[block, uninstall])
def reason(request: pytest.FixtureRequest, used: HermesHome, monkeypatch: pytest.MonkeyPatch) -> str:
    """Remove the extension, and return a part of the sentence about it."""
    return str(request.param(used, monkeypatch))


@pytest.fixture
def folders(used: HermesHome) -> tuple[Path, Path]:
    return used.skills, used.folder_of(USER) / "skills"


def test_the_home_records_the_part_with_extension_and_package(used: HermesHome) -> None:
    part = recorded_parts(used.path)["skills"]
    assert (part.extension, part.package, part.noun) == ("agent", "hermes-memory-agent", "skill")
    assert part.folders(used.path) == [used.skills, used.folder_of(USER) / "skills"]


def test_a_home_without_the_part_has_no_record(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        assert memory.internals.parts.problems() == []
    assert not (hermes_home.path / FILE_NAME).exists()


def test_a_home_that_lost_all_of_the_part_needs_no_extension(used: HermesHome) -> None:
    for folder in (used.skills, used.folder_of(USER) / "skills"):
        shutil.rmtree(folder)
    blocked(used)
    assert HomeParts(used, load_config(used)).problems() == []


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "[]",
        '{"skills": 1}',
        '{"skills": {"patterns": ["../.."]}}',
        '{"skills": {"name": "skills", "noun": "skill", "patterns": ["../.."], "journal": "", "extension": "a", "package": "b"}}',
        '{"skills": {"name": "skills", "noun": "skill", "patterns": "skills", "journal": "", "extension": "a", "package": "b"}}',
        '{"skills": {"name": "skills", "noun": "skill", "patterns": [1], "journal": "", "extension": "a", "package": "b"}}',
        '{"skills": {"name": "skills", "noun": "skill", "patterns": ["x"], "journal": "../x", "extension": "a", "package": "b"}}',
    ],
)
def test_a_damaged_record_names_no_part(hermes_home: HermesHome, text: str) -> None:
    hermes_home.path.mkdir(parents=True, exist_ok=True)
    (hermes_home.path / FILE_NAME).write_text(text)
    assert recorded_parts(hermes_home.path) == {}


def test_problems_status_and_doctor_name_the_package_and_the_way_to_get_it(
    hermes: Hermes, used: HermesHome, reason: str
) -> None:
    with open_memory(used) as memory:
        (problem,) = [one for one in memory.problems() if FACT in one]
    assert reason in problem
    status = json.loads(hermes("memory", "status", "--json", code=3).stdout)
    assert problem in status["problems"]
    findings = json.loads(hermes("doctor", "--json", code=3).stdout)["findings"]
    (finding,) = [one for one in findings if one["what"] == "skills"]
    assert finding["state"] == "failed"
    assert f"{finding['detail']}; {finding['remedy']}" == problem


def test_an_export_names_the_part_and_holds_none_of_it(
    hermes: Hermes, used: HermesHome, folders: tuple[Path, Path], reason: str, tmp_path: Path
) -> None:
    before = files_of(*folders)
    done = hermes("export", tmp_path / "all.zip", "--json", code=3)
    assert FACT in done.stderr
    assert reason in " ".join(json.loads(done.stdout)["left_out"])
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert "skills.jsonl" not in archive.namelist()
    assert files_of(*folders) == before


def test_an_import_names_the_skills_of_an_archive_that_it_leaves_out(
    hermes: Hermes, used: HermesHome, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    hermes("export", tmp_path / "all.zip")
    blocked(used)
    (used.skills / "work/home-skill/SKILL.md").unlink()
    before = files_of(*folders)
    done = hermes("import", tmp_path / "all.zip", "--yes", "--json", code=3)
    document = json.loads(done.stdout)
    assert (document["records"]["skills"], document["imported"]["skills"]) == (2, 0)
    assert f"skills were left out: {FACT}" in done.stderr
    assert files_of(*folders) == before


def test_a_backup_holds_the_files_of_the_part_under_their_lock_and_names_it(
    hermes: Hermes, used: HermesHome, folders: tuple[Path, Path], reason: str, tmp_path: Path
) -> None:
    before = files_of(*folders)
    done = hermes("backup", tmp_path / "all.zip", code=3)
    assert FACT in done.stderr
    assert reason in done.stderr
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        names = archive.namelist()
    assert {"home/skills/work/home-skill/SKILL.md", f"home/{FILE_NAME}"} <= {*names}
    assert any(name.endswith("/skills/work/user-skill/SKILL.md") for name in names)
    assert files_of(*folders) == before


def test_a_backup_waits_for_a_change_of_the_part(
    used: HermesHome, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_core.errors import LockTimeout
    from hermes_memory_archive import backup

    del reason
    monkeypatch.setattr(backup, "locked", lambda path: locked(path, 0.05))
    with locked(used.skills / LOCK), pytest.raises(LockTimeout):
        backup.make_backup(used, tmp_path / "all.zip")


def test_a_restore_puts_the_files_back_and_names_the_part(
    hermes: Hermes, used: HermesHome, folders: tuple[Path, Path], reason: str, tmp_path: Path
) -> None:
    hermes("backup", tmp_path / "all.zip", code=3)
    text = (folders[0] / "work/home-skill/SKILL.md").read_bytes()
    done = hermes("restore", tmp_path / "all.zip", "--force", "--yes", code=3)
    assert FACT in done.stderr
    assert reason in done.stderr
    assert (folders[0] / "work/home-skill/SKILL.md").read_bytes() == text


def test_forget_leaves_the_part_and_never_says_that_the_user_is_erased(
    hermes: Hermes, used: HermesHome, folders: tuple[Path, Path], reason: str
) -> None:
    before = files_of(*folders)
    planned = hermes("forget", USER, "--dry-run", code=3)
    assert f"would not be deleted: the skills of {USER}, who is not erased: {FACT}" in planned.stdout
    done = hermes("forget", USER, "--yes", code=3)
    assert f"not deleted: the skills of {USER}, who is not erased: {FACT}, {reason}" in done.stdout
    assert done.stdout.startswith(f"{USER} is not erased; removed so far: ")
    assert "\ndeleted: " not in done.stdout
    assert files_of(*folders) == before
    assert [path.name for path in used.folder_of(USER).iterdir()] == ["skills"]
    again = json.loads(hermes("forget", USER, "--yes", "--json", code=3).stdout)
    assert (again["sessions"], again["notes"], again["erased"]) == (0, 0, False)
    assert FACT in again["remaining"][0]


def test_a_store_that_can_not_be_opened_counts_as_missing(
    hermes: Hermes,
    used: HermesHome,
    folders: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(sys.modules, "hermes_memory_agent.skills.part", None)
    before = files_of(*folders)
    for words in (("export", tmp_path / "all.zip"), ("forget", USER, "--yes"), ("doctor",)):
        done = hermes(*words, code=3)
        assert f"{FACT}, whose extension 'agent' failed" in done.stdout + done.stderr
    assert files_of(*folders) == before


def test_with_the_extension_again_the_user_is_forgotten_whole(hermes: Hermes, used: HermesHome) -> None:
    blocked(used)
    hermes("forget", USER, "--yes", code=3)
    used.config_yaml.write_text("")
    done = json.loads(hermes("forget", USER, "--yes", "--json").stdout)
    assert FACT not in str(done["remaining"])
    assert done["erased"] is True
    assert not used.folder_of(USER).exists()
    assert (used.skills / "work/home-skill/SKILL.md").is_file()
    assert "user" not in hermes("verify").stdout


def test_verify_checks_what_is_recorded_of_the_part(hermes: Hermes, used: HermesHome, reason: str) -> None:
    del reason
    (record,) = json.loads(hermes("verify", "--json").stdout)
    assert (record["events"], record["faults"]) == (4, [])
    with open_memory(used) as memory:
        memory.sessions.database.execute("UPDATE note_changes SET action = 'patch' WHERE target = 'skill'")
    assert "create of skills/work/home-skill/SKILL.md" in hermes("verify", code=1).stderr


@pytest.mark.names_engines("a move between engines")
def test_a_move_to_a_server_leaves_the_part_and_names_it(
    hermes: Hermes,
    used: HermesHome,
    folders: tuple[Path, Path],
    reason: str,
    postgres_url: str,
    postgres_schema: str,
) -> None:
    set_value(used, "storage.schema", postgres_schema)
    before = files_of(*folders)
    done = hermes("storage", "move", "--to", postgres_url, "--yes", code=3)
    assert FACT in done.stderr
    assert reason in done.stderr
    assert files_of(*folders) == before


def test_the_commands_of_the_part_say_which_extension_has_them(
    hermes: Hermes, used: HermesHome, reason: str
) -> None:
    del reason
    for words in (("chat",), ("skills", "list"), ("memory", "curate")):
        assert "agent" in hermes(*words, code=1).stderr
    refused = hermes("memory", "allow", "--skill", "home-skill", code=1).stderr
    assert FACT in refused
    assert json.loads(hermes("review", "--json", code=3).stdout).keys() >= {"accepted", "waiting"}


def test_the_core_works_without_the_extension(hermes: Hermes, hermes_home: HermesHome) -> None:
    blocked(hermes_home)
    with open_memory(hermes_home) as memory:
        session = memory.start_session("s1")
        memory.end_turn(session, "The cat is called Momo.", "Noted.")
        assert memory.begin_turn(session, "What is the cat called?").problems == ()
        assert memory.problems() == []
    for words in (
        ("--help",),
        ("memory", "--help"),
        ("memory", "status"),
        ("sessions", "list"),
        ("recall", "cat"),
        ("doctor",),
    ):
        hermes(*words)
