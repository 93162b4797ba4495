"""The provider on the real `brv` from npm, with stand-ins of its identity server and of a model's endpoint.

HERMES_TEST_BRV=/path/to/brv   a program that is installed already; without it npm installs one for the run
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import pytest
from hermes_byterover import ByteRoverProvider

from hermes_core import HermesHome, MemoryWrite, Query, Session, SessionSwitch, ToolCall, Turn, open_memory
from hermes_core.contract.values import Check
from hermes_core.kit import BackendAuthError, BackendRefused, BackendUnavailable
from hermes_memory_testing import StandIn
from hermes_memory_testing.model_server import ModelServer, Reply
from tests.forgetting_cells import ROWS, exported, hold
from tests.fresh import fresh_faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

PATIENCE = 180.0
"""Seconds in which a machine that has much else to do gets everything done."""

START_WAIT = 2.0
"""Seconds that a start waits for a provider, once."""

PACKAGE = "byterover-cli@^3.14"
WORLD = ("IAM", "COGIT", "BILLING", "LLM", "GIT_REMOTE")
SAID = "My tortoise is called Quillfeather."
ASKED = "What is my tortoise called?"

KEEP = """// keep what was given
(async () => {
  const text = String(VARIABLE);
  const title = (t) => 'note ' + [...t].reduce((sum, c) => (sum * 31 + c.charCodeAt(0)) >>> 0, 7);
  if (text.startsWith('[hermes rewind ')) {
    const before = text.slice(text.indexOf('[hermes turn '));
    return await tools.curate([{type: 'DELETE', path: 'said/notes', title: title(before), reason: 'taken back',
      confidence: 'high', impact: 'low'}]);
  }
  return await tools.curate([{type: 'UPSERT', path: 'said/notes', title: TITLE || title(text), summary: 'what was said',
    reason: 'said', confidence: 'high', impact: 'IMPACT', content: {narrative: {highlights: text}}}]);
})()"""
"""What the model lets brv run: it keeps every text as a note of its own, and deletes the note of one taken back."""


Kept = TypeVar("Kept")


class World:
    """What brv reaches out to: discovery of its identity server, and a model that does as it is told."""

    def __init__(self) -> None:
        self.model = ModelServer([self._reply])
        self.identity = StandIn().start()
        self.identity.route("GET", "/api/v1/oidc/.well-known/openid-configuration", self._discovery)
        self.well()

    def well(self) -> None:
        """A model that keeps each text as a note of its own."""
        self.title, self.impact, self.keeps, self.status = "", "low", True, 200

    def close(self) -> None:
        self.model.close()
        self.identity.close()

    def _discovery(self, _request: Any) -> Any:
        url = self.identity.url
        return {"issuer": url, "authorization_endpoint": f"{url}/authorize", "token_endpoint": f"{url}/token"}

    def _reply(self, request: dict[str, Any]) -> Reply:
        messages = request["messages"]
        variable = re.search(r"__curate_ctx_\w+", json.dumps(messages))
        if self.status != 200:
            return Reply(status=self.status, error=f"scripted {self.status}")
        if not self.keeps or variable is None or any(one["role"] == "tool" for one in messages):
            return Reply("It is called Quillfeather.")
        code = KEEP.replace("VARIABLE", variable[0]).replace("TITLE", repr(self.title))
        return Reply(calls=[("code_exec", {"code": code.replace("IMPACT", self.impact)})])


class Place:
    """A home with settings, a provider on it, and the daemon that goes with it.

    What is late is tried again, as the manager does.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        path.mkdir()
        (path / "byterover.json").write_text(json.dumps(settings), encoding="utf-8")
        (path / "config.yaml").write_text("recall:\n  deadline: 20\n", encoding="utf-8")
        (path / ".env").touch(mode=0o600)
        (path / ".env").write_text("BRV_MODEL_API_KEY=sk-model\n", encoding="utf-8")
        self.path = path
        self.provider = ByteRoverProvider()

    def session(self, id_: str = "s1", **identity: Any) -> Session:
        return Session(id_, home=str(self.path), **identity)

    def start(self) -> None:
        in_the_end(lambda: self.provider.initialize(self.session()))

    def tool(self, name: str, **arguments: Any) -> Any:
        call = ToolCall(name, arguments)
        return json.loads(in_the_end(lambda: self.provider.handle_tool_call(call, self.session())))

    def say(self, turn: Turn) -> None:
        in_the_end(lambda: self.provider.sync_turn(turn, self.session()))

    def write(self, *values: Any, **named: Any) -> None:
        self.provider.on_memory_write(MemoryWrite(*values, **named), self.session())

    def recalled(self, question: str, session: Session | None = None) -> str:
        """What is recalled now."""
        asks = session or self.session()
        return in_the_end(lambda: self.provider.prefetch(Query(question), asks)).render()

    def recalls(self, question: str, word: str) -> bool:
        """Whether it is recalled now, or once brv's index was renewed."""
        return within(PATIENCE, lambda: word in self.recalled(question))

    def stop(self) -> None:
        stop_daemon(self.path)


