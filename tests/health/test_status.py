"""`hermes-memory memory status` says what is, with sources and remedies, and hides nothing because of something else."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes_core import MemoryProvider, MemoryWrite, open_memory
from hermes_core.cli import main
from hermes_core.config import Credentials, load_config, set_value
from hermes_core.errors import ConfigError
from hermes_core.health.provider import examine_outbox, hook_records, setting_lines
from hermes_core.health.status import Status, TrustStatus, status_of
from hermes_core.home import HermesHome
from hermes_core.kit import load_settings, save_settings
from tests.outbox_of import end_pauses, outbox_of, turn_rows

InstallPlugin = Callable[..., Path]
KEY = "lockbox-key-0123456789"


@pytest.fixture
def lockbox(hermes_home: HermesHome, install_plugin: InstallPlugin) -> HermesHome:
    """A home whose provider is chosen and not set up."""
    install_plugin()
    set_value(hermes_home, "memory.provider", "lockbox")
    return hermes_home


def problems(status: Status) -> str:
    return "\n".join(status.problems)


def test_a_home_without_anything_works(hermes_home: HermesHome) -> None:
    status = status_of(hermes_home)
    assert status.problems == status.warnings == ()
    assert status.selected is None
    assert status.builtin["memory"].limit == 2200


def test_built_in_memory_is_off_when_it_is_off(hermes_home: HermesHome) -> None:
    set_value(hermes_home, "memory.memory_enabled", False)
    assert not status_of(hermes_home).builtin["memory"].enabled
    assert "off" in CliRunner().invoke(main, ["memory", "status"]).output


def test_a_missing_key_is_named_with_variable_and_url(lockbox: HermesHome) -> None:
    status = status_of(lockbox)
    assert status.selected
    assert status.selected.state == "unavailable"
    assert [line.name for line in status.selected.missing] == ["api_key"]
    told = "put LOCKBOX_API_KEY into .env; get it at https://lockbox.example/keys"
    assert told in problems(status)
    assert CliRunner().invoke(main, ["memory", "status"]).exit_code == 3


def test_each_setting_tells_its_source_and_a_secret_only_its_end(
    lockbox: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_core import Field

    Credentials(lockbox).set("LOCKBOX_API_KEY", KEY)
    save_settings([Field("limit", int)], lockbox.path, "lockbox", {"limit": 9})
    monkeypatch.setenv("LOCKBOX_SERVER", "http://localhost")
    status = status_of(lockbox)
    assert status.selected
    assert {line.name: (line.value, line.source) for line in status.selected.settings} == {
        "api_key": ("...6789", ".env"),
        "mode": ("cloud", "default"),
        "server": ("http://localhost", "environment"),
        "limit": ("9", "file"),
    }
    assert KEY not in CliRunner().invoke(main, ["memory", "status", "--json"]).output


def test_a_wrong_value_is_named_with_its_file(lockbox: HermesHome) -> None:
    Credentials(lockbox).set("LOCKBOX_API_KEY", KEY)
    lockbox.provider_json("lockbox").write_text('{"limit": 900}')
    assert "'limit' in" in problems(status_of(lockbox))
    assert "from 1 up to 50" in problems(status_of(lockbox))


def test_a_clamped_number_is_a_warning_of_a_provider_that_works(lockbox: HermesHome) -> None:
    source = lockbox.plugins / "lockbox" / "__init__.py"
    source.write_text(source.read_text().replace("maximum=50)", "maximum=50, clamp=True)"))
    Credentials(lockbox).set("LOCKBOX_API_KEY", KEY)
    lockbox.provider_json("lockbox").write_text('{"limit": 500}')
    status = status_of(lockbox)
    assert status.selected
    assert status.selected.state == "active"
    assert [line.value for line in status.selected.settings if line.name == "limit"] == ["50"]
    assert any("is 500, so 50 is used" in warning for warning in status.warnings)
    assert status.problems == ()


def test_a_refused_key_is_named_with_the_remedy_of_the_provider(lockbox: HermesHome) -> None:
    Credentials(lockbox).set("LOCKBOX_API_KEY", "wrong-key-0123456789")
    status = status_of(lockbox)
    assert status.selected
    assert status.selected.state == "failed"
    assert "refuses the key; make a new one" in problems(status)


def test_the_last_error_of_an_earlier_process_is_told(lockbox: HermesHome) -> None:
    Credentials(lockbox).set("LOCKBOX_API_KEY", "down-key-0123456789")
    with open_memory(lockbox) as memory:
        memory.begin_turn(memory.start_session(), "where is the tent?")
    status = status_of(lockbox)
    assert status.selected
    assert status.selected.last_error
    assert status.selected.last_error.hook == "prefetch"
    assert "can't connect" in status.selected.last_error.error


def test_a_provider_that_is_not_installed_is_a_problem(hermes_home: HermesHome) -> None:
    set_value(hermes_home, "memory.provider", "nowhere")
    status = status_of(hermes_home)
    assert "nowhere" in problems(status)
    assert len(status.problems) == 1


def test_a_plugin_that_breaks_on_import_is_named(
    hermes_home: HermesHome, install_plugin: InstallPlugin
) -> None:
    install_plugin("broken", "from hermes_core import MemoryProvider\nimport not_there_at_all\n")
    set_value(hermes_home, "memory.provider", "broken")
    assert "not_there_at_all" in problems(status_of(hermes_home))


def test_a_tool_that_is_left_out_is_a_warning_with_the_reason(hermes_home: HermesHome) -> None:
    folder = hermes_home.plugins / "drawer"
    folder.mkdir(parents=True)
    folder.joinpath("__init__.py").write_text(
        """
