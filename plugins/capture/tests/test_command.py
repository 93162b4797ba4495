"""`hermes-memory capture` as a person runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hermes_core.cli import main
from plugins.capture.tests.conftest import Account, event_of


def run(account: Account, *words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["--home", str(account.home), "capture", *words])
    assert result.exit_code == code, result.output
    return result


def test_hooks_are_installed_shown_and_taken_out(account: Account) -> None:
    file = account.folder / ".claude/settings.json"
    file.parent.mkdir()
    file.write_text('{"model": "opus"}')
    assert "Nothing is captured" in run(account, "status").stdout
    plan = run(account, "install", "claude-code", "--dry-run").stdout
    assert '+  "hooks": {' in plan
    assert file.read_text() == '{"model": "opus"}'
    done = json.loads(run(account, "install", "claude-code", "--json").stdout)
    assert (done["program"], done["file"]) == ("claude-code", str(file))
    assert "hooks in" in run(account, "status").stdout
    assert '-  "hooks": {' in run(account, "uninstall", "claude-code", "--dry-run").stdout
    run(account, "uninstall", "claude-code")
    assert file.read_text() == '{"model": "opus"}'


def test_what_a_program_needs_besides_is_said(account: Account) -> None:
    assert "confirm them in /hooks" in run(account, "install", "codex").stderr


def test_hooks_of_a_project_stand_in_the_project(account: Account, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    run(account, "install", "claude-code", "--project", str(project))
    assert (project / ".claude/settings.local.json").exists()
    assert not (account.folder / ".claude/settings.json").exists()
    refused = run(account, "uninstall", "claude-code", code=1)
    assert f"installed: claude-code --project {str(project)!r}" in refused.stderr
    run(account, "uninstall", "claude-code", "--project", str(project))
    assert not (project / ".claude/settings.local.json").exists()


def test_hooks_of_a_project_that_is_gone_are_uninstalled(account: Account, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    run(account, "install", "claude-code", "--project", str(project))
    shutil.rmtree(project)
    assert f"uninstall claude-code --project {str(project)!r}" in run(account, "status", code=3).stdout
    assert (
        "stays as it is"
        in run(account, "uninstall", "claude-code", "--project", str(project), "--dry-run").stdout
    )
    run(account, "uninstall", "claude-code", "--project", str(project))
    assert "Nothing is captured" in run(account, "status").stdout
    assert not project.exists()


@pytest.mark.parametrize(
    ("words", "reason", "code"),
    [
        (["install", "vim"], "'vim' is not one of 'claude-code'", 2),
        (["install", "codex", "--project", "/nowhere"], "does not exist", 2),
        (["uninstall", "codex"], "not installed there; installed: nothing", 1),
    ],
)
def test_wrong_words_are_one_line(account: Account, words: list[str], reason: str, code: int) -> None:
    assert reason in run(account, *words, code=code).stderr


def test_without_the_importers_nothing_is_installed(account: Account) -> None:
    account.home.joinpath("config.yaml").write_text("extensions: {block: [importers]}\n")
    refused = run(account, "install", "claude-code", code=1)
    assert "the extension 'importers' is not active" in refused.stderr
    assert not (account.folder / ".claude").exists()


def test_status_and_doctor_exit_with_3_if_something_is_missed(account: Account) -> None:
    installed = account.install()
    Path(installed.file).unlink()
    missed = run(account, "status", code=3)
    assert "the file is gone" in missed.stdout
    assert "hooks are missing" in missed.stderr
    whole = CliRunner().invoke(main, ["--home", str(account.home), "memory", "status"])
    assert "hooks are missing" in whole.output


def test_status_says_why_a_message_got_no_recall(account: Account) -> None:
    account.install()
    event = event_of(account.folder / "s1.jsonl", prompt="Where is it?")
    done = account.run_hook("claude-code", "recall", event)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no worker ran" in run(account, "status").stdout
