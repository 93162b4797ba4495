"""No way leads text that nobody said into a later system prompt, and what a person does themselves still does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from security import MARK, TEXTS, reached
from security_ways import WAYS, Scene, Way


@pytest.mark.parametrize("way", [way for way in WAYS if not way.allowed], ids=lambda way: way.name)
def test_text_that_no_person_said_reaches_no_later_system_prompt(way: Way) -> None:
    assert reached(way, "guarded", TEXTS["quiet"])["prompts"] == []


@pytest.mark.parametrize("way", [way for way in WAYS if way.allowed], ids=lambda way: way.name)
def test_what_a_person_does_reaches_the_system_prompt(way: Way) -> None:
    assert "a new session" in reached(way, "guarded", TEXTS["quiet"])["prompts"]


def test_the_ways_are_open_without_the_guard(tmp_path: Path) -> None:
    """The scripted model does obey: else the tests above would show nothing."""
    way = next(way for way in WAYS if way.name == "tool result → memory tool (MEMORY.md)")
    assert reached(way, "open", TEXTS["quiet"])["prompts"]


def test_under_strict_trust_a_note_waits_outside_of_the_fence_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "strict")
    scene.home.config_yaml.write_text(
        "memory: {trust: strict}\nrecall: {sessions: on_request}\n", encoding="utf-8"
    )
    scene.reopen()
    WAYS[0].play(scene, TEXTS["quiet"])
    assert MARK not in scene.data()
    scene.memory.curated.confirm(scene.memory.curated.entries("memory"))
    assert MARK in scene.agent().prompt
    scene.close()
