from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.agent.curator import Entry, Proposal, accept, propose, read_proposal
from hermes_core.agent.model import ModelSettings, OpenAIModel
from hermes_core.cli import main
from hermes_core.config import set_value
from hermes_core.curated.edits import Edit, apply
from hermes_core.errors import CuratedMemoryError
from hermes_core.home import HermesHome
from hermes_core.memory import open_memory
from hermes_core.testing.model_server import ModelServer, Reply

BEFORE = ("Likes tea.", "Drinks tea, green.", "The build is red today.")


def answer(entries: list[tuple[str, list[int]]], lost: dict[int, str] | None = None, said: str = "") -> str:
    made = [{"text": text, "from": sources} for text, sources in entries]
    gone = [{"entry": number, "reason": reason} for number, reason in (lost or {}).items()]
    return f"{said}{json.dumps({'entries': made, 'lost': gone, 'contradictions': ['a or b']})}"


GOOD = answer([("Drinks green tea.", [1, 2])], {3: "true for a day", 1: "merged", 2: "merged"})


def read(text: str) -> Proposal:
    return read_proposal("user", BEFORE, text)


@pytest.mark.parametrize("said", ["", "Here it is:\n```json\n"])
def test_a_proposal_is_read_out_of_what_the_model_says(said: str) -> None:
    found = read(said + GOOD)
    assert found.after == ("Drinks green tea.",)
    assert found.losses[2] == "true for a day"
    assert found.faults() == []
    assert "-Likes tea." in found.diff()
    assert "contradiction: a or b" in found.diff()


@pytest.mark.parametrize("text", ["Done!", "{}", "[1]", '{"entries": 3}', answer([("x", [9])])])
def test_what_is_no_proposal_is_said(text: str) -> None:
    with pytest.raises(CuratedMemoryError, match="no proposal"):
        read(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (answer([("Likes tea.", [1]), ("Drinks tea, green.", [2])]), "neither kept nor named"),
        (answer([("Lives in Oslo.", [])], {1: "a", 2: "b", 3: "c"}), "was made of no entry"),
        (answer([("Tea.", [1, 2, 3])]), "more than 30% would go"),
    ],
)
def test_a_proposal_that_loses_or_invents_is_refused(text: str, fault: str) -> None:
    assert any(fault in one for one in read(text).faults())


@given(st.lists(st.text("abc", min_size=1), unique=True, max_size=6), st.data())
def test_the_edits_make_exactly_the_proposed_version(before: list[str], data: Any) -> None:
    entries, losses = [], {}
    for index in range(len(before)):
        choice = data.draw(st.sampled_from(["keep", "lose", "rewrite"]))
        if choice == "lose":
            losses[index] = "stale"
        else:
            entries.append(Entry(before[index] if choice == "keep" else f"new {index}", (index,)))
    found = Proposal("user", tuple(before), tuple(entries), losses)
    done = apply(before, found.operations(), batch=True) if found.changes_anything else Edit(tuple(before))
    assert isinstance(done, Edit)
    assert done.entries == found.after


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer([Reply(GOOD)]) as server:
        yield server


@pytest.fixture
def home(hermes_home: HermesHome, server: ModelServer) -> HermesHome:
    set_value(hermes_home, "model.base_url", server.base_url)
    set_value(hermes_home, "model.name", "scripted")
    with open_memory(hermes_home) as memory:
        for entry in BEFORE:
            memory.curated.add("user", entry)
    return hermes_home


def entries(home: HermesHome) -> tuple[str, ...]:
    with open_memory(home) as memory:
        return memory.curated.entries("user")


def test_an_accepted_proposal_is_one_change_that_can_be_undone(home: HermesHome, server: ModelServer) -> None:
    model = OpenAIModel(ModelSettings(server.base_url, "m"))
    with open_memory(home) as memory:
        assert accept(memory.curated, propose(model, memory.curated, "user"), memory.local_session)["success"]
        assert memory.curated.entries("user") == ("Drinks green tea.",)
        memory.curated.undo()
        assert set(memory.curated.entries("user")) == set(BEFORE)
    model.close()


def test_an_entry_that_changed_meanwhile_stops_the_proposal(home: HermesHome, server: ModelServer) -> None:
    model = OpenAIModel(ModelSettings(server.base_url, "m"))
    with open_memory(home) as memory:
        found = propose(model, memory.curated, "user")
        memory.curated.replace("user", "Likes tea.", "Likes coffee.")
        assert not accept(memory.curated, found, memory.local_session)["success"]
        assert "Likes coffee." in memory.curated.entries("user")
    model.close()


def curate(*arguments: str, typed: str = "") -> Any:
    return CliRunner().invoke(main, ["memory", "curate", "--target", "user", *arguments], input=typed)


@pytest.mark.parametrize(("typed", "kept"), [("n\n", BEFORE), ("y\n", ("Drinks green tea.",))])
def test_the_command_shows_the_difference_and_asks(
    home: HermesHome, typed: str, kept: tuple[str, ...]
) -> None:
    result = curate(typed=typed)
    assert result.exit_code == 0
    assert "+Drinks green tea." in result.output
    assert entries(home) == kept


def test_the_configuration_may_accept(home: HermesHome) -> None:
    set_value(home, "curator.auto", True)
    assert json.loads(curate("--json").stdout)["applied"] is True
    assert entries(home) == ("Drinks green tea.",)


def test_a_faulty_proposal_is_shown_and_never_applied(home: HermesHome, server: ModelServer) -> None:
    server._script = [Reply(answer([("Tea.", [1])]))]
    result = curate("--apply")
    assert result.exit_code == 1
    assert "neither kept nor named as lost" in result.stderr
    assert entries(home) == BEFORE


def test_an_empty_file_asks_nothing(home: HermesHome, server: ModelServer) -> None:
    assert "nothing" in CliRunner().invoke(main, ["memory", "curate", "--target", "memory"]).output
    assert server.requests == []
