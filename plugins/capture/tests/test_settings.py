"""The hooks in the settings of programs: what stands there stays, and what was added is taken back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_core.errors import ConfigError, StorageError
from hermes_core.storage.files import write_checked
from hermes_memory_capture.installs import Installs
from hermes_memory_capture.programs import PROGRAMS
from plugins.capture.tests.conftest import Account
from tests.table import table

TEXTS = [
    None,
    "",
    "\n",
    "{}",
    '{"hooks": {}}',
    '{ "x" : 1 }\r\n',
    '\ufeff{"env": {"A": "}"}, "hooks": {"Stop": []}}',
    '{\n\t// mine\n\t"permissions": {"allow": ["Bash(ls)", /* two */ "Read"]},\n\t"model": "opus",\n}\n',
    '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say \\"done\\""}]}],\n "stop": [{"command": "x"}]}}',
]
CASES = [
    (name, text)
    for name, program in PROGRAMS.items()
    for text in TEXTS
    if text is None or program.entry != "plugin"
]


def settings(name: str) -> Path:
    file = PROGRAMS[name].home() / PROGRAMS[name].settings
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def put(file: Path, text: str | None) -> None:
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_bytes(text.encode())


def content(file: Path) -> str | None:
    return file.read_bytes().decode() if file.exists() else None


@table("name, text", CASES)
def test_the_hooks_are_added_and_taken_back_to_the_byte(account: Account, name: str, text: str) -> None:
    file, installs = settings(name), Installs(account.home)
    put(file, text)
    first = installs.install(PROGRAMS[name], None)
    once = content(file)
    assert once is not None
    assert installs.missing_events(first) == []
    again = installs.install(PROGRAMS[name], None)
    assert content(file) == once
    installs.uninstall(again)
    assert content(file) == text
    assert installs.all() == []


@table("name, text", [case for case in CASES if (case[1] or "").strip()])
def test_a_change_of_the_person_stays_when_the_hooks_go(account: Account, name: str, text: str) -> None:
    file, installs = settings(name), Installs(account.home)
    put(file, text)
    installed = installs.install(PROGRAMS[name], None)
    edited = (content(file) or "").replace("{", '{"theirs": [1], ', 1)
    put(file, edited)
    installs.uninstall(installed)
    assert content(file) == text.replace("{", '{"theirs": [1], ', 1)


@table("name", [name for name, program in PROGRAMS.items() if program.entry != "plugin"])
def test_the_hooks_go_from_a_file_that_its_program_wrote_anew(account: Account, name: str) -> None:
    file, installs = settings(name), Installs(account.home)
    before = {"model": "x", "hooks": {"Other": [{"command": "theirs"}]}}
    put(file, json.dumps(before))
    installed = installs.install(PROGRAMS[name], None)
    value = json.loads(content(file) or "")
    put(file, json.dumps({**value, "model": "y"}, indent=4))
    installs.uninstall(installed)
    assert json.loads(content(file) or "") == {**before, "model": "y"}


@table("name", [name for name, program in PROGRAMS.items() if program.entry != "plugin"])
def test_hooks_are_found_however_their_program_writes_texts(
    account: Account, tmp_path: Path, name: str
) -> None:
    file, installs = settings(name), Installs(tmp_path / "Jörg's home")
    installed = installs.install(PROGRAMS[name], None)
    put(file, json.dumps({**json.loads(content(file) or ""), "model": "y"}, ensure_ascii=False))
    assert installs.missing_events(installed) == []
    installs.uninstall(installed)
    assert "hooks" not in json.loads(content(file) or "")


@table("name", [name for name, program in PROGRAMS.items() if program.entry == "group"])
def test_a_hook_that_somebody_added_beside_ours_stays(account: Account, name: str) -> None:
    file, installs = settings(name), Installs(account.home)
    installed = installs.install(PROGRAMS[name], None)
    value = json.loads(content(file) or "")
    event, theirs = list(PROGRAMS[name].events)[2], {"type": "command", "command": "theirs"}
    value["hooks"][event][0]["hooks"].append(theirs)
    put(file, json.dumps(value))
    installs.uninstall(installed)
    assert json.loads(content(file) or "")["hooks"] == {event: [{"hooks": [theirs]}]}


@table(
    "text, reason",
    [
        ("[]", "settings.json': line 1: expected an object"),
        ("// mine\n", "line 2: expected an object, found the end"),
        ('{"a": 1\n "b": 2}', "line 2: expected a comma"),
        ('{"a": tru}', "line 1: expected a value"),
        ('{"a": "\\q"}', "line 1: expected a value"),
        ('{"a": 1}\n{}', "line 2: expected the end of the file"),
        ('{"hooks": []}', "expected an object"),
        ('{"hooks": {"Stop": {}}}', "expected a list, found '{}}}'"),
        ('{"a": "', "expected a value"),
        ('{"a": ' + "[" * 9000, "nested too deeply"),
    ],
)
def test_settings_that_are_no_settings_stay_as_they_are(account: Account, text: str, reason: str) -> None:
    file, installs = settings("claude-code"), Installs(account.home)
    put(file, text)
    with pytest.raises(ConfigError, match=reason):
        installs.install(PROGRAMS["claude-code"], None)
    assert content(file) == text
    assert installs.all() == []


@pytest.mark.skipif(sys.platform == "win32", reason="an account there may make no links")
def test_a_link_to_settings_elsewhere_stays_a_link(account: Account, tmp_path: Path) -> None:
    file, installs = settings("claude-code"), Installs(account.home)
    elsewhere = tmp_path / "elsewhere.json"
    file.symlink_to(elsewhere)
    installed = installs.install(PROGRAMS["claude-code"], None)
    assert "hook.py" in (content(elsewhere) or "")
    installs.uninstall(installed)
    assert (file.is_symlink(), elsewhere.exists()) == (True, False)


def test_settings_that_are_no_file_are_not_read(account: Account) -> None:
    file, installs = settings("claude-code"), Installs(account.home)
    file.mkdir()
    with pytest.raises(ConfigError, match=r"settings\.json' is no file"):
        installs.install(PROGRAMS["claude-code"], None)


def test_hooks_that_could_not_be_written_are_not_installed(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, installs = settings("claude-code"), Installs(account.home)
    put(file, "{}")

    def refuse(path: Path, *rest: Any) -> None:
        if path == file:
            raise StorageError(f"can't write {str(path)!r}: Permission denied", "check who owns it")
        write_checked(path, *rest)

    monkeypatch.setattr("hermes_memory_capture.installs.write_checked", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        installs.install(PROGRAMS["claude-code"], None)
    assert (content(file), installs.all()) == ("{}", [])


def test_hooks_of_a_program_that_this_version_does_not_know_are_no_fault_of_ours(account: Account) -> None:
    installs = Installs(account.home)
    installed = installs.install(PROGRAMS["codex"], None)
    data = (account.capture / "installs.json").read_bytes()
    (account.capture / "installs.json").write_bytes(data.replace(b'"codex"', b'"zed"'))
    with pytest.raises(StorageError, match="'zed'"):
        installs.missing_events(installed) or installs.all()


def test_a_second_installation_that_would_run_twice_is_refused(account: Account, tmp_path: Path) -> None:
    installs, program = Installs(account.home), PROGRAMS["gemini"]
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        installs.install(program, tmp_path / folder)
    with pytest.raises(ConfigError, match="installed for the project"):
        installs.install(program, None)
    assert not settings("gemini").exists()
    for installed in installs.all():
        installs.uninstall(installed)
    installs.install(program, None)
    with pytest.raises(ConfigError, match="installed for all projects"):
        installs.install(program, tmp_path / "one")


def test_a_plugin_that_somebody_changed_is_not_deleted(account: Account) -> None:
    file, installs = settings("opencode"), Installs(account.home)
    installed = installs.install(PROGRAMS["opencode"], None)
    put(file, f"{content(file)}// mine\n")
    with pytest.raises(ConfigError, match="was changed since"):
        installs.uninstall(installed)
    assert (content(file) or "").endswith("// mine\n")
