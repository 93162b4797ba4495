"""Our provider, under the manager, on a real Hindsight: PostgreSQL and API out of packages, on loopback.

    pytest -m real plugins/hindsight/tests/real -s

`-s` shows versions and times. The embeddings and the model behind the server are a stand-in; all else is real.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hermes_hindsight import HindsightProvider
from hermes_hindsight.client import Client

from hermes_core import (
    Delegation,
    HermesHome,
    MemoryManager,
    MemoryWrite,
    Query,
    Session,
    SessionSwitch,
    ToolCall,
    Turn,
    open_memory,
)
from hermes_core.cli import main
from hermes_core.manager.prefetch import RecallPart
from plugins.hindsight.tests.real import server as real
from plugins.hindsight.tests.real.openai_stand_in import Model
from tests.forgetting_cells import ROWS, exported, hold, recalled
from tests.fresh import fresh_faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

OBSERVED = 120.0
"""Seconds that the server may take from a turn to what was learned of it."""


def told(what: str, seconds: float, more: str = "") -> None:
    print(f"\n  {what:<52} {seconds * 1000:9.1f} ms  {more}", end="")


@dataclass
class Machine:
    """The server and what stands behind it."""

    folder: Path
    bin: Path
    model: Model
    postgres: real.Postgres
    api: real.Api


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    if not hasattr(os, "geteuid"):
        pytest.skip("pg0 is run as another user, which this system has not")
    folder = Path(tempfile.mkdtemp(prefix="hermes-hindsight-"))
    folder.chmod(0o755)
    try:
        began = time.monotonic()
        bin_ = real.install(folder)
        told("packages installed", time.monotonic() - began, ", ".join(real.PACKAGES))
        with Model() as model:
            began = time.monotonic()
            postgres = real.Postgres(bin_, folder)
            told("PostgreSQL started", time.monotonic() - began, f"port {postgres.port}")
            home = folder / "api-home"
            home.mkdir()
            env = {**real.server_env(home, model.url), "HINDSIGHT_API_DATABASE_URL": postgres.url}
            api = real.Api(bin_, env, folder / "api.log")
            try:
                told("hindsight-api started, first time", api.start(), api.url)
                yield Machine(folder, bin_, model, postgres, api)
            finally:
                api.stop()
                postgres.stop()
    except real.Missing as exc:
        pytest.skip(str(exc))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Host:
    """A manager of a home of its own, whose default bank is `bank`."""

    def __init__(self, home: Path, url: str, bank: str, **settings: Any) -> None:
        home.mkdir(exist_ok=True)
        self.home, self.bank, self.url = HermesHome(home), bank, url
        told_settings = {"mode": "local_external", "api_url": url, "bank_id": bank, **settings}
        self.home.provider_json("hindsight").write_text(json.dumps(told_settings))
        self.session = Session("s1", home=str(home))
        self.open()

    def open(self) -> None:
        self.manager = MemoryManager(self.home, start_wait=60.0)
        with self.home.asking():
            assert self.manager.add_provider(HindsightProvider), self.manager.health()
        self.manager.initialize_all(self.session)
        health = self.manager.health()[0]
        assert health.state == "active" or health.depth, (
            health
        )  # writes of an outage wait to be caught up with

    def say(self, text: str, turn_id: str) -> None:
        self.manager.sync_all(Turn(turn_id, 1, text, "Noted.", at=time.time()), self.session)

    def delivered(self, timeout: float = 120.0) -> None:
        assert self.manager.flush(timeout), [row.error for row in self.manager.outbox.pending("hindsight")]

    def part(self, text: str, session: str = "later") -> RecallPart:
        found = self.manager.prefetch_all(
            Query(text, now=time.time()), Session(session, home=str(self.home.path))
        )
        return found.parts[0]

    def recall(self, text: str, session: str = "later") -> str:
        part = self.part(text, session)
        assert not part.reason, part.reason
        return part.recall.render()

    def learns(self, text: str, marker: str, *, gone: bool = False) -> float:
        """Seconds until recall for `text` has `marker`, or has it no more."""
        began = time.monotonic()
        # A machine that has much else to do may answer too late once or twice, which says nothing of what is known.
        while (part := self.part(text)).reason or (marker in part.recall.render()) is gone:
            waited = time.monotonic() - began
            assert waited < OBSERVED, f"{marker!r} {'stays' if gone else 'never comes'}; {part}"
            time.sleep(0.1)
        return time.monotonic() - began

    def tool(self, name: str, **arguments: Any) -> Any:
        return json.loads(self.manager.handle_tool_call(ToolCall(name, arguments), self.session))

    def ask(self, question: Callable[[Client], Any]) -> Any:
        """Look at the server beside the provider."""

        async def session() -> Any:
            client = Client(self.url)
            try:
                return await question(client)
            finally:
                await client.close()

        return asyncio.run(session())

    def document(self, name: str = "s1") -> list[str]:
        """What the person said in the session's document."""
        text = self.ask(lambda c: c.document(self.bank, name))
        return [m["content"] for m in json.loads(text or "[]") if m["role"] == "user"]

    def close(self) -> None:
        self.manager.shutdown_all(15.0)


