"""What people, editors and other programs do to the files and folders of skills."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_core.contract.values import Session
from hermes_core.errors import SkillError
from hermes_core.storage.engine import Engine
from hermes_memory_agent.skills.store import SkillStore
from hermes_memory_agent.skills.tool import SkillTools
from plugins.agent.tests.skills.conftest import skill, write

SESSION = Session("s1")


def test_a_skill_is_changed_by_the_name_that_the_index_gives_it(store: SkillStore) -> None:
    store.create("deploy", "ops", skill())
    assert store.index().startswith("- ops/deploy:")
    store.patch("ops/deploy", "Run it.", "Walk.")
    assert "Walk." in store.view("deploy")


def test_a_patch_and_its_undo_keep_the_line_ends_and_the_mode_of_the_file(
    store: SkillStore, tmp_path: Path
) -> None:
    path = tmp_path / "skills/ops/deploy/SKILL.md"
    write(path.parent, "")
    path.write_bytes(saved := skill().replace("\n", "\r\n").encode())
    path.chmod(0o664)
    store.patch("deploy", "Run it.", "Walk.\nSlowly.")
    assert path.read_bytes() == saved.replace(b"Run it.", b"Walk.\r\nSlowly.")
    store.undo()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (saved, 0o664)


@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_a_deleted_skill_comes_back_with_its_bytes(store: SkillStore, tmp_path: Path, start: str) -> None:
    path = tmp_path / "skills/ops/deploy/SKILL.md"
    write(path.parent, "")
    path.write_bytes(saved := f"{start}{skill()}One.\n".replace("\n", "\r\n").encode() + b"Two.\n")
    store.patch("deploy", "Run it.", "Walk.")
    patched = path.read_bytes()
    store.delete("deploy")
    store.undo()
    assert path.read_bytes() == patched
    store.undo()
    assert path.read_bytes() == saved


def test_a_skill_with_changed_line_ends_can_be_undone(store: SkillStore, tmp_path: Path) -> None:
    path = tmp_path / "skills/ops/deploy/SKILL.md"
    store.create("deploy", "ops", skill())
    store.patch("deploy", "Run it.", "Walk.")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    store.undo()
    store.undo()
    assert not path.exists()


def test_a_text_of_carriage_returns_alone_is_read_in_no_time(store: SkillStore) -> None:
    began = time.monotonic()
    with pytest.raises(SkillError, match="may have 65536 characters, this has 200000"):
        store.create("deploy", "ops", "\r" * 200_000)
    assert time.monotonic() - began < 10


def test_a_folder_whose_name_is_no_text_is_a_problem_and_stops_nothing(
    store: SkillStore, tmp_path: Path
) -> None:
    write(tmp_path / "skills" / os.fsdecode(b"caf\xe9") / "tea", skill("tea"))
    write(tmp_path / "skills" / "ops" / "deploy", skill())
    assert store.index() == "- ops/deploy: Deploy the site."
    assert "not UTF-8 text; rename it" in store.problems()[0]


def test_a_file_whose_name_is_no_text_is_listed_beside_a_skill(store: SkillStore, tmp_path: Path) -> None:
    write(tmp_path / "skills" / "ops" / "deploy", skill())
    (tmp_path / "skills/ops/deploy" / os.fsdecode(b"caf\xe9.md")).touch()
    answer = SkillTools(store).call("skill_view", {"name": "deploy", "file": "tea.md"}, SESSION)
    assert "it has: SKILL.md, caf?.md" in json.loads(answer.encode())["error"]


def test_changes_after_the_folder_was_deleted_can_be_undone(
    store: SkillStore, tmp_path: Path, database: Engine
) -> None:
    store.create("deploy", "ops", skill())
    shutil.rmtree(tmp_path / "skills")

    def create() -> None:
        store.create("brew", "home", skill("brew"))

    thread = threading.Thread(target=create)  # which has no connection yet, where this one has one
    thread.start()
    thread.join()
    store.patch("brew", "Run it.", "Boil it.")
    other = SkillStore(tmp_path / "skills", database)
    assert [change.action for change in other.history()] == ["patch", "create", "create"]
    other.undo()
    assert "Run it." in store.view("brew")


def die_after_the_file(home: Path) -> None:
    """Patch the skill `deploy` in a process that ends before it can say that this is done."""
    died = """
