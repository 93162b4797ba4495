"""A setup that is killed at any file that it replaces leaves every file whole, and the old provider or a complete new one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes_core.cli import main
from hermes_core.config import Credentials, load_config, set_value
from hermes_core.home import HermesHome
from tests.forked import python

InstallPlugin = Callable[..., Path]
KEY = "lockbox-key-0123456789"
WORDS = ["memory", "setup", "lockbox", "--set", f"api_key={KEY}", "--set", "limit=7", "--yes"]

KILLED = """
import os, signal, sys
left = int(sys.argv[1])

def watch(event, args):
    global left
    if event in ("os.rename", "os.remove", "sqlite3.connect"):
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

from hermes_core.cli import main
sys.addaudithook(watch)
main(sys.argv[2:])
"""


def configuration(home: HermesHome) -> tuple[str, str | None, dict[str, object]]:
    """What is on disk: provider, secret, settings. Raises for a file that is not whole."""
    path = home.provider_json("lockbox")
    settings = json.loads(path.read_text()) if path.exists() else {}
    return load_config(home).memory.provider, Credentials(home, {}).get("LOCKBOX_API_KEY"), settings


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
@pytest.mark.slow
def test_killed_at_every_step_it_is_the_old_or_the_whole_new_one_and_a_second_run_completes_it(
    hermes_home: HermesHome, install_plugin: InstallPlugin
) -> None:
    install_plugin()
    whole = ("lockbox", KEY, {"limit": 7})
    seen, step, code = set(), 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        for name in ("config.yaml", ".env", "lockbox.json"):
            (hermes_home.path / name).unlink(missing_ok=True)
        set_value(hermes_home, "memory.provider", "holographic")
        environment = {**os.environ, "HERMES_HOME": str(hermes_home.path)}
        program = [*python(), "-c", KILLED, str(step), *WORDS]
        code = subprocess.run(program, env=environment, capture_output=True, timeout=60).returncode
        found = configuration(hermes_home)
        seen.add((found[0], found[1] is not None, bool(found[2])))
        assert found[0] == "holographic" or found == whole
        assert CliRunner().invoke(main, WORDS).exit_code == 0
        assert configuration(hermes_home) == whole
        step += 1
    assert code == 0
    assert seen == {
        ("holographic", False, False),
        ("holographic", True, False),
        ("holographic", True, True),
        ("lockbox", True, True),
    }
