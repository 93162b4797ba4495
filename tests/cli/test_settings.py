"""`hermes-memory config`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from hermes_core import HermesHome
from hermes_core.cli import main
from hermes_core.config import KEYS
from tests.cli.conftest import Hermes


def test_a_value_is_written_beside_what_is_there_and_read_back(
    hermes: Hermes, hermes_home: HermesHome
) -> None:
    file = hermes_home.config_yaml
    hermes_home.path.mkdir()
    file.write_text("# mine\ndisplay:\n  theme: dark\n", encoding="utf-8")
    done = hermes("config", "set", "agent.max_iterations", "12")
    assert done.stdout == "agent.max_iterations is 12\n"
    assert hermes("config", "get", "agent.max_iterations").stdout == "12\n"
    assert file.read_text(encoding="utf-8").startswith("# mine\ndisplay:\n  theme: dark\n")


@pytest.mark.parametrize(
    ("key", "typed", "shown"),
    [
        ("memory.memory_enabled", "off", "false\n"),
        ("memory.memory_enabled", "true", "true\n"),
        ("recall.semantic", "off", "off\n"),
        ("model.name", "12", "12\n"),
        ("agent.compress_at", "0.5", "0.5\n"),
        ("providers.block", "honcho, mem0", "honcho\nmem0\n"),
        ("providers.block", '["honcho", "mem, 0"]', "honcho\nmem, 0\n"),
        ("providers.block", "[]", ""),
    ],
)
def test_a_value_is_what_its_key_takes(hermes: Hermes, key: str, typed: str, shown: str) -> None:
    hermes("config", "set", key, typed)
    assert hermes("config", "get", key).stdout == shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "memry.provider", "x"), "did you mean 'memory.provider'?"),
        (("get", "memry.provider"), "did you mean 'memory.provider'?"),
        (("unset", "memry.provider"), "did you mean 'memory.provider'?"),
        (("set", "provider", "x"), "did you mean 'memory.provider'?"),
        (("get", "no.such"), "hermes-memory config list shows all keys"),
        (
            ("set", "agent.max_iterations", "ten"),
            "agent.max_iterations must be a whole number of at least 1, is 'ten'",
        ),
        (("set", "agent.max_iterations", "010"), "is '010'; write for example 40"),
        (("set", "agent.compress_at", "nan"), "must be a number from 0.1 up to 0.95, is 'nan'"),
        (("set", "providers.block", '["a", 1]'), "must be a list, each item a string, is '[\"a\", 1]'"),
        (("set", "memory.accepted_origins", "web, wab"), "is ['web', 'wab']"),
        (("set", "identity.owners", "42"), "must be a list of ids, each as telegram:123"),
        (("set", "agent.max_iterations", ""), "must be a whole number"),
        (
            ("set", "agent.max_iterations", "-1"),
            "agent.max_iterations must be a whole number of at least 1, is '-1'",
        ),
        (("set", "agent.max_iterations", "[1"), "must be a whole number"),
        (("set", "OPENAI_API_KEY", "k"), "write keys and passwords as NAME=value into"),
    ],
)
def test_what_no_key_takes_is_refused_and_nothing_is_written(
    hermes: Hermes, hermes_home: HermesHome, words: tuple[str, ...], said: str
) -> None:
    done = hermes("config", *words, code=1)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not hermes_home.config_yaml.exists()


def test_a_key_taken_out_has_its_default_again(hermes: Hermes) -> None:
    hermes("config", "set", "recall.budget", "900")
    done = hermes("config", "unset", "recall.budget")
    assert done.stdout == f"recall.budget is {KEYS['recall.budget'].default}, the default\n"


def test_a_platform_of_the_hosts_has_a_key_for_its_toolsets(hermes: Hermes) -> None:
    key = "enabled_toolsets.my-app"
    assert hermes("config", "set", key, "todo, memory").stdout == f"{key} is todo, memory\n"
    assert hermes("config", "get", key).stdout == "todo\nmemory\n"
    hermes("config", "set", key, "")
    (listed,) = [row for row in json.loads(hermes("config", "list", "--json").stdout) if row["key"] == key]
    assert (listed["value"], listed["set"]) == ([], True)
    assert hermes("config", "unset", key).stdout == f"{key} is empty, the default\n"
    refused = hermes("config", "set", "enabled_toolsets.telegramm", "todo", code=1)
    assert "did you mean 'enabled_toolsets.telegram'?" in refused.stderr
    hermes("config", "set", "enabled_toolsets.", "todo", code=1)


def test_all_keys_are_listed_with_what_holds_and_which_the_file_says(
    hermes: Hermes, hermes_home: HermesHome
) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("memory:\n  provider: notes\nother: 1\n", encoding="utf-8")
    listed = {row["key"]: row for row in json.loads(hermes("config", "list", "--json").stdout)}
    assert listed.keys() == KEYS.keys()
    assert listed["memory.provider"] == {
        "key": "memory.provider",
        "value": "notes",
        "default": "",
        "set": True,
    }
    assert [key for key, row in listed.items() if row["set"]] == ["memory.provider"]
    told = hermes("config", "list").stdout
    assert str(hermes_home.config_yaml) in told
    assert "memory.flush_min_turns" in told


def test_an_unknown_key_in_the_file_is_named_beside_the_list(hermes: Hermes, hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("memory:\n  providr: notes\n", encoding="utf-8")
    done = hermes("config", "list", code=3)
    assert "did you mean" in done.stderr


def test_keys_are_completed() -> None:
    completion = ShellComplete(main, {}, "hermes-memory", "_HERMES_MEMORY_COMPLETE")
    found = completion.get_completions(["config", "get"], "memory.p")
    names = [item.value for item in found]
    assert names == [name for name in KEYS if name.startswith("memory.p")]
    assert "memory.provider" in names


@pytest.mark.parametrize(
    "command", ["memory use", "memory setup", "plugins export", "plugins remove", "providers uninstall"]
)
def test_names_of_providers_are_completed(notes: Path, command: str) -> None:
    completion = ShellComplete(main, {}, "hermes-memory", "_HERMES_MEMORY_COMPLETE")
    found = completion.get_completions(command.split(), "ho")
    assert [item.value for item in found] == ["holographic", "honcho"]
    assert [item.value for item in completion.get_completions(command.split(), "no")] == ["notes"]


def test_a_home_that_there_can_not_be_completes_nothing() -> None:
    completion = ShellComplete(main, {}, "hermes-memory", "_HERMES_MEMORY_COMPLETE")
    assert completion.get_completions(["--profile", "../x", "memory", "use"], "ho") == []


def test_a_date_that_there_is_none_of_is_refused_as_any_other_text(hermes: Hermes) -> None:
    assert (
        "agent.max_iterations" in hermes("config", "set", "agent.max_iterations", "2024-99-99", code=1).stderr
    )


@pytest.mark.parametrize(
    ("key", "typed", "shown", "value"),
    [
        ("memory.mnemosyne.default_scope", "global", "global", "global"),
        ("memory.hy-memory.port", "8420", "8420", 8420),
        ("memory.wiki.auto_sleep", "true", "true", True),
        ("memory.wiki.enabled", "off", "false", False),
        ("memory.wiki.threshold", "-0.25", "-0.25", -0.25),
        ("memory.wiki.at", "12:30", "12:30", "12:30"),
        ("memory.wiki.code", "010", "010", "010"),
        ("memory.wiki.vaults", '["a", "b c"]', "a, b c", ["a", "b c"]),
        ("memory.wiki.deep.er.value", "x", "x", "x"),
        ("memory.wiki.label", "null", "null", "null"),
        ("memory.wiki.list", "[not json", "[not json", "[not json"),
    ],
)
def test_a_key_in_the_block_of_any_provider_can_be_set_and_read(
    hermes: Hermes, hermes_home: HermesHome, key: str, typed: str, shown: str, value: object
) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("# mine\nmemory:\n  provider: wiki  # chosen\n", encoding="utf-8")
    assert hermes("config", "set", key, typed).stdout == f"{key} is {shown}\n"
    assert json.loads(hermes("config", "get", key, "--json").stdout) == value
    text = hermes_home.config_yaml.read_text(encoding="utf-8")
    assert text.startswith("# mine\nmemory:\n  provider: wiki  # chosen\n")
    hermes("config", "set", "memory.wiki.second", "2")
    assert json.loads(hermes("config", "get", key, "--json").stdout) == value
    assert hermes("config", "unset", key).stdout == f"{key} is not set\n"
    assert f"{key} is not set" in hermes("config", "get", key, code=1).stderr
    assert hermes("config", "get", "memory.wiki.second").stdout == "2\n"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("memory.provider.name", "'memory.provider.name' is no key"),
        ("memory.wiki.tags.x", "memory.wiki.tags is 'plain' and no block"),
        ("memory.wiki..x", "is no key"),
        ("memory.wiki.a b", "is no key"),
    ],
)
def test_a_key_that_no_provider_can_have_is_refused(
    hermes: Hermes, hermes_home: HermesHome, key: str, said: str
) -> None:
    hermes("config", "set", "memory.wiki.tags", "plain")
    before = hermes_home.config_yaml.read_bytes()
    assert said in hermes("config", "set", key, "x", code=1).stderr
    assert hermes_home.config_yaml.read_bytes() == before


OTHERS = """
memory:
  provider: wiki
  wiki: {vault: /notes, api_key: abcdefgh12345678}
  auto_sleep: true
