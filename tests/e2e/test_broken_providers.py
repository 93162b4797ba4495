"""Providers that are broken in every way: each is shown with its reason, the turn goes on, and the process ends."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_core.config import set_value
from hermes_core.contract.hooks import POLICIES, ProviderHooks
from tests.forked import python

MUST_END = 60.0
"""Seconds in which a process with any provider ends, also on a busy machine. A provider that hangs does so for an hour."""

TURN_S = 30.0
"""Seconds that a turn with a provider that hangs takes at most, likewise."""

PATIENT = dict.fromkeys(("is_available", "get_tool_schemas", "system_prompt_block", "prefetch"), 60.0)
"""Deadlines of a turn that is about none of them."""

TURN = """
import json, sys, time
from hermes_core import open_memory

with open_memory(deadlines=json.loads(sys.argv[1])) as memory:
    session = memory.start_session("s1")
    prompt = memory.system_prompt(session)
    began = time.monotonic()
    given = memory.begin_turn(session, "What do I drink?")
    theirs = sorted(memory.manager.get_all_tool_names() - {"memory"})
    answers = [memory.call_tool(session, name, {}) for name in theirs]
    memory.change_memory("add", "memory", "Likes tea", session=session)
    memory.end_turn(session, "I drink tea", "Noted.")
    turn = time.monotonic() - began
    memory.manager.on_pre_compress([], 0, session)
    memory.end_session(session)
    report = {
        "turn": turn,
        "problems": memory.problems(),
        "recall": given.context,
        "answers": answers,
        "stored": len(memory.sessions.get_messages("s1")),
        "facts": memory.curated.entries("memory"),
        "waiting": memory.manager.outbox.depth,
    }
