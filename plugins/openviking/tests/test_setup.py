"""Settings, whose they are, the self-test, the commands, and a server of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hermes_openviking import OpenVikingProvider
from hermes_openviking.settings import SETTINGS, server_of

from hermes_core import HermesHome, Session
from hermes_core.cli import main
from hermes_core.kit import BackendUnavailable, ConfigError, Settings, load_settings
from plugins.openviking.tests.conftest import Agent
from plugins.openviking.tests.stand_in import Viking


def options_of(home: Path) -> Settings:
    return load_settings(SETTINGS, home, "openviking")


KEY = "The boathouse key hangs behind the door."


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    return tmp_path


# ------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("variable", "value", "name", "read"),
    [
        ("OPENVIKING_ENDPOINT", "http://x:1", "endpoint", "http://x:1"),
        ("OPENVIKING_API_KEY", "secret", "api_key", "secret"),
        ("OPENVIKING_ACCOUNT", "acme", "account", "acme"),
        ("OPENVIKING_USER", "ada", "user", "ada"),
        ("OPENVIKING_AGENT", "carla", "agent", "carla"),
        ("OPENVIKING_CLI_CONFIG_FILE", "/x.conf", "ovcli_config_path", "/x.conf"),
        ("OPENVIKING_RECALL_LIMIT", "9", "recall_limit", 9),
        ("OPENVIKING_RECALL_SCORE_THRESHOLD", "0.4", "recall_score_threshold", 0.4),
        ("OPENVIKING_RECALL_MAX_INJECTED_CHARS", "900", "recall_max_injected_chars", 900),
        ("OPENVIKING_RECALL_TIMEOUT_SECONDS", "2", "recall_timeout_seconds", 2.0),
        ("OPENVIKING_RECALL_REQUEST_TIMEOUT_SECONDS", "1", "recall_request_timeout_seconds", 1.0),
        ("OPENVIKING_RECALL_FULL_READ_LIMIT", "0", "recall_full_read_limit", 0),
        ("OPENVIKING_RECALL_PREFER_ABSTRACT", "true", "recall_prefer_abstract", True),
        ("OPENVIKING_RECALL_RESOURCES", "1", "recall_resources", True),
        ("OPENVIKING_RECALL_LIMIT", "500", "recall_limit", 100),
        ("OPENVIKING_RECALL_SCORE_THRESHOLD", "-1", "recall_score_threshold", 0.0),
        ("OPENVIKING_RECALL_TIMEOUT_SECONDS", "0", "recall_timeout_seconds", 0.25),
    ],
)
def test_the_variables_that_people_have_are_read(
    home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, name: str, read: Any
) -> None:
    monkeypatch.setenv(variable, value)
    assert getattr(options_of(home), name) == read


def test_openvikings_own_file_fills_in_what_is_not_set(home: Path) -> None:
    path = home / "ovcli.conf"
    path.write_text(
        json.dumps(
            {
                "url": "http://x:1",
                "root_api_key": "r",
                "account_id": "acme",
                "user": "ada",
                "agent_id": "carla",
            }
        )
    )
    settings = {"use_ovcli_config": True, "ovcli_config_path": str(path)}
    (home / "openviking.json").write_text(json.dumps({**settings, "user": "bob"}))
    server = server_of(options_of(home))
    assert (server.endpoint, server.api_key, server.account) == ("http://x:1", "r", "acme")
    assert (server.user, server.agent) == ("bob", "carla")
    assert OpenVikingProvider().backup_paths() == [str(path)]
    (home / "openviking.json").write_text(json.dumps({**settings, "use_ovcli_config": False}))
    assert server_of(options_of(home)).endpoint == "http://127.0.0.1:1933"
    assert OpenVikingProvider().backup_paths() == []


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_file_that_is_not_there_or_odd_is_named(home: Path, text: str | None) -> None:
    path = home / "ovcli.conf"
    if text is not None:
        path.write_text(text)
    settings = {"use_ovcli_config": True, "ovcli_config_path": str(path)}
    (home / "openviking.json").write_text(json.dumps(settings))
    available = OpenVikingProvider().is_available()
    assert not available
    assert "ovcli.conf" in available.reason


def test_what_says_whose_data_it_is_says_so() -> None:
    assert {field.name for field in SETTINGS if field.identity} == {
        *("endpoint", "account", "user", "agent", "use_ovcli_config", "ovcli_config_path")
    }


# ----------------------------------------------------------------- self-test


def test_the_self_test_writes_recalls_and_forgets(agent: Agent, server: Viking) -> None:
    checks = agent.provider.check(agent.session)
    assert [(check.name, check.ok) for check in checks] == [
        ("write, recall, forget", True),
        ("search by meaning", True),
        ("learning from sessions", True),
    ]
    assert server.files == {}


def test_the_self_test_shows_a_missing_embedder_and_works_on(agent: Agent, server: Viking) -> None:
    server.embeds = False
    checks = agent.provider.check(agent.session)
    assert [check.ok for check in checks] == [True, False, True]
    assert "embedder" in checks[1].remedy


def test_the_self_test_shows_sessions_from_which_nothing_was_learned(agent: Agent, server: Viking) -> None:
    server.learns = False
    agent.turn("I like jazz.")
    agent.provider.on_session_end(agent.session)
    agent.turn("I like rum.", "t2")
    (check,) = [check for check in agent.provider.check(agent.session) if not check.ok]
    assert (check.name, "junk" in check.detail) == ("learning from sessions", True)


# ------------------------------------------------------------------ commands


def command(home: Path, *words: str) -> str:
    (home / "config.yaml").write_text("memory:\n  provider: openviking\n")
    done = CliRunner().invoke(main, ["--home", str(home), "openviking", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_commands_show_where_what_and_what_became_of_it(agent: Agent, server: Viking) -> None:
    home = Path(agent.session.home)
    agent.tool("remember", content=KEY)
    agent.turn("I like jazz.")
    agent.provider.on_session_end(agent.session)
    assert f"version: {server.version}" in command(home, "where")
    assert KEY in command(home, "search", "boathouse")
    assert json.loads(command(home, "search", "boathouse", "--json"))[0]["text"] == KEY
    assert agent.space.memories in command(home, "browse")
    assert command(home, "browse", agent.space.memories).count("\n") == 2
    assert "pending  hermes.s1: nothing new" in command(home, "learned")


def test_a_search_that_finds_nothing_says_so(agent: Agent) -> None:
    assert "Nothing was found." in command(Path(agent.session.home), "search", "boathouse")


# ----------------------------------------------------------- our own server

PROGRAM = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

assert sys.argv[1::2] == ["--host", "--port", "--config"], sys.argv
home = Path(sys.argv[6]).parent
home.joinpath("runs").write_text("yes")

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        told = {{"healthy": True, "version": "0.5.2", "result": {{"user": "default"}}}}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[4])), Handler).serve_forever()
"""


