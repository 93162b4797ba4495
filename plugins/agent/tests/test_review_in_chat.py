"""The chat names notes that wait for the person, and reviews them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from hermes_core.cli import main
from hermes_core.curated.edits import Operation
from hermes_core.home import HermesHome
from hermes_core.memory import open_memory
from hermes_core.safety.origin import Reading
from hermes_memory_agent.cli.chat_terminal import TerminalChat
from hermes_memory_testing.model_server import ModelServer, Reply

PAGE = "The museum opens at 9"


@pytest.fixture
def home(hermes_home: HermesHome) -> Iterator[HermesHome]:
    with ModelServer([Reply("One."), Reply("Two.")]) as server:
        hermes_home.path.mkdir(parents=True)
        hermes_home.config_yaml.write_text(
            f"model: {{base_url: '{server.base_url}', name: scripted, retries: 0}}\n"
        )
        with open_memory(hermes_home) as memory:
            operations = [Operation("add", PAGE)]
            memory.curated.write("memory", operations, memory.local_session, reading=Reading("web"))
        yield hermes_home


def chat(*lines: str) -> Result:
    return CliRunner().invoke(main, ["chat"], input="".join(f"{line}\n" for line in lines))


def waiting(home: HermesHome) -> list[str]:
    with open_memory(home) as memory:
        return [note.entry for note in memory.curated.read().waiting_notes()]


def test_a_note_that_waits_is_named_once(home: HermesHome) -> None:
    result = chat("Hello.", "Hello again.")
    assert result.stderr.count("1 note from a web page waits: hermes-memory review") == 1
    assert waiting(home) == [PAGE]


def test_a_pipe_lists_and_confirms_nothing(home: HermesHome) -> None:
    result = chat("/review", "a")
    assert PAGE in result.stdout
    assert waiting(home) == [PAGE]


@pytest.mark.parametrize(("answer", "left"), [("a", []), ("r", []), ("s", [PAGE])])
def test_a_person_is_asked(
    home: HermesHome, monkeypatch: pytest.MonkeyPatch, answer: str, left: list[str]
) -> None:
    monkeypatch.setattr(TerminalChat, "interactive", property(lambda chat: True))
    result = chat("Hello.", "/review", answer)
    assert "1 note from a web page waits: /review" in result.stderr
    assert f"+ {PAGE}" in result.stdout
    assert waiting(home) == left
    with open_memory(home) as memory:
        prompt = memory.system_prompt(memory.start_session("later"))
    assert (PAGE in prompt) == (answer == "a")
