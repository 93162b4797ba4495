"""The mode that runs a server here: hindsight-embed is asked to start, tell and stop it, and its files are left alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hermes_hindsight import HindsightProvider
from hermes_hindsight.daemon import Daemon

from hermes_core.kit import BackendUnavailable, poll
from plugins.hindsight.tests.conftest import Agent
from plugins.hindsight.tests.stand_in import HindsightServer

PROGRAM = """#!{python}
import fcntl, json, os, signal, subprocess, sys, time
from pathlib import Path
folder = Path(__file__).parent
assert sys.argv[1:4:2] == ["-p", "daemon"], sys.argv
profile, command = sys.argv[2], sys.argv[4]
with (folder / "asked.jsonl").open("a") as file:
    own = {{k: v for k, v in os.environ.items() if k.startswith("HINDSIGHT_") or "KEY" in k}}
    file.write(json.dumps([profile, command, own]) + "\\n")
state, server = folder / "state", folder / "server"
if command == "start":  # one at a time, as there
    lock = (folder / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
how = state.read_text() if state.exists() else ""
if command == "start" and how == "broken":
    sys.exit("port 9177 is in use")
if command == "start" and how != "running":
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    server.write_text(str(process.pid))
    time.sleep(1 if how == "slow" else 0)
    state.write_text("running")
elif command == "start":
    pass
elif command == "stop":
    if how == "stuck":
        sys.exit("Failed to stop daemon")
    state.unlink(missing_ok=True)
    if server.exists():
        os.kill(int(server.read_text()), signal.SIGKILL)
elif how == "running":
    print("| Daemon is running |\\n|   URL: {url} |")
else:
    print("Daemon is not running")
    sys.exit(1)
"""


class Embed:
    """A program in the place of hindsight-embed, whose server is the stand-in."""

    def __init__(self, folder: Path, url: str) -> None:
        self.state, self._asked = folder / "state", folder / "asked.jsonl"
        self._server = folder / "server"
        program = folder / "hindsight-embed"
        program.write_text(PROGRAM.format(python=sys.executable, url=url))
        program.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        """What it was told to do, in order."""
        return [command for _, command, _ in self.calls]

    @property
    def alive(self) -> bool:
        """Whether the server that it started is a process still."""
        if not self._server.exists():
            return False
        stat = Path("/proc") / self._server.read_text() / "stat"
        return stat.exists() and ") Z " not in stat.read_text()

    def close(self) -> None:
        """End what a test left running."""
        if self.alive:
            os.kill(int(self._server.read_text()), signal.SIGKILL)

    @property
    def calls(self) -> list[Any]:
        lines = self._asked.read_text().splitlines() if self._asked.exists() else []
        return [json.loads(line) for line in lines]


@pytest.fixture
def embed(tmp_path: Path, server: HindsightServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Embed]:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    # Its own Postgres would keep root from running it.
    monkeypatch.setenv("HINDSIGHT_EMBED_API_DATABASE_URL", "postgresql://u:p@127.0.0.1/db")
    program = Embed(folder, server.url)
    yield program
    program.close()


Start = Callable[..., Agent]


def test_it_is_started_asked_for_its_address_and_stopped(
    start: Start, embed: Embed, server: HindsightServer
) -> None:
    agent = start(mode="local_embedded", api_url=None)
    assert agent.provider.client.url == server.url
    agent.run(agent.provider.shutdown())
    assert embed.asked == ["status", "start", "status", "stop"]
    assert not embed.state.exists()


def test_settings_reach_it_as_its_variables_and_no_key_of_others_does(
    start: Start, embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another")
    monkeypatch.setenv("HINDSIGHT_API_RERANKER_PROVIDER", "rrf")
    monkeypatch.setenv("HINDSIGHT_LLM_API_KEY", "llm-key-0123")
    start(
        mode="local_embedded",
        profile="work",
        llm_provider="openai_compatible",
        llm_model="m",
        llm_base_url="http://x",
    )
    profile, _, seen = embed.calls[1]
    assert profile == "work"
    assert seen == {
        "HINDSIGHT_API_RERANKER_PROVIDER": "rrf",
        "HINDSIGHT_LLM_API_KEY": "llm-key-0123",
        "HINDSIGHT_API_LLM_API_KEY": "llm-key-0123",
        "HINDSIGHT_API_LLM_PROVIDER": "openai",
        "HINDSIGHT_API_LLM_MODEL": "m",
        "HINDSIGHT_API_LLM_BASE_URL": "http://x",
        "HINDSIGHT_EMBED_API_DATABASE_URL": "postgresql://u:p@127.0.0.1/db",
    }


def test_one_that_runs_already_is_used_and_left_running(start: Start, embed: Embed) -> None:
    embed.state.write_text("running")
    agent = start(mode="local")
    agent.run(agent.provider.shutdown())
    assert embed.asked == ["status"]


def test_one_that_is_to_stay_is_not_stopped(start: Start, embed: Embed) -> None:
    agent = start(mode="local_embedded", stop_daemon=False)
    agent.run(agent.provider.shutdown())
    assert "stop" not in embed.asked


def test_one_that_went_away_is_started_again(start: Start, embed: Embed, server: HindsightServer) -> None:
    agent = start(mode="local_embedded")
    server.close()
    embed.state.unlink()
    with pytest.raises(BackendUnavailable, match="can't be reached"):
        agent.run(agent.provider.client.version())
    agent.run(agent.provider.open(agent.home))
    # Whoever opens it meanwhile may ask for the same once more.
    assert embed.asked.count("start") >= 2
    assert embed.state.exists()


def test_a_start_that_fails_is_told_with_where_to_look(start: Start, embed: Embed, tmp_path: Path) -> None:
    embed.state.write_text("broken")
    with pytest.raises(BackendUnavailable, match=r"could not start.*hindsight-embed\.log"):
        start(mode="local_embedded")
    log = tmp_path / "logs" / "hindsight-embed.log"
    assert "port 9177 is in use" in log.read_text()


def test_a_slow_start_goes_on_while_we_say_so(embed: Embed, tmp_path: Path) -> None:
    embed.state.write_text("slow")
    daemon = Daemon("hermes", {}, tmp_path / "log")
    with pytest.raises(BackendUnavailable, match=r"still starting after 0\.1 s"):
        asyncio.run(daemon.ready(0.1))
    assert asyncio.run(daemon.ready(20)).startswith("http://127.0.0.1:")
    assert embed.asked.count("start") == 1


HOST = """
import signal, sys, time
from pathlib import Path
from hermes_core import open_memory
from hermes_core.kit import poll
from hermes_hindsight import HindsightProvider

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
memory = open_memory(sys.argv[1], provider=HindsightProvider)
memory.manager.initialize_all(memory.local_session, wait=0)
poll(Path(sys.argv[1], "bin", "server").exists, 60, 0.01)
print("starting", flush=True)
if sys.argv[2] != "exit":
    time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["exit", "SIGTERM", "SIGINT"])