print(json.dumps(report))
"""

Ended = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Host:
    """A home, and a folder of installed packages that only its processes see."""

    home: HermesHome
    site: Path

    def install(self, name: str, source: str, *, distribution: str = "", module: str = "") -> None:
        """A package with one module and an entry point of this name, as pip would leave it."""
        distribution = distribution or f"memory-{name}"
        module = module or f"{name}_memory"
        (self.site / f"{module}.py").write_text(dedent(source))
        info = self.site / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[hermes_core.providers]\n{name} = {module}:Provider\n")

    def choose(self, name: str) -> None:
        set_value(self.home, "memory.provider", name)

    def run(self, *command: str) -> Ended:
        """A Python process with these packages and this home, which must end in time."""
        environ = {**os.environ, "PYTHONPATH": str(self.site), "HERMES_HOME": str(self.home.path)}
        return subprocess.run(
            [*python(), *command], env=environ, capture_output=True, text=True, timeout=MUST_END
        )

    def hermes(self, *words: str) -> Ended:
        return self.run("-m", "hermes_core", *words)

    def turn(self, **deadlines: float) -> dict[str, Any]:
        """A whole turn in a process of its own."""
        ended = self.run("-c", TURN, json.dumps(deadlines))
        assert ended.returncode == 0, ended.stderr
        report: dict[str, Any] = json.loads(ended.stdout)
        return report

    def listed(self, name: str, *, shadowed: bool = False) -> dict[str, Any]:
        """What `hermes-memory providers` says of this name."""
        entries = json.loads(self.hermes("providers", "--all", "--json").stdout)
        (entry,) = [e for e in entries if e["name"] == name and (e["state"] == "shadowed") == shadowed]
        return dict(entry)


@pytest.fixture
def host(hermes_home: HermesHome, tmp_path: Path) -> Host:
    site = tmp_path / "site"
    site.mkdir()
    hermes_home.path.mkdir()
    return Host(hermes_home, site)


def provider(body: str = "", name: str = "broken") -> str:
    head = f"from hermes_core import MemoryProvider\n\nclass Provider(MemoryProvider):\n    name = {name!r}\n"
    return head + indent(dedent(body), "    ")


def every_hook(statement: str, *, but: tuple[str, ...] = ()) -> str:
    """Methods of all hooks, with their parameters, which do this."""
    lines = []
    for hook in POLICIES:
        code = getattr(ProviderHooks, hook).__code__
        parameters = ", ".join(code.co_varnames[: code.co_argcount])
        if hook not in but:
            lines.append(f"def {hook}({parameters}):\n    {statement}\n")
    return "".join(lines)


STARTS = ("is_available", "initialize", "get_tool_schemas")
TOOL = "def get_tool_schemas(self):\n    return [{'name': 'broken_tool', 'parameters': {}}]\n"
RAISES = "raise RuntimeError('broken \\x1b[31m on purpose')"
HANGS = "import time; time.sleep(3600)"


def assert_the_turn_went_on(report: dict[str, Any]) -> None:
    """Whole but for the provider."""
    assert report["stored"] == 2
    assert report["facts"] == ["Likes tea"]
    assert report["recall"] == ""


# ------------------------------------------------------------------------------------------- not loaded, not held


@pytest.mark.parametrize(
    ("source", "state", "reason"),
    [
        ("import a_package_nobody_has", "unavailable", "'a_package_nobody_has', which is not installed"),
        ("raise ValueError('bad \\x1b[31m day')", "failed", "raised ValueError: bad"),
        ("import sys\nsys.exit(7)", "failed", "ends the program when it is imported"),
        ("def half(:", "failed", "SyntaxError"),
        (provider("def prefech(self, query):\n    return 'tea'"), "failed", "did you mean prefetch()"),
        (provider("def prefetch(self, *, query):\n    return 'tea'"), "failed", "by keyword only"),
        (provider("contract_version = 99"), "failed", "upgrade hermes-memory-core"),
        (provider("def __init__(self):\n    raise OSError('no disk')"), "failed", "no disk"),
    ],
    ids=[
        "missing module",
        "raises",
        "exits",
        "syntax",
        "misspelt hook",
        "keyword only",
        "newer",
        "constructor",
    ],
)
def test_a_package_that_can_not_be_used_is_shown_with_its_reason(
    host: Host, source: str, state: str, reason: str
) -> None:
    host.install("broken", source)
    host.choose("broken")
    entry = host.listed("broken")
    assert entry["state"] == state, entry
    assert reason in entry["reason"] + entry["remedy"]
    report = host.turn()
    assert any(reason in problem for problem in report["problems"])
    assert_the_turn_went_on(report)
    status = host.hermes("memory", "status")
    assert status.returncode == 3
    assert reason in status.stderr
    assert "\x1b" not in status.stderr + status.stdout
    assert "Traceback" not in status.stderr


def test_a_package_that_is_not_chosen_is_never_imported(host: Host) -> None:
    host.install("broken", "raise ValueError('imported')")
    assert host.listed("broken")["state"] == "idle"
    assert host.hermes("memory", "status").returncode == 0


def test_the_traceback_of_a_provider_is_shown_on_request(host: Host) -> None:
    host.install("broken", "raise ValueError('bad day')")
    host.choose("broken")
    assert 'broken_memory.py", line 1' in host.hermes("--debug", "memory", "status").stderr


@pytest.mark.parametrize("name", ["holographic", "builtin"])
def test_a_package_that_takes_one_of_our_names_is_shadowed_and_never_runs(host: Host, name: str) -> None:
    host.install(name, "raise SystemExit('ran')", distribution="memory-stranger", module="stranger")
    host.choose(name)
    entry = host.listed(name, shadowed=True)
    assert entry["distribution"] == "memory-stranger"
    assert "comes first" in entry["reason"]
    report = host.turn()
    assert "ran" not in " ".join(report["problems"])
    assert report["stored"] == 2


@pytest.mark.parametrize("own", ["holographic", "builtin"])
def test_a_provider_that_calls_itself_by_one_of_our_names_is_refused(host: Host, own: str) -> None:
    host.install("harmless", provider(name=own))
    host.choose("harmless")
    entry = host.listed("harmless")
    assert entry["state"] == "failed"
    assert f"calls its provider {own!r}, which belongs to" in entry["reason"]
    assert_the_turn_went_on(host.turn())


def test_a_second_external_provider_is_refused_with_a_warning(host: Host) -> None:
    host.install("first", provider(name="first"))
    host.install("second", provider(every_hook(RAISES, but=("is_available",)), name="second"))
    host.choose("first")
    code = """
    import json
    from hermes_core import load_provider, open_memory
    with open_memory() as memory:
        taken = memory.manager.add_provider(load_provider("second", memory.home).factory, name="second")
        memory.start_session()
        states = {health.name: health.state for health in memory.manager.health()}
        print(json.dumps([taken, memory.problems(), states]))
    """
    ended = host.run("-c", dedent(code))
    states = {"builtin": "active", "first": "active", "second": "idle"}
    assert json.loads(ended.stdout) == [False, [], states]
    assert (
        "'second' is not active: only one external provider at a time, and 'first' is active" in ended.stderr
    )


# ------------------------------------------------------------------------------------------------- raise and hang


def test_a_provider_that_raises_in_every_hook_is_not_activated(host: Host) -> None:
    host.install("broken", provider(every_hook(RAISES)))
    host.choose("broken")
    report = host.turn()
    assert_the_turn_went_on(report)
    assert "is_available: RuntimeError: broken" in report["problems"][0]
    assert host.listed("broken")["state"] == "failed"
    status = host.hermes("memory", "status")
    assert status.returncode == 3
    assert "\x1b" not in status.stdout + status.stderr


def test_a_provider_that_raises_once_it_is_in_use_costs_the_turn_nothing(host: Host) -> None:
    host.install("broken", provider(every_hook(RAISES, but=STARTS) + TOOL))
    host.choose("broken")
    report = host.turn()
    assert_the_turn_went_on(report)
    assert report["turn"] < TURN_S
    assert "RuntimeError" in json.loads(report["answers"][0])["error"]
    assert report["waiting"] == 3  # the turn, the memory write and the end of the session
    commands = host.hermes("broken", "stats")
    assert commands.returncode == 1
    assert "has no commands: RuntimeError" in commands.stderr
    assert "\x1b" not in commands.stderr


def test_a_provider_that_hangs_in_every_hook_holds_neither_turn_nor_process(host: Host) -> None:
    host.install("broken", provider(every_hook(HANGS)))
    host.choose("broken")
    status = host.hermes("memory", "status")
    assert status.returncode == 3
    assert "is_available: no answer within 1 s" in status.stderr
    assert_the_turn_went_on(host.turn())
    assert host.listed("broken")["state"] == "failed"
    commands = host.hermes("broken", "stats")
    assert commands.returncode == 1
    assert "has no commands: no answer within 1 s" in commands.stderr


@pytest.mark.slow
def test_a_provider_that_hangs_once_it_is_in_use_is_late_within_its_deadlines(host: Host) -> None:
    host.install("broken", provider(every_hook(HANGS, but=STARTS) + TOOL))
    host.choose("broken")
    began = time.monotonic()
    hooks = ("system_prompt_block", "prefetch", "handle_tool_call", "on_pre_compress")
    report = host.turn(**dict.fromkeys((*hooks, "sync_turn", "on_memory_write"), 0.3))
    assert time.monotonic() - began < MUST_END
    assert_the_turn_went_on(report)
    assert report["turn"] < TURN_S
    assert "'broken_tool' skipped" in json.loads(report["answers"][0])["error"]
    assert report["waiting"] == 3
    assert "'broken' is degraded" in report["problems"][0]


@pytest.mark.slow
def test_an_initialize_that_hangs_costs_the_start_two_seconds(host: Host) -> None:
    host.install(
        "broken", provider(f"def initialize(self):\n    {HANGS}\ndef prefetch(self):\n    return 'x'")
    )
    host.choose("broken")
    report = host.turn()
    assert_the_turn_went_on(report)
    assert report["turn"] < TURN_S
    assert "initialize has run for " in report["problems"][0]


# -------------------------------------------------------------------------------------------------- life and death


@pytest.mark.slow
def test_an_initialize_that_ends_after_the_shutdown_is_shut_down(host: Host) -> None:
    body = """
    def initialize(self, session):
        import pathlib, time
        self.log = pathlib.Path(session.home, "log")
        while not pathlib.Path(session.home, "may start").exists():
            time.sleep(0.01)
        self.log.write_text("ready ")
    def prefetch(self):
        self.log.write_text("asked")
    def shutdown(self):
        with self.log.open("a") as file:
            file.write("shut down")
    """
    host.install("slow", provider(body, name="slow"))
    host.choose("slow")
    code = """
    import pathlib, time
    from hermes_core import open_memory
    memory = open_memory()
    session = memory.start_session()
    memory.close()
    log = pathlib.Path(session.home, "log")
    assert not log.exists()
    pathlib.Path(session.home, "may start").touch()
    until = time.monotonic() + 60
    while not (log.exists() and log.read_text().endswith("shut down")):
        assert time.monotonic() < until
        time.sleep(0.01)
    """
    ended = host.run("-c", dedent(code))
    assert ended.returncode == 0, ended.stderr
    assert (host.home.path / "log").read_text() == "ready shut down"
    assert "slow did not end in time and is left behind" in ended.stderr


SQLITE = """
def initialize(self, session):
    import sqlite3
    self.db = sqlite3.connect(":memory:")
    self.db.execute("CREATE TABLE facts (text)")
    self.db.execute("INSERT INTO facts VALUES ('Likes tea')")
def prefetch(self):
    return self.db.execute("SELECT text FROM facts").fetchone()[0]
"""


def test_a_sqlite_connection_opened_in_initialize_works_in_prefetch(host: Host) -> None:
    host.install("local", provider(SQLITE, name="local"))
    host.choose("local")
    report = host.turn(**PATIENT)
    assert "Likes tea" in report["recall"]
    assert report["problems"] == []


def test_a_sqlite_connection_used_on_the_write_lane_is_refused_with_what_to_do(host: Host) -> None:
    body = SQLITE + "def sync_turn(self, turn):\n    self.db.execute('SELECT 1')\n"
    host.install("local", provider(body, name="local"))
    host.choose("local")
    code = """
    from hermes_core import open_memory
    with open_memory() as memory:
        memory.end_turn(memory.start_session(), "tea", "ok")
        while not (waiting := memory.manager.outbox.pending()[0]).error:
            memory.flush(0.1)
        print(waiting.error)
    """
    assert "open it with hermes_core.kit.Database" in host.run("-c", dedent(code)).stdout