from hermes_core import MemoryProvider

class Drawer(MemoryProvider):
    name = "drawer"

    def get_tool_schemas(self):
        return [{"name": "todo", "description": "List.", "parameters": {"type": "object", "properties": {}}}]
"""
    )
    set_value(hermes_home, "memory.provider", "drawer")
    told = "provider drawer: tool 'todo' is refused: the host uses that name"
    assert told in status_of(hermes_home).warnings
    assert "tool 'todo' is refused" in CliRunner().invoke(main, ["memory", "status"]).output


@pytest.mark.sqlite_only("a damaged or missing file")
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"garbage" * 1000,
        lambda data: data[:8192] + b"\xde" * 16384 + data[24576:],
    ],
    ids=["empty", "garbage", "pages"],
)
def test_a_damaged_store_does_not_hide_the_provider_and_is_told_once(
    lockbox: HermesHome, damage: Callable[[bytes], bytes]
) -> None:
    with open_memory(lockbox, provider="") as memory:
        memory.change_memory("add", content="likes tea")
        memory.end_turn(memory.start_session(), "where is the tent?", "in the garage")
    Credentials(lockbox).set("LOCKBOX_API_KEY", KEY)
    lockbox.state_db.write_bytes(damage(lockbox.state_db.read_bytes()))
    status = status_of(lockbox)
    assert status.selected
    assert (status.selected.name, status.selected.state) == ("lockbox", "active")
    assert status.builtin["memory"].entries is None  # they stand in the same file
    assert status.outbox.waiting is None
    assert "hermes-memory sessions repair" in problems(status)
    assert len(status.problems) == 1


@pytest.mark.sqlite_only("a file of a newer version")
def test_a_database_of_a_newer_version_is_told(hermes_home: HermesHome) -> None:
    with outbox_of(hermes_home) as outbox:
        assert outbox.depth == 0
    with contextlib.closing(sqlite3.connect(hermes_home.state_db, isolation_level=None)) as newer:
        newer.execute("INSERT INTO schema_migrations VALUES ('0100 of next year', 1)")
    status = status_of(hermes_home)
    assert "newer version" in problems(status)
    assert (status.outbox.waiting, status.builtin["memory"].entries) == (None, None)


def test_a_config_that_cant_be_read_is_one_line_with_the_place(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("memory:\n  memory_char_limit: many\n")
    done = CliRunner().invoke(main, ["memory", "status"])
    assert done.exit_code == 1
    assert "config.yaml line 2" in done.stderr


def test_a_key_with_a_typing_error_is_a_warning(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir(mode=0o700)
    hermes_home.config_yaml.write_text("memory:\n  memori_enabled: false\n")
    assert "did you mean" in status_of(hermes_home).config_warnings[0]


def test_rows_that_wait_and_dead_letters_are_counted_for_every_provider(hermes_home: HermesHome) -> None:
    with outbox_of(hermes_home, wall=lambda: 1000.0) as outbox:
        for row in turn_rows("t1", "t2"):
            outbox.put("old", row)
        first = outbox.next("old")
        assert first
        outbox.bury(first, "the account is gone")
    status = status_of(hermes_home)
    assert (status.outbox.waiting, status.outbox.dead_letters) == (1, 1)
    assert "1 write is a dead letter" in problems(status)


@pytest.mark.parametrize(("chosen", "state"), [("gone", "ok"), ("", "note")])
def test_what_waits_for_the_chosen_provider_is_its_own_also_while_it_is_uninstalled(
    hermes_home: HermesHome, chosen: str, state: str
) -> None:
    with outbox_of(hermes_home) as outbox:
        outbox.put("gone", *turn_rows("t1"))
    with open_memory(hermes_home, provider=chosen) as memory:
        (found,) = examine_outbox(memory)
    assert (found.state, "hermes-memory memory use gone" in found.remedy) == (state, state == "note")


HOLDER = """
import sys, time
from hermes_core import HermesHome
from hermes_core.outbox.lines import DeliveryLines
from hermes_core.storage.leases import Lease
from tests.outbox_of import outbox_of

