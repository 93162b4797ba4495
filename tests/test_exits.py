"""An error's text may hold a secret. Every way out of the process redacts it: logs, terminals, JSON, models, files."""

from __future__ import annotations

import io
import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hermes_core import HermesHome, open_memory
from hermes_core.cli import main
from hermes_core.config import set_value
from hermes_core.contract.values import MemoryWrite, Session, ToolCall
from hermes_core.curated.hooks import NoteHooks
from hermes_core.curated.store import Notes
from hermes_core.curated.stored import StoredNotes
from hermes_core.curated.tool import call_memory_tool
from hermes_core.errors import (
    BackendRefused,
    DatabaseUnavailable,
    HermesError,
    MemoryConflict,
    OutboxError,
    SkillError,
)
from hermes_core.kit import ToolBox, tool
from hermes_core.logs import LogFile, RedactingFilter, logging_to
from hermes_core.safety.redact import redact_errors
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.tool import SessionSearchTool
from hermes_core.storage.engine import Engine
from hermes_memory_agent.skills.store import SkillStore
from hermes_memory_agent.skills.tool import SkillTools
from hermes_memory_agent.tools import error as tool_error
from hermes_memory_mcp.memory_files import MemoryFiles
from hermes_memory_mcp.toolset import ToolSet, shown_entries
from tests.table import table
from tests.test_public_names import ERRORS

PASSWORD = "hunter22"
KEY = "sk-proj-abcdefghij0123456789abcd"
ANSWER = f"401 from http://ann:{PASSWORD}@127.0.0.1:9/v1: the key {KEY} is refused"
SESSION = Session("s1")

# A provider whose SDK quotes the key and the address in its errors, at every hook.
PROVIDER = f"""
from hermes_core import MemoryProvider, ToolCall
from hermes_core.errors import BackendUnavailable

class ApiError(Exception):
    pass

class Notes(MemoryProvider):
    name = "notes"

    def get_tool_schemas(self):
        return [{{"name": "notes_find", "description": "x", "parameters": {{"type": "object", "properties": {{}}}}}}]

    def prefetch(self, query):
        raise ApiError({ANSWER!r})

    def on_turn_start(self, turn_number):
        raise ApiError({ANSWER!r})

    def sync_turn(self, turn):
        raise BackendUnavailable({ANSWER!r}, {ANSWER!r})

    def on_memory_write(self, write):
        raise ApiError({ANSWER!r})

    def handle_tool_call(self, call):
        raise ApiError({ANSWER!r})

    def check(self, session):
        raise ApiError({ANSWER!r})
"""
UNLOADABLE = f"""
from hermes_core import MemoryProvider
from hermes_core.errors import ConfigError
raise ConfigError({ANSWER!r}, {ANSWER!r})
"""


def assert_redacted(*texts: object) -> None:
    text = "\n".join(map(str, texts))
    assert PASSWORD not in text
    assert KEY not in text
    assert "[redacted:" in text


def install(home: HermesHome, code: str) -> HermesHome:
    folder = home.plugins / "notes"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(code)
    set_value(home, "memory.provider", "notes")
    return home


def files_with_a_secret(home: HermesHome) -> list[str]:
    """The files of the home that hold one, but for the provider's own source."""
    paths = [p for p in home.path.rglob("*") if p.is_file() and home.plugins not in p.parents]
    return [p.name for p in paths if PASSWORD.encode() in p.read_bytes() or KEY.encode() in p.read_bytes()]


@table("error", ERRORS)
def test_an_error_keeps_the_text_it_was_given_also_in_another_process(error: type[HermesError]) -> None:
    made = error(ANSWER, "try again")
    copy = pickle.loads(pickle.dumps(made))
    assert str(made) == str(copy) == f"{ANSWER}; try again"
    assert copy.args == made.args
    assert vars(copy) == vars(made)
    assert str(error(ValueError("caught"))) == "caught"  # type: ignore[arg-type]


def test_a_turn_its_log_and_the_files_of_the_home_hold_no_secret(hermes_home: HermesHome) -> None:
    log = LogFile(install(hermes_home, PROVIDER))
    with logging_to(log), open_memory(hermes_home) as memory:
        session = memory.start_session(platform="cli")
        turn = memory.begin_turn(session, "Where do we deploy?")
        memory.end_turn(session, "Where do we deploy?", "On Fly.")
        memory.call_tool(session, "memory", {"action": "add", "target": "user", "content": "Mel"})
        answer = memory.call_tool(session, "notes_find", {})
        memory.flush(2.0)
        assert_redacted(turn.problems, memory.problems(), answer)
        assert_redacted(answer)
    assert files_with_a_secret(hermes_home) == []
    assert_redacted(log.path.read_text())


@pytest.mark.parametrize(
    "words",
    [
        ["doctor"],
        ["doctor", "--json"],
        ["recall", "Where do we deploy?"],
        ["recall", "Where do we deploy?", "--json"],
        ["--debug", "recall", "Where do we deploy?"],
    ],
    ids=" ".join,
)
def test_no_command_prints_the_secret_of_a_failing_backend(hermes_home: HermesHome, words: list[str]) -> None:
    install(hermes_home, PROVIDER)
    result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert_redacted(result.stdout, result.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ["memory", "status"],
        ["memory", "status", "--json"],
        ["providers"],
        ["providers", "--json"],
        ["doctor", "--json"],
    ],
    ids=" ".join,
)
def test_no_command_prints_the_secret_of_a_provider_that_does_not_load(
    hermes_home: HermesHome, words: list[str]
) -> None:
    install(hermes_home, UNLOADABLE)
    result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert_redacted(result.stdout, result.stderr)


