"""`hermes-memory keys`: names and values in .env, and no value on any output."""

from __future__ import annotations

import json
import logging
import os
import stat

import pytest
from click.testing import CliRunner

from hermes_core import HermesHome
from hermes_core.cli import keys, main
from hermes_core.config import Credentials
from tests.cli.conftest import Hermes

SECRET = "sk-live-3e9f0c5d"


def stored(home: HermesHome) -> dict[str, str | None]:
    credentials = Credentials(home, environ={})
    return {name: credentials.get(name) for name in credentials.names()}


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        (f"{SECRET}\n", SECRET),
        (f"{SECRET}\r\n", SECRET),
        (SECRET, SECRET),
        (f"\ufeff{SECRET}\r\n", SECRET),
        ('it\'s #1 $HOME "x" \\n\n', 'it\'s #1 $HOME "x" \\n'),
        ("pässwört\n", "pässwört"),
    ],
)
def test_a_value_from_standard_input_is_kept_private_and_not_shown(
    hermes: Hermes, hermes_home: HermesHome, typed: str, value: str
) -> None:
    done = hermes("keys", "set", "MY_KEY", typed=typed.encode())
    assert done.stdout == f"MY_KEY is set in {hermes_home.env_file}\n"
    assert value not in done.stdout + done.stderr
    assert stored(hermes_home) == {"MY_KEY": value}
    if os.name != "nt":
        assert stat.S_IMODE(hermes_home.env_file.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_a_file_that_others_could_read_is_private_afterwards(hermes: Hermes, hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    hermes_home.env_file.write_text("# mine\nexport OTHER='x' # why\n")
    hermes_home.env_file.chmod(0o644)
    hermes("keys", "set", "MY_KEY", typed=SECRET)
    assert stat.S_IMODE(hermes_home.env_file.stat().st_mode) == 0o600
    assert hermes_home.env_file.read_text().startswith("# mine\nexport OTHER='x' # why\n")


def test_a_value_is_typed_at_a_terminal_without_an_echo(
    hermes: Hermes, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_is_terminal", lambda: True)
    done = hermes("keys", "set", "MY_KEY", typed=f"{SECRET}\n")
    assert "Value of MY_KEY" in done.stdout
    assert SECRET not in done.output
    assert stored(hermes_home) == {"MY_KEY": SECRET}


@pytest.mark.parametrize(
    "words",
    [
        ("MY_KEY", SECRET),
        (f"MY_KEY={SECRET}",),
        ("MY_KEY", f"-{SECRET}"),
        (SECRET,),
        (SECRET, "MY_KEY"),
        (f"--{SECRET}", "x"),
    ],
)
def test_a_value_on_the_command_line_is_refused_and_not_repeated(
    hermes: Hermes, hermes_home: HermesHome, caplog: pytest.LogCaptureFixture, words: tuple[str, ...]
) -> None:
    caplog.set_level(logging.DEBUG)
    done = hermes("keys", "set", *words, code=1, typed="x\n")
    assert SECRET not in done.output + caplog.text
    assert not hermes_home.env_file.exists()


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("MY_KEY", b"", "is empty"),
        ("MY_KEY", b"\n", "is empty"),
        ("MY_KEY", b"one\ntwo\n", "line break"),
        ("MY_KEY", b"\xff\xfe", "not UTF-8"),
        ("MY_KEY", b"x" * 70_000, "bytes"),
        ("MY-KEY", b"x", "can't name a key"),
        ("1KEY", b"x", "can't name a key"),
        ("LD_PRELOAD", b"/tmp/x.so", "controls programs"),
        ("HTTPS_PROXY", b"http://p", "controls programs"),
    ],
)
def test_what_no_file_of_keys_should_have_is_refused(
    hermes: Hermes, hermes_home: HermesHome, name: str, typed: bytes, said: str
) -> None:
    done = hermes("keys", "set", name, code=1, typed=typed)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert stored(hermes_home) == {}


def test_a_proxy_can_be_forced(hermes: Hermes, hermes_home: HermesHome) -> None:
    hermes("keys", "set", "HTTPS_PROXY", "--force", typed="http://p\n")
    assert stored(hermes_home) == {"HTTPS_PROXY": "http://p"}


def test_names_are_listed_without_values_and_with_what_the_environment_replaces(
    hermes: Hermes, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hermes("keys", "list").stdout == f"No key is in {hermes_home.env_file}.\n"
    hermes("keys", "set", "B_KEY", typed=SECRET)
    monkeypatch.setenv("A_KEY", "other")
    done = hermes("keys", "set", "A_KEY", typed=SECRET)
    assert "the environment also sets A_KEY" in done.stderr
    assert "other" not in done.stderr.replace("to another value", "")
    listed = hermes("keys", "list", "--json")
    assert json.loads(listed.stdout) == [
        {"name": "A_KEY", "source": "environment"},
        {"name": "B_KEY", "source": ".env"},
    ]
    shown = hermes("keys", "list").stdout
    assert "B_KEY" in shown
    assert SECRET not in shown + listed.stdout
    with hermes_home.env_file.open("a") as file:
        file.write("C_KEY: x\n")
    assert "line 3 of" in hermes("keys", "list", code=3).stderr


def test_a_key_is_taken_out_and_the_rest_stays(
    hermes: Hermes, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    hermes_home.path.mkdir()
    hermes_home.env_file.write_text("# mine\nA_KEY=x\nB_KEY=y\n")
    assert hermes("keys", "remove", "A_KEY").stdout == f"A_KEY is taken out of {hermes_home.env_file}\n"
    assert hermes_home.env_file.read_text() == "# mine\nB_KEY=y\n"
    assert "A_KEY is not in" in hermes("keys", "remove", "A_KEY", code=1).stderr
    refused = hermes("keys", "remove", SECRET, code=1)
    assert SECRET not in refused.output
    monkeypatch.setenv("B_KEY", "z")
    assert "is still set in the environment" in hermes("keys", "remove", "B_KEY").stderr


def test_help_names_no_value_on_the_command_line() -> None:
    said = CliRunner().invoke(main, ["keys", "set", "--help"]).stdout
    assert "keys set [OPTIONS] NAME" in said
    assert "VALUE" not in said