@pytest.fixture
def program(home: Path) -> Path:
    """A program that takes the real one's arguments and answers as it does."""
    path = home / "bin" / "openviking-server"
    path.parent.mkdir()
    path.write_text(PROGRAM.format(python=sys.executable))
    path.chmod(0o755)
    return path


def read_settings(home: Path, **settings: Any) -> Session:
    (home / "openviking.json").write_text(json.dumps(settings))
    return Session("s1", home=str(home))


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a script with a #! line")
def test_a_server_is_started_when_that_was_asked_for_and_stopped_in_the_end(
    home: Path, program: Path
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    asked = {"endpoint": url, "server_command": str(program), "server_config": str(home / "ov.conf")}
    provider = OpenVikingProvider()
    with pytest.raises(BackendUnavailable):
        provider.initialize(read_settings(home, **asked))
    assert not (home / "runs").exists()
    session = read_settings(home, **asked, start_server=True)
    provider.initialize(session)
    provider.initialize(session)
    assert provider.client.version == "0.5.2"
    provider.shutdown()
    other = OpenVikingProvider()
    with pytest.raises(BackendUnavailable):
        other.initialize(read_settings(home, **asked))


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a script with a #! line")
def test_a_server_that_does_not_come_up_in_time_ends_with_the_program(home: Path, program: Path) -> None:
    program.write_text(
        f"#!{sys.executable}\nimport os, time\nopen({str(home / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    )
    read_settings(
        home,
        endpoint=f"http://127.0.0.1:{free_port()}",
        server_command=str(program),
        start_server=True,
        start_timeout=5,
    )
    code = f"""
from pathlib import Path
from hermes_core import Session
from hermes_core.kit import poll
from hermes_openviking import provider
try:
    provider.OpenVikingProvider().initialize(Session("s", home={str(home)!r}))
except provider.BackendUnavailable as exc:
    print(exc)
poll(Path({str(home / "pid")!r}).read_text, 30, 0.01)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "is not ready" in done.stdout
    with pytest.raises(ProcessLookupError):
        os.kill(int((home / "pid").read_text()), 0)


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a script with a #! line")
def test_a_server_that_ends_by_itself_leaves_its_words(home: Path, program: Path) -> None:
    program.write_text(f"#!{sys.executable}\nprint('no configuration')\n")
    url = f"http://127.0.0.1:{free_port()}"
    provider = OpenVikingProvider()
    with pytest.raises(BackendUnavailable, match="no configuration"):
        provider.initialize(read_settings(home, endpoint=url, server_command=str(program), start_server=True))
    provider.shutdown()


def test_a_server_of_another_machine_is_not_started_here(home: Path) -> None:
    provider = OpenVikingProvider()
    with pytest.raises(ConfigError, match="another machine"):
        provider.initialize(read_settings(home, endpoint="http://host.invalid:1933", start_server=True))


def test_a_program_that_is_missing_is_named(home: Path) -> None:
    provider = OpenVikingProvider()
    asked = {"endpoint": f"http://127.0.0.1:{free_port()}", "start_server": True}
    with pytest.raises(Exception, match="no-such-program"):
        provider.initialize(read_settings(home, **asked, server_command="no-such-program"))


def test_nothing_of_openviking_or_httpx_comes_with_the_import(home: Path) -> None:
    code = "import sys, hermes_openviking; print([m for m in sys.modules if m.split('.')[0] in ('httpx', 'openviking', 'openviking_sdk')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tools_are_known_before_a_server_is_asked(home: Path) -> None:
    assert len(OpenVikingProvider().get_tool_schemas()) == 6
    assert HermesHome.resolve().path == home
