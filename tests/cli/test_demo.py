from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_core.cli.demo import QUESTION, REMEMBERED, own_home


def test_the_demo_goes_into_no_home_of_a_person(hermes: Any, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("memory: {}\n")
    refused = hermes("demo", "--keep", tmp_path, code=1)
    assert "is not empty and no demo's; name a folder that is not there yet" in refused.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "home"}
    assert (tmp_path / "config.yaml").read_text() == "memory: {}\n"


def test_a_demo_that_was_kept_can_be_run_again(tmp_path: Path) -> None:
    for _ in range(2):
        with own_home(tmp_path / "kept") as home:
            (home.path / "config.yaml").write_text("memory: {}\n")


def test_the_demo_works_in_the_core_alone(hermes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_core.loader.extensions.installed_entry_points", lambda: iter(()))
    monkeypatch.setattr("hermes_core.memory.installed_entry_points", lambda: iter(()))
    shown = hermes("demo").stdout
    assert "198 messages of 9 sessions, stored and searchable" in shown
    assert shown.count("\N{CHECK MARK}") == 5
    assert "\N{BALLOT X}" not in shown


def test_each_scene_of_the_demo_shows_what_its_heading_says(hermes: Any) -> None:
    first, second = hermes("demo").stdout.split("2. Facts are recalled")
    facts, turn = second.split("3. What a turn is given")
    prompt, message = turn.split("the user message of this request only")
    assert "198 messages of 9 sessions, stored and searchable" in first
    assert (facts.count("\N{CHECK MARK}"), facts.count("\N{BALLOT X}")) == (5, 0)
    assert "I'm allergic to cashews" in facts
    assert REMEMBERED in prompt
    assert "with `fact_feedback`." in prompt  # the last words of the provider
    assert QUESTION in message
    fence = message.split("<memory-context>")[1].split("</memory-context>")[0]
    assert "I'm allergic to cashews" in " ".join(
        fence.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split()
    )
    assert "said before" not in fence  # nobody said anything else later
