"""An account with its own folder, a home in it, and the hooks as programs run them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core import Memory, open_memory
from hermes_memory_capture.hook import FOLDER, SPOOL
from hermes_memory_capture.installs import Install, Installs
from hermes_memory_capture.programs import HOOK, PROGRAMS
from hermes_memory_capture.worker import Worker

# It has no packages: the worker that a hook starts with it ends at once, and the test is the worker.
BARE_PYTHON = str(Path(sys.base_prefix) / ("python.exe" if sys.platform == "win32" else "bin/python3"))


class Account:
    """An account of a machine.

    Attributes:
        folder: Its folder.
        home: The HERMES_HOME in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "hermes"
        self.capture = self.home / FOLDER
        (self.capture / SPOOL).mkdir(parents=True, mode=0o700)
        self.capture.chmod(0o700)

    def install(self, program: str = "claude-code") -> Install:
        """Install the hooks of a program."""
        return Installs(self.home).install(PROGRAMS[program], None)

    def run_hook(
        self, program: str, action: str, event: Any, python: str = BARE_PYTHON
    ) -> subprocess.CompletedProcess[str]:
        """Run a hook as the program does."""
        command = [python, "-I", "-S", str(HOOK), str(self.home), program, action]
        text = event if isinstance(event, str) else json.dumps(event)
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)

    def transcript(self, session: str, *messages: tuple[str, Any], program_folder: str = "-repo") -> Path:
        """Write a transcript of Claude Code, and return it."""
        path = self.folder / ".claude/projects" / program_folder / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(f"{json.dumps(one)}\n" for one in records(session, *messages)), encoding="utf-8"
        )
        return path


def records(session: str, *messages: tuple[str, Any], first: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the records of messages in a transcript of Claude Code."""
    for number, (role, content) in enumerate(messages, first):
        yield {
            "type": role,
            "sessionId": session,
            "uuid": f"{session}-{number}",
            "parentUuid": f"{session}-{number - 1}" if number else None,
            "timestamp": f"2026-11-{1 + number // 86400:02}T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
            "message": {"role": role, "content": content},
        }


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Account:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for variable in (
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "GEMINI_CLI_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
    ):
        monkeypatch.delenv(variable, raising=False)
    return Account(tmp_path)


@pytest.fixture
def memory(account: Account) -> Iterator[Memory]:
    with open_memory(account.home) as memory:
        yield memory


@pytest.fixture
def worker(account: Account, memory: Memory) -> Worker:
    return Worker(account.capture, memory)


def event_of(path: Path, folder: str = "", **more: Any) -> dict[str, Any]:
    """Return an event of Claude Code about the session of a transcript."""
    return {
        "session_id": path.stem,
        "transcript_path": str(path),
        "cwd": folder,
        "hook_event_name": "Stop",
        **more,
    }
