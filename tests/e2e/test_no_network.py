"""Curated memory, sessions, recall and import need no network: they run where sockets are forbidden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_core import HermesHome
from hermes_core.config import set_value

FORBIDDEN = """
import socket

class Forbidden(socket.socket):
    def __init__(self, *arguments, **more):
        raise AssertionError("a socket was opened")

def refuse(*arguments, **more):
    raise AssertionError("a name was looked up")

socket.socket = Forbidden
socket.create_connection = socket.getaddrinfo = socket.gethostbyname = refuse
"""

COMMANDS = """
import json, sys
from click.testing import CliRunner
from hermes_core.cli import main

for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(main, words)
    print(json.dumps([words, done.exit_code, done.stdout, done.stderr]))
"""

CHAT = """
{"session": "s1", "role": "user", "content": "My cat is called Momo"}
{"session": "s1", "role": "assistant", "content": "Noted."}
"""


@pytest.fixture
def chat(tmp_path: Path) -> str:
    """A conversation to import, beside the module that forbids sockets."""
    (tmp_path / "sitecustomize.py").write_text(FORBIDDEN)
    (tmp_path / "chat.jsonl").write_text(CHAT.strip())
    return str(tmp_path / "chat.jsonl")


def python(folder: str, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": folder}
    return subprocess.run([sys.executable, *command], env=environ, capture_output=True, text=True)


def test_the_guard_holds(chat: str) -> None:
    ended = python(str(Path(chat).parent), "-c", "import socket; socket.socket()")
    assert "a socket was opened" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["", "holographic"])
def test_a_life_without_network(chat: str, hermes_home: HermesHome, provider: str) -> None:
    set_value(hermes_home, "memory.provider", provider)
    commands = [
        ["import", chat],
        ["memory", "add", "Likes tea"],
        ["memory", "show"],
        ["memory", "undo"],
        ["memory", "status"],
        ["recall", "What is my cat called?"],
        ["sessions", "search", "cat"],
        ["providers"],
    ]
    ended = python(str(Path(chat).parent), "-c", COMMANDS, json.dumps(commands))
    assert ended.returncode == 0, ended.stderr
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [words for words, *_ in answers] == commands
    for words, code, output, errors in answers:
        assert code == 0, (words, errors)
        assert output, words


@pytest.mark.slow
def test_the_demo_needs_no_network(chat: str) -> None:
    ended = python(str(Path(chat).parent), "-m", "hermes_core", "demo")
    assert ended.returncode == 0, ended.stderr
    assert "✓" in ended.stdout
