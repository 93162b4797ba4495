"""The command line, run in this process on the test's own home."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hermes_core import HermesHome, MemoryManager, Session
from hermes_core.cli import main
from hermes_core.config import set_value
from hermes_core.storage.files import ensure_folder
from tests.outbox_of import ON_POSTGRES

Hermes = Callable[..., Result]

CHAT = [
    {"session": "s1", "role": "user", "content": "My cat is called Momo", "speaker": "Ana", "ref": "m1"},
    {"session": "s1", "role": "assistant", "content": "What a lovely name."},
    {"session": "s1", "role": "user", "content": "She is black and white"},
    {"session": "s1", "role": "assistant", "content": "Noted."},
    {"session": "s2", "role": "user", "content": "Tomorrow I fly to Lisbon"},
    {"session": "s2", "role": "assistant", "content": "Have a good trip."},
]

NOTES = '''
from hermes_core import MemoryProvider

class Notes(MemoryProvider):
    name = "notes"

    def prefetch(self, query):
        return "noted: " + query.text

    def register_cli(self, group):
        import click

        @group.command()
        def count():
            """Say how many."""
            click.echo("three notes")
'''


@pytest.fixture
def hermes(hermes_home: HermesHome) -> Hermes:
    """Runs one command; a bug's exception comes through. The home exists, as one that was set up."""

    def run(*words: object, code: int | None = 0, typed: str | bytes | None = None) -> Result:
        ensure_folder(hermes_home.path)
        result = CliRunner().invoke(
            main, [str(word) for word in words], input=typed, prog_name="hermes-memory"
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code in (None, result.exit_code), (words, result.stdout, result.stderr)
        assert "Traceback" not in result.stderr
        return result

    return run


@pytest.fixture(params=["postgresql"] if ON_POSTGRES else ["sqlite", "postgresql"])
def engine(hermes_home: HermesHome, request: pytest.FixtureRequest) -> str:
    """The engine of the home: files, or a server, which then has the notes as well."""
    if request.param == "postgresql":
        set_value(hermes_home, "storage.url", request.getfixturevalue("postgres_url"))
        set_value(hermes_home, "storage.schema", request.getfixturevalue("postgres_schema"))
    return str(request.param)


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    """A conversation of two sessions, a message a line."""
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(map(json.dumps, CHAT)))
    return path


@pytest.fixture
def notes(hermes_home: HermesHome) -> Path:
    """The folder of a provider called `notes`; nobody chose it yet."""
    folder = hermes_home.plugins / "notes"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(NOTES)
    return folder


@pytest.fixture
def data(hermes: Hermes) -> Callable[..., Any]:
    """Runs one command with `--json` and reads what it prints."""

    def run(*words: object, code: int = 0) -> Any:
        return json.loads(hermes(*words, "--json", code=code).stdout)

    return run


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event that the code of a provider can wait for: `import gate_of_test; gate_of_test.opened.wait()`."""
    opened = threading.Event()
    monkeypatch.setitem(sys.modules, "gate_of_test", SimpleNamespace(opened=opened))
    yield opened
    opened.set()


@pytest.fixture
def starts_slowly(notes: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider `notes` starts only if a command waits for it longer than a turn does."""
    original = MemoryManager.initialize_all

    def initialize_all(manager: MemoryManager, session: Session, wait: float | None = None) -> None:
        if wait is not None:
            gate.set()
        original(manager, session, 0.0 if wait is None else wait)

    monkeypatch.setattr(MemoryManager, "initialize_all", initialize_all)
    start = "\n    def initialize(self):\n        import gate_of_test\n\n        gate_of_test.opened.wait()\n"
    source = notes / "__init__.py"
    source.write_text(source.read_text().replace('    name = "notes"\n', f'    name = "notes"\n{start}'))


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make this Python code the editor; it changes `text`."""

    def use(code: str) -> None:
        script = tmp_path / "editor.py"
        script.write_text(
            "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\ntext = path.read_text(encoding='utf-8')\n"
            f"{code}\npath.write_text(text, encoding='utf-8')\n"
        )
        monkeypatch.delenv("EDITOR", raising=False)
        monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")

    return use
