"""Recall for a message in another program: of which project, how much, and nothing when there is nothing to say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hermes_core import Memory, open_memory
from hermes_core.recall import count_tokens
from hermes_memory_capture.programs import PROGRAMS
from hermes_memory_capture.recall import project_of, within_budget
from hermes_memory_capture.worker import Worker
from plugins.capture.tests.conftest import Account, event_of

FACT = "We deploy the billing service to the cluster blue-heron in Frankfurt."
QUESTION = "Where do we deploy the billing service?"


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def repository(account: Account) -> Path:
    """A repository with a worktree beside it, `tree`."""
    folder = account.folder / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "Begin")
    git(folder, "worktree", "add", "-q", "../tree")
    return folder


def say(account: Account, worker: Worker, folder: Path, session: str = "s1") -> None:
    """Let a session of Claude Code in a folder say the fact."""
    path = account.transcript(session, ("user", FACT), ("assistant", "Noted."))
    account.run_hook("claude-code", "append", event_of(path, str(folder)))
    worker.take_spool()


def asked(
    worker: Worker, folder: Path, prompt: str = QUESTION, program: str = "claude-code", **more: Any
) -> str:
    event = {
        "session_id": "new",
        "cwd": str(folder),
        "hook_event_name": "UserPromptSubmit",
        "prompt": prompt,
        **more,
    }
    return worker.recall(PROGRAMS[program], event)


def test_a_session_is_recalled_in_each_worktree_and_in_no_other_project(
    account: Account, worker: Worker, repository: Path
) -> None:
    other = account.folder / "other"
    other.mkdir()
    git(other, "init", "-q")
    say(account, worker, repository)
    assert FACT in asked(worker, account.folder / "tree")
    assert asked(worker, other) == ""
    assert project_of(str(repository)) == project_of(str(account.folder / "tree")) != project_of(str(other))


def test_the_own_session_is_not_recalled(account: Account, worker: Worker, repository: Path) -> None:
    say(account, worker, repository)
    assert asked(worker, repository, session_id="s1") == ""


def test_each_program_gets_recall_in_its_own_form(account: Account, worker: Worker, repository: Path) -> None:
    say(account, worker, repository)
    for program in ("claude-code", "codex", "gemini"):
        output = json.loads(asked(worker, repository, program=program))["hookSpecificOutput"]
        assert output["hookEventName"] == "UserPromptSubmit"
        assert output["additionalContext"].startswith("<memory-context>")
    cursor = {"session_id": None, "conversation_id": "new", "cwd": None, "workspace_roots": [str(repository)]}
    output = json.loads(asked(worker, repository, program="cursor", **cursor))
    assert output["continue"] is True
    assert FACT in output["additional_context"]
    assert asked(worker, repository, program="opencode").endswith("</memory-context>")


@pytest.mark.parametrize("prompt", ["thanks", "ok, go on", "", "What is the capital of Mongolia?"])
def test_a_message_that_asks_for_nothing_gets_nothing(
    account: Account, worker: Worker, repository: Path, prompt: str
) -> None:
    say(account, worker, repository)
    assert asked(worker, repository, prompt) == ""


@pytest.mark.parametrize("value", [5, {"a": 1}, [], [5], "/a\0b"], ids=str)
def test_a_folder_of_a_strange_shape_is_that_of_no_project(
    account: Account, worker: Worker, repository: Path, value: Any
) -> None:
    say(account, worker, repository)
    for more in ({"cwd": value}, {"cwd": "", "workspace_roots": value}):
        assert asked(worker, repository, **more) == ""


def test_the_prompt_of_a_subagent_gets_nothing(account: Account, worker: Worker, repository: Path) -> None:
    say(account, worker, repository)
    assert asked(worker, repository, agent_id="a1") == ""


def test_the_notes_on_a_repository_come_with_the_first_message(account: Account, repository: Path) -> None:
    account.home.joinpath("config.yaml").write_text("memory: {project: auto}\n")
    with open_memory(account.home, folder=repository) as memory:
        memory.change_memory("add", "project", "Tests run with make test.", by_person=True)
    with open_memory(account.home, folder="/") as memory:
        worker = Worker(account.capture, memory)
        answer = json.loads(asked(worker, account.folder / "tree", "How do I begin?"))
        assert "Tests run with make test." in answer["hookSpecificOutput"]["additionalContext"]
        assert asked(worker, account.folder, "How do I begin?") == ""
        say(account, worker, repository, "new")
        assert asked(worker, repository, "And then?") == ""


@pytest.mark.parametrize("budget", [60, 120, 400])
def test_all_of_the_recall_is_within_the_budget(account: Account, budget: int) -> None:
    account.home.joinpath("config.yaml").write_text(f"recall: {{budget: {budget}}}\n")
    with open_memory(account.home) as memory:
        store_many(memory)
        answer = asked(Worker(account.capture, memory), account.folder, "Which cat of Ulla sleeps where?")
    context = json.loads(answer)["hookSpecificOutput"]["additionalContext"] if answer else ""
    assert count_tokens(context) <= budget
    assert bool(context) == (budget > 100)


def store_many(memory: Memory) -> None:
    for number in range(40):
        session = memory.start_session(f"cats {number}", source="cli")
        memory.end_turn(
            session, f"Cat number {number} of Ulla sleeps in the {number}th drawer.", "Noted.", warm=False
        )


def test_a_cut_recall_loses_its_last_lines() -> None:
    parts = [("notes", "- one"), ("sessions", "- two\n- three " + "word " * 200)]
    whole = within_budget(list(parts), 1000)
    assert "three" in whole
    cut = within_budget(list(parts), count_tokens(whole) - 1)
    assert ("- two" in cut, "three" in cut) == (True, False)
    assert within_budget(list(parts), 10) == ""