terminal:
  backend: docker
  ports: [8080, 9090]
  8080: web
compression: {checkpoint_required: false, since: 2026-01-02}
timezone: Europe/Berlin
"""


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("memory.wiki.vault", "/notes"),
        ("memory.wiki", "vault: /notes\napi_key: '[redacted:api_key]'"),
        ("memory.auto_sleep", "true"),
        ("terminal.backend", "docker"),
        ("terminal.ports", "8080\n9090"),
        ("terminal.ports.1", "9090"),
        ("terminal.8080", "web"),
        ("compression.checkpoint_required", "false"),
        ("compression.since", "2026-01-02"),
        ("timezone", "Europe/Berlin"),
    ],
)
def test_any_value_that_is_there_can_be_read(
    hermes: Hermes, hermes_home: HermesHome, key: str, shown: str
) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text(OTHERS, encoding="utf-8")
    assert hermes("config", "get", key).stdout == f"{shown}\n"
    json.loads(hermes("config", "get", key, "--json").stdout)


def test_a_secret_in_the_block_of_a_provider_is_written_and_not_printed(
    hermes: Hermes, hermes_home: HermesHome
) -> None:
    done = hermes("config", "set", "memory.wiki.api_key", "abcdefgh12345678")
    assert "abcdefgh" not in done.stdout + done.stderr + hermes("config", "get", "memory.wiki.api_key").stdout
    assert ".env" in done.stderr
    assert "api_key: abcdefgh12345678" in hermes_home.config_yaml.read_text()


# ---------------------------------------------------------------------------- edit


def test_the_file_is_edited_whole_and_checked(
    hermes: Hermes, hermes_home: HermesHome, editor: Callable[[str], None]
) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("# mine\nrecall:\n  budget: 900\n")
    editor("text = text.replace('900', '800')")
    assert hermes("config", "edit").stdout == f"saved {hermes_home.config_yaml}\n"
    assert hermes_home.config_yaml.read_text() == "# mine\nrecall:\n  budget: 800\n"
    assert hermes("config", "edit").stdout == "nothing was changed\n"


def test_a_home_without_the_file_gets_it_from_the_editor(
    hermes: Hermes, hermes_home: HermesHome, editor: Callable[[str], None]
) -> None:
    editor("text += 'memory:\\n  providr: x\\n'")
    done = hermes("config", "edit", code=3)
    assert "did you mean" in done.stderr
    assert hermes_home.config_yaml.read_text() == "memory:\n  providr: x\n"


@pytest.mark.parametrize("text", ["recall: [", "recall:\n  budget: many\n"])
def test_a_file_that_can_not_be_read_is_not_saved(
    hermes: Hermes, hermes_home: HermesHome, editor: Callable[[str], None], text: str
) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("recall:\n  budget: 900\n")
    editor(f"text = {text!r}")
    done = hermes("config", "edit", code=1)
    assert done.stderr.startswith("error: ")
    assert hermes_home.config_yaml.read_text() == "recall:\n  budget: 900\n"


def test_a_change_of_another_program_meanwhile_is_not_lost(
    hermes: Hermes, hermes_home: HermesHome, editor: Callable[[str], None]
) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("recall:\n  budget: 900\n")
    other = f"pathlib.Path({str(hermes_home.config_yaml)!r}).write_text('recall: {{}}')"
    editor(f"{other}\ntext = text.replace('900', '800')")
    assert "was changed by another program meanwhile" in hermes("config", "edit", code=1).stderr
    assert hermes_home.config_yaml.read_text() == "recall: {}"


def test_a_missing_editor_is_an_error(
    hermes: Hermes, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", "no-such-editor-anywhere")
    assert hermes("config", "edit", code=1).stderr
    assert not hermes_home.config_yaml.exists()


def test_the_editor_leaves_line_ends_and_mode_as_they_are(
    hermes: Hermes, hermes_home: HermesHome, editor: Callable[[str], None]
) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_bytes(b"# mine\r\nrecall:\r\n  budget: 900")
    hermes_home.config_yaml.chmod(0o640)
    editor("")
    assert hermes("config", "edit").stdout == "nothing was changed\n"
    editor("text = text.replace('900', '800')")
    hermes("config", "edit")
    assert hermes_home.config_yaml.read_bytes() == b"# mine\r\nrecall:\r\n  budget: 800\r\n"
    if sys.platform != "win32":
        assert hermes_home.config_yaml.stat().st_mode & 0o777 == 0o640