def in_the_end(call: Callable[[], Kept]) -> Kept:
    """What `call` returns; tried again while brv is late."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except BackendUnavailable:
            if time.monotonic() > until:
                raise
        time.sleep(1.0)


def within(seconds: float, seen: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > until:
            return False
        time.sleep(1.0)
    return True


def daemon_of(home: Path) -> int | None:
    file = home / "byterover-data" / "brv" / "daemon.json"
    return int(json.loads(file.read_text(encoding="utf-8"))["pid"]) if file.exists() else None


def stop_daemon(home: Path, number: int = signal.SIGTERM) -> None:
    """End the daemon of a home, which ends its agents; wait until it is gone."""
    pid = daemon_of(home)
    if pid is None:
        return
    try:
        os.kill(pid, number)
        if not within(15.0, lambda: not Path(f"/proc/{pid}").exists()):
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


@pytest.fixture(scope="module")
def brv(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program."""
    given = os.environ.get("HERMES_TEST_BRV", "")
    if given:
        return given
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    prefix = tmp_path_factory.mktemp("npm")
    words = [npm, "install", "--prefix", str(prefix), "--no-audit", "--no-fund", PACKAGE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500)
    program = prefix / "node_modules" / ".bin" / "brv"
    if not program.exists():
        pytest.skip(f"npm can't install {PACKAGE}: {done.stderr.strip()[-200:]}")
    return str(program)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The outer world on loopback; nothing else is reached."""
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        for name in WORLD:
            patch.setenv(f"BRV_{name}_BASE_URL", world.identity.url)
        patch.setenv("BRV_WEB_APP_URL", world.identity.url)
        patch.setenv("BRV_WEBUI_PORT", "17707")
        patch.setenv("HOME", str(tmp_path_factory.mktemp("person")))
        yield world
    world.close()


@pytest.fixture(scope="module")
def settings(brv: str, world: World) -> dict[str, Any]:
    return {
        "command": brv,
        "model_provider": "openai-compatible",
        "model_base_url": world.model.base_url,
        "model": "literal",
        "search_timeout": 20.0,  # the tests run on busy machines
    }


@pytest.fixture(scope="module")
def _place(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("homes") / "home", settings)
    place.start()
    yield place
    place.stop()


@pytest.fixture
def place(_place: Place, world: World) -> Place:
    """One home for all, because a daemon takes seconds to start; a model that keeps what it is given."""
    world.well()
    return _place


def test_an_empty_tree_is_healthy(settings: dict[str, Any], world: World, hermes_home: HermesHome) -> None:
    world.well()
    hermes_home.path.mkdir()
    hermes_home.provider_json("byterover").write_text(json.dumps(settings))
    try:
        tools = {"brv_query": {"query": "What is the tortoise called?"}, "brv_status": {}}
        assert fresh_faults(hermes_home, "byterover", tools) == []
    finally:
        stop_daemon(hermes_home.path)


def test_its_own_check_passes(place: Place) -> None:
    checks: list[Check] = []

    def passes() -> bool:
        checks[:] = in_the_end(lambda: place.provider.check(place.session()))
        return all(check.ok for check in checks)

    assert within(PATIENCE, passes), checks
    assert checks[0].detail.startswith("brv 3.")
    assert checks[3].detail == "openai-compatible literal"


def test_what_a_person_says_is_recalled_in_a_later_session(place: Place) -> None:
    with open_memory(place.path, provider="byterover") as memory:
        memory.end_turn(
            memory.start_session(), "Our rehearsal cellar in Lund is called Bellwether.", "Noted."
        )
        assert within(PATIENCE, lambda: memory.flush(60))
        session = memory.start_session()
        assert within(
            PATIENCE,
            lambda: "Bellwether" in memory.begin_turn(session, "What is the cellar in Lund called?").context,
        )
        assert memory.begin_turn(session, "Where is the zeppelin hangar?").context == ""


def test_a_turn_that_comes_twice_is_curated_once(place: Place) -> None:
    turn = Turn("turn-1", 1, SAID, "Noted.", at=1.8e9)
    for _ in range(2):
        place.say(turn)
    entries = in_the_end(lambda: place.provider.client.log(place.provider.tree(place.session()).folder, 20))
    assert [entry.kept for entry in entries if "turn-1" in entry.context] == [True]
    assert place.recalls(ASKED, "Quillfeather")


def test_a_turn_that_was_taken_back_is_deleted(place: Place) -> None:
    session = place.session()
    place.say(Turn("turn-9", 1, "The spare key hangs behind Ostrander.", "Noted.", at=1.8e9))
    assert place.recalls("Where does the spare key hang?", "Ostrander")
    switch = SessionSwitch("x", session, session, "rewind", rewound_turns=("turn-9",))
    in_the_end(lambda: place.provider.on_session_switch(switch))
    assert "Ostrander" not in place.recalled("Where does the spare key hang?")


def test_curated_memory_is_found_replaced_and_removed(place: Place) -> None:
    first, second = "Prefers oolong tea at noon.", "Prefers mate tea at noon."
    place.write("w1", "add", "user", first)
    assert place.recalls("Which tea at noon?", "oolong")
    place.write("w2", "replace", "user", second, previous=first)
    assert place.recalls("Which tea at noon?", "mate")
    assert "oolong" not in place.recalled("Which tea at noon?")
    place.write("w3", "remove", "user", previous=second)
    assert "mate" not in place.recalled("Which tea at noon?")


def test_tools_answer_with_sources_or_that_nothing_is_known(place: Place) -> None:
    kept = place.tool("brv_curate", content="--limit 3: We chose Postgres for its row-level security.")
    assert kept["changes"][0].startswith("said/notes/note_")
    answered = place.tool("brv_query", query="Why did we choose Postgres?")
    assert answered["result"]
    assert answered["sources"]
    for _ in range(2):  # the second comes from brv's cache
        unknown = place.tool("brv_query", query="Where is the zeppelin hangar of Friedrichshafen?")
        assert unknown == {"result": "No relevant memories found."}
    assert place.tool("brv_status")["status"]["model"] == "openai-compatible literal"


def test_changes_that_wait_for_review_are_shown(place: Place, world: World) -> None:
    world.title, world.impact = "deployment", "high"
    place.tool("brv_curate", content="Deploys go out on Thursdays.")
    saved = place.tool("brv_curate", content="Deploys go out on Mondays from now on.")
    assert saved["pending_review"] >= 1
    assert place.tool("brv_status")["status"]["pending_review"] >= 1


def test_what_leaves_the_context_is_kept_and_named(place: Place) -> None:
    said = [
        {"role": "user", "content": "The canary group is called Finch."},
        {"role": "assistant", "content": "Noted."},
    ]
    told = in_the_end(lambda: place.provider.on_pre_compress(said, 0, place.session()))
    assert re.search(r"^- said/notes/note_\d+\.md: what was said$", told, re.MULTILINE)


def test_a_model_that_stores_nothing_is_a_failure_and_tried_again(place: Place, world: World) -> None:
    turn = Turn("turn-2", 1, "The heron is called Wibblesworth.", "Noted.", at=1.8e9)
    world.keeps = False
    with pytest.raises(BackendRefused, match="stored nothing"):
        place.say(turn)
    world.keeps = True
    place.say(turn)
    assert place.recalls("What is the heron called?", "Wibblesworth")


@pytest.mark.parametrize(("status", "error"), [(401, BackendAuthError), (500, BackendUnavailable)])
def test_a_model_that_fails_is_told_and_the_turn_comes_through_later(
    place: Place, world: World, status: int, error: type[Exception]
) -> None:
    turn = Turn(f"turn-{status}", 1, f"The heron of {status} is called Alonso.", "Noted.", at=1.8e9)
    world.status = status
    once = place.provider.sync_turn if error is BackendUnavailable else lambda turn, _: place.say(turn)
    with pytest.raises(error):
        once(turn, place.session())
    world.well()
    place.say(turn)
    assert place.recalls(f"What is the heron of {status} called?", "Alonso")


def test_a_daemon_that_was_killed_is_started_again(place: Place) -> None:
    place.write("w9", "add", "memory", "The attic smells of quinces.")
    before = daemon_of(place.path)
    stop_daemon(place.path, signal.SIGKILL)
    assert place.recalls("What does the attic smell of?", "quinces")
    assert daemon_of(place.path) != before


def test_users_and_profiles_do_not_see_each_other(
    place: Place, settings: dict[str, Any], tmp_path: Path
) -> None:
    place.write("w8", "add", "user", "Keeps axolotls.")
    assert place.recalls("Who keeps axolotls?", "axolotls")
    bob = place.session("b", platform="telegram", user_id="bob")
    assert place.recalled("Who keeps axolotls?", bob) == ""
    other = Place(tmp_path / "other", settings)
    try:
        other.start()
        assert other.recalled("Who keeps axolotls?") == ""
        assert daemon_of(other.path) not in (None, daemon_of(place.path))
    finally:
        other.stop()


def test_a_box_that_is_offline_costs_one_bounded_wait(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRV_IAM_BASE_URL", "http://127.0.0.1:9")
    offline = Place(tmp_path / "offline", {**settings, "start_timeout": 15})
    try:
        with open_memory(offline.path, provider="byterover") as memory:
            took = [
                _seconds(lambda: memory.begin_turn(memory.start_session(), "Who keeps axolotls?"))
                for _ in range(5)
            ]
            assert took[0] < 10.0
            assert median(took[1:]) < 0.5
            assert max(took[1:]) < START_WAIT
            assert within(PATIENCE, lambda: "has not ended after 15 s" in str(memory.problems()))
    finally:
        offline.stop()


def _seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


@pytest.mark.parametrize("row", ROWS)
def test_each_cell_of_the_table_on_the_page_holds(
    settings: dict[str, Any], world: World, tmp_path: Path, row: str
) -> None:
    world.well()
    place = Place(tmp_path / "home", settings)
    try:
        place.start()
        with open_memory(place.path, provider=place.provider) as memory:
            hold(
                "byterover",
                row,
                memory,
                lambda name, session: name in exported(memory, "byterover", session),
                patience=PATIENCE,
            )
    finally:
        place.stop()