@pytest.fixture
def host(machine: Machine, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Host]]:
    """Make a host with settings; its bank is named after the test."""
    made: list[Host] = []

    def make(**settings: Any) -> Host:
        bank = request.node.name.removeprefix("test_")[:60]
        made.append(
            Host(tmp_path / f"home{len(made)}", machine.api.url, settings.pop("bank", bank), **settings)
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_an_empty_server_is_healthy(machine: Machine, hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    settings = {"mode": "local_external", "api_url": machine.api.url}
    hermes_home.provider_json("hindsight").write_text(json.dumps(settings))
    tools = {"hindsight_recall": {"query": "tortoise"}, "hindsight_reflect": {"query": "What do I like?"}}
    assert fresh_faults(hermes_home, "hindsight", tools) == []


def test_each_turn_of_a_long_chat_keeps_its_day(host: Callable[..., Host]) -> None:
    one = host()
    said = {"2026-03-01": "My tortoise is called Quillfeather.", "2026-05-30": "The oars lie in Marrowby."}
    for number, (day, text) in enumerate(said.items()):
        at = datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()
        turn = Turn(f"t{number}", number, text, "Noted.", at=at + 60, user_at=at)
        one.manager.sync_all(turn, one.session)
    one.delivered()
    for day, marker, question in (
        ("2026-03-01", "Quillfeather", "What is my tortoise called?"),
        ("2026-05-30", "Marrowby", "Where do the oars lie?"),
    ):
        one.learns(question, marker)
        found = [item for item in one.part(question).recall.items if marker in item.text]
        assert {item.when for item in found} == {day}, found


def test_a_turn_becomes_a_fact_and_an_observation_and_is_recalled(host: Callable[..., Host]) -> None:
    one = host()
    assert one.recall("What is my tortoise called?") == ""
    began = time.monotonic()
    one.say("My tortoise is called Quillfeather.", "t1")
    told("a turn acknowledged", time.monotonic() - began)
    one.delivered()
    told("the turn taken by the server", time.monotonic() - began)
    told("recalled as a fact", one.learns("What is my tortoise called?", "Quillfeather"))
    told("recalled as an observation", one.learns("What is my tortoise called?", "Observed: My tortoise"))
    began = time.monotonic()
    text = one.recall("What is my tortoise called?")
    told("recall before a turn", time.monotonic() - began)
    assert text.count("Quillfeather") == 1, "the fact gives way to the observation of it"
    assert one.recall("Which airline flies to Peru?") == ""
    version = one.ask(lambda c: c.version())
    told("server", 0, f"Hindsight {version}, Python {sys.version.split()[0]}")


def test_a_session_is_one_document_over_a_switch_and_a_repeat(host: Callable[..., Host]) -> None:
    one = host()
    for number in range(4):
        one.say(f"Remark number {number} stands.", f"t{number}")
    one.delivered()
    one.learns("Which remark number stands?", "number 3")
    assert one.document() == [f"User: Remark number {n} stands." for n in range(4)]
    new = Session("s2", parent_id="s1", home=str(one.home.path))
    one.manager.on_session_switch(SessionSwitch("x1", one.session, new, "compression"))
    one.manager.sync_all(Turn("t9", 5, "Remark number 9 stands.", "Noted.", at=time.time()), new)
    one.delivered()
    provider = HindsightProvider()
    turn = Turn("t3", 4, "Remark number 3 stands.", "Noted.", at=time.time())
    asyncio.run(_again(provider, turn, one))
    one.learns("Which remark number stands?", "number 9")
    assert (len(one.document()), len(one.document("s2"))) == (4, 1)


async def _again(provider: HindsightProvider, turn: Turn, one: Host) -> None:
    """As after a lost answer: the same turn once more, by another process."""
    await provider.initialize(one.session)
    await provider.sync_turn(turn, one.session)
    await provider.shutdown()


@pytest.mark.parametrize("retain_async", [True, False])
def test_turns_that_were_taken_back_are_forgotten(host: Callable[..., Host], retain_async: bool) -> None:
    one = host(retain_async=retain_async, bank=f"rewind-{retain_async}")
    one.say("My tortoise is called Quillfeather.", "t1")
    one.say("The boathouse key hangs behind Ostrander.", "t2")
    one.delivered()
    one.learns("Where does the boathouse key hang?", "Observed: The boathouse key")
    began = time.monotonic()
    switch = SessionSwitch("x1", one.session, one.session, "rewind", rewound_turns=("t2",))
    one.manager.on_session_switch(switch)
    one.delivered()
    one.learns("Where does the boathouse key hang?", "Ostrander", gone=True)
    told(f"a turn taken back, async {retain_async}", time.monotonic() - began)
    assert one.document() == ["User: My tortoise is called Quillfeather."]
    assert "Quillfeather" in one.recall("What is my tortoise called?")
    one.say("My hedgehog is called Merriweather.", "t3")
    one.delivered()
    one.learns("What is my hedgehog called?", "Merriweather")
    assert len(one.document()) == 2


def test_entries_of_curated_memory_are_mirrored_replaced_and_removed(host: Callable[..., Host]) -> None:
    one = host()
    steps: list[tuple[str, dict[str, Any], str, str]] = [
        ("add", {"content": "The server stands in Oslo."}, "Oslo", "Bergen"),
        (
            "replace",
            {"content": "The server stands in Bergen.", "previous": "The server stands in Oslo."},
            "Bergen",
            "Oslo",
        ),
        ("remove", {"previous": "The server stands in Bergen."}, "", "Bergen"),
    ]
    for number, (action, fields, there, gone) in enumerate(steps):
        began = time.monotonic()
        write = MemoryWrite(f"w{number}", action, "memory", **fields)  # type: ignore[arg-type]
        one.manager.on_memory_write(write, one.session)
        one.delivered()
        told(f"an entry mirrored: {action}", time.monotonic() - began)
        if there:
            one.learns("Where stands the server?", there)
        one.learns("Where stands the server?", gone, gone=True)


def test_the_tools_and_a_delegation(host: Callable[..., Host]) -> None:
    one = host(bank_mission="Know all about drinks.", disposition_empathy=5)
    assert (
        "Memory stored"
        in one.tool("hindsight_retain", content="Mel prefers oolong tea.", tags=["taste"])["result"]
    )
    one.manager.on_delegation(
        Delegation("d1", "Find the kettle.", "The kettle hides in Marrowby."), one.session
    )
    one.delivered()
    one.learns("What does Mel prefer?", "oolong")
    one.learns("Where hides the kettle?", "Marrowby")
    assert "1. " in one.tool("hindsight_recall", query="What does Mel prefer?")["result"]
    began = time.monotonic()
    answer = one.tool("hindsight_reflect", query="What does Mel prefer?")["result"]
    told("reflect", time.monotonic() - began)
    assert "oolong" in answer
    config = one.ask(lambda c: c._ask(c._sdk.aget_bank_config(one.bank)))["config"]
    assert (config["reflect_mission"], config["disposition_empathy"]) == ("Know all about drinks.", 5)


def test_reflection_before_a_turn(host: Callable[..., Host]) -> None:
    one = host(recall_prefetch_method="reflect")
    one.say("My tortoise is called Quillfeather.", "t1")
    one.delivered()
    one.learns("What is my tortoise called?", "Quillfeather")
    began = time.monotonic()
    assert one.recall("What is my tortoise called?").startswith("From memory:")
    told("reflection before a turn", time.monotonic() - began)
    assert one.recall("Which airline flies to Peru?") == ""


def test_two_profiles_and_two_users_share_nothing(host: Callable[..., Host], machine: Machine) -> None:
    one = host(bank=None)
    people = [
        {"identity": "real-a"},
        {"identity": "real-b"},
        {"identity": "real-a", "platform": "telegram", "user_id": "ada"},
        {"identity": "real-a", "platform": "telegram", "user_id": "bob"},
    ]
    names = ["Alderney", "Brackwater", "Cinderford", "Dunwhistle"]
    for number, (who, name) in enumerate(zip(people, names, strict=True)):
        session = Session(f"p{number}", home=str(one.home.path), **who)
        turn = Turn(f"u{number}", 1, f"My parrot is called {name}.", "Noted.", at=time.time())
        one.manager.sync_all(turn, session)
    one.delivered()
    for who, name in zip(people, names, strict=True):
        session, until = Session("q", home=str(one.home.path), **who), time.monotonic() + OBSERVED
        text = ""
        while name not in text and time.monotonic() < until:
            text = (
                one.manager.prefetch_all(Query("What is my parrot called?"), session).parts[0].recall.render()
            )
            time.sleep(0.1)
        assert [other for other in names if other in text] == [name]


def test_an_outage_and_a_restart_lose_no_turn(host: Callable[..., Host], machine: Machine) -> None:
    one = host()
    one.say("Remark number 0 stands.", "t0")
    one.delivered()
    machine.api.kill()
    began = time.monotonic()
    for number in range(1, 11):
        one.say(f"Remark number {number} stands.", f"t{number}")
    told("ten turns acknowledged while it is down", time.monotonic() - began)
    one.manager.flush(2.0)
    found = one.manager.prefetch_all(Query("Which remark stands?"), one.session).parts[0]
    assert (found.recall.render(), found.state) == ("", "degraded")
    one.close()
    told("hindsight-api started again after a kill", machine.api.start())
    began = time.monotonic()
    one.open()
    one.delivered()
    told("ten turns delivered by the next process", time.monotonic() - began)
    assert one.manager.health()[0].state == "active"
    one.learns("Which remark number stands?", "number 10")
    assert one.document() == [f"User: Remark number {n} stands." for n in range(11)]


def test_what_the_servers_model_spoiled_is_shown_and_tried_again(
    host: Callable[..., Host], machine: Machine
) -> None:
    one = host()
    machine.model.junk = True
    try:
        one.say("My tortoise is called Quillfeather.", "t1")
        one.delivered()
        until = time.monotonic() + 120
        while not one.ask(lambda c: c.operations(one.bank, "failed")):
            assert time.monotonic() < until, one.ask(lambda c: c.operations(one.bank))
            time.sleep(0.5)
        checks = one.manager.ask("hindsight", "check", session=one.session)
    finally:
        machine.model.junk = False
    assert checks.status == "failed", "the self-test needs a model that works"
    command = ["--home", str(one.home.path), "hindsight", "operations"]
    _configured(one.home)
    shown = CliRunner().invoke(main, [*command, "--failed"], catch_exceptions=False)
    assert "failed" in shown.output, shown.output
    again = CliRunner().invoke(main, [*command, "--retry"], catch_exceptions=False)
    assert "tried again" in again.output, again.output
    told("recalled after a retry", one.learns("What is my tortoise called?", "Quillfeather"))
    assert one.ask(lambda c: c.operations(one.bank, "failed")) == []


def test_doctors_self_test_and_the_commands(host: Callable[..., Host]) -> None:
    one = host()
    began = time.monotonic()
    checks = one.manager.ask("hindsight", "check", session=one.session)
    told("check: write, recall, delete", time.monotonic() - began)
    assert [check.ok for check in checks.value] == [True] * 4, checks
    _configured(one.home)
    command = ["--home", str(one.home.path), "hindsight", "status", "--json"]
    status = json.loads(CliRunner().invoke(main, command, catch_exceptions=False).stdout)
    assert (status["version"], status["bank"]) == (real.VERSION, one.bank)


def _configured(home: HermesHome) -> None:
    """The provider as the active one, whose commands there are."""
    home.config_yaml.write_text("memory:\n  provider: hindsight\n")


@pytest.mark.parametrize("row", ROWS)
def test_each_cell_of_the_table_on_the_page_holds(
    machine: Machine, hermes_home: HermesHome, row: str
) -> None:
    hermes_home.path.mkdir(exist_ok=True)
    settings = {
        "mode": "local_external",
        "api_url": machine.api.url,
        "bank_id_template": f"cells-{row}-{{user}}",
    }
    hermes_home.provider_json("hindsight").write_text(json.dumps(settings))
    with open_memory(hermes_home, provider="hindsight") as memory:

        def knows(name: str, session: Session) -> bool:
            return name in exported(memory, "hindsight", session) + recalled(
                memory, "hindsight", name, session
            )

        hold("hindsight", row, memory, knows, patience=OBSERVED)


# ---------------------------------------------------------------- the embedded mode


EMBEDDED = """
import json, sys, time
from hermes_core import HermesHome, MemoryManager, Query, Session, Turn
from hermes_hindsight import HindsightProvider
home = HermesHome.resolve(sys.argv[1])
session = Session("s1", home=str(home.path))
manager = MemoryManager(home, start_wait=60.0)
times = {}
began = time.monotonic()
assert manager.add_provider(HindsightProvider), manager.health()
manager.initialize_all(session)
while manager.health()[0].state != "active" and time.monotonic() < began + 180:
    manager.initialize_all(session)  # a start that took too long is looked at again after a minute
    time.sleep(1)
times["started"] = time.monotonic() - began
assert manager.health()[0].state == "active", manager.health()
if len(sys.argv) == 2:
    manager.sync_all(Turn("t1", 1, "My tortoise is called Quillfeather.", "Noted.", at=time.time()), session)
    assert manager.flush(120.0)
text, until = "", time.monotonic() + 120
while "Quillfeather" not in text and time.monotonic() < until:
    text = manager.prefetch_all(Query("What is my tortoise called?"), session).parts[0].recall.render()
    time.sleep(0.2)
began = time.monotonic()
manager.shutdown_all(20.0)
times["stopped"] = time.monotonic() - began
print(json.dumps({"text": text, **times}))
"""


@pytest.mark.parametrize("database", ["its own", "given"])
def test_a_server_of_our_own_is_started_used_and_stopped(
    machine: Machine, tmp_path: Path, database: str
) -> None:
    person = machine.folder / f"person-{database.replace(' ', '-')}"
    home = person / "hermes"
    home.mkdir(parents=True)
    settings = {"mode": "local_embedded", "profile": "realtest", "bank_id": "embedded"}
    (home / "hindsight.json").write_text(json.dumps(settings))
    env = {**real.server_env(person, machine.model.url), "HERMES_HOME": str(home)}
    env["PATH"] = f"{machine.bin}:{env['PATH']}"
    options: dict[str, Any] = {}
    if database == "given":
        env["HINDSIGHT_EMBED_API_DATABASE_URL"] = machine.postgres.url
    else:
        options = real.as_nobody()
        packages = machine.folder / "ours"
        if not packages.exists():
            _copy_ours(packages, machine)
        env["PYTHONPATH"] = str(packages)
        for path in (person, *person.rglob("*")):
            if options:
                os.chown(path, real.NOBODY, real.NOBODY)
    python = str(machine.bin / "python") if options else sys.executable
    results = []
    for arguments in ([], ["again"]):
        done = subprocess.run(
            [python, "-c", EMBEDDED, str(home), *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=500,
            cwd=person,
            **options,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        results.append(json.loads(done.stdout.splitlines()[-1]))
        told(f"embedded, database {database}: started", results[-1]["started"])
        told(f"embedded, database {database}: stopped", results[-1]["stopped"])
    assert all("Quillfeather" in result["text"] for result in results)
    status = subprocess.run(
        [str(machine.bin / "hindsight-embed"), "-p", "realtest", "daemon", "status"],
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
        **options,
    )
    assert "not running" in status.stdout


LEFT_STARTING = """
import sys, time
from hermes_core import HermesHome, MemoryManager, Session
from hermes_hindsight import HindsightProvider
home = HermesHome.resolve(sys.argv[1])
manager = MemoryManager(home)
assert manager.add_provider(HindsightProvider), manager.health()
manager.initialize_all(Session("s1", home=str(home.path)), wait=0)
while not (home.logs / "hindsight-embed.log").exists():
    time.sleep(0.01)
time.sleep(1)
assert manager.health()[0].state == "degraded", manager.health()
manager.shutdown_all()
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_a_server_that_is_starting_at_the_end_does_not_stay(machine: Machine, tmp_path: Path) -> None:
    home = tmp_path / "hermes"
    home.mkdir()
    (home / "hindsight.json").write_text('{"mode": "local_embedded", "profile": "lefttest"}')
    env = {**real.server_env(tmp_path, machine.model.url), "HERMES_HOME": str(home)}
    env |= {
        "PATH": f"{machine.bin}:{env['PATH']}",
        "HINDSIGHT_EMBED_API_DATABASE_URL": machine.postgres.url,
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }

    def running() -> list[Path]:
        """Processes that have this test's HOME."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"HOME={tmp_path}\0".encode() in (process / "environ").read_bytes():
                    found.append(process)
        return found

    began = time.monotonic()
    subprocess.run([sys.executable, "-c", LEFT_STARTING, str(home)], env=env, check=True, timeout=60)
    told("left starting: ended", time.monotonic() - began)
    assert running()
    while running() and time.monotonic() < began + 200:
        time.sleep(0.5)
    told("left starting: gone", time.monotonic() - began)
    assert running() == []


def _copy_ours(folder: Path, machine: Machine) -> None:
    """Our packages and what they need, where nobody can read them."""
    root = Path(__file__).parents[4]
    uv = [
        str(machine.bin / "uv"),
        "pip",
        "install",
        "-q",
        "--no-sources",
        "--python",
        str(machine.bin / "python"),
    ]
    subprocess.run([*uv, "--target", str(folder), str(root), str(root / "plugins/hindsight")], check=True)
