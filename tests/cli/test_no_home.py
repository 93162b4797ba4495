"""Commands that only read: they make no folder, and tell a home that is not there yet from one that was named wrongly."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

READS = [
    "memory show",
    "memory status",
    "memory history",
    "sessions list",
    "sessions search tea",
    "recall tea",
    "turns list",
    "costs",
    "outbox list",
    "review",
    "identity list",
    "skills list",
    "providers",
    "export --dry-run",
    "storage status",
    "verify",
    "logs",
    "keys list",
    "config list",
    "plugins list",
    "sessions check",
    "serve token list",
]
CHANGES = [
    "forget telegram:1 --yes",
    "forget telegram:1 --dry-run",
    "memory remove tea",
    "memory replace tea coffee",
    "memory pin tea",
    "memory undo",
    "memory restore 1",
    "memory reset --yes",
    "memory prune --yes",
    "outbox retry --all",
    "outbox delete --all --yes",
    "sessions rename x y",
    "sessions archive x",
    "sessions pin x",
    "sessions delete x --yes",
    "sessions prune --older-than 3 --yes",
]
"""Commands that change what is stored, and store nothing new."""


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's folder without a home."""
    folder = tmp_path / "person"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    for name in ("HERMES_HOME", "HERMES_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.mark.parametrize("command", READS)
def test_a_home_that_is_not_there_yet_is_empty(hermes: Any, nowhere: Path, command: str) -> None:
    hermes(*command.split())
    assert [*nowhere.iterdir()] == []


def test_the_person_is_told_that_nothing_is_stored(hermes: Any, nowhere: Path) -> None:
    assert (
        f"nothing is stored yet: there is no home at '{nowhere / '.hermes'}'"
        in hermes("sessions", "list").stderr
    )
    assert json.loads(hermes("memory", "status", "--json").stdout)["home"] == str(nowhere / ".hermes")


@pytest.mark.parametrize(
    "command",
    [
        command
        for command in READS
        if command.split()[0]
        in ("memory", "sessions", "recall", "turns", "outbox", "skills", "providers", "verify")
    ]
    + CHANGES,
)
def test_a_home_that_was_named_must_exist(hermes: Any, nowhere: Path, command: str) -> None:
    missing = nowhere / "elsewhere"
    refused = hermes("--home", missing, *command.split(), code=1)
    assert f"there is no home at '{missing}'" in refused.stderr
    assert [*nowhere.iterdir()] == []


def test_a_home_that_a_variable_names_must_exist(
    hermes: Any, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(nowhere / "elsewhere"))
    assert "there is no home at" in hermes("sessions", "search", "tea", code=1).stderr
    monkeypatch.delenv("HERMES_HOME")
    assert "there is no home at" in hermes("--profile", "work", "memory", "show", code=1).stderr


def test_the_error_names_the_command_that_begins_the_home(hermes: Any, nowhere: Path) -> None:
    refused = hermes("--home", nowhere / "else where", "memory", "show", code=1)
    program, *words = shlex.split(refused.stderr.rpartition("begin it: ")[2])
    assert program == "hermes-memory"
    hermes(*words)
    hermes("--home", nowhere / "else where", "memory", "show")


def test_doctor_says_that_it_made_the_home(hermes: Any, nowhere: Path) -> None:
    home = nowhere / "elsewhere"
    assert f"{home} did not exist and was made now" in hermes("--home", home, "doctor").stdout
    assert "did not exist" not in hermes("--home", home, "doctor").stdout


def test_a_command_that_writes_makes_the_home(hermes: Any, nowhere: Path) -> None:
    hermes("memory", "add", "The person likes tea.")
    assert "likes tea" in hermes("memory", "show").stdout
