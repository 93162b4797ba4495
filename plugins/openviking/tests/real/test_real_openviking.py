"""The provider and the manager on real OpenViking servers out of the package index, of this year and of the last.

    pytest -m real plugins/openviking/tests/real

Makes virtual environments of its own (about 800 MB each, removed in the end), binds loopback only, and stands in for the
models. Skipped with the reason where the packages can't be had.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hermes_openviking import OpenVikingProvider

from hermes_core import HermesHome, Memory, Session, Turn, open_memory
from hermes_core.contract.values import MemoryRecord
from hermes_core.kit.process import Service, child_environment
from plugins.openviking.tests.real.model import DIMENSION, Model
from tests.forgetting_cells import ROWS, exported, hold
from tests.fresh import fresh_faults
from tests.temp_folder import DISK

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

PACKAGES = {
    "0.5.2": ["openviking==0.5.2"],
    # What it asks for without an upper bound has moved on: newer ones of these break it.
    "0.4.9": ["openviking==0.4.9", "mcp<2", "xxhash<3.6"],
}
# A first start of half a minute takes two on a machine that has much else to do.
START_TIMEOUT_S = 300.0
ROOT_KEY = "root-secret"
KEY = "The boathouse key hangs behind the door."
ASKED = "Where does the boathouse key hang?"


@dataclass
class Report:
    """Times, printed in the end."""

    lines: list[str] = field(default_factory=list)

    def took(self, what: str, seconds: float) -> None:
        self.lines.append(f"  {what:<58} {seconds * 1000:9.1f} ms")

    def says(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest) -> Iterator[Report]:
    made = Report()
    yield made
    shown = request.config.pluginmanager.getplugin("capturemanager")
    with shown.global_and_fixture_disabled():
        print("\n" + "\n".join(made.lines))


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder on the disk for everything, removed in the end: it is large."""
    with tempfile.TemporaryDirectory(prefix="hermes-openviking-", dir=os.environ.get(DISK)) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def install(place: Path, report: Report) -> Callable[[str], Path]:
    """The server program of a version, installed once."""
    made: dict[str, Path] = {}

    def program(version: str) -> Path:
        if version not in made:
            began = time.monotonic()
            made[version] = _installed(place, version)
            report.took(f"installed openviking {version}", time.monotonic() - began)
        return made[version]

    return program


def _installed(place: Path, version: str) -> Path:
    tools, venv = place / "tools", place / f"venv-{version}"
    try:
        if not tools.exists():
            _run(sys.executable, "-m", "venv", tools)
            _run(tools / "bin" / "python", "-m", "pip", "install", "-q", "uv")
        _run(sys.executable, "-m", "venv", "--without-pip", venv)
        _run(
            tools / "bin" / "uv",
            "pip",
            "install",
            "-q",
            "--python",
            venv / "bin" / "python",
            *PACKAGES[version],
        )
    except (subprocess.CalledProcessError, OSError) as exc:
        pytest.skip(
            f"openviking {version} can't be installed here: {getattr(exc, 'stderr', '') or exc}"[:300]
        )
    return venv / "bin" / "openviking-server"


def _run(*command: Any) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, timeout=600)


