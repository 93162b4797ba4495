"""The programs themselves, out of npm, with a scripted model: their sessions come in, and are recalled in the next ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_core import open_memory
from hermes_memory_capture.hook import MISSED, PID, SPOOL
from hermes_memory_capture.installs import Installs
from hermes_memory_capture.programs import PROGRAMS
from plugins.capture.tests.conftest import Account
from plugins.capture.tests.scripted_models import ANSWER, ScriptedModels

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm"),
]

PACKAGES = {
    "claude-code": "@anthropic-ai/claude-code@2.1.197",
    "codex": "@openai/codex@0.171.0",
    "gemini": "@google/gemini-cli@0.61.0",
    "opencode": "opencode-ai@1.18.33",
}
FACT = "We deploy the billing service to the cluster blue-heron in Frankfurt."
QUESTION = "Where do we deploy the billing service?"


def program_of(name: str) -> list[str]:
    """Return the command of a program, which npm installs once for all tests of an account."""
    folder = Path(os.environ.get("HERMES_TEST_NPM") or Path(tempfile.gettempdir(), "hermes-test-npm")) / name
    if not folder.exists():
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), PACKAGES[name]]
        subprocess.run(command, check=True, capture_output=True)
    modules = folder / "node_modules"
    if name == "gemini":
        return ["node", str(modules / "@google/gemini-cli/bundle/gemini.js")]
    patterns = {
        "claude-code": "@anthropic-ai/claude-code-*/claude",
        "codex": "@openai/codex-*/vendor/*/bin/codex",
        "opencode": "opencode-*/bin/opencode",
    }
    return [str(next(file for file in sorted(modules.glob(patterns[name])) if "ai/bin" not in str(file)))]


@pytest.fixture
def models() -> Iterator[ScriptedModels]:
    with ScriptedModels() as server:
        yield server
        server.shutdown()


def configure(name: str, account: Account, url: str) -> tuple[dict[str, str], Callable[[str], list[str]]]:
    """Point a program at the server; return its environment, and its words for a message."""
    folder = account.folder
    if name == "claude-code":
        variables = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-ant-test",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        return variables, lambda text: ["-p", text]
    if name == "codex":
        table = f'[model_providers.local]\nname = "local"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "KEY"\n'
        (folder / ".codex").mkdir(exist_ok=True)
        (folder / ".codex/config.toml").write_text(f'model = "m"\nmodel_provider = "local"\n{table}')
        words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]
        return {"KEY": "test"}, lambda text: [*words, text]
    if name == "gemini":
        (folder / ".gemini").mkdir(exist_ok=True)
        auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        (folder / ".gemini/settings.json").write_text(json.dumps(auth))
        variables = {"GEMINI_API_KEY": "test", "GOOGLE_GEMINI_BASE_URL": url}
        return variables, lambda text: ["-m", "gemini-2.5-flash", "--skip-trust", "-p", text]
    local = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "local",
        "options": {"baseURL": f"{url}/v1", "apiKey": "test"},
        "models": {"m": {"name": "m"}},
    }
    config = {"autoupdate": False, "model": "local/m", "small_model": "local/m", "provider": {"local": local}}
    (folder / ".config/opencode").mkdir(parents=True)
    (folder / ".config/opencode/opencode.json").write_text(json.dumps(config))
    # It puts a message with blanks in one word between quotes, which search for the phrase.
    return {}, lambda text: ["run", *text.split()]


@pytest.mark.parametrize("name", PACKAGES)
def test_what_was_said_in_one_session_is_recalled_in_the_third(
    account: Account, models: ScriptedModels, name: str
) -> None:
    repository = account.folder / "repo"
    for words in (
        ["init", "-q", str(repository)],
        [
            "-C",
            str(repository),
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@b",
            "commit",
            "-qm",
            "x",
            "--allow-empty",
        ],
        ["-C", str(repository), "worktree", "add", "-q", "../tree"],
    ):
        subprocess.run(["git", *words], check=True, capture_output=True)
    variables, message = configure(name, account, models.url)
    settings = PROGRAMS[name].home() / PROGRAMS[name].settings
    before = settings.read_bytes() if settings.exists() else None
    installed = account.install(name)

    def say(text: str, folder: str) -> None:
        command = [*program_of(name), *message(text)]
        environment = {**os.environ, **variables}
        done = subprocess.run(
            command,
            cwd=account.folder / folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ANSWER in done.stdout, done.stderr
        until = time.monotonic() + 60
        while [one for one in (account.capture / SPOOL).iterdir() if one.name != "opencode-"]:
            assert time.monotonic() < until, (account.capture / "worker.log").read_text()
            # A hook that finds the worker wakes it, and the worker needs a moment.
            account.run_hook(name, "start", {"session_id": ""})
            (account.capture / SPOOL / f"{name}-").unlink(missing_ok=True)

    try:
        say(FACT, "repo")
        os.kill(int((account.capture / PID).read_text()), signal.SIGKILL)  # as a restart of the machine does
        say("Write a haiku about the autumn.", "tree")
        models.asked.clear()
        for _ in range(5):  # a busy machine may recall too late
            say(QUESTION, "tree")
            if recalled := [request for request in models.asked if "memory-context" in request]:
                break
    finally:
        os.kill(int((account.capture / PID).read_text()), signal.SIGKILL)
    missed = account.capture / MISSED
    assert recalled, missed.read_text() if missed.exists() else ""
    assert FACT in recalled[0]

    with open_memory(account.home) as memory:
        messages = memory.sessions.get_messages
        sessions = [messages(one.session.id) for one in memory.sessions.list_sessions(limit=10)]
    said = {(m.role, m.origin, m.content) for session in sessions for m in session}
    assert {content for role, origin, content in said if (role, origin) == ("user", "person")} >= {
        FACT,
        QUESTION,
    }
    assert not any("memory-context" in content for _, _, content in said)
    Installs(account.home).uninstall(installed)
    assert (settings.read_bytes() if settings.exists() else None) == before
