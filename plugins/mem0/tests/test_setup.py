"""The way of a stranger: `hermes-memory memory setup mem0`, status and doctor, and what they say when something is broken."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from hermes_core import HermesHome
from hermes_core.cli import main
from hermes_core.config import Credentials, load_config, set_value
from plugins.mem0.tests.stand_in import KEY, Cloud, Models, OwnServer
from tests.forked import python

FILES = ("config.yaml", ".env", "mem0.json")


def hermes(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, list(words), prog_name="hermes-memory")
    assert done.exit_code == code, done.output
    return done


def setup(*settings: str, code: int = 0) -> Result:
    pairs = [word for one in settings for word in ("--set", one)]
    return hermes("memory", "setup", "mem0", *pairs, "--yes", code=code)


def written(home: HermesHome) -> dict[str, str]:
    """What a person would call their configuration."""
    return {name: (home.path / name).read_text() for name in FILES if (home.path / name).exists()}


@pytest.fixture
def home(hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch) -> HermesHome:
    """A new home, and none of our variables in the environment."""
    for name in ("MEM0_API_KEY", "MEM0_HOST", "MEM0_MODE", "MEM0_USER_ID", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    hermes_home.path.mkdir(mode=0o700)
    return hermes_home


def oss(models: Models, *more: str) -> list[str]:
    return ["mode=oss", "embedder=openai", f"embedder_url={models.url}/v1", *more]


def test_in_this_process_it_works_without_a_key_and_twice_is_once(home: HermesHome, models: Models) -> None:
    done = setup(*oss(models))
    assert "ok  self-test of mem0: write and recall: oss" in done.output
    once = written(home)
    assert load_config(home).memory.provider == "mem0"
    assert setup(*oss(models)).output == done.output
    assert setup().exit_code == 0
    assert written(home) == once
    assert ".env" not in once


def test_on_the_cloud_the_key_is_kept_where_keys_are(home: HermesHome, cloud: Cloud) -> None:
    done = setup(f"api_url={cloud.url}", f"api_key={KEY}")
    assert KEY not in done.output
    assert Credentials(home, {}).get("MEM0_API_KEY") == KEY
    assert json.loads(written(home)["mem0.json"]) == {"api_url": cloud.url}


def test_on_a_server_the_key_is_that_servers(home: HermesHome, server: OwnServer) -> None:
    setup("mode=selfhosted", f"host={server.url}", f"server_key={KEY}")
    assert Credentials(home, {}).get("MEM0_API_KEY") == KEY


def test_status_and_doctor_say_that_it_works(home: HermesHome, models: Models) -> None:
    setup(*oss(models))
    shown = hermes("memory", "status").output
    assert "active" in shown
    assert "host" not in shown
    assert "All that is configured works." in hermes("doctor").output


@pytest.mark.parametrize(
    ("settings", "cure"),
    [
        ([], r"api_key (MEM0_API_KEY), get it at https://app.mem0.ai"),
        (["mode=selfhosted"], "host (MEM0_HOST)"),
        (["mode=oss", "vector_store=pgvector"], "database_url (MEM0_DATABASE_URL)"),
        (["mode=cloud"], "must be one of 'platform', 'selfhosted', 'oss'"),
        (["mdoe=oss"], "did you mean 'mode'?"),
    ],
    ids=str,
)
def test_what_is_missing_is_asked_for_and_nothing_written(
    home: HermesHome, settings: list[str], cure: str
) -> None:
    assert cure in setup(*settings, code=1).stderr
    assert written(home) == {}


@pytest.fixture
def broken(
    request: pytest.FixtureRequest, home: HermesHome, models: Models, cloud: Cloud
) -> Iterator[tuple[list[str], str]]:
    """A provider that works, then one thing that is wrong with it, and the cure to be named."""
    made: dict[str, Callable[[], tuple[list[str], str]]] = {
        "wrong key": lambda: (
            [f"api_url={cloud.url}", "mode=platform", "api_key=m0-0123"],
            "check MEM0_API_KEY",
        ),
        "dead server": lambda: (["mode=selfhosted", "host=http://127.0.0.1:9"], "is it running?"),
        "another's server": lambda: (["mode=selfhosted", f"host={cloud.url}"], "set host to its address"),
        "dead embedder": lambda: (oss(models, "embedder_url=http://127.0.0.1:9/v1"), "is it running?"),
        "another embedder": lambda: (oss(models, "embedder_model=new"), "--set collection=NAME"),
        "no key of OpenAI": lambda: (["mode=oss", "embedder=openai", "embedder_url="], "OPENAI_API_KEY"),
    }
    setup(*oss(models))
    yield made[request.param]()
    cloud.complaints.clear()


@pytest.mark.parametrize(
    "broken",
    ["wrong key", "dead server", "another's server", "dead embedder", "another embedder", "no key of OpenAI"],
    indirect=True,
)
def test_each_breakage_is_named_with_its_cure(broken: tuple[list[str], str]) -> None:
    settings, cure = broken
    assert cure in setup(*settings, code=1).stderr
    assert cure in hermes("doctor", code=3).output


KILLED = """
import os, signal, sys
left = int(sys.argv[1])