@dataclass
class Real:
    """A server: its program, its data, and whether it runs."""

    program: Path
    folder: Path
    port: int
    service: Service
    mode: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start it and wait for it; the seconds that took."""
        began = time.monotonic()
        self.service.start()
        self.service.wait_until(self._answers, START_TIMEOUT_S)
        return time.monotonic() - began

    def stop(self) -> None:
        self.service.stop(10.0)

    def resident(self) -> float:
        """Megabytes of memory that it uses, where that can be seen."""
        status = Path(f"/proc/{self.service.pid}/status")
        lines = status.read_text().splitlines() if status.exists() else []
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)

    def user_key(self, account: str, user: str) -> str:
        body = {"account_id": account, "admin_user_id": user}
        answer = httpx.post(f"{self.url}/api/v1/admin/accounts", json=body, headers={"X-API-Key": ROOT_KEY})
        return str(answer.raise_for_status().json()["result"]["user_key"])

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2).is_success
        except httpx.HTTPError:
            return False


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model() as running:
        yield running


@pytest.fixture(scope="module")
def serve(
    place: Path, install: Callable[[str], Path], model: Model, report: Report
) -> Iterator[Callable[..., Real]]:
    """Start a server of a version; stopped in the end."""
    running: list[Real] = []

    def start(version: str, mode: str, *, embeds: bool = True) -> Real:
        program = install(version)
        folder = place / f"server-{len(running)}"
        server = _server(program, folder, mode, f"{model.url}/v1" if embeds else "")
        running.append(server)
        seconds = server.start()
        report.says(f"openviking {version}, mode {mode}, {'with' if embeds else 'without'} an embedder")
        report.took("start to first answer", seconds)
        return server

    yield start
    for server in running:
        server.stop()


def _server(program: Path, folder: Path, mode: str, models: str) -> Real:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    said = {"provider": "openai", "api_base": models, "api_key": "x"}
    own = {} if mode == "dev" else {"auth_mode": mode, "root_api_key": ROOT_KEY}
    asked: dict[str, Any] = {
        "storage": {"workspace": str(folder / "data")},
        "server": {"host": "127.0.0.1", "port": port, **own},
    }
    if models:
        asked["embedding"] = {
            "dense": {**said, "model": "bag-of-words", "dimension": DIMENSION, "input": "text"}
        }
        asked["vlm"] = {**said, "model": "scripted"}
    folder.mkdir()
    (folder / "home").mkdir()
    config = folder / "ov.conf"
    config.write_text(json.dumps(asked))
    command = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    # No proxy and no cache of models: what the stand-in does not serve, it does not get.
    env = {
        **child_environment({"HOME": str(folder / "home")}),
        "NO_PROXY": "127.0.0.1",
        "HF_HUB_OFFLINE": "1",
    }
    return Real(program, folder, port, Service(command, log=folder / "log", env=env, cwd=folder), mode)


def make_home(path: Path, server: Real, key: str = "", **settings: Any) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "openviking.json").write_text(json.dumps({"endpoint": server.url, **settings}))
    if key:
        (path / ".env").touch(mode=0o600)
        (path / ".env").write_text(f"OPENVIKING_API_KEY={key}\n")
    return path


def call(memory: Memory, session: Session, name: str, **arguments: Any) -> Any:
    answer = json.loads(memory.call_tool(session, f"viking_{name}", arguments))
    assert "error" not in answer, answer
    return answer


def recalled(memory: Memory, question: str, **identity: Any) -> str:
    turn = memory.begin_turn(memory.start_session(**identity), question)
    assert turn.problems == ()
    return turn.context


def eventually(seen: Callable[[], Any], seconds: float = 60.0) -> float:
    """Wait until it is seen; the seconds that took."""
    began = time.monotonic()
    while not seen():
        assert time.monotonic() - began < seconds, "it was not seen in time"
        time.sleep(0.1)
    return time.monotonic() - began


def timed(report: Report, what: str, work: Callable[[], Any]) -> Any:
    began = time.monotonic()
    result = work()
    report.took(what, time.monotonic() - began)
    return result


@pytest.mark.parametrize(("version", "mode"), [("0.5.2", "api_key"), ("0.4.9", "dev")])
def test_an_empty_server_is_healthy(
    serve: Callable[..., Real], tmp_path: Path, version: str, mode: str
) -> None:
    server = serve(version, mode)
    key = server.user_key("acme", "alice") if mode == "api_key" else ""
    home = HermesHome(make_home(tmp_path / "home", server, key))
    tools = {"viking_search": {"query": "tortoise"}, "viking_browse": {"action": "list"}}
    assert fresh_faults(home, "openviking", tools) == []


@pytest.mark.needs_disk("no file below /dev is sent")
@pytest.mark.parametrize(("version", "mode"), [("0.5.2", "api_key"), ("0.4.9", "dev"), ("0.5.2", "trusted")])
def test_a_life_with_a_real_server(
    serve: Callable[..., Real], report: Report, tmp_path: Path, version: str, mode: str
) -> None:
    server = serve(version, mode)
    keys = {"dev": "", "trusted": ROOT_KEY}
    key = keys[mode] if mode in keys else server.user_key("acme", "alice")
    home = make_home(tmp_path / "home", server, key, file_folders=[str(tmp_path)])
    with open_memory(home, provider="openviking") as memory:
        assert memory.problems() == []
        session = memory.start_session()
        _writes_recalls_and_forgets(memory, session, report)
        _mirrors(memory, session)
        _keeps_the_time_of_what_comes_in(memory, session)
        _documents(memory, session, tmp_path, report)
        _learns_from_a_session(memory, session, report)
        _keeps_people_apart(memory)
        _outlives_a_restart(memory, server, report)
        report.says(f"  the server's memory: {server.resident():.0f} MB")
    _takes_back(home, version)
    with open_memory(home, provider="openviking") as memory:
        _bears_an_outage(memory, server, report)
        provider = OpenVikingProvider()
        provider.initialize(Session("s", home=str(home)))
        assert all(check.ok for check in timed(report, "self-test", lambda: provider.check(Session("s")))), (
            "self-test"
        )
        provider.shutdown()


def _writes_recalls_and_forgets(memory: Memory, session: Session, report: Report) -> None:
    uri = timed(report, "viking_remember", lambda: call(memory, session, "remember", content=KEY))["uri"]
    assert call(memory, session, "remember", content=KEY)["uri"] == uri
    report.took("until it is recalled", eventually(lambda: KEY in recalled(memory, ASKED)))
    timed(report, "a turn's recall", lambda: recalled(memory, ASKED))
    assert recalled(memory, "Quantum chromodynamics?") == ""
    for mode in ("fast", "deep"):
        found = timed(
            report,
            f"viking_search, {mode}",
            lambda m=mode: call(memory, session, "search", query=ASKED, mode=m),
        )
        assert found["results"][0]["uri"] == uri
    assert call(memory, session, "read", uri=uri, level="full")["content"] == KEY
    tree = call(memory, session, "browse", action="tree", path=uri.partition("/memories/")[0])
    assert uri in [entry["uri"] for entry in tree["entries"]]
    assert call(memory, session, "browse", action="stat", path=uri)["isDir"] is False
    assert call(memory, session, "read", uri=uri.rpartition("/")[0])["level"] == "overview"
    assert (
        timed(report, "viking_forget", lambda: call(memory, session, "forget", uri=uri))["status"]
        == "deleted"
    )
    assert call(memory, session, "forget", uri=uri)["status"] == "not there"
    eventually(lambda: KEY not in recalled(memory, ASKED))


def _mirrors(memory: Memory, session: Session) -> None:
    def tool(**arguments: str) -> None:
        assert json.loads(memory.call_tool(session, "memory", {"target": "user", **arguments}))["success"]
        assert memory.flush(20)

    tool(action="add", content="The user's tortoise is called Quillfeather.")
    eventually(lambda: "Quillfeather" in recalled(memory, "What is my tortoise called?"))
    tool(action="replace", old_text="Quillfeather", content="The user's tortoise is called Bellwether.")
    eventually(lambda: "Bellwether" in recalled(memory, "What is my tortoise called?"))
    eventually(lambda: "Quillfeather" not in recalled(memory, "What is my tortoise called?"))
    tool(action="remove", old_text="Bellwether")
    eventually(lambda: "Bellwether" not in recalled(memory, "What is my tortoise called?"))


def _keeps_the_time_of_what_comes_in(memory: Memory, session: Session) -> None:
    record = MemoryRecord("The oars lie in Marrowby.", created_at=1_772_356_800.0, tags=("boat",))
    provider = OpenVikingProvider()
    provider.initialize(session)
    provider.import_memory(record, session)
    records = provider.export_memories("", session).records
    (left,) = [one for one in records if one.text == record.text]
    assert replace(left, id="") == record
    # What the server made itself has at least the time of its file.
    assert all(one.created_at or one.updated_at > time.time() - 3600 for one in records)
    eventually(lambda: "2026-03-01" in recalled(memory, "Where do the oars lie?"))
    provider.shutdown()


def _documents(memory: Memory, session: Session, folder: Path, report: Report) -> None:
    file = folder / "pump.md"
    file.write_text("# Pump\n\nPress the red button to start the pump.\n")
    added = timed(
        report,
        "viking_add_resource, waited for",
        lambda: call(memory, session, "add_resource", url=str(file), wait=True),
    )
    assert added["reading"] == "completed"
    assert "/peers/" in added["root_uri"]
    found = call(memory, session, "search", query="the red button of the pump")["results"]
    assert any(hit["uri"].startswith(added["root_uri"]) for hit in found)
    refused = memory.call_tool(session, "viking_add_resource", {"url": "http://127.0.0.1:9/x"})
    assert "public" in refused


def _learns_from_a_session(memory: Memory, session: Session, report: Report) -> None:
    def send() -> None:
        memory.end_turn(session, "remember that the ferry leaves at seven", "Noted.")
        assert memory.flush(20)

    timed(report, "a turn sent", send)
    memory.end_session(session)
    timed(report, "session end: commit", lambda: memory.flush(20))
    seconds = eventually(lambda: "seven" in recalled(memory, "When does the ferry leave?"), 120)
    report.took("until what it taught is recalled", seconds)


def _keeps_people_apart(memory: Memory) -> None:
    """Also on a server that does not."""
    assert "seven" in recalled(memory, "When does the ferry leave?")
    assert recalled(memory, "When does the ferry leave?", platform="telegram", user_id="42") == ""
    guest = memory.start_session(platform="telegram", user_id="42")
    found = json.loads(memory.call_tool(guest, "viking_search", {"query": "When does the ferry leave?"}))
    assert "seven" not in json.dumps(found)


def _outlives_a_restart(memory: Memory, server: Real, report: Report) -> None:
    server.stop()
    report.took("restart", server.start())
    eventually(
        lambda: "seven" in memory.begin_turn(memory.start_session(), "When does the ferry leave?").context
    )


def _takes_back(home: Path, version: str) -> None:
    """Turns of a rewind are gone from the server's session, where it keeps their ids."""
    provider = OpenVikingProvider()
    session = Session("rewound", home=str(home))
    provider.initialize(session)
    space = provider.space(session)
    name = space.conversation(session.id)
    for number in range(3):
        turn = _turn(f"Remark {number}.", f"turn-{number}")
        provider.sync_turn(turn, session)
        provider.sync_turn(turn, session)
    provider.client.take_back(space, name, {"turn-2"})
    said = [
        line
        for _, line in provider.client.grep(space, f"viking://user/{space.user}/sessions/{name}", "Remark")
    ]
    assert len(said) == (2 if version != "0.4.9" else 3), said
    provider.shutdown()