import os, sys
from pathlib import Path
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_agent.skills.history import SkillHistory
from hermes_memory_agent.skills.store import SkillStore
SkillHistory.finish = lambda *_: os._exit(9)
home = Path(sys.argv[1])
SkillStore(home / "skills", SessionStore(home / "state.db").database).patch("deploy", "Run it.", "Walk.")
"""
    run = subprocess.run([sys.executable, "-c", died, str(home)], check=False)
    assert run.returncode == 9


def test_a_killed_change_can_be_undone_after_the_next_change(store: SkillStore, tmp_path: Path) -> None:
    store.create("deploy", "ops", skill())
    die_after_the_file(tmp_path)
    store.patch("deploy", "Walk.", "Fly.")
    store.undo()
    store.undo()
    assert store.view("deploy") == skill()


def test_a_change_cut_short_of_a_file_that_can_not_be_read_now_holds_up_no_other(
    store: SkillStore, tmp_path: Path
) -> None:
    store.create("deploy", "ops", skill())
    store.create("brew", "home", skill("brew"))
    die_after_the_file(tmp_path)
    path = tmp_path / "skills/ops/deploy/SKILL.md"
    walked = path.read_bytes()
    path.write_bytes(b"caf\xe9")
    store.patch("brew", "Run it.", "Boil it.")
    assert [change.action for change in store.history()] == ["patch", "create", "create"]
    path.write_bytes(walked)
    assert len(store.history()) == 4


def test_an_edit_saved_during_a_change_is_not_overwritten(store: SkillStore, tmp_path: Path) -> None:
    store.create("deploy", "ops", skill())
    path = tmp_path / "skills/ops/deploy/SKILL.md"
    begin = store._history.begin

    def saved_meanwhile(*step: Any) -> int:
        path.write_text(skill(description="Saved by an editor."))
        return begin(*step)

    for change in (lambda: store.patch("deploy", "Run it.", "Walk."), lambda: store.delete("deploy")):
        store._history.begin = saved_meanwhile  # type: ignore[method-assign]
        with pytest.raises(SkillError, match="changed by another program just now; try again"):
            change()
        store._history.begin = begin  # type: ignore[method-assign]
        assert "Saved by an editor." in store.index()
        assert len(store.history()) == 1
        path.write_text(skill())


@pytest.mark.skipif(os.name == "nt", reason="folders have no modes there")
def test_a_folder_that_can_not_be_looked_into_is_a_problem(store: SkillStore, tmp_path: Path) -> None:
    write(tmp_path / "skills" / "ops" / "deploy", skill())
    write(tmp_path / "skills" / "home" / "brew", skill("brew"))
    listed = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("ops"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "scandir", scandir)
        assert store.index() == "- home/brew: Deploy the site."
        assert "ops/SKILL.md: its folder can't be read: Permission denied; check its" in store.problems()[0]


def test_a_folder_of_skills_that_the_system_can_not_even_look_for_is_a_problem(
    tmp_path: Path, database: Engine
) -> None:
    store = SkillStore(tmp_path / "skills", database, ["x" * 300])
    assert "no folder of skills is there" in store.problems()[0]


def test_a_link_that_the_system_can_not_follow_is_not_listed_beside_a_skill(
    store: SkillStore, tmp_path: Path
) -> None:
    write(tmp_path / "skills" / "ops" / "deploy", skill())
    (tmp_path / "skills/ops/deploy/link").symlink_to("x" * 300)
    with pytest.raises(SkillError, match=r"it has: SKILL\.md$"):
        store.view("deploy", "tea.md")


def refuse(path: object, **_: object) -> None:
    raise PermissionError(13, "Permission denied", str(path))


def test_a_skill_in_a_closed_folder_is_not_deleted_and_the_error_says_why(
    store: SkillStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("deploy", "ops", skill())
    with monkeypatch.context() as closed:
        closed.setattr(os, "unlink", refuse)
        answer = SkillTools(store).call("skill_manage", {"action": "delete", "name": "deploy"}, SESSION)
    assert "Permission denied; check who owns the folder and its mode" in json.loads(answer)["error"]
    assert [change.action for change in store.history()] == ["create"]


def test_a_skill_is_deleted_where_its_empty_folder_has_to_stay(
    store: SkillStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("deploy", "ops", skill())
    with monkeypatch.context() as closed:
        closed.setattr(os, "rmdir", refuse)
        store.delete("deploy")
    assert [change.action for change in store.history()] == ["delete", "create"]


@pytest.mark.parametrize("folder", ["skills", ".", "skills/team", "skills/../skills"])
def test_a_folder_of_skills_that_is_the_homes_own_or_lies_in_it_or_around_it_hides_nothing(
    tmp_path: Path, folder: str, database: Engine
) -> None:
    write(tmp_path / "skills" / "ops" / "deploy", skill())
    write(tmp_path / "skills" / "team" / "ops" / "test", skill("test"))
    store = SkillStore(tmp_path / "skills", database, [folder], platform="linux")
    assert [(one.name, one.own) for one in store.skills()] == [("deploy", True), ("test", True)]
    assert store.problems() == []


def test_a_link_to_nowhere_in_place_of_the_homes_skills_is_a_problem(
    tmp_path: Path, database: Engine
) -> None:
    root = tmp_path / "skills"
    store = SkillStore(root, database)
    assert store.problems() == []
    root.symlink_to(tmp_path / "unmounted")
    assert store.problems() == [f"{root}: no folder of skills is there"]
