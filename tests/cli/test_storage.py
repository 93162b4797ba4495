"""The store of a home: what `storage status` says, and a server whose package is not installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from hermes_core import open_memory, open_notes
from hermes_core.errors import DatabaseUnavailable
from hermes_core.health.doctor import examine
from hermes_core.health.storage import storage_status
from hermes_core.home import HermesHome
from hermes_core.packages import install_remedy

pytestmark = pytest.mark.names_engines("names a server itself")

URL = "postgresql://agent@127.0.0.1:9/hermes"

LOADED = """
import sys
from hermes_core import open_memory
with open_memory() as memory:
    memory.conversation("s1").turn("Where do we deploy?").finish("Here.")
    memory.change_memory("add", content="Uses ruff", by_person=True)
print(sorted(name for name in sys.modules if name.startswith(("hermes_memory_postgresql.", "psycopg"))))
"""


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment in which no extension is installed."""
    monkeypatch.setattr("hermes_core.memory.installed_entry_points", lambda: iter(()))
    monkeypatch.setattr("hermes_core.loader.extensions.installed_entry_points", lambda: iter(()))


def test_a_file_is_counted(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        memory.conversation("s1").turn("Where do we deploy?").finish("Here.")
    status = storage_status(hermes_home)
    assert (status.engine, status.schema, status.mark, status.unused) == ("sqlite", "", "", {})
    assert (status.rows["sessions"], status.rows["messages"], status.rows["turns"]) == (1, 2, 1)


@pytest.mark.usefixtures("without_package")
def test_a_server_without_its_package_is_one_error_that_says_what_to_install(
    hermes_home: HermesHome, hermes: Any
) -> None:
    hermes_home.path.mkdir(exist_ok=True)
    hermes_home.config_yaml.write_text(f"storage: {URL}\n")
    remedy = install_remedy("hermes-memory-postgresql")
    for opening in (open_memory, lambda home: open_notes(home).__enter__(), storage_status):
        with pytest.raises(DatabaseUnavailable, match="no active extension opens it") as raised:
            opening(hermes_home)
        assert raised.value.remedy == remedy
    failed = [finding for finding in examine(hermes_home).findings if finding.failed]
    assert [("no active extension" in one.detail, remedy in one.remedy) for one in failed] == [(True, True)]
    commands = {("memory", "status"): 1, ("doctor",): 3, ("sessions", "list"): 1, ("storage", "status"): 1}
    for words, code in commands.items():
        result = hermes(*words, code=code)
        assert remedy in " ".join(result.output.split()), words


@pytest.mark.usefixtures("without_package")
@pytest.mark.parametrize("command", ["move", "unmark"])
def test_a_command_of_the_package_says_what_to_install(hermes: Any, command: str) -> None:
    assert "hermes-memory-postgresql" in hermes("storage", command, code=1).output
    assert command in hermes("storage", "--help").output


def test_an_address_that_nobody_opens_is_refused(hermes_home: HermesHome) -> None:
    with pytest.raises(DatabaseUnavailable, match="no active extension opens it") as raised:
        open_memory(hermes_home, config={"storage": {"url": "mysql://db/hermes"}})
    assert "postgresql://ROLE@HOST/DATABASE" in raised.value.remedy


def test_a_home_with_files_loads_no_module_of_another_engine(hermes_home: HermesHome) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOADED],
        env={"HERMES_HOME": str(hermes_home.path), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    # Its entry module, which registers the engine, and nothing else of it.
    assert (ended.stdout.strip(), ended.returncode) == ("['hermes_memory_postgresql.extension']", 0), ended