def _bears_an_outage(memory: Memory, server: Real, report: Report) -> None:
    """The server is stopped, fifty turns are said, and it comes back: each is there once, in order."""
    session = memory.start_session()
    server.stop()
    latencies = []
    for number in range(50):
        began = time.monotonic()
        memory.begin_turn(session, f"Where is remark {number}?")
        memory.end_turn(session, f"Remark {number} is kept.", "Noted.")
        latencies.append(time.monotonic() - began)
    report.took("outage: slowest of 50 turns", max(latencies))
    report.took("outage: median of 50 turns", sorted(latencies)[25])
    server.start()
    began = time.monotonic()
    eventually(lambda: memory.flush(5) and not memory.manager.outbox.depth, 300)
    report.took("outage: until all 50 had arrived", time.monotonic() - began)
    provider = OpenVikingProvider()
    provider.initialize(session)
    space = provider.space(session)
    uri = f"viking://user/{space.user}/sessions/{space.conversation(session.id)}"
    lines = [line for _, line in provider.client.grep(space, uri, "Remark [0-9]+ is kept")]
    texts = [json.loads(line)["parts"][0]["text"] for line in lines]
    assert texts == [f"Remark {number} is kept." for number in range(50)]
    provider.shutdown()


def test_a_server_without_models_still_keeps_reads_and_finds_words(
    serve: Callable[..., Real], report: Report, tmp_path: Path
) -> None:
    server = serve("0.5.2", "dev", embeds=False)
    home = make_home(tmp_path / "home", server)
    with open_memory(home, provider="openviking") as memory:
        session = memory.start_session()
        uri = call(memory, session, "remember", content=KEY)["uri"]
        assert KEY in timed(report, "a turn's recall, by words", lambda: recalled(memory, ASKED))
        assert call(memory, session, "search", query=ASKED)["results"][0]["uri"] == uri
        assert call(memory, session, "read", uri=uri)["content"] == KEY
        assert call(memory, session, "browse", action="tree", path=uri.partition("/memories/")[0])["entries"]
        memory.end_turn(session, KEY, "Noted.")
        memory.end_session(session)
        assert memory.flush(20)
        assert call(memory, session, "forget", uri=uri)["status"] == "deleted"
        provider = OpenVikingProvider()
        provider.initialize(session)
        found = {check.name: check.ok for check in provider.check(session)}
        assert (found["write, recall, forget"], found["search by meaning"]) == (True, False)
        eventually(
            lambda: any(t["status"] == "failed" for t in provider.client.extractions(provider.space(session)))
        )
        assert not {check.name: check.ok for check in provider.check(session)}["learning from sessions"]
        provider.shutdown()


