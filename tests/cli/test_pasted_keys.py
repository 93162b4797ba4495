"""A key that was pasted in place of a name is not printed, stored or sent by any command."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_core import HermesHome

KEYS = [
    "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6",
    "sk-" + "proj-a1B2c3D4a1B2c3D4a1B2c3D4",
    "ee3bbecdd1122461" * 2,
]
COMMANDS = [
    "KEY",
    "--profile KEY memory status",
    "keys set KEY",
    "keys set KEY=1",
    "keys set NAME KEY",
    "keys remove KEY",
    "config get KEY",
    "config set KEY 1",
    "config set model.name KEY",
    "config set memory.provider KEY",
    "config set memory.memory_char_limit KEY",
    "config unset KEY",
    "completion KEY",
    "forget KEY --yes",
    "identity add KEY",
    "identity remove KEY",
    "import KEY",
    "import --format KEY x",
    "logs --level KEY",
    "logs --level=KEY",
    "memory KEY",
    "memory add --KEY x",
    "memory history KEY",
    "memory remove KEY",
    "memory show --target KEY",
    "memory undo KEY",
    "memory use KEY",
    "memory setup KEY",
    "outbox retry KEY",
    "plugins install KEY",
    "plugins remove KEY",
    "plugins update KEY",
    "providers KEY",
    "providers install KEY",
    "recall --session KEY tea",
    "sessions delete KEY --yes",
    "sessions rename KEY title",
    "sessions show KEY",
    "skills show KEY",
]


@pytest.mark.parametrize("key", KEYS, ids=["format", "words", "digits"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_key_pasted_as_a_name_is_not_printed_or_stored(
    hermes: Any, hermes_home: HermesHome, command: str, key: str
) -> None:
    result = hermes(*command.replace("KEY", key).split(), code=None)
    assert result.exit_code in (1, 2)
    assert key not in result.output
    assert not [
        path for path in hermes_home.path.rglob("*") if path.is_file() and key.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize(
    "name", ["20261127_163729_ab12cd34", "0e3f2c1a-5b6d-4e7f-8a9b-0c1d2e3f4a5b", "telegram:4242424242"]
)
def test_an_id_is_quoted_in_the_error_about_it(hermes: Any, name: str) -> None:
    assert repr(name) in hermes("sessions", "show", name, code=1).stderr