def watch(event, args):
    global left
    if event in ("os.rename", "os.remove", "sqlite3.connect", "socket.connect"):
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

from hermes_core.cli import main
sys.addaudithook(watch)
main(sys.argv[2:])
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
@pytest.mark.slow
def test_killed_at_every_step_it_is_the_old_provider_or_the_whole_new_one(
    home: HermesHome, server: OwnServer
) -> None:
    words = ["memory", "setup", "mem0", "--set", "mode=selfhosted", "--set", f"host={server.url}"]
    words += ["--set", f"server_key={KEY}", "--yes"]
    survives_being_killed(home, words, {"mode": "selfhosted", "host": server.url}, KEY)


def survives_being_killed(
    home: HermesHome, words: list[str], settings: dict[str, object], key: str | None, most: int = 200
) -> int:
    """Kill the command at its first step, its second, ...; each time a second run completes it. How many steps it has."""
    whole = ("mem0", key, settings)
    for step in range(most):
        shutil.rmtree(home.path)
        home.path.mkdir(mode=0o700)
        set_value(home, "memory.provider", "holographic")
        program = [*python(), "-c", KILLED, str(step), *words]
        environment = {**os.environ, "HERMES_HOME": str(home.path)}
        code = subprocess.run(program, env=environment, capture_output=True, timeout=120).returncode
        found = configuration(home)
        assert found[0] == "holographic" or found == whole, step
        hermes(*words)
        assert configuration(home) == whole
        if code != -signal.SIGKILL:
            assert code == 0
            return step
    raise AssertionError(f"more than {most} steps")


def configuration(home: HermesHome) -> tuple[str, str | None, dict[str, object]]:
    """What is on disk: provider, secret, settings. Raises for a file that is not whole."""
    path = home.provider_json("mem0")
    settings = json.loads(path.read_text()) if path.exists() else {}
    return load_config(home).memory.provider, Credentials(home, {}).get("MEM0_API_KEY"), settings


# ------------------------------------------------------------------------------------------------------------- commands


def test_commands_list_find_and_forget(home: HermesHome, models: Models) -> None:
    setup(*oss(models))
    hermes("memory", "add", "The spare boathouse key hangs behind Ostrander.")
    (listed,) = json.loads(hermes("mem0", "list", "--json").stdout)
    assert listed["text"].endswith("Ostrander.")
    assert "Ostrander" in hermes("mem0", "search", "where", "hangs", "the", "key").stdout
    assert hermes("mem0", "list", "--user", "bob").stderr == "Nothing was found.\n"
    assert "not found" in hermes("mem0", "forget", listed["id"], "0" * 32, code=1).stderr
    assert json.loads(hermes("mem0", "list", "--json").stdout) == []