def test_a_dead_letter_holds_and_prints_no_secret(hermes_home: HermesHome) -> None:
    install(hermes_home, PROVIDER.replace("BackendUnavailable", "BackendRefused"))
    with open_memory(hermes_home) as memory:
        session = memory.start_session(platform="cli")
        memory.end_turn(session, "Where do we deploy?", "On Fly.")
        memory.flush(2.0)
    assert files_with_a_secret(hermes_home) == []
    for words in (["outbox", "list"], ["outbox", "list", "--json"]):
        result = CliRunner().invoke(main, words)
        assert_redacted(result.stdout)


@pytest.fixture
def database(hermes_home: HermesHome) -> Iterator[Engine]:
    with closing(SessionStore(hermes_home.state_db)) as sessions:
        yield sessions.database


def failing(*_arguments: object, **_named: object) -> Any:
    raise DatabaseUnavailable(ANSWER, ANSWER)


def test_no_answer_of_a_tool_holds_a_secret(
    hermes_home: HermesHome, database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Notes(hermes_home, database)
    monkeypatch.setattr(store, "write", failing)
    add = {"action": "add", "target": "user", "content": "Mel"}
    assert_redacted(call_memory_tool(store, add, SESSION))
    assert_redacted(SessionSearchTool(failing).call({"query": "x"}, SESSION))
    skills = SkillStore(hermes_home.skills, database)
    monkeypatch.setattr(skills, "skills", failing)
    assert_redacted(SkillTools(skills).call("skill_view", {}, SESSION))
    assert_redacted(tool_error(ANSWER, "try again"))


def test_a_refused_mirror_and_a_refused_suppressed_write_hold_no_secret(
    hermes_home: HermesHome, database: Engine
) -> None:
    def refuse(write: MemoryWrite, session: Session) -> None:
        raise OutboxError(ANSWER, ANSWER)

    store = Notes(hermes_home, database, hooks=NoteHooks(on_write=refuse))
    assert_redacted(store.add("user", "Mel")["warning"])
    hooks = NoteHooks(on_write=refuse, suppresses=lambda target: True)
    assert_redacted(Notes(hermes_home, database, hooks=hooks).add("user", "Mel"))


def test_the_tools_of_a_provider_redact_what_its_backend_says() -> None:
    class Backend:
        @tool(description="Find.")
        def find(self) -> str:
            """Find."""
            raise BackendRefused(ANSWER)

    assert_redacted(ToolBox(Backend().find).dispatch(ToolCall("find", {}), SESSION))


def test_no_answer_of_the_mcp_server_holds_a_secret(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_memory(install(hermes_home, PROVIDER)) as memory:
        tools = ToolSet(memory, memory.local_session)
        assert_redacted(tools.call("notes_find", {}))
        assert_redacted(tools.call("recall", {"query": "Where do we deploy?"}))
        stored = memory.curated.read()
        stored.problems = dict.fromkeys(stored.files, MemoryConflict(ANSWER, ANSWER))
        monkeypatch.setattr(Notes, "read", lambda self: stored)
        for uri in tools.resources():
            assert_redacted(tools.read_resource(uri))
        monkeypatch.setattr(StoredNotes, "entries", failing)
        assert_redacted(shown_entries(stored, "user"))
        assert_redacted(MemoryFiles(memory, SESSION).call({"command": "view", "path": "/memories/USER.md"}))


def test_an_expected_failure_is_one_line_without_the_secret(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise SkillError(ANSWER, ANSWER)

    hermes_home.path.mkdir()
    monkeypatch.setattr(SkillStore, "skills", fail)
    result = CliRunner().invoke(main, ["skills", "list"])
    assert result.exit_code == 1
    assert_redacted(result.stderr)


def test_a_traceback_of_the_program_and_of_its_threads_holds_no_secret(tmp_path: Path) -> None:
    code = f"""
import sys, threading
import hermes_core.cli as cli
from hermes_memory_agent.skills.store import SkillStore

def fail(*_):
    thread = threading.Thread(target=lambda: 1 / 0 if not {ANSWER!r} else exec("raise KeyError({ANSWER!r})"))
    thread.start()
    thread.join()
    raise RuntimeError({ANSWER!r})

SkillStore.skills = fail
sys.argv = ["hermes-memory", "--home", {str(tmp_path)!r}, "skills", "list"]
cli.main()
"""
    script = tmp_path / "program.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert "RuntimeError: 401 from" in done.stderr
    assert "KeyError: " in done.stderr
    # The lines of this script stand in the traceback too; they hold no secret of a backend.
    said = [line for line in done.stderr.splitlines() if "Error: " in line]
    assert_redacted(*said)


def test_a_hosts_own_log_handler_can_redact_messages_and_tracebacks() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(RedactingFilter())
    logger = logging.getLogger("some.sdk")
    logger.addHandler(handler)
    try:
        try:
            raise RuntimeError(ANSWER)
        except RuntimeError:
            logger.exception("refused: %s", ANSWER)
        logger.warning("%d wrong arguments", ANSWER)
    finally:
        logger.removeHandler(handler)
    assert "Traceback" in stream.getvalue()
    assert_redacted(stream.getvalue())


def test_only_the_texts_of_errors_are_redacted_in_an_answer() -> None:
    entries = [f"my password is {PASSWORD}"]
    answer = redact_errors({"entries": entries, "deep": [{"error": ANSWER, "problems": [ANSWER]}]})
    assert isinstance(answer, dict)
    assert answer["entries"] == entries
    assert_redacted(json.dumps(answer["deep"]))