def test_our_own_server_is_started_and_stopped(
    install: Callable[[str], Path], model: Model, place: Path, report: Report, tmp_path: Path
) -> None:
    program = install("0.5.2")
    real = _server(program, place / "own", "dev", f"{model.url}/v1")
    home = make_home(
        tmp_path / "home",
        real,
        start_server=True,
        server_command=str(program),
        server_config=str(real.folder / "ov.conf"),
    )
    with open_memory(home, provider="openviking") as memory:
        session = memory.start_session()
        seconds = eventually(
            lambda: "uri" in memory.call_tool(session, "viking_remember", {"content": KEY}), 120
        )
        report.took("our own server: until the first fact is kept", seconds)
    assert not real._answers()


def _turn(text: str, turn_id: str) -> Any:

    return Turn(turn_id, 1, text, "Noted.", at=1.7e9 + int(turn_id[-1]))


@pytest.mark.parametrize("version", ["0.5.2", "0.4.9"])
def test_each_cell_of_the_table_on_the_page_holds(
    serve: Callable[..., Real], tmp_path: Path, version: str
) -> None:
    server = serve(version, "api_key" if version == "0.5.2" else "dev")
    key = server.user_key("cells", "alice") if version == "0.5.2" else ""
    for row in ROWS:
        if (version, row) == ("0.4.9", "turn"):
            continue  # servers before 0.4.12 keep no ids of turns, as the page says
        home = make_home(tmp_path / row, server, key, agent=f"cells-{row}")
        provider = OpenVikingProvider()
        with open_memory(home, provider=provider) as memory:

            def knows(
                name: str, session: Session, provider: OpenVikingProvider = provider, memory: Memory = memory
            ) -> bool:
                space = provider.space(session)
                said = provider.client.grep(space, f"viking://user/{space.user}/sessions", name)
                own = [uri for uri, _ in said if f"/sessions/{space.peer}." in uri]
                return bool(own) or name in exported(memory, "openviking", session)

            hold("openviking", row, memory, knows, patience=60.0)
