"""Where the texts of skills come from: no text of low origin passes for the person's, whatever happens to file or database."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core.config import Config
from hermes_core.curated.history import NoteHistory
from hermes_core.home import HermesHome
from hermes_core.memory import open_memory
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.engine import Engine
from hermes_core.storage.inventory import Inventory
from hermes_memory_agent.skills.history import SkillHistory
from hermes_memory_agent.skills.store import SkillStore, open_skills
from plugins.agent.tests.skills.conftest import skill, write
from tests.storage.notes import posix

on_both_engines = pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)


def origins(store: SkillStore) -> dict[str, str]:
    return {one.name: one.origin for one in store.skills()}


@on_both_engines
def test_a_text_keeps_its_origin_when_a_person_moves_the_skill_or_brings_it_back(
    store: SkillStore, tmp_path: Path
) -> None:
    store.create("deploy", "ops", skill(), origin="web")
    (tmp_path / "skills/ops").rename(tmp_path / "skills/home")
    assert origins(store) == {"deploy": "web"}
    path = tmp_path / "skills/home/deploy/SKILL.md"
    path.write_text(skill(description="As the person wrote it."))
    assert origins(store) == {"deploy": "file"}
    path.write_text(skill().replace("\n", "\r\n"))
    assert origins(store) == {"deploy": "web"}


@on_both_engines
def test_an_undo_and_a_restore_bring_the_origin_of_the_text_back(store: SkillStore, tmp_path: Path) -> None:
    store.create("deploy", "ops", skill(), origin="web")
    write(tmp_path / "skills/home/tea", skill("tea"))
    store.delete("deploy")
    store.undo()
    assert store.index() == "- home/tea: Deploy the site."
    assert origins(store) == {"deploy": "web", "tea": "file"}
    store.confirm("deploy")
    store.patch("deploy", "Run it.", "Walk.", origin="tool")
    assert [one.name for one in store.waiting()] == ["deploy"]
    store.restore(1)
    assert store.waiting() == []


@on_both_engines
def test_only_a_persons_own_writing_raises_the_origin_of_a_text(store: SkillStore) -> None:
    store.create("deploy", "ops", skill(), origin="web")
    store.delete("deploy")
    store.create("deploy", "ops", skill(), origin="assistant")
    assert origins(store) == {"deploy": "web"}
    store.delete("deploy")
    store.create("deploy", "ops", skill(), origin="person")
    assert origins(store) == {"deploy": "file"}


KILLED = """
import os, signal, sys
from pathlib import Path
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_agent.skills.history import SkillHistory
from hermes_memory_agent.skills.store import SkillStore
SkillHistory.finish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
home = Path(sys.argv[1])
store = SkillStore(home / "skills", SessionStore(home / "state.db").database)
store.patch("deploy", "Run it.", "Walk.", origin="web")
"""


@posix
def test_a_text_of_a_killed_process_has_its_origin_and_the_text_before_is_not_lost(
    store: SkillStore, tmp_path: Path, database: Engine
) -> None:
    write(tmp_path / "skills/ops/deploy", skill())
    run = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, env=os.environ)
    assert run.returncode == -signal.SIGKILL
    assert "Walk." in store.view("deploy")
    assert [one.origin for one in store.waiting()] == ["web"]
    report = NoteHistory(database).verify()  # the change is not in the record before it is completed
    assert report is not None
    assert (report.events, report.faults) == (0, ())
    store.undo()
    assert store.view("deploy") == skill()
    assert origins(store) == {"deploy": "file"}
    report = NoteHistory(database).verify()
    assert report is not None
    assert (report.events, report.faults) == (3, ())


@on_both_engines
def test_a_pending_change_of_another_machine_is_left_to_that_machine(
    store: SkillStore, tmp_path: Path, database: Engine
) -> None:
    there = SkillHistory(database, "skills", "there:/home")
    store.create("tea", "home", skill("tea"))
    change = there.begin("ops/deploy/SKILL.md", "create", None, skill(), "", "web", None)
    assert [one.path for one in store.history()] == ["home/tea/SKILL.md"]
    there.finish(change)
    assert [one.path for one in store.history()] == ["ops/deploy/SKILL.md", "home/tea/SKILL.md"]
    assert store.undo().path == "home/tea/SKILL.md"  # here the other one is not in effect


def test_a_change_that_a_person_took_back_by_hand_is_passed_over(store: SkillStore, tmp_path: Path) -> None:
    store.create("deploy", "ops", skill())
    store.create("tea", "home", skill("tea"))
    shutil.rmtree(tmp_path / "skills/home")
    assert store.undo().path == "ops/deploy/SKILL.md"


def test_skills_of_a_database_that_can_not_be_read_wait_and_a_problem_says_why(
    store: SkillStore, tmp_path: Path, database: Engine
) -> None:
    store.create("deploy", "ops", skill())
    database.close()
    assert store.index() == ""
    assert [one.origin for one in store.waiting()] == ["import"]
    (problem,) = store.problems()
    assert "nobody knows where its skills come from, so they wait" in problem
    assert "was closed" in problem


@pytest.mark.sqlite_only("a file that is deleted")
def test_skills_that_are_older_than_a_lost_database_wait(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        open_skills(hermes_home, Config(), memory.sessions.database).create(
            "deploy", "ops", skill(), origin="web"
        )
    for path in hermes_home.path.glob("state.db*"):
        path.unlink()
    for is_accepted in (False, True):
        if is_accepted:
            assert [one.name for one in Inventory(hermes_home.path).accept()] == ["state.db"]
        with closing(SessionStore(hermes_home.state_db)) as sessions:
            skills = open_skills(hermes_home, Config(), sessions.database)
            assert [one.origin for one in skills.waiting()] == ["import"]
    with open_memory(hermes_home) as memory:
        skills = open_skills(hermes_home, memory.config, memory.sessions.database)
        skills.confirm("deploy")
        assert skills.waiting() == []
        write(hermes_home.skills / "home/tea", skill("tea"))
        assert origins(skills)["tea"] == "file"


def test_skills_of_another_home_bring_their_origins_and_can_be_confirmed_here(
    tmp_path: Path, database: Engine
) -> None:
    other = HermesHome(tmp_path / "other")
    with closing(SessionStore(other.state_db)) as sessions:
        for name, origin in (("deploy", "web"), ("tea", "person")):
            SkillStore(other.skills, sessions.database).create(name, "ops", skill(name), origin=origin)  # type: ignore[arg-type]
    store = SkillStore(tmp_path / "skills", database, [other.skills])
    assert origins(store) == {"deploy": "web", "tea": "file"}
    store.confirm("deploy")
    assert store.waiting() == []
    other.state_db.write_bytes(b"garbage" * 1000)
    assert [one.name for one in store.waiting()] == ["tea"]
    assert any("nobody knows where its skills come from" in problem for problem in store.problems())


def test_skills_beside_a_database_of_another_program_are_the_persons(
    tmp_path: Path, database: Engine
) -> None:
    other = HermesHome(tmp_path / "other")
    write(other.skills / "ops/deploy", skill())
    with closing(SessionStore(other.state_db)) as sessions:
        sessions.database.execute("DROP TABLE note_entries")
    assert origins(SkillStore(tmp_path / "skills", database, [other.skills])) == {"deploy": "file"}


@on_both_engines
def test_the_history_of_each_skill_keeps_its_newest_changes(
    store: SkillStore, database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_core.curated.history.MAX_CHANGES", 3)
    store.create("tea", "home", skill("tea"))
    store.create("deploy", "ops", skill(version="0"))
    for number in range(5):
        store.patch("deploy", f"version: {number}", f"version: {number + 1}")
    assert [one.path for one in store.history()] == ["ops/deploy/SKILL.md"] * 3 + ["home/tea/SKILL.md"]
    assert store.history(1, before=store.history()[0].id)[0].id == store.history()[1].id
