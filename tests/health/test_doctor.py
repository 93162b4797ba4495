"""`hermes-memory doctor` really writes, recalls and deletes, touches nothing of the person's, and names what breaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hermes_core import MemoryProvider, Turn, open_memory
from hermes_core.cli import main
from hermes_core.config import Credentials, set_value
from hermes_core.health.doctor import SOURCE, Examination, examine, try_turn
from hermes_core.home import HermesHome
from hermes_memory_testing.fakes import RecordingProvider
from tests.outbox_of import sessions_of

InstallPlugin = Callable[..., Path]
KEY = "lockbox-key-0123456789"


def failures(found: Examination) -> dict[str, str]:
    return {one.what: f"{one.detail}; {one.remedy}" for one in found.findings if one.failed}


def set_up(home: HermesHome, install_plugin: InstallPlugin, key: str = KEY) -> None:
    install_plugin()
    Credentials(home).set("LOCKBOX_API_KEY", key)
    set_value(home, "memory.provider", "lockbox")


def test_a_new_home_works_and_only_what_stands_behind_it_is_left(hermes_home: HermesHome) -> None:
    assert failures(examine(hermes_home)) == {}
    with open_memory(hermes_home) as memory:
        assert memory.sessions.counts() == {"sessions": 0, "messages": 0}
        assert memory.curated.entries("memory") == ()
        assert memory.curated.history() == []
    assert [path.name for path in hermes_home.memories.iterdir() if path.name.startswith(".")] == []


def test_what_the_person_has_is_as_before(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        memory.change_memory("add", content="likes tea")
        session = memory.start_session("mine")
        memory.end_turn(session, "where is the tent?", "in the garage")
    before = hermes_home.memory_md.read_bytes()
    assert failures(examine(hermes_home)) == {}
    with open_memory(hermes_home) as memory:
        assert hermes_home.memory_md.read_bytes() == before
        assert [one.session.id for one in memory.sessions.list_sessions()] == ["mine"]
        assert len(memory.curated.history()) == 1


def test_a_full_store_is_no_failure_of_the_try(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        memory.change_memory("add", content="x" * 2200)
    assert failures(examine(hermes_home)) == {}


def test_the_provider_is_asked_as_a_turn_asks_and_is_sent_nothing(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        findings = list(try_turn(memory))
        memory.flush()
    assert {"initialize", "prefetch", "check"} <= set(provider.hooks)
    assert not {"sync_turn", "on_memory_write", "on_session_end"} & set(provider.hooks)
    assert "self-test of fake" in {one.what for one in findings}


def test_the_provider_is_tried_in_a_primary_session_with_a_scope_of_its_own(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        list(try_turn(memory))
        at_home = memory.local_session
    sessions = [arguments["session"] for _, arguments in provider.calls if "session" in arguments]
    assert {session.agent_context for session in sessions} == {"primary"}
    assert {session.owner for session in sessions} == {"cli:hermes-doctor"}
    assert at_home.scope not in {session.scope for session in sessions}


def test_the_session_of_a_try_that_was_killed_is_deleted_by_a_later_one(hermes_home: HermesHome) -> None:
    now = f"{SOURCE}-checknow"
    db = sessions_of(hermes_home)
    for name in (f"{SOURCE}-checkleft", now, "visit-42"):
        db.create_session(name, SOURCE)
        db.append_message(name, "user", "the word")
    db.database.execute("UPDATE sessions SET last_active = last_active - 3600 WHERE id != ?", (now,))
    db.close()
    assert failures(examine(hermes_home)) == {}
    db = sessions_of(hermes_home)
    # One is of another doctor at work, one of a host whose source has that name.
    assert {one.session.id for one in db.list_sessions()} == {now, "visit-42"}
    db.close()


def test_a_provider_that_works_passes(hermes_home: HermesHome, install_plugin: InstallPlugin) -> None:
    set_up(hermes_home, install_plugin)
    found = examine(hermes_home)
    assert failures(found) == {}
    assert "self-test of lockbox" in {one.what for one in found.findings}


def test_a_refused_key_is_named_with_its_cure(hermes_home: HermesHome, install_plugin: InstallPlugin) -> None:
    set_up(hermes_home, install_plugin, "wrong-key-0123456789")
    told = failures(examine(hermes_home))
    assert "refuses the key; make a new one" in told["provider lockbox"]
    assert "start the backend" not in told["provider lockbox"], "the provider names the remedy of this cause"


def test_a_cure_that_the_provider_names_itself_is_told_once(
    hermes_home: HermesHome, install_plugin: InstallPlugin
) -> None:
    cure = "hermes-memory memory setup lazy"
    install_plugin(
        "lazy",
        "from hermes_core import Availability, MemoryProvider\n"
        "class Lazy(MemoryProvider):\n    name = 'lazy'\n"
        f"    def is_available(self):\n        return Availability.no('no address', {cure!r})\n",
    )
    set_value(hermes_home, "memory.provider", "lazy")
    assert failures(examine(hermes_home))["provider lazy"].count(cure) == 1


def test_a_server_that_is_down_is_named_with_its_cure(
    hermes_home: HermesHome, install_plugin: InstallPlugin
) -> None:
    set_up(hermes_home, install_plugin, "down-key-0123456789")
    told = failures(examine(hermes_home))
    assert "can't connect to lockbox.example; start the server" in told["self-test of lockbox"]
    assert "recall of lockbox" in told


def test_a_missing_key_is_named_with_its_address(
    hermes_home: HermesHome, install_plugin: InstallPlugin
) -> None:
    install_plugin()
    set_value(hermes_home, "memory.provider", "lockbox")
    told = failures(examine(hermes_home))
    assert "https://lockbox.example/keys" in told["setting api_key"]


@pytest.mark.sqlite_only("a damaged or missing file")
def test_a_damaged_store_is_named_and_memory_is_not_tried(hermes_home: HermesHome) -> None:
    examine(hermes_home)
    hermes_home.state_db.write_bytes(b"garbage" * 1000)
    found = examine(hermes_home)
    assert "hermes-memory sessions repair" in failures(found)["state.db"]
    assert "not tried" in next(one.detail for one in found.findings if one.what == "a turn")


def test_a_conflict_in_the_notes_is_named_with_what_to_do(hermes_home: HermesHome) -> None:
    hermes_home.memories.mkdir(parents=True, mode=0o700)
    hermes_home.memory_md.write_bytes(b"\xff\xfe\xff not text")
    assert "MEMORY.md" in failures(examine(hermes_home))


def test_a_shadowed_plugin_is_named_with_both_places(
    hermes_home: HermesHome, install_plugin: InstallPlugin
) -> None:
    install_plugin("holographic", "from hermes_core import MemoryProvider\n")
    found = next(one for one in examine(hermes_home).findings if one.what == "plugin holographic")
    assert found.state == "warning"
    assert str(hermes_home.plugins / "holographic") in found.detail


class Quiet(MemoryProvider):
    name = "quiet"

    def sync_turn(self, turn: Turn) -> None:
        """Takes everything."""


def test_a_provider_without_a_self_test_is_no_failure(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home, provider=Quiet()) as memory:
        found = {one.what: one for one in try_turn(memory)}
    assert found["self-test of quiet"].state == "note"


@pytest.mark.parametrize("broken", [False, True])
def test_the_exit_code_says_whether_all_works(hermes_home: HermesHome, broken: bool) -> None:
    if broken:
        set_value(hermes_home, "memory.provider", "nowhere")
    done = CliRunner().invoke(main, ["doctor", "--json"])
    found: dict[str, Any] = json.loads(done.stdout)
    assert (done.exit_code, found["works"]) == ((3, False) if broken else (0, True))
    assert {"what", "state", "detail", "remedy", "safe_to_fix"} == set(found["findings"][0])


@pytest.mark.sqlite_only("a damaged or missing file")
def test_fix_repairs_says_so_and_the_next_run_has_nothing_to_do(hermes_home: HermesHome) -> None:
    examine(hermes_home)
    hermes_home.state_db.chmod(0o644)
    done = CliRunner().invoke(main, ["doctor", "--fix"])
    assert "mode set to 0600" in done.output
    assert not any(one.safe_to_fix for one in examine(hermes_home).findings)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("memory.accepted_origins", ["web", "import"], "notes from a web page go"),
        ("memory.accepted_origins", ["tool", "web"], "notes from a tool's result and a web page go"),
        ("memory.trust", "open", "memory.trust is open"),
    ],
)
def test_notes_that_nobody_looks_at_are_a_warning(
    hermes_home: HermesHome, key: str, value: object, named: str
) -> None:
    set_value(hermes_home, key, value)
    found = examine(hermes_home)
    (warning,) = [one for one in found.findings if one.what == "trust"]
    assert (warning.state, named in warning.detail) == ("warning", True)
    assert key in warning.remedy
    assert found.works


def test_accepted_imports_and_providers_are_no_warning(hermes_home: HermesHome) -> None:
    set_value(hermes_home, "memory.accepted_origins", ["import", "provider", "user"])
    assert [one for one in examine(hermes_home).findings if one.what == "trust"] == []
