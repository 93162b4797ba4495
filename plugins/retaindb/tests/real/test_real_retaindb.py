"""The provider on RetainDB Local, which runs from its public source.

RETAINDB_SOURCE=/path/to/RetainDB   a checkout of the server's repository; npm installs what it needs into a copy
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hermes_retaindb import RetainDBProvider

from hermes_core import HermesHome, Memory, Session, open_memory
from hermes_core.actions.people import forget_person
from hermes_core.health.doctor import try_turn
from tests.forgetting_cells import OWNER, ROWS, USER, exported, hold
from tests.fresh import fresh_faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

SOURCE = os.environ.get("RETAINDB_SOURCE", "")
START_S = 60.0
FACT = "My tortoise is called Quillfeather and eats clover."
ENTRY = "The spare boathouse key hangs behind Ostrander."


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start RetainDB Local with an empty store, and return its address."""
    source = Path(SOURCE, "packages", "local")
    if not SOURCE or not source.is_dir():
        pytest.skip(
            f"RETAINDB_SOURCE is {SOURCE!r}: set it to a checkout of RetainDB that has packages/local"
        )
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("retaindb")
    copy = folder / "local"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    install = ["npm", "install", "--no-audit", "--no-fund", "--omit=optional", "--legacy-peer-deps"]
    subprocess.run(install, cwd=copy, check=True, capture_output=True, timeout=600)
    port = _free_port()
    environment = {
        **os.environ,
        "RETAINDB_HOME": str(folder / "store"),
        "RETAINDB_PORT": str(port),
        "RETAINDB_VIEWER_PORT": str(_free_port()),
    }
    with (folder / "log").open("w") as log:
        # In a process group of its own: tsx starts the server as a child.
        process = subprocess.Popen(
            [str(copy / "node_modules" / ".bin" / "tsx"), "src/cli.ts"],
            cwd=copy,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_for(url, process, folder / "log")
            yield url
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


@pytest.fixture
def home(tmp_path: Path, local: str) -> HermesHome:
    """Make a home with a project of its own on the server."""
    home = HermesHome(tmp_path / "home")
    home.path.mkdir(mode=0o700)
    settings = {"base_url": local, "project": f"test-{uuid.uuid4().hex[:12]}"}
    home.provider_json("retaindb").write_text(json.dumps(settings))
    return home


@pytest.fixture
def opened(home: HermesHome) -> Iterator[Memory]:
    with open_memory(home, provider=RetainDBProvider()) as memory:
        yield memory


def recalled(memory: Memory, question: str, session: Session) -> str:
    """Return the recall of the provider for a turn with this question."""
    recall = memory.begin_turn(session, question).recall
    assert [part.state for part in recall.parts] == ["active"]
    return "\n".join(part.recall.render() for part in recall.parts)


def test_an_empty_server_is_healthy(home: HermesHome) -> None:
    tools = {
        "retaindb_profile": {},
        "retaindb_search": {"query": "tortoise"},
        "retaindb_context": {"query": "tortoise"},
    }
    assert fresh_faults(home, "retaindb", tools) == []


def test_what_one_session_says_is_recalled_in_another(opened: Memory) -> None:
    first = opened.start_session("first")
    opened.end_turn(first, FACT, "I will keep that in mind.")
    opened.change_memory("add", content=ENTRY, session=first)
    assert opened.flush()
    second = opened.start_session("second")
    assert "Quillfeather" in recalled(opened, "What is my tortoise called?", second)
    assert "Ostrander" in recalled(opened, "Where does the spare boathouse key hang?", second)
    search = json.loads(opened.call_tool(second, "retaindb_search", {"query": "tortoise clover"}))
    assert "Quillfeather" in str(search["results"])
    context = json.loads(opened.call_tool(second, "retaindb_context", {"query": "tortoise clover"}))
    assert "Quillfeather" in context["context"]


def test_an_entry_of_an_earlier_session_is_replaced_and_removed(opened: Memory) -> None:
    opened.change_memory("add", content=ENTRY, session=opened.start_session("first"))
    assert opened.flush()
    second = opened.start_session("second")
    new = "The spare boathouse key hangs behind Bellwether."
    opened.change_memory("replace", content=new, old_text="boathouse key", session=second)
    assert opened.flush()
    third = opened.start_session("third")
    seen = recalled(opened, "Where does the spare boathouse key hang?", third)
    assert ("Bellwether" in seen, "Ostrander" in seen) == (True, False)
    opened.change_memory("remove", old_text="boathouse key", session=third)
    assert opened.flush()
    assert "Bellwether" not in recalled(opened, "Where does the boathouse key hang?", third)


def test_users_of_a_gateway_share_nothing(opened: Memory) -> None:
    ada = opened.start_session("of-ada", platform="telegram", user_id="ada")
    opened.end_turn(ada, FACT, "I will keep that in mind.")
    assert opened.flush()
    bob = opened.start_session("of-bob", platform="telegram", user_id="bob")
    assert "Quillfeather" not in recalled(opened, "What is my tortoise called?", bob)
    later = opened.start_session("of-ada-later", platform="telegram", user_id="ada")
    assert "Quillfeather" in recalled(opened, "What is my tortoise called?", later)


def test_its_own_check_is_passed(opened: Memory) -> None:
    findings = [finding for finding in try_turn(opened) if finding.failed]
    assert findings == []


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while not _answers(lambda: urllib.request.urlopen(f"{url}/health", timeout=2)):
        if process.poll() is not None or time.monotonic() > until:
            pytest.fail(f"RetainDB Local does not start: {log.read_text()[-2000:]}")
        time.sleep(0.2)


def _answers(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("row", ROWS)
def test_each_cell_of_the_table_on_the_page_holds(opened: Memory, row: str) -> None:
    hold("retaindb", row, opened, lambda name, who: name in exported(opened, "retaindb", who), patience=5.0)


def test_what_the_server_keeps_of_a_forgotten_person_is_named(opened: Memory) -> None:
    opened.end_turn(opened.start_session("s1", **USER), FACT, "I will keep that in mind.")
    assert opened.flush()
    report, _ = forget_person(opened, OWNER)
    (done,) = report.providers
    assert (done.state, report.complete) == ("incomplete", False)
    assert "local-store.json" in done.remaining[0]