with outbox_of(HermesHome.resolve(sys.argv[1])) as outbox:
    assert DeliveryLines(outbox, "old").next(()) is not None
    assert Lease(outbox.database, "session-chat-1").take()
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(os.name == "nt", reason="kills a process by a signal")
def test_the_leases_of_another_program_are_shown_and_of_one_that_was_killed_until_they_end(
    hermes_home: HermesHome,
) -> None:
    with outbox_of(hermes_home) as outbox:
        outbox.put("old", *turn_rows("t1"))
    assert status_of(hermes_home).leases == ()
    command = [sys.executable, "-c", HOLDER, str(hermes_home.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        status = status_of(hermes_home)
        assert [(lease.name, lease.process, lease.ended) for lease in status.leases] == [
            ("delivery to old", holder.pid, False),
            ("session chat-1", holder.pid, False),
        ]
        holder.kill()
    shown = CliRunner().invoke(main, ["memory", "status"]).stdout
    waits = f"waits for the lease of process {holder.pid}, which has ended, at most"
    assert " ".join(shown.split()).count(waits) == 2
    with open_memory(hermes_home, provider="") as memory:
        (found,) = examine_outbox(memory)
    assert waits in found.detail
    end_pauses(hermes_home)
    assert status_of(hermes_home).leases == ()


class Forgetful(MemoryProvider):
    name = "forgetful"

    def on_memory_write(self, write: MemoryWrite) -> None:
        """Takes everything."""


def test_when_the_last_write_was_taken_is_known(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home, provider=Forgetful()) as memory:
        memory.change_memory("add", content="likes tea")
        assert memory.flush()
        assert memory.manager.outbox.last_settled("forgetful")
        assert memory.manager.outbox.last_settled("another") is None


def test_json_holds_all_of_it(lockbox: HermesHome) -> None:
    found = json.loads(CliRunner().invoke(main, ["memory", "status", "--json"]).stdout)
    assert found["selected"]["settings"][0]["env"] == "LOCKBOX_API_KEY"
    assert found["builtin"]["user"]["limit"] == 1375
    assert found["problems"]


@pytest.mark.skipif(os.name == "nt", reason="modes are of POSIX")
def test_secrets_that_others_can_read_are_a_warning(hermes_home: HermesHome) -> None:
    Credentials(hermes_home).set("A_KEY", "x")
    hermes_home.env_file.chmod(0o644)
    assert "permissions of .env" in status_of(hermes_home).warnings[0]


def test_settings_that_do_not_count_are_left_out_unless_somebody_set_them(lockbox: HermesHome) -> None:
    from hermes_core import Field

    fields = (
        Field("mode", default="cloud"),
        Field("server", when={"mode": "self"}),
        Field("depth", int, 3, advanced=True),
        Field("account", required=True, advanced=True),
    )
    shown = [
        line.name for line in setting_lines(fields, load_settings(fields, lockbox.path, "lockbox"), lockbox)
    ]
    assert shown == ["mode", "account"]
    save_settings(fields, lockbox.path, "lockbox", {"server": "http://old", "depth": 4})
    shown = [
        line.name for line in setting_lines(fields, load_settings(fields, lockbox.path, "lockbox"), lockbox)
    ]
    assert shown == ["mode", "server", "depth", "account"]


@pytest.mark.parametrize("answer", ["1 / 0", "'odd'"])
def test_a_provider_that_can_not_read_its_settings_is_shown_with_those_of_its_file(
    hermes_home: HermesHome, answer: str
) -> None:
    folder = hermes_home.path / "plugins" / "odd"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "from hermes_core import Field, MemoryProvider\n\nclass Odd(MemoryProvider):\n    name = 'odd'\n"
        f"    settings = (Field('depth', int, 3),)\n    def read_settings(self, home):\n        return {answer}\n"
    )
    set_value(hermes_home, "memory.provider", "odd")
    selected = status_of(hermes_home).selected
    assert selected
    assert [(line.name, line.value, line.source) for line in selected.settings] == [("depth", "3", "default")]


def test_a_setting_that_depends_on_one_that_is_not_declared_is_not_shown(lockbox: HermesHome) -> None:
    from hermes_core import Field

    fields = [Field("server", default="http://x", when={"mode": "remote"}), Field("depth", int, 3)]
    assert [
        line.name for line in setting_lines(fields, load_settings(fields, lockbox.path, "lockbox"), lockbox)
    ] == ["depth"]


def test_a_key_inside_a_table_of_settings_is_not_shown(lockbox: HermesHome) -> None:
    from hermes_core import Field

    lockbox.provider_json("lockbox").write_text('{"engine": {"model": "small", "api_key": "k-0123456789"}}')
    fields = [Field("engine", dict)]
    (line,) = setting_lines(fields, load_settings(fields, lockbox.path, "lockbox"), lockbox)
    assert "small" in line.value
    assert "k-0123456789" not in line.value


def test_each_hook_tells_its_last_success_and_latency_also_of_an_earlier_process(lockbox: HermesHome) -> None:
    Credentials(lockbox).set("LOCKBOX_API_KEY", KEY)
    with open_memory(lockbox) as memory:
        for _ in range(3):
            memory.begin_turn(memory.start_session(), "where is the tent?")
        (live,) = [one for one in memory.manager.health() if one.name == "lockbox"]
    assert live.hooks["prefetch"].calls == 3
    status = status_of(lockbox)
    assert status.selected
    (prefetch,) = [one for one in status.selected.hooks if one.hook == "prefetch"]
    assert prefetch.calls == 3
    assert prefetch.last_success == live.hooks["prefetch"].last_success
    assert prefetch.p95_ms == live.hooks["prefetch"].p95_ms
    assert "last success 2" in CliRunner().invoke(main, ["memory", "status"]).output


def test_a_success_is_not_forgotten_for_the_failures_after_it(lockbox: HermesHome) -> None:
    for key in (KEY, "down-key-0123456789"):
        Credentials(lockbox).set("LOCKBOX_API_KEY", key)
        with open_memory(lockbox) as memory:
            memory.begin_turn(memory.start_session(), "where is the tent?")
    (prefetch,) = [one for one in hook_records(lockbox, "lockbox") if one.hook == "prefetch"]
    assert prefetch.last_success is not None
    assert prefetch.p95_ms is not None


def test_a_hook_without_a_success_says_so(lockbox: HermesHome) -> None:
    Credentials(lockbox).set("LOCKBOX_API_KEY", "down-key-0123456789")
    with open_memory(lockbox) as memory:
        memory.begin_turn(memory.start_session(), "where is the tent?")
    (prefetch,) = [one for one in hook_records(lockbox, "lockbox") if one.hook == "prefetch"]
    assert prefetch.p95 == "none of 1 call went well"


def test_a_provider_whose_last_call_failed_is_no_working_one_until_a_call_or_self_test_went_well(
    lockbox: HermesHome,
) -> None:
    Credentials(lockbox).set("LOCKBOX_API_KEY", "down-key-0123456789")
    with open_memory(lockbox) as memory:
        memory.begin_turn(memory.start_session(), "where is the tent?")
    assert "its last prefetch failed: " in problems(status_of(lockbox))
    assert CliRunner().invoke(main, ["memory", "status"]).exit_code == 3
    Credentials(lockbox).set("LOCKBOX_API_KEY", KEY)
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 0
    assert status_of(lockbox).problems == ()


def test_what_is_accepted_without_a_look_is_shown(hermes_home: HermesHome) -> None:
    set_value(hermes_home, "memory.accepted_origins", ["web", "import"])
    assert status_of(hermes_home).trust == TrustStatus("guarded", ("web", "import"))
    shown = CliRunner().invoke(main, ["memory", "status"]).stdout
    assert "accepted without a look: notes from a web page, an import" in " ".join(shown.split())


def test_an_origin_that_does_not_exist_is_not_accepted(hermes_home: HermesHome) -> None:
    for wrong in ("pages", "person", "webb"):
        with pytest.raises(ConfigError, match="'user', 'provider', 'import', 'tool', 'web'"):
            set_value(hermes_home, "memory.accepted_origins", [wrong])
    hermes_home.path.mkdir(parents=True, exist_ok=True)
    hermes_home.config_yaml.write_text("memory: {accepted_origins: [webb]}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="accepted_origins"):
        load_config(hermes_home)