def test_one_that_is_starting_when_the_program_ends_is_stopped_once_it_answers(
    embed: Embed, tmp_path: Path, how: str
) -> None:
    embed.state.write_text("slow")
    (tmp_path / "hindsight.json").write_text('{"mode": "local_embedded"}')
    with subprocess.Popen([sys.executable, "-c", HOST, str(tmp_path), how], stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"starting\n"
        assert embed.alive
        if how != "exit":
            host.send_signal(getattr(signal, how))
        assert host.wait(60) is not None
    assert gone(embed)


def gone(embed: Embed) -> bool:
    """Return whether the server ends within some seconds."""
    return poll(lambda: not embed.alive, 60, 0.02)


def test_a_stop_that_fails_is_told(embed: Embed, tmp_path: Path) -> None:
    embed.state.write_text("stuck")
    assert asyncio.run(Daemon("hermes", {}, tmp_path / "log").stop()) == "Failed to stop daemon"


def test_root_is_told_why_it_can_not_and_what_to_do(
    embed: Embed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.delenv("HINDSIGHT_EMBED_API_DATABASE_URL")
    monkeypatch.setattr("os.geteuid", lambda: 0, raising=False)
    (tmp_path / "hindsight.json").write_text('{"mode": "local_embedded"}')
    answer = HindsightProvider().is_available()
    assert (bool(answer), answer.remedy) == (
        False,
        "run as another user, or set HINDSIGHT_EMBED_API_DATABASE_URL",
    )
    assert embed.asked == []


@pytest.mark.parametrize(
    ("mode", "given", "folders"),
    [
        ("local_embedded", "", [".hindsight", ".pg0"]),
        ("local_embedded", "postgresql://u:p@127.0.0.1/db", []),
        ("local_external", "", []),
    ],
)
def test_a_backup_holds_what_a_server_of_our_own_keeps_outside_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, given: str, folders: list[str]
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.setenv("HINDSIGHT_EMBED_API_DATABASE_URL", given)
    (tmp_path / "hindsight.json").write_text(json.dumps({"mode": mode}))
    assert HindsightProvider().backup_paths() == [str(Path.home() / name) for name in folders]
