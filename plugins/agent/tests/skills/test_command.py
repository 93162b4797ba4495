from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner

from hermes_core.cli import main
from hermes_core.home import HermesHome
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_agent.skills.store import SkillStore

TEXT = "---\nname: tea\ndescription: Make tea.\nversion: '2'\n---\nBoil water.\n"


@pytest.fixture(autouse=True)
def written(hermes_home: HermesHome) -> None:
    with closing(SessionStore(hermes_home.state_db)) as sessions:
        SkillStore(hermes_home.skills, sessions.database).create("tea", "home", TEXT)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["skills", *arguments])


def test_skills_are_listed_and_shown() -> None:
    assert "home/tea" in run("list").output
    (listed,) = json.loads(run("list", "--json").stdout)
    assert (listed["name"], listed["version"]) == ("tea", "2")
    assert "Boil water." in run("show", "tea").output


def test_a_change_is_listed_and_can_be_undone() -> None:
    (change,) = json.loads(run("history", "--json").stdout)
    assert (change["action"], change["path"]) == ("create", "home/tea/SKILL.md")
    assert "create" in run("history").output
    assert "Taken back: create" in run("undo").output
    assert "No skills yet." in run("list").output


def test_an_unknown_skill_or_change_is_an_error() -> None:
    result = run("show", "coffee")
    assert result.exit_code == 1
    assert "known skills: tea" in result.stderr
    for unknown in ("99", "9" * 30):
        assert f"there is no change {unknown} of skills" in run("undo", unknown).output


def test_a_broken_skill_is_warned_of(hermes_home: HermesHome) -> None:
    (hermes_home.skills / "home" / "bad").mkdir()
    (hermes_home.skills / "home" / "bad" / "SKILL.md").write_text("---\nname: bad\n---\n")
    assert "no text after its front matter" in run("list").stderr
