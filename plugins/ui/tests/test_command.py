"""The command `hermes-memory ui` as a person runs it: a program that prints its address and ends at Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from hermes_core import HermesHome
from hermes_core.cli import main


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_address_and_ends_cleanly(hermes_home: HermesHome, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "hermes_core", "--home", str(hermes_home.path), "ui"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        url = program.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        with httpx.Client(follow_redirects=True) as client:
            answer = client.get(url)
        assert answer.status_code == 200
        assert "MEMORY.md" in answer.text
        program.send_signal(number)
        _, errors = program.communicate(timeout=120)
    assert program.returncode in (130, -number)
    assert "Traceback" not in errors


def test_a_port_in_use_is_refused_with_a_reason(hermes_home: HermesHome) -> None:
    from hermes_core.loopback import listen

    with listen(0) as listener:
        port = listener.getsockname()[1]
        result = CliRunner().invoke(main, ["--home", str(hermes_home.path), "ui", "--port", str(port)])
    assert result.exit_code == 1
    assert f"127.0.0.1:{port}" in result.stderr
    assert "choose another --port" in result.stderr


def test_a_user_needs_notes_of_their_own(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir(parents=True, exist_ok=True)
    hermes_home.config_yaml.write_text("memory: {per_user: false}\n")
    result = CliRunner().invoke(main, ["--home", str(hermes_home.path), "ui", "--user", "telegram:42"])
    assert result.exit_code == 1
    assert "set memory.per_user to true" in result.stderr


def test_without_its_packages_one_line_says_what_to_install(hermes_home: HermesHome, tmp_path: Path) -> None:
    """A Python in which starlette can't be imported."""
    (tmp_path / "starlette.py").write_text(
        "raise ModuleNotFoundError('hidden by the test', name='starlette')\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from hermes_core.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--home", str(hermes_home.path), "ui"], capture_output=True, text=True
    )
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1
    assert "needs the package 'starlette'" in lines[0]
    assert "plugins/ui" in lines[0]


def test_no_other_command_loads_a_web_server(hermes_home: HermesHome) -> None:
    code = "import sys; from hermes_core.cli import main; main(['--help'], standalone_mode=False); print(sorted(set(m.split('.')[0] for m in sys.modules) & {'starlette', 'uvicorn', 'jinja2'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
