"""The programs whose sessions are captured: their hooks, the files with their settings, and their transcripts."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

HOOK = Path(__file__).with_name("hook.py")

Action = Literal["start", "recall", "append", "end"]

TIMEOUT_S: Mapping[Action, int] = {"start": 10, "recall": 2, "append": 5, "end": 5}


class Program(Struct, frozen=True):
    """A program with hooks.

    Attributes:
        name: Name on the command line.
        title: Name for people.
        source: Format of its transcripts in `hermes-memory import`, with which the ids of its sessions begin.
        folder: Its folder, below the folder of the account.
        variable: Environment variable that names another folder, with what follows it.
        settings: Its settings below its folder.
        project_settings: Its settings below the folder of a project.
        events: The events of its hooks, with what is done at each.
        transcripts: Patterns of its transcripts, below `data_folder`.
        entry: Form of a hook in the settings: a group as in Claude Code, a flat one as in Cursor, or none for a plugin.
        milliseconds: True if its timeouts are in milliseconds.
        remark: What the person must do or know after the installation.
        is_database: True if its sessions are in one database.
    """

    name: str
    title: str
    source: str
    folder: str
    variable: tuple[str, str]
    settings: str
    project_settings: str
    events: Mapping[str, Action]
    transcripts: tuple[str, ...]
    entry: Literal["group", "flat", "plugin"] = "group"
    milliseconds: bool = False
    remark: str = ""
    is_database: bool = False

    def home(self) -> Path:
        """Return the folder of the program."""
        return _named(*self.variable) or Path.home() / self.folder

    def data_folder(self) -> Path:
        """Return the folder with its transcripts."""
        if self.name == "opencode":
            return _named("XDG_DATA_HOME", "opencode") or Path.home() / ".local/share/opencode"
        if self.name == "cursor":
            below = {"darwin": "Library/Application Support", "win32": "AppData/Roaming"}
            return Path.home() / below.get(sys.platform, ".config") / "Cursor/User/globalStorage"
        return self.home()

    def words(self, home: Path) -> list[str]:
        """Return the words of the command of a hook, without the action at its end."""
        return [sys.executable, "-I", "-S", str(HOOK), str(home), self.name]

    def command(self, home: Path, action: Action) -> str:
        """Return the command line of a hook, for the shell of this system."""
        words = [*self.words(home), action]
        return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)

    def hook_entry(self, home: Path, action: Action) -> dict[str, Any]:
        """Return the entry of a hook in the settings."""
        timeout = TIMEOUT_S[action] * (1000 if self.milliseconds else 1)
        command = {"command": self.command(home, action), "timeout": timeout}
        return command if self.entry == "flat" else {"hooks": [{"type": "command", **command}]}

    def transcript_files(self, folder: Path) -> Iterator[Path]:
        """Yield the transcripts below a `data_folder`."""
        for pattern in self.transcripts:
            yield from folder.glob(pattern)

    def session_id(self, session: str) -> str:
        """Return the id under which a session of the program is stored."""
        return f"{self.source}-{session}"


def _named(variable: str, below: str) -> Path | None:
    """Return the folder that a variable of the environment names, None if it is not set."""
    named = os.environ.get(variable, "")
    return Path(named).expanduser() / below if named else None


PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "claude-code",
            "Claude Code",
            "claude-code",
            ".claude",
            ("CLAUDE_CONFIG_DIR", ""),
            "settings.json",
            ".claude/settings.local.json",
            {
                "SessionStart": "start",
                "UserPromptSubmit": "recall",
                "Stop": "append",
                "PreCompact": "append",
                "SessionEnd": "end",
            },
            ("projects/*/*.jsonl",),
        ),
        Program(
            "codex",
            "Codex",
            "codex",
            ".codex",
            ("CODEX_HOME", ""),
            "hooks.json",
            ".codex/hooks.json",
            {
                "SessionStart": "start",
                "UserPromptSubmit": "recall",
                "Stop": "append",
                "PreCompact": "append",
                "SessionEnd": "end",
            },
            ("sessions/**/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl"),
            remark="Codex runs new hooks only after you trust them: start codex, and confirm them in /hooks",
        ),
        Program(
            "gemini",
            "Gemini CLI",
            "gemini-cli",
            ".gemini",
            ("GEMINI_CLI_HOME", ".gemini"),
            "settings.json",
            ".gemini/settings.json",
            {
                "SessionStart": "start",
                "BeforeAgent": "recall",
                "AfterAgent": "append",
                "PreCompress": "append",
                "SessionEnd": "end",
            },
            ("tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl"),
            milliseconds=True,
        ),
        Program(
            "cursor",
            "Cursor",
            "cursor",
            ".cursor",
            ("", ""),
            "hooks.json",
            ".cursor/hooks.json",
            {
                "sessionStart": "start",
                "beforeSubmitPrompt": "recall",
                "stop": "append",
                "preCompact": "append",
                "sessionEnd": "end",
            },
            ("state.vscdb",),
            entry="flat",
            is_database=True,
            remark="a version of Cursor whose beforeSubmitPrompt takes no additional_context gets no recall",
        ),
        Program(
            "opencode",
            "opencode",
            "opencode",
            ".config/opencode",
            ("XDG_CONFIG_HOME", "opencode"),
            "plugins/hermes-memory.js",
            ".opencode/plugins/hermes-memory.js",
            {},
            ("opencode*.db",),
            entry="plugin",
            is_database=True,
        ),
    )
}
